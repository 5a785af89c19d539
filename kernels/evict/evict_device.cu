/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compaction of what stays, and the keys that StreamingLLM keeps, on the device.
 *
 * Keys move in place.  No key moves back, so a thread block that works through the slots in order
 * reads each key before another one takes its place.  Blocks share the work by KV head and by
 * stretches of UNIT bytes of a key or a value.
 */
#include "config.h"
#include "kernels/evict/evictor.h"
#include "kernels/evict/streaming/streaming.h"

#include "kernels/prim/cuda.h"

namespace {

constexpr int THREADS = 512, UNIT = 32, VECTORS = UNIT / (int)sizeof(uint4);

struct args {
	struct attn_shape shape;
	struct evict_req req;
	const int32_t *page, *to, *keep;
	uint4 *plane[2];
	int row;	/* vectors of a key */
};

/* The vector of place t in a plane. */
__device__ __forceinline__ size_t vector_of(const struct args &a, const int32_t *page, int h, int t,
					    int v)
{
	const int tok = a.shape.page_tok;
	const size_t p = page[a.req.page0 + t / tok];

	return ((p * a.shape.kv_heads + h) * tok + t % tok) * a.row + v;
}

/* Grid (stretch of a key, KV head, plane). */
__global__ void __launch_bounds__(THREADS) evict_compact(const __grid_constant__ struct args a)
{
	const struct evict_req &r = a.req;
	const int h = blockIdx.y, v = blockIdx.x * VECTORS + threadIdx.x % VECTORS;
	const int32_t *keep = a.keep + r.keep0 + (size_t)h * r.n_keep;
	const int n = r.n_keep + r.n_key - r.n_cand;
	uint4 *plane = a.plane[blockIdx.z];

	for (int first = 0; first < n; first += THREADS / VECTORS) {
		const int i = first + threadIdx.x / VECTORS;
		uint4 x;

		if (i < n) {
			const int from = i < r.n_keep ? keep[i] : r.n_cand + i - r.n_keep;

			x = plane[vector_of(a, a.page, h, from, v)];
		}
		__syncthreads();
		if (i < n)
			plane[vector_of(a, a.to, h, i, v)] = x;
	}
}

/* Grid (KV head). */
__global__ void streaming_keep(struct evict_req r, int sink, int32_t *keep)
{
	for (int k = threadIdx.x; k < r.n_keep; k += blockDim.x)
		keep[r.keep0 + (size_t)blockIdx.x * r.n_keep + k] =
			k < sink ? k : r.n_cand - r.n_keep + k;
}

}

enum ar_status evict_streaming_enqueue(const void *param, const struct evict_call *call,
				 struct ar_err *err)
{
	const struct streaming *p = (const struct streaming *)param;
	enum ar_status st = AR_OK;

	streaming_keep<<<call->shape.kv_heads, 256, 0, (cudaStream_t)call->stream>>>
		(*call->req, (int)p->sink, call->keep);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status evict_compact_enqueue(const struct evict_call *call, struct ar_err *err)
{
	const struct attn_shape *s = &call->shape;
	const int row = s->head_dim * (int)sizeof(bf16_t) / (int)sizeof(uint4);
	const struct args a = { *s, *call->req, call->page, call->to ? call->to : call->page,
				call->keep,
				{ (uint4 *)call->kv.k, (uint4 *)call->kv.v }, row };
	enum ar_status st = AR_OK;

	evict_compact<<<dim3(row / VECTORS, s->kv_heads, 2), THREADS, 0,
			(cudaStream_t)call->stream>>>(a);
	CU_LAUNCHED();
out:
	return st;
}
