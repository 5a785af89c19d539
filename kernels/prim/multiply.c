/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/prim/multiply.h"

/* As wide as a register of every x86-64 and Arm CPU; compilers build wider vectors in memory. */
typedef float vec
	__attribute__((vector_size(MULTIPLY_LANES * sizeof(float)), aligned(4), may_alias));

/* Sanitizers would check an element each time that it is multiplied, which takes ten times as long
 * as the product.  So the rows are checked once, by check_bytes(), and the code that multiplies is
 * not. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define UNCHECKED __attribute__((no_sanitize_address, no_sanitize_undefined))

/* Report the first of n bytes that is not to be touched. */
static void check_bytes(const void *x, size_t n)
{
	const volatile char *bad = __asan_region_is_poisoned((void *)(uintptr_t)x, n);

	if (bad)
		(void)*bad;
}
#else
#define UNCHECKED
static void check_bytes(const void *x, size_t n)
{
	(void)x, (void)n;
}
#endif

/* Check rows rows of x, each of cols elements. */
static void check_rows(const float *x, int ld, int rows, int cols)
{
	for (int i = 0; i < rows; i++)
		check_bytes(x + i * ld, (size_t)cols * sizeof *x);
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
	int all = multiply_pad(rows, MULTIPLY_ROWS), wide = multiply_pad(cols, MULTIPLY_LANES);

	check_rows(c, ldc, all, wide);
	check_rows(a, lda, all, n);
	check_rows(b, ldb, n, wide);
	for (int j = 0; j < cols; j += MULTIPLY_LANES)
		for (int i = 0; i < rows; i += MULTIPLY_ROWS)
			multiply_block(c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb, n, add);
}

UNCHECKED static void add_multiple(float *y, float a, const float *x, int n)
{
	int i = 0;

	for (; i + MULTIPLY_LANES <= n; i += MULTIPLY_LANES)
		*(vec *)(y + i) += a * *(const vec *)(x + i);
	for (; i < n; i++)
		y[i] += a * x[i];
}

void multiply_add(float *y, float a, const float *x, int n)
{
	check_bytes(y, (size_t)n * sizeof *y);
	check_bytes(x, (size_t)n * sizeof *x);
	add_multiple(y, a, x, n);
}

UNCHECKED static void transpose(float *b, int ldb, const bf16_t *x, int n, int dim)
{
	for (int j = 0; j < n; j++)
		for (int k = 0; k < dim; k++)
			b[k * ldb + j] = bf16_to_f32(x[j * dim + k]);
}

void multiply_transpose(float *b, int ldb, const bf16_t *x, int n, int dim)
{
	check_rows(b, ldb, dim, n);
	check_bytes(x, (size_t)n * (size_t)dim * sizeof *x);
	transpose(b, ldb, x, n, dim);
}
