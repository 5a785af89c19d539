/* SPDX-License-Identifier: Apache-2.0 */
/* Selectors of decodes on batches of one row a request. */
#ifndef AR_TESTS_DECODE_CASE_H
#define AR_TESTS_DECODE_CASE_H

#include "kernels/methods/method.h"
#include "tests/batch_case.h"

struct decode_case {
	struct method *m;
	const struct method_part *part; /* of decodes */
	void *state, *prune_state;	/* of all pages */
	void *lists;			/* that pass between layers */
	struct method_selection sel;
};

/* Open the method "dense/decode=" and text for these heads.  All failures bail out. */
void decode_open(struct decode_case *x, const char *text, const struct attn_shape *s);

/* Cut the last token of each sequence; all: and all tokens before it. */
void decode_cut(struct batch_case *c, bool all);

/* The sizes of c's batch. */
struct attn_limits decode_limits(const struct batch_case *c);

/* Open it and choose for the last token of each sequence of c, which c's batch then has. */
void decode_choose(struct decode_case *x, const char *text, struct batch_case *c);
void decode_release(struct decode_case *x);

/* Whether query head h of request r sees the key at position t. */
bool decode_sees(const struct attn_shape *s, const struct piece_lists *l, int r, int h, int t);

#endif
