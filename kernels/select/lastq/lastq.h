/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vertical-slash sums: where a chunk's last queries look.  Vertical-slash patterns are found
 * from them.
 *
 *   A[i]       attention of the i-th of the chunk's n last rows, a softmax over its keys
 *   column[c]  = sum over i of A[i][c] / n
 *   slash[d]   = sum over i of A[i][pos(i) - d] / n, where pos(i) >= d
 *
 * A chunk with fewer than n rows takes all its rows.  column and slash have one element for each
 * position up to the chunk's end.
 */
#ifndef AR_LASTQ_H
#define AR_LASTQ_H

#include "base/status.h"
#include "kernels/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LASTQ_MAX = 128 }; /* rows */

/* Request r, one head; column, slash: [positions]. */
enum ar_status lastq_ref(const struct attn_batch *b, int r, int head, int n, const bf16_t *q,
			 const bf16_t *k, float *column, float *slash, struct ar_err *err);

/* The sums on the device, each [request][query head][stride]. */
struct lastq {
	float *column, *slash;
	int stride;
};

/* CUDA: *out lies at the beginning of work.  n up to LASTQ_MAX. */
size_t lastq_work_bytes(const struct attn_shape *s, const struct attn_limits *l);
enum ar_status lastq_enqueue(const struct attn_batch *b, int n, const bf16_t *q, const bf16_t *k,
			     struct lastq *out, void *work, void *stream, struct ar_err *err);

/*
 * The same for n = page_tok, in two steps.  The first sums by blocks of page_tok, for all heads:
 *
 *   column[J]  of column over block J
 *   slash[J]   of slash over block J of distances, counted from the longest on
 *
 * The second, in the same work, writes column and slash for the wanted heads, and maybe others.
 * want: [request][query head].
 */
size_t lastq_blocks_work_bytes(const struct attn_shape *s, const struct attn_limits *l);
enum ar_status lastq_blocks_enqueue(const struct attn_batch *b, const bf16_t *q, const bf16_t *k,
				    struct lastq *blocks, void *work, void *stream,
				    struct ar_err *err);
enum ar_status lastq_wanted_enqueue(const struct attn_batch *b, const bf16_t *q, const bf16_t *k,
				    const int *want, struct lastq *out, void *work, void *stream,
				    struct ar_err *err);

/* Sums of one kind of kernels; work: of their own. */
typedef enum ar_status lastq_fn(const struct attn_batch *b, int n, const bf16_t *q, const bf16_t *k,
				const struct lastq *out, void *work, void *stream,
				struct ar_err *err);

/* The kernels for compute capability 9.0.  lastq_sm90_enqueue() is both steps, which share the
 * work.  The first one writes the sums by blocks, only if n and page_tok are 128 and heads have up
 * to 128 channels; out NULL: it does not.  want NULL: all heads. */
size_t lastq_sm90_work_bytes(const struct attn_shape *s, const struct attn_limits *l, bool blocks);
lastq_fn lastq_sm90_enqueue, lastq_sm90_rows_enqueue;
enum ar_status lastq_sm90_sums_enqueue(const struct attn_batch *b, int n, const bf16_t *q,
				       const bf16_t *k, const int *want, const struct lastq *out,
				       void *work, void *stream, struct ar_err *err);

/* The columns alone, out->slash NULL.  past: rows see the keys before all of them.  Work as for
 * lastq_sm90_enqueue(). */
typedef enum ar_status lastq_columns_fn(const struct attn_batch *b, int n, bool past,
					const bf16_t *q, const bf16_t *k, const struct lastq *out,
					void *work, void *stream, struct ar_err *err);
lastq_columns_fn lastq_sm90_columns_enqueue;

/* The kernels for compute capability 8.0.  lastq_pool_enqueue(): the sums by blocks from the sums,
 * on any device. */
size_t lastq_sm80_work_bytes(const struct attn_shape *s, const struct attn_limits *l);
lastq_fn lastq_sm80_enqueue;
enum ar_status lastq_pool_enqueue(const struct attn_batch *b, const struct lastq *sums,
				  const struct lastq *blocks, void *stream, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
