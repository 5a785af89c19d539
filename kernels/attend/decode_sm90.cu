/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode attention on Hopper, over all blocks or over lists of blocks.  The head of decode_sm80.cu
 * describes the line of units, spans, parts and their sums.  They are the same here.
 *
 * A thread block has a multiprocessor.  Its crew of eight warps shares tiles of 128 keys, 16 a
 * warp: each warp has its own online softmax.  One more warp, the producer, asks for tiles by TMA,
 * keys and values in turns, without rows past the last key.  It finds the spans, and tells the crew
 * of each.  The ring of tiles is filled across spans, as their sums have memory of their own.  If
 * crews have whole segments, neighbours run at the same time, as they are heads of one request.
 *
 * Even stretches may be longer than the mean by some bytes, as they spare sums of parts.  Some
 * multiprocessors idle then.  If the host expects even stretches, it launches no thread blocks for
 * these.  Where they idle matters: 132 thread blocks, of which 4 idle, took 130.4 for 8 x 32K; 128
 * took 128.3.  Multiprocessors of a group (GPC) share a way to the memory.  The idle ones were in
 * two groups, and the full groups ended 5 us later.  Results do not depend on it.
 *
 * The producer looks up its first pages before it knows whether stretches are even, since they
 * nearly always are.  It tells the crew of a span when copies of the first tile are under way.
 *
 * Before (decode_sm80.cu), now, cuDNN over keys in one piece (PyTorch 2.11), FlashAttention 3, and
 * a kernel that only reads as many bytes, in turns between events in one process, us.  H200, 16
 * query and 4 KV heads of 128, in the last row 8 and 2:
 *	8 x 32K	 131.5 128.3 131.4 131.5 122.7
 *	64 x 4K	 128.6 126.5 127.6 134.3 122.6
 *	8 x 128K 486.7 482.4 483.2 489.5 473.0
 *	32 x 8K	 129.0 126.5 126.4 133.5 122.5
 *	64 x 2K	  38.7  38.0  38.3  41.6  34.8
 * In a model's steps 64 x 2050 take 36.1, and 36.0 before.
 *
 * Stretches of whole segments have no parts.  If segments are alike, these stretches may be longer
 * over the mean, as idle multiprocessors are the cause.  Equal stretches, even ones of 128 of 132
 * thread blocks, and cuDNN, on two H200 with the same times, us:
 *	64 x 8K  249.0 244.4 243.5	32 x 16K 246.1 243.2 244.7	64 x 10K 309.5 302.9 303.0
 *	128 x 4K 247.9 243.4 246.5	256 x 2K 248.6 244.2 247.0	8 x 64K	 247.0 245.2 248.0
 * The last has four parts, and gains less.  A third has, equal and even:
 *	60 x 4K	 121.0 118.3	31 x 8K  122.7 120.8	32 x 32K 471.0 467.6	60 x 8K	 228.5 228.9
 *	62 x 8K  236.3 232.7	30 x 8K	 119.4 118.2	64 x 16K 474.2 468.1	64 x 12K 359.0 352.7
 * On one H200 of eight, kernels that only read take 2 % longer with 128 thread blocks than with
 * 132.  Parts cost as much.
 *
 * What ran before a launch, on the third: products that read 117 MB, as in a model's steps (with
 * cuDNN), a kernel that reads 192 MB, launches of its own, and few of these since keys were
 * written.  The last column has copies with the usual policy of the L2 cache, evict_normal.  With
 * evict_unchanged copies take 1.0 to 1.8 us longer after products:
 *	64 x 4K	 124.6 (125.4) 124.0 124.7 125.9 149.3
 *	8 x 32K	 126.1 (128.8) 125.8 126.5 127.2 150.9
 *	32 x 8K	 123.6 (124.5) 123.4 123.8 125.7 148.0
 *	8 x 128K 471.2 (472.3) 471.4 472.1 472.5 571.5
 *	64 x 8K	 238.0 (239.0) 237.9 238.0 239.3 288.5
 *
 * What did not help: five slots of 32 KiB instead of four (8 x 32K 129.2 instead of 128.6), three
 * (64 x 4K 129.6, 128.6); boxes of whole rows (130.2, 130.4); copies for which the L2 cache asks
 * for 256 bytes (136.7, 130.2); ends of the longest stretches for the thread blocks that would
 * idle: 64 x 8K 296 instead of 243, 32 x 64K 951 (930), 8 x 64K 241.2 (241.7), 8 x 128K 471.8
 * (471.8).  Small stretches at the end, drawn by thread blocks that are free: 8 x 32K 134 to 144
 * instead of 131, 8 x 128K 494 instead of 483, as each is looked up anew.  For kernels that only
 * read, drawing gains 1 % at 8 x 128K and nothing at 8 x 32K: the memory is busy until the end.
 * Boxes of 128 rows read keys that nobody sees: there 64 x 2050 took 37.7.
 *
 * Decodes beside chunks (attn_call.beside) start on each multiprocessor that has no tile left.  A
 * chunk of 2048 rows and decodes, 16 heads over 4, between events, us: the chunk, one after the
 * other, beside, and the chunk and the decodes' bytes at the rate of a copy:
 *	4K + 1 x 8K	 76.6  91.0  85.6  80.6	 8K + 1 x 8K	160.5 174.0 164.7 164.5
 *	4K + 8 x 8K	 76.3 117.3 111.2 108.1	 8K + 8 x 8K	160.4 201.1 187.4 192.2
 *	4K + 1 x 64K	 76.2 118.6 111.8 108.0	 16K + 8 x 8K	328.0 367.4 340.4 359.8
 *	4K + 32 x 8K	 76.5 204.5 199.1 203.8	 8K + 32 x 8K	160.6 287.3 274.0 287.9
 * In the first case eight multiprocessors have no second tile.  They run a quarter of the decode's
 * stretches.  The others begin when the chunk ends, and take 9 us: as long as without the chunk,
 * but for the launch.  Stretches on these eight alone end no earlier (85.4).
 *
 * Tried, over chunk and bytes, where one after the other gives 1.13, 1.09, 1.05 and 1.00:
 *			4K + 1 x 8K	4K + 8 x 8K	8K + 8 x 8K	8K + 32 x 8K
 *	one launch	.98 to 1.24	.97 to 1.07	1.00 to 1.16	.91 to .99
 *	decodes first, on
 *	8 of 132	.98		2.2		1.5		2.9
 *	33		1.01		.97		1.12		1.06
 *	66		1.05		1.00		1.02		.82
 * In one launch decodes were tiles of attend_sm90 in parts of 16 to 128 blocks, sorted by length.
 * No number of parts, or of multiprocessors for decodes that come first, suits all.  And then the
 * times of chunks and decodes cannot be told apart.
 *
 * Over a kernel that only reads there is left: the first copy waits for lengths, then pages (1.8
 * us), warps are added up at the end (0.5), then parts (1.7).
 */
