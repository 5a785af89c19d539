/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/layer/layer.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

void layer_trig_ref(const float *inv, int half, int n_rotation, float factor, float *trig)
{
	for (int t = 0; t < n_rotation; t++)
		for (int k = 0; k < half; k++) {
			float angle = (float)t * inv[k]; /* fp32, as engines do */

			*trig++ = (float)cos((double)angle) * factor;
			*trig++ = (float)sin((double)angle) * factor;
		}
}

/* Head h of row r, whose token is tok: Q heads, then K heads, then V heads. */
static const bf16_t *source_head(const struct attn_shape *s, const struct layer_seq *seq, int layer,
				 int r, int32_t tok, int h)
{
	int64_t heads = s->q_heads + 2 * s->kv_heads;
	int64_t at = seq->n_tok ? (layer * heads + h) * seq->n_tok + tok : r * heads + h;

	return seq->data + at * s->head_dim;
}

static void rotate_head(const bf16_t *from, const float *trig, int half, float scale, bf16_t *to)
{
	for (int i = 0; i < half; i++) {
		float x = bf16_to_f32(from[i]), y = bf16_to_f32(from[i + half]);
		float c = trig[2 * i], s = trig[2 * i + 1];

		to[i] = bf16_from_f32((x * c - y * s) * scale);
		to[i + half] = bf16_from_f32((y * c + x * s) * scale);
	}
}

/* One head; trig: of its position. */
static void rope_head(const bf16_t *from, const float *trig, int dim, int head_dim, float scale,
		      bf16_t *to)
{
	rotate_head(from, trig, dim / 2, scale, to);
	for (int i = dim; i < head_dim; i++)
		to[i] = bf16_from_f32(bf16_to_f32(from[i]) * scale);
}

void layer_rope_ref(const struct attn_shape *s, const struct layer_seq *seq, int layer,
		    const struct layer_row *row, int n_row, const struct layer_angles *a, bf16_t *q,
		    bf16_t *k)
{
	for (int r = 0; r < n_row; r++) {
		const float *t = a->trig + (size_t)row[r].rotation * (size_t)a->dim;

		for (int h = 0; h < s->q_heads; h++, q += s->head_dim)
			rope_head(source_head(s, seq, layer, r, row[r].tok, h), t, a->dim,
				  s->head_dim, a->q_scale, q);
		for (int h = 0; h < s->kv_heads; h++, k += s->head_dim)
			rope_head(source_head(s, seq, layer, r, row[r].tok, s->q_heads + h), t,
				  a->dim, s->head_dim, 1, k);
	}
}

void layer_cache_ref(const struct attn_shape *s, const struct layer_seq *seq, int layer,
		     const struct layer_row *row, int n_row, const bf16_t *k,
		     const struct kv_cache *kv)
{
	size_t bytes = (size_t)s->head_dim * sizeof *k;

	for (int r = 0; r < n_row; r++)
		for (int h = 0; h < s->kv_heads; h++, k += s->head_dim) {
			int64_t page = row[r].slot / s->page_tok, place = row[r].slot % s->page_tok;
			int64_t at = ((page * s->kv_heads + h) * s->page_tok + place) * s->head_dim;
			int value = s->q_heads + s->kv_heads + h;

			memcpy(kv->k + at, k, bytes);
			memcpy(kv->v + at, source_head(s, seq, layer, r, row[r].tok, value), bytes);
		}
}

/* 1 over the root mean square of n values with this sum of squares. */
static float rms_scale(float sum, int n, float eps)
{
	return 1 / sqrtf(sum / (float)n + eps);
}

/* Mean over j < n of x[j * step]. */
static float mean_of(const bf16_t *x, int n, size_t step)
{
	float sum = 0;

	for (int j = 0; j < n; j++)
		sum += bf16_to_f32(x[(size_t)j * step]);
	return sum / (float)n;
}

static float sigmoid(float x)
{
	return 1 / (1 + expf(-x));
}

/* 1 over the root mean square of a row's addend, whose first elements are at add. */
static float addend_scale(const struct layer_norm_args *a, const bf16_t *add, size_t step)
{
	float sum = 0;

	for (int i = 0; i < a->width; i++) {
		float d = mean_of(add + i, a->n_add, step);

		sum += d * d;
	}
	return rms_scale(sum, a->width, a->eps);
}

/* Add the addend of a row, which begins at element from of all rows, to x. */
static void add_row(const struct layer_norm_args *a, size_t from)
{
	size_t step = (size_t)a->n_row * (size_t)a->width;
	float scale = a->post ? addend_scale(a, a->add + from, step) : 1;

	for (size_t i = from; i < from + (size_t)a->width; i++) {
		float d = mean_of(a->add + i, a->n_add, step);

		if (a->post)
			d = bf16_round(d * scale * (a->plus + bf16_to_f32(a->post[i - from])));
		a->x[i] = bf16_from_f32(bf16_to_f32(a->x[i]) + d);
	}
}

/* y = x / rms(x) * (plus + w); y may be x. */
static void norm_row(const bf16_t *x, const bf16_t *w, float plus, int n, float eps, bf16_t *y)
{
	float scale = rms_scale(bf16_dot(x, x, n), n, eps);

	for (int i = 0; i < n; i++)
		y[i] = bf16_from_f32(bf16_to_f32(x[i]) * scale * (plus + bf16_to_f32(w[i])));
}

