/* SPDX-License-Identifier: Apache-2.0 */
/* The interval of a rate or of a number of GPUs.  The search is repeated on resamples of the
 * requests, each from what it ended with.  All subjects of a command get the same resamples, so
 * that the ratio of their answers has an interval, too. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bootstrap.h"
#include "base/number.h"
#include "src/run/replicates.h"
#include "src/run/workers.h"
#include "src/search/search.h"

enum { WHY = sizeof((struct subject *)0)->no_interval };

/* The search on one resample. */
struct replicate {
	bool done;
	struct rates_found f;
	double extrapolated, cached; /* mean shares over the points */
	char why[512];		     /* of a failure */
};

struct maker {
	struct search *s;
	const struct subject *u;
	struct rates_found found; /* of the requests themselves */
	struct replicate *of;	  /* [SEARCH_REPLICATES] shared by processes */
};

/* ---- one replicate, in a process of its own ---- */

/* Search as s does, on the requests of its trace now. */
static enum ar_status search_again(const struct maker *m, struct search *s, struct replicate *x,
				   struct ar_err *err)
{
	struct subject u = { .base = m->u->base, .i = m->u->i };
	enum ar_status st;

	x->f = m->found;
	st = s->kind->again(s, &u, &x->f, err);
	for (size_t i = 0; i < u.n; i++) {
		x->extrapolated += u.point[i].f.extrapolated / (double)u.n;
		x->cached += u.point[i].f.cached / (double)u.n;
	}
	free(u.point);
	return st;
}

static enum ar_status replicate(const struct maker *m, int i, struct replicate *x,
				struct ar_err *err)
{
	struct trace *own = m->s->base[0]->in.trace, trace;
	struct search s = *m->s;
	enum ar_status st = resample_draw(s.resampler, (uint64_t)i, 1, &trace, err);

	if (st)
		return st;
	s.replicate = i + 1;
	s.req = malloc(trace.n * sizeof *s.req);
	st = s.req ? AR_OK : ar_nomem(err);
	if (!st) {
		memcpy(s.req, trace.req, trace.n * sizeof *s.req);
		s.base[0]->in.trace = &trace;
		st = search_again(m, &s, x, err);
		s.base[0]->in.trace = own;
	}
	free(s.req);
	resample_release(&trace);
	return st;
}

static void work(void *self, int i)
{
	const struct maker *m = self;
	struct replicate *x = &m->of[i];
	struct ar_err err = { 0 };

	x->done = !replicate(m, i, x, &err);
	if (!x->done)
		snprintf(x->why, sizeof x->why, "%s", err.msg);
}

/* ---- what they say ---- */

static void judge(const struct maker *m, char why[WHY])
{
	struct replicates_made made = { .want = SEARCH_REPLICATES,
					.run_cached = m->u->best->f.cached };

	for (int i = 0; i < SEARCH_REPLICATES; i++) {
		const struct replicate *x = &m->of[i];

		if (!made.failed && *x->why)
			made.failed = x->why;
		made.n += x->done;
		made.extrapolated += x->extrapolated / SEARCH_REPLICATES;
		made.cached += x->cached / SEARCH_REPLICATES;
	}
	replicates_why(&made, why, WHY);
}

/* From the values that kept the limits up to those that did not. */
static enum ar_status set_interval(const struct maker *m, struct subject *u, struct ar_err *err)
{
	double kept[SEARCH_REPLICATES], failed[SEARCH_REPLICATES], unused;

	u->replicate = malloc(SEARCH_REPLICATES * sizeof *u->replicate);
	if (!u->replicate)
		return ar_nomem(err);
	for (int i = 0; i < SEARCH_REPLICATES; i++) {
		u->replicate[i] = m->of[i].f;
		kept[i] = m->of[i].f.kept;
		failed[i] = m->of[i].f.failed;
	}
	bootstrap_interval(kept, SEARCH_REPLICATES, 0.95, &u->lo, &unused);
	bootstrap_interval(failed, SEARCH_REPLICATES, 0.95, &unused, &u->hi);
	if (m->s->kind->gpus) {
		u->lo = floor(u->lo);
		u->hi = ceil(u->hi);
	}
	if (u->lo <= m->found.kept && m->found.failed <= u->hi)
		return AR_OK;
	u->lo = u->hi = NAN;
	free(u->replicate);
	u->replicate = NULL;
	snprintf(u->no_interval, WHY,
		 "the answer is outside of those of its resamples: the bursts are longer than the "
		 "trace can tell");
	return AR_OK;
}

/* ---- the interval ---- */

/* Whether points compute their costs, without kernels. */
static bool computes(const struct run *base)
{
	const struct backend *b = base->session.backend;

	return replicates_compute(base) && b && (b->modelled || !b->needs_model);
}

/* Find out whether there is time for it: each resample has two points or more. */
static bool is_long(const struct search *s, char why[WHY])
{
	const double ns = 2.0 * SEARCH_REPLICATES * (double)s->points_ns / s->n_points;
	const double each = ns / workers_count();

	if (each > (double)s->a.intervals_ns)
		snprintf(why, WHY,
			 "searches on %d resamples would take %.3g s or more, longer than "
			 "--intervals-time",
			 SEARCH_REPLICATES, each * 1e-9);
	return *why;
}

static enum ar_status open_resampler(struct search *s, const struct subject *u, char why[WHY],
				     struct ar_err *err)
{
	struct resample_plan plan;
	enum ar_status st = AR_OK;

	if (!s->resampler)
		st = resample_open(&s->resampler, s->base[0]->in.trace,
				   u->base->in.limits.prefix_cache, true, err);
	if (st)
		return st;
	plan = resample_plan(s->resampler);
	replicates_judge(&plan, false, why, WHY);
	return AR_OK;
}

static enum ar_status make(struct maker *m, struct subject *u, struct ar_err *err)
{
	const size_t size = SEARCH_REPLICATES * sizeof *m->of;
	const int64_t end = num_add(workers_now_ns(), m->s->a.intervals_ns);
	enum ar_status st;

	m->of = workers_share(size);
	if (!m->of)
		return ar_nomem(err);
	st = workers_run(SEARCH_REPLICATES, work, m, end, "searches on resamples", err);
	if (!st)
		judge(m, u->no_interval);
	if (!st && !*u->no_interval)
		st = set_interval(m, u, err);
	workers_unshare(m->of, size);
	return st;
}

enum ar_status search_interval(struct search *s, struct subject *u, struct ar_err *err)
{
	struct maker m = { s, u, { .kept = 0 }, NULL };
	enum ar_status st;

	if (!s->a.intervals || !u->best)
		return AR_OK;
	m.found = (struct rates_found){ u->best->x, s->kind->gpus ? u->best->x : u->failed };
	if (!(m.found.failed > 0)) {
		snprintf(u->no_interval, WHY, "the rate is that of an end of the search");
		return AR_OK;
	}
	if (!computes(u->base)) {
		snprintf(u->no_interval, WHY,
			 "each point runs its kernels; search with the --costs of a run");
		return AR_OK;
	}
	if (is_long(s, u->no_interval))
		return AR_OK;
	st = open_resampler(s, u, u->no_interval, err);
	return st || *u->no_interval ? st : make(&m, u, err);
}
