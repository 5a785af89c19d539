/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/replicates.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "base/rng.h"
#include "base/stats.h"
#include "replay/cost/backend_cost.h"
#include "src/run/workers.h"

enum {
	FIRST = 40, /* replicates: fewer give no interval */
	MOST = 200,
	STEADY = 40, /* replays of four times as many requests; v_steady wants half of them */
	MOST_STEADY = 2 * STEADY / 3, /* v_steady: the most that wait longer in a steady load */
	LEAST_BACKLOGGED = (95 * STEADY + 99) / 100, /* ... and the least in a backlog */
	TASKS = 1 + MOST + STEADY,
	LEAST_UNITS = 10,
	LEAST_USERS = 12, /* units of a closed loop */
	PERCENTILES = 3
};

/* There is no interval where a larger share of iterations is extrapolated, each counted by the
 * doublings that it lies beyond, or where the share of cached tokens is further from the run's. */
static const double MOST_EXTRAPOLATED = 0.05, MOST_CACHED = 0.1;

static const char *const metrics[LATENCY_COUNT] = { "ttft", "tpot", "itl", "e2e", "queue" };
static char own_costs[] = "the run";
static const double percentiles[PERCENTILES] = { 50, 90, 99 };

/* ---- costs ---- */

bool replicates_compute(const struct run *r)
{
	const struct backend *b = r->session.backend;

	return r->session.o.clock == RUN_CLOCK_FORMULA || b == &backend_cost ||
	       (b && b->modelled && !r->in.n_capture);
}

static enum ar_status collect(void *self, const struct observed_iteration *it, struct ar_err *err)
{
	struct collector *c = self;
	const struct batch *b = &it->sched->batch;
	enum ar_status st = AR_OK;

	if (b->n) {
		const struct batch_shape s = batch_shape(b);

		st = cost_table_add(c->table, &s, it->cost->cost_ns, err);
	}
	if (iter_cost_select_kernels(it->cost) > c->select_kernels)
		c->select_kernels = iter_cost_select_kernels(it->cost);
	return st ? st : c->to->iteration(c->to->self, it, err);
}

static enum ar_status pass_request(void *self, const struct observed_request *q, struct ar_err *err)
{
	const struct collector *c = self;

	return c->to->request(c->to->self, q, err);
}

static enum ar_status pass_sample(void *self, const struct observed_sample *x, struct ar_err *err)
{
	const struct collector *c = self;

	return c->to->sample(c->to->self, x, err);
}

static enum ar_status pass_end(void *self, const struct replay_result *res, struct ar_err *err)
{
	const struct collector *c = self;

	return c->to->end(c->to->self, res, err);
}

enum ar_status collector_open(struct collector *c, const struct run *r, const struct observer *to,
			      struct observer *out, struct ar_err *err)
{
	*c = (struct collector){ .to = to };
	*out = *to;
	if (!r->session.o.intervals || replicates_compute(r))
		return AR_OK;
	*out = (struct observer){ c, collect, pass_request, pass_sample, pass_end };
	return cost_table_create(&c->table, err);
}

void collector_release(struct collector *c)
{
	cost_table_destroy(c->table);
	c->table = NULL;
}

/* ---- what processes share ---- */

enum task_state { TASK_OPEN, TASK_DONE, TASK_FAILED };

/* A replay of a resample, or of the run's own requests. */
struct task {
	_Atomic int state;		       /* enum task_state, set last */
	double at[LATENCY_COUNT][PERCENTILES]; /* ns; NaN: none */
	int64_t ok, good, output_tok, duration_ns, iterations;
	double beyond; /* see struct replay_result */
	double cached; /* share of the prompts' tokens */
	bool slower;   /* the last quarter waited longer than the second */
	char why[512]; /* of TASK_FAILED */
};

/* Tasks in the order of their need: the run itself, the replicates that are the least, the replays
 * that are longer, all other replicates. */
static bool is_steady(int i)
{
	return i > FIRST && i <= FIRST + STEADY;
}