void layer_norm_ref(const struct layer_norm_args *a)
{
	for (int r = 0; r < a->n_row; r++) {
		size_t from = (size_t)r * (size_t)a->width;

		if (a->n_add)
			add_row(a, from);
		norm_row(a->x + from, a->w, a->plus, a->width, a->eps, a->y + from);
	}
}

static float activate(enum mlp_act act, float g, float u)
{
	switch (act) {
	case ACT_GELU_TANH:
		return g * sigmoid(LAYER_GELU_SCALE * (g + LAYER_GELU_CUBE * g * g * g)) * u;
	case ACT_SWIGLU_CLAMP:
		g = fminf(g, LAYER_CLAMP);
		u = fmaxf(fminf(u, LAYER_CLAMP), -LAYER_CLAMP);
		return g * sigmoid(LAYER_CLAMP_ALPHA * g) * (u + 1);
	case ACT_RELU2: return u > 0 ? u * u : 0;
	default: return g / (1 + expf(-g)) * u;
	}
}

void layer_act_ref(enum mlp_act act, const bf16_t *gate_up, int n_row, int width, bf16_t *out)
{
	const int up = act == ACT_RELU2 ? 0 : width;

	for (int r = 0; r < n_row; r++, gate_up += up + width, out += width)
		for (int i = 0; i < width; i++)
			out[i] = bf16_from_f32(activate(act, bf16_to_f32(gate_up[i]),
							bf16_to_f32(gate_up[up + i])));
}

void layer_qk_norm_ref(const struct layer_qkv *p, const bf16_t *w, float eps)
{
	for (int r = 0; r < p->n_row; r++)
		for (int h = 0; h < p->q_heads + p->kv_heads; h++) {
			bf16_t *x = p->x + r * layer_qkv_row(p) + layer_qkv_head(p, h);

			norm_row(x, h < p->q_heads ? w : w + p->head_dim, p->plus, p->head_dim, eps,
				 x);
		}
}

void layer_out_gate_ref(const struct layer_qkv *p, const bf16_t *attn, bf16_t *out)
{
	for (int r = 0; r < p->n_row; r++)
		for (int h = 0; h < p->q_heads; h++) {
			const bf16_t *gate = p->x + r * layer_qkv_row(p) + layer_qkv_head(p, h) +
					     p->head_dim;

			for (int i = 0; i < p->head_dim; i++)
				*out++ = bf16_from_f32(bf16_to_f32(*attn++) *
						       sigmoid(bf16_to_f32(gate[i])));
		}
}

void layer_sum_ref(const struct layer_sum_args *a)
{
	size_t n = (size_t)a->n_row * (size_t)a->width;

	for (size_t i = 0; i < n; i++) {
		size_t r = i / (size_t)a->width;
		float x = mean_of(a->add + i, a->n_add, n);
		float by = a->gate ? sigmoid(bf16_to_f32(a->gate[r])) : 1;

		if (a->shared)
			x += bf16_to_f32(a->shared[i]) * by;
		a->add[i] = bf16_from_f32(x);
	}
}

void layer_gather_ref(const bf16_t *in, int n_in, const int32_t *index, int n_out, int width,
		      bf16_t *out)
{
	for (int i = 0; i < n_out; i++) {
		int from = index ? index[i] : i % n_in;

		memcpy(out + (size_t)i * width, in + (size_t)from * width,
		       (size_t)width * sizeof *out);
	}
}

void layer_put_ref(const bf16_t *in, const struct layer_row *row, const int32_t *index, int n,
		   int width, bf16_t *out)
{
	for (int k = 0; k < n; k++) {
		int from = index ? index[k] : k;

		memcpy(out + (size_t)row[from].slot * (size_t)width,
		       in + (size_t)from * (size_t)width, (size_t)width * sizeof *out);
	}
}

void layer_embed_ref(const bf16_t *table, const struct layer_row *row, int n_row, int width,
		     float scale, bf16_t *out)
{
	for (int r = 0; r < n_row; r++) {
		const bf16_t *from = table + (ptrdiff_t)row[r].tok * width;

		for (int i = 0; i < width; i++)
			*out++ = bf16_from_f32(bf16_to_f32(from[i]) * scale);
	}
}

static float logit(const struct layer_logits *l, int r, int i)
{
	ptrdiff_t at = (ptrdiff_t)r * l->stride + i;

	return l->x ? bf16_to_f32(l->x[at]) : l->real[at];
}

void layer_argmax_ref(const struct layer_logits *l, int32_t *index)
{
	for (int r = 0; r < l->n_row; r++) {
		index[r] = 0;
		for (int i = 1; i < l->width; i++)
			if (logit(l, r, i) > logit(l, r, index[r]))
				index[r] = i;
	}
}

void layer_fill_ref(bf16_t *x, size_t n, uint64_t seed, float scale)
{
	for (size_t i = 0; i < n; i++)
		x[i] = bf16_from_f32((float)rng_sum(rng_mix(seed + i)) *
				     (scale / RNG_SUM_DEVIATION));
}