#include "config.h"

#include <cuda_runtime.h>
#include <math.h>

#include "kernels/attend/attend.h"
#include "kernels/attend/decode_step.cuh"
#include "kernels/prim/cuda.h"
#include "kernels/prim/ring.cuh"
#include "kernels/prim/softmax.cuh"
#include "kernels/prim/tensor_map.h"

constexpr int CREW_WARPS = 2 * WARPS;
constexpr int TILE_KEYS = CREW_WARPS * WARP_KEYS;
constexpr int MORE = 192 * 1024;		// bytes of even stretches over the mean of all
constexpr int IDLE_MORE = 512 * 1024;		// the same, where idle crews are the cause
constexpr int COLS = 64, ROWS = 32;		// of a box
template <int D, int PAGE> constexpr int UNIT = 2 * PAGE * D * (int)sizeof(bf16_t);	// its bytes
template <int D> constexpr int SLOTS = 4 * 128 / D;
constexpr int TURNS = 2;

/* Whether to take even stretches; most, total: as in is_even().  Where segments have no parts, they
 * may be longer if they are alike. */
template <int D, int PAGE>
static __host__ __device__ __forceinline__ bool takes_even(const struct even &e, int most,
							   int total)
{
	if (!e.parts)
		return false;
	const int longest = (most + e.parts - 1) / e.parts * e.segs;
	const int over = longest * e.crews - total;
	const bool alike = e.parts == 1 && longest * e.busy <= total + e.busy;

	return over <= (alike ? IDLE_MORE : MORE) / UNIT<D, PAGE> * e.crews;
}

