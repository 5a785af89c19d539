/* SPDX-License-Identifier: Apache-2.0 */
/* The observer that writes a replay to the database. */
#ifndef AR_RECORD_H
#define AR_RECORD_H

#include "replay/engine/observer.h"

/* Sums over the traced kernels of a layer, by phase. */
struct layer_sum {
	int64_t ns[PHASE_COUNT], kernels[PHASE_COUNT];
};

struct recorder {
	struct store *store; /* after store_run_begin() */
	bool iterations;     /* store iterations, with what the others below say */
	bool entries;	     /* store the entries of each iteration */
	bool phases;	     /* the backend measures phases: store their times */
	int64_t kernels;     /* store the kernels of every Nth iteration, 0: none */

	/* Internal; the caller sets them to 0. */
	struct store_entry *row;
	size_t cap;
	struct layer_sum *sum; /* [n_layers] by number of the layer */
	size_t cap_sum;
	int n_layers;
	struct latent_chunks latent; /* of all iterations */
};

/* r outlives the observer. */
struct observer recorder_observer(struct recorder *r);
void recorder_release(struct recorder *r);

/* The row of a batch entry. */
struct store_entry record_entry(const struct batch_entry *e);

#endif
