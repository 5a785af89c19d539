/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The row kernels on the device.  All are bound by memory: each thread moves 16 bytes a step, of
 * RoPE 4 or 8, and neighbouring threads move neighbouring bytes.  Grids cover rows x pieces of that
 * size, or one block per row where a row is reduced (norm, argmax).
 *
 * Engines fuse the same steps.  vLLM compiles the norm of Gemma's addend into the norm after it.
 * It keeps QK-norm apart from RoPE, as the fused kernel is slower on an H100.
 *
 * With few rows a kernel takes as long as its chain of loads and arithmetic.  So loads come first,
 * and blockIdx.x is the row where an index would have to be divided.  norm has enough threads for
 * one piece each, and loads its weights after the sum, as vLLM's does.
 *
 * Instructions are loaded, too: the weights of a layer push them out of all caches.  So RoPE is
 * short.  On an H200 its 220 instructions took 1.81 and 1.83 us in decodes of 1 and 8 requests, 104
 * take 1.64 and 1.62.  Asking L2 to keep rows and angles gained 0.05 us, but cost the cache kernel
 * 0.13.
 *
 * The rotation and the fill are written so that they equal the reference bit for bit: no
 * fused multiply-add where the reference has none.
 */
#include "config.h"
#include "kernels/layer/layer.h"
#include "base/rng.h"

#include "kernels/prim/cuda.h"
#include "kernels/prim/device.cuh"

