/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrence, one row after another: the definition of the layer. */
#include "config.h"
#include "kernels/ssm/ssm.h"

#include <assert.h>
#include <math.h>

#include "kernels/ssm/ssm_work.h"
#include "kernels/support.h"

enum ar_status ssm_supported(const struct ssm_spec *s, int cc, struct ar_err *err)
{
	const struct attn_shape shape = ssm_shape(s);
	enum ar_status st = support_check("ssm", &shape, NULL, cc, err);

	if (st)
		return st;
	if (s->state != 128 && s->state != 256)
		return ar_fail(err, AR_USAGE, "ssm: state of %d channels; supported 128, 256",
			       s->state);
	if (s->conv != STATE_CONV)
		return ar_fail(err, AR_USAGE, "ssm: convolution of width %d; supported %d", s->conv,
			       STATE_CONV);
	return AR_OK;
}

size_t ssm_work_bytes(const struct ssm_spec *s, int max_req, int max_row)
{
	return ssm_work_at(NULL, s, state_max_chunk(max_req, max_row)).bytes;
}

/* ---- the references ---- */

/* The time step of a head in a row. */
static double time_step(const struct ssm_call *c, size_t row, int head)
{
	const struct ssm_spec *s = &c->spec;
	const bf16_t *dt = c->in + row * (size_t)c->in_stride + ssm_inner(s) + ssm_channels(s);
	double x = state_softplus((double)(bf16_to_f32(dt[head]) + c->w.dt_bias[head]));

	x = fmax(x, (double)s->dt_min);
	return s->dt_max > 0 ? fmin(x, (double)s->dt_max) : x;
}

/* One step of a head.  y = h C. */
static void step(float *h, const struct ssm_spec *s, const double *x, const double *b,
		 const double *c, double decay, double dt, double *y)
{
	for (int i = 0; i < s->head_dim; i++) {
		y[i] = 0;
		for (int j = 0; j < s->state; j++) {
			float *to = &h[i * s->state + j];

			*to = (float)(decay * (double)*to + dt * x[i] * b[j]);
			y[i] += (double)*to * c[j];
		}
	}
}

/* Mix one row in a head: y with its gate, before the norm. */
static void mix_head(const struct ssm_call *c, const struct state_seq *seq, int t, int head,
		     double *y)
{
	const struct ssm_spec *s = &c->spec;
	const struct state_conv conv = ssm_conv_of(c);
	const int group = head / (s->heads / s->groups), inner = ssm_inner(s);
	const size_t row = (size_t)(seq->row + t);
	const bf16_t *z = c->in + row * (size_t)c->in_stride + head * s->head_dim;
	float *h = c->state.h + (size_t)seq->slot * ssm_state_len(s) +
		   (size_t)head * (size_t)(s->head_dim * s->state);
	double x[SSM_MAX_DIM], in[SSM_MAX_DIM], out[SSM_MAX_DIM], dt = time_step(c, row, head);

	assert(s->head_dim <= SSM_MAX_DIM && s->state <= SSM_MAX_DIM);
	for (int i = 0; seq->fresh && t == 0 && i < s->head_dim * s->state; i++)
		h[i] = 0;
	state_convolve(&conv, seq, t, head * s->head_dim, s->head_dim, x);
	state_convolve(&conv, seq, t, inner + group * s->state, s->state, in);
	state_convolve(&conv, seq, t, inner + (s->groups + group) * s->state, s->state, out);
	step(h, s, x, in, out, exp(-exp((double)c->w.a_log[head]) * dt), dt, y);
	for (int i = 0; i < s->head_dim; i++)
		y[i] = (y[i] + (double)c->w.d[head] * x[i]) * state_silu((double)bf16_to_f32(z[i]));
}

/* Write a group's output of a row. */
static void finish_group(const struct ssm_call *c, size_t row, int first, int n, const double *y)
{
	const bf16_t *norm = c->w.norm;
	bf16_t *out = c->out + row * (size_t)ssm_inner(&c->spec) + first;
	double sum = 0, scale;

	for (int i = 0; i < n; i++)
		sum += y[i] * y[i];
	scale = norm ? 1 / sqrt(sum / n + (double)c->w.eps) : 1;
	for (int i = 0; i < n; i++)
		out[i] = bf16_from_f32(
			(float)(y[i] * scale * (norm ? (double)bf16_to_f32(norm[first + i]) : 1)));
}

static void mix(const struct ssm_call *c, const struct state_seq *seq)
{
	const struct ssm_spec *s = &c->spec;
	const struct state_conv conv = ssm_conv_of(c);
	const int heads = s->heads / s->groups, n = heads * s->head_dim;
	double y[SSM_MAX_GROUP];

	assert(n <= SSM_MAX_GROUP);
	for (int t = 0; t < seq->n_row; t++)
		for (int g = 0; g < s->groups; g++) {
			for (int h = 0; h < heads; h++)
				mix_head(c, seq, t, g * heads + h, y + h * s->head_dim);
			finish_group(c, (size_t)(seq->row + t), g * n, n, y);
		}
	state_keep_tail(&conv, seq);
}

void ssm_prefill_ref(const struct ssm_call *c, const struct state_batch *b)
{
	for (int i = 0; i < b->n_seq; i++)
		mix(c, &b->seq[i]);
}

void ssm_decode_ref(const struct ssm_call *c, int n_row, const int32_t *slot)
{
	for (int i = 0; i < n_row; i++)
		mix(c, &(struct state_seq){ i, 1, slot[i], 0, 0 });
}
