/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend "cuda": linear layers.  Their inputs are the products of the decoder's projections, as
 * captures hold none.
 *
 * An iteration may run more than once, as when its graphs are made or the host was late.  The
 * states then advance more than once.  Like the hidden states they are of random weights and of no
 * token, so nothing but times depends on them.
 */
#include "config.h"
#include "replay/engine/backend_cuda.h"

#include "kernels/delta/delta.h"

static const struct delta_spec *spec_of(const struct cuda *c, int i)
{
	return &c->env.model->layer[c->env.run_layer[i]].delta;
}

/* The matrices of all slots come first, then the last rows of the convolution. */
static struct delta_state state_of(const struct cuda *c, int i)
{
	size_t slots = (size_t)attn_engine_group(&c->engine, i)->n_page + 1; /* and scratch */
	float *s = c->pass.state[i];

	return (struct delta_state){ s, (bf16_t *)(s + slots * delta_state_len(spec_of(c, i))) };
}

enum ar_status cuda_mix_linear(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	const struct delta_spec *d = spec_of(c, i);
	const struct decoder_mix m = decoder_mix(c->decoder, i);
	struct delta_call call = { .spec = *d,
				   .w = { m.conv, m.a_log, m.dt_bias, m.norm, m.eps },
				   .state = state_of(c, i),
				   .qkvz = m.qkvz,
				   .ba = m.ba,
				   .qkvz_stride = m.qkvz_stride,
				   .ba_stride = m.ba_stride,
				   .out = c->pass.out,
				   .work = c->pass.work,
				   .stream = c->device.stream };
	size_t before = (size_t)rows_before(r, ROW_DECODE);
	enum ar_status st = AR_OK;

	prof_phase(c->env.prof, c->env.run_layer[i], PHASE_MIX);
	if (r->state.n_seq)
		st = delta_prefill(&call, &r->state, err);
	if (st || !rows_count(r, ROW_DECODE))
		return st;
	call.qkvz += before * (size_t)m.qkvz_stride;
	call.ba += before * (size_t)m.ba_stride;
	call.out += before * (size_t)(d->v_heads * d->v_dim);
	return delta_decode(&call, rows_count(r, ROW_DECODE), r->part[ROW_DECODE].keys.page, err);
}

enum ar_status cuda_check_linear(const struct cuda *c, int cc, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < c->env.n_run_layers && !c->env.attention_only && !st; i++)
		if (attn_engine_mixer(&c->engine, i) == MIX_LINEAR)
			st = delta_supported(spec_of(c, i), cc, err);
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
		n = larger(n, (size_t)spec_of(c, i)->v_heads * (size_t)spec_of(c, i)->v_dim);
	return n;
}

size_t cuda_linear_work(const struct cuda *c)
{
	const struct attn_limits *l = &c->pass.rows.limit[ROW_PREFILL];
	size_t n = 0;

	for (int i = 0; i < c->env.n_run_layers; i++)
		if (attn_engine_mixer(&c->engine, i) == MIX_LINEAR)
			n = larger(n, delta_work_bytes(spec_of(c, i), l->max_req, l->max_row));
	return n;
}
