/* SPDX-License-Identifier: Apache-2.0 */
/* Reading whole text files. */
#ifndef AR_TEXT_H
#define AR_TEXT_H

#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Read the whole file into *out, NUL-terminated; the caller owns it.  AR_DATA: the file cannot be
 * read or has more than max bytes. */
enum ar_status text_read(char **out, const char *path, size_t max, struct ar_err *err);

/* Return the line number of end in text, from 1. */
int text_line(const char *text, const char *end);

#ifdef __cplusplus
}
#endif
#endif
