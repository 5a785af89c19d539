/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/eval/score.h"

#include <math.h>
#include <stddef.h>

static int first_greatest(const float *x, int n)
{
	int best = 0;

	for (int i = 1; i < n; i++)
		if (x[i] > x[best])
			best = i;
	return best;
}

/* ln of the sum of exp(x). */
static double log_sum_exp(const float *x, int n)
{
	const double top = x[first_greatest(x, n)];
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += exp(x[i] - top);
	return top + log(sum);
}

/* The sum of p ln(p / q).  Equal logits give exactly 0, and rounding gives nothing below. */
static double divergence(const float *dense, const float *logits, double log_sum, int n)
{
	const double dense_sum = log_sum_exp(dense, n);
	double kl = 0;

	for (int i = 0; i < n; i++) {
		const double p = dense[i] - dense_sum, q = logits[i] - log_sum;

		kl += exp(p) * (p - q);
	}
	return fmax(kl, 0);
}

struct eval_token eval_score(const float *logits, const float *dense, int vocab, int32_t gold)
{
	const double log_sum = log_sum_exp(logits, vocab);
	int32_t rank = 0;

	for (int i = 0; i < vocab; i++)
		rank += logits[i] > logits[gold] || (logits[i] == logits[gold] && i < gold);
	return (struct eval_token){ .gold = gold,
				    .best = first_greatest(logits, vocab),
				    .rank = rank,
				    .logprob = logits[gold] - log_sum,
				    .kl = dense ? divergence(dense, logits, log_sum, vocab) : NAN };
}
