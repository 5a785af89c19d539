/*
 * ProxyAttn's selection on the device; the rule is in proxyattn.c.  The rows that are looked at lie
 * in strips: one for each (group, request), the sampled rows of its query blocks, and one for each
 * (request, KV head), the probing rows of its heads.  Kernels:
 *
 *   mean    the groups' queries.
 *   rows    once for either kind of strip; grid (128 rows of a strip, 8 blocks of keys, group or
 *           KV head): for each row and block the largest logit and the sum of exp relative to
 *           it.  So one pass over the keys is enough: attention itself, one number for a row and
 *           key, is never stored, and what is stored is 1/64 or 1/128 of it.
 *   lines   a thread block per (group, query block) and (request, head): the logarithms of the
 *           rows' sums, then by block the maximum, or the sum, over rows.
 *   need    a thread block per (request, head): how many blocks its mass takes.
 *   pick    a thread block per (query block, head).
 *
 * The products bound it: for 8 requests of 128K tokens and chunks of 1024, 16 query heads over 4 KV
 * heads, D 128, 4 groups, they are 2 (4 8192 + 16 8 128) 131072 128 = 1.6 TFLOP.  On an H200
 * that takes 9.6 ms where dense attention takes 14.2; with q-stride=8, 0.2 TFLOP, 2.0 ms.
 */
#include "config.h"
#include "kernels/selectors/proxyattn.h"

#include <cfloat>
#include <cmath>
#include <cuda_bf16.h>

#include "kernels/cuda.h"
#include "kernels/device.cuh"
#include "kernels/qblk.cuh"
#include "kernels/selectors/top.cuh"

