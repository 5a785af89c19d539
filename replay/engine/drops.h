/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a batch in each segment of the layers.  A layer after which a dropper acts ends a
 * segment.  The layers of the next segment run the kept rows only and store only their keys.  So a
 * request has as many cache lengths as there are segments.
 *
 * A dropper may bring all rows back.  Then the layer after which it acts is in segment 0 again.
 * Each segment is made of rows of segment 0.
 *
 * A dropper may also revive tokens: a decode brings dropped ones to the next segment.  In the
 * caches of a request, tokens then lie in the order in which they came, not by position.
 *
 * For each batch: drops_begin(); for each segment but the last, drops_grow(), then the dropper and
 * drops_apply(); drops_grow() of the last; and drops_end() after the batch has run.
 */
#ifndef AR_DROPS_H
#define AR_DROPS_H

#include "kernels/drop/dropper.h"
#include "profiler/store/store.h"
#include "replay/engine/backend.h"
#include "replay/engine/rows.h"
#include "replay/ranks/world.h"

/* Positions of tokens, in the order of the cache: ascending, unless decodes revive tokens. */
struct drop_list {
	int32_t n;
	size_t cap; /* of pos and gone */
	int32_t *pos;
	uint8_t *gone; /* [n] 1: the token is not in the next segment; NULL: no token is revived */
};

struct drops {
	int n;	      /* segments; 1: there is no dropper */
	bool windows; /* they count positions of the request; the engine sets it */
	bool back;    /* all rows come back at a layer that drops; the engine sets it */
	int revives;  /* most tokens of a request that a decode revives at a layer; 0: none */
	size_t n_req; /* requests of the run */
	int max_entry, max_row;

	/* Of the last batch: */
	size_t n_entry;
	uint32_t *req;		     /* [max_entry] */
	struct row_segment *segment; /* [n], as rows_build() takes them */
	int32_t *start, *count;	     /* [n][max_entry] */
	const int32_t **keep;	     /* [n][max_entry] */
	const int32_t **before;	     /* [n][max_entry] positions in list */
	const int32_t **back_pos;    /* [n][max_entry] positions of revived tokens */
	const uint8_t **gone;	     /* [n][max_entry] flags in list */
	int32_t *n_back;	     /* [n][max_entry] */
	int32_t *row;		     /* [n][max_row] row numbers that keep points to */
	int32_t *index; /* [n][max_row] rows of a segment that go on, decodes included: their
			   * numbers in its views */
	int *n_index;	/* [n] */
	int32_t *left;	/* [n][max_row] if tokens are revived: its other rows, for the aux cache */
	int *n_left;	/* [n] */
	int32_t *whole; /* [n][max_row] with back, of segment s > 0: for each row r of segment 0 its
			 * place in [rows of segment 0][rows of segment s]: r if it was dropped,
			 * else n_whole + its number in segment s */
	int n_whole;	/* rows of segment 0 */
	int32_t *revived; /* [n][2][max_entry * revives] of segment s > 0: positions of its revived
			   * tokens; then their indices in the cache of segment s - 1 */
	int32_t *chunk;	  /* [max_entry] tokens of each prefill entry */
	struct store_drop *stat;	/* [n - 1] prefill rows; the engine sets the layers */
	bool prefill;			/* there are any */
	struct drop_messages *messages; /* [n - 1]; the engine sets all but the rows */
	uint64_t digest;		/* of the rows that go on, in all segments */
	struct row_segment *one;	/* [n] for drops_entry() */
	struct drop_list *list;	    /* [n][n_req] tokens of a request in the caches of a segment */
	struct drop_kept kept;	    /* room for the result of a dropper, on the host */
	struct drop_revived chosen; /* the same of decodes; its flags are the rows' flags */
};

/* How a dropper of this layer reaches the other ranks.  Messages are in phase COMM_SELECT, what
 * follows in DROP. */
struct drop_link {
	struct world *world; /* borrowed; NULL: there are none */
	phase_fn *phase;
	void *phase_ctx;
	int layer;
};

/* The link is borrowed, too. */
struct drop_ranks drops_ranks(const struct drop_link *link);

/* max_entry, max_row: of a batch.  Release *d even after a failure. */
enum ar_status drops_open(struct drops *d, int n, size_t n_req, int max_entry, int max_row,
			  int revives, struct ar_err *err);
void drops_close(struct drops *d);

/* All rows of b are in segment 0; none is in another yet. */
void drops_begin(struct drops *d, const struct batch *b);

/* Segments for rows_build(); NULL without a dropper. */
static inline const struct row_segment *drops_segments(const struct drops *d)
{
	return d->n > 1 ? d->segment : NULL;
}

/* Whether rows of a batch change at a layer that drops; r: its rows there. */
static inline bool drops_acts(const struct drops *d, const struct rows *r)
{
	return rows_count(r, ROW_PREFILL) || (d->revives && rows_count(r, ROW_DECODE));
}

/* Give the requests of b pages for their rows in the groups of segment s. */
enum ar_status drops_grow(const struct drops *d, struct blocks *blocks, const struct batch *b,
			  int s, struct ar_err *err);

/* Fill segment s + 1.  keep: a flag for each prefill row of segment s, or with back of segment
 * 0.  If tokens are revived, d->chosen has a request for each decode, with its revived tokens. */
void drops_apply(struct drops *d, const struct batch *b, int s, const uint8_t *keep);

/* The caches hold the rows of the last batch. */
enum ar_status drops_end(struct drops *d, struct ar_err *err);

/* The tokens of a request in the caches of segment s > 0, after drops_end(). */
static inline const struct drop_list *drops_tokens(const struct drops *d, int s, uint32_t req)
{
	return &d->list[(size_t)s * d->n_req + req];
}

/* Find the slots of the tokens that segment s > 0 revives, in the pages of segment s - 1: in the
 * order of their rows.  g: the group of the layer that ends that segment.  Returns how many there
 * are. */
int drops_slots(const struct drops *d, const struct blocks *blocks, const struct cache_group *g,
		int s, int32_t *slot);

/* Set the fields of cost that tell of droppers.  They are valid until the next batch. */
void drops_cost(const struct drops *d, struct iter_cost *cost);
void drops_forget(struct drops *d, uint32_t req);

/* Segments for a batch of one entry of the last batch, that of req.  Valid until the next call. */
const struct row_segment *drops_entry(struct drops *d, uint32_t req);
/* The rows of that entry in segment s that go on to the next: their numbers, ascending, to
 * index[max_row].  Returns how many there are. */
int drops_entry_index(const struct drops *d, uint32_t req, int s, int32_t *index);

#endif
