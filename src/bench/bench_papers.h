/* SPDX-License-Identifier: Apache-2.0 */
/* Published measurements of attention, and what of this program they are compared with. */
#ifndef AR_BENCH_PAPERS_H
#define AR_BENCH_PAPERS_H

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, name, unit, text) */
#define PAPER_QUANTITY_MAP(X)                                                               \
	X(CALL,     "call",     "ms", "attention of one layer and chunk, mean over the prefill") \
	X(SPEEDUP,  "speedup",  "x",  "dense attention over the method")                    \
	X(KERNEL,   "kernel",   "x",  "attention kernel of dense attention over the method's") \
	X(SELECT,   "select",   "ms", "the selector in one layer, chunks added up")         \
	X(METADATA, "metadata", "ms", "unions and lists of one layer and chunk")            \
	X(COPY,     "copy",     "ms", "copies of one layer and chunk")                      \
	X(ATTEND,   "attend",   "ms", "attention kernel of one layer and chunk")            \
	X(SPARSITY, "sparsity", "%",  "blocks before the chunk that the selector leaves out") \
	X(QUNION,   "q-union",  "%",  "the same after the union of query blocks")           \
	X(GROUP,    "union",    "%",  "the same after the method's union")                  \
	X(DENSITY,  "density",  "%",  "causal pairs that are executed")

enum paper_quantity {
#define X(id, name, unit, text) PAPER_##id,
	PAPER_QUANTITY_MAP(X)
#undef X
};

struct paper_quantity_info {
	const char *name, *unit, *text;
};
extern const struct paper_quantity_info paper_quantities[];	/* by enum paper_quantity */

enum { PAPER_COLS = 5 };

struct paper_shape {
	int64_t batch, chunk, context;
};

struct paper_row {
	const char *label;		/* as the paper has it */
	const char *method;
	enum paper_quantity what;
	double figure[PAPER_COLS];	/* as printed; NaN: none.  A CALL is the sum over layers and
					 * chunks of a prefill */
};

/* What the tables leave out of some methods. */
struct paper_method {
	const char *name;
	double sparsity;		/* % everywhere; 0: as some table has it */
	const char *as;			/* the method that it has it of; NULL: its own */
	const char *instead;		/* what runs where no file is given that it needs; NULL */
	const char *reason;		/* of instead, for notes */
};
const struct paper_method *paper_method(const char *name);	/* NULL: there is nothing */

struct paper_table {
	const char *name;		/* of --table */
	const char *title;
	const char *source;		/* paper, table, machine */
	const char *differs;		/* why figures do not compare as they are; NULL: they do */
	int q_heads, kv_heads, head_dim, n_layers;	/* of the model */
	int tp;				/* GPUs that share the heads */
	bool last;			/* the last chunk alone is measured */
	const struct paper_shape *shape;	/* [n_shape] the columns */
	int n_shape;
	int first;			/* figure of the first column */
	double sparsity;		/* % that selectors leave out in every row, of what is
					 * measured; 0: as tables have it */
	const struct paper_row *row;	/* ends with label NULL */
	double goal;			/* times as fast as the paper is met or missed; 0: none */
};

extern const struct paper_table paper_tables[];		/* ends with name NULL */
const struct paper_table *paper_find(const char *name);

/* The figure in the unit of its quantity: a CALL per layer and chunk.  NaN: none. */
double paper_figure(const struct paper_table *t, const struct paper_row *r, int col);

/* As printed, of a column. */
double paper_printed(const struct paper_table *t, const struct paper_row *r, int col);

/* What the paper's method leaves out there, in percent: of the blocks before the chunks, after its
 * union; or *selected, before it, which does not depend on the chunk size.  NaN: no table says. */
double paper_sparsity(const struct paper_table *t, const struct paper_row *r, int col,
		      bool *selected);

/* What the paper's dense attention, or its kernel, takes over the row's; NaN: it does not say. */
double paper_speedup(const struct paper_table *t, const struct paper_row *r, int col);

#endif