namespace {

constexpr int ROWS = 128;		// of a tile
constexpr int KEYS = 64;		// of a step
constexpr int COLS = 32;		// of them scored at once: two thread blocks a SM
constexpr int SEGMENT = 8;		// blocks of keys that a thread block goes through

/* Largest logit of a row in a block, in units of log2, and the sum of exp2 relative to it. */
struct peak {
	float max, sum;
};

struct job {
	struct attn_batch b;
	struct proxyattn p;
	const bf16_t *q, *k;
	int n_group, per_blk;		// per_blk: rows of a query block in a group's strip
	int64_t n_proxy, n_row;		// rows of the groups' strips, of all
	int n_line;			// lines of the groups; those of the heads follow
	bf16_t *mean;			// [n_proxy][head_dim]
	struct peak *peak;		// [max_kv_blk][n_row]
	float *score;			// [line][max_kv_blk]
	int32_t *need;			// [request][head]
};

/* ---- strips ---- */

struct strip {
	int req, n;
	int64_t row;			// number of its first row
	int kv, kv_end;			// heads whose keys it meets
	int per_line;			// rows of a query block or a head
};

__device__ __forceinline__ int rows_in(const struct attn_batch &b, int r)
{
	return b.row0[r + 1] - b.row0[r];
}

__device__ __forceinline__ int end_of(const struct attn_batch &b, int r)
{
	return b.ctx[r] + rows_in(b, r);
}

__device__ __forceinline__ struct strip group_strip(const struct job &j, int r, int g)
{
	const struct proxy_heads h = proxyattn_heads(&j.p, &j.b.shape, g);
	const int blocks = rows_in(j.b, r) > 1 ? j.b.qblk0[r + 1] - j.b.qblk0[r] : 0;

	return { r, blocks * j.per_blk, ((int64_t)g * j.b.n_qblk + j.b.qblk0[r]) * j.per_blk,
		 h.kv, h.kv_end, j.per_blk };
}

/* A head probes with rows / q-stride + 1 rows of the request at most, hence where they begin. */
__device__ __forceinline__ struct strip head_strip(const struct job &j, int r, int kv_head)
{
	const int stride = (int)j.p.stride, n_row = rows_in(j.b, r);
	const int n = n_row > 1 ? (min(n_row, j.b.shape.page_tok) + stride - 1) / stride : 0;
	const int heads = j.b.shape.q_heads / j.b.shape.kv_heads;
	const int64_t first = (int64_t)(j.b.row0[r] / stride + r) * j.b.shape.q_heads;

	return { r, heads * n, j.n_proxy + first + (int64_t)kv_head * heads * n,
		 kv_head, kv_head + 1, n };
}

/* Position of row i of a strip; -1: there is none. */
__device__ __forceinline__ int group_pos(const struct job &j, const struct strip &s, int i)
{
	const int tok = j.b.shape.page_tok, ctx = j.b.ctx[s.req];
	const int blk = ctx / tok + i / s.per_line;
	const int pos = min((blk + 1) * tok, end_of(j.b, s.req)) - 1 -
			i % s.per_line * (int)j.p.stride;

	return i < s.n && pos >= max(blk * tok, ctx) ? pos : -1;
}

__device__ __forceinline__ int head_pos(const struct job &j, const struct strip &s, int i)
{
	return i < s.n ? end_of(j.b, s.req) - 1 - i % s.per_line * (int)j.p.stride : -1;
}

/* ---- mean ---- */

__device__ __forceinline__ float widen(bf16_t x)
{
	return __uint_as_float((uint32_t)x << 16);
}

/* Grid (query block, group). */
__global__ void __launch_bounds__(256) proxy_mean(struct job j)
{
	const int r = qblk_at(j.b, blockIdx.x).req, g = blockIdx.y, dim = j.b.shape.head_dim;
	const int first = (blockIdx.x - j.b.qblk0[r]) * j.per_blk;
	const struct strip s = group_strip(j, r, g);
	const struct proxy_heads h = proxyattn_heads(&j.p, &j.b.shape, g);

	for (int i = threadIdx.x; i < j.per_blk * dim; i += blockDim.x) {
		const int pos = group_pos(j, s, first + i / dim);
		const int64_t row = (int64_t)(j.b.row0[r] + pos - j.b.ctx[r]) * j.b.shape.q_heads;
		float sum = 0;

		if (pos < 0)
			continue;
		for (int k = h.q; k < h.q_end; k++)
			sum += widen(j.q[(row + k) * dim + i % dim]);
		j.mean[(s.row + first) * dim + i] = __bfloat16_as_ushort(
			__float2bfloat16_rn(sum / (float)(h.q_end - h.q)));
	}
}

/* ---- rows ---- */

template <int D>
struct rows_smem {
	bf16_t key[2][KEYS * D];
};

/* The mean of 4 bytes of n heads, to bf16. */
__device__ __forceinline__ uint32_t mean_key(const bf16_t *src, int n, size_t pitch)
{
	float lo = 0, hi = 0;

	for (int h = 0; h < n; h++) {
		const uint32_t x = *(const uint32_t *)(src + h * pitch);

		lo += __uint_as_float(x << 16);
		hi += __uint_as_float(x & 0xffff0000);
	}
	return pack_bf16(lo / (float)n, hi / (float)n);
}

/* KEYS keys of one head, of which there are as many as there says, to shared memory. */
template <int D>
__device__ __forceinline__ void copy_keys(const bf16_t *src, int there, bf16_t *tile)
{
#pragma unroll
	for (int i = 0; i < KEYS * D / 8 / (ROWS * 2); i++) {
		const int at = i * ROWS * 2 + threadIdx.x, row = at / (D / 8), c = at % (D / 8);

		cp_async_16(smem_addr(tile) + swizzle<D>(row, c), src + at * 8,
			    row < there ? 16 : 0);
	}
}

/* The same of the mean of n heads. */
template <int D>
__device__ __forceinline__ void mean_keys(const bf16_t *src, int there, int n, size_t pitch,
					  bf16_t *tile)
{
#pragma unroll 2
	for (int i = 0; i < KEYS * D / 2 / (ROWS * 2); i++) {
		const int at = i * ROWS * 2 + threadIdx.x, row = at / (D / 2), c = at % (D / 2);
		char *dst = (char *)tile + swizzle<D>(row, c / 4) + c % 4 * 4;

		*(uint32_t *)dst = row < there ? mean_key(src + at * 2, n, pitch) : 0;
	}
}

/* Keys [key, key + KEYS) of the strip's heads to shared memory, zeros past the chunk's end. */
template <int D>
__device__ __forceinline__ void load_keys(const struct job &j, const struct strip &s, int key,
					  bf16_t *tile)
{
	const int tok = j.b.shape.page_tok, n = s.kv_end - s.kv, there = end_of(j.b, s.req) - key;
	const size_t page = j.b.page[j.b.page0[s.req] + key / tok], pitch = (size_t)tok * D;
	const bf16_t *src = j.k + (page * j.b.shape.kv_heads + s.kv) * pitch + key % tok * D;

	if (n == 1)
		copy_keys<D>(src, there, tile);
	else
		mean_keys<D>(src, there, n, pitch, tile);
	cp_async_commit();
}

/* Lane 4g + t of an mma's a operand: rows g and g + 8 of the warp's 16. */
template <int D>
__device__ __forceinline__ void load_row(uint32_t (&a)[D / 16][4], int half, const bf16_t *row,
					 bool there)
{
	const uint32_t *src = (const uint32_t *)row + threadIdx.x % 4;

#pragma unroll
	for (int k = 0; k < D / 16; k++) {
		a[k][half] = there ? src[k * 8] : 0;
		a[k][half + 2] = there ? src[k * 8 + 4] : 0;
	}
}

/* Take COLS keys, from row first of a tile and from position key on, into the peaks of the warp's
 * rows at pos. */
template <int D>
__device__ __forceinline__ void take(struct peak (&p)[2], const uint32_t (&a)[D / 16][4],
				     const bf16_t *tile, const int (&pos)[2], int first, int key,
				     float scale)
{
	const int lane = threadIdx.x % 32;
	float x[COLS / 8][4];

#pragma unroll
	for (int n = 0; n < COLS / 8; n++) {
		x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
#pragma unroll
		for (int k = 0; k < D / 16; k += 2) {
			uint32_t r[4];

			ldmatrix_x4(r, smem_addr(tile) +
					  swizzle<D>(first + n * 8 + lane % 8, k * 2 + lane / 8));
			mma_m16n8k16(x[n], a[k], r[0], r[1]);
			mma_m16n8k16(x[n], a[k + 1], r[2], r[3]);
		}
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		float max = p[i].max, sum = 0;

#pragma unroll
		for (int n = 0; n < COLS / 8; n++)
#pragma unroll
			for (int e = 2 * i; e < 2 * i + 2; e++) {
				const int at = key + n * 8 + lane % 4 * 2 + e % 2;

				x[n][e] = at <= pos[i] ? x[n][e] * scale : -INFINITY;
				max = fmaxf(max, x[n][e]);
			}
		max = quad_max(max);
#pragma unroll
		for (int n = 0; n < COLS / 8; n++)
			sum += ex2(x[n][2 * i] - max) + ex2(x[n][2 * i + 1] - max);
		p[i].sum = p[i].sum * ex2(p[i].max - max) + quad_sum(sum);
		p[i].max = max;
	}
}

/* The strip and tile of it of a thread block; false: there are fewer. */
template <bool heads>
__device__ bool find_tile(const struct job &j, struct strip &s, int &first)
{
	int tile = blockIdx.x;

	for (int r = 0; r < j.b.n_req; r++) {
		s = heads ? head_strip(j, r, blockIdx.z) : group_strip(j, r, blockIdx.z);
		first = tile * ROWS;
		if (first < s.n)
			return true;
		tile -= (s.n + ROWS - 1) / ROWS;
	}
	return false;
}

template <int D, bool heads>
__global__ void __launch_bounds__(ROWS * 2, D == 256 ? 1 : 2)
proxy_rows(struct job j, float scale)
{
	extern __shared__ __align__(128) char dynamic[];
	struct rows_smem<D> &sm = *(struct rows_smem<D> *)dynamic;
	const int lane = threadIdx.x % 32, tok = j.b.shape.page_tok;
	uint32_t a[D / 16][4];
	int pos[2], row[2], first;
	struct strip s;

	if (!find_tile<heads>(j, s, first))
		return;
	/* Group strips ascend by block; all heads probe the chunk's end. */
	const int last_row = min(first + ROWS, s.n) - 1;
	const int last = heads ? end_of(j.b, s.req) - 1 :
			 min((j.b.ctx[s.req] / tok + last_row / s.per_line + 1) * tok,
			     end_of(j.b, s.req)) - 1;
	const int begin = blockIdx.y * SEGMENT * tok;
	const int end = min(begin + SEGMENT * tok, last + 1);

	if (begin >= end)
		return;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		row[i] = first + threadIdx.x / 32 * 16 + lane / 4 + 8 * i;
		pos[i] = heads ? head_pos(j, s, row[i]) : group_pos(j, s, row[i]);
		const int64_t at = (int64_t)(j.b.row0[s.req] + pos[i] - j.b.ctx[s.req]) *
				   j.b.shape.q_heads;
		const int head = s.kv * (j.b.shape.q_heads / j.b.shape.kv_heads) +
				 row[i] / s.per_line;

		load_row<D>(a, i, heads ? j.q + (at + head) * D : j.mean + (s.row + row[i]) * D,
			    pos[i] >= 0);
	}
	load_keys<D>(j, s, begin, sm.key[0]);
	for (int key = begin; key < end;) {
		struct peak p[2] = { { -FLT_MAX, 0 }, { -FLT_MAX, 0 } };
		const int blk = key / tok;

		for (; key < end && key / tok == blk; key += KEYS) {
			const int at = key / KEYS % 2;

			if (key + KEYS < end)
				load_keys<D>(j, s, key + KEYS, sm.key[at ^ 1]);
			else
				cp_async_commit();
			cp_async_wait<1>();
			__syncthreads();
#pragma unroll 1
			for (int i = 0; i < KEYS; i += COLS)
				take<D>(p, a, sm.key[at], pos, i, key + i, scale);
			__syncthreads();
		}
#pragma unroll
		for (int i = 0; i < 2; i++)
			if (lane % 4 == 0 && pos[i] >= blk * tok)
				j.peak[blk * j.n_row + s.row + row[i]] = p[i];
	}
}

