/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_table.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

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

static void put_cell(const void *row, const struct bench_col *c)
{
	union value v = value_of(row, c);

	if (!applies(v, c))
		printf("%*s", c->width, "-");
	else if (c->type == COL_TEXT)
		printf("%*s", c->width, v.text);
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

	for (const struct bench_col *c = cols; c->name && good; c++) {
		cJSON *v = value_json(row, c);

		good = v && cJSON_AddItemToObject(o, c->name, v);
		if (v && !good)
			cJSON_Delete(v);
	}
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

enum ar_status bench_table_put(struct bench_table *t, const void *row, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	char *text = NULL;

	if (t->file.f || t->lines) {
		text = row_json(t->cols, row);
		if (!text)
			return ar_nomem(err);
	}
	if (t->lines)
		puts(text);
	else
		put_cells(t->cols, row);
	fflush(stdout);
	if (t->file.f)
		st = outfile_write(&t->file, text, strlen(text), err);
	if (t->file.f && !st)
		st = outfile_write(&t->file, "\n", 1, err);
	cJSON_free(text);
	return st;
}

enum ar_status bench_table_close(struct bench_table *t, enum ar_status st, struct ar_err *err)
{
	if (!st)
		st = outfile_commit(&t->file, err);
	outfile_release(&t->file);
	return st;
}
