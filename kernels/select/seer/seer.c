/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SeerAttention's selection: a small learned gate predicts each block's share of a query block's
 * attention.
 *
 * Both are pooled before RoPE: Q over the chunk's rows in query block i, K over the tokens that key
 * block j has:
 *
 *   f[j]    = max K | min K | mean K                           3 head_dim values
 *   kc[j]   = Rope(jB, f[j] Wk)                                head_dim values
 *   qc[i]   = Rope(iB, mean Q), or Rope(iB, mean Q Wq)
 *   a[i][j] = softmax over j <= i of qc[i] . kc[j] / sqrt(head_dim)
 *
 * Block j is kept if a[i][j] > threshold.  With nz-ratio X the floor((1 - sqrt(1 - X)) n) blocks of
 * largest a[i][j] are kept instead, at least one; n: blocks up to the chunk's end; of equal values
 * the lower block wins.  No block is kept for its place, so a row may be left without its own
 * block, or without any; the options diagonal and dense-tail change that.  A chunk of one row sees
 * everything.
 *
 * Every vector is rounded to bf16 where the model's own gate rounds: after undoing RoPE, pooling,
 * projection and RoPE, logits and a.  RoPE is undone with cos and sin in fp32.
 *
 * A gate without Wq has a Wk for each query head.  A gate with Wq has a Wk for each query head or
 * for each KV head.  A gate scores in as many channels as the heads have.  If heads are repeated,
 * so are the matrices.
 *
 * The state is kc, computed again for every block that a chunk touches.
 */
#include "config.h"
#include "kernels/select/seer/seer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/safetensors.h"
#include "kernels/select/top.h"
#include "kernels/select/work.h"

static int seer_block_tok(const void *param)
{
	(void)param;
	return SEER_BLOCK;
}

static int seer_tail(const void *param)
{
	return ((const struct seer *)param)->dense_tail ? SEER_TAIL : 0;
}

/* ---- the gate's file ---- */

enum { MAX_LAYER = 4096 };

static const struct safetensors_tensor *find_gate(const struct safetensors *s, int layer,
						  char which)
{
	char name[96];

	snprintf(name, sizeof name, SEER_TENSOR, layer, which);
	for (size_t i = 0; i < safetensors_count(s); i++)
		if (!strcmp(safetensors_at(s, i)->name, name))
			return safetensors_at(s, i);
	return NULL;
}

/* Check that t is [heads, in, out].  heads: of all ranks; n: of each. */
static enum ar_status check_shape(const struct safetensors_tensor *t, int64_t heads, int n,
				  int64_t in, int64_t out, const char *path, struct ar_err *err)
{
	if (strcmp(t->dtype, "BF16") != 0 || t->n_dim != 3)
		return ar_fail(err, AR_DATA, "%s: tensor '%s': want BF16 [heads, in, out]", path,
			       t->name);
	if (t->dim[0] >= n && t->dim[0] == heads && heads % n == 0 && t->dim[1] == in &&
	    t->dim[2] == out)
		return AR_OK;
	return ar_fail(err, AR_DATA,
		       "%s: tensor '%s' is [%" PRId64 ", %" PRId64 ", %" PRId64
		       "]; want [%d or a multiple, %" PRId64 ", %" PRId64 "], a gate of this "
		       "model for prefill, not for decoding",
		       path, t->name, t->dim[0], t->dim[1], t->dim[2], n, in, out);
}

/* Set members of g for all layers, from the first layer's tensors.  n_kv: KV heads of this rank. */
static void infer(struct seer_self *g, const struct safetensors_tensor *k,
		  const struct safetensors_tensor *q, int n_kv)
{
	bool per_kv = q && k->n_dim == 3 && q->n_dim == 3 && k->dim[0] < q->dim[0];

	g->k_heads = per_kv ? n_kv : g->q_heads;
}

