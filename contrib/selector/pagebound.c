/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A selector outside of the tree of attnreplay: Quest's page bound, for chunks of a prompt.
 *
 * Of each block of keys the state has the minimum and the maximum of every channel d.  They bound
 * the product of a query row q with any key of the block:
 *
 *   bound[j] = sum over d of max(q[d] * min[j][d], q[d] * max[j][d])
 *
 * A query block scores block j with the largest bound of its rows.  For each query head it keeps
 * the share `density` of the blocks before its own that have the largest scores, the first `sink`
 * blocks and its own block.
 *
 * Products of two bf16 are exact in fp32, and sums are in order of channels, here and in the
 * kernels.  So both keep the same blocks, to the bit.
 *
 * Follows: Tang et al., "Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference",
 * 2024.
 */
#include "pagebound.h"

#include <stdlib.h>

#include "kernels/select/work.h"

static size_t state_bytes(const void *self, const struct attn_shape *s)
{
	(void)self;
	return pagebound_at(s, 1, 0) * sizeof(bf16_t);
}

/* ---- reference ---- */

/* Minimum and maximum of each channel of the first n tokens of a page.  k: its keys. */
static void bound_page(const bf16_t *k, int n, int dim, bf16_t *min, bf16_t *max)
{
	for (int d = 0; d < dim; d++) {
		float lo = INFINITY, hi = -INFINITY;

		for (int t = 0; t < n; t++) {
			float x = bf16_to_f32(k[t * dim + d]);

			lo = x < lo ? x : lo;
			hi = x > hi ? x : hi;
		}
		min[d] = bf16_from_f32(lo);
		max[d] = bf16_from_f32(hi);
	}
}

/* Bound the blocks that the chunk of request r touches. */
static void update(const struct attn_call *call, int r)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	int len = b->keys.len[r], tok = s->page_tok;

	for (int j = b->rows.pos0[r] / tok; j * tok < len; j++) {
		size_t page = (size_t)b->keys.page[b->keys.page0[r] + j];
		int n = len - j * tok < tok ? len - j * tok : tok;

		for (int h = 0; h < s->kv_heads; h++) {
			bf16_t *to = (bf16_t *)call->state + pagebound_at(s, page, h);
			size_t at = (page * (size_t)s->kv_heads + (size_t)h) *
				    (size_t)(tok * s->head_dim);

			bound_page(call->kv.k + at, n, s->head_dim, to, to + s->head_dim);
		}
	}
}

static float bound(const bf16_t *q, const bf16_t *min, int dim)
{
	float sum = 0;

	for (int d = 0; d < dim; d++) {
		float x = bf16_to_f32(q[d]);
		float a = x * bf16_to_f32(min[d]), b = x * bf16_to_f32(min[dim + d]);

		sum += a > b ? a : b;
	}
	return sum;
}

/* Scores of the blocks before own, by the rows [lo, hi) of the batch. */
static void score_blocks(const struct attn_call *call, int r, int own, int head, int lo, int hi,
			 float *score)
{
	const struct attn_shape *s = &call->b->shape;
	const int32_t *page = call->b->keys.page + call->b->keys.page0[r];
	int kv_head = head / (s->q_heads / s->kv_heads);

	for (int j = 0; j < own; j++) {
		const bf16_t *min = (const bf16_t *)call->state +
				    pagebound_at(s, (size_t)page[j], kv_head);

		score[j] = -INFINITY;
		for (int i = lo; i < hi; i++) {
			size_t row = (size_t)i * (size_t)s->q_heads + (size_t)head;
			float x = bound(call->q + row * (size_t)s->head_dim, min, s->head_dim);

			score[j] = x > score[j] ? x : score[j];
		}
	}
}

