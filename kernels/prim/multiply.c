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

/* c, of MULTIPLY_ROWS rows and as many columns as VEC has lanes; the names are multiply()'s. */
#define MULTIPLY_BLOCK(VEC) \
	do { \
		VEC acc0 = { 0 }, acc1 = { 0 }, acc2 = { 0 }, acc3 = { 0 }; \
\
		if (add) { \
			acc0 = *(const VEC *)c; \
			acc1 = *(const VEC *)(c + ldc); \
			acc2 = *(const VEC *)(c + 2 * ldc); \
			acc3 = *(const VEC *)(c + 3 * ldc); \
		} \
		for (int k = 0; k < n; k++) { \
			VEC bk = *(const VEC *)(b + k * ldb); \
\
			acc0 += a[k] * bk; \
			acc1 += a[lda + k] * bk; \
			acc2 += a[2 * lda + k] * bk; \
			acc3 += a[3 * lda + k] * bk; \
		} \
		*(VEC *)c = acc0; \
		*(VEC *)(c + ldc) = acc1; \
		*(VEC *)(c + 2 * ldc) = acc2; \
		*(VEC *)(c + 3 * ldc) = acc3; \
	} while (0)

UNCHECKED static void multiply_block(float *c, int ldc, const float *a, int lda, const float *b,
				     int ldb, int n, bool add)
{
	MULTIPLY_BLOCK(vec);
}

/* Many x86-64 CPUs have registers of twice as many lanes.  They sum in the same order, and the
 * build fuses no product with its sum, so the bits are the same. */
enum { WIDE_LANES = 2 * MULTIPLY_LANES };

#ifdef __x86_64__
typedef float wide_vec
	__attribute__((vector_size(WIDE_LANES * sizeof(float)), aligned(4), may_alias));

__attribute__((target("avx"))) UNCHECKED static void multiply_wide(float *c, int ldc,
								   const float *a, int lda,
								   const float *b, int ldb, int n,
								   bool add)
{
	MULTIPLY_BLOCK(wide_vec);
}

static bool has_wide(void)
{
	return __builtin_cpu_supports("avx");
}
#else
#define multiply_wide multiply_block

static bool has_wide(void)
{
	return false;
}
#endif

void multiply(float *c, int ldc, const float *a, int lda, const float *b, int ldb, int rows,
	      int cols, int n, bool add)
{
	int all = multiply_pad(rows, MULTIPLY_ROWS), padded = multiply_pad(cols, MULTIPLY_LANES);
	bool wide = has_wide();

	check_rows(c, ldc, all, padded);
	check_rows(a, lda, all, n);
	check_rows(b, ldb, n, padded);
	for (int j = 0, lanes; j < cols; j += lanes) {
		bool two = wide && j + WIDE_LANES <= padded;

		lanes = two ? WIDE_LANES : MULTIPLY_LANES;
		for (int i = 0; i < rows; i += MULTIPLY_ROWS)
			(two ? multiply_wide : multiply_block)(c + i * ldc + j, ldc, a + i * lda,
							       lda, b + j, ldb, n, add);
	}
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
