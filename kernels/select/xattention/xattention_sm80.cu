/*
 * XAttention's selection on the device; the rule is in xattention.c.  Two kernels:
 *
 *   score   a product of reduced queries and reduced keys: xattention_sm90.cu, and for devices
 *           before Hopper the one below.
 *   select  a thread block per (query block, head): every row's sum, the masses, and the bits.
 *
 * Arithmetic: 2 Hq Nq Nkv D / S, at S = 8 1/16 of dense attention's.  For 8 chunks of 1024 on 128K
 * tokens, 16 heads of 128 over 4 KV heads that is 550 GFLOP.  Bytes: K once from memory, 1.1 GB or
 * 0.25 ms; 67 MB of sums, written once and read three times.
 *
 * The score kernel below, by mma.sync:
 *
 *   registers   accumulators 4 x 8 x 4 = 128, rows 16, columns 4: one block of 256 threads a SM
 *   shared      4 stages of (128 + 256) x 64 elements: 192 KiB
 *   per step    8 warps of 64 x 64; 16 KiB of ldmatrix a warp feed 128 mma
 */
#include "config.h"
#include "kernels/select/xattention/xattention.cuh"

#include <cfloat>

#include "base/gpu.h"
#include "kernels/prim/cuda.h"
#include "kernels/select/qblk.cuh"
#include "kernels/select/top.cuh"

namespace {

constexpr int WARPS = 8;
constexpr int ROWS = 128, COLS = 256;	// of a tile, in reduced rows and columns
constexpr int DEPTH = 64;		// elements of a step
constexpr int STAGES = 4;
constexpr int MAX_RUN = 8;		// column tiles of a thread block
constexpr int MAX_HEADS = 256;

struct rule {
	int stride;
	int tail;
	int64_t last_dense;
	float threshold[MAX_HEADS];
};

__device__ __forceinline__ bool in_tail(const struct attn_batch &b, const struct rule &rule, int r)
{
	return xattention_in_tail(rule.last_dense, rule.tail, b.rows.left[r]);
}

/* ---- score ---- */

struct score_smem {
	bf16_t q[STAGES][ROWS * DEPTH];
	bf16_t k[STAGES][COLS * DEPTH];
	struct xattention_row row[ROWS];
	int page[MAX_RUN * COLS / 4];	// of the blocks from the first tile's first one on
};
static_assert(sizeof(struct score_smem) <= 227 * 1024, "one block a SM");

/* Where a thread block works. */
struct spot {
	int req, kv_head;
	int ctx, end;		// tokens of the chunk
	int tile, n_tile;	// column tiles
	int last;		// largest reduced row
};

/* One step of a tile: 64 elements of the token p of every reduced row and column. */
template <int PER>
__device__ __forceinline__ void load(struct score_smem &sm, int stage,
				     const struct xattention_job &j, const struct spot &s, int nth,
				     int step)
{
	const struct attn_shape &shape = j.b.shape;
	const int dim = shape.head_dim, p = step / (dim / DEPTH), piece = threadIdx.x % 8;
	const int d = step % (dim / DEPTH) * DEPTH + piece * 8;
	const int n_row = s.end - s.ctx, row0 = j.b.rows.row0[s.req];

#pragma unroll
	for (int i = 0; i < ROWS / 32; i++) {
		const int at = threadIdx.x / 8 + i * 32;
		const struct xattention_row row = sm.row[at];
		const int t = (row.a + 1) * j.stride - 1 - p - s.ctx;
		const bool own = row.head >= 0 && t >= 0 && t < n_row;
		const size_t from = ((size_t)(row0 + t) * shape.q_heads + row.head) * dim + d;

		cp_async_16(smem_addr(sm.q[stage]) + swizzle<DEPTH>(at, piece),
			    j.q + (own ? from : 0), own ? 16 : 0);
	}
#pragma unroll
	for (int i = 0; i < COLS / 32; i++) {
		const int at = threadIdx.x / 8 + i * 32, c = nth * COLS + at;
		const int tok = c % PER * j.stride + p;
		const bool own = (s.tile * COLS + c) * j.stride + p < s.end;
		const size_t page = sm.page[c / PER];
		const size_t from = ((page * shape.kv_heads + s.kv_head) * shape.page_tok + tok) *
				    dim + d;

		cp_async_16(smem_addr(sm.k[stage]) + swizzle<DEPTH>(at, piece),
			    j.k + (own ? from : 0), own ? 16 : 0);
	}
}

/* acc[m][n]: rows 16 m and columns 8 n of the warp's 64 x 64. */
__device__ __forceinline__ void multiply(float (&acc)[4][8][4], const struct score_smem &sm,
					 int stage)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t q = smem_addr(sm.q[stage]), k = smem_addr(sm.k[stage]);
	const int row = warp / 4 * 64 + lane % 16, col = warp % 4 * 64 + lane / 16 * 8 + lane % 8;

#pragma unroll
	for (int kk = 0; kk < DEPTH / 16; kk++) {
		uint32_t a[4][4];

#pragma unroll
		for (int m = 0; m < 4; m++)
			ldmatrix_x4(a[m], q + swizzle<DEPTH>(row + 16 * m, kk * 2 + lane / 16));
#pragma unroll
		for (int n = 0; n < 4; n++) {
			uint32_t b[4];

			ldmatrix_x4(b, k + swizzle<DEPTH>(col + 16 * n, kk * 2 + lane / 8 % 2));
#pragma unroll
			for (int m = 0; m < 4; m++) {
				mma_m16n8k16(acc[m][2 * n], a[m], b[0], b[1]);
				mma_m16n8k16(acc[m][2 * n + 1], a[m], b[2], b[3]);
			}
		}
	}
}

