/* Mooncake traces: milliseconds, token counts, and one hash per 512 tokens of the prompt. */
#include "config.h"
#include "traces/import.h"

static const char *const need[] = { "timestamp", "input_length", "output_length", NULL };
static const char *const may[] = { "hash_ids", NULL };

/* Dialects with these keys mean something else by the rest. */
static const struct {
	const char *key, *why;
} refused[] = {
	{ "session_id", "this is a trace of sessions, read it with --format aiperf" },
	{ "delay", "this is a trace of sessions, read it with --format aiperf" },
	{ "chat_id", "this is a Qwen-Bailian trace, read it with --format bailian" },
	{ "text_input", "a text has no token count" },
	{ "messages", "a text has no token count" },
	{ "payload", "a text has no token count" },
};

/* Timed traces of vLLM have the same keys, but seconds and shorter blocks. */
static bool sniff(const struct record *first)
{
	const struct field *ids = record_find(first, "hash_ids");

	for (int i = 0; i < 3; i++)
		if (record_find(first, refused[i].key))
			return false;
	return !ids || (*ids->value.s == '[' &&
			(import_hash_fits(first, 512) || !import_hash_fits(first, 16)));
}

static enum ar_status start(struct import *im, struct ar_err *err)
{
	(void)err;
	import_hash_start(im, 512);
	return AR_OK;
}

static enum ar_status record(struct import *im, const struct record *r, struct ar_err *err)
{
	struct request q = import_none;
	enum ar_status st;

	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		if (record_find(r, refused[i].key))
			return import_fail(im, err, "the record has \"%s\": %s", refused[i].key,
					   refused[i].why);
	st = import_time(im, r, "timestamp", 1000000, &q.arrival_ns, err);
	if (!st)
		st = import_lengths(im, r, "input_length", "output_length", &q, err);
	if (st || import_unserved(im, &q))
		return st;
	st = import_hash_ids(im, r, q.prompt_tok, err);
	return st ? st : import_add(im, &q, err);
}

const struct importer importer_mooncake = {
	.name = "mooncake",
	.title = "Mooncake trace (JSON lines)",
	.kind = RECORD_JSON,
	.need = need,
	.may = may,
	.uses = USES_HASH_BLOCK,
	.sniff = sniff,
	.start = start,
	.record = record,
	.finish = import_hash_finish,
};
