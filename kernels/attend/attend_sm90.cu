/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over block lists on Hopper.
 *
 * A thread block runs tiles (struct attn_tile).  A tile has 128 packed rows: n_row query rows times
 * n_head heads of one KV head.  So a K and V block is read once for the whole group.  The thread
 * block walks the tile's block list in ascending order, 128 keys a step.  TMA copies them straight
 * from the paged cache into 128-byte swizzled shared memory.  A block is one page.  A block of 128
 * keys is one step; of 64 keys, two neighbours in the list make one.
 *
 * Warp group 0 is the producer: one warp issues copies, two or three stages of K and of V ahead.
 * Warp groups 1 and 2 are consumers with 64 rows each.  Per step and consumer:
 *
 *   S = Q K^T              wgmma m64n128k16, both operands in shared memory
 *   P = exp2(S - base)     64 values a thread, in registers: ffma, ex2, fadd, half a conversion
 *   O += P V               wgmma m64nDk16, P from registers
 *
 * A softmax needs a base near the maximum only to avoid overflow.  A row's base is the maximum of
 * its first step.  It moves, and the row's sum and O are rescaled, only when the sum passes LIMIT.
 * P, in bf16, has the range of fp32 and the same relative error everywhere.  So values above the
 * base lose no precision.  One thing differs: if one key outweighs a row, its P is not exactly 1,
 * but rounded like the others, by 2^-9 at most.  So no step looks for a maximum, and O is hardly
 * ever multiplied.  S stays until the sum is known: a step whose exponentials are infinite is done
 * again.
 *
 * Budget of a step at D = 128, 128 rows: 2 * 128 * 128 * 128 multiply-adds for each product, 2048
 * cycles of the tensor cores in all; 128 * 128 exponentials, 1024 cycles of the special function
 * units; some 500 of the schedulers.  The tensor cores must hide the rest.  S of the next step and
 * O of this one are in flight together.  The softmax of the next runs meanwhile.  The two consumers
 * take turns at issuing (named barriers): one computes its softmax while the other has the tensor
 * cores.  When power limits the chip, each instruction saved counts: an ffma, fadd or fmul also
 * delays the tensor cores by about a cycle.
 *
 * At D = 256 a step has 64 keys: Q takes 64 KiB, and two stages of K and V of 64 keys
 * 128 KiB more; O takes 128 registers a thread and S 32.
 *
 * If each query block of 64 rows has its own list, a tile has only 64 rows.  It runs with one
 * consumer and steps of 64 keys.  Up to D = 128 a multiprocessor holds two such thread blocks: one
 * works while the other computes its softmax.  Such a step takes 512 cycles of the tensor cores,
 * but loads 32 KiB of K and V.  At some 39 bytes a cycle from the L2 cache that is 840 cycles.
 * With half the rows a key is used half as often, so the tensor cores are busy about 60 % at most.
 *
 * Tiles come sorted, the longest first.  There are as many thread blocks as fit on the device.
 * Each begins with the tile of its own number.  Then its producer draws the next tile from a
 * counter.  It copies the first K, V and Q of that tile while the consumers still compute.  O goes
 * from registers to memory, because Q, its buffer elsewhere, may be of the next tile by then.  At D
 * = 256 registers do not suffice for this, and the hardware hands each tile to a new thread block.
 *
 * A tile may be a part of a larger one.  Up to four parts merge at once, then fours of fours.  A
 * part stores O in fp32, divided by its sum, and the logarithm of the sum.  The last to be ready
 * keeps its own, adds the others and goes on to the next four.  It adds pairs, then both pairs, so
 * the result has the same bits whichever is last.  On an H200, 16 heads over 4 KV heads, parts
 * merged in pairs alone and now, us:
 *	4 parts		128 of 2K	21.1  20.5	256 of 2K	22.0  21.4
 *			2 x 128 of 2K	22.2  21.7	256 of 8K	37.1  36.6
 *	8 parts		128 of 4K	25.0  24.8	128 of 8K	30.1  30.1
 *	2 parts		512 of 2K	24.0  24.3	512 of 8K	55.0  55.3
 * The code that adds one part stood there twice then, for neighbours and for a third part.  Once,
 * 128 of 2K takes 20.5 instead of 20.7, 256 of 2K 21.3 instead of 21.5, 128 of 8K 29.6 instead of
 * 30.1 and 256 of 8K 36.4 instead of 36.9.  Two parts take as long as before.
 *
 * Where all tiles run at once, up to eight parts of one share its rows instead.  Each leaves O as
 * it is, with bases and sums.  A warp then counts in the tile of the part that has its rows.  Each
 * part waits for its count, adds up its rows in the order of parts, and stores them.  So no
 * multiprocessor reads a whole tile after all others are done.  On an H200, 16 heads over 4 KV
 * heads, us: merged, shared, FlashAttention 3 in the same turns:
 *	128 of 1K	18.3  15.6  15.7	256 of 2K	21.2  18.9  20.1
 *	128 of 2K	20.3  17.0  17.5	256 of 8K	36.1  34.0  37.0
 *	128 of 8K	29.5  24.4  26.2	512 of 2K	24.0  23.5  26.5
 *	2 x 128 of 2K	21.3  19.1  20.4	512 of 8K	54.5  54.0  60.3
 * In 128 of 2K, eight parts of two steps, the first keys arrive after 3.1 us.  Their P is ready at
 * 4.7, the last product at 6.7, and rows lie in memory at 9.3.  All parts are there at 10.2, and
 * stores end at 12.2.  The parts write 8 MB and read them again.
 *
 * With a list per query block and head and few tiles, the longest list bounds the time.  At a
 * density of 0.1, 64K keys and 128 tiles it has 68 blocks while the mean is 51; lists of real
 * selections differ more.  There attend_cut runs before this kernel, cuts long tiles and sorts the
 * parts.  With more than two tiles to a multiprocessor tiles stay whole.  Then attend_sort sorts
 * them while this kernel runs the first round; attend_cut_sm90.cu says in which order.
 *
 * Nothing hides the chain of loads before the first product of a thread block: tile, list, page, K.
 * Therefore 32 lanes look for the end of a list at once.  Tensor maps are fetched and barriers made
 * while the tile is loaded.
 *
 * Tried on H200: D 128, 16 query heads over 4 KV heads, batch 8, chunk 1024, 128K keys, two stages.
 * This kernel takes 11.9 ms there.
 *
 * - The running maximum as base, O multiplied each step: 14.2 ms.  These bases, O multiplied each
 *   step: 13.0.
 * - P moved to other registers, instead of two steps a round: 12.2.
 * - No turns at issuing: 11.9, but with lists of a tenth of 64K keys 97 us instead of 92.
 * - Clusters of two tiles that share K and V by multicast: 12.0 to 12.7; with three stages 11.9;
 *   with the running maximum 13.8.  Remote arrivals must be relaxed, or each costs a fence.
 * - Three stages: at batch 1 and 64K keys 659 us instead of 677, at batch 8 with lists of a tenth
 *   669 instead of 690.  With the running maximum they gained nothing.
 * - Asking for Q before the end of the list and the first page are known: at batch 1 and 64K keys
 *   787 us instead of 765.
 *
 * Tried on H200, kernels in turns, each for 8 ms without a pause.  There power limits the clock to
 * 1.6 GHz, so an idle tensor core costs less than its time: others run faster meanwhile.
 *
 * - Thread blocks that run one tile each, instead of a stream: 8192 rows of 8192 keys take 426 us
 *   instead of 397; 8 x 1024 of 8192 keys 779 instead of 749; head size 64 1052 instead of 980;
 *   blocks of 64 tokens 1536 instead of 1436; lists of a tenth at batch 8 799 instead of 758.
 *   Contexts of 128K take the same.  Between two tiles it took 3 to 4 us until keys arrived; 1.7
 *   for the first logits and their softmax, 0.5 for the last product, 2 to store O.
 * - A producer of one lane, for which the other lanes of its warp wait at the end of a tile: a step
 *   takes 2131 cycles instead of 2079.  Waits of a warp that is not whole spin, and take issue
 *   slots from the consumers: here 3.4 million times instead of 65 thousand.  So all lanes wait,
 *   and one lane copies.
 * - The next tile drawn at the start of a tile, not at its end: on an H100 lists are 7 to 22 %
 *   slower, as a thread block then holds a tile that another could have run.
 * - Waiting for V before the turn, so that no instruction stands between the products: 1 to 2 %
 *   slower.  Stages counted up instead of remainders by three: no difference.
 * - The compiler must see that the steps of a stream are uniform: work and counter go through
 *   shuffles.  Otherwise each product takes its descriptor through R2UR.
 * - 24 registers for the producer of a stream: they spill, and the kernel fails.  48, and 232 for
 *   consumers: it hangs, as a launch gives each of the 384 threads 168.
 * - Tiles of the last two rounds in the order of the plan, not sorted: lists of a tenth at batch 8
 *   758 us instead of 742, at batch 4 with 32 heads over 8 749 instead of 716, head size 256 1543
 *   instead of 1491.
 * - All 1024 tiles of batch 8 sorted: 788 us instead of 698.  Tiles of all requests run at once,
 *   and their keys come from memory.  So it is with 64-token blocks if two rounds are sorted: 1091
 *   instead of 912.
 * - The last two rounds of batch 8 sorted as one run, others not: 729 us instead of 700, at batch 4
 *   367 instead of 346.  Tiles of two requests run at once; they read 1.95 GB from memory, of which
 *   1.07 are keys and values, and the last two tiles took up to 2360 cycles a step.  Rounds sorted
 *   each for itself, others not: 722 and 348.  Rounds always apart: lists of a real selection, of
 *   6 to 51 blocks, take 226 us at batch 8 instead of 197.  Blocks of 64 tokens sorted in the same
 *   way: 943 instead of 912, at batch 4 455 instead of 458.
 * - The next tile drawn six steps before the last copy of a tile: at batch 8 704 us instead of 700,
 *   at batch 1 105.9 instead of 103.3, as thread blocks hold parts that others wait for.
 * - Thread blocks that begin with the first part of a tile while attend_cut runs, and find the
 *   level at which it cuts themselves: at batch 1 100.0 us instead of 99.8, at 2 183.2 instead of
 *   187.6, but with lists of a real selection 47.4 instead of 42.3, as the longest parts no longer
 *   come first.  Keys arrive .5 us earlier: all multiprocessors ask for 224 KiB each at that time.
 * - L2 prefetch of the data that tiles begin with, while attend_cut runs: no gain at batch 1.
 *
 * Tried for parts that share rows, 128 of 2K in 4 and in 8 parts, us; merged 20.6 and 22.5:
 *
 * - O divided, parts added as a tree of pairs, one counter of a tile: 19.1 and 19.0.  Each warp
 *   counts for the part that has its rows: 18.5 and 18.3; a cooperative launch takes as long.  O
 *   as it is, parts added in order: 18.0 and 17.2.  Code that runs once is slow: 3 us for 8 parts.
 * - The same through the shared memory of a cluster: 18.2 and 27.9, 256 of 2K 30.2.  Of 132
 *   multiprocessors 30 clusters of four and 15 of eight run at once, and the others wait.
 * - The tile and the pages asked for before barriers are made, the tile found before all threads
 *   meet: 17.0 instead of 17.2.
 *
 * 8 x 512 of 512 (four tiles for each multiprocessor, of one to four steps) takes 31.3 us between
 * events, FlashAttention 3 30.7.  It is not the work of steps: without exponentials it takes 28.5,
 * without stores of O 28.7, without both 25.6.  As many tiles of one step take 22.9, of four 38.4.
 * So a step takes 1.3 us, and a tile 2.7 more: its first logits and their P, its last product, O.
 * Tried:
 *
 * - The second half of a last step left out where no row sees it: 31.2; 4096 of 4096 100.1 instead
 *   of 100.2, 2048 of 4096 76.1 instead of 76.0.
 * - Tiles in the order of requests: 32.6; of lengths 4, 1, 3, 2: 31.8.
 *
 * Chunks and decodes in one launch were tried, too: decode_sm90.cu has the times.
 *
 * Tiles that skip, on H200, 64 query heads over 4 KV heads, 65,536 rows: 78.8 ms without votes,
 * 100.0 with votes that skip nothing, 66.4 where 68 % of the tiles are skipped.  With the number of
 * rows that vote as a variable: 101.0 and 72.1.  Products alone would gain 1.52 there, as Q K^T
 * stays.  Two warp groups seldom skip the same step, and the chain from logits to P of the one that
 * keeps it is as long as ever.
 *
 * Tried without tiles of 32 rows, in cycles of a step, whose products take 2048: 2089 without
 * votes, 2450 with votes that skip nothing, 1840 where 61 % are skipped.
 *
 * - P not over that of the step before, but in registers of its own, moved: 2748; at 61 % 2124.
 * - A branch around P V, and no votes: 2311.
 * - Exponentials before votes, the largest logits found beside them: 2662; at 61 % 2402.
 * - The same, but the largest logits found only where sums of exponentials cannot tell: 2557; two
 *   steps a round 2455; at 61 % 2475 and 2378.  Votes first after a step that was skipped: 2592; at
 *   61 % 2058.
 * - Logits in two products of 64 keys, so that votes begin with the first: 2591; at 61 % 1833.
 *
 * The clock within such a step, nothing skipped: only four wgmma instructions wait for the tensor
 * cores, so Q K^T keeps a warp issuing until cycle 250 of its turn and P V until 750.  Its first
 * logits are ready at 700, and 64 exponentials take 960 to 1010: without votes they end at 1790 of
 * 2089 cycles.  The vote must fit into the 280 cycles that are left.  Its maxima take 130 of them.
 * A warp waits for the other three for 140 to 440.  Tried to that end, each with one copy of the
 * step for P of the step before and one without, and exponentials in the registers of their logits
 * until that product ends, so that nothing waits for it:
 *
 * - Just that: 2651; at 61 % 1917.  Sums after it, so that no addition waits for an exponential:
 *   2639 and, at 59 %, 1931.
 * - Also the largest logits found between the halves of P V: 2621; at 61 % 1904.
 * - Also no turns at issuing: 2595; at 61 % 1885.  With both 3108 and 1962: then consumers stay in
 *   phase.
 * - Warps that keep a step leave a flag and do not wait: 2645; at 59 % 2025.
 * - Largest logits by integer maxima of three operands, right for bounds above zero only: 2743
 *   instead of 2708; without turns 2787 instead of 3108.
 * - P apart, two steps a round, 64 rows: registers spill, 2787; at 61 % 2038.
 *
 * Lists at batch 1, chunk 1024, 64K keys, density 0.1: 54 blocks for each multiprocessor, 56 for
 * the longest part.  Of 98 us attend_cut takes 3.3, the first tile is known at 4.4, its first keys
 * arrive at 7.3 to 8.2, their P is ready 1.7 later; in the end the last product takes .6, a merge
 * 3.2 and the store 1.0.  Most multiprocessors have one tile or part.  Steps take 2060 cycles, as
 * in dense attention.  In one run, cycles of a multiprocessor from launch to launch, the share of
 * dense attention's rate in cycles and in time, and the clock, which power sets:
 *	lists						148.8 K	.78 .76	1.57 GHz
 *	as long, over blocks that stay in L2		146.4 K	.79 .82	1.65
 *	of 51 blocks each				132.0 K	.80 .81	1.61
 *	of 51 blocks each, in L2			129.4 K	.82 .84	1.65
 *	dense						1058 K		1.60
 * Of the 148.8 K 111.5 are steps, so start and end take 37.  A share of .88 would leave them 20.
 *
 * At batch 8 lists take 944 K and dense attention 8396 K: a share of .96 (.92 before tiles were
 * sorted, .97 in L2).  In time it is .87 to .97: doc/kernels.md.
 */
