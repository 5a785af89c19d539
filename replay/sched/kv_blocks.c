/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/kv_blocks.h"

#include <stdlib.h>
#include <string.h>

#include "base/large.h"

enum ar_status kv_blocks_init(struct kv_blocks *b, struct block_pool *pool, const struct trace *t,
			      uint64_t root, struct ar_err *err)
{
	const size_t n = (size_t)pool->n_usable, n_known = 1 + (n > 0);
	size_t n_bucket = 1;

	while (n_bucket <= n)
		n_bucket *= 2;
	*b = (struct kv_blocks){ .pool = pool,
				 .trace = t,
				 .root = root,
				 .block = large_alloc(
					 (n + 1) * (sizeof *b->block + sizeof *b->place) +
					 n_bucket * sizeof *b->bucket),
				 .n = (uint32_t)n,
				 .fresh = 1 };
	if (!b->block)
		return ar_nomem(err);
	b->place = (struct kv_place *)(b->block + n + 1);
	b->bucket = (uint32_t *)(b->place + n + 1);
	b->bucket[0] = 0; /* the only one at first */
	memset(b->block, 0, n_known * sizeof *b->block);
	memset(b->place, 0, n_known * sizeof *b->place);
	b->place[0].next = b->place[0].prev = n > 0;
	pool->n_free = pool->n_usable;
	return AR_OK;
}

/* Double the number of buckets: each shares its keys with a new one. */
static void split_buckets(struct kv_blocks *b)
{
	const uint32_t m = b->mask + 1;

	for (uint32_t i = 0; i < m; i++) {
		uint32_t *link[2] = { &b->bucket[i], &b->bucket[i + m] };

		for (uint32_t n = b->bucket[i]; n; n = b->block[n].chain) {
			uint32_t **at = &link[(b->block[n].hash & m) != 0];

			**at = n;
			*at = &b->block[n].chain;
		}
		*link[0] = *link[1] = 0;
	}
	b->mask += m;
}

void kv_take_fresh(struct kv_blocks *b)
{
	const uint32_t was = b->fresh++, now = b->fresh;
	struct kv_place *p = b->place;

	if (now > b->n)
		return;
	b->block[now] = (struct kv_block){ 0 };
	p[now] = (struct kv_place){ .prev = was, .next = p[was].next };
	p[p[was].next].prev = now;
	p[was].next = now;
	if (now > b->mask)
		split_buckets(b);
}

void kv_blocks_release(struct kv_blocks *b)
{
	free(b->block);
}
