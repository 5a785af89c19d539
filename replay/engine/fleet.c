/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replay: its engines, the replicas, and the requests that arrive at them.
 *
 * What happens next is the earliest event: a request arrives and is routed, a transfer of KV ends,
 * or an event of a replica.  At one time, requests come first, then transfers, then the lowest
 * replica.  Loads are published at multiples of a time: each time sees the events before it.
 *
 * Replicas that share experts launch together: one that could launch waits until no iteration runs,
 * and for the latest of the others with work.  All have the cost of the one that costs most.
 */
#include "config.h"
#include "replay/engine/loop.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/number.h"

/* Requests in a row, linked by in_after: in one at a time. */
struct row {
	uint32_t first, last; /* SCHED_NONE: it is empty */
};

/* Requests from some replicas to others that are chosen alike. */
struct pool {
	size_t first, n;	/* of the replicas */
	struct routing routing; /* if n is above 1 */
};

struct fleet {
	struct loop all;     /* what all replicas share */
	struct loop *loop;   /* [n] */
	int64_t *next;	     /* [n] loop_next() of each */
	int32_t *replica_of; /* [trace->n] -1: it was not routed */
	size_t n;
	struct pool in, decode; /* of arrivals; of requests with a first token, n 0: they stay */
	int64_t publish_ns;	/* when loads are published next */
	int64_t n_number;	/* of all.n_number */
	bool common;		/* iterations are steps of all replicas */
	struct heads heads;	/* of all.heads */
	/* Of prefill and decodes apart. */
	struct row *place; /* [decode.n] requests that wait for a place there */
	struct row *link;  /* [in.n][decode.n] requests whose KV is on the way, or waits for it */
	int64_t *link_ns;  /* [in.n][decode.n] when the last of them ends */
	size_t first_link; /* whose transfer ends first */
	int64_t kv_ns;	   /* when that is; INT64_MAX: there is none */
};

/* The replica of request id, or the first one. */
static const struct loop *loop_of(const struct fleet *f, size_t id)
{
	return &f->loop[f->replica_of[id] < 0 ? 0 : f->replica_of[id]];
}

/* Request id has not finished, and may have come to no replica. */
static enum ar_status tell_request(const struct fleet *f, size_t id, const char *outcome,
				   const char *reason, struct ar_err *err)
{
	struct loop l = *loop_of(f, id);

	if (f->replica_of[id] < 0)
		l.replica = -1;
	return loop_tell_request(&l, (uint32_t)id, outcome, reason, err);
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
		st = tell_request(f, i, "rejected", why, err);
		if (st)
			return st;
	}
	if (res->rejected > 1 && !cfg->rejects_known)
		log_warn("%" PRId64 " requests rejected in all", res->rejected);
	return AR_OK;
}

/* ---- events ---- */

/* Find the next event of replica i, which has changed.  Where iterations are steps of all, one that
 * would launch waits for those that run. */
static void find_next(struct fleet *f, size_t i)
{
	bool any = false;

	f->next[i] = loop_next(&f->loop[i]);
	if (!f->common)
		return;
	for (size_t k = 0; k < f->n; k++)
		any = any || f->loop[k].runs;
	for (size_t k = 0; k < f->n; k++)
		f->next[k] = any && loop_launches(&f->loop[k]) ? INT64_MAX : loop_next(&f->loop[k]);
}

static void publish_pool(const struct fleet *f, struct pool *p)
{
	for (size_t i = 0; i < p->n && p->n > 1; i++) {
		const struct loop *l = &f->loop[p->first + i];
		const struct sched *s = l->s;
		struct router_load *load = &p->routing.load[i];

		load->running = (int64_t)s->n_running;
		load->waiting = l->n_unfinished - load->running;
		load->kv_use = (double)(s->pool.n_usable - s->pool.n_free) /
			       (double)s->pool.n_usable;
	}
}

/* Publish the loads of all replicas, if they are due before what happens at now. */
static void publish(struct fleet *f, int64_t now)
{
	const struct router_rule *rule = &f->all.cfg->route;

	if (f->n == 1 || !rule->router->published || now < f->publish_ns)
		return;
	if (rule->stats_ns)
		f->publish_ns = num_add(now - now % rule->stats_ns, rule->stats_ns);
	publish_pool(f, &f->in);
	publish_pool(f, &f->decode);
}

/* The replica of a pool for request id. */
static size_t choose(const struct fleet *f, struct pool *p, uint32_t id)
{
	if (p->n == 1)
		return p->first;
	for (size_t i = 0; i < p->n; i++)
		p->routing.load[i].unfinished = f->loop[p->first + i].n_unfinished;
	return p->first + routing_choose(&p->routing, id);
}

