/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of texts, and how the file of a sweep writes them: [a, "b,c"]. */
#ifndef AR_SWEEP_LIST_H
#define AR_SWEEP_LIST_H

#include <stddef.h>

#include "base/status.h"

/* Texts, owned. */
struct texts {
	char **v;
	size_t n, cap;
};

/* Append a copy of n bytes of text. */
enum ar_status texts_add(struct texts *t, const char *text, size_t n, struct ar_err *err);
void texts_release(struct texts *t);

/* s behind its white space. */
const char *list_space(const char *s);

/* Read a value, in quotes or up to one of the ends, into to, and move *s behind it. */
enum ar_status list_value(const char **s, const char *ends, struct texts *to, struct ar_err *err);

/* Read "[a, b]" into to, and move *s behind it and the space that follows. */
enum ar_status list_read(const char **s, struct texts *to, struct ar_err *err);

#endif
