/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds of pieces on the device.  A thread takes eight channels of some keys; the threads of a
 * piece then meet.  Of a decode all threads take the same piece, of a chunk they share out the
 * pieces of a page.  What is read first does not depend on each other: the request of a decode is
 * guessed.  So a decode waits for memory three times.
 *
 * Decodes that come next read one key and the bounds of its piece.  A thread block has as many
 * channels of a request as threads, of all KV heads, so there are few blocks.
 *
 * On an H200, 8 KV heads of 128, pieces of 16 and of 128 tokens: 8 decodes take 2.7 and 2.6 us, 256
 * take 3.3.  When decodes read the keys of their pieces again: 4.6, 9.6 and 11.3.
 */
#include "config.h"
#include "kernels/select/bounds/bounds.h"

#include "kernels/prim/cuda.h"
#include "kernels/select/pieces.h"
#include "kernels/select/qblk.cuh"

namespace {

constexpr int THREADS = 128, BATCH = 8;
constexpr int WORDS = THREADS * 4;	/* of two channels, that the threads have */

/* bounds_order() of both halves. */
__device__ __forceinline__ uint32_t order(uint32_t x)
{
	return x ^ (__vcmplts2(x, 0) & 0x7fff7fffu);
}

/* The query block; decodes have as many as requests. */
__device__ __forceinline__ struct qblk find(const struct attn_batch &b, int at)
{
	const int guess = min(at, b.rows.n_req - 1);
	const struct qblk s = qblk_in(b, at, guess);
	const bool right = b.rows.qblk0[guess] <= at && at < b.rows.qblk0[guess + 1];

	return right ? s : qblk_at(b, at);
}

/* The least and largest values, in order, of eight channels of the keys first, first + step ...
 * below n; key n - 1 may be read again. */
__device__ __forceinline__ void read_keys(const uint4 *__restrict__ from, int stride, int first,
					  int step, int n, uint32_t (&low)[4], uint32_t (&high)[4])
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		low[i] = 0x7fff7fff;
		high[i] = 0x80008000;
	}
	for (int t = first; t < n; t += BATCH * step) {
		uint4 x[BATCH];

#pragma unroll
		for (int j = 0; j < BATCH; j++)
			x[j] = from[(size_t)min(t + j * step, n - 1) * stride];
#pragma unroll
		for (int j = 0; j < BATCH; j++) {
			const uint32_t word[4] = { x[j].x, x[j].y, x[j].z, x[j].w };

#pragma unroll
			for (int i = 0; i < 4; i++) {
				low[i] = __vmins2(low[i], order(word[i]));
				high[i] = __vmaxs2(high[i], order(word[i]));
			}
		}
	}
}

/* Grid (query block, KV head): the pieces of the query block's page that have rows of the chunk. */
__global__ void __launch_bounds__(THREADS)
bounds_keys(struct attn_batch b, struct bounds x, const bf16_t *__restrict__ k,
	    void *__restrict__ state)
{
	__shared__ uint32_t low[WORDS], high[WORDS];
	const struct qblk s = find(b, blockIdx.x);
	const int dim = b.shape.head_dim, eights = dim / 8, pairs = dim / 2;
	const int first = s.lo / x.tok, n = (s.hi - 1) / x.tok + 1 - first;
	const uint4 *page = (const uint4 *)(k + pieces_key(&b, s.req, blockIdx.y,
							   s.blk * b.shape.page_tok));
	const size_t to = bounds_at(&x, &b, s.req, blockIdx.y,
				    s.blk * (b.shape.page_tok / x.tok));
	int at_once = 1;		/* pieces */

	while (at_once < n && at_once < THREADS / eights)
		at_once *= 2;
	const int step = THREADS / eights / at_once;	/* threads for the same channels */
	const int own = threadIdx.x / eights / step, key = threadIdx.x / eights % step;

	for (int base = 0; base < n; base += at_once) {
		const int piece = first + min(base + own, n - 1);
		uint32_t least[4], most[4];

		read_keys(page + (size_t)piece * x.tok * eights + threadIdx.x % eights, eights,
			  key, step, min(x.tok, s.hi - piece * x.tok), least, most);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			low[threadIdx.x * 4 + i] = least[i];
			high[threadIdx.x * 4 + i] = most[i];
		}
		__syncthreads();
		for (int i = threadIdx.x; i < min(at_once, n - base) * pairs; i += THREADS) {
			const int from = i / pairs * step * pairs + i % pairs;
			const size_t at = to + (size_t)(first + base + i / pairs) * 2 * dim +
					  i % pairs * 2;
			uint32_t l = low[from], h = high[from];

			for (int j = 1; j < step; j++) {
				l = __vmins2(l, low[from + j * pairs]);
				h = __vmaxs2(h, high[from + j * pairs]);
			}
			l = order(l);
			h = order(h);
			bounds_set(&x, state, at, dim, (bf16_t)l, (bf16_t)h);
			bounds_set(&x, state, at + 1, dim, (bf16_t)(l >> 16), (bf16_t)(h >> 16));
		}
		__syncthreads();
	}
}

