/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/run.h"

#include <cjson/cJSON.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Rewrite the object as SQLite does: keys in order, true as 1, a list as a text.  Databases hold
 * this form, and only runs with equal text are compared. */
static char *in_sqlite_form(const char *json)
{
	static const char sql[] = "SELECT json_group_object(key, value) FROM "
				  "(SELECT key, value FROM json_each(?1) ORDER BY key)";
	sqlite3_stmt *q = NULL;
	sqlite3 *db = NULL;
	const char *text = NULL;
	char *copy;

	if (!sqlite3_open(":memory:", &db) && !sqlite3_prepare_v2(db, sql, -1, &q, NULL) &&
	    !sqlite3_bind_text(q, 1, json, -1, SQLITE_STATIC) && sqlite3_step(q) == SQLITE_ROW)
		text = (const char *)sqlite3_column_text(q, 0);
	copy = text ? strdup(text) : NULL;
	sqlite3_finalize(q);
	sqlite3_close(db);
	return copy;
}

char *run_setup(const struct opt_group *g)
{
	cJSON *object = cJSON_CreateObject();
	bool complete = object && opt_json(g, object);
	char *json, *setup;

	for (; g->opts; g++)
		for (const struct opt *o = g->opts; o->name; o++)
			if (o->may_differ)
				cJSON_DeleteItemFromObjectCaseSensitive(object, o->name);
	json = complete ? cJSON_PrintUnformatted(object) : NULL;
	setup = json ? in_sqlite_form(json) : NULL;
	free(json);
	cJSON_Delete(object);
	return setup;
}

static char *options_json(const struct opt_group *g)
{
	cJSON *object = cJSON_CreateObject();
	char *s = object && opt_json(g, object) ? cJSON_PrintUnformatted(object) : NULL;

	cJSON_Delete(object);
	return s;
}

static int64_t now_utc_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

enum ar_status run_describe(struct run_session *s, struct ar_err *err)
{
	s->command_utc_ns = s->o.resumed ? s->o.resumed->command_utc_ns : now_utc_ns();
	s->options = options_json(s->o.group);
	s->defaults = run_defaults_text(&s->o);
	s->setup = s->o.db ? run_setup(s->o.group) : NULL;
	return s->options && s->cmdline && s->defaults && (!s->o.db || s->setup) ? AR_OK :
										   ar_nomem(err);
}
