/* SPDX-License-Identifier: Apache-2.0 */
/* SeerAttention's gate on the device against the reference.  Intermediate vectors are rounded to
 * bf16 and may differ in their last bit, and so may logits.  So a share within a tenth of the
 * threshold may be kept or not.  ATTNREPLAY_TEST_CASES sets the number of batches. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "kernels/select/selectors.h"
#include "tests/gate_file.h"
#include "tests/select_gpu.h"

static const struct {
	struct attn_shape shape;
	struct gate_file file;
} kinds[] = {
	{ { 4, 2, 128, 64 }, { 2, 4, 0, 128 } }, { { 16, 4, 128, 64 }, { 1, 16, 0, 128 } },
	{ { 6, 2, 64, 64 }, { 3, 6, 0, 64 } },	 { { 4, 2, 256, 64 }, { 1, 4, 0, 256 } },
	{ { 4, 2, 128, 64 }, { 2, 4, 4, 128 } }, { { 6, 2, 64, 64 }, { 1, 2, 6, 64 } },
	{ { 5, 1, 256, 64 }, { 2, 1, 5, 256 } }, { { 3, 3, 128, 64 }, { 1, 3, 3, 128 } },
};
enum { N_KIND = sizeof kinds / sizeof *kinds, N_TEST = N_KIND + 2 };

#if HAVE_CUDA
static char path[] = "/tmp/t-select-seer-gpu-XXXXXX";

struct pair { /* a case on the host, and the results of the device */
	struct select_pair s;
	struct seer_self *g;
	int n_off, n_cell; /* masks that differ, of how many */
};

static void pair_make(struct pair *p, int kind, struct rng *rng, int n, const int *len)
{
	const struct attn_shape s = kinds[kind].shape;
	const struct seer rule = { .gate = path };
	struct ar_err err;

	memset(p, 0, sizeof *p);
	gate_write(path, &kinds[kind].file, 0, 1, rng, NULL);
	gpu_must(gate_open(&p->g, &rule, s, kinds[kind].file.n_layers, true, &err), &err);
	p->s.selector = selector_find("seer");
	p->s.self = p->g;
	p->s.layer = (int)rng_below(rng, (uint64_t)kinds[kind].file.n_layers);
	case_make(&p->s.c, rng, FILL_NORMAL, s, n, len);
}

static void pair_release(struct pair *p)
{
	p->s.selector->close(p->g);
	select_release(&p->s);
}

/* The reference's mask under the options times scale, owned. */
static uint32_t *ref_mask(struct pair *p, double scale)
{
	const struct seer rule = p->g->rule;
	uint32_t *mask = malloc(case_mask_words(&p->s.c) * sizeof *mask + 1);

	p->g->rule.threshold *= scale;
	if (scale != 1) /* the largest share first: a rank moves by some */
		p->g->rule.nz_ratio = fmin(rule.nz_ratio / scale, 1);
	select_ref(&p->s, &(struct selection){ .mask = mask });
	p->g->rule = rule;
	return mask;
}

/* Whether gate keys are within some last places of bf16 of the reference's.  Values that neither
 * wrote are the same. */
static bool keys_close(const struct pair *p)
{
	size_t n = p->s.state_bytes / sizeof(bf16_t);
	const bf16_t *ref = p->s.state_ref;
	bf16_t *got = malloc(n * sizeof *got);
	double worst = 0, size = 0;
	bool same = true;

	gpu_read(got, p->s.state, n * sizeof *got);
	for (size_t i = 0; i < n; i++) {
		float a = bf16_to_f32(got[i]), b = bf16_to_f32(ref[i]);

		if (isnan(b) || isnan(a)) {
			same &= got[i] == ref[i];
			continue;
		}
		worst = fmax(worst, fabsf(a - b));
		size = fmax(size, fabsf(b));
	}
	free(got);
	if (worst > size / 100)
		diag("gate keys up to %g are %g apart", size, worst);
	return same && worst <= size / 100;
}

/* Whether masks are nested.  The device keeps all cells that the stricter rule's reference keeps.
 * It keeps no cell that the laxer rule's reference drops. */
static bool masks_nested(struct pair *p)
{
	uint32_t *strict = ref_mask(p, 1.1), *same = ref_mask(p, 1), *lax = ref_mask(p, 1 / 1.1);
	const struct attn_batch *b = &p->s.c.b;
	const uint32_t *got = p->s.got;
	int outside = 0;

	for (int r = 0; r < b->rows.n_req; r++)
		for (int i = b->rows.qblk0[r]; i < b->rows.qblk0[r + 1]; i++)
			p->n_cell += b->shape.q_heads * (b->rows.pos0[r] / b->shape.page_tok + i -
							 b->rows.qblk0[r] + 1);
	for (size_t w = 0; w < case_mask_words(&p->s.c); w++) {
		outside += (strict[w] & ~got[w]) || (got[w] & ~lax[w]);
		p->n_off += __builtin_popcount(got[w] ^ same[w]);
	}
	free(strict);
	free(same);
	free(lax);
	if (outside)
		diag("%d words outside", outside);
	return !outside;
}

