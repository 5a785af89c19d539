/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions for aiperf: Mooncake's keys in milliseconds, and the session of each record.  A later
 * turn has a delay after the previous turn instead of a time.  It has only the new tokens of its
 * prompt. */
#include "config.h"
#include "traces/importers/import.h"

#include <inttypes.h>

#include "base/grow.h"

static const char *const need[] = { "session_id", "input_length", "output_length", NULL };
static const char *const may[] = { "timestamp", "delay", "hash_ids", "group_id", "priority", NULL };

static const int64_t MS_NS = 1000000;

/* RAGPulse traces have sessions too, but their hash_ids are an object. */
static bool aiperf_sniff(const struct record *first)
{
	const struct field *ids = record_get(first, "hash_ids");

	return (!ids || *ids->value.s == '[') && !record_get(first, "chat_id");
}

/* Set think time and arrival.  The delay is the think time, after a turn without output added to
 * that turn's.  Without a recorded arrival, the turn gets its earliest possible arrival. */
static enum ar_status aiperf_arrival(struct import *im, const struct record *r, struct request *q,
				     struct import_session *s, struct ar_err *err)
{
	int64_t delay_ns = -1;
	enum ar_status st = AR_OK;

	if (record_get(r, "delay"))
		st = import_time(im, r, "delay", MS_NS, &delay_ns, err);
	if (st)
		return st;
	if (!s->begun && delay_ns > 0)
		return import_fail(im, err, "delay in the first turn of a session");
	if (s->turns && delay_ns >= 0 && s->idle_ns >= 0 &&
	    __builtin_add_overflow(s->idle_ns, delay_ns, &q->think_ns))
		return import_fail(im, err, "the time goes beyond 2^63 ns");
	if (record_get(r, "timestamp"))
		return import_time(im, r, "timestamp", MS_NS, &q->arrival_ns, err);
	if (!s->begun || delay_ns < 0)
		return import_fail(im, err, "the record lacks \"%s\"",
				   s->begun ? "timestamp\" or \"delay" : "timestamp");
	if (__builtin_add_overflow(s->start_ns, delay_ns, &q->arrival_ns))
		return import_fail(im, err, "the time goes beyond 2^63 ns");
	return AR_OK;
}

static enum ar_status add_text(struct import_session *s, struct import_text text,
			       struct ar_err *err)
{
	if (!GROW(s->text, s->cap_text, s->n_text + 1))
		return ar_nomem(err);
	s->text[s->n_text++] = text;
	return AR_OK;
}

/* Add the output of the last turn and the new texts of this one. */
static enum ar_status new_texts(struct import *im, struct span ids, uint32_t new_tok,
				struct import_session *s, struct ar_err *err)
{
	struct import_text output = { im->line, CUT_OUTPUT, s->output_tok };
	struct span id;
	uint32_t n = 0;
	enum ar_status st = import_hash_count(im, ids, new_tok, &n, err);

	if (!st && s->output_tok)
		st = add_text(s, output, err);
	for (; !st && n && record_next(&ids, &id); n--) {
		uint32_t tok = new_tok < im->t->block_tok ? new_tok : im->t->block_tok;
		struct chain_key key;

		st = import_hash_id(im, id, &key, err);
		if (!st)
			st = add_text(s, (struct import_text){ key.src, key.tail, tok }, err);
		new_tok -= tok;
	}
	return st;
}

/* Add the blocks of a prompt: the last one's, and all texts since then. */
static enum ar_status delta_blocks(struct import *im, struct import_session *s, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (uint32_t i = 0; !st && i < s->last.n_block; i++)
		st = import_block(im, trace_block(im->t, &s->last, i), err);
	if (s->turns == 1)
		s->end = CUTTER_START;
	for (size_t i = 0; !st && i < s->n_text; i++)
		st = import_cut(im, &s->end, s->text[i].text, s->text[i].kind, s->text[i].tok, err);
	s->n_text = 0;
	s->last = im->next;
	return st ? st : import_cut_end(im, s->end, err);
}

/* Make the whole prompt from the new tokens of the record. */
static enum ar_status delta_prompt(struct import *im, const struct record *r, struct request *q,
				   bool served, struct import_session *s, struct ar_err *err)
{
	const struct field *ids = record_get(r, "hash_ids");
	uint64_t tok = s->tok + q->prompt_tok;
	enum ar_status st = AR_OK;

	if (tok > INT32_MAX)
		return import_fail(im, err,
				   "the session has a prompt of %" PRIu64
				   " tokens, more than 2147483647",
				   tok);
	s->no_blocks |= !ids;
	if (!s->no_blocks)
		st = new_texts(im, ids->value, q->prompt_tok, s, err);
	if (!st && served && s->no_blocks)
		import_warn(im, WARN_NO_BLOCKS);
	else if (!st && served)
		st = delta_blocks(im, s, err);
	if (served && s->begun && im->args->context == CONTEXT_AUTO)
		import_warn(im, WARN_DELTA);
	q->prompt_tok = (uint32_t)tok;
	s->tok = tok + q->output_tok;
	s->output_tok = q->output_tok;
	return st;
}

/* Count whether the ids of a later turn begin with those of the turn before: then the prompt is
 * the whole one. */
static enum ar_status compare_ids(struct import *im, const struct record *r, uint32_t tok,
				  struct import_session *s, struct ar_err *err)
{
	const struct field *ids = record_get(r, "hash_ids");
	uint32_t n = tok / im->t->block_tok, most = n > s->n_ids ? n : s->n_ids;
	uint64_t end, at;
	enum ar_status st;

	if (!ids || *ids->value.s != '[')
		return AR_OK;
	st = import_hash_chain(im, ids->value, most, &end, s->n_ids, &at, err);
	if (!st && s->n_ids) {
		if (n >= s->n_ids && at == s->ids)
			im->n_whole++;
		else
			im->n_new++;
	}
	if (!st && n < most)
		st = import_hash_chain(im, ids->value, n, &end, 0, &at, err);
	s->ids = end;
	s->n_ids = n;
	return st;
}

static enum ar_status aiperf_record(struct import *im, const struct record *r, struct ar_err *err)
{
	struct request q = request_none;
	struct import_session *s;
	uint32_t number;
	bool served;
	enum ar_status st = import_lengths(im, r, "input_length", "output_length", &q, err);

	if (!st && record_get(r, "context_mode") && im->args->context == CONTEXT_AUTO)
		return import_fail(im, err,
				   "the record has \"context_mode\"; say with --context "
				   "what its prompts hold");
	if (!st && record_get(r, "priority"))
		st = import_priority(im, r, "priority", &q, err);
	if (!st)
		st = import_name(im, r, "session_id", &im->session, &number, err);
	if (!st)
		st = import_session(im, number, &s, err);
	if (!st)
		st = aiperf_arrival(im, r, &q, s, err);
	if (!st)
		st = compare_ids(im, r, q.prompt_tok, s, err);
	if (st)
		return st;
	served = !import_unserved(im, &q);
	if (served)
		st = import_turn(im, number, &q, &s, err);
	if (!st && im->args->context != CONTEXT_CUMULATIVE)
		st = delta_prompt(im, r, &q, served, s, err);
	else if (!st && served)
		st = import_hash_ids(im, r, q.prompt_tok, err);
	s->begun = true;
	s->start_ns = q.arrival_ns;
	s->idle_ns = served ? 0 : q.think_ns;
	if (st || !served)
		return st;
	return record_get(r, "timestamp") ? import_add(im, &q, err) :
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
