/* SPDX-License-Identifier: Apache-2.0 */
/* A backend that runs a model with real weights.  Any failure but that of open() bails out. */
#ifndef AR_WEIGHTS_CASE_H
#define AR_WEIGHTS_CASE_H

#include <stdbool.h>

#include "model/weights.h"
#include "replay/engine/backends_attn.h"
#include "replay/engine/tokens.h"

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
