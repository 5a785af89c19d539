/* SPDX-License-Identifier: Apache-2.0 */
/* QUOKA on the device against the reference, on random ragged batches.  Scores differ by rounding
 * only, and each list holds exactly the best of the device's scores.  ATTNREPLAY_TEST_CASES sets
 * the number of batches. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/select/quoka/quoka.h"
#include "kernels/select/selectors.h"
#include "tests/select_gpu.h"
#include "tests/tap.h"

enum { N_SHAPE = 24, N_TEST = 3 * (2 * N_SHAPE + 3) + 1 };

#if HAVE_CUDA
/* A batch through both sides, all of it on the host. */
struct pair {
	struct select_pair s;
	struct token_lists want, got;
	uint16_t *score; /* the device's */
};

static void pair_make(struct pair *p, selector_fn *enqueue, struct rng *rng, enum case_fill fill,
		      struct attn_shape s, const struct quoka *param, int n, const int *ctx,
		      const int *rows)
{
	size_t tokens, lists = (size_t)(n * s.kv_heads);
	struct token_lists out;

	p->s = (struct select_pair){ .selector = selector_find("quoka"),
				     .self = param,
				     .enqueue = enqueue };
	case_chunks(&p->s.c, rng, fill, s, n, ctx, rows);
	tokens = (size_t)(p->s.c.b.keys.n_page * s.page_tok * s.kv_heads);
	p->want.tok = malloc(tokens * sizeof *p->want.tok);
	p->got.tok = malloc(tokens * sizeof *p->got.tok);
	p->want.n = malloc(lists * sizeof *p->want.n);
	p->got.n = malloc(lists * sizeof *p->got.n);
	p->score = malloc(tokens * sizeof *p->score);
	out.tok = gpu_new(tokens * sizeof *out.tok, 0xff);
	out.n = gpu_new(lists * sizeof *out.n, 0xff);
	select_ref(&p->s, &(struct selection){ .tokens = p->want });
	select_device(&p->s, &(struct selection){ .tokens = out });
	gpu_read(p->got.tok, out.tok, tokens * sizeof *out.tok);
	gpu_read(p->got.n, out.n, lists * sizeof *out.n);
	gpu_read(p->score, p->s.work, tokens * sizeof *p->score);
}

static void pair_release(struct pair *p)
{
	tokens_free(&p->want);
	tokens_free(&p->got);
	free(p->score);
	select_release(&p->s);
}

static float value(uint16_t order)
{
	return bf16_to_f32(order & 0x8000 ? order & 0x7fff : (bf16_t)~order);
}

/* Whether a and b are two roundings to bfloat16 apart.  Near zero they may differ by 2^-10 more, as
 * the norm may be summed in another order.  Then an element of the unit vector rounds the other
 * way, by 2^-8 of it.  The other vector's element is at most a quarter, if there are 64 or more
 * elements: the product moves by 2^-10. */
static bool near(uint16_t a, uint16_t b)
{
	return fabsf(value(a) - value(b)) <= fabsf(value(b)) / 64 + 0x1p-10f;
}

/* Whether the list holds just the best of these scores: of equal ones the first. */
static bool is_best(const uint16_t *score, int ctx, const int32_t *tok, int n)
{
	int least = 1 << 16, last = 0, m = 0;
	bool good = true;

	for (int i = 0; i < n; i++) {
		if (tok[i] < 0 || tok[i] >= ctx || (i && tok[i] <= tok[i - 1]))
			return false;
		if (score[tok[i]] <= least)
			least = score[tok[i]], last = tok[i];
	}
	for (int t = 0; t < ctx; t++) {
		if (m < n && tok[m] == t)
			m++;
		else
			good &= score[t] < least || (score[t] == least && t > last);
	}
	return good;
}

/* Whether each token that only one of the lists has is as good as the worst wanted token. */
static bool same_but_for_rounding(const uint16_t *score, int ctx, const int32_t *want,
				  const int32_t *got, int n)
{
	uint16_t least = 0xffff;
	int i = 0, k = 0;
	bool good = true;

	for (int j = 0; j < n; j++)
		least = score[want[j]] < least ? score[want[j]] : least;
	for (int t = 0; t < ctx; t++) {
		bool a = i < n && want[i] == t, b = k < n && got[k] == t;

		i += a;
		k += b;
		good &= a == b || near(score[t], least);
	}
	return good;
}

struct tally {
	int cases, scores, lists, same;
};

static void compare(struct tally *t, const struct pair *p, const struct quoka *param)
{
	const struct batch_case *c = &p->s.c;
	const struct attn_shape *s = &c->b.shape;
	bool scores = true, lists = true, same = true;

	for (int i = 0; i < c->b.rows.n_req * s->kv_heads; i++) {
		int r = i / s->kv_heads, h = i % s->kv_heads, n = p->got.n[i], ctx = c->ctx[r];
		size_t row = attn_token_row(s, c->page0[r], c->page0[r + 1] - c->page0[r], h);
		uint16_t *score = malloc(((size_t)ctx + 1) * sizeof *score);
		struct ar_err err;

		gpu_must(quoka_scores(&c->b, param, r, h, c->q, c->kv.k, score, &err), &err);
		for (int k = 0; k < ctx; k++)
			scores &= near(p->score[row + (size_t)k], score[k]);
		if (n != p->want.n[i])
			lists = same = false;
		else {
			lists &= is_best(p->score + row, ctx, p->got.tok + row, n);
			same &= same_but_for_rounding(score, ctx, p->want.tok + row,
						      p->got.tok + row, n);
		}
		free(score);
	}
	t->cases++;
	t->scores += scores;
	t->lists += lists;
	t->same += same;
}

