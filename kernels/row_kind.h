/* SPDX-License-Identifier: Apache-2.0 */
/* The purpose of a row in a batch.  All loops over rows go by kind, in this order; methods have a
 * part for each kind. */
#ifndef AR_ROW_KIND_H
#define AR_ROW_KIND_H

/* X(NAME, text) */
#define ROW_KIND_MAP(X) \
	X(PREFILL, "prefill") /* tokens that are known */ \
	X(DECODE, "decode")   /* the last known token, after the prompt: one row of a request */ \
	X(VERIFY, "verify")   /* the last known token, after the prompt, and drafts after it */ \
	X(REVIVED, "revived") /* dropped tokens that decodes bring back: of no entry */

enum row_kind {
#define X(name, text) ROW_##name,
	ROW_KIND_MAP(X)
#undef X
		ROW_KINDS
};

static inline const char *row_kind_name(enum row_kind kind)
{
	static const char *const name[] = {
#define X(name, text) text,
		ROW_KIND_MAP(X)
#undef X
	};

	return name[kind];
}

#endif
