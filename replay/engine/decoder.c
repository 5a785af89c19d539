/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/decoder_state.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/layer/layer.h"
#include "kernels/prim/cuda.h"
#include "model/layer_size.h"
#include "replay/ranks/world.h"

/* ---- one pass ---- */

/* Of several ranks, the first has the embeddings, and all add them up. */
static bool embeds(const struct decoder *d)
{
	return !d->env.world || !world_rank(d->env.world);
}

enum ar_status decoder_begin(struct decoder *d, const struct layer_row *row, int n_row,
			     struct ar_err *err)
{
	const struct model *m = d->env.model;
	float scale = m->embed_scale > 0 ? (float)m->embed_scale : 1;
	size_t bytes = (size_t)n_row * (size_t)m->hidden * sizeof *d->now.x;
	enum ar_status st = AR_OK;

	d->n_row = d->n_emit = n_row;
	d->n_add = 0;
	d->now = d->home;
	if (!embeds(d))
		CU(cudaMemsetAsync(d->now.x, 0, bytes, d->env.stream));
	else if (d->embed)
		st = layer_embed(d->embed, row, n_row, m->hidden, scale, d->now.x, d->env.stream,
				 err);
	else
		CU(cudaMemcpyAsync(d->now.x, d->x0, bytes, cudaMemcpyDeviceToDevice,
				   d->env.stream));
out:
	return st;
}

static float norm_eps(const struct decoder *d)
{
	return (float)d->env.model->norm_eps;
}

/* The number that norms add to their weights. */
static float norm_plus(const struct decoder *d)
{
	return d->env.model->norm_plus_one ? 1 : 0;
}

static void decoder_phase(const struct decoder *d, int layer, enum phase what)
{
	d->env.phase(d->env.phase_ctx, layer, what);
}

/* Add up the rows of all ranks in place. */
static enum ar_status add_ranks(struct decoder *d, int layer, bf16_t *rows, struct ar_err *err)
{
	if (!d->env.world)
		return AR_OK;
	decoder_phase(d, layer, PHASE_COMM);
	return world_reduce(d->env.world, rows, (size_t)d->n_row * (size_t)d->env.model->hidden,
			    d->env.stream, err);
}

enum ar_status decoder_enter(struct decoder *d, struct ar_err *err)
{
	return add_ranks(d, PHASE_NO_LAYER, d->now.x, err);
}

/* Add the last product to the residual stream x, and normalise x into y. */
static enum ar_status norm(struct decoder *d, const bf16_t *w, struct ar_err *err)
{
	const struct layer_norm_args a = { .x = d->now.x,
					   .add = d->now.add,
					   .n_add = d->n_add,
					   .w = w,
					   .y = d->now.y,
					   .n_row = d->n_row,
					   .width = d->env.model->hidden,
					   .eps = norm_eps(d),
					   .post = d->post,
					   .plus = norm_plus(d) };

	return layer_norm(&a, d->env.stream, err);
}

/* All rows times one matrix: out[n_row][n] from in[n_row][k].  bias NULL: none. */
static enum ar_status decoder_multiply(struct decoder *d, size_t n, size_t k, const bf16_t *in,
				       const bf16_t *w, const bf16_t *bias, bf16_t *out,
				       struct ar_err *err)
{
	const struct gemm_args x = { .n_batch = 1,
				     .m = d->n_row,
				     .n = (int)n,
				     .k = (int)k,
				     .a = in,
				     .w = w,
				     .bias = bias,
				     .c = out };

	return gemm_run(d->gemm, &x, err);
}

/* The product of QKV, in d->wide. */
static struct layer_qkv qkv_of(const struct decoder *d, const struct layer_spec *l)
{
	return (struct layer_qkv){ .x = d->wide,
				   .n_row = d->n_row,
				   .q_heads = l->q_heads,
				   .kv_heads = l->kv_heads,
				   .head_dim = l->head_dim,
				   .gated = l->out_gate,
				   .plus = norm_plus(d) };
}

/* The product of a gated DeltaNet's b and a comes after the other one. */
static bf16_t *ba_of(const struct decoder *d, const struct layer_spec *l)
{
	return d->wide + (size_t)d->n_row * layer_qkv_width(l);
}

