/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mixer of a gated DeltaNet layer on the device against its references.
 *
 * Prefill rounds q, k, v, u, T, mix, and the state where it is multiplied, to bf16: by 2^-9 of each
 * at most.  Results are sums of many such products.  So their errors have a deviation near 2^-9 of
 * the row and of the element itself.  Allowed are 2^-7 on average and 2^-4 for the worst of all.
 *
 * The norm of a row divides by the row's own size.  In a row whose terms cancel, errors that are
 * small beside the other rows of its head grow by it.  So its errors are measured by the others'
 * size.
 *
 * When all keys are equal, the u of up to 64 rows cancel to one value.  Their errors add up to
 * sqrt(64) 2^-9, and the errors of the largest values of 64 rows meet small results.  Then 2^-6 and
 * 2^-1 are allowed.  Decode computes in fp32.
 *
 * ATTNREPLAY_DELTA_CASES: random cases.  ATTNREPLAY_DELTA_LONG: rows of the long sequences.
 * ATTNREPLAY_DELTA_TIME=1: also print times.
 */
#include "config.h"
#include "kernels/delta/delta.h"

#include "tests/gpu_test.h"
#include "tests/tap.h"

#if HAVE_CUDA

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/delta/delta_work.h"
#include "kernels/layer/layer.h"
#include "tests/delta_case.h"
#include "tests/state_case.h"

enum { N_TEST = 21 };

/* Run the kernels for all devices, also where others are there. */
static bool portable;

static const char *const fill_name[DELTA_FILLS] = { "mixed", "keep", "forget", "repeat" };

/* ---- both sides ---- */

/* The case on the device.  Its work is for all rows. */
static struct delta_call to_device(const struct delta_case *c, int max_req)
{
	const struct delta_spec *s = &c->call.spec;
	const size_t heads = (size_t)s->v_heads;
	struct delta_call d = c->call;

	d.w.conv = gpu_copy(d.w.conv, (size_t)(delta_channels(s) * s->conv) * sizeof *d.w.conv);
	d.w.a_log = gpu_copy(d.w.a_log, heads * sizeof *d.w.a_log);
	d.w.dt_bias = gpu_copy(d.w.dt_bias, heads * sizeof *d.w.dt_bias);
	d.w.norm = gpu_copy(d.w.norm, (size_t)s->v_dim * sizeof *d.w.norm);
	d.qkvz = gpu_copy(d.qkvz, delta_case_qkvz(c) * sizeof *d.qkvz);
	d.ba = gpu_copy(d.ba, delta_case_ba(c) * sizeof *d.ba);
	d.state.s = gpu_copy(d.state.s, delta_case_state(c) * sizeof *d.state.s);
	d.state.tail = gpu_copy(d.state.tail, delta_case_tail(c) * sizeof *d.state.tail);
	d.out = gpu_new(delta_case_out(c) * sizeof *d.out, 0xff);
	d.work = gpu_new(delta_work_bytes(s, max_req, c->n_row), 0xff);
	return d;
}

static struct state_batch plan_to_device(const struct state_batch *b)
{
	struct state_batch d = *b;

	d.seq = gpu_copy(b->seq, (size_t)b->n_seq * sizeof *b->seq);
	d.chunk = gpu_copy(b->chunk, (size_t)b->n_chunk * sizeof *b->chunk);
	return d;
}

static void prefill(const struct delta_call *d, int n_req, const int32_t *row0, const int32_t *pos0,
		    const int32_t *slot)
{
	struct state_batch b = state_case_plan(n_req, row0, pos0, slot), on = plan_to_device(&b);
	struct ar_err err;

	gpu_must((portable ? delta_prefill_sm80 : delta_prefill)(d, &on, &err), &err);
	state_case_plan_release(&b);
}

static const char *kernels(void)
{
	return portable ? "kernels for all devices" : "kernels of this device";
}

/* ---- sizes of rows before their norm ---- */

static struct sizes {
	double *row;   /* [row][value head] root mean square, of the last reference; 0: not known */
	double *usual; /* [row][value head] the same over all rows of the head */
} sizes;

static double sum_of_squares(const bf16_t *x, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += (double)bf16_to_f32(x[i]) * (double)bf16_to_f32(x[i]);
	return sum;
}

