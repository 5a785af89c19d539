/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode attention: one query row per request, over all of its blocks or over lists of blocks or of
 * pieces of blocks.  It is memory bound.
 *
 * On Hopper decode_sm90.cu runs head sizes 64 and 128 over all blocks or lists of blocks, where no
 * row has a first key, no head a sink, no key a position of its own, and nothing is skipped.  Three
 * segments or fewer are run here, as 1 x 2K takes 11.2 instead of 11.6.
 *
 * The work is a line of units, ordered by request, segment and block.  A unit is one KV block of
 * one segment.  A segment is up to 16 query heads that share a list or, without lists, a KV head.
 *
 * A team is four warps.  A multiprocessor runs two teams at once, at head size 256 one.  A crew is
 * a team, a thread block of its own, or both teams of a multiprocessor in one thread block.  Each
 * crew takes a stretch of the line.  It finds its stretch from ctx or from the lengths of the
 * lists, so lengths never leave the device.
 *
 * Stretches are equally long, whatever the lengths of the segments are.  But where these are much
 * alike, stretches end where segments do: a crew has whole segments, or a segment has as many crews
 * as there are for each.  That leaves few or no sums of spans, but the longest stretches are
 * longer, and some crews idle.  So it must leave nine in ten crews busy, and no multiprocessor with
 * more than EXCESS bytes over the mean.  Both teams are one crew where a segment then has one or
 * two of these, or would have 32 or more crews of one team.  They take tiles of 64 keys in turns.
 *
 * A span is the part of a stretch inside one segment.  A span that is a whole segment writes the
 * output.  Other spans store unnormalised fp32 sums.  A crew has at most two such spans: its first
 * (slot 0), and one that begins a segment (slot 1).
 *
 * The sums of up to 32 neighbouring spans are added up by the crew that finishes last.  If a
 * segment has more spans, the results are added up in the same way.  So no crew waits for another,
 * and none reads more than 32 sums at a time.  Sums are added in the order of the spans, whichever
 * crew does it.
 *
 * If a row has a first key, its request has the blocks from that key's on.  So a segment is as long
 * as the window, whatever the context is.  Keys, their pages and the row's position count from the
 * first of these blocks on.  A sink is in the sums of one warp of a segment's first span.
 *
 * Keys with positions of their own are hidden from rows of lower positions, one by one.  All blocks
 * are read for each row.  Spans may hold no key that the row sees.
 *
 * Listed pieces are treated as if they lay side by side, blocks full of them: only the look-up of
 * places depends on where in the context a piece lies.  So lists of all pieces give the bits that
 * all blocks give here.  Only the last piece can hold the row's own position.  A block is a piece,
 * too.
 *
 * A warp looks its places up in windows of 32, 1 to 16 places for each step.  It loads numbers of
 * pieces two windows ahead and numbers of pages one window ahead.  So no step waits for both.
 *
 * A kernel that skips (struct attn_skip) is an instance of its own.  Its tiles are the 64 keys of a
 * step of all warps.  A unit is a part, whose tiles lie n_part apart; so a part never has two
 * crews.  Where the stretches are the parts, a unit is a tile.  After each Q K^T the warps exchange
 * their largest scores, which costs a barrier.  Values of a tile are asked for after its vote, and
 * values of a skipped one never.
 *
 * Each warp of a team takes 16 keys of every 64 and runs on its own.  It has its own ring of copies
 * and its own online softmax.  The heads are the 16 rows of mma m16n8k16: idle rows cost nothing,
 * as the loads are the bottleneck.  The warps meet at the end of a span.
 *
 * In flight per multiprocessor at head size 128: 2 teams x 4 warps x 2 of 3 stages x 8 KiB =
 * 128 KiB.  H200 needs about 4.8 TB/s x 1 us / 132 = 36 KiB.  At head size 256 one team fills a
 * multiprocessor, with the same in flight.  There a warp's queries lie in shared memory, since
 * beside O no registers are left for them.
 *
 * Instructions are loaded, too: the weights of a layer push them out of all caches.  So this code
 * is short: places of 32 bits, divisions without a sign, loops that are not unrolled twice.  On an
 * H200, with 8 query and 2 KV heads of 128, requests x context, before and after, us:
 *	1 x 2K	 9.0   7.6	8 x 2K	12.6  11.0	24 x 0.2K to 6K	 33.1  30.7
 *	1 x 32K	18.9  18.6	32 x 2K	29.1  24.3	48 x 0.2K to 6K	 51.8  47.7
 *	8 x 16K	44.1  41.5	64 x 2K	44.2  41.2
 * With 32 query and 8 KV heads of 128, 8 x 128K takes 964, at 1.04 of the rate of a copy.  Lists of
 * a tenth of the keys, by tokens of a piece, take:
 *	128	64	32	16	4	1
 *	119.5	118.7	116.6	119.2	119.8	119.4
 * Lists of blocks took 114.6 before the kernel knew pieces, and 117.1 as pieces of a block.  They
 * take 119.6 without windows in a run where they took 121.7 as pieces.  One address for the 16 rows
 * of a step, where pieces are as long, gained nothing.
 *
 * FlashAttention 3 of vLLM 0.24, in CUDA graphs, over tables of the pages that a request's lists
 * hold: pieces of 128 and 16 tokens take it 108.1 and 109.9 in a run where they take 112.0 and
 * 113.0 here; all keys take it 975, and 959 here.
 *
 * Lists of 4 + 1024 tokens of 64 requests of 32K take 81.2 to 82.8, at .77 to .79 of the rate of
 * a copy; at that rate it would be 64.  They took 87.5 when each warp looked for its first unit
 * through all 512 lists, 32 at a time, and 83.1 with steps for the 60 places that the last block of
 * a list leaves empty.  What did not help: units of 64 tokens instead of 128 (86.3; lists of 256
 * tokens 34.9 instead of 28.3, as more spans are cut); stretches rounded up to whole segments
 * (81.2).  The rest over the time of a copy is that of spans, two or three a thread block: each
 * waits for its list, then pages, then keys, and drains its rings at its end.
 *
 * Tiles that skip, as many parts as stretches: 64 x 16K takes 970, 971 where nothing is skipped,
 * 693 at a share of .63 and 757 at .46; 8 x 128K 962, 967 and 649 at .70.  One part: 64 x 16K takes
 * 971, 985 and 671 at .67; but 8 x 128K 2004, as its 64 parts leave most thread blocks idle.
 *
 * Keys and values leave the L2 cache first, as each is read once.  Before and after, us:
 *	8 x 8K	 44.2  43.2	64 x 4K	133.0 129.5	8 query and 2 KV heads:
 *	8 x 32K	134.4 132.3	32 x 8K	133.4 130.2	64 x 2K	 43.6  42.2
 *	8 x 128K 489.6 486.5	1 x 64K	 44.3  43.1	32 x 2K	 28.2  26.5
 * Without arithmetic 8 x 32K would take 128.4.  Bulk copies of 32 KiB that do nothing else take
 * 118.7 for as many bytes, and those of 8 KiB 121.2.  Two hints did not help.  Copies that ask
 * the L2 cache for 256 bytes took 141.9 instead of 131.1, and 128 bytes did not help either.  Nor
 * did it help that all warps take a step together.
 *
 * Multiprocessors end at 168,000 to 227,000 cycles of 8 x 32K: some get less of the memory's rate.
 * Stretches in rounds of 3/4, 3/16 and the rest, drawn by thread blocks that are free, end at
 * 210,000 to 232,000.  But in another run than the table's 8 x 32K took 134.1 instead of 132.3.
 * 8 x 8K took 47.5 instead of 40.7, and 32 x 2K 31 instead of 25.  The memory was as busy until the
 * end before, too, and each stretch begins with empty rings.
 *
 * Copies by TMA gained too little in this kernel; decode_sm90.cu is made for them.  A fifth warp
 * asked for boxes of 64 keys by 64 channels, and went on to the next span while the others computed
 * theirs.  Results had the same bits.  Times in turns: this kernel, then boxes with an L2 promotion
 * of 256 bytes, then of 128.  No promotion took as long as 128.  Boxes of whole rows, with 128,
 * took 132.7, 483.5 and 129.8 in the first column.
 *	8 x 32K	 132.5 140.6 131.1	32 x 8K	130.1 139.8 129.4	8 query and 2 KV heads:
 *	8 x 128K 487.2 518.3 483.5	8 x 8K	 41.9  43.7  41.9	64 x 2K	41.9 43.7 42.4
 *	64 x 4K	 129.3 139.3 129.2				32 x 2K	26.9 27.6 27.0
 * So the memory's rate depends on which bytes a copy asks for, more than on who asks.
 *
 * Stretches that end with segments, against equal ones, and cuDNN over keys in one piece (PyTorch
 * 2.11), in turns between events in one process, us:
 *	8 x 32K	 132.7 130.4 130.8	8 x 8K	42.9 40.1 42.2	8 query and 2 KV heads:
 *	64 x 4K	 129.3 128.4 127.3	1 x 8K	17.5 14.7 16.8	64 x 2K	43.3 38.5 37.8
 *	8 x 128K 488.1 487.3 482.6	2 x 32K	44.4 40.2 42.4	32 x 2K	26.5 25.4 27.5
 *	32 x 8K	 131.7 128.7 126.3	1 x 64K	42.9 40.9 43.3	128 x 2K 70.7 68.7 68.1
 * Requests of 1.9K to 2.1K take 38.6 instead of 41.2.  Of all batches none was slower; 8 x 128K and
 * ones of mixed lengths stay equal.  Without adding up spans 8 x 32K took 126.7 instead of 130.3,
 * and 64 x 2K 38.4 instead of 41.6.  What did not help: longest stretches a quarter over the mean
 * (8 x 128K 486.5 instead of 477.1), and twice (12 x 8K 64.7 instead of 57.1).  Both teams as one
 * crew took 131.0 at 8 x 32K.  Asking only for sums that exist, so that each load is a branch, took
 * 14.2 instead of 11.6 at 1 x 2K.
 *
 * At 8 x 32K a group of 24 multiprocessors ends at 94 us, the others at 113 to 123: the memory is
 * busy until then.  First keys come after 4 to 9 us, as all multiprocessors ask at once.
 *
 * Kernels that only read, in the pattern of this one or in another, against this one, cuDNN and
 * FlashAttention 3 in one process, us (another run: decode_sm90.cu).  An empty launch takes 4.4:
 *	8 x 32K	 122.5 130.4 131.1 131.5	64 x 4K	122.6 128.9 126.7 134.3
 *	8 x 128K 473.0 487.6 481.0 488.9	32 x 8K	122.6 128.7 126.7 132.8
 *	8 query and 2 KV heads: 64 x 2K		 34.8  38.5  37.9  41.2
 * Where thread blocks idle, others end later: decode_sm90.cu gains 2 us at 8 x 32K if it launches
 * 128 of them, not 132 of which 4 idle.  This kernel gains nothing: 130.6 with 128, 130.8 with 132.
 * On another H200 kernels that only read took 2 % longer with 128 than with 132.
 *
 * When 1 x 2K took 8.0, the launch took 0.7, finding the work 1.4, the first keys 2.7, arithmetic
 * 0.9 and adding up spans 2.3.  As few thread blocks as the longest stretch allows: 32 and 64 x 2K
 * gained 3 and 1 us, but other batches lost up to 5.
 */