/* ---- lines ---- */

constexpr int LINE_WARPS = 8;

struct lines_smem {
	struct peak part[LINE_WARPS][ROWS];
	float log_sum[ROWS];
	int pos[ROWS];
};

__device__ __forceinline__ struct peak merge(const struct peak &a, const struct peak &b)
{
	const float max = fmaxf(a.max, b.max);

	return { max, a.sum * ex2(a.max - max) + b.sum * ex2(b.max - max) };
}

/* The logarithms of the sums of n rows, the first of them row. */
__device__ void sum_rows(const struct job &j, int64_t row, int n, struct lines_smem &sm)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tok = j.b.shape.page_tok;

	for (int i = lane; i < n; i += 32) {
		struct peak p = { -FLT_MAX, 0 };

		for (int blk = warp; sm.pos[i] >= blk * tok; blk += LINE_WARPS)
			p = merge(p, j.peak[blk * j.n_row + row + i]);
		sm.part[warp][i] = p;
	}
	__syncthreads();
	for (int i = threadIdx.x; i < n; i += LINE_WARPS * 32) {
		struct peak p = sm.part[0][i];

		for (int w = 1; w < LINE_WARPS; w++)
			p = merge(p, sm.part[w][i]);
		sm.log_sum[i] = p.max + log2f(fmaxf(p.sum, FLT_MIN));
	}
	__syncthreads();
}

