/* SPDX-License-Identifier: Apache-2.0 */
/* The references of the row kernels. */
#include "config.h"
#include "kernels/layer/layer.h"

#include <complex.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/rng.h"
#include "model/layer_size.h"
#include "tests/tap.h"

enum {
	DIM = 16,
	HALF = DIM / 2,
	HEADS_Q = 4,
	HEADS_KV = 2,
	HEADS = HEADS_Q + 2 * HEADS_KV,
	TOK = 16,
	LAYERS = 2,
	PAGE = 4,
	TURNS = 40
};

static const struct attn_shape shape = { HEADS_Q, HEADS_KV, DIM, PAGE };
static bf16_t data[LAYERS * HEADS * TOK * DIM];
static const struct layer_seq seq = { data, TOK };
static float inv[HALF], trig[TURNS * DIM];
static const struct layer_angles whole = { trig, DIM, 1 };

static void fill(bf16_t *x, size_t n, struct rng *r)
{
	for (size_t i = 0; i < n; i++)
		x[i] = bf16_from_f32(rng_normal(r));
}

static const bf16_t *head_of(int layer, int head, int tok)
{
	return data + ((layer * HEADS + head) * TOK + tok) * DIM;
}

static void test_trig(void)
{
	float worst = 0;

	layer_trig_ref(inv, HALF, TURNS, 1, trig);
	for (int k = 0; k < HALF; k++)
		worst = fmaxf(worst, fabsf(trig[2 * k] - 1) + fabsf(trig[2 * k + 1]));
	ok(worst == 0, "position 0 turns by nothing");
	worst = 0;
	for (int t = 0; t < TURNS; t++)
		for (int k = 0; k < HALF; k++)
			worst = fmaxf(worst,
				      fabsf(trig[(t * HALF + k) * 2] - (float)cos(t * inv[k])));
	ok(worst < 1e-5f, "the table holds the cosine of position times frequency");
}

/* Largest distance of got from the rotation of from in double arithmetic. */
static double rotation_error(const bf16_t *from, int t, const bf16_t *got)
{
	double worst = 0;

	for (int k = 0; k < HALF; k++) {
		double complex z = bf16_to_f32(from[k]) + I * bf16_to_f32(from[k + HALF]);
		double complex w = bf16_to_f32(got[k]) + I * bf16_to_f32(got[k + HALF]);

		worst = fmax(worst, cabs(z * cexp(I * t * (double)inv[k]) - w));
	}
	return worst;
}

static void test_rope(void)
{
	const struct layer_row row[3] = { { 8, 0, 0 }, { 12, 17, 0 }, { 2, 39, 0 } };
	bf16_t q[3 * HEADS_Q * DIM], k[3 * HEADS_KV * DIM];
	double worst = 0;
	bool same = true;

	layer_rope_ref(&shape, &seq, 1, row, 3, &whole, q, k);
	for (int r = 0; r < 3; r++) {
		for (int h = 0; h < HEADS_Q; h++)
			worst = fmax(worst,
				     rotation_error(head_of(1, h, row[r].tok), row[r].rotation,
						    q + (r * HEADS_Q + h) * DIM));
		for (int h = 0; h < HEADS_KV; h++)
			worst = fmax(worst,
				     rotation_error(head_of(1, HEADS_Q + h, row[r].tok),
						    row[r].rotation, k + (r * HEADS_KV + h) * DIM));
	}
	ok(worst < 0.03, "rotation is the product with exp(i angle): off by %g", worst);
	for (int h = 0; h < HEADS_Q; h++)
		same &= !memcmp(q + h * DIM, head_of(1, h, 8), DIM * sizeof *q);
	ok(same, "a rotation by 0 leaves every bit");
}

