/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA attention kernels against the reference, on random ragged batches.  A second launch must
 * give the same bits, although the parts of a tile finish in another order each time.
 *
 * Cases are numbered, and successive cases take different settings.  ATTNREPLAY_TEST_CASES (600) is
 * the number of cases, ATTNREPLAY_TEST_FIRST (0) the first case, ATTNREPLAY_TEST_SEED (1) the seed.
 * A case depends only on its number and the seed, so several processes can share the work.
 */
#include "config.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attend/attend_cut.h"
#include "tests/batch_case.h"
#include "tests/gpu_test.h"
#include "tests/tap.h"

enum { N_SETTING = 42, N_TEST = N_SETTING + 11 };

#if HAVE_CUDA
#include <cuda_runtime_api.h>

enum { PAGE = 128 };

/* Errors that a comparison found; all 0: none. */
struct verdict {
	double worst; /* largest excess over the tolerance */
	int bad_abs, bad_l2, bad_zero, bad_lse;
	int bad_repeat; /* launches whose bits are not the first one's */
};

static void compare(struct verdict *v, const bf16_t *got, const bf16_t *want, size_t n,
		    const float *got_lse, const float *want_lse, size_t n_row)
{
	double diff = 0, norm = 0;

	for (size_t i = 0; i < n; i++) {
		double w = bf16_to_f32(want[i]), e = fabs(bf16_to_f32(got[i]) - w);
		double excess = e - 2e-2 * fmax(1, fabs(w));

		v->bad_abs += !(excess <= 0);
		if (!(excess <= v->worst))
			v->worst = excess;
		diff += e * e;
		norm += w * w;
	}
	v->bad_l2 += !(sqrt(diff) <= 5e-3 * sqrt(norm));
	for (size_t i = 0; want_lse && i < n_row; i++) {
		size_t dim = n / n_row;

		if (want_lse[i] == -INFINITY) {
			v->bad_lse += got_lse[i] != -INFINITY;
			for (size_t d = 0; d < dim; d++)
				v->bad_zero += got[i * dim + d] != 0;
		} else {
			v->bad_lse += !(fabs((double)got_lse[i] - want_lse[i]) <=
					1e-3 + 1e-5 * fabs(want_lse[i]));
		}
	}
}

static bool clean(const struct verdict *v)
{
	return !v->bad_abs && !v->bad_l2 && !v->bad_zero && !v->bad_lse && !v->bad_repeat;
}

/* ---- prefill ---- */

struct setting {
	const char *executor, *what;
	double density; /* 2: no lists */
	enum case_fill fill;
	int heads; /* of a table; -1: any number of a group */
	int n_sm;  /* tiles are cut for up to as many multiprocessors */
	int room;  /* tiles are given up to as many parts, whatever their length */
	int dim;   /* 0: any that every device takes */
	bool no_lse, tail;
	bool window, sinks;
};

