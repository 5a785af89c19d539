/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/methods_json.h"

#include <string.h>

#include "base/json.h"
#include "base/opt.h"
#include "kernels/drop/dropper.h"
#include "kernels/methods/shapes.h"

static cJSON *document(void)
{
	cJSON *o = cJSON_CreateObject();

	if (cJSON_AddStringToObject(o, "schema", "attnreplay-methods-1"))
		return o;
	cJSON_Delete(o);
	return NULL;
}

/* Add an entry to a list.  Returns it, owned by the list; NULL: no memory. */
static cJSON *json_entry(cJSON *list, const char *name, const char *title)
{
	cJSON *o = cJSON_CreateObject();

	return json_add(list, NULL, o) && cJSON_AddStringToObject(o, "name", name) &&
			       cJSON_AddStringToObject(o, "title", title) ?
		       o :
		       NULL;
}

static bool wanted(const char *name, const char *only)
{
	return !only || !strcmp(name, only);
}

static bool add_choices(cJSON *o, const struct opt *p)
{
	cJSON *a = cJSON_AddArrayToObject(o, "choices");
	bool done = a;

	for (int i = 0; done && p->choice[i]; i++)
		done = json_add(a, NULL, cJSON_CreateString(p->choice[i]));
	return done;
}

/* Values are strings, as a user would type them. */
static bool add_params(cJSON *o, const struct opt *params)
{
	cJSON *a = cJSON_AddArrayToObject(o, "parameters");
	bool done = a;

	for (const struct opt *p = params; done && p->name; p++) {
		cJSON *x = cJSON_CreateObject();

		done = json_add(a, NULL, x) && cJSON_AddStringToObject(x, "name", p->name) &&
		       cJSON_AddStringToObject(x, "meaning", p->help) &&
		       json_add(x, "default",
				p->def ? cJSON_CreateString(p->def) : cJSON_CreateNull());
		if (done && p->type == OPT_ENUM)
			done = add_choices(x, p);
		if (done && p->min < p->max)
			done = json_add_real(x, "min", p->min) && json_add_real(x, "max", p->max);
	}
	return done;
}

/* presets: add the names with a @; else add the others. */
static enum ar_status add_names(cJSON *o, const char *key, bool presets, const char *only,
				struct ar_err *err)
{
	cJSON *a = cJSON_AddArrayToObject(o, key);
	enum ar_status st = a ? AR_OK : ar_nomem(err);

	for (const struct method_name *n = method_names; n->name && !st; n++) {
		struct method *m;
		cJSON *x;

		if (presets != !!strchr(n->name, '@') || !wanted(n->name, only))
			continue;
		st = method_parse(&m, n->spec, err);
		if (st)
			return st;
		x = json_entry(a, n->name, n->title);
		if (!x || !cJSON_AddStringToObject(x, "is", n->spec) ||
		    !cJSON_AddStringToObject(x, "from", n->origin) ||
		    !json_add(x, "values", cJSON_Parse(m->params)))
			st = ar_nomem(err);
		method_free(m);
	}
	return st;
}

static bool add_selectors(cJSON *o, const char *only)
{
	cJSON *a = cJSON_AddArrayToObject(o, "selectors");
	bool done = a;

	for (int i = 0; done && selectors[i]; i++)
		if (wanted(selectors[i]->name, only)) {
			cJSON *x = json_entry(a, selectors[i]->name, selectors[i]->title);

			done = x && cJSON_AddStringToObject(x, "from", selectors[i]->origin) &&
			       add_params(x, selectors[i]->params);
		}
	return done;
}

static bool add_droppers(cJSON *o, const char *only)
{
	cJSON *a = cJSON_AddArrayToObject(o, "droppers");
	bool done = a;

	for (int i = 0; done && droppers[i]; i++)
		if (wanted(droppers[i]->name, only)) {
			cJSON *x = json_entry(a, droppers[i]->name, droppers[i]->title);

			done = x && cJSON_AddStringToObject(x, "from", droppers[i]->origin) &&
			       add_params(x, droppers[i]->params);
		}
	return done;
}

static bool add_parts(cJSON *o, const char *only)
{
	cJSON *a = cJSON_AddArrayToObject(o, "parts");
	bool done = a;

	for (const struct part_kind *k = part_kinds; k->key; k++)
		for (const struct method_name *p = k->part; done && p->name; p++)
			if (wanted(p->name, only)) {
				cJSON *x = json_entry(a, p->name, p->title);

				done = x && cJSON_AddStringToObject(x, "kind", k->key) &&
				       cJSON_AddStringToObject(x, "is", p->spec) &&
				       cJSON_AddStringToObject(x, "from", p->origin);
			}
	return done;
}

static bool add_unions(cJSON *o, const char *only)
{
	cJSON *a = cJSON_AddArrayToObject(o, "unions");
	bool done = a;

	for (const struct union_rule *u = unions; done && u->name; u++)
		if (wanted(u->name, only))
			done = json_entry(a, u->name, u->title);
	return done;
}

static bool add_takes(cJSON *o, const struct executor *e)
{
	cJSON *a = cJSON_AddArrayToObject(o, "takes");
	bool done = a;

	for (const struct selection_shape *s = selection_shapes; done && s->bit; s++)
		if (e->takes & s->bit)
			done = json_add(a, NULL, cJSON_CreateString(s->title));
	return done;
}

static bool add_executors(cJSON *o, const char *only)
{
	cJSON *a = cJSON_AddArrayToObject(o, "executors");
	bool done = a;

	for (int i = 0; done && executors[i]; i++)
		if (!executors[i]->one_row && wanted(executors[i]->name, only)) {
			cJSON *x = json_entry(a, executors[i]->name, executors[i]->title);

			done = x && add_takes(x, executors[i]) &&
			       cJSON_AddStringToObject(x, "from", executors[i]->origin);
		}
	return done;
}

enum ar_status methods_json(cJSON **out, const char *only, struct ar_err *err)
{
	cJSON *o = document();
	enum ar_status st = o ? AR_OK : ar_nomem(err);

	if (!st)
		st = add_names(o, "methods", false, only, err);
	if (!st)
		st = add_names(o, "presets", true, only, err);
	if (!st && !(add_selectors(o, only) && add_unions(o, only) && add_executors(o, only) &&
		     add_droppers(o, only) && add_parts(o, only)))
		st = ar_nomem(err);
	if (st)
		cJSON_Delete(o);
	*out = st ? NULL : o;
	return st;
}

cJSON *methods_json_of(const struct method *m)
{
	cJSON *o = document();

	if (o && cJSON_AddStringToObject(o, "method", m->name) &&
	    json_add(o, "values", cJSON_Parse(m->params)))
		return o;
	cJSON_Delete(o);
	return NULL;
}