/* A message of the producer to the crew about its next span.  cut.n is 0 after the last span. */
struct turn {
	struct span p;
	struct cut cut;
	int keys;				// that the row sees, from the span's first on
};

template <int D> struct smem {
	bf16_t slot[SLOTS<D>][TILE_KEYS * D];	// COLS channels after the others
	struct sums<D> sums[2];
	struct ring<SLOTS<D>> tiles;
	struct turn said[TURNS];
	struct ring<TURNS> turns;
};
static_assert(sizeof(struct smem<128>) <= 227 * 1024 && sizeof(struct smem<64>) <= 227 * 1024,
	      "they fit");

/* Rows in the 128-byte swizzle, COLS channels after the others. */
template <int D> struct boxed_rows {
	static __device__ __forceinline__ uint32_t at(int r, int c)
	{
		return c / 8 * TILE_KEYS * COLS * 2 + r * COLS * 2 + ((c % 8 ^ r % 8) << 4);
	}
};

/* Copy a box as tma_load_2d() does.  It leaves the L2 cache first, as it is read once. */
static __device__ __forceinline__ void tma_load_once(void *to, const CUtensorMap *map,
						     uint64_t *bar, int x, int y)
{
	uint64_t policy;

	asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
		     ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;"
		     :: "r"(smem_addr(to)), "l"(map), "r"(smem_addr(bar)), "r"(x), "r"(y),
			"l"(policy) : "memory");
}

/* Pages of 32 blocks of a span, one a lane, from block blk of its segment on. */
template <int LISTS>
static __device__ __forceinline__ int load_pages(const struct decode_args &a, const struct span &p,
						 int blk, int lane)
{
	const int32_t *page = a.b.keys.page + p.page0;
	const int next = blk + lane;

	if (next >= p.stop)
		return 0;
	return page[LISTS ? a.lists.block[list_of(a, p).at + next] : next];
}

/* Send message t to the crew; see struct turn. */
template <int D>
static __device__ __forceinline__ void announce(struct smem<D> &sm, int &turn,
						const struct turn &t, int lane)
{
	if (!lane) {
		uint64_t *full = sm.turns.producer_acquire(turn);

		sm.said[sm.turns.stage(turn)] = t;
		mbarrier_arrive(full);
	}
	turn++;
	__syncwarp();
}

/* Ask for the tiles of a span, and call tell() when the first are under way.  By one warp.  keys:
 * of the span; pages: of its first blocks; at: tiles so far. */
