/* SPDX-License-Identifier: Apache-2.0 */
/* Products of matrices: each element has the bits of a sum in order of k, whatever the sizes. */
#include "config.h"
#include "kernels/prim/multiply.h"

#include <string.h>

#include "tests/tap.h"

enum { ROWS = 9, COLS = 37, N = 19, LD_A = N + 2, LD = 44 };

static float next(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return (float)(int32_t)*seed / 0x1p31f;
}

static void fill(float *x, int n, uint32_t seed)
{
	for (int i = 0; i < n; i++)
		x[i] = next(&seed);
}

/* Return whether the product of these sizes has the promised bits, and all outside of its padding
 * is left as it was. */
static bool in_order(int rows, int cols, int n, bool add)
{
	static float a[(ROWS + 3) * LD_A], b[N * LD], c[(ROWS + 4) * LD], was[(ROWS + 4) * LD];
	int all = multiply_pad(rows, MULTIPLY_ROWS), wide = multiply_pad(cols, MULTIPLY_LANES);

	fill(a, sizeof a / sizeof *a, 1);
	fill(b, sizeof b / sizeof *b, 2);
	fill(c, sizeof c / sizeof *c, 3);
	memcpy(was, c, sizeof was);
	multiply(c, LD, a, LD_A, b, LD, rows, cols, n, add);
	for (int i = 0; i < ROWS + 4; i++)
		for (int j = 0; j < LD; j++) {
			bool within = i < rows && j < cols, padding = i < all && j < wide;
			float want = within && !add ? 0 : was[i * LD + j];

			for (int k = 0; within && k < n; k++)
				want += a[i * LD_A + k] * b[k * LD + j];
			if (memcmp(&c[i * LD + j], &want, sizeof want) && (within || !padding)) {
				diag("%d x %d of %d, element %d, %d: %.9g, not %.9g", rows, cols, n,
				     i, j, (double)c[i * LD + j], (double)want);
				return false;
			}
		}
	return true;
}

static bool all_sizes(bool add)
{
	for (int rows = 1; rows <= ROWS; rows++)
		for (int cols = 1; cols <= COLS; cols++)
			for (int n = 0; n <= N; n += n < 3 ? 1 : 8)
				if (!in_order(rows, cols, n, add))
					return false;
	return true;
}

int main(void)
{
	plan(2);
	ok(all_sizes(false), "a product has the bits of sums in order of k");
	ok(all_sizes(true), "... and of what they are added to");
	return done_testing();
}
