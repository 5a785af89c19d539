/* SPDX-License-Identifier: Apache-2.0 */
/* The fit of host models: logs made from a known host give its times back. */
#include "config.h"
#include "src/calibrate/host_fit.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

enum { STEPS = 1200, LINES = 42, SPELL = 50 /* steps */ };

static const struct host truth = {
	.ns = { [HOST_ADMIT] = 200000,	      [HOST_ADMIT_TOK] = 30,
		[HOST_SCHEDULE] = 60000,      [HOST_SCHEDULE_REQ] = 15000,
		[HOST_PREPARE] = 250000,      [HOST_PREPARE_REQ] = 40000,
		[HOST_PREPARE_TOK] = 200,     [HOST_JOIN] = 900000,
		[HOST_WAKE] = 1200000,	      [HOST_GRAPH] = 800000,
		[HOST_PIECES] = 700000,	      [HOST_PIECES_LAYER] = 110000,
		[HOST_EAGER] = 900000,	      [HOST_EAGER_KERNEL] = 33000,
		[HOST_GAP] = 170000,	      [HOST_UPDATE] = 80000,
		[HOST_UPDATE_REQ] = 12000,    [HOST_RECEIVE] = 1500000,
		[HOST_RECEIVE_TOK] = 120,     [HOST_DELIVER] = 700000,
		[HOST_DELIVER_REQ] = 35000,   [HOST_HTTP] = 2500000,
		[HOST_HTTP_TOK] = 260,	      [HOST_HTTP_SEND] = 400000,
		[HOST_HTTP_SEND_REQ] = 60000, [HOST_GAP_REQ] = 9000,
		[HOST_GAP_LAYER] = 30000,     [HOST_SCHEDULE_TOK] = 250,
		[HOST_DELIVER_EAGER] = 900000 },
	.max_captured = 512,
};

static struct host_fit_step step[STEPS];
static struct host_fit_line line[LINES];
static const struct host_fit_input input = { step, STEPS, line, LINES };

