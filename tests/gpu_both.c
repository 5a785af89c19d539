/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/gpu_both.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "tests/gpu_test.h"
#include "tests/tap.h"

#if HAVE_CUDA

struct both both_new(size_t bytes)
{
	/* bf16 NaN: unwritten places show */
	struct both b = { calloc(1, bytes), gpu_new(bytes, 0xff), bytes };

	if (!b.host)
		bail_out("out of memory");
	return b;
}

struct both both_normal(size_t n, struct rng *r)
{
	struct both b = both_new(n * sizeof(bf16_t));
	bf16_t *x = b.host;

	for (size_t i = 0; i < n; i++)
		x[i] = bf16_from_f32(rng_normal(r));
	gpu_write(b.dev, b.host, b.bytes);
	return b;
}

void upload(const struct both *b)
{
	gpu_write(b->dev, b->host, b->bytes);
}

void *download(const struct both *b)
{
	void *p = malloc(b->bytes);

	if (!p)
		bail_out("out of memory");
	gpu_read(p, b->dev, b->bytes);
	return p;
}

bool equal(const struct both *b)
{
	void *got = download(b);
	bool same = !memcmp(got, b->host, b->bytes);

	free(got);
	return same;
}

bool close_by(const struct both *b, float atol, const char *what)
{
	bf16_t *got = download(b);
	const bf16_t *want = b->host;
	size_t n = b->bytes / sizeof *got, n_bad = 0, first = 0;

	for (size_t i = 0; i < n; i++) {
		float g = bf16_to_f32(got[i]), w = bf16_to_f32(want[i]);

		if (fabsf(g - w) <= 0x1p-7f * fabsf(w) + atol)
			continue;
		first = n_bad++ ? first : i;
	}
	if (n_bad)
		diag("%s: %zu of %zu off; the first, %zu: got %g, want %g", what, n_bad, n, first,
		     (double)bf16_to_f32(got[first]), (double)bf16_to_f32(want[first]));
	free(got);
	return !n_bad;
}

bool close_to(const struct both *b)
{
	return close_by(b, 1e-30f, "values");
}

void both_free(struct both *b)
{
	free(b->host);
}

int below(struct rng *r, int n)
{
	return (int)rng_below(r, (uint64_t)n);
}

#endif
