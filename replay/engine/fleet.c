/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/loop.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/number.h"

static enum ar_status reject_unfit(struct loop *l, struct ar_err *err)
{
	const struct trace *t = l->cfg->trace;
	char why[160];

	for (size_t i = 0; i < t->n; i++) {
		enum ar_status st;

		if (!sched_rejects(&l->cfg->limits, &t->req[i], why, sizeof why))
			continue;
		if (!l->res->rejected++ && !l->cfg->rejects_known)
			log_warn("%s:%" PRIu64 ": request rejected: %s", t->name, t->req[i].line,
				 why);
		l->done[i] = true;
		st = loop_tell_request(l, (uint32_t)i, "rejected", why, err);
		if (st)
			return st;
	}
	if (l->res->rejected > 1 && !l->cfg->rejects_known)
		log_warn("%" PRId64 " requests rejected in all", l->res->rejected);
	return AR_OK;
}

static enum ar_status loop_open(struct loop *l, struct ar_err *err)
{
	const struct replay *cfg = l->cfg;
	size_t n = cfg->trace->n;
	enum ar_status st = sched_open(&l->s, cfg->trace, &cfg->limits, err);

	if (!st)
		st = arrivals_open(&l->arrivals, cfg->trace, &cfg->arrival, err);
	if (!st)
		st = front_open(&l->front, &cfg->front, n, err);
	if (st)
		return st;
	l->t = malloc((n + 1) * sizeof *l->t);
	l->depth = cfg->limits.async ? 2 : 1;
	for (int i = 0; i < 2; i++)
		l->queue[i].emit = malloc((n + 1) * sizeof *l->queue[i].emit);
	l->done = calloc(n + 1, sizeof *l->done);
	l->acc = calloc((size_t)cfg->q_heads + 1, sizeof *l->acc);
	l->count = calloc((size_t)cfg->kv_heads + 1, sizeof *l->count);
	if (cfg->limits.group)
		l->res->group_peak = calloc(cfg->limits.n_group, sizeof *l->res->group_peak);
	if (!l->t || !l->queue[0].emit || !l->queue[1].emit || !l->done || !l->acc || !l->count ||
	    (cfg->limits.group && !l->res->group_peak))
		return ar_nomem(err);
	for (size_t i = 0; i < n; i++)
		l->t[i] = (struct times){ -1, -1, -1 };
	return loop_open_hot(l, err);
}

/* Take the latencies of the finished requests from their times, and sort them.  It is done at the
 * end, when the memory of the schedule is free again. */
static enum ar_status take_latencies(struct loop *l, struct ar_err *err)
{
	const struct request *r = l->cfg->trace->req;
	struct series *s = l->res->latency;
	double ns[LATENCY_COUNT];
	enum ar_status st = AR_OK;

	for (int m = 0; m < LATENCY_COUNT && !st; m++)
		if (m != LATENCY_ITL)
			st = series_reserve(&s[m], (size_t)l->res->ok, err);
	for (size_t i = 0; i < l->cfg->trace->n && !st; i++) {
		if (!l->done[i] || l->t[i].first_token < 0 || r[i].warmup)
			continue;
		loop_latencies(l, (uint32_t)i, ns);
		for (int m = 0; m < LATENCY_COUNT && !st; m++)
			st = ns[m] < 0 ? AR_OK : series_add(&s[m], ns[m], err);
	}
	for (int m = 0; m < LATENCY_COUNT && !st; m++)
		st = series_sort(&s[m], err);
	return st;
}

/* Sum the counts of all requests, and report the unfinished ones.  st: status of the run, which is
 * returned rather than an error here. */
static enum ar_status end_run(struct loop *l, enum ar_status st, struct ar_err *err)
{
	const struct observer *o = l->cfg->observer;
	enum ar_status st2;

	for (size_t i = 0; i < l->cfg->trace->n; i++) {
		if (l->cfg->trace->req[i].warmup)
			continue;
		l->res->recomputed_tok += (int64_t)l->s->seq[i].recomputed;
		l->res->cached_tok += (int64_t)l->s->seq[i].cached;
		if (l->done[i])
			continue;
		l->res->unfinished++;
		st2 = loop_tell_request(l, (uint32_t)i, "unfinished", NULL, st ? NULL : err);
		if (!st)
			st = st2;
	}
	l->res->evict_waits = l->s->n_evict_waits;
	if (l->cfg->limits.blocks)
		l->res->kv_refilled = l->cfg->limits.blocks->n_refilled;
	for (size_t i = 0; l->res->group_peak && i < l->cfg->limits.n_group; i++)
		l->res->group_peak[i] = kv_groups_peak(l->s->groups, i);
	sched_close(l->s);
	l->s = NULL;
	st2 = take_latencies(l, st ? NULL : err);
	if (!st)
		st = st2;
	st2 = o ? o->end(o->self, l->res, st ? NULL : err) : AR_OK;
	return st ? st : st2;
}

static void show_progress(const struct loop *l)
{
	char what[160], clock[32];

	if (!l->cfg->title || !progress_due())
		return;
	snprintf(what, sizeof what, "%s, virtual time %s: requests", l->cfg->title,
		 num_time_str(clock, sizeof clock, (double)l->clock.gpu_end));
	progress(what, (unsigned long)(l->res->ok + l->res->rejected), l->cfg->trace->n);
}

static enum ar_status loop_run(struct loop *l, struct ar_err *err)
{
	enum ar_status st = reject_unfit(l, err);

	while (!st && loop_arrive(l, &st, err)) {
		if (ar_interrupted())
			return ar_fail(err, AR_INTERRUPTED,
				       "interrupted after %" PRId64 " iterations; "
				       "%" PRId64 " of %zu requests finished",
				       l->res->iterations, l->res->ok, l->cfg->trace->n);
		st = loop_iterate(l, err);
		if (st)
			ar_err_prefix(err, "iteration %" PRId64, l->res->iterations);
		show_progress(l);
	}
	progress_end();
	return st;
}

enum ar_status replay_run(const struct replay *cfg, struct replay_result *res, struct ar_err *err)
{
	struct loop l = { .cfg = cfg, .res = res };
	enum ar_status st;

	*res = (struct replay_result){ 0 };
	st = loop_open(&l, err);
	if (!st)
		st = end_run(&l, loop_run(&l, err), err);
	sched_close(l.s);
	arrivals_close(l.arrivals);
	front_close(l.front);
	free(l.t);
	free(l.queue[0].emit);
	free(l.queue[1].emit);
	free(l.done);
	free(l.acc);
	free(l.count);
	return st;
}

void replay_result_release(struct replay_result *res)
{
	for (int m = 0; m < LATENCY_COUNT; m++)
		series_release(&res->latency[m]);
	hot_rows_release(&res->hot);
	free(res->group_peak);
	res->group_peak = NULL;
}
