/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend "cuda": layers with a state, gated DeltaNet and Mamba-2.  Their inputs are the products
 * of the decoder's projections, as captures hold none.
 *
 * An iteration may run more than once, as when its graphs are made or the host was late.  The
 * states then advance more than once.  Like the hidden states they are of random weights and of no
 * token, so nothing but times depends on them.
 */
#include "config.h"
#include "replay/engine/backend_cuda.h"

#include "kernels/delta/delta.h"
#include "kernels/ssm/ssm.h"

static const struct layer_spec *layer_of(const struct cuda *c, int i)
{
	return &c->env.model->layer[c->env.run_layer[i]];
}

/* The matrices of all slots come first, len elements each, then the last rows of the
 * convolution. */
static bf16_t *tails_of(const struct cuda *c, int i, size_t len)
{
	size_t slots = (size_t)attn_engine_group(&c->engine, i)->n_page + 1; /* and scratch */

	return (bf16_t *)((float *)c->pass.state[i] + slots * len);
}

static enum ar_status mix_delta(struct cuda *c, int i, const struct rows *r, size_t before,
				struct ar_err *err)
{
	const struct delta_spec *d = &layer_of(c, i)->delta;
	const struct decoder_mix m = decoder_mix(c->decoder, i);
	struct delta_call call = { .spec = *d,
				   .w = { m.conv, m.a_log, m.dt_bias, m.norm, m.eps },
				   .state = { c->pass.state[i],
					      tails_of(c, i, delta_state_len(d)) },
				   .qkvz = m.in,
				   .ba = m.ba,
				   .qkvz_stride = m.in_stride,
				   .ba_stride = m.ba_stride,
				   .out = c->pass.out,
				   .work = c->pass.work,
				   .stream = c->device.stream };
	enum ar_status st = r->state.n_seq ? delta_prefill(&call, &r->state, err) : AR_OK;

	call.qkvz += before * (size_t)m.in_stride;
	call.ba += before * (size_t)m.ba_stride;
	call.out += before * (size_t)(d->v_heads * d->v_dim);
	return st || !rows_count(r, ROW_DECODE) ? st :
						  delta_decode(&call, rows_count(r, ROW_DECODE),
							       r->part[ROW_DECODE].keys.page, err);
}

static enum ar_status mix_ssm(struct cuda *c, int i, const struct rows *r, size_t before,
			      struct ar_err *err)
{
	const struct ssm_spec *s = &layer_of(c, i)->ssm;
	const struct decoder_mix m = decoder_mix(c->decoder, i);
	struct ssm_call call = { .spec = *s,
				 .w = { m.conv, m.conv_bias, m.a_log, m.dt_bias, m.d, m.norm,
					m.eps },
				 .state = { c->pass.state[i], tails_of(c, i, ssm_state_len(s)) },
				 .in = m.in,
				 .in_stride = m.in_stride,
				 .out = c->pass.out,
				 .work = c->pass.work,
				 .stream = c->device.stream };
	enum ar_status st = r->state.n_seq ? ssm_prefill(&call, &r->state, err) : AR_OK;

	call.in += before * (size_t)m.in_stride;
	call.out += before * (size_t)ssm_inner(s);
	return st || !rows_count(r, ROW_DECODE) ? st :
						  ssm_decode(&call, rows_count(r, ROW_DECODE),
							     r->part[ROW_DECODE].keys.page, err);
}

enum ar_status cuda_mix_linear(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	size_t before = (size_t)rows_before(r, ROW_DECODE);

	prof_phase(c->env.prof, c->env.run_layer[i], PHASE_MIX);
	switch (attn_engine_mixer(&c->engine, i)) {
	case MIX_LINEAR: return mix_delta(c, i, r, before, err);
	case MIX_SSM: return mix_ssm(c, i, r, before, err);
	default: return AR_OK; /* the layer is its MLP */
	}
}

enum ar_status cuda_check_linear(const struct cuda *c, int cc, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < c->env.n_run_layers && !c->env.attention_only && !st; i++) {
		if (attn_engine_mixer(&c->engine, i) == MIX_LINEAR)
			st = delta_supported(&layer_of(c, i)->delta, cc, err);
		if (attn_engine_mixer(&c->engine, i) == MIX_SSM)
			st = ssm_supported(&layer_of(c, i)->ssm, cc, err);
	}
	if (st)
		ar_err_prefix(err, "model %s, backend cuda", c->env.model->name);
	return st;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

size_t cuda_linear_width(const struct cuda *c)
{
	size_t n = 0;

	for (int i = 0; i < c->env.n_run_layers; i++)
		n = larger(n, layer_o_width(layer_of(c, i)));
	return n;
}

size_t cuda_linear_work(const struct cuda *c)
{
	const struct attn_limits *l = &c->pass.rows.limit[ROW_PREFILL];
	size_t n = 0;

	for (int i = 0; i < c->env.n_run_layers; i++) {
		if (attn_engine_mixer(&c->engine, i) == MIX_LINEAR)
			n = larger(n, delta_work_bytes(&layer_of(c, i)->delta, l->max_req,
						       l->max_row));
		if (attn_engine_mixer(&c->engine, i) == MIX_SSM)
			n = larger(n, ssm_work_bytes(&layer_of(c, i)->ssm, l->max_req, l->max_row));
	}
	return n;
}
