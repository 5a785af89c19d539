/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays in one block of memory, one after another, each at a multiple of WORKSPACE_ALIGN bytes.
 *
 * The same code measures and places.  Without memory it adds up the size of the block; with the
 * block it returns the arrays.  The caller owns the block, which must begin aligned.
 */
#ifndef AR_WORKSPACE_H
#define AR_WORKSPACE_H

#include <stddef.h>
#include <stdint.h>

enum { WORKSPACE_ALIGN = 256 }; /* as cudaMalloc aligns; enough for the widest loads */

struct workspace {
	void *mem;	   /* NULL: measure */
	size_t size, used; /* bytes: of the block, and of the arrays so far */
};

/* Begin with mem, a block that is large enough, or NULL to measure. */
static inline struct workspace workspace_at(void *mem)
{
	struct workspace w = { mem, SIZE_MAX, 0 };

	return w;
}

static inline size_t workspace_aligned(size_t bytes)
{
	return (bytes + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
}

/* Take the next n elements of elem bytes.  NULL: the block is too small, and nothing is taken.
 * When measuring, ignore the result. */
static inline void *workspace_take(struct workspace *w, size_t n, size_t elem)
{
	size_t bytes = workspace_aligned(n * elem), at = w->used;

	if (bytes > w->size - at)
		return NULL;
	w->used += bytes;
	return (void *)((uintptr_t)w->mem + at); /* NULL has no offsets */
}

#endif
