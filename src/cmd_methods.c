/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay methods: show the values of --method.  Everything is printed from the tables that the
 * parser uses. */
#include "config.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "kernels/drop/dropper.h"
#include "kernels/methods/shapes.h"
#include "kernels/select/plugin.h"
#include "src/cmd.h"
#include "src/json_file.h"
#include "src/methods_json.h"
#include "src/methods_support.h"

struct args {
	bool all, support;
	int64_t head_dim, page_tok;
	char *cc, *json;
	struct opt_list selectors;
};

/* clang-format off */
static const struct opt opts[] = {
	{ .name = "all", .type = OPT_FLAG, .off = offsetof(struct args, all), .letter = 'a',
	  .help = "list every entry in full, and what can be combined" },
	{ .name = "support", .type = OPT_FLAG, .off = offsetof(struct args, support),
	  .help = "show what each family of CUDA kernels supports, and lacks of what is required" },
	{ .name = "head-dim", .type = OPT_INT, .off = offsetof(struct args, head_dim), .arg = "N",
	  .max = 65536, .help = "with --support, the required head size; 0: 128" },
	{ .name = "block-size", .type = OPT_INT, .off = offsetof(struct args, page_tok), .arg = "N",
	  .max = 65536,
	  .help = "with --support, the required tokens of a page; 0: the method's, or 128" },
	{ .name = "cc", .type = OPT_STR, .off = offsetof(struct args, cc), .arg = "X.Y",
	  .help = "with --support, the compute capability of the GPU; default: of this GPU, or "
		  "any" },
	{ .name = "json", .type = OPT_STR, .off = offsetof(struct args, json), .arg = "FILE",
	  .help = "write all that is known of the entries to FILE as JSON, too; -: to standard "
		  "output, alone" },
	PLUGIN_OPT(offsetof(struct args, selectors)),
	{ 0 }
};
/* clang-format on */

static void show_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	const struct opt_group g[] = { { .title = "Options", .opts = opts }, { 0 } };

	show(g, f);
}

/* State while lists of names are printed: methods, presets, selectors, ... */
struct listing {
	const char *only; /* print this name only; NULL: all */
	bool full;	  /* print more than a line for each name */
	const char *head;
	int n, n_all;
	int width; /* of names */
};

static void begin_list(struct listing *l, const char *head, int width)
{
	l->head = head;
	l->n = 0;
	l->width = width;
}

/* Print an entry unless l->only excludes it.  True: it was printed. */
static bool list_entry(struct listing *l, const char *name, const char *title)
{
	if (l->only && strcmp(l->only, name))
		return false;
	if (!l->n++)
		printf("%s%s:\n", l->n_all ? "\n" : "", l->head);
	l->n_all++;
	printf("  %-*s %s\n", l->width, name, title);
	return true;
}

static void note(const char *label, const char *text)
{
	printf("    %-6s %s\n", label, text);
}

/* Write value v of a parameter as the user would type it. v NULL: write an empty string. */
static void value_text(const cJSON *v, char *buf, size_t n)
{
	if (cJSON_IsString(v))
		snprintf(buf, n, "%s", v->valuestring);
	else if (cJSON_IsBool(v))
		snprintf(buf, n, "%d", cJSON_IsTrue(v));
	else if (v)
		snprintf(buf, n, "%.15g", v->valuedouble);
	else
		*buf = 0;
}

/* Write the choices or the range of a parameter, or an empty string if its type says enough. */
static void range_text(const struct opt *o, char *buf, size_t n)
{
	size_t at = 0;

	*buf = 0;
	if (o->type == OPT_ENUM)
		for (int i = 0; o->choice[i] && at < n; i++)
			at += (size_t)snprintf(buf + at, n - at, "%s%s", i ? "|" : "",
					       o->choice[i]);
	else if (o->type != OPT_FLAG && o->min < o->max)
		snprintf(buf, n, "%.15g to %.15g", o->min, o->max);
}

/* Print a table of parameters. value: the method's values, by name; NULL: the selector's
 * defaults. */
static void show_params(const struct opt *params, const cJSON *value)
{
	for (const struct opt *o = params; o->name; o++) {
		bool flag = o->type == OPT_FLAG;
		char key[32], def[32], range[48];

		snprintf(key, sizeof key, "%s=%s", o->name, flag ? "0|1" : o->arg);
		if (value)
			value_text(cJSON_GetObjectItem(value, o->name), def, sizeof def);
		else
			snprintf(def, sizeof def, "%s", o->def ? o->def : "");
		range_text(o, range, sizeof range);
		if (o == params)
			puts("    parameter        default  range       meaning");
		printf("    %-15s  %-7s  %-10s  %s\n", key, def, range, o->help);
	}
}

static enum ar_status show_evict_params(const struct evict *e, struct ar_err *err)
{
	cJSON *value = evict_json(e);

	if (value)
		show_params(e->evictor->params, value);
	cJSON_Delete(value);
	return value ? AR_OK : ar_nomem(err);
}

