/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static _Thread_local bool nomem;

static void *allocate(size_t n)
{
	void *p = malloc(n);

	nomem = nomem || !p;
	return p;
}

static cJSON *parse(const char *text, size_t n, const char **end, bool all)
{
	cJSON_InitHooks(&(cJSON_Hooks){ .malloc_fn = allocate, .free_fn = free });
	nomem = false;
	return cJSON_ParseWithLengthOpts(text, n, end, all);
}

cJSON *json_parse(const char *text, size_t n, const char **end)
{
	return parse(text, n, end, false);
}

cJSON *json_parse_all(const char *text, const char **end)
{
	return parse(text, strlen(text) + 1, end, true);
}

enum ar_status json_parse_file(cJSON **o, const char *text, const char *path, struct ar_err *err)
{
	const char *end;

	*o = json_parse_all(text, &end);
	if (*o)
		return AR_OK;
	return nomem ? ar_nomem(err) :
		       ar_fail(err, AR_DATA, "%s:%d: malformed JSON", path, text_line(text, end));
}

bool json_nomem(void)
{
	return nomem;
}

bool json_add(cJSON *to, const char *key, cJSON *item)
{
	bool done = item &&
		    (key ? cJSON_AddItemToObject(to, key, item) : cJSON_AddItemToArray(to, item));

	if (!done)
		cJSON_Delete(item);
	return done;
}

bool json_add_real(cJSON *to, const char *key, double x)
{
	return json_add(to, key, isfinite(x) ? cJSON_CreateNumber(x) : cJSON_CreateNull());
}

const char *json_text(const cJSON *v, char *buf, size_t n)
{
	if (cJSON_IsString(v))
		return v->valuestring;
	if (cJSON_IsBool(v))
		return cJSON_IsTrue(v) ? "1" : "0";
	if (!cJSON_IsNumber(v))
		return NULL;
	snprintf(buf, n, "%.17g", v->valuedouble);
	return buf;
}

enum ar_status json_put(cJSON *o, FILE *f, struct ar_err *err)
{
	char *text = o ? cJSON_PrintUnformatted(o) : NULL;

	cJSON_Delete(o);
	if (!text)
		return ar_nomem(err);
	text_put_json_value(text, f);
	cJSON_free(text);
	return AR_OK;
}
