/* SPDX-License-Identifier: Apache-2.0 */
/* Ragged batches for tests and measurements, on the host.  A case holds whole sequences of random
 * queries, keys and values on shuffled pages.  Batches of chunks are cut from it. */
#ifndef AR_TESTS_BATCH_CASE_H
#define AR_TESTS_BATCH_CASE_H

#include <stdbool.h>

#include "base/rng.h"
#include "kernels/attend/attend.h"
#include "kernels/exec/executor.h"

enum case_fill {
	FILL_NORMAL, /* about normal, variance 1 */
	FILL_HUGE,   /* q thirty times as large: softmax is nearly a maximum */
	FILL_EQUAL,  /* all keys equal, hence all scores of a row equal */
	FILL_BLOCKS, /* blocks differ in direction: a threshold separates them */
	FILL_RISING, /* keys go from -30 to 30: scores of a row rise or fall steeply */
};

struct batch_case {
	struct attn_batch b; /* after case_cut; its arrays belong to the case */
	struct kv_cache kv;  /* [n_page] pages; 3e38 outside of all sequences */
	bf16_t *q;	     /* of the batch */
	bf16_t *state;	     /* [n_page][kv_heads][head_dim], of a selector */
	uint32_t *mask;	     /* of the batch, every bit set */
	int n_page;
	size_t q_len, kv_len; /* elements of q and of k */

	int n_seq;
	int *len;      /* [n_seq] tokens */
	size_t *at;    /* [n_seq + 1] first row in all_q */
	bf16_t *all_q; /* [token][q_heads][head_dim] */
	int32_t *row0, *pos, *ctx, *qblk0, *left, *end, *page0, *page; /* end: ctx + rows */
	struct attn_tile *tile;
	int32_t *first;	 /* after case_window: of the batch */
	int32_t *shared; /* after case_positions: the arrays of the batch */
	float *sink;	 /* after case_sinks: [q_heads] */
};

/* From 1 to max, log-uniform, so that small numbers are as frequent as large ones. */
int case_draw_len(struct rng *rng, int max);

/* Make sequences of len[r] tokens.  All functions bail out without memory. */
void case_make(struct batch_case *c, struct rng *rng, enum case_fill fill, struct attn_shape s,
	       int n_seq, const int *len);

/* Make sequences without queries, keys, values, state and masks. */
void case_make_bare(struct batch_case *c, struct rng *rng, struct attn_shape s, int n_seq,
		    const int *len);
void case_release(struct batch_case *c);

/* Cut a batch: request r has rows[r] new tokens after ctx[r].  A chunk that ends its sequence is
 * the last chunk of its prompt. */
void case_cut(struct batch_case *c, const int *ctx, const int *rows);

/* Make sequences of ctx[r] + rows[r] tokens, and cut the batch. */
void case_chunks(struct batch_case *c, struct rng *rng, enum case_fill fill, struct attn_shape s,
		 int n_req, const int *ctx, const int *rows);
void case_bare_chunks(struct batch_case *c, struct rng *rng, struct attn_shape s, int n_req,
		      const int *ctx, const int *rows);

/* Let each row of the batch see its last `window` keys; 0: all keys from a random one on.  Blocks
 * that no row sees are lost until the sequences are made again: their numbers become that of a page
 * without numbers. */
void case_window(struct batch_case *c, int window, struct rng *rng);

/* Make the batch one of requests with a row each: rows[r] of sequence r, all on its pages.  Its
 * keys get random positions, as if they had come in any order; each row has the position of a
 * key. */
void case_positions(struct batch_case *c, const int *rows, struct rng *rng);

/* Draw sinks, about as large as the logits of keys. */
void case_sinks(struct batch_case *c, struct rng *rng);

/* Make all queries of about one row in four of the batch NaN, as after an overflow. */
void case_overflow(struct batch_case *c, struct rng *rng);

/* Cut the batch into tiles, c->b.tile, for c->b.n_sm multiprocessors. */
void case_plan(struct batch_case *c, attend_plan_fn *cut, int heads);

size_t case_mask_words(const struct batch_case *c);		       /* of the whole batch */
bool case_kept(const struct batch_case *c, int qblk, int head, int j); /* bit j of its mask */
size_t case_page_elements(const struct batch_case *c); /* K of a page, all KV heads */

/* ---- the worked example ---- */

/* Make 14 tokens, two heads of two channels, blocks of two; the value of key t is (t, -t).  The
 * chunk is tokens 10 to 13; the caller cuts it with case_cut. */
void case_example(struct batch_case *c);

/* Expected outputs of the chunk, [row][head][channel]. */
enum case_example { EXAMPLE_DENSE, EXAMPLE_BLOCKS, EXAMPLE_UNION };
void case_example_out(enum case_example which, float out[16]);

/* Make one sequence of len tokens.  Integer formulas give its queries, keys and values, exact in
 * bf16.  The caller cuts the batch with case_cut. */
void case_formula(struct batch_case *c, struct attn_shape s, int len);

/* The same with other keys, no two of 41 tokens equal: four heads of four channels over two KV
 * heads. */
void case_decode_keys(struct batch_case *c, int len);

/* 39 of these tokens.  The batch is the last token alone. */
void case_decode_example(struct batch_case *c);

/* Set the value at position t to 1 in channel t and 0 elsewhere: an output shows its row's keys.
 * For one sequence and one KV head, with at most as many tokens as channels. */
void case_unit_values(struct batch_case *c);

/* ---- block lists ---- */

/* Number of lists that the tiles of cut refer to. */
int case_n_list(const struct batch_case *c, attend_plan_fn *cut, int heads);

/* Make n random ascending lists over blocks [0, max_kv_blk).  A block is kept with probability
 * density; about one list in eight is empty. */
void case_lists(const struct batch_case *c, int n, double density, struct block_lists *l,
		struct rng *rng);
void lists_free(struct block_lists *l);

/* ---- lists of other kinds ---- */

/* Make block tables as after a union: all blocks of the chunk, and each past block with probability
 * density. */
void case_tables(const struct batch_case *c, int heads, double density, struct block_lists *l,
		 struct rng *rng);

/* Make random token lists; some are empty. */
void case_tokens(const struct batch_case *c, double density, struct token_lists *l,
		 struct rng *rng);
void tokens_free(struct token_lists *l);

/* Make random vertical-slash lists: runs and columns.  Some rows have neither, and every other row
 * has a band.  Some runs reach past the query block, and past the request's last page. */
void case_columns(const struct batch_case *c, double density, struct column_lists *l,
		  struct rng *rng);
void columns_free(struct column_lists *l);

/* Draw lists of pieces of tok tokens for rows of one a request.  Some are empty.  `heads` heads
 * share a list; masked: each sees about half of it. */
void case_pieces(const struct batch_case *c, int tok, int heads, bool masked, double density,
		 struct piece_lists *l, struct rng *rng);
void pieces_free(struct piece_lists *l);

/* Random lists of a selection shape, for executors.  False: this function does not know the shape.
 * Tables are of up to most_heads heads. */
bool case_shape(const struct batch_case *c, unsigned shape, int most_heads,
		struct executor_lists *l, struct rng *rng);
void shape_lists_free(struct executor_lists *l);

#endif
