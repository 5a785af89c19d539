/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/opt.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/grow.h"
#include "base/json.h"
#include "base/jsonval.h"
#include "base/log.h"
#include "base/number.h"

static void *field(const struct opt_group *g, const struct opt *o)
{
	return (char *)g->base + o->off;
}

static void list_clear(struct opt_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
	*l = (struct opt_list){ 0 };
}

static enum ar_status list_add(struct opt_list *l, const char *value, struct ar_err *err)
{
	if (!GROW(l->v, l->cap, l->n + 1))
		return ar_nomem(err);
	l->v[l->n] = strdup(value);
	if (!l->v[l->n])
		return ar_nomem(err);
	l->n++;
	return AR_OK;
}

static enum ar_status bad_value(const struct opt *o, const char *value, struct ar_err *err)
{
	const char *want = o->type == OPT_REAL ? "a number" :
			   o->type == OPT_FLAG ? "yes or no" :
						 "an integer";
	char most[32];

	if (o->type == OPT_TIME)
		return ar_fail(err, AR_USAGE, "%s '%s': want a time with a unit, such as 6ms%s%s",
			       o->name, value, o->min < o->max ? ", of at most " : "",
			       o->min < o->max ? num_time_str(most, sizeof most, o->max) : "");
	if (o->min < o->max)
		return ar_fail(err, AR_USAGE, "%s '%s': want %s from %.15g to %.15g", o->name,
			       value, want, o->min, o->max);
	return ar_fail(err, AR_USAGE, "%s '%s': want %s", o->name, value, want);
}

/* An empty text is a variable of the shell that is not set, or a mistake. */
static enum ar_status check_text(const struct opt *o, const char *value, struct ar_err *err)
{
	bool text = o->type == OPT_STR || o->type == OPT_LIST || o->type == OPT_JOB;

	return text && !*value ? ar_fail(err, AR_USAGE, "%s '': want a value", o->name) : AR_OK;
}

static enum ar_status bad_choice(const struct opt *o, const char *value, struct ar_err *err)
{
	char all[1024] = "";
	size_t n = 0;

	for (int i = 0; o->choice[i] && n < sizeof all; i++)
		n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", o->choice[i]);
	return ar_fail(err, AR_USAGE, "%s '%s': want one of %s", o->name, value, all);
}

static bool in_range(const struct opt *o, double x)
{
	return !(o->min < o->max) || (x >= o->min && x <= o->max);
}

static bool read_flag(const char *value, bool *x)
{
	const bool yes = !strcmp(value, "1") || !strcmp(value, "yes");

	if (!yes && strcmp(value, "0") && strcmp(value, "no"))
		return false;
	*x = yes;
	return true;
}

static enum ar_status assign_option(const struct opt_group *g, const struct opt *o,
				    const char *value, struct ar_err *err)
{
	void *p = field(g, o);
	int64_t i;
	double x;

	switch (o->type) {
	case OPT_FLAG:
		if (!read_flag(value, p))
			return bad_value(o, value, err);
		return AR_OK;
	case OPT_INT:
	case OPT_TIME:
		if (!(o->type == OPT_INT ? num_count(value, &i) : num_time(value, &i)) ||
		    !in_range(o, (double)i))
			return bad_value(o, value, err);
		*(int64_t *)p = i;
		return AR_OK;
	case OPT_REAL:
		if (!num_real(value, &x) || !in_range(o, x))
			return bad_value(o, value, err);
		*(double *)p = x;
		return AR_OK;
	case OPT_STR:
		free(*(char **)p);
		*(char **)p = strdup(value);
		return *(char **)p ? AR_OK : ar_nomem(err);
	case OPT_LIST: return list_add(p, value, err);
	case OPT_ENUM:
		for (int k = 0; o->choice[k]; k++)
			if (!strcmp(value, o->choice[k])) {
				*(int *)p = k;
				return AR_OK;
			}
		return bad_choice(o, value, err);
	case OPT_JOB: break;
	}
	return AR_OK;
}

enum ar_status opt_init(struct opt_group *g, struct ar_err *err)
{
	for (; g->opts; g++) {
		g->given = g->from_job = g->weak = 0;
		for (const struct opt *o = g->opts; o->name; o++) {
			enum ar_status st = o->def ? assign_option(g, o, o->def, err) : AR_OK;

			if (st)
				return st;
		}
	}
	return AR_OK;
}