/* Blocks that no row of theirs sees get no sum: nobody reads it. */
template <int PER>
__device__ __forceinline__ void store(float (&acc)[4][8][4], const struct score_smem &sm,
				      const struct xattention_job &j, const struct spot &s,
				      int tile)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int col = tile * COLS + warp % 4 * 64;

#pragma unroll
	for (int m = 0; m < 4; m++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			const struct xattention_row row =
				sm.row[warp / 4 * 64 + m * 16 + half * 8 + lane / 4];
			float x[8][2];

#pragma unroll
			for (int n = 0; n < 8; n++)
#pragma unroll
				for (int e = 0; e < 2; e++) {
					const int c = col + n * 8 + lane % 4 * 2 + e;

					x[n][e] = c <= row.a ? acc[m][n][half * 2 + e] : -INFINITY;
					acc[m][n][half * 2 + e] = 0;
				}
			xattention_store<PER>(x, j, s.req, row, col);
		}
}

/* Rows and pages of the thread block to shared memory; false: it has no work. */
template <int PER>
__device__ bool begin(struct score_smem &sm, const struct xattention_job &j, struct spot &s)
{
	const struct attn_shape &shape = j.b.shape;
	const int group = shape.q_heads / shape.kv_heads, blocks = COLS / PER;
	int tile, first, end;

	s.kv_head = blockIdx.z;
	s.req = tiles_find(j.b.rows.n_req, blockIdx.x, tile, [&](int r) {
		xattention_reduced(j, r, first, end);
		return ((end - first) * group + ROWS - 1) / ROWS;
	});
	if (s.req < 0)
		return false;
	s.ctx = j.b.rows.pos0[s.req];
	s.end = s.ctx + j.b.rows.row0[s.req + 1] - j.b.rows.row0[s.req];
	xattention_reduced(j, s.req, first, end);
	s.last = min(first + (tile * ROWS + ROWS - 1) / group, end - 1);
	s.tile = blockIdx.y * j.run;
	s.n_tile = min(j.run, s.last / COLS + 1 - s.tile);
	if (s.n_tile <= 0)
		return false;
	for (int i = threadIdx.x; i < ROWS; i += WARPS * 32) {
		const int a = first + (tile * ROWS + i) / group;

		sm.row[i].a = a;
		sm.row[i].head = a < end ? s.kv_head * group + (tile * ROWS + i) % group : -1;
	}
	for (int i = threadIdx.x; i < s.n_tile * blocks; i += WARPS * 32) {
		const int blk = s.tile * blocks + i;

		sm.page[i] = blk * shape.page_tok < s.end ?
			     j.b.keys.page[j.b.keys.page0[s.req] + blk] : 0;
	}
	__syncthreads();
	return true;
}

