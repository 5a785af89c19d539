/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over gathered tokens: the tokens on the list of a KV head and the chunk's own are
 * copied together.  Attention is dense over the copy. */
#include "config.h"

#include "kernels/exec/keys.h"
#include "kernels/exec/pool/pool.h"

static enum ar_status gather_ref(const struct attn_call *call, const struct executor_lists *lists,
				 struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	const struct token_lists *l = &lists->tokens;
	int group = s->q_heads / s->kv_heads;
	struct keys k;
	enum ar_status st = keys_init(&k, b, err);

	for (int r = 0; r < b->rows.n_req && !st; r++)
		for (int h = 0; h < s->q_heads; h++) {
			int kv_head = h / group, rows = attn_n_row(&b->rows, r);
			int n_page = b->keys.page0[r + 1] - b->keys.page0[r];
			size_t first = attn_token_row(s, b->keys.page0[r], n_page, kv_head);
			const int32_t *tok = l->tok + first;

			k.n = 0;
			for (int i = 0; i < l->n[r * s->kv_heads + kv_head]; i++)
				k.pos[k.n++] = tok[i];
			for (int t = b->rows.pos0[r]; t < b->keys.len[r]; t++)
				k.pos[k.n++] = t;
			for (int i = 0; i < rows; i += s->page_tok)
				keys_attend(&k, call, r, i,
					    rows - i < s->page_tok ? rows - i : s->page_tok, h);
		}
	keys_release(&k);
	return st;
}

#if HAVE_CUDA
static size_t gather_work_bytes(const struct attn_shape *s, const struct attn_limits *l, int heads)
{
	(void)heads; /* each list serves a whole KV head */
	return pool_work_bytes(s, l, s->kv_heads);
}

static enum ar_status gather_enqueue(const struct attn_call *call,
				     const struct executor_lists *lists, struct ar_err *err)
{
	const struct attn_shape *s = &call->b->shape;

	(void)lists; /* executor->move has copied their tokens */
	return pool_attend(call, s->q_heads / s->kv_heads, s->kv_heads, err);
}
#endif

extern const struct executor executor_gather;
const struct executor executor_gather = {
	.name = "gather",
	.title = "copy the listed tokens together, then dense attention",
	.origin = "QUOKA, packed keys and values",
	.kernel = "attend",
	.phase = PHASE_ATTEND,
	.takes = SHAPE_TOKENS,
	.copies = true,
	.plan = pool_plan,
	.ref = gather_ref,
#if HAVE_CUDA
	.work_bytes = gather_work_bytes,
	.move = pool_move_tokens,
	.enqueue = gather_enqueue,
#endif
};
