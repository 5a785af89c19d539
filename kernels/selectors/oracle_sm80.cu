/*
 * The oracle's masks on the device; the rule is in oracle.c.  Two kernels:
 *
 *   mass    grid (query block, query head), a warp per 16 rows.  Two passes over the keys: the
 *           maximum and sum of every row, then the probabilities, summed up by block.  Each is
 *           the Q K^T of dense attention, so the two cost about what dense attention does; a bound
 *           to compare with need not be fast.
 *   pick    a thread block per request.  The k-th largest mass by four rounds of counting over
 *           eight bits each (masses are not negative, so their bits sort like they do), then the
 *           mask words in the order of cells, so that of equal masses the lower numbers win.
 */
#include "config.h"
#include "kernels/selectors/oracle.h"

#include <cfloat>
#include <cmath>

#include "kernels/cuda.h"
#include "kernels/device.cuh"
#include "kernels/qblk.cuh"

namespace {

constexpr int KEYS = 64;	// of a step
constexpr int PICK_WARPS = 32;

/* ---- mass ---- */

/* Lane 4g + t of an mma's a operand: rows g and g + 8 of the warp's 16. */
template <int D>
__device__ __forceinline__ void load_rows(uint32_t (&a)[D / 16][4], const struct attn_batch &b,
					  const struct qblk &s, const bf16_t *__restrict__ q, int head)
{
	const int lane = threadIdx.x % 32, base = threadIdx.x / 32 * 16 + lane / 4;

#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int row = base + 8 * half;
		const bool own = row >= s.lo && row < s.hi;
		const size_t at = (size_t)(own ? s.row + row : 0) * b.shape.q_heads + head;
		const uint32_t *src = (const uint32_t *)(q + at * D) + lane % 4;

#pragma unroll
		for (int k = 0; k < D / 16; k++) {
			a[k][half] = own ? src[k * 8] : 0;
			a[k][half + 2] = own ? src[k * 8 + 4] : 0;
		}
	}
}

/* Keys [key, key + KEYS) of the request to shared memory, zeros from end on. */
template <int D>
__device__ __forceinline__ void load_keys(bf16_t *tile, const struct attn_batch &b, int req, int key,
					  int end, int kv_head, const bf16_t *__restrict__ k)
{
	const int tok = b.shape.page_tok;
	const size_t page = b.page[b.page0[req] + key / tok];
	const bf16_t *src = k + ((page * b.shape.kv_heads + kv_head) * tok + key % tok) * D;

	for (int i = threadIdx.x; i < KEYS * D / 8; i += blockDim.x) {
		const int row = i / (D / 8), c = i % (D / 8);
		const int bytes = key + row < end ? 16 : 0;

		cp_async_16(smem_addr(tile) + swizzle<D>(row, c), src + (bytes ? row * D + c * 8 : 0),
			    bytes);
	}
	cp_async_commit();
	cp_async_wait<0>();
	__syncthreads();
}

/* x[n]: keys 8n .. 8n + 7 of the step against the warp's rows, in units of log2; -inf where a row
 * does not see a key or is none of the chunk. */
template <int D>
__device__ __forceinline__ void scores(float (&x)[KEYS / 8][4], const uint32_t (&a)[D / 16][4],
				       const bf16_t *tile, const struct qblk &s, int pos0, int key,
				       float scale)
{
	const int lane = threadIdx.x % 32, base = threadIdx.x / 32 * 16 + lane / 4;

#pragma unroll
	for (int n = 0; n < KEYS / 8; n++) {
		x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
#pragma unroll
		for (int k = 0; k < D / 16; k += 2) {
			uint32_t r[4];

			ldmatrix_x4(r, smem_addr(tile) +
				    swizzle<D>(n * 8 + lane % 8, k * 2 + lane / 8));
			mma_m16n8k16(x[n], a[k], r[0], r[1]);
			mma_m16n8k16(x[n], a[k + 1], r[2], r[3]);
		}
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const int row = base + i / 2 * 8, at = key + n * 8 + lane % 4 * 2 + i % 2;

			x[n][i] = row >= s.lo && row < s.hi && at <= pos0 + row ? x[n][i] * scale :
										 -INFINITY;
		}
	}
}