/* 8 channels of 16 rotate, Q is scaled, and cosines and sines have a factor. */
static void test_partial(void)
{
	static float table[2 * 8];
	const struct layer_angles a = { table, 8, 0.5f };
	const struct layer_row row = { 3, 1, 0 };
	bf16_t q[HEADS_Q * DIM], k[HEADS_KV * DIM];
	const bf16_t *from = head_of(0, HEADS_Q, 3), *q0 = head_of(0, 0, 3);
	const float angle[4] = { 2, 0.5f, 0.1f, 0 };
	double worst = 0;
	bool kept = true, scaled = true;

	layer_trig_ref(angle, 4, 2, 1.5f, table);
	ok(table[0] == 1.5f && table[1] == 0 && fabsf(table[8] - 1.5f * cosf(2)) < 1e-6f &&
		   fabsf(table[9] - 1.5f * sinf(2)) < 1e-6f,
	   "a factor is in the table, at position 0, too");
	layer_rope_ref(&shape, &seq, 0, &row, 1, &a, q, k);
	for (int i = 0; i < 4; i++) {
		double complex z = bf16_to_f32(from[i]) + I * bf16_to_f32(from[i + 4]);
		double complex w = bf16_to_f32(k[i]) + I * bf16_to_f32(k[i + 4]);

		worst = fmax(worst, cabs(1.5 * z * cexp(I * (double)angle[i]) - w));
	}
	ok(worst < 0.03, "pairs are (i, i + 4): off by %g", worst);
	for (int i = 8; i < DIM; i++) {
		kept = kept && k[i] == from[i];
		scaled = scaled && bf16_to_f32(q[i]) == bf16_to_f32(q0[i]) / 2;
	}
	ok(kept, "the channels after them are copied");
	ok(scaled && bf16_to_f32(q[3]) ==
			     0.5f * bf16_to_f32(bf16_from_f32(1.5f * bf16_to_f32(q0[3]))),
	   "Q is scaled in all channels");
}

static void test_cache(void)
{
	/* Slot 6 is place 2 of page 1; slot 9 place 1 of page 2. */
	const struct layer_row row[2] = { { 5, 0, 6 }, { 10, 0, 9 } };
	bf16_t k[2 * HEADS_KV * DIM], pages_k[3 * HEADS_KV * PAGE * DIM] = { 0 };
	bf16_t pages_v[3 * HEADS_KV * PAGE * DIM] = { 0 };
	const struct kv_cache kv = { .k = pages_k, .v = pages_v };
	struct rng r = { 3 };
	int written = 0;

	fill(k, sizeof k / sizeof *k, &r);
	layer_cache_ref(&shape, &seq, 0, row, 2, k, &kv);
	ok(!memcmp(pages_k + ((1 * HEADS_KV + 0) * PAGE + 2) * DIM, k, DIM * sizeof *k) &&
		   !memcmp(pages_k + ((1 * HEADS_KV + 1) * PAGE + 2) * DIM, k + DIM,
			   DIM * sizeof *k),
	   "K lies head after head in its page");
	ok(!memcmp(pages_v + ((2 * HEADS_KV + 1) * PAGE + 1) * DIM,
		   head_of(0, HEADS_Q + HEADS_KV + 1, 10), DIM * sizeof *k),
	   "V comes from the last heads of the token");
	for (int i = 0; i < 3 * HEADS_KV * PAGE; i++)
		written += pages_k[i * DIM] != 0;
	is_int(written, 2 * HEADS_KV, "nothing else of the cache is written");
}

static void test_norm(void)
{
	float ones[8], want[8];
	bf16_t x[8], add[16], w[8], y[8];
	struct layer_norm_args a = { .x = x, .w = w, .y = y, .n_row = 1, .width = 8 };

	for (int i = 0; i < 8; i++) {
		ones[i] = 1;
		x[i] = bf16_from_f32(i < 2 ? 4.f * (float)(1 - 2 * i) : 0);
		w[i] = bf16_from_f32((float)i + 1);
		add[i] = bf16_from_f32(1);
		add[8 + i] = bf16_from_f32(3);
	}
	layer_norm_ref(&a); /* rms of 4, -4, 0 ... is 2 */
	ok(bf16_to_f32(y[0]) == 2 && bf16_to_f32(y[1]) == -4 && y[2] == 0,
	   "a row is divided by its root mean square and scaled");
	for (int i = 0; i < 8; i++) {
		want[i] = i == 0 ? 6 : i == 1 ? -2 : 2;
		x[i] = bf16_from_f32(want[i] - 2);
		w[i] = bf16_from_f32(ones[i]);
	}
	a.add = add;
	a.n_add = 2;
	layer_norm_ref(&a);
	for (int i = 0; i < 8; i++)
		want[i] -= bf16_to_f32(x[i]);
	is_f32(want, (float[8]){ 0 }, 8, 0, 0, "the mean of the added rows joins the residual");
	ok(fabsf(bf16_to_f32(y[0]) - 6 / sqrtf(8)) < 0.01f, "and is normalised with it");
}

/* The values must be exact in bf16. */
static void put_all(bf16_t *x, const float *values, int n)
{
	for (int i = 0; i < n; i++)
		x[i] = bf16_from_f32(values[i]);
}

