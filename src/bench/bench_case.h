/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a benchmark runs: batches of requests that are alike over random block lists, how much
 * work that is, exactly, and single rows in double precision to hold results against.
 */
#ifndef AR_BENCH_CASE_H
#define AR_BENCH_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/exec/executor.h"

enum bench_what {
	BENCH_DENSE,		/* prefill, every block */
	BENCH_PAST,		/* the same without the chunk's own, every row sees every key */
	BENCH_TABLE,		/* prefill, a random block table per (request, KV head) */
	BENCH_BLOCKSPARSE,	/* prefill, a random block list per (query block, head) */
	BENCH_COPY,		/* the tables of BENCH_TABLE, copied first */
	BENCH_GATHER,		/* prefill, a random token list per (request, KV head) */
	BENCH_DECODE,		/* one row a request, every block */
	BENCH_DECODE_TABLE,	/* the same under tables */
	BENCH_SELECT,		/* the selection of compact-fp without its attention */
	BENCH_N
};
extern const char *const bench_names[];		/* [BENCH_N], and NULL */
bool bench_decodes(enum bench_what what);

/* The family of kernels that a case measures, as in kernels/support.h. */
const char *bench_kernel(enum bench_what what);

struct bench_shape {
	int64_t q_heads, kv_heads, head_dim;
	int64_t page_tok;	/* tokens of a block */
	int64_t batch;
	int64_t chunk;		/* query rows of a request; decode has 1 whatever it says */
	int64_t context;	/* keys that the last row sees, the chunk's included; of BENCH_PAST
				 * those before the chunk, in whole blocks */
	int64_t left;		/* tokens of the prompt after the chunk */
};

struct bench_case {
	enum bench_what what;
	const struct executor *executor;	/* NULL: decodes, select */
	struct attn_batch b;		/* its arrays are the case's; without tiles */
	struct executor_lists lists;	/* blocks.block NULL: every block */
	int n_list;
	int64_t dense_pairs;		/* (head, row, key) that causal attention has */
	int64_t pairs;			/* those among them that the lists hold; 0: select */
	int64_t moved;			/* keys that are copied first, over all KV heads */
};

/* AR_USAGE where the kernels' indices would not hold the shape, or its lists cannot say it. */
enum ar_status bench_shape_check(enum bench_what what, const struct bench_shape *s,
				 struct ar_err *err);

/* Whether a list keeps a block, with probability density: a function of its arguments alone, so
 * that other programs can draw the same lists. */
bool bench_kept(uint64_t seed, int64_t list, int block, double density);

/* s passed the check.  Tables keep a share of the blocks before the chunk and all of the chunk's,
 * those of BENCH_PAST the former alone; block-sparse lists a share of the blocks before the query
 * block and the query block's own.  Pages are shuffled. */
enum ar_status bench_case_make(struct bench_case *c, enum bench_what what,
			       const struct bench_shape *s, double density, uint64_t seed,
			       struct ar_err *err);
void bench_case_release(struct bench_case *c);

/* Dense attention of the n rows from position ctx on in the prompts of whole, which is dense, too:
 * over its pages. */
enum ar_status bench_case_chunk(struct bench_case *c, const struct bench_case *whole, int ctx,
				int n, struct ar_err *err);

/* Of keys or values of a request and KV head in order, bring those that are gathered to the front;
 * in other cases there is nothing to do. */
void bench_pack(const struct bench_case *c, int req, int kv_head, bf16_t *k);

/* Where a row stands among the keys after bench_pack. */
int bench_position(const struct bench_case *c, int req, int row, int head);

/* The blocks of a row and head: their number and, in *block, the list; NULL: [0, number). */
int bench_list(const struct bench_case *c, int req, int row, int head, const uint16_t **block);

/* Attention of one row at position pos over n blocks as above.  k and v are those of its request
 * and KV head in order, [token][head_dim]. */
void bench_row_ref(const struct attn_shape *s, const bf16_t *q, const bf16_t *k, const bf16_t *v,
		   const uint16_t *block, int n, int pos, double *out);

#endif
