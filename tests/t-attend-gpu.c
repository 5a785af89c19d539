/*
 * The CUDA kernels of attention against the reference, on random ragged batches.
 * ATTNREPLAY_TEST_CASES (60) and ATTNREPLAY_TEST_SEED (1) say how many and which.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/batch_case.h"
#include "tests/gpu.h"
#include "tests/tap.h"

enum { N_TEST = 23 };

#if HAVE_CUDA

enum { PAGE = 128 };

static long number(const char *name, long def)
{
	const char *s = getenv(name);

	return s && *s ? strtol(s, NULL, 10) : def;
}

/* What a comparison found wrong; 0 in all members is right. */
struct verdict {
	double worst;		/* largest excess over the tolerance */
	int bad_abs, bad_l2, bad_zero, bad_lse;
};

static void compare(struct verdict *v, const bf16_t *got, const bf16_t *want, size_t n,
		    const float *got_lse, const float *want_lse, size_t n_row)
{
	double diff = 0, norm = 0;

	for (size_t i = 0; i < n; i++) {
		double w = bf16_to_f32(want[i]), e = fabs(bf16_to_f32(got[i]) - w);
		double excess = e - 2e-2 * fmax(1, fabs(w));

		v->bad_abs += !(excess <= 0);
		if (!(excess <= v->worst))
			v->worst = excess;
		diff += e * e;
		norm += w * w;
	}
	v->bad_l2 += !(sqrt(diff) <= 5e-3 * sqrt(norm));
	for (size_t i = 0; want_lse && i < n_row; i++) {
		size_t dim = n / n_row;

		if (want_lse[i] == -INFINITY) {
			v->bad_lse += got_lse[i] != -INFINITY;
			for (size_t d = 0; d < dim; d++)
				v->bad_zero += got[i * dim + d] != 0;
		} else {
			v->bad_lse += !(fabs((double)got_lse[i] - want_lse[i]) <=
					1e-3 + 1e-5 * fabs(want_lse[i]));
		}
	}
}

static bool clean(const struct verdict *v)
{
	return !v->bad_abs && !v->bad_l2 && !v->bad_zero && !v->bad_lse;
}

static void *get(size_t bytes)
{
	void *p = malloc(bytes + 1);

	if (!p)
		bail_out("out of memory");
	return p;
}

/* ---- prefill ---- */

struct setting {
	const struct executor *x;
	attend_plan_fn *cut;
	int heads;
	double density;		/* 2: no lists */
	bool lse;
	int n_sm;		/* tiles are cut for up to as many multiprocessors */
	int dim;		/* 0: any that every device takes */
};

/* The same batch with its tiles on the device, in parts where the device takes them. */
static struct attn_batch plan_batch(struct batch_case *c, const struct setting *t, void **work,
				    struct rng *rng)
{
	struct attn_limits most = { c->b.n_req, c->b.n_row, c->b.max_kv_blk, 0 };
	struct ar_err err;
	struct attn_batch b;

	if (executor_multiprocessors(&most.n_sm, &err))
		bail_out("%s", err.msg);
	if (most.n_sm)
		most.n_sm = t->n_sm ? 1 + (int)rng_below(rng, (uint64_t)t->n_sm) : 0;
	c->b.n_sm = most.n_sm;
	case_plan(c, t->cut, t->heads);
	b = gpu_batch(&c->b);
	*work = gpu_new(t->x->work_bytes(&c->b.shape, &most), 0xff);
	return b;
}

static void attend_both(struct verdict *v, struct batch_case *c, const struct setting *t,
			struct rng *rng)
{
	struct block_lists l = { 0 }, dl;
	int n_list = case_n_list(c, t->cut, t->heads);
	size_t bytes = c->q_len * sizeof(bf16_t);
	size_t n_row = c->q_len / (size_t)c->b.shape.head_dim, lse_bytes = n_row * sizeof(float);
	bf16_t *got = get(bytes), *want = get(bytes), *out;
	float *got_lse = get(lse_bytes), *want_lse = get(lse_bytes), *lse;
	struct attn_batch b;
	struct kv_cache kv;
	struct ar_err err;
	void *work;

	if (t->density <= 1)
		case_lists(c, n_list, t->density, &l, rng);
	b = plan_batch(c, t, &work, rng);
	kv = gpu_kv(&c->kv, c->kv_len);
	dl = gpu_lists(&l, n_list);
	out = gpu_new(bytes, 0xff);
	lse = gpu_new(lse_bytes, 0xff);
	if (t->x->enqueue(&b, t->heads, &dl, gpu_copy(c->q, bytes), &kv, out, t->lse ? lse : NULL,
			  work, NULL, &err) ||
	    t->x->ref(&c->b, t->heads, &l, c->q, &c->kv, want, want_lse, &err))
		bail_out("%s", err.msg);
	gpu_read(got, out, bytes);
	gpu_read(got_lse, lse, lse_bytes);
	compare(v, got, want, c->q_len, got_lse, t->lse ? want_lse : NULL, n_row);
	gpu_free_all();
	lists_free(&l);
	free(got);
	free(want);
	free(got_lse);
	free(want_lse);
}

