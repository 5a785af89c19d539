/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of coding agents, as kv-cache-tester (callanjfox/kv-cache-tester, commit 94f6046)
 * captured them: one a line, with its requests and, between them, the requests of sub-agents.
 * Lines have megabytes of block ids, so they are walked as text.
 *
 * Times count from the start of the session or of the sub-agent.  All sessions begin at 0.
 *
 * Ids belong to the session, and each has one id before it.  So a request has the blocks of the
 * request before it up to the first id that differs.
 */
#include "config.h"
#include "traces/importers/import.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/number.h"
#include "base/order.h"

enum { MOST_LEVELS = 8 }; /* of sub-agents */
static const int64_t S_NS = 1000000000, MS_NS = 1000000;
/* Numbers of blocks from here on: of last ones, which are partial, and of those that sessions, or
 * sub-agents, have in common. */
static const uint64_t OWN = 1ull << 52, WARM = 1ull << 50, WARM_AGENT = 1ull << 51;

static const char *const need[] = { "id", "block_size", "hash_id_scope", "requests", NULL };
static const char *const may[] = { "models", "tool_tokens", "system_tokens", "totals", NULL };

/* ---- fields ---- */

enum field_name {
	T,
	TYPE,
	MODEL,
	IN,
	OUT,
	HASH_IDS,
	API_TIME,
	THINK_TIME,
	AGENT_ID,
	DURATION_MS,
	STATUS,
	REQUESTS,
	TOOL_TOKENS,
	SYSTEM_TOKENS,
	N_USED,
	TTFT = N_USED,
	INPUT_TYPES,
	OUTPUT_TYPES,
	STOP,
	MODELS,
	SUBAGENT_TYPE,
	TOTAL_TOKENS,
	TOOL_USE_COUNT,
	N_FIELDS
};
static const char *const field_names[N_FIELDS] = { "t",
						   "type",
						   "model",
						   "in",
						   "out",
						   "hash_ids",
						   "api_time",
						   "think_time",
						   "agent_id",
						   "duration_ms",
						   "status",
						   "requests",
						   "tool_tokens",
						   "system_tokens",
						   "ttft",
						   "input_types",
						   "output_types",
						   "stop",
						   "models",
						   "subagent_type",
						   "total_tokens",
						   "tool_use_count" };

/* The fields of a request or a sub-agent; s NULL: absent, or null. */
struct entry {
	struct span f[N_FIELDS];
};

static enum field_name field_of(struct span name)
{
	int i = 0;

	while (i < N_FIELDS && (strncmp(field_names[i], name.s, name.n) || field_names[i][name.n]))
		i++;
	return (enum field_name)i;
}

static bool is_text(struct span v, const char *text)
{
	return v.s && v.n == strlen(text) + 2 && *v.s == '"' && !memcmp(v.s + 1, text, v.n - 2);
}

static enum ar_status lacks(const struct import *im, const char *what, enum field_name f,
			    struct ar_err *err)
{
	return import_fail(im, err, "%s lacks \"%s\"", what, field_names[f]);
}

/* Read a time from 0 on in units of unit_ns.  *ns stays as it is if the field is absent. */
static enum ar_status time_of(const struct import *im, const struct entry *e, enum field_name f,
			      int64_t unit_ns, int64_t *ns, struct ar_err *err)
{
	struct span v = e->f[f];

	if (v.s && (!num_scaled(v.s, v.n, unit_ns, ns) || *ns < 0))
		return import_fail(im, err, "%s is \"%s\", want a time that is a number from 0 on",
				   field_names[f], span_show(v).s);
	return AR_OK;
}

static enum ar_status count_of(const struct import *im, const struct entry *e, enum field_name f,
			       uint32_t least, uint32_t *n, struct ar_err *err)
{
	struct span v = e->f[f];
	uint64_t x;

	if (!v.s)
		return lacks(im, "a request", f, err);
	if (!num_u64(v.s, v.n, &x) || x < least || x > INT32_MAX)
		return import_fail(im, err, "%s is \"%s\", want an integer from %u to 2147483647",
				   field_names[f], span_show(v).s, least);
	*n = (uint32_t)x;
	return AR_OK;
}

