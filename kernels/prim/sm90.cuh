/* SPDX-License-Identifier: Apache-2.0 */
/* Hopper's instructions, beside the ones of device.cuh: one inline function each, named after the
 * mnemonic.  No policy. */
#ifndef AR_SM90_CUH
#define AR_SM90_CUH

#include <cuda.h>

#include "kernels/prim/device.cuh"

/* PTX ISA, "mbarrier.init": count arrivals complete a phase. */
static __device__ __forceinline__ void mbarrier_init(uint64_t *bar, int count)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(smem_addr(bar)), "r"(count));
}

/* PTX ISA, "fence.mbarrier_init": make initialised barriers visible to TMA. */
static __device__ __forceinline__ void fence_barrier_init(void)
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* PTX ISA, "mbarrier.arrive.expect_tx": one arrival; the phase also waits for `bytes` bytes of
 * copies. */
static __device__ __forceinline__ void mbarrier_expect_tx(uint64_t *bar, uint32_t bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
		     :: "r"(smem_addr(bar)), "r"(bytes) : "memory");
}

/* PTX ISA, "cp.async.mbarrier.arrive", .noinc: one arrival, when all copies (cp_async_16) that this
 * thread has begun are complete. */
static __device__ __forceinline__ void cp_async_mbarrier_arrive(uint64_t *bar)
{
	asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
		     :: "r"(smem_addr(bar)) : "memory");
}

static __device__ __forceinline__ void mbarrier_arrive(uint64_t *bar)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(smem_addr(bar)) : "memory");
}

/* PTX ISA, "mbarrier.try_wait", .parity.  Returns when that phase is over. */
static __device__ __forceinline__ void mbarrier_wait(uint64_t *bar, uint32_t parity)
{
	uint32_t done;

	do
		asm volatile("{ .reg .pred p;\n"
			     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
			     "selp.u32 %0, 1, 0, p; }"
			     : "=r"(done) : "r"(smem_addr(bar)), "r"(parity) : "memory");
	while (!done);
}

/* PTX ISA, "cp.async.bulk.tensor": a box of a two- or three-dimensional tensor to shared
 * memory, its bytes counted on bar.  Coordinates in elements, innermost first. */
static __device__ __forceinline__ void tma_load_2d(void *to, const CUtensorMap *map, uint64_t *bar,
						   int x, int y)
{
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
		     " [%0], [%1, {%3, %4}], [%2];"
		     :: "r"(smem_addr(to)), "l"(map), "r"(smem_addr(bar)), "r"(x), "r"(y)
		     : "memory");
}

static __device__ __forceinline__ void tma_load_3d(void *to, const CUtensorMap *map, uint64_t *bar,
					    int x, int y, int z)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
		     " [%0], [%1, {%3, %4, %5}], [%2];"
		     :: "r"(smem_addr(to)), "l"(map), "r"(smem_addr(bar)), "r"(x), "r"(y), "r"(z)
		     : "memory");
}

/* PTX ISA, "elect.sync": true in one lane of the warp, by all of its lanes. */
static __device__ __forceinline__ bool elect_one(void)
{
	uint32_t one;

	asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p; }"
		     : "=r"(one) :: "memory");
	return one;
}

static __device__ __forceinline__ void tma_prefetch_map(const CUtensorMap *map)
{
	asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

/* This thread block's place in its cluster. */
static __device__ __forceinline__ uint32_t cluster_rank(void)
{
	uint32_t r;

	asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
	return r;
}

/* PTX ISA, "barrier.cluster": all threads of the cluster; orders their memory accesses. */
static __device__ __forceinline__ void cluster_sync(void)
{
	asm volatile("barrier.cluster.arrive.release.aligned;\n"
		     "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* PTX ISA, "mapa": where the shared memory at addr lies in the thread block of that rank. */
static __device__ __forceinline__ uint32_t cluster_addr(uint32_t addr, uint32_t rank)
{
	uint32_t r;

	asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(addr), "r"(rank));
	return r;
}

/* An arrival on a barrier at a cluster_addr(). */
static __device__ __forceinline__ void cluster_arrive(uint32_t bar)
{
	asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];"
		     :: "r"(bar) : "memory");
}

