/* SPDX-License-Identifier: Apache-2.0 */
/* Choose the kernels that the device can run. */
#include "config.h"

#include "base/gpu.h"
#include "base/workspace.h"
#include "kernels/select/lastq/lastq.h"

/* The arrays in work. */
struct room {
	struct lastq sums, blocks;
	void *kernel; /* the kernels' own */
};

static struct lastq take(struct workspace *w, size_t heads, int stride)
{
	struct lastq x = { .stride = stride };

	x.column = workspace_take(w, heads * (size_t)stride, sizeof *x.column);
	x.slash = workspace_take(w, heads * (size_t)stride, sizeof *x.slash);
	return x;
}

/* blocks: the sums by blocks have room, too. */
static struct room room_at(const struct attn_shape *s, int n_req, int max_kv_blk, bool blocks,
			   struct workspace *w)
{
	size_t heads = (size_t)n_req * (size_t)s->q_heads;
	struct room r = { .sums = take(w, heads, max_kv_blk * s->page_tok) };

	if (blocks)
		r.blocks = take(w, heads, (max_kv_blk + 3) / 4 * 4);
	r.kernel = workspace_take(w, 0, 0);
	return r;
}

static struct room room_of(const struct attn_batch *b, bool blocks, void *work)
{
	struct workspace w = workspace_at(work);

	return room_at(&b->shape, b->rows.n_req, b->keys.max_kv_blk, blocks, &w);
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
	struct workspace w = workspace_at(NULL);

	room_at(s, l->max_req, l->max_kv_blk, false, &w);
	return w.used + kernel_bytes(s, l, false);
}

size_t lastq_blocks_work_bytes(const struct attn_shape *s, const struct attn_limits *l)
{
	struct workspace w = workspace_at(NULL);

	room_at(s, l->max_req, l->max_kv_blk, true, &w);
	return w.used + kernel_bytes(s, l, first_pass_tells(s));
}

static enum ar_status ask(bool *hopper, struct ar_err *err)
{
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);

	if (!st)
		*hopper = gpu_runs_sm90(gpu);
	return st;
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
	const struct room r = room_of(b, false, work);
	bool hopper;
	enum ar_status st = ask(&hopper, err);

	if (st)
		return st;
	*out = r.sums;
	return all_sums(b, n, q, k, out, r.kernel, hopper, stream, err);
}

enum ar_status lastq_blocks_enqueue(const struct attn_batch *b, const bf16_t *q, const bf16_t *k,
				    struct lastq *blocks, void *work, void *stream,
				    struct ar_err *err)
{
	const struct room r = room_of(b, true, work);
	const int n = b->shape.page_tok;
	bool hopper;
	enum ar_status st = ask(&hopper, err);

	if (st)
		return st;
	*blocks = r.blocks;
	if (hopper && first_pass_tells(&b->shape))
		return lastq_sm90_rows_enqueue(b, n, q, k, blocks, r.kernel, stream, err);
	st = all_sums(b, n, q, k, &r.sums, r.kernel, hopper, stream, err);
	return st ? st : lastq_pool_enqueue(b, &r.sums, blocks, stream, err);
}

enum ar_status lastq_wanted_enqueue(const struct attn_batch *b, const bf16_t *q, const bf16_t *k,
				    const int *want, struct lastq *out, void *work, void *stream,
				    struct ar_err *err)
{
	const struct room r = room_of(b, true, work);
	bool hopper;
	enum ar_status st = ask(&hopper, err);

	if (st)
		return st;
	*out = r.sums;
	if (!hopper || !first_pass_tells(&b->shape))
		return AR_OK;
	return lastq_sm90_sums_enqueue(b, b->shape.page_tok, q, k, want, out, r.kernel, stream,
				       err);
}
