/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine has the memory of a GPU for: weights, activations, CUDA graphs, and KV blocks from
 * what is left.
 *
 * vLLM measures its activations in a profile run (0.24.0, v1/worker/gpu_worker.py,
 * determine_available_memory): the larger of a forward pass over all tokens of an iteration, and of
 * sampling for all requests.  The forward pass holds two residual streams and the tensors of its
 * widest layer.  The other terms are fitted to logs of vLLM that people published:
 *
 *   sampling	38.7 bytes for each request and entry of the vocabulary: 1.19 to 1.26 GiB with 256
 *		requests of Llama 3.1, 1.40 to 1.45 GiB of Qwen3
 *   graphs	8 MiB each: estimates of 0.64 to 0.78 GiB for 86, 0.37 GiB for 54
 *   other	0.2 GiB of libraries: 0.02 to 0.32 GiB; 600 MB more between ranks
 *
 * The constants were chosen by six published pools of dense models on one GPU, and are at most
 * 1.6 % off for these.  They are not checked against others: of logs that were left out, vLLM 0.19
 * had 5 % more blocks, vLLM 0.8.5 on an L40S 18 % fewer, and an L4 a third more.
 */
#ifndef AR_ENGINE_MEMORY_H
#define AR_ENGINE_MEMORY_H

#include <stdint.h>

#include "model/model.h"
#include "replay/sched/policy.h"

struct engine_memory_in {
	const struct model *model; /* of a rank, with all layers */
	int64_t block_bytes;	   /* of a KV block, in all layers */
	int64_t max_batched_tok, max_seqs;
	int n_graph;	   /* numbers of rows that graphs are captured for, each in two modes */
	int64_t gpu_bytes; /* of the GPU's memory */
	double share;	   /* of it, as rule says */
	enum pool_rule rule;
};

/* Bytes. */
struct engine_memory {
	int64_t weights, activations, graphs, other;
	int64_t cache;	    /* left for KV blocks; below 0: so much is missing */
	int64_t num_blocks; /* that fit, null block included; 0: none beside it */
};

struct engine_memory engine_memory(const struct engine_memory_in *in);

#endif