#include "config.h"

#include <limits.h>

#include <algorithm>

#include "kernels/attend/attend_sm90.cuh"

namespace {

static_assert(SMEM_BYTES<config<128, 128, 2>> <= 227 * 1024, "shared memory");
static_assert(SMEM_BYTES<config<256, 128, 2>> <= 227 * 1024, "shared memory");
static_assert(SMEM_BYTES<config<128, 64, 1>> <= 113 * 1024, "shared memory of two");
static_assert(SMEM_BYTES<config<256, 64, 1>> <= 227 * 1024, "shared memory");

struct params : tile_params {
	const int32_t *kept;
	const uint16_t *block;		/* NULL: all blocks */
	const int32_t *n_block;
	int stride;
	int n_tile;
	const int32_t *first_key;	/* of each row of the batch; NULL: 0 */
	const float *sink;		/* of each query head; NULL: none */
	const int32_t *len;		/* keys of each request */
	int n_page;
};

struct work : tile_work {
	int list;			/* -1: all blocks */
	const uint16_t *block;		/* NULL: all; else from the first on */
	const int32_t *first_key;	/* from here on of bounded tiles only */
	const float *sink;
	int last_first;			/* the first key of the last row: no row's is later */
	int len;			/* of tiles that skip: keys of the request */
};

__device__ __forceinline__ int block_at(const struct work *w, int i)
{
	return w->block ? w->block[i] : w->first + i;
}

/* The keys of a step: the first of each block.  If the list ends within the step, the rest lies
 * past all rows. */
template <class C> struct keys {
	int at[C::BLOCKS];

	static __device__ __forceinline__ int n_steps(const struct work *w)
	{
		return (w->n * C::STEPS + C::BLOCKS - 1) / C::BLOCKS;
	}

	__device__ __forceinline__ keys(const struct work *w, int step)
	{
#pragma unroll
		for (int b = 0; b < C::BLOCKS; b++) {
			const int i = step / C::STEPS * C::BLOCKS + b;

			at[b] = b && i >= w->n ? INT_MAX / 2 :
				block_at(w, i) * C::PAGE + step % C::STEPS * C::N;
		}
	}

	/* Accumulator element 4 i + 2 r + c belongs to row r, key 8 i + 2 (lane % 4) + c. */
	__device__ __forceinline__ void hide(float *acc, const struct rows *t,
					     const struct work *w) const
	{
		if (at[C::BLOCKS - 1] + C::RUN <= w->pos && /* no key is past a row */
		    (!C::BOUNDED || at[0] >= w->last_first))
			return;
#pragma unroll
		for (int i = 0; i < C::N / 8; i++)
#pragma unroll
			for (int r = 0; r < 2; r++)
#pragma unroll
				for (int c = 0; c < 2; c++) {
					const int key = at[8 * i / C::RUN] + 8 * i % C::RUN +
							(int)(threadIdx.x % 4 * 2) + c;

					if (key > t->pos[r] || (C::BOUNDED && key < t->first[r]))
						acc[4 * i + 2 * r + c] = -INFINITY;
				}
	}
};

/* The pages of a step's blocks.  Past the end of the list its last page is repeated, because zero
 * times a loaded value must be finite. */
template <class C>
__device__ __forceinline__ void pages_of(int *page, const struct work *w, int step)
{
#pragma unroll
	for (int b = 0; b < C::BLOCKS; b++)
		page[b] = w->page[block_at(w, min(step / C::STEPS * C::BLOCKS + b, w->n - 1))];
}

/* Count the blocks, of n ascending ones, that are not past `last`.  A warp looks at 32 from the end
 * at once. */
__device__ __forceinline__ int trim(const uint16_t *block, int n, int last)
{
	int past;

	do {
		const int i = n - 1 - (int)(threadIdx.x % 32);

		past = __popc(__ballot_sync(0xffffffff, i >= 0 && block[i] > last));
		n -= past;
	} while (past == 32);
	return n;
}

/* Find the work of tile `at`; without a list, from the first row's first key on. */
template <class C>
__device__ __forceinline__ struct work work_of(const struct params *p, int at)
{
	struct work w;
	const attn_tile t = tile_of(p, &w, at);
	const bool window = C::BOUNDED && p->first_key;
	const int skip = window ? p->first_key[w.row] / C::PAGE : 0;

	w.pos += p->kept ? p->kept[t.list] : 0;
	w.list = p->block ? t.list : -1;
	w.block = w.list >= 0 ? p->block + (size_t)w.list * p->stride : NULL;
	if (!w.n_part) {
		const int last = (w.pos + t.n_row - 1) / C::PAGE;

		cut_as_planned(&w, t, w.block ? trim(w.block, p->n_block[t.list], last) :
						last + 1 - skip);
	}
	if (w.block)
		w.block += w.first;
	if (C::BOUNDED) {
		w.first += skip;
		w.first_key = p->first_key;
		w.sink = p->sink;
		w.last_first = window ? p->first_key[w.row + w.n_row - 1] : 0;
	}
	if (C::SKIPS)
		w.len = p->len[t.req];
	return w;
}

/* Copy a step's keys or values.  y: first row of each block in the cache. */
template <class C>
__device__ __forceinline__ void load_step(__nv_bfloat16 (*to)[C::N][COLS], const CUtensorMap *map,
					  uint64_t *full, const int *y)
{
	mbarrier_expect_tx(full, C::N * C::D * 2);
#pragma unroll
	for (int b = 0; b < C::BLOCKS; b++)
		for (int c = 0; c < C::D / COLS; c++)
			tma_load_2d(to[c][b * C::RUN], map, full, c * COLS, y[b]);
}

/* Copy the keys and values of a tile, and Q.  By one warp, of which one lane copies.  All lanes
 * wait: where lanes of a warp wait apart, the wait spins and takes issue slots from consumers.
 *
 * step: in the rings, the first of this tile; round: tiles before that had keys.  Q of a later tile
 * comes after its first keys: the tile before uses the room of Q until its last logits. */
template <class C>
__device__ __forceinline__ void produce(struct smem<C> *s, const struct params *p,
					const struct work *w, int step, int round,
					const CUtensorMap *qmap, const CUtensorMap *kmap,
					const CUtensorMap *vmap)
{
	const int n = keys<C>::n_steps(w), q_step = round ? min(1, n - 1) : 0;
	int next[C::BLOCKS], y[C::BLOCKS];
	uint64_t *full;

	pages_of<C>(next, w, 0);
	for (int i = 0; i < n; i++) {
		const int st = s->k_ring.stage(step + i);

#pragma unroll
		for (int b = 0; b < C::BLOCKS; b++)
			y[b] = (next[b] * p->kv_heads + w->kv_head) * C::PAGE + i % C::STEPS * C::N;
		pages_of<C>(next, w, i + 1);
		full = s->k_ring.producer_acquire(step + i);
		if (elect_one())
			load_step<C>(s->k[st], kmap, full, y);
		if (i == q_step) {
			if (C::STREAMS)
				mbarrier_wait(&s->q_empty, (round & 1) ^ 1);
			if (elect_one())
				load_q<C>(s, p, w, qmap);
		}
		full = s->v_ring.producer_acquire(step + i);
		if (elect_one())
			load_step<C>(s->v[st], vmap, full, y);
	}
}

/* ---- streams of tiles ---- */

/* Work of the tile at hand and of the next; n_part is 0 after the last. */
template <class C> struct stream : smem<C> {
	struct ring<2> ring;
	struct work work[2];
};
template <class C> constexpr int STREAM_BYTES = sizeof(struct stream<C>) + 1024;
static_assert(STREAM_BYTES<config<128, 128, 2>> <= 227 * 1024, "shared memory");
static_assert(STREAM_BYTES<config<128, 64, 1>> <= 113 * 1024, "shared memory of two");

/* Tell the compiler that x is the same in all lanes. */
__device__ __forceinline__ int uniform(int x)
{
	return __shfl_sync(0xffffffff, x, 0);
}

/* Read a tile's work from shared memory.  Loops and descriptors depend on it.  If lanes could
 * differ, each product would first move its descriptor to uniform registers. */
__device__ __forceinline__ struct work work_from(const struct work *from, const struct params *p)
{
	struct work w = *from;

	w.n = uniform(w.n);
	w.first = uniform(w.first);
	w.pos = uniform(w.pos);
	w.list = uniform(w.list);
	w.kv_head = uniform(w.kv_head);
	w.page = p->page + uniform(w.page0);
	w.block = w.list < 0 ? NULL : p->block + (size_t)w.list * p->stride + w.first;
	w.first_key = p->first_key;
	w.sink = p->sink;
	return w;
}

/* Draw the number of a tile that no thread block has, by one thread.  A launch of n tiles draws n
 * numbers, which leaves the counter at 0.  Merges of parts do not use that of the first tile. */
__device__ __forceinline__ int draw_tile(const struct params *p, int n)
{
	return gridDim.x + atomicInc((unsigned *)&p->tile[0].joined, n - 1);
}

/* Find the work of a tile, by one warp, and write it for all. */
template <class C>
__device__ __forceinline__ void put_work(struct work *to, const struct params *p, int tile)
{
	const struct work w = work_of<C>(p, tile);

	if (threadIdx.x == 0)
		*to = w;
}

/* Find tiles for this thread block, and copy their keys and values.  By one warp. */
template <class C>
__device__ __forceinline__ void produce_tiles(struct stream<C> *s, const struct params *p,
					      const CUtensorMap *qmap, const CUtensorMap *kmap,
					      const CUtensorMap *vmap)
{
	int tile = blockIdx.x, n_tile = p->n_tile, step = 0, round = 0;

	if (p->piece && !p->n_plain) {	/* parts may be fewer than planned */
		grid_wait();
		n_tile = p->piece[n_tile].n;
	}
	for (int k = 0;; k++) {
		uint64_t *full = s->ring.producer_acquire(k);
		struct work *to = &s->work[k % 2];

		if (tile >= n_tile) {
			if (threadIdx.x == 0) {
				to->n_part = 0;
				mbarrier_arrive(full);
			}
			return;
		}
		if (k || p->piece)
			put_work<C>(to, p, tile);
		__syncwarp();
		const struct work w = work_from(to, p);

		if (threadIdx.x == 0)
			mbarrier_arrive(full);
		if (w.n)
			produce<C>(s, p, &w, step, round++, qmap, kmap, vmap);
		step += keys<C>::n_steps(&w);
		if (threadIdx.x == 0)
			tile = p->at_once ? n_tile : draw_tile(p, n_tile);
		tile = uniform(tile);
	}
}

template <class C>
__device__ __forceinline__ void consume_tiles(struct stream<C> *s, const struct params *p, int wg)
{
	int step = 0, round = 0;

	if (C::WGS == 2 && wg == 1)
		bar_arrive(1, 256);
	for (int k = 0;; k++) {
		const struct work *from = &s->work[k % 2];

		s->ring.consumer_wait(k);
		if (!uniform(from->n_part))
			return;
		const struct work w = work_from(from, p);

		consume<C, keys<C>>(s, p, &w, wg, uniform(step), round, from);
		step += keys<C>::n_steps(&w);
		round += w.n > 0;
		bar_sync(3 + wg, 128);	/* without it, registers spill where rows skip */
		s->ring.thread_release(k);
	}
}

/* Prefetch the first tile's description to L2, and the batch's page numbers if they are few.  The
 * first product waits for both.  Called by one warp, while another makes the barriers. */
__device__ __forceinline__ void ask_ahead(const struct params *p)
{
	const int lane = threadIdx.x % 32;

	if (lane * 32 < p->n_page)
		prefetch_l2(p->page + lane * 32);
	if (lane < 2)
		prefetch_l2((const char *)&p->tile[blockIdx.x] + lane * 32);
}

/* The body of a kernel that streams tiles, by all threads. */
template <class C, class Prefetch>
__device__ __forceinline__ void run_tiles(const struct params *p, Prefetch prefetch,
					  const CUtensorMap *qmap, const CUtensorMap *kmap,
					  const CUtensorMap *vmap)
{
	extern __shared__ char raw[];
	struct stream<C> *s = (struct stream<C> *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023);

	if (threadIdx.x / 32 == 1)
		ask_ahead(p);
	if (threadIdx.x == 0) {
		prefetch();
		s->ring.init(1, C::WGS * 128);
		s->joins = 0;
		make_barriers<C>(s);
	}
	__syncwarp();
	if (threadIdx.x < 32 && !p->piece)
		put_work<C>(&s->work[0], p, blockIdx.x);
	__syncthreads();
	if (threadIdx.x < 128) {
		setmaxnreg_dec<C::FEW>();
		if (threadIdx.x < 32)
			produce_tiles<C>(s, p, qmap, kmap, vmap);
	} else {
		setmaxnreg_inc<C::MANY>();
		consume_tiles<C>(s, p, C::WGS == 1 ? 0 : warp_group() - 1);
	}
}

/* ---- the kernel ---- */

template <class C>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM)
attend_sm90(const __grid_constant__ CUtensorMap qmap, const __grid_constant__ CUtensorMap kmap,
	    const __grid_constant__ CUtensorMap vmap, const __grid_constant__ struct params p)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	auto prefetch = [&] {
		tma_prefetch_map(&qmap);
		tma_prefetch_map(&kmap);
		tma_prefetch_map(&vmap);
	};

	grid_launch_next();		/* decodes may follow */
	if constexpr (C::STREAMS)
		run_tiles<C>(&p, prefetch, &qmap, &kmap, &vmap);
	else
		run_tile<C, keys<C>>(&p, prefetch, [&] { return work_of<C>(&p, blockIdx.x); },
				     [&](struct smem<C> *s, const struct work *w) {
			if (threadIdx.x < 32)
				produce<C>(s, &p, w, 0, 0, &qmap, &kmap, &vmap);
		});
