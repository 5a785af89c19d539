/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replay: its engines, the replicas, and the requests that arrive at them.
 *
 * What happens next is the earliest event: a request arrives and is routed, or an event of a
 * replica.  At one time, requests come first, then the lowest replica.  Loads are published at
 * multiples of a time: each time sees the events before it.
 */
#include "config.h"
#include "replay/engine/loop.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/number.h"

struct fleet {
	struct loop all;     /* what all replicas share */
	struct loop *loop;   /* [n] */
	int64_t *next;	     /* [n] loop_next() of each */
	int32_t *replica_of; /* [trace->n] -1: it was not routed */
	size_t n;
	struct routing routing; /* if n is above 1 */
	int64_t publish_ns;	/* when loads are published next */
};

/* The replica of request id, or the first one. */
static struct loop *loop_of(const struct fleet *f, size_t id)
{
	return &f->loop[f->replica_of[id] < 0 ? 0 : f->replica_of[id]];
}

static enum ar_status reject_unfit(struct fleet *f, struct ar_err *err)
{
	const struct replay *cfg = f->all.cfg;
	struct replay_result *res = f->all.res;
	const struct trace *t = cfg->trace;
	char why[160];

	for (size_t i = 0; i < t->n; i++) {
		enum ar_status st;

		if (!sched_rejects(&cfg->limits, &t->req[i], why, sizeof why))
			continue;
		if (!res->rejected++ && !cfg->rejects_known)
			log_warn("%s:%" PRIu64 ": request rejected: %s", t->name, t->req[i].line,
				 why);
		f->all.done[i] = true;
		st = loop_tell_request(f->loop, (uint32_t)i, "rejected", why, err);
		if (st)
			return st;
	}
	if (res->rejected > 1 && !cfg->rejects_known)
		log_warn("%" PRId64 " requests rejected in all", res->rejected);
	return AR_OK;
}

/* ---- events ---- */

/* Publish the loads of all replicas, if they are due before what happens at now. */
static void publish(struct fleet *f, int64_t now)
{
	const struct router_rule *rule = &f->routing.rule;

	if (f->n == 1 || !rule->router->published || now < f->publish_ns)
		return;
	if (rule->stats_ns)
		f->publish_ns = num_add(now - now % rule->stats_ns, rule->stats_ns);
	for (size_t i = 0; i < f->n; i++) {
		const struct sched *s = f->loop[i].s;
		struct router_load *load = &f->routing.load[i];

		load->running = (int64_t)s->n_running;
		load->waiting = f->loop[i].n_unfinished - load->running;
		load->kv_use = (double)(s->pool.n_usable - s->pool.n_free) /
			       (double)s->pool.n_usable;
	}
}

/* The replica for request id. */
static size_t choose(struct fleet *f, uint32_t id)
{
	const uint32_t pin = f->all.cfg->trace->req[id].replica;

	if (pin || f->n == 1)
		return pin ? pin - 1 : 0;
	for (size_t i = 0; i < f->n; i++)
		f->routing.load[i].unfinished = f->loop[i].n_unfinished;
	return routing_choose(&f->routing, id);
}

static void route(struct fleet *f, uint32_t id)
{
	const size_t to = choose(f, id);

	arrivals_pop(f->all.arrivals);
	f->replica_of[id] = (int32_t)to;
	loop_take(&f->loop[to], id);
	f->next[to] = loop_next(&f->loop[to]);
}

/* The next request that can run. */
static bool next_arrival(const struct fleet *f, uint32_t *id, int64_t *at)
{
	while (arrivals_peek(f->all.arrivals, id, at)) {
		if (!f->all.done[*id])
			return true;
		arrivals_pop(f->all.arrivals);
		arrivals_done(f->all.arrivals, *id, *at);
	}
	return false;
}

/* The replica with the earliest event; n: there is none. */
static size_t earliest(const struct fleet *f)
{
	size_t best = 0;

	for (size_t i = 1; i < f->n; i++)
		if (f->next[i] < f->next[best])
			best = i;
	return f->next[best] < INT64_MAX ? best : f->n;
}