static int replicate_of(int i)
{
	return i <= FIRST ? i - 1 : i - 1 - STEADY;
}

struct maker {
	const struct run *r;
	const struct replay *cfg;
	struct costs own; /* of collected costs */
	struct resampler *resampler;
	struct task *board; /* [TASKS] shared by processes */
	int64_t give_up_ns; /* of the monotonic clock */
};

/* ---- one replay ---- */

/* self: [n] TTFT by request, NaN: it has none. */
static enum ar_status see_request(void *self, const struct observed_request *q, struct ar_err *err)
{
	double *ttft = self;

	(void)err;
	if (q->first_token_ns >= 0)
		ttft[q->id] = (double)(q->first_token_ns - q->arrival_ns);
	return AR_OK;
}

/* The median of the numbers among x[0..n), which are sorted. */
static double median_of(double *x, size_t n)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		if (!isnan(x[i]))
			x[k++] = x[i];
	stats_sort(x, k);
	return k ? stats_percentile(x, k, 50) : NAN;
}

static void take_figures(struct task *t, const struct trace *trace, const struct replay_result *res)
{
	double prompts = 0;

	for (int m = 0; m < LATENCY_COUNT; m++)
		for (int p = 0; p < PERCENTILES; p++)
			t->at[m][p] = res->latency[m].n ?
					      series_percentile(&res->latency[m], percentiles[p]) :
					      NAN;
	for (size_t i = 0; i < trace->n; i++)
		prompts += trace->req[i].prompt_tok;
	t->ok = res->ok;
	t->good = res->good;
	t->output_tok = res->output_tok;
	t->duration_ns = res->end_ns - trace->req[0].arrival_ns;
	t->iterations = res->iterations;
	t->beyond = res->beyond;
	t->cached = (double)res->cached_tok / prompts;
}

/* The backend of replicates, which is open; *mine: close it. */
static enum ar_status open_costs(const struct maker *m, struct replay *cfg, bool *mine,
				 struct ar_err *err)
{
	const struct run *r = m->r;
	const struct cost_options *cost = run_options_of(&r->session.o, &backend_cost);
	const struct cost_options opts = { .formula = cost->formula, .extrapolate = true };
	struct backend_env env = r->session.env;

	*mine = !replicates_compute(r) || r->session.backend == &backend_cost;
	if (!*mine)
		return AR_OK;
	env.costs = replicates_compute(r) ? r->in.costs : (struct costs *)&m->own;
	cfg->backend = &backend_cost;
	if (!replicates_compute(r)) {
		cfg->cost = (struct cost){ 0 }; /* they are in what was measured */
		cfg->comm = NULL;
		cfg->n_run_layers = 0;
	}
	return backend_open(&backend_cost, &cfg->self, &opts, &env, err);
}

/* Replay a trace into t. */
static enum ar_status replay_into(const struct maker *m, const struct trace *trace,
				  uint64_t host_seed, const struct observer *see, struct task *t,
				  struct ar_err *err)
{
	struct replay cfg = *m->cfg;
	struct replay_result res = { 0 };
	bool mine;
	enum ar_status st = open_costs(m, &cfg, &mine, err);

	cfg.title = NULL;
	cfg.trace = trace;
	cfg.host_seed = host_seed;
	cfg.observer = see;
	cfg.accuracy = cfg.accuracy_decode = 0;
	cfg.rejects_known = true;
	cfg.limits.blocks = NULL;
	if (!st) {
		st = replay_run(&cfg, &res, err);
		if (!st)
			take_figures(t, trace, &res);
		replay_result_release(&res);
	}
	if (mine)
		backend_close(&backend_cost, cfg.self);
	return st;
}

