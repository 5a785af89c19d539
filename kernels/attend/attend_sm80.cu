/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of prefill chunks over block lists, for compute capability 8.0 and later.
 *
 * One thread block runs one tile of the plan: up to 128 packed rows, all of one KV head, under
 * one list.  It walks the list in steps of 64 keys, a KV block or half of one.  There are two
 * stages: while a step is computed, the next one's keys and values are on their way.
 *
 *   wait for step i, barrier           every warp is done with the other stage now
 *   start the copy of step i + 1       cp.async, zeros past the tile's last position
 *   S = Q K^T                          mma.sync m16n8k16, Q and K through ldmatrix
 *   mask                               only steps that reach past the tile's first position, or
 *                                      before the last row's first key
 *   online softmax                     base 2, fp32
 *   O += P V                           P rounded to bf16, V through ldmatrix.trans
 *
 * Budget.  Four warps of 32 rows: a key fragment serves two row tiles.  This halves the shared
 * memory traffic of 16-row warps, and leaves the tensor cores the bottleneck.  A thread holds 128
 * fp32 of O and 64 of S at head size 128, so Q is read again each step.  Shared memory: Q 32 KiB,
 * two stages of K and V 64 KiB.  Two thread blocks share a multiprocessor, so that the softmax of
 * one hides behind the products of the other.
 *
 * Rows with first keys, or heads with sinks, have an instance of the kernel of their own.  Its walk
 * begins at the first row's first key.
 *
 * Zeros past the end matter: unwritten tokens of a page may be NaN, and 0 * NaN is not 0.
 */
#include "config.h"

#include <cuda_runtime.h>
#include <math.h>

#include "kernels/attend/attend.h"
#include "kernels/prim/cuda.h"
#include "kernels/prim/products.cuh"

constexpr int KEYS = 64;		// of a step
constexpr int THREADS = 128;
constexpr int WARP_ROWS = ATTEND_ROWS / (THREADS / 32);
constexpr int M_TILES = WARP_ROWS / 16;

/* Values that a tile's threads share.  They live in shared memory because at head size 128 no
 * register is left for it. */
struct view {
	const uint16_t *list;		// NULL: every block
	const int32_t *page;		// of the request
	int page_tok;			// 64 or 128
	size_t kv_off;			// of the KV head in a page, in elements
	int n_blk, last_blk;		// entries of the list, last block the tile can see
	int first_pos, last_pos;	// positions of its first and last row
	int n_head;
	int row, n_row, head;		// bounded tiles: as in the tile
	int first_blk, last_first;	// block of the first row's first key; the last row's
};

template <int D> struct attend_smem {
	bf16_t q[ATTEND_ROWS * D];	// in the end the output
	bf16_t k[2][KEYS * D];
	bf16_t v[2][KEYS * D];
	struct view view;
};
static_assert(2 * sizeof(struct attend_smem<128>) <= 225 * 1024, "two thread blocks fit");

struct attend_args {
	struct attn_batch b;
	struct block_lists lists;
	const bf16_t *q;
	struct kv_bf16 kv;
	bf16_t *out;
	float *lse;
	const float *sink;		// of each query head; NULL: none
};

/* ---- the walk over a list ---- */

template <bool BOUNDED>
static __device__ struct view view_of(const struct attend_args &a, const struct attn_tile &t,
				      int dim)
{
	const int32_t *first = BOUNDED ? a.b.rows.first : NULL;
	struct view v;

	v.list = a.lists.block && t.list >= 0 ?
		a.lists.block + (size_t)t.list * a.lists.stride : NULL;
	v.page = a.b.keys.page + t.page0;
	v.page_tok = a.b.shape.page_tok;
	v.kv_off = (size_t)(t.head / (a.b.shape.q_heads / a.b.shape.kv_heads)) * v.page_tok * dim;
	v.first_pos = t.pos + (a.b.kept ? a.b.kept[t.list] : 0);
	v.last_pos = v.first_pos + t.n_row - 1;
	v.last_blk = v.last_pos / v.page_tok;
	v.n_blk = v.list ? a.lists.n[t.list] : v.last_blk + 1;
	v.n_head = t.n_head;
	if (BOUNDED) {
		v.row = t.row;
		v.n_row = t.n_row;
		v.head = t.head;
		v.first_blk = first ? first[t.row] / v.page_tok : 0;
		v.last_first = first ? first[t.row + t.n_row - 1] : 0;
	}
	return v;
}