/* raw: the output without the division by a row's size, which eps outweighs. */
static void set_sizes(const struct delta_case *c, const bf16_t *raw, int n_row, double eps)
{
	const int heads = c->call.spec.v_heads, dim = c->call.spec.v_dim;
	const size_t n = (size_t)(c->n_row * heads + 1);

	free(sizes.row);
	free(sizes.usual);
	sizes.row = gpu_host(n * sizeof *sizes.row);
	sizes.usual = gpu_host(n * sizeof *sizes.usual);
	memset(sizes.row, 0, n * sizeof *sizes.row);
	memset(sizes.usual, 0, n * sizeof *sizes.usual);
	for (int h = 0; h < heads; h++) {
		double sum = 0;

		for (int r = 0; r < n_row; r++) {
			size_t at = (size_t)(r * heads + h), from = at * (size_t)dim;
			double own = sum_of_squares(c->call.out + from, dim);

			if (own > 0)
				sizes.row[at] = sqrt(eps * sum_of_squares(raw + from, dim) / own);
			sum += sizes.row[at] * sizes.row[at];
		}
		for (int r = 0; r < n_row; r++)
			sizes.usual[r * heads + h] = sqrt(sum / n_row);
	}
}

/* How many times its own size an error of the row may be. */
static double shrunk(int row, int head, int heads)
{
	double own = sizes.row[row * heads + head], usual = sizes.usual[row * heads + head];

	return own > 0 && own < usual ? usual / own : 1;
}

/* Run the references: b, or for b NULL a decode of n_row rows.  First without a norm, for sizes. */
static void run_ref(const struct delta_case *c, const struct state_batch *b, int n_row,
		    const int32_t *slot)
{
	const size_t out = delta_case_out(c) * sizeof(bf16_t);
	const size_t state = delta_case_state(c) * sizeof(float);
	const size_t tail = delta_case_tail(c) * sizeof(bf16_t);
	struct delta_call raw = c->call;

	raw.w.eps = 1e8f;
	raw.out = gpu_host(out);
	raw.state.s = gpu_host(state);
	raw.state.tail = gpu_host(tail);
	memset(raw.out, 0, out);
	memcpy(raw.state.s, c->call.state.s, state);
	memcpy(raw.state.tail, c->call.state.tail, tail);
	if (b) {
		delta_prefill_ref(&raw, b);
		delta_prefill_ref(&c->call, b);
	} else {
		delta_decode_ref(&raw, n_row, slot);
		delta_decode_ref(&c->call, n_row, slot);
	}
	set_sizes(c, raw.out, n_row, (double)raw.w.eps);
	free(raw.out);
	free(raw.state.s);
	free(raw.state.tail);
}

static void prefill_ref(const struct delta_case *c, int n_req, const int32_t *row0,
			const int32_t *pos0, const int32_t *slot)
{
	struct state_batch b = state_case_plan(n_req, row0, pos0, slot);

	run_ref(c, &b, row0[n_req], slot);
	state_case_plan_release(&b);
}

/* The device's results. */
struct got {
	bf16_t *out, *tail;
	float *state;
};

static struct got read_back(const struct delta_case *c, const struct delta_call *d)
{
	struct got g = { gpu_host(delta_case_out(c) * sizeof *g.out),
			 gpu_host(delta_case_tail(c) * sizeof *g.tail),
			 gpu_host(delta_case_state(c) * sizeof *g.state) };

	gpu_read(g.out, d->out, delta_case_out(c) * sizeof *g.out);
	gpu_read(g.tail, d->state.tail, delta_case_tail(c) * sizeof *g.tail);
	gpu_read(g.state, d->state.s, delta_case_state(c) * sizeof *g.state);
	return g;
}

static void got_free(struct got *g)
{
	free(g->out);
	free(g->tail);
	free(g->state);
}

/* ---- errors ---- */

/* Errors in units of the row's root mean square plus the element: the largest, and of the mean
 * square. */
struct error {
	double worst, mean;
	int row; /* of the largest */
};

static void add_error(struct error *e, double off, int row)
{
	if (!(off <= e->worst)) { /* NaN, too */
		e->worst = off <= 1e30 ? off : 1e30;
		e->row = row;
	}
	e->mean += off * off;
}

/* Error of rows [0, n_row), before the norm's weight and the gate.  The rounding of both results
 * does not count, as it may take them to neighbours in bf16.  A weight near 0 divides by little:
 * then the result is 0 within its rounding. */
static struct error out_error(const struct delta_case *c, const struct got *g, int n_row)
{
	const struct delta_call *call = &c->call;
	const int heads = call->spec.v_heads, dim = call->spec.v_dim;
	struct error e = { 0, 0, -1 };
	size_t n = 0;