static enum ar_status replay_longer(const struct maker *m, const struct trace *trace,
				    uint64_t host_seed, struct task *t, struct ar_err *err)
{
	const size_t n = trace->n / 4;
	double *ttft = malloc((trace->n + 1) * sizeof *ttft);
	const struct observer see = { .self = ttft, .request = see_request };
	enum ar_status st;

	if (!ttft)
		return ar_nomem(err);
	for (size_t i = 0; i < trace->n; i++)
		ttft[i] = NAN;
	st = replay_into(m, trace, host_seed, &see, t, err);
	if (!st)
		t->slower = median_of(ttft + trace->n - n, n) > median_of(ttft + n, n);
	free(ttft);
	return st;
}

static enum ar_status do_task(const struct maker *m, int i, struct ar_err *err)
{
	struct task *t = &m->board[i];
	const uint64_t k = is_steady(i) ? (uint64_t)(MOST + i) : (uint64_t)replicate_of(i);
	const uint64_t seed = rng_mix((uint64_t)m->r->session.o.host_seed) + rng_mix(~k);
	struct trace trace;
	enum ar_status st;

	if (!i)
		return replay_into(m, m->cfg->trace, m->cfg->host_seed, NULL, t, err);
	st = resample_draw(m->resampler, k, is_steady(i) ? 4 : 1, &trace, err);
	if (st)
		return st;
	st = is_steady(i) ? replay_longer(m, &trace, seed, t, err) :
			    replay_into(m, &trace, seed, NULL, t, err);
	resample_release(&trace);
	return st;
}

/* ---- processes ---- */

bool replicates_steady_known(int64_t n, int64_t slower)
{
	const int64_t others = n - slower;

	return n >= STEADY / 2 && (others >= STEADY - MOST_STEADY || slower >= LEAST_BACKLOGGED ||
				   (others > STEADY - LEAST_BACKLOGGED && slower > MOST_STEADY));
}

struct steadiness {
	int64_t n, slower; /* the longer replays in their order, up to where they tell */
	bool known;
};

/* Tasks begin in their order.  So where those that are done tell, one that has not begun is not
 * among those that are counted, and what is counted does not depend on the processors. */
static struct steadiness count_steady(const struct task *board)
{
	struct steadiness x = { 0 };

	for (int i = FIRST + 1; i <= FIRST + STEADY && !x.known; i++) {
		if (board[i].state != TASK_DONE)
			continue;
		x.n++;
		x.slower += board[i].slower;
		x.known = replicates_steady_known(x.n, x.slower);
	}
	return x;
}

static void work(void *self, int i)
{
	const struct maker *m = self;
	struct task *t = &m->board[i];
	struct ar_err err = { 0 };

	if (is_steady(i) && (m->cfg->arrival.loop == LOOP_USERS || count_steady(m->board).known))
		return;
	if (!do_task(m, i, &err)) {
		t->state = TASK_DONE;
		return;
	}
	snprintf(t->why, sizeof t->why, "%s", err.msg);
	t->state = TASK_FAILED;
}

/* All but the first. */
static void work_on(void *self, int i)
{
	work(self, i + 1);
}

/* The replay of the run itself says how long the others take.  Where the least of them take too
 * long, *why says so, and they are left out. */
static enum ar_status run_tasks(struct maker *m, char *why, size_t n, struct ar_err *err)
{
	const int64_t began = workers_now_ns();
	enum ar_status st = workers_run(1, work, m, m->give_up_ns, "a replicate", err);
	const double took = (double)(workers_now_ns() - began) * FIRST / workers_count();

	if (st)
		return st;
	if (took > (double)m->r->session.o.intervals_ns) {
		snprintf(why, n, "%d replicates would take %.2g s, longer than --intervals-time",
			 FIRST, took / 1e9);
		return AR_OK;
	}
	return workers_run(TASKS - 1, work_on, m, m->give_up_ns, "replicates for intervals", err);
}

/* ---- what they say ---- */

/* The largest relative error of a percentile, where the run itself is replayed with its costs. */
static double cost_error(const struct task *own, const struct replay_result *res)
{
	double most = 0;

	for (int m = 0; m < LATENCY_COUNT; m++)
		for (int p = 0; p < PERCENTILES && res->latency[m].n; p++) {
			double is = series_percentile(&res->latency[m], percentiles[p]);

			most = is > 0 ? fmax(most, fabs(own->at[m][p] / is - 1)) : most;
		}
	return most;
}

