/* SPDX-License-Identifier: Apache-2.0 */
/* Renumbering of prefix blocks, by first appearance. */
#include "config.h"
#include "traces/algebra/renumber.h"

#include <stdlib.h>

bool blocks_put(struct trace *t, struct request *q, const uint64_t *from, uint64_t origin,
		struct chain *ids)
{
	size_t at = t->n_block;

	for (uint32_t k = 0; k < q->n_block; k++) {
		struct chain_key key = { .prev = origin, .src = from[q->block + k] };

		if (!chain_put(ids, key, ids->n, &t->block[t->n_block++]))
			return false;
	}
	q->block = at;
	return true;
}

size_t blocks_count(const struct trace *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++)
		n += t->req[i].n_block;
	return n;
}

enum ar_status trace_number_blocks(struct trace *t, uint64_t *n_ids, struct ar_err *err)
{
	struct trace made = { .block = calloc(blocks_count(t) + 1, sizeof *t->block) };
	struct chain ids = { 0 };
	bool done = made.block;

	for (size_t i = 0; i < t->n && done; i++)
		done = blocks_put(&made, &t->req[i], t->block, 0, &ids);
	*n_ids = ids.n;
	chain_release(&ids);
	free(done ? t->block : made.block);
	if (!done)
		return ar_nomem(err);
	t->block = made.block;
	t->n_block = made.n_block;
	return AR_OK;
}
