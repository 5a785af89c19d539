/* SPDX-License-Identifier: Apache-2.0 */
/* Files whose columns or keys are named by --columns: an arrival, a date or a number, and two token
 * counts. */
#include "config.h"
#include "traces/importers/import.h"

static const char *const need[] = { NULL };

#define OFF(member) offsetof(struct import_columns, member)

/* clang-format off */
static const struct opt keys[] = {
	{ .name = "arrival", .type = OPT_STR, .off = OFF(arrival), .arg = "NAME" },
	{ .name = "prompt", .type = OPT_STR, .off = OFF(prompt), .arg = "NAME" },
	{ .name = "output", .type = OPT_STR, .off = OFF(output), .arg = "NAME" },
	{ 0 }
};
/* clang-format on */

static enum ar_status columns_start(struct import *im, struct ar_err *err)
{
	struct import_columns *c = &im->columns;
	struct opt_group g[] = { { .opts = keys, .base = c }, { 0 } };
	enum ar_status st = opt_set_all(g, im->args->columns, err);

	if (!st && (!c->arrival || !c->prompt || !c->output))
		st = ar_fail(err, AR_USAGE, "want arrival=NAME,prompt=NAME,output=NAME");
	if (st == AR_USAGE)
		ar_err_prefix(err, "columns");
	return st;
}

void import_columns_release(struct import *im)
{
	struct opt_group g[] = { { .opts = keys, .base = &im->columns }, { 0 } };

	opt_release(g);
}

static enum ar_status find_all(struct import *im, const struct record *r, struct ar_err *err)
{
	const char *const name[] = { im->columns.arrival, im->columns.prompt, im->columns.output };

	for (size_t i = 0; i < sizeof name / sizeof *name; i++)
		if (!record_find(r, name[i]))
			return import_fail(im, err, "the %s lacks \"%s\", which --columns names",
					   r->kind == RECORD_CSV ? "header" : "record", name[i]);
	return AR_OK;
}

static enum ar_status columns_arrival(struct import *im, const struct record *r, int64_t *ns,
				      struct ar_err *err)
{
	struct span v = record_find(r, im->columns.arrival)->value;
	enum date_zone zone;
	bool date;

	if (v.n > 1 && *v.s == '"')
		v = (struct span){ v.s + 1, v.n - 2 };
	date = date_parse(v, ns, &zone);
	if (im->t->n && im->t->has_epoch != date)
		return import_fail(im, err, "%s is \"%s\", unlike those before %s date",
				   im->columns.arrival, span_show(v).s, date ? "a" : "no");
	im->t->has_epoch = date;
	return date ? import_date(im, im->columns.arrival, v, ns, err) :
		      import_time_text(im, im->columns.arrival, v, 1000000000, ns, err);
}

static enum ar_status columns_record(struct import *im, const struct record *r, struct ar_err *err)
{
	struct request q = request_none;
	enum ar_status st = find_all(im, r, err);

	if (!st)
		st = columns_arrival(im, r, &q.arrival_ns, err);
	if (!st)
		st = import_lengths(im, r, im->columns.prompt, im->columns.output, &q, err);
	if (st || import_unserved(im, &q))
		return st;
	return import_add(im, &q, err);
}

#define COLUMNS(k) \
	{ \
		.name = "columns", .title = "columns named by --columns", .kind = (k), \
		.need = need, .uses = USES_UNIT, .start = columns_start, .record = columns_record \
	}
static const struct importer by_kind[] = {
	[RECORD_CSV] = COLUMNS(RECORD_CSV), [RECORD_JSON] = COLUMNS(RECORD_JSON)
};

const struct importer *importer_columns(enum record_kind kind)
{
	return &by_kind[kind];
}