static void report(const struct tally *t, const char *of)
{
	is_int(t->scores, t->cases, "scores are the reference's but for rounding: %s", of);
	is_int(t->lists, t->cases, "lists are the best of the scores: %s", of);
	is_int(t->same, t->cases, "lists differ from the reference's only at the border: %s", of);
}

static void run_case(struct tally *t, selector_fn *enqueue, struct attn_shape s, uint64_t seed)
{
	static const int edge[] = { 0, 1, 63, 64, 128, 255, 256, 257, 4095, 4096, 4097 };
	static const enum case_fill fills[] = { FILL_NORMAL, FILL_BLOCKS, FILL_EQUAL, FILL_HUGE };
	struct rng rng = { seed };
	struct quoka param = { .query_ratio = rng_unit(&rng), .kv_ratio = rng_unit(&rng) };
	int n = 1 + (int)rng_below(&rng, 3), ctx[3], rows[3];
	struct pair p;

	if (!rng_below(&rng, 3))
		param = (struct quoka){ .queries = 1 + (int64_t)rng_below(&rng, 100),
					.tokens = 1 + (int64_t)rng_below(&rng, 2000) };
	for (int r = 0; r < n; r++) {
		ctx[r] = rng_below(&rng, 2) ? edge[rng_below(&rng, sizeof edge / sizeof *edge)] :
					      (int)rng_below(&rng, 3000);
		rows[r] = 1 + (int)rng_below(&rng, rng_below(&rng, 4) ? 150 : 2);
	}
	pair_make(&p, enqueue, &rng, fills[rng_below(&rng, 4)], s, &param, n, ctx, rows);
	compare(t, &p, &param);
	pair_release(&p);
}

static void test_shape(selector_fn *enqueue, const char *by, int head_dim, int group, int page_tok,
		       int n_case)
{
	struct attn_shape s = {
		.q_heads = 2 * group, .kv_heads = 2, .head_dim = head_dim, .page_tok = page_tok
	};
	struct tally t = { 0 };
	char of[80];

	for (int k = 0; k < n_case; k++)
		run_case(&t, enqueue, s,
			 (uint64_t)(head_dim * 100000 + group * 10000 + page_tok * 1000 + k));
	snprintf(of, sizeof of, "head size %d, group %d, blocks of %d%s", head_dim, group, page_tok,
		 by);
	report(&t, of);
}

/* More rows, and more tokens, than a thread block looks at in one turn. */
static void test_long(int head_dim, int ctx)
{
	const struct attn_shape s = { 3, 1, head_dim, 128 };
	static const struct quoka p = { .query_ratio = 0.9, .kv_ratio = 0.25, .queries = 40 };
	static const struct quoka most = { .query_ratio = 0.9, .tokens = 7 };
	struct rng rng = { 1 };
	struct tally t = { 0 };
	struct pair pair;
	char of[40];

	pair_make(&pair, NULL, &rng, FILL_NORMAL, s, &p, 3, (int[]){ ctx, 0, 300 },
		  (int[]){ 100, 5, 9001 });
	compare(&t, &pair, &p);
	pair_release(&pair);
	pair_make(&pair, NULL, &rng, FILL_NORMAL, s, &most, 1, (int[]){ 70 }, (int[]){ 5000 });
	compare(&t, &pair, &most);
	pair_release(&pair);
	snprintf(of, sizeof of, "long, head size %d", head_dim);
	report(&t, of);
}

static void test_empty(void)
{
	struct attn_batch b = {
		.shape = { .q_heads = 2, .kv_heads = 1, .head_dim = 64, .page_tok = 64 }
	};
	const struct quoka param = { .query_ratio = 1 };
	const struct selection out = { 0 };
	struct kv_cache kv = { 0 };
	struct ar_err err = { 0 };

	is_int(quoka_enqueue(&(struct attn_call){ .b = &b, .kv = kv }, &param, &out, &err), AR_OK,
	       "an empty batch launches nothing");
}

static void run_all(void)
{
	int n = (int)gpu_test_number("ATTNREPLAY_TEST_CASES", 96);

	for (int i = 0; i < N_SHAPE; i++) {
		int dim = 64 << i / 2 % 3, group = 1 << i / 6, tok = 64 << i % 2;

		test_shape(NULL, "", dim, group, tok, (n + N_SHAPE - 1) / N_SHAPE);
		test_shape(quoka_sm80_enqueue, ", as before Hopper", dim, group, tok, 2);
	}
	test_long(64, 40005);
	test_long(128, 12005);
	test_long(256, 12005);
	test_empty();
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
