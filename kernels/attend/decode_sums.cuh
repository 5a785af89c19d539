/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of decode attention: of the warps of a crew, then of the spans of a segment; see
 * decode_sm80.cu. */
#ifndef AR_DECODE_SUMS_CUH
#define AR_DECODE_SUMS_CUH

#include "kernels/attend/decode_line.cuh"
#include "kernels/prim/softmax.cuh"

template <int D> struct sums {
	float o[WARPS][HEADS][D];	// see sums_at()
	float max[WARPS][HEADS], sum[WARPS][HEADS];
};

/* Where channel d of head h lies in its row of sums: neighbouring rows share no bank. */
static __device__ __forceinline__ int sums_at(int h, int d)
{
	return d ^ h % 4 * 8;
}

/* The partial output of a span, or of several merged spans. */
template <int D> struct part {
	float o[HEADS][D];
	float max[HEADS], sum[HEADS];
};

/* Arrivals per group of up to FAN crews, at the index of the first.  0 between launches:
 * the last to arrive resets it. */
static __device__ uint32_t arrived[LEVELS][MAX_TEAMS];

/* The output of head h of the span. */
template <int D>
static __device__ __forceinline__ bf16_t *out_row(const struct decode_args &a,
						  const struct span &p, int h)
{
	return a.out + ((size_t)p.req * a.b.shape.q_heads + p.head + h) * D;
}

/* The log sum of head h of the span, if it was asked for.  max: of its logits before they are
 * scaled; sum 0: it saw no key. */
template <int D>
static __device__ __forceinline__ void put_lse(const struct decode_args &a, const struct span &p,
					       int h, float max, float sum)
{
	if (a.lse)
		a.lse[(size_t)p.req * a.b.shape.q_heads + p.head + h] =
			sum == 0 ? -INFINITY : max * softmax_scale<D> + logf(sum);
}

/* Write the sums of a warp for n heads, for all. */
template <int D>
static __device__ __forceinline__ void put_sums(struct sums<D> &sums, const float (&o)[D / 8][4],
						const float (&max)[2], const float (&sum)[2],
						int n, int warp, int lane)
{
#pragma unroll
	for (int h = 0; h < 2; h++) {
		int row = lane / 4 + h * 8;
		float all = quad_sum(sum[h]);

		if (row >= n)
			continue;
#pragma unroll
		for (int d = 0; d < D / 8; d++)
			*(float2 *)&sums.o[warp][row][sums_at(row, d * 8 + lane % 4 * 2)] =
				make_float2(o[d][2 * h], o[d][2 * h + 1]);
		if (lane % 4 == 0) {
			sums.max[warp][row] = max[h];
			sums.sum[warp][row] = all;
		}
	}
}

/* The sums n bytes past s. */
template <int D>
static __device__ __forceinline__ const struct sums<D> *bytes_on(const struct sums<D> *s, int n)
{
	return (const struct sums<D> *)((const char *)s + n);
}

/* Merge the warps of a crew, four channels a thread.  The sums of its second team lie `step` bytes
 * past the first.  part NULL: write the output of a whole segment; otherwise the partial output of
 * the span.  HIDES: a head that sees no key gets 0. */
template <int D, bool HIDES>
static __device__ __forceinline__ void finish(const struct decode_args &a, const struct span &p,
					      const struct sums<D> *first, int step,
					      const struct crew &crew, struct part<D> *part)
{
	const struct sums<D> *end = bytes_on(first, step * crew.teams), *s;

#pragma unroll 1
	for (int i = crew_thread(crew) * 4; i < p.heads * D; i += crew_threads(crew) * 4) {
		const int h = i / D, d = i % D;
		float max = -INFINITY, sum = 0, o[4] = {}, base;

#pragma unroll 1
		for (s = first; s < end; s = bytes_on(s, step))
#pragma unroll
			for (int w = 0; w < WARPS; w++)
				max = fmaxf(max, s->max[w][h]);
		base = max == -INFINITY ? 0 : max;
#pragma unroll 1
		for (s = first; s < end; s = bytes_on(s, step))
#pragma unroll
			for (int w = 0; w < WARPS; w++) {
				const float4 x = *(const float4 *)&s->o[w][h][sums_at(h, d)];
				float weight = ex2((s->max[w][h] - base) * softmax_scale_log2<D>);

				sum += weight * s->sum[w][h];
				o[0] += weight * x.x;
				o[1] += weight * x.y;
				o[2] += weight * x.z;
				o[3] += weight * x.w;
			}
		if (!part) {
#pragma unroll
			for (int e = 0; e < 4; e++)
				o[e] = HIDES && sum == 0 ? 0 : __fdividef(o[e], sum);
			*(uint2 *)(out_row<D>(a, p, h) + d) =
				make_uint2(pack_bf16(o[0], o[1]), pack_bf16(o[2], o[3]));
			if (!d)
				put_lse<D>(a, p, h, max, sum);
			continue;
		}
		*(float4 *)&part->o[h][d] = make_float4(o[0], o[1], o[2], o[3]);
		if (!d) {
			part->max[h] = max;
			part->sum[h] = sum;
		}
	}
}

