/* FlexPrefill on the device: its sums against the reference's, and its masks against those that
 * the reference draws from the same sums. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/selectors/flexprefill.h"
#include "kernels/selectors/lastq.h"
#include "kernels/selectors/means.h"
#include "tests/batch_case.h"
#include "tests/gpu.h"
#include "tests/tap.h"

enum { N_SHAPE = 6, N_TEST = 4 * (N_SHAPE + 1) + 3 };

#if HAVE_CUDA
static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

/* A case on both sides. */
struct pair {
	struct batch_case c;
	struct attn_batch b;
	struct kv_cache kv;
	bf16_t *q;
	float *state, *state_ref;
	void *work;
	size_t state_bytes;
};

static void pair_make(struct pair *p, struct rng *rng, enum case_fill fill, struct attn_shape s,
		      int n, const int *ctx, const int *rows)
{
	struct attn_limits limits = { .max_req = n };
	int len[3];

	for (int r = 0; r < n; r++) {
		int n_blk;

		len[r] = ctx[r] + rows[r] + (int)rng_below(rng, 2) * 50;
		n_blk = (len[r] + s.page_tok - 1) / s.page_tok;
		limits.max_row += len[r];
		limits.max_kv_blk = n_blk > limits.max_kv_blk ? n_blk : limits.max_kv_blk;
	}
	case_make(&p->c, rng, fill, s, n, len);
	p->state_bytes = (size_t)p->c.n_page * means_state_bytes(&s);
	p->state_ref = malloc(p->state_bytes);
	memset(p->state_ref, 0xff, p->state_bytes);
	p->kv = gpu_kv(&p->c.kv, p->c.kv_len);
	p->work = gpu_new(flexprefill_work_bytes(NULL, &s, &limits), 0xff);
}

static void pair_cut(struct pair *p, const int *ctx, const int *rows)
{
	case_cut(&p->c, ctx, rows);
	p->b = gpu_batch(&p->c.b);
	p->q = gpu_copy(p->c.q, p->c.q_len * sizeof *p->q);
}

static void pair_release(struct pair *p)
{
	gpu_free_all();
	free(p->state_ref);
	case_release(&p->c);
}

static uint32_t *pair_select(struct pair *p, const struct flexprefill *param)
{
	size_t bytes = case_mask_words(&p->c) * sizeof(uint32_t);
	uint32_t *mask = gpu_new(bytes, 0xa5), *got = malloc(bytes);
	struct ar_err err;

	must(flexprefill_enqueue(&p->b, param, 0, p->q, &p->kv, p->state,
				 &(struct selection){ .mask = mask }, p->work, NULL, &err), &err);
	gpu_read(got, mask, bytes);
	return got;
}

/* Whether sums of n positions agree: to 1e-4 of each, and to as much less where all are small. */
static bool close(const float *a, const float *b, int n)
{
	for (int i = 0; i < n; i++)
		if (!(fabsf(a[i] - b[i]) <= 1e-4f * b[i] + 1e-9f))
			return false;
	return true;
}

static bool rows_equal(const struct batch_case *c, int r, int h, const uint32_t *a,
		       const uint32_t *b)
{
	size_t words = (size_t)c->b.mask_words;

	for (int i = c->qblk0[r]; i < c->qblk0[r + 1]; i++) {
		size_t at = (size_t)(i * c->b.shape.q_heads + h) * words;

		if (memcmp(a + at, b + at, words * sizeof *a))
			return false;
	}
	return true;
}

/* Bits of a head that are in a and not in b. */
static int bits_beyond(const struct batch_case *c, int r, int h, const uint32_t *a,
		       const uint32_t *b)
{
	int n = 0;

	for (int i = c->qblk0[r]; i < c->qblk0[r + 1]; i++)
		for (int w = 0; w < c->b.mask_words; w++) {
			size_t at = (size_t)(i * c->b.shape.q_heads + h) *
				    (size_t)c->b.mask_words + (size_t)w;

			n += __builtin_popcount(a[at] & ~b[at]);
		}
	return n;
}

/* Whether a head's mask follows from the sums: JS may lie on either side of a tau within 1e-4, and
 * of a query-aware head's cells those at the threshold may change places. */
