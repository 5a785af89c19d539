/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upper bound for every selector: the blocks that hold the most attention mass for their size,
 * from the attention itself.
 *
 *   mean[h][i][j] = mean over the rows of query block i and the keys of block j that they see of
 *                   softmax(q k^T / sqrt(head_dim))
 *
 * A request's chunk has cells (h, i, j) up to the diagonal.  Of these the share with the largest
 * means is kept; of equal means the lower number.  No block is kept for its place.
 *
 * So a mask that runs no more (row, key) pairs holds no more mass.  Its recall, the mass per row
 * and head, is no higher.  Proof: let m be the least mean kept here.  Pairs that only the other
 * mask runs have means of at most m.  It lacks at least as many pairs, with means of at least m.
 * Recall as a function of the pairs run is therefore concave.
 */
#include "config.h"
#include "kernels/select/oracle/oracle.h"

#include <stdlib.h>

#include "kernels/select/scores.h"
#include "kernels/select/top.h"
#include "kernels/select/work.h"

static int oracle_block_tok(const void *param)
{
	return selector_block_tok(((const struct oracle *)param)->block);
}

/* Set the means of query block qa, whose rows are [lo, hi); x: their scores. */
static void find_means(const struct attn_shape *s, int qa, int lo, int hi, struct scores *x,
		       float *mean)
{
	for (int j = 0; j <= qa; j++)
		mean[j] = 0;
	for (int row = lo; row < hi; row++) {
		int n = qa * s->page_tok + row + 1;
		const float *p = scores_soften(x, row - lo, n);

		for (int t = 0; t < n; t++)
			mean[t / s->page_tok] += p[t];
	}
	for (int j = 0; j <= qa; j++)
		mean[j] /= (float)oracle_pairs(lo, hi, j < qa ? s->page_tok : 0);
}

/* cell: its place is word * 32 + bit, ascending with its number; mean: [max_kv_blk]. */
static void oracle_request(const struct attn_batch *b, const struct oracle *p, int r,
			   const bf16_t *q, const bf16_t *k, struct scores *x,
			   struct top_cell *cell, float *mean, const struct selection *out)
{
	const struct attn_shape *s = &b->shape;
	int end = b->keys.len[r], first = b->rows.pos0[r] / s->page_tok;
	int group = s->q_heads / s->kv_heads;
	int64_t n = 0,
		keep = oracle_count(p, oracle_cells(s->q_heads, first,
						    b->rows.qblk0[r + 1] - b->rows.qblk0[r]));

	for (int h = 0; h < s->q_heads; h++) {
		if (h % group == 0)
			scores_keys(x, b, r, h / group, k);
		for (int i = b->rows.qblk0[r]; i < b->rows.qblk0[r + 1]; i++) {
			int qa = first + i - b->rows.qblk0[r], at = qa * s->page_tok;
			int lo = at > b->rows.pos0[r] ? 0 : b->rows.pos0[r] - at;
			int hi = end - at < s->page_tok ? end - at : s->page_tok;
			int64_t word = (int64_t)(i * s->q_heads + h) * b->keys.mask_words;
			float *score = selection_score(out, b, i, h);

			scores_rows(x, b, b->rows.row0[r] + at + lo - b->rows.pos0[r], hi - lo, h,
				    q);
			scores_multiply(x, hi - lo, at + hi);
			find_means(s, qa, lo, hi, x, mean);
			for (int j = 0; j <= qa; j++)
				cell[n++] = (struct top_cell){ (double)mean[j], word * 32 + j };
			for (int j = 0; score && j <= qa; j++)
				score[j] = mean[j];
			for (int w = 0; w < b->keys.mask_words; w++)
				out->mask[word + w] = 0;
		}
	}
	top_sort(cell, n);
	for (int64_t i = 0; i < keep; i++)
		out->mask[cell[i].at / 32] |= 1u << cell[i].at % 32;
}

static enum ar_status oracle_ref(const struct attn_call *call, const void *self,
				 const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	size_t cells = 0;
	struct scores x;
	struct top_cell *cell;
	float *mean;
	enum ar_status st;

	for (int r = 0; r < b->rows.n_req; r++) {
		size_t n = (size_t)oracle_cells(s->q_heads, b->rows.pos0[r] / s->page_tok,
						b->rows.qblk0[r + 1] - b->rows.qblk0[r]);

		cells = n > cells ? n : cells;
	}
	st = scores_init(&x, b, s->page_tok, err);
	cell = malloc((cells + 1) * sizeof *cell);
	mean = malloc((size_t)b->keys.max_kv_blk * sizeof *mean);
	if (!st && !(cell && mean))
		st = ar_nomem(err);
	for (int r = 0; r < b->rows.n_req && !st; r++)
		oracle_request(b, self, r, call->q, call->kv.k, &x, cell, mean, out);
	free(cell);
	free(mean);
	scores_release(&x);
	return st;
}

#define OFF(member) offsetof(struct oracle, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "density", .type = OPT_REAL, .off = OFF(share), .arg = "X", .def = "0.1",
	  .max = 1, .help = "keep a share X of all blocks of a chunk" },
	{ .name = "block", .type = OPT_ENUM, .off = OFF(block), .arg = "N", .def = "128",
	  .choice = selector_blocks, .help = "tokens of a block" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "select=oracle,density=%/union=none/exec=blocksparse", "0.3", "0.297", "0.303", 0.01 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "select=oracle,density=%/exec=blocksparse",
	  { "0.1", "0.2", "0.5", "0.9" }, false, false },
	{ 0 }
};
/* clang-format on */

static struct selector_work oracle_work(const void *param, const struct attn_shape *s,
					const struct selector_chunk *c)
{
	(void)param;
	return selector_products(&(struct selector_form){ .launches = 2, .passes = 2 }, s, c);
}

extern const struct selector selector_oracle;
const struct selector selector_oracle = {
	.version = AR_SELECTOR_VERSION,
	.name = "oracle",
	.title = "the blocks with the most true attention mass",
	.origin = "upper bound, from the attention itself",
	.params = params,
	.threshold = "density",
	.param_size = sizeof(struct oracle),
	.scores = true,
	.block_tok = oracle_block_tok,
	.work = oracle_work,
	.ref = oracle_ref,
	.band = bands,
	.order = orders,
	.work_bytes = HAVE_CUDA ? oracle_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? oracle_enqueue : NULL,
};