/* PTX ISA, "st.async": store 4, 8 or 16 bytes at a cluster_addr(), counted on the barrier at bar,
 * of the same thread block. */
static __device__ __forceinline__ void cluster_store(uint32_t to, float x, uint32_t bar)
{
	asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
		     :: "r"(to), "r"(__float_as_uint(x)), "r"(bar) : "memory");
}

static __device__ __forceinline__ void cluster_store(uint32_t to, uint2 x, uint32_t bar)
{
	asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 "
		     "[%0], {%1, %2}, [%3];"
		     :: "r"(to), "r"(x.x), "r"(x.y), "r"(bar) : "memory");
}

static __device__ __forceinline__ void cluster_store(uint32_t to, const uint32_t (&x)[4],
						     uint32_t bar)
{
	asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
		     "[%0], {%1, %2, %3, %4}, [%5];"
		     :: "r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(bar) : "memory");
}

/* PTX ISA, "cp.async.bulk", .multicast::cluster: copy bytes, a multiple of 16, to the place of `to`
 * in each thread block whose bit is set in ranks.  Counted on the barrier in the place of bar. */
static __device__ __forceinline__ void bulk_load_cluster(void *to, const void *from, uint32_t bytes,
							 uint64_t *bar, uint16_t ranks)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
		     ".multicast::cluster [%0], [%1], %2, [%3], %4;"
		     :: "r"(smem_addr(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
			"r"(smem_addr(bar)), "h"(ranks) : "memory");
}

/* PTX ISA, "cp.async.bulk", shared to global memory, as a group of its own.  After
 * fence_proxy_async() by the writers. */
static __device__ __forceinline__ void bulk_store(void *to, const void *from, uint32_t bytes)
{
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
		     "cp.async.bulk.commit_group;"
		     :: "l"(__cvta_generic_to_global(to)), "r"(smem_addr(from)), "r"(bytes)
		     : "memory");
}

/* Until all this thread's bulk_store() have read shared memory. */
static __device__ __forceinline__ void bulk_store_wait(void)
{
	asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* PTX ISA, "stmatrix", .x4: as ldmatrix_x4(), the other way. */
static __device__ __forceinline__ void stmatrix_x4(uint32_t addr, const uint32_t (&r)[4])
{
	asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
		     :: "r"(addr), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

/* PTX ISA, "stmatrix", .x4, .trans: store four 8x8 matrices of 16-bit elements, transposed.  Lane
 * 8 i + j gives the address for column j of matrix i; lane l has elements 2 (l % 4), + 1 of row
 * l / 4 of each. */
static __device__ __forceinline__ void stmatrix_x4_trans(uint32_t addr, const uint32_t (&r)[4])
{
	asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
		     :: "r"(addr), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

/* PTX ISA, "bar.arrive": arrive at a named barrier of n threads, and go on; see bar_sync(). */
static __device__ __forceinline__ void bar_arrive(int id, int n)
{
	asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(n) : "memory");
}

/* PTX ISA, "ld.acquire" and "atom.acq_rel", .gpu: read or change a counter.  Writes that another
 * thread of the device released before are visible after it. */
static __device__ __forceinline__ int load_acquire(const int32_t *p)
{
	int r;

	asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(r) : "l"(p) : "memory");
	return r;
}

static __device__ __forceinline__ int add_acq_rel(int32_t *p, int n)
{
	int r;

	asm volatile("atom.acq_rel.gpu.add.s32 %0, [%1], %2;"
		     : "=r"(r) : "l"(p), "r"(n) : "memory");
	return r;
}

/* PTX ISA, "prefetch": bring the line at p to the L2 cache. */
static __device__ __forceinline__ void prefetch_l2(const void *p)
{
	asm volatile("prefetch.global.L2 [%0];" :: "l"(__cvta_generic_to_global(p)));
}

/* PTX ISA, "red.release", .gpu: add to a counter whose value is not asked for. */
static __device__ __forceinline__ void add_release(int32_t *p, int n)
{
	asm volatile("red.release.gpu.global.add.s32 [%0], %1;" :: "l"(p), "r"(n) : "memory");
}

/* PTX ISA, "griddepcontrol", for kernels that overlap: wait for the end of the kernel before, or
 * allow the next kernel to start. */
static __device__ __forceinline__ void grid_wait(void)
{
	asm volatile("griddepcontrol.wait;" ::: "memory");
}

static __device__ __forceinline__ void grid_launch_next(void)
{
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* This thread's warp group.  The shuffle makes it uniform, so descriptors that depend on it live in
 * uniform registers. */
static __device__ __forceinline__ int warp_group(void)
{
	return __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
}

/* PTX ISA, "setmaxnreg": set how many registers a thread of this warp group may use. */
template <int n> static __device__ __forceinline__ void setmaxnreg_inc(void)
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(n));
}

