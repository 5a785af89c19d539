/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of 'attnreplay methods' for programs. */
#ifndef AR_METHODS_JSON_H
#define AR_METHODS_JSON_H

#include <cjson/cJSON.h>

#include "kernels/methods/method.h"

/* Make the JSON document of all lists, or of the entries called only, in *out.  The caller owns
 * it. */
enum ar_status methods_json(cJSON **out, const char *only, struct ar_err *err);

/* Make the document of one method.  The caller owns it.  NULL: no memory. */
cJSON *methods_json_of(const struct method *m);

#endif
