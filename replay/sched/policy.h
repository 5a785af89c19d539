/* SPDX-License-Identifier: Apache-2.0 */
/* Policies: the scheduling rules of an engine, pinned to its version.  One file per engine, one row
 * per policy in policies.c. */
#ifndef AR_POLICY_H
#define AR_POLICY_H

#include "replay/sched/sched.h"

/* Settings that only some policies have.  They are also bits of an option's scope, above the bits
 * of enum run_scope. */
enum {
	POLICY_LONG_PREFILL = 1 << 16,
	POLICY_ORDER = 1 << 17,
	POLICY_PREFIX_CACHE = 1 << 18,
	POLICY_WATERMARK = 1 << 19,
	POLICY_CHUNKS = 1 << 20,
	POLICY_ASYNC = 1 << 21,
	POLICY_FAILS = 1 << 22,
	POLICY_QUEUE = 1 << 23,
	POLICY_WHOLE_PROMPTS = 1 << 24,
	POLICY_KV_APART = 1 << 25, /* a request may come with the KV of its prompt */
	POLICY_PREFILL_TOKENS = 1 << 26,
	POLICY_IGNORE_EOS = 1 << 27,
	POLICY_CHUNK_UNIT = 1 << 28,

	POLICY_SETTINGS = 0x1fff << 16, /* all settings */
};

/* The tokens whose blocks a sequence keeps when an evictor has taken some of them. */
enum policy_keeps {
	KEEPS_COMPUTED, /* those that are computed, and stored */
	KEEPS_ADMITTED, /* ... and those to come that were known at its admission */
	KEEPS_ALL,	/* ... and all to come: it is never preempted */
	KEEPS_BLOCKS,	/* all blocks: they are not reserved by what is stored */
};

/* What a share of the GPU's memory is of, and what is in it. */
enum pool_rule {
	POOL_PROFILED,	/* of all of it: weights, activations, CUDA graphs and KV blocks */
	POOL_GRAPHLESS, /* of all of it: weights, activations and KV blocks */
	POOL_STATIC,	/* of all of it: weights and KV blocks */
	POOL_OF_FREE,	/* of what weights, activations and graphs leave: KV blocks */
};

/* What an engine takes where its user sets nothing, on GPUs with at least from_bytes of memory. */
struct engine_defaults {
	int64_t from_bytes;	  /* 0: on all others, and where the memory is not known */
	const char *but;	  /* ... but GPUs with this word in their name; NULL: no others */
	int64_t tokens, requests; /* of an iteration */
	bool tokens_by_length;	  /* tokens: no more than all requests of the model's length have */
	/* Tokens of a block.  With an indexer; with 8-bit latents without one; and where layers of
	 * full attention have an 8-bit KV cache, but some of them.  0: block_tok. */
	int64_t block_tok, index_block_tok, latent8_block_tok, mixed_block_tok;
	bool async, prefix_cache;
	bool linear_uncached; /* no prefix cache for models with linear layers */
	double memory_share;  /* of the GPU's memory; 0: memory_share() of the policy says it */
	enum pool_rule pool;  /* what is in it */
	/* Tokens of the largest CUDA graph, with 4 ranks and more (0: the same), and for each
	 * request at most. */
	int64_t captured, captured_tp4, captured_per_req;
};

struct policy {
	const char *name, *title, *origin;
	const char *also; /* another name: the newest version of its engine has it; or NULL */
	unsigned can;	  /* the settings above that it has */
	double watermark; /* its default */
	/* Its engine's defaults: the first row that fits a GPU holds; the last fits all. */
	const struct engine_defaults *defaults;
	/* Where rows have no share: what the engine takes.  bytes: of the GPU's memory; captured:
	 * tokens of the largest graph. */
	double (*memory_share)(int64_t bytes, int64_t tokens, int64_t captured, int64_t tp);
	const char *host; /* preset of the host model (replay/host), or NULL */
	/* Free KV blocks that cannot be found are taken before all others: vLLM 0.24.0,
	 * block_pool.py:634. */
	bool unnamed_first;
	const struct kv_rules *groups; /* for layers that differ; NULL: it has none */
	enum policy_keeps keeps;
	/* Its prefix cache is a radix tree of tokens: radix_cache.h. */
	bool radix_tree;
	unsigned rules; /* in which its versions differ: bits of its own file */
	/* A preempted request loses the output of the iteration that still runs: SGLang 0.5.21,
	 * managers/schedule_batch.py, reset_for_retract(). */
	bool drops_in_flight;

	/* Its rules: functions of its own, or shared ones of sched.h.
	 *
	 * check: AR_USAGE when it cannot work within the limits.  NULL: it always can.
	 * slots: the most positions that a request ever has blocks for.  goal: tokens at which the
	 * request ends.  longest: largest goal of the trace.
	 * most_outputs: outputs, at least 0, to which a request of prompt_tok tokens is cut, where
	 * the pool is known; one is always given.  NULL: max_len is the only limit.
	 * unfit: true if the request can never run; why[n] gets the reason.
	 * requeue: put a preempted sequence into the waiting queue. */
	enum ar_status (*check)(const struct sched_limits *l, struct ar_err *err);
	int64_t (*slots)(const struct sched_limits *l, int64_t goal, int64_t longest);
	int64_t (*most_outputs)(const struct sched_limits *l, uint32_t prompt_tok);
	bool (*unfit)(const struct sched_limits *l, const struct request *r, char *why, size_t n);
	void (*requeue)(struct sched *s, uint32_t id);

	/* With limits.async, a sequence decodes once more before the policy knows that it has
	 * finished. */
	bool overruns;

	/* State kept between iterations: s->memory, memory_size bytes, and memory_per_seq more for
	 * each sequence that can run, zero at first.  begin, if not NULL, initialises it. */
	size_t memory_size, memory_per_seq;
	void (*begin)(struct sched *s);

	/* Plan one iteration (sched_begin was called) and set s->stop.  An empty plan is allowed
	 * only if the next one can differ. */
	void (*compose)(struct sched *s);
};

extern const struct policy *const policies[]; /* ends with NULL */
const struct policy *policy_find(const char *name);
/* The row of the policy's defaults for a GPU.  bytes: of its memory, 0: not known. */
const struct engine_defaults *policy_defaults(const struct policy *p, const char *gpu,
					      int64_t bytes);

#endif