__global__ void __launch_bounds__(LINE_WARPS * 32) proxy_lines(struct job j)
{
	__shared__ struct lines_smem sm;
	const int line = blockIdx.x, tok = j.b.shape.page_tok, lane = threadIdx.x % 32;
	const bool heads = line >= j.n_line;
	const int who = heads ? line - j.n_line : line, q_heads = j.b.shape.q_heads;
	const int per_kv = q_heads / j.b.shape.kv_heads;
	const int r = heads ? who / q_heads : qblk_at(j.b, who % j.b.n_qblk).req;
	const int in = heads ? who % q_heads % per_kv : who % j.b.n_qblk - j.b.qblk0[r];
	const struct strip s = heads ? head_strip(j, r, who % q_heads / per_kv) :
				       group_strip(j, r, who / j.b.n_qblk);
	const int n = s.n ? s.per_line : 0, first = in * s.per_line;

	for (int i = threadIdx.x; i < n; i += LINE_WARPS * 32)
		sm.pos[i] = heads ? head_pos(j, s, first + i) : group_pos(j, s, first + i);
	__syncthreads();
	if (!n)
		return;
	sum_rows(j, s.row + first, n, sm);
	/* The first row of a line is its last position. */
	for (int blk = threadIdx.x / 32; blk * tok <= sm.pos[0]; blk += LINE_WARPS) {
		float most = 0, sum = 0;

		for (int i = lane; i < n; i += 32) {
			if (sm.pos[i] < blk * tok)
				continue;
			const struct peak p = j.peak[blk * j.n_row + s.row + first + i];
			const float top = ex2(p.max - sm.log_sum[i]);

			most = fmaxf(most, top);
			sum += top * p.sum;
		}
		most = heads ? warp_sum(sum) / (float)n : warp_max(most);
		if (lane == 0)
			j.score[(size_t)line * j.b.max_kv_blk + blk] = most;
	}
}

