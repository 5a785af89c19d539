#include "config.h"
#include "kernels/exec/pool/pool.h"
#include "kernels/union/union.h"

int pool_plan(const struct attn_batch *b, int heads, struct attn_tile *tile)
{
	int group = b->shape.q_heads / b->shape.kv_heads;
	int n = attend_plan_rows(b, heads ? heads : group, tile);	/* lengths are not known */
	int lists = union_groups(heads ? heads : group, &b->shape);

	for (int i = 0; i < n && tile; i++) {
		tile[i].page0 = pool_page(b->keys.page0, lists, tile[i].list);
		tile[i].pos -= b->rows.pos0[tile[i].req];
	}
	return n;
}

#if HAVE_CUDA
static size_t place(size_t *end, size_t bytes)
{
	size_t at = *end;

	*end += (bytes + 255) / 256 * 256;
	return at;
}

/* Where things are in work: K, V, page, ctx, the rest. */
struct places {
	size_t k, v, page, ctx, rest;
};

static struct places places(const struct attn_shape *s, size_t n_req, size_t n_page, size_t lists)
{
	size_t n_blk = n_page * lists, n_list = n_req * lists;
	size_t blk = (size_t)(s->page_tok * s->head_dim) * sizeof(bf16_t);
	struct places p = { 0 };

	p.k = place(&p.rest, n_blk * blk);
	p.v = place(&p.rest, n_blk * blk);
	p.page = place(&p.rest, n_blk * sizeof(int32_t));
	p.ctx = place(&p.rest, n_list * sizeof(int32_t));
	return p;
}

size_t pool_work_bytes(const struct attn_shape *s, const struct attn_limits *l, int lists)
{
	return places(s, (size_t)l->max_req, (size_t)l->max_page, (size_t)lists).rest +
	       attend_work_bytes(s, l, 0);
}

struct pool pool_at(const struct attn_batch *b, int lists, void *work)
{
	struct places p = places(&b->shape, (size_t)b->rows.n_req, (size_t)b->keys.n_page,
				 (size_t)lists);
	char *at = work;

	return (struct pool){
		.kv = { (bf16_t *)(void *)(at + p.k), (bf16_t *)(void *)(at + p.v) },
		.ctx = (int32_t *)(void *)(at + p.ctx),
		.page = (int32_t *)(void *)(at + p.page),
		.rest = at + p.rest,
	};
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
	pool.kv = p.kv;
	pool.work = p.rest;
	return attend_enqueue(&pool, attend_plan_rows, heads, &all, err);
}
#endif