#include "config.h"

#include <cuda_runtime.h>
#include <math.h>

#include "kernels/attend/attend.h"
#include "kernels/attend/decode_step.cuh"
#include "kernels/prim/cuda.h"
#include "kernels/prim/softmax.cuh"
#include "kernels/support.h"

template <int D> struct __align__(128) ring {	// the swizzle is in the low bits
	bf16_t k[STAGES][WARP_KEYS * D];
	bf16_t v[STAGES][WARP_KEYS * D];
	bf16_t q[Q_SHARED<D> ? HEADS * D : 8];
};
static_assert(HEADS == WARP_KEYS, "queries are copied as keys are");

template <int D> union team_smem {
	struct ring<D> ring[WARPS];
	struct sums<D> sums;		// once the ring has drained
};
static_assert(TEAMS<128> * sizeof(union team_smem<128>) <= 225 * 1024, "they fit");
static_assert(TEAMS<256> * sizeof(union team_smem<256>) <= 225 * 1024, "it fits");

/* ---- a span ---- */

/* Copy 16 bytes as cp_async_16() does.  They leave the L2 cache first, as each is read once. */
static __device__ __forceinline__ void copy_16_once(uint32_t dst, const void *src, int n)
{
	uint64_t policy;

	asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
	asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;"
		     :: "r"(dst), "l"(__cvta_generic_to_global(src)), "r"(n), "l"(policy)
		     : "memory");
}