/* ---- need and pick ---- */

__device__ __forceinline__ int blocks_of(const struct attn_batch &b, int r)
{
	return (end_of(b, r) + b.shape.page_tok - 1) / b.shape.page_tok;
}

/* Grid (request, head). */
__global__ void __launch_bounds__(TOP_THREADS) proxy_need(struct job j)
{
	__shared__ uint64_t part[TOP_WARPS];
	const int at = blockIdx.x * j.b.shape.q_heads + blockIdx.y, r = blockIdx.x;
	const int n = blocks_of(j.b, r);
	const float *mass = j.score + (size_t)(j.n_line + at) * j.b.max_kv_blk;
	const auto own = [](float x) { return top_fixed(x); };
	const auto one = [](float) -> uint64_t { return 1; };

	if (rows_in(j.b, r) <= 1)
		return;
	const double all = (double)top_sum(mass, n, 0, own, part);
	const struct top top = top_find(mass, n, max((uint64_t)ceil(j.p.mass * all), (uint64_t)1),
					own, part);
	const uint64_t above = top_sum(mass, n, top.key + 1, one, part);

	if (threadIdx.x == 0)
		j.need[at] = (int)(above + top.ties);
}

/* Grid (query block, head). */
__global__ void __launch_bounds__(TOP_THREADS) proxy_pick(struct job j, uint32_t *__restrict__ mask)
{
	__shared__ uint64_t part[TOP_WARPS];
	const struct qblk s = qblk_at(j.b, blockIdx.x);
	const int head = blockIdx.y, g = head / proxyattn_size(&j.p, &j.b.shape);
	const float *score = j.score + ((size_t)g * j.b.n_qblk + blockIdx.x) * j.b.max_kv_blk;
	const bool open = rows_in(j.b, s.req) <= 1;
	const int need = open ? 0 : j.need[s.req * j.b.shape.q_heads + head];
	const int free = min(proxyattn_budget(need, s.blk, blocks_of(j.b, s.req)) - 2, s.blk - 1);
	struct top top = top_none();
	int64_t ties = 0;

	if (!open && free > 0)
		top = top_find(score + 1, s.blk - 1, (uint64_t)free,
			       [](float) -> uint64_t { return 1; }, part);
	mask += ((size_t)blockIdx.x * j.b.shape.q_heads + head) * j.b.mask_words;
	for (int w = 0; threadIdx.x < 32 && w < j.b.mask_words; w++) {
		const int blk = w * 32 + threadIdx.x;
		const bool there = !open && blk > 0 && blk < s.blk;
		const bool keep = top_has(top, there, there ? score[blk] : 0, ties) ||
				  blk == 0 || blk == s.blk || (open && blk <= s.blk);
		const uint32_t bits = __ballot_sync(~0u, keep);

		if (threadIdx.x == 0)
			mask[w] = bits;
	}
}

/* ---- launch ---- */

size_t place(size_t *end, size_t bytes)
{
	const size_t at = *end;

	*end += (bytes + 255) / 256 * 256;
	return at;
}

/* Point j into work; returns the bytes that takes. */
size_t lay_out(struct job *j, const struct attn_shape *s, int n_qblk, int n_req, int n_row,
	       int max_kv_blk, char *work)
{
	size_t end = 0;

	j->n_group = proxyattn_groups(&j->p, s);
	j->per_blk = (int)((s->page_tok + j->p.stride - 1) / j->p.stride);
	j->n_line = n_qblk * j->n_group;
	j->n_proxy = (int64_t)j->n_line * j->per_blk;
	j->n_row = j->n_proxy + (n_row / j->p.stride + n_req) * s->q_heads;
	j->mean = (bf16_t *)(work + place(&end, j->n_proxy * s->head_dim * sizeof *j->mean));
	j->peak = (struct peak *)(work + place(&end, j->n_row * max_kv_blk * sizeof *j->peak));
	j->score = (float *)(work + place(&end, ((size_t)j->n_line + (size_t)n_req * s->q_heads) *
						max_kv_blk * sizeof *j->score));
	j->need = (int32_t *)(work + place(&end, (size_t)n_req * s->q_heads * sizeof *j->need));
	return end;
}

