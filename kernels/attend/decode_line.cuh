/* SPDX-License-Identifier: Apache-2.0 */
/* The line of units of decode attention, and who takes which stretch of it; see decode_sm80.cu. */
#ifndef AR_DECODE_LINE_CUH
#define AR_DECODE_LINE_CUH

#include "kernels/attend/attend.h"
#include "kernels/prim/device.cuh"

constexpr int HEADS = 16;		// of a segment, at most
constexpr int WARPS = 4;		// of a team
constexpr int THREADS = WARPS * 32;
constexpr int WARP_KEYS = 16;		// of a step
constexpr int TILE = WARPS * WARP_KEYS;	// keys that are skipped together
constexpr int STAGES = 3;
template <int D> constexpr int TEAMS = D > 128 ? 1 : 2;	// of a multiprocessor
constexpr int EXCESS = 128 * 1024;	// bytes of a multiprocessor's longest stretch over the mean
template <int D> constexpr bool Q_SHARED = D > 128;
constexpr int MAX_TEAMS = 512;		// of the grid; multiprocessors past 256 stay idle
constexpr int FAN = 32;			// most spans, or sums of spans, added up at once
constexpr int LEVELS = 2;
static_assert(FAN * FAN >= MAX_TEAMS, "two levels are enough");
static_assert(STAGES <= 4, "a word holds the bits of a step and of those ahead");
constexpr unsigned ALL = 0xffffffff;

/* The kind of lists that a kernel walks; 0: it walks none. */
enum { BLOCKS = 1, PIECES };

/* Lists of blocks, or of pieces of 2^shift tokens. */
struct entry_lists {
	const uint16_t *block;		// one of the two
	const int32_t *piece;
	const int32_t *n;
	const uint16_t *mask;		// NULL: all heads see all pieces
	int stride, shift;
};

/* Stretches that end where segments do: `parts` crews for a segment, or `segs` segments for a
 * crew. */
struct even {
	int parts, segs;		// 0: there are none
	int crews, busy;		// all crews, and those that have a stretch
};

struct decode_args {
	struct attn_batch b;
	struct entry_lists lists;
	int group;			// query heads of a KV head
	int heads;			// heads that share a list; without lists: group
	int list_seg, kv_seg, n_seg;	// segments of a list, a KV head, a request
	const bf16_t *q;
	struct kv_bf16 kv;
	bf16_t *out;
	float *lse;			// NULL: not asked for
	void *part;			// struct part: [teams of the grid][2]
	const float *sink;		// of each query head; NULL: none
	bool skips;
	bool beside;			// attn_call.beside
	struct even even;
};

struct span {
	int req, seg;			// segment of the request
	int page0;			// place of the request's first page in the table
	int head, heads, kv_head;	// query heads from `head` on; the last list of a KV head
					// can have fewer than others, even none
	int blk, stop, n_blk;		// blocks [blk, stop) of n_blk
	int n;				// entries of its list
};

/* A segment cut into n spans, one for each crew from `first` on. */
struct cut {
	int first, n;
};

/* Who runs a span: one team, or both teams of a thread block.  All crews of a grid are alike. */
struct crew {
	int teams, team;		// the team of this warp, 0 in a crew of one
	int slot;			// of a crew of one in its thread block
	int id;				// of all crews
};

static __device__ __forceinline__ int crew_threads(const struct crew &c)
{
	return c.teams * THREADS;
}

static __device__ __forceinline__ int crew_thread(const struct crew &c)
{
	return (int)threadIdx.x - c.slot * THREADS;
}

static __device__ __forceinline__ void crew_sync(const struct crew &c)
{
	bar_sync(c.slot, crew_threads(c));
}

/* Divide without a sign: half the instructions. */
static __device__ __forceinline__ int div_int(int a, int b)
{
	return (int)((unsigned)a / (unsigned)b);
}

/* Make p a span of segment seg. */
static __device__ __forceinline__ void set_segment(const struct decode_args &a, struct span &p,
						   int seg)
{
	int kv_head = div_int(seg, a.kv_seg), at = seg - kv_head * a.kv_seg;
	int list = div_int(at, a.list_seg), before = (at - list * a.list_seg) * HEADS;

	p.seg = seg;
	p.kv_head = kv_head;
	p.head = kv_head * a.group + list * a.heads + before;
	p.heads = min(min(a.group - list * a.heads, a.heads) - before, HEADS);
}

/* Count the blocks of an item.  An item is a request, with segments of equal length, or a listed
 * segment. */
template <int LISTS>
static __device__ __forceinline__ int n_items(const struct decode_args &a)
{
	return LISTS ? a.b.rows.n_req * a.n_seg : a.b.rows.n_req;
}

/* Segments of an item. */
template <int LISTS>
static __device__ __forceinline__ int item_segments(const struct decode_args &a)
{
	return LISTS ? 1 : a.n_seg;
}

/* The first block that a request sees.  BOUNDED: rows have first keys, or heads have sinks. */
template <int PAGE, bool BOUNDED>
static __device__ __forceinline__ int first_block(const struct decode_args &a, int req)
{
	return BOUNDED && a.b.rows.first ? a.b.rows.first[req] / PAGE : 0;
}

/* Entries of the list of an item, or blocks without lists.  SKIPS: tiles of keys. */
template <int PAGE, int LISTS, bool BOUNDED, bool SKIPS>
static __device__ __forceinline__ int n_entries(const struct decode_args &a, int item)
{
	if (SKIPS)
		return a.b.rows.pos0[item] / TILE + 1;
	return LISTS ? a.lists.n[item / a.list_seg] :
			a.b.rows.pos0[item] / PAGE + 1 - first_block<PAGE, BOUNDED>(a, item);
}

