/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives between the ranks of a model: their messages in an iteration, and their times.
 *
 * The ranks have slices of each layer.  So they add their partial sums after the embedding, after
 * each mixer and after each MLP: an all-reduce of a bf16 [rows][hidden].  They gather the logits of
 * the rows that emit a token: a bf16 [rows][vocab].  Engines do this in line: nothing else runs
 * meanwhile.  Other ranks are never late here.
 *
 * Behind a layer that drops rows, sums are of the rows that stay.  To choose them the ranks gather
 * each other's scores: an all-gather of a float for each.
 *
 * Data-parallel engines whose experts are spread over them have no such sums after experts; their
 * messages are in comm_experts.h.  The ranks of an engine gather the results of their rows: an
 * all-gather of a bf16 [rows][hidden].
 *
 * Times are from a table of measured ones, see comm_table.h, or of a ring, see comm_ring.h.
 */
#ifndef AR_COMM_H
#define AR_COMM_H

#include "model/model.h"
#include "replay/cost/comm_experts.h"
#include "replay/cost/comm_ring.h"
#include "replay/cost/comm_table.h"
#include "replay/engine/backend.h"
#include "replay/sched/batch.h"

/* The collectives of a run. */
struct comm {
	int ranks;			/* of an engine */
	const struct comm_table *table; /* borrowed; NULL: a ring over a link of gbps GB/s */
	struct comm_ring ring;
	double gbps;
	/* All-reduces of an iteration: in the whole model; in the executed layers and the
	 * embedding. */
	int64_t n_reduce, n_run_reduce;
	int64_t hidden, vocab; /* of all ranks */
	/* The model and its executed layers, as of comm_bind(); model NULL: no rows are dropped. */
	const struct model *model;
	const int *run;
	int n_run;
	struct comm_experts experts;
};

/* Ranks that have collectives: those that share experts, or of an engine.  1: there are none. */
int comm_ranks(const struct comm *c);

/* Set what follows from the rank m of a model, with n executed layers; run NULL: all of them.  Both
 * are borrowed. */
void comm_bind(struct comm *c, const struct model *m, const int *run, int n);

/* Collectives of all layers in an iteration that emits a token. */
int64_t comm_launches(const struct comm *c);

/* Time of a collective, 0 to INT64_MAX ns.  bytes: as comm_table.h counts them.  graph: it is part
 * of a CUDA graph. */
int64_t comm_ns(const struct comm *c, enum comm_op op, int64_t bytes, bool graph);

/* Add the time of the collectives of batch b to *cost.  cost_ns gets that of all layers, PHASE_COMM
 * that of the executed ones, PHASE_COMM_SELECT that of droppers.  sent: with a table, gets the
 * messages of all layers by kernel. */
void comm_add(const struct comm *c, const struct batch *b, struct iter_cost *cost,
	      int64_t sent[COMM_KERNELS]);

#endif