/* Print the parameters of a part; dense decodes have none. */
static enum ar_status show_part_params(const struct part_kind *k, const struct method_name *part,
				       struct ar_err *err)
{
	cJSON *value = cJSON_CreateObject();
	struct method_part *p;
	struct method *m;
	char text[64];
	enum ar_status st;

	/* a pruner needs lists */
	snprintf(text, sizeof text, "dense%s/%s=%s",
		 k->part == prune_parts ? "/decode=streaming" : "", k->key, part->name);
	st = method_parse(&m, text, err);
	if (!st) {
		p = &m->part[ROW_DECODE];
		p = p->prune ? p->prune : p;
		if (!opt_json((struct opt_group[4]){ { .opts = p->selector->params,
						       .base = p->param },
						     { .opts = decode_opts, .base = p },
						     { .opts = reuse_opts, .base = p } },
			      value))
			st = ar_nomem(err);
		else if (m->evict)
			st = show_evict_params(m->evict, err);
		else if (m->skip)
			show_params(skip_opts, NULL);
		else if (!p->dense) {
			show_params(p->selector->params, value);
			if (k->part == decode_parts) {
				show_params(decode_opts, value);
				show_params(reuse_opts, value);
			}
		}
	}
	cJSON_Delete(value);
	method_free(m);
	return st;
}

static enum ar_status show_named(const struct method_name *name, bool with_params,
				 struct ar_err *err)
{
	struct method *m;
	enum ar_status st = method_parse(&m, name->spec, err);
	cJSON *value;

	if (st)
		return st;
	note("is", name->spec);
	note("from", name->origin);
	value = cJSON_Parse(m->params);
	if (!value)
		st = ar_nomem(err);
	else if (with_params)
		show_params(method_prefill(m)->selector->params, value);
	cJSON_Delete(value);
	method_free(m);
	return st;
}

static void show_executor(const struct executor *e)
{
	const char *sep = "    takes  ";

	for (const struct selection_shape *s = selection_shapes; s->bit; s++)
		if (e->takes & s->bit) {
			printf("%s%s", sep, s->title);
			sep = ", ";
		}
	putchar('\n');
}

static enum ar_status show_names(struct listing *l, bool presets, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (const struct method_name *m = method_names; m->name && !st; m++)
		if (presets == !!strchr(m->name, '@') && list_entry(l, m->name, m->title) &&
		    l->full)
			st = show_named(m, !presets || l->only, err);
	return st;
}

static enum ar_status show_parts(struct listing *l, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (const struct part_kind *k = part_kinds; k->key && !st; k++) {
		char head[128];

		snprintf(head, sizeof head, "%s, --method METHOD/%s=NAME[,PARAMETER=VALUE...]",
			 k->title, k->key);
		begin_list(l, head, 13);
		for (const struct method_name *p = k->part; p->name && !st; p++)
			if (list_entry(l, p->name, p->title) && l->full) {
				note("is", p->spec);
				note("from", p->origin);
				st = show_part_params(k, p, err);
			}
	}
	return st;
}

/* ---- pairs that go together ---- */

static unsigned shape_given(const struct selector *s, enum union_kind u)
{
	return method_shape(&(struct method_part){ .selector = s, .u = u, .dense = !s->ref });
}

/* Print one row: the executors that run `shape`, the result of the union `name`. */
static void show_pairs(unsigned shape, const char *name)
{
	printf("    %-12s", name);
	for (int i = 0; executors[i]; i++)
		if (!executors[i]->one_row)
			printf("  %*s", (int)strlen(executors[i]->name),
			       executor_takes(executors[i], shape) ? "x" : "-");
	putchar('\n');
}

/* Print which selectors, unions and executors combine.  Selectors of one shape combine alike, so
 * they share rows. */
static void show_compositions(void)
{
	printf("\ncompositions, x: the executor runs it:\n    %-12s", "");
	for (int i = 0; executors[i]; i++)
		if (!executors[i]->one_row)
			printf("  %s", executors[i]->name);
	putchar('\n');
	for (const struct selection_shape *e = selection_shapes; e->bit; e++) {
		const struct selector *first = NULL;

		for (int i = 0; selectors[i]; i++)
			if (shape_given(selectors[i], UNION_NONE) == e->bit) {
				printf(first ? ", %s" : "  %s", selectors[i]->name);
				first = selectors[i];
			}
		if (!first)
			continue;
		putchar('\n');
		for (const struct union_rule *u = unions; u->name; u++)
			if (u->kind == UNION_NONE || e->bit == SHAPE_MASK)
				show_pairs(shape_given(first, u->kind), u->name);
	}
}

static enum ar_status list(struct listing *l, struct ar_err *err)
{
	enum ar_status st;