/* Log-uniform, so that small numbers are as frequent as large ones. */
static int draw_len(struct rng *rng, int max)
{
	return (int)exp(rng_unit(rng) * log(max + 1));
}

static struct attn_shape draw_shape(struct rng *rng)
{
	int kv_heads = 1 + (int)rng_below(rng, 3), group = 1 << rng_below(rng, 4);

	if (rng_below(rng, 8) == 0)
		group = 1 + (int)rng_below(rng, 20);
	return (struct attn_shape){ .q_heads = kv_heads * group, .kv_heads = kv_heads,
				    .head_dim = rng_below(rng, 2) ? 128 : 64, .page_tok = PAGE };
}

static void draw_case(struct batch_case *c, int dim, int max_row, int max_ctx,
		      enum case_fill fill, struct rng *rng)
{
	struct attn_shape s = draw_shape(rng);
	int n_req = 1 + (int)rng_below(rng, 4), ctx[4], rows[4];

	s.head_dim = dim ? dim : s.head_dim;
	for (int r = 0; r < n_req; r++) {
		rows[r] = draw_len(rng, max_row);
		ctx[r] = draw_len(rng, max_ctx) - 1;
		if (rng_below(rng, 4) == 0)
			ctx[r] = ctx[r] / PAGE * PAGE;
	}
	case_chunks(c, rng, fill, s, n_req, ctx, rows);
}

static void report(const struct verdict *v, long seed, const char *name)
{
	ok(clean(v), "%s", name);
	if (!clean(v))
		diag("seed %ld: %d outputs off (%g over), %d tensors, %d zeros, %d lse", seed,
		     v->bad_abs, v->worst, v->bad_l2, v->bad_zero, v->bad_lse);
}

static void test_executor(const struct setting *t, enum case_fill fill, long cases, long seed,
			  const char *what)
{
	struct verdict v = { 0 };
	struct setting now = *t;
	char name[160];

	for (long i = 0; i < cases && clean(&v); i++) {
		struct rng rng = { rng_mix((uint64_t)seed) + (uint64_t)i };
		struct batch_case c;

		draw_case(&c, t->dim, 700, 5000, fill, &rng);
		if (t->heads < 0)
			now.heads = 1 + (int)rng_below(&rng, (uint64_t)(c.b.shape.q_heads /
									c.b.shape.kv_heads));
		attend_both(&v, &c, &now, &rng);
		case_release(&c);
		if (!clean(&v))
			diag("case %ld: %d q heads, %d kv heads, size %d, %d requests, heads %d", i,
			     c.b.shape.q_heads, c.b.shape.kv_heads, c.b.shape.head_dim, c.b.n_req,
			     now.heads);
	}
	snprintf(name, sizeof name, "%s: %s", t->x->name, what);
	report(&v, seed, name);
}

static void test_executors(long cases, long seed)
{
	const struct executor *paged = executor_find("paged");
	const struct executor *sparse = executor_find("blocksparse");
	struct setting t = { paged, attend_plan_rows, 0, 2, true, 0, 0 };

	test_executor(&t, FILL_NORMAL, cases, seed, "dense");
	test_executor(&t, FILL_HUGE, cases / 4 + 1, seed + 1, "dense, huge scores");
	test_executor(&t, FILL_EQUAL, cases / 4 + 1, seed + 2, "dense, equal scores");
	t.lse = false;
	test_executor(&t, FILL_NORMAL, cases / 4 + 1, seed + 3, "dense, without log-sum-exp");
	t = (struct setting){ paged, attend_plan_rows, -1, 0.3, true, 0, 0 };
	test_executor(&t, FILL_NORMAL, cases, seed + 4,
		      "random tables, some empty, any group size");
	test_executor(&t, FILL_HUGE, cases / 4 + 1, seed + 5, "random tables, huge scores");
	t = (struct setting){ sparse, attend_plan_blocks, 0, 2, true, 0, 0 };
	test_executor(&t, FILL_NORMAL, cases / 2 + 1, seed + 6, "dense");
	t.density = 0.2;
	test_executor(&t, FILL_NORMAL, cases, seed + 7, "random lists, some empty");
	test_executor(&t, FILL_HUGE, cases / 4 + 1, seed + 8, "random lists, huge scores");
	t.density = 1;
	test_executor(&t, FILL_EQUAL, cases / 4 + 1, seed + 9, "full lists, equal scores");
}

/* Few rows after many tokens: up to 39 parts, more than a warp has lanes. */
static void test_many_parts(const struct setting *t, long seed, const char *name)
{
	static const int ctx[] = { 40000, 33000, 900, 3000 }, rows[] = { 3, 1, 2, 130 };
	struct verdict v = { 0 };
	struct rng rng = { rng_mix((uint64_t)seed) };

	for (int i = 0; i < 4 && clean(&v); i++) {
		struct attn_shape s = { 4, 1 + i / 2, i % 2 ? 64 : 128, PAGE };
		struct batch_case c;

		case_chunks(&c, &rng, FILL_NORMAL, s, 1 + i, ctx, rows);
		attend_both(&v, &c, t, &rng);
		case_release(&c);
	}
	report(&v, seed, name);
}