/* ---- a session or a sub-agent ---- */

struct turn {
	int64_t t_ns, api_ns, think_ns; /* -1: not recorded */
	size_t req;
};

/* A sub-agent behind turn `after`. */
struct child {
	uint32_t session, after;
	size_t req;		/* its first request */
	int64_t from_ns, to_ns; /* of its requests */
	bool waits;		/* the next turn waits for it */
};

struct level {
	uint32_t session;
	int64_t base_ns; /* from the start of the session to its first request */
	struct turn *turn;
	size_t n, cap;
	struct child *child;
	size_t n_child, cap_child;
	uint64_t *id; /* of the last request's blocks */
	size_t n_id, cap_id;
	/* Blocks of the first prompt that other sessions or sub-agents have as well: n_warm at
	 * most, so far n_common, with the numbers that their ids have. */
	uint64_t *common;
	size_t n_warm, n_common, cap_common;
	uint64_t warm; /* the number that they have in the trace, from here on */
};

static void free_level(struct level *l)
{
	free(l->turn);
	free(l->child);
	free(l->id);
	free(l->common);
}

/* What a line has. */
struct whole {
	uint64_t in, out; /* tokens of its requests */
};

/* ---- block ids ---- */

/* The number of a block whose id has the id before it. */
static enum ar_status number_of(struct import *im, uint64_t id, uint64_t before, uint64_t *number,
				struct ar_err *err)
{
	struct block_tree *tree = &im->tree;
	const size_t n = tree->number.n;

	if (!chain_put(&tree->number, (struct chain_key){ .src = id }, tree->first + n, number) ||
	    !GROW(tree->before, tree->cap, n + 1))
		return ar_nomem(err);
	if (*number == tree->first + n && tree->number.n > n)
		tree->before[n] = before;
	if (tree->before[*number - tree->first] != before)
		return import_fail(im, err,
				   "hash_ids has %" PRIu64 " behind another id than before; an id "
				   "stands for all that is before it",
				   id);
	return AR_OK;
}

/* Give the next request the first n blocks of the last one. */
static enum ar_status same_blocks(struct import *im, const struct level *l, uint32_t n,
				  struct ar_err *err)
{
	return n ? import_same_blocks(im, l->turn[l->n - 1].req, n, err) : AR_OK;
}

static enum ar_status next_block(struct import *im, struct level *l, size_t k, uint64_t id,
				 struct ar_err *err)
{
	uint64_t number;
	enum ar_status st = number_of(im, id, k ? l->id[k - 1] : CHAIN_START, &number, err);

	if (st)
		return st;
	if (!GROW(l->id, l->cap_id, k + 1))
		return ar_nomem(err);
	l->id[k] = id;
	if (!l->n && k < l->n_warm) {
		if (!GROW(l->common, l->cap_common, k + 1))
			return ar_nomem(err);
		l->common[k] = number;
		l->n_common = k + 1;
	}
	if (k < l->n_common && l->common[k] == number)
		number = l->warm + k;
	return import_block(im, number, err);
}

/* Read an id and move *s over it. */
static bool read_id(const char **s, uint64_t *id)
{
	const char *c = *s;
	uint64_t x = 0;
	bool good;

	for (; *c >= '0' && *c <= '9'; c++)
		x = 10 * x + (uint64_t)(*c - '0');
	good = c > *s && c - *s < 20;
	*id = x;
	*s = good ? c : *s;
	return good;
}

/* Read an array of ids into l->id, and add the blocks. */
static enum ar_status hash_ids(struct import *im, struct level *l, const char **s,
			       struct ar_err *err)
{
	const size_t n = l->n_id;
	size_t k = 0;
	bool same = true;
	enum ar_status st = AR_OK;
	struct span name;

	if (**s != '[')
		return import_fail(im, err, "hash_ids is \"%s\", want an array",
				   span_show(record_skip(s)).s);
	for (; !st && record_step(s, ']', &name); k++) {
		uint64_t id;

		if (!read_id(s, &id))
			return import_fail(im, err, "hash_ids has \"%s\", want integers from 0",
					   span_show(record_skip(s)).s);
		if (same && k < n && l->id[k] == id)
			continue;
		if (same)
			st = same_blocks(im, l, (uint32_t)k, err);
		same = false;
		if (!st)
			st = next_block(im, l, k, id, err);
	}
	if (!st && same)
		st = same_blocks(im, l, (uint32_t)k, err);
	l->n_id = k;
	return st;
}

