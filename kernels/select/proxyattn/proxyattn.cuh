/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows that ProxyAttn's kernels score, and their order.
 *
 * A line is the sampled rows of one group in one query block; or the rows with which one head
 * probes.  Lines with the same keys stand together in a strip, so that keys are read once for the
 * strip.  The strip of a KV head has the lines of its groups, then of its heads.  A group over
 * several KV heads has keys of its own, their mean, and so a strip of its own.
 */
#ifndef AR_PROXYATTN_CUH
#define AR_PROXYATTN_CUH

#include <cfloat>
#include <cuda_runtime.h>

#include "kernels/prim/device.cuh"
#include "kernels/select/proxyattn/proxyattn.h"
#include "kernels/select/tiles.cuh"

constexpr int PROXY_SEGMENT = 8;	// a segment has a multiple of 8 blocks; or fewer than 8,
constexpr int PROXY_SHORT = 32;		// if at most 32 segments then cover a request

struct proxy_job {
	struct attn_batch b;
	struct proxyattn p;
	const bf16_t *q, *k;
	int n_group;
	int n_source;		// of keys: the KV heads, and the groups if one is over several
	int per_line;		// most rows of a line
	bool by_req;		// how probing rows are numbered
	int n_line;		// lines of groups; the lines of heads follow
	int64_t n_row;
	int segment;		// blocks of keys that a thread block goes through
	bf16_t *row;		// [n_row][head_dim]
	bf16_t *mean;		// [n_group][n_page][page_tok][head_dim]: keys of several
	float *top;		// [max_kv_blk][n_row]
	float *sum;		// [segment][n_row]
	float *score;		// [line][max_kv_blk]
	int32_t *need;		// [request][head]
};

/*
 * Fill top and sum, in units of log2, and set segment.
 *
 * top: for each row and each block up to the row's own.  A group's row has its largest logit, a
 * head's row the logarithm of its sum of powers.  sum: for each row and segment, the logarithm of
 * the sum of powers.
 *
 * The first function uses mma.sync, for any device from 8.0 on, the second wgmma and TMA.
 */
enum ar_status proxy_score_sm80(struct proxy_job *j, cudaStream_t stream, struct ar_err *err);
enum ar_status proxy_score_sm90(struct proxy_job *j, int n_sm, cudaStream_t stream,
				struct ar_err *err);

/* A bound of the rows of all strips of one source. */
static inline int64_t proxy_strip_rows(const struct proxy_job *j)
{
	const struct attn_shape *s = &j->b.shape;
	const int per_kv = s->q_heads / s->kv_heads, size = proxyattn_size(&j->p, s);
	const int64_t probing = (j->n_row - (int64_t)j->n_line * j->per_line) / s->q_heads * per_kv;
	const int64_t sampled = (int64_t)((per_kv - 1) / size + 1) * j->b.rows.n_qblk * j->per_line;

	return probing + sampled;
}

/* A bound of the tiles of one source. */
static inline int proxy_tiles(const struct proxy_job *j, int rows)
{
	return (int)(proxy_strip_rows(j) / rows) + j->b.rows.n_req;
}

static __device__ __forceinline__ int proxy_rows_in(const struct proxy_job &j, int r)
{
	return j.b.rows.row0[r + 1] - j.b.rows.row0[r];
}

static __device__ __forceinline__ int proxy_end(const struct proxy_job &j, int r)
{
	return j.b.rows.pos0[r] + proxy_rows_in(j, r);
}

/* Rows that each head of the request probes with; a request of one row has none. */
static __device__ __forceinline__ int proxy_probing(const struct proxy_job &j, int r)
{
	const int n = proxy_rows_in(j, r), stride = (int)j.p.stride;

	return n > 1 ? (min(n, j.b.shape.page_tok) + stride - 1) / stride : 0;
}

/* Rows that are reserved for a group in a request. */
static __device__ __forceinline__ int proxy_sampled(const struct proxy_job &j, int r)
{
	return proxy_rows_in(j, r) > 1 ?
		       (j.b.rows.qblk0[r + 1] - j.b.rows.qblk0[r]) * j.per_line : 0;
}

