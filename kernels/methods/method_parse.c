/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spellings of methods.
 *
 *   NAME[:KEY=VALUE,...]               a named composition, with changes
 *   select=NAME[,KEY=VALUE...]/union=NAME/exec=NAME
 *
 * Both are lists of assignments; a name stands for the assignments of its composition.  The keys
 * are select, union, exec and the parameters of the selector, which therefore comes first.
 *
 * They are for prefill.  After them, /decode=NAME[,KEY=VALUE...] names the part of decodes.
 */
#include "config.h"
#include "kernels/methods/plan.h"
#include "kernels/methods/shapes.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "kernels/select/plugin.h"

/* ---- lists of names, for messages ---- */

struct names {
	char text[192];
	size_t n;
};

static void names_add(struct names *l, const char *name)
{
	if (l->n < sizeof l->text)
		l->n += (size_t)snprintf(l->text + l->n, sizeof l->text - l->n, "%s%s",
					 l->n ? ", " : "", name);
}

static const char *names_of(const struct method_name *table, struct names *l)
{
	for (; table->name; table++)
		names_add(l, table->name);
	return l->text;
}

static enum ar_status unknown_name(const char *what, const char *name, struct ar_err *err)
{
	return ar_fail(err, AR_USAGE, "unknown %s '%s': want one that 'attnreplay methods' lists",
		       what, name);
}

/* clang-format off */
const struct opt decode_opts[] = {
	{ .name = "dense-layers", .type = OPT_INT,
	  .off = offsetof(struct method_part, dense_layers), .arg = "N", .def = "0",
	  .max = 1 << 16, .help = "the first N layers see every key" },
	{ .name = "min-tokens", .type = OPT_INT, .off = offsetof(struct method_part, min_tokens),
	  .arg = "N", .def = "0", .max = 1 << 30,
	  .help = "rows with fewer than N keys see every key" },
	{ 0 }
};
/* clang-format on */

/* Whether s has the parameters of decode_opts. */
static bool decodes(const struct selector *s)
{
	return s->gives == SHAPE_PIECES && !s->prunes;
}

/* Set g[4] to the parameters of a part, without reuse_opts where they are not in its record. */
static void part_groups(const struct method_part *p, bool record, struct opt_group *g)
{
	void *self = (void *)(uintptr_t)p;

	memset(g, 0, 4 * sizeof *g);
	g[0] = (struct opt_group){ .opts = p->selector->params, .base = p->param };
	if (!decodes(p->selector))
		return;
	g[1] = (struct opt_group){ .opts = decode_opts, .base = self };
	if (!record || reuse_on(&p->reuse))
		g[2] = (struct opt_group){ .opts = reuse_opts, .base = self };
}

static enum ar_status unknown_param(const struct method_part *p, const char *key,
				    struct ar_err *err)
{
	struct names l = { 0 };
	struct opt_group g[4];

	part_groups(p, false, g);
	for (int i = 0; g[i].opts; i++)
		for (const struct opt *o = g[i].opts; o->name; o++)
			names_add(&l, o->name);
	return ar_fail(err, AR_USAGE, "unknown parameter '%s': selector '%s' has %s", key,
		       p->selector->name, l.n ? l.text : "none");
}

/* ---- assignments ---- */

static enum ar_status set_selector(struct method_part *p, const char *value, struct ar_err *err)
{
	const struct selector *s = selector_find(value);
	struct opt_group g[4];

	if (p->selector)
		return ar_fail(err, AR_USAGE,
			       "select is given already: write the whole composition instead");
	if (!s)
		return unknown_name("selector", value, err);
	if (s->param_size) {
		p->param = calloc(1, s->param_size);
		if (!p->param)
			return ar_nomem(err);
	}
	p->selector = s;
	p->self = s->open ? NULL : p->param;
	p->dense = !s->ref;
	part_groups(p, false, g);
	return opt_init(g, err);
}

static enum ar_status set_union(struct method_part *p, const char *value, struct ar_err *err)
{
	for (const struct union_rule *u = unions; u->name; u++)
		if (!strcmp(u->name, value)) {
			p->u = u->kind;
			return AR_OK;
		}
	return unknown_name("union", value, err);
}

static enum ar_status set_executor(struct method_part *p, const char *value, struct ar_err *err)
{
	const struct executor *e = executor_find(value);

