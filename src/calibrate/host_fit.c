/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/calibrate/host_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"

/* The variables: the host's times, then the lines of the GPU's time: a graph and each of its
 * requests, any other step and each of its tokens. */
enum { GPU_GRAPH = HOST_N_TIMES, GPU_GRAPH_REQ, GPU_STEP, GPU_STEP_TOK, N_VAR };

enum { PER_STEP = 4, ROUNDS = 200, LEVELS = 8 };

static const double HUBER = 0.02;	  /* a relative error above this counts linearly */
static const double INDEPENDENT = 0.05;	  /* least share of a variable's effect that is its own */
static const double SHORTEST_NS = 5e5;	  /* errors of shorter steps are relative to this */
static const double WHOLE = 1e-4;	  /* how much a step counts beside its parts */
static const double SPREAD_MAX = 1e6;	  /* thousandths */
static const double SPEED_MAX = 0.7;	  /* a logarithm: no spell is longer than twice */
static const int64_t NEAR_NS = 100000000; /* steps this near share the host's speed */
static const int64_t WAITED_NS = 200000;  /* shorter waits may be the way of the tokens alone */

/* Where the search begins, in ns.  Times per layer, kernel, token and request come before
 * constants: the two cannot be told apart if all logs are of one model. */
static const struct {
	int var;
	double start;
} order[] = {
	{ HOST_EAGER_KERNEL, 30000 }, { HOST_PIECES_LAYER, 100000 }, { HOST_GRAPH, 300000 },
	{ GPU_STEP_TOK, 5000 },	      { GPU_GRAPH, 2000000 },	     { HOST_UPDATE, 100000 },
	{ HOST_GAP, 100000 },	      { HOST_WAKE, 100000 },	     { HOST_PREPARE, 300000 },
	{ HOST_SCHEDULE, 50000 },     { HOST_PREPARE_REQ, 10000 },   { HOST_JOIN, 50000 },
	{ HOST_UPDATE_REQ, 5000 },    { HOST_SCHEDULE_REQ, 5000 },   { HOST_PREPARE_TOK, 50 },
	{ GPU_STEP, 1000000 },	      { GPU_GRAPH_REQ, 10000 },	     { HOST_ADMIT, 100000 },
	{ HOST_ADMIT_TOK, 20 },	      { HOST_PIECES, 500000 },	     { HOST_EAGER, 500000 },
	{ HOST_RECEIVE, 500000 },     { HOST_RECEIVE_TOK, 50 },	     { HOST_DELIVER, 500000 },
	{ HOST_DELIVER_REQ, 20000 },  { HOST_HTTP, 500000 },	     { HOST_HTTP_TOK, 50 },
	{ HOST_HTTP_SEND, 200000 },   { HOST_HTTP_SEND_REQ, 20000 }, { HOST_GAP_LAYER, 10000 },
	{ HOST_GAP_REQ, 2000 },	      { HOST_SCHEDULE_TOK, 50 },     { HOST_DELIVER_EAGER, 500000 },
};
_Static_assert(sizeof order / sizeof *order == N_VAR, "each variable has a place");

struct fit {
	const struct host_fit_input *in;
	struct host host;
	size_t n_row;
	double *r, *r2;	    /* [n_row] residuals */
	double *w;	    /* [n_row] weights of the residuals r in the normal equations */
	double *count;	    /* [n_row] how much a row counts */
	double *j;	    /* [N_VAR][n_row] their derivatives */
	int64_t *predicted; /* [n_step] */
	double *want;	    /* [n_row] measured; -1: not */
	double *scale;	    /* [n_row] errors are relative to this */
	bool used[N_VAR], fixed[N_VAR]; /* the search may not move what is fixed */
};

static int kind_of(const struct host_fit_step *s)
{
	return s->load.n_req ? (int)s->load.kind : HOST_KINDS;
}

static int64_t gpu_ns(const struct host_fit_step *s, const double *x)
{
	if (s->gpu_ns >= 0)
		return s->gpu_ns;
	if (s->load.kind == HOST_KIND_GRAPH)
		return llround(x[GPU_GRAPH] + x[GPU_GRAPH_REQ] * (double)s->load.n_req);
	return llround(x[GPU_STEP] + x[GPU_STEP_TOK] * (double)s->load.n_tok);
}

/* Predict step s.  clock: of the step before; its parts are returned. */
static struct host_parts predict(struct fit *f, const struct host_fit_step *s, const double *x,
				 struct host_clock *clock)
{
	struct host_parts p = { 0 };
	int64_t gpu = gpu_ns(s, x), update, left;
	bool waited;