static const struct setting settings[N_SETTING] = {
	{ "paged", "dense", .density = 2 },
	{ "paged", "dense, huge scores", .density = 2, .fill = FILL_HUGE },
	{ "paged", "dense, equal scores", .density = 2, .fill = FILL_EQUAL },
	{ "paged", "dense, rising scores", .density = 2, .fill = FILL_RISING },
	{ "paged", "dense, without log-sum-exp", .density = 2, .no_lse = true },
	{ "paged", "random tables, some empty, any group size", .density = 0.3, .heads = -1 },
	{ "paged", "random tables, huge scores", .density = 0.3, .fill = FILL_HUGE, .heads = -1 },
	{ "paged", "dense, in parts", .density = 2, .n_sm = 300 },
	{ "paged", "dense, in parts, huge scores", .density = 2, .fill = FILL_HUGE, .n_sm = 300 },
	{ "paged", "dense, in up to nine parts", .density = 2, .room = 9 },
	{ "paged", "tables in parts, some shorter than their number", .density = 0.1, .heads = -1,
	  .room = 9 },
	{ "paged", "random tables beside a tail", .density = 0.3, .heads = -1, .tail = true },
	{ "paged", "tables in parts beside a tail", .density = 0.1, .heads = -1, .room = 9,
	  .tail = true },
	{ "blocksparse", "dense", .density = 2 },
	{ "blocksparse", "dense, in parts", .density = 2, .room = 4 },
	{ "blocksparse", "random lists, some empty", .density = 0.2 },
	{ "blocksparse", "random lists, huge scores", .density = 0.2, .fill = FILL_HUGE },
	{ "blocksparse", "full lists, equal scores", .density = 1, .fill = FILL_EQUAL },
	{ "blocksparse", "random lists, rising scores", .density = 0.4, .fill = FILL_RISING },
	{ "blocksparse", "random lists, cut by their lengths", .density = 0.5, .room = 6 },
	{ "blocksparse", "the same without log-sum-exp", .density = 0.7, .room = 6,
	  .no_lse = true },
	{ "blocksparse", "random tables, some empty, any group size", .density = 0.3, .heads = -1 },
	{ "blocksparse", "random tables, cut by their lengths", .density = 0.5, .heads = -1,
	  .room = 6 },
	{ "blocksparse", "random tables beside a tail, cut by their lengths", .density = 0.5,
	  .heads = -1, .room = 6, .tail = true },
	{ "paged", "head size 256, dense, in parts", .density = 2, .n_sm = 300, .dim = 256 },
	{ "paged", "head size 256, random tables", .density = 0.3, .heads = -1, .dim = 256 },
	{ "blocksparse", "head size 256, random lists, huge scores", .density = 0.2,
	  .fill = FILL_HUGE, .dim = 256 },
	{ "paged", "head size 256, dense, rising scores", .density = 2, .fill = FILL_RISING,
	  .dim = 256 },
	{ "blocksparse", "head size 256, cut by their lengths", .density = 0.5, .room = 6,
	  .dim = 256 },
	{ "paged", "windows", .density = 2, .window = true },
	{ "paged", "windows and sinks", .density = 2, .window = true, .sinks = true },
	{ "paged", "windows and sinks, huge scores", .density = 2, .fill = FILL_HUGE,
	  .window = true, .sinks = true },
	{ "paged", "windows, rising scores", .density = 2, .fill = FILL_RISING, .window = true },
	{ "paged", "windows and sinks in parts, without log-sum-exp", .density = 2, .n_sm = 300,
	  .no_lse = true, .window = true, .sinks = true },
	{ "paged", "windows in more parts than blocks", .density = 2, .room = 9, .window = true },
	{ "paged", "sinks in more parts than blocks", .density = 2, .room = 9, .sinks = true },
	{ "paged", "random tables with sinks, some empty", .density = 0.3, .heads = -1,
	  .sinks = true },
	{ "blocksparse", "windows and sinks", .density = 2, .window = true, .sinks = true },
	{ "blocksparse", "random lists with sinks, cut by their lengths", .density = 0.5, .room = 6,
	  .sinks = true },
	{ "paged", "head size 256, windows", .density = 2, .window = true, .dim = 256 },
	{ "paged", "head size 256, windows and sinks in parts", .density = 2, .room = 5,
	  .window = true, .sinks = true, .dim = 256 },
	{ "blocksparse", "head size 256, lists with sinks", .density = 0.3, .sinks = true,
	  .dim = 256 },
};

/* The plan whose tiles have the lists of the setting. */
static attend_plan_fn *plan_of(const struct setting *t)
{
	return strcmp(t->executor, "paged") && !t->heads ? attend_plan_blocks : attend_plan_rows;
}

/* Every whole tile becomes up to most parts, however short: even ones, or a level of which the last
 * ones may be empty. */
static void give_room(struct batch_case *c, int most, struct rng *rng)
{
	struct attn_tile *tile = gpu_host((size_t)(c->b.n_tile * most) * sizeof *tile);
	int n = 0;

	for (int i = 0; i < c->b.n_tile; i++) {
		struct attn_tile t = c->tile[i];
		int first = c->b.rows.first ? c->b.rows.first[t.row] : 0;
		int blk = (t.pos + t.n_row - 1) / c->b.shape.page_tok + 1 -
			  first / c->b.shape.page_tok;

		t.n_part = (int16_t)(1 + (int)rng_below(rng, (uint64_t)most));
		if (rng_below(rng, 2))
			t.len = blk / t.n_part + 1 + (int)rng_below(rng, 3);
		t.place = n;
		for (t.part = 0; t.part < t.n_part; t.part++)
			tile[n++] = t;
	}
	free(c->tile);
	c->b.tile = c->tile = tile;
	c->b.n_tile = n;
	c->b.n_part = executor_count_parts(tile, n);
}