/* Within half a step of bf16. */
static void is_all(const bf16_t *x, const float *want, int n, const char *what)
{
	float got[32];

	bf16_widen(got, x, n);
	is_f32(got, want, n, 1e-6, 0x1p-8, "%s", what);
}

/* The mean of two addends is 2, 2, -2, -2 ...; its rms is 2. */
static void test_post_norm(void)
{
	bf16_t x[8], add[16], w[8], post[8], y[8];
	const struct layer_norm_args a = {
		.x = x, .add = add, .n_add = 2, .w = w, .y = y, .n_row = 1, .width = 8, .post = post
	};

	for (int i = 0; i < 8; i++) {
		float sign = i % 4 < 2 ? 1 : -1;

		x[i] = bf16_from_f32(1);
		w[i] = bf16_from_f32(i < 4 ? 1 : 2);
		post[i] = bf16_from_f32(i < 4 ? 1 : 0.5f);
		add[i] = bf16_from_f32(sign);
		add[8 + i] = bf16_from_f32(3 * sign);
	}
	layer_norm_ref(&a);
	is_all(x, (float[]){ 2, 2, 0, 0, 1.5f, 1.5f, 0.5f, 0.5f }, 8,
	       "with two norms, the normalised addend joins the residual");
	is_all(y, (float[]){ 1.5689f, 1.5689f, 0, 0, 2.3534f, 2.3534f, 0.7845f, 0.7845f }, 8,
	       "which is normalised with its own weights");
}

/* Two heads of Q, one of K, one of V, of eight channels; a head of Q may have a gate after it. */
static void test_qk_norm(void)
{
	enum { N = 16 };
	bf16_t x[6 * N], was[6 * N], w[2 * N];
	struct layer_qkv p = { x, 1, 2, 1, N, 0, 0 };

	is_int(layer_qkv_row(&p), 4 * N, "a row has heads of Q, K and V");
	for (int i = 0; i < 6 * N; i++)
		x[i] = bf16_from_f32((float)(1 << i / N) * (i % 2 ? -1.f : 1.f));
	for (int i = 0; i < 2 * N; i++)
		w[i] = bf16_from_f32(i < N ? 1 : 3);
	memcpy(was, x, sizeof x);
	layer_qk_norm_ref(&p, w, 0);
	ok(bf16_to_f32(x[0]) == 1 && bf16_to_f32(x[N + 1]) == -1 && bf16_to_f32(x[2 * N]) == 3 &&
		   bf16_to_f32(x[3 * N - 1]) == -3,
	   "each head of Q and K is divided by its own root mean square and scaled");
	ok(!memcmp(x + 3 * N, was + 3 * N, 3 * N * sizeof *x), "V is left alone");
	p.gated = 1;
	memcpy(x, was, sizeof x);
	is_int(layer_qkv_row(&p), 6 * N, "gates widen a row");
	layer_qk_norm_ref(&p, w, 0);
	ok(bf16_to_f32(x[0]) == 1 && bf16_to_f32(x[2 * N]) == 1 && bf16_to_f32(x[4 * N]) == 3 &&
		   !memcmp(x + N, was + N, N * sizeof *x) &&
		   !memcmp(x + 3 * N, was + 3 * N, N * sizeof *x) &&
		   !memcmp(x + 5 * N, was + 5 * N, N * sizeof *x),
	   "and are left alone, too");
}

static void test_out_gate(void)
{
	enum { N = 16 };
	bf16_t x[6 * N] = { 0 }, attn[2 * N], out[2 * N];
	const struct layer_qkv p = { x, 1, 2, 1, N, 1, 0 };

	for (int i = 0; i < N; i++) {
		attn[i] = attn[N + i] = bf16_from_f32((float)i);
		x[3 * N + i] = bf16_from_f32(i % 2 ? 1 : -200);
	}
	layer_out_gate_ref(&p, attn, out);
	ok(bf16_to_f32(out[6]) == 3, "a gate of 0 halves the output");
	ok(fabsf(bf16_to_f32(out[N + 3]) - 3 * 0.731059f) < 0.01f && bf16_to_f32(out[N + 2]) == 0,
	   "each head has its own gate, which passes through a sigmoid");
}