void opt_release(struct opt_group *g)
{
	for (; g->opts; g++)
		for (const struct opt *o = g->opts; o->name; o++) {
			if (o->type == OPT_LIST)
				list_clear(field(g, o));
			if (o->type == OPT_STR) {
				free(*(char **)field(g, o));
				*(char **)field(g, o) = NULL;
			}
		}
}

static const struct opt *find_option(struct opt_group **g, const char *name, size_t n)
{
	for (; (*g)->opts; (*g)++)
		for (const struct opt *o = (*g)->opts; o->name; o++)
			if (!strncmp(o->name, name, n) && !o->name[n])
				return o;
	return NULL;
}

/* Whether --no-NAME is there too. */
static bool has_no(const struct opt *o)
{
	return o->type == OPT_FLAG && o->own;
}

/* As find_option(), also by the name "no-NAME" of a flag; *off: it was by that. */
static const struct opt *find_flag(struct opt_group **g, const char *name, size_t n, bool *off)
{
	struct opt_group *all = *g;
	const struct opt *o = find_option(g, name, n);

	*off = false;
	if (o || n < 4 || strncmp(name, "no-", 3))
		return o;
	*g = all;
	o = find_option(g, name + 3, n - 3);
	*off = o && has_no(o);
	return *off ? o : NULL;
}

static const struct opt *find_letter(struct opt_group **g, char letter)
{
	for (; (*g)->opts; (*g)++)
		for (const struct opt *o = (*g)->opts; o->name; o++)
			if (o->letter && o->letter == letter)
				return o;
	return NULL;
}

/* Edit distance: letters to insert, leave out or replace to turn a into b. */
static size_t edit_distance(const char *a, size_t n, const char *b)
{
	size_t row[64], m = strlen(b);

	if (n >= 64 || m >= 64)
		return n + m;
	for (size_t j = 0; j <= m; j++)
		row[j] = j;
	for (size_t i = 0; i < n; i++) {
		size_t diagonal = row[0]++;

		for (size_t j = 1; j <= m; j++) {
			size_t least = diagonal + (a[i] != b[j - 1]);

			diagonal = row[j];
			if (least > row[j] + 1)
				least = row[j] + 1;
			if (least > row[j - 1] + 1)
				least = row[j - 1] + 1;
			row[j] = least;
		}
	}
	return row[m];
}

/* The least distance to a name in the list "a,b". */
static size_t list_distance(const char *name, size_t n, const char *list)
{
	size_t least = SIZE_MAX;

	for (const char *s = list; s && *s; s += *s == ',') {
		char other[64];
		size_t d, len = strcspn(s, ",");

		snprintf(other, sizeof other, "%.*s", (int)len, s);
		d = edit_distance(name, n, other);
		least = d < least ? d : least;
		s += len;
	}
	return least;
}

/* If the name is nearer than *best to the option or to one of its other names: set *best and *near.
 * The option has the prefix "no-" then, or none. */
static void try_near(const char *name, size_t n, const struct opt *o, size_t *best,
		     const struct opt **near, const char **no)
{
	const bool off = n > 3 && !strncmp(name, "no-", 3) && has_no(o);
	const struct {
		size_t d;
		const char *no;
	} tries[] = { { edit_distance(name, n, o->name), "" },
		      { list_distance(name, n, o->also), "" },
		      { off ? edit_distance(name + 3, n - 3, o->name) : SIZE_MAX, "no-" },
		      { list_distance(name, n, o->also_no), "no-" } };

	for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
		if (tries[i].d < *best) {
			*best = tries[i].d;
			*near = o;
			*no = tries[i].no;
		}
}

/* The user wrote text, which has a name of n letters after dashes ("--", "-" or ""). */
static enum ar_status unknown_option(const struct opt_group *g, const char *text,
				     const char *dashes, size_t n, struct ar_err *err)
{
	size_t best = (n + 2) / 3 + 1;
	const struct opt *near = NULL;
	const char *no = "";

	for (; g->opts; g++)
		for (const struct opt *o = g->opts; o->name; o++)
			try_near(text + strlen(dashes), n, o, &best, &near, &no);
	if (near)
		return ar_fail(err, AR_USAGE, "unknown option '%s'; did you mean '%s%s%s'?", text,
			       dashes, no, near->name);
	return ar_fail(err, AR_USAGE, "unknown option '%s'%s", text, *dashes ? "; see --help" : "");
}

