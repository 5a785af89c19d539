/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz targets.  Linked with fuzz_main.c, a target is a test over its corpus.  Compiled alone with
 * -fsanitize=fuzzer, it is a libFuzzer target. */
#ifndef AR_TESTS_FUZZ_H
#define AR_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

extern const char fuzz_corpus[]; /* a folder of tests/data/corpus */

/* Feed the bytes to the code under test; abort on an error. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#endif
