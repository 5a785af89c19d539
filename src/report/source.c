/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/report/source.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/grow.h"
#include "base/number.h"

static bool ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);

	return n > m && !strcmp(s + n - m, end);
}

static int is_database(const struct dirent *d)
{
	return *d->d_name != '.' && ends_with(d->d_name, ".db") &&
	       !ends_with(d->d_name, ".failed.db");
}

/* By bytes, in any locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* Add DIR/NAME, or NAME without a folder. */
static enum ar_status add_path(struct opt_list *to, const char *dir, const char *name,
			       struct ar_err *err)
{
	const size_t n = strlen(dir);
	char *path;

	if (!GROW(to->v, to->cap, to->n + 1) ||
	    asprintf(&path, "%s%s%s", dir, n && dir[n - 1] != '/' ? "/" : "", name) < 0)
		return ar_nomem(err);
	to->v[to->n++] = path;
	return AR_OK;
}

static enum ar_status add_folder(struct opt_list *to, const char *dir, struct ar_err *err)
{
	struct dirent **found;
	const int n = scandir(dir, &found, is_database, by_name);
	enum ar_status st = AR_OK;

	if (n < 0)
		return ar_fail(err, AR_IO, "%s: cannot read the folder: %s", dir, strerror(errno));
	if (!n)
		st = ar_fail(err, AR_DATA,
			     "%s: no database NAME.db in this folder; name a database, or the "
			     "folder of a sweep",
			     dir);
	for (int i = 0; i < n; i++) {
		if (!st)
			st = add_path(to, dir, found[i]->d_name, err);
		free(found[i]);
	}
	free(found);
	return st;
}

enum ar_status source_expand(struct opt_list *to, char *const *operand, size_t n,
			     struct ar_err *err)
{
	enum ar_status st = AR_OK;
	struct stat s;

	for (size_t i = 0; i < n && !st; i++)
		st = !stat(operand[i], &s) && S_ISDIR(s.st_mode) ?
			     add_folder(to, operand[i], err) :
			     add_path(to, "", operand[i], err);
	return st;
}

void source_release(struct opt_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
	*l = (struct opt_list){ 0 };
}

static void parse_operand(struct store_source *s, char *operand)
{
	char *colon = strrchr(operand, ':');
	uint64_t run;

	*s = (struct store_source){ .path = operand };
	if (!colon || !access(operand, F_OK) || !num_u64(colon + 1, strlen(colon + 1), &run) ||
	    !run || run > INT64_MAX)
		return;
	*colon = '\0';
	s->run = (int64_t)run;
}

void source_parse(struct store_source *source, char **operand, size_t n)
{
	for (size_t i = 0; i < n; i++)
		parse_operand(&source[i], operand[i]);
}
