/* SPDX-License-Identifier: Apache-2.0 */
/* For rows.c and rows_revived.c: a batch as a view sees it, and arrays while they are filled. */
#ifndef AR_ROWS_PART_H
#define AR_ROWS_PART_H

#include "base/workspace.h"
#include "replay/engine/rows.h"

/* The arrays of a part while they are filled. */
struct row_arrays {
	int32_t *row0, *pos, *pos0, *qblk0, *left, *len, *page0, *page;
	int32_t *first; /* NULL: rows see key 0 */
	/* Of ROW_REVIVED only: */
	int32_t *own;
	int32_t *key;  /* keys.pos */
	uint8_t *gone; /* the flags */
};

/* A batch as a view sees it. */
struct rows_part {
	const struct rows_env *env;
	const struct row_view *view;
	const struct batch *b;
	const struct row_segment *segment; /* of the view; NULL: all rows */
};

static inline bool rows_is_linear(const struct row_view *v)
{
	return !mixer_attends(v->group->mixer);
}

static inline int32_t rows_scratch_page(const struct row_view *v)
{
	return (int32_t)v->group->n_page;
}

static inline size_t rows_page_tok(const struct rows_part *p)
{
	return (size_t)p->view->group->shape.page_tok;
}

static inline void rows_pad_row(struct rows *o, const struct row_view *v, int r)
{
	if (o->row)
		o->row[r] = (struct layer_row){ .slot = rows_scratch_page(v) *
							v->group->shape.page_tok };
}

/* Whether decodes of the batch may revive tokens. */
static inline bool rows_revives(const struct rows_part *p)
{
	return p->env->revives && p->segment && !rows_is_linear(p->view);
}

/* Rows that the decodes of the batch revive. */
size_t rows_revived_count(const struct rows_part *p);
/* (row, key) pairs of the rows that entry i revives: of each, the keys up to its position. */
int64_t rows_revived_pairs(const struct row_segment *s, size_t i);
/* Rows that a batch of n decodes has room for in a view, besides theirs. */
int rows_revived_room(const struct rows_part *p, int n);

/* Take the arrays that n revived rows have besides the arrays of other rows; n_key: keys of the
 * decodes.  False: there is no room. */
bool rows_revived_take(struct workspace *c, size_t n, size_t n_key, struct row_arrays *a);
/* Add the rows that the decodes of the batch revive, and the arrays that their dropper reads. */
enum ar_status rows_revived_add(struct rows *o, const struct rows_part *p,
				const struct row_arrays *a, struct ar_err *err);
/* Pad the revived rows to n.  A padded row sees one key, in the scratch page: the last of the
 * view's.  page: the pages of the decodes. */
void rows_revived_pad(struct rows *o, const struct rows_part *p, const struct row_arrays *a,
		      int32_t *page, int n);

#endif
