/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/algebra/resample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/block_length.h"
#include "base/grow.h"
#include "base/number.h"
#include "base/order.h"
#include "base/rng.h"
#include "base/stats.h"
#include "traces/algebra/id_ranges.h"

/* A prefix of more requests than this share of all makes no tree. */
enum { COMMON = 10 };
/* Blocks of a resample, at least; where a trace has fewer units, each is a block. */
enum { FEWEST = 10 };
/* Of resample_spread(). */
enum { SPREAD = 7 };

const char *const resample_unit_names[] = { "request", "session", "tree" };

/* Requests that were sent together, in order of time. */
struct unit {
	size_t first, n; /* in resampler.member */
	int64_t gap_ns;	 /* from the unit before it to its first request */
};

struct resampler {
	const struct trace *t;
	struct resample_plan plan;
	struct unit *unit; /* [plan.n_unit] by first arrival */
	uint32_t *member;  /* [t->n] requests, by unit and time */
	struct id_ranges ranges;
	bool *own; /* [ranges.n] the prefixes are of one unit alone; NULL: there are none */
};

/* ---- units ---- */

/* A place of prefixes, a range of ids, in a request. */
struct place {
	size_t range;
	uint32_t req, depth; /* depth: blocks before it */
};

static int by_range(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->range == y->range ? ORDER(x->req, y->req) : ORDER(x->range, y->range);
}

/* All *n places by prefix and request; NULL: no memory. */
static struct place *all_places(const struct resampler *r, size_t *n)
{
	struct place *p = NULL;
	size_t cap = 0;

	*n = 0;
	for (uint32_t i = 0; i < r->t->n; i++) {
		struct id_walk w = { .t = r->t, .r = &r->ranges, .q = &r->t->req[i] };

		while (id_walk_next(&w)) {
			if (!GROW(p, cap, *n + 1)) {
				free(p);
				return NULL;
			}
			p[(*n)++] = (struct place){ w.range, i, w.at };
		}
	}
	if (p)
		qsort(p, *n, sizeof *p, by_range);
	return p;
}

/* Places [from, ...) with the same prefix. */
static size_t same_prefix(const struct place *p, size_t n, size_t from)
{
	size_t to = from + 1;

	while (to < n && p[to].range == p[from].range)
		to++;
	return to;
}

/* key[i]: the first request of the tree of request i.  A request is in the tree of its first prefix
 * that is not too common. */
static void find_trees(const struct trace *t, const struct place *p, size_t n, uint32_t *key,
		       uint32_t *depth)
{
	for (size_t i = 0; i < t->n; i++) {
		key[i] = (uint32_t)i;
		depth[i] = UINT32_MAX;
	}
	for (size_t from = 0, to; from < n; from = to) {
		to = same_prefix(p, n, from);
		if ((to - from) * COMMON > t->n)
			continue;
		for (size_t k = from; k < to; k++) {
			if (p[k].depth >= depth[p[k].req])
				continue;
			depth[p[k].req] = p[k].depth;
			key[p[k].req] = p[from].req;
		}
	}
}

/* Mark prefixes of one unit alone. */
static void find_own(const struct place *p, size_t n, const uint32_t *key, bool *own)
{
	for (size_t from = 0, to; from < n; from = to) {
		bool alone = true;

		to = same_prefix(p, n, from);
		for (size_t k = from; k < to; k++)
			alone = alone && key[p[k].req] == key[p[from].req];
		own[p[from].range] = alone;
	}
}

/* key[i]: the first request of the tree of sessions of request i. */
static enum ar_status find_sessions(const struct trace *t, uint32_t *key, struct ar_err *err)
{
	uint32_t *first = malloc((t->n_session + 1) * sizeof *first);

	if (!first)
		return ar_nomem(err);
	for (size_t s = 0; s < t->n_session; s++)
		first[s] = UINT32_MAX;
	for (size_t i = 0; i < t->n; i++) {
		int32_t s = t->req[i].session;

		s = s < 0 ? s : trace_root(t, s);
		if (s >= 0 && first[s] == UINT32_MAX)
			first[s] = (uint32_t)i;
		key[i] = s < 0 ? (uint32_t)i : first[s];
	}
	free(first);
	return AR_OK;
}

