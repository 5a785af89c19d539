/*
 * How fast the attention kernels are: TFLOP/s of prefill over the (row, key) pairs that are
 * computed, TB/s of decode over the keys and values read once, beside the device's own copy
 * bandwidth (bytes read plus bytes written).  CUDA events, the median of the repeats, random
 * data; the repeats take turns on several copies of the inputs, so that none finds its keys
 * in the L2 cache.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/stats.h"
#include "tests/batch_case.h"
#include "tests/gpu.h"
#include "tests/tap.h"

#if HAVE_CUDA
#include <cuda_runtime_api.h>

enum { PAGE = 128, MAX_REQ = 64, REPEATS = 15, SETS = 3, RANDOM = 1 << 22 };

static bf16_t noise[RANDOM];

/* One line of the table. */
struct line {
	const char *name;
	const char *executor;	/* NULL: decode */
	int n_req, rows, ctx;
	double density;		/* of past blocks; 1: no lists */
	bool mixed;		/* request r has ctx >> r % 8 */
	int dim;		/* head size */
};

static const struct line lines[] = {
	{ "dense",        "paged",       8, 1024,   8192, 1,   false, 128 },
	{ "dense",        "paged",       8, 1024,  32768, 1,   false, 128 },
	{ "dense",        "paged",       8, 1024,  65536, 1,   false, 128 },
	{ "dense",        "paged",       8, 1024, 131072, 1,   false, 128 },
	{ "dense",        "paged",       1,  128,  32768, 1,   false, 128 },
	{ "dense",        "paged",       1,  128, 131072, 1,   false, 128 },
	{ "dense",        "paged",       1,  512,   8192, 1,   false, 128 },
	{ "dense",        "paged",       1,  512,  32768, 1,   false, 128 },
	{ "dense",        "paged",       1,  512, 131072, 1,   false, 128 },
	{ "dense",        "paged",       8, 1024,  32768, 1,   false, 256 },
	{ "dense",        "paged",       1,  512,  32768, 1,   false, 256 },
	{ "dense",        "blocksparse", 8, 1024,  32768, 1,   false, 128 },
	{ "table 30 %",   "paged",       8, 1024,  32768, 0.3, false, 128 },
	{ "table 30 %",   "paged",       8, 1024, 131072, 0.3, false, 128 },
	{ "lists 10 %",   "blocksparse", 8, 1024,  32768, 0.1, false, 128 },
	{ "lists 10 %",   "blocksparse", 8, 1024,  65536, 0.1, false, 128 },
	{ "lists 10 %",   "blocksparse", 8, 1024, 131072, 0.1, false, 128 },
	{ "lists 10 %",   "blocksparse", 1,  512,  65536, 0.1, false, 128 },
	{ "decode",       NULL,          8,    1,  32768, 1,   false, 128 },
	{ "decode",       NULL,          8,    1,  32768, 1,   false, 256 },
	{ "decode",       NULL,          1,    1, 131072, 1,   false, 128 },
	{ "decode",       NULL,         64,    1,   4096, 1,   false, 128 },
	{ "decode mixed", NULL,         64,    1,  65536, 1,   true, 128 },
};

static void check(cudaError_t e)
{
	if (e != cudaSuccess)
		bail_out("%s", cudaGetErrorString(e));
}

static void *random_buffer(size_t bytes)
{
	char *p = gpu_new(bytes, 0);

	for (size_t at = 0; at < bytes; at += sizeof noise) {
		size_t n = bytes - at < sizeof noise ? bytes - at : sizeof noise;

		check(cudaMemcpy(p + at, noise, n, cudaMemcpyHostToDevice));
	}
	return p;
}

/* What one repeat runs, with set number i of the inputs. */
struct task {
	const struct executor *x;	/* NULL: decode, or with copy the copy */
	bool copy;
	struct attn_batch b;
	struct block_lists lists;
	struct kv_cache kv;
	bf16_t *q, *out;
	size_t q_len, kv_len;		/* of one set */
	void *work;
};

static void enqueue(const struct task *t, int i)
{
	size_t q_off = (size_t)i * t->q_len, kv_off = (size_t)i * t->kv_len;
	struct kv_cache kv = { t->kv.k + kv_off, t->kv.v + kv_off };
	struct ar_err err;
	enum ar_status st = AR_OK;

	if (t->copy)
		check(cudaMemcpyAsync(kv.v, kv.k, t->kv_len * sizeof *kv.k,
				      cudaMemcpyDeviceToDevice, NULL));
	else if (t->x)
		st = t->x->enqueue(&t->b, 0, &t->lists, t->q + q_off, &kv, t->out + q_off, NULL,
				   t->work, NULL, &err);
	else
		st = decode_enqueue(&t->b, t->q + q_off, &kv, t->out + q_off, t->work, NULL, &err);
	if (st)
		bail_out("%s", err.msg);
}

/* Median seconds. */
static double measure(const struct task *t)
{
	cudaEvent_t start, stop;
	double s[REPEATS];

	check(cudaEventCreate(&start));
	check(cudaEventCreate(&stop));
	for (int i = -SETS; i < REPEATS; i++) {
		float ms;

		check(cudaEventRecord(start, NULL));
		enqueue(t, (i + SETS) % SETS);
		check(cudaEventRecord(stop, NULL));
		check(cudaEventSynchronize(stop));
		check(cudaEventElapsedTime(&ms, start, stop));
		if (i >= 0)
			s[i] = ms * 1e-3;
	}
	check(cudaEventDestroy(start));
	check(cudaEventDestroy(stop));
	stats_sort(s, REPEATS);
	return stats_percentile(s, REPEATS, 50);
}

