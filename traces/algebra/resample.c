/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/algebra/resample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/block_length.h"
#include "base/number.h"
#include "base/order.h"
#include "base/rng.h"
#include "traces/algebra/renumber.h"

/* A prefix of more requests than this share of all makes no tree. */
enum { COMMON = 10 };

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
	bool *own;	   /* [t->n_block] the prefix is of one unit alone */
};

/* ---- units ---- */

/* A place of a prefix in a request. */
struct place {
	uint64_t id;
	size_t at; /* in t->block */
	uint32_t req;
};

static int by_id(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->id == y->id ? ORDER(x->req, y->req) : ORDER(x->id, y->id);
}

/* All n places by prefix and request; NULL: no memory. */
static struct place *all_places(const struct trace *t, size_t n)
{
	struct place *p = malloc((n + 1) * sizeof *p), *to = p;

	for (uint32_t i = 0; i < t->n && p; i++)
		for (uint32_t k = 0; k < t->req[i].n_block; k++) {
			size_t at = t->req[i].block + k;

			*to++ = (struct place){ t->block[at], at, i };
		}
	if (p)
		qsort(p, n, sizeof *p, by_id);
	return p;
}

/* Places [from, ...) with the same prefix. */
static size_t same_prefix(const struct place *p, size_t n, size_t from)
{
	size_t to = from + 1;

	while (to < n && p[to].id == p[from].id)
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
			uint32_t d = (uint32_t)(p[k].at - t->req[p[k].req].block);

			if (d >= depth[p[k].req])
				continue;
			depth[p[k].req] = d;
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
		for (size_t k = from; k < to; k++)
			own[p[k].at] = alone;
	}
}

/* key[i]: the first request of the session of request i. */
static enum ar_status find_sessions(const struct trace *t, uint32_t *key, struct ar_err *err)
{
	uint32_t *first = malloc((t->n_session + 1) * sizeof *first);

