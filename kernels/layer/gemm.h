/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products through cuBLAS, which is loaded at run time. */
#ifndef AR_GEMM_H
#define AR_GEMM_H

#include "base/bf16.h"
#include "base/status.h"

struct gemm;

/* Load libcublas.so.13 (or the file $ATTNREPLAY_CUBLAS) and make a handle with a workspace of
 * its own; its products go to stream.  AR_NODEV when the library is not there. */
enum ar_status gemm_open(struct gemm **out, void *stream, struct ar_err *err);
void gemm_close(struct gemm *g); /* NULL is fine */

/* c[i] = a[i] w[i]^T for i < n_batch: a [m][k], w [n][k], c [m][n], each row-major and the
 * matrices of a batch one after another.  bf16, summed in fp32.  Only enqueues. */
enum ar_status gemm_run(struct gemm *g, int n_batch, int m, int n, int k, const bf16_t *a,
			const bf16_t *w, bf16_t *c, struct ar_err *err);

#endif
