/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XAttention's selection: blocks whose antidiagonals hold enough of the estimated attention.
 *
 * Queries and keys are reduced by a stride of S tokens on the absolute grid.  Reduced row a is the
 * queries aS ... aS + S - 1, reduced column c the keys cS ... cS + S - 1.  Their products are
 * summed along the antidiagonal of the S x S tile:
 *
 *   z[a][c] = sum over p of q[aS + S-1-p] . k[cS + p] / (S sqrt(head_dim))
 *   P[a][c] = softmax over c <= a
 *   w[i][j] = sum of P over the rows of query block i and the columns of block j
 *
 * Block 0 and the diagonal are kept.  The others follow by descending w, until all kept blocks hold
 * at least the share `threshold` of the row's w; of equal w the lower block is first.  Threshold 0
 * leaves just the first and the diagonal block.  Threshold 1 keeps everything, as a chunk of one
 * row does.
 *
 * Rows outside the chunk and keys past its end count as zeros.  A reduced row takes part if the
 * chunk has a token of it.  So where a chunk begins and ends matters only for the query blocks that
 * it cuts.
 *
 * The dense tail is OpenVINO's: a chunk with fewer than last_dense prompt tokens after it keeps
 * everything.  For the last chunk of a prompt this holds in OpenVINO's documentation, but not in
 * its code; tail=code follows the code.
 */
#include "config.h"
#include "kernels/select/xattention/xattention.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "kernels/prim/multiply.h"
#include "kernels/select/top.h"
#include "kernels/select/work.h"

static const char *const strides[] = { "4", "8", "16", NULL };
static const char *const tails[] = { "doc", "code", NULL };

static int xattention_block_tok(const void *param)
{
	return selector_block_tok(((const struct xattention *)param)->block);
}

static int stride_tok(const struct xattention *p)
{
	return 4 << p->stride;
}

/* ---- thresholds ---- */

enum { TABLE_MAX = 64 << 20 }; /* bytes; published ones have a few thousand */

/* A table of thresholds as it is read, for messages and checks. */
struct table {
	const char *path;
	const cJSON *json, *layers, *rows;
	int n_rows, n_layers, n_heads;
};

/* A table that was calibrated for other sizes has other thresholds. */
static enum ar_status check_size(const struct table *t, const char *key, int want,
				 struct ar_err *err)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(t->json, key);

	if (v && !(cJSON_IsNumber(v) && v->valuedouble == want))
		return ar_fail(err, AR_DATA,
			       "%s: not made for %s=%d; use the table's %s or "
			       "calibrate again",
			       t->path, key, want, key);
	return AR_OK;
}

static enum ar_status check_table(struct table *t, const struct xattention *p, struct ar_err *err)
{
	enum ar_status st = check_size(t, "stride", stride_tok(p), err);

	if (!st)
		st = check_size(t, "block", xattention_block_tok(p), err);
	if (st)
		return st;
	t->rows = cJSON_GetObjectItemCaseSensitive(t->json, "threshold");
	t->layers = cJSON_GetObjectItemCaseSensitive(t->json, "layers");
	t->n_rows = cJSON_GetArraySize(t->rows);
	if (!cJSON_IsArray(t->rows) || !t->n_rows || (t->layers && !cJSON_IsArray(t->layers)))
		return ar_fail(err, AR_DATA,
			       "%s: want an object with 'threshold', an array with a "
			       "row per layer, and perhaps 'layers', their numbers",
			       t->path);
	if (cJSON_GetArraySize(t->layers ? t->layers : t->rows) !=
	    (t->layers ? t->n_rows : t->n_layers))
		return ar_fail(err, AR_DATA, "%s: %d rows for %d layers", t->path, t->n_rows,
			       t->layers ? cJSON_GetArraySize(t->layers) : t->n_layers);
	return AR_OK;
}

/* The layer of row i, -1: none of the model's. */
static int layer_of(const struct table *t, int i)
{
	const cJSON *v = t->layers ? cJSON_GetArrayItem(t->layers, i) : NULL;

	if (!t->layers)
		return i;
	if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0 && v->valuedouble < t->n_layers) ||
	    v->valuedouble != floor(v->valuedouble))
		return -1;
	return (int)v->valuedouble;
}

static enum ar_status read_row(const struct table *t, int i, int q_heads, float *out,
			       struct ar_err *err)
{
	const cJSON *row = cJSON_GetArrayItem(t->rows, i);

