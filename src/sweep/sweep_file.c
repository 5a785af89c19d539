/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/sweep/sweep_file.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

/* ---- memory ---- */

static void line_release(struct sweep_line *l)
{
	texts_release(&l->name);
	texts_release(&l->value);
}

void sweep_release(struct sweep *s)
{
	for (size_t i = 0; i < s->n_line; i++)
		line_release(&s->line[i]);
	for (size_t i = 0; i < s->n_skip; i++)
		line_release(&s->skip[i]);
	free(s->line);
	free(s->skip);
	free(s->point);
	free(s->path);
	*s = (struct sweep){ 0 };
}

static size_t choices(const struct sweep_line *l)
{
	return l->value.n / l->name.n;
}

/* ---- lines ---- */

struct reader {
	struct sweep *s;
	struct opt_group *g;
};

/* Check that the option takes the value. */
static enum ar_status check_value(const struct reader *r, const char *name, const char *value,
				  struct ar_err *err)
{
	static const char *const own[] = { "db", "json", NULL };
	struct opt_group *in = r->g;
	const struct opt *o = opt_find(&in, name, err);

	if (!o)
		return AR_USAGE;
	for (int i = 0; own[i]; i++)
		if (!strcmp(name, own[i]))
			return ar_fail(err, AR_USAGE,
				       "%s: each point has a file of its own, in the folder of "
				       "--out; leave it out",
				       name);
	if (o->type == OPT_JOB)
		return ar_fail(err, AR_USAGE,
			       "%s: a sweep cannot name a job file; write its lines here", name);
	if (!strcmp(name, "trace") && !strcmp(value, "-"))
		return ar_fail(err, AR_USAGE,
			       "trace '-': every point reads the trace; name a file");
	if (!strcmp(name, "backend") && !strcmp(value, "auto"))
		return ar_fail(err, AR_USAGE,
			       "backend 'auto': points may run on several machines; name cuda, cpu "
			       "or cost");
	return opt_set(r->g, name, value, err);
}

static enum ar_status check_line(const struct reader *r, const struct sweep_line *l,
				 struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < l->value.n && !st; i++)
		st = check_value(r, l->name.v[i % l->name.n], l->value.v[i], err);
	return st;
}

static const struct sweep_line *find_line(const struct sweep *s, const char *name)
{
	for (size_t i = 0; i < s->n_line; i++)
		for (size_t k = 0; k < s->line[i].name.n; k++)
			if (!strcmp(s->line[i].name.v[k], name))
				return &s->line[i];
	return NULL;
}

/* An option is given once; one that takes several values may be repeated, as in a job file. */
static enum ar_status check_once(const struct reader *r, const struct sweep_line *l,
				 struct ar_err *err)
{
	for (size_t k = 0; k < l->name.n; k++) {
		struct opt_group *in = r->g;
		const struct opt *o = opt_find(&in, l->name.v[k], err);
		const struct sweep_line *first = find_line(r->s, l->name.v[k]);

		if (o && o->type == OPT_LIST)
			continue;
		if (first)
			return ar_fail(err, AR_USAGE, "%s: given in line %u already", l->name.v[k],
				       first->line);
		for (size_t j = 0; j < k; j++)
			if (!strcmp(l->name.v[j], l->name.v[k]))
				return ar_fail(err, AR_USAGE, "%s: given twice", l->name.v[k]);
	}
	return AR_OK;
}

/* l is owned by the list, or released, after this. */
static enum ar_status add_line(struct sweep_line **list, size_t *n, size_t *cap,
			       struct sweep_line *l, struct ar_err *err)
{
	if (!GROW(*list, *cap, *n + 1)) {
		line_release(l);
		return ar_nomem(err);
	}
	(*list)[(*n)++] = *l;
	return AR_OK;
}

static enum ar_status whole_value(struct sweep_line *l, const char *value, struct ar_err *err)
{
	enum ar_status st;

	if (*value != '[')
		return texts_add(&l->value, value, strlen(value), err);
	st = list_read(&value, &l->value, err);
	if (!st && *value)
		st = ar_fail(err, AR_USAGE, "'%s' after the list", value);
	return st;
}

