/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Methods: a selector, a union and an executor with parameters, under a name.  They are for
 * prefill; other kinds of rows have parts of their own.
 *
 *   dense
 *   compact-fp:alpha=0.06
 *   select=flashprefill,alpha=0.06/union=group/exec=paged
 *   compact-fp/decode=dense
 */
#ifndef AR_METHOD_H
#define AR_METHOD_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/attn.h"
#include "kernels/evict/evictor.h"
#include "kernels/exec/executor.h"
#include "kernels/methods/reuse.h"
#include "kernels/methods/selection_count.h"
#include "kernels/methods/skip.h"
#include "kernels/phase.h"
#include "kernels/row_kind.h"
#include "kernels/select/selectors.h"
#include "kernels/union/union.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The named compositions, a const table in names.c.  METHOD@MODEL is a method with the parameters
 * that were published for a model. */
struct method_name {
	const char *name, *spec, *title, *origin;
};
extern const struct method_name method_names[]; /* ends with name == NULL */

/* The parts after prefill's.  "/KEY=NAME[,PARAMETER=VALUE...]" adds one of a kind. */
struct part_kind {
	const char *key, *title;
	const struct method_name *part; /* ends with name == NULL */
};
extern const struct part_kind part_kinds[];	/* ends with key == NULL */
extern const struct method_name decode_parts[]; /* the first is that of methods without one */
extern const struct method_name prune_parts[];

/* Selector, union and executor of the rows of one kind. */
struct method_part {
	const struct selector *selector;
	void *param; /* the selector's struct */
	void *self;  /* for the selector: param, or the struct that method_open() made */
	enum union_kind u;
	const struct executor *executor;
	bool dense;			  /* selects everything */
	int64_t dense_layers, min_tokens; /* of decode_opts */
	struct reuse reuse;		  /* of decodes */
	struct method_part *prune;	  /* what stays of its lists, owned; NULL: all */
	const char *skips; /* the family of kernels that skip tiles; NULL: none is skipped */
};

/* The parameters that every part with a selector of decodes has beside the selector's; it has
 * reuse_opts too. */
extern const struct opt decode_opts[];

struct method {
	char *name;   /* as the user wrote it */
	char *params; /* JSON object, sorted keys: select, union, exec and parameters of prefill;
		       * objects decode, prune, evict and skip of the other parts; a part that
		       * the method lacks has no object */
	struct method_part part[ROW_KINDS];
	struct evict *evict;  /* what leaves the cache; NULL: keys stay */
	struct skip *skip;    /* what attention skips; NULL: nothing */
	bool dense;	      /* all parts select everything, and nothing is skipped */
	struct method *first; /* owned: m with dense decodes, for the layers before the decodes'
			       * dense_layers; NULL: there are none */
	struct method *later; /* owned: m whose decodes take lists, for the layers that do not
			       * choose; NULL: all choose */
};

static inline const struct method_part *method_prefill(const struct method *m)
{
	return &m->part[ROW_PREFILL];
}

/* The parts that text has after prefill's, such as "/decode=dense", or its end. */
const char *method_parts(const char *text);

/* Whether the method of text has a part of the kind, by its name or written out. */
bool method_has_part(const char *text, const struct part_kind *kind);

/* The kind of the part that text begins with, as in "decode=dense"; NULL: of none. */
const struct part_kind *part_kind_of(const char *text);

/* AR_USAGE: an unknown name or parameter; a value out of range; a composition that the executor
 * cannot run (the message names the missing part); a plan of layers (plan.h). */
enum ar_status method_parse(struct method **out, const char *text, struct ar_err *err);
void method_free(struct method *m);

/* The shape of the selection that the executor gets, one of SHAPE_*. */
unsigned method_shape(const struct method_part *p);

/* Query heads that share a table of a request, from union_heads; 0: there are no tables. */
int method_table_heads(const struct method_part *p, const struct attn_shape *s);

/* Tokens of a page for m: a block of its selector.  A dense method takes any page size; the
 * result is 128. */
int method_page_tok(const struct method *m);

/* The parameter that selector->threshold names; NULL: there is none. */
const struct opt *method_threshold(const struct method *m);

/* Write the spelling of a method with key=value added for prefill: of two values the last holds.
 * Returns its length; it is cut if that is not below n. */
size_t method_spell_with(char *buf, size_t n, const char *text, const char *key, double value);

/* The rows of support for its selector's kernels: supports[], or own, [2], of a plug-in. */
struct support;
const struct support *method_rows(const struct method_part *p, struct support *own);

/* Check that there are kernels of the selector, the executor and skip-softmax, as support_check()
 * does. */
enum ar_status method_supported(const struct method_part *p, const struct attn_shape *s,
				const struct cache_layout *layout, int cc, struct ar_err *err);

/* The dense tail of its batches, attn_batch.tail. */
int method_tail(const struct method_part *p);