	begin_list(l, "methods, --method NAME[:PARAMETER=VALUE,...]", 13);
	st = show_names(l, false, err);
	begin_list(l, "presets, --method METHOD@MODEL[:PARAMETER=VALUE,...]", 26);
	if (!st)
		st = show_names(l, true, err);
	begin_list(l, "selectors, select=NAME[,PARAMETER=VALUE...]", 13);
	for (int i = 0; selectors[i]; i++)
		if (list_entry(l, selectors[i]->name, selectors[i]->title) && l->full) {
			note("from", selectors[i]->origin);
			show_params(selectors[i]->params, NULL);
		}
	begin_list(l, "unions, union=NAME", 13);
	for (const struct union_rule *u = unions; u->name; u++)
		list_entry(l, u->name, u->title);
	begin_list(l, "executors, exec=NAME", 13);
	for (int i = 0; executors[i]; i++)
		if (!executors[i]->one_row &&
		    list_entry(l, executors[i]->name, executors[i]->title) && l->full) {
			show_executor(executors[i]);
			note("from", executors[i]->origin);
		}
	begin_list(l, "droppers, --method METHOD+DROPPER[:PARAMETER=VALUE,...]", 13);
	for (int i = 0; droppers[i]; i++)
		if (list_entry(l, droppers[i]->name, droppers[i]->title) && l->full) {
			note("from", droppers[i]->origin);
			show_params(droppers[i]->params, NULL);
		}
	if (!st)
		st = show_parts(l, err);
	if (!l->only && l->full)
		show_compositions();
	if (!l->full)
		puts("\n'attnreplay methods NAME' shows one in full, and --all shows all.");
	return st;
}

/* Parse a method and print its parameters as a run would store them. */
static enum ar_status show_method(const char *text, const char *json, struct ar_err *err)
{
	struct method *m;
	enum ar_status st = method_parse(&m, text, err);

	if (st)
		return st;
	if (json)
		st = json_file_write(json, methods_json_of(m), err);
	if (!st && !json_file_alone(json)) {
		text_put_json_value(m->params, stdout);
		putchar('\n');
	}
	method_free(m);
	return st;
}

/* True: only names an entry of a list, or is NULL. */
static bool listed(const char *only)
{
	bool is = !only;

	for (const struct method_name *m = method_names; m->name && !is; m++)
		is = !strcmp(m->name, only);
	for (int i = 0; selectors[i] && !is; i++)
		is = !strcmp(selectors[i]->name, only);
	for (const struct union_rule *u = unions; u->name && !is; u++)
		is = !strcmp(u->name, only);
	for (int i = 0; executors[i] && !is; i++)
		is = !executors[i]->one_row && !strcmp(executors[i]->name, only);
	for (int i = 0; droppers[i] && !is; i++)
		is = !strcmp(droppers[i]->name, only);
	for (const struct part_kind *k = part_kinds; k->key; k++)
		for (const struct method_name *p = k->part; p->name && !is; p++)
			is = !strcmp(p->name, only);
	return is;
}

static enum ar_status show_list(const struct args *a, const char *name, struct ar_err *err)
{
	struct listing l = { .only = name, .full = name || a->all };
	enum ar_status st = AR_OK;
	cJSON *o;

	if (!listed(name))
		return show_method(name, a->json, err);
	if (a->json) {
		st = methods_json(&o, name, err);
		if (!st)
			st = json_file_write(a->json, o, err);
	}
	return st || json_file_alone(a->json) ? st : list(&l, err);
}

static enum ar_status check_support(const struct args *a, struct ar_err *err)
{
	if (!a->support && (a->head_dim || a->page_tok || a->cc))
		return ar_fail(
			err, AR_USAGE,
			"--head-dim, --block-size and --cc have no effect without --support");
	if (a->support && a->all)
		return ar_fail(err, AR_USAGE, "--all has no effect with --support; leave it out");
	return AR_OK;
}

static enum ar_status methods_main(int argc, char **argv, struct ar_err *err)
{
	struct args a = { 0 };
	struct opt_group g[] = { { .title = "Options", .opts = opts, .base = &a }, { 0 } };
	enum ar_status st = opt_parse(g, &argc, argv, err);

	if (!st && a.all && argc)
		st = ar_fail(err, AR_USAGE, "--all has no effect with a name; leave it out");
	if (!st && argc > 1)
		st = ar_fail(err, AR_USAGE, "'%s' is one operand too many: want a name or a method",
			     argv[1]);
	if (!st)
		st = check_support(&a, err);
	if (!st && a.support)
		st = methods_support(&(struct methods_ask){ argc ? argv[0] : NULL, a.head_dim,
							    a.page_tok, a.cc },
				     a.json, err);
	else if (!st)
		st = show_list(&a, argc ? argv[0] : NULL, err);
	opt_release(g);
	return st;
}

const struct cmd cmd_methods = {
	.name = "methods",
	.usage = "[OPTION]...\n[OPTION]... NAME|METHOD",
	.title = "list attention methods, their parts and parameters",
	.run = methods_main,
	.options = show_options,
};