static enum ar_status check_layer(const struct seer_self *g, const struct safetensors_tensor *k,
				  const struct safetensors_tensor *q, bool want_q, const char *path,
				  struct ar_err *err)
{
	int64_t dim = g->head_dim, heads = k->dim[0];
	int n_q = g->q_heads / g->repeats, n_k = g->k_heads / g->repeats;
	enum ar_status st = AR_OK;

	if (want_q != !!q)
		return ar_fail(err, AR_DATA,
			       "%s: the layer of '%s' has %s projection of queries, "
			       "unlike other layers",
			       path, k->name, q ? "a" : "no");
	if (q) {
		st = check_shape(q, q->dim[0], n_q, dim, dim, path, err);
		heads = n_k == n_q ? q->dim[0] : q->dim[0] / n_q * n_k;
	}
	return st ? st : check_shape(k, heads, n_k, SEER_POOLS * dim, dim, path, err);
}

/* Read the matrices of the first heads into `to`, [head][out][in]. */
static enum ar_status read_heads(const struct seer_self *g, const struct safetensors *s,
				 const struct safetensors_tensor *t, int heads, bf16_t *to,
				 struct ar_err *err)
{
	size_t in = (size_t)t->dim[1], out = (size_t)t->dim[2], bytes = in * out * sizeof *to;
	bf16_t *w = malloc(bytes);
	enum ar_status st = w ? AR_OK : ar_nomem(err);

	for (int h = 0; !st && h < heads; h++, to += in * out) {
		st = safetensors_read(s, t, (uint64_t)(h % (heads / g->repeats)) * bytes, w, bytes,
				      err);
		for (size_t i = 0; !st && i < in; i++)
			for (size_t o = 0; o < out; o++)
				to[o * in + i] = w[i * out + o];
	}
	free(w);
	return st;
}

/* Numbers of the layers that the file has, at most max. */
static int list_layers(const struct safetensors *s, int max, int *layer)
{
	int n = 0;

	for (int l = 0; l < MAX_LAYER && n < max; l++)
		if (find_gate(s, l, 'k'))
			layer[n++] = l;
	return n;
}

static enum ar_status read_layers(struct seer_self *g, const struct safetensors *s,
				  const int *layer, int n_kv, const char *path, struct ar_err *err)
{
	bool want_q = find_gate(s, *layer, 'q');
	size_t n = (size_t)g->n_layers;
	enum ar_status st = AR_OK;

	infer(g, find_gate(s, *layer, 'k'), find_gate(s, *layer, 'q'), n_kv);
	g->host.k = malloc(n * seer_k_size(g) * sizeof(bf16_t));
	g->host.q = want_q ? malloc(n * seer_q_size(g) * sizeof(bf16_t)) : NULL;
	if (!g->host.k || (want_q && !g->host.q))
		return ar_nomem(err);
	for (size_t i = 0; !st && i < n; i++) {
		const struct safetensors_tensor *k = find_gate(s, layer[i], 'k');
		const struct safetensors_tensor *q = find_gate(s, layer[i], 'q');

		st = check_layer(g, k, q, want_q, path, err);
		if (!st)
			st = read_heads(g, s, k, g->k_heads, g->host.k + i * seer_k_size(g), err);
		if (!st && q)
			st = read_heads(g, s, q, g->q_heads, g->host.q + i * seer_q_size(g), err);
	}
	return st;
}

static enum ar_status read_gate(struct seer_self *g, const char *path,
				const struct selector_env *env, struct ar_err *err)
{
	int *layer = malloc((size_t)g->model_layers * sizeof *layer);
	struct safetensors *s = NULL;
	enum ar_status st = layer ? safetensors_open(&s, path, err) : ar_nomem(err);

	if (st)
		goto out;
	g->n_layers = list_layers(s, g->model_layers, layer);
	if (!g->n_layers)
		st = ar_fail(err, AR_DATA,
			     "%s: no tensor is named like " SEER_TENSOR "; not a gate", path, 0,
			     'k');
	else
		st = read_layers(g, s, layer, env->shape.kv_heads, path, err);
	if (!st && !env->trial && g->n_layers < g->model_layers)
		log_warn("%s: gates of %d layers stand for the %d of the model", path, g->n_layers,
			 g->model_layers);
out:
	safetensors_close(s);
	free(layer);
	return st;
}