template <int PER>
__global__ void __launch_bounds__(WARPS * 32)
xattention_score(const __grid_constant__ struct xattention_job j)
{
	extern __shared__ __align__(1024) char dynamic[];
	struct score_smem &sm = *(struct score_smem *)dynamic;
	const int steps = j.stride * j.b.shape.head_dim / DEPTH;
	float acc[4][8][4] = {};
	struct spot s;
	int nth = 0, step = 0;		// of the next load
	int done = 0;			// steps of the current tile

	if (!begin<PER>(sm, j, s))
		return;
	const int total = s.n_tile * steps;

	for (int i = 0; i < total + STAGES - 1; i++) {
		if (i >= STAGES - 1) {
			cp_async_wait<STAGES - 2>();
			__syncthreads();
		}
		if (nth < s.n_tile) {
			load<PER>(sm, i % STAGES, j, s, nth, step);
			if (++step == steps) {
				step = 0;
				nth++;
			}
		}
		cp_async_commit();
		if (i < STAGES - 1)
			continue;
		multiply(acc, sm, (i - STAGES + 1) % STAGES);
		if (++done % steps == 0)
			store<PER>(acc, sm, j, s, s.tile + done / steps - 1);
	}
}

/* ---- select ---- */

/* The masses of blocks [0, blk] into the first row of lse, as bits of floats; lo and hi: the
 * reduced rows that take part. */
__device__ void masses(float *lse, int stride, int lo, int hi, int blk)
{
	__shared__ float base[32];	// log2 of a reduced row's sum
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

	for (int row = lo + warp; row < hi; row += TOP_WARPS) {
		const float *x = lse + (size_t)row * stride;
		float top = -FLT_MAX, sum = 0;

		for (int j = lane; j <= blk; j += 32)
			top = fmaxf(top, x[j]);
		top = warp_max(top);
		for (int j = lane; j <= blk; j += 32)
			sum += ex2(x[j] - top);
		sum = warp_sum(sum);
		if (lane == 0)
			base[row] = top + __log2f(sum);
	}
	__syncthreads();
	for (int j = threadIdx.x; j <= blk; j += TOP_THREADS) {
		float w = 0;

		for (int row = lo; row < hi; row++)
			w += ex2(lse[(size_t)row * stride + j] - base[row]);
		lse[j] = __uint_as_float(xattention_units(w));
	}
	__syncthreads();
}

/* The blocks between the first and the diagonal that are kept. */
__device__ struct top find_kept(const float *mass, int blk, float threshold, struct top_smem &sm)
{
	const auto key = [=](int i) { return __float_as_uint(mass[i]); };
	const auto own = [](uint32_t key) { return key; };
	const uint32_t forced = key(0) + (blk ? key(blk) : 0);
	const uint32_t total = (uint32_t)top_sum(key, blk + 1, 0, own, sm);
	const uint32_t need = xattention_need(threshold, total);

	if (need <= forced)
		return top_none();
	return top_find([=](int i) { return key(i + 1); }, blk - 1, need - forced, own, sm);
}

__global__ void __launch_bounds__(TOP_THREADS)
xattention_select(struct attn_batch b, const __grid_constant__ struct rule rule, float *lse,
		  uint32_t *__restrict__ mask)
{
	__shared__ struct top_smem sm;
	const struct qblk s = qblk_at(b, blockIdx.x);
	const int per = b.shape.page_tok / rule.stride;
	const size_t row = (size_t)blockIdx.x * b.shape.q_heads + blockIdx.y;
	const float threshold = rule.threshold[blockIdx.y];
	const bool one = b.rows.row0[s.req + 1] - b.rows.row0[s.req] == 1;
	const bool all = threshold >= 1 || one || in_tail(b, rule, s.req);
	struct top kept = top_none();

	lse += row * per * b.keys.max_kv_blk;
	if (!all) {
		masses(lse, b.keys.max_kv_blk, s.lo / rule.stride,
		       (s.hi + rule.stride - 1) / rule.stride, s.blk);
		kept = find_kept(lse, s.blk, threshold, sm);
	}
	top_write([=](int i) { return __float_as_uint(lse[i]); }, s.blk, all, kept,
		  mask + row * b.keys.mask_words, b.keys.mask_words, sm);
}

/* ---- launch ---- */

template <int PER>
enum ar_status score(const struct xattention_job &j, cudaStream_t stream, struct ar_err *err)
{
	const struct attn_shape *s = &j.b.shape;
	const int bytes = (int)sizeof(struct score_smem), group = s->q_heads / s->kv_heads;
	const int rows = (int)xattention_rows(j.b.rows.n_row, j.b.rows.n_req, j.stride) * group;
	const int tiles = (j.b.keys.max_kv_blk * PER + COLS - 1) / COLS;
	struct xattention_job with = j;
	dim3 grid(rows / ROWS + j.b.rows.n_req, 0, s->kv_heads);
	enum ar_status st = AR_OK;

