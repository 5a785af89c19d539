/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrence, one row after another: the definition of the layer. */
#include "config.h"
#include "kernels/delta/delta.h"

#include <assert.h>
#include <math.h>

#include "kernels/delta/delta_work.h"
#include "kernels/support.h"

struct delta_batch delta_plan(const struct attn_rows *rows, const int32_t *slot,
			      struct delta_seq *seq, struct delta_chunk *chunk)
{
	struct delta_batch b = { 0, 0, seq, chunk };

	for (int r = 0; r < rows->n_req; r++) {
		int n = attn_n_row(rows, r);

		if (!n)
			continue;
		seq[b.n_seq] = (struct delta_seq){ rows->row0[r], n, slot[r], rows->pos0[r] == 0,
						   b.n_chunk };
		for (int i = 0; i < n; i += DELTA_CHUNK)
			chunk[b.n_chunk++] = (struct delta_chunk){ b.n_seq, i };
		b.n_seq++;
	}
	return b;
}

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
	if (s->conv != DELTA_CONV)
		return ar_fail(err, AR_USAGE, "delta: convolution of width %d; supported %d",
			       s->conv, DELTA_CONV);
	if (s->v_heads % s->k_heads)
		return ar_fail(err, AR_USAGE,
			       "delta: %d value heads; supported multiples of the %d key heads",
			       s->v_heads, s->k_heads);
	return AR_OK;
}

size_t delta_work_bytes(const struct delta_spec *s, int max_req, int max_row)
{
	return delta_work_at(NULL, s, delta_max_chunk(max_req, max_row)).bytes;
}

/* ---- the references ---- */

static double silu(double x)
{
	return x / (1 + exp(-x));
}

/* Element `channel` of the projection t rows after seq->row; before it, of the slot. */
static double input_value(const struct delta_call *c, const struct delta_seq *seq, int t,
			  int channel)
{
	const struct delta_spec *s = &c->spec;
	size_t row = (size_t)(seq->row + t);

	if (t >= 0)
		return (double)bf16_to_f32(c->qkvz[row * (size_t)c->qkvz_stride + (size_t)channel]);
	if (seq->fresh)
		return 0;
	return (double)bf16_to_f32(
		c->state.tail[(size_t)seq->slot * delta_tail_len(s) +
			      (size_t)((s->conv - 1 + t) * delta_channels(s) + channel)]);
}

/* n channels from `first` on, through the convolution and SiLU. */
static void convolve(const struct delta_call *c, const struct delta_seq *seq, int t, int first,
		     int n, double *to)
{
	for (int i = 0; i < n; i++) {
		const bf16_t *w = c->w.conv + (size_t)(first + i) * (size_t)c->spec.conv;
		double sum = 0;

		for (int j = 0; j < c->spec.conv; j++)
			sum += (double)bf16_to_f32(w[j]) *
			       input_value(c, seq, t - c->spec.conv + 1 + j, first + i);
		to[i] = silu(sum);
	}
}

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
					       silu((double)bf16_to_f32(z[j]))));
}

static void mix_head(const struct delta_call *c, const struct delta_seq *seq, int head)
{
	const struct delta_spec *s = &c->spec;
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
		/* log(1 + exp(a)), without overflow */
		double softplus = fmax(a, 0) + log1p(exp(-fabs(a)));

		convolve(c, seq, t, key * s->k_dim, s->k_dim, q);
		convolve(c, seq, t, keys + key * s->k_dim, s->k_dim, k);
		convolve(c, seq, t, 2 * keys + head * s->v_dim, s->v_dim, v);
		normalise(q, s->k_dim, 1 / sqrt(s->k_dim));
		normalise(k, s->k_dim, 1);
		delta_step(state, s, q, k, v, exp(-exp((double)c->w.a_log[head]) * softplus),
			   1 / (1 + exp(-b)), o);
		finish_head(c, row, head, o);
	}
}

/* Keep the last rows of the projection.  Ascending rows: none is read after it is written. */
static void keep_tail(const struct delta_call *c, const struct delta_seq *seq)
{
	const struct delta_spec *s = &c->spec;
	const int n = s->conv - 1, channels = delta_channels(s);
	bf16_t *tail = c->state.tail + (size_t)seq->slot * delta_tail_len(s);

	for (int i = 0; i < n; i++)
		for (int j = 0; j < channels; j++)
			tail[(size_t)i * (size_t)channels + (size_t)j] =
				bf16_from_f32((float)input_value(c, seq, seq->n_row - n + i, j));
}

static void mix(const struct delta_call *c, const struct delta_seq *seq)
{
	for (int h = 0; h < c->spec.v_heads; h++)
		mix_head(c, seq, h);
	keep_tail(c, seq);
}

void delta_prefill_ref(const struct delta_call *c, const struct delta_batch *b)
{
	for (int i = 0; i < b->n_seq; i++)
		mix(c, &b->seq[i]);
}

void delta_decode_ref(const struct delta_call *c, int n_row, const int32_t *slot)
{
	for (int i = 0; i < n_row; i++)
		mix(c, &(struct delta_seq){ i, 1, slot[i], 0, 0 });
}
