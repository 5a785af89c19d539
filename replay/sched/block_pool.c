/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/block_pool.h"

void block_pool_init(struct block_pool *p, int64_t num_blocks, int64_t block_tok)
{
	p->n_usable = p->n_free = num_blocks - 1;
	p->block_tok = block_tok;
}

int64_t block_pool_need(const struct block_pool *p, int64_t n_tok)
{
	return (n_tok + p->block_tok - 1) / p->block_tok;
}

bool block_pool_take(struct block_pool *p, uint32_t *owned, int64_t n_tok)
{
	int64_t more = block_pool_need(p, n_tok) - *owned;

	if (more > p->n_free)
		return false;
	p->n_free -= more;
	*owned += (uint32_t)more;
	return true;
}

void block_pool_give(struct block_pool *p, uint32_t *owned, int64_t n_tok)
{
	int64_t need = block_pool_need(p, n_tok);

	p->n_free += *owned - need;
	*owned = (uint32_t)need;
}

void block_pool_release(struct block_pool *p, uint32_t *owned)
{
	p->n_free += *owned;
	*owned = 0;
}
