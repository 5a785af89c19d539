/* SPDX-License-Identifier: Apache-2.0 */
/* The batch of one iteration: a policy schedules it and a backend runs it. */
#ifndef AR_BATCH_H
#define AR_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/row_kind.h"

struct blocks;

/* Request req runs n_tok tokens starting at position start.  Positions below prompt_tok +
 * outputs so far are known; prompt tokens come first. */
struct batch_entry {
	/* These four in the order of struct sched_seq, from which they are copied. */
	uint32_t start;
	uint32_t known;	   /* tokens known before this iteration, with drafts of verify entries */
	uint32_t gone;	   /* tokens before start that an evictor took: they are not stored */
	uint32_t chunk_no; /* number of entries of the request before this one */
	uint32_t req;	   /* index into the trace */
	uint32_t n_tok;
	uint32_t evict; /* stored tokens that leave when it has run */
	/* Most tokens that it outputs: 1 if start + n_tok == known, else 0; up to n_tok of verify
	 * entries. */
	uint16_t n_emit;
	uint8_t kind;	/* enum row_kind */
	bool recompute; /* positions that had been computed before a preemption */
};

/* Tokens that the KV cache holds before e runs, and when it has run but nothing left. */
static inline uint32_t batch_stored(const struct batch_entry *e)
{
	return e->start - e->gone;
}

static inline uint32_t batch_stores(const struct batch_entry *e)
{
	return batch_stored(e) + e->n_tok;
}

/* The iterations of engines that share their experts are one step.  rows 0: of the batch alone. */
struct batch_step {
	int64_t no;	       /* number of the iteration or step in the replay */
	int64_t rows, largest; /* of all engines; of the engine with the most */
};

struct batch {
	struct batch_entry *entry;
	size_t n;
	int64_t prefill_tok, decode_tok; /* sums over the entries */
	const struct blocks *blocks;	 /* tables of the requests, for batch_table(); NULL: the
					  * backend keeps no KV */
	struct batch_step step;
};

static inline int64_t batch_rows(const struct batch *b)
{
	return b->prefill_tok + b->decode_tok;
}

/* Features of a batch that set the cost of its iteration. */
enum batch_feature {
	BATCH_PREFILL_TOK,    /* tokens of prefill and verify entries */
	BATCH_PREFILL_PAIRS,  /* (query, key) pairs of their causal attention */
	BATCH_DECODES,	      /* decode entries */
	BATCH_DECODE_CONTEXT, /* keys that decode entries attend to */
	BATCH_LONGEST_DECODE, /* keys of the decode entry that attends to most */
	BATCH_FEATURES
};

struct batch_shape {
	int64_t feature[BATCH_FEATURES];
	int64_t n_entry;
	/* Hash of the multiset of (stored tokens, n_tok, kind, n_emit, evict): request numbers and
	 * order do not count.  Equal shapes are taken for equal multisets.  Two of a million
	 * different ones have the same hash with a probability below 1e-7. */
	uint64_t composition;
};

struct batch_shape batch_shape(const struct batch *b);

#endif
