/* The oracle on the device against the reference: the same number of cells, and where the two
 * differ the masses are as good as equal. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/selectors/oracle.h"
#include "tests/batch_case.h"
#include "tests/gpu.h"
#include "tests/tap.h"

enum { N_TEST = 6 };

#if HAVE_CUDA
/* Whether request r got its number of cells, the largest ones.  mass: as the device left them in
 * its work memory. */
static bool fair(const struct batch_case *c, int r, const uint32_t *got, const float *mass)
{
	const struct attn_shape *s = &c->b.shape;
	float least = INFINITY, most = 0, worst = 0;
	int kept = 0, wanted = 0;

	for (int row = c->qblk0[r] * s->q_heads; row < c->qblk0[r + 1] * s->q_heads; row++) {
		int qa = c->ctx[r] / s->page_tok + row / s->q_heads - c->qblk0[r];

		for (int j = 0; j < c->b.mask_words * 32; j++) {
			size_t w = (size_t)row * (size_t)c->b.mask_words + (size_t)(j / 32);
			bool on = got[w] >> j % 32 & 1, want = c->mask[w] >> j % 32 & 1;
			float m;

			if (j > qa) {
				if (on)
					return false;
				continue;
			}
			m = mass[(size_t)row * (size_t)c->b.max_kv_blk + (size_t)j];
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
	struct attn_limits limits = { .max_req = n };
	struct batch_case c;
	struct attn_batch b;
	uint32_t *mask, *got;
	float *work, *mass;
	size_t bytes;
	struct ar_err err;
	bool good = true;

	for (int r = 0; r < n; r++) {
		ctx[r] = (int)rng_below(&rng, 900);
		rows[r] = 1 + (int)rng_below(&rng, 300);
	}
	case_chunks(&c, &rng, FILL_NORMAL, s, n, ctx, rows);
	limits.max_row = c.b.n_row;
	limits.max_kv_blk = c.b.max_kv_blk;
	bytes = case_mask_words(&c) * sizeof *mask;
	got = malloc(bytes);
	b = gpu_batch(&c.b);
	mask = gpu_new(bytes, 0xa5);
	work = gpu_new(oracle_work_bytes(&p, &s, &limits), 0xff);
	if (selector_find("oracle")->ref(&c.b, &p, 0, c.q, &c.kv, NULL,
					 &(struct selection){ .mask = c.mask }, &err))
		bail_out("%s", err.msg);
	struct kv_cache kv = gpu_kv(&c.kv, c.kv_len);

	if (oracle_enqueue(&b, &p, 0, gpu_copy(c.q, c.q_len * sizeof *c.q), &kv, NULL,
			   &(struct selection){ .mask = mask }, work, NULL, &err))
		bail_out("%s", err.msg);
	gpu_read(got, mask, bytes);
	bytes = (size_t)c.b.n_qblk * (size_t)s.q_heads * (size_t)c.b.max_kv_blk * sizeof *mass;
	mass = malloc(bytes);
	gpu_read(mass, work, bytes);
	for (int r = 0; r < n; r++)
		good &= fair(&c, r, got, mass);
	free(mass);
	free(got);
	gpu_free_all();
	case_release(&c);
	return good;
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
}
#else
static void run_all(void)
{
}
#endif

int main(void)
{
	plan(N_TEST);
	if (!gpu_usable())
		skip(N_TEST, "no usable GPU");
	else
		run_all();
	return done_testing();
}
