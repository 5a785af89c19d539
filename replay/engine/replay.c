/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/loop.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "base/rng.h"
#include "replay/ranks/tell.h"

/* A replica reserves so many iteration numbers at once.  Its iterations are then numbered side by
 * side, and entries of a request can be stored together. */
enum { NUMBERS = 256 };

static int64_t next_number(struct loop *l)
{
	if (l->no == l->no_end) {
		l->no = *l->n_number;
		*l->n_number += NUMBERS;
		l->no_end = *l->n_number;
	}
	return l->no++;
}

/* ---- calls of the observer ---- */

static enum ar_status notify_iteration(const struct loop *l, const struct step *x,
				       struct ar_err *err)
{
	const struct observer *o = l->cfg->observer;
	const bool ranks = l->cfg->world && l->s->batch.n;

	if (!o || !o->iteration)
		return AR_OK;
	return o->iteration(o->self,
			    &(struct observed_iteration){
				    .no = x->no,
				    .replica = l->replica,
				    .start_ns = x->start_ns,
				    .end_ns = l->clock.gpu_end,
				    .host_ns = x->wait_ns,
				    .host = &x->host,
				    .sched = l->s,
				    .cost = &x->cost,
				    .rank = ranks ? l->tells.of : NULL,
				    .n_rank = ranks ? world_size(l->cfg->world) : 0 },
			    err);
}

enum ar_status loop_tell_request(const struct loop *l, uint32_t id, const char *outcome,
				 const char *reason, struct ar_err *err)
{
	const struct observer *o = l->cfg->observer;
	const struct sched_seq *q = &l->s->seq[id];
	const struct times *t = &l->t[id];

	if (!o || !o->request)
		return AR_OK;
	return o->request(o->self,
			  &(struct observed_request){
				  .id = id,
				  .replica = l->replica,
				  .prefill_replica = l->travel ? l->travel[id].from : -1,
				  .kv_end_ns = l->travel ? l->travel[id].end_ns : -1,
				  .prompt_tok = l->cfg->trace->req[id].prompt_tok,
				  .arrival_ns = arrivals_at(l->arrivals, id),
				  .first_sched_ns = t->first_sched,
				  .first_token_ns = t->first_token,
				  .finish_ns = q->known == q->goal ? t->last_token : -1,
				  .seq = q,
				  .outcome = outcome,
				  .reason = reason },
			  err);
}

static enum ar_status notify_sample(const struct loop *l, const struct batch_entry *e, int layer,
				    const struct kept_share *kept, struct ar_err *err)
{
	const struct replay *cfg = l->cfg;

	if (!cfg->observer || !cfg->observer->sample)
		return AR_OK;
	return cfg->observer->sample(cfg->observer->self,
				     &(struct observed_sample){ .iter_no = l->no - 1,
								.entry = e,
								.layer = layer,
								.q_heads = l->heads->q,
								.kv_heads = l->heads->kv,
								.acc = l->heads->acc,
								.count = l->heads->count,
								.kept = kept->n_tok ? kept : NULL },
				     err);
}

/* ---- the loop ---- */

