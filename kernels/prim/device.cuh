/* SPDX-License-Identifier: Apache-2.0 */
/* Device primitives: one inline function per PTX instruction (sm_80 and later), and the
 * few idioms every matrix kernel needs.  No policy, no method. */
#ifndef AR_DEVICE_CUH
#define AR_DEVICE_CUH

#include <stdint.h>

/* Address in the shared state space, as the instructions below take it. */
static __device__ __forceinline__ uint32_t smem_addr(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* PTX ISA, "cp.async".  Copy 16 bytes past the L1 cache; n < 16 reads n bytes and writes zeros
 * for the rest. */
static __device__ __forceinline__ void cp_async_16(uint32_t dst, const void *src, int n)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
		     :: "r"(dst), "l"(__cvta_generic_to_global(src)), "r"(n) : "memory");
}

/* The same for 4 bytes, by way of the L1 cache. */
static __device__ __forceinline__ void cp_async_4(uint32_t dst, const void *src, int n)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
		     :: "r"(dst), "l"(__cvta_generic_to_global(src)), "r"(n) : "memory");
}

/* PTX ISA, "cp.async.commit_group". */
static __device__ __forceinline__ void cp_async_commit()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* PTX ISA, "cp.async.wait_group".  Until at most N of this thread's groups are under way. */
template <int N>
static __device__ __forceinline__ void cp_async_wait()
{
	asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}

/* PTX ISA, "ldmatrix", .x4: four 8x8 matrices of 16-bit elements.  Lane 8 i + j gives the
 * address of row j of matrix i; lane l receives elements 2 (l % 4), + 1 of row l / 4 of each. */
static __device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t addr)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(addr) : "memory");
}

/* The same with each matrix transposed. */
static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t addr)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(addr) : "memory");
}

/* PTX ISA, "mma", .m16n8k16, bf16 in, fp32 out: c += a b.  Lane l has g = l / 4, t = 2 (l % 4).
 * It holds: a[0..3] = (g, t), (g + 8, t), (g, t + 8), (g + 8, t + 8) as (row, k), k and k + 1
 * packed; b0, b1 = (t, g), (t + 8, g) as (k, column); c[0..3] = (g, t), (g, t + 1),
 * (g + 8, t), (g + 8, t + 1) as (row, column). */
static __device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4],
						    uint32_t b0, uint32_t b1)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
	    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
	    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* PTX ISA, "cvt", .rna.tf32.f32: round to the 10 bits of mantissa that tf32 has. */
static __device__ __forceinline__ uint32_t to_tf32(float x)
{
	uint32_t r;

	asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
	return r;
}

/* PTX ISA, "mma", .m16n8k8, tf32 in, fp32 out: c += a b.  With g = l / 4, t = l % 4, lane l holds
 * a[0..3] = (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4) as (row, k); b0, b1 = (t, g),
 * (t + 4, g) as (k, column); c as above. */
static __device__ __forceinline__ void mma_m16n8k8_tf32(float (&c)[4], const uint32_t (&a)[4],
							uint32_t b0, uint32_t b1)
{
	asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
	    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
	    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* PTX ISA, "cvt", .rn.bf16x2.f32: lo in the lower half. */
static __device__ __forceinline__ uint32_t pack_bf16(float lo, float hi)
{
	uint32_t r;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
	return r;
}

/* PTX ISA, "ex2.approx.ftz": 2 to the x; 0 for -inf. */
static __device__ __forceinline__ float ex2(float x)
{
	float r;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
	return r;
}

/* PTX ISA, "tanh.approx": within 2^-11 of the result. */
static __device__ __forceinline__ float tanh_approx(float x)
{
	float r;

	asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
	return r;
}

/* PTX ISA, "atom", .acq_rel.gpu.inc: count from 0 to last and begin again.  Acquire-release: writes
 * before the count are visible to whoever reads it.  A barrier before extends this to the writes of
 * other threads. */
static __device__ __forceinline__ uint32_t inc_acq_rel(uint32_t *p, uint32_t last)
{
	uint32_t r;

	asm volatile("atom.acq_rel.gpu.inc.u32 %0, [%1], %2;"
		     : "=r"(r) : "l"(p), "r"(last) : "memory");
	return r;
}

/* PTX ISA, "bar.sync": barrier `id` of `n` threads of the thread block, whole warps. */
static __device__ __forceinline__ void bar_sync(int id, int n)
{
	asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n) : "memory");
}

/* PTX ISA, "bar.red", .and: the same; whether x holds for all of them. */
static __device__ __forceinline__ bool bar_and(int id, int n, bool x)
{
	int all;

	asm volatile("{ .reg .pred p, q; setp.ne.s32 p, %3, 0; bar.red.and.pred q, %1, %2, p; "
		     "selp.s32 %0, 1, 0, q; }"
		     : "=r"(all) : "r"(id), "r"(n), "r"((int)x) : "memory");
	return all;
}

/* The maximum over the four lanes that hold one row of an mma accumulator. */
static __device__ __forceinline__ float quad_max(float x)
{
	x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
	return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

static __device__ __forceinline__ float quad_sum(float x)
{
	x += __shfl_xor_sync(0xffffffff, x, 1);
	return x + __shfl_xor_sync(0xffffffff, x, 2);
}

template <typename T>
static __device__ __forceinline__ T warp_sum(T x)
{
	for (int i = 16; i; i >>= 1)
		x += __shfl_xor_sync(0xffffffff, x, i);
	return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
	for (int i = 16; i; i >>= 1)
		x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, i));
	return x;
}

/* Byte offset of 16-byte piece c of row r in a shared tile of rows of D bf16.  Any eight
 * consecutive rows have the same piece in different banks. */
template <int D>
static __device__ __forceinline__ uint32_t swizzle(int r, int c)
{
	return (uint32_t)(r * D * 2 + ((c ^ (r & 7)) << 4));
}

#endif
