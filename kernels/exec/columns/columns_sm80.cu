/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vertical-slash attention, over runs and columns of keys, for compute capability 8.0 and later.
 *
 * One thread block runs one (query block, head).  It walks the runs and then the columns in steps
 * of 64 keys.  The two differ only in the place of a key and in the reason that hides it: causality
 * in a run, the end of the list among columns.  Keys are fetched one by one, each a row of 16-byte
 * copies, through the page table.
 *
 *   wait for step i, barrier           every warp is done with the other stage now
 *   start the copy of step i + 1       cp.async from the rows found before, zeros where none
 *   find the rows of step i + 2        list, page table: two loads that depend on each other
 *   S = Q K^T, mask, softmax, O += P V
 *
 * At head size 64 in blocks of 128 tokens warps have 32 rows, as in attend_sm80.cu; otherwise 16.
 */
#include "config.h"

#include <cuda_runtime.h>
#include <limits.h>
#include <math.h>

#include "kernels/exec/columns/columns.h"
#include "kernels/prim/cuda.h"
#include "kernels/prim/products.cuh"

static constexpr int KEYS = 64;		/* of a step */

template <int D, int ROWS> struct config {
	static constexpr int WARPS = D >= 128 && ROWS == 128 ? 8 : 4;
	static constexpr int THREADS = WARPS * 32;
	static constexpr int M = ROWS / 16 / WARPS;		/* squares of a warp's rows */
	static constexpr int PER_SM = D == 256 ? 1 : 2;
	static constexpr int RUN_STEPS = ROWS / KEYS;		/* a run is as long as a block */
};

/* The query block and the lists of a thread block; its threads share them. */
struct view {
	const int32_t *run, *col, *page;
	int n_run, n_col;
	int first_pos, last_pos;	/* of its rows */
	int n_row, head, kv_head;
	int row;			/* the first, in q */
	/* The band hides keys of runs at least `far` behind a row, except keys before position
	 * init.  Rows from `tail` on see all.  init and tail count from the first row. */
	int far, init, tail;
};

template <int D, int ROWS> struct columns_smem {
	bf16_t q[ROWS * D];
	bf16_t k[2][KEYS * D];
	bf16_t v[2][KEYS * D];
	int32_t key[2][KEYS];	/* row of the cache of each key of a step; -1: no key */
	struct view view;
};
static_assert(2 * sizeof(struct columns_smem<128, 128>) <= 225 * 1024, "two thread blocks fit");
static_assert(sizeof(struct columns_smem<256, 128>) <= 227 * 1024, "shared memory");

struct columns_args {
	struct attn_batch b;
	struct column_lists lists;
	const bf16_t *q;
	struct kv_bf16 kv;
	bf16_t *out;
	float *lse;
	const float *sink;	/* of each query head; NULL: none */
};

static __device__ struct view view_of(const struct columns_args &a)
{
	const struct attn_tile t = a.b.tile[blockIdx.x];
	const struct attn_band band = a.lists.band[t.list];
	struct view v;

	v.run = a.lists.run + (size_t)t.list * a.lists.max_run;
	v.col = a.lists.col + (size_t)t.list * a.lists.max_col;
	v.n_run = a.lists.n_run[t.list];
	v.n_col = a.lists.n_col[t.list];
	v.page = a.b.keys.page + t.page0;
	v.first_pos = t.pos;
	v.last_pos = v.first_pos + t.n_row - 1;
	v.n_row = t.n_row;
	v.head = t.head;
	v.kv_head = t.head / (a.b.shape.q_heads / a.b.shape.kv_heads);
	v.row = t.row;
	v.far = band.local ? band.local : INT_MAX;
	v.init = band.init - v.first_pos;
	v.tail = a.b.rows.row0[t.req + 1] + a.b.rows.left[t.req] - t.row - band.last;
	return v;
}

/* ---- steps ---- */

template <class C> static __device__ __forceinline__ int n_steps(const struct view &v)
{
	return v.n_run * C::RUN_STEPS + (v.n_col + KEYS - 1) / KEYS;
}

/* The column that a step begins with; negative in a run. */
template <class C> static __device__ __forceinline__ int first_column(const struct view &v, int i)
{
	return (i - v.n_run * C::RUN_STEPS) * KEYS;
}

template <class C> static __device__ __forceinline__ int run_key(const struct view &v, int i)
{
	return v.run[i / C::RUN_STEPS] + i % C::RUN_STEPS * KEYS;
}