/* NAME or NAME = VALUE or NAME = [VALUE, ...] */
static enum ar_status plain_line(struct sweep_line *l, const char *name, const char *value,
				 const struct reader *r, struct ar_err *err)
{
	struct opt_group *in = r->g;
	const struct opt *o = opt_find(&in, name, err);
	enum ar_status st = o ? texts_add(&l->name, name, strlen(name), err) : AR_USAGE;

	if (st)
		return st;
	if (!value && o->type != OPT_FLAG)
		return ar_fail(err, AR_USAGE, "option '%s' needs a value", name);
	st = whole_value(l, value ? value : "1", err);
	if (st)
		ar_err_prefix(err, "%s", name);
	return st;
}

/* zip: NAME, NAME = [VALUE, VALUE], ... */
static enum ar_status zip_line(struct sweep_line *l, const char *names, const char *value,
			       const struct reader *r, struct ar_err *err)
{
	enum ar_status st = list_value(&names, ",", &l->name, err);

	(void)r;
	while (!st && *names == ',') {
		names++;
		st = list_value(&names, ",", &l->name, err);
	}
	for (bool more = true; !st && more; more = *value == ',', value += more) {
		size_t before = l->value.n;

		value = list_space(value ? value : "");
		if (*value != '[')
			return ar_fail(err, AR_USAGE, "want [VALUE, ...], [VALUE, ...]");
		st = list_read(&value, &l->value, err);
		if (!st && l->value.n - before != l->name.n)
			st = ar_fail(err, AR_USAGE,
				     "%zu values for %zu options; give each option one",
				     l->value.n - before, l->name.n);
	}
	if (!st && *value)
		st = ar_fail(err, AR_USAGE, "'%s' after the list; want a comma", value);
	return st;
}

/* skip: NAME = VALUE, ...  The reader of lines cut the text at the first equals sign. */
static enum ar_status skip_line(struct sweep_line *l, const char *name, const char *value,
				const struct reader *r, struct ar_err *err)
{
	size_t n = strlen(name);
	enum ar_status st = AR_OK;

	(void)r;
	while (value) {
		while (n && isspace((unsigned char)name[n - 1]))
			n--;
		st = texts_add(&l->name, name, n, err);
		if (!st)
			st = list_value(&value, ",", &l->value, err);
		if (st || !*value)
			return st;
		name = list_space(value + 1);
		value = strchr(name, '=');
		n = value ? (size_t)(value++ - name) : 0;
	}
	return ar_fail(err, AR_USAGE, "want NAME = VALUE, ...");
}

static const struct keyword {
	const char *word;
	enum ar_status (*read)(struct sweep_line *l, const char *name, const char *value,
			       const struct reader *r, struct ar_err *err);
} keywords[] = { { "zip:", zip_line }, { "skip:", skip_line }, { "", plain_line } };

static enum ar_status read_line(void *ctx, char *name, char *value, unsigned line,
				struct ar_err *err)
{
	const struct reader *r = ctx;
	const struct keyword *k = keywords;
	struct sweep_line l = { .line = line };
	enum ar_status st;

	while (strncmp(name, k->word, strlen(k->word)) != 0)
		k++;
	st = k->read(&l, list_space(name + strlen(k->word)), value, r, err);
	if (st && *k->word)
		ar_err_prefix(err, "%.*s", (int)strcspn(k->word, ":"), k->word);
	if (!st && k->read == skip_line)
		return add_line(&r->s->skip, &r->s->n_skip, &r->s->cap_skip, &l, err);
	if (!st)
		st = check_once(r, &l, err);
	if (!st)
		st = check_line(r, &l, err);
	if (!st)
		return add_line(&r->s->line, &r->s->n_line, &r->s->cap_line, &l, err);
	line_release(&l);
	return st;
}

/* ---- points ---- */

/* Whether a line gives the option the value, in these choices or, if choice is NULL, in any. */
static bool has_value(const struct sweep *s, const size_t *choice, const char *name,
		      const char *value)
{
	for (size_t i = 0; i < s->n_line; i++) {
		const struct sweep_line *l = &s->line[i];

		for (size_t j = 0; j < l->value.n; j++)
			if (!strcmp(l->name.v[j % l->name.n], name) &&
			    !strcmp(l->value.v[j], value) &&
			    (!choice || choice[i] == j / l->name.n))
				return true;
	}
	return false;
}

