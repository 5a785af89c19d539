/* attnreplay methods: what --method takes.  Everything is printed from the tables that the
 * parser uses. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "kernels/method.h"
#include "src/cmd.h"

static const struct opt opts[] = { { 0 } };

static void show_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	const struct opt_group g[] = { { 0 } };

	show(g, f);
}

/* One list of names: title, number of entries printed so far in it and in all. */
struct listing {
	const char *only;		/* NULL: everything */
	const char *head;
	int n, n_all;
};

static void begin(struct listing *l, const char *head)
{
	l->head = head;
	l->n = 0;
}

/* True when the entry is to be printed; its name is, then. */
static bool entry(struct listing *l, const char *name, const char *title)
{
	if (l->only && strcmp(l->only, name))
		return false;
	if (!l->n++)
		printf("%s%s:\n", l->n_all ? "\n" : "", l->head);
	l->n_all++;
	printf("  %-13s %s\n", name, title);
	return true;
}

static void note(const char *label, const char *text)
{
	printf("                %s: %s\n", label, text);
}

static void show_param(const struct opt *o)
{
	char head[32];

	snprintf(head, sizeof head, "%s=%s", o->name, o->type == OPT_FLAG ? "0|1" : o->arg);
	printf("                %-16s %s\n%33s(", head, o->help, "");
	if (o->type != OPT_FLAG && o->min < o->max)
		printf("%.15g to %.15g; ", o->min, o->max);
	printf("default %s)\n", o->def);
}

static void show_executor(const struct executor *e)
{
	static const struct { unsigned bit; const char *text; } shapes[] = {
		{ TAKES_ALL, "all blocks" },
		{ TAKES_MASK, "a list per query block and head" },
		{ TAKES_TABLE, "a table per head group" },
	};
	const char *sep = "takes: ";

	printf("                ");
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		if (e->takes & shapes[i].bit) {
			printf("%s%s", sep, shapes[i].text);
			sep = ", ";
		}
	putchar('\n');
}

static void list(struct listing *l)
{
	begin(l, "methods");
	for (const struct method_name *m = method_names; m->name; m++)
		if (entry(l, m->name, m->title)) {
			note("is", m->spec);
			note("from", m->origin);
		}
	begin(l, "selectors, select=");
	for (int i = 0; selectors[i]; i++)
		if (entry(l, selectors[i]->name, selectors[i]->title)) {
			note("from", selectors[i]->origin);
			for (const struct opt *o = selectors[i]->params; o->name; o++)
				show_param(o);
		}
	begin(l, "unions, union=");
	for (const struct union_rule *u = unions; u->name; u++)
		entry(l, u->name, u->title);
	begin(l, "executors, exec=");
	for (int i = 0; executors[i]; i++)
		if (entry(l, executors[i]->name, executors[i]->title)) {
			show_executor(executors[i]);
			note("from", executors[i]->origin);
		}
}

/* A spelling of a method: the record that a run would keep of it. */
static enum ar_status show_method(const char *text, struct ar_err *err)
{
	struct method *m;
	enum ar_status st = method_parse(&m, text, err);

	if (st)
		return st;
	puts(m->params);
	method_free(m);
	return AR_OK;
}

static enum ar_status run(int argc, char **argv, struct ar_err *err)
{
	struct opt_group g[] = { { .title = "Options", .opts = opts }, { 0 } };
	struct listing l = { 0 };
	enum ar_status st = opt_parse(g, &argc, argv, err);

	if (st)
		return st;
	if (argc > 1)
		return ar_fail(err, AR_USAGE,
			       "'%s' is one operand too many: want a name or a method", argv[1]);
	l.only = argc ? argv[0] : NULL;
	list(&l);
	return l.n_all ? AR_OK : show_method(argv[0], err);
}

const struct cmd cmd_methods = {
	.name = "methods",
	.usage = "[NAME|METHOD]",
	.title = "list attention methods and what they are made of",
	.run = run,
	.options = show_options,
};