/* The next chunk of every sequence, on both sides. */
static bool step(struct pair *p, const int *ctx, const int *rows)
{
	case_cut(&p->s.c, ctx, rows);
	select_masks(&p->s);
	return masks_nested(p) & keys_close(p);
}

static void random_rule(struct seer *rule, struct rng *rng)
{
	rule->threshold = 0.002 * exp(4 * rng_unit(rng));
	rule->nz_ratio = rng_below(rng, 4) ? 0 : 0.1 + 0.9 * rng_unit(rng);
	rule->dense_first = !rng_below(rng, 3);
	rule->dense_tail = !rng_below(rng, 3);
	rule->diagonal = !rng_below(rng, 3);
}

/* Up to four sequences in chunks that begin and end anywhere. */
static bool random_batch(int kind, uint64_t seed, int *n_off, int *n_cell)
{
	struct rng rng = { seed };
	int n = 1 + (int)rng_below(&rng, 4), len[4], ctx[4] = { 0 }, rows[4];
	bool good = true;
	struct pair p;

	for (int r = 0; r < n; r++)
		len[r] = 1 + (int)rng_below(&rng, 1500);
	pair_make(&p, kind, &rng, n, len);
	for (int k = 0; good && k < 3; k++) {
		random_rule(&p.g->rule, &rng);
		for (int r = 0; r < n; r++) {
			int left = len[r] - ctx[r];

			rows[r] = k == 2 || !left ? left : (int)rng_below(&rng, (uint64_t)left);
		}
		good = step(&p, ctx, rows);
		for (int r = 0; r < n; r++)
			ctx[r] += rows[r];
	}
	*n_off += p.n_off;
	*n_cell += p.n_cell;
	pair_release(&p);
	return good;
}

/* More requests than lanes of a warp; some have no row. */
static bool many(void)
{
	enum { N = 70 };
	struct rng rng = { 70 };
	int len[N], ctx[N] = { 0 }, rows[N];
	bool good;
	struct pair p;

	for (int r = 0; r < N; r++)
		len[r] = 40 + (int)rng_below(&rng, 300);
	pair_make(&p, 2, &rng, N, len);
	p.g->rule.threshold = 0.2;
	for (int r = 0; r < N; r++)
		rows[r] = r % 9 == 4 ? 0 : 1 + (int)rng_below(&rng, (uint64_t)len[r] - 1);
	good = step(&p, ctx, rows);
	for (int r = 0; r < N; r++) {
		ctx[r] = rows[r];
		rows[r] = len[r] - ctx[r];
	}
	good &= step(&p, ctx, rows);
	pair_release(&p);
	return good;
}

/* More key blocks than a thread block scores, and rows of masks longer than one of its turns. */
static bool long_context(void)
{
	struct rng rng = { 64 };
	int len = 21000, ctx = 0, rows = 20000;
	bool good = true;
	struct pair p;

	pair_make(&p, 2, &rng, 1, &len);
	p.g->rule.threshold = 0.002;
	good &= step(&p, &ctx, &rows);
	ctx = 20000, rows = 1000;
	good &= step(&p, &ctx, &rows);
	p.g->rule.nz_ratio = 0.4;
	good &= step(&p, &ctx, &rows);
	pair_release(&p);
	return good;
}

static void run_all(void)
{
	int n = (int)gpu_test_number("ATTNREPLAY_TEST_CASES", 6), fd = mkstemp(path);

	log_level = LOG_ERROR;
	if (fd < 0 || close(fd))
		bail_out("no temporary file");
	for (int i = 0; i < N_KIND; i++) {
		int good = 0, n_off = 0, n_cell = 0;

		for (int k = 0; k < n; k++)
			good += random_batch(i, (uint64_t)(i * 100000 + k), &n_off, &n_cell);
		ok(good == n && n_off <= n_cell / 100,
		   "%d heads of %d over %d, gate of %d and %d: %d of %d, %d of %d blocks differ",
		   kinds[i].shape.q_heads, kinds[i].shape.head_dim, kinds[i].shape.kv_heads,
		   kinds[i].file.k_heads, kinds[i].file.q_heads, good, n, n_off, n_cell);
	}
	ok(many(), "70 requests, some without a row");
	ok(long_context(), "1000 rows on 20000 tokens");
	unlink(path);
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