static void route(struct fleet *f, uint32_t id)
{
	const uint32_t pin = f->all.cfg->trace->req[id].replica;
	const size_t to = pin ? pin - 1 : choose(f, &f->in, id);

	arrivals_pop(f->all.arrivals);
	f->replica_of[id] = (int32_t)to;
	f->loop[to].n_unfinished++;
	loop_take(&f->loop[to], id, arrivals_at(f->all.arrivals, id));
	find_next(f, to);
}

/* ---- KV on the way ---- */

static void push(const struct fleet *f, struct row *r, uint32_t id)
{
	f->all.in_after[id] = SCHED_NONE;
	*(r->first == SCHED_NONE ? &r->first : &f->all.in_after[r->last]) = id;
	r->last = id;
}

static uint32_t pop(const struct fleet *f, struct row *r)
{
	const uint32_t id = r->first;

	r->first = f->all.in_after[id];
	return id;
}

/* Find the transfer that ends first. */
static void find_kv(struct fleet *f)
{
	f->kv_ns = INT64_MAX;
	for (size_t i = 0; i < f->in.n * f->decode.n; i++) {
		const uint32_t id = f->link[i].first;

		if (id != SCHED_NONE && f->all.travel[id].end_ns < f->kv_ns) {
			f->kv_ns = f->all.travel[id].end_ns;
			f->first_link = i;
		}
	}
}

/* How long the KV of request id is on the way. */
static int64_t transfer_ns(const struct fleet *f, uint32_t id)
{
	const struct replay *cfg = f->all.cfg;
	const struct replay_apart *a = &cfg->apart;
	const int64_t n = sched_length_blocks(&cfg->limits, cfg->trace->req[id].prompt_tok);

	return num_add(a->link_ns,
		       (int64_t)ceil((double)n * (double)a->block_bytes / a->link_bytes_s * 1e9));
}

/* The requests that have a place in decode replica d from now on send their KV. */
static void send_kv(struct fleet *f, size_t d, int64_t now)
{
	struct row *r = &f->place[d];
	struct loop *l = &f->loop[f->decode.first + d];

	while (r->first != SCHED_NONE) {
		const uint32_t id = r->first;
		struct travel *t = &f->all.travel[id];
		const size_t link = (size_t)t->from * f->decode.n + d;
		int64_t begin = f->link_ns[link];

		if (!sched_place(l->s, id, &f->loop[t->from].s->seq[id]))
			break;
		pop(f, r);
		begin = begin > now ? begin : now;
		t->end_ns = f->link_ns[link] = num_add(begin, transfer_ns(f, id));
		push(f, &f->link[link], id);
	}
	find_kv(f);
}

/* Requests leave replica i with their first output. */
static void hand_over(struct fleet *f, size_t i, int64_t now)
{
	struct loop *l = &f->loop[i];

	for (size_t k = 0; k < l->n_left; k++) {
		const uint32_t id = l->left[k];
		const size_t to = choose(f, &f->decode, id);

		f->all.travel[id].from = (int32_t)i;
		f->replica_of[id] = (int32_t)to;
		f->loop[to].n_unfinished++;
		push(f, &f->place[to - f->decode.first], id);
		send_kv(f, to - f->decode.first, now);
	}
	l->n_left = 0;
}

/* The first transfer ends. */
static void end_transfer(struct fleet *f)
{
	const int64_t now = f->kv_ns;
	const uint32_t id = pop(f, &f->link[f->first_link]);
	const int32_t from = f->all.travel[id].from, to = f->replica_of[id];

	loop_leave(&f->loop[from], id, now);
	loop_take(&f->loop[to], id, now);
	find_next(f, (size_t)from);
	find_next(f, (size_t)to);
	find_kv(f);
}

/* ---- what happens next ---- */

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

/* ---- common steps ---- */

/* Replica k has work that it can run, or is i, which launches. */
static bool takes_part(const struct fleet *f, size_t k, size_t i)
{
	return k == i || (loop_has_work(&f->loop[k]) && f->loop[k].n_empty <= 1);
}

static bool has_batch(const struct loop *l)
{
	return l->joins && l->s->batch.n;
}

/* Let all plan at the time at; their rows are those of the step. */
static enum ar_status plan_step(struct fleet *f, size_t i, int64_t at, struct batch_step *step,
				struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t k = 0; k < f->n && !st; k++) {
		struct loop *l = &f->loop[k];
		int64_t rows;

		st = loop_wait(l, at, err);
		l->joins = !st && takes_part(f, k, i);
		if (l->joins)
			st = loop_plan(l, err);
		rows = has_batch(l) ? batch_rows(&l->s->batch) : 1;
		step->rows += rows;
		step->largest = rows > step->largest ? rows : step->largest;
	}
	return st;
}