	if (!cJSON_IsArray(row) || cJSON_GetArraySize(row) < t->n_heads)
		return ar_fail(err, AR_DATA,
			       "%s: row %d of 'threshold': want a number for each "
			       "of %d heads",
			       t->path, i, t->n_heads);
	for (int h = 0; h < q_heads; h++) {
		const cJSON *v = cJSON_GetArrayItem(row, h % t->n_heads);

		if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0 && v->valuedouble <= 1))
			return ar_fail(err, AR_DATA,
				       "%s: row %d, head %d: want a threshold from 0 "
				       "to 1",
				       t->path, i, h);
		out[h] = (float)v->valuedouble;
	}
	return AR_OK;
}

/* Every layer takes the row of the nearest layer that has one; of two equally near, the lower. */
static enum ar_status read_rows(const struct table *t, struct xattention_self *x,
				struct ar_err *err)
{
	for (int i = 0; i < t->n_rows; i++)
		if (layer_of(t, i) < 0)
			return ar_fail(err, AR_DATA,
				       "%s: entry %d of 'layers': want a layer from "
				       "0 to %d",
				       t->path, i, t->n_layers - 1);
	for (int l = 0; l < t->n_layers; l++) {
		int best = 0;
		enum ar_status st;

		for (int i = 1; i < t->n_rows; i++) {
			int far = abs(layer_of(t, i) - l) - abs(layer_of(t, best) - l);

			if (far < 0 || (!far && layer_of(t, i) < layer_of(t, best)))
				best = i;
		}
		st = read_row(t, best, x->q_heads, x->threshold + l * x->q_heads, err);
		if (st)
			return st;
	}
	return AR_OK;
}

static enum ar_status read_table(struct xattention_self *x, const struct xattention *p,
				 const struct selector_env *env, struct ar_err *err)
{
	struct table t = { .path = p->table,
			   .n_layers = env->n_layers,
			   .n_heads = selector_file_heads(env, x->q_heads) };
	cJSON *json;
	char *text;
	enum ar_status st = text_read(&text, p->table, TABLE_MAX, err);

	if (st)
		return st;
	st = json_parse_file(&json, text, p->table, err);
	t.json = json;
	if (!st)
		st = check_table(&t, p, err);
	if (!st)
		st = read_rows(&t, x, err);
	cJSON_Delete(json);
	free(text);
	return st;
}

static enum ar_status xattention_open(void **self, const void *param,
				      const struct selector_env *env, struct ar_err *err)
{
	const struct xattention *p = param;
	int n = env->n_layers * env->shape.q_heads;
	struct xattention_self *x = calloc(1, sizeof *x + (size_t)n * sizeof *x->threshold);
	enum ar_status st = AR_OK;

	*self = NULL;
	if (!x)
		return ar_nomem(err);
	x->stride = stride_tok(p);
	x->last_dense = p->last_dense;
	x->tail = p->tail;
	x->q_heads = env->shape.q_heads;
	for (int i = 0; i < n; i++)
		x->threshold[i] = (float)p->threshold;
	if (p->table)
		st = read_table(x, p, env, err);
	if (st)
		free(x);
	else
		*self = x;
	return st;
}

/* ---- masses ---- */

/* One request under one head. */
struct view {
	const struct attn_batch *b;
	int stride, r, head;
	int ctx, end; /* tokens of the chunk */
	int n_col;    /* reduced columns */
	const bf16_t *q;
	float *k; /* [stride][head_dim][n_col] keys, token cS + p at [p][.][c] */
	float *z; /* [n_col] of one reduced row */
};

static enum ar_status view_init(struct view *v, const bf16_t *k, struct ar_err *err)
{
	const struct attn_shape *s = &v->b->shape;
	size_t dim = (size_t)s->head_dim, n = (size_t)v->n_col;

	v->k = calloc(n * (size_t)v->stride * dim, sizeof *v->k);
	v->z = calloc(n, sizeof *v->z);
	if (!v->k || !v->z)
		return ar_nomem(err);
	for (int t = 0; t < v->end; t++) {
		size_t page = (size_t)v->b->keys.page[v->b->keys.page0[v->r] + t / s->page_tok];
		size_t at = page * (size_t)s->kv_heads +
			    (size_t)(v->head / (s->q_heads / s->kv_heads));
		const bf16_t *key = k +
				    (at * (size_t)s->page_tok + (size_t)(t % s->page_tok)) * dim;
		float *to = v->k + (size_t)(t % v->stride) * dim * n + (size_t)(t / v->stride);

		for (size_t d = 0; d < dim; d++)
			to[d * n] = bf16_to_f32(key[d]);
	}
	return AR_OK;
}