/* Units of one segment that has n entries.  SKIPS: a unit is a part, or a tile where the stretches
 * are the parts. */
template <int PAGE, int LISTS, bool SKIPS>
static __device__ __forceinline__ int n_blocks(const struct decode_args &a, int n)
{
	if (SKIPS)
		return a.b.skip.parts ? min(n, a.b.skip.parts) : n;
	return LISTS == PIECES ? ((n << a.lists.shift) + PAGE - 1) / PAGE : n;
}

/* Items of a lane, one after the other. */
template <int LISTS>
static __device__ __forceinline__ int lane_items(const struct decode_args &a)
{
	return (n_items<LISTS>(a) + 31) / 32;
}

/* Units of one segment of each of a lane's items, and the most of one. */
struct lane_sum {
	int units, most;
};

template <int PAGE, int LISTS, bool BOUNDED, bool SKIPS>
static __device__ struct lane_sum lane_units(const struct decode_args &a, int lane)
{
	const int n = lane_items<LISTS>(a), end = min((lane + 1) * n, n_items<LISTS>(a));
	struct lane_sum sum = {};

#pragma unroll 4
	for (int i = lane * n; i < end; i++) {
		const int own = n_blocks<PAGE, LISTS, SKIPS>(
			a, n_entries<PAGE, LISTS, BOUNDED, SKIPS>(a, i));

		sum.units += own;
		sum.most = max(sum.most, own);
	}
	return sum;
}

/* Find the span that begins with unit u: its request, segment, block and first page.  There are
 * more than u units; own: of lane_units().  By one warp.  A scan finds the lane with the unit.
 * Then each lane loads one of its items, the length and the first page together, which saves a
 * wait for memory. */
template <int PAGE, int LISTS, bool BOUNDED, bool SKIPS>
static __device__ struct span find_unit(const struct decode_args &a, int u, int own, int lane)
{
	struct span p;
	int upto = own;

#pragma unroll
	for (int i = 1; i < 32; i *= 2) {
		const int left = __shfl_up_sync(ALL, upto, i);

		upto += lane >= i ? left : 0;
	}
	const int at = __ffs(__ballot_sync(ALL, upto * item_segments<LISTS>(a) > u)) - 1;
	int base = __shfl_sync(ALL, upto - own, at);

#pragma unroll 1
	for (int r = at * lane_items<LISTS>(a); ; r += 32) {
		const bool some = r + lane < n_items<LISTS>(a);
		const int req = LISTS ? div_int(r + lane, a.n_seg) : r + lane;
		const int own = some ? n_entries<PAGE, LISTS, BOUNDED, SKIPS>(a, r + lane) : 0;
		int n = n_blocks<PAGE, LISTS, SKIPS>(a, own), to = n;
		int page0 = some ? a.b.keys.page0[req] : 0;
		unsigned past;

#pragma unroll
		for (int i = 1; i < 32; i *= 2) {
			int left = __shfl_up_sync(ALL, to, i);

			to += lane >= i ? left : 0;
		}
		past = __ballot_sync(ALL, (base + to) * item_segments<LISTS>(a) > u);
		if (past) {
			const int i = __ffs(past) - 1;
			const int before = base + __shfl_sync(ALL, to - n, i);

			u -= before * item_segments<LISTS>(a);
			p.n = __shfl_sync(ALL, own, i);
			p.n_blk = n_blocks<PAGE, LISTS, SKIPS>(a, p.n);
			p.page0 = __shfl_sync(ALL, page0, i);
			p.req = __shfl_sync(ALL, req, i);
			p.seg = LISTS ? r + i - p.req * a.n_seg : div_int(u, p.n_blk);
			p.blk = LISTS ? u : u - p.seg * p.n_blk;
			return p;
		}
		base += __shfl_sync(ALL, to, 31);
	}
}

/* n crews have `least` units, the first `more` of them one more. */
struct shares {
	int n, least, more;
};

/* The shares of all units.  Without any, no crew has one. */
static __device__ __forceinline__ struct shares shares_of(int total, int crews)
{
	const int n = min(total, crews), least = n ? div_int(total, n) : 0;

	return { n, least, total - least * n };
}

static __device__ __forceinline__ int share_begin(const struct shares &s, int i)
{
	return i * s.least + min(i, s.more);
}

/* The crew that has unit u. */
static __device__ __forceinline__ int share_of(const struct shares &s, int u)
{
	int i = div_int(u, s.least + 1);

	return i < s.more ? i : div_int(u - s.more, s.least);
}

/* ---- even stretches ---- */

/* The stretches of n_seg segments for `crews` crews.  None if more than a tenth of these would
 * idle. */
static inline struct even even_of(int n_seg, int crews)
{
	const int parts = crews / n_seg < FAN ? crews / n_seg : FAN;
	struct even e = { parts ? parts : 1, parts ? 1 : (n_seg + crews - 1) / crews, crews, 0 };

	e.busy = (n_seg * e.parts + e.segs - 1) / e.segs;
	return 10 * n_seg * e.parts < 9 * crews * e.segs ? (struct even){} : e;
}

/* Whether the longest stretch is little longer than the mean of all crews' would be: in all at most
 * `more` units.  most: units of the longest segment; total: of all segments. */
static __device__ __forceinline__ bool is_even(const struct even &e, int most, int total, int more)
{
	return e.parts && div_int(most + e.parts - 1, e.parts) * e.segs * e.crews <= total + more;
}

#endif
