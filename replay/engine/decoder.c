/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/decoder.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/rng.h"
#include "base/workspace.h"
#include "kernels/layer/layer.h"
#include "kernels/prim/cuda.h"
#include "model/layer_size.h"

#define RMS_EPS 1e-5f

enum { VOCAB_PAD = 64 };

struct weights { /* of one layer, each [out][in] */
	const struct layer_spec *spec;
	bf16_t *norm1, *qkv, *o, *norm2, *router, *gate_up, *down;
};

struct decoder {
	struct decoder_env env;
	struct gemm *gemm;
	int n_row, vocab;
	struct weights *layer;
	bf16_t *norm, *head;
	bf16_t *x0, *x;	   /* initial hidden states; the residual stream */
	bf16_t *y;	   /* after a norm */
	bf16_t *wide;	   /* products of QKV and gate/up, router, logits */
	bf16_t *act;	   /* output of the activation; input rows of the head */
	bf16_t *expert_in; /* the rows of each expert, one expert after another */
	bf16_t *add;	   /* [n_add][n_row][hidden] the next norm adds their mean to x */
	int n_add;
	int32_t *token; /* [max_emit] sampled */
	int32_t *zero;	/* [max_emit] zeros: emit of the warm-up */
	void *mem;
};

/* ---- sizes ---- */

static size_t experts(const struct layer_spec *l)
{
	return l->n_experts ? (size_t)l->n_experts : 1;
}

static int padded_vocab(const struct model *m)
{
	return (m->vocab + VOCAB_PAD - 1) / VOCAB_PAD * VOCAB_PAD;
}

static bf16_t *carve(struct workspace *c, size_t n)
{
	return workspace_take(c, n, sizeof(bf16_t));
}

static void carve_layer(const struct layer_spec *l, int hidden, struct workspace *c,
			struct weights *w)
{
	size_t h = (size_t)hidden, f = (size_t)l->ffn;

	w->norm1 = carve(c, h);
	w->qkv = carve(c, layer_qkv_width(l) * h);
	w->o = carve(c, h * layer_o_width(l));
	w->norm2 = carve(c, h);
	w->router = carve(c, (size_t)l->n_experts * h);
	w->gate_up = carve(c, experts(l) * 2 * f * h);
	w->down = carve(c, experts(l) * h * f);
}

size_t decoder_layers_bytes(const struct model *m)
{
	struct workspace c = workspace_at(NULL);
	struct weights w;

	for (int i = 0; i < m->n_layers; i++)
		carve_layer(&m->layer[i], m->hidden, &c, &w);
	return c.used;
}