/* Check the number of the blocks of a prompt, and add the last one if it is partial. */
static enum ar_status end_blocks(struct import *im, const struct level *l, uint32_t tok,
				 struct ar_err *err)
{
	const uint32_t size = im->t->block_tok;

	if (l->n_id != tok / size)
		return import_fail(im, err,
				   "in %u makes %u full blocks of %u tokens, hash_ids has %zu", tok,
				   tok / size, size, l->n_id);
	return tok % size ? import_block(im, OWN + im->t->n, err) : AR_OK;
}

/* ---- entries ---- */

static enum ar_status read_entry(struct import *im, struct level *l, const char **s,
				 struct entry *e, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	bool unknown = false;
	struct span name;

	if (**s != '{')
		return import_fail(im, err, "requests has \"%s\", want objects",
				   span_show(record_skip(s)).s);
	while (!st && record_step(s, '}', &name)) {
		enum field_name f = field_of(name);
		struct span v = { .s = *s };

		if (f < N_FIELDS && e->f[f].s)
			return import_fail(im, err, "key \"%s\" appears twice", field_names[f]);
		if (f == HASH_IDS)
			st = hash_ids(im, l, s, err);
		else
			v = record_skip(s);
		if (f < N_FIELDS && !(v.n == 4 && *v.s == 'n'))
			e->f[f] = v;
		unknown = unknown || f == N_FIELDS;
	}
	if (unknown)
		import_warn(im, WARN_KEY);
	return st;
}

static enum ar_status arrival(const struct import *im, const struct level *l, int64_t t_ns,
			      int64_t *ns, struct ar_err *err)
{
	if (__builtin_add_overflow(l->base_ns, t_ns, ns))
		return import_fail(im, err, "the time goes beyond 2^63 ns");
	return AR_OK;
}

/* Lengths and label. */
static enum ar_status fill_request(struct import *im, const struct entry *e, struct request *q,
				   struct whole *w, struct ar_err *err)
{
	uint32_t number;
	enum ar_status st = count_of(im, e, IN, 1, &q->prompt_tok, err);

	if (!st)
		st = count_of(im, e, OUT, 0, &q->output_tok, err);
	if (!st && e->f[MODEL].s) {
		st = import_name_text(im, "model", e->f[MODEL], &im->type, &number, err);
		q->type = st ? 0 : number + 1;
	}
	if (st)
		return st;
	w->in += q->prompt_tok;
	w->out += q->output_tok;
	if (!q->output_tok) {
		import_warn(im, WARN_ONE_OUTPUT);
		q->output_tok = 1;
	}
	return AR_OK;
}

static enum ar_status add_turn(struct import *im, struct level *l, const struct entry *e,
			       struct whole *w, struct ar_err *err)
{
	struct turn turn = { .t_ns = -1, .api_ns = -1, .think_ns = -1, .req = im->t->n };
	struct request q = request_none;
	struct import_session *ses;
	enum ar_status st = time_of(im, e, T, S_NS, &turn.t_ns, err);

	if (!st)
		st = time_of(im, e, API_TIME, S_NS, &turn.api_ns, err);
	if (!st)
		st = time_of(im, e, THINK_TIME, S_NS, &turn.think_ns, err);
	if (!st && turn.t_ns < 0)
		st = lacks(im, "a request", T, err);
	if (!st && l->n && turn.t_ns < l->turn[l->n - 1].t_ns)
		st = import_fail(im, err, "t goes back to %s", span_show(e->f[T]).s);
	if (!st && !e->f[HASH_IDS].s)
		st = lacks(im, "a request", HASH_IDS, err);
	if (!st)
		st = fill_request(im, e, &q, w, err);
	if (!st)
		st = end_blocks(im, l, q.prompt_tok, err);
	if (!st)
		st = arrival(im, l, turn.t_ns, &q.arrival_ns, err);
	if (!st)
		st = import_turn(im, l->session, &q, &ses, err);
	if (!st)
		st = import_add_apart(im, &q, err);
	if (st)
		return st;
	if (turn.api_ns < 0)
		import_warn(im, WARN_NO_TIME);
	if (!GROW(l->turn, l->cap, l->n + 1))
		return ar_nomem(err);
	l->turn[l->n++] = turn;
	return AR_OK;
}

