/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of traces, in the order that messages list them in. */
IMPORTER(aiperf)
IMPORTER(azure)
IMPORTER(azure_lmm)
IMPORTER(bailian)
IMPORTER(burstgpt)
IMPORTER(canonical)
IMPORTER(llmservingsim)
IMPORTER(mooncake)
IMPORTER(ragpulse)
IMPORTER(splitwise)
IMPORTER(vidur)
IMPORTER(vllm)
