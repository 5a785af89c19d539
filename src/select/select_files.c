/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs of 'attnreplay select'. */
#include "config.h"
#include "src/select/select_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum ar_status make(FILE **f, const char *path, struct ar_err *err)
{
	if (!path)
		return AR_OK;
	*f = fopen(path, "w");
	return *f ? AR_OK : ar_fail(err, AR_IO, "%s: cannot write: %s", path, strerror(errno));
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
	if (!st && o->svg) {
		o->body = open_memstream(&o->drawn, &o->len);
		st = o->body ? AR_OK : ar_nomem(err);
	}
	if (!st && o->csv)
		select_csv_head(o->csv);
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
	if (!st && o->json) {
		fputs(o->n ? ",\n" : json_head, o->json);
		st = select_put_json(r, o->json, err);
	}
	if (!st && o->csv)
		select_put_csv(r, o->csv);
	if (!st && o->svg)
		st = select_put_svg(r, head, o->body, &o->height, err);
	o->n++;
	return st;
}

static void finish_svg(struct select_files *o)
{
	fprintf(o->svg,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
		"font-family=\"sans-serif\" font-size=\"10\">\n"
		"<style>.frame{fill:none;stroke:#999}.chunk{stroke:#c33;stroke-dasharray:2}"
		".title{font-size:13px}rect{fill:#246}</style>\n"
		"<rect width=\"100%%\" height=\"100%%\" style=\"fill:#fff\"/>\n",
		SELECT_SVG_WIDTH, o->height);
	fwrite(o->drawn, 1, o->len, o->svg);
	fputs("</svg>\n", o->svg);
}

static enum ar_status shut(FILE *f, const char *path, enum ar_status st, struct ar_err *err)
{
	bool bad = f && ferror(f);

	if (!f)
		return st;
	bad |= fclose(f) != 0;
	return st || !bad ? st : ar_fail(err, AR_IO, "%s: cannot write: %s", path, strerror(errno));
}

enum ar_status select_files_close(struct select_files *o, enum ar_status st, struct ar_err *err)
{
	const struct select_args *a = o->a;

	if (o->body && fclose(o->body) && !st)
		st = ar_nomem(err);
	if (!st && o->json)
		fputs("\n]}\n", o->json);
	if (!st && o->svg)
		finish_svg(o);
	free(o->drawn);
	st = shut(o->json, a->json, st, err);
	st = shut(o->csv, a->csv, st, err);
	return shut(o->svg, a->svg, st, err);
}
