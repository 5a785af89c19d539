/* SPDX-License-Identifier: Apache-2.0 */
/* The points of a sweep for programs, as JSON. */
#ifndef AR_SWEEP_JSON_H
#define AR_SWEEP_JSON_H

#include <cjson/cJSON.h>

#include "src/sweep/sweep_run.h"

/* Make the document, without points yet.  The caller owns it.  NULL: no memory. */
cJSON *sweep_json(const struct sweep *s);

/* Add a point whose database has this path; NULL: there is no folder.  False: no memory. */
bool sweep_json_add(cJSON *o, const struct sweep_point *p, enum sweep_state state,
		    const char *path);

#endif
