/* SPDX-License-Identifier: Apache-2.0 */
/* The list of formats, and the choice among them. */
#include "config.h"
#include "traces/importers/import.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "traces/known_files.h"

const struct importer *const importers[] = {
#define IMPORTER(name) &importer_##name,
#include "traces/importers/importer_list.h"
#undef IMPORTER
	NULL
};

/* Return the first field that f needs and r lacks, or NULL. */
static const char *lacking(const struct importer *f, const struct record *r)
{
	for (const char *const *need = f->need; *need; need++)
		if (!record_has(r, *need))
			return *need;
	return NULL;
}

static bool importer_fits(const struct importer *f, const struct record *r)
{
	return f->kind == r->kind && !lacking(f, r) && (!f->sniff || f->sniff(r));
}

/* Write "a, b, c" into buf, cut to its size. */
static void list_fields(const struct record *r, char *buf, size_t size)
{
	size_t n = 0;

	*buf = 0;
	for (size_t i = 0; i < r->n && n < size; i++) {
		struct span name = { r->field[i].name, strlen(r->field[i].name) };

		n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? ", " : "", span_show(name).s);
	}
}

static void list_formats(char *buf, size_t size)
{
	size_t n = 0;

	for (int i = 0; importers[i] && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? ", " : "", importers[i]->name);
}

static enum ar_status pick_named(const struct importer **out, const struct record *first,
				 const char *format, struct ar_err *err)
{
	const struct importer *f = NULL;
	char have[200];

	for (int i = 0; importers[i] && !f; i++)
		if (!strcmp(importers[i]->name, format))
			f = importers[i];
	if (!f) {
		list_formats(have, sizeof have);
		return ar_fail(err, AR_USAGE, "unknown trace format '%s'; want one of %s", format,
			       have);
	}
	if (f->kind != first->kind)
		return ar_fail(err, AR_DATA, "not in format %s, which is %s", f->name,
			       f->kind == RECORD_CSV ? "CSV with a header" :
						       "one JSON object per line");
	if (lacking(f, first)) {
		list_fields(first, have, sizeof have);
		return ar_fail(err, AR_DATA, "%s lacks \"%s\" (have: %s)",
			       f->kind == RECORD_CSV ? "the header" : "the record",
			       lacking(f, first), have);
	}
	*out = f;
	return AR_OK;
}

/* Write the fields that f needs and r lacks into buf from n on.  Returns the new n. */
static size_t list_lacking(const struct importer *f, const struct record *r, char *buf, size_t size,
			   size_t n)
{
	const char *comma = "";

	for (const char *const *need = f->need; *need && n < size; need++)
		if (!record_has(r, *need)) {
			n += (size_t)snprintf(buf + n, size - n, "%s \"%s\"", comma, *need);
			comma = ",";
		}
	return n;
}

/* Count the fields of need that r has and lacks. */
static void compare_fields(const struct importer *f, const struct record *r, size_t *have,
			   size_t *lack)
{
	*have = *lack = 0;
	for (const char *const *need = f->need; *need; need++)
		++*(f->kind == r->kind && record_has(r, *need) ? have : lack);
}

/* Write 'NAME needs "a", "b"; NAME needs ...' for the formats that lack the fewest fields and, of
 * these, have the most, at least one.  "": there is none. */
static void list_nearest(const struct record *r, char *buf, size_t size)
{
	size_t least = SIZE_MAX, most = 0, have, lack, n = 0;

	*buf = 0;
	for (int i = 0; importers[i]; i++) {
		compare_fields(importers[i], r, &have, &lack);
		if (have && lack && (lack < least || (lack == least && have > most))) {
			least = lack;
			most = have;
		}
	}
	for (int i = 0; importers[i] && n < size; i++) {
		compare_fields(importers[i], r, &have, &lack);
		if (!most || have != most || lack != least)
			continue;
		n += (size_t)snprintf(buf + n, size - n, "%s%s needs", n ? "; " : "",
				      importers[i]->name);
		n = list_lacking(importers[i], r, buf, size, n);
	}
}

static enum ar_status unknown_format(const struct record *first, struct ar_err *err)
{
	const struct known_file *known = known_file(first);
	char have[200], near[200];

	list_formats(have, sizeof have);
	if (known && known->command)
		return ar_fail(
			err, AR_DATA,
			"this looks like %s, which 'attnreplay %s' reads; a trace is one of %s",
			known->title, known->command, have);
	if (known)
		return ar_fail(err, AR_DATA,
			       "this looks like %s, which cannot be read; convert it to one of %s",
			       known->title, have);
	list_fields(first, have, sizeof have);
	list_nearest(first, near, sizeof near);
	if (*near)
		return ar_fail(err, AR_DATA, "no format fits: %s (have: %s); see --columns", near,
			       have);
	return ar_fail(err, AR_DATA, "unknown trace format (have: %s); see --columns", have);
}

const struct importer *importer_fitting(const struct record *first)
{
	for (int i = 0; importers[i]; i++)
		if (importer_fits(importers[i], first))
			return importers[i];
	return NULL;
}

const struct importer *importer_named(const struct record *r)
{
	for (int i = 0; importers[i]; i++)
		if (importers[i]->kind == r->kind && *importers[i]->need &&
		    !lacking(importers[i], r))
			return importers[i];
	return NULL;
}

enum ar_status importer_whole(const struct cJSON *v, struct ar_err *err)
{
	struct record r;

	return known_file_names(&r, v) && known_file(&r) ? unknown_format(&r, err) : AR_OK;
}

enum ar_status importer_pick(const struct importer **out, const struct record *first,
			     const char *format, struct ar_err *err)
{
	const struct importer *f = NULL;

	if (format)
		return pick_named(out, first, format, err);
	for (int i = 0; importers[i]; i++) {
		if (!importer_fits(importers[i], first))
			continue;
		if (f)
			return ar_fail(err, AR_DATA,
				       "formats %s and %s both fit; say which with --format",
				       f->name, importers[i]->name);
		f = importers[i];
	}
	if (!f)
		return unknown_format(first, err);
	*out = f;
	return AR_OK;
}
