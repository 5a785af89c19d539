/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix blocks of prompts, as runs of ids. */
#include "config.h"

#include "base/grow.h"
#include "traces/trace.h"

bool trace_put_blocks(struct trace *t, struct request *q, uint64_t id, uint32_t n)
{
	const struct block_run *last = q->n_run ? &t->run[t->n_run - 1] : NULL;

	if (!last || last->id + (q->n_block - last->at) != id) {
		if (!GROW(t->run, t->cap_run, t->n_run + 1))
			return false;
		t->run[t->n_run++] = (struct block_run){ id, q->n_block };
		q->n_run++;
	}
	q->n_block += n;
	return true;
}

bool trace_put_block(struct trace *t, struct request *q, uint64_t id)
{
	return trace_put_blocks(t, q, id, 1);
}

bool trace_same_blocks(struct trace *t, struct request *q, const struct request *from, uint32_t n)
{
	bool done = true;

	for (uint32_t i = 0, at = 0; at < n && done; i++) {
		uint32_t end = trace_run_end(t, from, i);

		end = end < n ? end : n;
		done = trace_put_blocks(t, q, t->run[from->run + i].id, end - at);
		at = end;
	}
	return done;
}

void trace_cut_blocks(const struct trace *t, struct request *q, uint32_t n)
{
	q->n_block = n;
	while (q->n_run && t->run[q->run + q->n_run - 1].at >= n)
		q->n_run--;
}

uint64_t trace_fresh_id(const struct trace *t)
{
	uint64_t most = 0;

	for (size_t i = 0; i < t->n; i++)
		for (uint32_t k = 0; k < t->req[i].n_run; k++) {
			const struct request *q = &t->req[i];
			uint64_t last = trace_block(t, q, trace_run_end(t, q, k) - 1);

			most = last > most ? last : most;
		}
	return most + 1;
}
