/* Timed traces of vLLM's benchmark: Mooncake's keys, but seconds and one hash per 16 tokens. */
#include "config.h"
#include "traces/import.h"

static const char *const need[] = { "timestamp", "input_length", "output_length", NULL };
static const char *const may[] = { "hash_ids", NULL };

/* Without hashes nothing tells it from a Mooncake trace, and both fit. */
static bool sniff(const struct record *first)
{
	return (!record_find(first, "hash_ids") || import_hash_fits(first, 16)) &&
	       !record_find(first, "chat_id") && !record_find(first, "session_id") &&
	       !record_find(first, "delay");
}

static enum ar_status start(struct import *im, struct ar_err *err)
{
	(void)err;
	import_hash_start(im, 16);
	return AR_OK;
}

static enum ar_status record(struct import *im, const struct record *r, struct ar_err *err)
{
	struct request q = import_none;
	enum ar_status st = import_time(im, r, "timestamp", 1000000000, &q.arrival_ns, err);

	if (!st)
		st = import_lengths(im, r, "input_length", "output_length", &q, err);
	if (st || import_unserved(im, &q))
		return st;
	st = import_hash_ids(im, r, q.prompt_tok, err);
	return st ? st : import_add(im, &q, err);
}

const struct importer importer_vllm = {
	.name = "vllm",
	.title = "vLLM timed trace (JSON lines)",
	.kind = RECORD_JSON,
	.need = need,
	.may = may,
	.uses = USES_HASH_BLOCK,
	.sniff = sniff,
	.start = start,
	.record = record,
	.finish = import_hash_finish,
};