/* Make units of the requests with equal keys.  A key is the first request of its unit. */
static enum ar_status make_units(struct resampler *r, const uint32_t *key, struct ar_err *err)
{
	const struct trace *t = r->t;
	size_t *unit_of = malloc((t->n + 1) * sizeof *unit_of), n = 0, at = 0;

	r->unit = calloc(t->n + 1, sizeof *r->unit);
	r->member = malloc((t->n + 1) * sizeof *r->member);
	if (!unit_of || !r->unit || !r->member) {
		free(unit_of);
		return ar_nomem(err);
	}
	for (size_t i = 0; i < t->n; i++) {
		unit_of[i] = key[i] == i ? n++ : unit_of[key[i]];
		r->unit[unit_of[i]].n++;
	}
	for (size_t u = 0; u < n; u++) {
		r->unit[u].first = at;
		at += r->unit[u].n;
		r->unit[u].n = 0;
	}
	for (size_t i = 0; i < t->n; i++) {
		struct unit *u = &r->unit[unit_of[i]];

		r->member[u->first + u->n++] = (uint32_t)i;
	}
	free(unit_of);
	r->plan.n_unit = n;
	return AR_OK;
}

static const struct request *first_of(const struct resampler *r, const struct unit *u)
{
	return &r->t->req[r->member[u->first]];
}

/* The first unit has no gap before it: it gets the mean. */
static void find_gaps(struct resampler *r)
{
	size_t n = r->plan.n_unit;

	for (size_t u = 1; u < n; u++)
		r->unit[u].gap_ns = first_of(r, &r->unit[u])->arrival_ns -
				    first_of(r, &r->unit[u - 1])->arrival_ns;
	if (n > 1)
		r->unit[0].gap_ns = (first_of(r, &r->unit[n - 1])->arrival_ns -
				     first_of(r, r->unit)->arrival_ns) /
				    (int64_t)(n - 1);
}

/* ---- bursts ---- */

enum series { GAP, PROMPT, OUTPUT, SERIES };

static double figure_of(const struct resampler *r, const struct unit *u, enum series what)
{
	double sum = 0;

	if (what == GAP)
		return (double)u->gap_ns;
	for (size_t k = 0; k < u->n; k++) {
		const struct request *q = &r->t->req[r->member[u->first + k]];

		sum += what == PROMPT ? q->prompt_tok : q->output_tok;
	}
	return sum;
}

/* Set x[u] to the figure of each unit. */
static void find_figures(const struct resampler *r, enum series what, double *x)
{
	for (size_t u = 0; u < r->plan.n_unit; u++)
		x[u] = figure_of(r, &r->unit[u], what);
}

/* The range of the sums of x less their mean; unit[i]: of which the place i is. */
static double wander(const double *x, const size_t *unit, size_t n)
{
	double mean = 0, sum = 0, least = 0, most = 0;

	for (size_t i = 0; i < n; i++)
		mean += x[unit[i]] / (double)n;
	for (size_t i = 0; i < n; i++) {
		sum += x[unit[i]] - mean;
		least = fmin(least, sum);
		most = fmax(most, sum);
	}
	return most - least;
}

/* The unit after `before` in a resample; i: its place. */
static size_t next_unit(const struct resampler *r, struct rng *rng, size_t i, size_t before)
{
	return i % r->plan.block ? (before + 1) % r->plan.n_unit : rng_below(rng, r->plan.n_unit);
}

/* Whether fewer than `least` of `draws` resamples wander as far as the trace.  unit: room for n. */
static bool is_wandering(const struct resampler *r, const double *x, size_t *unit, int draws,
			 int least)
{
	const size_t n = r->plan.n_unit;
	struct rng rng = { rng_mix(n) };
	double own;
	int count = 0;

	for (size_t i = 0; i < n; i++)
		unit[i] = i;
	own = wander(x, unit, n);
	for (int k = 0; k < draws && count < least && count + draws - k >= least; k++) {
		for (size_t i = 0; i < n; i++)
			unit[i] = next_unit(r, &rng, i, i ? unit[i - 1] : 0);
		count += wander(x, unit, n) >= own;
	}
	return count < least;
}

