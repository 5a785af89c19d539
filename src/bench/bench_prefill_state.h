/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of struct bench_prefill, shared by its source files.
 *
 * A set holds K and V of whole prompts, Q of one chunk and the selector's state.  All sets hold the
 * same values at different addresses, so that the L2 cache holds no set.  The rows, pages and
 * activations of a replay fill set 0, which is copied to the others.
 */
#ifndef AR_BENCH_PREFILL_STATE_H
#define AR_BENCH_PREFILL_STATE_H

#include "src/bench/bench_engine.h"
#include "src/bench/bench_load.h"
#include "src/bench/bench_prefill.h"

struct bench_prefill {
	struct bench_load l; /* first: launch() gets a pointer to it */
	struct bench_engine e;
	struct bench_case c; /* the staged chunk, as bench_check_rows() wants it */
	int chunk;	     /* tokens of the last chunk */
	size_t state_bytes;  /* of a set */
	char *state;

	/* On the device. */
	void *rows;	       /* the copy of e.rows.mem */
	struct row_set dev;    /* of the staged chunk */
	bf16_t *k, *dense_out; /* [max_row] */
	void *dense_work;
	struct drop_kept kept; /* of the dropper */
	int32_t *tok;	       /* [batch] tokens of the chunk */
};

/* Stage the chunk [ctx, ctx + n): its rows on the device, and no Q.  tiles: the method that plans
 * the tiles; NULL: the one that is measured. */
enum ar_status bench_prefill_stage(struct bench_prefill *p, int ctx, int n,
				   const struct method *tiles, struct ar_err *err);
/* The same, with Q in the first n_set sets. */
enum ar_status bench_prefill_queries(struct bench_prefill *p, int ctx, int n, int n_set,
				     struct ar_err *err);
/* The arguments of the method on a set. */
struct attn_call bench_prefill_call(const struct bench_prefill *p, int set);
/* A phase_fn that does nothing. */
void bench_no_phase(void *ctx, int layer, enum phase phase);

#endif
