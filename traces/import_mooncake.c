/* Mooncake traces: milliseconds, token counts, and one hash per 512 tokens of the prompt. */
#include "config.h"
#include "traces/import.h"

#include <string.h>

#include "src/base/number.h"

enum { BLOCK_TOK = 512 };
static const uint32_t TEXT_ID = 1u << 31;	/* in a key's tail: the id is a string */

static const char *const need[] = { "timestamp", "input_length", "output_length", NULL };
static const char *const may[] = { "hash_ids", NULL };

/* Dialects with these keys mean something else by the rest. */
static const struct {
	const char *key, *why;
} refused[] = {
	{ "session_id",
	  "whether its prompts repeat the session's history is not said; remove the key "
	  "when every input_length is a whole prompt" },
	{ "delay", "closed-loop sessions cannot be replayed at recorded times" },
	{ "chat_id", "this is a Qwen-Bailian trace, with times in seconds" },
	{ "text_input", "a text has no token count" },
	{ "messages", "a text has no token count" },
	{ "payload", "a text has no token count" },
};

static bool sniff(const struct record *first)
{
	const struct field *ids = record_find(first, "hash_ids");

	return (!ids || *ids->value.s == '[') && !record_find(first, "chat_id");
}

/* An id as a number: strings are numbered by first appearance. */
static enum ar_status source_id(struct import *im, struct span id, struct chain_key *key,
				struct ar_err *err)
{
	uint32_t number;

	key->tail = 0;
	if (num_u64(id.s, id.n, &key->src))
		return AR_OK;
	if (*id.s != '"' || memchr(id.s, '\\', id.n))
		return import_fail(im, err,
				   "hash_ids holds \"%s\", want integers from 0 or plain strings",
				   span_show(id).s);
	if (!names_put(&im->id, id.s + 1, id.n - 2, &number))
		return ar_nomem(err);
	key->src = number;
	key->tail = TEXT_ID;
	return AR_OK;
}

/* The number of ids agrees with the length, or has one too many. */
static enum ar_status check_count(struct import *im, struct span ids, uint32_t want,
				  uint32_t prompt_tok, struct ar_err *err)
{
	struct span id;
	uint32_t have = 0;

	while (record_next(&ids, &id))
		have++;
	if (have == want + 1) {
		import_warn(im, WARN_EXTRA_BLOCK);
		return AR_OK;
	}
	if (have != want)
		return import_fail(im, err,
				   "input_length %u makes %u blocks of %d tokens, hash_ids has %u",
				   prompt_tok, want, BLOCK_TOK, have);
	return AR_OK;
}

static enum ar_status blocks(struct import *im, struct span ids, uint32_t prompt_tok,
			     struct ar_err *err)
{
	uint32_t want = (prompt_tok + BLOCK_TOK - 1) / BLOCK_TOK;
	struct chain_key key = { .prev = CHAIN_START };
	struct span id;
	enum ar_status st;

	if (*ids.s != '[')
		return import_fail(im, err, "hash_ids is \"%s\", want an array", span_show(ids).s);
	st = check_count(im, ids, want, prompt_tok, err);
	for (uint32_t i = 0; !st && i < want && record_next(&ids, &id); i++) {
		st = source_id(im, id, &key, err);
		if (st)
			break;
		if (i + 1 == want)
			key.tail |= prompt_tok % BLOCK_TOK;
		if (!chain_put(&im->chain, key, im->chain.n, &key.prev))
			return ar_nomem(err);
		st = import_block(im, key.prev, err);
	}
	return st;
}

static enum ar_status record(struct import *im, const struct record *r, struct ar_err *err)
{
	const struct field *ids = record_find(r, "hash_ids");
	struct request q = import_none;
	enum ar_status st;

	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		if (record_find(r, refused[i].key))
			return import_fail(im, err, "the record has \"%s\": %s", refused[i].key,
					   refused[i].why);
	st = import_time(im, r, "timestamp", 1000000, &q.arrival_ns, err);
	if (!st)
		st = import_count(im, r, "input_length", &q.prompt_tok, err);
	if (!st)
		st = import_count(im, r, "output_length", &q.output_tok, err);
	if (st || import_unserved(im, &q))
		return st;
	if (ids)
		st = blocks(im, ids->value, q.prompt_tok, err);
	else
		import_warn(im, WARN_NO_BLOCKS);
	return st ? st : import_add(im, &q, err);
}

/* A file without any ids knows nothing about prefixes. */
static enum ar_status finish(struct import *im, struct ar_err *err)
{
	(void)err;
	im->t->block_tok = im->t->n_block ? BLOCK_TOK : 0;
	return AR_OK;
}

const struct importer importer_mooncake = {
	.name = "mooncake",
	.title = "Mooncake trace (JSON lines)",
	.kind = RECORD_JSON,
	.need = need,
	.may = may,
	.sniff = sniff,
	.record = record,
	.finish = finish,
};
