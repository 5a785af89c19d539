/* Time of selection, union and lists on the device: batch 8, chunks of 1024, 16 query heads, 4 KV
 * heads of 128.  Medians by CUDA events; means and queries are random, so that the power
 * drawn is that of real work. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/selectors/flashprefill.h"
#include "kernels/union.h"
#include "src/base/rng.h"
#include "src/base/stats.h"
#include "tests/gpu.h"
#include "tests/tap.h"

#if HAVE_CUDA
#include <cuda_runtime_api.h>

enum { N_REQ = 8, CHUNK = 1024, N_WARM = 3, N_TIME = 25 };

static const struct attn_shape shape = {
	.q_heads = 16, .kv_heads = 4, .head_dim = 128, .page_tok = 128
};

struct bench {
	struct attn_batch b;		/* on the device */
	struct flashprefill param;
	struct kv_cache kv;
	bf16_t *q, *state;
	uint32_t *mask, *table;
	struct block_lists lists;
	void *work;
};

static void check(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

static void *random_bf16(size_t n, float scale)
{
	bf16_t *x = malloc(n * sizeof *x);
	struct rng rng = { n };
	void *d;

	for (size_t i = 0; i < n; i++)
		x[i] = bf16_from_f32(rng_normal(&rng) * scale);
	d = gpu_copy(x, n * sizeof *x);
	free(x);
	return d;
}

static struct attn_batch batch(int tokens)
{
	static int32_t row0[N_REQ + 1], ctx[N_REQ], qblk0[N_REQ + 1], page0[N_REQ + 1];
	static uint8_t last[N_REQ];
	int per = tokens / shape.page_tok;
	int32_t *page = malloc((size_t)(N_REQ * per) * sizeof *page);
	struct attn_batch b = {
		.shape = shape, .n_req = N_REQ, .n_row = N_REQ * CHUNK, .max_kv_blk = per,
		.mask_words = (per + 31) / 32, .row0 = row0, .ctx = ctx, .qblk0 = qblk0,
		.page0 = page0, .page = page, .last = last
	};
	struct attn_batch d;

	for (int r = 0; r < N_REQ; r++) {
		ctx[r] = tokens - CHUNK;
		row0[r + 1] = row0[r] + CHUNK;
		qblk0[r + 1] = qblk0[r] + CHUNK / shape.page_tok;
		page0[r + 1] = page0[r] + per;
	}
	for (int i = 0; i < N_REQ * per; i++)	/* an odd stride scatters the pages */
		page[i] = (int32_t)((int64_t)i * 7919 % (N_REQ * per));
	b.n_qblk = qblk0[N_REQ];
	d = gpu_batch(&b);
	free(page);
	return d;
}

static void run_select(struct bench *x, struct ar_err *err)
{
	check(flashprefill_enqueue(&x->b, &x->param, x->q, &x->kv, x->state, x->mask, x->work, NULL,
				   err),
	      err);
}

static void run_group(struct bench *x, struct ar_err *err)
{
	int heads = union_heads(UNION_GROUP, &shape);

	check(union_enqueue(&x->b, heads, x->mask, x->table, NULL, err), err);
	check(lists_enqueue(x->table, N_REQ * union_groups(heads, &shape), x->b.mask_words,
			    &x->lists, NULL, err),
	      err);
}

static void run_lists(struct bench *x, struct ar_err *err)
{
	check(lists_enqueue(x->mask, x->b.n_qblk * shape.q_heads, x->b.mask_words, &x->lists, NULL,
			    err),
	      err);
}

static double median_us(struct bench *x, void (*f)(struct bench *, struct ar_err *))
{
	cudaEvent_t from, to;
	double t[N_TIME];
	struct ar_err err;

	if (cudaEventCreate(&from) || cudaEventCreate(&to))
		bail_out("no CUDA events");
	for (int i = -N_WARM; i < N_TIME; i++) {
		float ms = 0;

		cudaEventRecord(from, NULL);
		f(x, &err);
		cudaEventRecord(to, NULL);
		if (cudaEventSynchronize(to) || cudaEventElapsedTime(&ms, from, to))
			bail_out("CUDA: %s", cudaGetErrorString(cudaGetLastError()));
		if (i >= 0)
			t[i] = ms * 1e3;
	}
	cudaEventDestroy(from);
	cudaEventDestroy(to);
	stats_sort(t, N_TIME);
	return stats_percentile(t, N_TIME, 50);
}

static void bench(int tokens)
{
	struct bench x = { .b = batch(tokens), .param = { .alpha = 0.06, .sink = 2, .window = 4 } };
	struct attn_limits limits = { .max_req = N_REQ,
				      .max_row = N_REQ * CHUNK,
				      .max_kv_blk = x.b.max_kv_blk };
	size_t n_page = (size_t)(N_REQ * x.b.max_kv_blk);
	size_t n_mask = (size_t)(x.b.n_qblk * shape.q_heads);
	size_t page = (size_t)(shape.kv_heads * shape.page_tok * shape.head_dim);

	x.kv.k = gpu_new(n_page * page * sizeof(bf16_t), 0x3e);
	x.q = random_bf16((size_t)(N_REQ * CHUNK * shape.q_heads * shape.head_dim), 1);
	x.state = random_bf16(n_page * (size_t)(shape.kv_heads * shape.head_dim), 1);
	x.mask = gpu_new(n_mask * (size_t)x.b.mask_words * sizeof *x.mask, 0xff);
	x.table = gpu_new((size_t)(N_REQ * shape.q_heads * x.b.mask_words) * sizeof *x.table, 0xff);
	x.lists.block = gpu_new(n_mask * (size_t)x.b.max_kv_blk * sizeof *x.lists.block, 0xff);
	x.lists.n = gpu_new(n_mask * sizeof *x.lists.n, 0xff);
	x.lists.stride = x.b.max_kv_blk;
	x.work = gpu_new(flashprefill_work_bytes(&shape, &limits), 0xff);
	printf("%8d %12.1f", tokens, median_us(&x, run_select)); /* the others read its mask */
	printf(" %12.1f", median_us(&x, run_group));
	printf(" %12.1f\n", median_us(&x, run_lists));
	gpu_free_all();
}

static void run_all(void)
{
	printf("%8s %12s %12s %12s\n", "tokens", "select us", "union us", "lists us");
	bench(32 * 1024);
	bench(128 * 1024);
}
#else
static void run_all(void)
{
}
#endif

int main(void)
{
	if (!gpu_usable())
		skip_all("no usable GPU");
	run_all();
	return 0;
}
