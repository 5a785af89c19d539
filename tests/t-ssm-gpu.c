/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mixer of a Mamba-2 layer on the device against its references.
 *
 * Prefill rounds x, B, C, their products, and the state where it is multiplied, to bf16: by 2^-9 of
 * each at most.  Results are sums of many such products.  So their errors have a deviation near
 * 2^-9 of the row's and of the element's size.  Allowed are 2^-7 on average and 2^-4 for the worst
 * of all.  Decode computes in fp32, but for y before its gate, which is bf16.
 *
 * The norm of a row divides by the size of its group.  In a row whose terms cancel, errors that are
 * small beside the other rows grow by it.  So its errors are measured by the others' size.
 *
 * ATTNREPLAY_SSM_CASES: random cases.  ATTNREPLAY_SSM_LONG: rows of the long sequences.
 * ATTNREPLAY_SSM_TIME=1: also print times.
 */
#include "config.h"
#include "kernels/ssm/ssm.h"

#include "tests/gpu_test.h"
#include "tests/tap.h"

enum { N_TEST = 18 };

#if HAVE_CUDA

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/layer/layer.h"
#include "kernels/ssm/ssm_work.h"
#include "tests/ssm_case.h"
#include "tests/state_case.h"

/* Run the kernels for all devices, also where others are there. */
static bool portable;

static const char *const fill_name[SSM_FILLS] = { "mixed", "keep", "forget", "bounds" };

/* ---- both sides ---- */

static const void *device_copy(const void *from, size_t bytes)
{
	return from ? gpu_copy(from, bytes) : NULL;
}

/* The case on the device.  Its work is for all rows. */
static struct ssm_call to_device(const struct ssm_case *c, int max_req)
{
	const struct ssm_spec *s = &c->call.spec;
	const size_t heads = (size_t)s->heads * sizeof(float);
	const size_t channels = (size_t)ssm_channels(s) * sizeof(bf16_t);
	struct ssm_call d = c->call;

	d.w.conv = device_copy(d.w.conv, channels * (size_t)s->conv);
	d.w.conv_bias = device_copy(d.w.conv_bias, channels);
	d.w.a_log = device_copy(d.w.a_log, heads);
	d.w.dt_bias = device_copy(d.w.dt_bias, heads);
	d.w.d = device_copy(d.w.d, heads);
	d.w.norm = device_copy(d.w.norm, (size_t)ssm_inner(s) * sizeof *d.w.norm);
	d.in = device_copy(d.in, ssm_case_in(c) * sizeof *d.in);
	d.state.h = gpu_copy(d.state.h, ssm_case_state(c) * sizeof *d.state.h);
	d.state.tail = gpu_copy(d.state.tail, ssm_case_tail(c) * sizeof *d.state.tail);
	d.out = gpu_new(ssm_case_out(c) * sizeof *d.out, 0xff);
	d.work = gpu_new(ssm_work_bytes(s, max_req, c->n_row), 0xff);
	return d;
}

static void prefill(const struct ssm_call *d, int n_req, const int32_t *row0, const int32_t *pos0,
		    const int32_t *slot)
{
	struct state_batch b = state_case_plan(n_req, row0, pos0, slot), on = b;
	struct ar_err err;

	on.seq = gpu_copy(b.seq, (size_t)b.n_seq * sizeof *b.seq);
	on.chunk = gpu_copy(b.chunk, (size_t)b.n_chunk * sizeof *b.chunk);
	gpu_must((portable ? ssm_prefill_sm80 : ssm_prefill)(d, &on, &err), &err);
	state_case_plan_release(&b);
}

/* How many times its own size an error of a row's group may be, of the last reference. */
static double *shrunk;

static double sum_of_squares(const bf16_t *x, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += (double)bf16_to_f32(x[i]) * (double)bf16_to_f32(x[i]);
	return sum;
}