/* The same batch with its tiles on the device, in parts where the device takes them; returns the
 * bytes of work. */
static size_t plan_batch(struct batch_case *c, const struct setting *t, struct attn_batch *b,
			 struct rng *rng)
{
	const struct executor *x = executor_find(t->executor);
	struct attn_limits most = { c->b.rows.n_req, c->b.rows.n_row, c->b.keys.max_kv_blk, 0, 0 };
	int n_sm = gpu_n_sm();

	c->b.n_sm = n_sm && t->n_sm ? 1 + (int)rng_below(rng, (uint64_t)t->n_sm) : 0;
	c->b.tail = t->tail ? 1 + (int)rng_below(rng, 4) : 0;
	case_plan(c, x->plan, t->heads);
	if (n_sm && t->room) {
		give_room(c, t->room, rng);
		c->b.n_sm = 1 + (int)rng_below(rng, 300);
	}
	*b = gpu_batch(&c->b);
	most.n_sm = c->b.n_tile / EXECUTOR_WAVES + 1;
	return x->work_bytes(&c->b.shape, &most, t->heads);
}

/* Arguments of a launch, all on the device. */
struct launch {
	const struct executor *x;
	struct attn_batch b;
	struct executor_lists lists;
	bf16_t *q, *out;
	struct kv_cache kv;
	float *lse, *sink; /* NULL: not asked for, none */
	void *work;
	size_t bytes, lse_bytes, work_bytes;
};

static void launch(const struct launch *l, void *stream)
{
	struct ar_err err;

	if (l->x->enqueue(&(struct attn_call){ .b = &l->b,
					       .q = l->q,
					       .kv = l->kv,
					       .sink = l->sink,
					       .out = l->out,
					       .lse = l->lse,
					       .work = l->work,
					       .stream = stream },
			  &l->lists, &err))
		bail_out("%s", err.msg);
}

static void read_launch(const struct launch *l, bf16_t *out, float *lse)
{
	gpu_read(out, l->out, l->bytes);
	if (l->lse)
		gpu_read(lse, l->lse, l->lse_bytes);
}

static void check(cudaError_t e, const char *what)
{
	if (e != cudaSuccess)
		bail_out("%s: %s", what, cudaGetErrorString(e));
}

/* Two launches, one after the other, from a graph. */
static cudaGraphExec_t record(const struct launch *l)
{
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
	launch(l, stream);
	launch(l, stream);
	check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
	check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
	check(cudaGraphDestroy(graph), "cudaGraphDestroy");
	check(cudaStreamDestroy(stream), "cudaStreamDestroy");
	return exec;
}

/* Repeat the launch, alone and from a graph, over memory full of NaN.  Return how many repeats
 * differ in a bit from out and lse, the results of the first. */
static int repeat(const struct launch *l, const bf16_t *out, const float *lse)
{
	enum { TIMES = 4 };
	bf16_t *got = gpu_host(l->bytes);
	float *got_lse = gpu_host(l->lse_bytes);
	cudaGraphExec_t exec = record(l);
	int bad = 0;

	for (int i = 0; i < TIMES; i++) {
		gpu_fill(l->out, l->bytes, 0xff);
		gpu_fill(l->work, l->work_bytes, 0xff);
		if (i % 2)
			launch(l, NULL);
		else
			check(cudaGraphLaunch(exec, NULL), "cudaGraphLaunch");
		read_launch(l, got, got_lse);
		bad += memcmp(got, out, l->bytes) || (l->lse && memcmp(got_lse, lse, l->lse_bytes));
	}
	check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
	free(got);
	free(got_lse);
	return bad;
}

