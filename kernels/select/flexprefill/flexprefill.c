/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FlexPrefill's selection, for chunks.  Each head keeps a vertical-slash pattern of blocks, found
 * from the chunk's last queries.  A head whose attention follows the means of blocks also keeps the
 * blocks of largest weight.
 *
 * A block has B tokens, the chunk ends at position N, nb = ceil(N / B).  column[c] and slash[d] are
 * the sums of lastq.h over the last B rows of the chunk; over all if it has fewer.  Diagonals are
 * counted from the longest distance on: s = N - 1 - d.  For each query head:
 *
 *   V[J], S[J]   sums of column over block J, and of slash over s in [J B, (J + 1) B)
 *   n_v          (m + 1) / B + 1 blocks, rounded down, if the m largest columns add up to at most
 *                gamma; at least min-budget, at most max-budget; n_s from slash alike
 *   p            softmax over J of mean(last rows) . mean(keys of J) / sqrt(head_dim)
 *   JS           sqrt(KL(p || M) / 2 + KL(V || M) / 2), M = (p + V) / 2
 *
 * A head with JS < tau is query-aware and has n_v = n_s = min-budget.  Block row r keeps two kinds
 * of blocks, as far as they are not past r.  One is the n_v blocks J of largest V, block 0 always
 * among them.  The other is the blocks r - o.  o is nb - 1 - J for the n_s largest S[J], 0 always
 * among them.
 *
 * A query-aware head also takes a softmax for each of the chunk's block rows r: over J <= r, of
 * mean(rows of block r) . mean(keys of J) / sqrt(head_dim).  Of the values of all block rows it
 * keeps the largest.  They add up to at most gamma times the number of block rows; one that exceeds
 * it is left out.  Of equal values the first win.
 *
 * If N is at most two blocks or min-budget, and for a chunk of one row, everything is kept.
 *
 * Masses are counted in whole units, far below the resolution of bf16 scores.  So neither the order
 * of a sum nor that of a sort matters.  A p that underflows to 0 makes the published code's JS
 * undefined, and the head is not query-aware.
 */
#include "config.h"
#include "kernels/select/flexprefill/flexprefill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select/lastq/lastq.h"
#include "kernels/select/means/means.h"
#include "kernels/select/top.h"
#include "kernels/select/work.h"

struct scratch {
	struct top_cell *cell; /* [positions or query blocks * blocks] of masses */
	uint32_t *pool[2];     /* V and S [blocks] */
	bool *on[2];	       /* which blocks are taken */
	float *p;	       /* [blocks] */
	float *mean;	       /* [head_dim] of queries */
};

static void flexprefill_scratch_release(struct scratch *t)
{
	free(t->cell);
	free(t->pool[0]);
	free(t->on[0]);
	free(t->p);
	free(t->mean);
}

static enum ar_status flexprefill_scratch_init(struct scratch *t, size_t positions, size_t nb,
					       size_t n_qblk, int head_dim, struct ar_err *err)
{
	size_t cells = positions > n_qblk * nb ? positions : n_qblk * nb;

	t->cell = malloc(cells * sizeof *t->cell);
	t->pool[0] = malloc(2 * nb * sizeof *t->pool[0]);
	t->on[0] = malloc(2 * nb * sizeof *t->on[0]);
	t->p = malloc(nb * sizeof *t->p);
	t->mean = malloc((size_t)head_dim * sizeof *t->mean);
	if (!t->cell || !t->pool[0] || !t->on[0] || !t->p || !t->mean)
		return ar_nomem(err);
	t->pool[1] = t->pool[0] + nb;
	t->on[1] = t->on[0] + nb;
	return AR_OK;
}

/* Sort the n cells by mass.  Returns how many of the largest add up to at most the budget. */
static int within(struct top_cell *cell, int n, uint32_t budget)
{
	uint64_t sum = 0;
	int i = 0;

	top_sort(cell, n);
	for (; i < n && sum + (uint32_t)cell[i].key <= budget; i++)
		sum += (uint32_t)cell[i].key;
	return i;
}

/* The input for one head of a request. */
struct head {
	const struct attn_batch *b;
	const struct flexprefill *p;
	int r, head;
	int rows, end, nb;
	const bf16_t *q;
	const float *mean; /* of keys */
};

/* Add up the masses of columns or diagonals by block; returns n_v or n_s. */
static int add_masses(const struct head *h, int slash, const float *mass, struct scratch *t)
{
	int tok = h->b->shape.page_tok;
	uint32_t *pool = t->pool[slash];

	memset(pool, 0, (size_t)h->nb * sizeof *pool);
	for (int i = 0; i < h->end; i++) {
		uint32_t units = flexprefill_units(mass[slash ? h->end - 1 - i : i], 31);

		pool[i / tok] += units;
		t->cell[i] = (struct top_cell){ units, i };
	}
	return flexprefill_count(h->p, tok, h->nb,
				 within(t->cell, h->end, flexprefill_budget(h->p, 1)));
}

