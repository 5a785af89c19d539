/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the decoder: sizes, and weights that are copied or drawn. */
#include "config.h"
#include "replay/engine/decoder_state.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "base/workspace.h"
#include "kernels/layer/layer.h"
#include "kernels/prim/cuda.h"
#include "model/layer_size.h"
#include "model/weights.h"
#include "replay/ranks/world.h"

enum { VOCAB_PAD = 64, MAX_NORM_DIM = 256 /* of layer_qk_norm() */ };

/* ---- layers ---- */

static enum ar_status check_layer(const struct model *m, const struct layer_spec *l,
				  struct ar_err *err)
{
	const struct delta_spec *d = &l->delta;
	int key = d->k_heads * d->k_dim, value = d->v_heads * d->v_dim;

	if (m->hidden % 8 || l->ffn % 8 || l->head_dim % 16 || l->n_experts % 8 ||
	    l->expert_hidden % 8)
		return ar_fail(err, AR_USAGE,
			       "%s: hidden size %d, that of experts %d, FFN %d and %d experts must "
			       "be multiples of 8, head size %d of 16; choose another --model or "
			       "--tp, or --attention-only",
			       m->name, m->hidden, layer_expert_hidden(l, m->hidden), l->ffn,
			       l->n_experts, l->head_dim);
	if (l->shared_ffn % 8 || key % 8 || value % 8)
		return ar_fail(err, AR_USAGE,
			       "%s: the shared expert's FFN %d, and %d channels of keys and %d of "
			       "values in linear layers must be multiples of 8; choose another "
			       "--model or --tp, or --attention-only",
			       m->name, l->shared_ffn, key, value);
	if (l->ssm.heads % 8)
		return ar_fail(err, AR_USAGE,
			       "%s: %d heads of state-space layers must be a multiple of 8; choose "
			       "another --model or --tp, or --attention-only",
			       m->name, l->ssm.heads);
	if (l->qk_norm && l->head_dim > MAX_NORM_DIM)
		return ar_fail(err, AR_USAGE,
			       "%s: the norm of Q and K takes heads of at most %d, not of %d; "
			       "choose another --model, or --attention-only",
			       m->name, MAX_NORM_DIM, l->head_dim);
	return AR_OK;
}

enum ar_status decoder_open_layers(struct decoder *d, struct ar_err *err)
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

/* ---- sizes ---- */

struct extents {
	struct {
		size_t n, fan_in; /* n 0: the layer has no such weight */
	} of[W_COUNT];
};

/* a_log, dt_bias and d are floats: two bf16 for each, the second of which gives sign, exponent and
 * the first digits. */
static struct extents extents_of(const struct layer_spec *l, int hidden)
{
	const struct delta_spec *d = &l->delta;
	size_t h = (size_t)hidden, f = (size_t)l->ffn, s = (size_t)l->shared_ffn;
	size_t qkv = layer_qkv_width(l), o = layer_o_width(l), ba = layer_ba_width(l);
	size_t n_experts = (size_t)l->n_experts, x = n_experts ? n_experts : 1;
	size_t up = (size_t)layer_mlp_matrices(l) - 1, mixes = l->mixer != MIX_NONE && !l->beside;
	size_t in = (size_t)layer_expert_hidden(l, hidden), squeeze = l->expert_hidden ? in * h : 0;
	const struct ssm_spec *m = &l->ssm;
	size_t channels = (size_t)(2 * d->k_heads * d->k_dim + d->v_heads * d->v_dim);
	size_t mixed = (size_t)ssm_channels(m), heads = 2 * (size_t)m->heads;
	size_t conv = (size_t)(d->conv + m->conv), norm = m->norm ? (size_t)ssm_inner(m) : 0;
	bool bias = l->mlp_bias, post = l->post_norms, gate = s && l->shared_gate;

