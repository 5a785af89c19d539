/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A benchmark case: a batch of equal requests over random or real block lists, its exact amount of
 * work, and reference rows in double precision.
 */
#ifndef AR_BENCH_CASE_H
#define AR_BENCH_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "kernels/exec/executor.h"
#include "src/bench/bench_lists.h"

enum bench_what {
	BENCH_DENSE,	    /* prefill, every block */
	BENCH_PAST,	    /* the same, only blocks before the chunk: every row sees every
				 * key */
	BENCH_TABLE,	    /* prefill, a block table per (request, KV head) */
	BENCH_BLOCKSPARSE,  /* prefill, a block list per (query block, head) */
	BENCH_COPY,	    /* the tables of BENCH_TABLE, copied first */
	BENCH_GATHER,	    /* prefill, a random token list per (request, KV head) */
	BENCH_DECODE,	    /* one row a request, every block */
	BENCH_DECODE_TABLE, /* the same, under tables */
	BENCH_WINDOW,	    /* prefill, the last keys of each row */
	BENCH_DECODE_WINDOW,
	BENCH_MIXED,  /* request 0 has a chunk after as many tokens, the others decode; every
		      * block */
	BENCH_SELECT, /* the selection of compact-fp without its attention */
	BENCH_N
};
extern const char *const bench_names[]; /* [BENCH_N], and NULL */
bool bench_decodes(enum bench_what what);
bool bench_takes_lists(
	enum bench_what what); /* its random lists have real ones as an alternative */

/* The family of kernels that a case measures, as in kernels/support.h. */
const char *bench_kernel(enum bench_what what);

struct bench_shape {
	int64_t q_heads, kv_heads, head_dim;
	int64_t page_tok; /* tokens of a block */
	int64_t batch;
	int64_t chunk;	 /* query rows of a request; decodes have 1 and ignore it */
	int64_t context; /* keys that the last row sees, the chunk included; BENCH_PAST: keys
				 * before the chunk, whole blocks */
	int64_t left;	 /* tokens of the prompt after the chunk */
	const struct bench_lists *lists; /* of tables and block-sparse cases, the same for each
					  * request; NULL: random ones */
};

struct bench_case {
	enum bench_what what;
	const struct executor *executor; /* NULL: decodes, select */
	struct attn_batch b;		 /* owns its arrays; has no tiles */
	struct executor_lists lists;	 /* blocks.block NULL: every block */
	int n_list;
	int64_t dense_pairs; /* (head, row, key) that causal attention has */
	int64_t pairs;	     /* of these, the pairs that the lists hold; BENCH_SELECT:
					 * 0 */
	int64_t moved;	     /* keys that are copied first, over all KV heads */
};

/* AR_USAGE: heads or lengths contradict each other or the lists, or exceed the kernels' 32-bit
 * indices or the 16-bit blocks of lists. */
enum ar_status bench_shape_check(enum bench_what what, const struct bench_shape *s,
				 struct ar_err *err);

/* True with probability density: the list keeps the block.  The arguments alone decide, so that
 * other programs can draw the same lists. */
bool bench_kept(uint64_t seed, int64_t list, int block, double density);

/* Make a case.  s must have passed bench_shape_check().  A table holds a share density of the
 * blocks before the chunk, and all blocks of the chunk; of BENCH_PAST none of the latter.  A
 * block-sparse list holds that share of the blocks before its query block, and the query block's
 * own.  With s->lists they hold what these do in place of a share.  A window holds a share density
 * of the context's keys.  Pages are shuffled. */
enum ar_status bench_case_make(struct bench_case *c, enum bench_what what,
			       const struct bench_shape *s, double density, uint64_t seed,
			       struct ar_err *err);
void bench_case_release(struct bench_case *c);

/* Write the numbers below n to x, in random order. */
void bench_shuffle(int32_t *x, int n, struct rng *rng);

/* BENCH_GATHER: move the gathered tokens of k, the keys or values of a request and KV head, to its
 * front.  k: [token][head_dim] in order.  Other cases: do nothing. */
void bench_pack(const struct bench_case *c, int req, int kv_head, bf16_t *k);

/* Index of a row's own key after bench_pack(). */
int bench_position(const struct bench_case *c, int req, int row, int head);

/* Blocks that a row and head looks at.  Returns their number; *block: their list, or NULL
 * for the first blocks. */
int bench_list(const struct bench_case *c, int req, int row, int head, const uint16_t **block);

/* Reference attention of one row at position pos over the n blocks of bench_list(), from key
 * `first` on.  k, v: of its request and KV head in order, [token][head_dim].  out: [head_dim]. */
void bench_row_ref(const struct attn_shape *s, const bf16_t *q, const bf16_t *k, const bf16_t *v,
		   const uint16_t *block, int n, int first, int pos, double *out);

/* The first key that a row of the batch sees. */
static inline int bench_first(const struct bench_case *c, int row)
{
	return c->b.rows.first ? c->b.rows.first[row] : 0;
}

#endif
