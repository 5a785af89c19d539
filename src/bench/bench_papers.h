/* SPDX-License-Identifier: Apache-2.0 */
/* Published measurements of attention, and the methods here that they are compared with. */
#ifndef AR_BENCH_PAPERS_H
#define AR_BENCH_PAPERS_H

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, name, unit, text) */
#define PAPER_QUANTITY_MAP(X) \
	X(CALL, "call", "ms", "attention of one layer and chunk, mean over the prefill") \
	X(SPEEDUP, "speedup", "x", "time of dense attention over the method's") \
	X(KERNEL, "kernel", "x", "time of dense attention's kernel over the method's") \
	X(SELECT, "select", "ms", "the selector in one layer, chunks added up") \
	X(METADATA, "metadata", "ms", "unions and lists of one layer and chunk") \
	X(COPY, "copy", "ms", "copies of one layer and chunk") \
	X(ATTEND, "attend", "ms", "attention kernel of one layer and chunk") \
	X(SPARSITY, "sparsity", "%", "blocks before the chunk that the selector leaves out") \
	X(QUNION, "q-union", "%", "the same after the union of query blocks") \
	X(GROUP, "union", "%", "the same after the method's union") \
	X(DENSITY, "density", "%", "causal pairs that are executed") \
	X(PREFILL, "prefill", "x", "time until all requests have a token: dense over the method") \
	X(KEPT, "kept", "%", "rows of the prompts that are left after the last drop")

enum paper_quantity {
#define X(id, name, unit, text) PAPER_##id,
	PAPER_QUANTITY_MAP(X)
#undef X
};

struct paper_quantity_info {
	const char *name, *unit, *text;
};
extern const struct paper_quantity_info paper_quantities[]; /* by enum paper_quantity */

enum { PAPER_COLS = 22 };

/* Whole prefills: chunk is the token budget of an iteration.  If it is as long as the context,
 * prompts of up to 128 K tokens together share an iteration. */
struct paper_column {
	int64_t batch, chunk, context;
};

struct paper_row {
	const char *label; /* as the paper has it */
	const char *method;
	enum paper_quantity what;
	double figure[PAPER_COLS]; /* as printed; NaN: none.  A CALL is the sum over layers and
					 * chunks of a prefill */
};

/* Facts about a method that its rows do not have. */
struct paper_method {
	const char *name;
	double sparsity;     /* % left out in every table; 0: see the tables */
	const char *as;	     /* has the sparsity of this method; NULL: its own */
	const char *instead; /* runs unless --use names a method; NULL: name */
	const char *reason;  /* note of rows that run instead */
};
const struct paper_method *paper_method(const char *name); /* NULL: none */

struct paper_table {
	const char *name; /* of --table */
	const char *title;
	const char *source;  /* paper, table, machine */
	const char *differs; /* why the figures cannot be compared directly; NULL: they
					 * can */
	const char
		*model; /* whole prefills of it are run, of one rank; "": the user names it; NULL:
			    * attention of a layer is */
	int q_heads, kv_heads, head_dim, n_layers; /* of the model */
	int tp;					   /* GPUs that share the heads */
	bool last;				   /* the last chunk alone is measured */
	const struct paper_column *column;	   /* [n_column] */
	int n_column;
	int first;		     /* index in paper_row.figure of the first column */
	double sparsity;	     /* % that selectors leave out in every row, over the
					 * measured chunks; 0: as the tables state */
	const struct paper_row *row; /* ends with label NULL */
	double goal;		     /* the goal is met by this ratio of the paper's time to
					 * ours; 0: no goal */
};

extern const struct paper_table paper_tables[]; /* ends with name NULL */
const struct paper_table *paper_find(const char *name);

/* The figure in the unit of its quantity: a CALL per layer and chunk.  NaN: none. */
double paper_figure(const struct paper_table *t, const struct paper_row *r, int col);

/* The figure of a column, as printed. */
double paper_printed(const struct paper_table *t, const struct paper_row *r, int col);

/* Sparsity that the paper states, in percent of the blocks before the chunks.  *selected: before
 * the union, independent of the chunk size; else after the method's union.  NaN: no table states
 * it. */
double paper_sparsity(const struct paper_table *t, const struct paper_row *r, int col,
		      bool *selected);

/* Stated speedup over dense attention; of a KERNEL, over its attention kernel.  NaN: not stated. */
double paper_speedup(const struct paper_table *t, const struct paper_row *r, int col);

#endif