#else
	__trap();
#endif
}

/* ---- launch ---- */

template <class C>
enum ar_status launch(const struct attn_call *call, struct params p, struct ar_err *err)
{
	/* the size of the cache is unknown here; page numbers bound the accesses */
	const uint64_t kvdim[2] = { C::D, INT32_MAX };
	const uint32_t kvbox[2] = { COLS, C::RUN };
	CUtensorMap qmap, kmap, vmap;
	const int n_tile = call->b->n_tile, bytes = C::STREAMS ? STREAM_BYTES<C> : SMEM_BYTES<C>;
	enum start start = p.piece ? OVERLAPPING : ALONE;
	const struct gpu *gpu;
	cudaError_t launched;
	int grid;
	enum ar_status st = gpu_current(&gpu, err);

	if (!st)
		st = map_q<C>(&qmap, &p, call->b, call->q, err);
	if (!st)
		st = tensor_map(&kmap, call->kv.k, 2, kvdim, kvbox, err);
	if (!st)
		st = tensor_map(&vmap, call->kv.v, 2, kvdim, kvbox, err);
	if (st)
		return st;
	if (C::SHARES && !p.piece && call->b->n_part && n_tile <= C::PER_SM * gpu->n_sm)
		start = TOGETHER;
	grid = C::STREAMS ? std::min(n_tile, C::PER_SM * gpu->n_sm) : n_tile;
	p.at_once = start == TOGETHER;
	launched = launch_tiles<C>(attend_sm90<C>, grid, bytes, start, call->stream, qmap, kmap,
				   vmap, p);
	if (p.at_once && launched == cudaErrorCooperativeLaunchTooLarge) {
		/* this process has fewer multiprocessors than the GPU: parts merge */
		cudaGetLastError();
		p.at_once = false;
		launched = launch_tiles<C>(attend_sm90<C>, grid, bytes, ALONE, call->stream, qmap,
					   kmap, vmap, p);
	}
	CU(launched);
out:
	return st;
}