size_t decoder_head_bytes(const struct model *m)
{
	return (size_t)(padded_vocab(m) + 1) * (size_t)m->hidden * sizeof(bf16_t);
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Elements of the buffers that all layers share. */
struct buffers {
	size_t wide, act, expert_in, add;
};

static void fit_layer(struct buffers *b, const struct layer_spec *l, size_t hidden, size_t row)
{
	size_t f = (size_t)l->ffn, n_experts = (size_t)l->n_experts;
	/* layer_experts() rounds up: less than one row more per expert. */
	size_t n_expert_row = n_experts ? row * (size_t)l->experts_per_tok + experts(l) : row;

	b->wide = larger(b->wide,
			 larger(row * larger(layer_qkv_width(l), n_experts), n_expert_row * 2 * f));
	b->act = larger(b->act, n_expert_row * f);
	b->expert_in = larger(b->expert_in, n_experts ? n_expert_row * hidden : 0);
	b->add = larger(b->add, larger(n_expert_row, row) * hidden);
}

static void carve_all(struct decoder *d, struct workspace *c)
{
	size_t row = (size_t)d->env.max_row, h = (size_t)d->env.model->hidden;
	size_t emit = (size_t)d->env.max_emit;
	struct buffers b = { .wide = emit * (size_t)d->vocab, .act = emit * h };

	for (int i = 0; i < d->env.n_layers; i++) {
		fit_layer(&b, d->layer[i].spec, h, row);
		carve_layer(d->layer[i].spec, d->env.model->hidden, c, &d->layer[i]);
	}
	d->norm = carve(c, h);
	d->head = carve(c, (size_t)d->vocab * h);
	d->x0 = carve(c, row * h);
	d->x = carve(c, row * h);
	d->y = carve(c, row * h);
	d->wide = carve(c, b.wide);
	d->act = carve(c, b.act);
	d->expert_in = carve(c, b.expert_in);
	d->add = carve(c, b.add);
	d->token = (int32_t *)carve(c, emit * 2);
	d->zero = (int32_t *)carve(c, emit * 2);
}

/* ---- weights ---- */

static enum ar_status draw(struct decoder *d, bf16_t *x, size_t n, size_t fan_in, uint64_t *seed,
			   struct ar_err *err)
{
	*seed = rng_mix(*seed);
	return n ? layer_fill(x, n, *seed, 1 / sqrtf((float)fan_in), d->env.stream, err) : AR_OK;
}

static enum ar_status draw_layer(struct decoder *d, const struct weights *w, uint64_t *seed,
				 struct ar_err *err)
{
	const struct layer_spec *l = w->spec;
	size_t h = (size_t)d->env.model->hidden, f = (size_t)l->ffn;
	enum ar_status st = draw(d, w->norm1, h, 1, seed, err);

	if (!st)
		st = draw(d, w->qkv, layer_qkv_width(l) * h, h, seed, err);
	if (!st)
		st = draw(d, w->o, h * layer_o_width(l), layer_o_width(l), seed, err);
	if (!st)
		st = draw(d, w->norm2, h, 1, seed, err);
	if (!st)
		st = draw(d, w->router, (size_t)l->n_experts * h, h, seed, err);
	if (!st)
		st = draw(d, w->gate_up, experts(l) * 2 * f * h, h, seed, err);
	if (!st)
		st = draw(d, w->down, experts(l) * h * f, f, seed, err);
	return st;
}

static enum ar_status draw_all(struct decoder *d, struct ar_err *err)
{
	size_t h = (size_t)d->env.model->hidden;
	uint64_t seed = d->env.seed;
	enum ar_status st = draw(d, d->norm, h, 1, &seed, err);

	if (!st)
		st = draw(d, d->head, (size_t)d->vocab * h, h, &seed, err);
	if (!st)
		st = draw(d, d->x0, (size_t)d->env.max_row * h, 1, &seed, err);
	for (int i = 0; i < d->env.n_layers && !st; i++)
		st = draw_layer(d, &d->layer[i], &seed, err);
	return st;
}

/* ---- one pass ---- */

enum ar_status decoder_begin(struct decoder *d, int n_row, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	d->n_row = n_row;
	d->n_add = 0;
	CU(cudaMemcpyAsync(d->x, d->x0, (size_t)n_row * (size_t)d->env.model->hidden * sizeof *d->x,
			   cudaMemcpyDeviceToDevice, d->env.stream));
out:
	return st;
}

/* Add the last product to the residual stream x, and normalise x into y. */
static enum ar_status norm(struct decoder *d, const bf16_t *w, struct ar_err *err)
{
	const struct layer_norm_args a = {
		d->x, d->add, d->n_add, w, d->y, d->n_row, d->env.model->hidden, RMS_EPS
	};

	return layer_norm(&a, d->env.stream, err);
}

static void phase(const struct decoder *d, int layer, enum phase what)
{
	d->env.phase(d->env.phase_ctx, layer, what);
}

enum ar_status decoder_before(struct decoder *d, int i, int layer, struct ar_err *err)
{
	const struct weights *w = &d->layer[i];
	enum ar_status st;

	phase(d, layer, PHASE_NORM);
	st = norm(d, w->norm1, err);
	if (st)
		return st;
	phase(d, layer, PHASE_LINEAR);
	return gemm_run(d->gemm, 1, d->n_row, (int)layer_qkv_width(w->spec), d->env.model->hidden,
			d->y, w->qkv, d->wide, err);
}

/* Run the router and gather the rows of each expert.  *in: input of the gate/up product. */
static enum ar_status route(struct decoder *d, const struct weights *w, int layer,
			    const struct expert_load *e, const bf16_t **in, struct ar_err *err)
{
	int h = d->env.model->hidden, n_experts = w->spec->n_experts;
	enum ar_status st;

	*in = d->y;
	if (!n_experts)
		return AR_OK;
	phase(d, layer, PHASE_LINEAR);
	st = gemm_run(d->gemm, 1, d->n_row, n_experts, h, d->y, w->router, d->wide, err);
	if (st)
		return st;
	phase(d, layer, PHASE_NORM);
	*in = d->expert_in;
	return layer_gather(d->y, d->n_row, NULL, e->experts * e->rows, h, d->expert_in,
			    d->env.stream, err);
}

static enum ar_status mlp(struct decoder *d, const struct weights *w, int layer, struct ar_err *err)
{
	const struct layer_spec *l = w->spec;
	const struct expert_load e = layer_experts(l, d->n_row);
	int h = d->env.model->hidden;
	const bf16_t *in;
	enum ar_status st = route(d, w, layer, &e, &in, err);

	if (st)
		return st;
	phase(d, layer, PHASE_LINEAR);
	st = gemm_run(d->gemm, e.experts, e.rows, 2 * l->ffn, h, in, w->gate_up, d->wide, err);
	if (st)
		return st;
	phase(d, layer, PHASE_NORM);
	st = layer_silu(d->wide, e.experts * e.rows, l->ffn, d->act, d->env.stream, err);
	if (st)
		return st;
	phase(d, layer, PHASE_LINEAR);
	d->n_add = l->n_experts ? l->experts_per_tok : 1;
	return gemm_run(d->gemm, e.experts, e.rows, h, l->ffn, d->act, w->down, d->add, err);
}

enum ar_status decoder_after(struct decoder *d, int i, int layer, const bf16_t *attn,
			     struct ar_err *err)
{
	const struct weights *w = &d->layer[i];
	enum ar_status st;

	phase(d, layer, PHASE_LINEAR);
	d->n_add = 1;
	st = gemm_run(d->gemm, 1, d->n_row, d->env.model->hidden, (int)layer_o_width(w->spec), attn,
		      w->o, d->add, err);
	if (st)
		return st;
	phase(d, layer, PHASE_NORM);
	st = norm(d, w->norm2, err);
	return st ? st : mlp(d, w, layer, err);
}

enum ar_status decoder_head(struct decoder *d, const int32_t *emit, int n_emit, struct ar_err *err)
{
	const struct model *m = d->env.model;
	enum ar_status st;

	phase(d, PHASE_NO_LAYER, PHASE_HEAD);
	st = norm(d, d->norm, err);
	if (!st && n_emit)
		st = layer_gather(d->y, d->n_row, emit, n_emit, m->hidden, d->act, d->env.stream,
				  err);
	if (!st && n_emit)
		st = gemm_run(d->gemm, 1, n_emit, d->vocab, m->hidden, d->act, d->head, d->wide,
			      err);
	if (!st && n_emit)
		st = layer_argmax(d->wide, n_emit, m->vocab, d->vocab, d->token, d->env.stream,
				  err);
	return st;
}

/* ---- opening ---- */

/* Run n rows through the first n_layers layers and the head.  The QKV product is used as the
 * attention output. */
static enum ar_status pass(struct decoder *d, int n, int n_layers, struct ar_err *err)
{
	enum ar_status st = decoder_begin(d, n, err);

	for (int i = 0; i < n_layers && !st; i++) {
		st = decoder_before(d, i, PHASE_NO_LAYER, err);
		if (!st)
			st = decoder_after(d, i, PHASE_NO_LAYER, d->wide, err);
	}
	return st ? st : decoder_head(d, d->zero, n < d->env.max_emit ? n : d->env.max_emit, err);
}

/* Run every product with 1, 2, 3, 4, 6, 8, 12 ... max_row rows.  Libraries load code on first
 * use, which must not happen in a timed region.  The layers are alike (prepare_run()), so the
 * first one is enough. */
static enum ar_status warm_up(struct decoder *d, struct ar_err *err)
{
	int max = d->env.max_row;
	enum ar_status st = AR_OK;

	for (int64_t n = 1; n < max && !st; n *= 2) {
		st = pass(d, (int)n, 1, err);
		if (!st && n > 1 && n + n / 2 < max)
			st = pass(d, (int)(n + n / 2), 1, err);
	}
	return st ? st : pass(d, max, 1, err);
}

/* Check that the hidden states of a few rows are finite after all layers. */
static enum ar_status check_finite(struct decoder *d, struct ar_err *err)
{
	int n = d->env.max_row < 16 ? d->env.max_row : 16;
	size_t elems = (size_t)n * (size_t)d->env.model->hidden;
	bf16_t *x = malloc(elems * sizeof *x);
	enum ar_status st;

	if (!x)
		return ar_nomem(err);
	st = pass(d, n, d->env.n_layers, err);
	if (st)
		goto out;
	CU(cudaStreamSynchronize(d->env.stream));
	CU(cudaMemcpy(x, d->y, elems * sizeof *x, cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < elems && !st; i++)
		if (!isfinite(bf16_to_f32(x[i])))
			st = ar_fail(err, AR_CUDA,
				     "the hidden states of the random model are not finite "
				     "after %d layers",
				     d->env.n_layers);
out:
	free(x);
	return st;
}

static enum ar_status check_layer(const struct model *m, const struct layer_spec *l,
				  struct ar_err *err)
{
	if (m->hidden % 8 || l->ffn % 8 || l->head_dim % 16 || l->n_experts % 8)
		return ar_fail(err, AR_USAGE,
			       "%s: hidden size %d, FFN %d and %d experts must be multiples of 8, "
			       "head size %d of 16; choose another --model or --tp, or "
			       "--attention-only",
			       m->name, m->hidden, l->ffn, l->n_experts, l->head_dim);
	return AR_OK;
}

/* Set and check the executed layers. */
static enum ar_status open_layers(struct decoder *d, struct ar_err *err)
{
	const struct model *m = d->env.model;
	enum ar_status st = AR_OK;

	d->layer = calloc((size_t)d->env.n_layers, sizeof *d->layer);
	if (!d->layer)
		return ar_nomem(err);
	for (int i = 0; i < d->env.n_layers && !st; i++) {
		d->layer[i].spec = &m->layer[d->env.layer[i]];
		st = check_layer(m, d->layer[i].spec, err);
	}
	return st;
}

static enum ar_status allocate(struct decoder *d, struct ar_err *err)
{
	struct workspace size = workspace_at(NULL), place;
	enum ar_status st = AR_OK;

	carve_all(d, &size);
	if (cudaMalloc(&d->mem, size.used) != cudaSuccess) {
		cudaGetLastError();
		return ar_fail(err, AR_CUDA,
			       "the weights and activations of %d layers of %s need %.1f GiB "
			       "on the GPU; use --sample-layers or a larger --tp",
			       d->env.n_layers, d->env.model->name, (double)size.used / 0x1p30);
	}
	place = workspace_at(d->mem);
	carve_all(d, &place);
	CU(cudaMemsetAsync(d->zero, 0, (size_t)d->env.max_emit * sizeof *d->zero, d->env.stream));
out:
	return st;
}

enum ar_status decoder_open(struct decoder **out, const struct decoder_env *env, struct ar_err *err)
{
	struct decoder *d;
	enum ar_status st;

	*out = NULL;
	d = calloc(1, sizeof *d);
	if (!d)
		return ar_nomem(err);
	d->env = *env;
	d->vocab = padded_vocab(env->model);
	st = open_layers(d, err);
	if (!st)
		st = gemm_open(&d->gemm, env->stream, err);
	if (!st)
		st = allocate(d, err);
	if (!st)
		st = draw_all(d, err);
	if (!st)
		st = warm_up(d, err);
	if (!st)
		st = check_finite(d, err);
	if (st) {
		decoder_close(d);
		return st;
	}
	*out = d;
	return AR_OK;
}

void decoder_close(struct decoder *d)
{
	if (!d)
		return;
	cudaFree(d->mem);
	gemm_close(d->gemm);
	free(d->layer);
	free(d);
}