/* raw: n_row rows without a norm. */
static void set_shrunk(const struct ssm_case *c, const bf16_t *raw, int n_row)
{
	const size_t groups = (size_t)c->call.spec.groups, rows = (size_t)n_row;
	const size_t n = (size_t)ssm_inner(&c->call.spec) / groups;

	free(shrunk);
	shrunk = gpu_host((rows * groups + 1) * sizeof *shrunk);
	for (size_t g = 0; g < groups; g++) {
		double all = 0;

		for (size_t r = 0; r < rows; r++)
			all += sum_of_squares(raw + (r * groups + g) * n, n) / (double)rows;
		for (size_t r = 0; r < rows; r++) {
			double own = sum_of_squares(raw + (r * groups + g) * n, n);

			shrunk[r * groups + g] = c->call.w.norm && own > 0 && own < all ?
							 sqrt(all / own) :
							 1;
		}
	}
}

/* Run the references: b, or for b NULL a decode of n_row rows.  First without a norm, for sizes. */
static void run_ref(const struct ssm_case *c, const struct state_batch *b, int n_row,
		    const int32_t *slot)
{
	const size_t out = ssm_case_out(c) * sizeof(bf16_t);
	const size_t state = ssm_case_state(c) * sizeof(float);
	const size_t tail = ssm_case_tail(c) * sizeof(bf16_t);
	struct ssm_call raw = c->call;

	raw.w.norm = NULL;
	raw.out = gpu_host(out);
	raw.state.h = gpu_host(state);
	raw.state.tail = gpu_host(tail);
	memset(raw.out, 0, out);
	memcpy(raw.state.h, c->call.state.h, state);
	memcpy(raw.state.tail, c->call.state.tail, tail);
	if (b) {
		ssm_prefill_ref(&raw, b);
		ssm_prefill_ref(&c->call, b);
	} else {
		ssm_decode_ref(&raw, n_row, slot);
		ssm_decode_ref(&c->call, n_row, slot);
	}
	set_shrunk(c, raw.out, n_row);
	free(raw.out);
	free(raw.state.h);
	free(raw.state.tail);
}

static void prefill_ref(const struct ssm_case *c, int n_req, const int32_t *row0,
			const int32_t *pos0, const int32_t *slot)
{
	struct state_batch b = state_case_plan(n_req, row0, pos0, slot);

	run_ref(c, &b, row0[n_req], slot);
	state_case_plan_release(&b);
}

static const char *kernels(void)
{
	return portable ? "kernels for all devices" : "kernels of this device";
}

/* The device's results. */
struct got {
	bf16_t *out, *tail;
	float *state;
};

static struct got read_back(const struct ssm_case *c, const struct ssm_call *d)
{
	struct got g = { gpu_host(ssm_case_out(c) * sizeof *g.out),
			 gpu_host(ssm_case_tail(c) * sizeof *g.tail),
			 gpu_host(ssm_case_state(c) * sizeof *g.state) };

	gpu_read(g.out, d->out, ssm_case_out(c) * sizeof *g.out);
	gpu_read(g.tail, d->state.tail, ssm_case_tail(c) * sizeof *g.tail);
	gpu_read(g.state, d->state.h, ssm_case_state(c) * sizeof *g.state);
	return g;
}

static void got_free(struct got *g)
{
	free(g->out);
	free(g->tail);
	free(g->state);
}

/* ---- errors ---- */

/* Errors in units of a root mean square plus the element: the largest, and of the mean square. */
struct error {
	double worst, mean;
	int at; /* of the largest */
};

/* Compare n elements by `unit` times their root mean square.  at: their name. */
static void add_errors(struct error *e, const float *have, const float *want, size_t n, double unit,
		       int at)
{
	double sum = 1e-12;

	for (size_t i = 0; i < n; i++)
		sum += (double)want[i] * (double)want[i];
	for (size_t i = 0; i < n; i++) {
		double off = fabs((double)have[i] - (double)want[i]) /
			     (unit * (sqrt(sum / (double)n) + fabs((double)want[i])));

		if (!(off <= e->worst)) { /* NaN, too */
			e->worst = off <= 1e30 ? off : 1e30;
			e->at = at;
		}
		e->mean += off * off;
	}
}