	for (int r = 0; r < n_row; r++)
		for (int i = 0; i < heads * dim; i++, n++) {
			float z =
				bf16_to_f32(call->qkvz[(size_t)r * (size_t)call->qkvz_stride +
						       (size_t)(delta_channels(&call->spec) + i)]);
			float factor =
				fabsf(z / (1 + expf(-z)) * bf16_to_f32(call->w.norm[i % dim]));
			float want = bf16_to_f32(call->out[n]), have = bf16_to_f32(g->out[n]);
			float off = fabsf(have - want) - 0x1p-7f * fabsf(want);
			double unit = (double)(factor + fabsf(want) + 1e-6f) *
				      shrunk(r, i / dim, heads);

			add_error(&e, off > 0 || isnan(off) ? (double)off / unit : 0, r);
		}
	e.mean = n ? sqrt(e.mean / (double)n) : 0;
	return e;
}

/* Of the states in slots, by the root mean square of a head's state; others must be untouched. */
static struct error state_error(const struct delta_case *c, const struct got *g)
{
	const size_t head = (size_t)(c->call.spec.k_dim * c->call.spec.v_dim);
	struct error e = { 0, 0, -1 };

	for (size_t i = 0; i < delta_case_state(c); i += head) {
		const float *want = c->call.state.s + i;
		double sum = 1e-12;

		for (size_t j = 0; j < head; j++)
			sum += (double)want[j] * (double)want[j];
		for (size_t j = 0; j < head; j++)
			add_error(&e,
				  fabs((double)(g->state[i + j] - want[j])) /
					  (sqrt(sum / (double)head) + fabs((double)want[j])),
				  (int)(i / head));
	}
	e.mean = sqrt(e.mean / (double)delta_case_state(c));
	return e;
}

struct limit {
	double worst, mean;
};
static const struct limit prefill_limit[DELTA_FILLS] = {
	{ 0x1p-4, 0x1p-7 }, { 0x1p-4, 0x1p-7 }, { 0x1p-4, 0x1p-7 }, { 0x1p-1, 0x1p-6 }
};
static const struct limit decode_limit = { 1e-4, 1e-5 };

/* Compare n_row rows, all states and tails.  Prints the errors if they are too large. */
static bool agrees(const struct delta_case *c, const struct delta_call *d, int n_row,
		   const struct limit *limit, const char *what)
{
	struct got g = read_back(c, d);
	struct error out = out_error(c, &g, n_row), state = state_error(c, &g);
	bool tails = !memcmp(g.tail, c->call.state.tail, delta_case_tail(c) * sizeof *g.tail);
	bool good = tails && out.worst <= limit->worst && out.mean <= limit->mean &&
		    state.worst <= limit->worst && state.mean <= limit->mean;
	const struct delta_spec *s = &c->call.spec;

	if (!good || getenv("ATTNREPLAY_DELTA_VERBOSE"))
		diag("%s: %d rows, %d key and %d value heads of %d: out off by %.3g (row %d), mean "
		     "%.3g; state by %.3g (head %d), mean %.3g; tails %s",
		     what, c->n_row, s->k_heads, s->v_heads, s->k_dim, out.worst, out.row, out.mean,
		     state.worst, state.row, state.mean, tails ? "equal" : "differ");
	got_free(&g);
	return good;
}

/* ---- tests ---- */

static int below(struct rng *r, int n)
{
	return (int)rng_below(r, (uint64_t)n);
}

static struct delta_spec random_spec(struct rng *r)
{
	const int dim = below(r, 3) ? 128 : 64, keys = 1 + below(r, 3);

	return (struct delta_spec){ keys, keys * (1 + below(r, 4)), dim, dim, 4 };
}

/* Ragged batches of up to four requests, fresh and continued, in slots of any order. */
static bool random_case(struct rng *r, enum delta_fill fill)
{
	enum { SLOTS = 6 };
	const struct delta_spec s = random_spec(r);
	const int n_req = 1 + below(r, 4);
	int32_t row0[5] = { 0 }, pos0[4], slot[4];
	struct delta_call d;
	struct delta_case c;
	bool good;

	for (int i = 0, first = below(r, SLOTS); i < n_req; i++) {
		row0[i + 1] = row0[i] + (below(r, 4) ? below(r, 200) : 64 * below(r, 3));
		pos0[i] = below(r, 2) * (1 + below(r, 100));
		slot[i] = (first + i) % SLOTS;
	}
	delta_case_make(&c, r, &s, fill, row0[n_req], SLOTS);
	d = to_device(&c, n_req);
	prefill_ref(&c, n_req, row0, pos0, slot);
	prefill(&d, n_req, row0, pos0, slot);
	good = agrees(&c, &d, c.n_row, &prefill_limit[fill], fill_name[fill]);
	delta_case_release(&c);
	gpu_free_all();
	return good;
}