	if (!first)
		return ar_nomem(err);
	for (size_t s = 0; s < t->n_session; s++)
		first[s] = UINT32_MAX;
	for (size_t i = 0; i < t->n; i++) {
		int32_t s = t->req[i].session;

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

/* ---- the length of blocks ---- */

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

static enum ar_status find_block(struct resampler *r, bool gaps, struct ar_err *err)
{
	size_t n = r->plan.n_unit;
	double *x = malloc((n + 1) * sizeof *x);

	if (!x)
		return ar_nomem(err);
	r->plan.block = 1;
	for (int s = gaps ? GAP : PROMPT; s < SERIES; s++) {
		size_t one;

		for (size_t u = 0; u < n; u++)
			x[u] = figure_of(r, &r->unit[u], (enum series)s);
		one = block_length(x, n);
		if (one > r->plan.block)
			r->plan.block = one;
	}
	free(x);
	return AR_OK;
}

/* ---- drift ---- */

/* Resamples that the trace is compared with, and those that may wander as far by chance. */
enum { DRIFT_DRAWS = 199, DRIFT_CHANCE = 3 };

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

/* unit: room for n.  Returns how many resamples wander as far as the trace. */
static int count_wandering(const struct resampler *r, const double *x, size_t *unit)
{
	const size_t n = r->plan.n_unit;
	struct rng rng = { rng_mix(n) };
	double own;
	int count = 0;

	for (size_t i = 0; i < n; i++)
		unit[i] = i;
	own = wander(x, unit, n);
	for (int k = 0; k < DRIFT_DRAWS; k++) {
		for (size_t i = 0; i < n; i++)
			unit[i] = next_unit(r, &rng, i, i ? unit[i - 1] : 0);
		count += wander(x, unit, n) >= own;
	}
	return count;
}

/* Bursts that are about as long as the trace lengthen no block: one is not enough to see that it
 * depends on those before it.  But they move the mean. */
static enum ar_status find_drift(struct resampler *r, bool gaps, struct ar_err *err)
{
	const size_t n = r->plan.n_unit;
	double *x = malloc((n + 1) * sizeof *x);
	size_t *unit = malloc((n + 1) * sizeof *unit);
	enum ar_status st = x && unit ? AR_OK : ar_nomem(err);

	for (int s = gaps ? GAP : PROMPT; s < SERIES && !st; s++) {
		for (size_t u = 0; u < n; u++)
			x[u] = figure_of(r, &r->unit[u], (enum series)s);
		r->plan.drifts = r->plan.drifts || count_wandering(r, x, unit) < DRIFT_CHANCE;
	}
	free(x);
	free(unit);
	return st;
}

/* ---- a resampler ---- */

static enum resample_unit unit_kind(const struct trace *t, bool prefixes)
{
	return t->n_session	      ? RESAMPLE_SESSION :
	       prefixes && t->n_block ? RESAMPLE_TREE :
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
	const size_t n = prefixes ? blocks_count(t) : 0;
	struct place *p = n ? all_places(t, n) : NULL;
	uint32_t *key = malloc((t->n + 1) * sizeof *key);
	enum ar_status st;

	r->own = n ? calloc(t->n_block, sizeof *r->own) : NULL;
	st = key && (!n || (p && r->own)) ? find_keys(r, p, n, key, err) : ar_nomem(err);
	if (!st)
		st = make_units(r, key, err);
	if (!st && n)
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
		st = find_block(r, gaps, err);
	if (!st)
		st = find_drift(r, gaps, err);
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
	free(r->own);
	free(r);
}

struct resample_plan resample_plan(const struct resampler *r)
{
	return r->plan;
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
	size_t n, n_req, n_block;
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
		for (size_t m = 0; m < u->n; m++)
			d->n_block += r->t->req[r->member[u->first + m]].n_block;
	}
	free(copies);
	return now == INT64_MAX || d->n_req > UINT32_MAX || d->n > INT32_MAX ?
		       ar_fail(err, AR_DATA, "%s: a resample is too long", r->t->name) :
		       AR_OK;
}

/* The prefixes of a request in a copy of its unit. */
static void put_blocks(const struct resampler *r, const struct request *q, uint32_t copy,
		       uint64_t *to)
{
	for (uint32_t k = 0; k < q->n_block; k++) {
		uint64_t id = r->t->block[q->block + k];
		bool own = copy && r->own && r->own[q->block + k];

		to[k] = own ? rng_mix(id ^ rng_mix(copy)) : id;
	}
}

static int by_arrival(const void *a, const void *b)
{
	const struct request *x = a, *y = b;

	return x->arrival_ns == y->arrival_ns ? ORDER(x->line, y->line) :
						ORDER(x->arrival_ns, y->arrival_ns);
}

static enum ar_status put_requests(const struct draw *d, struct trace *out, struct ar_err *err)
{
	const struct resampler *r = d->r;
	const bool sessions = r->plan.unit == RESAMPLE_SESSION;
	size_t n = 0, n_block = 0;

	for (size_t i = 0; i < d->n; i++) {
		const struct unit *u = &r->unit[d->v[i].unit];
		const int64_t begin = first_of(r, u)->arrival_ns;

		for (size_t m = 0; m < u->n; m++) {
			struct request *q = &out->req[n];

			*q = r->t->req[r->member[u->first + m]];
			q->line = ++n; /* requests that arrive together stay in order */
			put_blocks(r, q, d->v[i].copy, out->block + n_block);
			q->block = n_block;
			n_block += q->n_block;
			q->arrival_ns = num_add(d->v[i].at_ns, q->arrival_ns - begin);
			if (sessions && q->session >= 0)
				q->session = (int32_t)i;
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
	enum ar_status st;

	*out = *r->t;
	out->req = NULL;
	out->block = NULL;
	d.v = malloc((d.n + 1) * sizeof *d.v);
	st = d.v ? draw_units(&d, k, err) : ar_nomem(err);
	if (!st) {
		out->n = d.n_req;
		out->n_block = d.n_block;
		out->req = malloc((d.n_req + 1) * sizeof *out->req);
		out->block = malloc((d.n_block + 1) * sizeof *out->block);
		if (r->plan.unit == RESAMPLE_SESSION)
			out->n_session = d.n;
		st = out->req && out->block ? put_requests(&d, out, err) : ar_nomem(err);
	}
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
	free(out->block);
	out->req = NULL;
	out->block = NULL;
}