/* At least as many tiles as the strips of all requests have, which have so many rows together. */
int count_tiles(int64_t rows, int n_req)
{
	return (int)(rows / ROWS) + n_req;
}

template <int D>
enum ar_status launch_rows(const struct job *j, cudaStream_t stream, struct ar_err *err)
{
	const struct attn_batch *b = &j->b;
	const struct attn_shape *s = &b->shape;
	const float scale = (float)(1.4426950408889634 / sqrt((double)D));
	const int bytes = (int)sizeof(struct rows_smem<D>);
	const int segments = (b->max_kv_blk + SEGMENT - 1) / SEGMENT;
	const int64_t sampled = (int64_t)b->n_qblk * j->per_blk;
	const int64_t probed = (b->n_row / j->p.stride + b->n_req) * (s->q_heads / s->kv_heads);
	enum ar_status st = AR_OK;

	CU(cudaFuncSetAttribute(proxy_rows<D, false>, cudaFuncAttributeMaxDynamicSharedMemorySize,
				bytes));
	CU(cudaFuncSetAttribute(proxy_rows<D, true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
				bytes));
	proxy_rows<D, false><<<dim3(count_tiles(sampled, b->n_req), segments, j->n_group), ROWS * 2,
			       bytes, stream>>>(*j, scale);
	CU_LAUNCHED();
	proxy_rows<D, true><<<dim3(count_tiles(probed, b->n_req), segments, s->kv_heads), ROWS * 2,
			      bytes, stream>>>(*j, scale);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status score(const struct job *j, cudaStream_t stream, struct ar_err *err)
{
	const struct attn_shape *s = &j->b.shape;
	enum ar_status st = AR_OK;

	proxy_mean<<<dim3(j->b.n_qblk, j->n_group), 256, 0, stream>>>(*j);
	CU_LAUNCHED();
	switch (s->head_dim) {
	case 64:
		st = launch_rows<64>(j, stream, err);
		break;
	case 128:
		st = launch_rows<128>(j, stream, err);
		break;
	default:
		st = launch_rows<256>(j, stream, err);
	}
	if (st)
		return st;
	proxy_lines<<<j->n_line + j->b.n_req * s->q_heads, LINE_WARPS * 32, 0, stream>>>(*j);
	CU_LAUNCHED();
	proxy_need<<<dim3(j->b.n_req, s->q_heads), TOP_THREADS, 0, stream>>>(*j);
	CU_LAUNCHED();
out:
	return st;
}

}

size_t proxyattn_work_bytes(const void *self, const struct attn_shape *s,
			    const struct attn_limits *l)
{
	struct job j = {};

	j.p = *(const struct proxyattn *)self;
	return lay_out(&j, s, attn_max_qblk(l, s->page_tok), l->max_req, l->max_row, l->max_kv_blk,
		       NULL);
}

enum ar_status proxyattn_enqueue(const struct attn_batch *b, const void *self, int,
				 const bf16_t *q, const struct kv_cache *kv, void *,
				 const struct selection *out, void *work, void *stream,
				 struct ar_err *err)
{
	const struct attn_shape *s = &b->shape;
	enum ar_status st = AR_OK;
	struct job j = { *b, *(const struct proxyattn *)self, q, kv->k };

	if ((s->page_tok != 64 && s->page_tok != 128) ||
	    (s->head_dim != 64 && s->head_dim != 128 && s->head_dim != 256))
		return ar_fail(err, AR_USAGE, "proxyattn on CUDA wants blocks of 64 or 128 tokens "
			       "and heads of 64, 128 or 256, not %d and %d", s->page_tok,
			       s->head_dim);
	if (!b->n_qblk)
		return AR_OK;
	lay_out(&j, s, b->n_qblk, b->n_req, b->n_row, b->max_kv_blk, (char *)work);
	st = score(&j, (cudaStream_t)stream, err);
	if (st)
		return st;
	proxy_pick<<<dim3(b->n_qblk, s->q_heads), TOP_THREADS, 0, (cudaStream_t)stream>>>
		(j, out->mask);
	CU_LAUNCHED();
out:
	return st;
}
