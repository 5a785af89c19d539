/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions for aiperf: Mooncake's keys in milliseconds, and the session of each record.  A later
 * turn has a delay after the previous turn instead of a time.  It has only the new tokens of its
 * prompt. */
#include "config.h"
#include "traces/importers/import.h"

#include <inttypes.h>

static const char *const need[] = { "session_id", "input_length", "output_length", NULL };
static const char *const may[] = { "timestamp", "delay", "hash_ids", "group_id", NULL };

static const int64_t MS_NS = 1000000;

/* RAGPulse traces have sessions too, but their hash_ids are an object. */
static bool aiperf_sniff(const struct record *first)
{
	const struct field *ids = record_find(first, "hash_ids");

	return (!ids || *ids->value.s == '[') && !record_find(first, "chat_id");
}

/* Set think time and arrival.  The delay is the think time.  Without a recorded arrival, the turn
 * gets its earliest possible arrival. */
static enum ar_status aiperf_arrival(struct import *im, const struct record *r, struct request *q,
				     const struct import_session *s, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (record_find(r, "delay"))
		st = import_time(im, r, "delay", MS_NS, &q->think_ns, err);
	if (!st && !q->turn && q->think_ns > 0)
		return import_fail(im, err, "delay in the first turn of a session");
	if (!q->turn)
		q->think_ns = -1;
	if (st)
		return st;
	if (record_find(r, "timestamp"))
		return import_time(im, r, "timestamp", MS_NS, &q->arrival_ns, err);
	if (q->think_ns < 0)
		return import_fail(im, err, "the record lacks \"%s\"",
				   q->turn ? "timestamp\" or \"delay" : "timestamp");
	if (__builtin_add_overflow(s->start_ns, q->think_ns, &q->arrival_ns))
		return import_fail(im, err, "the time goes beyond 2^63 ns");
	return AR_OK;
}

/* Add the blocks of a prompt: the session so far and the new texts. */
static enum ar_status delta_blocks(struct import *im, const struct record *r, uint32_t new_tok,
				   bool first, struct import_session *s, struct ar_err *err)
{
	const struct field *f = record_find(r, "hash_ids");
	size_t start = im->t->n_block;
	struct span ids, id;
	uint32_t n = 0;
	enum ar_status st = AR_OK;

	s->no_blocks |= !f;
	if (s->no_blocks) {
		import_warn(im, WARN_NO_BLOCKS);
		return AR_OK;
	}
	ids = f->value;
	st = import_hash_count(im, ids, new_tok, &n, err);
	for (uint32_t i = 0; !st && i < s->n_full; i++)
		st = import_block(im, im->t->block[s->block + i], err);
	if (first)
		s->end = CUTTER_START;
	else if (!st)
		st = import_cut(im, &s->end, im->t->n, CUT_OUTPUT, s->output_tok, err);
	for (; !st && n && record_next(&ids, &id); n--) {
		uint32_t tok = new_tok < im->t->block_tok ? new_tok : im->t->block_tok;
		struct chain_key key;

		st = import_hash_id(im, id, &key, err);
		if (!st)
			st = import_cut(im, &s->end, key.src, key.tail, tok, err);
		new_tok -= tok;
	}
	s->block = start;
	s->n_full = (uint32_t)(im->t->n_block - start);
	return st ? st : import_cut_end(im, s->end, err);
}

/* Make the whole prompt from the new tokens of the record. */
static enum ar_status prompt(struct import *im, const struct record *r, struct request *q,
			     struct import_session *s, struct ar_err *err)
{
	uint32_t given = q->prompt_tok;
	uint64_t tok = given;
	enum ar_status st;

	if (im->args->context == CONTEXT_CUMULATIVE) {
		st = import_hash_ids(im, r, given, err);
	} else {
		tok += s->tok;
		if (tok > INT32_MAX)
			return import_fail(im, err,
					   "the session has a prompt of %" PRIu64
					   " tokens, more than 2147483647",
					   tok);
		if (q->turn && im->args->context == CONTEXT_AUTO)
			import_warn(im, WARN_DELTA);
		st = delta_blocks(im, r, given, !q->turn, s, err);
	}
	q->prompt_tok = (uint32_t)tok;
	s->tok = tok + q->output_tok;
	s->output_tok = q->output_tok;
	return st;
}

static enum ar_status aiperf_record(struct import *im, const struct record *r, struct ar_err *err)
{
	struct request q = request_none;
	struct import_session *s;
	uint32_t number;
	enum ar_status st = import_lengths(im, r, "input_length", "output_length", &q, err);

	if (!st && record_find(r, "context_mode") && im->args->context == CONTEXT_AUTO)
		return import_fail(im, err,
				   "the record has \"context_mode\"; say with --context "
				   "what its prompts hold");
	if (!st)
		st = import_name(im, r, "session_id", &im->session, &number, err);
	if (st || import_unserved(im, &q))
		return st;
	st = import_turn(im, number, &q, &s, err);
	if (!st)
		st = aiperf_arrival(im, r, &q, s, err);
	if (!st)
		st = prompt(im, r, &q, s, err);
	if (st)
		return st;
	s->start_ns = q.arrival_ns;
	return record_find(r, "timestamp") ? import_add(im, &q, err) :
					     import_add_earliest(im, &q, err);
}

const struct importer importer_aiperf = {
	.name = "aiperf",
	.title = "aiperf trace of sessions (JSON lines)",
	.kind = RECORD_JSON,
	.need = need,
	.may = may,
	.uses = USES_CONTEXT | USES_UNIT,
	.block_tok = 512,
	.sniff = aiperf_sniff,
	.record = aiperf_record,
};
