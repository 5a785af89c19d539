/* SPDX-License-Identifier: Apache-2.0 */
/* Checked access to values of untrusted JSON, and strings of untrusted text. */
#ifndef AR_JSONVAL_H
#define AR_JSONVAL_H

#include <cjson/cJSON.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/text.h"

/* JSON numbers are doubles, and exact for integers up to this. */
#define JSON_INT_MAX ((int64_t)1 << 53)

/* Return whether v (NULL: absent) is an integer from min to max.  |min|, max <= JSON_INT_MAX. */
static inline bool json_int(const cJSON *v, int64_t min, int64_t max, int64_t *out)
{
	double x = v && cJSON_IsNumber(v) ? v->valuedouble : NAN;

	if (!(x >= (double)min && x <= (double)max) || x != floor(x))
		return false;
	*out = (int64_t)x;
	return true;
}

/* Return whether v (NULL: absent) is a finite number from min to max. */
static inline bool json_real(const cJSON *v, double min, double max, double *out)
{
	double x = v && cJSON_IsNumber(v) ? v->valuedouble : NAN;

	if (!(x >= min && x <= max))
		return false;
	*out = x;
	return true;
}

/* Return whether key is present and not null. */
static inline bool json_has(const cJSON *object, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);

	return v && !cJSON_IsNull(v);
}

/* Return s as a JSON string in UTF-8, see text_utf8().  NULL: no memory. */
static inline cJSON *json_string(const char *s)
{
	char *good = text_utf8(s);
	cJSON *v = good ? cJSON_CreateString(good) : NULL;

	free(good);
	return v;
}

/* Add s to object.  False: no memory. */
static inline bool json_add_string(cJSON *object, const char *key, const char *s)
{
	cJSON *v = json_string(s);
	bool done = v && cJSON_AddItemToObject(object, key, v);

	if (!done)
		cJSON_Delete(v);
	return done;
}

#endif
