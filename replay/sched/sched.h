/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of continuous-batching schedulers: sequences, the running list, the waiting
 * queue, the block pool, and the plan of one iteration, a batch.  Policies decide, by means of the
 * operations below, which allocate no memory.
 *
 * There is no prefill phase and no decode phase.  A sequence has known tokens (prompt and outputs
 * so far) and computed positions.  Each iteration computes some of the missing positions.  A decode
 * computes the only missing one.
 *
 *   arrive -> waiting -> running -> finished
 *                ^          |
 *                +- preempt +      blocks released, positions forgotten, outputs kept
 *
 * An evictor takes stored tokens from a sequence that has computed its prompt.  The length of the
 * sequence stays, and so do its positions.  Blocks are of stored tokens.  They come back when the
 * iteration retires.
 *
 * A block with a name holds the tokens that its name says.  So with a prefix cache the first event
 * of a sequence moves what stays to blocks without names.  They are set aside when the event is
 * planned; if there is no room for them, the event waits for the next entry of its sequence.
 */
#ifndef AR_SCHED_H
#define AR_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/evict/evictor.h"
#include "replay/sched/batch.h"
#include "replay/sched/block_pool.h"
#include "replay/sched/blocks.h"
#include "replay/sched/kv_groups.h"
#include "replay/sched/prefix_cache.h"
#include "replay/sched/radix_cache.h"
#include "traces/trace.h"

enum sched_order {
	SCHED_FCFS,	/* preempted sequences first, then by arrival */
	SCHED_PRIORITY, /* by priority, then by arrival */
};

enum sched_chunks {
	SCHED_CHUNKS_FCFS,  /* each prompt in turn takes the rest of the budget */
	SCHED_CHUNKS_EQUAL, /* in rounds, each prompt takes one unit per round */
	SCHED_CHUNKS_NONE,  /* no prompt is cut */
};

/* What an evictor does with a prefix cache. */
enum sched_evict_cache {
	SCHED_EVICT_REFUSE, /* there is no such run */
	SCHED_EVICT_KEEP,   /* blocks keep their names, and what stays is copied to others */
	SCHED_EVICT_DROP,   /* blocks of one owner lose their names, and what stays is in them */
};

struct policy;
struct sched_keys;

/* A policy and its settings. */
struct sched_limits {
	const struct policy *policy;
	int64_t max_batched_tok;       /* tokens per iteration */
	int64_t max_seqs;	       /* running sequences */
	int64_t long_prefill_tok;      /* tokens of one sequence per iteration, 0: no cap */
	int64_t max_len;	       /* prompt and output of a request, 0: no limit */
	int64_t block_tok, num_blocks; /* null block included; 0: not known yet */
	bool prefix_cache;	       /* keep the blocks of equal prefixes */
	bool async;		       /* plan an iteration while the last one still runs */
	uint64_t cache_root;	       /* prefix_cache_root() of the method */
	int order;		       /* enum sched_order, of the waiting queue */
	int chunks;		       /* enum sched_chunks */
	int64_t chunk_unit;	       /* tokens; a cut prompt runs a multiple; 0: block_tok */
	int64_t max_prefill_tok;       /* prefill tokens that end admission, 0: no limit */
	bool ignore_eos;	       /* admit as if each request has all its outputs */
	bool survives;		       /* go on where the engine fails, see struct sched */
	double watermark;	       /* share of the pool that admissions leave free */

	const struct kv_group *group; /* [n_group]; NULL: one of full attention */
	size_t n_group;
	const struct evict *evict; /* of the method; NULL: keys stay until a request leaves */
	int evict_cache;	   /* enum sched_evict_cache */
	struct blocks *blocks;	   /* tables of the requests on the device; NULL: there are none */
	bool share_pages;	   /* with a prefix cache, tables list common pages */
	/* [requests] of another scheduler of the trace, which outlives this one: each of them
	 * runs requests that the other does not.  NULL: it has its own. */
	struct sched_seq *seq;
	/* Requests end with their first output.  One with more outputs keeps its blocks until
	 * sched_leave(). */
	bool first_only;
};

#define SCHED_NONE UINT32_MAX

/* More blocks of a sequence, see struct sched. */
struct sched_owned {
	uint32_t n_block, row, n_named;
};