template <int D>
__global__ void __launch_bounds__(256)
oracle_mass(struct attn_batch b, const bf16_t *__restrict__ q, const bf16_t *__restrict__ k,
	    float scale, float *__restrict__ mass)
{
	__shared__ __align__(128) bf16_t tile[KEYS * D];
	__shared__ float part[8];
	const struct qblk s = qblk_at(b, blockIdx.x);
	const int tok = b.shape.page_tok, pos0 = s.blk * tok, end = pos0 + s.hi;
	const int head = blockIdx.y, kv_head = head / (b.shape.q_heads / b.shape.kv_heads);
	uint32_t a[D / 16][4];
	float x[KEYS / 8][4], max[2] = { -FLT_MAX, -FLT_MAX }, sum[2] = { 0, 0 };

	load_rows<D>(a, b, s, q, head);
	for (int key = 0; key < end; key += KEYS) {
		load_keys<D>(tile, b, s.req, key, end, kv_head, k);
		scores<D>(x, a, tile, s, pos0, key, scale);
		for (int i = 0; i < 2; i++) {
			float top = max[i], add = 0;

#pragma unroll
			for (int n = 0; n < KEYS / 8; n++)
				top = fmaxf(top, fmaxf(x[n][2 * i], x[n][2 * i + 1]));
			top = quad_max(top);
#pragma unroll
			for (int n = 0; n < KEYS / 8; n++)
				add += ex2(x[n][2 * i] - top) + ex2(x[n][2 * i + 1] - top);
			sum[i] = sum[i] * ex2(max[i] - top) + quad_sum(add);
			max[i] = top;
		}
		__syncthreads();
	}
	for (int i = 0; i < 2; i++)	/* a row that is none of the chunk has no mass: x is -inf */
		max[i] += log2f(fmaxf(sum[i], FLT_MIN));
	mass += ((size_t)blockIdx.x * b.shape.q_heads + head) * b.max_kv_blk;
	for (int j = 0; j <= s.blk; j++) {
		float here = 0;

		for (int key = j * tok; key < (j + 1) * tok && key < end; key += KEYS) {
			load_keys<D>(tile, b, s.req, key, end, kv_head, k);
			scores<D>(x, a, tile, s, pos0, key, scale);
#pragma unroll
			for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					here += ex2(x[n][i] - max[i / 2]);
			__syncthreads();
		}
		here = warp_sum(here);
		if (threadIdx.x % 32 == 0)
			part[threadIdx.x / 32] = here;
		__syncthreads();
		if (threadIdx.x == 0) {
			for (int w = 1; w < (int)blockDim.x / 32; w++)
				here += part[w];
			mass[j] = here;
		}
	}
}

/* ---- pick ---- */

struct pick_smem {
	int count[256];
	int ties[PICK_WARPS];
	uint32_t prefix;
	int64_t rank;
};

/* The masses of one request, row by row. */
struct cells {
	const uint32_t *mass;		/* the bits */
	int rows, q_heads, qa, stride;
};

/* Bits of the rank-th largest mass, and how many that are as large are to be kept. */
__device__ void find(const struct cells &c, int64_t rank, struct pick_smem &sm)
{
	if (threadIdx.x == 0) {
		sm.prefix = 0;
		sm.rank = rank;
	}
	for (int shift = 24; shift >= 0; shift -= 8) {
		if (threadIdx.x < 256)
			sm.count[threadIdx.x] = 0;
		__syncthreads();
		const uint32_t prefix = sm.prefix;

		for (int row = threadIdx.x / 32; row < c.rows; row += PICK_WARPS)
			for (int j = threadIdx.x % 32; j <= c.qa + row / c.q_heads; j += 32) {
				const uint32_t x = c.mass[(size_t)row * c.stride + j];

				if ((uint64_t)x >> (shift + 8) == (uint64_t)prefix >> (shift + 8))
					atomicAdd(&sm.count[x >> shift & 255], 1);
			}
		__syncthreads();
		if (threadIdx.x == 0) {
			int digit = 255;

			while (digit && sm.rank > sm.count[digit])
				sm.rank -= sm.count[digit--];
			sm.prefix = prefix | (uint32_t)digit << shift;
		}
		__syncthreads();
	}
}