/* Find the costs of a step, and let all end when the last does. */
static enum ar_status price_step(struct fleet *f, const struct batch_step *step, struct ar_err *err)
{
	int64_t most = 0, end = 0;
	enum ar_status st = AR_OK;

	for (size_t k = 0; k < f->n && !st; k++) {
		if (f->loop[k].joins)
			st = loop_price(&f->loop[k], step, err);
		if (has_batch(&f->loop[k]) && f->loop[k].step.cost.cost_ns > most)
			most = f->loop[k].step.cost.cost_ns;
	}
	for (size_t k = 0; k < f->n && !st; k++) {
		if (!has_batch(&f->loop[k]))
			continue;
		f->loop[k].step.cost.cost_ns = most;
		end = loop_end(&f->loop[k]) > end ? loop_end(&f->loop[k]) : end;
	}
	for (size_t k = 0; k < f->n && !st; k++) {
		struct loop *l = &f->loop[k];

		if (has_batch(l))
			l->step.cost.cost_ns = num_add(most, end - loop_end(l));
		else if (!l->joins && l->clock.gpu_end < end)
			l->clock.gpu_end = end;
	}
	return st;
}

/* Replica i could launch.  When all others with work can as well, all do. */
static enum ar_status meet(struct fleet *f, size_t i, struct ar_err *err)
{
	struct batch_step step = { .no = f->all.res->iterations };
	int64_t at = f->loop[i].clock.now;
	enum ar_status st;

	for (size_t k = 0; k < f->n; k++)
		if (takes_part(f, k, i) && f->loop[k].clock.now > at)
			at = f->loop[k].clock.now;
	if (at > f->loop[i].clock.now)
		return loop_wait(&f->loop[i], at, err);
	st = plan_step(f, i, at, &step, err);
	if (!st)
		st = price_step(f, &step, err);
	for (size_t k = 0; k < f->n && !st; k++)
		if (f->loop[k].joins)
			st = loop_go(&f->loop[k], err);
	return st;
}

/* Let the next event of replica i happen. */
static enum ar_status step(struct fleet *f, size_t i, struct ar_err *err)
{
	struct loop *l = &f->loop[i];
	const int64_t now = f->next[i];
	const bool ends = l->runs;
	enum ar_status st;

	if (ar_interrupted() && !l->runs && !l->cfg->world) /* ranks tell each other */
		return ar_fail(err, AR_INTERRUPTED,
			       "interrupted after %" PRId64 " iterations; "
			       "%" PRId64 " of %zu requests finished",
			       l->res->iterations, l->res->ok, l->cfg->trace->n);
	st = f->common && loop_launches(l) ? meet(f, i, err) : loop_step(l, err);
	if (st)
		ar_err_prefix(err, "iteration %" PRId64, l->res->iterations);
	if (!st && ends && l->role == LOOP_PREFILL)
		hand_over(f, i, now);
	if (!st && ends && l->role == LOOP_DECODE)
		send_kv(f, i - f->decode.first, now);
	find_next(f, i);
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

		if (next_arrival(f, &id, &at) && at <= next && at <= f->kv_ns) {
			publish(f, at);
			route(f, id);
		} else if (f->kv_ns < INT64_MAX && f->kv_ns <= next) {
			publish(f, f->kv_ns);
			end_transfer(f);
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
	enum ar_status st;

	l->t = malloc((n + 1) * sizeof *l->t);
	l->done = calloc(n + 1, sizeof *l->done);
	l->in_after = malloc((n + 1) * sizeof *l->in_after);
	l->in_ns = malloc((n + 1) * sizeof *l->in_ns);
	l->heads = &f->heads;
	l->acc = calloc((size_t)cfg->q_heads + 1, sizeof *l->acc);
	l->count = calloc((size_t)cfg->kv_heads + 1, sizeof *l->count);
	if (cfg->limits.group)
		l->res->group_peak = calloc(cfg->limits.n_group, sizeof *l->res->group_peak);
	f->loop = calloc(f->n, sizeof *f->loop);
	f->next = malloc(f->n * sizeof *f->next);
	f->replica_of = malloc((n + 1) * sizeof *f->replica_of);
	if (!l->t || !l->done || !l->in_after || !l->in_ns || !l->acc || !l->count || !f->loop ||
	    !f->next || !f->replica_of || (cfg->limits.group && !l->res->group_peak))
		return ar_nomem(err);
	for (size_t i = 0; i < n; i++) {
		l->t[i] = (struct times){ -1, -1, -1 };
		f->replica_of[i] = -1;
	}
	st = heads_open(&f->heads, cfg->world, cfg->q_heads, cfg->kv_heads, cfg->whole_kv_heads,
			err);
	return st ? st : arrivals_open(&l->arrivals, cfg->trace, &cfg->arrival, err);
}

/* The ways between engines of prefill and engines of decodes. */
static enum ar_status open_links(struct fleet *f, struct ar_err *err)
{
	const size_t n_link = f->in.n * f->decode.n, n = f->all.cfg->trace->n;

