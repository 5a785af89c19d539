/* The oracle keeps the cells with the most attention mass, and exactly as many as asked for. */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/selectors/oracle.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

enum { CTX = 70, ROWS = 45, TOK = 16 };

static const struct attn_shape shape = { 4, 2, 8, TOK };

/* Mass of (query block i, head h, block j) in double, by the definition. */
static double mass(const struct batch_case *c, int i, int h, int j)
{
	double sum = 0;
	int qa = CTX / TOK + i;

	for (int pos = qa * TOK > CTX ? qa * TOK : CTX; pos < (qa + 1) * TOK && pos < CTX + ROWS;
	     pos++) {
		double all = 0, here = 0;

		for (int t = 0; t <= pos; t++) {
			size_t at = (size_t)(c->page[t / TOK] * shape.kv_heads + h / 2) * TOK +
				    (size_t)(t % TOK);
			double x = 0;

			for (int d = 0; d < 8; d++)
				x += bf16_to_f32(c->q[((pos - CTX) * 4 + h) * 8 + d]) *
				     bf16_to_f32(c->kv.k[at * 8 + (size_t)d]);
			x = exp(x / sqrt(8));
			all += x;
			here += t / TOK == j ? x : 0;
		}
		sum += here / all;
	}
	return sum;
}

static enum ar_status choose(struct batch_case *c, double share, struct ar_err *err)
{
	const struct oracle p = { .share = share };

	return selector_find("oracle")->ref(&c->b, &p, 0, c->q, &c->kv, NULL,
					    &(struct selection){ .mask = c->mask }, err);
}

static void check(struct batch_case *c, double share)
{
	double least = INFINITY, most = -INFINITY;
	int cells = 0, kept = 0, past = 0;
	struct ar_err err;

	if (choose(c, share, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < c->b.n_qblk; i++)
		for (int h = 0; h < 4; h++)
			for (int j = 0; j < c->b.mask_words * 32; j++) {
				bool on = c->mask[(i * 4 + h) * c->b.mask_words + j / 32] >> j % 32 & 1;
				double m;

				if (j > CTX / TOK + i) {
					past += on;
					continue;
				}
				m = mass(c, i, h, j);
				cells++;
				kept += on;
				if (on)
					least = fmin(least, m);
				else
					most = fmax(most, m);
			}
	is_int(kept, (int)(share * cells + 0.5), "density %g keeps its share of %d cells", share,
	       cells);
	ok(least >= most * (1 - 1e-5), "none that is kept has less mass than one that is not");
	is_int(past, 0, "nothing lies past the diagonal");
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
	return done_testing();
}