	if (!e)
		return unknown_name("executor", value, err);
	p->executor = e;
	return AR_OK;
}

static bool has_opt(const struct opt *o, const char *key)
{
	while (o->name && strcmp(o->name, key) != 0)
		o++;
	return o->name;
}

static bool takes_key(const struct method_part *p, const char *key)
{
	return !strcmp(key, "select") || !strcmp(key, "union") || !strcmp(key, "exec") ||
	       has_opt(p->selector->params, key);
}

static enum ar_status assign_param(struct method_part *p, const char *key, const char *value,
				   struct ar_err *err)
{
	struct opt_group g[4];

	if (!strcmp(key, "select"))
		return set_selector(p, value, err);
	if (!p->selector)
		return ar_fail(err, AR_USAGE, "'%s' comes before select=NAME: put select first",
			       key);
	if (!strcmp(key, "union"))
		return set_union(p, value, err);
	if (!strcmp(key, "exec"))
		return set_executor(p, value, err);
	part_groups(p, false, g);
	for (int i = 0; g[i].opts; i++)
		if (has_opt(g[i].opts, key))
			return opt_set(g, key, value, err);
	return unknown_param(p, key, err);
}

/* The separator before the next assignment: a comma, or a slash before union or exec, because file
 * names have slashes too.  NULL: there is none. */
static char *next_item(char *text)
{
	for (char *c = text; (c = strpbrk(c, ",/")); c++)
		if (*c == ',' || !strncmp(c, "/union=", 7) || !strncmp(c, "/exec=", 6))
			return c;
	return NULL;
}

/* Keys that p does not take are for `other`, if it has a selector. */
static enum ar_status assign_all(struct method_part *p, struct method_part *other, const char *text,
				 struct ar_err *err)
{
	char *copy = strdup(text), *item = copy, *next, *value;
	enum ar_status st = copy ? AR_OK : ar_nomem(err);

	for (; !st && item; item = next) {
		next = next_item(item);
		if (next)
			*next++ = 0;
		value = strchr(item, '=');
		if (!value || value == item || !value[1]) {
			st = ar_fail(err, AR_USAGE, "'%s': want NAME=VALUE", item);
			break;
		}
		*value++ = 0;
		st = assign_param(other && other->selector && !takes_key(p, item) ? other : p, item,
				  value, err);
	}
	free(copy);
	return st;
}

/* ---- compositions ---- */

static void shape_names(unsigned takes, struct names *l)
{
	for (const struct selection_shape *s = selection_shapes; s->bit; s++)
		if (takes & s->bit)
			names_add(l, s->title);
}

static enum ar_status check_composition(const struct method_part *p, struct ar_err *err)
{
	unsigned gives = method_shape(p);
	struct names takes = { 0 }, given = { 0 }, fit = { 0 };

	if (!p->executor)
		return ar_fail(err, AR_USAGE, "no executor: add /exec=NAME");
	if (!(gives & (SHAPE_MASK | SHAPE_TABLE)) && p->u != UNION_NONE)
		return ar_fail(err, AR_USAGE,
			       "selector '%s' %s, so there is nothing to unite: use union=none",
			       p->selector->name,
			       p->dense ? "keeps every block" : "has no block mask");
	if (p->executor->one_row)
		return ar_fail(err, AR_USAGE,
			       "executor '%s' is for requests of one row, not for prefill: give it "
			       "to decodes, /decode=dense",
			       p->executor->name);
	if (p->executor->takes & gives && method_tail(p) && !p->executor->tail)
		return ar_fail(err, AR_USAGE,
			       "executor '%s' reads only tables, but query blocks of the dense "
			       "tail see every block: use exec=paged, or no dense tail",
			       p->executor->name);
	if (p->executor->takes & gives)
		return p->selector->check ? p->selector->check(p->param, err) : AR_OK;
	shape_names(p->executor->takes, &takes);
	shape_names(gives, &given);
	for (int i = 0; executors[i]; i++)
		if (executor_takes(executors[i], gives))
			names_add(&fit, executors[i]->name);
	return ar_fail(err, AR_USAGE,
		       "executor '%s' takes %s, but select=%s with union=%s gives %s: "
		       "use exec=%s%s",
		       p->executor->name, takes.text, p->selector->name, unions[p->u].name,
		       given.text, fit.text,
		       gives == SHAPE_MASK && p->executor->takes & SHAPE_TABLE ? " or a union" :
										 "");
}

