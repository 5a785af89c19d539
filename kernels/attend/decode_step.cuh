/* SPDX-License-Identifier: Apache-2.0 */
/* A warp's step of decode attention over 16 keys in shared memory, and the lists of spans; see
 * decode_sm80.cu. */
#ifndef AR_DECODE_STEP_CUH
#define AR_DECODE_STEP_CUH

#include "kernels/attend/decode_sums.cuh"

/* Load the A operand of every k step: rows of q, one per head, zeros past n. */
template <int D>
static __device__ __forceinline__ void load_q(uint32_t (&a)[D / 16][4], const bf16_t *q, int n,
					      int lane)
{
#pragma unroll
	for (int d = 0; d < D / 16; d++)
#pragma unroll
		for (int i = 0; i < 4; i++) {
			int row = lane / 4 + i % 2 * 8, col = d * 16 + lane % 4 * 2 + i / 2 * 8;

			a[d][i] = row < n ? *(const uint32_t *)(q + row * D + col) : 0;
		}
}

/* Where chunk c, 16 bytes, of row r of a warp's keys or values lies: rows are whole. */
template <int D> struct whole_rows {
	static __device__ __forceinline__ uint32_t at(int r, int c)
	{
		return swizzle<D>(r, c);
	}
};

/* Scores of one warp's 16 keys.  The queries are in q, or in shared memory at q_at. */
template <int D, class Rows = whole_rows<D>>
static __device__ __forceinline__ void score(float (&s)[2][4], const uint32_t (&q)[D / 16][4],
					     uint32_t q_at, uint32_t k, int lane)
{
	uint32_t b[4];

#pragma unroll
	for (int d = 0; d < D / 16; d++) {
		const int row = lane & 15, c = d * 2 + (lane >> 4);
		uint32_t a[4] = { q[d][0], q[d][1], q[d][2], q[d][3] };

		if (Q_SHARED<D>)
			ldmatrix_x4(a, q_at + swizzle<D>(row, c));
		ldmatrix_x4(b, k + Rows::at(row, c));
		mma_m16n8k16(s[0], a, b[0], b[2]);
		mma_m16n8k16(s[1], a, b[1], b[3]);
	}
}

/* Hide the scores of keys from n on. */
static __device__ __forceinline__ void hide_past(float (&s)[2][4], int n, int lane)
{
	if (n < WARP_KEYS) {
		int seen[2] = { n - 1, n - 1 };

		softmax_mask(s, seen, lane);
	}
}

/* Online softmax over scores, then o += p v. */
template <int D, class Rows = whole_rows<D>>
static __device__ __forceinline__ void weigh(float (&o)[D / 8][4], float (&max)[2], float (&sum)[2],
					     float (&s)[2][4], uint32_t v, int lane)
{
	uint32_t b[4], p[4];

	softmax_step<2, D>(s, o, max, sum);
	softmax_operand(p, s[0], s[1]);
#pragma unroll
	for (int d = 0; d < D / 16; d++) {
		ldmatrix_x4_trans(b, v + Rows::at(lane & 15, d * 2 + (lane >> 4)));
		mma_m16n8k16(o[2 * d], p, b[0], b[1]);
		mma_m16n8k16(o[2 * d + 1], p, b[2], b[3]);
	}
}

/* The list of a span's segment. */
struct list {
	size_t at;			// of its first entry
	int n;
};

static __device__ __forceinline__ struct list list_of(const struct decode_args &a,
						      const struct span &p)
{
	return { (size_t)((p.req * a.n_seg + p.seg) / a.list_seg) * a.lists.stride, p.n };
}

/* Keys of the list, side by side; own: the row's position. */
template <int PAGE, int LISTS>
static __device__ __forceinline__ int n_listed(const struct entry_lists &l, const struct list &list,
					       int own)
{
	const size_t end = list.at + list.n - 1;
	const bool pieces = LISTS == PIECES;
	const int tok = pieces ? 1 << l.shift : PAGE, newest = pieces ? own >> l.shift : own / PAGE;
	const int last = pieces ? l.piece[end] : l.block[end];

	return list.n * tok - (last == newest ? tok - 1 - (own & (tok - 1)) : 0);
}

/* Keys of a span's segment, all or listed. */
template <int PAGE, int LISTS>
static __device__ __forceinline__ int n_keys(const struct decode_args &a, const struct span &p,
					     const struct list &list)
{
	const int own = a.b.rows.pos0[p.req];

	return LISTS ? n_listed<PAGE, LISTS>(a.lists, list, own) : own + 1;
}

