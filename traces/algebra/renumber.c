/* SPDX-License-Identifier: Apache-2.0 */
/* Renumbering of prefix blocks, by first appearance. */
#include "config.h"
#include "traces/algebra/renumber.h"

#include <stdlib.h>

bool blocks_put(struct trace *t, struct request *q, const struct trace *from, uint64_t origin,
		struct chain *ids)
{
	struct request made = *q;
	bool done = true;

	made.run = t->n_run;
	made.n_run = made.n_block = 0;
	for (uint32_t k = 0; k < q->n_block && done; k++) {
		struct chain_key key = { .prev = origin, .src = trace_block(from, q, k) };
		uint64_t number;

		done = chain_put(ids, key, ids->n, &number) && trace_put_block(t, &made, number);
	}
	*q = made;
	return done;
}

enum ar_status trace_number_blocks(struct trace *t, uint64_t *n_ids, struct ar_err *err)
{
	struct trace made = { 0 };
	struct chain ids = { 0 };
	bool done = true;

	for (size_t i = 0; i < t->n && done; i++)
		done = blocks_put(&made, &t->req[i], t, 0, &ids);
	*n_ids = ids.n;
	chain_release(&ids);
	free(done ? t->run : made.run);
	if (!done)
		return ar_nomem(err);
	t->run = made.run;
	t->n_run = made.n_run;
	t->cap_run = made.cap_run;
	return AR_OK;
}