	return (struct extents){ {
		[W_NORM1] = { mixes * h, 1 },
		[W_QKV] = { qkv * h, h },
		[W_O] = { h * o, o },
		[W_NORM2] = { f ? h : 0, 1 },
		[W_ROUTER] = { n_experts * h, h },
		[W_GATE_UP] = { x * up * f * in, in },
		[W_DOWN] = { x * in * f, f },
		[W_QKV_BIAS] = { l->qkv_bias ? qkv : 0, h },
		[W_QK_NORM] = { l->qk_norm ? 2 * (size_t)l->head_dim : 0, 1 },
		[W_O_BIAS] = { l->o_bias ? h : 0, h },
		[W_POST1] = { post ? h : 0, 1 },
		[W_POST2] = { post ? h : 0, 1 },
		[W_ROUTER_BIAS] = { bias ? n_experts : 0, h },
		[W_GATE_UP_BIAS] = { bias ? x * up * f : 0, h },
		[W_DOWN_BIAS] = { bias ? x * h : 0, h },
		[W_SHARED_GATE_UP] = { up * s * h, h },
		[W_SHARED_DOWN] = { h * s, s },
		[W_SHARED_GATE] = { gate ? h : 0, h },
		[W_EXPERT_DOWN] = { squeeze, h },
		[W_EXPERT_UP] = { squeeze, in },
		[W_BA] = { ba * h, h },
		[W_CONV] = { (channels + mixed) * conv, conv },
		[W_A_LOG] = { ba + heads, 1 },
		[W_DT_BIAS] = { ba + heads, 1 },
		[W_MIX_NORM] = { (size_t)d->v_dim + norm, 1 },
		[W_CONV_BIAS] = { m->conv_bias ? mixed : 0, conv },
		[W_D] = { heads, 1 },
	} };
}

static int padded_vocab(const struct model *m)
{
	return (m->vocab + VOCAB_PAD - 1) / VOCAB_PAD * VOCAB_PAD;
}

/* Tokens that have an embedding: the vocabulary of all ranks. */
static size_t embedded(const struct model *m)
{
	return (size_t)m->vocab * (size_t)m->tp;
}

static bf16_t *carve(struct workspace *c, size_t n)
{
	return workspace_take(c, n, sizeof(bf16_t));
}

static void carve_layer(const struct layer_spec *l, int hidden, struct workspace *c,
			struct layer_weights *w)
{
	const struct extents e = extents_of(l, hidden);

	for (int i = 0; i < W_COUNT; i++)
		w->w[i] = e.of[i].n ? carve(c, e.of[i].n) : NULL;
}

size_t decoder_layers_bytes(const struct model *m)
{
	struct workspace c = workspace_at(NULL);
	struct layer_weights w;

	for (int i = 0; i < m->n_layers; i++)
		carve_layer(&m->layer[i], m->hidden, &c, &w);
	return c.used;
}

