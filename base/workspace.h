/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays in one block of memory, one after another, each at a multiple of WORKSPACE_ALIGN bytes.
 *
 * The same code measures and places: with no memory it adds up what the block must have, with the
 * block it returns the arrays.  The block belongs to the caller, and begins aligned.
 */
#ifndef AR_WORKSPACE_H
#define AR_WORKSPACE_H

#include <stddef.h>
#include <stdint.h>

enum { WORKSPACE_ALIGN = 256 };	/* what cudaMalloc gives, and the widest loads want */

struct workspace {
	void *mem;		/* NULL: measure */
	size_t size, used;	/* bytes: of the block, and of the arrays so far */
};

/* A block that is known to be large enough, or NULL to measure one. */
static inline struct workspace workspace_at(void *mem)
{
	struct workspace w = { mem, SIZE_MAX, 0 };

	return w;
}

static inline size_t workspace_aligned(size_t bytes)
{
	return (bytes + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
}

/* The next n elements of elem bytes.  NULL, and nothing is taken, if the block is too small.  When
 * measuring, the result means nothing. */
static inline void *workspace_take(struct workspace *w, size_t n, size_t elem)
{
	size_t bytes = workspace_aligned(n * elem), at = w->used;

	if (bytes > w->size - at)
		return NULL;
	w->used += bytes;
	return (void *)((uintptr_t)w->mem + at);	/* NULL has no offsets */
}

#endif
