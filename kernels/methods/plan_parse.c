/* SPDX-License-Identifier: Apache-2.0 */
/* Spellings of plans. */
#include "config.h"
#include "kernels/methods/plan.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/json.h"
#include "base/number.h"
#include "base/text.h"

enum { FILE_MAX = 1 << 20 };

/* ---- droppers ---- */

/* The "+NAME" or "+NAME:..." in text, or NULL.  A plus sign of a number or of a file name that goes
 * on with other characters is none. */
static char *find_dropper(char *text)
{
	for (; (text = strchr(text, '+')); text++) {
		size_t n = strspn(text + 1, "abcdefghijklmnopqrstuvwxyz0123456789-");

		if (islower((unsigned char)text[1]) && (!text[1 + n] || text[1 + n] == ':'))
			return text;
	}
	return NULL;
}

static bool begins_with_dropper(const char *text)
{
	size_t n = strcspn(text, ":");

	for (int i = 0; droppers[i]; i++)
		if (strlen(droppers[i]->name) == n && !strncmp(text, droppers[i]->name, n))
			return true;
	return false;
}

/* A dropper after the first one, which ends text or begins within dropper; NULL: there is none. */
static const char *second_dropper(char *text, char *dropper)
{
	const char *in_text = find_dropper(text), *in_params = find_dropper(dropper);

	if (in_params && begins_with_dropper(in_params + 1))
		return in_params + 1;
	return begins_with_dropper(text) || (in_text && begins_with_dropper(in_text + 1)) ?
		       dropper :
		       NULL;
}

/* Take the dropper from the end of text, the name of p. */
static enum ar_status take_dropper(struct plan *p, char *text, struct ar_err *err)
{
	char *dropper = find_dropper(text);
	const char *second;
	enum ar_status st;

	if (!dropper)
		return AR_OK;
	*dropper++ = 0;
	second = second_dropper(text, dropper);
	st = second ? ar_fail(err, AR_USAGE,
			      "two droppers, but a method takes one; leave out '+%s'", second) :
		      drop_parse(&p->drop, dropper, err);
	if (st == AR_USAGE)
		ar_err_prefix(err, "method '%s'", p->name);
	return st;
}

/* ---- ranges ---- */

char *plan_layers(const struct plan_range *r, char *buf, size_t n)
{
	if (r->last == r->first)
		snprintf(buf, n, "%d", r->first);
	else if (r->last == PLAN_TO_LAST)
		snprintf(buf, n, "%d-", r->first);
	else
		snprintf(buf, n, "%d-%d", r->first, r->last);
	return buf;
}

/* text[0..n) is N, N-M or N-. */
static bool parse_range(const char *text, size_t n, struct plan_range *r)
{
	bool open = n && text[n - 1] == '-';
	uint64_t from, to;

	if (!num_range(text, n - open, &from, &to) || to >= INT_MAX ||
	    (open && memchr(text, '-', n - 1)))
		return false;
	*r = (struct plan_range){ (int)from, open ? PLAN_TO_LAST : (int)to, 0 };
	return true;
}

/* Whether range a, which begins no later than b, reaches into b. */
static bool reaches(const struct plan_range *a, const struct plan_range *b)
{
	return a->last == PLAN_TO_LAST || a->last >= b->first;
}

static enum ar_status insert_range(struct plan *p, const struct plan_range *r, struct ar_err *err)
{
	struct plan_range *v;
	char a[32], b[32];
	size_t i = p->n_range;

	if (!GROW(p->range, p->cap_range, p->n_range + 1))
		return ar_nomem(err);
	v = p->range;
	for (; i && v[i - 1].first > r->first; i--)
		v[i] = v[i - 1];
	v[i] = *r;
	p->n_range++;
	if (i && reaches(&v[i - 1], &v[i]))
		i--;
	else if (i + 1 == p->n_range || !reaches(&v[i], &v[i + 1]))
		return AR_OK;
	return ar_fail(err, AR_USAGE, "layers %s and %s overlap; give each layer one method",
		       plan_layers(&v[i], a, sizeof a), plan_layers(&v[i + 1], b, sizeof b));
}

/* ---- methods ---- */

/* Add a method unless there is one with its parameters.  *at: its place. */
static enum ar_status add_method(struct plan *p, const char *text, size_t *at, struct ar_err *err)
{
	struct method *m;
	enum ar_status st;

	if (!GROW(p->method, p->cap_method, p->n_method + 1))
		return ar_nomem(err);
	st = method_parse(&m, text, err);
	if (st)
		return st;
	for (*at = 0; *at < p->n_method && strcmp(p->method[*at]->params, m->params) != 0;)
		++*at;
	if (*at < p->n_method)
		method_free(m);
	else
		p->method[p->n_method++] = m;
	return AR_OK;
}

/* layers[0..n) are the layers of a method. */
static enum ar_status add_layers(struct plan *p, const char *layers, size_t n, const char *method,
				 struct ar_err *err)
{
	struct plan_range r;
	enum ar_status st;