/* Copy the warp's 16 keys of one step into its ring; keys from n on become zeros.  The bits of
 * first and i are apart, so the swizzle of row first + i is one XOR more. */
template <int D>
static __device__ __forceinline__ void copy_keys(uint32_t dst, const bf16_t *src, int n, int lane)
{
	constexpr int CHUNKS = D / 8;
	const int c = lane % CHUNKS, first = lane / CHUNKS;

	dst += swizzle<D>(first, c);
	src += first * D + c * 8;
	asm("" : "+l"(src));		// one address; rows are at immediate offsets from it
	n -= first;
#pragma unroll
	for (int i = 0; i < WARP_KEYS; i += 32 / CHUNKS)
		copy_16_once((dst ^ i % 8 * 16) + i * D * 2, src + i * D, i < n ? 16 : 0);
}

/* Positions of a lane's keys among a warp's 16, and that of the row. */
struct places {
	int2 key[2];
	int own;
};

/* Hide the keys at later positions than the row's. */
static __device__ __forceinline__ void hide_later(float (&s)[2][4], const struct places &at)
{
#pragma unroll
	for (int n = 0; n < 2; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			if ((e % 2 ? at.key[n].y : at.key[n].x) > at.own)
				s[n][e] = -INFINITY;
}

/* Add the 16 keys of a warp to its output o.  Keys outside of [from, n) and those that hide() names
 * count nothing. */
template <int D, typename Hide>
static __device__ __forceinline__ void step(float (&o)[D / 8][4], float (&max)[2], float (&sum)[2],
					    const uint32_t (&q)[D / 16][4], uint32_t q_at,
					    uint32_t k, uint32_t v, int from, int n, int lane,
					    const Hide &hide)
{
	float s[2][4] = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 } };

	score<D>(s, q, q_at, k, lane);
	hide_past(s, n, lane);
	if (from > 0) {
		int first[2] = { from, from };

		softmax_mask_before(s, first, lane);
	}
	hide(s);
	weigh<D>(o, max, sum, s, v, lane);
}

/* Piece i of the list, 0 past its end. */
static __device__ __forceinline__ int piece_of(const struct entry_lists &l, const struct list &list,
					       int i)
{
	return i < list.n ? l.piece[list.at + i] : 0;
}