static void test_random(void)
{
	const long cases = gpu_test_number("ATTNREPLAY_DELTA_CASES", 12);

	for (int fill = 0; fill < DELTA_FILLS; fill++) {
		struct rng r = { 21 + (uint64_t)fill };
		int bad = 0;

		for (long i = 0; i < cases; i++)
			bad += !random_case(&r, fill);
		ok(!bad, "prefill of random batches, %s, %s", fill_name[fill], kernels());
	}
}

/* Prefill of one request in pieces that end at the rows of cut. */
static void prefill_cut(const struct delta_call *d, int n, const int32_t *cut)
{
	for (int i = 0; i < n; i++)
		prefill(d, 1, &cut[i], &cut[i], &(int32_t){ 1 });
}

static bool equal(const struct delta_case *c, const struct got *a, const struct got *b)
{
	return !memcmp(a->out, b->out, delta_case_out(c) * sizeof *a->out) &&
	       !memcmp(a->tail, b->tail, delta_case_tail(c) * sizeof *a->tail) &&
	       !memcmp(a->state, b->state, delta_case_state(c) * sizeof *a->state);
}

static void test_cuts(void)
{
	static const struct delta_spec s = { 1, 2, 128, 128, 4 };
	static const int32_t even[] = { 0, 64, 256, 300 }, odd[] = { 0, 1, 3, 66, 129, 299, 300 };
	struct rng r = { 31 };
	struct delta_call d[3];
	struct delta_case c;
	struct got whole, cut;

	delta_case_make(&c, &r, &s, DELTA_MIXED, 300, 2);
	for (int i = 0; i < 3; i++)
		d[i] = to_device(&c, 1);
	prefill_ref(&c, 1, (int32_t[]){ 0, 300 }, &(int32_t){ 0 }, &(int32_t){ 1 });
	prefill_cut(&d[0], 1, (int32_t[]){ 0, 300 });
	prefill_cut(&d[1], 3, even);
	prefill_cut(&d[2], 6, odd);
	whole = read_back(&c, &d[0]);
	cut = read_back(&c, &d[1]);
	ok(equal(&c, &whole, &cut), "cuts at multiples of 64 rows change no bit, %s", kernels());
	ok(agrees(&c, &d[2], 300, &prefill_limit[DELTA_MIXED], "cuts"),
	   "other cuts agree with the reference, %s", kernels());
	got_free(&whole);
	got_free(&cut);
	delta_case_release(&c);
	gpu_free_all();
}

/* Jobs that two clusters of thread blocks share on Hopper: more value heads than clusters, and
 * sequences of other lengths. */
static void test_shared(void)
{
	static const struct delta_spec s = { 3, 36, 128, 128, 4 };
	static const int32_t row0[] = { 0, 331, 331 + 70 }, pos0[] = { 0, 9 }, slot[] = { 1, 0 };
	struct rng r = { 33 };
	struct delta_call d[2];
	struct delta_case c;
	struct got all, each;

	delta_case_make(&c, &r, &s, DELTA_MIXED, row0[2], 2);
	for (int i = 0; i < 2; i++)
		d[i] = to_device(&c, 2);
	prefill_ref(&c, 2, row0, pos0, slot);
	prefill(&d[0], 2, row0, pos0, slot);
	for (int i = 0; i < 2; i++)
		prefill(&d[1], 1, &row0[i], &pos0[i], &slot[i]);
	all = read_back(&c, &d[0]);
	each = read_back(&c, &d[1]);
	ok(agrees(&c, &d[0], row0[2], &prefill_limit[DELTA_MIXED], "shared"),
	   "36 value heads agree with the reference");
	ok(equal(&c, &all, &each), "requests by themselves give the same bits");
	got_free(&all);
	got_free(&each);
	delta_case_release(&c);
	gpu_free_all();
}

static void check(cudaError_t e, const char *what)
{
	if (e != cudaSuccess)
		bail_out("%s: %s", what, cudaGetErrorString(e));
}

