/*
 * Where a chunk's last queries look, which patterns of columns and diagonals are found from.
 *
 *   A[i]       attention of the i-th of the chunk's n last rows, a softmax over its keys
 *   column[c]  = sum over i of A[i][c] / n
 *   slash[d]   = sum over i of A[i][pos(i) - d] / n, where pos(i) >= d
 *
 * A chunk with fewer rows gives all it has.  Both have one element for each position up to the
 * chunk's end.
 */
#ifndef AR_LASTQ_H
#define AR_LASTQ_H

#include "kernels/attn.h"
#include "src/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LASTQ_MAX = 128 };	/* rows */

/* Request r, one head; x, column, slash: [positions]. */
void lastq_ref(const struct attn_batch *b, int r, int head, int n, const bf16_t *q, const bf16_t *k,
	       float *x, float *column, float *slash);

/* On the device, [request][query head][stride] of each. */
struct lastq {
	float *column, *slash;
	int stride;
};

/* CUDA: *out lies at the beginning of work.  n up to LASTQ_MAX. */
size_t lastq_work_bytes(const struct attn_shape *s, const struct attn_limits *l);
enum ar_status lastq_enqueue(const struct attn_batch *b, int n, const bf16_t *q, const bf16_t *k,
			     struct lastq *out, void *work, void *stream, struct ar_err *err);

/* What it calls on devices of compute capability 9, and on others; work: of their own. */
size_t lastq_sm90_work_bytes(const struct attn_shape *s, const struct attn_limits *l);
enum ar_status lastq_sm90_enqueue(const struct attn_batch *b, int n, const bf16_t *q,
				  const bf16_t *k, const struct lastq *out, void *work,
				  void *stream, struct ar_err *err);
size_t lastq_sm80_work_bytes(const struct attn_shape *s, const struct attn_limits *l);
enum ar_status lastq_sm80_enqueue(const struct attn_batch *b, int n, const bf16_t *q,
				  const bf16_t *k, const struct lastq *out, void *work,
				  void *stream, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
