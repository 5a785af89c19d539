/* SPDX-License-Identifier: Apache-2.0 */
/* The purpose of a piece of GPU work.  The numbers are stored: never reuse one. */
#ifndef AR_PHASE_H
#define AR_PHASE_H

#include <stdint.h>

/* X(NAME, id, in the attention core, text) */
#define PHASE_MAP(X) \
	X(LINEAR, 1, 0, "projections and MLP products") \
	X(NORM, 2, 0, "norms, residuals, activations") \
	X(ROPE, 3, 0, "rotary embedding") \
	X(CACHE, 4, 0, "append to the KV cache") \
	X(SELECT, 5, 1, "scores and masks of the selector") \
	X(METADATA, 6, 1, "unions and block lists") \
	X(COPY, 7, 1, "gathering selected blocks") \
	X(ATTEND, 8, 1, "attention of prefill rows") \
	X(DECODE, 9, 1, "attention of decode rows") \
	X(HEAD, 10, 0, "final norm, language-model head, sampling") \
	X(MIX, 11, 0, "mixers with a state (gated DeltaNet, Mamba-2)") \
	X(DROP, 12, 1, "scores and compaction of droppers") \
	X(LATENT, 13, 1, "keys expanded from latents, rows absorbed into them") \
	X(WALK, 14, 1, "attention of mixed batches that waits for the longest decode") \
	X(SHARE, 15, 0, "tokens copied from pages that requests share") \
	X(COMM, 16, 0, "collectives between ranks") \
	X(COMM_SELECT, 17, 1, "collectives of droppers and selectors") \
	X(META, 18, 1, "state that decode selectors keep beside the cache") \
	X(EVICT, 19, 1, "scores of evictors, and compaction of what stays")

enum phase {
	PHASE_NONE,
#define X(name, id, core, text) PHASE_##name = id,
	PHASE_MAP(X)
#undef X
		PHASE_COUNT
};

/* Code that enqueues work calls this when a phase begins.  layer: the model's layer, or
 * PHASE_NO_LAYER outside the layers. */
#define PHASE_NO_LAYER 0xfff
typedef void phase_fn(void *ctx, int layer, enum phase phase);

#endif