enum source { FROM_USER, FROM_JOB };

static enum ar_status set_option(struct opt_group *g, const struct opt *o, const char *value,
				 enum source from, struct ar_err *err)
{
	uint64_t bit = 1ull << (o - g->opts);
	enum ar_status st = check_text(o, value, err);

	if (st || (from == FROM_JOB && g->given & bit))
		return st;
	if (o->type == OPT_LIST && !(from == FROM_USER ? g->given & bit : g->from_job & bit))
		list_clear(field(g, o));
	st = assign_option(g, o, value, err);
	if (!st && o->use)
		st = o->use(value, err);
	if (st)
		return st;
	*(from == FROM_USER ? &g->given : &g->from_job) |= bit;
	return AR_OK;
}

enum ar_status opt_set(struct opt_group *g, const char *name, const char *value, struct ar_err *err)
{
	struct opt_group *in = g;
	const struct opt *o = find_option(&in, name, strlen(name));

	return o ? set_option(in, o, value, FROM_USER, err) :
		   unknown_option(g, name, "", strlen(name), err);
}

enum ar_status opt_set_list(struct opt_group *g, const char *name, char *const *value, size_t n,
			    struct ar_err *err)
{
	struct opt_group *in = g;
	const struct opt *o = opt_find(&in, name, err);
	struct opt_list *old = o ? field(in, o) : NULL, was;
	enum ar_status st = o ? AR_OK : AR_USAGE;

	if (st)
		return st;
	was = *old; /* the values may be among them */
	*old = (struct opt_list){ 0 };
	in->given &= ~(1ull << (o - in->opts));
	in->from_job &= ~(1ull << (o - in->opts));
	for (size_t i = 0; i < n && !st; i++)
		st = opt_set(g, name, value[i], err);
	list_clear(&was);
	return st;
}

enum ar_status opt_set_default(struct opt_group *g, const char *name, const char *value,
			       struct ar_err *err)
{
	const struct opt *o = find_option(&g, name, strlen(name));

	if (!o || (g->given | g->from_job | g->weak) & 1ull << (o - g->opts))
		return AR_OK;
	return assign_option(g, o, value, err);
}

enum ar_status opt_set_weak(struct opt_group *g, const char *name, const char *value,
			    struct ar_err *err)
{
	struct opt_group *in = g;
	const struct opt *o = opt_find(&in, name, err);
	const uint64_t bit = o ? 1ull << (o - in->opts) : 0;
	enum ar_status st;

	if (!o || (in->given | in->from_job) & bit)
		return o ? AR_OK : AR_USAGE;
	st = check_text(o, value, err);
	if (!st)
		st = assign_option(in, o, value, err);
	if (!st)
		in->weak |= bit;
	return st;
}

enum ar_status opt_set_all(struct opt_group *g, const char *text, struct ar_err *err)
{
	char *copy = strdup(text), *item = copy, *next, *value;
	enum ar_status st = copy ? AR_OK : ar_nomem(err);

	for (; !st && item; item = next) {
		next = strchr(item, ',');
		if (next)
			*next++ = 0;
		value = strchr(item, '=');
		if (!value) {
			st = ar_fail(err, AR_USAGE, "'%s': want NAME=VALUE", item);
			break;
		}
		*value++ = 0;
		st = opt_set(g, item, value, err);
	}
	free(copy);
	return st;
}

/* The value of an option of this type; NULL: there is none. */
static const void *value_of(const struct opt_group *g, const char *name, enum opt_type type)
{
	struct opt_group *in = (struct opt_group *)(uintptr_t)g;
	const struct opt *o = find_option(&in, name, strlen(name));

	return o && o->type == type ? field(in, o) : NULL;
}

bool opt_get_int(const struct opt_group *g, const char *name, int64_t *x)
{
	const int64_t *v = value_of(g, name, OPT_INT);

	if (v)
		*x = *v;
	return v;
}

bool opt_get_real(const struct opt_group *g, const char *name, double *x)
{
	const double *v = value_of(g, name, OPT_REAL);

	if (v)
		*x = *v;
	return v;
}

bool opt_asked(const struct opt_group *g, const char *name)
{
	struct opt_group *in = (struct opt_group *)(uintptr_t)g;
	const struct opt *o = find_option(&in, name, strlen(name));

	return o && (in->given | in->from_job) & 1ull << (o - in->opts);
}

