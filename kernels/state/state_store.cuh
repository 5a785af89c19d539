/* SPDX-License-Identifier: Apache-2.0 */
/* Stores of several words to global memory.  Assignments of structs such as uint4 may be compiled
 * to a store for each word.  Here that cost a third of a kernel's time. */
#ifndef AR_DELTA_STORE_CUH
#define AR_DELTA_STORE_CUH

#include <cstdint>

/* p is aligned to the size of w. */
__device__ __forceinline__ void store_words(void *p, const uint32_t (&w)[4])
{
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
		     :: "l"(__cvta_generic_to_global(p)), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
		     : "memory");
}

__device__ __forceinline__ void store_words(void *p, const uint32_t (&w)[2])
{
	asm volatile("st.global.v2.u32 [%0], {%1, %2};"
		     :: "l"(__cvta_generic_to_global(p)), "r"(w[0]), "r"(w[1]) : "memory");
}

__device__ __forceinline__ void store_words(void *p, const uint32_t (&w)[1])
{
	*reinterpret_cast<uint32_t *>(p) = w[0];
}

#endif
