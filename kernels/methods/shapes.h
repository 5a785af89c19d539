/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shapes that a selection can have, one row each.
 *
 * A row names the arrays of a shape, their sizes, how to count them and how to read them.  From it
 * follow: their memory on the host, their places on the device, the copy back, their release; the
 * output of attnreplay-select(1).
 */
#ifndef AR_SHAPES_H
#define AR_SHAPES_H

#include "kernels/methods/method.h"

/* The extent of a batch, or the most that its limits allow: the sizes of a selection depend on
 * it. */
struct shape_extent {
	const struct selection_shape *row;
	struct attn_shape shape;
	size_t n_req, n_qblk, n_page;
	int max_kv_blk;
	int table_heads;		/* as method_table_heads() */
	int max_run, max_col;		/* as in struct column_lists */
	struct piece_form pieces, from; /* of the lists, and before a pruner; from.most 0: none */
	int all_below;			/* as in struct piece_lists */
};

/* An array of a selection. */
struct shape_array {
	size_t at; /* of its pointer in struct method_selection */
	size_t (*bytes)(const struct shape_extent *e);
};

/* Which list of one request is read. */
struct shape_place {
	const struct attn_shape *shape;
	int past, n_blk; /* blocks before the chunk; all blocks */
	int head, qblk;	 /* query head; query block of the chunk, from 0 on */
};

/* An entry of a list: a block number, the first position of a run of page_tok keys, or the position
 * of one key. */
enum shape_entry { ENTRY_BLOCK, ENTRY_RUN, ENTRY_KEY };

/* Lists of a shape. */
struct shape_list {
	const char *name; /* in JSON: "blocks" */
	const char *text; /* before the entries in text: "runs from", or "" */
	enum shape_entry entry;

	/* Return the next entry, -1: there are no more.  *k: 0 in the first call. */
	int (*next)(const struct method_selection *x, const struct shape_place *at, int *k);
};

struct selection_shape {
	unsigned bit; /* SHAPE_MASK */
	const char *title;
	const struct shape_array *array; /* in the order of memory, ends with bytes NULL */
	const struct shape_list *list;	 /* ends with name NULL */
	bool per_kv;			 /* a list per KV head, which sees the chunk's tokens
					 * besides; else per (query head, query block) */

	/* Set the members of the extent that p decides.  NULL: there are none. */
	void (*fit)(const struct method_part *p, struct shape_extent *e);

	/* After x has its arrays: set their strides and hand them to x->lists.  NULL: none. */
	void (*link)(struct method_selection *x, const struct shape_extent *e);

	/* Count request 0 as method_count() does.  mark: a 0 for each token before the chunk. */
	void (*count)(const struct method_part *p, const struct attn_batch *b,
		      const struct selection *chosen, const uint32_t *table, uint8_t *mark,
		      struct selection_count *count);
};
extern const struct selection_shape selection_shapes[]; /* ends with bit == 0 */

/* The row of the shape that p's executor gets. */
const struct selection_shape *shape_of(const struct method_part *p);

struct shape_extent shape_extent(const struct method_part *p, const struct attn_batch *b);
struct shape_extent shape_most(const struct method_part *p, const struct attn_shape *s,
			       const struct attn_limits *l);

/* Bytes of all arrays, each on a boundary of 256 bytes. */
size_t shape_bytes(const struct shape_extent *e);

/* Make *x a selection whose arrays lie in mem, of shape_bytes() bytes. */
void shape_lay(struct method_selection *x, const struct shape_extent *e, void *mem);

/* The same with an allocation for each array, filled with 0, and if x->scored for scores, filled
 * with NaN.  False: there is no memory.  Release *x in either case. */
bool shape_alloc(struct method_selection *x, const struct method_part *p,
		 const struct shape_extent *e);
void shape_release(struct method_selection *x);

/* Bytes of its scores. */
size_t shape_score_bytes(const struct shape_extent *e);

/* Set the array's pointer in x. */
void shape_set(struct method_selection *x, const struct shape_array *a, void *p);

/* The array's pointer in x; the room of the array in shape_lay()'s memory. */
void *shape_array(const struct method_selection *x, const struct shape_array *a);
static inline size_t shape_room(const struct shape_array *a, const struct shape_extent *e)
{
	return (a->bytes(e) + 255) / 256 * 256;
}

/* ---- kernels/methods/count.c ---- */

void count_blocks(const struct method_part *p, const struct attn_batch *b,
		  const struct selection *chosen, const uint32_t *table, uint8_t *mark,
		  struct selection_count *count);
void count_tokens(const struct method_part *p, const struct attn_batch *b,
		  const struct selection *chosen, const uint32_t *table, uint8_t *mark,
		  struct selection_count *count);
void count_pieces(const struct method_part *p, const struct attn_batch *b,
		  const struct selection *chosen, const uint32_t *table, uint8_t *mark,
		  struct selection_count *count);
void count_columns(const struct method_part *p, const struct attn_batch *b,
		   const struct selection *chosen, const uint32_t *table, uint8_t *mark,
		   struct selection_count *count);

#endif