/* The first replica whose requests wait for others, which do not come; n: there is none. */
static size_t stuck(const struct fleet *f)
{
	size_t i = 0;

	while (i < f->n && !loop_has_work(&f->loop[i]))
		i++;
	return i;
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

/* Let the next event of replica i happen. */
static enum ar_status step(struct fleet *f, size_t i, struct ar_err *err)
{
	struct loop *l = &f->loop[i];
	enum ar_status st;

	if (ar_interrupted() && !l->runs)
		return ar_fail(err, AR_INTERRUPTED,
			       "interrupted after %" PRId64 " iterations; "
			       "%" PRId64 " of %zu requests finished",
			       l->res->iterations, l->res->ok, l->cfg->trace->n);
	st = loop_step(l, err);
	if (st)
		ar_err_prefix(err, "iteration %" PRId64, l->res->iterations);
	f->next[i] = loop_next(l);
	show_progress(l);
	return st;
}

static enum ar_status run_events(struct fleet *f, struct ar_err *err)
{
	enum ar_status st = reject_unfit(f, err);

	while (!st) {
		const size_t i = earliest(f);
		int64_t at, next = i < f->n ? f->next[i] : INT64_MAX;
		uint32_t id;

		if (next_arrival(f, &id, &at) && at <= next) {
			publish(f, at);
			route(f, id);
		} else if (i < f->n) {
			publish(f, next);
			st = step(f, i, err);
		} else if (stuck(f) < f->n) {
			st = step(f, stuck(f), err);
		} else {
			break;
		}
	}
	progress_end();
	return st;
}

/* ---- begin and end ---- */

static enum ar_status open_shared(struct fleet *f, struct ar_err *err)
{
	struct loop *l = &f->all;
	const struct replay *cfg = l->cfg;
	const size_t n = cfg->trace->n;

	l->t = malloc((n + 1) * sizeof *l->t);
	l->done = calloc(n + 1, sizeof *l->done);
	l->in_after = malloc((n + 1) * sizeof *l->in_after);
	l->acc = calloc((size_t)cfg->q_heads + 1, sizeof *l->acc);
	l->count = calloc((size_t)cfg->kv_heads + 1, sizeof *l->count);
	if (cfg->limits.group)
		l->res->group_peak = calloc(cfg->limits.n_group, sizeof *l->res->group_peak);
	f->loop = calloc(f->n, sizeof *f->loop);
	f->next = malloc(f->n * sizeof *f->next);
	f->replica_of = malloc((n + 1) * sizeof *f->replica_of);
	if (!l->t || !l->done || !l->in_after || !l->acc || !l->count || !f->loop || !f->next ||
	    !f->replica_of || (cfg->limits.group && !l->res->group_peak))
		return ar_nomem(err);
	for (size_t i = 0; i < n; i++) {
		l->t[i] = (struct times){ -1, -1, -1 };
		f->replica_of[i] = -1;
	}
	return arrivals_open(&l->arrivals, cfg->trace, &cfg->arrival, err);
}

static enum ar_status fleet_open(struct fleet *f, struct ar_err *err)
{
	enum ar_status st = open_shared(f, err);

	for (size_t i = 0; i < f->n && !st; i++) {
		f->loop[i] = f->all;
		f->loop[i].replica = f->n > 1 ? (int64_t)i : -1;
		st = loop_open(&f->loop[i], i ? f->loop->s->seq : NULL, err);
		f->next[i] = INT64_MAX;
	}
	if (!st && f->n > 1)
		st = routing_open(&f->routing, &f->all.cfg->route, f->all.cfg->trace, err);
	return st ? st : loop_open_hot(f->loop, err);
}

static void fleet_release(struct fleet *f)
{
	for (size_t i = 0; f->loop && i < f->n; i++)
		loop_close(&f->loop[i]);
	routing_release(&f->routing);
	arrivals_close(f->all.arrivals);
	free(f->all.t);
	free(f->all.done);
	free(f->all.in_after);
	free(f->all.acc);
	free(f->all.count);
	free(f->loop);
	free(f->next);
	free(f->replica_of);
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

/* Sum what each replica counted. */
static void sum_replicas(struct fleet *f)
{
	struct replay_result *res = f->all.res;
	const struct sched_limits *lim = &f->all.cfg->limits;

	for (size_t r = 0; r < f->n; r++) {
		const struct sched *s = f->loop[r].s;

		res->evict_waits += s->n_evict_waits;
		for (size_t i = 0; res->group_peak && i < lim->n_group; i++) {
			const int64_t peak = kv_groups_peak(s->groups, i);

			if (peak > res->group_peak[i])
				res->group_peak[i] = peak;
		}
	}
	if (lim->blocks)
		res->kv_refilled = lim->blocks->n_refilled;
}

/* Sum the counts of all requests, and report the unfinished ones.  st: status of the run, which is
 * returned rather than an error here. */
static enum ar_status end_run(struct fleet *f, enum ar_status st, struct ar_err *err)
{
	const struct replay *cfg = f->all.cfg;
	struct replay_result *res = f->all.res;
	const struct observer *o = cfg->observer;
	const struct sched_seq *seq = f->loop->s->seq;
	enum ar_status st2;

	for (size_t i = 0; i < cfg->trace->n; i++) {
		if (cfg->trace->req[i].warmup)
			continue;
		res->recomputed_tok += (int64_t)seq[i].recomputed;
		res->cached_tok += (int64_t)seq[i].cached;
		if (f->all.done[i])
			continue;
		res->unfinished++;
		st2 = loop_tell_request(loop_of(f, i), (uint32_t)i, "unfinished", NULL,
					st ? NULL : err);
		if (!st)
			st = st2;
	}
	sum_replicas(f);
	for (size_t r = f->n; r-- > 0;)
		loop_close(&f->loop[r]);
	st2 = take_latencies(&f->all, st ? NULL : err);
	if (!st)
		st = st2;
	st2 = o ? o->end(o->self, res, st ? NULL : err) : AR_OK;
	return st ? st : st2;
}

enum ar_status replay_run(const struct replay *cfg, struct replay_result *res, struct ar_err *err)
{
	struct fleet f = { .all = { .cfg = cfg, .res = res },
			   .n = cfg->route.replicas > 1 ? (size_t)cfg->route.replicas : 1 };
	enum ar_status st;

	*res = (struct replay_result){ 0 };
	st = fleet_open(&f, err);
	if (!st)
		st = end_run(&f, run_events(&f, err), err);
	fleet_release(&f);
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