/* Two calls, one after the other, from a graph. */
static cudaGraphExec_t record(struct delta_call d, const struct state_batch *b)
{
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	struct ar_err err;

	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	d.stream = stream;
	check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
	for (int i = 0; i < 2; i++)
		gpu_must(delta_prefill(&d, b, &err), &err);
	check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
	check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
	check(cudaGraphDestroy(graph), "cudaGraphDestroy");
	check(cudaStreamDestroy(stream), "cudaStreamDestroy");
	return exec;
}

/* Kernels that run side by side, with whatever the work holds before. */
static void test_repeats(void)
{
	enum { TIMES = 16 };
	static const struct delta_spec s = { 3, 15, 128, 128, 4 };
	static const int32_t row0[] = { 0, 700, 741, 742 }, pos0[3], slot[] = { 2, 0, 1 };
	struct state_batch b = state_case_plan(3, row0, pos0, slot), on = plan_to_device(&b);
	struct rng r = { 34 };
	struct delta_call d;
	struct delta_case c;
	struct got first, got;
	cudaGraphExec_t exec;
	int bad = 0;

	delta_case_make(&c, &r, &s, DELTA_MIXED, row0[3], 3);
	d = to_device(&c, 3);
	exec = record(d, &on);
	prefill(&d, 3, row0, pos0, slot);
	first = read_back(&c, &d);
	for (int i = 0; i < TIMES; i++) {
		struct ar_err err;

		gpu_fill(d.out, delta_case_out(&c) * sizeof *d.out, 0xff);
		gpu_fill(d.work, delta_work_bytes(&s, 3, c.n_row), i / 2 % 2 ? 0xff : 1);
		if (i % 2)
			gpu_must(delta_prefill(&d, &on, &err), &err);
		else
			check(cudaGraphLaunch(exec, NULL), "cudaGraphLaunch");
		got = read_back(&c, &d);
		bad += !equal(&c, &first, &got);
		got_free(&got);
	}
	ok(!bad, "repeats give the same bits, alone and from a graph");
	check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
	got_free(&first);
	state_case_plan_release(&b);
	delta_case_release(&c);
	gpu_free_all();
}

/* Copy the device's state into the case, so that decode is compared by itself. */
static void adopt(struct delta_case *c, const struct delta_call *d)
{
	gpu_read(c->call.state.s, d->state.s, delta_case_state(c) * sizeof(float));
}

/* Decode after prefill, step after step.  Slot 0 is for padded rows. */
static bool decode_case(struct rng *r, enum delta_fill fill)
{
	enum { SLOTS = 5, ROWS = 6, REAL = 4 };
	static const int32_t row0[] = { 0, 1, 2, 4, 6 }, pos0[REAL] = { 0, 3, 0, 1 };
	static const int32_t slot[ROWS] = { 3, 1, 4, 2, 0, 0 };
	const struct delta_spec s = random_spec(r);
	const int32_t *slots = gpu_copy(slot, sizeof slot);
	struct delta_call d;
	struct delta_case c;
	struct ar_err err;
	struct got g;
	bool good = true;

	delta_case_make(&c, r, &s, fill, ROWS, SLOTS);
	d = to_device(&c, REAL);
	prefill_ref(&c, REAL, row0, pos0, slot);
	prefill(&d, REAL, row0, pos0, slot);
	for (int i = 0; i < 3; i++) {
		const size_t scratch = delta_state_len(&s), tail = delta_tail_len(&s);

		adopt(&c, &d);
		gpu_must((portable ? delta_decode_sm80 : delta_decode)(&d, ROWS, slots, &err),
			 &err);
		run_ref(&c, NULL, REAL, slot);
		g = read_back(&c, &d);
		for (size_t j = 0; j < scratch; j++)
			good &= isfinite(g.state[j]);
		memcpy(c.call.state.s, g.state, scratch * sizeof(float));
		memcpy(c.call.state.tail, g.tail, tail * sizeof(bf16_t));
		got_free(&g);
		good &= agrees(&c, &d, REAL, &decode_limit, "decode");
	}
	delta_case_release(&c);
	gpu_free_all();
	return good;
}

static void test_decode(void)
{
	const long cases = gpu_test_number("ATTNREPLAY_DELTA_CASES", 12);
	struct rng r = { 41 };
	int bad = 0;

	for (long i = 0; i < cases; i++)
		bad += !decode_case(&r, i % DELTA_FILLS);
	ok(!bad, "decode after prefill, with padded rows, %s", kernels());
}

