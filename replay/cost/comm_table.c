/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/comm_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/number.h"
#include "base/text.h"

enum { FILE_MAX = 16 << 20, RANKS_MAX = 1024 };

static const char magic[] = "# attnreplay collectives 1";

/* The columns, in order. */
enum column { OP, TYPE, RANKS, HOSTS, MODE, BYTES, N, P10, P50, P90, KERNEL, COLUMNS };
static const char *const columns[COLUMNS] = { "collective", "type",   "ranks", "hosts",
					      "mode",	    "bytes",  "n",     "p10_ns",
					      "p50_ns",	    "p90_ns", "kernel" };

static const char *const ops[] = {
#define X(name, text) text,
	COMM_OPS(X)
#undef X
};

struct reader {
	struct comm_table *t;
	const int *ranks;		       /* [COMM_N_OPS] */
	bool headed;			       /* the line of columns was read */
	bool other[COMM_N_OPS][RANKS_MAX + 1]; /* numbers of ranks in the file */
};

/* Split a line into at most COLUMNS words.  Returns how many it has. */
static int split(char *line, char *word[COLUMNS])
{
	char *rest = NULL;
	int n = 0;

	for (char *w = strtok_r(line, " \t\r", &rest); w; w = strtok_r(NULL, " \t\r", &rest)) {
		if (n < COLUMNS)
			word[n] = w;
		n++;
	}
	return n;
}

static bool is_header(char *const word[COLUMNS], int n)
{
	for (int i = 0; i < COLUMNS && i < n; i++)
		if (strcmp(word[i], columns[i]) != 0)
			return false;
	return n == COLUMNS;
}

/* The place of the kernel. */
static int find_kernel(struct comm_table *t, const char *name)
{
	char(*k)[COMM_KERNEL] = t->kernel;
	int i = 0;

	while (i < COMM_KERNELS - 1 && *k[i] && strncmp(k[i], name, COMM_KERNEL - 1) != 0)
		i++;
	if (!*k[i])
		snprintf(k[i], COMM_KERNEL, "%s", i < COMM_KERNELS - 1 ? name : "others");
	return i;
}

/* Add a point to the curve of collective `op`.  x: the numbers of its line.  Returns the column
 * that is wrong, or NULL.  Sets *st to AR_NOMEM if there is no memory. */
static const char *add_point(struct reader *r, int op, bool graph, const int64_t x[COLUMNS],
			     const char *kernel, enum ar_status *st)
{
	struct comm_curve *c = &r->t->curve[op][graph];

	r->other[op][x[RANKS]] = true;
	if (x[RANKS] != r->ranks[op])
		return NULL;
	if (!x[P50])
		return "p50_ns";
	if (x[BYTES] <= (c->n ? c->point[c->n - 1].bytes : 0))
		return "bytes";
	if (!GROW(c->point, c->cap, c->n + 1))
		*st = AR_NOMEM;
	else
		c->point[c->n++] = (struct comm_point){ x[BYTES], x[P50],
							find_kernel(r->t, kernel) };
	return NULL;
}

/* Add the line that has the columns `word`, to each collective of its name. */
static const char *add_line(struct reader *r, char *const word[COLUMNS], enum ar_status *st)
{
	const bool graph = !strcmp(word[MODE], "graph");
	const char *wrong = NULL;
	int64_t x[COLUMNS] = { 0 };

	for (int i = RANKS; i < KERNEL; i++)
		if (i != MODE && (!num_count(word[i], &x[i]) || x[i] < 0))
			return columns[i];
	if (x[RANKS] < 1 || x[RANKS] > RANKS_MAX)
		return "ranks";
	if (!graph && strcmp(word[MODE], "inline") != 0)
		return "mode";
	if (strcmp(word[TYPE], "bf16") != 0 || x[HOSTS] != 1)
		return NULL;
	for (int op = 0; op < COMM_N_OPS && !wrong && !*st; op++)
		if (!strcmp(ops[op], word[OP]))
			wrong = add_point(r, op, graph, x, word[KERNEL], st);
	return wrong;
}

static enum ar_status read_line(struct reader *r, char *line, const char *path, int no,
				struct ar_err *err)
{
	char *word[COLUMNS];
	const char *wrong = NULL;
	enum ar_status st = AR_OK;
	int n = *line == '#' ? 0 : split(line, word);

