/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/ssm_case.h"

#include <stdlib.h>
#include <string.h>

#include "tests/state_case.h"

size_t ssm_case_in(const struct ssm_case *c)
{
	return (size_t)c->n_row * (size_t)c->call.in_stride;
}

size_t ssm_case_out(const struct ssm_case *c)
{
	return (size_t)c->n_row * (size_t)ssm_inner(&c->call.spec);
}

size_t ssm_case_state(const struct ssm_case *c)
{
	return (size_t)c->n_slot * ssm_state_len(&c->call.spec);
}

size_t ssm_case_tail(const struct ssm_case *c)
{
	return (size_t)c->n_slot * ssm_tail_len(&c->call.spec);
}

void ssm_case_make(struct ssm_case *c, struct rng *rng, const struct ssm_spec *s,
		   enum ssm_fill fill, int n_row, int n_slot)
{
	const size_t heads = (size_t)s->heads, channels = (size_t)ssm_channels(s);
	const float rate[SSM_FILLS] = { -1, -7, 4, -1 };
	struct ssm_call *call = &c->call;

	memset(c, 0, sizeof *c);
	c->n_row = n_row;
	c->n_slot = n_slot;
	call->spec = *s;
	if (fill == SSM_BOUNDS) {
		call->spec.dt_min = 0.25f;
		call->spec.dt_max = 1;
	}
	call->spec.conv_bias = call->spec.norm = fill != SSM_BOUNDS;
	call->in_stride = (ssm_in_width(s) + 15) / 8 * 8;
	call->w.conv = state_case_normal(rng, channels * (size_t)s->conv, 0.5f);
	call->w.a_log = state_case_floats(rng, heads, rate[fill], fill == SSM_MIXED ? 2 : 0.25f);
	call->w.dt_bias = state_case_floats(rng, heads, 0, 1);
	call->w.d = state_case_floats(rng, heads, 1, 0.5f);
	if (call->spec.conv_bias)
		call->w.conv_bias = state_case_normal(rng, channels, 0.25f);
	if (call->spec.norm)
		call->w.norm = state_case_normal(rng, (size_t)ssm_inner(s), 1);
	call->w.eps = 1e-5f;
	call->in = state_case_normal(rng, ssm_case_in(c), 1);
	call->state.h = state_case_floats(rng, ssm_case_state(c), 0, 1);
	call->state.tail = state_case_normal(rng, ssm_case_tail(c), 1);
	call->out = state_case_array(ssm_case_out(c), sizeof *call->out);
	memset(call->out, 0xff, ssm_case_out(c) * sizeof *call->out);
}

void ssm_case_release(struct ssm_case *c)
{
	free((void *)c->call.w.conv);
	free((void *)c->call.w.conv_bias);
	free((void *)c->call.w.a_log);
	free((void *)c->call.w.dt_bias);
	free((void *)c->call.w.d);
	free((void *)c->call.w.norm);
	free((void *)c->call.in);
	free(c->call.state.h);
	free(c->call.state.tail);
	free(c->call.out);
}
