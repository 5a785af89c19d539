/* SPDX-License-Identifier: Apache-2.0 */
/* Lay out the work, and run the kernels of the device. */
#include "config.h"

#include "base/gpu.h"
#include "base/workspace.h"
#include "kernels/select/lastq/lastq.h"
#include "kernels/support.h"

/* The arrays in work. */
struct room {
	struct lastq sums, blocks;
	void *kernel; /* the kernels' own */
};

static struct lastq lastq_take(struct workspace *w, size_t heads, int stride)
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
	struct room r = { .sums = lastq_take(w, heads, max_kv_blk * s->page_tok) };

	if (blocks)
		r.blocks = lastq_take(w, heads, (max_kv_blk + 3) / 4 * 4);
	r.kernel = workspace_take(w, 0, 0);
	return r;
}

static struct room room_of(const struct attn_batch *b, bool blocks, void *work)
{
	struct workspace w = workspace_at(work);

	return room_at(&b->shape, b->rows.n_req, b->keys.max_kv_blk, blocks, &w);
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
	return w.used + kernel_bytes(s, l, support_find("lastq-blocks", s, NULL, 0));
}

static enum ar_status all_sums(const struct attn_batch *b, int n, const bf16_t *q, const bf16_t *k,
			       const struct lastq *out, void *work, void *stream,
			       struct ar_err *err)
{
	support_fn *fn;
	enum ar_status st = support_dispatch(&fn, "lastq", &b->shape, NULL, err);

	return st ? st : ((lastq_fn *)fn)(b, n, q, k, out, work, stream, err);
}

/* Set *fn to the function that computes the sums by blocks in a first pass.  NULL: there is none,
 * and the sums of all heads must be there first. */
static enum ar_status first_pass(lastq_fn **fn, const struct attn_shape *s, struct ar_err *err)
{
	const struct support *row = NULL;
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);

	if (!st)
		row = support_find("lastq-blocks", s, NULL, gpu->cc);
	*fn = row ? (lastq_fn *)row->fn : NULL;
	return st;
}

enum ar_status lastq_enqueue(const struct attn_batch *b, int n, const bf16_t *q, const bf16_t *k,
			     struct lastq *out, void *work, void *stream, struct ar_err *err)
{
	const struct room r = room_of(b, false, work);

	*out = r.sums;
	return all_sums(b, n, q, k, out, r.kernel, stream, err);
}

enum ar_status lastq_blocks_enqueue(const struct attn_batch *b, const bf16_t *q, const bf16_t *k,
				    struct lastq *blocks, void *work, void *stream,
				    struct ar_err *err)
{
	const struct room r = room_of(b, true, work);
	const int n = b->shape.page_tok;
	lastq_fn *fn;
	enum ar_status st = first_pass(&fn, &b->shape, err);

	if (st)
		return st;
	*blocks = r.blocks;
	if (fn)
		return fn(b, n, q, k, blocks, r.kernel, stream, err);
	st = all_sums(b, n, q, k, &r.sums, r.kernel, stream, err);
	return st ? st : lastq_pool_enqueue(b, &r.sums, blocks, stream, err);
}

enum ar_status lastq_wanted_enqueue(const struct attn_batch *b, const bf16_t *q, const bf16_t *k,
				    const int *want, struct lastq *out, void *work, void *stream,
				    struct ar_err *err)
{
	const struct room r = room_of(b, true, work);
	lastq_fn *fn;
	enum ar_status st = first_pass(&fn, &b->shape, err);

	if (st)
		return st;
	*out = r.sums;
	if (!fn)
		return AR_OK;
	return lastq_sm90_sums_enqueue(b, b->shape.page_tok, q, k, want, out, r.kernel, stream,
				       err);
}
