/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/select/lastq/lastq.h"

#include <string.h>

#include "kernels/select/scores.h"

enum ar_status lastq_ref(const struct attn_batch *b, int r, int head, int n, const bf16_t *q,
			 const bf16_t *k, float *column, float *slash, struct ar_err *err)
{
	const struct attn_shape *s = &b->shape;
	int rows = attn_n_row(&b->rows, r), end = b->keys.len[r];
	struct scores x;
	enum ar_status st;

	n = n < rows ? n : rows;
	st = scores_init(&x, b, n, err);
	if (st)
		return st;
	scores_keys(&x, b, r, head / (s->q_heads / s->kv_heads), k);
	scores_rows(&x, b, b->rows.row0[r + 1] - n, n, head, q);
	scores_multiply(&x, n, end);
	memset(column, 0, (size_t)end * sizeof *column);
	memset(slash, 0, (size_t)end * sizeof *slash);
	for (int i = 0; i < n; i++) {
		int pos = end - n + i;
		const float *p = scores_soften(&x, i, pos + 1);

		for (int t = 0; t <= pos; t++) {
			column[t] += p[t];
			slash[pos - t] += p[t];
		}
	}
	for (int t = 0; t < end; t++) {
		column[t] /= (float)n;
		slash[t] /= (float)n;
	}
	scores_release(&x);
	return AR_OK;
}
