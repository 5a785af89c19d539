/* SPDX-License-Identifier: Apache-2.0 */
/* A backend that runs a whole model with real weights.  Any failure bails out, unless a status is
 * returned. */
#ifndef AR_TESTS_WHOLE_MODEL_H
#define AR_TESTS_WHOLE_MODEL_H

#include <stdbool.h>

#include "model/weights.h"
#include "replay/engine/backend_cpu.h"
#include "replay/engine/tokens.h"
#include "tests/tiny_model.h"

/* All pointers outlive the backend. */
struct whole_how {
	const char *method;
	const struct backend *backend;
	bool eager; /* cuda: no graphs */
	const struct trace *trace;
	const struct tokens_text *text; /* [trace->n] */
	int max_batched_tok;
	int max_draft_tok;
	int64_t num_blocks; /* 0: enough */
	double temperature;
	uint64_t seed;
	tokens_see *see;
	void *ctx;
	struct prof *prof;
};

struct whole {
	struct backend_env env;
	struct blocks blocks;
	const struct backend *backend;
	void *self;
	struct tokens *tokens;
	struct plan *plan;
	int *layer;
	struct whole_request {
		uint32_t have, known, chunks; /* tokens in the cache, tokens known, chunks run */
	} * req;
};

/* Open and start a backend.  try: close it also after a failure. */
void whole_open(struct whole *x, const struct weights *w, struct whole_how how);
enum ar_status whole_try(struct whole *x, const struct weights *w, struct whole_how how,
			 struct ar_err *err);
void whole_close(struct whole *x);

/* The entry of n tokens of request q from position start on. */
struct batch_entry whole_entry(const struct whole *x, uint32_t q, uint32_t start, uint32_t n);
/* The entry of its next tokens, at most budget; n_tok 0: it has finished. */
struct batch_entry whole_next(const struct whole *x, uint32_t q, uint32_t budget);

/* Run a batch of n entries, and return its cost. */
struct iter_cost whole_step(struct whole *x, struct batch_entry *e, size_t n);
enum ar_status whole_try_step(struct whole *x, struct batch_entry *e, size_t n,
			      struct iter_cost *cost, struct ar_err *err);
/* Preempt a request: its outputs stay. */
void whole_drop(struct whole *x, uint32_t q);

/* Serve the requests of mask to their ends, with chunks of at most chunk tokens. */
void whole_serve(struct whole *x, unsigned mask, uint32_t chunk);
/* Open a backend, serve all requests and close it. */
void whole_run(const struct weights *w, struct whole_how how, uint32_t chunk);

/* ---- a tiny model on backend cpu, which serves three requests whose logits are kept ---- */

enum { WHOLE_REQS = 3, WHOLE_LEN = 295, WHOLE_OUTS = 12, WHOLE_BUDGET = 300, WHOLE_HEADS = 8 };

#define WHOLE_SPARSE \
	"select=flashprefill,alpha=0.9,sink=1,window=1,dense-first=0/union=none/exec=blocksparse"
#define WHOLE_LAZY "+lazyllm:layers=0:0.4+1:0.3"

extern struct request whole_requests[WHOLE_REQS]; /* the longest has WHOLE_LEN tokens */
extern const struct tokens_text whole_text[WHOLE_REQS];

/* The logits and tokens of all outputs. */
struct whole_outputs {
	float logit[WHOLE_REQS][WHOLE_OUTS][TINY_VOCAB];
	int32_t token[WHOLE_REQS][WHOLE_OUTS];
	int n[WHOLE_REQS];
};

/* Make the folder of models, and the prompts; remove it. */
void whole_begin(void);
void whole_end(void);
/* Read tiny model m, which takes as many tokens as the requests have. */
void whole_load(struct weights *w, const struct tiny *m);

/* Empty *o, which then gets the outputs of a run by method. */
struct whole_how whole_three(const char *method, struct whole_outputs *o);

/* Largest difference of two logits; largest logit. */
double outputs_distance(const struct whole_outputs *a, const struct whole_outputs *b);
double outputs_largest(const struct whole_outputs *a);
/* The same tokens; the same bits of all logits, too. */
bool outputs_same_tokens(const struct whole_outputs *a, const struct whole_outputs *b);
bool outputs_same(const struct whole_outputs *a, const struct whole_outputs *b);

#endif