/* Of rows [0, n_row), each by the size of its norm's group. */
static struct error out_error(const struct ssm_case *c, const struct got *g, int n_row)
{
	const struct ssm_spec *s = &c->call.spec;
	const size_t n = (size_t)(ssm_inner(s) / s->groups), all = (size_t)(n_row * s->groups) * n;
	float *have = gpu_host(n * sizeof *have), *want = gpu_host(n * sizeof *want);
	struct error e = { 0, 0, -1 };

	for (size_t i = 0; i < all; i += n) {
		bf16_widen(have, g->out + i, n);
		bf16_widen(want, c->call.out + i, n);
		add_errors(&e, have, want, n, shrunk[i / n], (int)(i / n) / s->groups);
	}
	e.mean = all ? sqrt(e.mean / (double)all) : 0;
	free(have);
	free(want);
	return e;
}

/* Of the states of all slots, by the size of a head's; others must be untouched. */
static struct error state_error(const struct ssm_case *c, const struct got *g)
{
	const size_t n = (size_t)(c->call.spec.head_dim * c->call.spec.state);
	struct error e = { 0, 0, -1 };

	for (size_t i = 0; i < ssm_case_state(c); i += n)
		add_errors(&e, g->state + i, c->call.state.h + i, n, 1, (int)(i / n));
	e.mean = sqrt(e.mean / (double)ssm_case_state(c));
	return e;
}

struct limit {
	double worst, mean;
};
static const struct limit prefill_limit = { 0x1p-4, 0x1p-7 }, decode_limit = { 0x1p-6, 0x1p-8 };

/* Compare n_row rows, all states and tails.  Prints the errors if they are too large. */
static bool agrees(const struct ssm_case *c, const struct ssm_call *d, int n_row,
		   const struct limit *limit, const char *what)
{
	struct got g = read_back(c, d);
	struct error out = out_error(c, &g, n_row), state = state_error(c, &g);
	bool tails = !memcmp(g.tail, c->call.state.tail, ssm_case_tail(c) * sizeof *g.tail);
	bool good = tails && out.worst <= limit->worst && out.mean <= limit->mean &&
		    state.worst <= limit->worst && state.mean <= limit->mean;
	const struct ssm_spec *s = &c->call.spec;

	if (!good || getenv("ATTNREPLAY_SSM_VERBOSE"))
		diag("%s, %s: %d rows, %d heads of %d in %d groups, state %d: out off by %.3g (row "
		     "%d), mean %.3g; state by %.3g (head %d), mean %.3g; tails %s",
		     what, kernels(), c->n_row, s->heads, s->head_dim, s->groups, s->state,
		     out.worst, out.at, out.mean, state.worst, state.at, state.mean,
		     tails ? "equal" : "differ");
	got_free(&g);
	return good;
}

/* ---- tests ---- */

static int below(struct rng *r, int n)
{
	return (int)rng_below(r, (uint64_t)n);
}

/* Half of them for the kernels of Hopper. */
static struct ssm_spec random_spec(struct rng *r)
{
	struct ssm_spec s = { 8, 64, 1, 128, 4, 1, 1, 128, 4, 0, 0 };

	if (below(r, 2)) {
		s.groups = 1 + below(r, 2);
		s.heads = 8 * s.groups * (1 + below(r, 4) / 3);
		return s;
	}
	s.groups = 1 + below(r, 3);
	s.heads = s.groups * (1 + below(r, 3));
	s.head_dim = 64 << below(r, 2);
	s.state = 128 << below(r, 2);
	return s;
}