bool opt_given(const struct opt_group *g, const char *name)
{
	struct opt_group *in = (struct opt_group *)(uintptr_t)g;
	const struct opt *o = find_option(&in, name, strlen(name));

	return o && (opt_asked(g, name) || in->weak & 1ull << (o - in->opts));
}

static void weaken(struct opt_group *g, const struct opt *o)
{
	const uint64_t bit = 1ull << (o - g->opts);

	g->weak |= (g->given | g->from_job) & bit;
	g->given &= ~bit;
	g->from_job &= ~bit;
}

void opt_weaken(struct opt_group *g, const char *name)
{
	const struct opt *o = find_option(&g, name, strlen(name));

	if (o)
		weaken(g, o);
}

const struct opt *opt_given_of(const struct opt_group *g, unsigned scope)
{
	for (; g->opts; g++)
		for (const struct opt *o = g->opts; o->name; o++)
			if (o->scope & scope && (g->given | g->from_job) & 1ull << (o - g->opts))
				return o;
	return NULL;
}

/* Parse one argument, --name or -x with or without its value.  *used: strings of argv taken. */
static enum ar_status parse_one(struct opt_group *g, int argc, char **argv, int *used,
				struct ar_err *err)
{
	struct opt_group *in = g;
	const char *arg = argv[0], *value = NULL;
	size_t n = 1;
	bool off = false;
	const struct opt *o;

	*used = 1;
	if (arg[1] == '-') {
		n = strcspn(arg + 2, "=");
		o = find_flag(&in, arg + 2, n, &off);
		if (arg[2 + n])
			value = arg + 3 + n;
	} else {
		o = find_letter(&in, arg[1]);
		if (arg[2])
			value = arg + 2;
	}
	if (!o && log_option(arg))
		return AR_OK;
	if (!o)
		return unknown_option(g, arg, arg[1] == '-' ? "--" : "-", n, err);
	if (off && value)
		return ar_fail(err, AR_USAGE, "option '%s' takes no value", arg);
	if (o->type == OPT_FLAG && !value) {
		value = off ? "0" : "1";
	} else if (!value) {
		if (argc < 2)
			return ar_fail(err, AR_USAGE, "option '%s' needs a value", arg);
		value = argv[1];
		*used = 2;
	}
	if (o->type == OPT_JOB && *value)
		return opt_load(g, value, err);
	return set_option(in, o, value, FROM_USER, err);
}

enum ar_status opt_parse(struct opt_group *g, int *argc, char **argv, struct ar_err *err)
{
	int n = 0, used;
	bool operands_only = false;

	for (int i = 0; i < *argc; i += used) {
		used = 1;
		if (!operands_only && !strcmp(argv[i], "--")) {
			operands_only = true;
		} else if (!operands_only && argv[i][0] == '-' && argv[i][1]) {
			enum ar_status st = parse_one(g, *argc - i, argv + i, &used, err);

			if (st)
				return st;
		} else {
			argv[n++] = argv[i];
		}
	}
	*argc = n;
	return AR_OK;
}

char *opt_trim(char *s)
{
	char *end;

	while (isspace((unsigned char)*s))
		s++;
	end = s + strlen(s);
	while (end > s && isspace((unsigned char)end[-1]))
		end--;
	*end = 0;
	return s;
}

const struct opt *opt_find(struct opt_group **g, const char *name, struct ar_err *err)
{
	struct opt_group *all = *g;
	const struct opt *o = find_option(g, name, strlen(name));

	if (!o)
		unknown_option(all, name, "", strlen(name), err);
	return o;
}

static enum ar_status load_line(void *ctx, char *name, char *value, unsigned line,
				struct ar_err *err)
{
	struct opt_group *in = ctx;
	bool off;
	const struct opt *o = find_flag(&in, name, strlen(name), &off);

	(void)line;
	if (!o)
		return unknown_option(ctx, name, "", strlen(name), err);
	if (off && value)
		return ar_fail(err, AR_USAGE, "option '%s' takes no value", name);
	if (o->type == OPT_JOB)
		return ar_fail(err, AR_USAGE,
			       "a job file cannot name another; write its lines "
			       "here");
	if (!value && o->type != OPT_FLAG)
		return ar_fail(err, AR_USAGE, "option '%s' needs a value", name);
	return set_option(in, o, value ? value : off ? "0" : "1", FROM_JOB, err);
}

static enum ar_status read_line(char *text, unsigned n, opt_line_fn *put, void *ctx,
				struct ar_err *err)
{
	char *name, *value;