static void view_release(struct view *v)
{
	free(v->k);
	free(v->z);
}

/* P of reduced row a into z[0 .. a]. */
static void reduced_row(const struct view *v, int a)
{
	const struct attn_shape *s = &v->b->shape;
	float scale = 1 / (sqrtf((float)s->head_dim) * (float)v->stride);
	float max = -INFINITY, sum = 0;

	memset(v->z, 0, ((size_t)a + 1) * sizeof *v->z);
	for (int p = 0; p < v->stride; p++) {
		int t = a * v->stride + v->stride - 1 - p;
		const bf16_t *q;

		if (t < v->ctx || t >= v->end)
			continue;
		q = v->q + ((size_t)(v->b->rows.row0[v->r] + t - v->ctx) * (size_t)s->q_heads +
			    (size_t)v->head) *
				   (size_t)s->head_dim;
		for (int d = 0; d < s->head_dim; d++)
			multiply_add(v->z, bf16_to_f32(q[d]) * scale,
				     v->k + (size_t)(p * s->head_dim + d) * (size_t)v->n_col,
				     a + 1);
	}
	for (int c = 0; c <= a; c++)
		max = fmaxf(max, v->z[c]);
	for (int c = 0; c <= a; c++)
		sum += v->z[c] = expf(v->z[c] - max);
	for (int c = 0; c <= a; c++)
		v->z[c] /= sum;
}

/* w of query block qa. */
static void block_masses(const struct view *v, int qa, float *w)
{
	int tok = v->b->shape.page_tok, per = tok / v->stride;
	int lo = qa * tok > v->ctx ? qa * tok : v->ctx;
	int hi = qa * tok + tok < v->end ? qa * tok + tok : v->end;

	for (int j = 0; j <= qa; j++)
		w[j] = 0;
	for (int a = lo / v->stride; a * v->stride < hi; a++) {
		reduced_row(v, a);
		for (int c = 0; c <= a; c++)
			w[c / per] += v->z[c];
	}
}

enum ar_status xattention_masses(const struct attn_batch *b, int stride, int r, int head,
				 const bf16_t *q, const bf16_t *k, uint32_t *mass,
				 struct ar_err *err)
{
	int ctx = b->rows.pos0[r], end = b->keys.len[r];
	struct view v = {
		b, stride, r, head, ctx, end, (end + stride - 1) / stride, q, NULL, NULL
	};
	float *w = malloc((size_t)b->keys.max_kv_blk * sizeof *w);
	enum ar_status st = w ? view_init(&v, k, err) : ar_nomem(err);

	for (int i = 0; !st && i < b->rows.qblk0[r + 1] - b->rows.qblk0[r]; i++) {
		int qa = ctx / b->shape.page_tok + i;

		block_masses(&v, qa, w);
		for (int j = 0; j < b->keys.max_kv_blk; j++)
			mass[(size_t)i * (size_t)b->keys.max_kv_blk + (size_t)j] =
				j <= qa ? xattention_units(w[j]) : 0;
	}
	view_release(&v);
	free(w);
	return st;
}

/* ---- selection ---- */

/* One mask row, of query block qa; cell: room for qa blocks; score: shares of the mass, or NULL. */
static void xattention_mask_row(const uint32_t *mass, int qa, float threshold, bool all,
				struct top_cell *cell, int words, uint32_t *row, float *score)
{
	uint32_t total = 0, sum = mass[0] + (qa ? mass[qa] : 0), need;

	memset(row, 0, (size_t)words * sizeof *row);
	for (int j = 0; j <= qa; j++)
		total += mass[j];
	for (int j = 0; score && !all && j <= qa; j++)
		score[j] = (float)mass[j] / (float)total;
	need = all ? UINT32_MAX : xattention_need(threshold, total);
	row[0] |= 1;
	row[qa / 32] |= 1u << qa % 32;
	for (int j = 1; j < qa; j++)
		cell[j - 1] = (struct top_cell){ mass[j], j };
	top_sort(cell, qa - 1);
	for (int i = 0; i < qa - 1 && sum < need; i++) {
		sum += mass[cell[i].at];
		row[cell[i].at / 32] |= 1u << cell[i].at % 32;
	}
}

