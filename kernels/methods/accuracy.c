/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/methods/accuracy.h"

#include <math.h>
#include <stdbool.h>

/* Sums over the elements of a row, or of many. */
struct sums {
	double diff, dense, out, dot, max;
};

static struct sums sum_row(const bf16_t *out, const bf16_t *dense, int dim)
{
	struct sums s = { 0 };

	for (int i = 0; i < dim; i++) {
		double a = bf16_to_f32(out[i]), b = bf16_to_f32(dense[i]), d = fabs(a - b);

		s.diff += d * d;
		s.dense += b * b;
		s.out += a * a;
		s.dot += a * b;
		s.max = fmax(s.max, d);
	}
	return s;
}

static double cosine(const struct sums *s)
{
	if (s->out == 0 && s->dense == 0)
		return 1;
	if (s->out == 0 || s->dense == 0)
		return 0;
	return fmin(1, s->dot / sqrt(s->out * s->dense));
}

/* Rounding can put the mass of a selection a little above the whole. */
static double recall(float lse, float lse_dense)
{
	return isinf(lse) && lse < 0 ? 0 : fmin(1, exp((double)lse - (double)lse_dense));
}

/* Relative to nothing, any difference is a whole one. */
static double relative(double diff, double dense)
{
	if (dense == 0)
		return diff == 0 ? 0 : 1;
	return sqrt(diff / dense);
}

/* A row that saw no key has a log sum of -inf, which no dense row has. */
static bool is_finite(const struct sums *row, float lse, float lse_dense)
{
	return isfinite(row->out) && isfinite(row->dense) && isfinite(lse_dense) && lse < INFINITY;
}

enum ar_status accuracy_measure(const struct attn_shape *s, int n_row, const bf16_t *out,
				const bf16_t *dense, const float *lse, const float *lse_dense,
				struct accuracy *acc, struct ar_err *err)
{
	for (int h = 0; h < s->q_heads; h++) {
		struct sums all = { 0 };
		double cos_sum = 0, mass = 0;

		for (int r = 0; r < n_row; r++) {
			size_t at = (size_t)r * (size_t)s->q_heads + (size_t)h;
			struct sums row = sum_row(out + at * (size_t)s->head_dim,
						  dense + at * (size_t)s->head_dim, s->head_dim);

			if (!is_finite(&row, lse[at], lse_dense[at]))
				return ar_fail(err, AR_DATA, "query head %d, row %d: attention is "
					       "not finite; Q, K or V of the capture are out of "
					       "range", h, r);
			all.diff += row.diff;
			all.dense += row.dense;
			all.max = fmax(all.max, row.max);
			cos_sum += cosine(&row);
			mass += recall(lse[at], lse_dense[at]);
		}
		acc[h] = (struct accuracy){ relative(all.diff, all.dense), cos_sum / n_row, all.max,
					    mass / n_row };
	}
	return AR_OK;
}