/* out[j], j < n: softmax of the mean of rows [lo, hi) against the means of blocks. */
static void block_attention(const struct head *h, int lo, int hi, int n, struct scratch *t,
			    float *out)
{
	const struct attn_shape *s = &h->b->shape;
	float scale = 1 / sqrtf((float)s->head_dim), max = -INFINITY, sum = 0;

	means_of_rows(h->b, lo, hi, h->head, h->q, t->mean);
	for (int j = 0; j < n; j++) {
		const float *key = means_at(h->b, h->r, j, h->head / (s->q_heads / s->kv_heads),
					    h->mean);

		out[j] = means_dot(t->mean, key, s->head_dim) * scale;
		max = fmaxf(max, out[j]);
	}
	for (int j = 0; j < n; j++)
		sum += out[j] = expf(out[j] - max);
	for (int j = 0; j < n; j++)
		out[j] /= sum;
}

static bool query_aware(const struct head *h, struct scratch *t)
{
	int n = h->rows < h->b->shape.page_tok ? h->rows : h->b->shape.page_tok;
	int end = h->b->rows.row0[h->r + 1];
	double js = 0;

	block_attention(h, end - n, end, h->nb, t, t->p);
	for (int j = 0; j < h->nb; j++) {
		double p = t->p[j], v = t->pool[0][j] * 0x1p-31, m = (p + v) / 2;

		if (p <= 0)
			return false;
		js += 0.5 * p * log(p / m);
		if (v > 0)
			js += 0.5 * v * log(v / m);
	}
	return sqrt(js > 0 ? js : 0) < h->p->tau;
}

/* Mark the n blocks or slashes of largest mass. */
static void mark_largest(const struct head *h, int slash, int n, struct scratch *t)
{
	t->pool[slash][slash ? h->nb - 1 : 0] = UINT32_MAX;
	for (int j = 0; j < h->nb; j++) {
		t->cell[j] = (struct top_cell){ t->pool[slash][j], j };
		t->on[slash][j] = false;
	}
	top_sort(t->cell, h->nb);
	for (int i = 0; i < n; i++)
		t->on[slash][t->cell[i].at] = true;
}

static uint32_t *flexprefill_mask_row(const struct head *h, int i, uint32_t *mask)
{
	size_t row = (size_t)(h->b->rows.qblk0[h->r] + i) * (size_t)h->b->shape.q_heads +
		     (size_t)h->head;

	return mask + row * (size_t)h->b->keys.mask_words;
}

static void flexprefill_keep(uint32_t *row, int j)
{
	row[j / 32] |= 1u << j % 32;
}

/* Keep the blocks of largest weight of all block rows. */
static void keep_aware(const struct head *h, struct scratch *t, uint32_t *mask)
{
	int tok = h->b->shape.page_tok, ctx = h->b->rows.pos0[h->r], first = ctx / tok, n = 0;
	int n_row = h->nb - first;

	for (int i = 0; i < n_row; i++) {
		int lo = (first + i) * tok - ctx, hi = lo + tok;

		lo = h->b->rows.row0[h->r] + (lo > 0 ? lo : 0);
		hi = h->b->rows.row0[h->r] + (hi < h->rows ? hi : h->rows);
		block_attention(h, lo, hi, first + i + 1, t, t->p);
		for (int j = 0; j <= first + i; j++)
			t->cell[n++] = (struct top_cell){
				flexprefill_units(t->p[j], flexprefill_shift(n_row)),
				i * h->nb + j,
			};
	}
	n = within(t->cell, n, flexprefill_budget(h->p, n_row));
	for (int i = 0; i < n; i++)
		flexprefill_keep(flexprefill_mask_row(h, (int)t->cell[i].at / h->nb, mask),
				 (int)t->cell[i].at % h->nb);
}

enum ar_status flexprefill_head(const struct attn_batch *b, const struct flexprefill *p, int r,
				int head, const bf16_t *q, const float *mean, const float *column,
				const float *slash, const uint32_t *const *pool, uint32_t *mask,
				struct ar_err *err)
{
	int tok = b->shape.page_tok, rows = attn_n_row(&b->rows, r), end = b->keys.len[r];
	struct head h = { b, p, r, head, rows, end, (end + tok - 1) / tok, q, mean };
	int first = b->rows.pos0[r] / tok, n_row = h.nb - first, n[2];
	bool open = flexprefill_open(p, tok, rows, end), aware = false;
	struct scratch t = { 0 };
	enum ar_status st = flexprefill_scratch_init(&t, (size_t)end, (size_t)h.nb, (size_t)n_row,
						     b->shape.head_dim, err);