/* Places of listed keys.  A window is 32 places, one a lane: of the first keys of pieces or, if
 * these are longer, of steps. */
struct window {
	int place;			// in the planes of K and V, in tokens
	int mask;
	int next, next_page, next_mask;	// first position, page and mask of the next window
	int entry, entry_mask;		// of the window after the next
};

/* Copy the warp's 16 listed keys of step i.  Place `at` is that of row 0 in the window. */
template <int D>
static __device__ __forceinline__ void copy_listed(uint32_t k, uint32_t v, const struct kv_bf16 &kv,
						   const struct window &w, int at, int shift, int n,
						   int lane)
{
	constexpr int CHUNKS = D / 8;
	const int c = lane % CHUNKS, first = lane / CHUNKS, tok = 1 << shift;

#pragma unroll
	for (int i = 0; i < WARP_KEYS; i += 32 / CHUNKS) {
		const int row = first + i;
		const uint32_t to = swizzle<D>(row, c);
		const size_t place = __shfl_sync(ALL, w.place, at + (row >> shift)) +
				     (row & (tok - 1));

		copy_16_once(k + to, kv.k + place * D + c * 8, row < n ? 16 : 0);
		copy_16_once(v + to, kv.v + place * D + c * 8, row < n ? 16 : 0);
	}
}

/* Which of a lane's eight scores of a step its heads see, a bit each. */
static __device__ __forceinline__ int seen_bits(const struct window &w, int at, int shift, int lane)
{
	int bits = 0;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		const int key = i / 2 * 8 + lane % 4 * 2 + i % 2;
		const int m = __shfl_sync(ALL, w.mask, at + (key >> shift)) >> lane / 4;

		bits |= ((m & 1) | (m >> 8 & 1) << 2) << (i / 2 * 4 + i % 2);
	}
	return bits;
}

