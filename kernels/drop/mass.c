/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/drop/mass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select/scores.h"

/* Add the attention of one row over its n keys to w.  scale: for exponentials of base 2. */
static void add_row(float *x, int n, float scale, bool round, float *w)
{
	float max = -INFINITY, sum = 0;

	for (int t = 0; t < n; t++) {
		x[t] = (round ? bf16_round(x[t]) : x[t]) * scale;
		max = fmaxf(max, x[t]);
	}
	for (int t = 0; t < n; t++)
		sum += x[t] = exp2f(x[t] - max);
	for (int t = 0; t < n; t++)
		w[t] += x[t] / sum;
}

enum ar_status mass_ref(const struct mass_rule *m, const struct attn_batch *b, int r,
			const bf16_t *q, const bf16_t *k, float *mass, struct ar_err *err)
{
	const struct attn_shape *s = &b->shape;
	int n = mass_rows(m, b, r), base = mass_base(m, b, r), end = b->keys.len[r];
	int group = s->q_heads / s->kv_heads;
	float scale = 1.44269504f / sqrtf((float)s->head_dim), *w = NULL;
	struct scores x;
	enum ar_status st = scores_init(&x, b, n, err);

	if (st)
		return st;
	w = malloc((size_t)(end - base) * sizeof *w);
	if (!w) {
		st = ar_nomem(err);
		goto out;
	}
	memset(mass, 0, (size_t)mass_blocks(m, b, r) * sizeof *mass);
	for (int h = 0; h < s->q_heads; h++) {
		if (h % group == 0)
			scores_keys(&x, b, r, h / group, k);
		scores_rows(&x, b, b->rows.row0[r + 1] - n, n, h, q);
		scores_multiply(&x, n, end);
		memset(w, 0, (size_t)(end - base) * sizeof *w);
		for (int i = 0; i < n; i++)
			add_row(x.x + (size_t)i * (size_t)x.ld + base, end - n + i + 1 - base,
				scale, m->round, w);
		for (int t = 0; t < end - base; t++)
			mass[t / m->block] += m->round ? bf16_round(w[t]) : w[t];
	}
	free(w);
out:
	scores_release(&x);
	return st;
}
