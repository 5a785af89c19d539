/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrence, one row after another: the definition of the layer. */
#include "config.h"
#include "kernels/delta/delta.h"

#include <assert.h>
#include <math.h>

#include "kernels/delta/delta_work.h"
#include "kernels/support.h"

enum ar_status delta_supported(const struct delta_spec *s, int cc, struct ar_err *err)
{
	const struct attn_shape shape = delta_shape(s);
	enum ar_status st = support_check("delta", &shape, NULL, cc, err);

	if (st)
		return st;
	if (s->v_dim != s->k_dim)
		return ar_fail(err, AR_USAGE,
			       "delta: value heads of %d channels; supported %d, as key heads have",
			       s->v_dim, s->k_dim);
	if (s->conv != STATE_CONV)
		return ar_fail(err, AR_USAGE, "delta: convolution of width %d; supported %d",
			       s->conv, STATE_CONV);
	if (s->v_heads % s->k_heads)
		return ar_fail(err, AR_USAGE,
			       "delta: %d value heads; supported multiples of the %d key heads",
			       s->v_heads, s->k_heads);
	return AR_OK;
}

size_t delta_work_bytes(const struct delta_spec *s, int max_req, int max_row)
{
	return delta_work_at(NULL, s, state_max_chunk(max_req, max_row)).bytes;
}

/* ---- the references ---- */

static void normalise(double *x, int n, double factor)
{
	double sum = DELTA_L2_EPS;

	for (int i = 0; i < n; i++)
		sum += x[i] * x[i];
	for (int i = 0; i < n; i++)
		x[i] *= factor / sqrt(sum);
}

/* One step of the delta rule.  o = S^T q. */
static void delta_step(float *state, const struct delta_spec *s, const double *q, const double *k,
		       const double *v, double decay, double beta, double *o)
{
	double u[DELTA_MAX_DIM] = { 0 };

	for (int i = 0; i < s->k_dim; i++)
		for (int j = 0; j < s->v_dim; j++)
			u[j] += (double)state[i * s->v_dim + j] * k[i];
	for (int j = 0; j < s->v_dim; j++) {
		u[j] = beta * (v[j] - decay * u[j]);
		o[j] = 0;
	}
	for (int i = 0; i < s->k_dim; i++)
		for (int j = 0; j < s->v_dim; j++) {
			float *x = &state[i * s->v_dim + j];

			*x = (float)(decay * (double)*x + k[i] * u[j]);
			o[j] += (double)*x * q[i];
		}
}

/* Write a head's output: RMS norm and the gate of z. */
static void finish_head(const struct delta_call *c, size_t row, int head, const double *o)
{
	const struct delta_spec *s = &c->spec;
	const bf16_t *z = c->qkvz + row * (size_t)c->qkvz_stride + delta_channels(s) +
			  head * s->v_dim;
	bf16_t *out = c->out + (row * (size_t)s->v_heads + (size_t)head) * (size_t)s->v_dim;
	double sum = 0, scale;

	for (int j = 0; j < s->v_dim; j++)
		sum += o[j] * o[j];
	scale = 1 / sqrt(sum / s->v_dim + (double)c->w.eps);
	for (int j = 0; j < s->v_dim; j++)
		out[j] = bf16_from_f32((float)(o[j] * scale * (double)bf16_to_f32(c->w.norm[j]) *
					       state_silu((double)bf16_to_f32(z[j]))));
}

static void mix_head(const struct delta_call *c, const struct state_seq *seq, int head)
{
	const struct delta_spec *s = &c->spec;
	const struct state_conv conv = delta_conv_of(c);
	const int key = head / (s->v_heads / s->k_heads), keys = s->k_heads * s->k_dim;
	float *state = c->state.s + (size_t)seq->slot * delta_state_len(s) +
		       (size_t)head * (size_t)(s->k_dim * s->v_dim);
	double q[DELTA_MAX_DIM], k[DELTA_MAX_DIM], v[DELTA_MAX_DIM], o[DELTA_MAX_DIM];

	assert(s->k_dim <= DELTA_MAX_DIM && s->v_dim <= DELTA_MAX_DIM);
	for (int i = 0; seq->fresh && i < s->k_dim * s->v_dim; i++)
		state[i] = 0;
	for (int t = 0; t < seq->n_row; t++) {
		const size_t row = (size_t)(seq->row + t);
		const bf16_t *ba = c->ba + row * (size_t)c->ba_stride;
		double b = (double)bf16_to_f32(ba[head]),
		       a = (double)(bf16_to_f32(ba[s->v_heads + head]) + c->w.dt_bias[head]);

		state_convolve(&conv, seq, t, key * s->k_dim, s->k_dim, q);
		state_convolve(&conv, seq, t, keys + key * s->k_dim, s->k_dim, k);
		state_convolve(&conv, seq, t, 2 * keys + head * s->v_dim, s->v_dim, v);
		normalise(q, s->k_dim, 1 / sqrt(s->k_dim));
		normalise(k, s->k_dim, 1);
		delta_step(state, s, q, k, v,
			   exp(-exp((double)c->w.a_log[head]) * state_softplus(a)),
			   1 / (1 + exp(-b)), o);
		finish_head(c, row, head, o);
	}
}

static void mix(const struct delta_call *c, const struct state_seq *seq)
{
	const struct state_conv conv = delta_conv_of(c);

	for (int h = 0; h < c->spec.v_heads; h++)
		mix_head(c, seq, h);
	state_keep_tail(&conv, seq);
}

void delta_prefill_ref(const struct delta_call *c, const struct state_batch *b)
{
	for (int i = 0; i < b->n_seq; i++)
		mix(c, &b->seq[i]);
}

void delta_decode_ref(const struct delta_call *c, int n_row, const int32_t *slot)
{
	for (int i = 0; i < n_row; i++)
		mix(c, &(struct state_seq){ i, 1, slot[i], 0, 0 });
}