template <int n> static __device__ __forceinline__ void setmaxnreg_dec(void)
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(n));
}

/* PTX ISA, "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group". */
static __device__ __forceinline__ void wgmma_fence(void)
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit(void)
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int n> static __device__ __forceinline__ void wgmma_wait(void)
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(n) : "memory");
}

/* PTX ISA, "fence.proxy.async": order ordinary writes to shared memory before later reads by wgmma
 * and TMA. */
static __device__ __forceinline__ void fence_proxy_async(void)
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Keeps the compiler from moving uses of r across the wait before it. */
template <int n> static __device__ __forceinline__ void hold(float *r)
{
#pragma unroll
	for (int i = 0; i < n; i++)
		asm volatile("" : "+f"(r[i]) :: "memory");
}

/* PTX ISA, "Matrix descriptor" of wgmma, 128-byte swizzle.  Offsets in bytes: lead between
 * 64-element columns of a transposed operand (ignored otherwise), stride between groups of
 * eight 128-byte rows. */
static __device__ __forceinline__ uint64_t wgmma_desc(const void *p, uint32_t lead, uint32_t stride)
{
	return (uint64_t)(smem_addr(p) >> 4 & 0x3fff) | (uint64_t)(lead >> 4 & 0x3fff) << 16 |
	       (uint64_t)(stride >> 4 & 0x3fff) << 32 | (uint64_t)1 << 62;
}

/* Move a descriptor on by bytes.  Cheaper than a new one. */
static __device__ __forceinline__ uint64_t wgmma_at(uint64_t desc, uint32_t bytes)
{
	return desc + bytes / 16;
}

/* 8, 16, 32, 64 and 128 accumulators from x[i] on as operands; their places in an instruction. */
#define WGMMA_ACC_8(x, i) \
	"+f"((x)[i]), "+f"((x)[(i) + 1]), "+f"((x)[(i) + 2]), "+f"((x)[(i) + 3]), \
	"+f"((x)[(i) + 4]), "+f"((x)[(i) + 5]), "+f"((x)[(i) + 6]), "+f"((x)[(i) + 7])
#define WGMMA_ACC_32(x, i) \
	WGMMA_ACC_8(x, i), WGMMA_ACC_8(x, (i) + 8), WGMMA_ACC_8(x, (i) + 16), \
	WGMMA_ACC_8(x, (i) + 24)
#define WGMMA_ACC_16(x) WGMMA_ACC_8(x, 0), WGMMA_ACC_8(x, 8)
#define WGMMA_ACC_64(x) WGMMA_ACC_32(x, 0), WGMMA_ACC_32(x, 32)
#define WGMMA_ACC_128(x) WGMMA_ACC_64(x), WGMMA_ACC_32(x, 64), WGMMA_ACC_32(x, 96)
#define WGMMA_PLACES_16 \
	"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_PLACES_32 WGMMA_PLACES_16 \
	", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_PLACES_64 WGMMA_PLACES_32 \
	", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
	"%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_PLACES_128 WGMMA_PLACES_64 \
	", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
	"%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
	"%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, " \
	"%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, " \
	"%123, %124, %125, %126, %127"

/* PTX ISA, "wgmma.mma_async".  D[64][128] (+)= A B, A and B from shared memory, both with
 * the product's inner dimension contiguous.  accumulate 0: D is overwritten. */
