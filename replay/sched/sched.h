/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What continuous-batching schedulers have in common: sequences, the running list, the
 * waiting queue, the block pool, and the plan of one iteration.  A policy decides; it
 * does so with the operations below, all O(1) and free of allocation.
 *
 * There is no prefill phase and no decode phase: a sequence is the tokens it knows (prompt and
 * outputs so far) and the positions computed, and every iteration lets the second catch
 * up with the first.  A decode is the case of one missing position.
 *
 *   arrive -> waiting -> running -> finished
 *                ^          |
 *                +- preempt +      blocks released, positions forgotten, outputs kept
 */
#ifndef AR_SCHED_H
#define AR_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "replay/sched/batch.h"
#include "replay/sched/block_pool.h"
#include "replay/sched/prefix_cache.h"
#include "traces/trace.h"

enum sched_order {
	SCHED_FCFS,			/* preempted sequences first, then by arrival */
	SCHED_PRIORITY,			/* by priority, then by arrival */
};

enum sched_chunks {
	SCHED_CHUNKS_FCFS,		/* each prompt in turn takes what is left of the budget */
	SCHED_CHUNKS_EQUAL,		/* block by block in turn */
};

struct policy;

/* A policy and its settings. */
struct sched_limits {
	const struct policy *policy;
	int64_t max_batched_tok;	/* tokens an iteration */
	int64_t max_seqs;		/* running sequences */
	int64_t long_prefill_tok;	/* tokens an iteration of one sequence, 0: no cap */
	int64_t max_len;		/* prompt and output of a request, 0: no limit */
	int64_t block_tok, num_blocks;	/* null block included; 0: not known yet */
	bool prefix_cache;		/* keep the blocks of equal prefixes */
	bool async;			/* plan an iteration while the last one still runs */
	uint64_t cache_root;		/* prefix_cache_root() of what computes them */
	int order;			/* enum sched_order, of the waiting queue */
	int chunks;			/* enum sched_chunks */
	double watermark;		/* share of the pool that admissions leave free */
};

#define SCHED_NONE UINT32_MAX

struct sched_seq {
	uint32_t prompt;
	uint32_t known;		/* prompt and outputs so far */
	uint32_t comp;		/* positions computed or planned, <= known */
	uint32_t goal;		/* the known at which it finishes */
	uint32_t admitted;	/* the known at its last admission */
	uint32_t high;		/* largest comp ever: work below it is repeated */
	uint32_t n_block;	/* owned */
	uint32_t row;		/* with a prefix cache: its block table, while n_block > 0 */
	uint32_t n_chunk;	/* entries so far */
	uint32_t n_decode;	/* ... of which decodes */
	uint32_t n_preempt;
	uint64_t recomputed;	/* positions computed again */
	uint64_t cached;	/* positions found in the prefix cache instead of computed */
	uint32_t next;		/* in the waiting queue, first come first served */
	uint32_t order;		/* of arrival */
};

struct sched {
	const struct trace *trace;
	struct sched_limits lim;
	struct sched_seq *seq;		/* by request number */
	uint32_t longest;		/* positions that a request can come to need */
	uint32_t *running;		/* in order of admission */
	size_t n_running;
	uint32_t wait_head, wait_tail;	/* SCHED_NONE when empty */
	uint32_t *wait_heap;		/* by priority: the queue; else NULL */
	size_t n_waiting;
	uint32_t n_arrived;
	struct block_pool pool;
	struct prefix_cache *cache;	/* or NULL */

	void *memory;			/* of the policy, memory_size bytes */

	/* The iteration. */
	struct batch batch;
	uint32_t *preempted, *finished;
	size_t n_preempted, n_finished;
	const char *stop;		/* why the policy planned no more, one word */
};

/* Can the request never run?  Then true, and why[] says so. */
bool sched_rejects(const struct sched_limits *l, const struct request *r, char *why, size_t n);
/* Tokens, prompt included, at which the request ends: its own length or the limit. */
uint32_t sched_goal(const struct sched_limits *l, const struct request *r);
/* A pool in which no sequence of the trace ever waits for a block. */
enum ar_status sched_ample_blocks(const struct trace *t, const struct sched_limits *l,
				  int64_t *num_blocks, struct ar_err *err);

enum ar_status sched_open(struct sched **out, const struct trace *t, const struct sched_limits *l,
			  struct ar_err *err);
void sched_close(struct sched *s);	/* NULL is fine */

/* For the engine.  arrive: request id joins the waiting queue.  begin: forget the last plan.
 * emit: the tokens of the plan exist, or will when it has run; known counts them from now on.
 * retire: it has run, and the sequences that it finished leave.  Between the two another plan can
 * be made, without them. */
void sched_arrive(struct sched *s, uint32_t id);
void sched_begin(struct sched *s);
void sched_emit(struct sched *s);
void sched_retire(struct sched *s);

/* For policies.
 *
 * match: the head of the queue starts behind what the prefix cache has of it; its last position is
 * always computed.
 * fits: are there blocks for all positions below n_tok, and keep blocks to spare?
 * reserve: blocks for n more positions; false, and nothing changed, when they are not there.
 * plan: run n positions of id.  unplan: take them back before id is preempted; returns n, 0 where
 * id has no place in the plan.
 * admit: the head of the queue becomes the last of running.
 * victim: who is to be preempted, the last of running or by priority the least important; an index
 * into running.
 * preempt: running[i] loses its blocks and returns to the queue as the policy's requeue says. */
void sched_match(struct sched *s);
bool sched_fits(const struct sched *s, uint32_t id, uint32_t n_tok, int64_t keep);
bool sched_reserve(struct sched *s, uint32_t id, uint32_t n);
void sched_plan(struct sched *s, uint32_t id, uint32_t n);
void sched_admit(struct sched *s);
void sched_preempt(struct sched *s, size_t i);
size_t sched_victim(const struct sched *s);
uint32_t sched_unplan(struct sched *s, uint32_t id);
/* Has the sequence positions to catch up with since it was admitted? */
static inline bool sched_in_prefill(const struct sched *s, uint32_t id)
{
	return s->seq[id].comp < s->seq[id].admitted;
}
/* n more tokens for entry i of the plan, a prompt. */
void sched_extend(struct sched *s, size_t i, uint32_t n);
/* The first n_decode entries of the batch go to its end. */
void sched_prefills_first(struct sched *s, size_t n_decode);
/* Blocks that the watermark keeps free. */
int64_t sched_watermark(const struct sched_limits *l);

/* Rules that policies have in common and name in their rows; see struct policy.
 *
 * slots_computed: a slot for each position that is computed.  The last output never is.
 * unfit_pool: a request that needs more blocks than the pool has.
 * requeue_first, requeue_last: at the head or at the end of the queue; by priority both are behind
 * their equals.
 * check_whole_blocks: prompts are cut at the end of a block, so the budget must hold a block. */
int64_t sched_slots_computed(const struct sched_limits *l, int64_t goal, int64_t longest);
bool sched_unfit_pool(const struct sched_limits *l, const struct request *r, char *why, size_t n);
void sched_requeue_first(struct sched *s, uint32_t id);
void sched_requeue_last(struct sched *s, uint32_t id);
enum ar_status sched_check_whole_blocks(const struct sched_limits *l, struct ar_err *err);

/* For a policy's own unfit: does the request need more than usable blocks?  Then true, and why[]
 * says so. */
bool sched_lacks_blocks(const struct sched_limits *l, const struct request *r, int64_t usable,
			char *why, size_t n);

#endif
