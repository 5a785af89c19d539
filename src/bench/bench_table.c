/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_table.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "src/revision.h"

/* The value at a column's offset. */
union value {
	const char *text;
	int64_t n;
	double x;
};

static union value value_of(const void *row, const struct bench_col *c)
{
	union value v;

	memcpy(&v, (const char *)row + c->off, sizeof v);
	return v;
}

static bool applies(union value v, const struct bench_col *c)
{
	switch (c->type) {
	case COL_TEXT: return v.text;
	case COL_COUNT: return v.n;
	case COL_REAL: return isfinite(v.x);
	default: return true;
	}
}

/* A negative width: to the left, as printf() has it. */
static void put_text(const char *s, int width)
{
	int pad = abs(width) - text_put(s, NULL);

	pad = pad > 0 ? pad : 0;
	printf("%*s", width > 0 ? pad : 0, "");
	text_put(s, stdout);
	printf("%*s", width < 0 ? pad : 0, "");
}

static void put_cell(const void *row, const struct bench_col *c)
{
	union value v = value_of(row, c);

	if (!applies(v, c))
		printf("%*s", c->width, "-");
	else if (c->type == COL_TEXT)
		put_text(v.text, c->width);
	else if (c->type == COL_REAL)
		printf("%*.*f", c->width, c->decimals, v.x / c->unit);
	else
		printf("%*lld", c->width, (long long)v.n);
}

static void put_cells(const struct bench_col *cols, const void *row)
{
	const char *sep = "";

	for (const struct bench_col *c = cols; c->name; c++)
		if (c->head) {
			fputs(sep, stdout);
			put_cell(row, c);
			sep = " ";
		}
	putchar('\n');
}

static cJSON *value_json(const void *row, const struct bench_col *c)
{
	union value v = value_of(row, c);

	if (!applies(v, c))
		return cJSON_CreateNull();
	return c->type == COL_TEXT ? cJSON_CreateString(v.text) :
				     cJSON_CreateNumber(c->type == COL_REAL ? v.x : (double)v.n);
}

static char *row_json(const struct bench_col *cols, const void *row)
{
	cJSON *o = cJSON_CreateObject();
	bool good = o && cJSON_AddStringToObject(o, "impl", "attnreplay") &&
		    cJSON_AddStringToObject(o, "version", AR_REVISION);
	char *text;

	for (const struct bench_col *c = cols; c->name && good; c++)
		good = json_add(o, c->name, value_json(row, c));
	text = good ? cJSON_PrintUnformatted(o) : NULL;
	cJSON_Delete(o);
	return text;
}

enum ar_status bench_table_open(struct bench_table *t, struct ar_err *err)
{
	return t->path ? outfile_open(&t->file, t->path, err) : AR_OK;
}

void bench_table_heads(const struct bench_table *t)
{
	const char *sep = "";

	if (t->lines)
		return;
	for (const struct bench_col *c = t->cols; c->name; c++)
		if (c->head) {
			printf("%s%*s", sep, c->width, c->head);
			sep = " ";
		}
	putchar('\n');
}

static void put_line(const char *json, FILE *f)
{
	text_put_json_value(json, f);
	putc('\n', f);
}

enum ar_status bench_table_put(struct bench_table *t, const void *row, struct ar_err *err)
{
	char *text = NULL;

	if (t->file.f || t->lines) {
		text = row_json(t->cols, row);
		if (!text)
			return ar_nomem(err);
	}
	if (t->lines)
		put_line(text, stdout);
	else
		put_cells(t->cols, row);
	fflush(stdout);
	if (t->file.f)
		put_line(text, t->file.f);
	cJSON_free(text);
	if (t->file.f && (fflush(t->file.f) || ferror(t->file.f)))
		return ar_fail(err, AR_IO, "%s: cannot write: %s", t->path, strerror(errno));
	return AR_OK;
}

enum ar_status bench_table_close(struct bench_table *t, enum ar_status st, struct ar_err *err)
{
	if (!st)
		st = outfile_commit(&t->file, err);
	outfile_release(&t->file);
	return st;
}