enum ar_status decoder_before(struct decoder *d, int i, int layer, struct ar_err *err)
{
	const struct layer_weights *w = &d->layer[i];
	const struct layer_spec *l = w->spec;
	const struct layer_qkv qkv = qkv_of(d, l);
	size_t h = (size_t)d->env.model->hidden;
	enum ar_status st;

	if (l->mixer == MIX_NONE)
		return AR_OK;
	if (!l->beside) {
		decoder_phase(d, layer, PHASE_NORM);
		st = norm(d, w->w[W_NORM1], err);
		if (st)
			return st;
	}
	decoder_phase(d, layer, PHASE_LINEAR);
	st = decoder_multiply(d, layer_qkv_width(l), h, d->now.y, w->w[W_QKV], w->w[W_QKV_BIAS],
			      d->wide, err);
	if (!st && layer_ba_width(l))
		st = decoder_multiply(d, layer_ba_width(l), h, d->now.y, w->w[W_BA], NULL,
				      ba_of(d, l), err);
	if (st || !l->qk_norm)
		return st;
	decoder_phase(d, layer, PHASE_NORM);
	return layer_qk_norm(&qkv, w->w[W_QK_NORM], norm_eps(d), d->env.stream, err);
}

struct layer_qkv decoder_product(const struct decoder *d, int i)
{
	return qkv_of(d, d->layer[i].spec);
}

struct decoder_mix decoder_mix(const struct decoder *d, int i)
{
	const struct layer_weights *w = &d->layer[i];

	return (struct decoder_mix){ .in = d->wide,
				     .ba = ba_of(d, w->spec),
				     .in_stride = (int)layer_qkv_width(w->spec),
				     .ba_stride = (int)layer_ba_width(w->spec),
				     .conv = w->w[W_CONV],
				     .conv_bias = w->w[W_CONV_BIAS],
				     .norm = w->w[W_MIX_NORM],
				     .a_log = (const float *)w->w[W_A_LOG],
				     .dt_bias = (const float *)w->w[W_DT_BIAS],
				     .d = (const float *)w->w[W_D],
				     .eps = norm_eps(d) };
}

/* Sum up now.add: n_add rows for each row become one.  shared NULL: it is their mean alone. */
static enum ar_status sum_up(struct decoder *d, const bf16_t *shared, const bf16_t *gate,
			     struct ar_err *err)
{
	const struct layer_sum_args a = { d->now.add, d->n_add, shared,
					  gate,	      d->n_row, d->env.model->hidden };

	d->n_add = 1;
	return layer_sum(&a, d->env.stream, err);
}

enum ar_status decoder_project(struct decoder *d, int i, int layer, const bf16_t *attn,
			       struct ar_err *err)
{
	const struct layer_weights *w = &d->layer[i];
	const struct layer_qkv qkv = qkv_of(d, w->spec);
	bf16_t *out = w->spec->beside ? d->now.spare : d->now.add;
	enum ar_status st = AR_OK;

	if (w->spec->mixer == MIX_NONE)
		return AR_OK;
	if (w->spec->out_gate) {
		decoder_phase(d, layer, PHASE_NORM);
		st = layer_out_gate(&qkv, attn, d->act, d->env.stream, err);
		attn = d->act;
	}
	if (st)
		return st;
	decoder_phase(d, layer, PHASE_LINEAR);
	d->n_add = 1;
	d->post = w->w[W_POST1];
	st = decoder_multiply(d, (size_t)d->env.model->hidden, layer_o_width(w->spec), attn,
			      w->w[W_O], w->w[W_O_BIAS], out, err);
	if (!st)
		st = add_ranks(d, layer, out, err);
	if (st || !w->spec->beside)
		return st;
	decoder_phase(d, layer, PHASE_NORM);
	return sum_up(d, d->now.spare, NULL, err);
}

/* Run the router and gather the rows of each expert.  *in: input of the gate/up product.  Experts
 * of a width of their own get a product of the rows, which lies behind that of the router. */