static __device__ __forceinline__ void hide_unseen(float (&s)[2][4], int bits)
{
#pragma unroll
	for (int n = 0; n < 2; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			if (!(bits >> (n * 4 + e) & 1))
				s[n][e] = -INFINITY;
}

/* Everything one warp does for a span. */
template <int D, int PAGE, int LISTS, bool BOUNDED, bool PLACED>
static __device__ __forceinline__ void run_warp(const struct decode_args &a, const struct span &p,
						const struct crew &crew, struct ring<D> &ring,
						float (&o)[D / 8][4], float (&max)[2],
						float (&sum)[2], int warp, int lane)
{
	const int32_t *page = a.b.keys.page + p.page0;
	const struct entry_lists &l = a.lists;
	const struct list list = LISTS ? list_of(a, p) : (struct list){};
	const struct attn_shape &s = a.b.shape;
	const int teams = crew.teams;	// take tiles in turns
	int n, pages = 0, loaded = 0;	// loaded: the first of the blocks in pages
	int n_key = n_keys<PAGE, LISTS>(a, p, list);
	int first = 0;			// key that the row sees
	const bf16_t *from = a.q + ((size_t)p.req * s.q_heads + p.head) * D;
	const int32_t *pos = PLACED ? a.b.keys.pos + (int64_t)p.page0 * PAGE : NULL;
	const int per_step = 4 - min(l.shift, 4), steps = 32 >> per_step;	// of a window
	struct window w = {};
	struct places at = {};
	uint32_t q[D / 16][4], seen = 0;

	if (PLACED)
		at.own = a.b.rows.own[p.req];
	if (BOUNDED && a.b.rows.first) {
		const int before = first_block<PAGE, BOUNDED>(a, p.req);

		page += before;
		n_key -= before * PAGE;
		first = a.b.rows.first[p.req] - before * PAGE;
	}
	n = (p.stop - p.blk) * (PAGE / TILE);
	n = min(n, (n_key - p.blk * PAGE + TILE - 1) / TILE);	// the last block can be short
	n = (n - crew.team + teams - 1) >> (teams - 1);
	// First key of this warp in step i, from the span's first on, and of the segment.
	auto at_of = [&](int i) {
		return (i * teams + crew.team) * TILE + warp * WARP_KEYS;
	};
	auto key_of = [&](int i) {
		return p.blk * PAGE + at_of(i);
	};
	// The next 32 page numbers, one a lane, from block blk of the span on.
	auto load_pages = [&](int blk) {
		int next = p.blk + blk + lane;

		loaded = blk;
		pages = next < p.stop ? page[LISTS ? l.block[list.at + next] : next] : 0;
	};
	auto copy = [&](int i) {
		int blk = at_of(i) / PAGE, key = key_of(i), at;
		size_t off;

		if (blk >= loaded + 32)
			load_pages(loaded + 32);
		at = __shfl_sync(ALL, pages, blk - loaded);
		off = (((size_t)at * s.kv_heads + p.kv_head) * PAGE + key % PAGE) * D;
		copy_keys<D>(smem_addr(ring.k[i % STAGES]), a.kv.k + off, n_key - key, lane);
		copy_keys<D>(smem_addr(ring.v[i % STAGES]), a.kv.v + off, n_key - key, lane);
	};
	// The key at this lane's place of window i.
	auto window_key = [&](int i) {
		const int at = i * 32 + lane, step = at >> per_step;

		return key_of(step) + ((at - (step << per_step)) << l.shift);
	};
	// Turn to window i.
	auto turn = [&](int i) {
		const int entry = window_key(i + 2) >> l.shift;

		w.place = (w.next_page * s.kv_heads + p.kv_head) * PAGE + w.next % PAGE;
		w.mask = w.next_mask;
		w.next = (w.entry << l.shift) + (window_key(i + 1) & ((1 << l.shift) - 1));
		w.next_page = page[w.next / PAGE];
		w.next_mask = w.entry_mask;
		w.entry = piece_of(l, list, entry);
		w.entry_mask = l.mask && entry < list.n ? l.mask[list.at + entry] : 0;
	};
	auto copy_pieces = [&](int i) {
		const int at = (i & (steps - 1)) << per_step;

		if (!at)
			turn(i >> (5 - per_step));
		copy_listed<D>(smem_addr(ring.k[i % STAGES]), smem_addr(ring.v[i % STAGES]), a.kv,
			       w, at, l.shift, n_key - key_of(i), lane);
		if (l.mask)
			seen |= seen_bits(w, at, l.shift, lane);
	};

	if (LISTS == PIECES) {
#pragma unroll 1
		for (int i = -2; i < 0; i++)
			turn(i);
	} else {
		load_pages(0);
	}
	if (Q_SHARED<D>)	// part of the first step's copies
		copy_keys<D>(smem_addr(ring.q), from, p.heads, lane);
	else
		load_q<D>(q, from, p.heads, lane);
	// Copies are STAGES - 1 steps ahead.  One loop for both: fewer instructions to load.
#pragma unroll 1
	for (int ahead = 0; ahead < n + STAGES - 1; ahead++) {
		int i = ahead - (STAGES - 1);

		if (i >= 0) {
			cp_async_wait<STAGES - 2>();
			__syncwarp();	// every lane's copies are there, step i - 1 is over
		}
		seen <<= 8;
		if (ahead < n && LISTS == PIECES)
			copy_pieces(ahead);
		else if (ahead < n)
			copy(ahead);
		cp_async_commit();
		if (i < 0)
			continue;
		if (PLACED)
#pragma unroll
			for (int e = 0; e < 2; e++)
				at.key[e] = *(const int2 *)(pos + key_of(i) + e * 8 + lane % 4 * 2);
		step<D>(o, max, sum, q, smem_addr(ring.q), smem_addr(ring.k[i % STAGES]),
			smem_addr(ring.v[i % STAGES]), BOUNDED ? first - key_of(i) : 0,
			n_key - key_of(i), lane, [&](float (&s)[2][4]) {
				if (PLACED)
					hide_later(s, at);
				if (LISTS == PIECES && l.mask)
					hide_unseen(s, seen >> 8 * (STAGES - 1));
			});
	}
	cp_async_wait<0>();
}

/* ---- skipping ---- */

/* The tiles of a span, in order: parts [blk, stop) of n, or tiles from blk on. */
struct deal {
	int blk, stop, n_part;		// n_part 0: the span is a part
	int least, more;		// tiles of a part; the first `more` parts have another
};

static __device__ __forceinline__ struct deal deal_of(const struct decode_args &a,
						      const struct span &p)
{
	struct deal d = { p.blk, p.stop, a.b.skip.parts ? p.n_blk : 0, 1, 0 };

	if (d.n_part) {
		d.least = div_int(p.n, d.n_part);
		d.more = p.n - d.least * d.n_part;
	}
	return d;
}

/* Parts of the span with another tile. */
static __device__ __forceinline__ int n_more(const struct deal &d)
{
	return max(min(d.stop, d.more) - d.blk, 0);
}

static __device__ __forceinline__ int n_dealt(const struct deal &d)
{
	return (d.stop - d.blk) * d.least + n_more(d);
}

/* The i-th tile. */
static __device__ __forceinline__ int dealt(const struct deal &d, int i)
{
	const int more = n_more(d), longer = more * (d.least + 1);
	const int len = i < longer ? d.least + 1 : d.least, at = i < longer ? i : i - longer;
	const int part = div_int(at, len);

	return d.n_part ? d.blk + (i < longer ? 0 : more) + part + (at - part * len) * d.n_part :
			  d.blk + i;
}

/* The largest scores of a tile by warp and head, of two tiles in turn. */
using tops_t = float[2][WARPS][HEADS];

/* Vote on a tile whose scores are in s, by all warps.  prev: the largest scores of the lane's two
 * heads so far.  True: all heads skip it. */
static __device__ __forceinline__ bool vote(const struct crew &crew, const float (&s)[2][4],
					    float (&prev)[2], float (&top)[WARPS][HEADS],
					    float below, int heads, int warp, int lane)
{
	bool skip = true;

#pragma unroll
	for (int h = 0; h < 2; h++) {
		const float own = quad_max(fmaxf(fmaxf(s[0][2 * h], s[0][2 * h + 1]),
						 fmaxf(s[1][2 * h], s[1][2 * h + 1])));

		if (lane % 4 == 0)
			top[warp][lane / 4 + h * 8] = own;
	}
	crew_sync(crew);
#pragma unroll
	for (int h = 0; h < 2; h++) {
		const int row = lane / 4 + h * 8;
		float loc = top[0][row];

#pragma unroll
		for (int w = 1; w < WARPS; w++)
			loc = fmaxf(loc, top[w][row]);
		skip = skip && (row >= heads || loc - prev[h] < below);
		prev[h] = fmaxf(prev[h], loc);
	}
	return __all_sync(ALL, skip);
}

/* As run_warp(), with a vote on each tile.  The values of a tile are asked for after its vote, and
 * weighed AHEAD tiles later, when they are there.  Its scores wait for them. */
template <int D, int PAGE>
static __device__ __forceinline__ void run_voting(const struct decode_args &a,
						  const struct span &p, const struct crew &crew,
						  struct ring<D> &ring, tops_t &tops,
						  float (&o)[D / 8][4],
						  float (&max)[2], float (&sum)[2], int warp,
						  int lane)
{
	constexpr int AHEAD = STAGES - 1;
	const int32_t *page = a.b.keys.page + p.page0;
	const struct attn_shape &s = a.b.shape;
	const struct deal d = deal_of(a, p);
	const int n = n_dealt(d), n_key = a.b.rows.pos0[p.req] + 1;
	const float below = attn_skip_below(&a.b.skip, n_key) / softmax_scale<D>;
	const bf16_t *from = a.q + ((size_t)p.req * s.q_heads + p.head) * D;
	float late[AHEAD][2][4] = {}, prev[2];
	bool kept[AHEAD] = {};
	int tile[AHEAD + 1] = {}, place[AHEAD + 1] = {};	// of steps i to i + AHEAD
	int next_tile = 0, next_page = 0, n_kept = 0;	// of 32 steps, one a lane
	uint32_t q[D / 16][4];

	if (Q_SHARED<D>)
		copy_keys<D>(smem_addr(ring.q), from, p.heads, lane);
	else
		load_q<D>(q, from, p.heads, lane);
#pragma unroll 1
	for (int i = -AHEAD; i < n + AHEAD; i++) {
		const int ahead = i + AHEAD;
		float now[2][4] = {};
		bool keeps = false;

		cp_async_wait<AHEAD - 1>();
		__syncwarp();	// K of step i and V of step i - AHEAD are there
		if (ahead < n) {
			if (ahead % 32 == 0 && ahead + lane < n) {
				next_tile = dealt(d, ahead + lane);
				next_page = page[next_tile * TILE / PAGE];
			}
			tile[AHEAD] = __shfl_sync(ALL, next_tile, ahead % 32);
			place[AHEAD] = (__shfl_sync(ALL, next_page, ahead % 32) * s.kv_heads +
					p.kv_head) * PAGE +
				       tile[AHEAD] * TILE % PAGE + warp * WARP_KEYS;
			copy_keys<D>(smem_addr(ring.k[ahead % STAGES]),
				     a.kv.k + (size_t)place[AHEAD] * D,
				     n_key - tile[AHEAD] * TILE - warp * WARP_KEYS, lane);
		}
		if (i >= 0 && i < n) {
			const int seen = n_key - tile[0] * TILE - warp * WARP_KEYS;

			if (d.n_part ? tile[0] < d.n_part : !i)
				prev[0] = prev[1] = -INFINITY;
			score<D>(now, q, smem_addr(ring.q), smem_addr(ring.k[i % STAGES]), lane);
			hide_past(now, seen, lane);
			keeps = !vote(crew, now, prev, tops[i % 2], below, p.heads, warp, lane);
			n_kept += keeps;
			if (keeps)
				copy_keys<D>(smem_addr(ring.v[i % STAGES]),
					     a.kv.v + (size_t)place[0] * D, seen, lane);
		}
		cp_async_commit();
		if (kept[0])
			weigh<D>(o, max, sum, late[0], smem_addr(ring.v[(i + 1) % STAGES]), lane);
#pragma unroll
		for (int k = 0; k < AHEAD; k++) {
			tile[k] = tile[k + 1];
			place[k] = place[k + 1];
			kept[k] = k + 1 < AHEAD ? kept[k + 1] : keeps;
#pragma unroll
			for (int e = 0; e < 8; e++)
				late[k][e / 4][e % 4] = k + 1 < AHEAD ? late[k + 1][e / 4][e % 4] :
									now[e / 4][e % 4];
		}
	}
	cp_async_wait<0>();
	if (a.b.skip.count && !crew_thread(crew)) {
		unsigned long long *count = (unsigned long long *)a.b.skip.count + 2 * p.kv_head;

		atomicAdd(&count[0], n);
		atomicAdd(&count[1], n - n_kept);
	}
}

template <int D, int PAGE, int LISTS, bool BOUNDED, bool PLACED, bool SKIPS>
static __device__ __forceinline__ void run_span(const struct decode_args &a, const struct span &p,
						 const struct cut &c, const struct crew &crew,
						 union team_smem<D> *smem)
{
	const int warp = threadIdx.x / 32 % WARPS, lane = threadIdx.x % 32;
	union team_smem<D> *first = smem + crew.slot, &sm = first[crew.team];
	float o[D / 8][4], max[2] = { -INFINITY, -INFINITY }, sum[2] = { 0, 0 };
	struct part<D> *part = c.n > 1 ? part_at<D>(a, c, crew.id - c.first) : NULL;

#pragma unroll
	for (int d = 0; d < D / 8; d++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			o[d][e] = 0;
	if (BOUNDED && a.sink && !p.blk && !warp && !crew.team)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int head = p.head + min(lane / 4 + h * 8, p.heads - 1);

			softmax_sink<D>(max[h], sum[h], a.sink[head], lane);
		}
	if constexpr (SKIPS) {
		__shared__ tops_t tops[TEAMS<D>];

		run_voting<D, PAGE>(a, p, crew, sm.ring[warp], tops[crew.slot], o, max, sum, warp,
				    lane);
	} else {
		run_warp<D, PAGE, LISTS, BOUNDED, PLACED>(a, p, crew, sm.ring[warp], o, max, sum,
							   warp, lane);
	}
	crew_sync(crew);			// the rings are drained
	put_sums<D>(sm.sums, o, max, sum, p.heads, warp, lane);
	crew_sync(crew);
	finish<D, LISTS == PIECES>(a, p, &first->sums, sizeof *first, crew, part);
	if (part)
		join<D, LISTS == PIECES || PLACED>(a, p, c, crew);
	crew_sync(crew);			// before the next span fills the rings
}

/* ---- the kernel ---- */

/* Attention of one token per request.  Each crew runs the spans of its stretch of all units. */
template <int D, int PAGE, int LISTS, bool BOUNDED, bool PLACED, bool SKIPS>
static __global__ void __launch_bounds__(TEAMS<D> * THREADS, 1)
decode(const struct decode_args a)
{
	extern __shared__ __align__(128) char smem[];
	const int lane = threadIdx.x % 32, team = threadIdx.x / THREADS;
	const int teams = blockDim.x / THREADS, crews = teams * gridDim.x;
	const struct lane_sum own = lane_units<PAGE, LISTS, BOUNDED, SKIPS>(a, lane);
	const int total = warp_sum(own.units) * item_segments<LISTS>(a);
	constexpr int UNIT = 2 * PAGE * D * sizeof(bf16_t);	// its bytes
	const bool even = !SKIPS && is_even(a.even, __reduce_max_sync(ALL, own.most), total,
					    EXCESS / UNIT * (crews / TEAMS<D>));
	struct crew crew = { 1, 0, team, team * (int)gridDim.x + (int)blockIdx.x };

	if (LISTS)
		clear_empty<D>(a, crew, crews);
	if (even && teams > 1)
		crew = { teams, team, 0, (int)blockIdx.x };
	run_spans<PAGE, LISTS, BOUNDED, SKIPS>(
		a, even, own.units, total, crews, lane, crew,
		[&](const struct span &p, const struct cut &c) {
			run_span<D, PAGE, LISTS, BOUNDED, PLACED, SKIPS>(
				a, p, c, crew, (union team_smem<D> *)smem);
		});
}

/* ---- launch ---- */

size_t decode_work_bytes(const struct attn_shape *s, const struct attn_limits *l)
{
	const size_t heads = MAX_TEAMS * 2 * HEADS;

	(void)l;
	return heads * ((size_t)s->head_dim + 2) * sizeof(float);	/* size of struct part */
}

/* Choose the stretches that may be even.  Returns the teams of a thread block: both of a
 * multiprocessor's where they fit and spare a segment its parts, or too many of them. */
template <int D>
static int plan_even(struct decode_args *a, int n_sm, size_t smem_bytes)
{
	const int n_seg = a->b.rows.n_req * a->n_seg;
	const struct even own = even_of(n_seg, n_sm * TEAMS<D>), both = even_of(n_seg, n_sm);
	const bool fit = TEAMS<D> * sizeof(union team_smem<D>) <= smem_bytes && n_seg <= n_sm;
	const bool spare = both.parts <= 2 || own.parts == FAN || !own.parts;
	const bool pair = fit && spare && both.parts;

	a->even = pair ? both : own;
	return pair ? TEAMS<D> : 1;
}

template <int D, int PAGE, int LISTS, bool BOUNDED, bool PLACED, bool SKIPS = false>
static enum ar_status launch(struct decode_args a, cudaStream_t stream, struct ar_err *err)
{
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);
	int bytes = (int)sizeof(union team_smem<D>), teams = 1, n_sm;

	if (st)
		return st;
	n_sm = gpu->n_sm < MAX_TEAMS / TEAMS<D> ? gpu->n_sm : MAX_TEAMS / TEAMS<D>;
	if (!SKIPS)
		teams = plan_even<D>(&a, n_sm, gpu->smem_bytes);
	CU(cudaFuncSetAttribute(decode<D, PAGE, LISTS, BOUNDED, PLACED, SKIPS>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, teams * bytes));
	decode<D, PAGE, LISTS, BOUNDED, PLACED, SKIPS>
		<<<n_sm * TEAMS<D> / teams, teams * THREADS, teams * bytes, stream>>>(a);
	CU_LAUNCHED();
out:
	return st;
}