/* The number of a request's first row. */
static __device__ __forceinline__ int64_t proxy_row0(const struct proxy_job &j, int r)
{
	const int probing = j.by_req ? r * j.per_line : j.b.rows.row0[r] / (int)j.p.stride + r;

	return (int64_t)j.b.rows.qblk0[r] * j.n_group * j.per_line +
	       (int64_t)probing * j.b.shape.q_heads;
}

struct proxy_strip {
	int req, n;
	int64_t row;		// number of its first row
	int probe;		// rows of it that are not probing
	int sampled, probing;	// rows of a group and of a head
};

/* The groups that belong to one KV head alone, [first, end). */
static __device__ __forceinline__ void proxy_own(const struct proxy_job &j, int kv, int &first,
						 int &end)
{
	const int per_kv = j.b.shape.q_heads / j.b.shape.kv_heads;
	const int size = proxyattn_size(&j.p, &j.b.shape);

	first = (kv * per_kv + size - 1) / size;
	end = kv + 1 == j.b.shape.kv_heads ? j.n_group : (kv + 1) * per_kv / size;
	end = max(first, end);
}

static __device__ __forceinline__ struct proxy_strip proxy_strip_at(const struct proxy_job &j,
								    int r, int source)
{
	const struct attn_shape &shape = j.b.shape;
	const int per_kv = shape.q_heads / shape.kv_heads;
	struct proxy_strip s = { r, 0, proxy_row0(j, r), 0, proxy_sampled(j, r),
				 proxy_probing(j, r) };
	int first, end;

	if (source < shape.kv_heads) {
		proxy_own(j, source, first, end);
		s.row += first * s.sampled + source * per_kv * s.probing;
		s.probe = (end - first) * s.sampled;
		s.n = s.probe + per_kv * s.probing;
	} else {
		const int g = source - shape.kv_heads;
		const struct proxy_heads h = proxyattn_heads(&j.p, &shape, g);

		s.row += g * s.sampled + (h.kv + 1) * per_kv * s.probing;
		s.n = s.probe = h.kv_end - h.kv > 1 ? s.sampled : 0;
	}
	return s;
}

/* Rows at last, last - q-stride, ...; n 0: there is nothing to choose. */
struct proxy_line {
	int req, n, last;
};

/* Line i of a group in request r. */
static __device__ __forceinline__ struct proxy_line proxy_sample(const struct proxy_job &j, int r,
								 int i)
{
	const int tok = j.b.shape.page_tok, ctx = j.b.rows.pos0[r], end = proxy_end(j, r);
	const int blk = ctx / tok + i, last = min((blk + 1) * tok, end) - 1;

	return { r, end - ctx > 1 ? (last - max(blk * tok, ctx)) / (int)j.p.stride + 1 : 0, last };
}

/* Position of row i of a strip; -1: no such row. */
static __device__ __forceinline__ int proxy_pos(const struct proxy_job &j,
						const struct proxy_strip &s, int i)
{
	const int stride = (int)j.p.stride;

	if (i >= s.n)
		return -1;
	if (i >= s.probe)
		return proxy_end(j, s.req) - 1 - (i - s.probe) % s.probing * stride;
	const struct proxy_line l = proxy_sample(j, s.req, i % s.sampled / j.per_line);
	const int at = i % j.per_line;

	return at < l.n ? l.last - at * stride : -1;
}

/* The last position of rows [first, end) of a strip.  Groups' rows ascend, and all heads probe at
 * the end. */
static __device__ __forceinline__ int proxy_last(const struct proxy_job &j,
						 const struct proxy_strip &s, int first, int end)
{
	const int row = min(end, s.n) - 1;

	if (row >= s.probe || row / s.sampled != first / s.sampled)
		return proxy_end(j, s.req) - 1;
	return proxy_sample(j, s.req, row % s.sampled / j.per_line).last;
}

/* Find the strip of a thread block and the first of its rows.  False: there is none. */
static __device__ __forceinline__ bool proxy_find(const struct proxy_job &j, int rows, int source,
						  int at, struct proxy_strip &s, int &first)
{
	int tile;
	const int r = tiles_find(j.b.rows.n_req, at, tile, [&](int i) {
		return (proxy_strip_at(j, i, source).n + rows - 1) / rows;
	});

	if (r < 0)
		return false;
	s = proxy_strip_at(j, r, source);
	first = tile * rows;
	return true;
}

#endif