static int64_t later_time(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

bool loop_has_work(const struct loop *l)
{
	return l->s->n_waiting || l->s->n_running || l->n_queue;
}

/* Request id arrives, which is taken.  False: it is over the queue limits, and rejected. */
static bool is_admitted(struct loop *l, uint32_t id, int64_t at, enum ar_status *st,
			struct ar_err *err)
{
	char why[160];

	if (l->role == LOOP_DECODE)
		return true;
	if (front_admits(l->front, at, l->cfg->trace->req[id].prompt_tok, why, sizeof why))
		return true;
	l->done[id] = true;
	l->n_unfinished--;
	l->res->rejected++;
	arrivals_done(l->arrivals, id, at);
	*st = loop_tell_request(l, id, "rejected", why, err);
	return false;
}

/* When the engine can add request id, which arrives at at.  The front end keeps the order. */
static int64_t ready_time(const struct loop *l, uint32_t id, int64_t at)
{
	int64_t takes = host_receive(&l->cfg->host, l->cfg->trace->req[id].prompt_tok);

	if (l->role == LOOP_DECODE)
		return at;
	return takes ? later_time(num_add(at, takes), l->received) : at;
}

/* The inbox is in the order of arrivals, those at one time by number, as sessions may add one. */
static bool arrives_before(const struct loop *l, uint32_t a, uint32_t b)
{
	const int64_t x = l->in_ns[a], y = l->in_ns[b];

	return x != y ? x < y : a < b;
}

void loop_take(struct loop *l, uint32_t id, int64_t at_ns)
{
	uint32_t *at = &l->in_first;

	l->in_ns[id] = at_ns;
	if (l->in_first != SCHED_NONE && !arrives_before(l, id, l->in_last))
		at = &l->in_after[l->in_last];
	while (*at != SCHED_NONE && !arrives_before(l, id, *at))
		at = &l->in_after[*at];
	l->in_after[id] = *at;
	*at = id;
	if (l->in_after[id] == SCHED_NONE)
		l->in_last = id;
}

/* With nothing to run, or after two empty plans, the clock jumps to the next request. */
static bool is_idle(const struct loop *l)
{
	return l->n_empty > 1 || !loop_has_work(l);
}

/* When the first request of the inbox can be added; INT64_MAX: the inbox is empty. */
static int64_t inbox_time(const struct loop *l)
{
	const uint32_t id = l->in_first;

	return id == SCHED_NONE ? INT64_MAX : ready_time(l, id, l->in_ns[id]);
}

int64_t loop_next(const struct loop *l)
{
	if (l->runs || !is_idle(l))
		return l->clock.now;
	return later_time(l->clock.now, inbox_time(l));
}

/* Take the first request of the inbox, and queue it. */
static enum ar_status admit(struct loop *l, struct ar_err *err)
{
	const uint32_t id = l->in_first;
	const int64_t at = l->in_ns[id], ready = ready_time(l, id, at);
	enum ar_status st = AR_OK;

	l->in_first = l->in_after[id];
	if (!is_admitted(l, id, at, &st, err))
		return st;
	if (ready > l->clock.now) {
		l->clock.now = ready;
		l->s->idled = !l->s->n_waiting && !l->s->n_running;
	}
	l->received = ready;
	l->n_empty = 0;
	sched_arrive(l->s, id, arrivals_at(l->arrivals, id));
	l->clock.now = num_add(l->clock.now,
			       host_admit(&l->cfg->host, l->cfg->trace->req[id].prompt_tok));
	return AR_OK;
}

/* Queue the iteration of the plan, which was launched. */
static void push_iteration(struct loop *l, int64_t start)
{
	const struct batch_entry *e = l->s->batch.entry, *end = e + l->s->batch.n;
	struct launched *q = &l->queue[l->n_queue++];
	uint32_t *emit = q->emit;

	for (; e < end; e++) {
		if (!e->chunk_no)
			l->t[e->req].first_sched = start;
		if (e->n_emit)
			*emit++ = e->req;
	}
	q->n_emit = (size_t)(emit - q->emit);
	q->counted = false;
	if (!l->stage_end)
		return;
	memcpy(q->batch.entry, l->s->batch.entry, l->s->batch.n * sizeof *q->batch.entry);
	q->batch.n = l->s->batch.n;
	q->end_ns = l->clock.gpu_end;
	q->update_ns = l->step.host.update;
}

/* Take the oldest iteration off the queue. */
static void pop_iteration(struct loop *l)
{
	struct launched oldest = l->queue[0];

	memmove(l->queue, l->queue + 1, ((size_t)l->depth - 1) * sizeof *l->queue);
	l->queue[l->depth - 1] = oldest;
	l->n_queue--;
}

/* Forget the tokens in flight of the requests that the plan preempts. */
static void drop_in_flight(const struct loop *l, struct launched *q)
{
	size_t n = 0;

	for (size_t i = 0; i < q->n_emit; i++) {
		bool kept = true;

		for (size_t k = 0; k < l->s->n_preempted; k++)
			kept = kept && l->s->preempted[k] != q->emit[i];
		if (kept)
			q->emit[n++] = q->emit[i];
	}
	q->n_emit = n;
}

/* The host has recorded the tokens of the oldest iteration, and they reach the clients. */
static enum ar_status record_oldest(struct loop *l, struct ar_err *err)
{
	struct series *itl = &l->res->latency[LATENCY_ITL];
	const struct launched *q = &l->queue[0];
	const uint32_t *id = q->emit, *end = id + q->n_emit;
	struct times *all = l->t;
	bool eager = l->s->batch.n && l->step.kind == HOST_KIND_EAGER;
	int64_t now = host_deliver(&l->cfg->host, (int64_t)q->n_emit, eager, l->clock.now,
				   &l->delivered);

	l->res->output_tok += (int64_t)q->n_emit;
	for (; id < end; id++) {
		struct times *t = &all[*id];
		int64_t last = t->last_token;
		enum ar_status st = AR_OK;

		t->last_token = now;
		if (last < 0) {
			t->first_token = now;
			front_first(l->front, now, l->cfg->trace->req[*id].prompt_tok);
		} else {
			st = series_add(itl, (double)(now - last), err);
		}
		if (st)
			return st;
	}
	return AR_OK;
}

static void sum_sample(struct loop *l, enum row_kind kind)
{
	struct sample_sums *r = &l->res->sample[kind];

	for (int h = 0; h < l->heads->kv; h++) {
		r->exec_sel += l->heads->count[h].exec_sel;
		r->exec_total += l->heads->count[h].exec_total;
	}
	for (int h = 0; h < l->heads->q; h++) {
		const struct accuracy *a = &l->heads->acc[h];

		r->rel_l2_sum += a->rel_l2;
		r->recall_sum += a->mass_recall;
		if (a->rel_l2 > r->rel_l2_max)
			r->rel_l2_max = a->rel_l2;
		if (!r->n_heads || a->cosine < r->cosine_min)
			r->cosine_min = a->cosine;
		r->n_heads++;
	}
	r->n++;
}

/* The keys that e saw are there, or can be made again.  Chunks behind which tokens leave, or that
 * a preempted request computes again after that, have no samples: all of their keys are not
 * there.  What warms up is counted in nothing. */
static bool is_comparable(const struct replay *cfg, const struct batch_entry *e)
{
	if (cfg->trace->req[e->req].warmup)
		return false;
	if (e->kind == ROW_DECODE && e->evict && !cfg->limits.evict->evictor->decodes)
		return false; /* an event of a prompt, which waited, and takes place at once */
	if (e->kind == ROW_DECODE)
		return !e->gone || !cfg->weights;
	return backend_compares_kind(e->kind) && !e->evict && !e->gone;
}

/* Is layer of entry e a sample?  The draw depends on (seed, request, chunk, layer) only: methods
 * are compared at the same places of a trace if their chunks are the same.  That of a decode
 * depends on (seed, request, token of its output), so it holds for any schedule. */
static bool drawn(const struct replay *cfg, const struct batch_entry *e, int layer)
{
	const bool decode = e->kind == ROW_DECODE;
	const uint32_t no = decode ? e->start - cfg->trace->req[e->req].prompt_tok : e->chunk_no;
	const double share = decode ? cfg->accuracy_decode : cfg->accuracy;
	struct rng r = { rng_mix(cfg->seed ^ rng_mix((uint64_t)e->req << 32 | no)) +
			 (decode ? UINT64_MAX : (uint64_t)layer) };

	return is_comparable(cfg, e) && rng_unit(&r) < share;
}

/* Dense attention is over the keys that an evictor took, too. */
static void count_gone(struct loop *l, const struct batch_entry *e)
{
	const int64_t rows = e->n_tok * (l->cfg->q_heads / l->cfg->kv_heads);

	for (int h = 0; h < l->cfg->kv_heads; h++)
		l->count[h].exec_total += rows * e->gone;
}

/* Compare entry e in executed layer k. */
static enum ar_status sample_layer(struct loop *l, const struct batch_entry *e, int k,
				   struct ar_err *err)
{
	const struct replay *cfg = l->cfg;
	struct kept_share kept = { 0 };
	enum ar_status st = backend_compare(cfg->backend, cfg->self, e, k, l->acc, l->count, NULL,
					    err);

	if (!st && e->kind == ROW_PREFILL)
		st = backend_kept(cfg->backend, cfg->self, e, k, &kept, err);
	if (!st) {
		count_gone(l, e);
		st = heads_gather(l->heads, l->acc, l->count, err);
	}
	if (st)
		return st;
	sum_sample(l, e->kind);
	return notify_sample(l, e, cfg->run_layer[k], &kept, err);
}

/* ---- hot buffers ---- */

/* Choose layers of full attention, evenly spaced. */
enum ar_status loop_open_hot(struct loop *l, struct ar_err *err)
{
	const struct replay *cfg = l->cfg;
	struct replay_result *r = l->res;
	int n = 0, used = 0;

	if (!backend_compares(cfg->backend) || cfg->accuracy_decode <= 0 || !cfg->n_hot_size)
		return AR_OK;
	for (int k = 0; k < cfg->n_run_layers; k++)
		n += cfg->model->layer[cfg->run_layer[k]].mixer == MIX_FULL;
	for (int k = 0, i = 0; k < cfg->n_run_layers; k++)
		if (cfg->model->layer[cfg->run_layer[k]].mixer == MIX_FULL &&
		    i++ * HOT_LAYERS / n >= used && used < HOT_LAYERS)
			r->hot_layer[used++] = k;
	return hot_rows_init(&r->hot, cfg->hot_size, cfg->n_hot_size, used, cfg->trace->n, err);
}

/* The draw depends on (seed, request) only. */
static bool counts_hot(const struct replay *cfg, const struct batch_entry *e)
{
	struct rng r = { rng_mix(~cfg->seed) ^ rng_mix(e->req) };

	return e->kind == ROW_DECODE && is_comparable(cfg, e) &&
	       rng_unit(&r) < cfg->accuracy_decode;
}

/* Read the lists of entry e in the i-th of these layers. */
static enum ar_status read_lists(struct loop *l, const struct batch_entry *e, int i,
				 struct ar_err *err)
{
	const struct replay *cfg = l->cfg;
	struct method_selection sel = { 0 };
	const struct piece_lists *p = &sel.chosen.pieces;
	enum ar_status st = backend_compare(cfg->backend, cfg->self, e, l->res->hot_layer[i],
					    l->acc, l->count, &sel, err);

	if (!st && p->n)
		st = hot_rows_read(&l->res->hot, e->req, i, p, cfg->q_heads / p->heads,
				   (int)e->start, err);
	method_selection_release(&sel);
	return st;
}

static enum ar_status count_hot(struct loop *l, struct ar_err *err)
{
	const struct batch *b = &l->s->batch;
	enum ar_status st = AR_OK;

	for (size_t k = 0; k < b->n && l->res->hot.n_layer && !st; k++)
		for (int i = 0; i < l->res->hot.n_layer && !st && counts_hot(l->cfg, &b->entry[k]);
		     i++)
			st = read_lists(l, &b->entry[k], i, err);
	return st;
}

/* The request ends or is preempted. */
static void forget(struct loop *l, uint32_t req)
{
	backend_drop(l->cfg->backend, l->cfg->self, req);
	if (l->res->hot.n_layer)
		hot_rows_forget(&l->res->hot, req);
}

/* ---- samples ---- */

static enum ar_status sample_accuracy(struct loop *l, struct ar_err *err)
{
	const struct replay *cfg = l->cfg;
	enum ar_status st = AR_OK;

	if (!backend_compares(cfg->backend) || (cfg->accuracy <= 0 && cfg->accuracy_decode <= 0))
		return AR_OK;
	for (size_t i = 0; i < l->s->batch.n && !st; i++) {
		const struct batch_entry *e = &l->s->batch.entry[i];

		for (int k = 0; k < cfg->n_run_layers && !st; k++) {
			const int layer = cfg->run_layer[k];

			if (cfg->model->layer[layer].mixer == MIX_FULL && /* others run no method */
			    drawn(cfg, e, layer))
				st = sample_layer(l, e, k, err);
		}
	}
	return st;
}

/* The latencies of a finished request in ns, -1: it has none. */
void loop_latencies(const struct loop *l, uint32_t id, double ns[LATENCY_COUNT])
{
	const struct request *r = &l->cfg->trace->req[id];
	const uint32_t n_out = sched_goal(&l->cfg->limits, r) - r->prompt_tok;
	const int64_t arrival = arrivals_at(l->arrivals, id);
	const struct times *t = &l->t[id];

	ns[LATENCY_TTFT] = (double)(t->first_token - arrival);
	ns[LATENCY_TPOT] = n_out > 1 ? (double)(t->last_token - t->first_token) / (n_out - 1) : -1;
	ns[LATENCY_ITL] = -1; /* added token by token, as they come */
	ns[LATENCY_E2E] = (double)(t->last_token - arrival);
	ns[LATENCY_QUEUE] = (double)(t->first_sched - arrival);
}

/* Count a finished request. */
static enum ar_status count_request(struct loop *l, uint32_t id, struct ar_err *err)
{
	double ns[LATENCY_COUNT];
	bool good = true;

	loop_latencies(l, id, ns);
	for (int m = 0; m < LATENCY_COUNT; m++) {
		const int64_t limit = l->cfg->limit_ns[m];

		good = good && (!limit || ns[m] <= (double)limit);
	}
	l->res->good += good;
	l->res->ok++;
	return loop_tell_request(l, id, "ok", NULL, err);
}

/* Request id has its first output, and goes on elsewhere. */
static void send_away(struct loop *l, uint32_t id)
{
	front_last(l->front, l->t[id].last_token);
	l->n_unfinished--;
	l->left[l->n_left++] = id;
}

void loop_leave(struct loop *l, uint32_t id, int64_t at_ns)
{
	sched_leave(l->s, id);
	l->n_empty = 0;
	if (!l->runs)
		l->clock.now = later_time(l->clock.now, at_ns);
}

/* Count the finished requests, and drop their KV. */
static enum ar_status finish_requests(struct loop *l, struct ar_err *err)
{
	for (size_t i = 0; i < l->s->n_finished; i++) {
		const uint32_t id = l->s->finished[i];
		const int64_t end_ns = l->t[id].last_token;
		enum ar_status st = AR_OK;

		if (sched_goes_on(l->s, id)) {
			send_away(l, id);
			continue;
		}
		if (!l->cfg->trace->req[id].warmup)
			st = count_request(l, id, err);
		if (st)
			return st;
		forget(l, id);
		l->done[id] = true;
		l->n_unfinished--;
		arrivals_done(l->arrivals, id, end_ns);
		front_last(l->front, end_ns);
	}
	return AR_OK;
}

static enum ar_status check_clock(const struct loop *l, struct ar_err *err)
{
	return l->clock.now == INT64_MAX || l->clock.gpu_end == INT64_MAX ?
		       ar_fail(err, AR_DATA, "the clock passed 292 years") :
		       AR_OK;
}

/* Kernels of a selection in all layers of the model, n in the executed ones. */
static int64_t select_kernels(const struct replay *cfg, int64_t n)
{
	return cfg->n_run_layers ? n * cfg->host.n_layers / cfg->n_run_layers : n;
}

/* Take the times of the slowest rank, and the kernels of its selection, if there are ranks. */
static enum ar_status agree(struct loop *l, const struct batch *b, struct iter_cost *c,
			    int64_t *kernels, struct ar_err *err)
{
	struct world *w = l->cfg->world;
	struct rank_tells *all = &l->tells;
	enum ar_status st;

	*kernels = iter_cost_select_kernels(c);
	if (!w)
		return AR_OK;
	st = tell_iteration(w, l->res->iterations, b, c, all, err);
	if (st)
		return st;
	tell_take_slowest(all, c);
	*kernels = all->of[all->slowest].select_kernels;
	return AR_OK;
}

enum ar_status loop_price(struct loop *l, const struct batch_step *step, struct ar_err *err)
{
	const struct replay *cfg = l->cfg;
	struct batch *b = &l->s->batch;
	struct host_load load = host_load(&cfg->host, b);
	struct step *x = &l->step;
	struct iter_cost *c = &x->cost;
	int64_t kernels;
	enum ar_status st;

	*c = (struct iter_cost){ .event_ns = -1, .span_ns = -1, .busy_ns = -1 };
	for (size_t i = 0; i < l->s->n_preempted; i++)
		forget(l, l->s->preempted[i]);
	if (!b->n)
		return AR_OK;
	b->step = step ? *step : (struct batch_step){ .no = l->res->iterations };
	st = backend_run(cfg->backend, cfg->self, b, c, err);
	if (st)
		return st;
	if (cfg->cost.set)
		cfg->cost.set(cfg->cost.self, b, c);
	if (cfg->comm)
		comm_add(cfg->comm, b, c, l->res->comm_sent);
	st = agree(l, b, c, &kernels, err);
	if (st)
		return st;
	load.kernel_extra = select_kernels(cfg, kernels);
	load.idle = l->s->idled;
	load.draw = host_draw(cfg->host_seed, cfg->host.ranks, l->clock.now);
	x->kind = load.kind;
	x->host = host_parts(&cfg->host, &load);
	return AR_OK;
}

int64_t loop_end(const struct loop *l)
{
	struct host_clock c = l->clock;

	host_run(&c, &l->step.host, l->step.kind, l->step.cost.cost_ns, l->depth > 1);
	return c.gpu_end;
}

/* Send the batch through the stages.  The host goes on when it is launched. */
static void run_stages(struct loop *l)
{
	struct step *x = &l->step;
	const struct host_parts *h = &x->host;
	const int64_t before = l->stage_end[0], from = later_time(l->clock.now, before);
	int64_t at = num_add(l->clock.now, num_add(h->schedule, num_add(h->prepare, h->launch)));

	l->clock.now = l->clock.launched = at;
	at = num_add(later_time(at, before), h->gap);
	x->start_ns = stages_run(&l->cfg->stages, &l->s->batch, at, x->cost.cost_ns,
				 x->cost.phase_ns[PHASE_HEAD], l->stage_end);
	x->wait_ns = x->start_ns - from;
	l->clock.gpu_end = l->stage_end[l->cfg->stages.n - 1];
}

/* Run the plan, and queue its iteration.  If nothing can run, the host waits for the iteration in
 * the queue: the next plan can differ. */
static enum ar_status execute(struct loop *l, struct ar_err *err)
{
	const struct replay *cfg = l->cfg;
	struct step *x = &l->step;
	struct iter_cost *c = &x->cost;
	enum ar_status st;

	if (!l->s->batch.n && l->stage_end && l->n_queue)
		return AR_OK; /* see wait_oldest() */
	if (!l->s->batch.n) {
		if (l->n_queue)
			host_wait(&l->clock, cfg->host.ns[HOST_SCHEDULE]);
		l->clock.now = l->clock.gpu_end = later_time(l->clock.now, l->clock.gpu_end);
		return check_clock(l, err);
	}
	if (l->stage_end)
		run_stages(l);
	else
		x->wait_ns = host_run(&l->clock, &x->host, x->kind, c->cost_ns, l->depth > 1);
	st = check_clock(l, err);
	if (st)
		return st;
	l->res->cost_sources[c->source]++;
	l->res->beyond += fmin(c->beyond, 1);
	push_iteration(l, x->start_ns);
	return AR_OK;
}

/* Count the tokens of the oldest iteration, with which the next plan is made. */
static void count_oldest(struct loop *l)
{
	struct launched *q = &l->queue[0];

	if (!l->n_queue || q->counted || l->stage_end)
		return;
	sched_emit(l->s);
	q->counted = true;
}

/* The same with stages: it has ended, and others were planned since it was. */
static void emit_oldest(struct loop *l)
{
	const struct batch now = l->s->batch;

	l->s->batch.entry = l->queue[0].batch.entry;
	l->s->batch.n = l->queue[0].batch.n;
	sched_emit(l->s);
	l->s->batch = now;
}

/* Retire the requests that the oldest iteration finished. */
static enum ar_status retire_oldest(struct loop *l, struct ar_err *err)
{
	enum ar_status st;

	sched_retire(l->s);
	st = finish_requests(l, err);
	pop_iteration(l);
	count_oldest(l);
	return st;
}

/* Add the iteration to the results. */
static void sum_iteration(struct loop *l, const struct iter_cost *cost)
{
	const struct sched *s = l->s;
	struct replay_result *r = l->res;

	r->iterations++;
	r->entries += (int64_t)s->batch.n;
	r->prefill_tok += s->batch.prefill_tok;
	r->decode_tok += s->batch.decode_tok;
	r->preemptions += (int64_t)s->n_preempted;
	r->span_ns += cost->span_ns > 0 ? cost->span_ns : cost->event_ns > 0 ? cost->event_ns : 0;
	if (cost->n_drop) {
		r->drop_rows += cost->drop->n_row;
		r->drop_kept += cost->drop[cost->n_drop - 1].n_kept;
	}
}

/* Tell the observer of the iteration, compare its samples, and add it to the results. */
static enum ar_status report(struct loop *l, const struct step *x, struct ar_err *err)
{
	const struct sched *s = l->s;
	enum ar_status st = notify_iteration(l, x, err);

	if (!st)
		st = sample_accuracy(l, err);
	if (!st)
		st = count_hot(l, err);
	if (st)
		return st;
	l->n_empty = s->batch.n || s->n_preempted ? 0 : l->n_empty + 1;
	sum_iteration(l, &x->cost);
	return AR_OK;
}

/* The engine fails here.  A run that survives it only counts it. */
static enum ar_status fail_as_engine(struct loop *l, struct ar_err *err)
{
	if (!l->cfg->limits.survives)
		return ar_fail(err, AR_ENGINE,
			       "policy %s: here the engine fails, %s; give it more KV blocks, or "
			       "go on with --survive-out-of-memory",
			       l->cfg->limits.policy->name, l->s->fails);
	l->res->failures++;
	return AR_OK;
}

enum ar_status loop_plan(struct loop *l, struct ar_err *err)
{
	const struct policy *p = l->cfg->limits.policy;
	struct sched *s = l->s;
	enum ar_status st;

	if (l->n_empty > 1)
		return ar_fail(err, AR_ENGINE,
			       "policy %s cannot schedule any of %zu requests; give it "
			       "more KV blocks",
			       p->name, s->n_waiting + s->n_running);
	l->step = (struct step){ .start_ns = later_time(l->clock.now, l->clock.gpu_end) };
	sched_begin(s);
	p->compose(s);
	sched_evict(s);
	st = s->fails ? fail_as_engine(l, err) : AR_OK;
	for (int i = 0; p->drops_in_flight && i < l->n_queue; i++)
		drop_in_flight(l, &l->queue[i]);
	return st;
}

/* The oldest iteration is recorded and retired when the queue is full, or when nothing can run. */
static bool is_due(const struct loop *l)
{
	return l->n_queue == l->depth || (l->n_queue && !l->s->batch.n);
}

/* With stages the host waits for the oldest one when the queue is full, or nothing can run. */
static void wait_oldest(struct loop *l)
{
	const struct launched *q = &l->queue[0];

	l->clock.now = num_add(later_time(l->clock.now, q->end_ns), q->update_ns);
}

/* A plan that only waits for the oldest iteration is none. */
enum ar_status loop_go(struct loop *l, struct ar_err *err)
{
	const struct sched *s = l->s;
	enum ar_status st = execute(l, err);

	if (!st && (s->batch.n || s->n_preempted || !is_due(l))) {
		l->step.no = next_number(l);
		st = report(l, &l->step, err);
	}
	if (l->stage_end && is_due(l))
		wait_oldest(l);
	l->s->idled = false;
	l->runs = true;
	return st;
}

static enum ar_status launch(struct loop *l, struct ar_err *err)
{
	enum ar_status st = loop_plan(l, err);

	if (!st)
		st = loop_price(l, NULL, err);
	return st ? st : loop_go(l, err);
}

/* The iteration has ended. */
static enum ar_status land(struct loop *l, struct ar_err *err)
{
	const bool due = is_due(l);
	enum ar_status st = due ? record_oldest(l, err) : AR_OK;

	l->runs = false;
	if (st)
		return st;
	l->res->end_ns = later_time(l->res->end_ns, later_time(l->clock.now, l->clock.gpu_end));
	count_oldest(l);
	if (due && l->stage_end)
		emit_oldest(l);
	return due ? retire_oldest(l, err) : AR_OK;
}

bool loop_launches(const struct loop *l)
{
	return !l->runs &&
	       (l->in_first == SCHED_NONE || (!is_idle(l) && inbox_time(l) > l->clock.now));
}

enum ar_status loop_wait(struct loop *l, int64_t until_ns, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	l->clock.now = later_time(l->clock.now, until_ns);
	while (!st && inbox_time(l) <= l->clock.now)
		st = admit(l, err);
	return st;
}

enum ar_status loop_step(struct loop *l, struct ar_err *err)
{
	if (l->runs)
		return land(l, err);
	return loop_launches(l) ? launch(l, err) : admit(l, err);
}

/* Of iterations with at most n requests. */
static enum ar_status open_queue(struct loop *l, size_t n, struct ar_err *err)
{
	const int stages = l->cfg->stages.n;

	l->depth = stages > 1 ? stages : l->cfg->limits.async ? 2 : 1;
	l->queue = calloc((size_t)l->depth, sizeof *l->queue);
	if (stages > 1)
		l->stage_end = calloc((size_t)stages, sizeof *l->stage_end);
	if (!l->queue || (stages > 1 && !l->stage_end))
		return ar_nomem(err);
	for (int i = 0; i < l->depth; i++) {
		struct launched *q = &l->queue[i];

		q->emit = malloc(n * sizeof *q->emit + 1);
		if (stages > 1)
			q->batch.entry = malloc(n * sizeof *q->batch.entry + 1);
		if (!q->emit || (stages > 1 && !q->batch.entry))
			return ar_nomem(err);
	}
	return AR_OK;
}

enum ar_status loop_open(struct loop *l, struct sched_seq *seq, struct ar_err *err)
{
	const struct replay *cfg = l->cfg;
	const size_t n = cfg->trace->n, seqs = (size_t)cfg->limits.max_seqs;
	struct sched_limits limits = cfg->limits;
	enum ar_status st;

	limits.seq = seq;
	limits.first_only = l->role == LOOP_PREFILL;
	st = sched_open(&l->s, cfg->trace, &limits, err);
	if (!st)
		st = front_open(&l->front, &cfg->front, n, err);
	if (st)
		return st;
	l->in_first = l->in_last = SCHED_NONE;
	l->left = malloc((n < seqs ? n : seqs) * sizeof *l->left + 1);
	return l->left ? open_queue(l, n < seqs ? n : seqs, err) : ar_nomem(err);
}

void loop_close(struct loop *l)
{
	sched_close(l->s);
	front_close(l->front);
	free(l->left);
	for (int i = 0; i < l->depth && l->queue; i++) {
		free(l->queue[i].emit);
		free(l->queue[i].batch.entry);
	}
	free(l->queue);
	free(l->stage_end);
	l->queue = NULL;
	l->stage_end = NULL;
	l->left = NULL;
	l->s = NULL;
	l->front = NULL;
}
