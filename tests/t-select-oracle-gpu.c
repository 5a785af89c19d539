/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle on the device against the reference: both keep the same number of cells.  Different
 * cells have nearly equal means. */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/select/oracle/oracle.h"
#include "kernels/select/selectors.h"
#include "tests/select_gpu.h"
#include "tests/tap.h"

enum { N_TEST = 6 + 1 };

#if HAVE_CUDA
/* Whether request r got its number of cells, the largest ones.  mean: as the device left them in
 * its work memory. */
static bool fair(const struct batch_case *c, int r, const uint32_t *got, const float *mean)
{
	const struct attn_shape *s = &c->b.shape;
	float least = INFINITY, most = 0, worst = 0;
	int kept = 0, wanted = 0;

	for (int row = c->qblk0[r] * s->q_heads; row < c->qblk0[r + 1] * s->q_heads; row++) {
		int qa = c->ctx[r] / s->page_tok + row / s->q_heads - c->qblk0[r];

		for (int j = 0; j < c->b.keys.mask_words * 32; j++) {
			size_t w = (size_t)row * (size_t)c->b.keys.mask_words + (size_t)(j / 32);
			bool on = got[w] >> j % 32 & 1, want = c->mask[w] >> j % 32 & 1;
			float m;

			if (j > qa) {
				if (on)
					return false;
				continue;
			}
			m = mean[(size_t)row * (size_t)c->b.keys.max_kv_blk + (size_t)j];
			kept += on;
			wanted += want;
			if (on)
				least = fminf(least, m);
			else
				most = fmaxf(most, m);
			if (on != want)
				worst = fmaxf(worst, m);
		}
	}
	return kept == wanted && (!kept || least >= most) && worst <= least * 1.01f + 1e-30f;
}

/* A ragged batch that begins and ends anywhere. */
static bool agrees(int dim, int tok, uint64_t seed)
{
	struct rng rng = { seed };
	struct attn_shape s = { 4, 2, dim, tok };
	struct oracle p = { .share = rng_unit(&rng), .block = tok == 128 };
	int n = 1 + (int)rng_below(&rng, 3), ctx[3], rows[3];
	struct select_pair pair = { .selector = selector_find("oracle"), .self = &p };
	struct batch_case *c = &pair.c;
	bool good = true;
	size_t bytes;
	float *mean;

	for (int r = 0; r < n; r++) {
		ctx[r] = (int)rng_below(&rng, 900);
		rows[r] = 1 + (int)rng_below(&rng, 300);
	}
	case_chunks(c, &rng, FILL_NORMAL, s, n, ctx, rows);
	select_both(&pair);
	bytes = (size_t)c->b.rows.n_qblk * (size_t)s.q_heads * (size_t)c->b.keys.max_kv_blk *
		sizeof *mean;
	mean = malloc(bytes);
	gpu_read(mean, pair.work, bytes);
	for (int r = 0; r < n; r++)
		good &= fair(c, r, pair.got, mean);
	free(mean);
	select_release(&pair);
	return good;
}

static void test_refusals(void)
{
	struct attn_batch b = { .shape = { 32, 8, 64, 128 },
				.rows.n_qblk = 8192,
				.keys.mask_words = 256 };
	const struct oracle p = { .share = 1 };
	const struct kv_cache kv = { 0 };
	const struct selection out = { 0 };
	struct ar_err err = { 0 };

	oracle_enqueue(&(struct attn_call){ .b = &b, .kv = kv }, &p, &out, &err);
	is_str(err.msg,
	       "oracle on CUDA cannot rank a batch of 2147483648 blocks of all heads; "
	       "make chunks shorter",
	       "a batch with more blocks than it can number is refused");
}

static void run_all(void)
{
	static const int dims[] = { 64, 128, 256 };
	int n = (int)gpu_test_number("ATTNREPLAY_TEST_CASES", 10);

	for (int tok = 64; tok <= 128; tok *= 2)
		for (int d = 0; d < 3; d++) {
			int good = 0;

			for (int k = 0; k < n; k++)
				good += agrees(dims[d], tok, (uint64_t)(dims[d] * tok + k * 7919));
			is_int(good, n, "heads of %d, blocks of %d", dims[d], tok);
		}
	test_refusals();
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