/* A gate that takes the mean of keys as it is, for all layers. */
static enum ar_status mean_gate(struct seer_self *g, struct ar_err *err)
{
	size_t dim = (size_t)g->head_dim, in = SEER_POOLS * dim;

	g->n_layers = 1;
	g->k_heads = g->q_heads;
	g->host.k = calloc(seer_k_size(g), sizeof *g->host.k);
	if (!g->host.k)
		return ar_nomem(err);
	for (size_t row = 0; row < (size_t)g->k_heads * dim; row++)
		g->host.k[row * in + 2 * dim + row % dim] = bf16_from_f32(1);
	return AR_OK;
}

static void seer_close(void *self)
{
	struct seer_self *g = self;

#if HAVE_CUDA
	seer_device_free(g);
#endif
	free(g->host.k);
	free(g->host.q);
	free(g->host.inv);
	free(g);
}

static enum ar_status seer_open(void **self, const void *param, const struct selector_env *env,
				struct ar_err *err)
{
	const struct seer *p = param;
	const struct attn_shape *s = &env->shape;
	size_t inv_bytes = (size_t)(s->head_dim / 2) * sizeof *env->rope_inv;
	struct seer_self *g;
	enum ar_status st = AR_OK;

	if (!p->gate)
		return ar_fail(err, AR_USAGE,
			       "no gate: add gate=FILE, a safetensors file of "
			       "released weights or from 'attnreplay calibrate seer', or "
			       "gate=mean, untrained");
	if (!env->rope_inv && env->rope_unknown)
		return ar_fail(err, AR_DATA,
			       "the gate is for keys before their rotary embedding, but %s cannot "
			       "be undone; use a method without a gate",
			       env->rope_unknown);
	if (!env->rope_inv)
		return ar_fail(err, AR_DATA,
			       "the gate is for keys before their rotary embedding, "
			       "which is not known; pack the capture with its rope_theta, or name "
			       "its model");
	g = calloc(1, sizeof *g);
	if (!g)
		return ar_nomem(err);
	*g = (struct seer_self){ .rule = *p,
				 .model_layers = env->n_layers,
				 .q_heads = s->q_heads,
				 .head_dim = s->head_dim,
				 .repeats = s->q_heads / selector_file_heads(env, s->q_heads) };
	g->host.inv = malloc(inv_bytes);
	if (g->host.inv) {
		memcpy(g->host.inv, env->rope_inv, inv_bytes);
		st = !strcmp(p->gate, "mean") ? mean_gate(g, err) : read_gate(g, p->gate, env, err);
	} else {
		st = ar_nomem(err);
	}
#if HAVE_CUDA
	if (!st && env->device)
		st = seer_upload(g, err);
#endif
	if (st)
		seer_close(g);
	else
		*self = g;
	return st;
}

/* ---- pooling, projection, RoPE ---- */

static void trig(int pos, float inv, float *c, float *s)
{
	float angle = (float)pos * inv;

	*c = (float)cos((double)angle);
	*s = (float)sin((double)angle);
}