template <int D, int LISTS, bool BOUNDED, bool PLACED, bool SKIPS = false>
static enum ar_status launch_page(const struct decode_args &a, cudaStream_t stream,
				  struct ar_err *err)
{
	return a.b.shape.page_tok == 64 ?
		       launch<D, 64, LISTS, BOUNDED, PLACED, SKIPS>(a, stream, err) :
		       launch<D, 128, LISTS, BOUNDED, PLACED, SKIPS>(a, stream, err);
}

template <int D>
static enum ar_status launch_dim(const struct decode_args &a, cudaStream_t stream,
				 struct ar_err *err)
{
	if (a.lists.piece)
		return launch_page<D, PIECES, false, false>(a, stream, err);
	if (a.lists.block)
		return launch_page<D, BLOCKS, false, false>(a, stream, err);
	if (a.skips)
		return launch_page<D, 0, false, false, true>(a, stream, err);
	if (a.b.keys.pos)
		return launch_page<D, 0, true, true>(a, stream, err);
	return a.b.rows.first || a.sink ? launch_page<D, 0, true, false>(a, stream, err) :
					  launch_page<D, 0, false, false>(a, stream, err);
}

/* heads: of a list. */
static struct decode_args make_args(const struct attn_call *call, int heads,
				    const struct entry_lists *lists)
{
	const struct attn_batch *b = call->b;
	int group = b->shape.q_heads / b->shape.kv_heads;
	struct decode_args a = { *b, *lists };

	a.group = group;
	a.heads = heads;
	a.list_seg = (a.heads + HEADS - 1) / HEADS;
	a.kv_seg = (group + a.heads - 1) / a.heads * a.list_seg;
	a.n_seg = b->shape.kv_heads * a.kv_seg;
	a.q = call->q;
	a.kv = call->kv.bf16;
	a.out = call->out;
	a.lse = call->lse;
	a.part = call->work;
	a.sink = call->sink;
	a.skips = attend_skips(call);
	a.beside = call->beside;
	return a;
}

