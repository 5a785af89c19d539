/* SPDX-License-Identifier: Apache-2.0 */
/* JSON: parsing that tells a lack of memory from malformed text, and giving items away. */
#ifndef AR_JSON_H
#define AR_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

/* Parse the first n bytes of text.  end: if not NULL, set to the byte after the value, or to the
 * malformed one.  The caller owns the result.  NULL: malformed, or json_nomem(). */
cJSON *json_parse(const char *text, size_t n, const char **end);

/* The same for a whole string: only blanks may follow the value. */
cJSON *json_parse_all(const char *text, const char **end);

/* Copy text with NaN, Infinity and -Infinity, which programs write but JSON lacks, as strings.
 * The caller frees the copy.  NULL: no memory. */
char *json_quote_literals(const char *text);

/* Parse all of text, the content of the file path.  The caller frees *o.  AR_DATA names path and
 * the line that is malformed. */
enum ar_status json_parse_file(cJSON **o, const char *text, const char *path, struct ar_err *err);

/* Return whether the last parsing in this thread ran out of memory. */
bool json_nomem(void);

/* Add item to the object to, or to an array if key is NULL.  item is owned here, even after a
 * failure.  False: there is no memory, which item NULL says as well. */
bool json_add(cJSON *to, const char *key, cJSON *item);

/* The same for a number; null: it is not finite. */
bool json_add_real(cJSON *to, const char *key, double x);

/* The value as the user would write it: a number goes into buf[0..n).  NULL: v is NULL, or no text,
 * number or truth value. */
const char *json_text(const cJSON *v, char *buf, size_t n);

/* Write o on one line, see text_put_json_value().  o is owned here, even after a failure.  NULL:
 * there was no memory to make it.  AR_NOMEM: nothing was written. */
enum ar_status json_put(cJSON *o, FILE *f, struct ar_err *err);

/* The same for people who read the file.  An array or object that holds a further one with items
 * has a line for each item.  Any other is on one line.  A line end follows.  AR_NOMEM: a part may
 * have been written. */
enum ar_status json_put_lines(cJSON *o, FILE *f, struct ar_err *err);

#endif