void seer_pool(const bf16_t *from, size_t pitch, int n, int pos, const float *inv, int head_dim,
	       float *max, float *min, float *mean)
{
	int half = head_dim / 2;

	for (int i = 0; i < half; i++) {
		float top[2] = { -INFINITY, -INFINITY }, least[2] = { INFINITY, INFINITY };
		float sum[2] = { 0, 0 };

		for (int t = 0; t < n; t++) {
			const bf16_t *v = from + (size_t)t * pitch;
			float x = bf16_to_f32(v[i]), y = bf16_to_f32(v[i + half]), c, s, before[2];

			trig(pos + t, inv[i], &c, &s);
			before[0] = bf16_round(x * c + y * s);
			before[1] = bf16_round(y * c - x * s);
			for (int e = 0; e < 2; e++) {
				top[e] = fmaxf(top[e], before[e]);
				least[e] = fminf(least[e], before[e]);
				sum[e] += before[e];
			}
		}
		for (int e = 0; e < 2; e++) {
			mean[i + e * half] = bf16_round(sum[e] / (float)n);
			if (max)
				max[i + e * half] = top[e];
			if (min)
				min[i + e * half] = least[e];
		}
	}
}

void seer_turn(int pos, const float *inv, int head_dim, float *x)
{
	int half = head_dim / 2;

	for (int i = 0; i < half; i++) {
		float lo = x[i], hi = x[i + half], c, s;

		trig(pos, inv[i], &c, &s);
		c = bf16_round(c), s = bf16_round(s);
		x[i] = bf16_round(lo * c - hi * s);
		x[i + half] = bf16_round(hi * c + lo * s);
	}
}

/* y[o] = sum over i of x[i] w[o][i]. */
static void project_row(const float *x, int in, const bf16_t *w, int out, float *y)
{
	for (int o = 0; o < out; o++, w += in) {
		float sum = 0;

		for (int i = 0; i < in; i++)
			sum += x[i] * bf16_to_f32(w[i]);
		y[o] = bf16_round(sum);
	}
}

/* ---- gate keys ---- */

static size_t seer_state_bytes(const void *self, const struct attn_shape *s)
{
	return (size_t)((const struct seer_self *)self)->k_heads * (size_t)s->head_dim *
	       sizeof(bf16_t);
}

/* The gate keys of a block of n tokens at k, from position pos on.  f: room for its features and
 * one result. */
static void block_keys(const struct attn_shape *s, const struct seer_self *g, const bf16_t *w,
		       const bf16_t *k, int n, int pos, float *f, bf16_t *state)
{
	int dim = s->head_dim, per = g->k_heads / s->kv_heads;
	float *y = f + SEER_POOLS * dim;

	for (int h = 0; h < g->k_heads; h++) {
		if (h % per == 0)
			seer_pool(k + (size_t)(h / per) * (size_t)(s->page_tok * dim), (size_t)dim,
				  n, pos, g->host.inv, dim, f, f + dim, f + 2 * dim);
		project_row(f, SEER_POOLS * dim, w + (size_t)h * (size_t)(SEER_POOLS * dim * dim),
			    dim, y);
		seer_turn(pos, g->host.inv, dim, y);
		for (int d = 0; d < dim; d++)
			state[h * dim + d] = bf16_from_f32(y[d]);
	}
}

static void update_keys(const struct attn_batch *b, const struct seer_self *g, int layer,
			const bf16_t *k, float *f, bf16_t *state)
{
	const struct attn_shape *s = &b->shape;
	const bf16_t *w = g->host.k + (size_t)seer_layer(g, layer) * seer_k_size(g);

	for (int r = 0; r < b->rows.n_req; r++) {
		int end = b->keys.len[r];

		for (int j = b->rows.pos0[r] / s->page_tok; j * s->page_tok < end; j++) {
			size_t page = (size_t)b->keys.page[b->keys.page0[r] + j];
			int n = end - j * s->page_tok;

			block_keys(s, g, w,
				   k + page * (size_t)(s->kv_heads * s->page_tok * s->head_dim),
				   n < s->page_tok ? n : s->page_tok, j * s->page_tok, f,
				   state + page * (size_t)(g->k_heads * s->head_dim));
		}
	}
}

/* ---- scores and masks ---- */

struct scratch {
	float *f;		/* [(SEER_POOLS + 1) * head_dim] */
	float *a;		/* [max_kv_blk] */
	struct top_cell *order; /* [max_kv_blk] */
};