static enum ar_status route(struct decoder *d, const struct layer_weights *w, int layer,
			    const struct expert_load *e, const bf16_t **in, struct ar_err *err)
{
	int h = d->env.model->hidden, n_experts = w->spec->n_experts;
	int width = layer_expert_hidden(w->spec, h);
	const bf16_t *from = d->now.y;
	enum ar_status st;

	*in = d->now.y;
	if (!n_experts)
		return AR_OK;
	decoder_phase(d, layer, PHASE_LINEAR);
	st = decoder_multiply(d, (size_t)n_experts, (size_t)h, d->now.y, w->w[W_ROUTER],
			      w->w[W_ROUTER_BIAS], d->wide, err);
	if (!st && width != h) {
		bf16_t *narrow = d->wide + (size_t)d->n_row * (size_t)n_experts;

		from = narrow;
		st = decoder_multiply(d, (size_t)width, (size_t)h, d->now.y, w->w[W_EXPERT_DOWN],
				      NULL, narrow, err);
	}
	if (st)
		return st;
	decoder_phase(d, layer, PHASE_NORM);
	*in = d->now.spare;
	return layer_gather(from, d->n_row, NULL, e->experts * e->rows, width, d->now.spare,
			    d->env.stream, err);
}

/* An MLP, or a batch of MLPs: out from in, both [n_batch][rows][width].  Without a gate, gate_up
 * has the weights of up alone. */
struct mlp {
	int n_batch, rows, ffn, width;
	const bf16_t *gate_up, *gate_up_bias, *down, *down_bias;
};

static enum ar_status run_mlp(struct decoder *d, const struct mlp *m, const struct layer_spec *l,
			      int layer, const bf16_t *in, bf16_t *out, struct ar_err *err)
{
	int n = m->n_batch;
	const struct gemm_args up = { .n_batch = n,
				      .m = m->rows,
				      .n = (layer_mlp_matrices(l) - 1) * m->ffn,
				      .k = m->width,
				      .a = in,
				      .w = m->gate_up,
				      .bias = m->gate_up_bias,
				      .c = d->wide };
	const struct gemm_args down = { .n_batch = n,
					.m = m->rows,
					.n = m->width,
					.k = m->ffn,
					.a = d->act,
					.w = m->down,
					.bias = m->down_bias,
					.c = out };
	enum ar_status st;

	decoder_phase(d, layer, PHASE_LINEAR);
	st = gemm_run(d->gemm, &up, err);
	if (st)
		return st;
	decoder_phase(d, layer, PHASE_NORM);
	st = layer_act(l->act, d->wide, n * m->rows, m->ffn, d->act, d->env.stream, err);
	if (st)
		return st;
	decoder_phase(d, layer, PHASE_LINEAR);
	return gemm_run(d->gemm, &down, err);
}

/* Sum up the rows of experts of a width of their own; now.add gets the product of that. */
static enum ar_status widen(struct decoder *d, const struct layer_weights *w, int layer,
			    bf16_t *rows, struct ar_err *err)
{
	int width = w->spec->expert_hidden;
	const struct layer_sum_args a = { rows, d->n_add, NULL, NULL, d->n_row, width };
	enum ar_status st;

	decoder_phase(d, layer, PHASE_NORM);
	st = layer_sum(&a, d->env.stream, err);
	if (st)
		return st;
	decoder_phase(d, layer, PHASE_LINEAR);
	d->n_add = 1;
	return decoder_multiply(d, (size_t)d->env.model->hidden, (size_t)width, rows,
				w->w[W_EXPERT_UP], NULL, d->now.add, err);
}

/* Run the shared expert and add its output to the output of the others. */
static enum ar_status share(struct decoder *d, const struct layer_weights *w, int layer,
			    struct ar_err *err)
{
	const struct mlp m = { .n_batch = 1,
			       .rows = d->n_row,
			       .ffn = w->spec->shared_ffn,
			       .width = d->env.model->hidden,
			       .gate_up = w->w[W_SHARED_GATE_UP],
			       .down = w->w[W_SHARED_DOWN] };
	const bf16_t *gate = w->w[W_SHARED_GATE] ? d->wide : NULL;
	enum ar_status st = run_mlp(d, &m, w->spec, layer, d->now.y, d->now.spare, err);

	if (!st && gate)
		st = decoder_multiply(d, 1, (size_t)d->env.model->hidden, d->now.y,
				      w->w[W_SHARED_GATE], NULL, d->wide, err);
	if (st)
		return st;
	decoder_phase(d, layer, PHASE_NORM);
	return sum_up(d, d->now.spare, gate, err);
}