static void sum_up(const struct maker *m, const struct replay_result *res,
		   struct row_resampling *row)
{
	const struct task *own = m->board, *t = own;
	const struct steadiness steady = count_steady(m->board);
	double cached = 0, iterations = 0, beyond = 0;

	row->cost_error = own->state == TASK_DONE ? cost_error(own, res) : NAN;
	row->run_cached = own->state == TASK_DONE ? own->cached : NAN;
	row->steady_replays = steady.n;
	row->unsteady = steady.slower;
	for (int i = 1; i < TASKS; i++) {
		if ((++t)->state != TASK_DONE || is_steady(i))
			continue;
		row->replicates++;
		cached += t->cached;
		iterations += (double)t->iterations;
		beyond += t->beyond;
	}
	row->cached = row->replicates ? cached / (double)row->replicates : NAN;
	row->extrapolated = iterations > 0 ? beyond / iterations : NAN;
}

static const char *failure(const struct task *t)
{
	for (int i = 0; i < TASKS; i++)
		if (t[i].state == TASK_FAILED)
			return t[i].why;
	return NULL;
}

static void judge(const struct maker *m, const struct row_resampling *row, char *why, size_t n)
{
	const struct replicates_made made = { .failed = failure(m->board),
					      .n = row->replicates,
					      .want = FIRST,
					      .extrapolated = row->extrapolated,
					      .cached = row->cached,
					      .run_cached = row->run_cached };

	replicates_why(&made, why, n);
}

void replicates_why(const struct replicates_made *x, char *why, size_t n)
{
	*why = 0;
	if (x->failed)
		snprintf(why, n, "a replicate failed: %s", x->failed);
	else if (x->n < x->want)
		snprintf(why, n,
			 "%" PRId64 " replicates were made within --intervals-time, want %" PRId64,
			 x->n, x->want);
	else if (x->extrapolated > MOST_EXTRAPOLATED)
		snprintf(why, n,
			 "%.0f %% of the iterations of its replicates lie far outside of what was "
			 "measured",
			 100 * x->extrapolated);
	else if (fabs(x->cached - x->run_cached) > MOST_CACHED)
		snprintf(why, n,
			 "the prefix cache had %.0f %% of the run's prompts, but %.0f %% of those "
			 "of its replicates",
			 100 * x->run_cached, 100 * x->cached);
}

void replicates_judge(const struct resample_plan *p, bool users, char *why, size_t n)
{
	const char *unit = resample_unit_names[p->unit];
	const size_t least = users ? LEAST_USERS : LEAST_UNITS;

	*why = 0;
	if (p->n_unit < least)
		snprintf(why, n, "the %s %zu %ss, want %zu", users ? "users have" : "trace has",
			 p->n_unit, unit, least);
	else if (p->drifts)
		snprintf(why, n,
			 "the trace is too short for its bursts: its rate or its lengths change "
			 "more in the course of it than in resamples");
}

static enum ar_status put_latencies(const struct maker *m, int i, struct ar_err *err)
{
	const struct resample_plan plan = resample_plan(m->resampler);
	const struct task *own = m->board, *t = &m->board[i];
	enum ar_status st = AR_OK;

	for (int k = 0; k < LATENCY_COUNT && !st; k++) {
		double at[PERCENTILES];

		if (isnan(t->at[k][0]))
			continue;
		for (int p = 0; p < PERCENTILES; p++)
			at[p] = resample_spread(&plan, own->at[k][p], t->at[k][p]);
		st = store_replicate_latency(m->r->session.store,
					     &(struct row_replicate_latency){
						     .replicate_no = replicate_of(i),
						     .metric = metrics[k],
						     .p50 = at[0],
						     .p90 = at[1],
						     .p99 = at[2] },
					     err);
	}
	return st;
}