/* The first key of packed row p; padding has that of the last row. */
static __device__ __forceinline__ int first_key(const struct attend_args &a, const struct view &v,
						int p)
{
	return a.b.rows.first[v.row + min(p / v.n_head, v.n_row - 1)];
}

/* One block ahead of the copies, so that the page number is there when a copy starts. */
struct ahead {
	int i;				// next entry of the list
	int blk, page;			// the block ahead; blk -1: the end
};

static __device__ __forceinline__ void look_ahead(struct ahead &w, const struct view &v)
{
	int blk = w.i >= v.n_blk ? v.last_blk + 1 : v.list ? v.list[w.i] : w.i;

	w.i++;
	w.blk = -1;
	if (blk <= v.last_blk) {
		w.blk = blk;
		w.page = v.page[blk];
	}
}

/* ---- copies ---- */

/* Element of q and out where packed row p of the tile begins. */
template <int D>
static __device__ __forceinline__ size_t row_offset(const struct attend_args &a,
						    const struct attn_tile &t, int p)
{
	size_t row = (size_t)(t.row + p / t.n_head);

	return (row * a.b.shape.q_heads + t.head + p % t.n_head) * D;
}

template <int D>
static __device__ __forceinline__ void copy_q(uint32_t dst, const struct attend_args &a)
{
	constexpr int PIECES = D / 8;
	const struct attn_tile t = a.b.tile[blockIdx.x];
	int c = threadIdx.x % PIECES, n = t.n_row * t.n_head;

	for (int p = threadIdx.x / PIECES; p < ATTEND_ROWS; p += THREADS / PIECES) {
		size_t off = p < n ? row_offset<D>(a, t, p) : 0;

		cp_async_16(dst + swizzle<D>(p, c), a.q + off + c * 8, p < n ? 16 : 0);
	}
}

/* n keys of a page, from src on; zeros for the rest of the step. */
template <int D>
static __device__ __forceinline__ void copy_keys(uint32_t dst, const bf16_t *src, int n)
{
	constexpr int PIECES = D / 8;
	int c = threadIdx.x % PIECES, first = threadIdx.x / PIECES;

#pragma unroll
	for (int i = 0; i < KEYS; i += THREADS / PIECES)
		cp_async_16(dst + swizzle<D>(first + i, c), src + (first + i) * D + c * 8,
			    first + i < n ? 16 : 0);
}

/* ---- the end of a tile ---- */

/* O / sum as bf16 through the warp's own rows of shared memory, 16 bytes a lane to global. */
template <int D>
static __device__ __forceinline__ void write_rows(const struct attend_args &a, char *rows,
						  int first, float (&o)[M_TILES][D / 8][4],
						  const float (&max)[M_TILES][2],
						  float (&sum)[M_TILES][2], int lane)
{
	const struct attn_tile t = a.b.tile[blockIdx.x];
	int n = t.n_row * t.n_head;

	__syncwarp();
#pragma unroll
	for (int m = 0; m < M_TILES; m++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int row = m * 16 + h * 8 + lane / 4, p = first + row;
			float all = quad_sum(sum[m][h]);
			bool none = all == 0;	// NaN stays
			float inv = none ? 0 : 1 / all;

#pragma unroll
			for (int d = 0; d < D / 8; d++)
				*(uint32_t *)(rows + swizzle<D>(row, d) + (lane & 3) * 4) =
					pack_bf16(o[m][d][2 * h] * inv, o[m][d][2 * h + 1] * inv);
			if (a.lse && p < n && !(lane & 3))
				a.lse[row_offset<1>(a, t, p)] = none ? -INFINITY :
					max[m][h] * softmax_scale<D> + logf(all);
		}
	__syncwarp();
	for (int i = lane; i < WARP_ROWS * (D / 8); i += 32) {
		int row = i / (D / 8), c = i % (D / 8);

		if (first + row < n)
			*(uint4 *)(a.out + row_offset<D>(a, t, first + row) + c * 8) =
				*(const uint4 *)(rows + swizzle<D>(row, c));
	}
}

/* ---- the kernel ---- */

