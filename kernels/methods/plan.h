/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: which method each layer of a model runs.
 *
 *   compact-fp:alpha=0.06			one method in all layers
 *   0-1:dense;2-:compact-fp:alpha=0.06	a method for each range of layers
 *   plan=FILE				the same from a file, a line "LAYERS METHOD" each
 *   dense+uniprefill:p=0.98		any of these and a dropper, see dropper.h
 *
 * LAYERS is N, N-M or N-, counted from 0.  Methods are for layers with full attention: other layers
 * need no method, and one that is given is not used there.
 */
#ifndef AR_PLAN_H
#define AR_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/drop/dropper.h"
#include "kernels/methods/method.h"
#include "kernels/select/plugin.h"
#include "model/model.h"

enum { PLAN_TO_LAST = -1 }; /* plan_range.last of "N-" */

/* Layers first .. last run method[method] of the plan. */
struct plan_range {
	int first, last;
	size_t method;
};

/* A plan as its text says it, before a model is known.  It owns its methods. */
struct plan {
	char *name;   /* as the user wrote it */
	char *params; /* JSON: of its only method, see struct method; else {"plan":[{"layers":"0-1",
			 * "method":{...}}, ...]}.  With a dropper, "drop":{...} in it too */
	bool dense;   /* all of its methods are dense, and it has neither dropper nor evictor */
	struct method **method; /* [n_method], no two with equal parameters */
	size_t n_method, cap_method;
	struct plan_range *range; /* [n_range], ascending, without overlaps */
	size_t n_range, cap_range;
	struct drop *drop; /* NULL: no rows are dropped */
};

/* Whether text is a plan of layers, which method_parse() refuses. */
bool plan_is_text(const char *text);

/* FILE of "plan=FILE", in text; NULL: text does not begin so. */
const char *plan_file(const char *text);

/* AR_USAGE: not a plan; ranges overlap; or as from method_parse().  AR_DATA: the file cannot be
 * read.  The message names file and line. */
enum ar_status plan_parse(struct plan **out, const char *text, struct ar_err *err);
void plan_free(struct plan *p);

/* Give every method or plan of a list, "dense,0-1:dense;2-:compact-fp", that has no part of this
 * kind each of the parts, "dense,quest,budget=2048": all pairs, methods first.  *list is owned, and
 * replaced.  AR_USAGE: all methods have such a part; or a plan is in a file, whose lines have the
 * parts. */
enum ar_status plan_give_parts(char **list, const struct part_kind *kind, const char *parts,
			       struct ar_err *err);

/* The method of all its layers; NULL: they differ. */
struct method *plan_single(const struct plan *p);

/* What leaves the cache, in all layers; NULL: keys stay.  Borrowed. */
const struct evict *plan_evict(const struct plan *p);

/* Whether rows of a kind are dense in all of its methods, and skip nothing. */
bool plan_dense_rows(const struct plan *p, enum row_kind kind);

/* Whether decodes see every key of their requests, in all of its methods. */
bool plan_dense_decodes(const struct plan *p);

/* The file that the selector of one of its methods is from; NULL: there is none. */
const struct plugin *plan_plugin(const struct plan *p);

/* Write "2", "0-1" or "2-"; returns buf. */
char *plan_layers(const struct plan_range *r, char *buf, size_t n);

/* A plan on the layers of a model. */
struct layer_plan {
	int n_layers;		/* of the model */
	int page_tok;		/* tokens of a page of the cache, in every layer */
	struct method **method; /* [n_layers], borrowed; NULL: it has no full attention */
	struct drop *drop;	/* borrowed; NULL: no rows are dropped */
};

/* Give each layer of m with full attention its method.  Pages have the size that the first sparse
 * method takes; a run may set another page_tok.  AR_USAGE: a layer with full attention has no
 * method, the plan names layers that m lacks, or a layer cannot take the lists of one before.  p
 * outlives *l.  Release *l even after a failure. */
enum ar_status plan_init(struct layer_plan *l, const struct plan *p, const struct model *m,
			 struct ar_err *err);
void plan_release(struct layer_plan *l);

static inline const struct method *plan_method(const struct layer_plan *l, int layer)
{
	return l->method[layer];
}

/* Whether this is the first layer that runs its method.  Not where there is none. */
bool plan_first(const struct layer_plan *l, int layer);

/* The layer whose lists the decodes of a layer take; -1: they have their own. */
int plan_source(const struct layer_plan *l, int layer);

/* How often rows are dropped before the layer; 0 where all come back.  The dropper is open.  layer
 * n_layers: in all. */
int plan_segment(const struct layer_plan *l, int layer);

/* Heads of the layer, and the page size. */
struct attn_shape plan_shape(const struct layer_plan *l, const struct model *m, int layer);

/* Check that each of n methods takes pages of page_tok tokens, else AR_USAGE.  NULL: no method. */
enum ar_status plan_check_pages(struct method *const *method, size_t n, int page_tok,
				struct ar_err *err);

/* method_open() each method once, and drop_open() the dropper.  Each method gets shape and n_layers
 * of its layers, in place of env's.  AR_USAGE: a method does not take the page size. */
enum ar_status plan_open(const struct layer_plan *l, const struct model *m,
			 const struct selector_env *env, struct ar_err *err);

#endif