template <int D, bool BOUNDED>
enum ar_status launch_size(const struct attn_call *call, bool per_block, const struct params &p,
			   struct ar_err *err)
{
	if (call->b->shape.page_tok == 128)
		return launch<config<D, 128, 2, false, BOUNDED>>(call, p, err);
	if (per_block)
		return launch<config<D, 64, 1, false, BOUNDED>>(call, p, err);
	return launch<config<D, 64, 2, false, BOUNDED>>(call, p, err);
}

/* Tiles that skip have two warp groups of one head. */
template <int D, int ROWS>
enum ar_status launch_skip(const struct attn_call *call, const struct params &p,
			   struct ar_err *err)
{
	if (call->b->shape.page_tok == 128)
		return launch<config<D, 128, 2, false, false, ROWS>>(call, p, err);
	return launch<config<D, 64, 2, false, false, ROWS>>(call, p, err);
}

template <int ROWS>
enum ar_status launch_skip_dim(const struct attn_call *call, const struct params &p,
			       struct ar_err *err)
{
	switch (call->b->shape.head_dim) {
	case 64:
		return launch_skip<64, ROWS>(call, p, err);
	case 128:
		return launch_skip<128, ROWS>(call, p, err);
	default:
		return launch_skip<256, ROWS>(call, p, err);
	}
}