/* The vector of a query block into y, from n rows at q, the first at position pos.  f: scratch. */
static void block_query(const struct attn_batch *b, const struct seer_self *g, int layer, int head,
			const bf16_t *q, int pos, int n, float *f, float *y)
{
	const struct attn_shape *s = &b->shape;
	int dim = s->head_dim, blk = pos / s->page_tok;

	seer_pool(q, (size_t)(s->q_heads * dim), n, pos, g->host.inv, dim, NULL, NULL, f);
	if (g->host.q)
		project_row(f, dim,
			    g->host.q + (size_t)seer_layer(g, layer) * seer_q_size(g) +
				    (size_t)head * (size_t)(dim * dim),
			    dim, y);
	else
		memcpy(y, f, (size_t)dim * sizeof *y);
	seer_turn(blk * s->page_tok, g->host.inv, dim, y);
}

/* Compute a[j], j < n, from a query block's vector. */
static void shares(const struct attn_batch *b, const struct seer_self *g, int r, int head,
		   const float *y, const bf16_t *state, int n, float *a)
{
	int dim = b->shape.head_dim, at = head / (b->shape.q_heads / g->k_heads);
	float scale = 1 / sqrtf((float)dim), max = -INFINITY, sum = 0;

	for (int j = 0; j < n; j++) {
		size_t page = (size_t)b->keys.page[b->keys.page0[r] + j];
		const bf16_t *k = state + (page * (size_t)g->k_heads + (size_t)at) * (size_t)dim;
		float dot = 0;

		for (int d = 0; d < dim; d++)
			dot += y[d] * bf16_to_f32(k[d]);
		a[j] = bf16_round(dot * scale);
		max = fmaxf(max, a[j]);
	}
	for (int j = 0; j < n; j++)
		sum += a[j] = expf(a[j] - max);
	for (int j = 0; j < n; j++)
		a[j] = bf16_round(a[j] / sum);
}

/* Keep the k largest of a[0..n), or all if n <= k. */
static void keep_largest(const float *a, int n, int k, struct top_cell *order, uint32_t *row)
{
	top_of(order, a, n);
	for (int i = 0; i < n && i < k; i++)
		row[order[i].at / 32] |= 1u << order[i].at % 32;
}

static void seer_mask_row(const struct attn_batch *b, const struct seer_self *g, int layer, int r,
			  int qa, int head, const bf16_t *q, const bf16_t *state, struct scratch *t,
			  uint32_t *row, float *score)
{
	const struct attn_shape *s = &b->shape;
	int ctx = b->rows.pos0[r], end = b->keys.len[r], tok = s->page_tok;
	int n_blk = (end + tok - 1) / tok;
	int lo = qa * tok > ctx ? qa * tok : ctx, hi = qa * tok + tok < end ? qa * tok + tok : end;
	size_t at = (size_t)(b->rows.row0[r] + lo - ctx) * (size_t)s->q_heads + (size_t)head;
	bool open = end - ctx == 1 || (g->rule.dense_first && !ctx) ||
		    (g->rule.dense_tail && !b->rows.left[r] && qa >= n_blk - SEER_TAIL);

	memset(row, 0, (size_t)b->keys.mask_words * sizeof *row);
	if (!open) {
		float *y = t->f + SEER_POOLS * s->head_dim;

		block_query(b, g, layer, head, q + at * (size_t)s->head_dim, lo, hi - lo, t->f, y);
		shares(b, g, r, head, y, state, qa + 1, t->a);
		if (score)
			memcpy(score, t->a, ((size_t)qa + 1) * sizeof *score);
		if (g->rule.nz_ratio > 0)
			keep_largest(t->a, qa + 1, seer_kept(g->rule.nz_ratio, n_blk), t->order,
				     row);
	}
	for (int j = 0; j <= qa; j++)
		if (open || (g->rule.diagonal && j == qa) ||
		    (g->rule.nz_ratio == 0 && t->a[j] > (float)g->rule.threshold))
			row[j / 32] |= 1u << j % 32;
}