static void attend_both(struct verdict *v, struct batch_case *c, const struct setting *t,
			struct rng *rng)
{
	struct executor_lists l = { .heads = t->heads };
	int n_list = case_n_list(c, plan_of(t), t->heads);
	size_t bytes = c->q_len * sizeof(bf16_t);
	size_t n_row = c->q_len / (size_t)c->b.shape.head_dim, lse_bytes = n_row * sizeof(float);
	bf16_t *got = gpu_host(bytes), *want = gpu_host(bytes);
	float *got_lse = gpu_host(lse_bytes), *want_lse = gpu_host(lse_bytes);
	struct launch d = {
		.x = executor_find(t->executor), .lists = l, .bytes = bytes, .lse_bytes = lse_bytes
	};
	struct ar_err err;

	if (t->density <= 1)
		case_lists(c, n_list, t->density, &l.blocks, rng);
	d.work_bytes = plan_batch(c, t, &d.b, rng);
	d.work = gpu_new(d.work_bytes, 0xff);
	d.kv = gpu_kv(&c->kv, c->kv_len);
	d.lists.blocks = gpu_lists(&l.blocks, n_list);
	d.q = gpu_copy(c->q, bytes);
	d.out = gpu_new(bytes, 0xff);
	d.lse = t->no_lse ? NULL : gpu_new(lse_bytes, 0xff);
	if (c->sink)
		d.sink = gpu_copy(c->sink, (size_t)c->b.shape.q_heads * sizeof *d.sink);
	launch(&d, NULL);
	read_launch(&d, got, got_lse);
	if (d.x->ref(&(struct attn_call){ .b = &c->b,
					  .q = c->q,
					  .kv = c->kv,
					  .sink = c->sink,
					  .out = want,
					  .lse = want_lse },
		     &l, &err))
		bail_out("%s", err.msg);
	compare(v, got, want, c->q_len, got_lse, t->no_lse ? NULL : want_lse, n_row);
	v->bad_repeat += repeat(&d, got, got_lse);
	gpu_free_all();
	lists_free(&l.blocks);
	free(got);
	free(want);
	free(got_lse);
	free(want_lse);
}

static struct attn_shape draw_shape(struct rng *rng)
{
	int kv_heads = 1 + (int)rng_below(rng, 3), group = 1 << rng_below(rng, 4);

	if (rng_below(rng, 8) == 0)
		group = 1 + (int)rng_below(rng, 20);
	return (struct attn_shape){ .q_heads = kv_heads * group,
				    .kv_heads = kv_heads,
				    .head_dim = rng_below(rng, 2) ? 128 : 64,
				    .page_tok = PAGE };
}

/* Most cases are small: the reference takes the time. */
static void draw_case(struct batch_case *c, const struct setting *t, struct rng *rng)
{
	struct attn_shape s = draw_shape(rng);
	bool large = rng_below(rng, 8) == 0;
	int n_req = 1 + (int)rng_below(rng, 4), ctx[4], rows[4];

	s.head_dim = t->dim ? t->dim : s.head_dim;
	s.page_tok = rng_below(rng, 2) ? 64 : 128;
	for (int r = 0; r < n_req; r++) {
		rows[r] = case_draw_len(rng, large ? 700 : 260);
		ctx[r] = case_draw_len(rng, large ? 5000 : 1500) - 1;
		if (rng_below(rng, 4) == 0)
			ctx[r] = ctx[r] / s.page_tok * s.page_tok;
	}
	case_chunks(c, rng, t->fill, s, n_req, ctx, rows);
}

/* Draw a window of the setting; returns it, -1: none. */
static int draw_bounds(struct batch_case *c, const struct setting *t, struct rng *rng)
{
	const int tok = c->b.shape.page_tok, window[] = { 1, 7, tok, tok + 1, 1000, 100000, 0, 0 };
	int at = (int)rng_below(rng, sizeof window / sizeof *window);

	if (t->window)
		case_window(c, window[at], rng);
	if (t->sinks)
		case_sinks(c, rng);
	return t->window ? window[at] : -1;
}

static void report(const struct verdict *v, const char *name)
{
	ok(clean(v), "%s", name);
	if (!clean(v))
		diag("%d outputs off (%g over), %d tensors, %d zeros, %d lse, %d repeats",
		     v->bad_abs, v->worst, v->bad_l2, v->bad_zero, v->bad_lse, v->bad_repeat);
}

