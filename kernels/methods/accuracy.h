/* SPDX-License-Identifier: Apache-2.0 */
/* How far one attention output is from another: what a backend's compare() reports. */
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

/* out and dense are [n_row][q_heads][head_dim], lse and lse_dense [n_row][q_heads]; acc is
 * [q_heads].  Per head: relative L2 over all rows together; the mean over rows of the
 * cosine; the largest difference; the mean over rows of the share of the true attention
 * mass that was looked at, exp(lse - lse_dense).  Two zero rows have cosine 1.  AR_DATA where an
 * output is not finite, or a dense row saw nothing: no distance can be told from that. */
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