static enum ar_status put_tasks(const struct maker *m, struct ar_err *err)
{
	struct store *s = m->r->session.store;
	const bool limits = m->r->session.o.objectives.n;
	enum ar_status st = AR_OK;

	for (int i = 1; i < TASKS && !st; i++) {
		const struct task *t = &m->board[i];

		if (is_steady(i) || t->state != TASK_DONE)
			continue;
		st = store_replicate(s,
				     &(struct row_replicate){ .replicate_no = replicate_of(i),
							      .ok = t->ok,
							      .good = limits ? t->good : -1,
							      .output_tokens = t->output_tok,
							      .duration_ns = t->duration_ns },
				     err);
		if (!st)
			st = put_latencies(m, i, err);
	}
	return st;
}

/* ---- the replicates of a run ---- */

static enum ar_status open_own(struct maker *m, struct collector *c, struct ar_err *err)
{
	const struct run_inputs *in = &m->r->in;

	if (!c->table)
		return AR_OK;
	m->own = (struct costs){ .name = own_costs,
				 .table = c->table,
				 .select_kernels = c->select_kernels };
	if (in->prep.n_run_layers > 0)
		m->own.select_kernels = num_mul(c->select_kernels, in->host.n_layers) /
					in->prep.n_run_layers;
	return cost_table_size(c->table) ?
		       cost_table_build(c->table, err) :
		       ar_fail(err, AR_DATA, "the run has no iteration with a batch");
}

/* Make the replicates that the plan allows, and say how. */
static enum ar_status make(struct maker *m, const struct replay_result *res, struct collector *c,
			   struct row_resampling *row, char *why, size_t n, struct ar_err *err)
{
	const bool users = m->cfg->arrival.loop == LOOP_USERS;
	enum ar_status st = resample_open(&m->resampler, m->cfg->trace, m->cfg->limits.prefix_cache,
					  !users, err);
	struct resample_plan plan;

	if (st)
		return st;
	plan = resample_plan(m->resampler);
	row->unit = resample_unit_names[plan.unit];
	row->units = (int64_t)plan.n_unit;
	row->block = (int64_t)plan.block;
	row->draw_key = (int64_t)(plan.key & INT64_MAX);
	replicates_judge(&plan, users, why, n);
	if (*why)
		return AR_OK;
	st = open_own(m, c, err);
	if (!st) {
		store_rest(m->r->session.store); /* before processes are forked */
		st = run_tasks(m, why, n, err);
	}
	if (st)
		return st;
	sum_up(m, res, row);
	if (!*why)
		judge(m, row, why, n);
	return AR_OK;
}

enum ar_status replicates_put(const struct run *r, const struct replay *cfg,
			      const struct replay_result *res, struct collector *c,
			      struct ar_err *err)
{
	struct maker m = { .r = r,
			   .cfg = cfg,
			   .give_up_ns = num_add(workers_now_ns(), r->session.o.intervals_ns) };
	struct row_resampling row = { .unit = resample_unit_names[RESAMPLE_REQUEST],
				      .cost_error = NAN,
				      .extrapolated = NAN,
				      .cached = NAN,
				      .run_cached = NAN,
				      .steady_replays = -1,
				      .unsteady = -1 };
	struct ar_err failed;
	char why[600] = "";
	enum ar_status st = AR_OK;

	if (!r->session.store || !r->session.o.intervals)
		return AR_OK;
	m.board = workers_share(TASKS * sizeof *m.board);
	if (!m.board)
		snprintf(why, sizeof why, "there was no memory for replicates");
	else if (make(&m, res, c, &row, why, sizeof why, &failed))
		snprintf(why, sizeof why, "%s", failed.msg);
	row.reason = *why ? why : NULL;
	st = store_resampling(r->session.store, &row, err);
	if (!st && !*why)
		st = put_tasks(&m, err);
	resample_close(m.resampler);
	workers_unshare(m.board, TASKS * sizeof *m.board);
	return st;
}