/* ---- think times ---- */

static int by_api(const void *a, const void *b)
{
	return ORDER(*(const int64_t *)a, *(const int64_t *)b);
}

/* Set *ns to the median time that requests took, 0 if none says. */
static enum ar_status median_api(const struct level *l, int64_t *ns, struct ar_err *err)
{
	int64_t *v = malloc((l->n + 1) * sizeof *v);
	size_t n = 0;

	if (!v)
		return ar_nomem(err);
	for (size_t k = 0; k < l->n; k++)
		if (l->turn[k].api_ns >= 0)
			v[n++] = l->turn[k].api_ns;
	qsort(v, n, sizeof *v, by_api);
	*ns = n ? v[(n - 1) / 2] : 0;
	free(v);
	return AR_OK;
}

/* From the end of turn k to at_ns. */
static int64_t since(const struct level *l, size_t k, int64_t at_ns, int64_t median_ns)
{
	const struct turn *p = &l->turn[k];
	int64_t d = at_ns - p->t_ns - (p->api_ns >= 0 ? p->api_ns : median_ns);

	return d > 0 ? d : 0;
}

/* The think time of turn k counts from the last end before it that was recorded. */
static void settle_think(struct import *im, const struct level *l, size_t k, int64_t median_ns)
{
	struct request *q = &im->t->req[l->turn[k].req];
	size_t from = k - 1;

	if (l->turn[k].think_ns < 0) {
		import_warn(im, WARN_NO_THINK);
		q->think_ns = since(l, k - 1, l->turn[k].t_ns, median_ns);
		return;
	}
	q->think_ns = l->turn[k].think_ns;
	while (from && l->turn[from].api_ns < 0)
		from--;
	if (l->turn[from].api_ns >= 0 && k - from > 1)
		q->back = (uint32_t)(k - from);
}

/* The sub-agent starts after the end of a turn, and the next turn may wait for it. */
static enum ar_status settle_child(struct import *im, const struct level *l, const struct child *c,
				   int64_t median_ns, struct ar_err *err)
{
	struct session_link *link;
	int64_t end_ns = c->to_ns;
	enum ar_status st = import_link(im, c->session, &link, err);

	if (st)
		return st;
	*link = (struct session_link){ .parent = (int32_t)l->session,
				       .after = c->after,
				       .join_ns = -1 };
	im->t->req[c->req].think_ns = since(l, c->after, c->from_ns, median_ns);
	for (size_t i = 0; i < l->n_child; i++)
		if (l->child[i].after == c->after && l->child[i].waits &&
		    l->child[i].to_ns > end_ns)
			end_ns = l->child[i].to_ns;
	if (c->waits && c->after + 1 < l->n) {
		int64_t d = l->turn[c->after + 1].t_ns - end_ns;

		link->join = c->after + 1;
		link->join_ns = d > 0 ? d : 0;
	}
	return AR_OK;
}

static enum ar_status settle_level(struct import *im, const struct level *l, struct ar_err *err)
{
	int64_t median_ns = 0;
	enum ar_status st = median_api(l, &median_ns, err);

	for (size_t k = 1; k < l->n && !st; k++)
		settle_think(im, l, k, median_ns);
	for (size_t i = 0; i < l->n_child && !st; i++)
		st = settle_child(im, l, &l->child[i], median_ns, err);
	return st;
}

/* ---- levels ---- */

/* With --warm-prefix all prompts begin with the same tools and system prompts. */
static enum ar_status find_warm(const struct import *im, struct level *l, const struct entry *e,
				uint64_t warm, struct ar_err *err)
{
	uint32_t tool = 0, system = 0;
	enum ar_status st = AR_OK;

	if (!im->args->warm_prefix)
		return AR_OK;
	if (e->f[TOOL_TOKENS].s)
		st = count_of(im, e, TOOL_TOKENS, 0, &tool, err);
	if (!st && e->f[SYSTEM_TOKENS].s)
		st = count_of(im, e, SYSTEM_TOKENS, 0, &system, err);
	l->n_warm = ((uint64_t)tool + system) / im->t->block_tok;
	l->warm = warm;
	return st;
}