	text[strcspn(text, "#")] = 0;
	value = strchr(text, '=');
	if (value)
		*value++ = 0;
	name = opt_trim(text);
	if (!*name && !value)
		return AR_OK;
	return put(ctx, name, value ? opt_trim(value) : NULL, n, err);
}

enum ar_status opt_read_lines(const char *path, opt_line_fn *put, void *ctx, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	char *line = NULL;
	size_t cap = 0;
	unsigned n = 0;
	ssize_t len;
	FILE *f = fopen(path, "r");

	if (!f)
		return ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
	while (!st && (len = getline(&line, &cap, f)) >= 0) {
		n++;
		st = strlen(line) == (size_t)len ?
			     read_line(line, n, put, ctx, err) :
			     ar_fail(err, AR_USAGE, "a NUL byte; job files are text");
		if (st)
			ar_err_prefix(err, "%s:%u", path, n);
	}
	if (!st && ferror(f))
		st = ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
	free(line);
	fclose(f);
	return st;
}

enum ar_status opt_load(struct opt_group *g, const char *path, struct ar_err *err)
{
	return opt_read_lines(path, load_line, g, err);
}

/* ---- printing ---- */

enum { HELP_COLUMN = 30, HELP_WIDTH = 80 };

/* "default 16; 1 to 1024; one of a, b" or nothing. */
static void notes(const struct opt *o, char *buf, size_t size)
{
	size_t n = 0;

	*buf = 0;
	if (o->choice) {
		for (int i = 0; o->choice[i] && n < size; i++)
			n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? ", " : "one of ",
					      o->choice[i]);
		if (o->type == OPT_STR && n < size)
			n += (size_t)snprintf(buf + n, size - n, "; or a file");
	} else if (o->min < o->max) {
		/* times are written in their own unit elsewhere; 1e15 stands for no limit */
		if (o->type == OPT_TIME)
			n = 0;
		else if (o->max >= 1e15)
			n = (size_t)snprintf(buf, size, "at least %.15g", o->min);
		else
			n = (size_t)snprintf(buf, size, "%.15g to %.15g", o->min, o->max);
	}
	if (o->own && n < size)
		snprintf(buf + n, size - n, "%sdefault %s", n ? "; " : "", o->own);
	else if (o->def && o->type != OPT_FLAG && n < size)
		snprintf(buf + n, size - n, "%sdefault %s", n ? "; " : "", o->def);
}

/* Print the words of s in lines of up to 80 columns.  The first line begins at column col, the
 * others at HELP_COLUMN.  Returns the column where the last ends. */
static int wrap(FILE *f, int col, const char *s)
{
	while (*(s += strspn(s, " "))) {
		int n = (int)strcspn(s, " ");

		if (col + 1 + n > HELP_WIDTH) {
			fprintf(f, "\n%*s", HELP_COLUMN - 1, "");
			col = HELP_COLUMN - 1;
		}
		col += fprintf(f, " %.*s", n, s);
		s += n;
	}
	return col;
}

static void help_one(const struct opt *o, FILE *f)
{
	char letter[8] = "    ", head[80], note[1024], in_brackets[sizeof note + 2];
	int n;

	if (o->letter)
		snprintf(letter, sizeof letter, "-%c, ", o->letter);
	if (has_no(o)) { /* a line of its own, as completion reads lines */
		fprintf(f, "  %s--%s\n", letter, o->name);
		snprintf(head, sizeof head, "    --no-%s", o->name);
	} else {
		snprintf(head, sizeof head, "%s--%s%s%s", letter, o->name, o->arg ? " " : "",
			 o->arg ? o->arg : "");
	}
	n = fprintf(f, "  %-*s", HELP_COLUMN - 3, head);
	n = wrap(f, n < HELP_COLUMN ? n : HELP_WIDTH, o->help);
	notes(o, note, sizeof note);
	snprintf(in_brackets, sizeof in_brackets, "[%s]", note);
	wrap(f, n, *note ? in_brackets : "");
	putc('\n', f);
}

void opt_help(const struct opt_group *g, FILE *f)
{
	for (; g->opts; g++) {
		fprintf(f, "\n%s:\n", g->title);
		for (const struct opt *o = g->opts; o->name; o++)
			help_one(o, f);
	}
}

