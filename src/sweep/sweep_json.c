/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/sweep/sweep_json.h"

#include "base/json.h"

static const char *const state_names[] = { [SWEEP_TODO] = "todo",
					   [SWEEP_DONE] = "done",
					   [SWEEP_THERE] = "there",
					   [SWEEP_FAILED] = "failed" };

static bool add_arguments(cJSON *o, const struct texts *args)
{
	cJSON *all = cJSON_AddArrayToObject(o, "arguments");
	bool done = all;

	for (size_t i = 0; i < args->n && done; i++)
		done = json_add(all, NULL, cJSON_CreateString(args->v[i]));
	return done;
}

bool sweep_json_add(cJSON *o, const struct sweep_point *p, enum sweep_state state, const char *path)
{
	cJSON *x = cJSON_CreateObject();

	return json_add(cJSON_GetObjectItemCaseSensitive(o, "points"), NULL, x) &&
	       json_add_real(x, "point", (double)p->number) &&
	       json_add(x, "key", cJSON_CreateString(p->key)) &&
	       json_add(x, "state", cJSON_CreateString(state_names[state])) &&
	       json_add(x, "database", path ? cJSON_CreateString(path) : cJSON_CreateNull()) &&
	       add_arguments(x, &p->args);
}

cJSON *sweep_json(const struct sweep *s)
{
	cJSON *o = cJSON_CreateObject();

	if (o && json_add(o, "schema", cJSON_CreateString("attnreplay-sweep-1")) &&
	    json_add(o, "file", cJSON_CreateString(s->path)) &&
	    json_add_real(o, "points_of_file", (double)s->n_point) &&
	    cJSON_AddArrayToObject(o, "points"))
		return o;
	cJSON_Delete(o);
	return NULL;
}