/* ---- the record ---- */

/* Move the members of *from to a new object, ordered by name. */
static cJSON *sorted(cJSON *from)
{
	cJSON *to = cJSON_CreateObject();

	while (to && from->child) {
		cJSON *least = from->child;

		for (cJSON *i = least->next; i; i = i->next)
			if (strcmp(i->string, least->string) < 0)
				least = i;
		cJSON_DetachItemViaPointer(from, least);
		if (!cJSON_AddItemToObject(to, least->string, least)) {
			cJSON_Delete(least);
			cJSON_Delete(to);
			return NULL;
		}
	}
	return to;
}

/* Of a selector from a file, which may change. */
static bool add_plugin(cJSON *o, const struct selector *s)
{
	const struct plugin *p = plugin_of(s);

	return !p || (cJSON_AddStringToObject(o, "selector-file", p->path) &&
		      cJSON_AddStringToObject(o, "selector-sha256", p->sha256));
}

/* The record of a part, its members ordered by name; NULL: no memory. */
static cJSON *part_json(const struct method_part *p)
{
	cJSON *all = cJSON_CreateObject(), *object = NULL;
	struct opt_group g[4];

	part_groups(p, true, g);
	if (all && cJSON_AddStringToObject(all, "select", p->selector->name) &&
	    cJSON_AddStringToObject(all, "union", unions[p->u].name) &&
	    cJSON_AddStringToObject(all, "exec", p->executor->name) && opt_json(g, all) &&
	    add_plugin(all, p->selector))
		object = sorted(all);
	cJSON_Delete(all);
	return object;
}

static bool add_evict(cJSON *o, const struct evict *e)
{
	cJSON *x = e ? evict_json(e) : NULL, *object = x ? sorted(x) : NULL;

	cJSON_Delete(x);
	return !e || json_add(o, "evict", object);
}

static bool add_skip(cJSON *o, const struct skip *s)
{
	cJSON *x = s ? skip_json(s) : NULL, *object = x ? sorted(x) : NULL;

	cJSON_Delete(x);
	return !s || json_add(o, "skip", object);
}

/* Make the record: the members of prefill, and an object for each other part.  Dense decodes have
 * no object. */
static char *params_json(const struct method *m)
{
	const struct method_part *decode = &m->part[ROW_DECODE];
	cJSON *all = part_json(method_prefill(m)), *object = NULL;
	char *text = NULL, *own = NULL;

	if (all && (decode->dense || json_add(all, "decode", part_json(decode))) &&
	    (!decode->prune || json_add(all, "prune", part_json(decode->prune))) &&
	    add_evict(all, m->evict) && add_skip(all, m->skip))
		object = sorted(all);
	if (object)
		text = cJSON_PrintUnformatted(object);
	if (text)
		own = strdup(text);
	cJSON_free(text);
	cJSON_Delete(object);
	cJSON_Delete(all);
	return own;
}

/* ---- parsing ---- */

static bool is_composition(const char *text)
{
	return !strncmp(text, "select=", 7);
}

/* The first n characters of text are METHOD@MODEL, with an unknown preset: list the presets of
 * METHOD. */
static enum ar_status unknown_preset(const char *text, size_t n, struct ar_err *err)
{
	size_t method = strcspn(text, "@");
	struct names l = { 0 };

	for (const struct method_name *i = method_names; i->name; i++)
		if (!strncmp(i->name, text, method + 1))
			names_add(&l, i->name + method + 1);
	return ar_fail(err, AR_USAGE, "%.*s has no preset '%.*s': %s%s%sgive its parameters",
		       (int)method, text, (int)(n - method - 1), text + method + 1,
		       l.n ? "want one of " : "", l.text, l.n ? ", or " : "");
}

static bool is_method(const char *text, size_t n)
{
	for (const struct method_name *i = method_names; i->name; i++)
		if (strlen(i->name) == n && !strncmp(i->name, text, n))
			return true;
	return false;
}

static const struct selector *selector_named(const char *text, size_t n)
{
	for (int i = 0; selectors[i]; i++)
		if (strlen(selectors[i]->name) == n && !strncmp(selectors[i]->name, text, n))
			return selectors[i];
	return NULL;
}