/* One for each request of the trace, so it is small.  What sched_plan() writes lies apart: the
 * compiler gathers neighbours in a vector, which takes longer than to store them. */
struct sched_seq {
	uint32_t comp;	  /* positions computed or planned, <= known */
	uint32_t known;	  /* prompt and outputs so far */
	uint32_t gone;	  /* computed tokens that entries so far let leave */
	uint32_t n_chunk; /* batch entries so far */
	uint32_t prompt;
	uint32_t planned;   /* the last plan with an entry of it, 0: none */
	uint32_t goal;	    /* finished when known reaches it */
	uint32_t n_planned; /* the tokens of that entry */
	uint32_t high;	    /* largest comp so far: positions below it are recomputed */
	uint32_t n_evict;   /* the stored tokens that leave after that entry */
	uint32_t emitted;   /* the plan that gave its last output so far, 0: none */
	uint32_t n_decode;  /* decodes among its entries */
	uint32_t admitted;  /* value of known at its last admission */
	uint32_t n_block;   /* blocks owned, in all groups */
	uint32_t row;	    /* where blocks have numbers: its tables; or its radix node */
	uint32_t n_named;   /* with a prefix cache: how many of its blocks can be found */
	uint32_t stays;	    /* tokens of the prompt that an evictor leaves, or all */
	uint32_t junction;  /* tokens that groups of one type held when all held fewer, or 0 */
	uint32_t cached;    /* positions found in the prefix cache instead of computed */
	uint32_t n_preempt : 31;
	uint32_t moved : 1; /* an event has put what it stores into blocks without names */
	union {
		uint32_t next;	/* in the waiting queue */
		uint32_t order; /* rank by arrival, if the queue is a heap */
	};
	uint64_t recomputed; /* positions computed again */
	int64_t arrival_ns;
};

struct sched {
	const struct trace *trace;
	struct sched_limits lim;
	struct sched_seq *seq; /* by request number */
	/* By request number, of an event with a prefix cache: where it puts what stays; from the
	 * next plan on, where that was, until the plan of the event retires.  No blocks: there is
	 * none.  NULL without an evictor or a prefix cache. */
	struct sched_owned *other;
	int64_t most_stored; /* tokens of a sequence past its prompt; INT64_MAX: no bound */
	/* Tokens that stay of a sequence when it has decoded, and their blocks.  UINT32_MAX: all;
	 * or events wait for blocks, so sched_evict() plans them. */
	uint32_t keeps, keeps_block;
	uint32_t longest;  /* most positions that a request can need */
	uint32_t *running; /* in order of admission, unless the policy has another */
	size_t n_running;
	uint32_t wait_head, wait_tail; /* SCHED_NONE when empty */
	uint32_t *wait_heap;	       /* the waiting queue by priority; NULL: FCFS */
	size_t n_waiting;
	uint32_t n_arrived;
	struct block_pool pool;
	bool numbered;		    /* blocks have numbers: cache or groups is not NULL */
	struct prefix_cache *cache; /* of one group; or NULL */
	struct kv_groups *groups;   /* of lim.group, with their prefix cache; or NULL */
	struct radix_cache *radix;  /* the prefix cache of a policy with a radix tree; or NULL */
	struct sched_keys *keys;    /* what lim.blocks know of the prefix cache; or NULL */

	void *memory; /* state of the policy, policy->memory_size bytes */

	bool idled; /* set by the engine: it had nothing to run since the last plan */

	/* The iteration. */
	uint32_t n_plan; /* number of the plan, from 1 */
	struct batch batch;
	uint32_t *preempted, *finished;
	size_t n_preempted, n_finished;
	uint32_t *ended; /* with a radix tree: requests whose prompts or outputs end, in order */
	size_t n_ended;
	int64_t n_evict_waits; /* entries whose event found no room, so far */
	/* Requests from which tokens leave: after the plan; and those whose plan retires next. */
	uint32_t *evicting, *evicted;
	size_t n_evicting, n_evicted;
	/* Decodes of the plan, and of the one that retires next, leave a block that what stays does
	 * not need. */
	bool sparing, spared;
	const char *stop;  /* why the policy planned no more, one word */
	const char *fails; /* how the engine fails here, for lack of memory; or
			    * NULL.  Set by the policy */
};