/* Room for a figure of each unit. */
struct room {
	double *x;
	struct stats_ranked *scratch;
	size_t *unit;
};

/* An autocorrelation sees nothing but the pauses where these are long, and of one burst it cannot
 * see that it depends on those before it.  But both move the mean of ranks.  So blocks are made
 * longer until a tenth of the resamples wander as far as the trace. */
static void find_block(struct resampler *r, enum series from, const struct room *room)
{
	enum { DRAWS = 39, TENTH = 4 };
	const size_t n = r->plan.n_unit, most = n < FEWEST ? 1 : n / FEWEST;

	r->plan.block = 1;
	for (enum series s = from; s < SERIES; s++) {
		size_t one;

		find_figures(r, s, room->x);
		one = block_length(room->x, n);
		if (one > r->plan.block)
			r->plan.block = one < most ? one : most;
	}
	for (enum series s = from; s < SERIES; s++) {
		find_figures(r, s, room->x);
		stats_ranks(room->x, n, room->scratch, room->x);
		while (r->plan.block < most && is_wandering(r, room->x, room->unit, DRAWS, TENTH))
			r->plan.block = 2 * r->plan.block < most ? 2 * r->plan.block : most;
	}
}

/* Bursts that are longer than the longest block are not in resamples: the trace wanders farther
 * than 98.5 % of them. */
static void find_drift(struct resampler *r, enum series from, const struct room *room)
{
	enum { DRAWS = 199, CHANCE = 3 };

	for (enum series s = from; s < SERIES; s++) {
		find_figures(r, s, room->x);
		r->plan.drifts = r->plan.drifts ||
				 is_wandering(r, room->x, room->unit, DRAWS, CHANCE);
	}
}

static enum ar_status find_bursts(struct resampler *r, bool gaps, struct ar_err *err)
{
	const size_t n = r->plan.n_unit + 1;
	const struct room room = { .x = malloc(n * sizeof *room.x),
				   .scratch = malloc(n * sizeof *room.scratch),
				   .unit = malloc(n * sizeof *room.unit) };
	enum ar_status st = AR_OK;

	if (room.x && room.scratch && room.unit) {
		find_block(r, gaps ? GAP : PROMPT, &room);
		find_drift(r, gaps ? GAP : PROMPT, &room);
	} else {
		st = ar_nomem(err);
	}
	free(room.x);
	free(room.scratch);
	free(room.unit);
	return st;
}

/* ---- a resampler ---- */

static enum resample_unit unit_kind(const struct trace *t, bool prefixes)
{
	return t->n_session	    ? RESAMPLE_SESSION :
	       prefixes && t->n_run ? RESAMPLE_TREE :
				      RESAMPLE_REQUEST;
}

/* p NULL: prefixes do not count. */
static enum ar_status find_keys(struct resampler *r, const struct place *p, size_t n, uint32_t *key,
				struct ar_err *err)
{
	const struct trace *t = r->t;
	uint32_t *depth;

	if (r->plan.unit == RESAMPLE_SESSION)
		return find_sessions(t, key, err);
	depth = malloc((t->n + 1) * sizeof *depth);
	if (!depth)
		return ar_nomem(err);
	find_trees(t, p, p ? n : 0, key, depth);
	free(depth);
	return AR_OK;
}

static enum ar_status find_units(struct resampler *r, bool prefixes, struct ar_err *err)
{
	const struct trace *t = r->t;
	uint32_t *key = malloc((t->n + 1) * sizeof *key);
	struct place *p = NULL;
	size_t n = 0;
	enum ar_status st = key ? AR_OK : ar_nomem(err);