	if (st)
		goto out;
	if (!open) {
		n[0] = add_masses(&h, 0, column, &t);
		n[1] = add_masses(&h, 1, slash, &t);
		for (int i = 0; i < 2 && pool; i++)
			memcpy(t.pool[i], pool[i], (size_t)h.nb * sizeof *pool[i]);
		aware = query_aware(&h, &t);
		for (int i = 0; i < 2; i++)
			mark_largest(&h, i, aware ? flexprefill_count(p, tok, h.nb, 0) : n[i], &t);
	}
	for (int i = 0; i < n_row; i++) {
		uint32_t *row = flexprefill_mask_row(&h, i, mask);

		memset(row, 0, (size_t)b->keys.mask_words * sizeof *row);
		for (int j = 0; j <= first + i; j++)
			if (open || t.on[0][j] || t.on[1][h.nb - 1 - (first + i - j)])
				flexprefill_keep(row, j);
	}
	if (aware)
		keep_aware(&h, &t, mask);
out:
	flexprefill_scratch_release(&t);
	return st;
}

static enum ar_status flexprefill_ref(const struct attn_call *call, const void *self,
				      const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	size_t n = (size_t)b->keys.max_kv_blk * (size_t)s->page_tok;
	float *x = malloc(2 * n * sizeof *x);
	enum ar_status st = x ? AR_OK : ar_nomem(err);

	if (!st)
		means_update(b, call->kv.k, call->state);
	for (int r = 0; r < b->rows.n_req && !st; r++)
		for (int h = 0; h < s->q_heads && b->rows.row0[r + 1] > b->rows.row0[r] && !st;
		     h++) {
			st = lastq_ref(b, r, h, s->page_tok, call->q, call->kv.k, x, x + n, err);
			if (!st)
				st = flexprefill_head(b, self, r, h, call->q, call->state, x, x + n,
						      NULL, out->mask, err);
		}
	free(x);
	return st;
}

/* ---- descriptor ---- */

static size_t flexprefill_state_bytes(const void *self, const struct attn_shape *s)
{
	(void)self;
	return means_state_bytes(s);
}

static enum ar_status flexprefill_check(const void *param, struct ar_err *err)
{
	const struct flexprefill *p = param;

	if (p->max_budget && p->max_budget < p->min_budget)
		return ar_fail(err, AR_USAGE,
			       "max-budget=%lld is below min-budget=%lld: want at least as much, "
			       "or 0",
			       (long long)p->max_budget, (long long)p->min_budget);
	return AR_OK;
}

#define OFF(member) offsetof(struct flexprefill, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "gamma", .type = OPT_REAL, .off = OFF(gamma), .arg = "X", .def = "0.9", .max = 1,
	  .help = "columns, and likewise diagonals, hold a share X of the attention" },
	{ .name = "tau", .type = OPT_REAL, .off = OFF(tau), .arg = "X", .def = "0.1", .max = 1,
	  .help = "heads whose block means err by less than X are query-aware" },
	{ .name = "min-budget", .type = OPT_INT, .off = OFF(min_budget), .arg = "N", .def = "1024",
	  .max = 1 << 30, .help = "keep at least N tokens of columns, and as many of diagonals" },
	{ .name = "max-budget", .type = OPT_INT, .off = OFF(max_budget), .arg = "N", .def = "0",
	  .max = 1 << 30, .help = "keep at most N tokens of each; 0: no limit" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "flexprefill:tau=0,min-budget=128,gamma=%", "0.8", "0.799", "0.801", 0.01 },
	{ "flexprefill:tau=1,min-budget=128,gamma=%", "0.8", "0.799", "0.801", 0.01 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "flexprefill:tau=0,min-budget=1,gamma=%", { "0", "0.3", "0.6", "0.9" }, true, true },
	{ "flexprefill:tau=1,min-budget=1,gamma=%", { "0", "0.3", "0.6", "0.9" }, true, true },
	{ 0 }
};
/* clang-format on */

static struct selector_work flexprefill_work(const void *param, const struct attn_shape *s,
					     const struct selector_chunk *c)
{
	(void)param;
	return selector_products(
		&(struct selector_form){ .launches = 10, .passes = 2, .last = 128 }, s, c);
}

extern const struct selector selector_flexprefill;
const struct selector selector_flexprefill = {
	.version = AR_SELECTOR_VERSION,
	.name = "flexprefill",
	.title = "vertical-slash blocks by the last queries, or blocks by their means",
	.origin = "FlexPrefill (ICLR 2025), for chunks instead of whole prompts",
	.params = params,
	.threshold = "gamma",
	.param_size = sizeof(struct flexprefill),
	.check = flexprefill_check,
	.state_bytes = flexprefill_state_bytes,
	.work = flexprefill_work,
	.ref = flexprefill_ref,
	.band = bands,
	.order = orders,
	.work_bytes = HAVE_CUDA ? flexprefill_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? flexprefill_enqueue : NULL,
};