/* True: the request can never run.  why[n] gets the reason. */
bool sched_rejects(const struct sched_limits *l, const struct request *r, char *why, size_t n);
/* Tokens, prompt included, at which the request ends: its own length or the limit. */
uint32_t sched_goal(const struct sched_limits *l, const struct request *r);
/* Positions that the request computes at most. */
int64_t sched_positions(const struct sched_limits *l, const struct request *r);
/* The most blocks that a sequence of n_tok tokens owns at a time. */
int64_t sched_length_blocks(const struct sched_limits *l, int64_t n_tok);
/* Compute the size of a pool in which no sequence of the trace ever waits for a block. */
enum ar_status sched_ample_blocks(const struct trace *t, const struct sched_limits *l,
				  int64_t *num_blocks, struct ar_err *err);

enum ar_status sched_open(struct sched **out, const struct trace *t, const struct sched_limits *l,
			  struct ar_err *err);
void sched_close(struct sched *s); /* NULL is fine */

/* For the engine.
 *
 * arrive: request id joins the waiting queue.  at_ns: when it arrived.
 * begin: drop the last plan.
 * evict: find what leaves after each entry of the plan, which the policy has made.
 * emit: count the output tokens of the plan in known, and list the sequences that it finishes.
 * retire: the plan has run; the sequences that it finished leave and release their blocks.  Those
 * from which an evictor took tokens give blocks back.
 * With limits.async, the next plan is made between emit and retire. */
void sched_arrive(struct sched *s, uint32_t id, int64_t at_ns);
void sched_begin(struct sched *s);
void sched_evict(struct sched *s);
void sched_emit(struct sched *s);
void sched_retire(struct sched *s);

/* For an engine that gets KV from another, which has first_only.  Neither has groups, a radix tree
 * or an evictor, and the queues are FCFS.
 *
 * goes_on: id ends here with its first output, and has more.
 * leave: its blocks here are free.
 * place: take blocks for the prompt of id and one position more.  The request has computed its
 * prompt and has its first output; from: what it was in the other scheduler.  It is to arrive here
 * when its KV has, and runs before those that have no place.  False: there is no room, or one that
 * was preempted waits for it; nothing changed. */
bool sched_goes_on(const struct sched *s, uint32_t id);
void sched_leave(struct sched *s, uint32_t id);
bool sched_place(struct sched *s, uint32_t id, const struct sched_seq *from);

/* For policies.
 *
 * match: look up the head of the queue in the prefix cache, unless it was placed, and set its comp
 * to the positions found.  Its last position is always computed.
 * fits: true if there are free blocks for positions [0, n_tok) of id, and keep blocks more.  whole:
 * n_tok is the whole sequence, of which a window holds a part at a time.
 * reserve: take blocks for n more positions.  False: too few are free, and nothing changed.
 * plan: add n positions of id to the batch.
 * unplan: take id out of the batch before it is preempted.  Returns its n; 0: it had no entry.
 * enter: with a radix tree, the blocks of the first n_tok positions of id can be found from now on.
 * make_room: with a radix tree, empty nodes until n_block blocks are in none.
 * admit: move the head of the queue to the end of running.
 * victim: index into running of the sequence to preempt: the last one or, by priority, the least
 * important one; of equals that arrived at the same time, the first one.
 * preempt: running[i] loses its blocks and returns to the queue by the policy's requeue(). */
void sched_match(struct sched *s);
bool sched_fits(const struct sched *s, uint32_t id, uint32_t n_tok, int64_t keep, bool whole);
void sched_plan(struct sched *s, uint32_t id, uint32_t n);
void sched_enter(struct sched *s, uint32_t id, uint32_t n_tok);
void sched_make_room(struct sched *s, int64_t n_block);
void sched_admit(struct sched *s);
void sched_preempt(struct sched *s, size_t i);
size_t sched_victim(const struct sched *s);
uint32_t sched_unplan(struct sched *s, uint32_t id);
/* True: not all positions that were known when the sequence was admitted are computed. */
static inline bool sched_in_prefill(const struct sched *s, uint32_t id)
{
	return s->seq[id].comp < s->seq[id].admitted;
}
/* Outputs of id that the iteration still running will give: they count as known.  While planning
 * only. */