	if (!parse_range(layers, n, &r))
		return ar_fail(err, AR_USAGE, "layers '%.*s': want N, N-M or N-, such as 0-3",
			       (int)n, layers);
	st = add_method(p, method, &r.method, err);
	return st ? st : insert_range(p, &r, err);
}

/* ---- plans ---- */

const char *plan_file(const char *text)
{
	static const char key[] = "plan=";
	const size_t n = sizeof key - 1;

	return strncmp(text, key, n) ? NULL : text + n;
}

bool plan_is_text(const char *text)
{
	return isdigit((unsigned char)*text) || strchr(text, ';') || plan_file(text);
}

static enum ar_status add_item(struct plan *p, const char *item, struct ar_err *err)
{
	const char *colon = strchr(item, ':');

	if (!colon || !isdigit((unsigned char)*item))
		return ar_fail(err, AR_USAGE, "'%s': want LAYERS:METHOD, such as 0-3:dense", item);
	return add_layers(p, item, (size_t)(colon - item), colon + 1, err);
}

/* text is changed. */
static enum ar_status add_items(struct plan *p, char *text, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (char *item; !st && (item = strsep(&text, ";"));)
		st = add_item(p, item, err);
	if (st == AR_USAGE)
		ar_err_prefix(err, "method '%s'", p->name);
	return st;
}

static enum ar_status add_line(struct plan *p, char *line, struct ar_err *err)
{
	size_t n;

	line[strcspn(line, "#")] = 0;
	line = opt_trim(line);
	n = strcspn(line, " \t");
	if (!*line)
		return AR_OK;
	if (!line[n])
		return ar_fail(err, AR_USAGE, "'%s': want LAYERS METHOD, such as '0-3 dense'",
			       line);
	return add_layers(p, line, n, opt_trim(line + n), err);
}

static enum ar_status add_file(struct plan *p, const char *path, struct ar_err *err)
{
	char *text = NULL, *rest;
	int number = 0;
	enum ar_status st = text_read(&text, path, FILE_MAX, err);

	rest = text;
	for (char *line; !st && (line = strsep(&rest, "\n"));) {
		number++;
		st = add_line(p, line, err);
		if (st)
			ar_err_prefix(err, "%s:%d", path, number);
	}
	free(text);
	if (!st && !p->n_range)
		st = ar_fail(err, AR_USAGE, "%s: no lines; want LAYERS METHOD in each", path);
	return st;
}

/* Equal plans have equal ranges. */
static void join_ranges(struct plan *p)
{
	size_t n = 0;

	for (size_t i = 1; i < p->n_range; i++) {
		struct plan_range *r = &p->range[n], *next = &p->range[i];

		if (r->method == next->method && r->last + 1 == next->first)
			r->last = next->last;
		else
			p->range[++n] = *next;
	}
	p->n_range = n + 1;
}

/* text is changed. */
static enum ar_status add_methods(struct plan *p, char *text, struct ar_err *err)
{
	const char *path = plan_file(text);

	if (!plan_is_text(text))
		return add_layers(p, "0-", 2, text, err);
	return path ? add_file(p, path, err) : add_items(p, text, err);
}

/* The text in full: a dropper alone drops from dense attention. */
static char *spell_out(const char *text)
{
	char *full = NULL;

	if (!begins_with_dropper(text))
		return strdup(text);
	return asprintf(&full, "dense+%s", text) < 0 ? NULL : full;
}

static enum ar_status add_all(struct plan *p, struct ar_err *err)
{
	char *copy = spell_out(p->name);
	enum ar_status st = copy ? take_dropper(p, copy, err) : ar_nomem(err);

	if (!st)
		st = add_methods(p, copy, err);
	free(copy);
	return st;
}

/* ---- parts from elsewhere ---- */

struct part_list {
	char **v;
	size_t n;
};

/* Write the plan with this part in each of its methods that has none; *given: there is one. */
static enum ar_status put_with_part(FILE *f, const char *plan, const struct part_kind *kind,
				    const char *part, bool *given, struct ar_err *err)
{
	char *copy = spell_out(plan), *rest = copy, *dropper;
	const char *sep = "";

	if (!copy)
		return ar_nomem(err);
	dropper = find_dropper(copy);
	if (dropper)
		*dropper++ = 0;
	for (char *item; (item = strsep(&rest, ";")); sep = ";") {
		fprintf(f, "%s%s", sep, item);
		if (method_has_part(plan_is_text(plan) ? item + strcspn(item, ":") + 1 : item,
				    kind))
			continue;
		fprintf(f, "/%s=%s", kind->key, part);
		*given = true;
	}
	if (dropper)
		fprintf(f, "+%s", dropper);
	free(copy);
	return AR_OK;
}

/* Write the plan with each of the parts; once, if it has such a part already. */
static enum ar_status put_with_parts(FILE *f, const char *plan, const struct part_kind *kind,
				     const struct part_list *parts, bool *given, struct ar_err *err)
{
	bool own = false;
	enum ar_status st = AR_OK;

	if (plan_file(plan))
		return ar_fail(err, AR_USAGE,
			       "method '%s': the methods of a file have their parts there; write "
			       "/%s=NAME into its lines, or leave out --%s",
			       plan, kind->key, kind->key);
	for (size_t i = 0; i < parts->n && !st && (!i || own); i++) {
		if (ftell(f) > 0)
			fputc(',', f);
		st = put_with_part(f, plan, kind, parts->v[i], &own, err);
	}
	*given |= own;
	return st;
}

