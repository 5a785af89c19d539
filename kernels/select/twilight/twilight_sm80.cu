/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Twilight on the device; the rule is in twilight.c.  Three kernels:
 *
 *   append  grid (query block, KV head), a warp per new key.
 *   marks   grid (list, head of the list): the scores of the candidates, a thread each; then by
 *           top.cuh the fewest whose weights reach the goal.  A mark takes the place of its score.
 *   lists   a thread block per list: candidates that any head marks, in order.
 *
 * Scratch of a request is [q_heads][keys of its pages].
 */
#include "config.h"
#include "kernels/select/twilight/twilight.h"

#include <cfloat>

#include "kernels/prim/cuda.h"
#include "kernels/select/pieces.cuh"
#include "kernels/select/qblk.cuh"
#include "kernels/select/top.cuh"

namespace {

constexpr int MOST_DIM = 256;

/* ---- append ---- */

__global__ void __launch_bounds__(128)
twilight_keys(struct attn_batch b, const bf16_t *__restrict__ k, void *state)
{
	const struct qblk s = qblk_at(b, blockIdx.x);
	const int lane = threadIdx.x % 32, dim = b.shape.head_dim;

	for (int i = s.lo + threadIdx.x / 32; i < s.hi; i += 4) {
		const int t = s.blk * b.shape.page_tok + i;
		const uint32_t *from = (const uint32_t *)(k + pieces_key(&b, s.req, blockIdx.y, t));
		struct twilight_key *to = twilight_key(&b, s.req, blockIdx.y, t, state);
		float low = FLT_MAX, high = -FLT_MAX;

		for (int d = lane; d < dim / 2; d += 32) {
			const float even = __uint_as_float(from[d] << 16);
			const float odd = __uint_as_float(from[d] & 0xffff0000);

			low = fminf(low, fminf(even, odd));
			high = fmaxf(high, fmaxf(even, odd));
		}
#pragma unroll
		for (int j = 16; j; j /= 2) {
			low = fminf(low, __shfl_xor_sync(~0u, low, j));
			high = fmaxf(high, __shfl_xor_sync(~0u, high, j));
		}
		const float step = fmaxf(high - low, 1e-9f) / 15;

		for (int d = lane; d < dim / 2; d += 32)
			((uint8_t *)(to + 1))[d] =
				twilight_code(__uint_as_float(from[d] << 16), low, step) |
				twilight_code(__uint_as_float(from[d] & 0xffff0000), low, step)
					<< 4;
		if (!lane)
			*to = { low, step };
	}
}

/* ---- marks ---- */

/* As short_dot() of the reference: the same sums in the same order.  sum: of q. */
__device__ float short_dot(const float *q, float sum, const struct twilight_key *k, int dim)
{
	const uint32_t *code = (const uint32_t *)(k + 1);
	float coded = 0;

	for (int d = 0; d < dim; d += 8) {
		const uint32_t x = code[d / 8];

#pragma unroll
		for (int i = 0; i < 8; i++)
			coded += q[d + i] * (float)(x >> 4 * i & 15);
	}
	return __fadd_rn(__fmul_rn(k->low, sum), __fmul_rn(k->step, coded));
}

__device__ float exact_dot(const float *q, const bf16_t *k, int dim)
{
	float sum = 0;

	for (int d = 0; d < dim; d++)
		sum += q[d] * bf16_to_f32(k[d]);
	return sum;
}

__device__ float block_max(float x, float *part)
{
#pragma unroll
	for (int i = 16; i; i /= 2)
		x = fmaxf(x, __shfl_xor_sync(~0u, x, i));
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = x;
	__syncthreads();
	for (int w = 0; w < TOP_WARPS; w++)
		x = fmaxf(x, part[w]);
	return x;
}

/* A head of a list, its queries and its place in scratch. */
struct place {
	int list, head, r, kv, n;	/* head: of the list */
	float *score;			/* [n] */
};

__device__ struct place place_of(const struct attn_batch &b, const struct piece_lists &from,
				 int list, int head, void *work)
{
	const struct attn_shape &s = b.shape;
	const int groups = s.q_heads / from.heads, r = list / groups;
	const int q_head = list % groups * from.heads + head;
	const int n = twilight_candidates(&from, list, b.keys.len[r]);
	float *score = (float *)pieces_scratch(b, r, s.page_tok, s.q_heads * sizeof *score, work);
	/* lists differ in length: each head has room for all keys */
	const size_t room = (size_t)(b.keys.page0[r + 1] - b.keys.page0[r]) * s.page_tok;

	return { list, head, r, q_head / (s.q_heads / s.kv_heads), n, score + q_head * room };
}

__global__ void __launch_bounds__(TOP_THREADS)
twilight_marks(struct attn_batch b, struct twilight rule, const bf16_t *__restrict__ queries,
	       const bf16_t *__restrict__ k, void *state, struct piece_lists from, void *work)
{
	__shared__ struct top_smem sm;
	__shared__ float q[MOST_DIM], part[TOP_WARPS];
	const struct attn_shape &s = b.shape;
	const int dim = s.head_dim, groups = s.q_heads / from.heads;
	const struct place at = place_of(b, from, blockIdx.x, blockIdx.y, work);
	const bf16_t *row = queries + ((size_t)at.r * s.q_heads +
				       blockIdx.x % groups * from.heads + blockIdx.y) * dim;
	const bool all = rule.mass >= 1 || b.keys.len[at.r] < from.all_below;
	const float root = sqrtf((float)dim);
	float sum = 0, max = -FLT_MAX;

	for (int d = threadIdx.x; d < dim; d += TOP_THREADS)
		q[d] = bf16_to_f32(row[d]);
	__syncthreads();
	for (int d = 0; d < dim; d++)
		sum += q[d];
	for (int i = threadIdx.x; i < at.n; i += TOP_THREADS) {
		const int t = twilight_at(&from, at.list, at.head, i);
		float x = t < 0 ? -INFINITY :
			  rule.estimate == TWILIGHT_EXACT ?
				  exact_dot(q, k + pieces_key(&b, at.r, at.kv, t), dim) :
				  short_dot(q, sum, twilight_key(&b, at.r, at.kv, t, state), dim);

		x = t < 0 ? x : isnan(x) ? -FLT_MAX : x / root;
		at.score[i] = x;
		max = fmaxf(max, x);
	}
	max = block_max(max, part);
	const auto weight = [=](float x) { return top_fixed(expf(x - max)); };
	const float *score = at.score;
	const uint64_t whole = top_sum(score, at.n, weight, sm);
	uint32_t least = top_key(-FLT_MAX);

	if (!all && whole)
		least = top_find(score, at.n, twilight_goal(rule.mass, whole), weight, sm).key;
	__syncthreads();
	for (int i = threadIdx.x; i < at.n; i += TOP_THREADS) {
		const float x = at.score[i];
		const bool own = rule.keep_newest && i == at.n - 1;

		at.score[i] = x != -INFINITY && (top_key(x) >= least || own);
	}
}

/* ---- lists ---- */

__global__ void __launch_bounds__(TOP_THREADS)
twilight_lists(struct attn_batch b, struct piece_lists from, struct piece_lists to, void *work)
{
	__shared__ int count[TOP_WARPS];
	const struct attn_shape &s = b.shape;
	const struct place at = place_of(b, from, blockIdx.x, 0, work);
	const size_t room = (size_t)(b.keys.page0[at.r + 1] - b.keys.page0[at.r]) * s.page_tok;
	const size_t in = (size_t)blockIdx.x * from.stride, out = (size_t)blockIdx.x * to.stride;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	int kept = 0;

	for (int first = 0; first < at.n; first += TOP_THREADS) {
		const int i = first + threadIdx.x;
		uint32_t heads = 0;

		for (int h = 0; h < from.heads && i < at.n; h++)
			heads |= (at.score[h * room + i] > 0) << h;
		const uint32_t taken = __ballot_sync(~0u, heads);

		__syncthreads();	/* the last use of count is over */
		if (!lane)
			count[warp] = __popc(taken);
		__syncthreads();
		int rank = kept + __popc(taken & ((1u << lane) - 1));

		for (int w = 0; w < TOP_WARPS; w++) {
			rank += w < warp ? count[w] : 0;
			kept += count[w];
		}
		if (heads) {
			to.piece[out + rank] = from.piece[in + i / from.tok] * from.tok +
					       i % from.tok;
			to.mask[out + rank] = (uint16_t)heads;
		}
	}
	if (!threadIdx.x)
		to.n[blockIdx.x] = kept;
}

}