static inline uint32_t sched_in_flight(const struct sched *s, uint32_t id)
{
	return s->lim.async && s->seq[id].emitted && s->seq[id].emitted + 1 == s->n_plan;
}
/* Tokens of id that the iteration still running computes.  While planning only. */
static inline uint32_t sched_tok_in_flight(const struct sched *s, uint32_t id)
{
	const struct sched_seq *q = &s->seq[id];

	return s->lim.async && q->planned && q->planned + 1 == s->n_plan ? q->n_planned : 0;
}
/* Computed tokens of a sequence that are stored, or will be when all that is planned has run. */
static inline uint32_t sched_stored(const struct sched_seq *q)
{
	return q->comp - q->gone;
}
bool sched_take_blocks(struct sched *s, uint32_t id, uint32_t n);
static inline bool sched_reserve(struct sched *s, uint32_t id, uint32_t n)
{
	const struct sched_seq *q = &s->seq[id];

	if (!s->numbered && (int64_t)sched_stored(q) + n <= q->n_block * s->pool.block_tok)
		return true; /* as for most decodes */
	return sched_take_blocks(s, id, n);
}
/* The most tokens that id stores from its event on, until it has n_tok tokens. */
static inline int64_t sched_stored_later(const struct sched *s, uint32_t id, int64_t n_tok)
{
	int64_t n = n_tok - s->seq[id].prompt + s->seq[id].stays;

	return n < s->most_stored ? n : s->most_stored;
}
/* The most tokens that id, which waits, stores at a time until it ends. */
static inline int64_t sched_most_stored(const struct sched *s, uint32_t id)
{
	const struct sched_seq *q = &s->seq[id];
	int64_t later = sched_stored_later(s, id, q->goal);

	if (s->lim.evict && s->lim.prefix_cache) /* its event may wait */
		return q->goal;
	return later > q->known ? later : q->known;
}
/* Tokens by which n more outputs raise the most that id stores: n, without an evictor. */
static inline int64_t sched_growth(const struct sched *s, uint32_t id, int64_t n)
{
	const struct sched_seq *q = &s->seq[id];
	int64_t now, later;

	if (!s->lim.evict)
		return n;
	now = q->gone ? sched_stored(q) : q->known;
	later = sched_stored_later(s, id, q->known + n);
	return later > now ? later - now : 0;
}
/* Tokens that have left id, or that will when it has computed its prompt. */
static inline int64_t sched_leaving(const struct sched *s, uint32_t id)
{
	const struct sched_seq *q = &s->seq[id];

	return q->gone ? q->gone : q->prompt - q->stays;
}
/* Add n tokens to entry i of the batch, a prompt. */
void sched_extend(struct sched *s, size_t i, uint32_t n);
/* Move the first n_decode entries of the batch to its end. */
void sched_prefills_first(struct sched *s, size_t n_decode);
/* Tokens that a cut prompt runs a multiple of. */
static inline int64_t sched_chunk_unit(const struct sched_limits *l)
{
	return l->chunk_unit ? l->chunk_unit : l->block_tok;
}
/* Blocks that the watermark keeps free. */
int64_t sched_watermark(const struct sched_limits *l);

/* Rules that several policies share; see struct policy.
 *
 * slots_computed: one for each computed position: goal - 1, as the last output never is computed.
 * unfit_pool: a request that needs more blocks than the pool has.
 * requeue_first, requeue_last: at the head or at the end of the queue.  By priority, both are
 * where priority and arrival put them: vLLM 0.16.0, request.py:282.
 * check_whole_blocks: prompts are cut to whole units, so the budget must hold one. */
int64_t sched_slots_computed(const struct sched_limits *l, int64_t goal, int64_t longest);
bool sched_unfit_pool(const struct sched_limits *l, const struct request *r, char *why, size_t n);
void sched_requeue_first(struct sched *s, uint32_t id);
void sched_requeue_last(struct sched *s, uint32_t id);
enum ar_status sched_check_whole_blocks(const struct sched_limits *l, struct ar_err *err);

/* For a policy's own unfit().  True: the request needs more than usable blocks.  why[n] gets the
 * reason.  lacks takes the blocks that it needs. */
bool sched_lacks(int64_t need, int64_t usable, char *why, size_t n);
bool sched_lacks_blocks(const struct sched_limits *l, const struct request *r, int64_t usable,
			char *why, size_t n);

#endif