/* Where key k of step i lies. */
template <class C, int ROWS>
static __device__ __forceinline__ int find_key(const struct view &v, int kv_heads, int i, int k)
{
	const int first = first_column<C>(v, i);
	int pos = INT_MAX;

	if (first < 0)
		pos = run_key<C>(v, i) + k;
	else if (first + k < v.n_col)
		pos = v.col[first + k];
	return pos > v.last_pos ? -1 :
	       (v.page[pos / ROWS] * kv_heads + v.kv_head) * ROWS + pos % ROWS;
}

/* ---- copies ---- */

template <int D, int ROWS>
static __device__ __forceinline__ void copy_q(struct columns_smem<D, ROWS> &sm,
					      const struct columns_args &a)
{
	constexpr int PIECES = D / 8;
	const struct view &v = sm.view;
	const int c = threadIdx.x % PIECES;

	for (int p = threadIdx.x / PIECES; p < ROWS; p += config<D, ROWS>::THREADS / PIECES) {
		const size_t row = (size_t)(v.row + (p < v.n_row ? p : 0));
		const bf16_t *from = a.q + (row * a.b.shape.q_heads + v.head) * D + c * 8;

		cp_async_16(smem_addr(sm.q) + swizzle<D>(p, c), from, p < v.n_row ? 16 : 0);
	}
}

template <int D, int ROWS>
static __device__ __forceinline__ void copy_keys(struct columns_smem<D, ROWS> &sm,
						 const struct columns_args &a, int stage)
{
	constexpr int PIECES = D / 8, AT_ONCE = config<D, ROWS>::THREADS / PIECES;
	const int c = threadIdx.x % PIECES, first = threadIdx.x / PIECES;
	const uint32_t k = smem_addr(sm.k[stage]), v = smem_addr(sm.v[stage]);

#pragma unroll 4
	for (int i = first; i < KEYS; i += AT_ONCE) {
		const int key = sm.key[stage][i], n = key < 0 ? 0 : 16;
		const size_t at = (size_t)(key < 0 ? 0 : key) * D + c * 8;

		cp_async_16(k + swizzle<D>(i, c), a.kv.k + at, n);
		cp_async_16(v + swizzle<D>(i, c), a.kv.v + at, n);
	}
}

/* Hide the keys that the band hides: columns from lo to hi[half] of the step. */
static __device__ __forceinline__ void mask_band(float (&s)[KEYS / 8][4], int lo,
						 const int (&hi)[2], int lane)
{
#pragma unroll
	for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const int col = n * 8 + 2 * (lane & 3) + (e & 1);

			if (col >= lo && col <= hi[e >> 1])
				s[n][e] = -INFINITY;
		}
}

/* ---- the kernel ---- */

template <int D, int M>
static __device__ __forceinline__ void write_rows(const struct columns_args &a,
						  const struct view &v, int first,
						  const float (&o)[M][D / 8][4],
						  const float (&max)[M][2],
						  const float (&sum)[M][2], int lane)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			const int p = first + m * 16 + h * 8 + lane / 4;
			const float all = quad_sum(sum[m][h]);
			const bool none = all == 0;	// NaN stays
			const float inv = none ? 0 : 1 / all;
			const size_t at = (size_t)(v.row + p) * a.b.shape.q_heads + v.head;

			if (p >= v.n_row)
				continue;
			if (a.lse && !(lane & 3))
				a.lse[at] = none ? -INFINITY :
					max[m][h] * softmax_scale<D> + logf(all);
#pragma unroll
			for (int d = 0; d < D / 8; d++)
				*(uint32_t *)(a.out + at * D + d * 8 + (lane & 3) * 2) =
					pack_bf16(o[m][d][2 * h] * inv, o[m][d][2 * h + 1] * inv);
		}
}