	prefixes = prefixes && t->n_run;
	if (!st && prefixes)
		st = id_ranges_find(&r->ranges, t, err);
	if (!st && prefixes) {
		p = all_places(r, &n);
		r->own = calloc(r->ranges.n + 1, sizeof *r->own);
		st = p && r->own ? AR_OK : ar_nomem(err);
	}
	if (!st)
		st = find_keys(r, p, n, key, err);
	if (!st)
		st = make_units(r, key, err);
	if (!st && prefixes)
		find_own(p, n, key, r->own);
	free(key);
	free(p);
	return st;
}

/* A hash of all that draws depend on. */
static uint64_t key_of(const struct resampler *r)
{
	const char *sum = r->t->sha256;
	uint64_t key = rng_mix(r->plan.unit) ^ rng_mix(r->plan.n_unit << 20 ^ r->plan.block);

	for (size_t i = 0; sum[i]; i++)
		key = rng_mix(key ^ (uint64_t)sum[i]);
	return key;
}

enum ar_status resample_open(struct resampler **out, const struct trace *t, bool prefixes,
			     bool gaps, struct ar_err *err)
{
	struct resampler *r = calloc(1, sizeof *r);
	enum ar_status st;

	*out = r;
	if (!r)
		return ar_nomem(err);
	r->t = t;
	r->plan.unit = unit_kind(t, prefixes);
	st = find_units(r, prefixes, err);
	if (!st)
		find_gaps(r);
	if (!st)
		st = find_bursts(r, gaps, err);
	if (st) {
		resample_close(r);
		*out = NULL;
		return st;
	}
	r->plan.key = key_of(r);
	return AR_OK;
}

void resample_close(struct resampler *r)
{
	if (!r)
		return;
	free(r->unit);
	free(r->member);
	id_ranges_release(&r->ranges);
	free(r->own);
	free(r);
}

struct resample_plan resample_plan(const struct resampler *r)
{
	return r->plan;
}

double resample_spread(const struct resample_plan *p, double own, double resampled)
{
	const double by = 1 + SPREAD * (double)p->block / (double)p->n_unit;

	return own > 0 && resampled > 0 ? own * pow(resampled / own, by) : resampled;
}

/* ---- a draw ---- */

/* A unit of a resample. */
struct drawn {
	size_t unit;
	uint32_t copy; /* how often the unit was drawn before */
	int64_t at_ns;
};

struct draw {
	const struct resampler *r;
	struct drawn *v; /* [n] */
	size_t n, n_req;
};

static enum ar_status draw_units(struct draw *d, uint64_t k, struct ar_err *err)
{
	const struct resampler *r = d->r;
	const size_t n = r->plan.n_unit;
	struct rng rng = { rng_mix(r->plan.key ^ rng_mix(k)) };
	uint32_t *copies = calloc(n + 1, sizeof *copies);
	size_t next = 0;
	int64_t now = 0;

	if (!copies)
		return ar_nomem(err);
	for (size_t i = 0; i < d->n; i++) {
		const struct unit *u;

		next = next_unit(r, &rng, i, next);
		u = &r->unit[next];
		now = i ? num_add(now, u->gap_ns) : 0;
		d->v[i] = (struct drawn){ next, copies[next]++, now };
		d->n_req += u->n;
	}
	free(copies);
	return now == INT64_MAX || d->n_req > UINT32_MAX || d->n > INT32_MAX ?
		       ar_fail(err, AR_DATA, "%s: a resample is too long", r->t->name) :
		       AR_OK;
}

/* Copies of a unit are this far apart in ids, 2^64 over the golden ratio: so far from all others
 * that they do not meet. */
static const uint64_t APART = 0x9e3779b97f4a7c15;

/* Give q, a request of a copy of its unit, its prefixes.  False: no memory. */
static bool put_blocks(const struct resampler *r, struct request *q, uint32_t copy,
		       struct trace *out)
{
	const struct request old = *q;
	struct id_walk w = { .t = r->t, .r = &r->ranges, .q = &old };
	bool done = true;