/* A selector stands alone, with ":PARAMETER=VALUE,..." or "" after it: name the composition with no
 * union and the first executor that takes its selection. */
static enum ar_status bare_selector(const struct selector *s, const char *params,
				    struct ar_err *err)
{
	unsigned gives = method_shape(&(struct method_part){ .selector = s, .dense = !s->ref });
	int i = 0;

	while (executors[i + 1] && !executor_takes(executors[i], gives))
		i++;
	return ar_fail(err, AR_USAGE,
		       "a selector, not a method; write select=%s%s%s/union=none/exec=%s", s->name,
		       *params ? "," : "", *params ? params + 1 : "", executors[i]->name);
}

static const struct method_name *named(const char *text)
{
	size_t n = strcspn(text, ":/");

	for (const struct method_name *i = method_names; i->name; i++)
		if (strlen(i->name) == n && !strncmp(i->name, text, n))
			return i;
	return NULL;
}

static enum ar_status unknown_method(const char *text, struct ar_err *err)
{
	size_t n = strcspn(text, ":");

	if (text[strcspn(text, "@:")] == '@' && is_method(text, strcspn(text, "@")))
		return unknown_preset(text, n, err);
	if (selector_named(text, n))
		return bare_selector(selector_named(text, n), text + n, err);
	return ar_fail(err, AR_USAGE,
		       "unknown name: want one that 'attnreplay methods' lists, or "
		       "select=NAME/union=NAME/exec=NAME");
}

static enum ar_status refuse_plan(struct ar_err *err)
{
	return ar_fail(err, AR_USAGE, "a plan of layers; give one method for all layers");
}

/* ---- parts after prefill's ---- */

const struct part_kind *part_kind_of(const char *text)
{
	for (const struct part_kind *k = part_kinds; k->key; k++) {
		size_t n = strlen(k->key);

		if (!strncmp(text, k->key, n) && text[n] == '=')
			return k;
	}
	return NULL;
}

/* Other slashes are text: file names have them. */
const char *method_parts(const char *text)
{
	while (*text && (*text != '/' || !part_kind_of(text + 1)))
		text++;
	return text;
}

static bool has_part(const char *text, const struct part_kind *kind)
{
	for (text = method_parts(text); *text; text = method_parts(text + 1))
		if (part_kind_of(text + 1) == kind)
			return true;
	return false;
}

bool method_has_part(const char *text, const struct part_kind *kind)
{
	const struct method_name *row = named(text);

	return has_part(text, kind) || (row && has_part(row->spec, kind));
}

/* The row of text, "NAME" with parameters after it; NULL: AR_USAGE in *err. */
static const struct method_name *find_part(const struct part_kind *k, const char *text,
					   struct ar_err *err)
{
	size_t n = strcspn(text, ",:/");
	struct names l = { 0 };

	for (const char *c = text; (c = strpbrk(c, ",:/")); c++)
		if (is_composition(c + 1) || !strncmp(c + 1, "union=", 6) ||
		    !strncmp(c + 1, "exec=", 5)) {
			ar_fail(err, AR_USAGE, "'%s' after /%s=: put it before", c + 1, k->key);
			return NULL;
		}
	for (const struct method_name *i = k->part; i->name; i++)
		if (strlen(i->name) == n && !strncmp(i->name, text, n))
			return i;
	ar_fail(err, AR_USAGE, "unknown %s part '%.*s': want one of %s", k->key, (int)n, text,
		names_of(k->part, &l));
	return NULL;
}

/* Take "KEY=NAME..." */
static enum ar_status take_part(struct method *m, const char *text, struct ar_err *err)
{
	const struct part_kind *k = part_kind_of(text);
	const char *name = text + strlen(k->key) + 1;
	const struct method_name *row = find_part(k, name, err);
	struct method_part *p = &m->part[ROW_DECODE];
	bool evicts = !strcmp(k->key, "evict"), prunes = !strcmp(k->key, "prune");
	bool skips = !strcmp(k->key, "skip");
	enum ar_status st;