/* Keep what is larger than the found one, and the first sm.rank of those as large. */
__device__ void write(const struct cells &c, bool any, int words, uint32_t *__restrict__ mask,
		      struct pick_smem &sm)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const uint32_t least = sm.prefix;
	int64_t before = 0;

	for (int first = 0; first < c.rows * words; first += PICK_WARPS) {
		const int at = first + warp, row = at / words, j = at % words * 32 + lane;
		const bool cell = any && row < c.rows && j <= c.qa + row / c.q_heads;
		const uint32_t x = cell ? c.mass[(size_t)row * c.stride + j] : 0;
		const uint32_t tie = __ballot_sync(~0u, cell && x == least);
		int64_t mine = before + __popc(tie & ((1u << lane) - 1));

		if (lane == 0)
			sm.ties[warp] = __popc(tie);
		__syncthreads();
		for (int w = 0; w < PICK_WARPS; w++) {
			mine += w < warp ? sm.ties[w] : 0;
			before += sm.ties[w];
		}
		const uint32_t bits = __ballot_sync(
			~0u, cell && (x > least || (x == least && mine < sm.rank)));

		if (lane == 0 && row < c.rows)
			mask[at] = bits;
		__syncthreads();
	}
}

__global__ void __launch_bounds__(PICK_WARPS * 32)
oracle_pick(struct attn_batch b, struct oracle rule, const float *__restrict__ mass,
	    uint32_t *__restrict__ mask)
{
	__shared__ struct pick_smem sm;
	const int r = blockIdx.x, first = b.qblk0[r], n = b.qblk0[r + 1] - first;
	const size_t row = (size_t)first * b.shape.q_heads;
	const struct cells c = { (const uint32_t *)mass + row * b.max_kv_blk,
				 n * b.shape.q_heads, b.shape.q_heads,
				 b.ctx[r] / b.shape.page_tok, b.max_kv_blk };
	const int64_t keep = oracle_count(&rule, oracle_cells(c.q_heads, c.qa, n));

	if (keep)
		find(c, keep, sm);
	write(c, keep > 0, b.mask_words, mask + row * b.mask_words, sm);
}

}

size_t oracle_work_bytes(const void *, const struct attn_shape *s, const struct attn_limits *l)
{
	return (size_t)attn_max_qblk(l, s->page_tok) * s->q_heads * l->max_kv_blk * sizeof(float);
}

enum ar_status oracle_enqueue(const struct attn_batch *b, const void *self, int,
			      const bf16_t *q, const struct kv_cache *kv, void *,
			      const struct selection *out, void *work, void *stream,
			      struct ar_err *err)
{
	const struct attn_shape *s = &b->shape;
	const float scale = (float)(1.4426950408889634 / sqrt((double)s->head_dim));
	const dim3 grid(b->n_qblk, s->q_heads);
	auto kernel = s->head_dim == 64 ? oracle_mass<64> : s->head_dim == 128 ? oracle_mass<128> :
									 oracle_mass<256>;
	enum ar_status st = AR_OK;

	if (s->head_dim != 64 && s->head_dim != 128 && s->head_dim != 256)
		return ar_fail(err, AR_USAGE, "oracle on CUDA wants heads of 64, 128 or 256, not %d",
			       s->head_dim);
	if (!b->n_qblk)
		return AR_OK;
	kernel<<<grid, s->page_tok / 16 * 32, 0, (cudaStream_t)stream>>>(*b, q, kv->k, scale,
									 (float *)work);
	CU_LAUNCHED();
	oracle_pick<<<b->n_req, PICK_WARPS * 32, 0, (cudaStream_t)stream>>>
		(*b, *(const struct oracle *)self, (const float *)work, out->mask);
	CU_LAUNCHED();
out:
	return st;
}