static __device__ __forceinline__ void wgmma_m64n128k16_ss(float *d, uint64_t a, uint64_t b,
							   int accumulate)
{
	asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WGMMA_PLACES_64
		     "}, %64, %65, p, 1, 1, 0, 0; }"
		     : WGMMA_ACC_64(d)
		     : "l"(a), "l"(b), "r"(accumulate));
}

/* The same for D[64][64]. */
static __device__ __forceinline__ void wgmma_m64n64k16_ss(float *d, uint64_t a, uint64_t b,
							  int accumulate)
{
	asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" WGMMA_PLACES_32
		     "}, %32, %33, p, 1, 1, 0, 0; }"
		     : WGMMA_ACC_32(d, 0)
		     : "l"(a), "l"(b), "r"(accumulate));
}

/* The same for D[64][32]. */
static __device__ __forceinline__ void wgmma_m64n32k16_ss(float *d, uint64_t a, uint64_t b,
							  int accumulate)
{
	asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" WGMMA_PLACES_16
		     "}, %16, %17, p, 1, 1, 0, 0; }"
		     : WGMMA_ACC_16(d)
		     : "l"(a), "l"(b), "r"(accumulate));
}

/* The same for D[64][256]. */
static __device__ __forceinline__ void wgmma_m64n256k16_ss(float *d, uint64_t a, uint64_t b,
							   int accumulate)
{
	asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" WGMMA_PLACES_128
		     "}, %128, %129, p, 1, 1, 0, 0; }"
		     : WGMMA_ACC_128(d)
		     : "l"(a), "l"(b), "r"(accumulate));
}

/* D[64][64] with A from registers, B as before. */
static __device__ __forceinline__ void wgmma_m64n64k16_rs_rows(float *d, const uint32_t *a,
							       uint64_t b, int accumulate)
{
	asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" WGMMA_PLACES_32
		     "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
		     : WGMMA_ACC_32(d, 0)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

/* The same for D[64][32]. */
static __device__ __forceinline__ void wgmma_m64n32k16_rs_rows(float *d, const uint32_t *a,
							       uint64_t b, int accumulate)
{
	asm volatile("{ .reg .pred p; setp.ne.b32 p, %21, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" WGMMA_PLACES_16
		     "}, {%16, %17, %18, %19}, %20, p, 1, 1, 0; }"
		     : WGMMA_ACC_16(d)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

/* D[64][128] with A from registers and B transposed: B's rows are the inner dimension. */
static __device__ __forceinline__ void wgmma_m64n128k16_rs(float *d, const uint32_t *a, uint64_t b)
{
	asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WGMMA_PLACES_64
		     "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1; }"
		     : WGMMA_ACC_64(d)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* The same for D[64][64]. */
static __device__ __forceinline__ void wgmma_m64n64k16_rs(float *d, const uint32_t *a, uint64_t b)
{
	asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" WGMMA_PLACES_32
		     "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1; }"
		     : WGMMA_ACC_32(d, 0)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* The same for D[64][32]. */
static __device__ __forceinline__ void wgmma_m64n32k16_rs(float *d, const uint32_t *a, uint64_t b)
{
	asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" WGMMA_PLACES_16
		     "}, {%16, %17, %18, %19}, %20, p, 1, 1, 1; }"
		     : WGMMA_ACC_16(d)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* Choose the instruction by its columns, n. */
template <int n>
static __device__ __forceinline__ void wgmma_ss(float *d, uint64_t a, uint64_t b, int accumulate)
{
	if constexpr (n == 256)
		wgmma_m64n256k16_ss(d, a, b, accumulate);
	else if constexpr (n == 128)
		wgmma_m64n128k16_ss(d, a, b, accumulate);
	else
		wgmma_m64n64k16_ss(d, a, b, accumulate);
}

template <int n>
static __device__ __forceinline__ void wgmma_rs(float *d, const uint32_t *a, uint64_t b)
{
	if constexpr (n == 128)
		wgmma_m64n128k16_rs(d, a, b);
	else
		wgmma_m64n64k16_rs(d, a, b);
}

#endif
