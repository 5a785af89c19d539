/* SPDX-License-Identifier: Apache-2.0 */
/* KV blocks of a policy.  Without a prefix cache all blocks are alike, so the pool is a count.
 * The pages of a device hold the blocks: blocks.h. */
#ifndef AR_BLOCK_POOL_H
#define AR_BLOCK_POOL_H

#include <stdbool.h>
#include <stdint.h>

struct block_pool {
	int64_t n_usable; /* one less than configured: block 0 is the null block */
	int64_t n_free;
	int64_t block_tok;
};

void block_pool_init(struct block_pool *p, int64_t num_blocks, int64_t block_tok);

/* Blocks that hold n_tok tokens. */
int64_t block_pool_need(const struct block_pool *p, int64_t n_tok);

/* Take the blocks that *owned lacks to cover n_tok tokens.  False, and nothing changed, when there
 * are not enough free blocks. */
bool block_pool_take(struct block_pool *p, uint32_t *owned, int64_t n_tok);

/* The same, if it lacks any: most decodes need none. */
static inline bool block_pool_grow(struct block_pool *p, uint32_t *owned, int64_t n_tok)
{
	return n_tok <= *owned * p->block_tok || block_pool_take(p, owned, n_tok);
}

/* Give back the blocks of *owned that n_tok tokens do not need. */
void block_pool_give(struct block_pool *p, uint32_t *owned, int64_t n_tok);
static inline void block_pool_shrink(struct block_pool *p, uint32_t *owned, int64_t n_tok)
{
	if (n_tok <= ((int64_t)*owned - 1) * p->block_tok)
		block_pool_give(p, owned, n_tok);
}

void block_pool_release(struct block_pool *p, uint32_t *owned);

#endif
