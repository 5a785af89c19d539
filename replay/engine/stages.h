/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipeline stages: each has some of the layers, on a GPU of its own, and batches go from one to the
 * next.  As many batches as stages are in flight.
 *
 *   start(s, b) = max(end(s - 1, b) + send(b), end(s, b - 1))
 *   end(s, b)   = start(s, b) + time of the layers of stage s for b
 *
 * The time of an iteration is shared among stages by their layers, but the last has that of the
 * head.  A stage sends the hidden states and the residuals of a batch to the next; nothing else
 * runs there meanwhile.
 */
#ifndef AR_STAGES_H
#define AR_STAGES_H

#include "replay/cost/comm.h"

enum { STAGES_MOST = 64 };

struct stages {
	int n;			 /* 0 or 1: the layers are not split */
	int layers[STAGES_MOST]; /* of each */
	int n_layers;		 /* their sum */
	const struct comm *comm; /* borrowed; NULL: sending takes no time */
	int64_t row_bytes;	 /* that a rank sends for each row */
};

/* Split layers as vLLM does: layers / n for each, and one more for as many stages as remain, from
 * the last but one backwards.  n <= layers, and at most STAGES_MOST. */
void stages_split(struct stages *s, int layers, int n);
/* The same as a list says, such as "11,11,10".  AR_USAGE: it is malformed, or has other sums. */
enum ar_status stages_read(struct stages *s, const char *list, int layers, int n,
			   struct ar_err *err);

/* Let a batch run from at_ns on.  end: [n] when each stage has run the one before; gets when it has
 * run this.  cost_ns: of all layers and the head, head_ns.  Returns when the first stage begins. */
int64_t stages_run(const struct stages *s, const struct batch *b, int64_t at_ns, int64_t cost_ns,
		   int64_t head_ns, int64_t *end);

#endif