	if (!n)
		return AR_OK;
	if (!r->headed) {
		r->headed = is_header(word, n);
		return r->headed ? AR_OK :
				   ar_fail(err, AR_DATA,
					   "%s:%d: want a line of the columns, which begins with "
					   "'collective type ranks'",
					   path, no);
	}
	if (n != COLUMNS)
		return ar_fail(err, AR_DATA, "%s:%d: want %d words, not %d", path, no, COLUMNS, n);
	wrong = add_line(r, word, &st);
	if (wrong)
		return ar_fail(
			err, AR_DATA,
			"%s:%d: %s: want whole numbers from 0, at least 1 rank and 1 ns, mode "
			"inline or graph, and more bytes in each line of a collective",
			path, no, wrong);
	return st ? ar_nomem(err) : AR_OK;
}

static enum ar_status read_lines(struct reader *r, char *text, const char *path, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	char *rest = text;
	int no = 0;

	if (strncmp(text, magic, strlen(magic)) != 0)
		return ar_fail(err, AR_DATA, "%s:1: want '%s'; this is no table of collectives",
			       path, magic);
	for (char *line = strsep(&rest, "\n"); line && !st; line = strsep(&rest, "\n"))
		st = read_line(r, line, path, ++no, err);
	return st;
}

/* Copy the points of one mode to the other, if that has none.  c: [2], by mode. */
static enum ar_status fill_modes(struct comm_curve *c, struct ar_err *err)
{
	const int from = c[0].n ? 0 : 1, to = 1 - from;

	if (c[to].n || !c[from].n)
		return AR_OK;
	if (!GROW(c[to].point, c[to].cap, c[from].n))
		return ar_nomem(err);
	memcpy(c[to].point, c[from].point, c[from].n * sizeof *c[to].point);
	c[to].n = c[from].n;
	return AR_OK;
}

static enum ar_status refuse_ranks(const struct reader *r, int op, const char *path,
				   struct ar_err *err)
{
	char all[128] = "";
	size_t n = 0;

	for (int i = 1; i <= RANKS_MAX && n < sizeof all; i++)
		if (r->other[op][i])
			n += (size_t)snprintf(all + n, sizeof all - n, "%s%d", n ? ", " : "", i);
	return ar_fail(err, AR_USAGE,
		       "%s: no %s in bf16 of %d ranks on one host; the file has ranks %s; take one "
		       "that was measured with as many, or --comm model",
		       path, ops[op], r->ranks[op], n ? all : "of no such collective");
}

enum ar_status comm_table_load(struct comm_table *t, const char *path, const int ranks[COMM_N_OPS],
			       struct ar_err *err)
{
	struct reader r = { .t = t, .ranks = ranks };
	char *text;
	enum ar_status st = text_read(&text, path, FILE_MAX, err);

	*t = (struct comm_table){ 0 };
	if (st)
		return st;
	st = read_lines(&r, text, path, err);
	free(text);
	for (int op = 0; op < COMM_N_OPS && !st; op++) {
		st = fill_modes(t->curve[op], err);
		if (!st && ranks[op] && !t->curve[op][0].n)
			st = refuse_ranks(&r, op, path, err);
	}
	return st;
}

void comm_table_release(struct comm_table *t)
{
	for (int op = 0; op < COMM_N_OPS; op++)
		for (int graph = 0; graph < 2; graph++)
			free(t->curve[op][graph].point);
	*t = (struct comm_table){ 0 };
}

int64_t comm_table_ns(const struct comm_table *t, enum comm_op op, bool graph, int64_t bytes)
{
	const struct comm_curve *c = &t->curve[op][graph];
	const struct comm_point *p = c->point, *last = p + c->n - 1;
	double x;

	if (bytes >= last->bytes) {
		x = (double)last->ns * ((double)bytes / (double)last->bytes);
		return x < 0x1p63 ? llround(x) : INT64_MAX;
	}
	if (bytes <= p->bytes)
		return p->ns;
	while (p[1].bytes < bytes)
		p++;
	x = log((double)bytes / (double)p->bytes) / log((double)p[1].bytes / (double)p->bytes);
	return llround((double)p->ns * pow((double)p[1].ns / (double)p->ns, x));
}

int comm_table_kernel(const struct comm_table *t, enum comm_op op, bool graph, int64_t bytes)
{
	const struct comm_curve *c = &t->curve[op][graph];
	size_t i = c->n - 1;

	while (i && c->point[i].bytes > bytes)
		i--;
	return c->point[i].kernel;
}
