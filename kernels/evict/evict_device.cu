/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What evictors share on the device, and the keys that StreamingLLM keeps.
 *
 *   pick     the largest keys of a KV head, in order, and the tokens that stay in any case
 *   compact  keys, values and state of what stays move in place.  None moves back, so a thread
 *            block that works through the slots in order reads each before another takes its place.
 *            Blocks share the work by KV head and by stretches of UNIT bytes of a key or a value.
 */
#include "config.h"
#include "kernels/evict/evictor.h"
#include "kernels/evict/streaming/streaming.h"

#include "kernels/prim/cuda.h"
#include "kernels/select/pick.cuh"

namespace {

constexpr int THREADS = 512, UNIT = 32, VECTORS = UNIT / (int)sizeof(uint4), PLANES = 3;

struct plane {
	uint4 *at;
	int row;	/* vectors of a token */
};

struct args {
	struct attn_shape shape;
	struct evict_req req;
	const int32_t *page, *to, *keep;
	struct plane plane[PLANES];
};

/* The vector of place t in a plane. */
__device__ __forceinline__ uint4 *vector_of(const struct args &a, const int32_t *page, int h, int t,
					    int v)
{
	const struct plane &x = a.plane[blockIdx.z];
	const int tok = a.shape.page_tok;
	const size_t p = page[a.req.page0 + t / tok];

	return x.at + ((p * a.shape.kv_heads + h) * tok + t % tok) * x.row + v;
}

/* Grid (stretch of a key, KV head, plane). */
__global__ void __launch_bounds__(THREADS) evict_compact(const __grid_constant__ struct args a)
{
	const struct evict_req &r = a.req;
	const int row = a.plane[blockIdx.z].row, own = min(row, VECTORS);	/* of a stretch */
	const int h = blockIdx.y, v = blockIdx.x * own + threadIdx.x % own;
	const int32_t *keep = a.keep + r.keep0 + (size_t)h * r.n_keep;
	const int n = r.n_keep + r.n_key - r.n_cand;

	if ((int)blockIdx.x * own >= row)
		return;
	for (int first = 0; first < n; first += THREADS / own) {
		const int i = first + threadIdx.x / own;
		uint4 x;

		if (i < n) {
			const int from = i < r.n_keep ? keep[i] : r.n_cand + i - r.n_keep;

			x = *vector_of(a, a.page, h, from, v);
		}
		__syncthreads();
		if (i < n)
			*vector_of(a, a.to, h, i, v) = x;
	}
}

/* Grid (KV head).  n keys, of which the last ones of the request stay.  Dynamic shared memory:
 * struct pick_kept. */
__global__ void __launch_bounds__(PICK_THREADS)
evict_pick(struct evict_req r, int n, int stride, const uint32_t *__restrict__ all,
	   int32_t *__restrict__ lists)
{
	__shared__ struct pick_smem sm;
	extern __shared__ uint4 room[];
	struct pick_kept &kept = *(struct pick_kept *)room;
	const uint32_t *own = all + (size_t)blockIdx.x * stride;
	const auto key = [=](int t) { return own[t]; };
	const int last = r.n_cand - n, best = r.n_keep - last;
	int32_t *keep = lists + r.keep0 + (size_t)blockIdx.x * r.n_keep;
	const auto take = [&](int many, const auto &key, const auto &place) {
		const struct pick p = pick_find<PICK_COUNT>(sm, many, (uint32_t)best, key);

		__syncthreads();
		pick_walk(sm, p, many, key, [&](int i, bool taken, uint32_t rank) {
			if (taken)
				keep[rank] = place(i);
		});
	};
	const int few = pick_sift(sm, kept, n, best, key);

	if (few)
		take(few, [&](int i) { return own[kept.at[i]]; },
		     [&](int i) { return kept.at[i]; });
	else
		take(n, key, [](int i) { return i; });
	for (int i = threadIdx.x; i < last; i += PICK_THREADS)
		keep[best + i] = n + i;
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

enum ar_status evict_pick_enqueue(const struct evict_call *call, const uint32_t *key, int n,
				  int stride, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	CU(cudaFuncSetAttribute(evict_pick, cudaFuncAttributeMaxDynamicSharedMemorySize,
				sizeof(struct pick_kept)));
	evict_pick<<<call->shape.kv_heads, PICK_THREADS, sizeof(struct pick_kept),
		     (cudaStream_t)call->stream>>>(*call->req, n, stride, key, call->keep);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status evict_compact_enqueue(const struct evict *e, const struct evict_call *call,
				     struct ar_err *err)
{
	const struct attn_shape *s = &call->shape;
	const int row = s->head_dim * sizeof(bf16_t) / sizeof(uint4);
	const int own = (int)(evict_token_bytes(e) / sizeof(uint4));
	const struct args a = { *s, *call->req, call->page, call->to ? call->to : call->page,
				call->keep,
				{ { (uint4 *)call->kv.k, row }, { (uint4 *)call->kv.v, row },
				  { (uint4 *)call->state, own } } };
	enum ar_status st = AR_OK;

	evict_compact<<<dim3(row / VECTORS, s->kv_heads, own ? PLANES : 2), THREADS, 0,
			(cudaStream_t)call->stream>>>(a);
	CU_LAUNCHED();
out:
	return st;
}