static enum ar_status xattention_ref(const struct attn_call *call, const void *self,
				     const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct xattention_self *x = self;
	int heads = b->shape.q_heads;
	size_t blks = (size_t)b->keys.max_kv_blk;
	uint32_t *mass = malloc(((size_t)b->rows.n_qblk * blks + 1) * sizeof *mass);
	struct top_cell *cell = malloc(blks * sizeof *cell);
	enum ar_status st = mass && cell ? AR_OK : ar_nomem(err);

	for (int k = 0; !st && k < b->rows.n_req * heads; k++) {
		int r = k / heads, h = k % heads;
		float threshold = x->threshold[call->layer * x->q_heads + h];
		bool all = threshold >= 1 || attn_n_row(&b->rows, r) == 1 ||
			   xattention_in_tail(x->last_dense, x->tail, b->rows.left[r]);

		st = xattention_masses(b, x->stride, r, h, call->q, call->kv.k, mass, err);
		for (int i = 0; !st && i < b->rows.qblk0[r + 1] - b->rows.qblk0[r]; i++)
			xattention_mask_row(
				mass + (size_t)i * blks, b->rows.pos0[r] / b->shape.page_tok + i,
				threshold, all, cell, b->keys.mask_words,
				out->mask + (size_t)((b->rows.qblk0[r] + i) * heads + h) *
						    (size_t)b->keys.mask_words,
				selection_score(out, b, b->rows.qblk0[r] + i, h));
	}
	free(mass);
	free(cell);
	return st;
}

/* ---- descriptor ---- */

#define OFF(member) offsetof(struct xattention, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "threshold", .type = OPT_REAL, .off = OFF(threshold), .arg = "X", .def = "0.9",
	  .max = 1, .help = "keep blocks until they hold a share X of the estimated mass" },
	{ .name = "table", .type = OPT_STR, .off = OFF(table), .arg = "FILE",
	  .help = "read a threshold for each layer and head from FILE instead" },
	{ .name = "stride", .type = OPT_ENUM, .off = OFF(stride), .arg = "N", .def = "8",
	  .choice = strides, .help = "estimate from every N-th antidiagonal" },
	{ .name = "last-dense", .type = OPT_INT, .off = OFF(last_dense), .arg = "N", .def = "0",
	  .max = 1 << 30,
	  .help = "keep everything where fewer than N prompt tokens are left" },
	{ .name = "tail", .type = OPT_ENUM, .off = OFF(tail), .arg = "RULE", .def = "doc",
	  .choice = tails, .help = "code: last-dense has no effect on a prompt's last chunk" },
	{ .name = "block", .type = OPT_ENUM, .off = OFF(block), .arg = "N", .def = "128",
	  .choice = selector_blocks, .help = "tokens of a block" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "xattention:threshold=%", "0.8", "0.799", "0.801", 0.01 },
	{ "xattention:stride=16,block=64,threshold=%", "0.9", "0.899", "0.901", 0.01 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "xattention:threshold=%", { "0", "0.5", "0.8", "0.99" }, true, true },
	{ "xattention:stride=16,block=64,threshold=%", { "0", "0.4", "0.7", "1" }, true, true },
	{ 0 }
};
/* clang-format on */

static struct selector_work xattention_work(const void *param, const struct attn_shape *s,
					    const struct selector_chunk *c)
{
	const struct xattention *p = param;

	return selector_products(
		&(struct selector_form){ .launches = 3, .share = 1.0 / stride_tok(p) }, s, c);
}

extern const struct selector selector_xattention;
const struct selector selector_xattention = {
	.version = AR_SELECTOR_VERSION,
	.name = "xattention",
	.title = "blocks whose antidiagonals hold most of the estimated attention",
	.origin = "XAttention (2025); dense tail as in OpenVINO GenAI",
	.params = params,
	.threshold = "threshold",
	.param_size = sizeof(struct xattention),
	.scores = true,
	.block_tok = xattention_block_tok,
	.open = xattention_open,
	.close = free,
	.work = xattention_work,
	.ref = xattention_ref,
	.band = bands,
	.order = orders,
	.work_bytes = HAVE_CUDA ? xattention_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? xattention_enqueue : NULL,
};
