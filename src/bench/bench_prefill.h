/* SPDX-License-Identifier: Apache-2.0 */
/* The attention core of one layer of a method, chunk by chunk of a prefill, on the GPU.  With a
 * dropper, also the dropper's work after the layer's attention. */
#ifndef AR_BENCH_PREFILL_H
#define AR_BENCH_PREFILL_H

#include "kernels/methods/selection_count.h"
#include "src/bench/bench_device.h"
#include "src/bench/bench_input.h"

/* Stages of the core, in their order. */
enum bench_part {
	BENCH_PART_SELECT,
	BENCH_PART_METADATA,
	BENCH_PART_COPY,
	BENCH_PART_ATTEND,
	BENCH_PART_DROP,
	BENCH_PART_N
};

struct bench_core {
	double us[BENCH_PART_N];      /* medians; 0: the method has no such stage */
	double event_us;	      /* of all, launch gaps included */
	bool traced;		      /* false: us are between CUDA events, too */
	struct selection_count count; /* of request 0, all heads */
	bool checked;		      /* rel_l2 was computed */
	double rel_l2;		      /* sampled rows of request 0 against double precision over
					 * the same selection; not of vertical-slash lists */
	double dense_l2;	      /* request 0 against dense attention; NaN: not asked */
	double kept;		      /* share of the rows that stay; NaN: there is no dropper */
};

struct bench_prefill;

/* Prepare equal prompts of s->context tokens, in chunks of at most s->chunk.  s->page_tok is
 * ignored: the method has its own.  Writes K and V of all tokens and the selector's state.
 * AR_USAGE, AR_DATA: the method cannot be opened. */
enum ar_status bench_prefill_open(struct bench_prefill **out, struct bench_device *d,
				  const char *method, const struct bench_shape *s,
				  const struct bench_input *input, struct ar_err *err);
void bench_prefill_close(struct bench_prefill *p); /* NULL is fine */

/* Measure the chunk [ctx, ctx + n).  Every chunk but the last must end at the end of a page. */
enum ar_status bench_prefill_run(struct bench_prefill *p, int ctx, int n, struct bench_core *core,
				 struct ar_err *err);

/* Use `method` from here on.  It may differ from the prefill's method only in its selector's
 * threshold, on which neither state nor memory depends. */
enum ar_status bench_prefill_use(struct bench_prefill *p, const char *method, struct ar_err *err);

/* Count the selection of the chunk [ctx, ctx + n); time nothing. */
enum ar_status bench_prefill_count(struct bench_prefill *p, int ctx, int n,
				   struct selection_count *count, struct ar_err *err);

#endif
