/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of logits: values worked out by hand, ties, and properties of any logits' scores. */
#include "config.h"
#include "src/eval/score.h"

#include <math.h>

#include "base/rng.h"
#include "tests/tap.h"

static bool near(double got, double want)
{
	if (fabs(got - want) <= 1e-12)
		return true;
	diag("got %.17g, want %.17g", got, want);
	return false;
}

/* Logits of the shares 1/2, 1/4, 1/8, 1/8, and 1/4 of each for dense. */
static void test_known(void)
{
	const float half = (float)log(2), x[] = { 2 * half, half, 0, 0 }, even[] = { 7, 7, 7, 7 };
	const double ln2 = half; /* as it was rounded */
	const double sum = log(exp(2 * ln2) + exp(ln2) + 2);
	struct eval_token t = eval_score(x, even, 4, 1);

	ok(near(t.logprob, ln2 - sum), "the log-probability of the answer's token");
	ok(near(t.kl, sum - log(4) - 3 * ln2 / 4), "KL of dense to the method");
	ok(t.gold == 1 && t.best == 0 && t.rank == 1, "the most likely token, and gold's rank");
	t = eval_score(even, x, 4, 2);
	ok(near(t.kl, log(4) - sum + (exp(2 * ln2) * 2 * ln2 + exp(ln2) * ln2) / exp(sum)),
	   "... which is not that of the method to dense");
	ok(isnan(eval_score(x, NULL, 4, 0).kl), "without dense there is no KL");
}

static void test_ties(void)
{
	static const float x[] = { 1, 3, 3, 2, 3 };
	static const int rank[] = { 4, 0, 1, 3, 2 };
	int good = 0;

	for (int gold = 0; gold < 5; gold++) {
		struct eval_token t = eval_score(x, NULL, 5, gold);

		good += t.rank == rank[gold] && t.best == 1;
	}
	is_int(good, 5, "of equal logits the smaller id is first, for the rank and for the best");
}

/* Logits far from 0, whose exponentials overflow. */
static void test_far(void)
{
	static const float x[] = { 1e30f, -1e30f, 90, 88 }, high[] = { 1000, 1001, 999, 0 };

	ok(near(eval_score(x, x, 4, 0).logprob, 0), "a certain token has log-probability 0");
	ok(eval_score(x, x, 4, 1).logprob == (double)-1e30f - 1e30f && !eval_score(x, x, 4, 1).kl,
	   "... and an impossible one a finite number");
	ok(near(eval_score(high, NULL, 4, 1).logprob, -log(1 + exp(-1) + exp(-2) + exp(-1001))),
	   "large logits do not overflow");
}

static void test_any(void)
{
	enum { VOCAB = 300 };
	int order = 0, shares = 0, same = 0, shifted = 0, positive = 0;
	const int n = rounds(40);

	for (int round = 0; round < n; round++) {
		struct rng r = { (uint64_t)round };
		float x[VOCAB], dense[VOCAB], up[VOCAB];
		double sum = 0;
		int first = 0;

		for (int i = 0; i < VOCAB; i++) {
			x[i] = 8 * rng_normal(&r);
			dense[i] = x[i] + rng_normal(&r);
			up[i] = x[i] + 64;
		}
		for (int i = 0; i < VOCAB; i++) {
			struct eval_token t = eval_score(x, dense, VOCAB, i);

			sum += exp(t.logprob);
			first += !t.rank && t.best == i;
		}
		order += first == 1;
		shares += fabs(sum - 1) < 1e-12;
		same += eval_score(x, x, VOCAB, 5).kl == 0;
		shifted += fabs(eval_score(up, x, VOCAB, 5).kl) < 1e-9;
		positive += eval_score(x, dense, VOCAB, 5).kl > 0;
	}
	is_int(order, n, "one token has rank 0: the best");
	is_int(shares, n, "the probabilities of all tokens sum to 1");
	is_int(same, n, "KL of equal logits is exactly 0");
	is_int(shifted, n, "... and of shifted ones up to rounding");
	is_int(positive, n, "... and of others above 0");
}

int main(void)
{
	plan(0);
	test_known();
	test_ties();
	test_far();
	test_any();
	return done_testing();
}