static void list_release(struct part_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
}

enum ar_status plan_give_parts(char **list, const struct part_kind *kind, const char *parts,
			       struct ar_err *err)
{
	struct part_list plan = { 0 }, part = { 0 };
	char *text = NULL;
	size_t size;
	bool given = false;
	FILE *f = open_memstream(&text, &size);
	enum ar_status st = f ? method_split(*list, &plan.v, &plan.n, err) : ar_nomem(err);

	if (!st)
		st = method_split(parts, &part.v, &part.n, err);
	for (size_t i = 0; i < plan.n && !st; i++)
		st = put_with_parts(f, plan.v[i], kind, &part, &given, err);
	if (f && fclose(f) && !st)
		st = ar_nomem(err);
	if (!st && !given)
		st = ar_fail(err, AR_USAGE,
			     "%s has no effect: every method has its own /%s=NAME; leave it out",
			     kind->key, kind->key);
	list_release(&plan);
	list_release(&part);
	if (st) {
		free(text);
		return st;
	}
	free(*list);
	*list = text;
	return AR_OK;
}

/* ---- the record ---- */

static cJSON *range_json(const struct plan *p, const struct plan_range *r)
{
	cJSON *o = cJSON_CreateObject();
	char layers[32];

	if (o && json_add(o, "layers", cJSON_CreateString(plan_layers(r, layers, sizeof layers))) &&
	    json_add(o, "method", cJSON_Parse(p->method[r->method]->params)))
		return o;
	cJSON_Delete(o);
	return NULL;
}

static cJSON *ranges_json(const struct plan *p)
{
	cJSON *root = cJSON_CreateObject(), *list = cJSON_CreateArray();
	bool done = json_add(root, "plan", list);

	for (size_t i = 0; i < p->n_range && done; i++)
		done = json_add(list, NULL, range_json(p, &p->range[i]));
	if (done)
		return root;
	cJSON_Delete(root);
	return NULL;
}

static char *params_json(const struct plan *p)
{
	const struct method *m = plan_single(p);
	cJSON *root = m ? cJSON_Parse(m->params) : ranges_json(p);
	char *text = NULL, *own = NULL;

	if (root && (!p->drop || json_add(root, "drop", drop_json(p->drop))))
		text = cJSON_PrintUnformatted(root);
	if (text)
		own = strdup(text);
	cJSON_free(text);
	cJSON_Delete(root);
	return own;
}

/* All layers store the same tokens of a request. */
static enum ar_status check_evict(const struct plan *p, struct ar_err *err)
{
	for (size_t i = 0; i < p->n_method; i++) {
		if (p->method[i]->evict && p->n_method > 1)
			return ar_fail(err, AR_USAGE,
				       "method '%s': a plan of layers has no evict part, as all "
				       "layers store the same tokens; give one method for all "
				       "layers",
				       p->name);
		if (p->method[i]->evict && p->drop)
			return ar_fail(err, AR_USAGE,
				       "method '%s': a dropper and an evict part do not go "
				       "together; leave one out",
				       p->name);
	}
	return AR_OK;
}

enum ar_status plan_parse(struct plan **out, const char *text, struct ar_err *err)
{
	struct plan *p = calloc(1, sizeof *p);
	enum ar_status st = p && (p->name = strdup(text)) ? add_all(p, err) : ar_nomem(err);

	*out = NULL;
	if (!st)
		st = check_evict(p, err);
	if (!st)
		join_ranges(p);
	if (!st)
		p->params = params_json(p);
	if (!st && !p->params)
		st = ar_nomem(err);
	if (st) {
		plan_free(p);
		return st;
	}
	p->dense = !p->drop && !plan_evict(p);
	for (size_t i = 0; i < p->n_method; i++)
		p->dense &= p->method[i]->dense;
	*out = p;
	return AR_OK;
}

void plan_free(struct plan *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_method; i++)
		method_free(p->method[i]);
	free(p->method);
	drop_free(p->drop);
	free(p->range);
	free(p->name);
	free(p->params);
	free(p);
}

const struct evict *plan_evict(const struct plan *p)
{
	return p->method[0]->evict;
}

bool plan_dense_rows(const struct plan *p, enum row_kind kind)
{
	bool dense = true;

	for (size_t i = 0; i < p->n_method; i++)
		dense &= p->method[i]->part[kind].dense && !p->method[i]->part[kind].skips;
	return dense;
}

bool plan_dense_decodes(const struct plan *p)
{
	return !plan_evict(p) && plan_dense_rows(p, ROW_DECODE);
}

const struct plugin *plan_plugin(const struct plan *p)
{
	const struct plugin *x = NULL;

	for (size_t i = 0; i < p->n_method && !x; i++)
		x = plugin_of(method_prefill(p->method[i])->selector);
	return x;
}

struct method *plan_single(const struct plan *p)
{
	return p->n_method == 1 ? p->method[0] : NULL;
}