/* Sum up the rows of experts of one rank of several. */
static enum ar_status combine(struct decoder *d, int layer, struct ar_err *err)
{
	decoder_phase(d, layer, PHASE_NORM);
	return sum_up(d, NULL, NULL, err);
}

enum ar_status decoder_mlp(struct decoder *d, int i, int layer, struct ar_err *err)
{
	const struct layer_weights *w = &d->layer[i];
	const struct layer_spec *l = w->spec;
	const struct expert_load e = layer_experts(l, d->n_row);
	const struct mlp m = { .n_batch = e.experts,
			       .rows = e.rows,
			       .ffn = l->ffn,
			       .width = layer_expert_hidden(l, d->env.model->hidden),
			       .gate_up = w->w[W_GATE_UP],
			       .gate_up_bias = w->w[W_GATE_UP_BIAS],
			       .down = w->w[W_DOWN],
			       .down_bias = w->w[W_DOWN_BIAS] };
	/* Experts of a width of their own leave room for the product of their sum. */
	bf16_t *out = d->now.add + (l->expert_hidden ? d->n_row * d->env.model->hidden : 0);
	const bf16_t *in;
	enum ar_status st;

	if (!l->ffn)
		return AR_OK;
	decoder_phase(d, layer, PHASE_NORM);
	st = norm(d, w->w[W_NORM2], err);
	if (!st)
		st = route(d, w, layer, &e, &in, err);
	if (!st)
		st = run_mlp(d, &m, l, layer, in, out, err);
	d->n_add = l->n_experts ? l->experts_per_tok : 1;
	if (!st && l->expert_hidden)
		st = widen(d, w, layer, out, err);
	d->post = w->w[W_POST2];
	if (!st && l->shared_ffn)
		st = share(d, w, layer, err);
	else if (!st && d->n_add > 1 && d->env.model->tp > 1)
		st = combine(d, layer, err);
	return st ? st : add_ranks(d, layer, d->now.add, err);
}

enum ar_status decoder_after(struct decoder *d, int i, int layer, const bf16_t *attn,
			     struct ar_err *err)
{
	enum ar_status st = decoder_project(d, i, layer, attn, err);

	return st ? st : decoder_mlp(d, i, layer, err);
}

static void exchange(bf16_t **a, bf16_t **b)
{
	bf16_t *was = *a;

	*a = *b;
	*b = was;
}

/* Add the rows that are still to be added to x.  The norm's own result is not used. */
static enum ar_status finish_x(struct decoder *d, struct ar_err *err)
{
	enum ar_status st = d->n_add ? norm(d, d->norm, err) : AR_OK;

	d->n_add = 0;
	return st;
}

/* The same, and copy x to `to`. */
static enum ar_status settle_to(struct decoder *d, bf16_t *to, struct ar_err *err)
{
	enum ar_status st = finish_x(d, err);

	if (!st)
		CU(cudaMemcpyAsync(to, d->now.x,
				   (size_t)d->n_row * (size_t)d->env.model->hidden *
					   sizeof *d->now.x,
				   cudaMemcpyDeviceToDevice, d->env.stream));
out:
	return st;
}

enum ar_status decoder_bring_back(struct decoder *d, int layer, const int32_t *whole, int n,
				  struct ar_err *err)
{
	int h = d->env.model->hidden;
	enum ar_status st;

	assert(d->stale && n >= d->n_row);
	decoder_phase(d, layer, PHASE_DROP);
	st = settle_to(d, d->stale + (size_t)n * (size_t)h, err);
	if (!st)
		st = layer_gather(d->stale, 2 * n, whole, n, h, d->now.x, d->env.stream, err);
	d->n_row = n;
	return st;
}

enum ar_status decoder_put(struct decoder *d, int layer, const struct layer_row *row,
			   const int32_t *index, int n, int skip, bf16_t *x, struct ar_err *err)
{
	int h = d->env.model->hidden;
	enum ar_status st;

	decoder_phase(d, layer, PHASE_DROP);
	st = finish_x(d, err);
	return st ? st :
		    layer_put(d->now.x + (size_t)skip * (size_t)h, row, index, n, h, x,
			      d->env.stream, err);
}

