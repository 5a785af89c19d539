/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs of 'attnreplay select'. */
#include "config.h"
#include "src/select/select_files.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/chart/chart.h"

static enum ar_status make(struct outfile *f, const char *path, struct ar_err *err)
{
	return path ? outfile_open(f, path, err) : AR_OK;
}

enum ar_status select_files_check(const struct select_args *a, struct ar_err *err)
{
	const char *path[] = { a->json, a->csv, a->svg };
	bool same = false;
	enum ar_status st = AR_OK;

	for (int i = 1; i < 3; i++)
		for (int k = 0; k < i && path[i] && !st; k++) {
			if (path[k])
				st = outfile_same(path[k], path[i], &same, err);
			if (same)
				st = ar_fail(err, AR_USAGE,
					     "%s: given for two outputs; name another file",
					     path[i]);
		}
	return st;
}

static bool speaks_utf8(void)
{
	const char *all = getenv("LC_ALL"), *type = getenv("LC_CTYPE"), *lang = getenv("LANG");
	const char *name = all && *all ? all : type && *type ? type : lang ? lang : "";

	return strstr(name, "UTF-8") || strstr(name, "utf8");
}

enum ar_status select_files_open(struct select_files *o, struct ar_err *err)
{
	const struct select_args *a = o->a;
	enum ar_status st;

	if (o->opened)
		return AR_OK;
	o->opened = true;
	o->picture = (enum select_picture)a->picture;
	if (o->picture == SELECT_AUTO)
		o->picture = isatty(STDOUT_FILENO) && speaks_utf8() ? SELECT_UNICODE : SELECT_ASCII;
	st = make(&o->json, a->json, err);
	if (!st)
		st = make(&o->csv, a->csv, err);
	if (!st)
		st = make(&o->svg, a->svg, err);
	if (!st && o->svg.f) {
		o->body = open_memstream(&o->drawn, &o->len);
		st = o->body ? AR_OK : ar_nomem(err);
	}
	if (!st && o->csv.f)
		select_csv_head(o->csv.f);
	return st;
}

static const char json_head[] = "{\"schema\":\"attnreplay-select-2\",\"selections\":[\n";

enum ar_status select_files_put(struct select_files *o, const struct select_result *r,
				struct ar_err *err)
{
	int head = (int)o->a->head;
	enum ar_status st;

	if (o->n)
		putchar('\n');
	st = select_put_text(r, head, o->picture, stdout, err);
	if (!st && o->json.f) {
		fputs(o->n ? ",\n" : json_head, o->json.f);
		st = select_put_json(r, o->json.f, err);
	}
	if (!st && o->csv.f)
		select_put_csv(r, o->csv.f);
	if (!st && o->svg.f)
		st = select_put_svg(r, head, o->body, &o->height, err);
	o->n++;
	return st;
}

static void finish_svg(struct select_files *o)
{
	chart_svg_begin(SELECT_SVG_WIDTH, o->height, o->svg.f);
	fwrite(o->drawn, 1, o->len, o->svg.f);
	chart_svg_end(o->svg.f);
}

enum ar_status select_files_close(struct select_files *o, enum ar_status st, struct ar_err *err)
{
	struct outfile *file[] = { &o->json, &o->csv, &o->svg };

	if (o->body && fclose(o->body) && !st)
		st = ar_nomem(err);
	if (!st && o->json.f)
		fputs("\n]}\n", o->json.f);
	if (!st && o->svg.f)
		finish_svg(o);
	free(o->drawn);
	for (int i = 0; i < 3; i++) {
		if (!st)
			st = outfile_commit(file[i], err);
		outfile_release(file[i]);
	}
	return st;
}