	if (!f->decode.n)
		return AR_OK;
	f->place = malloc(f->decode.n * sizeof *f->place);
	f->link = malloc(n_link * sizeof *f->link);
	f->link_ns = calloc(n_link, sizeof *f->link_ns);
	f->all.travel = malloc((n + 1) * sizeof *f->all.travel);
	if (!f->place || !f->link || !f->link_ns || !f->all.travel)
		return ar_nomem(err);
	for (size_t i = 0; i < f->decode.n; i++)
		f->place[i].first = SCHED_NONE;
	for (size_t i = 0; i < n_link; i++)
		f->link[i].first = SCHED_NONE;
	for (size_t i = 0; i < n; i++)
		f->all.travel[i] = (struct travel){ -1, -1 };
	return AR_OK;
}

/* Open the engines of a pool.  They share the sequences of their schedulers. */
static enum ar_status open_pool(struct fleet *f, struct pool *p, enum loop_role role,
				struct ar_err *err)
{
	struct router_rule rule = f->all.cfg->route;
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < p->n && !st; i++) {
		struct loop *l = &f->loop[p->first + i];

		*l = f->all;
		l->replica = f->n > 1 ? (int64_t)(p->first + i) : -1;
		l->role = role;
		st = loop_open(l, i ? f->loop[p->first].s->seq : NULL, err);
		f->next[p->first + i] = INT64_MAX;
	}
	rule.replicas = (int64_t)p->n;
	if (!st && p->n > 1)
		st = routing_open(&p->routing, &rule, f->all.cfg->trace, err);
	return st;
}

static enum ar_status fleet_open(struct fleet *f, struct ar_err *err)
{
	enum ar_status st = open_shared(f, err);

	f->kv_ns = INT64_MAX;
	if (!st)
		st = open_links(f, err);
	if (!st)
		st = open_pool(f, &f->in, f->decode.n ? LOOP_PREFILL : LOOP_WHOLE, err);
	if (!st)
		st = open_pool(f, &f->decode, LOOP_DECODE, err);
	return st ? st : loop_open_hot(f->loop, err);
}

static void fleet_release(struct fleet *f)
{
	for (size_t i = 0; f->loop && i < f->n; i++)
		loop_close(&f->loop[i]);
	routing_release(&f->in.routing);
	routing_release(&f->decode.routing);
	free(f->place);
	free(f->link);
	free(f->link_ns);
	free(f->all.travel);
	arrivals_close(f->all.arrivals);
	free(f->all.t);
	free(f->all.done);
	free(f->all.in_after);
	free(f->all.in_ns);
	free(f->all.acc);
	free(f->all.count);
	heads_release(&f->heads);
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
	enum ar_status st2;

	for (size_t i = 0; i < cfg->trace->n; i++) {
		const struct sched_seq *q = &loop_of(f, i)->s->seq[i];

		if (cfg->trace->req[i].warmup)
			continue;
		res->recomputed_tok += (int64_t)q->recomputed;
		res->cached_tok += (int64_t)q->cached;
		if (f->all.done[i])
			continue;
		res->unfinished++;
		st2 = tell_request(f, i, "unfinished", NULL, st ? NULL : err);
		if (!st)
			st = st2;
	}
	sum_replicas(f);
	for (size_t r = f->n; r-- > 0;)
		loop_close(&f->loop[r]);
	st2 = take_latencies(&f->all, st ? NULL : err);
	if (!st)
		st = st2;
	st2 = o && o->end ? o->end(o->self, res, st ? NULL : err) : AR_OK;
	return st ? st : st2;
}

enum ar_status replay_run(const struct replay *cfg, struct replay_result *res, struct ar_err *err)
{
	const struct replay_apart *a = &cfg->apart;
	const int64_t n = a->prefill ? a->prefill : cfg->route.replicas;
	struct fleet f = { .all = { .cfg = cfg, .res = res },
			   .in = { .n = n > 1 ? (size_t)n : 1 },
			   .decode = { .n = a->prefill ? (size_t)a->decode : 0 } };
	enum ar_status st;

	f.decode.first = f.in.n;
	f.all.n_number = &f.n_number;
	f.n = f.in.n + f.decode.n;
	f.common = cfg->share_experts;

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