enum ar_status decoder_take(struct decoder *d, int layer, int n_keep, const bf16_t *x,
			    const int32_t *slot, int n, struct ar_err *err)
{
	int h = d->env.model->hidden;
	enum ar_status st = AR_OK;

	assert(!d->n_add && n_keep <= d->n_row && n_keep + n <= d->env.max_row);
	decoder_phase(d, layer, PHASE_DROP);
	if (n)
		st = layer_gather(x, 0, slot, n, h, d->now.x + (size_t)n_keep * (size_t)h,
				  d->env.stream, err);
	d->n_row = n_keep + n;
	return st;
}

enum ar_status decoder_keep(struct decoder *d, int layer, const int32_t *index, int n,
			    struct ar_err *err)
{
	int h = d->env.model->hidden;
	enum ar_status st = AR_OK;

	assert(d->env.drops && n > 0 && n <= d->n_row);
	decoder_phase(d, layer, PHASE_DROP);
	if (d->stale)
		st = settle_to(d, d->stale, err);
	if (!st && d->n_add > 1)
		st = sum_up(d, NULL, NULL, err);
	if (!st)
		st = layer_gather(d->now.x, d->n_row, index, n, h, d->now.y, d->env.stream, err);
	exchange(&d->now.x, &d->now.y);
	if (!st && d->n_add)
		st = layer_gather(d->now.add, d->n_row, index, n, h, d->now.spare, d->env.stream,
				  err);
	exchange(&d->now.add, &d->now.spare);
	d->n_row = n;
	return st;
}

/* Give all ranks the logits of all: [ranks][n_emit][vocab] of each. */
static enum ar_status gather_logits(struct decoder *d, int n_emit, struct layer_logits *l,
				    struct ar_err *err)
{
	const size_t n = (size_t)n_emit * (size_t)d->vocab;
	struct world *w = d->env.world;
	enum ar_status st;

	if (!w)
		return AR_OK;
	decoder_phase(d, PHASE_NO_LAYER, PHASE_COMM);
	st = d->logits ? world_gather_on(w, d->logits, d->gathered, n * sizeof *d->logits,
					 d->env.stream, err) :
			 world_gather_on(w, d->wide, d->gathered, n * sizeof *d->wide,
					 d->env.stream, err);
	l->x = d->logits ? NULL : d->gathered;
	l->real = d->logits ? d->gathered : NULL;
	l->n_row *= world_size(w);
	decoder_phase(d, PHASE_NO_LAYER, PHASE_HEAD);
	return st;
}

enum ar_status decoder_head(struct decoder *d, const int32_t *emit, int n_emit, struct ar_err *err)
{
	const struct model *m = d->env.model;
	const struct gemm_args x = { .n_batch = 1,
				     .m = n_emit,
				     .n = d->vocab,
				     .k = m->hidden,
				     .a = d->act,
				     .w = d->head,
				     .c = d->wide,
				     .real = d->logits };
	struct layer_logits l = { .x = d->logits ? NULL : d->wide,
				  .real = d->logits,
				  .n_row = n_emit,
				  .width = m->vocab,
				  .stride = d->vocab };
	enum ar_status st;

	decoder_phase(d, PHASE_NO_LAYER, PHASE_HEAD);
	d->n_emit = n_emit;
	st = norm(d, d->norm, err);
	if (!st && n_emit)
		st = layer_gather(d->now.y, d->n_row, emit, n_emit, m->hidden, d->act,
				  d->env.stream, err);
	if (!st && n_emit)
		st = gemm_run(d->gemm, &x, err);
	if (!st && n_emit)
		st = gather_logits(d, n_emit, &l, err);
	if (!st && n_emit)
		st = layer_argmax(&l, d->token, d->env.stream, err);
	return st;
}

enum ar_status decoder_hidden(struct decoder *d, bf16_t *out, struct ar_err *err)
{
	enum ar_status st = finish_x(d, err);

	if (st)
		return st;
	CU(cudaMemcpyAsync(out, d->now.x,
			   (size_t)d->n_row * (size_t)d->env.model->hidden * sizeof *out,
			   cudaMemcpyDeviceToHost, d->env.stream));
	CU(cudaStreamSynchronize(d->env.stream));
out:
	return st;
}

