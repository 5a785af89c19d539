/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/exec/pool/pool.h"

#include "base/workspace.h"
#include "kernels/union/union.h"

int pool_plan(const struct attn_batch *b, int heads, struct attn_tile *tile)
{
	int group = b->shape.q_heads / b->shape.kv_heads;
	int n = attend_plan_rows(b, heads ? heads : group, tile); /* lengths are unknown */
	int lists = union_groups(heads ? heads : group, &b->shape);

	for (int i = 0; i < n && tile; i++) {
		tile[i].page0 = pool_page(b->keys.page0, lists, tile[i].list);
		tile[i].pos -= b->rows.pos0[tile[i].req];
	}
	return n;
}

#if HAVE_CUDA
static struct pool lay_out(struct workspace *w, const struct attn_shape *s, size_t n_req,
			   size_t n_page, size_t lists)
{
	size_t n_blk = n_page * lists, blk = (size_t)(s->page_tok * s->head_dim) * sizeof(bf16_t);
	struct pool p;

	p.kv.k = workspace_take(w, n_blk, blk);
	p.kv.v = workspace_take(w, n_blk, blk);
	p.page = workspace_take(w, n_blk, sizeof *p.page);
	p.ctx = workspace_take(w, n_req * lists, sizeof *p.ctx);
	p.rest = workspace_take(w, 0, 0);
	return p;
}

size_t pool_work_bytes(const struct attn_shape *s, const struct attn_limits *l, int lists)
{
	struct workspace w = workspace_at(NULL);

	lay_out(&w, s, (size_t)l->max_req, (size_t)l->max_page, (size_t)lists);
	return w.used + attend_work_bytes(s, l, 0);
}

struct pool pool_at(const struct attn_batch *b, int lists, void *work)
{
	struct workspace w = workspace_at(work);

	return lay_out(&w, &b->shape, (size_t)b->rows.n_req, (size_t)b->keys.n_page, (size_t)lists);
}

enum ar_status pool_attend(const struct attn_call *call, int heads, int lists, struct ar_err *err)
{
	static const struct block_lists all;
	struct pool p = pool_at(call->b, lists, call->work);
	struct attn_batch packed = *call->b;
	struct attn_call pool = *call;

	packed.shape.kv_heads = 1;
	packed.keys.page = p.page;
	packed.kept = p.ctx;
	pool.b = &packed;
	pool.kv.bf16 = p.kv;
	pool.work = p.rest;
	return attend_enqueue(&pool, attend_plan_rows, heads, &all, err);
}
#endif
