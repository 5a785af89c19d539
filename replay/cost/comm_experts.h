/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of data-parallel engines whose experts are spread over all their ranks.  In each layer
 * with experts all rows go to the ranks of their experts, and the results come back.  The ranks of
 * an engine have a part of its rows each, as vLLM has it.
 *
 *   agrs         an all-gather of all rows, in bf16, and of their router logits; a reduce-scatter
 *                of the results
 *   a2a          an all-to-all with a copy of a row for each rank that has one of its experts
 *   a2a-experts  ... for each of its experts
 *
 * What an all-to-all dispatches is in the format of the experts' product: fp8 with a scale for each
 * 128 channels, or bf16.  Results are in bf16.  It takes as long as if all pairs of ranks sent as
 * much as the pair that sends the most.
 */
#ifndef AR_COMM_EXPERTS_H
#define AR_COMM_EXPERTS_H

#include "model/model.h"
#include "replay/cost/comm_table.h"
#include "replay/cost/experts.h"

enum expert_way { EXPERT_AGRS, EXPERT_A2A, EXPERT_A2A_EXPERTS };
extern const char *const expert_way_names[]; /* by way; ends with NULL */

struct comm_experts {
	struct experts *experts; /* borrowed; NULL: no experts are spread over engines */
	enum expert_way way;
	int ranks, n_experts;	      /* ranks: of all engines */
	int64_t hidden, row_bytes;    /* row_bytes: of a row that an all-to-all dispatches */
	int64_t n_layer, n_run_layer; /* layers with experts: of the model, and executed ones */
};

/* Set what follows from a model with n executed layers; run NULL: all of them. */
void comm_experts_bind(struct comm_experts *x, const struct model *m, const int *run, int n);

/* The collectives of a way. */
enum comm_op comm_experts_op(enum expert_way way, bool combines);

/* Bytes of the two messages of a layer, as comm_table.h counts them.  rows: of all engines.
 * largest: rows of the rank with the most.  of: the most that a rank has. */
struct expert_bytes {
	double dispatch, combine;
};
struct expert_bytes comm_experts_bytes(const struct comm_experts *x, int64_t rows, int64_t largest,
				       const struct experts_most *of);

#endif