/* Eight bounds from element `at` on, in pairs of bf16. */
__device__ __forceinline__ void read_bounds(const struct bounds &x, const void *state, size_t at,
					    uint32_t (&word)[4])
{
	if (x.type == BOUNDS_BF16) {
		const uint4 all = *(const uint4 *)((const bf16_t *)state + at);

		word[0] = all.x;
		word[1] = all.y;
		word[2] = all.z;
		word[3] = all.w;
		return;
	}
#pragma unroll
	for (int i = 0; i < 4; i++)
		word[i] = __float_as_uint(bounds_get(&x, state, at + 2 * i)) >> 16 |
			  (__float_as_uint(bounds_get(&x, state, at + 2 * i + 1)) & 0xffff0000);
}

__device__ __forceinline__ void write_bounds(const struct bounds &x, void *state, size_t at,
					     int dim, const uint32_t (&low)[4],
					     const uint32_t (&high)[4])
{
	if (x.type == BOUNDS_BF16) {
		bf16_t *to = (bf16_t *)state + at;

		*(uint4 *)to = make_uint4(low[0], low[1], low[2], low[3]);
		*(uint4 *)(to + dim) = make_uint4(high[0], high[1], high[2], high[3]);
		return;
	}
#pragma unroll
	for (int i = 0; i < 8; i++)
		bounds_set(&x, state, at + i, dim, (bf16_t)(low[i / 2] >> i % 2 * 16),
			   (bf16_t)(high[i / 2] >> i % 2 * 16));
}

/* Grid (request, stretch of its channels): the last key of each request. */
__global__ void __launch_bounds__(THREADS)
bounds_next(struct attn_batch b, struct bounds x, const bf16_t *__restrict__ k,
	    void *__restrict__ state)
{
	const int r = blockIdx.x, dim = b.shape.head_dim, eights = dim / 8;
	const int i = blockIdx.y * THREADS + threadIdx.x, h = i / eights, c = i % eights * 8;
	const int t = b.keys.len[r] - 1;

	if (h >= b.shape.kv_heads || t < 0)
		return;
	const size_t at = bounds_at(&x, &b, r, h, t / x.tok) + c;
	const uint4 own = *(const uint4 *)(k + pieces_key(&b, r, h, t) + c);
	const uint32_t key[4] = { own.x, own.y, own.z, own.w };
	uint32_t low[4], high[4];

	read_bounds(x, state, at, low);
	read_bounds(x, state, at + dim, high);
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const uint32_t mine = order(key[j]);

		low[j] = t % x.tok ? order(__vmins2(order(low[j]), mine)) : key[j];
		high[j] = t % x.tok ? order(__vmaxs2(order(high[j]), mine)) : key[j];
	}
	write_bounds(x, state, at, dim, low, high);
}

}

enum ar_status bounds_append_enqueue(const struct bounds *x, const struct attn_call *call,
				     struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const int eights = b->shape.kv_heads * b->shape.head_dim / 8;
	const cudaStream_t stream = (cudaStream_t)call->stream;
	enum ar_status st = AR_OK;

	if (!b->rows.n_qblk)
		return AR_OK;
	if (call->next)
		bounds_next<<<dim3(b->rows.n_req, (eights + THREADS - 1) / THREADS), THREADS, 0,
			      stream>>>(*b, *x, call->kv.k, call->state);
	else
		bounds_keys<<<dim3(b->rows.n_qblk, b->shape.kv_heads), THREADS, 0, stream>>>
			(*b, *x, call->kv.k, call->state);
	CU_LAUNCHED();
out:
	return st;
}