	if (!row)
		return AR_USAGE;
	if (evicts ? m->evict != NULL :
	    skips  ? m->skip != NULL :
	    prunes ? p->prune != NULL :
		     p->selector != NULL)
		return ar_fail(err, AR_USAGE, "two %s parts; leave out '/%s'", k->key, text);
	if (evicts)
		return evict_parse(&m->evict, name, err);
	if (skips)
		return skip_parse(&m->skip, name, err);
	if (prunes) {
		p = p->prune = calloc(1, sizeof *p);
		if (!p)
			return ar_nomem(err);
	}
	name += strlen(row->name);
	st = assign_all(p, NULL, row->spec, err);
	return st || !*name ? st : assign_all(p, NULL, name + 1, err);
}

/* Take the parts of text, "/decode=dense/...", of which *but has none.  but NULL: all. */
static enum ar_status take_each(struct method *m, const char *text, const char *but,
				struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (const char *next; *text && !st; text = next) {
		char *part;

		next = method_parts(text + 1);
		if (but && has_part(but, part_kind_of(text + 1)))
			continue;
		part = strndup(text + 1, (size_t)(next - text - 1));
		st = part ? take_part(m, part, err) : ar_nomem(err);
		free(part);
	}
	return st;
}

/* A name stands for prefill's part and for others.  parts: those that the text has after it, which
 * win. */
static enum ar_status assign_named(struct method *m, char *text, const char *parts,
				   struct ar_err *err)
{
	struct method_part *prefill = &m->part[ROW_PREFILL], *decode = &m->part[ROW_DECODE];
	const struct method_name *row = named(text);
	const char *rest = row ? method_parts(row->spec) : NULL;
	char *own = row ? strndup(row->spec, (size_t)(rest - row->spec)) : NULL;
	enum ar_status st;

	if (!row)
		return unknown_method(text, err);
	st = own ? assign_all(prefill, NULL, own, err) : ar_nomem(err);
	free(own);
	if (!st)
		st = take_each(m, rest, parts, err);
	text += strlen(row->name);
	return st || !*text ? st : assign_all(prefill, decode, text + 1, err);
}

/* Fill the part for rows of a kind that the text does not name. */
static enum ar_status take_default(struct method_part *p, enum row_kind kind, struct ar_err *err)
{
	bool one_row = kind == ROW_DECODE || kind == ROW_REVIVED;

	return p->selector ?
		       AR_OK :
		       assign_all(p, NULL, (one_row ? decode_parts : method_names)->spec, err);
}

/* Check that the part for rows of a kind can skip what m says. */
static enum ar_status check_skip(struct method *m, enum row_kind kind, struct ar_err *err)
{
	const struct attn_skip skip = skip_of(m->skip, kind, &(struct attn_shape){ 0 });
	const struct executor *e = m->part[kind].executor;

	if (!attn_skip_on(&skip))
		return AR_OK;
	m->dense = false;
	m->part[kind].skips = e->skips;
	return e->skips ? AR_OK :
			  ar_fail(err, AR_USAGE,
				  "executor '%s' of %s skips no tiles; '%s' does: take that, or "
				  "leave %s out of /skip=softmax",
				  e->name, row_kind_name(kind),
				  kind == ROW_PREFILL ? "paged" : "decode", row_kind_name(kind));
}

static void part_release(struct method_part *p)
{
	if (p->prune)
		part_release(p->prune);
	free(p->prune);
	if (p->self && p->selector->close)
		p->selector->close(p->self);
	if (p->selector) {
		struct opt_group g[4];

		part_groups(p, false, g);
		opt_release(g);
	}
	free(p->param);
}

/* What a method has for decodes: what its text says, dense attention, or lists of others. */
enum variant { AS_IS, DENSE_DECODES, TAKES_LISTS };

/* Decodes of m share lists between layers.  Those that choose and see every key need no lists. */
static enum ar_status set_reuse(struct method *m, enum variant v, struct ar_err *err)
{
	struct method_part *p = &m->part[ROW_DECODE];
	enum ar_status st = reuse_check(&p->reuse, err);

	if (st || !reuse_on(&p->reuse))
		return st;
	if (m->evict && !m->evict->evictor->alike)
		return ar_fail(err, AR_USAGE,
			       "evictor '%s' keeps other tokens in each layer, so no layer can "
			       "take the lists of another: leave out reuse and reselect, or the "
			       "evictor",
			       m->evict->evictor->name);
	p->reuse.takes = v == TAKES_LISTS;
	if (p->prune)
		p->prune->reuse.takes = p->reuse.takes;
	if (reuse_sees_all(&p->reuse))
		p->executor = executor_find("decode");
	return AR_OK;
}