	/* Long runs fill the pipeline less often, but a GPU wants a few hundred blocks. */
	with.run = max(1, min(MAX_RUN, (int)(grid.x * grid.z * (size_t)tiles / 1024)));
	grid.y = (tiles + with.run - 1) / with.run;
	CU(cudaFuncSetAttribute(xattention_score<PER>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
	xattention_score<PER><<<grid, WARPS * 32, bytes, stream>>>(with);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status score_sm80(const struct xattention_job &j, cudaStream_t stream, struct ar_err *err)
{
	switch (j.b.shape.page_tok / j.stride) {
	case 4:
		return score<4>(j, stream, err);
	case 8:
		return score<8>(j, stream, err);
	case 16:
		return score<16>(j, stream, err);
	default:
		return score<32>(j, stream, err);
	}
}

enum ar_status check(const struct attn_shape *s, int stride, struct ar_err *err)
{
	const int per = s->page_tok / stride;

	if ((per == 4 || per == 8 || per == 16 || per == 32) && s->page_tok % stride == 0 &&
	    s->head_dim % DEPTH == 0 && s->q_heads <= MAX_HEADS)
		return AR_OK;
	return ar_fail(err, AR_USAGE, "xattention on CUDA wants blocks of 4 to 32 strides, heads "
		       "of a multiple of %d and at most %d of them, not %d tokens, %d and %d",
		       DEPTH, MAX_HEADS, s->page_tok, s->head_dim, s->q_heads);
}

/* Point j into work; returns the bytes that takes. */
size_t lay_out(struct xattention_job *j, const struct attn_shape *s, int n_qblk, int n_row,
	       int n_req, int max_kv_blk, char *work)
{
	const size_t sums = (size_t)n_qblk * s->q_heads * (s->page_tok / j->stride) * max_kv_blk;
	const size_t rows = xattention_rows(n_row, n_req, j->stride) * s->q_heads * j->stride;
	const size_t last = (size_t)n_req * s->kv_heads * s->page_tok;

	j->lse = (float *)work;
	j->row = (bf16_t *)(work + (sums * sizeof *j->lse + 255) / 256 * 256);
	j->last = j->row + rows * s->head_dim;
	return (size_t)((char *)(j->last + last * s->head_dim) - work);
}

/* n_sm: of a device with Hopper's instructions, or 0. */
enum ar_status enqueue(const struct attn_call *call, const struct xattention_self *x, int n_sm,
		       uint32_t *mask, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	cudaStream_t stream = (cudaStream_t)call->stream;
	struct xattention_job j = { *b, call->q, call->kv.k };
	struct rule rule = { x->stride, x->tail, x->last_dense, {} };
	enum ar_status st;

	j.scale = (float)(1.4426950408889634 / (sqrt((double)s->head_dim) * x->stride));
	j.stride = x->stride;
	j.tail = x->tail;
	j.last_dense = x->last_dense;
	lay_out(&j, s, b->rows.n_qblk, b->rows.n_row, b->rows.n_req, b->keys.max_kv_blk,
		(char *)call->work);
	for (int h = 0; h < s->q_heads; h++)
		rule.threshold[h] = x->threshold[(size_t)call->layer * x->q_heads + h];
	st = n_sm ? xattention_score_sm90(&j, n_sm, stream, err) : score_sm80(j, stream, err);
	if (st)
		return st;
	xattention_select<<<dim3(b->rows.n_qblk, s->q_heads), TOP_THREADS, 0, stream>>>
		(*b, rule, j.lse, mask);
	CU_LAUNCHED();
out:
	return st;
}

}

size_t xattention_work_bytes(const void *self, const struct attn_shape *s,
			     const struct attn_limits *l)
{
	struct xattention_job j = {};

	j.stride = ((const struct xattention_self *)self)->stride;
	return lay_out(&j, s, attn_max_qblk(l, s->page_tok), l->max_row, l->max_req, l->max_kv_blk,
		       NULL);
}

enum ar_status xattention_enqueue(const struct attn_call *call, const void *self,
				  const struct selection *out, struct ar_err *err)
{
	const struct xattention_self *x = (const struct xattention_self *)self;
	enum ar_status st = check(&call->b->shape, x->stride, err);
	const struct gpu *gpu = NULL;

	if (!st)
		st = gpu_current(&gpu, err);
	if (st || !call->b->rows.n_qblk)
		return st;
	return enqueue(call, x, gpu_is_hopper(gpu) ? gpu->n_sm : 0, out->mask, err);
}

enum ar_status xattention_sm80_enqueue(const struct attn_call *call, const void *self,
				       const struct selection *out, struct ar_err *err)
{
	return enqueue(call, (const struct xattention_self *)self, 0, out->mask, err);
}
