/* SPDX-License-Identifier: Apache-2.0 */
/* The references of the row kernels. */
#include "config.h"
#include "kernels/layer/layer.h"

#include <complex.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/rng.h"
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

	layer_trig_ref(inv, HALF, TURNS, trig);
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

	layer_rope_ref(&shape, &seq, 1, row, 3, trig, q, k);
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

static void test_cache(void)
{
	/* Slot 6 is place 2 of page 1; slot 9 place 1 of page 2. */
	const struct layer_row row[2] = { { 5, 0, 6 }, { 10, 0, 9 } };
	bf16_t k[2 * HEADS_KV * DIM], pages_k[3 * HEADS_KV * PAGE * DIM] = { 0 };
	bf16_t pages_v[3 * HEADS_KV * PAGE * DIM] = { 0 };
	const struct kv_cache kv = { pages_k, pages_v };
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
	struct layer_norm_args a = { x, NULL, 0, w, y, 1, 8, 0 };

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

static void test_small(void)
{
	bf16_t gu[16], out[8], x[3 * 8], picked[2 * 8];
	const int32_t index[2] = { 2, 0 };
	int32_t best[2];

	for (int i = 0; i < 8; i++) {
		gu[i] = bf16_from_f32((float)(i - 1));
		gu[8 + i] = bf16_from_f32(2);
	}
	layer_act_ref(ACT_SILU, gu, 1, 8, out);
	ok(out[1] == 0 && fabsf(bf16_to_f32(out[2]) - 2 * 0.731059f) < 0.01f,
	   "the gate passes through x sigmoid(x)");

	for (int i = 0; i < 24; i++)
		x[i] = bf16_from_f32((float)i);
	layer_gather_ref(x, 3, index, 2, 8, picked);
	ok(!memcmp(picked, x + 16, 16) && !memcmp(picked + 8, x, 16), "rows are gathered by index");
	layer_gather_ref(x, 1, NULL, 2, 8, picked);
	ok(!memcmp(picked, x, 16) && !memcmp(picked + 8, x, 16),
	   "without index rows repeat in turn");

	x[3] = x[7] = bf16_from_f32(100);
	x[8] = x[12] = x[15] = bf16_from_f32(50);
	layer_argmax_ref(x, 2, 5, 8, best);
	is_int(best[0], 3, "the largest value wins, values past the width do not count");
	is_int(best[1], 0, "of equal values the first one wins");
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

int main(void)
{
	struct rng r = { 1 };

	plan(0);
	for (int k = 0; k < HALF; k++)
		inv[k] = (float)pow(10000, -2.0 * k / DIM);
	fill(data, sizeof data / sizeof *data, &r);
	test_trig();
	test_rope();
	test_cache();
	test_norm();
	test_small();
	test_fill();
	return done_testing();
}