	q->run = out->n_run;
	q->n_run = q->n_block = 0;
	for (uint32_t i = 0; i < old.n_run && !r->own && done; i++) {
		const struct block_run *run = &r->t->run[old.run + i];

		done = trace_put_blocks(out, q, run->id, trace_run_end(r->t, &old, i) - run->at);
	}
	while (done && r->own && id_walk_next(&w))
		done = trace_put_blocks(
			out, q,
			trace_block(r->t, &old, w.at) + (r->own[w.range] ? copy * APART : 0), w.n);
	return done;
}

static int by_arrival(const void *a, const void *b)
{
	const struct request *x = a, *y = b;

	return x->arrival_ns == y->arrival_ns ? ORDER(x->line, y->line) :
						ORDER(x->arrival_ns, y->arrival_ns);
}

/* Make session s of r->t a new session of out, once a draw: of[s] is its number plus 1, if that is
 * more than `from`.  Returns the number. */
static int32_t new_session(const struct resampler *r, int32_t s, size_t from, uint32_t *of,
			   struct trace *out)
{
	struct session_link l = r->t->link ? r->t->link[s] : session_link_none;

	if (of[s] > from)
		return (int32_t)of[s] - 1;
	if (l.parent >= 0)
		l.parent = new_session(r, l.parent, from, of, out);
	if (out->link)
		out->link[out->n_session] = l;
	of[s] = (uint32_t)++out->n_session;
	return (int32_t)out->n_session - 1;
}

/* of: room for the sessions of the trace, all 0. */
static enum ar_status put_requests(const struct draw *d, uint32_t *of, struct trace *out,
				   struct ar_err *err)
{
	const struct resampler *r = d->r;
	const bool sessions = r->plan.unit == RESAMPLE_SESSION;
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++) {
		const struct unit *u = &r->unit[d->v[i].unit];
		const int64_t begin = first_of(r, u)->arrival_ns;
		const size_t from = out->n_session;

		for (size_t m = 0; m < u->n; m++) {
			struct request *q = &out->req[n];

			*q = r->t->req[r->member[u->first + m]];
			q->line = ++n; /* requests that arrive together stay in order */
			if (!put_blocks(r, q, d->v[i].copy, out))
				return ar_nomem(err);
			q->arrival_ns = num_add(d->v[i].at_ns, q->arrival_ns - begin);
			if (sessions && q->session >= 0)
				q->session = new_session(r, q->session, from, of, out);
			if (q->arrival_ns == INT64_MAX)
				return ar_fail(err, AR_DATA, "%s: a resample is too long",
					       r->t->name);
		}
	}
	return AR_OK;
}

enum ar_status resample_draw(const struct resampler *r, uint64_t k, size_t times, struct trace *out,
			     struct ar_err *err)
{
	struct draw d = { .r = r, .n = times * r->plan.n_unit };
	const size_t n_session = r->t->n_session;
	uint32_t *of = calloc(n_session + 1, sizeof *of);
	enum ar_status st;

	*out = *r->t;
	out->req = NULL;
	out->run = NULL;
	out->link = NULL;
	out->n_run = out->cap_run = 0;
	d.v = malloc((d.n + 1) * sizeof *d.v);
	st = d.v && of ? draw_units(&d, k, err) : ar_nomem(err);
	if (!st) {
		out->n = d.n_req;
		out->req = malloc((d.n_req + 1) * sizeof *out->req);
		if (r->plan.unit == RESAMPLE_SESSION)
			out->n_session = 0;
		if (r->t->link)
			out->link = malloc((d.n_req + 1) * sizeof *out->link);
		st = out->req && (out->link || !r->t->link) ? put_requests(&d, of, out, err) :
							      ar_nomem(err);
	}
	free(of);
	free(d.v);
	if (st)
		resample_release(out);
	else
		qsort(out->req, out->n, sizeof *out->req, by_arrival);
	return st;
}

void resample_release(struct trace *out)
{
	free(out->req);
	free(out->run);
	free(out->link);
	out->link = NULL;
	out->req = NULL;
	out->run = NULL;
}