static void run_case(struct verdict *v, const struct setting *t, long seed, long i)
{
	struct rng rng = { rng_mix(rng_mix((uint64_t)seed) + (uint64_t)i) };
	struct setting now = *t;
	struct batch_case c;
	int window;

	draw_case(&c, t, &rng);
	window = draw_bounds(&c, t, &rng);
	if (t->heads < 0)
		now.heads = 1 + (int)rng_below(&rng,
					       (uint64_t)(c.b.shape.q_heads / c.b.shape.kv_heads));
	attend_both(v, &c, &now, &rng);
	if (!clean(v))
		diag("seed %ld, case %ld: %d q heads, %d kv heads, size %d, pages of %d, %d "
		     "requests, heads %d, %d tiles, window %d",
		     seed, i, c.b.shape.q_heads, c.b.shape.kv_heads, c.b.shape.head_dim,
		     c.b.shape.page_tok, c.b.rows.n_req, now.heads, c.b.n_tile, window);
	case_release(&c);
}

/* A setting whose verdict is not clean has no more cases. */
static void test_settings(long first, long cases, long seed, bool any_dim)
{
	struct verdict v[N_SETTING] = { { 0 } };

	for (long i = first; i < first + cases; i++) {
		const struct setting *t = &settings[i % N_SETTING];

		if (clean(&v[i % N_SETTING]) && (any_dim || t->dim <= 128))
			run_case(&v[i % N_SETTING], t, seed, i);
	}
	for (int k = 0; k < N_SETTING; k++) {
		char name[160];

		snprintf(name, sizeof name, "%s: %s", settings[k].executor, settings[k].what);
		if (any_dim || settings[k].dim <= 128)
			report(&v[k], name);
		else
			skip(1, "no kernel for head size 256");
	}
}

/* Few rows after many tokens: tables in up to 39 parts, more than a warp has lanes; lists with room
 * for some, as the plan gives it. */
static void test_many_parts(const struct setting *t, long seed)
{
	static const int ctx[] = { 40000, 33000, 900, 3000 }, rows[] = { 3, 1, 2, 130 };
	struct verdict v = { 0 };
	struct rng rng = { rng_mix((uint64_t)seed) };
	char name[160];

	for (int i = 0; i < 4 && clean(&v); i++) {
		struct attn_shape s = { 4, 1 + i / 2, i % 2 ? 64 : 128, i % 3 ? 64 : 128 };
		struct batch_case c;

		case_chunks(&c, &rng, FILL_NORMAL, s, 1 + i, ctx, rows);
		if (t->window)
			case_window(&c, 15000, &rng);
		attend_both(&v, &c, t, &rng);
		case_release(&c);
	}
	snprintf(name, sizeof name, "%s: %s", t->executor, t->what);
	report(&v, name);
}

/* More tiles than the device runs thread blocks at once, so that each runs several.  With n_sm, the
 * last lists of the plan are sorted where a block has 128 tokens. */
static void test_many_tiles(const struct setting *t, long seed)
{
	static const int ctx[] = { 1, 70, 130, 400, 3500 }, rows[] = { 500, 257, 64, 1, 200 };
	struct verdict v = { 0 };
	struct rng rng = { rng_mix((uint64_t)seed) };
	char name[160];

	for (int i = 0; i < 4 && clean(&v); i++) {
		struct attn_shape s = { 24, 3, i % 2 ? 64 : 128, i / 2 ? 64 : 128 };
		struct batch_case c;

		case_chunks(&c, &rng, FILL_NORMAL, s, t->n_sm ? 5 : 4, ctx, rows);
		attend_both(&v, &c, t, &rng);
		if (c.b.n_tile <= gpu_n_sm())
			bail_out("%d tiles are not enough", c.b.n_tile);
		if (c.b.n_sm && (attend_cut_tiles(&c.b) > 0) != (i < 2))
			bail_out("the wrong tiles are sorted");
		case_release(&c);
	}
	snprintf(name, sizeof name, "%s: %s", t->executor, t->what);
	report(&v, name);
}

/* ---- fewer multiprocessors ---- */

static bool refuses; /* whether launches fail whose thread blocks must all run at once */
static int n_refused;