/* Rows whose lists are empty see no key.  By one of `crews` crews. */
template <int D>
static __device__ void clear_empty(const struct decode_args &a, const struct crew &crew, int crews)
{
	const int thread = crew_thread(crew);

#pragma unroll 1
	for (int i = crew.id; i < a.b.rows.n_req * a.n_seg; i += crews) {
		struct span p;

		if (a.lists.n[div_int(i, a.list_seg)])
			continue;
		p.req = div_int(i, a.n_seg);
		set_segment(a, p, i - p.req * a.n_seg);
		for (int k = thread; k < p.heads * D; k += crew_threads(crew))
			out_row<D>(a, p, 0)[k] = 0;
		if (thread < p.heads)
			put_lse<D>(a, p, thread, -INFINITY, 0);
	}
}

/* Make p the crew's span of segment g of all, one of even stretches.  False: it has none. */
template <int PAGE, int LISTS, bool BOUNDED>
static __device__ __forceinline__ bool even_span(const struct decode_args &a,
						 const struct crew &crew, int g, struct span &p,
						 struct cut &cut)
{
	const int part = crew.id - div_int(crew.id, a.even.parts) * a.even.parts;

	p.req = div_int(g, a.n_seg);
	p.page0 = a.b.keys.page0[p.req];
	p.n = n_entries<PAGE, LISTS, BOUNDED, false>(a, LISTS ? g : p.req);
	p.n_blk = n_blocks<PAGE, LISTS, false>(a, p.n);
	set_segment(a, p, g - p.req * a.n_seg);
	cut.first = crew.id - part;
	cut.n = min(a.even.parts, p.n_blk);
	if (part >= cut.n)
		return false;
	p.blk = div_int(p.n_blk * part, cut.n);
	p.stop = div_int(p.n_blk * (part + 1), cut.n);
	return true;
}

/* End p, which begins at unit u of the line, at unit `end` or with its segment. */
static __device__ __forceinline__ void line_span(const struct decode_args &a,
						 const struct shares &s, int u, int end,
						 const struct crew &crew, struct span &p,
						 struct cut &cut)
{
	set_segment(a, p, p.seg);
	p.stop = min(p.blk + end - u, p.n_blk);
	cut.first = crew.id;
	cut.n = 1;
	if (p.blk || p.stop < p.n_blk) {
		cut.first = share_of(s, u - p.blk);
		cut.n = share_of(s, u - p.blk + p.n_blk - 1) - cut.first + 1;
	}
}

/* Turn to the next segment of the line. */
template <int PAGE, int LISTS, bool BOUNDED, bool SKIPS>
static __device__ __forceinline__ void next_segment(const struct decode_args &a, struct span &p)
{
	p.blk = 0;
	do {
		if (++p.seg == a.n_seg) {
			p.seg = 0;
			p.page0 = a.b.keys.page0[++p.req];
		}
		if (LISTS || !p.seg)
			p.n = n_entries<PAGE, LISTS, BOUNDED, SKIPS>(
				a, LISTS ? p.req * a.n_seg + p.seg : p.req);
		p.n_blk = n_blocks<PAGE, LISTS, SKIPS>(a, p.n);
	} while (LISTS && !p.n_blk);
}

/* Call run(span, cut) for each span of the crew; all warps of the crew do.  even: stretches end
 * with segments; otherwise all have equal ones.  own: units of the lane's items; total: units of
 * all items. */
template <int PAGE, int LISTS, bool BOUNDED, bool SKIPS, typename Run>
static __device__ __forceinline__ void run_spans(const struct decode_args &a, bool even, int own,
						 int total, int crews, int lane,
						 const struct crew &crew, const Run &run)
{
	const struct shares s = shares_of(total, crews);
	int u, end;			// units of the line, or segments of all
	struct span p;

	if (even) {
		u = div_int(crew.id, a.even.parts) * a.even.segs;
		end = min(u + a.even.segs, a.b.rows.n_req * a.n_seg);
	} else {
		u = share_begin(s, crew.id);
		end = crew.id < s.n ? share_begin(s, crew.id + 1) : u;
	}
	if (u >= end)
		return;
	if (!even)
		p = find_unit<PAGE, LISTS, BOUNDED, SKIPS>(a, u, own, lane);
#pragma unroll 1
	for (;;) {
		struct cut cut;
		bool some = true;

		if (even)
			some = even_span<PAGE, LISTS, BOUNDED>(a, crew, u, p, cut);
		else
			line_span(a, s, u, end, crew, p, cut);
		if (some)
			run(p, cut);
		u += even ? 1 : p.stop - p.blk;
		if (u >= end)
			return;
		if (!even)
			next_segment<PAGE, LISTS, BOUNDED, SKIPS>(a, p);
	}
}

#endif