template <bool BOUNDED>
enum ar_status launch_dim(const struct attn_call *call, bool per_block, const struct params &p,
			  struct ar_err *err)
{
	switch (call->b->shape.head_dim) {
	case 64:
		return launch_size<64, BOUNDED>(call, per_block, p, err);
	case 128:
		return launch_size<128, BOUNDED>(call, per_block, p, err);
	default:
		return launch_size<256, BOUNDED>(call, per_block, p, err);
	}
}

constexpr size_t part_bytes(int dim)
{
	return ATTEND_ROWS * (dim + 4) * sizeof(float);
}
static_assert(sizeof(struct part<config<128, 128, 2>>) == part_bytes(128), "room");
static_assert(sizeof(struct part<config<256, 64, 1>>) <= part_bytes(256), "room");

} /* namespace */

size_t attend_work_bytes(const struct attn_shape *s, const struct attn_limits *l, int heads)
{
	const int n = EXECUTOR_WAVES * l->n_sm;

	(void)heads;
	return attend_piece_bytes(n) + n * part_bytes(s->head_dim);
}

enum ar_status attend_sm90_enqueue(const struct attn_call *call, attend_plan_fn *plan, int heads,
				   const struct block_lists *lists, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const bool per_block = plan == attend_plan_blocks;
	const int n_cut = per_block && lists->block ? attend_cut_tiles(b) : 0;
	const struct params p = { tile_params_of(call, heads, n_cut), b->kept, lists->block,
				  lists->n, lists->stride, b->n_tile, b->rows.first, call->sink,
				  b->keys.len, b->keys.n_page };
	enum ar_status st = AR_OK;

	if (n_cut)
		st = attend_cut_enqueue(b, n_cut, lists, (struct attend_piece *)call->work,
					call->stream, err);
	if (st)
		return st;
	if (attend_skips(call))
		return p.skip.rows < WG_ROWS ? launch_skip_dim<32>(call, p, err) :
					       launch_skip_dim<WG_ROWS>(call, p, err);
	return p.first_key || p.sink ? launch_dim<true>(call, per_block, p, err) :
				       launch_dim<false>(call, per_block, p, err);
}
