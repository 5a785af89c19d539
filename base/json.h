/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of JSON that tells a lack of memory from malformed text. */
#ifndef AR_JSON_H
#define AR_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

/* Parse the first n bytes of text.  end: if not NULL, set to the byte after the value, or to the
 * malformed one.  The caller owns the result.  NULL: malformed, or json_nomem(). */
cJSON *json_parse(const char *text, size_t n, const char **end);

/* The same for a whole string: only blanks may follow the value. */
cJSON *json_parse_all(const char *text, const char **end);

/* Return whether the last parsing in this thread ran out of memory. */
bool json_nomem(void);

#endif
