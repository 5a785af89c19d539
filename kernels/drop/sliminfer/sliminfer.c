/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SlimInfer's rule: prune blocks of the prompt after a whole layer.  The authors' code was not at
 * hand, and the settings are ours.
 *
 *   qbar[h]     = mean of the chunk's last 'window' queries
 *   score[B]    = mean over query heads of the largest, over the units of B, of
 *                 qbar[h] . (mean of the unit's keys) / sqrt(head_dim)
 *
 * Blocks are runs of 'block' rows of the chunk, units runs of 'unit' keys of a block.  Blocks with
 * one of the first 'sinks' tokens or of the last 'window' tokens stay.  Of the others as many stay
 * as the layer's value says: the blocks with the largest scores, of equal ones the lower.  Ranks
 * that share the heads add up their scores (sum_ranks.h).
 */
#include "config.h"
#include "kernels/drop/sliminfer/sliminfer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/drop/sum_ranks.h"

enum { MOST = 1 << 20 }; /* blocks */

static enum ar_status sliminfer_open(void **self, const void *param, const struct model *m,
				     struct ar_err *err)
{
	const struct sliminfer *p = param;
	struct sliminfer_self *x = calloc(1, sizeof *x);
	enum ar_status st;

	*self = NULL;
	if (!x)
		return ar_nomem(err);
	x->rule = *p;
	st = layer_list_read_or(&x->layers, p->layers, "10:0.5+20:0.25", "SHARE", MOST, m, err);
	if (st)
		free(x);
	else
		*self = x;
	return st;
}

static bool sliminfer_acts_after(const void *self, int layer)
{
	return layer_list_find(&((const struct sliminfer_self *)self)->layers, layer) >= 0;
}

static enum ar_status sliminfer_check(const struct opt_group *g, struct ar_err *err)
{
	const struct sliminfer *p = g->base;
	struct layer_list list;

	if (p->block % p->unit)
		return ar_fail(err, AR_USAGE, "unit=%lld: block=%lld is not a multiple of it",
			       (long long)p->unit, (long long)p->block);
	return p->layers ? layer_list_parse(&list, p->layers, MOST, err) : AR_OK;
}

/* ---- reference ---- */

static int at_most(int a, int b)
{
	return a < b ? a : b;
}

/* The mean of vectors that are pitch elements apart. */
static void mean_vector(const bf16_t *x, int n, size_t pitch, int dim, float *out)
{
	for (int d = 0; d < dim; d++) {
		out[d] = 0;
		for (int i = 0; i < n; i++)
			out[d] += bf16_to_f32(x[(size_t)i * pitch + (size_t)d]);
		out[d] /= (float)n;
	}
}

/* The mean of a unit's keys, [key, end); it may begin anywhere, so it may lie in several pages. */
static void unit_mean(const struct attn_call *call, int r, int head, int key, int end, float *out)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	size_t dim = (size_t)s->head_dim;

	memset(out, 0, dim * sizeof *out);
	for (int t = key; t < end; t++) {
		size_t page = (size_t)b->keys.page[b->keys.page0[r] + t / s->page_tok];
		size_t at = (page * (size_t)s->kv_heads + (size_t)head) * (size_t)s->page_tok +
			    (size_t)(t % s->page_tok);

		for (size_t d = 0; d < dim; d++)
			out[d] += bf16_to_f32(call->kv.k[at * dim + d]);
	}
	for (size_t d = 0; d < dim; d++)
		out[d] /= (float)(end - key);
}

