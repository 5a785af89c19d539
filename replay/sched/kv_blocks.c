/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/kv_blocks.h"

#include <stdlib.h>
#include <string.h>

#include "base/large.h"

enum ar_status kv_blocks_init(struct kv_blocks *b, struct block_pool *pool, const struct trace *t,
			      uint64_t root, struct ar_err *err)
{
	size_t n_bucket = 1, size;
	int64_t n = pool->n_usable;

	while (n_bucket <= (size_t)n)
		n_bucket *= 2;
	size = ((size_t)n + 1) * (sizeof *b->block + sizeof *b->place) +
	       n_bucket * sizeof *b->bucket;
	*b = (struct kv_blocks){ .pool = pool,
				 .trace = t,
				 .root = root,
				 .block = large_alloc(size),
				 .mask = (uint32_t)(n_bucket - 1) };
	if (!b->block)
		return ar_nomem(err);
	memset(b->block, 0, size);
	b->place = (struct kv_place *)(b->block + n + 1);
	b->bucket = (uint32_t *)(b->place + n + 1);
	pool->n_free = 0;
	for (int64_t i = 1; i <= n; i++)
		kv_insert_free(b, (uint32_t)i, b->place[0].prev);
	return AR_OK;
}

void kv_blocks_release(struct kv_blocks *b)
{
	free(b->block);
}