template <int D, int PAGE, int LISTS, typename Tell>
static __device__ __forceinline__ void produce(const struct decode_args &a, const struct span &p,
					       int keys, int pages, struct smem<D> &sm,
					       const CUtensorMap *k, const CUtensorMap *v,
					       int &at, int lane, const Tell &tell)
{
	constexpr int BLOCKS = TILE_KEYS / PAGE;
	const int n = p.stop - p.blk;

#pragma unroll 1
	for (int b = 0; b < n; b += BLOCKS, keys -= TILE_KEYS) {
		const int boxes = (min(keys, TILE_KEYS) + ROWS - 1) / ROWS;
		int row[BLOCKS];

		if (b && b % 32 == 0)
			pages = load_pages<LISTS>(a, p, p.blk + b, lane);
#pragma unroll
		for (int j = 0; j < BLOCKS; j++)
			row[j] = (__shfl_sync(ALL, pages, b % 32 + j) * a.b.shape.kv_heads +
				  p.kv_head) * PAGE;
#pragma unroll
		for (int i = 0; i < 2; i++, at++) {
			if (!elect_one())
				continue;
			uint64_t *full = sm.tiles.producer_acquire(at);
			bf16_t *to = sm.slot[sm.tiles.stage(at)];

			mbarrier_expect_tx(full, boxes * ROWS * D * sizeof *to);
#pragma unroll
			for (int r = 0; r < TILE_KEYS; r += ROWS)
#pragma unroll
				for (int c = 0; c < D; c += COLS)
					if (r < boxes * ROWS)
						tma_load_once(to + c * TILE_KEYS + r * COLS,
							      i ? v : k, full, c,
							      row[r / PAGE] + r % PAGE);
		}
		__syncwarp();
		if (!b)
			tell();
	}
}

/* Run the producer: find the spans of this thread block, copy their tiles, and tell the crew.  If
 * stretches are even, its first pages are loaded before the lengths are known.  If they are not,
 * spans are found as in run_spans(). */
template <int D, int PAGE, int LISTS>
static __device__ __forceinline__ void run_producer(const struct decode_args &a,
						    struct smem<D> &sm, const CUtensorMap *k,
						    const CUtensorMap *v, const struct crew &crew,
						    int lane)
{
	struct turn t = {};
	struct span &p = t.p;
	int u = a.even.parts ? div_int(crew.id, a.even.parts) : 0;
	int end = a.b.rows.n_req * a.n_seg;
	int at = 0, turn = 0, pages = 0;
	struct shares s = {};

	if (elect_one()) {
		tma_prefetch_map(k);
		tma_prefetch_map(v);
	}
	bool some = a.even.parts && u < end && even_span<PAGE, LISTS, false>(a, crew, u, p, t.cut);

	if (some)
		pages = load_pages<LISTS>(a, p, p.blk, lane);
	const struct lane_sum own = lane_units<PAGE, LISTS, false, false>(a, lane);
	const int total = warp_sum(own.units) * item_segments<LISTS>(a);
	const bool even = takes_even<D, PAGE>(a.even, __reduce_max_sync(ALL, own.most), total);

	if (!even) {
		s = shares_of(total, (int)gridDim.x);
		u = share_begin(s, crew.id);
		end = crew.id < s.n ? share_begin(s, crew.id + 1) : u;
		some = u < end;
		if (some) {
			p = find_unit<PAGE, LISTS, false, false>(a, u, own.units, lane);
			line_span(a, s, u, end, crew, p, t.cut);
			pages = load_pages<LISTS>(a, p, p.blk, lane);
		}
	}
#pragma unroll 1
	while (u < end) {
		if (some) {
			const struct list l = LISTS ? list_of(a, p) : (struct list){};

			t.keys = min(n_keys<PAGE, LISTS>(a, p, l), p.stop * PAGE) - p.blk * PAGE;
			produce<D, PAGE, LISTS>(a, p, t.keys, pages, sm, k, v, at, lane,
						[&] { announce(sm, turn, t, lane); });
		}
		u += even ? (int)gridDim.x : p.stop - p.blk;
		if (u >= end)
			break;
		if (even) {
			some = even_span<PAGE, LISTS, false>(a, crew, u, p, t.cut);
		} else {
			next_segment<PAGE, LISTS, false, false>(a, p);
			line_span(a, s, u, end, crew, p, t.cut);
		}
		if (some)
			pages = load_pages<LISTS>(a, p, p.blk, lane);
	}
	t.cut.n = 0;
	announce(sm, turn, t, lane);
}

/* Give back a tile that a warp has read. */
template <int D>
static __device__ __forceinline__ void release(struct smem<D> &sm, int at, int lane)
{
	__syncwarp();
	if (!lane)
		mbarrier_arrive(&sm.tiles.empty[sm.tiles.stage(at)]);
}