/* Read the files that parameters name.  Call it before any function below.  env->shape has a
 * page_tok that m takes.  AR_DATA and AR_USAGE: a file cannot be read or does not fit the model;
 * with env->device, the current device has no kernels for the shape. */
enum ar_status method_open(struct method *m, const struct selector_env *env, struct ar_err *err);

/* Split "dense,compact-fp:alpha=0.06,window=4" at the commas that begin a method or a plan
 * (plan.h).  *out is an array of n strings, each owned, as is the array. */
enum ar_status method_split(const char *text, char ***out, size_t *n, struct ar_err *err);

/* Count request 0.  chosen: the selection; table: its tables under a union; both on the host, and
 * NULL for a dense method.  b: on the host; count: [kv_heads]. */
enum ar_status method_count(const struct method_part *p, const struct attn_batch *b,
			    const struct selection *chosen, const uint32_t *table,
			    struct selection_count *count, struct ar_err *err);

/* The input of an executor, from a selector and a union, on the host.  Only the arrays of the
 * method's shape are set.  A dense method sets none. */
struct method_selection {
	bool scored;		 /* set by the caller: keep scores if the selector has any */
	struct piece_lists from; /* what a pruner made chosen from */
	struct selection chosen;
	uint32_t *table; /* as in union_ref(), if lists.heads is not 0 */
	struct executor_lists lists;
};

/* Allocate the arrays of the shape for batch b, filled with 0, scores with NaN. */
enum ar_status method_selection_init(struct method_selection *x, const struct method_part *p,
				     const struct attn_batch *b, struct ar_err *err);
void method_selection_release(struct method_selection *x);

/* The reference of one call: select, union, lists.  Release *x even after a failure. */
enum ar_status method_select_ref(const struct method_part *p, const struct attn_call *call,
				 struct method_selection *x, struct ar_err *err);

/* The same, then attention over the selection.  count: [kv_heads] of request 0, or NULL. */
enum ar_status method_ref(const struct method_part *p, const struct attn_call *call,
			  struct selection_count *count, struct ar_err *err);

/* The steps of method_select_ref(): the selector; then, if it gives a mask, union and lists. */
enum ar_status method_choose_ref(const struct method_part *p, const struct attn_call *call,
				 struct method_selection *x, struct ar_err *err);
void method_lower_ref(const struct attn_batch *b, struct method_selection *x);

/* Bytes of attn_call.lists, on the host or on the device; 0: no lists pass between layers. */
size_t method_lists_bytes(const struct method_part *p, const struct attn_shape *s,
			  const struct attn_limits *l);

/* Bytes of state beside a page of one layer, 0: the selector keeps none. */
size_t method_state_bytes(const struct method_part *p, const struct attn_shape *s);

/* The call of the pruner of these lists. */
struct attn_call method_prune_call(const struct attn_call *call, const struct piece_lists *from);

/* The rows of the call are in the cache: bring the state of p, the part of decodes, up to date.
 * The call has that state and rows of any kind.  The second enqueues it, in phase META. */
enum ar_status method_append_ref(const struct method_part *p, const struct attn_call *call,
				 struct ar_err *err);
enum ar_status method_append(const struct method_part *p, const struct attn_call *call,
			     phase_fn *phase, void *phase_ctx, struct ar_err *err);

/* Plan the tiles of b under m for the device, see executor->plan.  b: on the host; rows as
 * attn_is_chunked() wants them. */
int method_plan(const struct method_part *p, const struct attn_batch *b, struct attn_tile *tile);

/* CUDA: enqueue the work of method_ref().  phase is called before each stage with the call's layer.
 * The call's work has method_work_bytes() bytes; nothing synchronises or allocates. */
size_t method_work_bytes(const struct method_part *p, const struct attn_shape *s,
			 const struct attn_limits *l);
enum ar_status method_enqueue(const struct method_part *p, const struct attn_call *call,
			      phase_fn *phase, void *phase_ctx, struct ar_err *err);

/* Where the selection of a call lies: in its work, or in its lists if they pass between layers. */
void *method_room(const struct method_part *p, const struct attn_call *call);

/* Enqueue only the selector, which brings its state up to date.  Not for a dense method. */
enum ar_status method_choose(const struct method_part *p, const struct attn_call *call,
			     struct ar_err *err);

/* After method_enqueue and a synchronisation: copy the selection of request 0 out of room,
 * method_room(), or count it, [kv_heads].  host: the batch, its arrays on the host.  Release *x
 * even after a failure. */
enum ar_status method_selection_device(const struct method_part *p, const struct attn_batch *host,
				       const void *room, struct method_selection *x,
				       struct ar_err *err);
enum ar_status method_count_device(const struct method_part *p, const struct attn_batch *host,
				   const void *room, struct selection_count *count,
				   struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
