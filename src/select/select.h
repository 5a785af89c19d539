/* SPDX-License-Identifier: Apache-2.0 */
/* The result of 'attnreplay select': the selection of one method for one chunk of a capture in one
 * layer. */
#ifndef AR_SELECT_H
#define AR_SELECT_H

#include <stdio.h>

#include "kernels/methods/shapes.h"
#include "replay/engine/backend.h"

struct select_result {
	const char *capture, *model, *backend; /* model: name, or "" */
	bool random;			       /* the capture's values are of no model */
	const struct method *method;
	int layer; /* of the model */
	struct attn_shape shape;
	int ctx, chunk, left; /* tokens of the prompt before, in and after the chunk */
	const struct method_selection *sel;
	const struct selection_count *count; /* [kv_heads] */
	const struct accuracy *acc;	     /* [q_heads] */
};

/* Numbers of blocks.  past: wholly before the chunk.  blocks: up to the chunk's end.  query_blocks:
 * of the chunk.  body: query blocks before the tail (attn_batch); densities count these alone. */
int select_past(const struct select_result *r);
int select_blocks(const struct select_result *r);
int select_query_blocks(const struct select_result *r);
int select_body(const struct select_result *r);

/* Position of query block i of a query head, to read the lists of shape_of(). */
struct shape_place select_place(const struct select_result *r, int head, int i);

/* ---- densities ---- */

enum { SELECT_DENSITIES = 10 };

/* A density: selected / total, counted in `unit`.  scope past: whole blocks (or tokens) before the
 * chunk.  causal: for each query block all blocks up to its own.  full: for each query block all
 * blocks up to the chunk's end; after a union all of the chunk's own blocks are selected. */
struct select_density {
	const char *step;  /* selected, q-block, sub-group, group, executed */
	const char *scope; /* past, causal, full */
	const char *unit;  /* block, token, pair */
	int64_t selected, total;
};

/* Write the densities that the selection's shape has; returns their number. */
int select_densities(const struct select_result *r, struct select_density out[SELECT_DENSITIES]);

/* The density of a step and scope.  NaN: the shape lacks it, or total is 0. */
double select_density(const struct select_result *r, const char *step, const char *scope);

/* Mean Jaccard index of the past blocks of two query blocks.  The mean is over all heads and pairs
 * of query blocks in the body.  Two empty sets are equal.  NaN: no pair, no past, or no selection
 * in blocks. */
double select_jaccard(const struct select_result *r);

/* Empty rows of the selection: (query head, query block) whose list is empty. */
int64_t select_empty_rows(const struct select_result *r);

/* Share of the past that one query head's query blocks keep, before any union. */
double select_head_density(const struct select_result *r, int head);

struct select_accuracy {
	double rel_l2_mean, rel_l2_max, cosine_min, recall_mean, recall_min;
};
struct select_accuracy select_accuracy(const struct select_result *r); /* over heads */

/* ---- pictures ---- */

/* out[j] in [0, 1]: share of block j that query block i of a query head may look at. */
void select_cover(const struct select_result *r, int head, int i, float *out);

/* Number of tables after the union, 0: no union.  out[j]: 1 if block j is in table g, else 0. */
int select_groups(const struct select_result *r);
void select_table(const struct select_result *r, int g, float *out);

enum select_picture { SELECT_AUTO, SELECT_ASCII, SELECT_UNICODE, SELECT_NO_PICTURE };

/* ---- outputs ---- */

/* head: query head of the picture and the lists; -1: a mean picture over all heads, no lists. */
enum ar_status select_put_text(const struct select_result *r, int head, enum select_picture how,
			       FILE *f, struct ar_err *err);

void select_csv_head(FILE *f);
void select_put_csv(const struct select_result *r, FILE *f);

/* One JSON object, as attnreplay-select(1) describes. */
enum ar_status select_put_json(const struct select_result *r, FILE *f, struct ar_err *err);

/* Draw from height *y on and add the height of the drawing to *y.  head: query head to draw, -1:
 * all. */
enum ar_status select_put_svg(const struct select_result *r, int head, FILE *f, double *y,
			      struct ar_err *err);
enum { SELECT_SVG_WIDTH = 1200 };

#endif