/* Kernels call this one instead of the runtime's. */
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *kernel, void **args)
{
	cudaError_t (*real)(const cudaLaunchConfig_t *, const void *, void **);
	void *found = dlsym(RTLD_NEXT, "cudaLaunchKernelExC");

	memcpy(&real, &found, sizeof real);
	for (unsigned i = 0; refuses && i < c->numAttrs; i++)
		if (c->attrs[i].id == cudaLaunchAttributeCooperative) {
			n_refused++;
			return cudaErrorCooperativeLaunchTooLarge;
		}
	return real(c, kernel, args);
}

/* Parts share rows only if they all run at once. */
static void test_refused(long seed)
{
	static const struct setting t = { "paged", "parts merge where too few run at once",
					  .density = 2, .room = 8 };
	struct verdict v = { 0 };

	refuses = true;
	for (long i = 0; i < 8 && clean(&v); i++)
		run_case(&v, &t, seed, i);
	refuses = false;
	v.bad_repeat += gpu_n_sm() && !n_refused;
	report(&v, t.what);
}

/* ---- the rest ---- */

static void test_refusals(void)
{
	const struct executor *x = executor_find("paged");
	struct executor_lists all = { 0 };
	struct attn_batch b = { .shape = { 258, 2, 128, PAGE } };
	struct kv_cache kv = { 0 };
	uint16_t block = 0;
	int32_t n = 0, first = 0;
	struct ar_err err;

	is_int(x->enqueue(&(struct attn_call){ .b = &b, .kv = kv }, &all, &err), AR_USAGE,
	       "attend: more heads per KV head than a tile has rows");
	b.shape.q_heads = 8;
	b.rows.first = &first;
	all.blocks = (struct block_lists){ &block, &n, 1 };
	is_int(x->enqueue(&(struct attn_call){ .b = &b, .kv = kv }, &all, &err), AR_USAGE,
	       "attend: a window under tables");
	b.rows.first = NULL;
	is_int(x->enqueue(&(struct attn_call){ .b = &b, .kv = kv }, &all, &err), AR_OK,
	       "attend: nothing to do");
}

/* Launches that lack an argument, on a machine without a GPU. */
static void test_failure(void)
{
	struct block_lists all = { 0 };
	struct attn_batch b = { .shape = { 8, 2, 128, PAGE }, .rows.n_req = 1, .n_tile = 1 };
	struct kv_cache kv = { 0 };
	const struct gpu *unused;
	struct ar_err err = { 0 };

	ok(attend_enqueue(&(struct attn_call){ .b = &b, .kv = kv }, attend_plan_rows, 0, &all,
			  &err) == AR_CUDA &&
		   err.msg[0] && gpu_current(&unused, &err) == AR_CUDA,
	   "without a GPU a launch fails with a message");
}

int main(void)
{
	static const struct setting many = { "paged", "many parts", .density = 2, .n_sm = 4000 };
	static const struct setting window = { "paged", "many parts of windows", .density = 2,
					       .n_sm = 4000, .window = true };
	static const struct setting lists = { "blocksparse", "long lists", .density = 0.3,
					      .n_sm = 4000 };
	static const struct setting pages = { "paged", "many tiles", .density = 2 };
	static const struct setting short_lists = { "blocksparse", "many tiles", .density = 0.3 };
	static const struct setting last_lists = { "blocksparse", "many tiles, the last sorted",
						   .density = 0.3, .n_sm = 20 };
	long cases = gpu_test_number("ATTNREPLAY_TEST_CASES", 600);
	long seed = gpu_test_number("ATTNREPLAY_TEST_SEED", 1);

	plan(N_TEST);
	test_refusals();
	if (!gpu_usable()) {
		test_failure();
		skip(N_TEST - 4, "no usable GPU");
		return done_testing();
	}
	test_settings(gpu_test_number("ATTNREPLAY_TEST_FIRST", 0), cases, seed, gpu_attends(256));
	test_many_parts(&many, seed + 1);
	test_many_parts(&lists, seed + 2);
	test_many_parts(&window, seed + 3);
	test_many_tiles(&pages, seed + 4);
	test_many_tiles(&short_lists, seed + 5);
	test_many_tiles(&last_lists, seed + 6);
	test_refused(seed + 7);
	skip(1, "there is a GPU");
	return done_testing();
}

#else
int main(void)
{
	plan(N_TEST);
	gpu_usable();
	skip(N_TEST, "no usable GPU");
	return done_testing();
}
#endif
