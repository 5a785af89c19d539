/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokens of a run with real weights: ids of the prompts, and of the outputs as the model makes
 * them.
 *
 * A backend asks for the id at the position of each row of a batch.  After the batch has run, it
 * gives the logits of each row that outputs a token.  The next id is then that of a given answer
 * (teacher forcing), the most likely one, or drawn.
 */
#ifndef AR_TOKENS_H
#define AR_TOKENS_H

#include "base/status.h"
#include "traces/trace.h"

struct tokens;

/* A request.  Its prompt has the trace's length. */
struct tokens_text {
	const int32_t *prompt; /* [n_prompt], repeated or cut to the prompt's length */
	uint32_t n_prompt;     /* at least 1 */
	const int32_t *answer; /* [output_tok] of the trace; NULL: the model chooses */
};

/* A row that outputs a token. */
struct tokens_row {
	uint32_t req, out; /* request, number of the output token from 0 */
	int32_t next;	   /* its id */
	const float *logits;
	int n_logits;
};
typedef enum ar_status tokens_see(void *ctx, const struct tokens_row *row, struct ar_err *err);

struct tokens_env {
	const struct trace *trace;
	const struct tokens_text *text; /* [trace->n], copied; the arrays are borrowed */
	int vocab;			/* ids are below it */
	int n_logits;			/* of a row, of the first ids; 0: of all */
	double temperature; /* of a draw; 0: the most likely token, the first of equals */
	uint64_t seed;
	tokens_see *see; /* called for each row that outputs a token; may be NULL */
	void *ctx;
};

/* AR_DATA: an id is not one of the vocabulary; what: of which text it is. */
enum ar_status tokens_check(const int32_t *id, uint32_t n, int vocab, const char *what,
			    struct ar_err *err);

/* AR_DATA: as of tokens_check().  The message names the request. */
enum ar_status tokens_open(struct tokens **out, const struct tokens_env *env, struct ar_err *err);
void tokens_close(struct tokens *t); /* NULL is fine */

/* The id at position pos of req.  pos is in its prompt, or its output was put before. */
int32_t tokens_id(const struct tokens *t, uint32_t req, int64_t pos);

/* Take the logits [n_logits] of the row at position pos, the last one known, and choose the next
 * token.  A row past the last output, which a policy that plans ahead runs in vain, is left alone.
 * AR_DATA: a logit is not finite.  Errors of see() are passed on. */
enum ar_status tokens_put(struct tokens *t, uint32_t req, int64_t pos, const float *logits,
			  struct ar_err *err);

#endif
