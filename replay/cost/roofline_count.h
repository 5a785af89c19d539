/* SPDX-License-Identifier: Apache-2.0 */
/* Counts that the phases of the roofline model share. */
#ifndef AR_ROOFLINE_COUNT_H
#define AR_ROOFLINE_COUNT_H

#include "replay/cost/roofline.h"

/* Bytes of a bf16, a cosine, and of an entry of a list. */
enum { BF16 = 2, TRIG = 4, LIST = 4 };

/* n_batch products of [m][k] and [n][k], plus a bias of [n] if there is one. */
static inline void add_product(struct roofline_work *w, double n_batch, double m, double n,
			       double k, int bias)
{
	w->flops += 2 * n_batch * m * n * k;
	w->edge_flops += 2 * n_batch * n * k;
	w->bytes += BF16 * n_batch * (m * k + n * k + m * n + bias * n);
	w->kernels++;
}

/* The same with weights in format f, of which experts have rates of their own, in bf16 as well. */
static inline void add_weights(struct roofline_work *w, const struct linear_format *f, bool experts,
			       double n_batch, double m, double n, double k, int bias)
{
	const int i = (int)f->kind + (experts ? FORMATS : 0);
	struct roofline_part *p = &w->part[i];
	const bool fp8 = format_is_fp8_product(f);

	if (f->kind == FORMAT_BF16 && !experts) {
		add_product(w, n_batch, m, n, k, bias);
		return;
	}
	if (!roofline_has_part(w, i))
		*p = (struct roofline_part){ 0 };
	w->parts |= UINT32_C(1) << i;
	p->flops += 2 * n_batch * m * n * k;
	p->edge_flops += 2 * n_batch * n * k;
	p->bytes += n_batch * ((fp8 ? 1 : BF16) * m * k + BF16 * (m * n + bias * n) +
			       (double)format_bytes(f, (int64_t)n, (int64_t)k));
	p->kernels++;
	p->fp8 = fp8;
	w->kernels++;
}

/* The one kernel of a phase, which moves bytes. */
static inline void count_copy(struct roofline_work *w, double bytes, double edge_bytes)
{
	w->bytes = bytes;
	w->edge_bytes = edge_bytes;
	w->kernels = 1;
}

/* A kernel that moves n elements. */
static inline void add_moves(struct roofline_work *w, double n)
{
	w->bytes += BF16 * n;
	w->kernels++;
}

#endif
