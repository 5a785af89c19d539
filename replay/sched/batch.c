/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/batch.h"

#include "base/rng.h"

/* Hash of one entry.  composition is their sum, so the order of entries does not matter.  Prefill
 * and decodes have the marks that databases hold: other kinds go above n_emit. */
static uint64_t entry_mark(const struct batch_entry *e)
{
	uint64_t kind = (e->kind & 1) | (uint64_t)e->n_emit << 1 | (uint64_t)(e->kind >> 1) << 33;

	kind ^= (uint64_t)e->evict << 34;
	return rng_mix(rng_mix((uint64_t)batch_stored(e) << 32 | e->n_tok) ^ kind);
}

struct batch_shape batch_shape(const struct batch *b)
{
	struct batch_shape s = { .n_entry = (int64_t)b->n };

	for (size_t i = 0; i < b->n; i++) {
		const struct batch_entry *e = &b->entry[i];
		int64_t start = batch_stored(e), n = e->n_tok;

		if (e->kind == ROW_DECODE) {
			s.feature[BATCH_DECODES]++;
			s.feature[BATCH_DECODE_CONTEXT] += start + 1;
			if (s.feature[BATCH_LONGEST_DECODE] < start + 1)
				s.feature[BATCH_LONGEST_DECODE] = start + 1;
		} else {
			s.feature[BATCH_PREFILL_TOK] += n;
			s.feature[BATCH_PREFILL_PAIRS] += n * start + n * (n + 1) / 2;
		}
		s.composition += entry_mark(e);
	}
	return s;
}
