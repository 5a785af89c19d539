/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/prim/multiply.h"

/* As wide as a register of every x86-64 and Arm CPU; compilers build wider vectors in memory. */
typedef float vec
	__attribute__((vector_size(MULTIPLY_LANES * sizeof(float)), aligned(4), may_alias));

/* Sanitizers would check an element each time that it is multiplied, which takes ten times as long as
 * the product.  So every element is checked once, by multiply(), and the block is not. */
#ifdef __SANITIZE_ADDRESS__
#define UNCHECKED __attribute__((no_sanitize_address, no_sanitize_undefined))
enum { CHECKED = 1 };
#else
#define UNCHECKED
enum { CHECKED = 0 };
#endif

/* Read rows rows of x, each of cols elements. */
static void check_rows(const float *x, int ld, int rows, int cols)
{
	for (int i = 0; i < rows; i++)
		for (int j = 0; j < cols; j++)
			(void)*(const volatile float *)(x + i * ld + j);
}

/* MULTIPLY_ROWS rows by MULTIPLY_LANES columns. */
UNCHECKED static void multiply_block(float *c, int ldc, const float *a, int lda, const float *b,
				     int ldb, int n, bool add)
{
	vec acc0 = { 0 }, acc1 = { 0 }, acc2 = { 0 }, acc3 = { 0 };

	if (add) {
		acc0 = *(const vec *)c;
		acc1 = *(const vec *)(c + ldc);
		acc2 = *(const vec *)(c + 2 * ldc);
		acc3 = *(const vec *)(c + 3 * ldc);
	}
	for (int k = 0; k < n; k++) {
		vec bk = *(const vec *)(b + k * ldb);

		acc0 += a[k] * bk;
		acc1 += a[lda + k] * bk;
		acc2 += a[2 * lda + k] * bk;
		acc3 += a[3 * lda + k] * bk;
	}
	*(vec *)c = acc0;
	*(vec *)(c + ldc) = acc1;
	*(vec *)(c + 2 * ldc) = acc2;
	*(vec *)(c + 3 * ldc) = acc3;
}

void multiply(float *c, int ldc, const float *a, int lda, const float *b, int ldb, int rows,
	      int cols, int n, bool add)
{
	if (CHECKED) {
		int all = multiply_pad(rows, MULTIPLY_ROWS),
		    wide = multiply_pad(cols, MULTIPLY_LANES);

		check_rows(c, ldc, all, wide);
		check_rows(a, lda, all, n);
		check_rows(b, ldb, n, wide);
	}
	for (int j = 0; j < cols; j += MULTIPLY_LANES)
		for (int i = 0; i < rows; i += MULTIPLY_ROWS)
			multiply_block(c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb, n, add);
}

void multiply_transpose(float *b, int ldb, const bf16_t *x, int n, int dim)
{
	for (int j = 0; j < n; j++)
		for (int k = 0; k < dim; k++)
			b[k * ldb + j] = bf16_to_f32(x[j * dim + k]);
}