static bool follows(struct pair *p, const struct flexprefill *param, int r, int h,
		    const uint32_t *got, const float *column, const float *slash)
{
	static const double tau[] = { 0, -1e-4, 1e-4 };
	struct batch_case *c = &p->c;
	struct ar_err err;

	for (int i = 0; i < 3; i++) {
		struct flexprefill near = *param;

		near.tau += tau[i];
		must(flexprefill_head(&c->b, &near, r, h, c->q, p->state_ref, column, slash,
				      c->mask, &err), &err);
		if (rows_equal(c, r, h, got, c->mask))
			return true;
		if (param->tau > 0 && bits_beyond(c, r, h, got, c->mask) <= 1 &&
		    bits_beyond(c, r, h, c->mask, got) <= 1)
			return true;
	}
	return false;
}

struct tally {
	int cases, means, sums, old_sums, masks;
};

/* The same sums by the kernels for devices before compute capability 9. */
static void read_old_sums(const struct pair *p, float *out)
{
	const struct attn_shape *s = &p->c.b.shape;
	const struct attn_limits limits = { .max_req = p->c.b.n_req,
					    .max_kv_blk = p->c.b.max_kv_blk };
	int stride = p->c.b.max_kv_blk * s->page_tok;
	size_t n = (size_t)(p->c.b.n_req * s->q_heads) * (size_t)stride;
	float *sums = gpu_new(2 * n * sizeof *sums, 0xff);
	void *work = gpu_new(lastq_sm80_work_bytes(s, &limits), 0xff);
	struct ar_err err;

	must(lastq_sm80_enqueue(&p->b, s->page_tok, p->q, p->kv.k,
				&(struct lastq){ sums, sums + n, stride }, work, NULL, &err), &err);
	gpu_read(out, sums, 2 * n * sizeof *sums);
}

static void compare(struct tally *t, struct pair *p, const struct flexprefill *param,
		    const uint32_t *got)
{
	struct batch_case *c = &p->c;
	const struct attn_shape *s = &c->b.shape;
	size_t n = (size_t)c->b.max_kv_blk * (size_t)s->page_tok;
	size_t heads = (size_t)(c->b.n_req * s->q_heads);
	float *x = malloc(3 * n * sizeof *x), *dev = malloc(2 * heads * n * sizeof *dev);
	float *old = malloc(2 * heads * n * sizeof *old);
	bool sums = true, old_sums = true, masks = true;

	gpu_read(dev, p->work, 2 * heads * n * sizeof *dev);
	read_old_sums(p, old);
	for (int r = 0; r < c->b.n_req; r++)
		for (int h = 0; h < s->q_heads && c->row0[r + 1] > c->row0[r]; h++) {
			size_t at = (size_t)(r * s->q_heads + h) * n;
			const float *column = dev + at, *slash = column + heads * n;
			int end = c->ctx[r] + c->row0[r + 1] - c->row0[r];

			lastq_ref(&c->b, r, h, s->page_tok, c->q, c->kv.k, x, x + n, x + 2 * n);
			sums &= close(column, x + n, end) && close(slash, x + 2 * n, end);
			old_sums &= close(old + at, x + n, end) &&
				    close(old + heads * n + at, x + 2 * n, end);
			masks &= follows(p, param, r, h, got, column, slash);
		}
	t->cases++;
	t->sums += sums;
	t->old_sums += old_sums;
	t->masks += masks;
	free(old);
	free(dev);
	free(x);
}

static void run_case(struct tally *t, struct attn_shape s, uint64_t seed, int n, const int *ctx,
		     const int *rows)
{
	static const enum case_fill fill[] = { FILL_NORMAL, FILL_BLOCKS, FILL_HUGE, FILL_EQUAL };
	struct flexprefill param = { .gamma = 0.5 + 0.1 * (double)(seed % 5),
				     .tau = seed % 3 ? 0.3 * (double)(seed % 3) : 0,
				     .min_budget = seed % 2 ? 1 : 256,
				     .max_budget = seed % 4 ? 0 : 1024 };
	struct rng rng = { seed };
	struct pair p;
	uint32_t *got;
	void *means;

	pair_make(&p, &rng, fill[seed % 4], s, n, ctx, rows);
	case_cut(&p.c, (int[3]){ 0 }, ctx);	/* the means of what is cached */
	means_update(&p.c.b, p.c.kv.k, p.state_ref);
	p.state = gpu_copy(p.state_ref, p.state_bytes);
	pair_cut(&p, ctx, rows);
	means_update(&p.c.b, p.c.kv.k, p.state_ref);
	got = pair_select(&p, &param);
	means = malloc(p.state_bytes);
	gpu_read(means, p.state, p.state_bytes);
	t->means += !memcmp(means, p.state_ref, p.state_bytes);
	compare(t, &p, &param, got);
	free(means);
	free(got);
	pair_release(&p);
}

