/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of decodes by upper bounds of their logits: shared by the reference and the CUDA file. */
#ifndef AR_QUEST_H
#define AR_QUEST_H

#include "kernels/select/bounds/bounds.h"
#include "kernels/select/pieces.h"

#ifdef __cplusplus
extern "C" {
#endif

enum quest_share { QUEST_HEAD, QUEST_SUM, QUEST_MEAN, QUEST_REQUEST };
enum quest_update { QUEST_TOKEN, QUEST_PAGE };

struct quest {
	int64_t budget, page;		   /* tokens */
	int64_t newest, recent, min_pages; /* newest: 0 or 1; pages */
	double ratio;			   /* 0: by budget */
	int share, update;
};

static inline struct bounds quest_bounds(const struct quest *p)
{
	struct bounds x = { (int)p->page, BOUNDS_BF16, BOUNDS_NEAREST };

	return x;
}

/* Pages at the end that a row keeps for their place, of n. */
AR_BOTH static inline int quest_last(const struct quest *p, int n)
{
	return !p->newest ? 0 : n < p->recent ? n : (int)p->recent;
}

/* Pages that a row keeps, if it has more: of n. */
AR_BOTH static inline int64_t quest_most(const struct quest *p, int n)
{
	int64_t last = quest_last(p, n), most = p->budget / p->page;

	if (p->ratio > 0) {
		most = (int64_t)(p->ratio * (double)(n - last));
		most = last + (most > 1 ? most : 1);
	}
	most = most > p->min_pages ? most : p->min_pages;
	return most > last ? most : last;
}

/* Pages that a row of len keys keeps. */
AR_BOTH static inline int quest_kept(const struct quest *p, const struct piece_lists *l, int len)
{
	return pieces_kept(l, len, quest_most(p, pieces_of(len, l->tok)));
}

/* Pages that have bounds, of the n of len keys. */
AR_BOTH static inline int quest_known(const struct quest *p, int len)
{
	return p->update == QUEST_PAGE ? len / (int)p->page : pieces_of(len, (int)p->page);
}

/* Lists of scores of a request. */
static inline int quest_rows(const struct quest *p, const struct attn_shape *s)
{
	return p->share == QUEST_HEAD ? s->q_heads : s->kv_heads;
}

selector_work_fn quest_work_bytes;
selector_append_fn quest_append;
selector_fn quest_enqueue;

#ifdef __cplusplus
}
#endif
#endif