namespace {

constexpr int threads = 256;
constexpr int norm_threads = 1024; /* at most */
constexpr int act_threads = 128;   /* a few blocks even for one row */
constexpr int rope_few_rows = 128; /* most rows where a thread of RoPE turns 2 pairs, not 4 */

/* n bf16, as they travel: eight but for RoPE. */
template <int n>
struct __align__(2 * n) packed {
	uint32_t w[n / 2];
};
using pack = packed<8>;

template <int n = 8>
__device__ __forceinline__ packed<n> load(const bf16_t *p)
{
	return *reinterpret_cast<const packed<n> *>(p);
}

template <int n>
__device__ __forceinline__ void store(bf16_t *p, packed<n> v)
{
	*reinterpret_cast<packed<n> *>(p) = v;
}

template <int n>
__device__ __forceinline__ float lane(const packed<n> &v, int i)
{
	return __uint_as_float(i & 1 ? v.w[i / 2] & 0xffff0000u : v.w[i / 2] << 16);
}

template <int n>
__device__ __forceinline__ packed<n> pack_of(const float (&f)[n])
{
	packed<n> v;

#pragma unroll
	for (int i = 0; i < n / 2; i++)
		v.w[i] = pack_bf16(f[2 * i], f[2 * i + 1]);
	return v;
}

__device__ __forceinline__ int64_t thread_index()
{
	return (int64_t)blockIdx.x * threads + threadIdx.x;
}

/* Head h of row r, whose token is tok: Q heads, then K heads, then V heads.  The heads of all rows
 * together are few enough to count in an int. */
__device__ __forceinline__ const bf16_t *source_head(attn_shape s, layer_seq seq, int layer, int r,
						     int32_t tok, int h)
{
	int heads = s.q_heads + 2 * s.kv_heads;
	int64_t at = seq.n_tok ? (layer * heads + h) * seq.n_tok + tok : r * heads + h;

	return seq.data + at * s.head_dim;
}

__global__ void __launch_bounds__(threads)
layer_trig_kernel(const float *inv, int half, int n_rotation, float factor, float2 *trig)
{
	int64_t i = thread_index();

	if (i < (int64_t)n_rotation * half) {
		float angle = (float)(i / half) * inv[i % half];

		trig[i] = make_float2((float)cos((double)angle) * factor,
				      (float)sin((double)angle) * factor);
	}
}

/* One thread: n pairs (i, i + half) of one head of one row, or 2 n channels that do not rotate.
 * captured: seq has captured tokens.  whole: all channels rotate.  Bounds of one block leave a
 * thread the registers to load all pairs at once. */
template <bool captured, bool whole, int n>
__global__ void __launch_bounds__(threads, 1)
layer_rope_kernel(attn_shape s, layer_seq seq, int layer, const layer_row *row,
		  layer_angles angles, bf16_t *q, bf16_t *k)
{
	int heads = s.q_heads + s.kv_heads, h = blockIdx.y * blockDim.y + threadIdx.y;
	int r = blockIdx.x, at = threadIdx.x * n, half = (whole ? s.head_dim : angles.dim) / 2;
	bool turns = whole || at < half;

	if (h >= heads)
		return;

	const float4 *t = reinterpret_cast<const float4 *>(
		angles.trig + (int64_t)row[r].rotation * (2 * half) + at * 2);

	if (!turns) {
		at *= 2;
		half = n;
	}
	if (!captured)
		seq.n_tok = 0;

	const bf16_t *from = source_head(s, seq, layer, r, captured ? row[r].tok : 0, h) + at;
	bf16_t *to = (h < s.q_heads ?
			      q + (int64_t)(r * s.q_heads + h) * s.head_dim :
			      k + (int64_t)(r * s.kv_heads + h - s.q_heads) * s.head_dim) + at;
	packed<n> lo = load<n>(from), hi = load<n>(from + half);
	float4 cs[n / 2]; /* of two pairs */
	float scale = h < s.q_heads ? angles.q_scale : 1;

#pragma unroll
	for (int j = 0; j < n / 2; j++)
		if (turns)
			cs[j] = t[j];
#pragma unroll
	for (int j = 0; j < n / 2; j++) {
		float x = lane(lo, 2 * j), next_x = lane(lo, 2 * j + 1);
		float y = lane(hi, 2 * j), next_y = lane(hi, 2 * j + 1);
		float a = x, next_a = next_x, b = y, next_b = next_y;

		if (turns) {
			a = __fsub_rn(__fmul_rn(x, cs[j].x), __fmul_rn(y, cs[j].y));
			b = __fadd_rn(__fmul_rn(y, cs[j].x), __fmul_rn(x, cs[j].y));
			next_a = __fsub_rn(__fmul_rn(next_x, cs[j].z), __fmul_rn(next_y, cs[j].w));
			next_b = __fadd_rn(__fmul_rn(next_y, cs[j].z), __fmul_rn(next_x, cs[j].w));
		}
		lo.w[j] = pack_bf16(__fmul_rn(a, scale), __fmul_rn(next_a, scale));
		hi.w[j] = pack_bf16(__fmul_rn(b, scale), __fmul_rn(next_b, scale));
	}
	store(to, lo);
	store(to + half, hi);
}

/* One thread: eight elements of K and of V of one head of one row. */
__global__ void __launch_bounds__(threads)
layer_cache_kernel(attn_shape s, layer_seq seq, int layer, const layer_row *row,
		   const bf16_t *k, kv_cache kv)
{
	int at = threadIdx.x * 8, h = blockIdx.y * blockDim.y + threadIdx.y;
	int64_t r = blockIdx.x;

	if (h >= s.kv_heads)
		return;

	layer_row to = row[r];
	int64_t page = to.slot / s.page_tok, place = to.slot % s.page_tok;
	int64_t slot = ((page * s.kv_heads + h) * s.page_tok + place) * s.head_dim + at;
	pack key = load(k + (r * s.kv_heads + h) * s.head_dim + at);
	pack value = load(source_head(s, seq, layer, r, to.tok, s.q_heads + s.kv_heads + h) + at);

	store(kv.k + slot, key);
	store(kv.v + slot, value);
}

__device__ __forceinline__ float sigmoid(float x)
{
	return __fdividef(1, 1 + __expf(-x));
}

/* 1 over the root mean square of n values with this sum of squares. */
__device__ __forceinline__ float rms_scale(float sum, int n, float eps)
{
	return rsqrtf(__fdividef(sum, (float)n) + eps);
}

/* Sum over a block of whole warps.  part: shared, one element for each warp. */
__device__ __forceinline__ float block_sum(float sum, float *part)
{
	int in_warp = threadIdx.x % 32;

	sum = warp_sum(sum);
	if (in_warp == 0)
		part[threadIdx.x / 32] = sum;
	__syncthreads();
	return warp_sum(in_warp < blockDim.x / 32 ? part[in_warp] : 0);
}

/* v = the piece at element at of the addend: the mean of n_add, step elements apart.  mean:
 * n_add > 1.  Without it nothing is divided by n_add. */
template <bool mean>
__device__ __forceinline__ void load_addend(const bf16_t *add, int n_add, int64_t step, int64_t at,
					    float (&v)[8])
{
	for (int e = 0; e < 8; e++)
		v[e] = 0;
	for (int j = 0; j < (mean ? n_add : 1); j++) {
		pack d = load(add + j * step + at);

		for (int e = 0; e < 8; e++)
			v[e] += lane(d, e);
	}
	for (int e = 0; mean && e < 8; e++)
		v[e] /= (float)n_add;
}

/* One block per row.  The last loop runs backwards: x still holds the last piece, and each thread
 * reads back only pieces that it wrote.  post: the addend is normalised; its row is read twice, the
 * second time from the cache. */
template <bool mean, bool post>
__global__ void __launch_bounds__(norm_threads)
layer_norm_kernel(layer_norm_args a)
{
	__shared__ float part[post ? 2 : 1][norm_threads / 32];
	int64_t row = (int64_t)blockIdx.x * a.width, all = (int64_t)a.n_row * a.width;
	int step = blockDim.x * 8, i = threadIdx.x * 8;
	float sum = 0, by = 1;
	pack x;

	if (post) {
		for (; i < a.width; i += step) {
			float v[8];

			load_addend<mean>(a.add, a.n_add, all, row + i, v);
			for (int e = 0; e < 8; e++)
				sum += v[e] * v[e];
		}
		by = rms_scale(block_sum(sum, part[post]), a.width, a.eps);
		sum = 0;
		i = threadIdx.x * 8;
	}
	for (; i < a.width; i += step) {
		x = load(a.x + row + i);
		if (a.n_add) {
			float v[8];

			load_addend<mean>(a.add, a.n_add, all, row + i, v);
			if (post) {
				pack w = load(a.post + i);

				for (int e = 0; e < 8; e++)
					v[e] = v[e] * by * (a.plus + lane(w, e));

				pack d = pack_of(v);

				for (int e = 0; e < 8; e++)
					v[e] = lane(d, e);
			}
			for (int e = 0; e < 8; e++)
				v[e] += lane(x, e);
			x = pack_of(v);
			store(a.x + row + i, x);
		}
		for (int e = 0; e < 8; e++)
			sum += lane(x, e) * lane(x, e);
	}

	float scale = rms_scale(block_sum(sum, part[0]), a.width, a.eps);

	while ((i -= step) >= 0) {
		pack w = load(a.w + i);
		float v[8];

		for (int e = 0; e < 8; e++)
			v[e] = lane(x, e) * scale * (a.plus + lane(w, e));
		store(a.y + row + i, pack_of(v));
		if (i >= step)
			x = load(a.x + row + i - step);
	}
}

/* The fast exponential and quotient are exact enough for bf16. */
template <int act>
__device__ __forceinline__ float activate(float g, float u)
{
	if (act == ACT_GELU_TANH)
		return g * sigmoid(LAYER_GELU_SCALE * (g + LAYER_GELU_CUBE * g * g * g)) * u;
	if (act == ACT_SWIGLU_CLAMP) {
		g = fminf(g, LAYER_CLAMP);
		u = fmaxf(fminf(u, LAYER_CLAMP), -LAYER_CLAMP);
		return g * sigmoid(LAYER_CLAMP_ALPHA * g) * (u + 1);
	}
	if (act == ACT_RELU2)
		return u > 0 ? u * u : 0;
	return __fdividef(g, 1 + __expf(-g)) * u;
}

template <int act>
__global__ void __launch_bounds__(act_threads)
layer_act_kernel(const bf16_t *gate_up, int width, bf16_t *out)
{
	const int up = act == ACT_RELU2 ? 0 : width;	/* where it begins in a row */
	int64_t row = (int64_t)blockIdx.x * width;
	int at = (blockIdx.y * act_threads + threadIdx.x) * 8;

	if (at >= width)
		return;

	const bf16_t *from = gate_up + (int64_t)blockIdx.x * (up + width) + at;
	pack g = load(from), u = load(from + up);
	float v[8];

	for (int e = 0; e < 8; e++)
		v[e] = activate<act>(lane(g, e), lane(u, e));
	store(out + row + at, pack_of(v));
}

/* threadIdx.x: piece of a head, up to a power of two; threadIdx.y: head.  The threads of a head lie
 * in one warp, and blocks are whole warps. */
__global__ void __launch_bounds__(threads)
layer_qk_norm_kernel(layer_qkv p, const bf16_t *w, float eps)
{
	int at = threadIdx.x * 8, h = blockIdx.y * blockDim.y + threadIdx.y;
	bool mine = h < p.q_heads + p.kv_heads && at < p.head_dim;
	bf16_t *to = p.x + blockIdx.x * layer_qkv_row(&p) + layer_qkv_head(&p, h) + at;
	pack x = {}, by = {};
	float sum = 0, v[8];

	if (mine) {
		x = load(to);
		by = load(w + (h < p.q_heads ? 0 : p.head_dim) + at);
	}
	for (int e = 0; e < 8; e++)
		sum += lane(x, e) * lane(x, e);
	for (int d = blockDim.x / 2; d; d /= 2)
		sum += __shfl_xor_sync(~0u, sum, d);
	if (!mine)
		return;

	float scale = rms_scale(sum, p.head_dim, eps);

	for (int e = 0; e < 8; e++)
		v[e] = lane(x, e) * scale * (p.plus + lane(by, e));
	store(to, pack_of(v));
}

/* One thread: eight elements of one head of one row. */
__global__ void __launch_bounds__(threads)
layer_out_gate_kernel(layer_qkv p, const bf16_t *attn, bf16_t *out)
{
	int at = threadIdx.x * 8, h = blockIdx.y * blockDim.y + threadIdx.y;
	int64_t r = blockIdx.x, o = (r * p.q_heads + h) * p.head_dim + at;

	if (h >= p.q_heads)
		return;

	pack x = load(attn + o);
	pack g = load(p.x + r * layer_qkv_row(&p) + layer_qkv_head(&p, h) + p.head_dim + at);
	float v[8];

	for (int e = 0; e < 8; e++)
		v[e] = lane(x, e) * sigmoid(lane(g, e));
	store(out + o, pack_of(v));
}

/* One thread: eight elements of one row. */
__global__ void __launch_bounds__(act_threads)
layer_sum_kernel(layer_sum_args a)
{
	int at = (blockIdx.y * act_threads + threadIdx.x) * 8;
	int64_t r = blockIdx.x, o = r * a.width + at;
	float v[8];

	if (at >= a.width)
		return;
	load_addend<true>(a.add, a.n_add, (int64_t)a.n_row * a.width, o, v);
	if (a.shared) {
		pack x = load(a.shared + o);
		float by = a.gate ? sigmoid(__uint_as_float((uint32_t)a.gate[r] << 16)) : 1;

		for (int e = 0; e < 8; e++)
			v[e] += lane(x, e) * by;
	}
	store(a.add + o, pack_of(v));
}

__global__ void __launch_bounds__(threads)
layer_gather_kernel(const bf16_t *in, int n_in, const int32_t *index, int n_out, int width,
		    bf16_t *out)
{
	int64_t at = thread_index() * 8, r = at / width;

	if (r >= n_out)
		return;

	int64_t from = index ? index[r] : r % n_in;

	store(out + at, load(in + from * width + at % width));
}

__global__ void __launch_bounds__(threads)
layer_put_kernel(const bf16_t *in, const layer_row *row, const int32_t *index, int n, int width,
		 bf16_t *out)
{
	int64_t at = thread_index() * 8, k = at / width;

	if (k >= n)
		return;

	int64_t from = index ? index[k] : k;

	store(out + (int64_t)row[from].slot * width + at % width,
	      load(in + from * width + at % width));
}

/* One thread: eight elements of one row. */
__global__ void __launch_bounds__(act_threads)
layer_embed_kernel(const bf16_t *table, const layer_row *row, int width, float scale, bf16_t *out)
{
	int at = (blockIdx.y * act_threads + threadIdx.x) * 8;
	int64_t r = blockIdx.x;
	float v[8];

	if (at >= width)
		return;

	pack x = load(table + (int64_t)row[r].tok * width + at);

	for (int e = 0; e < 8; e++)
		v[e] = lane(x, e) * scale;
	store(out + r * width + at, pack_of(v));
}

struct candidate {
	float x;
	int at;
};

__device__ __forceinline__ candidate better(candidate a, candidate b)
{
	return b.x > a.x || (b.x == a.x && b.at < a.at) ? b : a;
}

__device__ __forceinline__ void load_logits(const bf16_t *p, float (&v)[8])
{
	pack x = load(p);

	for (int e = 0; e < 8; e++)
		v[e] = lane(x, e);
}

__device__ __forceinline__ void load_logits(const float *p, float (&v)[8])
{
	*reinterpret_cast<float4 *>(v) = reinterpret_cast<const float4 *>(p)[0];
	*reinterpret_cast<float4 *>(v + 4) = reinterpret_cast<const float4 *>(p)[1];
}

/* One block per row; equal values go to the smaller index. */
template <class T>
__global__ void __launch_bounds__(threads)
layer_argmax_kernel(const T *x, int width, int stride, int32_t *index)
{
	__shared__ candidate part[threads / 32];
	const T *row = x + (int64_t)blockIdx.x * stride;
	candidate best = { -INFINITY, 0x7fffffff };

	for (int i = threadIdx.x * 8; i < width; i += threads * 8) {
		__align__(16) float v[8];

		load_logits(row + i, v);
#pragma unroll
		for (int e = 0; e < 8; e++)
			if (i + e < width)
				best = better(best, candidate{ v[e], i + e });
	}
	for (int d = 16; d; d /= 2)
		best = better(best, candidate{ __shfl_xor_sync(~0u, best.x, d),
					       __shfl_xor_sync(~0u, best.at, d) });
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = best;
	__syncthreads();
	if (threadIdx.x == 0) {
		for (int i = 1; i < threads / 32; i++)
			best = better(best, part[i]);
		index[blockIdx.x] = best.at < width ? best.at : 0;
	}
}

/* Busy-wait until *go is set.  If max_ns pass first, *go becomes LAYER_HOLD_OVER. */
__global__ void __launch_bounds__(1) layer_hold_kernel(volatile int *go, uint64_t max_ns)
{
	uint64_t begin, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (!*go && now - begin < max_ns);
	if (!*go)
		*go = LAYER_HOLD_OVER;
}

__global__ void __launch_bounds__(threads)
layer_fill_kernel(bf16_t *x, size_t n, uint64_t seed, float scale)
{
	size_t at = (size_t)thread_index() * 8;
	float v[8];

	if (at >= n)
		return;
	for (int e = 0; e < 8; e++)
		v[e] = __fmul_rn((float)rng_sum(rng_mix(seed + at + e)), scale);
	if (at + 8 <= n) {
		store(x + at, pack_of(v));
		return;
	}
	for (int e = 0; at + e < n; e++)
		x[at + e] = (bf16_t)pack_bf16(v[e], 0);
}

/* Blocks for n threads. */
unsigned grid(int64_t n)
{
	return (unsigned)((n + threads - 1) / threads);
}

/* Threads of a block for rope and cache: the pieces of a head, times heads. */
dim3 head_block(int pieces, int heads)
{
	return dim3(pieces, heads < threads / pieces ? heads : threads / pieces);
}

/* Blocks: rows, times the blocks that the heads of a row need. */
dim3 head_grid(int n_row, int heads, dim3 block)
{
	return dim3(n_row, (heads - 1) / block.y + 1);
}

/* Blocks for the pieces of rows of width elements. */
dim3 piece_grid(int n_row, int width)
{
	return dim3(n_row, (width / 8 - 1) / act_threads + 1);
}

template <bool captured, bool whole>
auto rope_kernel(bool few)
{
	return few ? layer_rope_kernel<captured, whole, 2> : layer_rope_kernel<captured, whole, 4>;
}

auto rope_kernel_of(bool captured, bool whole, bool few)
{
	if (captured)
		return whole ? rope_kernel<true, true>(few) : rope_kernel<true, false>(few);
	return whole ? rope_kernel<false, true>(few) : rope_kernel<false, false>(few);
}

auto norm_kernel_of(const struct layer_norm_args *a)
{
	if (a->n_add && a->post)
		return a->n_add > 1 ? layer_norm_kernel<true, true> :
				      layer_norm_kernel<false, true>;
	return a->n_add > 1 ? layer_norm_kernel<true, false> : layer_norm_kernel<false, false>;
}

auto act_kernel_of(enum mlp_act act)
{
	return act == ACT_GELU_TANH    ? layer_act_kernel<ACT_GELU_TANH> :
	       act == ACT_SWIGLU_CLAMP ? layer_act_kernel<ACT_SWIGLU_CLAMP> :
	       act == ACT_RELU2	       ? layer_act_kernel<ACT_RELU2> :
					 layer_act_kernel<ACT_SILU>;
}

} /* namespace */