	if (s->first)
		*clock = (struct host_clock){ 0 };
	update = clock->in_flight ? clock->update : 0;
	waited = clock->in_flight && s->part_ns[ENGINE_WAIT] > WAITED_NS;
	clock->now = s->begin_ns;
	host_bind(&f->host, s->n_layers, s->n_kernels);
	if (s->load.n_req) {
		p = host_parts(&f->host, &s->load);
		host_run(clock, &p, s->load.kind, gpu, s->async);
		/* The host saw the GPU end the iteration before, so at most this one is left.  If
		 * it waited, the GPU has just begun with this one. */
		left = s->end_ns - update + p.gap + gpu;
		if (clock->gpu_end > left || waited)
			clock->gpu_end = left;
	} else {
		host_wait(clock, f->host.ns[HOST_SCHEDULE]);
	}
	return p;
}

/* The parts of a step that logs may have and the host model predicts. */
static const enum engine_part parts[PER_STEP - 1] = { ENGINE_SCHEDULE, ENGINE_EXECUTE,
						      ENGINE_UPDATE };

static double predict_line(const struct host_fit_line *l, const double *x)
{
	double ns = 0;

	for (int i = 0; i < l->n_term; i++) {
		const struct host_fit_term *t = &l->term[i];

		ns += x[t->at] + (t->each < 0 ? 0 : (double)l->n * x[t->each]);
	}
	return ns;
}

/* Write each row as x predicts it.  Rows: each step and its parts, then the lines. */
static void predict_rows(struct fit *f, const double *x, double *row)
{
	struct host_clock clock = { 0 };

	for (int i = 0; i < HOST_N_TIMES; i++)
		f->host.ns[i] = llround(x[i]);
	for (size_t i = 0; i < f->in->n_step; i++) {
		const struct host_fit_step *s = &f->in->step[i];
		int64_t update = clock.in_flight && !s->first ? clock.update : 0;
		struct host_parts p = predict(f, s, x, &clock);

		f->predicted[i] = clock.now - s->begin_ns;
		*row++ = (double)f->predicted[i];
		*row++ = (double)p.schedule;
		*row++ = (double)(p.prepare + p.launch);
		*row++ = (double)(s->async ? update : p.update);
	}
	for (size_t i = 0; i < f->in->n_line; i++)
		*row++ = predict_line(&f->in->line[i], x);
}

/* Write the measured value of each row; -1 where the log has none. */
static void measured_rows(const struct host_fit_input *in, double *row)
{
	for (size_t i = 0; i < in->n_step; i++) {
		const struct host_fit_step *s = &in->step[i];

		*row++ = (double)(s->end_ns - s->begin_ns);
		for (int k = 0; k < PER_STEP - 1; k++)
			*row++ = s->load.n_req ? (double)s->part_ns[parts[k]] : -1;
	}
	for (size_t i = 0; i < in->n_line; i++)
		*row++ = (double)in->line[i].ns;
}

static void residuals(struct fit *f, const double *x, double *r)
{
	predict_rows(f, x, r);
	for (size_t i = 0; i < f->n_row; i++)
		r[i] = f->want[i] < 0 ? 0 : (r[i] - f->want[i]) / f->scale[i];
}

static double loss(const struct fit *f, const double *r)
{
	double sum = 0;

	for (size_t i = 0; i < f->n_row; i++) {
		double a = fabs(r[i]);

		sum += f->count[i] * (a < HUBER ? a * a / 2 : HUBER * (a - HUBER / 2));
	}
	return sum;
}

static bool is_of_token(int v)
{
	return v == HOST_PREPARE_TOK || v == HOST_ADMIT_TOK || v == HOST_RECEIVE_TOK ||
	       v == HOST_HTTP_TOK || v == HOST_SCHEDULE_TOK;
}

/* Derivatives of the residuals r of x. */
static void derive_residuals(struct fit *f, double *x, const double *r)
{
	for (int v = 0; v < N_VAR; v++) {
		double *d = f->j + (size_t)v * f->n_row, old = x[v];
		double step = fmax(old / 50, is_of_token(v) ? 1 : 20);

		x[v] = old + ceil(step);
		residuals(f, x, d);
		for (size_t i = 0; i < f->n_row; i++)
			d[i] = (d[i] - r[i]) / (x[v] - old);
		x[v] = old;
	}
}