/* Set *fn to the function that runs whole blocks in tiles on this GPU.  NULL: there is none. */
static enum ar_status find_tiles(decode_launch_fn **fn, const struct decode_args *a,
				 struct ar_err *err)
{
	const bool whole = !a->lists.piece && !a->skips && !a->b.keys.pos && !a->b.rows.first &&
			   !a->sink && a->b.rows.n_req * a->n_seg > 3;
	const struct support *row = NULL;
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);

	if (!st && whole)
		row = support_find("decode-tiles", &a->b.shape, NULL, gpu->cc);
	*fn = row ? (decode_launch_fn *)row->fn : NULL;
	return st;
}

static enum ar_status enqueue(const struct attn_call *call, int heads,
			      const struct entry_lists *lists, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	cudaStream_t stream = (cudaStream_t)call->stream;
	struct decode_args a = make_args(call, heads, lists);
	decode_launch_fn *tiles;
	enum ar_status st;

	if (a.lists.n && (b->rows.first || b->keys.pos || a.sink))
		return ar_fail(err, AR_USAGE,
			       "decode under a window, with attention sinks or with keys at "
			       "positions of their own reads every block; use no lists");
	if (a.skips && (a.lists.n || a.group > HEADS))
		return ar_fail(err, AR_USAGE,
			       "decodes skip tiles without lists, of up to %d query heads per KV "
			       "head; leave decode out of /skip=softmax",
			       HEADS);
	if (!b->rows.n_req)
		return AR_OK;
	st = find_tiles(&tiles, &a, err);
	if (st || tiles)
		return st ? st : tiles(&a, stream, err);
	switch (b->shape.head_dim) {
	case 64:
		return launch_dim<64>(a, stream, err);
	case 128:
		return launch_dim<128>(a, stream, err);
	default:
		return launch_dim<256>(a, stream, err);
	}
}

/* tok: a power of two. */
static int log2_of(int tok)
{
	return 31 - __builtin_clz((unsigned)tok);
}

enum ar_status decode_enqueue(const struct attn_call *call, int heads,
			      const struct block_lists *lists, struct ar_err *err)
{
	const struct attn_shape *s = &call->b->shape;
	const int group = s->q_heads / s->kv_heads;
	struct entry_lists l = {};

	if (!lists || !lists->block)
		return enqueue(call, group, &l, err);
	l.block = lists->block;
	l.n = lists->n;
	l.stride = lists->stride;
	return enqueue(call, heads && heads < group ? heads : group, &l, err);
}

enum ar_status decode_pieces_enqueue(const struct attn_call *call, const struct piece_lists *lists,
				     struct ar_err *err)
{
	const struct entry_lists l = { NULL,	    lists->piece,  lists->n,
				       lists->mask, lists->stride, log2_of(lists->tok) };

	return enqueue(call, lists->heads, &l, err);
}