static enum ar_status read_level(struct import *im, struct level *l, const char *s, int depth,
				 struct whole *w, struct ar_err *err);

/* Intern the name of the sub-agent: SESSION/AGENT, or the sub-agent's number. */
static enum ar_status child_name(struct import *im, const struct level *l, const struct entry *e,
				 uint32_t *session, struct ar_err *err)
{
	const char *up = im->session.v[l->session];
	struct span v = e->f[AGENT_ID];
	char number[24];
	const size_t n = im->session.n;
	char *name;
	bool done;

	snprintf(number, sizeof number, "\"%zu\"", l->n_child + 1);
	if (!v.s)
		v = (struct span){ number, strlen(number) };
	if (*v.s != '"' || memchr(v.s, '\\', v.n))
		return import_fail(im, err, "agent_id is \"%s\", want a plain string",
				   span_show(v).s);
	name = malloc(strlen(up) + v.n);
	if (!name)
		return ar_nomem(err);
	sprintf(name, "%s/%.*s", up, (int)(v.n - 2), v.s + 1);
	done = intern_put(&im->session, name, strlen(name), session);
	free(name);
	if (!done)
		return ar_nomem(err);
	return *session == n ?
		       AR_OK :
		       import_fail(im, err, "two sub-agents have agent_id %s", span_show(v).s);
}

/* Times of a sub-agent: t of a completed one is its end. */
static enum ar_status child_times(const struct import *im, const struct level *l,
				  const struct entry *e, struct child *c, struct ar_err *err)
{
	int64_t took_ns = -1;
	enum ar_status st = time_of(im, e, DURATION_MS, MS_NS, &took_ns, err);

	c->from_ns = -1;
	if (!st)
		st = time_of(im, e, T, S_NS, &c->from_ns, err);
	if (st)
		return st;
	if (c->from_ns < 0)
		return lacks(im, "a sub-agent", T, err);
	if (!l->n)
		return import_fail(im, err, "a sub-agent before the first request");
	c->to_ns = c->from_ns;
	c->waits = is_text(e->f[STATUS], "completed");
	if (!c->waits)
		return AR_OK;
	if (took_ns < 0 || took_ns > c->to_ns)
		return import_fail(im, err,
				   "duration_ms of a completed sub-agent is \"%s\", want a time up "
				   "to its t",
				   e->f[DURATION_MS].s ? span_show(e->f[DURATION_MS]).s : "");
	c->from_ns -= took_ns;
	return AR_OK;
}

static enum ar_status add_child(struct import *im, struct level *l, const struct entry *e,
				int depth, struct whole *w, struct ar_err *err)
{
	struct child c = { .after = (uint32_t)l->n - 1 };
	struct level in = { 0 };
	enum ar_status st = AR_OK;

	if (!e->f[REQUESTS].s)
		st = lacks(im, "a sub-agent", REQUESTS, err);
	else if (e->f[HASH_IDS].s)
		st = import_fail(im, err, "a sub-agent has hash_ids");
	else if (depth == MOST_LEVELS)
		st = import_fail(im, err, "sub-agents go deeper than %d levels", MOST_LEVELS);
	if (!st)
		st = child_times(im, l, e, &c, err);
	if (!st)
		st = child_name(im, l, e, &c.session, err);
	in.session = c.session;
	if (!st)
		st = find_warm(im, &in, e, WARM_AGENT, err);
	if (!st)
		st = arrival(im, l, c.from_ns, &in.base_ns, err);
	if (!st)
		st = read_level(im, &in, e->f[REQUESTS].s, depth + 1, w, err);
	if (!st && in.n && !GROW(l->child, l->cap_child, l->n_child + 1))
		st = ar_nomem(err);
	if (!st && in.n) {
		c.req = in.turn->req;
		c.from_ns += in.turn->t_ns;
		l->child[l->n_child++] = c;
	}
	free_level(&in);
	return st;
}

