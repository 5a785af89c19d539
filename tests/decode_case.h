/* SPDX-License-Identifier: Apache-2.0 */
/* Selectors of decodes on batches of one row a request. */
#ifndef AR_TESTS_DECODE_CASE_H
#define AR_TESTS_DECODE_CASE_H

#include "kernels/methods/method.h"
#include "tests/batch_case.h"

struct decode_case {
	struct method_part part;
	void *state; /* of all pages */
	struct method_selection sel;
};

/* Choose for the last token of each sequence of c, which c's batch then has.  text:
 * "NAME,KEY=VALUE,...", NAME of a selector of decodes.  Failures bail out. */
void decode_choose(struct decode_case *x, const char *text, struct batch_case *c);
void decode_release(struct decode_case *x);

#endif
