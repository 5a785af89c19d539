/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of a backend: a small model, a random capture in a file, and batches to run. */
#ifndef AR_BACKEND_CASE_H
#define AR_BACKEND_CASE_H

#include <stdbool.h>

#include "replay/engine/backends_attn.h"

enum {
	CASE_HEADS = 4,
	CASE_KV_HEADS = 2,
	CASE_LAYERS = 4,
	CASE_RUN_LAYERS = 2,
	CASE_REQ = 3,
	CASE_LEN = 720,
	CASE_DIM = 64,
	CASE_WINDOW = 100,
	CASE_WINDOW_THETA = 500
};

struct case_how {
	const char *method;
	/* NULL: of the method */
	const struct evict *evict;

	bool rope_applied; /* capture after RoPE */
	bool rope_long;	   /* the model has a RoPE whose angles are not known */
	bool rope_unknown; /* neither the capture nor the model has the base of RoPE */
	bool yarn;	   /* the capture states a RoPE with an attention factor */
	bool one_of_each;  /* with twice: the second capture is not rope_applied like the first */
	bool tile;	   /* the file holds a third of the tokens, which repeat; else
				 * it holds the whole repetition */
	bool twice;	   /* two captures, the same file; request 1 replays the second */
	bool random;	   /* a random capture instead of a file */
	bool decoder;	   /* not --attention-only */
	bool eager;	   /* cuda: no graphs */
	bool mixed;	   /* layers are full, linear, full, window, and all run */
	bool every;	   /* all layers run, and are full */
	int n_experts;
	int max_draft_tok;
	struct prof *prof;
};

struct backend_case {
	struct backend_env env;
	struct blocks blocks;
	struct trace trace;
	struct request req[CASE_REQ];
	struct model model;
	struct layer_spec layer[CASE_LAYERS];
	struct capture *capture[2];
	struct plan *plan;
	const struct backend *backend;
	void *self;
};

/* Open a backend.  Returns the status of open(); AR_OK: the backend has started.  Bails out when
 * the capture or the method cannot be made. */
enum ar_status case_open(struct backend_case *c, const struct backend *b,
			 const struct case_how *how, struct ar_err *err);
void case_close(struct backend_case *c);

/* The backend's options at their defaults, except name (NULL: no exception).  The caller frees
 * them. */
void *case_options(const struct backend *b, const char *name, const char *value);
void case_options_free(const struct backend *b, void *opts);

/* Run one batch; bails out on failure. */
void case_run(struct backend_case *c, struct batch_entry *entry, size_t n, struct iter_cost *cost);

/* Request req has finished or is preempted. */
void case_drop(struct backend_case *c, uint32_t req);

/* The results of compare() for an entry in every executed layer. */
struct case_result {
	struct accuracy acc[CASE_RUN_LAYERS][CASE_HEADS];
	struct selection_count count[CASE_RUN_LAYERS][CASE_KV_HEADS];
};
void case_compare(struct backend_case *c, const struct batch_entry *e, struct case_result *out);

bool case_same_counts(const struct case_result *a, const struct case_result *b);
/* Largest difference of any accuracy figure. */
double case_distance(const struct case_result *a, const struct case_result *b);
double case_largest_error(const struct case_result *r); /* relative L2 */

/* Test the properties that hold for every backend. */
void case_test_all(const struct backend *b, double tolerance);
enum { CASE_N_TEST = 62 };

#endif
