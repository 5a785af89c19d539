/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of backend cpu with weights: a whole tiny model that serves three requests, whose logits
 * are kept.  Any failure bails out, unless a status is returned. */
#ifndef AR_TESTS_WHOLE_MODEL_H
#define AR_TESTS_WHOLE_MODEL_H

#include <stdbool.h>

#include "model/weights.h"
#include "replay/engine/backend_cpu.h"
#include "replay/engine/tokens.h"
#include "tests/tiny_model.h"

enum { WHOLE_REQS = 3, WHOLE_LEN = 400, WHOLE_OUTS = 12, WHOLE_BUDGET = 300, WHOLE_HEADS = 8 };

#define WHOLE_SPARSE \
	"select=flashprefill,alpha=0.9,sink=1,window=1,dense-first=0/union=none/exec=blocksparse"
#define WHOLE_LAZY "+lazyllm:layers=0:0.4+1:0.3"

extern struct request whole_requests[WHOLE_REQS];
extern const struct tokens_text whole_text[WHOLE_REQS];

/* The logits and tokens of all outputs. */
struct whole_outputs {
	float logit[WHOLE_REQS][WHOLE_OUTS][TINY_VOCAB];
	int32_t token[WHOLE_REQS][WHOLE_OUTS];
	int n[WHOLE_REQS];
};

/* A backend that runs. */
struct whole {
	struct plan *plan;
	struct tokens *tokens;
	struct backend_env env;
	int layer[TINY_LAYERS];
	void *self;
	uint32_t have[WHOLE_REQS], known[WHOLE_REQS]; /* tokens in the cache, tokens known */
	uint32_t chunks[WHOLE_REQS];
};

struct whole_how {
	const char *method;
	double temperature;
	uint64_t seed;
	int64_t num_blocks; /* 0: enough */
};

/* Make the folder of models, and the prompts; remove it. */
void whole_begin(void);
void whole_end(void);
/* Read tiny model m, which takes as many tokens as the requests have. */
void whole_load(struct weights *w, const struct tiny *m);

/* Open and start a backend whose outputs go to *o.  try: *x is all 0; close it also after a
 * failure. */
void whole_open(struct whole *x, const struct weights *w, const struct whole_how *how,
		struct whole_outputs *o);
enum ar_status whole_try(struct whole *x, const struct weights *w, const struct whole_how *how,
			 struct whole_outputs *o, struct ar_err *err);
void whole_close(struct whole *x);

/* The next entry of request q, of at most budget tokens; n_tok 0: it has finished. */
struct batch_entry whole_next(const struct whole *x, uint32_t q, uint32_t budget);
/* Run a batch of n entries. */
enum ar_status whole_step(struct whole *x, struct batch_entry *e, size_t n, struct iter_cost *cost,
			  struct ar_err *err);
/* Serve the requests of mask to their ends, with chunks of at most chunk tokens. */
void whole_serve(struct whole *x, unsigned mask, uint32_t chunk);
/* Open a backend, serve all requests and close it. */
void whole_run(const struct weights *w, const struct whole_how *how, uint32_t chunk,
	       struct whole_outputs *o);

/* Largest difference of two logits; largest logit. */
double outputs_distance(const struct whole_outputs *a, const struct whole_outputs *b);
double outputs_largest(const struct whole_outputs *a);
/* The same tokens; the same bits of all logits, too. */
bool outputs_same_tokens(const struct whole_outputs *a, const struct whole_outputs *b);
bool outputs_same(const struct whole_outputs *a, const struct whole_outputs *b);

/* ---- a backend that runs a model with real weights; any failure but that of open() bails out ---- */

/* A request: id[n_prompt + n_out] are its prompt and the outputs it is given.  id[n_prompt] alone,
 * if answered is not set: the model chooses. */
struct weights_text {
	const int32_t *id;
	int n_prompt, n_out;
	bool answered;
};

struct weights_how {
	const char *method;
	bool eager; /* cuda: no graphs */
	const struct weights_text *text;
	int n_text, max_batched_tok;
	tokens_see *see;
	void *ctx;
	struct prof *prof;
};

struct weights_case {
	struct backend_env env;
	struct trace trace;
	struct tokens *tokens;
	struct plan *plan;
	int *layer;
	int *n_out; /* [n_text] tokens that each request has output */
	const struct backend *backend;
	void *self;
};

/* Open and start a backend.  w, the texts and the plan's text outlive it. */
enum ar_status weights_case_open(struct weights_case *c, const struct backend *b,
				 const struct weights *w, const struct weights_how *how,
				 struct ar_err *err);
void weights_case_close(struct weights_case *c);

/* The entry of the next tokens of a request, [start, start + n). */
struct batch_entry weights_entry(const struct weights_case *c, int req, int start, int n);
/* Run a batch, and return its cost. */
struct iter_cost weights_case_run(struct weights_case *c, struct batch_entry *e, size_t n);
/* Preempt a request: its outputs stay. */
void weights_case_drop(struct weights_case *c, int req);

#endif