static double dot(const double *a, const double *b, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

static bool is_gap(int v)
{
	return v == HOST_GAP || v == HOST_GAP_REQ || v == HOST_GAP_LAYER;
}

/* The gap is what the GPU takes beyond its kernels.  Fitted lines of its time would share that with
 * it, and a replay has the whole time of the kernels. */
static bool tells_gap(const struct fit *f)
{
	for (size_t i = 0; i < f->in->n_step; i++)
		if (f->in->step[i].gpu_ns >= 0)
			return true;
	return false;
}

/* Choose variables whose effects are independent, in the given order.  It applies Gram and
 * Schmidt's method to the derivatives, and overwrites them. */
static void choose_variables(struct fit *f)
{
	const bool gaps = tells_gap(f);
	size_t n = f->n_row;
	int n_used = 0, used[N_VAR];

	for (int k = 0; k < N_VAR; k++) {
		if (is_gap(order[k].var) && !gaps) {
			f->used[order[k].var] = false;
			continue;
		}
		double *d = f->j + (size_t)order[k].var * n, own, all = dot(d, d, n);

		for (int i = 0; i < n_used; i++) {
			const double *u = f->j + (size_t)used[i] * n;
			double share = dot(d, u, n) / dot(u, u, n);

			for (size_t r = 0; r < n; r++)
				d[r] -= share * u[r];
		}
		own = dot(d, d, n);
		f->used[order[k].var] = own > INDEPENDENT * INDEPENDENT * all && own > 0;
		if (f->used[order[k].var])
			used[n_used++] = order[k].var;
	}
}

/* Solve a x = b of n equations by Gauss's elimination; a is symmetric and positive definite. */
static void solve_equations(double a[N_VAR][N_VAR], double *b, int n)
{
	for (int k = 0; k < n; k++)
		for (int i = k + 1; i < n; i++) {
			double q = a[i][k] / a[k][k];

			for (int c = k; c < n; c++)
				a[i][c] -= q * a[k][c];
			b[i] -= q * b[k];
		}
	for (int i = n - 1; i >= 0; i--) {
		for (int c = i + 1; c < n; c++)
			b[i] -= a[i][c] * b[c];
		b[i] /= a[i][i];
	}
}

/* The normal equations of the variables var[0 .. n) at x.  One at 0 that would fall is none of
 * them. */
struct normal {
	double a[N_VAR][N_VAR], b[N_VAR];
	int var[N_VAR], n;
};

static void make_normal(const struct fit *f, const double *x, struct normal *m)
{
	m->n = 0;
	for (size_t i = 0; i < f->n_row; i++)
		f->w[i] = f->count[i] * HUBER / fmax(fabs(f->r[i]), HUBER);
	for (int v = 0; v < N_VAR; v++) {
		const double *d = f->j + (size_t)v * f->n_row;
		double slope = 0;

		for (size_t i = 0; i < f->n_row; i++)
			slope += d[i] * f->r[i] * f->w[i];
		if (f->used[v] && !f->fixed[v] && (x[v] > 0 || slope < 0)) {
			m->b[m->n] = -slope;
			m->var[m->n++] = v;
		}
	}
	for (int p = 0; p < m->n; p++)
		for (int q = 0; q <= p; q++) {
			const double *d = f->j + (size_t)m->var[p] * f->n_row;
			const double *e = f->j + (size_t)m->var[q] * f->n_row;

			m->a[p][q] = 0;
			for (size_t i = 0; i < f->n_row; i++)
				m->a[p][q] += d[i] * e[i] * f->w[i];
			m->a[q][p] = m->a[p][q];
		}
}

/* One step of the search from x, damped by damp, to y. */
static void advance_fit(struct normal m, const double *x, double damp, double *y)
{
	memcpy(y, x, N_VAR * sizeof *y);
	for (int p = 0; p < m.n; p++)
		m.a[p][p] = m.a[p][p] * (1 + damp) + 1e-30;
	solve_equations(m.a, m.b, m.n);
	for (int p = 0; p < m.n; p++)
		y[m.var[p]] = fmax(0, x[m.var[p]] + m.b[p]);
}

static void search_fit(struct fit *f, double *x)
{
	double damp = 1e-3, now, y[N_VAR];
	struct normal m;

	residuals(f, x, f->r);
	now = loss(f, f->r);
	for (int round = 0; round < ROUNDS && damp < 1e12; round++) {
		double then = now;

		derive_residuals(f, x, f->r);
		make_normal(f, x, &m);
		for (; damp < 1e12; damp *= 10) {
			advance_fit(m, x, damp, y);
			residuals(f, y, f->r2);
			then = loss(f, f->r2);
			if (then < now)
				break;
		}
		if (then >= now)
			break;
		memcpy(x, y, sizeof y);
		memcpy(f->r, f->r2, f->n_row * sizeof *f->r);
		damp /= 100;
		if (now - then < 1e-9 * now)
			break;
		now = then;
	}
}

/* row: the values that errors are relative to. */
static void set_scale(struct fit *f, const double *row)
{
	for (size_t i = 0; i < f->n_row; i++)
		f->scale[i] = fmax(row[i], SHORTEST_NS);
}

/* Parts of a step decide where a log has them. */
static void set_count(struct fit *f)
{
	for (size_t i = 0; i < f->n_row; i++)
		f->count[i] = 1;
	for (size_t i = 0; i < f->in->n_step; i++)
		if (f->in->step[i].part_ns[ENGINE_EXECUTE] >= 0)
			f->count[i * PER_STEP] = WHOLE;
}

/* Logarithm of the measured over the fitted time of preparing and launching step s; NAN: the log
 * does not say, or nothing was launched.  f->host has the fitted times. */
static double launch_log(struct fit *f, const struct host_fit_step *s)
{
	struct host_parts p;

	if (!s->load.n_req || s->part_ns[ENGINE_EXECUTE] <= 0)
		return NAN;
	host_bind(&f->host, s->n_layers, s->n_kernels);
	p = host_parts(&f->host, &s->load);
	return p.prepare + p.launch ?
		       log((double)s->part_ns[ENGINE_EXECUTE] / (double)(p.prepare + p.launch)) :
		       NAN;
}

/* The sum of known values. */
struct sum {
	double x;
	size_t n;
};

static void add_known(struct sum *s, double x, int times)
{
	if (isnan(x))
		return;
	s->x += times * fmin(fmax(x, -SPEED_MAX), SPEED_MAX);
	s->n += (size_t)times;
}

/* Write the host's speed at each step [from, to) of a log, as a logarithm.  It is the mean of the
 * steps near by, of whatever kind, and of the log.  A step's own launch is left out.  Returns the
 * mean of the log; NAN: it has no parts. */
static double speeds_of_log(struct fit *f, size_t from, size_t to, double *speed)
{
	const struct host_fit_step *s = f->in->step;
	struct sum log = { 0 }, near = { 0 };
	size_t first = from, last = from;
	double mean;

	for (size_t i = from; i < to; i++) {
		f->r[i] = launch_log(f, &s[i]);
		add_known(&log, f->r[i], 1);
	}
	mean = log.n ? log.x / (double)log.n : NAN;
	for (size_t i = from; i < to; i++) {
		struct sum others;

		for (; last < to && s[last].begin_ns <= s[i].begin_ns + NEAR_NS; last++)
			add_known(&near, f->r[last], 1);
		for (; s[first].begin_ns < s[i].begin_ns - NEAR_NS; first++)
			add_known(&near, f->r[first], -1);
		others = near;
		add_known(&others, f->r[i], -1);
		speed[i] = (others.x + mean) / (double)(others.n + 1);
	}
	return mean;
}

/* Write the host's speed at each step, relative to the mean over the logs; NAN: not known. */
static void measure_speeds(struct fit *f, double *speed)
{
	const size_t n = f->in->n_step;
	struct sum all = { 0 };

	for (size_t from = 0, to; from < n; from = to) {
		for (to = from + 1; to < n && !f->in->step[to].first; to++)
			;
		add_known(&all, speeds_of_log(f, from, to, speed), 1);
	}
	for (size_t i = 0; i < n && all.n; i++)
		speed[i] -= all.x / (double)all.n;
}

/* Divide the measured parts of each step by the host's speed at that step.  Otherwise the fit takes
 * a slow moment of the host for the cost of the work in it.  Overwrites the residuals. */
static void level_speeds(struct fit *f)
{
	double *speed = f->r2;

	measure_speeds(f, speed);
	for (size_t i = 0; i < f->in->n_step; i++)
		for (int k = 1; k < PER_STEP && !isnan(speed[i]); k++)
			if (f->want[i * PER_STEP + (size_t)k] > 0)
				f->want[i * PER_STEP + (size_t)k] /= exp(speed[i]);
}

/* Search the gaps alone, from the steps at whose begin and end the host waited for the GPU.  Others
 * tell of its own times as well. */
static void search_gaps(struct fit *f, double *x)
{
	for (int v = 0; v < N_VAR; v++)
		f->fixed[v] = !is_gap(v);
	for (size_t i = 0; i < f->n_row; i++)
		f->count[i] = 0;
	for (size_t i = 1; i < f->in->n_step; i++) {
		const struct host_fit_step *s = &f->in->step[i];

		f->count[i * PER_STEP] = !s->first && s->part_ns[ENGINE_WAIT] > WAITED_NS &&
					 s[-1].part_ns[ENGINE_WAIT] > WAITED_NS;
	}
	search_fit(f, x);
}

/* Search twice, from x.  The first search takes errors relative to the measured rows.  There a fast
 * step counts more than a slow one, so the fitted times are too short.  The second search takes
 * errors relative to the rows that the first one predicts, and each log's host as equally fast. */
static void search_twice(struct fit *f, double *x)
{
	measured_rows(f->in, f->want);
	set_scale(f, f->want);
	set_count(f);
	residuals(f, x, f->r);
	derive_residuals(f, x, f->r);
	choose_variables(f);
	for (int v = 0; v < N_VAR; v++)
		if (!f->used[v])
			x[v] = 0;
	search_fit(f, x);
	predict_rows(f, x, f->r);
	set_scale(f, f->r);
	for (int turn = 0; turn < LEVELS; turn++) {
		predict_rows(f, x, f->r); /* for the times of f->host */
		measured_rows(f->in, f->want);
		level_speeds(f);
		search_fit(f, x);
	}
	search_gaps(f, x);
}

/* The spread of a kind, as if the host had been as fast in its steps as in all logs; f->host has
 * the fitted times.  speed: of the host at each step.  It overwrites the residuals. */
static void fit_spread(struct fit *f, const double *speed, int kind, int64_t *spread)
{
	struct sum host = { 0 };
	double *x = f->r;
	size_t n = 0;

	memset(spread, 0, HOST_SPREAD * sizeof *spread);
	for (size_t i = 0; i < f->in->n_step; i++) {
		double own = launch_log(f, &f->in->step[i]);

		if (kind_of(&f->in->step[i]) != kind || isnan(own))
			continue;
		x[n++] = own;
		add_known(&host, speed[i], 1);
	}
	if (n < HOST_SPREAD)
		return;
	stats_sort(x, n);
	for (int i = 0; i < HOST_SPREAD; i++) {
		double at = stats_percentile(x, n, 100 * (i + 0.5) / HOST_SPREAD);

		at = round(1000 * exp(at - host.x / (double)host.n));
		spread[i] = (int64_t)fmin(fmax(at, 1), SPREAD_MAX);
	}
}

enum ar_status host_fit(struct host *h, const struct host_fit_input *in,
			struct host_fit_result *res, struct ar_err *err)
{
	struct fit f = { .in = in, .host = *h, .n_row = in->n_step * PER_STEP + in->n_line };
	double x[N_VAR];
	enum ar_status st = AR_OK;

	*res = (struct host_fit_result){ 0 };
	memset(f.host.spread, 0, sizeof f.host.spread);
	f.r = malloc((f.n_row + 1) * sizeof *f.r);
	f.r2 = malloc((f.n_row + 1) * sizeof *f.r2);
	f.w = malloc((f.n_row + 1) * sizeof *f.w);
	f.count = malloc((f.n_row + 1) * sizeof *f.count);
	f.j = malloc((f.n_row + 1) * N_VAR * sizeof *f.j);
	f.predicted = malloc((in->n_step + 1) * sizeof *f.predicted);
	f.want = malloc((f.n_row + 1) * sizeof *f.want);
	f.scale = malloc((f.n_row + 1) * sizeof *f.scale);
	if (!f.r || !f.r2 || !f.w || !f.count || !f.j || !f.predicted || !f.want || !f.scale) {
		st = ar_nomem(err);
		goto out;
	}
	for (int k = 0; k < N_VAR; k++)
		x[order[k].var] = order[k].start;
	search_twice(&f, x);
	residuals(&f, x, f.r);
	for (int i = 0; i < HOST_N_TIMES; i++) {
		h->ns[i] = llround(x[i]);
		res->identified[i] = f.used[i];
	}
	measure_speeds(&f, f.r2);
	for (int k = 0; k < HOST_KINDS; k++)
		fit_spread(&f, f.r2, k, h->spread[k]);
	res->predicted_ns = f.predicted;
	f.predicted = NULL;
out:
	free(f.r);
	free(f.r2);
	free(f.w);
	free(f.count);
	free(f.j);
	free(f.predicted);
	free(f.want);
	free(f.scale);
	return st;
}