template <int D, int ROWS, bool SINKS>
static __global__ void __launch_bounds__(config<D, ROWS>::THREADS, config<D, ROWS>::PER_SM)
columns_sm80(const struct columns_args a)
{
	using C = config<D, ROWS>;
	extern __shared__ __align__(128) char smem[];
	struct columns_smem<D, ROWS> &sm = *(struct columns_smem<D, ROWS> *)smem;
	const struct view &v = sm.view;
	const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * C::M * 16;
	const uint32_t place = swizzle<D>(lane & 15, lane >> 4);
	float o[C::M][D / 8][4], max[C::M][2], sum[C::M][2];

	auto find = [&](int i) {
		if (threadIdx.x < KEYS && i < n_steps<C>(v))
			sm.key[i & 1][threadIdx.x] =
				find_key<C, ROWS>(v, a.b.shape.kv_heads, i, threadIdx.x);
	};
	auto copy = [&](int i) {
		if (i < n_steps<C>(v))
			copy_keys(sm, a, i & 1);
		cp_async_commit();
	};

#pragma unroll
	for (int m = 0; m < C::M; m++) {
#pragma unroll
		for (int d = 0; d < D / 8; d++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				o[m][d][e] = 0;
		max[m][0] = max[m][1] = -INFINITY;
		sum[m][0] = sum[m][1] = 0;
	}
	if (!threadIdx.x)
		sm.view = view_of(a);
	__syncthreads();
	if (SINKS)
#pragma unroll
		for (int i = 0; i < C::M * 2; i++)
			softmax_sink<D>(max[i / 2][i % 2], sum[i / 2][i % 2], a.sink[v.head], lane);
	copy_q(sm, a);
	find(0);
	find(1);
	__syncthreads();
	copy(0);
	for (int i = 0; i < n_steps<C>(v); i++) {
		const int stage = i & 1, column = first_column<C>(v, i);
		/* last key that the first row sees; in a run each row sees one more */
		const int seen = column < 0 ? v.first_pos - run_key<C>(v, i) : v.n_col - column - 1;
		float s[C::M][KEYS / 8][4];

		cp_async_wait<0>();
		__syncthreads();
		copy(i + 1);
		find(i + 2);
		multiply_qk<D>(s, smem_addr(sm.q + first * D) + place,
			       smem_addr(sm.k[stage]) + place);
#pragma unroll
		for (int m = 0; m < C::M; m++) {
			if (seen < KEYS - 1) {
				const int p = column < 0 ? first + m * 16 + lane / 4 : 0;
				const int cols[2] = { seen + p, seen + (column < 0 ? p + 8 : 0) };

				softmax_mask(s[m], cols, lane);
			}
			if (column < 0 && seen + v.n_row > v.far) {
				/* how far behind a row the step's first key lies */
				const int back = seen + first + m * 16 + lane / 4;
				const int hi[2] = {
					back < v.tail + seen ? back - v.far : -1,
					back + 8 < v.tail + seen ? back + 8 - v.far : -1
				};

				mask_band(s[m], v.init + seen, hi, lane);
			}
			softmax_step<KEYS / 8, D>(s[m], o[m], max[m], sum[m]);
		}
		multiply_pv<D>(o, s, smem_addr(sm.v[stage]) + place);
	}
	cp_async_wait<0>();
	write_rows<D>(a, v, first, o, max, sum, lane);
}

/* ---- launch ---- */

template <int D, int ROWS, bool SINKS>
static enum ar_status launch(const struct columns_args &a, cudaStream_t stream, struct ar_err *err)
{
	const int bytes = (int)sizeof(struct columns_smem<D, ROWS>);
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);

	if (st)
		return st;
	if ((size_t)bytes > gpu->smem_bytes)
		return ar_fail(err, AR_USAGE, "vertical-slash attention with head size %d takes %d "
			       "bytes of shared memory, this GPU has %d", D, bytes,
			       (int)gpu->smem_bytes);
	CU(cudaFuncSetAttribute(columns_sm80<D, ROWS, SINKS>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
	columns_sm80<D, ROWS, SINKS><<<a.b.n_tile, config<D, ROWS>::THREADS, bytes, stream>>>(a);
	CU_LAUNCHED();
out:
	return st;
}

template <int D, bool SINKS>
static enum ar_status launch_rows(const struct columns_args &a, cudaStream_t stream,
				  struct ar_err *err)
{
	return a.b.shape.page_tok == 64 ? launch<D, 64, SINKS>(a, stream, err) :
					  launch<D, 128, SINKS>(a, stream, err);
}

template <int D>
static enum ar_status launch_sinks(const struct columns_args &a, cudaStream_t stream,
				   struct ar_err *err)
{
	return a.sink ? launch_rows<D, true>(a, stream, err) :
			launch_rows<D, false>(a, stream, err);
}

enum ar_status columns_sm80_enqueue(const struct attn_call *call,
				    const struct executor_lists *lists, struct ar_err *err)
{
	const struct columns_args a = { *call->b, lists->columns, call->q, call->kv.bf16, call->out,
					call->lse, call->sink };
	cudaStream_t stream = (cudaStream_t)call->stream;

	switch (a.b.shape.head_dim) {
	case 64: return launch_sinks<64>(a, stream, err);
	case 128: return launch_sinks<128>(a, stream, err);
	default: return launch_sinks<256>(a, stream, err);
	}
}
