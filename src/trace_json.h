/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of 'attnreplay trace info' for programs. */
#ifndef AR_TRACE_JSON_H
#define AR_TRACE_JSON_H

#include <cjson/cJSON.h>

#include "traces/algebra/summary.h"

/* Make the JSON document of a trace that is not empty.  s: its summary.  The caller owns it.  NULL:
 * no memory. */
cJSON *trace_json(const struct trace *t, const struct summary *s);

/* Return the number of requests of t->type[k]. */
size_t trace_type_count(const struct trace *t, size_t k);

#endif