/* Ragged batches of up to four requests, fresh and continued, in slots of any order. */
static bool random_case(struct rng *r, enum ssm_fill fill)
{
	enum { SLOTS = 6 };
	const struct ssm_spec s = random_spec(r);
	const int n_req = 1 + below(r, 4);
	int32_t row0[5] = { 0 }, pos0[4], slot[4];
	struct ssm_call d;
	struct ssm_case c;
	bool good;

	for (int i = 0, first = below(r, SLOTS); i < n_req; i++) {
		row0[i + 1] = row0[i] + (below(r, 4) ? below(r, 200) : 64 * below(r, 3));
		pos0[i] = below(r, 2) * (1 + below(r, 100));
		slot[i] = (first + i) % SLOTS;
	}
	ssm_case_make(&c, r, &s, fill, row0[n_req], SLOTS);
	d = to_device(&c, n_req);
	prefill_ref(&c, n_req, row0, pos0, slot);
	prefill(&d, n_req, row0, pos0, slot);
	good = agrees(&c, &d, c.n_row, &prefill_limit, fill_name[fill]);
	ssm_case_release(&c);
	gpu_free_all();
	return good;
}

static void test_random(void)
{
	const long cases = gpu_test_number("ATTNREPLAY_SSM_CASES", 8);

	for (int fill = 0; fill < SSM_FILLS; fill++) {
		struct rng r = { 21 + (uint64_t)fill };
		int bad = 0;

		for (long i = 0; i < cases; i++)
			bad += !random_case(&r, fill);
		ok(!bad, "prefill of random batches, %s, %s", fill_name[fill], kernels());
	}
}

/* One sequence at once, and cut at any rows: segments begin at others then. */
static void test_cuts(void)
{
	static const struct ssm_spec s = { 8, 64, 1, 128, 4, 1, 1, 128, 4, 0, 0 };
	static const int32_t cut[] = { 0, 1, 3, 66, 129, 299, 300, 620, 700 };
	struct rng r = { 31 };
	struct ssm_call d[2];
	struct ssm_case c;

	ssm_case_make(&c, &r, &s, SSM_MIXED, 700, 2);
	for (int i = 0; i < 2; i++)
		d[i] = to_device(&c, 1);
	prefill_ref(&c, 1, (int32_t[]){ 0, 700 }, &(int32_t){ 0 }, &(int32_t){ 1 });
	prefill(&d[0], 1, (int32_t[]){ 0, 700 }, &(int32_t){ 0 }, &(int32_t){ 1 });
	for (int i = 0; i < 8; i++)
		prefill(&d[1], 1, &cut[i], &cut[i], &(int32_t){ 1 });
	ok(agrees(&c, &d[0], 700, &prefill_limit, "at once"), "a prompt at once, %s", kernels());
	ok(agrees(&c, &d[1], 700, &prefill_limit, "cuts"), "the same in pieces, %s", kernels());
	ssm_case_release(&c);
	gpu_free_all();
}

/* Copy the device's state into the case, so that decode is compared by itself. */
static void adopt(struct ssm_case *c, const struct ssm_call *d)
{
	gpu_read(c->call.state.h, d->state.h, ssm_case_state(c) * sizeof(float));
}

/* Decode after prefill, step after step.  Slot 0 is for padded rows. */
static bool decode_case(struct rng *r, enum ssm_fill fill)
{
	enum { SLOTS = 5, ROWS = 6, REAL = 4 };
	static const int32_t row0[] = { 0, 1, 2, 4, 6 }, pos0[REAL] = { 0, 3, 0, 1 };
	static const int32_t slot[ROWS] = { 3, 1, 4, 2, 0, 0 };
	const struct ssm_spec s = random_spec(r);
	const int32_t *slots = gpu_copy(slot, sizeof slot);
	struct ssm_call d;
	struct ssm_case c;
	struct ar_err err;
	bool good = true;

	ssm_case_make(&c, r, &s, fill, ROWS, SLOTS);
	d = to_device(&c, REAL);
	prefill_ref(&c, REAL, row0, pos0, slot);
	prefill(&d, REAL, row0, pos0, slot);
	for (int i = 0; i < 3; i++) {
		struct got g;

		adopt(&c, &d);
		gpu_must(ssm_decode(&d, ROWS, slots, &err), &err);
		run_ref(&c, NULL, REAL, slot);
		g = read_back(&c, &d);
		for (size_t j = 0; j < ssm_state_len(&s); j++)
			good &= isfinite(g.state[j]);
		memcpy(c.call.state.h, g.state, ssm_state_len(&s) * sizeof(float));
		memcpy(c.call.state.tail, g.tail, ssm_tail_len(&s) * sizeof(bf16_t));
		got_free(&g);
		good &= agrees(&c, &d, REAL, &decode_limit, "decode");
	}
	ssm_case_release(&c);
	gpu_free_all();
	return good;
}

