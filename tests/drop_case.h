/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of droppers on batches of a case, on the host, and counts of wrong differences from
 * them. */
#ifndef AR_TESTS_DROP_CASE_H
#define AR_TESTS_DROP_CASE_H

#include "kernels/drop/uniprefill/uniprefill.h"
#include "tests/batch_case.h"

/* Room for a batch of c; the arrays are owned. */
struct drop_kept drop_kept_new(const struct batch_case *c);
void drop_kept_free(struct drop_kept *x);

/* The reference on the case's batch, whose chunks have lost nothing yet, at layer 0.  self: of the
 * dropper of this name. */
enum ar_status drop_case_try(const struct batch_case *c, const char *name, const void *self,
			     int n_step, const struct drop_kept *out, struct ar_err *err);

/* The same with nothing but the batch in the iteration.  Bails out if it fails. */
struct drop_kept drop_case(const struct batch_case *c, const char *name, const void *self);

/* The dropper of a band, open for a model of one layer; the caller frees it.  Bails out. */
struct drop *drop_case_open(const char *text, const char *value);
/* drop_case() of it. */
struct drop_kept drop_case_band(const struct batch_case *c, const char *text, const char *value);

/* Numbers as "0-1 12-21"; of two calls, both texts last. */
const char *drop_ranges(const int32_t *v, int n);
/* The rows of request 0 that stay. */
const char *drop_case_rows(const struct batch_case *c, const char *name, const void *self);
/* "0.1000 0.2000" */
const char *drop_numbers(const float *v, int n);

/* How many of the rows at [from, len) of a request UniPrefill's rule does not explain.  share: of
 * the blocks of [0, len).  near: shares so close, as a share of themselves, may change places, and
 * their sum may miss p by it. */
int drop_share_faults(const struct uniprefill *p, const double *share, int from, int len,
		      const uint8_t *keep, double near);

/* ---- a second implementation of UniPrefill's rule, in double ---- */

/* Shares of the blocks of request r, a whole prompt. */
void drop_plain_shares(const struct batch_case *c, const struct uniprefill *p, int r,
		       double *share);

/* The faults that drop_share_faults() counts in the rows of request 0, by plain shares. */
int drop_plain_faults(const struct batch_case *c, const struct uniprefill *p,
		      const struct drop_kept *got, double near);

/* Captures of whole prompts: the files that ATTNREPLAY_TEST_CAPTURES names, else the sample. */
int drop_captures(void);

/* Make a case of the i-th capture's layer, by its place in the file: its first `most` tokens, or
 * all for 0.  False: there is no such layer. */
bool drop_case_capture(struct batch_case *c, int i, int layer, int most);

/* The published parameters with p = 0.6, 0.9, 0.99 for k = 0, 1, 2, and without rounding from 3
 * on. */
struct uniprefill_self drop_published(int k);
/* "a capture of 2112 tokens, p 0.6: 300 stay" */
const char *drop_text(const struct batch_case *c, const struct uniprefill *p,
		      const struct drop_kept *got);

#endif
