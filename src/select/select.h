/* SPDX-License-Identifier: Apache-2.0 */
/* What 'attnreplay select' shows: what a method selects for one chunk of a capture, in a layer. */
#ifndef AR_SELECT_H
#define AR_SELECT_H

#include <stdio.h>

#include "kernels/methods/shapes.h"
#include "replay/engine/backend.h"

struct select_result {
	const char *capture, *model, *backend;	/* model: name, or "" */
	const struct method *method;
	int layer;			/* of the model */
	struct attn_shape shape;
	int ctx, chunk, left;		/* tokens before, in and after the chunk */
	const struct method_selection *sel;
	const struct selection_count *count;	/* [kv_heads] */
	const struct accuracy *acc;	/* [q_heads] */
};

/* Blocks that lie wholly before the chunk, all blocks, query blocks, and those before the tail
 * (attn_batch), of which densities are. */
int select_past(const struct select_result *r);
int select_blocks(const struct select_result *r);
int select_query_blocks(const struct select_result *r);
int select_body(const struct select_result *r);

/* The place of a query head's query block i, for the lists of shape_of(r->method). */
struct shape_place select_place(const struct select_result *r, int head, int i);

/* ---- densities ---- */

enum { SELECT_DENSITIES = 10 };

/* selected / total of what unit counts.  past: whole blocks (tokens) before the chunk; causal: of a
 * query block all up to its own; full: all blocks of the chunk's last row, for every query block,
 * with the chunk's own blocks open after a union. */
struct select_density {
	const char *step;	/* selected, q-block, sub-group, group, executed */
	const char *scope;	/* past, causal, full */
	const char *unit;	/* block, token, pair */
	int64_t selected, total;
};

/* Those there are for the selection's shape; returns how many. */
int select_densities(const struct select_result *r, struct select_density out[SELECT_DENSITIES]);

/* selected / total of that step and scope, NaN: there is none, or nothing to select from. */
double select_density(const struct select_result *r, const char *step, const char *scope);

/* Mean over heads and pairs of query blocks of the Jaccard index of their past blocks, two empty
 * sets being equal; NaN: there are no pairs or no past, or the selection is no mask. */
double select_jaccard(const struct select_result *r);

/* Empty rows of the selection: (query head, query block) whose list is empty. */
int64_t select_empty_rows(const struct select_result *r);

/* Share of the past that one query head's query blocks keep, before any union. */
double select_head_density(const struct select_result *r, int head);

struct select_accuracy {
	double rel_l2_mean, rel_l2_max, cosine_min, recall_mean, recall_min;
};
struct select_accuracy select_accuracy(const struct select_result *r);	/* over heads */

/* ---- pictures ---- */

/* out[j] in [0, 1]: how much of block j a query head's query block i may look at. */
void select_cover(const struct select_result *r, int head, int i, float *out);

/* Tables after the union, 0: there is none; out[j] is 1 where block j is in table g. */
int select_groups(const struct select_result *r);
void select_table(const struct select_result *r, int g, float *out);

enum select_picture { SELECT_AUTO, SELECT_ASCII, SELECT_UNICODE, SELECT_NO_PICTURE };

/* ---- outputs ---- */

/* head: of the picture and the lists, -1: the picture is the mean of all and there are no lists. */
enum ar_status select_put_text(const struct select_result *r, int head, enum select_picture how,
			       FILE *f, struct ar_err *err);

void select_csv_head(FILE *f);
void select_put_csv(const struct select_result *r, FILE *f);

/* One JSON object, as attnreplay-select(1) describes. */
enum ar_status select_put_json(const struct select_result *r, FILE *f, struct ar_err *err);

/* Draw at height *y, and add to it.  head as above, -1: all of them. */
enum ar_status select_put_svg(const struct select_result *r, int head, FILE *f, double *y,
			      struct ar_err *err);
enum { SELECT_SVG_WIDTH = 1200 };

#endif