static void test_sum(void)
{
	bf16_t add[4 * 8], shared[2 * 8], gate[2];
	struct layer_sum_args a = { add, 2, shared, gate, 2, 8 };

	for (int i = 0; i < 4 * 8; i++)
		add[i] = bf16_from_f32((float)(i / 8)); /* row 0: 0 and 2; row 1: 1 and 3 */
	for (int i = 0; i < 2 * 8; i++)
		shared[i] = bf16_from_f32(8);
	put_all(gate, (float[]){ 0, -200 }, 2);
	layer_sum_ref(&a);
	ok(bf16_to_f32(add[0]) == 1 + 4 && bf16_to_f32(add[15]) == 2,
	   "the mean of the experts and the gated shared one make one row");
	a.n_add = 1;
	a.gate = NULL;
	layer_sum_ref(&a);
	ok(bf16_to_f32(add[0]) == 13 && bf16_to_f32(add[8]) == 10,
	   "without a gate it is added as it is");
	a.shared = NULL;
	layer_sum_ref(&a);
	ok(bf16_to_f32(add[0]) == 13, "and without a shared one nothing is");
}

/* By their formulas in double arithmetic. */
static void test_acts(void)
{
	static const float gate[] = { -4, -1, -0.25f, 0, 0.5f, 2, 6, 16 };
	static const float up[] = { 2, -2, 1, 5, 0.5f, -16, 16, 1 };
	bf16_t gu[16], out[8];
	float silu[8], gelu[8], clamp[8];

	put_all(gu, gate, 8);
	put_all(gu + 8, up, 8);
	for (int i = 0; i < 8; i++) {
		double g = gate[i], u = up[i], h = fmin(g, 7);

		silu[i] = (float)(g / (1 + exp(-g)) * u);
		gelu[i] = (float)(0.5 * g *
				  (1 + tanh(sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g))) * u);
		clamp[i] = (float)(h / (1 + exp(-1.702 * h)) * (fmax(fmin(u, 7), -7) + 1));
	}
	layer_act_ref(ACT_SILU, gu, 1, 8, out);
	is_all(out, silu, 8, "silu: the gate passes through x sigmoid(x)");
	layer_act_ref(ACT_GELU_TANH, gu, 1, 8, out);
	is_all(out, gelu, 8, "gelu: and through the tanh form of the Gaussian's");
	layer_act_ref(ACT_SWIGLU_CLAMP, gu, 1, 8, out);
	is_all(out, clamp, 8, "clamp: both halves end at 7, and up is one more");
	layer_act_ref(ACT_RELU2, gu + 8, 1, 8, out);
	for (int i = 0; i < 8; i++)
		silu[i] = up[i] > 0 ? up[i] * up[i] : 0;
	is_all(out, silu, 8, "relu2: the square of what is above 0, without a gate");
	layer_act_ref(ACT_SWIGLU_CLAMP, gu, 1, 8, out);
	ok(fabsf(bf16_to_f32(out[7]) - 14) < 0.1f && fabsf(bf16_to_f32(out[5]) + 11.6f) < 0.1f,
	   "of a gate of 16 and of up of -16");
}

static void test_small(void)
{
	bf16_t x[3 * 8], picked[2 * 8], put[4 * 8];
	const int32_t index[2] = { 2, 0 };
	const struct layer_row row[3] = { { .slot = 3 }, { .slot = 0 }, { .slot = 1 } };
	int32_t best[2];
	float real[16];

	for (int i = 0; i < 24; i++)
		x[i] = bf16_from_f32((float)i);
	layer_gather_ref(x, 3, index, 2, 8, picked);
	ok(!memcmp(picked, x + 16, 16) && !memcmp(picked + 8, x, 16), "rows are gathered by index");
	layer_gather_ref(x, 1, NULL, 2, 8, picked);
	ok(!memcmp(picked, x, 16) && !memcmp(picked + 8, x, 16),
	   "without index rows repeat in turn");
	layer_put_ref(x, row, index, 2, 8, put);
	ok(!memcmp(put + 8, x + 16, 16) && !memcmp(put + 24, x, 16), "rows are put into slots");
	layer_put_ref(x, row, NULL, 2, 8, put);
	ok(!memcmp(put + 24, x, 16) && !memcmp(put, x + 8, 16), "without index the first ones");

	x[3] = x[7] = bf16_from_f32(100);
	x[8] = x[12] = x[15] = bf16_from_f32(50);
	layer_argmax_ref(&(struct layer_logits){ .x = x, .n_row = 2, .width = 5, .stride = 8 },
			 best);
	is_int(best[0], 3, "the largest value wins, values past the width do not count");
	is_int(best[1], 0, "of equal values the first one wins");
	for (int i = 0; i < 16; i++)
		real[i] = bf16_to_f32(x[i]);
	layer_argmax_ref(
		&(struct layer_logits){ .real = real, .n_row = 2, .width = 5, .stride = 8 }, best);
	ok(best[0] == 3 && best[1] == 0, "... also of values that are not rounded");
}