/* Read an array of requests. */
static enum ar_status read_level(struct import *im, struct level *l, const char *s, int depth,
				 struct whole *w, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	struct span none;

	if (*s != '[')
		return import_fail(im, err, "requests is not an array");
	while (!st && record_step(&s, ']', &none)) {
		struct entry e = { 0 };

		st = read_entry(im, l, &s, &e, err);
		if (st)
			break;
		if (is_text(e.f[TYPE], "subagent"))
			st = add_child(im, l, &e, depth, w, err);
		else if (is_text(e.f[TYPE], "n") || is_text(e.f[TYPE], "s"))
			st = add_turn(im, l, &e, w, err);
		else
			st = import_fail(im, err, "type is %s, want \"n\", \"s\" or \"subagent\"",
					 e.f[TYPE].s ? span_show(e.f[TYPE]).s : "absent");
	}
	if (!st && !l->n)
		import_warn(im, WARN_NO_TURNS);
	return st ? st : settle_level(im, l, err);
}

/* ---- a line ---- */

/* Check the size of blocks, and begin a name space of ids. */
static enum ar_status weka_scope(struct import *im, const struct record *r, struct ar_err *err)
{
	struct span size = record_find(r, "block_size")->value;
	struct span scope = record_find(r, "hash_id_scope")->value;
	const bool local = is_text(scope, "local");
	uint64_t n;

	if (!local && !is_text(scope, "global"))
		return import_fail(im, err, "hash_id_scope is %s, want \"local\" or \"global\"",
				   span_show(scope).s);
	if (!num_u64(size.s, size.n, &n) || !n || n > 1 << 20)
		return import_fail(im, err, "block_size is %s, want an integer from 1 to 1048576",
				   span_show(size).s);
	if (im->t->block_tok && (n != im->t->block_tok || local != im->local_ids))
		return import_fail(
			im, err,
			"block_size or hash_id_scope differs from the line before; split "
			"the file");
	im->t->block_tok = (uint32_t)n;
	im->local_ids = local;
	if (local) {
		im->tree.first += im->tree.number.n;
		chain_release(&im->tree.number);
		im->tree.number = (struct chain){ 0 };
	}
	return AR_OK;
}

static enum ar_status check_total(const struct import *im, const struct record *r, const char *path,
				  uint64_t have, struct ar_err *err)
{
	struct span v;
	uint64_t n;

	if (record_path(r, path, &v) && (!num_u64(v.s, v.n, &n) || n != have))
		return import_fail(im, err, "%s is %s, but the requests have %" PRIu64, path,
				   span_show(v).s, have);
	return AR_OK;
}

static enum ar_status weka_record(struct import *im, const struct record *r, struct ar_err *err)
{
	const size_t n = im->session.n;
	struct level l = { 0 };
	struct whole w = { 0 };
	struct entry own = { 0 };
	enum ar_status st = weka_scope(im, r, err);

	if (!st)
		st = import_name_text(im, "id", record_find(r, "id")->value, &im->session,
				      &l.session, err);
	if (!st && l.session != n)
		st = import_fail(im, err, "session %s is in the file twice",
				 im->session.v[l.session]);
	for (enum field_name f = TOOL_TOKENS; f <= SYSTEM_TOKENS; f++)
		if (record_get(r, field_names[f]))
			own.f[f] = record_get(r, field_names[f])->value;
	if (!st)
		st = find_warm(im, &l, &own, WARM, err);
	if (!st)
		st = read_level(im, &l, record_find(r, "requests")->value.s, 0, &w, err);
	if (!st)
		st = check_total(im, r, "totals.combined_tokens.input", w.in, err);
	if (!st)
		st = check_total(im, r, "totals.combined_tokens.output", w.out, err);
	free_level(&l);
	return st;
}

const struct importer importer_weka = {
	.name = "weka",
	.title = "sessions of coding agents, as kv-cache-tester captures them (JSON lines)",
	.kind = RECORD_JSON,
	.need = need,
	.may = may,
	.uses = USES_WARM,
	.timeless = true,
	.large = true,
	.record = weka_record,
};
