/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

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