static void test_decode(void)
{
	const long cases = gpu_test_number("ATTNREPLAY_SSM_CASES", 8);
	struct rng r = { 41 };
	int bad = 0;

	for (long i = 0; i < cases; i++)
		bad += !decode_case(&r, (int)i % SSM_FILLS);
	ok(!bad, "decode after prefill, with padded rows");
}

/* Several sequences in each segment, and segments in a sequence, at the sizes of a model. */
static void test_ragged(void)
{
	static const struct ssm_spec s = { 16, 64, 2, 128, 4, 1, 1, 128, 4, 0, 0 };
	static const int32_t row0[] = { 0, 1500, 1501, 1565, 1665, 1995 };
	static const int32_t pos0[] = { 9, 0, 5, 0, 7 }, slot[] = { 1, 0, 4, 2, 3 };
	struct rng r = { 43 };
	struct ssm_call d;
	struct ssm_case c;

	ssm_case_make(&c, &r, &s, SSM_MIXED, row0[5], 5);
	d = to_device(&c, 5);
	prefill_ref(&c, 5, row0, pos0, slot);
	prefill(&d, 5, row0, pos0, slot);
	ok(agrees(&c, &d, c.n_row, &prefill_limit, "ragged"), "segments across sequences");
	ssm_case_release(&c);
	gpu_free_all();
}

/* Nothing drifts in a long sequence. */
static void test_long(void)
{
	static const struct ssm_spec s = { 8, 64, 1, 128, 4, 1, 1, 128, 4, 0, 0 };
	const int n = (int)gpu_test_number("ATTNREPLAY_SSM_LONG", 8192);
	const int32_t row0[] = { 0, n }, pos0[] = { 1 }, slot[] = { 1 };

	for (int fill = 0; fill < SSM_FILLS; fill++) {
		struct rng r = { 51 };
		struct ssm_call d;
		struct ssm_case c;

		ssm_case_make(&c, &r, &s, fill, n, 2);
		d = to_device(&c, 1);
		prefill_ref(&c, 1, row0, pos0, slot);
		prefill(&d, 1, row0, pos0, slot);
		ok(agrees(&c, &d, n, &prefill_limit, fill_name[fill]),
		   "%d rows of one sequence, %s", n, fill_name[fill]);
		ssm_case_release(&c);
		gpu_free_all();
	}
}

/* ---- times ---- */

static void *random_bf16(size_t n, float scale)
{
	void *p = gpu_new(n * sizeof(bf16_t), 0);
	struct ar_err err;

	gpu_must(layer_fill(p, n, 61, scale, NULL, &err), &err);
	return p;
}

/* Random arrays for n_row rows and n_slot slots. */
static struct ssm_call time_call(const struct ssm_spec *s, int n_row, int n_slot)
{
	const size_t rows = (size_t)n_row, slots = (size_t)n_slot, heads = (size_t)s->heads;
	const size_t channels = (size_t)ssm_channels(s);
	struct ssm_call d = { .spec = *s, .w.eps = 1e-5f };