/* Nothing drifts in a long sequence. */
static void test_long(void)
{
	static const struct delta_spec s = { 1, 2, 128, 128, 4 };
	const int n = (int)gpu_test_number("ATTNREPLAY_DELTA_LONG", 32768);
	const int32_t row0[] = { 0, n }, pos0[] = { 1 }, slot[] = { 1 };

	for (int fill = 0; fill < DELTA_FILLS; fill++) {
		struct rng r = { 51 };
		struct delta_call d;
		struct delta_case c;

		delta_case_make(&c, &r, &s, fill, n, 2);
		d = to_device(&c, 1);
		prefill_ref(&c, 1, row0, pos0, slot);
		prefill(&d, 1, row0, pos0, slot);
		ok(agrees(&c, &d, n, &prefill_limit[fill], fill_name[fill]),
		   "%d rows of one sequence, %s", n, fill_name[fill]);
		delta_case_release(&c);
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
static struct delta_call time_call(const struct delta_spec *s, int n_row, int n_slot)
{
	const size_t rows = (size_t)n_row, slots = (size_t)n_slot;
	const size_t channels = (size_t)delta_channels(s), heads = (size_t)s->v_heads;
	struct delta_call d = { .spec = *s, .w.eps = 1e-6f };

	d.qkvz_stride = delta_qkvz_width(s);
	d.ba_stride = delta_ba_width(s);
	d.qkvz = random_bf16(rows * (size_t)d.qkvz_stride, 1);
	d.ba = random_bf16(rows * (size_t)d.ba_stride, 1);
	d.w.conv = random_bf16(channels * (size_t)s->conv, 0.5f);
	d.w.norm = random_bf16((size_t)s->v_dim, 1);
	d.w.a_log = gpu_new(heads * sizeof(float), 0);
	d.w.dt_bias = gpu_new(heads * sizeof(float), 0);
	d.state.s = gpu_new(slots * delta_state_len(s) * sizeof(float), 0);
	d.state.tail = gpu_new(slots * delta_tail_len(s) * sizeof(bf16_t), 0);
	d.out = gpu_new(rows * heads * (size_t)s->v_dim * sizeof(bf16_t), 0);
	d.work = gpu_new(delta_work_bytes(s, n_slot, n_row), 0);
	return d;
}

/* Median time in ms of prefill, or of decode for b NULL. */
static double time_of(const struct delta_call *d, const struct state_batch *b, int n_row,
		      const int32_t *slot)
{
	enum { RUNS = 11 };
	cudaEvent_t begin, end;
	double ms[RUNS];

	cudaEventCreate(&begin);
	cudaEventCreate(&end);
	for (int i = 0; i < RUNS; i++) {
		struct ar_err err;
		float t = 0;
		int j = i;

		cudaEventRecord(begin, NULL);
		gpu_must(b ? delta_prefill(d, b, &err) : delta_decode(d, n_row, slot, &err), &err);
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
static void print_times(int tp)
{
	enum { N = 32768, MANY = 256 };
	const struct delta_spec s = { 16 / tp, 32 / tp, 128, 128, 4 };
	const int32_t row0[] = { 0, N }, pos0[] = { 1 };
	const double row_bytes = 2.0 * (delta_qkvz_width(&s) + s.v_heads * s.v_dim);
	int32_t slot[MANY];
	struct state_batch b, on;
	struct delta_call d = time_call(&s, N, MANY);
	const int32_t *slots;
	double ms;

	for (int i = 0; i < MANY; i++)
		slot[i] = i;
	slots = gpu_copy(slot, sizeof slot);
	b = state_case_plan(1, row0, pos0, slot);
	on = plan_to_device(&b);
	ms = time_of(&d, &on, 0, NULL);
	diag("tp %d: prefill of %d rows %.3f ms, %.0f GB/s", tp, N, ms, N * row_bytes / ms / 1e6);
	for (int n = 1; n <= MANY; n *= 16) {
		ms = time_of(&d, NULL, n, slots);
		diag("tp %d: decode of %d rows %.4f ms, %.0f GB/s", tp, n, ms,
		     n * (row_bytes + 8.0 * (double)delta_state_len(&s)) / ms / 1e6);
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
		test_decode();
	}
	portable = false;
	test_shared();
	test_repeats();
	test_long();
	if (gpu_test_number("ATTNREPLAY_DELTA_TIME", 0)) {
		print_times(1);
		print_times(8);
	}
}
#else
enum { N_TEST = 21 };
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
