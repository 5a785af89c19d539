/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV cache groups: block tables of layers that keep different things of a request.  As vLLM has
 * them: v1/core/single_type_kv_cache_manager.py, v1/core/kv_cache_coordinator.py.
 *
 * The groups share one pool.  A block of it holds the same bytes in each group, and every sequence
 * has a table for each group.  A group of full attention keeps all tokens.  A group of window
 * attention releases blocks that are wholly before the window of the next token, one of chunks
 * those before its chunk.  Their places in the table are then empty.
 *
 * A group of layers with a state keeps one block per sequence, its state.  With a prefix cache it
 * keeps states at the ends of blocks of tokens: the one that it computes, and the one before.  All
 * other places of its table are empty.
 */
#ifndef AR_KV_GROUPS_H
#define AR_KV_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "model/model.h"
#include "replay/sched/block_pool.h"
#include "traces/trace.h"

struct kv_group {
	enum mixer mixer; /* of all its layers */
	int type;	  /* groups of one type follow each other and are found together */
	int n_layers;
	int64_t window; /* MIX_WINDOW: tokens that a token sees, itself included; MIX_CHUNK: of a
			 * chunk */
	/* Tokens of a block.  Without attention: tokens between the states that a prefix cache
	 * keeps; 0: a block holds the only state. */
	int64_t block_tok;
};

/* Blocks that get a name, so that a prefix cache finds them.  Groups of full attention name each
 * full block. */
enum kv_names {
	KV_NAMES_ALL,	 /* each full block */
	KV_NAMES_ENDS,	 /* blocks that a hit can need which ends where blocks of all groups do */
	KV_NAMES_REPLAY, /* blocks that a hit of this prompt needs, or of a prefix shared before */
};

/* Rules in which the versions of vLLM differ. */
struct kv_rules {
	double spread;	    /* of model_groups_init() */
	bool pads;	    /* blocks of attention of fewer bytes are padded to the largest */
	bool pads_states;   /* ... and states */
	bool windows_whole; /* admission counts blocks that will have left a window by then */
	bool processed;	    /* blocks leave a window once all tokens before it are processed */
	enum kv_names names;
	bool states;   /* the prefix cache keeps states */
	bool saves;    /* ... also a state within the last chunk of a prompt */
	int delta_tok; /* with them, beside gated DeltaNet a block has a multiple of so many
			 * tokens; 0: of 16 */
};

struct kv_groups_config {
	const struct kv_group *group; /* [n_group] */
	size_t n_group;
	const struct kv_rules *rules;
	bool unnamed_first; /* free blocks without a name are taken before all others */
	int64_t max_tok;    /* most tokens of an iteration */
	bool async;	    /* an iteration is planned while the one before it runs */
	uint64_t root;	    /* prefix_cache_root() of the method */
	size_t n_row;	    /* tables, for so many sequences at a time */
	int64_t longest;    /* most tokens of a sequence */
};

struct kv_groups;

/* Where a sequence stands. */
struct kv_progress {
	uint32_t req;
	uint32_t comp;		/* tokens computed or planned; before it has tables: just matched */
	uint32_t in_flight;	/* those of them whose iteration still runs */
	uint32_t prompt, known; /* tokens of its prompt, and tokens that are there */
	uint32_t junction;	/* kv_groups_match() set it */
};

/* pool->n_free is kept up to date.  c->group, c->rules, pool and t outlive *out. */
enum ar_status kv_groups_open(struct kv_groups **out, struct block_pool *pool,
			      const struct trace *t, const struct kv_groups_config *c,
			      struct ar_err *err);
void kv_groups_close(struct kv_groups *g); /* NULL is fine */

/* The most blocks that a sequence of n_tok tokens owns at a time.  Of c only the groups, the rules,
 * max_tok and async count.  vLLM checks that this much memory is there: v1/kv_cache_interface.py.
 */
int64_t kv_groups_most(const struct kv_groups_config *c, int64_t n_tok);

/* A plan begins: no block was named in it. */
void kv_groups_begin(struct kv_groups *g);

/* Tokens of request req, at most max, that every group holds: a multiple of all block sizes.  The
 * blocks are stored in the tables that the next sequence gets from kv_groups_grow().  *junction:
 * tokens that groups of one type hold, if they are more; else 0. */
uint32_t kv_groups_match(struct kv_groups *g, uint32_t req, uint32_t max, uint32_t *junction);

/* Free blocks that a sequence needs for tokens [0, n_tok).  row: its tables; 0: it has none.
 * admission: as the engine counts them for a whole sequence: of a window, what it holds at most.
 * More than the pool has: a state that it was matched with is computed in this plan. */
int64_t kv_groups_need(const struct kv_groups *g, uint32_t row, const struct kv_progress *at,
		       uint32_t n_tok, bool admission);

/* Release blocks before the windows, then take the blocks of tokens [0, n_tok).  If *row is 0, the
 * sequence gets tables *row.  *owned is kept as the number of its blocks.  False: too few blocks
 * are free, and none is taken. */
bool kv_groups_grow(struct kv_groups *g, uint32_t *row, uint32_t *owned,
		    const struct kv_progress *at, uint32_t n_tok);
/* Blocks that n_tok tokens fill can be found from now on. */
void kv_groups_enter(struct kv_groups *g, uint32_t row, const struct kv_progress *at,
		     uint32_t n_tok);
/* List the names of the blocks that only request req asks for, so that it finds them when it comes
 * back.  Call it at a preemption: before, such names are not listed. */
void kv_groups_list(struct kv_groups *g, uint32_t row, uint32_t req);
/* Release all blocks, group by group and the last one of each first.  *row becomes 0. */
void kv_groups_release(struct kv_groups *g, uint32_t *row, uint32_t *owned);

/* Tokens between the states of a prefix cache; 0: no group keeps states. */
int64_t kv_groups_states(const struct kv_groups *g);
/* A chunk [start, end) can save the state at token `at` on its way: single_type_kv_cache_manager.py
 * and kv_cache_interface.py of vLLM 0.33.0. */
bool kv_groups_saves(const struct kv_groups *g, int64_t start, int64_t end, int64_t at);

/* Blocks that sequences own in group i now, and the most so far. */
int64_t kv_groups_used(const struct kv_groups *g, size_t i);
int64_t kv_groups_peak(const struct kv_groups *g, size_t i);

/* The table of group i, borrowed: *n blocks, 0 where one was released. */
const uint32_t *kv_groups_table(const struct kv_groups *g, uint32_t row, size_t i, uint32_t *n);
/* Blocks of the table, from the first one on, that have had their chance of a name. */
uint32_t kv_groups_named(const struct kv_groups *g, uint32_t row, size_t i);
/* The free block that is taken after block b; the first one if b is 0.  Returns 0 at the end. */
uint32_t kv_groups_next_free(const struct kv_groups *g, uint32_t b);

#endif
