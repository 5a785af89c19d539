/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products through cuBLAS, which is loaded at run time.  Products with a bias go through
 * cuBLASLt, which adds it in the epilogue, as PyTorch does. */
#ifndef AR_GEMM_H
#define AR_GEMM_H

#include "base/bf16.h"
#include "base/status.h"

struct gemm;

/* Load cuBLAS of the CUDA of the build (or the file $ATTNREPLAY_CUBLAS) and make a handle with a
 * workspace of its own; its products go to stream.  AR_NODEV when the library is not there. */
enum ar_status gemm_open(struct gemm **out, void *stream, struct ar_err *err);
void gemm_close(struct gemm *g); /* NULL is fine */
/* Start a thread that loads the library while the caller makes a context.  gemm_open() waits for
 * the thread, and tells its errors. */
void gemm_load_early(void);

/* c[i] = a[i] w[i]^T + bias[i] for i < n_batch: a [m][k], w [n][k], bias [n], c [m][n], each
 * row-major.  The matrices of a batch lie one after another.  bf16, summed in fp32. */
struct gemm_args {
	int n_batch, m, n, k;
	const bf16_t *a, *w;
	const bf16_t *bias; /* NULL: none.  With it a, w and c are aligned to 256 bytes */
	bf16_t *c;
	float *real; /* [m][n], instead of c: the sums, not rounded; one matrix, without a bias */
};

/* One launch, the bias included.  Only enqueues. */
enum ar_status gemm_run(struct gemm *g, const struct gemm_args *x, struct ar_err *err);

#endif