/* ---- sums of spans ---- */

/* Find part i of a segment.  Part 0 begins the segment, so it is in slot 1 of its crew; the
 * others are the first spans of theirs, in slot 0. */
template <int D>
static __device__ __forceinline__ struct part<D> *part_at(const struct decode_args &a,
							  const struct cut &c, int i)
{
	return (struct part<D> *)a.part + (c.first + i) * 2 + !i;
}

/* Merge head h of n <= FAN parts: base, base + step, and so on.  The result is the output if these
 * are all parts, else part base.  By one warp: a lane computes the weight of one part and sums its
 * own channels, four at a time; at head size 64 two lanes do the same.  HIDES: no part may have
 * seen a key; then the row gets 0. */
template <int D, bool HIDES>
static __device__ __forceinline__ void add_parts(const struct decode_args &a,
						 const struct span &p, const struct cut &c,
						 int base, int step, int n, int h, int lane)
{
	constexpr int FOURS = (D + 127) / 128, AT_ONCE = 16 / FOURS;
	const int own = lane % (D / 4);
	const struct part<D> *mine = part_at<D>(a, c, base + min(lane, n - 1) * step);
	const float mine_max = __ldcg(&mine->max[h]), mine_sum = __ldcg(&mine->sum[h]);
	const uint32_t off = (uint32_t)((const char *)mine - (const char *)a.part);
	const char *head = (const char *)a.part + (h * D + own * 4) * sizeof(float);
	float max = 0, sum = 0, weight = 0;
	float4 o[FOURS] = {};

#pragma unroll 1
	for (int first = 0; first < n; first += AT_ONCE) {
		float4 v[AT_ONCE][FOURS];

#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			const float4 *from =
				(const float4 *)(head + __shfl_sync(ALL, off, first + i));

#pragma unroll
			for (int e = 0; e < FOURS; e++)
				v[i][e] = __ldcg(from + 32 * e);
		}
		if (first == 0) {	// while the loads are under way
			max = warp_max(mine_max);
			weight = lane < n && !(HIDES && max == -INFINITY) ?
					 ex2((mine_max - max) * softmax_scale_log2<D>) : 0;
			sum = warp_sum(weight * mine_sum);
		}
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			const float w = __shfl_sync(ALL, weight, first + i);

#pragma unroll
			for (int e = 0; e < FOURS; e++) {
				o[e].x += w * v[i][e].x;
				o[e].y += w * v[i][e].y;
				o[e].z += w * v[i][e].z;
				o[e].w += w * v[i][e].w;
			}
		}
	}
	if (base == 0 && n * step >= c.n) {
		uint2 *to = (uint2 *)out_row<D>(a, p, h) + own;
		const float by = HIDES && sum == 0 ? 0 : __fdividef(1, sum);

#pragma unroll
		for (int e = 0; e < FOURS; e++)
			to[32 * e] = make_uint2(pack_bf16(o[e].x * by, o[e].y * by),
						pack_bf16(o[e].z * by, o[e].w * by));
		if (lane == 0)
			put_lse<D>(a, p, h, max, sum);
		return;
	}
	struct part<D> *to = part_at<D>(a, c, base);

#pragma unroll
	for (int e = 0; e < FOURS; e++)
		((float4 *)to->o[h])[own + 32 * e] = o[e];
	if (lane == 0) {
		to->max[h] = max;
		to->sum[h] = sum;
	}
}

/* Report this crew's part, and merge every group of parts that it completes. */
template <int D, bool HIDES>
static __device__ __forceinline__ void join(const struct decode_args &a, const struct span &p,
					    const struct cut &c, const struct crew &crew)
{
	const int thread = crew_thread(crew);
	int own = crew.id - c.first;

#pragma unroll 1
	for (int level = 0, step = 1; step < c.n; level++, step *= FAN) {
		int base = own / (step * FAN) * (step * FAN);
		int n = min((c.n - base + step - 1) / step, FAN);
		bool last = true;

		own = base;
		if (n == 1)
			continue;
		crew_sync(crew);
		if (!thread)
			last = inc_acq_rel(&arrived[level][c.first + base], n - 1) == n - 1u;
		if (!bar_and(crew.slot, crew_threads(crew), last))
			return;
		for (int h = thread / 32; h < p.heads; h += crew.teams * WARPS)
			add_parts<D, HIDES>(a, p, c, base, step, n, h, thread % 32);
	}
}

#endif
