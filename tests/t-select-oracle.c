/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle keeps the requested number of cells, with the largest mean attention.  So no selection
 * with the same number of pairs holds more mass. */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/select/oracle/oracle.h"
#include "kernels/select/selectors.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

enum { CTX = 70, ROWS = 45, TOK = 16, DIM = 8, MOST = 256 };

static const struct attn_shape shape = { 4, 2, DIM, TOK };

struct cell {
	double mass;
	int pairs, word, bit;
};

/* Cell (query block i, head h, block j) of request 0 in double, by the definition. */
static struct cell measure(const struct batch_case *c, int i, int h, int j)
{
	const struct attn_shape *s = &c->b.shape;
	int ctx = c->ctx[0], end = ctx + c->row0[1], qa = ctx / TOK + i;
	struct cell x = { .word = (i * s->q_heads + h) * c->b.keys.mask_words + j / 32,
			  .bit = j % 32 };

	for (int pos = qa * TOK > ctx ? qa * TOK : ctx; pos < (qa + 1) * TOK && pos < end; pos++) {
		double all = 0, here = 0;

		for (int t = 0; t <= pos; t++) {
			int kv = h / (s->q_heads / s->kv_heads);
			size_t at = (size_t)(c->page[t / TOK] * s->kv_heads + kv) * TOK +
				    (size_t)(t % TOK);
			double dot = 0;

			for (int d = 0; d < DIM; d++)
				dot += bf16_to_f32(c->q[((pos - ctx) * s->q_heads + h) * DIM + d]) *
				       bf16_to_f32(c->kv.k[at * DIM + (size_t)d]);
			dot = exp(dot / sqrt(DIM));
			all += dot;
			here += t / TOK == j ? dot : 0;
			x.pairs += t / TOK == j;
		}
		x.mass += here / all;
	}
	return x;
}

/* All cells up to the diagonal; returns how many. */
static int measure_all(const struct batch_case *c, struct cell cell[MOST])
{
	int n = 0;

	for (int i = 0; i < c->b.rows.n_qblk; i++)
		for (int h = 0; h < c->b.shape.q_heads; h++)
			for (int j = 0; j <= c->ctx[0] / TOK + i; j++)
				cell[n++] = measure(c, i, h, j);
	return n;
}

static bool kept(const struct batch_case *c, const struct cell *x)
{
	return c->mask[x->word] >> x->bit & 1;
}

static enum ar_status choose(struct batch_case *c, double share, struct ar_err *err)
{
	const struct oracle p = { .share = share };

	return selector_find("oracle")->ref(
		&(struct attn_call){ .b = &c->b, .q = c->q, .kv = c->kv }, &p,
		&(struct selection){ .mask = c->mask }, err);
}

static void choose_or_bail(struct batch_case *c, double share)
{
	struct ar_err err;

	if (choose(c, share, &err))
		bail_out("%s", err.msg);
}

static void check(struct batch_case *c, double share)
{
	double least = INFINITY, most = -INFINITY;
	struct cell cell[MOST];
	int n = measure_all(c, cell), all = 0, sum = 0;

	choose_or_bail(c, share);
	for (int i = 0; i < n; i++) {
		double mean = cell[i].mass / cell[i].pairs;

		sum += kept(c, &cell[i]);
		if (kept(c, &cell[i]))
			least = fmin(least, mean);
		else
			most = fmax(most, mean);
	}
	for (int w = 0; w < c->b.rows.n_qblk * c->b.shape.q_heads * c->b.keys.mask_words; w++)
		all += __builtin_popcount(c->mask[w]);
	is_int(sum, (int)(share * n + 0.5), "density %g keeps its share of %d cells", share, n);
	ok(least >= most * (1 - 1e-5), "none that is kept has a smaller mean than one that is not");
	is_int(all, sum, "nothing lies past the diagonal");
}

/* Two blocks of which the second has keys of twice the weight: row m = 1 ... 16 of the second query
 * block gives 16 / (16 + 2m) of its attention to the first block, in all 8.46 of 16.  That is more,
 * but of 256 pairs, the rest of 136. */
static void test_worked(void)
{
	const struct attn_shape one = { 1, 1, DIM, TOK };
	struct rng rng = { 1 };
	struct batch_case c;
	struct cell cell[MOST];
	int ctx = 0, rows = 32;

	case_chunks(&c, &rng, FILL_NORMAL, one, 1, &ctx, &rows);
	for (int t = 0; t < 32; t++)
		for (int d = 0; d < DIM; d++) {
			c.q[t * DIM + d] = bf16_from_f32(d == 0);
			c.kv.k[(c.page[t / TOK] * TOK + t % TOK) * DIM + d] =
				bf16_from_f32(t < 16 || d ? 0 : logf(2) * sqrtf(DIM));
		}
	is_int(measure_all(&c, cell), 3, "two query blocks have three cells");
	ok(fabs(cell[1].mass - 8.46) < 0.01 && fabs(cell[2].mass - 7.54) < 0.01,
	   "the first has more mass for the second's rows than their own");
	choose_or_bail(&c, 2 / 3.);
	ok(kept(&c, &cell[0]) && !kept(&c, &cell[1]) && kept(&c, &cell[2]),
	   "but their own has more for its pairs");
	case_release(&c);
}

/* Of all masks there are. */
static void test_bound(void)
{
	static const double share[] = { 0.06, 0.12, 0.3, 0.5, 0.8 };
	const struct attn_shape small = { 2, 1, DIM, TOK };
	struct rng rng = { 5 };
	struct batch_case c;
	struct cell cell[MOST];
	int ctx = 20, rows = 30, n, better = 0, as_many = 0;

	case_chunks(&c, &rng, FILL_NORMAL, small, 1, &ctx, &rows);
	n = measure_all(&c, cell);
	for (size_t s = 0; s < sizeof share / sizeof *share; s++) {
		double own = 0;
		int pairs = 0;

		choose_or_bail(&c, share[s]);
		for (int i = 0; i < n; i++) {
			own += kept(&c, &cell[i]) ? cell[i].mass : 0;
			pairs += kept(&c, &cell[i]) ? cell[i].pairs : 0;
		}
		for (uint32_t mask = 0; mask < 1U << n; mask++) {
			double mass = 0;
			int left = pairs;

			for (int i = 0; i < n; i++) {
				mass += mask >> i & 1 ? cell[i].mass : 0;
				left -= mask >> i & 1 ? cell[i].pairs : 0;
			}
			better += left >= 0 && mass > own * (1 + 1e-5);
			as_many += left == 0;
		}
	}
	is_int(n, 18, "three query blocks of two heads have 18 cells");
	ok(!better && as_many > 5, "no mask of as few pairs has more mass");
	case_release(&c);
}

static void test_faults(struct batch_case *c)
{
	struct ar_err err;
	bool hit = true;
	int bad = 0, k = 0;

	for (; hit && k < 10; k++) {
		enum ar_status st;

		fault_arm(k);
		st = choose(c, 0.5, &err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
	}
	ok(!bad && k > 2, "every allocation that fails is reported");
}

int main(void)
{
	static const double share[] = { 0, 0.05, 0.3, 0.7, 1 };
	struct rng rng = { 11 };
	struct batch_case c;
	int ctx = CTX, rows = ROWS;

	plan(0);
	case_chunks(&c, &rng, FILL_NORMAL, shape, 1, &ctx, &rows);
	for (size_t i = 0; i < sizeof share / sizeof *share; i++)
		check(&c, share[i]);
	test_faults(&c);
	case_release(&c);
	test_worked();
	test_bound();
	return done_testing();
}