/* Fill the parts of m from text, which is changed. */
static enum ar_status take_parts(struct method *m, char *text, enum variant v, struct ar_err *err)
{
	struct method_part *prefill = &m->part[ROW_PREFILL], *decode = &m->part[ROW_DECODE];
	char *rest = strdup(method_parts(text));
	enum ar_status st;

	if (!rest)
		return ar_nomem(err);
	text[method_parts(text) - text] = 0;
	st = plan_is_text(text)	  ? refuse_plan(err) :
	     is_composition(text) ? assign_all(prefill, NULL, text, err) :
				    assign_named(m, text, rest, err);
	if (!st)
		st = check_composition(prefill, err);
	if (!st)
		st = take_each(m, rest, NULL, err);
	free(rest);
	if (v == DENSE_DECODES) {
		part_release(decode);
		*decode = (struct method_part){ 0 };
	}
	m->dense = true;
	for (int k = 0; k < ROW_KINDS && !st; k++) {
		st = take_default(&m->part[k], k, err);
		m->dense &= m->part[k].dense;
		if (!st)
			st = check_skip(m, k, err);
	}
	if (!st && decode->prune && decode->dense)
		st = ar_fail(
			err, AR_USAGE,
			"there are no lists to prune: add /decode=NAME, NAME other than dense");
	return st;
}

static enum ar_status parse_as(struct method **out, const char *text, enum variant v,
			       struct ar_err *err)
{
	struct method *m = calloc(1, sizeof *m);
	char *copy = strdup(text);
	enum ar_status st;

	*out = NULL;
	if (!m || !copy || !(m->name = strdup(text))) {
		st = ar_nomem(err);
		goto out;
	}
	st = take_parts(m, copy, v, err);
	if (!st && !(m->params = params_json(m)))
		st = ar_nomem(err);
	if (!st)
		st = set_reuse(m, v, err);
	if (st) {
		ar_err_prefix(err, "method '%s'", text);
		goto out;
	}
	if (v == AS_IS && m->part[ROW_DECODE].dense_layers)
		st = parse_as(&m->first, text, DENSE_DECODES, err);
	if (!st && v == AS_IS && reuse_on(&m->part[ROW_DECODE].reuse))
		st = parse_as(&m->later, text, TAKES_LISTS, err);
	if (st)
		goto out;
	*out = m;
	m = NULL;
out:
	free(copy);
	method_free(m);
	return st;
}

enum ar_status method_parse(struct method **out, const char *text, struct ar_err *err)
{
	return parse_as(out, text, AS_IS, err);
}

void method_free(struct method *m)
{
	if (!m)
		return;
	for (int k = 0; k < ROW_KINDS; k++)
		part_release(&m->part[k]);
	method_free(m->first);
	method_free(m->later);
	evict_free(m->evict);
	free(m->skip);
	free(m->name);
	free(m->params);
	free(m);
}

/* ---- lists of methods ---- */

/* The piece after a comma begins a method unless it is KEY=VALUE with another key than select or
 * plan. */
static bool begins_method(const char *piece)
{
	return piece[strcspn(piece, "=:,/")] != '=' || is_composition(piece) || plan_file(piece);
}

static void free_strings(char **v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(v[i]);
	free(v);
}

enum ar_status method_split(const char *text, char ***out, size_t *n, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	size_t used = 0, cap = 1;
	char **v;

	for (const char *c = text; *c; c++)
		cap += *c == ',';
	v = calloc(cap, sizeof *v);
	if (!v)
		return ar_nomem(err);
	for (const char *begin = text, *end; begin; begin = *end ? end + 1 : NULL) {
		end = begin + strcspn(begin, ",");
		while (*end && !begins_method(end + 1))
			end += 1 + strcspn(end + 1, ",");
		if (end == begin)
			st = ar_fail(err, AR_USAGE, "empty method name in '%s'", text);
		else if (!(v[used++] = strndup(begin, (size_t)(end - begin))))
			st = ar_nomem(err);
		if (st)
			goto out;
	}
	*out = v;
	*n = used;
	v = NULL;
out:
	if (v)
		free_strings(v, used);
	return st;
}