/* Past blocks at random, every block from the chunk's first on: as a selector would leave
 * them.  The batch's requests are alike. */
static void draw_lists(const struct batch_case *c, int n, double density, struct block_lists *l,
		       struct rng *rng)
{
	l->stride = c->b.max_kv_blk;
	l->block = malloc((size_t)n * (size_t)l->stride * sizeof *l->block);
	l->n = calloc((size_t)n, sizeof *l->n);
	if (!l->block || !l->n)
		bail_out("out of memory");
	for (int i = 0; i < n; i++)
		for (int j = 0; j < l->stride; j++)
			if (j >= c->b.ctx[0] / PAGE || rng_unit(rng) < density)
				l->block[i * l->stride + l->n[i]++] = (uint16_t)j;
}

/* (row, key) pairs, summed over the query heads. */
static double pairs(const struct batch_case *c, const struct block_lists *l)
{
	double sum = 0;

	for (int i = 0; i < c->b.n_tile; i++) {
		const struct attn_tile *t = &c->b.tile[i];
		const uint16_t *list = l->block ? l->block + t->list * l->stride : NULL;
		int n_blk = list ? l->n[t->list] : c->b.max_kv_blk;

		for (int k = 0; k < n_blk && !t->part; k++)
			for (int row = 0; row < t->n_row; row++) {
				int seen = c->b.ctx[t->req] + t->row + row + 1 -
					   (list ? list[k] : k) * PAGE;

				if (seen > 0)
					sum += (double)t->n_head * (seen < PAGE ? seen : PAGE);
			}
	}
	return sum;
}

static void take(struct task *t, struct batch_case *c, const struct line *l)
{
	struct attn_limits limits = { 0 };
	struct ar_err err;

	memset(t, 0, sizeof *t);
	t->x = l->executor ? executor_find(l->executor) : NULL;
	if (t->x && executor_multiprocessors(&limits.n_sm, &err))
		bail_out("%s", err.msg);
	c->b.n_sm = limits.n_sm;
	if (t->x)
		case_plan(c, t->x->plan, 0);
	t->b = gpu_batch(&c->b);
	t->q_len = c->q_len;
	t->kv_len = c->kv_len;
	t->q = random_buffer(SETS * c->q_len * sizeof *t->q);
	t->out = gpu_new(SETS * c->q_len * sizeof *t->out, 0);
	t->kv.k = random_buffer(SETS * c->kv_len * sizeof *t->kv.k);
	t->kv.v = random_buffer(SETS * c->kv_len * sizeof *t->kv.v);
	t->work = gpu_new(t->x ? t->x->work_bytes(&c->b.shape, &limits) :
				 decode_work_bytes(&c->b.shape, &limits), 0);
}

static void run_line(const struct line *l, struct rng *rng)
{
	struct attn_shape s = { 16, 4, l->dim, PAGE };
	int ctx[MAX_REQ], rows[MAX_REQ];
	struct block_lists lists = { 0 };
	struct batch_case c;
	struct task t;
	double time, work;

	for (int r = 0; r < l->n_req; r++) {
		ctx[r] = (l->mixed ? l->ctx >> r % 8 : l->ctx) - (l->executor ? 0 : 1);
		rows[r] = l->rows;
	}
	case_bare_chunks(&c, rng, s, l->n_req, ctx, rows);
	take(&t, &c, l);
	if (t.x && l->density < 1) {
		int n = case_n_list(&c, t.x->plan, 0);

		draw_lists(&c, n, l->density, &lists, rng);
		t.lists = gpu_lists(&lists, n);
	}
	time = measure(&t);
	work = t.x ? 4.0 * s.head_dim * pairs(&c, &lists) :
		     2.0 * c.page0[l->n_req] * (double)case_page_elements(&c) * sizeof *t.kv.k;
	printf("%-13s %-12s %5d %5d %6d %7d %11.1f us %8.3f %s\n", l->name,
	       l->executor ? l->executor : "-", s.head_dim, l->n_req, l->rows, l->ctx, time * 1e6,
	       work / time * 1e-12, t.x ? "TFLOP/s" : "TB/s");
	fflush(stdout);
	gpu_free_all();
	lists_free(&lists);
	case_release(&c);
}

static void run_copy(void)
{
	struct task t = { .copy = true, .kv_len = (size_t)1 << 29 };
	double time;

	t.kv.k = random_buffer(SETS * t.kv_len * sizeof *t.kv.k);
	t.kv.v = random_buffer(SETS * t.kv_len * sizeof *t.kv.v);
	time = measure(&t);
	printf("%-13s %-12s %5s %5s %6s %7s %11.1f us %8.3f %s\n", "copy", "-", "-", "-", "-", "-",
	       time * 1e6, 2.0 * (double)t.kv_len * sizeof *t.kv.k / time * 1e-12, "TB/s");
	gpu_free_all();
}

int main(void)
{
	struct rng rng = { 1 };

	if (!gpu_usable())
		skip_all("no usable GPU");
	for (size_t i = 0; i < RANDOM; i++)
		noise[i] = bf16_from_f32(rng_normal(&rng));
	printf("16 query heads, 4 KV heads\n"
	       "%-13s %-12s %5s %5s %6s %7s %14s\n",
	       "what", "executor", "size", "batch", "rows", "ctx", "median");
	run_copy();
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		run_line(&lines[i], &rng);
	return 0;
}

#else
int main(void)
{
	skip_all("built without CUDA");
}
#endif
