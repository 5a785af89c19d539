/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/delta_case.h"

#include <stdlib.h>
#include <string.h>

#include "tests/state_case.h"

size_t delta_case_qkvz(const struct delta_case *c)
{
	return (size_t)c->n_row * (size_t)c->call.qkvz_stride;
}

size_t delta_case_ba(const struct delta_case *c)
{
	return (size_t)c->n_row * (size_t)c->call.ba_stride;
}

size_t delta_case_out(const struct delta_case *c)
{
	return (size_t)c->n_row * (size_t)(c->call.spec.v_heads * c->call.spec.v_dim);
}

size_t delta_case_state(const struct delta_case *c)
{
	return (size_t)c->n_slot * delta_state_len(&c->call.spec);
}

size_t delta_case_tail(const struct delta_case *c)
{
	return (size_t)c->n_slot * delta_tail_len(&c->call.spec);
}

/* Shape n_row rows of q, k, v.  keys: of all rows, or NULL.  Half of the channels of q are copies
 * from k.  So no output is a small difference of large terms, whose rounding the norm would
 * magnify. */
static void shape_rows(bf16_t *row, int n_row, int stride, int n, const bf16_t *keys)
{
	for (; n_row--; row += stride) {
		if (keys)
			memmove(row + n, keys, (size_t)n * sizeof *row);
		for (int i = 0; i < n; i += 2)
			row[i] = row[n + i];
	}
}

void delta_case_make(struct delta_case *c, struct rng *rng, const struct delta_spec *s,
		     enum delta_fill fill, int n_row, int n_slot)
{
	const size_t heads = (size_t)s->v_heads;
	const bool keep = fill == DELTA_KEEP || fill == DELTA_REPEAT;
	const int n = s->k_heads * s->k_dim; /* channels of q, and of k */
	struct delta_call *call = &c->call;
	const bf16_t *keys;
	bf16_t *ba, *conv, *qkvz;

	memset(c, 0, sizeof *c);
	c->n_row = n_row;
	c->n_slot = n_slot;
	call->spec = *s;
	call->qkvz_stride = (delta_qkvz_width(s) + 15) / 8 * 8;
	call->ba_stride = delta_ba_width(s) + 3;
	call->w.conv = conv = state_case_normal(rng, (size_t)(delta_channels(s) * s->conv), 0.5f);
	call->w.a_log = state_case_floats(rng, heads,
					  keep		       ? -9 :
					  fill == DELTA_FORGET ? 3 :
								 -1.5f,
					  fill == DELTA_MIXED ? 2 : 0.25f);
	call->w.dt_bias = state_case_floats(rng, heads, 0, 1);
	call->w.norm = state_case_normal(rng, (size_t)s->v_dim, 1);
	call->w.eps = 1e-6f;
	call->qkvz = qkvz = state_case_normal(rng, delta_case_qkvz(c), 1);
	call->ba = ba = state_case_normal(rng, delta_case_ba(c), 1);
	for (size_t i = 0; keep && i < delta_case_ba(c); i++)
		if (i % (size_t)call->ba_stride < heads)
			ba[i] = bf16_from_f32(bf16_to_f32(ba[i]) + 6);
	call->state.s = state_case_floats(rng, delta_case_state(c), 0, 1);
	call->state.tail = state_case_normal(rng, delta_case_tail(c), 1);
	call->out = state_case_array(delta_case_out(c), sizeof *call->out);
	memset(call->out, 0xff, delta_case_out(c) * sizeof *call->out);
	keys = fill == DELTA_REPEAT ? qkvz + n : NULL;
	shape_rows(qkvz, n_row, call->qkvz_stride, n, keys);
	shape_rows(call->state.tail, n_slot * (s->conv - 1), delta_channels(s), n, keys);
	for (int i = 0; i < n; i += 2)
		memcpy(conv + i * s->conv, conv + (n + i) * s->conv,
		       (size_t)s->conv * sizeof *conv);
}

void delta_case_release(struct delta_case *c)
{
	free((void *)c->call.w.conv);
	free((void *)c->call.w.a_log);
	free((void *)c->call.w.dt_bias);
	free((void *)c->call.w.norm);
	free((void *)c->call.qkvz);
	free((void *)c->call.ba);
	free(c->call.state.s);
	free(c->call.state.tail);
	free(c->call.out);
}
