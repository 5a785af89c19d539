/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How thread blocks share the keys of the vertical-slash sums where only some heads are wanted.
 *
 * SLOTS query heads of a KV head make a slab.  A thread block works on one slab at a time: on a
 * unit, some keys of its request.  All slabs with wanted heads stand in a row, each with its
 * request's pages, and every thread block gets as many pages of the row.
 *
 * If all KV heads have as many of these slabs, the row has only one of each.  Then as many thread
 * blocks walk the same pages side by side, each with a slab of its own, and find keys in L2.
 */
#ifndef AR_LASTQ_UNITS_CUH
#define AR_LASTQ_UNITS_CUH

#include <climits>

#include "kernels/select/lastq/lastq.cuh"

struct lastq_wanted {
	const struct attn_batch &b;
	const struct lastq_parts &parts;
	const int *want;	/* [request][query head]; NULL: all */
};

/* A thread block's share of the row: pages [at, stop). */
struct lastq_share {
	int at, stop;
	int lanes, lane;	/* thread blocks side by side, this one's number among them */
	int entry, before;	/* a KV head of a request, pages of those before it */
};

enum { LASTQ_SLOTS = 4 };	/* of a slab, at most */

struct lastq_unit {
	int r, end;		/* request, the end of its keys */
	int first, stop;	/* keys [first, stop) */
	int kv_head;
	int heads;		/* of the slab; 0: no unit is left */
	int head[LASTQ_SLOTS];
};

/* Count the slabs of a KV head of a request that have wanted heads; 0 if there is no such entry. */
template <int SLOTS>
static __device__ __forceinline__ int lastq_slabs(const struct lastq_wanted &a, int entry)
{
	const int kv_heads = a.b.shape.kv_heads, group = a.b.shape.q_heads / kv_heads;
	const int r = entry / kv_heads;
	int n = 0;

	if (r >= a.b.rows.n_req || a.b.rows.row0[r] == a.b.rows.row0[r + 1])
		return 0;
	for (int i = 0; i < group; i++)
		n += !a.want || a.want[entry * group + i];
	return (n + SLOTS - 1) / SLOTS;
}

/* least: pages of a share.  By a whole warp. */
template <int SLOTS>
static __device__ __forceinline__ struct lastq_share lastq_share_of(const struct lastq_wanted &a,
								    int least)
{
	const int kv_heads = a.b.shape.kv_heads, lane = threadIdx.x % 32;
	int fewest = INT_MAX, most = 0, pages = 0;

	for (int entry = lane; entry < a.b.rows.n_req * kv_heads; entry += 32) {
		const int n = lastq_slabs<SLOTS>(a, entry);

		fewest = n ? min(fewest, n) : fewest;
		most = max(most, n);
		pages += n * lastq_pages(a.b, entry / kv_heads);
	}
	fewest = __reduce_min_sync(~0u, fewest);
	most = __reduce_max_sync(~0u, most);
	pages = __reduce_add_sync(~0u, pages);

	const int lanes = fewest == most && most <= (int)gridDim.x ? most : 1;
	const int n = (int)gridDim.x / lanes, even = (pages / lanes + n - 1) / n;
	const int at = (int)blockIdx.x / lanes * max(even, least);

	return { at, min(at + max(even, least), pages / lanes), lanes, (int)blockIdx.x % lanes,
		 0, 0 };
}

/* Find the wanted query head with this number in a KV head; q_heads: there is none.  By a whole
 * warp. */
static __device__ __forceinline__ int lastq_nth_head(const struct lastq_wanted &a, int r,
						     int kv_head, int number)
{
	const int heads = a.b.shape.q_heads, group = heads / a.b.shape.kv_heads;
	const int lane = threadIdx.x % 32, first = kv_head * group;

	for (int i = 0; i < group; i += 32) {
		uint32_t bits = __ballot_sync(~0u, i + lane < group &&
					      (!a.want || a.want[r * heads + first + i + lane]));

		for (; bits && number; number--)
			bits &= bits - 1;
		if (bits)
			return first + i + __ffs(bits) - 1;
	}
	return heads;
}

/* Sum over the lanes up to this one. */
static __device__ __forceinline__ int lastq_upto(int x)
{
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int i = 1; i < 32; i *= 2) {
		const int other = __shfl_up_sync(~0u, x, i);

		x += lane >= i ? other : 0;
	}
	return x;
}

/* Move the next unit from the share to u; both are in shared memory.  By a whole warp. */
template <int SLOTS>
static __device__ __forceinline__ void lastq_next_unit(const struct lastq_wanted &a,
						       struct lastq_share &s,
						       struct lastq_unit &u)
{
	const int kv_heads = a.b.shape.kv_heads, tok = a.b.shape.page_tok, lane = threadIdx.x % 32;
	const int stop = s.stop;
	int at = s.at, heads = 0;

	while (at < stop && !heads) {
		const int slabs = lastq_slabs<SLOTS>(a, s.entry + lane) / s.lanes;
		const int own = slabs ? lastq_pages(a.b, (s.entry + lane) / kv_heads) : 0;
		const int upto = s.before + lastq_upto(slabs * own);
		const uint32_t beyond = __ballot_sync(~0u, upto > at);
		const int it = beyond ? __ffs(beyond) - 1 : 31;
		const int pages = __shfl_sync(~0u, own, it), over = __shfl_sync(~0u, upto, it);
		const int from = __shfl_sync(~0u, upto - slabs * own, it), entry = s.entry + it;

		__syncwarp();
		if (!beyond) {
			if (!lane) {
				s.before = over;
				s.entry += 32;
			}
			__syncwarp();
			continue;
		}
		const int page = (at - from) % pages, slab = (at - from) / pages * s.lanes + s.lane;
		const int r = entry / kv_heads, end = lastq_end(a.parts, a.b, r);
		const int n = min(pages - page, stop - at);

		at += n;
		if (page * tok >= end)
			continue;
		for (int i = 0; i < SLOTS; i++) {
			const int head = lastq_nth_head(a, r, entry % kv_heads, slab * SLOTS + i);

			heads += head < a.b.shape.q_heads;
			if (!lane)
				u.head[i] = head;
		}
		if (!lane) {
			u.r = r;
			u.end = end;
			u.first = page * tok;
			u.stop = min((page + n) * tok, end);
			u.kv_head = entry % kv_heads;
		}
	}
	__syncwarp();
	if (!lane) {
		s.at = at;
		u.heads = heads;
	}
	__syncwarp();
}

#endif
