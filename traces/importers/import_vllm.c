/* SPDX-License-Identifier: Apache-2.0 */
/* Timed traces of vLLM's benchmark: Mooncake's keys, but seconds and one hash per 16 tokens. */
#include "config.h"
#include "traces/importers/import.h"

static const char *const need[] = { "timestamp", "input_length", "output_length", NULL };
static const char *const may[] = { "hash_ids", NULL };

/* Without hashes the trace is indistinguishable from a Mooncake trace, and both fit. */
static bool vllm_sniff(const struct record *first)
{
	return (!record_get(first, "hash_ids") || import_hash_fits(first, 16)) &&
	       !record_get(first, "chat_id") && !record_get(first, "session_id") &&
	       !record_get(first, "delay");
}

static enum ar_status vllm_record(struct import *im, const struct record *r, struct ar_err *err)
{
	return import_hashed(im, r, 1000000000, err);
}

const struct importer importer_vllm = {
	.name = "vllm",
	.title = "vLLM timed trace (JSON lines)",
	.kind = RECORD_JSON,
	.uses = USES_UNIT,
	.need = need,
	.may = may,
	.block_tok = 16,
	.sniff = vllm_sniff,
	.record = vllm_record,
};