enum ar_status decoder_logits(const struct decoder *d, int i, float *out, struct ar_err *err)
{
	const size_t stride = (size_t)d->vocab, n = (size_t)d->env.model->vocab;
	const int ranks = d->env.world ? world_size(d->env.world) : 1;
	const float *all = d->env.world ? d->gathered : d->logits;
	/* between ranks; CUDA takes none above 2 GiB, which one rank does not need */
	const size_t pitch = (ranks > 1 ? (size_t)d->n_emit * stride : n) * sizeof *out;
	enum ar_status st = AR_OK;

	assert(d->logits && i >= 0 && i < d->env.max_emit);
	CU(cudaMemcpy2DAsync(out, n * sizeof *out, all + (size_t)i * stride, pitch, n * sizeof *out,
			     (size_t)ranks, cudaMemcpyDeviceToHost, d->env.stream));
	CU(cudaStreamSynchronize(d->env.stream));
out:
	return st;
}

/* ---- opening ---- */

/* Run n rows through layers [from, to) and the head.  The QKV product is used as the attention
 * output. */
static enum ar_status decoder_pass(struct decoder *d, int n, int from, int to, struct ar_err *err)
{
	enum ar_status st = decoder_begin(d, d->first, n, err);

	if (!st)
		st = decoder_enter(d, err);
	for (int i = from; i < to && !st; i++) {
		st = decoder_before(d, i, PHASE_NO_LAYER, err);
		if (!st)
			st = decoder_after(d, i, PHASE_NO_LAYER, d->wide, err);
	}
	return st ? st : decoder_head(d, d->zero, n < d->env.max_emit ? n : d->env.max_emit, err);
}

/* Run every product of a layer with 1, 2, 3, 4, 6, 8, 12 ... max_row rows. */
static enum ar_status warm_up_layer(struct decoder *d, int i, struct ar_err *err)
{
	int max = d->env.max_row;
	enum ar_status st = AR_OK;

	for (int64_t n = 1; n < max && !st; n *= 2) {
		st = decoder_pass(d, (int)n, i, i + 1, err);
		if (!st && n > 1 && n + n / 2 < max)
			st = decoder_pass(d, (int)(n + n / 2), i, i + 1, err);
	}
	return st ? st : decoder_pass(d, max, i, i + 1, err);
}

/* Return whether executed layer i is the first one of its kind. */
static bool is_first(const struct decoder *d, int i)
{
	for (int j = 0; j < i; j++)
		if (!memcmp(d->layer[j].spec, d->layer[i].spec, sizeof *d->layer[i].spec))
			return false;
	return true;
}

/* Warm up one layer of each kind.  Libraries load code on first use, which must not happen in a
 * timed region. */
static enum ar_status warm_up(struct decoder *d, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < d->env.n_layers && !st; i++)
		if (is_first(d, i))
			st = warm_up_layer(d, i, err);
	return st;
}

/* Check that the hidden states of n rows are finite after each layer.  x: room for them. */
static enum ar_status check_layers(struct decoder *d, int n, bf16_t *x, struct ar_err *err)
{
	size_t elems = (size_t)n * (size_t)d->env.model->hidden;
	enum ar_status st = decoder_begin(d, d->first, n, err);

	if (!st)
		st = decoder_enter(d, err);
	for (int i = 0; i < d->env.n_layers && !st; i++) {
		st = decoder_before(d, i, PHASE_NO_LAYER, err);
		if (!st)
			st = decoder_after(d, i, PHASE_NO_LAYER, d->wide, err);
		if (!st)
			st = decoder_hidden(d, x, err);
		for (size_t k = 0; k < elems && !st; k++)
			if (!isfinite(bf16_to_f32(x[k])))
				st = ar_fail(err, AR_CUDA,
					     "model %s: layer %d is the first whose output is not "
					     "finite; its weights are out of range",
					     d->env.model->name, d->env.layer[i]);
	}
	return st;
}

static enum ar_status check_finite(struct decoder *d, struct ar_err *err)
{
	int n = d->env.max_row < 16 ? d->env.max_row : 16;
	bf16_t *x = malloc((size_t)n * (size_t)d->env.model->hidden * sizeof *x);
	enum ar_status st = x ? check_layers(d, n, x, err) : ar_nomem(err);

	free(x);
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
	st = decoder_open_layers(d, err);
	if (!st)
		st = gemm_open(&d->gemm, env->stream, err);
	if (!st)
		st = decoder_open_memory(d, err);
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
