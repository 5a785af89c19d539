/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/methods/accuracy.h"

#include "kernels/methods/accuracy_row.h"

static struct accuracy_sums sum_row(const bf16_t *out, const bf16_t *dense, int dim)
{
	struct accuracy_sums s = { 0 };

	for (int i = 0; i < dim; i++)
		accuracy_add(&s, bf16_to_f32(out[i]), bf16_to_f32(dense[i]));
	return s;
}

enum ar_status accuracy_refuse(int head, int row, struct ar_err *err)
{
	return ar_fail(err, AR_DATA,
		       "query head %d, row %d: attention is not finite; Q, K or V of "
		       "the capture are out of range",
		       head, row);
}

/* sqrt(diff / dense).  If dense is 0: 0 for no difference, else 1. */
static double relative(double diff, double dense)
{
	if (dense == 0)
		return diff == 0 ? 0 : 1;
	return sqrt(diff / dense);
}

struct accuracy accuracy_of(const double *value, int n_row)
{
	return (struct accuracy){
		.rel_l2 = relative(value[ACC_DIFF], value[ACC_DENSE]),
		.cosine = value[ACC_COSINE] / n_row,
		.max_abs = value[ACC_MAX],
		.mass_recall = value[ACC_MASS] / n_row,
	};
}

enum ar_status accuracy_measure(const struct attn_shape *s, int n_row, const bf16_t *out,
				const bf16_t *dense, const float *lse, const float *lse_dense,
				struct accuracy *acc, struct ar_err *err)
{
	for (int h = 0; h < s->q_heads; h++) {
		double head[ACC_VALUES] = { 0 };

		for (int r = 0; r < n_row; r++) {
			size_t at = (size_t)r * (size_t)s->q_heads + (size_t)h;
			struct accuracy_sums row = sum_row(out + at * (size_t)s->head_dim,
							   dense + at * (size_t)s->head_dim,
							   s->head_dim);

			if (!accuracy_is_finite(&row, lse[at], lse_dense[at]))
				return accuracy_refuse(h, r, err);
			for (int v = 0; v < ACC_VALUES; v++)
				head[v] = accuracy_join(
					head[v], accuracy_value(&row, lse[at], lse_dense[at], v),
					v);
		}
		acc[h] = accuracy_of(head, n_row);
	}
	return AR_OK;
}
