/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds of pieces: a worked example, rows that come in any cut, and their rounding to e5m2. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select/bounds/bounds.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

/* ---- the worked example ---- */

static bool is_piece(const struct batch_case *c, const struct bounds *x, const void *state,
		     int piece, const float want[8])
{
	size_t at = bounds_at(x, &c->b, 0, 0, piece);
	bool same = true;

	for (size_t d = 0; d < 8; d++)
		same &= !(bounds_get(x, state, at + d) < want[d]) &&
			!(bounds_get(x, state, at + d) > want[d]);
	return same;
}

static void test_example(void)
{
	static const struct {
		int piece;
		float want[8];
	} vector[] = {
		{ 0, { -2.5f, -2.25f, -2, -2.375f, .875f, 1.5f, 2.125f, 0 } },
		{ 1, { -2.25f, -1.375f, -.5f, -2.5f, .375f, 1.125f, 1.875f, 1.875f } },
		{ 9, { -.75f, -.875f, -1, -1.125f, 2.375f, 2, 1.625f, 1.25f } },
	};
	const struct bounds x = { 4, BOUNDS_BF16, BOUNDS_NEAREST };
	struct batch_case c;
	void *state;

	case_decode_example(&c);
	case_cut(&c, (int[]){ 0 }, (int[]){ 39 });
	state = calloc((size_t)c.n_page, bounds_state_bytes(&x, &c.b.shape));
	bounds_append(&x, &c.b, c.kv.k, state);
	for (size_t i = 0; i < sizeof vector / sizeof *vector; i++)
		ok(is_piece(&c, &x, state, vector[i].piece, vector[i].want), "piece %d",
		   vector[i].piece);
	free(state);
	case_release(&c);
}

/* ---- cuts ---- */

/* Append rows up to len[r] of each sequence in random cuts, at first as a chunk. */
static void append_cut(struct batch_case *c, const struct bounds *x, const int *len, void *state,
		       struct rng *rng)
{
	int ctx[3] = { 0 }, rows[3];

	for (bool more = true; more;) {
		more = false;
		for (int r = 0; r < 3; r++) {
			int most = rng_below(rng, 2) ? 1 : 1 + (int)rng_below(rng, 150);

			rows[r] = most < len[r] - ctx[r] ? most : len[r] - ctx[r];
			more |= rows[r] > 0;
		}
		case_cut(c, ctx, rows);
		bounds_append(x, &c->b, c->kv.k, state);
		for (int r = 0; r < 3; r++)
			ctx[r] += rows[r];
	}
}

static void test_cuts(void)
{
	static const struct attn_shape shape = { 4, 2, 16, 64 };
	int off = 0;

	for (int k = 0; k < rounds(24); k++) {
		struct rng rng = { (uint64_t)k };
		const struct bounds x = { 1 << 2 * (k % 4), k / 4 % 2 ? BOUNDS_E5M2 : BOUNDS_BF16,
					  k / 8 % 2 ? BOUNDS_OUTWARD : BOUNDS_NEAREST };
		int len[3] = { 1 + (int)rng_below(&rng, 300), 64, 65 };
		size_t bytes;
		struct batch_case c;
		char *once, *cut;

		case_make(&c, &rng, FILL_NORMAL, shape, 3, len);
		bytes = (size_t)c.n_page * bounds_state_bytes(&x, &shape);
		once = calloc(bytes, 1);
		cut = calloc(bytes, 1);
		append_cut(&c, &x, len, cut, &rng);
		case_cut(&c, (int[3]){ 0 }, len);
		bounds_append(&x, &c.b, c.kv.k, once);
		off += !!memcmp(once, cut, bytes);
		free(once);
		free(cut);
		case_release(&c);
	}
	is_int(off, 0, "rows that come one by one or in chunks give the bits of one chunk");
}

/* ---- e5m2 ---- */

/* The numbers of 5 bits of exponent and 2 of mantissa, in order; no sign. */
static float number(int code)
{
	return code < 4 ? ldexpf((float)code, -16) : ldexpf((float)(4 + code % 4), code / 4 - 17);
}

/* The code of the number nearest to x >= 0, of two the even one. */
static int nearest(float x)
{
	int best = 0;

	for (int i = 1; i <= E5M2_MOST; i++) {
		double a = fabs((double)number(i) - (double)x);
		double b = fabs((double)number(best) - (double)x);

		best = a < b || (!(a > b) && i % 2 == 0) ? i : best;
	}
	return best;
}

static void test_rounding(void)
{
	int off = 0, inside = 0, far = 0;

	for (int i = 0; i <= E5M2_MOST; i++)
		off += fabsf(e5m2_to_f32((uint8_t)i) - number(i)) > 0 ||
		       fabsf(e5m2_to_f32((uint8_t)(i | 0x80)) + number(i)) > 0;
	is_int(off, 0, "e5m2 has the numbers of its definition");
	for (int i = 0; bf16_to_f32((bf16_t)i) < 2 * E5M2_LARGEST; i += 3) {
		float x = bf16_to_f32((bf16_t)i);
		int code = e5m2_from_f32(x, 0);

		far += code != nearest(x) || e5m2_from_f32(-x, 0) % 128 != code;
		for (int sign = -1; sign < 2 && x <= E5M2_LARGEST; sign += 2) {
			float y = (float)sign * x;
			float lo = e5m2_to_f32(e5m2_from_f32(y, -1));
			float hi = e5m2_to_f32(e5m2_from_f32(y, 1));

			inside += lo > y || y > hi ||
				  (lo < y && y < hi && hi - lo > x / 2 && hi - lo > 1.0f / 32768);
		}
	}
	is_int(far, 0, "each bf16 number gets the nearest one");
	is_int(inside, 0, "... and lies between those below and above it");
	ok(isnan(e5m2_to_f32(e5m2_from_f32(NAN, 0))), "NaN stays NaN");
	is_int(e5m2_from_f32(INFINITY, 1), E5M2_MOST, "what is too large becomes the largest");
}

int main(void)
{
	plan(0);
	test_example();
	test_cuts();
	test_rounding();
	return done_testing();
}