static void report(const struct tally *t, const char *of)
{
	is_int(t->means, t->cases, "means have the reference's bits: %s", of);
	is_int(t->sums, t->cases, "columns and diagonals add up alike: %s", of);
	is_int(t->old_sums, t->cases, "on older devices too: %s", of);
	is_int(t->masks, t->cases, "masks follow from them: %s", of);
}

static int draw(struct rng *rng, int lo, int hi)
{
	return lo + (int)rng_below(rng, (uint64_t)(hi - lo + 1));
}

static void run_all(void)
{
	static const struct { struct attn_shape s; const char *of; } shape[N_SHAPE] = {
		{ { 4, 2, 64, 128 }, "heads of 64, groups of 2" },
		{ { 4, 1, 128, 128 }, "heads of 128, groups of 4" },
		{ { 3, 1, 128, 128 }, "groups of 3" },
		{ { 2, 2, 128, 128 }, "groups of 1" },
		{ { 6, 1, 256, 128 }, "heads of 256, groups of 6" },
		{ { 10, 2, 64, 64 }, "blocks of 64, groups of 5" },
	};
	int n = ((int)gpu_test_number("ATTNREPLAY_TEST_CASES", 24) + N_SHAPE - 1) / N_SHAPE;
	struct tally t;

	for (int i = 0; i < N_SHAPE; i++) {
		t = (struct tally){ 0 };
		for (int k = 0; k < n; k++) {
			struct rng rng = { (uint64_t)(i * 1000 + k) };
			int ctx[3], rows[3], n_req = draw(&rng, 1, 3);

			for (int r = 0; r < n_req; r++) {
				ctx[r] = draw(&rng, 0, k % 4 ? 1500 : 6000);
				rows[r] = draw(&rng, k % 8 ? 1 : 0, 400);
			}
			run_case(&t, shape[i].s, (uint64_t)(i * 77 + k), n_req, ctx, rows);
		}
		report(&t, shape[i].of);
	}
	t = (struct tally){ 0 };
	run_case(&t, shape[0].s, 1, 2, (int[]){ 4096 * 4, 4096 }, (int[]){ 300, 1 });
	run_case(&t, shape[1].s, 2, 2, (int[]){ 2048 - 100, 4096 }, (int[]){ 101, 2048 });
	run_case(&t, shape[2].s, 3, 2, (int[]){ 4096 - 100, 4096 - 200 }, (int[]){ 101, 200 });
	report(&t, "on both sides of where work is split");
}

static void test_refusals(void)
{
	struct attn_batch b = { .shape = { 2, 1, 96, 128 }, .n_req = 1, .n_qblk = 1,
				.max_kv_blk = 1 };
	struct flexprefill param = { .gamma = 1 };
	struct kv_cache kv = { 0 };
	struct selection none = { 0 };
	struct ar_err err = { 0 };

	is_int(flexprefill_enqueue(&b, &param, 0, NULL, &kv, NULL, &none, NULL, NULL, &err),
	       AR_USAGE, "a head size without a kernel is refused");
	is_str(err.msg,
	       "scores of the last queries on the GPU take head sizes 64, 128 and 256, not 96",
	       "which the message says");
	b.n_qblk = 0;
	ok(!flexprefill_enqueue(&b, &param, 0, NULL, &kv, NULL, &none, NULL, NULL, &err),
	   "an empty batch launches nothing");
}
#endif

int main(void)
{
	plan(N_TEST);
	if (!gpu_usable()) {
		skip(N_TEST, "no usable GPU");
		return done_testing();
	}
#if HAVE_CUDA
	run_all();
	test_refusals();
#endif
	return done_testing();
}
