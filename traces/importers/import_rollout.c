/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rollouts of agents, as the agentic benchmark of tpu-inference (vllm-project/tpu-inference, commit
 * b8692ff) replays them: a session on each line, whose prompts grow by outputs and observations.
 *
 * Streams of a group begin with the same prompt.  All sessions begin at 0.
 */
#include "config.h"
#include "traces/importers/import.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

static const char *const need[] = { "group", "stream", "prompt_len", "out_lens", "obs_lens", NULL };
static const char *const may[] = { "tool_times", NULL };

static const int64_t S_NS = 1000000000;

/* Name the session GROUP/STREAM. */
static enum ar_status rollout_session(struct import *im, const struct record *r, uint32_t *number,
				      uint64_t *group, struct ar_err *err)
{
	const size_t n = im->session.n;
	uint32_t id[2];
	char name[32];
	enum ar_status st = import_count(im, r, "group", &id[0], err);

	if (!st)
		st = import_count(im, r, "stream", &id[1], err);
	if (st)
		return st;
	*group = id[0];
	snprintf(name, sizeof name, "%u/%u", id[0], id[1]);
	if (!intern_put(&im->session, name, strlen(name), number))
		return ar_nomem(err);
	return *number == n ? AR_OK :
			      import_fail(im, err, "stream %u of group %u is in the file twice",
					  id[1], id[0]);
}

/* Set *list to an array with n elements, or one less. */
static enum ar_status list_of(const struct import *im, const struct record *r, const char *name,
			      uint32_t n, struct span *list, struct ar_err *err)
{
	struct span rest, e;
	uint32_t have = 0;

	*list = record_find(r, name)->value;
	if (*list->s != '[')
		return import_fail(im, err, "%s is \"%s\", want an array", name,
				   span_show(*list).s);
	for (rest = *list; record_next(&rest, &e);)
		have++;
	if (n && have != n && have + 1 != n)
		return import_fail(im, err, "%s has %u numbers, want %u as out_lens, or one less",
				   name, have, n);
	return AR_OK;
}

/* Add the next number of the list to *tok.  *n: the number. */
static enum ar_status add_tokens(const struct import *im, const char *name, struct span *list,
				 uint32_t *tok, uint32_t *n, struct ar_err *err)
{
	struct span v;
	uint64_t x = 0;

	if (record_next(list, &v) && (!num_u64(v.s, v.n, &x) || x > INT32_MAX))
		return import_fail(im, err, "%s has \"%s\", want integers from 0 to 2147483647",
				   name, span_show(v).s);
	*n = (uint32_t)x;
	if (*tok + x > INT32_MAX)
		return import_fail(im, err, "the prompts grow beyond 2147483647 tokens");
	*tok += (uint32_t)x;
	return AR_OK;
}

/* A turn after the others of its session.  from: a request whose prompt it begins with. */
static enum ar_status add_turn(struct import *im, struct request *q, uint32_t session, size_t from,
			       struct ar_err *err)
{
	const uint32_t before = from < im->t->n ? im->t->req[from].prompt_tok : 0;
	const uint32_t same = before < q->prompt_tok ? before : q->prompt_tok;
	struct import_session *ses;
	enum ar_status st = import_turn(im, session, q, &ses, err);

	if (!st && same)
		st = import_same_blocks(im, from, same / im->t->block_tok, err);
	if (!st)
		st = import_own_blocks(im, q->prompt_tok, err);
	if (!st && !q->output_tok) {
		import_warn(im, WARN_ONE_OUTPUT);
		q->output_tok = 1;
	}
	if (st)
		return st;
	return q->turn ? import_add_earliest(im, q, err) : import_add_apart(im, q, err);
}

/* Let the next turn come after the next time of the list. */
static enum ar_status next_think(struct import *im, struct span *times, struct request *q,
				 struct ar_err *err)
{
	struct span v;
	enum ar_status st = AR_OK;

	q->think_ns = 0;
	if (times->s && record_next(times, &v))
		st = import_time_text(im, "tool_times", v, S_NS, &q->think_ns, err);
	if (!st && __builtin_add_overflow(q->arrival_ns, q->think_ns, &q->arrival_ns))
		st = import_fail(im, err, "the time goes beyond 2^63 ns");
	return st;
}

static enum ar_status rollout_record(struct import *im, const struct record *r, struct ar_err *err)
{
	struct request q = request_none;
	struct span out, obs, times = { 0 }, rest, v;
	uint64_t group, first;
	uint32_t session, tok = 0, n = 0, some;
	size_t from;
	enum ar_status st = rollout_session(im, r, &session, &group, err);

	if (!st)
		st = import_count(im, r, "prompt_len", &tok, err);
	if (!st && !tok)
		st = import_fail(im, err, "prompt_len is 0, want tokens");
	if (!st)
		st = list_of(im, r, "out_lens", 0, &out, err);
	for (rest = out; !st && record_next(&rest, &v);)
		n++;
	if (!st)
		st = list_of(im, r, "obs_lens", n, &obs, err);
	if (!st && record_get(r, "tool_times"))
		st = list_of(im, r, "tool_times", n, &times, err);
	if (!st && !chain_put(&im->seen, (struct chain_key){ .src = group }, im->t->n, &first))
		st = ar_nomem(err);
	if (!st && !n)
		import_warn(im, WARN_NO_TURNS);
	q.arrival_ns = 0;
	for (from = (size_t)first; n && !st; n--) {
		q.prompt_tok = tok;
		st = add_tokens(im, "out_lens", &out, &tok, &q.output_tok, err);
		if (!st)
			st = add_turn(im, &q, session, from, err);
		from = im->t->n - 1;
		if (!st)
			st = add_tokens(im, "obs_lens", &obs, &tok, &some, err);
		if (!st && n > 1)
			st = next_think(im, &times, &q, err);
	}
	return st;
}

const struct importer importer_rollout = {
	.name = "rollout",
	.title = "rollouts of agents, as tpu-inference replays them (JSON lines)",
	.kind = RECORD_JSON,
	.need = need,
	.may = may,
	.uses = USES_UNIT,
	.timeless = true,
	.block_tok = 16,
	.record = rollout_record,
};