/* Query block i of request r. */
static void select_blocks(const struct attn_call *call, const struct pagebound *p, int r, int i,
			  const struct selection *out, float *score)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	int tok = s->page_tok, own = b->rows.pos0[r] / tok + i, qblk = b->rows.qblk0[r] + i;
	int first = own * tok - b->rows.pos0[r], end = first + tok, n = attn_n_row(&b->rows, r);
	int lo = b->rows.row0[r] + (first > 0 ? first : 0);
	int hi = b->rows.row0[r] + (end < n ? end : n);

	for (int h = 0; h < s->q_heads; h++) {
		size_t row = (size_t)(qblk * s->q_heads + h);
		uint32_t *word = out->mask + row * (size_t)b->keys.mask_words;
		float *scored = selection_score(out, b, qblk, h);

		score_blocks(call, r, own, h, lo, hi, score);
		for (int w = 0; w < b->keys.mask_words; w++)
			word[w] = 0;
		for (int j = 0; j <= own; j++)
			if (pagebound_keeps(p, score, own, j))
				word[j / 32] |= 1u << j % 32;
		for (int j = 0; scored && j < own; j++)
			scored[j] = score[j];
	}
}

static enum ar_status ref(const struct attn_call *call, const void *self,
			  const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	float *score = malloc((size_t)(b->keys.max_kv_blk + 1) * sizeof *score);

	if (!score)
		return ar_nomem(err);
	for (int r = 0; r < b->rows.n_req; r++) {
		update(call, r);
		for (int i = 0; i < b->rows.qblk0[r + 1] - b->rows.qblk0[r]; i++)
			select_blocks(call, self, r, i, out, score);
	}
	free(score);
	return AR_OK;
}

/* ---- descriptor ---- */

static int block_tok(const void *param)
{
	return selector_block_tok(((const struct pagebound *)param)->block);
}

/* A row has two products with each block, with its minimum and its maximum. */
static struct selector_work work(const void *param, const struct attn_shape *s,
				 const struct selector_chunk *c)
{
	(void)param;
	return selector_products(&(struct selector_form){ .keys = SELECTOR_MEANS,
							  .launches = 3,
							  .key = s->page_tok,
							  .share = 2 },
				 s, c);
}

#define OFF(member) offsetof(struct pagebound, member)
static const struct opt params[] = {
	{ .name = "density", .type = OPT_REAL, .off = OFF(density), .arg = "X", .def = "0.2",
	  .max = 1, .help = "keep a share X of the blocks before a query block" },
	{ .name = "sink", .type = OPT_INT, .off = OFF(sink), .arg = "N", .def = "1", .max = 65536,
	  .help = "always keep the first N blocks" },
	{ .name = "block", .type = OPT_ENUM, .off = OFF(block), .arg = "N", .def = "128",
	  .choice = selector_blocks, .help = "tokens of a block" },
	{ 0 }
};

/* Reference and kernels agree to the bit, so the comparison has no band of ties. */
static const struct selector_band bands[] = {
	{ .method = "select=pagebound,density=0.3/exec=blocksparse" },
	{ .method = "select=pagebound,density=0.2,sink=0,block=64/exec=blocksparse" },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "select=pagebound,density=%/exec=blocksparse", { "0.1", "0.3", "0.6", "1" }, true, true },
	{ 0 }
};

const struct selector selector_plugin = {
	.version = AR_SELECTOR_VERSION,
	.name = "pagebound",
	.title = "blocks whose bound of channels is high for a row",
	.origin = "Quest (2024), for chunks of a prompt",
	.params = params,
	.param_size = sizeof(struct pagebound),
	.threshold = "density",
	.scores = true,
	.block_tok = block_tok,
	.state_bytes = state_bytes,
	.work = work,
	.ref = ref,
	.band = bands,
	.order = orders,
#if WITH_CUDA
	.work_bytes = pagebound_work_bytes,
	.enqueue = pagebound_enqueue,
	.support = { .cc_min = 80, .head_dims = 64 | 128 | 256, .page_toks = 64 | 128 },
#endif
};
