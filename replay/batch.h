/* What a policy schedules and a backend runs: the batch of one iteration. */
#ifndef AR_BATCH_H
#define AR_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Request req runs n_tok tokens starting at position start.  Positions below prompt_tok +
 * outputs so far are known; prompt tokens come first. */
struct batch_entry {
	uint32_t req;		/* index into the trace */
	uint32_t start, n_tok;
	uint32_t known;		/* tokens known before this iteration */
	bool decode;		/* n_tok == 1 and start >= prompt_tok: one decode row */
	bool emit;		/* a token comes out: start + n_tok == known */
	bool recompute;		/* positions that had been computed before a preemption */
	uint32_t chunk_no;	/* how many entries the request had before this one */
};

struct batch {
	struct batch_entry *entry;
	size_t n;
	int64_t prefill_tok, decode_tok;	/* sums over the entries */
};

#endif
