/* SPDX-License-Identifier: Apache-2.0 */
/* Choose the kernels that the device can run. */
#include "config.h"

#include "base/gpu.h"
#include "kernels/select/lastq/lastq.h"

/* Floats of the sums, at the start of work. */
static size_t sum_floats(int n_req, int q_heads, int max_kv_blk, int page_tok)
{
	return 2 * (size_t)n_req * (size_t)q_heads * (size_t)max_kv_blk * (size_t)page_tok;
}

static int block_stride(int max_kv_blk)
{
	return (max_kv_blk + 3) / 4 * 4;	/* what follows is aligned */
}

/* Floats of the sums by blocks, between the sums and the kernels' own work. */
static size_t block_floats(int n_req, int q_heads, int max_kv_blk)
{
	return 2 * (size_t)n_req * (size_t)q_heads * (size_t)block_stride(max_kv_blk);
}

/* Whether the first pass can compute the sums by blocks.  Otherwise the second pass must run for
 * all heads. */
static bool first_pass_tells(const struct attn_shape *s)
{
	return s->page_tok == 128 && s->head_dim <= 128;
}

static size_t kernel_bytes(const struct attn_shape *s, const struct attn_limits *l, bool blocks)
{
	size_t new = lastq_sm90_work_bytes(s, l, blocks), old = lastq_sm80_work_bytes(s, l);

	return new > old ? new : old;
}

size_t lastq_work_bytes(const struct attn_shape *s, const struct attn_limits *l)
{
	return sum_floats(l->max_req, s->q_heads, l->max_kv_blk, s->page_tok) * sizeof(float) +
	       kernel_bytes(s, l, false);
}

size_t lastq_blocks_work_bytes(const struct attn_shape *s, const struct attn_limits *l)
{
	return (sum_floats(l->max_req, s->q_heads, l->max_kv_blk, s->page_tok) +
		block_floats(l->max_req, s->q_heads, l->max_kv_blk)) * sizeof(float) +
	       kernel_bytes(s, l, first_pass_tells(s));
}

static enum ar_status ask(bool *hopper, struct ar_err *err)
{
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);

	if (!st)
		*hopper = gpu_is_hopper(gpu);
	return st;
}

static struct lastq sums_at(const struct attn_batch *b, float *work)
{
	const struct attn_shape *s = &b->shape;
	size_t floats = sum_floats(b->rows.n_req, s->q_heads, b->keys.max_kv_blk, s->page_tok);

	return (struct lastq){ work, work + floats / 2, b->keys.max_kv_blk * s->page_tok };
}

/* The end of x in work. */
static float *behind(const struct attn_batch *b, const struct lastq *x)
{
	return x->slash + (size_t)(b->rows.n_req * b->shape.q_heads) * (size_t)x->stride;
}

static struct lastq blocks_at(const struct attn_batch *b, const struct lastq *sums)
{
	float *at = behind(b, sums);

	return (struct lastq){ at, at + block_floats(b->rows.n_req, b->shape.q_heads,
						     b->keys.max_kv_blk) / 2,
			       block_stride(b->keys.max_kv_blk) };
}

static enum ar_status all_sums(const struct attn_batch *b, int n, const bf16_t *q, const bf16_t *k,
			       const struct lastq *out, void *work, bool hopper, void *stream,
			       struct ar_err *err)
{
	enum ar_status st;

	if (!hopper)
		return lastq_sm80_enqueue(b, n, q, k, out, work, stream, err);
	st = lastq_sm90_rows_enqueue(b, n, q, k, NULL, work, stream, err);
	return st ? st : lastq_sm90_sums_enqueue(b, n, q, k, NULL, out, work, stream, err);
}

enum ar_status lastq_enqueue(const struct attn_batch *b, int n, const bf16_t *q, const bf16_t *k,
			     struct lastq *out, void *work, void *stream, struct ar_err *err)
{
	bool hopper;
	enum ar_status st = ask(&hopper, err);

	if (st)
		return st;
	*out = sums_at(b, work);
	return all_sums(b, n, q, k, out, behind(b, out), hopper, stream, err);
}

enum ar_status lastq_blocks_enqueue(const struct attn_batch *b, const bf16_t *q, const bf16_t *k,
				    struct lastq *blocks, void *work, void *stream,
				    struct ar_err *err)
{
	const int n = b->shape.page_tok;
	struct lastq sums;
	bool hopper;
	enum ar_status st = ask(&hopper, err);

	if (st)
		return st;
	sums = sums_at(b, work);
	*blocks = blocks_at(b, &sums);
	if (hopper && first_pass_tells(&b->shape))
		return lastq_sm90_rows_enqueue(b, n, q, k, blocks, behind(b, blocks), stream, err);
	st = all_sums(b, n, q, k, &sums, behind(b, blocks), hopper, stream, err);
	return st ? st : lastq_pool_enqueue(b, &sums, blocks, stream, err);
}

enum ar_status lastq_wanted_enqueue(const struct attn_batch *b, const bf16_t *q, const bf16_t *k,
				    const int *want, struct lastq *out, void *work, void *stream,
				    struct ar_err *err)
{
	bool hopper;
	enum ar_status st = ask(&hopper, err);

	if (st)
		return st;
	*out = sums_at(b, work);
	if (hopper && first_pass_tells(&b->shape)) {
		const struct lastq blocks = blocks_at(b, out);

		return lastq_sm90_sums_enqueue(b, b->shape.page_tok, q, k, want, out,
					       behind(b, &blocks), stream, err);
	}
	return AR_OK;
}