static enum ar_status seer_ref(const struct attn_call *call, const void *self,
			       const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct seer_self *g = self;
	const struct attn_shape *s = &b->shape;
	struct scratch t = {
		malloc((SEER_POOLS + 1) * (size_t)s->head_dim * sizeof *t.f),
		malloc((size_t)b->keys.max_kv_blk * sizeof *t.a),
		malloc((size_t)b->keys.max_kv_blk * sizeof *t.order),
	};
	enum ar_status st = t.f && t.a && t.order ? AR_OK : ar_nomem(err);

	if (st)
		goto out;
	update_keys(b, g, call->layer, call->kv.k, t.f, call->state);
	for (int r = 0; r < b->rows.n_req; r++)
		for (int i = b->rows.qblk0[r]; i < b->rows.qblk0[r + 1]; i++)
			for (int h = 0; h < s->q_heads; h++)
				seer_mask_row(b, g, call->layer, r,
					      b->rows.pos0[r] / s->page_tok + i - b->rows.qblk0[r],
					      h, call->q, call->state, &t,
					      out->mask + (size_t)(i * s->q_heads + h) *
								  (size_t)b->keys.mask_words,
					      selection_score(out, b, i, h));
out:
	free(t.f);
	free(t.a);
	free(t.order);
	return st;
}

/* ---- descriptor ---- */

#define OFF(member) offsetof(struct seer, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "gate", .type = OPT_STR, .off = OFF(gate), .arg = "FILE",
	  .help = "safetensors file of the gate; mean: an untrained gate" },
	{ .name = "threshold", .type = OPT_REAL, .off = OFF(threshold), .arg = "X", .def = "0.0003",
	  .max = 1, .help = "keep blocks with a predicted share above X" },
	{ .name = "nz-ratio", .type = OPT_REAL, .off = OFF(nz_ratio), .arg = "X", .def = "0",
	  .max = 1, .help = "keep a share X of the causal blocks instead, 0: by threshold" },
	{ .name = "dense-tail", .type = OPT_FLAG, .off = OFF(dense_tail), .def = "0",
	  .help = "keep everything for the last two query blocks of a prompt" },
	{ .name = "diagonal", .type = OPT_FLAG, .off = OFF(diagonal), .def = "0",
	  .help = "always keep the query block's own block" },
	{ .name = "dense-first", .type = OPT_FLAG, .off = OFF(dense_first), .def = "0",
	  .help = "keep everything for a chunk without context" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "seer:gate=agree.gate,threshold=%", "0.05", "0.055", "0.045", 0 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "seer:gate=mean,threshold=%", { "0.5", "0.1", "0.05", "0.01" }, false, false },
	{ "seer:gate=mean,diagonal=1,nz-ratio=%", { "0.1", "0.3", "0.6", "1" }, false, true },
	{ 0 }
};
/* clang-format on */

static struct selector_work seer_work(const void *param, const struct attn_shape *s,
				      const struct selector_chunk *c)
{
	(void)param;
	return selector_products(
		&(struct selector_form){
			.keys = SELECTOR_GATE, .launches = 4, .row = 64, .key = 64 },
		s, c);
}

extern const struct selector selector_seer;
const struct selector selector_seer = {
	.version = AR_SELECTOR_VERSION,
	.name = "seer",
	.title = "blocks that a learned gate predicts",
	.origin = "SeerAttention (2024), AttnGate for prefill",
	.params = params,
	.threshold = "threshold",
	.param_size = sizeof(struct seer),
	.scores = true,
	.block_tok = seer_block_tok,
	.tail = seer_tail,
	.open = seer_open,
	.close = seer_close,
	.state_bytes = seer_state_bytes,
	.work = seer_work,
	.ref = seer_ref,
	.band = bands,
	.order = orders,
	.work_bytes = HAVE_CUDA ? seer_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? seer_enqueue : NULL,
};