void opt_mdoc(const struct opt_group *g, FILE *f)
{
	char note[1024];

	for (; g->opts; g++) {
		fprintf(f, ".Ss %s\n.Bl -tag -width Ds\n", g->title);
		for (const struct opt *o = g->opts; o->name; o++) {
			fputs(".It ", f);
			if (o->letter)
				fprintf(f, "Fl %c , ", o->letter);
			fprintf(f, "Fl Fl %s", o->name);
			if (o->arg)
				fprintf(f, " Ar %s", o->arg);
			if (has_no(o))
				fprintf(f, " , Fl Fl no-%s", o->name);
			fprintf(f, "\n%c%s.\n", toupper((unsigned char)*o->help), o->help + 1);
			notes(o, note, sizeof note);
			if (*note)
				fprintf(f, "(%s)\n", note);
		}
		fputs(".El\n", f);
	}
}

static cJSON *value_json(const struct opt_group *g, const struct opt *o)
{
	const void *p = field(g, o);
	const struct opt_list *l = p;
	cJSON *v;

	switch (o->type) {
	case OPT_FLAG: return cJSON_CreateBool(*(const bool *)p);
	case OPT_INT:
	case OPT_TIME: return cJSON_CreateNumber((double)*(const int64_t *)p);
	case OPT_REAL: return cJSON_CreateNumber(*(const double *)p);
	case OPT_STR: return json_string(*(char *const *)p);
	case OPT_LIST:
		v = cJSON_CreateArray();
		for (size_t i = 0; v && i < l->n; i++)
			if (!cJSON_AddItemToArray(v, json_string(l->v[i]))) {
				cJSON_Delete(v);
				return NULL;
			}
		return v;
	case OPT_ENUM: return cJSON_CreateString(o->choice[*(const int *)p]);
	case OPT_JOB: break;
	}
	return NULL;
}

bool opt_json(const struct opt_group *g, cJSON *object)
{
	for (; g->opts; g++)
		for (const struct opt *o = g->opts; o->name; o++) {
			if (o->type == OPT_JOB || (o->type == OPT_STR && !*(char **)field(g, o)) ||
			    (o->type == OPT_LIST && !((struct opt_list *)field(g, o))->n))
				continue;
			if (!json_add(object, o->name, value_json(g, o)))
				return false;
		}
	return true;
}

/* Whether the option has the value v already, in text.  *same is false for lists. */
static enum ar_status has_value(const struct opt_group *g, const struct opt *o, const char *v,
				bool *same, struct ar_err *err)
{
	bool unset = o->type == OPT_STR && !*(char **)field(g, o);
	cJSON *now = unset ? NULL : value_json(g, o);
	char buf[32];
	const char *text = json_text(now, buf, sizeof buf);

	*same = text && !strcmp(text, v);
	cJSON_Delete(now);
	return now || unset ? AR_OK : ar_nomem(err);
}

static enum ar_status set_value(struct opt_group *g, const struct opt *o, const cJSON *v,
				struct ar_err *err)
{
	char buf[32], time[48];
	const char *text = json_text(v, buf, sizeof buf);
	bool same = false;
	enum ar_status st;

	if (!text)
		return ar_fail(err, AR_DATA, "option '%s': not a value of an option", o->name);
	st = has_value(g, o, text, &same, err);
	if (st || same)
		return st;
	snprintf(time, sizeof time, "%sns", text);
	st = set_option(g, o, o->type == OPT_TIME ? time : text, FROM_USER, err);
	if (!st && o->own)
		weaken(g, o);
	return st;
}

static enum ar_status set_list(struct opt_group *g, const struct opt *o, const cJSON *list,
			       struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const cJSON *v;

	cJSON_ArrayForEach(v, list) {
		if (!st)
			st = set_value(g, o, v, err);
	}
	return st;
}

enum ar_status opt_set_json(struct opt_group *g, const cJSON *object, struct ar_err *err)
{
	const cJSON *v;
	enum ar_status st = AR_OK;

	cJSON_ArrayForEach(v, object) {
		struct opt_group *in = g;
		const struct opt *o = find_option(&in, v->string, strlen(v->string));

		if (!o)
			return ar_fail(err, AR_DATA, "option '%s' is not known to this program",
				       v->string);
		if ((in->given | in->from_job) & 1ull << (o - in->opts))
			continue;
		st = o->type == OPT_LIST ? set_list(in, o, v, err) : set_value(in, o, v, err);
		if (st)
			return st;
	}
	return AR_OK;
}