/* Set a warp's values from row n on to zero: their weights are 0, but they could be infinite. */
template <int D>
static __device__ __forceinline__ void clear_past(char *v, int n, int lane)
{
	for (int i = lane; i < WARP_KEYS * D / 8; i += 32) {
		const int row = i / (D / 8);

		if (row >= n)
			*(uint4 *)(v + boxed_rows<D>::at(row, i % (D / 8))) = uint4{};
	}
	fence_proxy_async();
	__syncwarp();
}

/* Wait for message number `turn` of the producer, and return it in shared memory. */
template <int D>
static __device__ __forceinline__ const struct turn &wait_turn(struct smem<D> &sm, int turn)
{
	sm.turns.consumer_wait(turn);
	return sm.said[sm.turns.stage(turn)];
}

/* Copy message number `turn`, and free its place for a later one.  Called by all threads of the
 * crew. */
template <int D>
static __device__ __forceinline__ struct turn take_turn(struct smem<D> &sm, int turn)
{
	const struct turn t = wait_turn(sm, turn);

	mbarrier_arrive(&sm.turns.empty[sm.turns.stage(turn)]);
	return t;
}

/* Add the tiles of a span to o, max and sum.  By one warp of the crew. */
template <int D>
static __device__ __forceinline__ void run_tiles(struct smem<D> &sm, int keys,
						 const uint32_t (&q)[D / 16][4],
						 float (&o)[D / 8][4], float (&max)[2],
						 float (&sum)[2], int &at, int warp, int lane)
{
	const int end = at + (keys + TILE_KEYS - 1) / TILE_KEYS * 2;

#pragma unroll
	for (int d = 0; d < D / 8; d++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			o[d][e] = 0;
#pragma unroll
	for (int h = 0; h < 2; h++) {
		max[h] = -INFINITY;
		sum[h] = 0;
	}
	keys -= warp * WARP_KEYS;
#pragma unroll 1
	for (; at < end; at += 2, keys -= TILE_KEYS) {
		bf16_t *k = sm.slot[sm.tiles.stage(at)] + warp * WARP_KEYS * COLS;
		bf16_t *v = sm.slot[sm.tiles.stage(at + 1)] + warp * WARP_KEYS * COLS;
		float s[2][4] = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 } };

		sm.tiles.consumer_wait(at);
		score<D, boxed_rows<D>>(s, q, 0, smem_addr(k), lane);
		release(sm, at, lane);
		hide_past(s, keys, lane);
		sm.tiles.consumer_wait(at + 1);
		if (keys < WARP_KEYS)
			clear_past<D>((char *)v, keys, lane);
		weigh<D, boxed_rows<D>>(o, max, sum, s, smem_addr(v), lane);
		release(sm, at + 1, lane);
	}
}

/* Run a warp of the crew: attend to all spans of this thread block.  It loads the queries of the
 * next span before it adds up this one. */
template <int D, int LISTS>
static __device__ __forceinline__ void run_crew(const struct decode_args &a, struct smem<D> &sm,
						const struct crew &crew, int warp, int lane)
{
	float o[D / 8][4], max[2], sum[2];
	uint32_t q[D / 16][4];
	int at = 0, turn = 0;
	auto load = [&](const struct turn &t) {
		if (t.cut.n)
			load_q<D>(q, a.q + ((size_t)t.p.req * a.b.shape.q_heads + t.p.head) * D,
				  t.p.heads, lane);
	};

	load(wait_turn(sm, turn));
#pragma unroll 1
	for (;;) {
		const struct turn t = take_turn(sm, turn++);
		struct part<D> *part =
			t.cut.n > 1 ? part_at<D>(a, t.cut, crew.id - t.cut.first) : NULL;

		if (!t.cut.n)
			return;
		run_tiles(sm, t.keys, q, o, max, sum, at, warp, lane);
		load(wait_turn(sm, turn));
		put_sums<D>(sm.sums[crew.team], o, max, sum, t.p.heads, warp % WARPS, lane);
		crew_sync(crew);
		finish<D, false>(a, t.p, sm.sums, sizeof sm.sums[0], crew, part);
		if (part)
			join<D, false>(a, t.p, t.cut, crew);
		crew_sync(crew);		// before the next span's sums
	}
}