static float dot(const float *a, const float *b, int n)
{
	float sum = 0;

	for (int i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

void sliminfer_scores(const struct attn_call *call, const struct sliminfer *p, int r, float *score)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	int rows = attn_n_row(&b->rows, r), block = (int)p->block, unit = (int)p->unit;
	int n = at_most((int)p->window, rows), n_blk = (rows + block - 1) / block;
	size_t dim = (size_t)s->head_dim, row = (size_t)(b->rows.row0[r + 1] - n);
	float qbar[256], rep[256];

	memset(score, 0, (size_t)n_blk * sizeof *score);
	for (int h = 0; h < s->q_heads; h++) {
		mean_vector(call->q + (row * (size_t)s->q_heads + (size_t)h) * dim, n,
			    (size_t)s->q_heads * dim, s->head_dim, qbar);
		for (int i = 0; i < n_blk; i++) {
			int end = at_most((i + 1) * block, rows);
			float best = -INFINITY;

			for (int u = i * block; u < end; u += unit) {
				unit_mean(call, r, h / (s->q_heads / s->kv_heads),
					  b->rows.pos0[r] + u,
					  b->rows.pos0[r] + at_most(u + unit, end), rep);
				best = fmaxf(best, dot(qbar, rep, s->head_dim));
			}
			score[i] += best / sqrtf((float)s->head_dim) / (float)s->q_heads;
		}
	}
}

/* Set kept[n] of the blocks that stay. */
static void pick_blocks(const struct sliminfer *p, const float *score, int pos0, int rows,
			int budget, uint8_t *kept)
{
	int n = (rows + (int)p->block - 1) / (int)p->block;

	for (int i = 0; i < n; i++)
		kept[i] = sliminfer_stays(p, pos0, rows, i);
	for (; budget > 0; budget--) {
		int best = -1;

		for (int i = 0; i < n; i++)
			if (!kept[i] && (best < 0 || score[i] > score[best]))
				best = i;
		if (best < 0)
			return;
		kept[best] = 1;
	}
}

static int64_t scores_of(const void *self, const struct attn_batch *b, int n_step)
{
	(void)n_step;
	return sliminfer_room(&((const struct sliminfer_self *)self)->rule, &b->shape,
			      b->keys.n_page, b->rows.n_req);
}

static enum ar_status sliminfer_request_ref(const struct drop_call *call,
					    const struct sliminfer_self *x, int r, uint8_t *keep,
					    struct ar_err *err)
{
	const struct attn_rows *rows = &call->at->b->rows;
	const struct sliminfer *p = &x->rule;
	int n = attn_n_row(rows, r), n_blk = (n + (int)p->block - 1) / (int)p->block;
	double value = x->layers.value[layer_list_find(&x->layers, call->at->layer)];
	float *score = malloc((size_t)n_blk * sizeof *score);
	uint8_t *kept = malloc((size_t)n_blk);
	enum ar_status st = score && kept ? AR_OK : ar_nomem(err);

	if (!st) {
		sliminfer_scores(call->at, p, r, score);
		st = sum_ranks(&call->ranks, score, n_blk, err);
	}
	if (!st) {
		pick_blocks(p, score, rows->pos0[r], n, sliminfer_budget(p, value, call->chunk[r]),
			    kept);
		for (int i = 0; i < n; i++)
			keep[rows->row0[r] + i] = kept[i / p->block];
	}
	free(score);
	free(kept);
	return st;
}

static enum ar_status sliminfer_ref(const struct drop_call *call, const void *self, uint8_t *keep,
				    struct ar_err *err)
{
	const struct sliminfer_self *x = self;
	const struct attn_rows *rows = &call->at->b->rows;
	enum ar_status st = AR_OK;

	memset(keep, 1, (size_t)rows->n_row);
	for (int r = 0; !st && r < rows->n_req; r++)
		if (!sliminfer_short(&x->rule, attn_n_row(rows, r)))
			st = sliminfer_request_ref(call, x, r, keep, err);
	return st;
}

/* ---- descriptor ---- */

#define OFF(member) offsetof(struct sliminfer, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "layers", .type = OPT_STR, .off = OFF(layers), .arg = "LIST",
	  .help = "layers and the share or number of blocks to keep, 10:0.5+20:0.25" },
	{ .name = "block", .type = OPT_INT, .off = OFF(block), .arg = "N", .def = "64", .min = 1,
	  .max = SLIMINFER_BLOCK, .help = "tokens of a block" },
	{ .name = "unit", .type = OPT_INT, .off = OFF(unit), .arg = "N", .def = "16", .min = 1,
	  .max = SLIMINFER_BLOCK, .help = "tokens of a unit, whose mean key stands for it" },
	{ .name = "window", .type = OPT_INT, .off = OFF(window), .arg = "N", .def = "64",
	  .min = 1, .max = 4096, .help = "the last N queries score, and their blocks stay" },
	{ .name = "sinks", .type = OPT_INT, .off = OFF(sinks), .arg = "N", .def = "128",
	  .max = 1 << 20, .help = "blocks of the first N tokens stay" },
	{ 0 }
};
/* clang-format on */

static const struct dropper_band bands[] = {
	{ "sliminfer:block=48,unit=16,window=40,sinks=50,layers=0:%", "0.3", "0.25", "0.35", 0.01 },
	{ "sliminfer:block=48,unit=3,window=40,sinks=50,layers=0:%", "3", "2", "4", 0.01 },
	{ 0 }
};

extern const struct dropper dropper_sliminfer;
const struct dropper dropper_sliminfer = {
	.name = "sliminfer",
	.title = "prune blocks by their units' likeness to the last queries (unverified)",
	.origin = "SlimInfer (2025), settings that its abstract leaves open are ours",
	.params = params,
	.param_size = sizeof(struct sliminfer),
	.place = DROP_AFTER_LAYER,
	.check = sliminfer_check,
	.open = sliminfer_open,
	.close = free,
	.acts_after = sliminfer_acts_after,
	.scores = scores_of,
	.ref = sliminfer_ref,
	.band = bands,
	.work_bytes = HAVE_CUDA ? sliminfer_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? sliminfer_enqueue : NULL,
};