/* Whether the device has the kernel for head size 256; where not it must say so. */
static bool takes_256(void)
{
	struct attn_batch b = { .shape = { 8, 2, 256, PAGE }, .n_tile = 1 };
	struct block_lists all = { 0 };
	struct kv_cache kv = { 0 };
	struct ar_err err;
	int n_sm;

	if (executor_multiprocessors(&n_sm, &err))
		bail_out("%s", err.msg);
	if (n_sm)
		return true;
	is_int(attend_enqueue(&b, 128, 4, &all, NULL, &kv, NULL, NULL, NULL, NULL, &err), AR_USAGE,
	       "head size 256 on a device without its kernel");
	skip(1, "no kernel for head size 256");
	return false;
}

static void test_256(long cases, long seed)
{
	struct setting t = { executor_find("paged"), attend_plan_rows, 0, 2, true, 300, 256 };

	if (!takes_256())
		return;
	test_executor(&t, FILL_NORMAL, cases / 2 + 1, seed, "head size 256, dense, in parts");
	t = (struct setting){ executor_find("blocksparse"), attend_plan_blocks, 0, 0.2, true, 0,
			      256 };
	test_executor(&t, FILL_HUGE, cases / 2 + 1, seed + 1,
		      "head size 256, random lists, huge scores");
}

static void test_parts(long cases, long seed)
{
	const struct executor *paged = executor_find("paged");
	const struct executor *sparse = executor_find("blocksparse");
	struct setting t = { paged, attend_plan_rows, 0, 2, true, 300, 0 };

	test_executor(&t, FILL_NORMAL, cases, seed, "dense, in parts");
	test_executor(&t, FILL_HUGE, cases / 4 + 1, seed + 1, "dense, in parts, huge scores");
	t = (struct setting){ paged, attend_plan_rows, -1, 0.1, true, 300, 0 };
	test_executor(&t, FILL_NORMAL, cases, seed + 2,
		      "short tables in parts, some shorter than their number");
	t = (struct setting){ sparse, attend_plan_blocks, 0, 0.2, false, 300, 0 };
	test_executor(&t, FILL_NORMAL, cases, seed + 3, "random lists in parts, without lse");
	t = (struct setting){ paged, attend_plan_rows, 0, 2, true, 4000, 0 };
	test_many_parts(&t, seed + 4, "paged: many parts");
	t = (struct setting){ sparse, attend_plan_blocks, 0, 0.3, true, 4000, 0 };
	test_many_parts(&t, seed + 5, "blocksparse: many parts");
}

/* ---- the rest ---- */

static void test_refusals(void)
{
	const struct executor *x = executor_find("paged");
	struct block_lists all = { 0 };
	struct attn_batch b = { .shape = { 8, 2, 80, PAGE } };
	struct kv_cache kv = { 0 };
	struct ar_err err;

	is_int(x->enqueue(&b, 0, &all, NULL, &kv, NULL, NULL, NULL, NULL, &err), AR_USAGE,
	       "attend: a head size it has no kernel for");
	b.shape.head_dim = 128;
	b.shape.page_tok = 32;
	is_int(x->enqueue(&b, 0, &all, NULL, &kv, NULL, NULL, NULL, NULL, &err), AR_USAGE,
	       "attend: blocks of another size");
	b.shape.page_tok = PAGE;
	b.shape.q_heads = 258;
	is_int(x->enqueue(&b, 0, &all, NULL, &kv, NULL, NULL, NULL, NULL, &err), AR_USAGE,
	       "attend: more heads per KV head than a tile has rows");
	b.shape.q_heads = 8;
	is_int(x->enqueue(&b, 0, &all, NULL, &kv, NULL, NULL, NULL, NULL, &err), AR_OK,
	       "attend: nothing to do");
}

/* Launches without what they need, on a machine without a GPU. */
static void test_failure(void)
{
	struct block_lists all = { 0 };
	struct attn_batch b = { .shape = { 8, 2, 128, PAGE }, .n_req = 1, .n_tile = 1 };
	struct kv_cache kv = { 0 };
	struct ar_err err = { 0 };

	int unused;

	ok(attend_enqueue(&b, 128, 0, &all, NULL, &kv, NULL, NULL, NULL, NULL, &err) == AR_CUDA &&
	   err.msg[0] && executor_multiprocessors(&unused, &err) == AR_CUDA,
	   "without a GPU a launch fails with a message");
}

int main(void)
{
	long cases = number("ATTNREPLAY_TEST_CASES", 60), seed = number("ATTNREPLAY_TEST_SEED", 1);

	plan(N_TEST);
	test_refusals();
	if (!gpu_usable()) {
		test_failure();
		skip(N_TEST - 5, "no usable GPU");
		return done_testing();
	}
	test_executors(cases, seed);
	test_parts(cases, seed + 50);
	test_256(cases, seed + 60);
	skip(1, "there is a GPU");
	return done_testing();
}

#else
int main(void)
{
	plan(N_TEST);
	gpu_usable();
	skip(N_TEST, "no usable GPU");
	return done_testing();
}
#endif