enum ar_status twilight_append(const struct attn_call *call, const void *self, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const dim3 grid(b->rows.n_qblk, b->shape.kv_heads);
	enum ar_status st = AR_OK;

	if (((const struct twilight *)self)->estimate == TWILIGHT_EXACT || !b->rows.n_qblk)
		return AR_OK;
	twilight_keys<<<grid, 128, 0, (cudaStream_t)call->stream>>>(*b, call->kv.k, call->state);
	CU_LAUNCHED();
out:
	return st;
}

size_t twilight_work_bytes(const void *, const struct attn_shape *s, const struct attn_limits *l)
{
	return pieces_scratch_bytes(l, s->page_tok, s->q_heads * sizeof(float));
}

enum ar_status twilight_enqueue(const struct attn_call *call, const void *self,
				const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct piece_lists *from = call->from;
	const int lists = b->rows.n_req * pieces_groups(&b->shape, from);
	const cudaStream_t stream = (cudaStream_t)call->stream;
	enum ar_status st = AR_OK;

	if (!lists)
		return AR_OK;
	twilight_marks<<<dim3(lists, from->heads), TOP_THREADS, 0, stream>>>
		(*b, *(const struct twilight *)self, call->q, call->kv.k, call->state, *from,
		 call->work);
	CU_LAUNCHED();
	twilight_lists<<<lists, TOP_THREADS, 0, stream>>>(*b, *from, out->pieces, call->work);
	CU_LAUNCHED();
out:
	return st;
}
