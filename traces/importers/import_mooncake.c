/* SPDX-License-Identifier: Apache-2.0 */
/* Mooncake traces: milliseconds, token counts, and one hash per 512 tokens of the prompt. */
#include "config.h"
#include "traces/importers/import.h"

static const char *const need[] = { "timestamp", "input_length", "output_length", NULL };
static const char *const may[] = { "hash_ids", NULL };

/* Keys of dialects that give the common keys another meaning. */
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

/* Timed traces of vLLM have the same keys, but times in seconds and shorter blocks. */
static bool mooncake_sniff(const struct record *first)
{
	const struct field *ids = record_get(first, "hash_ids");

	for (int i = 0; i < 3; i++)
		if (record_get(first, refused[i].key))
			return false;
	return !ids || (*ids->value.s == '[' &&
			(import_hash_fits(first, 512) || !import_hash_fits(first, 16)));
}

static enum ar_status mooncake_record(struct import *im, const struct record *r, struct ar_err *err)
{
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		if (record_get(r, refused[i].key))
			return import_fail(im, err, "the record has \"%s\": %s", refused[i].key,
					   refused[i].why);
	return import_hashed(im, r, 1000000, err);
}

const struct importer importer_mooncake = {
	.name = "mooncake",
	.title = "Mooncake trace (JSON lines)",
	.kind = RECORD_JSON,
	.uses = USES_UNIT,
	.need = need,
	.may = may,
	.block_tok = 512,
	.sniff = mooncake_sniff,
	.record = mooncake_record,
};