	d.in_stride = ssm_in_width(s);
	d.in = random_bf16(rows * (size_t)d.in_stride, 1);
	d.w.conv = random_bf16(channels * (size_t)s->conv, 0.5f);
	d.w.conv_bias = random_bf16(channels, 0.25f);
	d.w.norm = random_bf16((size_t)ssm_inner(s), 1);
	d.w.a_log = gpu_new(heads * sizeof(float), 0);
	d.w.dt_bias = gpu_new(heads * sizeof(float), 0);
	d.w.d = gpu_new(heads * sizeof(float), 0);
	d.state.h = gpu_new(slots * ssm_state_len(s) * sizeof(float), 0);
	d.state.tail = gpu_new(slots * ssm_tail_len(s) * sizeof(bf16_t), 0);
	d.out = gpu_new(rows * (size_t)ssm_inner(s) * sizeof(bf16_t), 0);
	d.work = gpu_new(ssm_work_bytes(s, n_slot, n_row), 0);
	return d;
}

/* Median time in ms of prefill, or of decode for b NULL. */
static double time_of(const struct ssm_call *d, const struct state_batch *b, int n_row,
		      const int32_t *slot)
{
	enum { RUNS = 21 };
	cudaEvent_t begin, end;
	double ms[RUNS];

	cudaEventCreate(&begin);
	cudaEventCreate(&end);
	for (int i = 0; i < RUNS; i++) {
		struct ar_err err;
		float t = 0;
		int j = i;

		cudaEventRecord(begin, NULL);
		gpu_must(!b	  ? ssm_decode(d, n_row, slot, &err) :
			 portable ? ssm_prefill_sm80(d, b, &err) :
				    ssm_prefill(d, b, &err),
			 &err);
		cudaEventRecord(end, NULL);
		cudaEventSynchronize(end);
		cudaEventElapsedTime(&t, begin, end);
		for (; j && ms[j - 1] > (double)t; j--)
			ms[j] = ms[j - 1];
		ms[j] = (double)t;
	}
	cudaEventDestroy(begin);
	cudaEventDestroy(end);
	return ms[RUNS / 2];
}

/* Print GB/s of the bytes that must move: the projection and the output; in decode the state, both
 * ways. */
static void print_times(int n_req)
{
	enum { N = 32768, MANY = 256 };
	static const struct ssm_spec s = { 64, 64, 8, 128, 4, 1, 1, 128, 4, 0, 0 };
	const double row_bytes = 2.0 * (ssm_in_width(&s) + ssm_inner(&s));
	int32_t slot[MANY], pos0[MANY], row0[MANY + 1];
	struct state_batch b, on;
	struct ssm_call d = time_call(&s, N, MANY);
	const int32_t *slots;
	double ms;

	for (int i = 0; i < MANY; i++) {
		slot[i] = i;
		pos0[i] = 1;
		row0[i] = N / n_req * i;
	}
	slots = gpu_copy(slot, sizeof slot);
	b = on = state_case_plan(n_req, row0, pos0, slot);
	on.seq = gpu_copy(b.seq, (size_t)b.n_seq * sizeof *b.seq);
	on.chunk = gpu_copy(b.chunk, (size_t)b.n_chunk * sizeof *b.chunk);
	for (int i = 0; i < 2; i++) {
		portable = i;
		ms = time_of(&d, &on, 0, NULL);
		diag("prefill of %d prompts of %d rows, %s: %.3f ms, %.0f GB/s", n_req, N / n_req,
		     kernels(), ms, N * row_bytes / ms / 1e6);
	}
	portable = false;
	for (int n = 1; n <= MANY && n_req == 1; n *= 16) {
		ms = time_of(&d, NULL, n, slots);
		diag("decode of %d rows %.4f ms, %.0f GB/s", n, ms,
		     n * (row_bytes + 8.0 * (double)ssm_state_len(&s)) / ms / 1e6);
	}
	state_case_plan_release(&b);
	gpu_free_all();
}

static void run_all(void)
{
	for (int i = 0; i < 2; i++) {
		portable = i;
		test_random();
		test_cuts();
	}
	portable = false;
	test_ragged();
	test_decode();
	test_long();
	if (gpu_test_number("ATTNREPLAY_SSM_TIME", 0)) {
		print_times(1);
		print_times(8);
		print_times(64);
	}
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