template <int D, bool BOUNDED>
static __global__ void __launch_bounds__(THREADS, 2) attend_sm80(const struct attend_args a)
{
	extern __shared__ __align__(128) char smem[];
	struct attend_smem<D> &sm = *(struct attend_smem<D> *)smem;
	const struct view &v = sm.view;
	int lane = threadIdx.x % 32, first = threadIdx.x / 32 * WARP_ROWS;
	uint32_t place = swizzle<D>(lane & 15, lane >> 4);
	float o[M_TILES][D / 8][4], max[M_TILES][2], sum[M_TILES][2];
	int key, next, page, stage = 0;		// key: first position of the step; -1: none
	struct ahead w = { 0, -1, 0 };

	auto next_block = [&]() {
		next = w.blk < 0 ? -1 : w.blk * v.page_tok;
		page = w.page;
		look_ahead(w, v);
	};
	auto copy_next = [&](int to) {
		size_t off = (size_t)page * a.b.shape.kv_heads * v.page_tok * D + v.kv_off +
			     (next & (v.page_tok - 1)) * D;

		copy_keys<D>(smem_addr(sm.k[to]), a.kv.k + off, v.last_pos - next + 1);
		copy_keys<D>(smem_addr(sm.v[to]), a.kv.v + off, v.last_pos - next + 1);
	};

#pragma unroll
	for (int m = 0; m < M_TILES; m++) {
#pragma unroll
		for (int d = 0; d < D / 8; d++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				o[m][d][e] = 0;
		max[m][0] = max[m][1] = -INFINITY;
		sum[m][0] = sum[m][1] = 0;
	}
	if (!threadIdx.x)
		sm.view = view_of<BOUNDED>(a, a.b.tile[blockIdx.x], D);
	__syncthreads();
	copy_q<D>(smem_addr(sm.q), a);
	if (BOUNDED)
		w.i = v.first_blk;
	if (BOUNDED && a.sink)
#pragma unroll
		for (int i = 0; i < M_TILES * 2; i++) {
			int p = first + i * 8 + lane / 4;

			softmax_sink<D>(max[i / 2][i % 2], sum[i / 2][i % 2],
					a.sink[v.head + p % v.n_head], lane);
		}
	look_ahead(w, v);
	next_block();
	if (next >= 0)
		copy_next(0);
	cp_async_commit();
	for (key = next; key >= 0; key = next, stage ^= 1) {
		float s[M_TILES][KEYS / 8][4];

		cp_async_wait<0>();
		__syncthreads();
		if ((key + KEYS) & (v.page_tok - 1) && key + KEYS <= v.last_pos)
			next = key + KEYS;
		else
			next_block();
		if (next >= 0)
			copy_next(stage ^ 1);
		cp_async_commit();
		multiply_qk<D>(s, smem_addr(sm.q + first * D) + place,
			       smem_addr(sm.k[stage]) + place);
#pragma unroll
		for (int m = 0; m < M_TILES; m++) {
			if (key + KEYS - 1 > v.first_pos) {
				int p = first + m * 16 + lane / 4, seen = v.first_pos - key;
				int cols[2] = { seen + p / v.n_head, seen + (p + 8) / v.n_head };

				softmax_mask(s[m], cols, lane);
			}
			if (BOUNDED && key < v.last_first) {
				int p = first + m * 16 + lane / 4;
				int cols[2] = { first_key(a, v, p) - key,
						first_key(a, v, p + 8) - key };

				softmax_mask_before(s[m], cols, lane);
			}
			softmax_step<KEYS / 8, D>(s[m], o[m], max[m], sum[m]);
		}
		multiply_pv<D>(o, s, smem_addr(sm.v[stage]) + place);
	}
	cp_async_wait<0>();
	__syncthreads();	// an empty list gets here while Q is still on its way
	write_rows<D>(a, (char *)(sm.q + first * D), first, o, max, sum, lane);
}

/* ---- launch ---- */

template <int D, bool BOUNDED>
static enum ar_status launch(const struct attend_args &a, cudaStream_t stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int bytes = (int)sizeof(struct attend_smem<D>);

	CU(cudaFuncSetAttribute(attend_sm80<D, BOUNDED>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
	attend_sm80<D, BOUNDED><<<a.b.n_tile, THREADS, bytes, stream>>>(a);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status attend_sm80_enqueue(const struct attn_call *call, attend_plan_fn *plan, int heads,
				   const struct block_lists *lists, struct ar_err *err)
{
	struct attend_args a = { *call->b,  *lists,    call->q,   call->kv.bf16,
				 call->out, call->lse, call->sink };
	cudaStream_t stream = (cudaStream_t)call->stream;

	(void)plan;	/* the tiles are enough */
	(void)heads;
	if (a.b.rows.first || a.sink)
		return a.b.shape.head_dim == 64 ? launch<64, true>(a, stream, err) :
						  launch<128, true>(a, stream, err);
	return a.b.shape.head_dim == 64 ? launch<64, false>(a, stream, err) :
					  launch<128, false>(a, stream, err);
}