/* A skip that can never hold is a mistake. */
static enum ar_status check_skips(const struct sweep *s, struct ar_err *err)
{
	for (size_t i = 0; i < s->n_skip; i++) {
		const struct sweep_line *l = &s->skip[i];

		for (size_t k = 0; k < l->name.n; k++)
			if (!has_value(s, NULL, l->name.v[k], l->value.v[k]))
				return ar_fail(err, AR_USAGE,
					       "%s:%u: skip: no line gives '%s' the value '%s'",
					       s->path, l->line, l->name.v[k], l->value.v[k]);
	}
	return AR_OK;
}

static bool skipped(const struct sweep *s, const size_t *choice)
{
	for (size_t i = 0; i < s->n_skip; i++) {
		const struct sweep_line *l = &s->skip[i];
		size_t k = 0;

		while (k < l->name.n && has_value(s, choice, l->name.v[k], l->value.v[k]))
			k++;
		if (k == l->name.n)
			return true;
	}
	return false;
}

/* The last line is the fastest. */
static void split_number(const struct sweep *s, size_t number, size_t *choice)
{
	for (size_t i = s->n_line; i--;) {
		choice[i] = number % choices(&s->line[i]);
		number /= choices(&s->line[i]);
	}
}

static enum ar_status number_points(struct sweep *s, struct ar_err *err)
{
	size_t n = 1, *choice = calloc(s->n_line + 1, sizeof *choice);

	for (size_t i = 0; i < s->n_line && n <= SWEEP_POINTS_MAX; i++)
		n *= choices(&s->line[i]);
	if (choice && n <= SWEEP_POINTS_MAX)
		s->point = calloc(n, sizeof *s->point);
	for (size_t i = 0; s->point && i < n; i++) {
		split_number(s, i, choice);
		if (!skipped(s, choice))
			s->point[s->n_point++] = i;
	}
	free(choice);
	if (n > SWEEP_POINTS_MAX)
		return ar_fail(err, AR_USAGE, "%s: more than %d points; make several files of it",
			       s->path, SWEEP_POINTS_MAX);
	if (!s->point)
		return ar_nomem(err);
	return s->n_point ? AR_OK : ar_fail(err, AR_USAGE, "%s: every point is skipped", s->path);
}

enum ar_status sweep_load(struct sweep *s, const char *path, struct opt_group *g,
			  struct ar_err *err)
{
	struct reader r = { s, g };
	enum ar_status st;

	*s = (struct sweep){ .path = strdup(path) };
	st = s->path ? opt_read_lines(path, read_line, &r, err) : ar_nomem(err);
	if (!st && !s->n_line)
		st = ar_fail(err, AR_USAGE, "%s: no options; write 'trace = FILE' and others",
			     path);
	if (!st)
		st = check_skips(s, err);
	return st ? st : number_points(s, err);
}

/* A flag is given without its value where that is 1. */
static enum ar_status add_option(struct texts *out, const char *name, const char *value, bool flag,
				 struct ar_err *err)
{
	char *text;
	enum ar_status st;

	if (asprintf(&text, "--%s%s%s", name, flag && strcmp(value, "1") ? "=" : "",
		     flag && strcmp(value, "1") ? value : "") < 0)
		return ar_nomem(err);
	st = texts_add(out, text, strlen(text), err);
	free(text);
	return st || flag ? st : texts_add(out, value, strlen(value), err);
}

enum ar_status sweep_arguments(const struct sweep *s, size_t i, struct opt_group *g,
			       struct texts *out, struct ar_err *err)
{
	size_t *choice = calloc(s->n_line + 1, sizeof *choice);
	enum ar_status st = choice ? AR_OK : ar_nomem(err);

	if (choice)
		split_number(s, s->point[i], choice);
	for (size_t k = 0; k < s->n_line && !st; k++) {
		const struct sweep_line *l = &s->line[k];

		for (size_t j = 0; j < l->name.n && !st; j++) {
			struct opt_group *in = g;
			const struct opt *o = opt_find(&in, l->name.v[j], err);

			st = add_option(out, l->name.v[j], l->value.v[choice[k] * l->name.n + j],
					o && o->type == OPT_FLAG, err);
		}
	}
	free(choice);
	return st;
}