/* ---- launch ---- */

enum ar_status layer_supported(struct ar_err *err)
{
	struct cudaFuncAttributes attr;
	cudaError_t e = cudaFuncGetAttributes(&attr, layer_fill_kernel);

	if (e != cudaSuccess)
		return ar_fail(err, AR_NODEV, "this build has no code for the GPU: %s; "
			       "configure it with --with-cuda-arch", cudaGetErrorString(e));
	return AR_OK;
}

enum ar_status layer_trig(const float *inv, int half, int n_rotation, float factor, float *trig,
			  void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	layer_trig_kernel<<<grid((int64_t)n_rotation * half), threads, 0, (cudaStream_t)stream>>>(
		inv, half, n_rotation, factor, (float2 *)trig);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status layer_rope(const struct attn_shape *s, const struct layer_seq *seq, int layer,
			  const struct layer_row *row, int n_row, const struct layer_angles *a,
			  bf16_t *q, bf16_t *k, void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const bool few = n_row <= rope_few_rows;
	const int heads = s->q_heads + s->kv_heads;
	const dim3 block = head_block(s->head_dim / (few ? 4 : 8), heads);

	if (a->dim % 16)
		return ar_fail(err, AR_USAGE, "RoPE rotates %d channels of a head; the GPU needs a "
			       "multiple of 16, backend cpu takes any", a->dim);
	rope_kernel_of(seq->n_tok, a->dim == s->head_dim, few)
		<<<head_grid(n_row, heads, block), block, 0, (cudaStream_t)stream>>>(
			*s, *seq, layer, row, *a, q, k);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status layer_cache(const struct attn_shape *s, const struct layer_seq *seq, int layer,
			   const struct layer_row *row, int n_row, const bf16_t *k,
			   const struct kv_cache *kv, void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const dim3 block = head_block(s->head_dim / 8, s->kv_heads);

	layer_cache_kernel<<<head_grid(n_row, s->kv_heads, block), block, 0,
			     (cudaStream_t)stream>>>(*s, *seq, layer, row, k, *kv);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status layer_norm(const struct layer_norm_args *a, void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int n = (a->width / 8 + 31) / 32 * 32; /* one piece each, in whole warps */

	norm_kernel_of(a)<<<a->n_row, n < norm_threads ? n : norm_threads, 0,
			    (cudaStream_t)stream>>>(*a);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status layer_act(enum mlp_act act, const bf16_t *gate_up, int n_row, int width, bf16_t *out,
			 void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	act_kernel_of(act)<<<piece_grid(n_row, width), act_threads, 0, (cudaStream_t)stream>>>(
		gate_up, width, out);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status layer_qk_norm(const struct layer_qkv *p, const bf16_t *w, float eps, void *stream,
			     struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int lanes = 2, heads = p->q_heads + p->kv_heads;

	while (lanes * 8 < p->head_dim)
		lanes *= 2;

	/* Whole warps, and no more than the heads need. */
	int some = (heads * lanes + 31) / 32 * 32 / lanes;
	const dim3 block(lanes, some < threads / lanes ? some : threads / lanes);

	layer_qk_norm_kernel<<<head_grid(p->n_row, heads, block), block, 0,
			       (cudaStream_t)stream>>>(*p, w, eps);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status layer_out_gate(const struct layer_qkv *p, const bf16_t *attn, bf16_t *out,
			      void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const dim3 block = head_block(p->head_dim / 8, p->q_heads);

	layer_out_gate_kernel<<<head_grid(p->n_row, p->q_heads, block), block, 0,
				(cudaStream_t)stream>>>(*p, attn, out);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status layer_sum(const struct layer_sum_args *a, void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	layer_sum_kernel<<<piece_grid(a->n_row, a->width), act_threads, 0,
			   (cudaStream_t)stream>>>(*a);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status layer_gather(const bf16_t *in, int n_in, const int32_t *index, int n_out, int width,
			    bf16_t *out, void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	layer_gather_kernel<<<grid((int64_t)n_out * (width / 8)), threads, 0,
			      (cudaStream_t)stream>>>(in, n_in, index, n_out, width, out);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status layer_put(const bf16_t *in, const struct layer_row *row, const int32_t *index, int n,
			 int width, bf16_t *out, void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (!n)
		return AR_OK;
	layer_put_kernel<<<grid((int64_t)n * (width / 8)), threads, 0, (cudaStream_t)stream>>>(
		in, row, index, n, width, out);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status layer_embed(const bf16_t *table, const struct layer_row *row, int n_row, int width,
			   float scale, bf16_t *out, void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	layer_embed_kernel<<<piece_grid(n_row, width), act_threads, 0, (cudaStream_t)stream>>>(
		table, row, width, scale, out);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status layer_argmax(const struct layer_logits *l, int32_t *index, void *stream,
			    struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (l->x)
		layer_argmax_kernel<<<(unsigned)l->n_row, threads, 0, (cudaStream_t)stream>>>(
			l->x, l->width, l->stride, index);
	else
		layer_argmax_kernel<<<(unsigned)l->n_row, threads, 0, (cudaStream_t)stream>>>(
			l->real, l->width, l->stride, index);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status layer_hold(volatile int *go, int64_t max_ns, void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	layer_hold_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(go, (uint64_t)max_ns);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status layer_fill(bf16_t *x, size_t n, uint64_t seed, float scale, void *stream,
			  struct ar_err *err)
{
	enum ar_status st = AR_OK;

	layer_fill_kernel<<<grid((int64_t)((n + 7) / 8)), threads, 0, (cudaStream_t)stream>>>(
		x, n, seed, scale / RNG_SUM_DEVIATION);
	CU_LAUNCHED();
out:
	return st;
}