/* Admission; the front end alone, and with HTTP. */
static const struct host_fit_line kinds[] = {
	{ .n_term = 1, .term = { { HOST_ADMIT, HOST_ADMIT_TOK } } },
	{ .n_term = 1, .term = { { HOST_RECEIVE, HOST_RECEIVE_TOK } } },
	{ .n_term = 2,
	  .term = { { HOST_RECEIVE, HOST_RECEIVE_TOK }, { HOST_HTTP, HOST_HTTP_TOK } } },
	{ .n_term = 1, .term = { { HOST_DELIVER, HOST_DELIVER_REQ } } },
	{ .n_term = 2,
	  .term = { { HOST_DELIVER, HOST_DELIVER_REQ }, { HOST_HTTP_SEND, HOST_HTTP_SEND_REQ } } },
	{ .n_term = 2, .term = { { HOST_DELIVER, HOST_DELIVER_REQ }, { HOST_DELIVER_EAGER, -1 } } },
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* A load of any kind; some steps launch nothing. */
static struct host_load random_load(struct rng *r)
{
	struct host_load x = { .kind = (enum host_kind)rng_below(r, HOST_KINDS) };

	if (!rng_below(r, 30))
		return x;
	x.n_req = 1 + (int64_t)rng_below(r, 20);
	x.n_tok = x.kind == HOST_KIND_GRAPH  ? x.n_req :
		  x.kind == HOST_KIND_PIECES ? x.n_req + 20 + (int64_t)rng_below(r, 400) :
					       513 + (int64_t)rng_below(r, 7000);
	x.n_join = x.kind == HOST_KIND_GRAPH ? 0 : (int64_t)rng_below(r, 3);
	x.idle = !rng_below(r, 20);
	return x;
}

/* Factors of the time of preparing and launching, each as often, in a log with a spread. */
static const double spread[] = { 0.6, 1, 2 };

struct log {
	bool async, parts; /* parts: the log has the times of the host's parts */
	bool one_model;	   /* both engines have 32 layers; else the second one has 16 */
	bool spreads;	   /* the time of preparing and launching differs from step to step */
	double noise;	   /* the largest relative error of the log's times */
	bool slow_long;	   /* the second host is twice as slow, and its eager steps are long */
	bool spells;	   /* the host is 1.5 times as slow while eager batches are large */
	int64_t late_ns;   /* how much longer one step of five takes, for no reason in the model */
	bool waits;	   /* the log has the times of waiting for the GPU */
};

/* Run two engines one after the other. */
static void make_log(struct log l)
{
	struct host_clock clock = { 0 };
	struct rng r = { 11 };
	struct host h = truth;

	for (int i = 0; i < STEPS; i++) {
		struct host_fit_step *s = &step[i];
		bool second = i >= STEPS / 2;
		int64_t n_layers = second && !l.one_model ? 16 : 32;
		int64_t waited = clock.in_flight ? clock.update : 0;
		bool slow = l.spells && i / SPELL % 2;
		struct host_parts p = { 0 };

		*s = (struct host_fit_step){ .load = random_load(&r),
					     .part_ns = { -1, -1, -1, -1 },
					     .n_layers = n_layers,
					     .n_kernels = 10 * n_layers,
					     .async = l.async,
					     .first = i == 0 || i == STEPS / 2 };
		if (l.slow_long && second && s->load.kind == HOST_KIND_EAGER && s->load.n_req)
			s->load.n_tok = 7000 + s->load.n_tok / 8;
		if (slow && s->load.kind == HOST_KIND_EAGER && s->load.n_req)
			s->load.n_req += 40;
		s->gpu_ns = 2000000 + 6000 * s->load.n_tok;
		if (s->first)
			clock = (struct host_clock){ 0 }, waited = 0;
		clock.now += s->load.idle ? 80000000 : 10000;
		s->begin_ns = clock.now;
		host_bind(&h, s->n_layers, s->n_kernels);
		if (s->load.n_req)
			p = host_parts(&h, &s->load);
		if (l.spreads || (l.slow_long && second) || slow) {
			double x = l.spreads ? spread[rng_below(&r, 3)] : slow ? 1.5 : 2;

			p.prepare = llround(x * (double)p.prepare);
			p.launch = llround(x * (double)p.launch);
		}
		if (s->load.n_req)
			host_run(&clock, &p, s->load.kind, s->gpu_ns, l.async);
		else
			host_wait(&clock, h.ns[HOST_SCHEDULE]);
		clock.now += (int64_t)((double)(clock.now - s->begin_ns) * l.noise * rng_unit(&r));
		if (i % 5 == 4)
			clock.now += l.late_ns;
		s->end_ns = clock.now;
		if (l.parts) { /* 0 of a step that launches nothing */
			s->part_ns[ENGINE_SCHEDULE] = p.schedule;
			s->part_ns[ENGINE_EXECUTE] = p.prepare + p.launch;
			s->part_ns[ENGINE_UPDATE] = l.async ? waited : p.update;
		}
		if (l.waits)
			s->part_ns[ENGINE_WAIT] = s->end_ns - s->begin_ns - p.schedule - p.prepare -
						  p.launch - waited;
	}
	for (int i = 0; i < LINES; i++) {
		struct host_fit_line *x = &line[i];

		*x = kinds[i % N_KINDS];
		x->n = (int64_t)rng_below(&r, i % N_KINDS < 3 ? 30000 : 200);
		for (int k = 0; k < x->n_term; k++) {
			int each = x->term[k].each;

			x->ns += truth.ns[x->term[k].at] + (each < 0 ? 0 : x->n * truth.ns[each]);
		}
	}
}

static struct host fitted(struct host_fit_result *res)
{
	struct host h = { .max_captured = 512 };
	struct ar_err err = { 0 };

	if (host_fit(&h, &input, res, &err))
		bail_out("%s", err.msg);
	return h;
}

/* Largest relative error of the fitted times. */
static double worst(const struct host *h)
{
	double most = 0;

	for (int i = 0; i < HOST_N_TIMES; i++)
		most = fmax(most, fabs((double)(h->ns[i] - truth.ns[i])) / (double)truth.ns[i]);
	return most;
}

/* Largest error of a predicted step, relative to the step. */
static double worst_step(const struct host_fit_result *res)
{
	double most = 0;

	for (int i = 0; i < STEPS; i++) {
		double took = (double)(step[i].end_ns - step[i].begin_ns);

		most = fmax(most, fabs((double)res->predicted_ns[i] - took) / took);
	}
	return most;
}

/* The mean of these errors: lines of the GPU's time do not know of its gaps. */
static double mean_step(const struct host_fit_result *res)
{
	double sum = 0;

	for (int i = 0; i < STEPS; i++) {
		double took = (double)(step[i].end_ns - step[i].begin_ns);

		sum += fabs((double)res->predicted_ns[i] - took) / took;
	}
	return sum / STEPS;
}

static int n_identified(const struct host_fit_result *res)
{
	int n = 0;

	for (int i = 0; i < HOST_N_TIMES; i++)
		n += res->identified[i];
	return n;
}

static void test_parts(bool async)
{
	struct host_fit_result res;
	struct host h;

	make_log((struct log){ .async = async, .parts = true, .waits = true });
	h = fitted(&res);
	ok(n_identified(&res) == HOST_N_TIMES && worst(&h) < 0.01,
	   "logs of two models with parts give all times back, %s: %.2g", async ? "async" : "sync",
	   worst(&h));
	ok(worst_step(&res) < 0.01, "... and the steps: %.2g", worst_step(&res));
	free(res.predicted_ns);
}

static void test_plain(void)
{
	struct host_fit_result res;
	struct host h;

	make_log((struct log){ .parts = false });
	h = fitted(&res);
	ok(!h.spread[HOST_KIND_EAGER][0] && !h.spread[HOST_KIND_EAGER][HOST_SPREAD - 1],
	   "a log without parts has no spread");
	ok(worst_step(&res) < 0.02, "a log without parts gives its steps back: %.2g",
	   worst_step(&res));
	ok(!res.identified[HOST_PREPARE] && !h.ns[HOST_PREPARE],
	   "... and says that making inputs cannot be told from recording tokens");
	free(res.predicted_ns);
}

static void test_one_model(void)
{
	struct host_fit_result res;
	struct host h;

	make_log((struct log){ .async = true, .parts = true, .one_model = true });
	h = fitted(&res);
	ok(!res.identified[HOST_EAGER] && !res.identified[HOST_PIECES] && !h.ns[HOST_EAGER] &&
		   !h.ns[HOST_PIECES],
	   "one model does not tell constants from layers");
	ok(fabs((double)h.ns[HOST_EAGER_KERNEL] * 320 / (900000 + 33000 * 320) - 1) < 0.02,
	   "... which take the whole launch");
	ok(worst_step(&res) < 0.02, "... with the same steps: %.2g", worst_step(&res));
	free(res.predicted_ns);
}

static void test_noise(void)
{
	struct host_fit_result res;
	struct host h;

	make_log((struct log){ .async = true, .parts = true, .noise = 0.2 });
	h = fitted(&res);
	ok(worst(&h) > 0 &&
		   fabs((double)h.ns[HOST_GRAPH] / (double)truth.ns[HOST_GRAPH] - 1) < 0.1 &&
		   fabs((double)h.ns[HOST_EAGER_KERNEL] / (double)truth.ns[HOST_EAGER_KERNEL] - 1) <
			   0.1,
	   "a noisy log gives launches within 10 %%");
	free(res.predicted_ns);
}

static void test_spread(void)
{
	struct host_fit_result res;
	struct host h;
	double eager, mid, off = 0;

	make_log((struct log){ .async = true, .parts = true, .one_model = true, .spreads = true });
	h = fitted(&res);
	eager = (double)h.ns[HOST_EAGER_KERNEL] * 320 / (900000 + 33000 * 320);
	ok(fabs(eager - 1) < 0.1, "launches whose times are spread get their median: %.2f", eager);
	mid = (double)h.spread[HOST_KIND_EAGER][HOST_SPREAD / 2];
	for (int i = 0; i < HOST_SPREAD; i++) {
		double got = (double)h.spread[HOST_KIND_EAGER][i] / mid;

		/* between two values a quantile may be either */
		if (i % 11 && i % 11 != 10)
			off = fmax(off, fabs(got / spread[3 * i / HOST_SPREAD] - 1));
	}
	ok(off < 0.05, "... and their spread: %.3f off", off);
	free(res.predicted_ns);
}

/* A pass with a slow host and long chunks does not make tokens slow. */
static void test_slow_log(void)
{
	struct host_fit_result res;
	struct host h;

	make_log(
		(struct log){ .async = true, .parts = true, .one_model = true, .slow_long = true });
	h = fitted(&res);
	ok(fabs((double)h.ns[HOST_PREPARE_TOK] / 200 / sqrt(2) - 1) < 0.25,
	   "tokens take their time at the mean speed of both hosts: %" PRId64 " ns",
	   h.ns[HOST_PREPARE_TOK]);
	free(res.predicted_ns);
}

/* Slow spells in which eager batches are large do not make requests slow. */
static void test_spells(void)
{
	struct host_fit_result res;
	struct host h;

	make_log((struct log){ .async = true, .parts = true, .one_model = true, .spells = true });
	h = fitted(&res);
	ok(fabs((double)h.ns[HOST_PREPARE_REQ] / 40000 - 1) < 0.5,
	   "requests take their time, whatever the host's speed: %" PRId64 " ns",
	   h.ns[HOST_PREPARE_REQ]);
	free(res.predicted_ns);
}

static void test_late(void)
{
	struct host_fit_result res;
	double gap;
	struct host h;

	make_log((struct log){ .async = true, .parts = true, .late_ns = 3000000 });
	h = fitted(&res);
	gap = (double)h.ns[HOST_GAP] / (double)truth.ns[HOST_GAP];
	ok(fabs(gap - 1) < 0.3, "3 ms more in one step of 5 leave the gap: %.3f of it", gap);
	free(res.predicted_ns);
}

/* Times of a GPU whose kernels are faster than the engine's leave the host's parts as they are. */
static void test_other_gpu(void)
{
	struct host_fit_result res;
	double most = 0;
	struct host h;

	make_log((struct log){ .async = true, .parts = true });
	for (int i = 0; i < STEPS; i++)
		step[i].gpu_ns = step[i].gpu_ns * 9 / 10;
	h = fitted(&res);
	for (int i = 0; i < STEPS; i++) {
		struct host_parts p;

		if (step[i].load.kind != HOST_KIND_EAGER || !step[i].load.n_req)
			continue;
		host_bind(&h, step[i].n_layers, step[i].n_kernels);
		p = host_parts(&h, &step[i].load);
		most = fmax(most, fabs((double)(p.prepare + p.launch) /
					       (double)step[i].part_ns[ENGINE_EXECUTE] -
				       1));
	}
	ok(most < 0.03, "a GPU that is 10 %% too fast leaves the launches: %.2g", most);
	free(res.predicted_ns);
}

/* Costs of single steps that are too low or too high do not become gaps. */
static void test_rough_gpu(void)
{
	struct host_fit_result res;
	struct rng r = { 5 };
	struct host h;

	make_log((struct log){ .async = true, .parts = true, .waits = true });
	for (int i = 0; i < STEPS; i++)
		step[i].gpu_ns = llround((double)step[i].gpu_ns * (0.9 + 0.2 * rng_unit(&r)));
	h = fitted(&res);
	ok(fabs((double)h.ns[HOST_GAP] / (double)truth.ns[HOST_GAP] - 1) < 0.3,
	   "GPU times that are off by up to 10 %% leave the gap: %" PRId64, h.ns[HOST_GAP]);
	ok(fabs((double)h.ns[HOST_GAP_LAYER] / (double)truth.ns[HOST_GAP_LAYER] - 1) < 0.3,
	   "... and that of layers: %" PRId64, h.ns[HOST_GAP_LAYER]);
	free(res.predicted_ns);
}

static void test_unknown_gpu(void)
{
	struct host_fit_result res;

	make_log((struct log){ .async = true, .parts = true });
	for (int i = 0; i < STEPS; i++)
		step[i].gpu_ns = -1;
	fitted(&res);
	ok(mean_step(&res) < 0.02, "the GPU's lines are fitted where they are not given: %.2g",
	   mean_step(&res));
	ok(!res.identified[HOST_GAP], "... and the gaps beside its kernels belong to them");
	free(res.predicted_ns);
}

static void test_nothing(void)
{
	const struct host_fit_input none = { 0 };
	struct host_fit_result res;
	struct ar_err err = { 0 };
	struct host h = truth;
	int64_t sum = 0;

	is_int(host_fit(&h, &none, &res, &err), AR_OK, "nothing to fit");
	for (int i = 0; i < HOST_N_TIMES; i++)
		sum += h.ns[i];
	ok(!n_identified(&res) && !sum, "... identifies nothing");
	free(res.predicted_ns);
}

static void test_no_memory(void)
{
	int wrong = 0, n = 0;

	for (long k = 0;; k++) {
		struct host_fit_result res;
		struct ar_err err = { 0 };
		struct host h = truth;
		enum ar_status st;

		fault_arm(k);
		st = host_fit(&h, &(struct host_fit_input){ step, 20, line, 2 }, &res, &err);
		free(res.predicted_ns);
		if (!fault_disarm())
			break;
		wrong += st != AR_NOMEM;
		n++;
	}
	ok(n == 8 && !wrong, "each of %d failing allocations is reported", n);
}

int main(void)
{
	plan(0);
	test_parts(false);
	test_parts(true);
	test_plain();
	test_one_model();
	test_noise();
	test_spread();
	test_slow_log();
	test_spells();
	test_late();
	test_other_gpu();
	test_rough_gpu();
	test_unknown_gpu();
	test_nothing();
	test_no_memory();
	return done_testing();
}
