/* SPDX-License-Identifier: Apache-2.0 */
/* The distance between two attention outputs, as a backend's compare() reports it. */
#ifndef AR_ACCURACY_H
#define AR_ACCURACY_H

#include "base/status.h"
#include "kernels/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A head of one layer of one chunk against dense attention. */
struct accuracy {
	double rel_l2, cosine, max_abs, mass_recall;
};

/*
 * Compare out with dense, the output of dense attention, per query head.
 *
 * out, dense: [n_row][q_heads][head_dim].  lse, lse_dense: [n_row][q_heads], log-sum-exp of the
 * scores.  acc: [q_heads]:
 *   rel_l2        relative L2 distance over all rows together
 *   cosine        mean over rows of the cosine; 1 for two zero rows
 *   max_abs       largest difference of two elements
 *   mass_recall   mean over rows of exp(lse - lse_dense), the attention mass that was selected
 * AR_DATA: an output is not finite, or a dense row has no key.
 */
enum ar_status accuracy_measure(const struct attn_shape *s, int n_row, const bf16_t *out,
				const bf16_t *dense, const float *lse, const float *lse_dense,
				struct accuracy *acc, struct ar_err *err);

/* The same with outputs, log sums and work on the device; acc is on the host, and stream is waited
 * for.  head_dim is a multiple of 8.  Only exp() can round differently. */
size_t accuracy_work_bytes(const struct attn_shape *s, int n_row);
enum ar_status accuracy_measure_device(const struct attn_shape *s, int n_row, const bf16_t *out,
				       const bf16_t *dense, const float *lse,
				       const float *lse_dense, void *work, void *stream,
				       struct accuracy *acc, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