size_t decoder_head_bytes(const struct model *m)
{
	size_t matrices = m->tied ? 1 : 2, vocab = (size_t)padded_vocab(m);

	return (matrices * vocab + 1) * (size_t)m->hidden * sizeof(bf16_t);
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Elements of the buffers that all layers share. */
struct buffers {
	size_t wide, act, spare, add;
};

static void fit_layer(struct buffers *b, const struct layer_spec *l, size_t hidden, size_t row)
{
	size_t f = (size_t)l->ffn, s = (size_t)l->shared_ffn, x = (size_t)l->n_experts;
	/* layer_experts() rounds up: less than one row more per expert. */
	size_t n_expert_row = x ? row * (size_t)l->experts_per_tok + x : row;
	size_t mixer = layer_qkv_width(l) + layer_ba_width(l);

	b->wide = larger(b->wide, row * larger(mixer, larger(x + (size_t)l->expert_hidden, 2 * s)));
	b->wide = larger(b->wide, n_expert_row * 2 * f);
	b->act = larger(b->act, larger(n_expert_row * f, row * s));
	if (l->out_gate)
		b->act = larger(b->act, row * layer_o_width(l));
	b->spare = larger(b->spare, x ? n_expert_row * hidden : s || l->beside ? row * hidden : 0);
	b->add = larger(b->add, larger(n_expert_row, row) * hidden);
	b->add = larger(b->add, row * hidden + n_expert_row * (size_t)l->expert_hidden);
}

/* The head of a tied model: the rank's part of the embeddings. */
static bf16_t *tied_head(const struct decoder *d)
{
	const struct weights *w = d->env.weights;

	return d->embed ? d->embed + (w->head - w->embed) : NULL;
}

static void carve_all(struct decoder *d, struct workspace *c)
{
	const struct model *m = d->env.model;
	size_t row = (size_t)d->env.max_row, h = (size_t)m->hidden;
	size_t emit = (size_t)d->env.max_emit;
	size_t ranks = d->env.world ? (size_t)world_size(d->env.world) : 1;
	size_t vocab = (size_t)d->vocab;
	bool real = d->env.weights;
	struct buffers b = { .wide = real ? 0 : emit * vocab, .act = emit * h };

	for (int i = 0; i < d->env.n_layers; i++) {
		fit_layer(&b, d->layer[i].spec, h, row);
		carve_layer(d->layer[i].spec, m->hidden, c, &d->layer[i]);
	}
	d->norm = carve(c, h);
	d->embed = real ? carve(c, (embedded(m) + vocab - (size_t)m->vocab) * h) : NULL;
	d->head = real && m->tied ? tied_head(d) : carve(c, vocab * h);
	d->x0 = real ? NULL : carve(c, row * h);
	d->logits = real ? workspace_take(c, emit * vocab, sizeof *d->logits) : NULL;
	d->gathered = d->env.world ? workspace_take(c, ranks * emit * vocab,
						    real ? sizeof *d->logits : sizeof *d->wide) :
				     NULL;
	d->home.x = carve(c, row * h);
	d->home.y = carve(c, row * h);
	d->wide = carve(c, b.wide);
	d->act = carve(c, b.act);
	d->home.spare = carve(c, d->env.drops ? b.add : b.spare);
	d->home.add = carve(c, b.add);
	d->stale = d->env.back ? carve(c, 2 * row * h) : NULL;
	d->token = (int32_t *)carve(c, ranks * emit * 2);
	d->first = workspace_take(c, row, sizeof *d->first);
	d->zero = (int32_t *)carve(c, emit * 2);
}

/* ---- weights of a model ---- */

/* The first of the tensors that a weight is made of, which follow each other; 0, the norm before
 * attention, also where a dense model has no such weight. */
static const enum weight tensor_of[W_COUNT] = {
	[W_NORM1] = WEIGHT_ATTN_NORM,
	[W_QKV] = WEIGHT_Q,
	[W_O] = WEIGHT_O,
	[W_NORM2] = WEIGHT_MLP_NORM,
	[W_GATE_UP] = WEIGHT_GATE,
	[W_DOWN] = WEIGHT_DOWN,
	[W_QKV_BIAS] = WEIGHT_Q_BIAS,
	[W_QK_NORM] = WEIGHT_Q_NORM,
	[W_O_BIAS] = WEIGHT_O_BIAS,
	[W_POST1] = WEIGHT_ATTN_POST,
	[W_POST2] = WEIGHT_MLP_POST,
	[W_GATE_UP_BIAS] = WEIGHT_GATE_BIAS,
	[W_DOWN_BIAS] = WEIGHT_DOWN_BIAS,
};

/* The driver stages the copy through pinned memory of its own. */
static enum ar_status copy_weights(bf16_t *to, const bf16_t *from, size_t n, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	CU(cudaMemcpy(to, from, n * sizeof *to, cudaMemcpyHostToDevice));
out:
	return st;
}

static enum ar_status copy_layer(const struct decoder *d, int i, struct ar_err *err)
{
	const struct layer_weights *w = &d->layer[i];
	const bf16_t *const *from = d->env.weights->layer[d->env.layer[i]];
	const struct extents e = extents_of(w->spec, d->env.model->hidden);
	enum ar_status st = AR_OK;

	for (int k = 0; k < W_COUNT && !st; k++)
		if (w->w[k])
			st = copy_weights(w->w[k], from[tensor_of[k]], e.of[k].n, err);
	return st;
}

/* A matrix of rows tokens; the rows that pad it are 0. */
static enum ar_status copy_vocab(const struct decoder *d, bf16_t *to, const bf16_t *from,
				 size_t rows, struct ar_err *err)
{
	const struct model *m = d->env.model;
	size_t h = (size_t)m->hidden, n = rows * h, pad = (size_t)(d->vocab - m->vocab);
	enum ar_status st = AR_OK;

	CU(cudaMemset(to + n, 0, pad * h * sizeof *to));
	st = copy_weights(to, from, n, err);
out:
	return st;
}

static enum ar_status copy_all(const struct decoder *d, struct ar_err *err)
{
	const struct weights *w = d->env.weights;
	const struct model *m = d->env.model;
	enum ar_status st = copy_weights(d->norm, w->norm, (size_t)m->hidden, err);

	if (!st)
		st = copy_vocab(d, d->embed, w->embed, embedded(m), err);
	if (!st && !m->tied)
		st = copy_vocab(d, d->head, w->head, (size_t)m->vocab, err);
	for (int i = 0; i < d->env.n_layers && !st; i++)
		st = copy_layer(d, i, err);
	return st;
}

/* ---- random weights ---- */

static enum ar_status draw_weights(struct decoder *d, bf16_t *x, size_t n, size_t fan_in,
				   uint64_t *seed, struct ar_err *err)
{
	*seed = rng_mix(*seed);
	return n ? layer_fill(x, n, *seed, 1 / sqrtf((float)fan_in), d->env.stream, err) : AR_OK;
}

static enum ar_status draw_layer(struct decoder *d, const struct layer_weights *w, uint64_t *seed,
				 struct ar_err *err)
{
	const struct extents e = extents_of(w->spec, d->env.model->hidden);
	enum ar_status st = AR_OK;

	for (int i = 0; i < W_COUNT && !st; i++)
		st = draw_weights(d, w->w[i], e.of[i].n, e.of[i].fan_in, seed, err);
	return st;
}

static enum ar_status draw_all(struct decoder *d, struct ar_err *err)
{
	size_t h = (size_t)d->env.model->hidden;
	uint64_t seed = d->env.seed;
	enum ar_status st = draw_weights(d, d->norm, h, 1, &seed, err);

	if (!st)
		st = draw_weights(d, d->head, (size_t)d->vocab * h, h, &seed, err);
	if (!st)
		st = draw_weights(d, d->x0, (size_t)d->env.max_row * h, 1, &seed, err);
	for (int i = 0; i < d->env.n_layers && !st; i++)
		st = draw_layer(d, &d->layer[i], &seed, err);
	return st;
}

enum ar_status decoder_open_memory(struct decoder *d, struct ar_err *err)
{
	struct workspace size = workspace_at(NULL), place;
	enum ar_status st = AR_OK;

	d->vocab = padded_vocab(d->env.model);
	carve_all(d, &size);
	if (cudaMalloc(&d->mem, size.used) != cudaSuccess) {
		cudaGetLastError();
		return ar_fail(err, AR_CUDA,
			       "the weights and activations of %d layers of %s need %.1f GiB "
			       "on the GPU; use %s",
			       d->env.n_layers, d->env.model->name, (double)size.used / 0x1p30,
			       d->env.weights ? "a GPU with more memory, or fewer "
						"--max-num-batched-tokens" :
						"--sample-layers or a larger --tp");
	}
	place = workspace_at(d->mem);
	carve_all(d, &place);
	CU(cudaMemsetAsync(d->zero, 0, (size_t)d->env.max_emit * sizeof *d->zero, d->env.stream));
	CU(cudaMemsetAsync(d->first, 0, (size_t)d->env.max_row * sizeof *d->first, d->env.stream));
	st = d->env.weights ? copy_all(d, err) : draw_all(d, err);
out:
	return st;
}