/* ---- the kernel ---- */

template <int D, int PAGE, int LISTS>
static __global__ void __launch_bounds__((CREW_WARPS + 1) * 32, 1)
decode_tiles(const __grid_constant__ struct decode_args a, const __grid_constant__ CUtensorMap k,
	     const __grid_constant__ CUtensorMap v)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ __align__(1024) char raw[];
	struct smem<D> &sm = *(struct smem<D> *)raw;
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const struct crew crew = { 2, warp / WARPS, 0, (int)blockIdx.x };

	if (threadIdx.x == 0) {
		sm.tiles.init(1, CREW_WARPS);
		sm.turns.init(1, CREW_WARPS * 32);
		fence_barrier_init();
	}
	__syncthreads();
	if (warp == CREW_WARPS) {
		run_producer<D, PAGE, LISTS>(a, sm, &k, &v, crew, lane);
		return;
	}
	if (LISTS)
		clear_empty<D>(a, crew, (int)gridDim.x);
	run_crew<D, LISTS>(a, sm, crew, warp, lane);
	if (blockIdx.x == gridDim.x - 1)	// so the launch ends after the one before
		grid_wait();
#else
	__trap();
#endif
}

/* ---- launch ---- */

/* Whether stretches of requests as long as the longest may be are even. */
template <int D, int PAGE> static bool is_short(const struct decode_args &a)
{
	const int most = a.b.keys.max_kv_blk;

	return takes_even<D, PAGE>(a.even, most, most * a.b.rows.n_req * a.n_seg);
}

template <int D, int PAGE, int LISTS>
static enum ar_status launch(struct decode_args a, cudaStream_t stream, struct ar_err *err)
{
	/* the size of the cache is unknown here; page numbers bound the accesses */
	const uint64_t dim[2] = { D, INT32_MAX };
	const uint32_t box[2] = { COLS, ROWS };
	const int bytes = (int)sizeof(struct smem<D>);
	const int n_seg = a.b.rows.n_req * a.n_seg;
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};
	CUtensorMap k, v;
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);
	int grid;

	if (!st)
		st = tensor_map_once(&k, a.kv.k, 2, dim, box, err);
	if (!st)
		st = tensor_map_once(&v, a.kv.v, 2, dim, box, err);
	if (st)
		return st;
	grid = gpu->n_sm;
	a.even = even_of(n_seg, gpu->n_sm);
	if (is_short<D, PAGE>(a))
		grid = a.even.busy;
	CU(cudaFuncSetAttribute(decode_tiles<D, PAGE, LISTS>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = grid;
	config.blockDim = (CREW_WARPS + 1) * 32;
	config.dynamicSmemBytes = bytes;
	config.stream = stream;
	config.attrs = &attribute;
	config.numAttrs = a.beside;
	CU(cudaLaunchKernelEx(&config, decode_tiles<D, PAGE, LISTS>, a, k, v));
out:
	return st;
}

template <int LISTS>
static enum ar_status launch_lists(const struct decode_args &a, cudaStream_t stream,
				   struct ar_err *err)
{
	const bool small = a.b.shape.page_tok == 64;

	if (a.b.shape.head_dim == 64)
		return small ? launch<64, 64, LISTS>(a, stream, err) :
			       launch<64, 128, LISTS>(a, stream, err);
	return small ? launch<128, 64, LISTS>(a, stream, err) :
		       launch<128, 128, LISTS>(a, stream, err);
}

enum ar_status decode_sm90_launch(const struct decode_args *a, void *stream, struct ar_err *err)
{
	return a->lists.block ? launch_lists<BLOCKS>(*a, (cudaStream_t)stream, err) :
				launch_lists<0>(*a, (cudaStream_t)stream, err);
}