/* The product of two rows of one head each, and an embedding. */
static void test_product_rows(void)
{
	enum { WIDE = 16, OF = 3 };
	static const float still[WIDE] = { 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0 };
	const struct attn_shape s = { 1, 1, WIDE, 64 };
	const struct layer_row row[2] = { { .tok = 9, .slot = 3 }, { .tok = 7, .slot = 0 } };
	static bf16_t x[2 * OF * WIDE], q[2 * WIDE], k[2 * WIDE], pages[2][64 * WIDE];
	const struct layer_seq product = { x, 0 };
	const struct kv_cache kv = { .k = pages[0], .v = pages[1] };
	bf16_t out[2 * WIDE];

	for (int i = 0; i < 2 * OF * WIDE; i++)
		x[i] = bf16_from_f32((float)i);
	layer_rope_ref(&s, &product, 5, row, 2, &(struct layer_angles){ still, WIDE, 1 }, q, k);
	ok(!memcmp(q + WIDE, x + 3 * WIDE, sizeof q / 2) &&
		   !memcmp(k + WIDE, x + 4 * WIDE, sizeof k / 2),
	   "row 1 has its Q and K from row 1 of the product, whatever its token");
	layer_cache_ref(&s, &product, 5, row, 2, k, &kv);
	ok(!memcmp(pages[0] + 3 * WIDE, x + WIDE, WIDE * sizeof *x) &&
		   !memcmp(pages[1] + 3 * WIDE, x + 2 * WIDE, WIDE * sizeof *x) &&
		   !memcmp(pages[1], x + 5 * WIDE, WIDE * sizeof *x),
	   "... and so has the cache K and V");
	layer_embed_ref(x, (struct layer_row[]){ { .tok = 1 }, { .tok = 0 } }, 2, WIDE, 2, out);
	ok(bf16_to_f32(out[3]) == 2 * (WIDE + 3) && bf16_to_f32(out[WIDE + 3]) == 6,
	   "embeddings are the tokens' rows, scaled");
}

static void test_fill(void)
{
	enum { N = 40000 };
	static bf16_t a[N], b[N];
	double sum = 0, sq = 0;

	layer_fill_ref(a, N, 5, 0.5f);
	layer_fill_ref(b, N - 100, 105, 0.5f);
	for (int i = 0; i < N; i++) {
		sum += bf16_to_f32(a[i]);
		sq += (double)bf16_to_f32(a[i]) * bf16_to_f32(a[i]);
	}
	ok(fabs(sum / N) < 0.01 && fabs(sqrt(sq / N) - 0.5) < 0.01,
	   "the fill has the scale asked for");
	ok(!memcmp(a + 100, b, (N - 100) * sizeof *a),
	   "an element depends on seed plus index only");
}

/* One of eight ranks of Llama-3.1-8B, of Qwen3-Next's two kinds of layers. */
static void test_sizes(void)
{
	const struct layer_spec llama = { .q_heads = 4, .kv_heads = 1, .head_dim = 128 };
	const struct layer_spec full = {
		.q_heads = 2, .kv_heads = 1, .head_dim = 256, .out_gate = 1
	};
	const struct layer_spec linear = { .mixer = MIX_LINEAR, .delta = { 2, 4, 128, 128, 4 } };

	ok(layer_qkv_width(&llama) == 768 && layer_o_width(&llama) == 512 &&
		   !layer_ba_width(&llama),
	   "products of full attention");
	ok(layer_qkv_width(&full) == 1536 && layer_o_width(&full) == 512, "with an output gate");
	ok(layer_qkv_width(&linear) == 12288 / 8 && layer_ba_width(&linear) == 64 / 8 &&
		   layer_o_width(&linear) == 4096 / 8,
	   "and of a gated DeltaNet");
}

int main(void)
{
	struct rng r = { 1 };

	plan(0);
	for (int k = 0; k < HALF; k++)
		inv[k] = (float)pow(10000, -2.0 * k / DIM);
	fill(data, sizeof data / sizeof *data, &r);
	test_trig();
	test_rope();
	test_partial();
	test_cache();
	test_norm();
	test_post_norm();
	test_qk_norm();
	test_out_gate();
	test_sum();
	test_acts();
	test_sizes();
	test_small();
	test_product_rows();
	test_fill();
	return done_testing();
}
