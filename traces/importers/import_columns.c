/* SPDX-License-Identifier: Apache-2.0 */
/* Files whose columns or keys are named by --columns: an arrival, a date or a number, two token
 * counts, and where there are such a session, a priority and a prefix. */
#include "config.h"
#include "traces/importers/import.h"

static const char *const need[] = { NULL };

#define OFF(member) offsetof(struct import_columns, member)

/* clang-format off */
static const struct opt keys[] = {
	{ .name = "arrival", .type = OPT_STR, .off = OFF(arrival), .arg = "NAME" },
	{ .name = "prompt", .type = OPT_STR, .off = OFF(prompt), .arg = "NAME" },
	{ .name = "output", .type = OPT_STR, .off = OFF(output), .arg = "NAME" },
	{ .name = "session", .type = OPT_STR, .off = OFF(session), .arg = "NAME" },
	{ .name = "priority", .type = OPT_STR, .off = OFF(priority), .arg = "NAME" },
	{ .name = "replica", .type = OPT_STR, .off = OFF(replica), .arg = "NAME" },
	{ .name = "prefix", .type = OPT_STR, .off = OFF(prefix), .arg = "NAME" },
	{ .name = "prefix-tokens", .type = OPT_STR, .off = OFF(prefix_tok), .arg = "NAME" },
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

enum { REQUIRED = 3, N_COLUMNS = 8 };

/* Set named to a record of the named fields alone, under the names that --columns gives. */
static enum ar_status find_all(struct import *im, const struct record *r, struct record *named,
			       struct ar_err *err)
{
	const struct import_columns *c = &im->columns;
	const char *const name[N_COLUMNS] = { c->arrival,  c->prompt,  c->output, c->session,
					      c->priority, c->replica, c->prefix, c->prefix_tok };

	*named = (struct record){ .kind = r->kind };
	for (int i = 0; i < N_COLUMNS; i++) {
		struct field *f = &named->field[named->n];

		if (!name[i])
			continue;
		f->name = name[i];
		if (record_path(r, name[i], &f->value))
			named->n++;
		else if (i < REQUIRED || r->kind == RECORD_CSV)
			return import_fail(im, err, "the %s lacks \"%s\", which --columns names",
					   r->kind == RECORD_CSV ? "header" : "record", name[i]);
	}
	return AR_OK;
}

static struct span unquoted(struct span v)
{
	return v.n > 1 && *v.s == '"' ? (struct span){ v.s + 1, v.n - 2 } : v;
}

/* A name column that has a value; NULL: there is none. */
static const struct field *given(const struct record *r, const char *name)
{
	return name ? record_get(r, name) : NULL;
}

static enum ar_status columns_arrival(struct import *im, const struct record *r, int64_t *ns,
				      struct ar_err *err)
{
	struct span v = unquoted(record_find(r, im->columns.arrival)->value);
	enum date_zone zone;
	bool date = date_parse(v, ns, &zone);

	if (im->t->n && im->t->has_epoch != date)
		return import_fail(im, err, "%s is \"%s\", unlike those before %s date",
				   im->columns.arrival, span_show(v).s, date ? "a" : "no");
	im->t->has_epoch = date;
	return date ? import_date(im, im->columns.arrival, v, ns, err) :
		      import_time_text(im, im->columns.arrival, v, 1000000000, ns, err);
}

/* A prefix is an array with an id for each block, or the name of a text at the start of prompts. */
static enum ar_status columns_prefix(struct import *im, const struct record *r,
				     const struct request *q, struct ar_err *err)
{
	const struct field *f = given(r, im->columns.prefix);
	struct cutter c = CUTTER_START;
	struct span name;
	uint32_t number, tok = 0;
	enum ar_status st = AR_OK;

	if (!im->columns.prefix)
		return AR_OK;
	if (f && *f->value.s == '[')
		return import_ids(im, f->value, q->prompt_tok, err);
	if (f && given(r, im->columns.prefix_tok))
		st = import_count(im, r, im->columns.prefix_tok, &tok, err);
	else if (f)
		st = import_fail(im, err,
				 "%s is no array of ids; name the column of its length with "
				 "--columns prefix-tokens=NAME",
				 f->name);
	if (st)
		return st;
	if (tok > q->prompt_tok)
		return import_fail(im, err, "the prefix has %u tokens, the prompt %u", tok,
				   q->prompt_tok);
	if (tok) {
		name = unquoted(f->value);
		if (!intern_put(&im->id, name.s, name.n, &number))
			return ar_nomem(err);
		st = import_cut(im, &c, number, CUT_LENGTH, tok, err);
	}
	if (!st)
		st = import_cut(im, &c, im->line, CUT_REST, q->prompt_tok - tok, err);
	return st ? st : import_cut_end(im, c, err);
}

static enum ar_status columns_session(struct import *im, const struct record *r, struct request *q,
				      struct ar_err *err)
{
	const struct field *f = given(r, im->columns.session);
	struct import_session *s;
	struct span name;
	uint32_t number;

	if (!f)
		return AR_OK;
	name = unquoted(f->value);
	if (!intern_put(&im->session, name.s, name.n, &number))
		return ar_nomem(err);
	return import_turn(im, number, q, &s, err);
}

static enum ar_status columns_record(struct import *im, const struct record *r, struct ar_err *err)
{
	struct request q = request_none;
	struct record named;
	enum ar_status st = find_all(im, r, &named, err);

	if (!st)
		st = columns_arrival(im, &named, &q.arrival_ns, err);
	if (!st)
		st = import_lengths(im, &named, im->columns.prompt, im->columns.output, &q, err);
	if (st || import_unserved(im, &q))
		return st;
	if (given(&named, im->columns.priority))
		st = import_priority(im, &named, im->columns.priority, &q, err);
	if (!st && given(&named, im->columns.replica))
		st = import_replica(im, &named, im->columns.replica, &q, err);
	if (!st)
		st = columns_prefix(im, &named, &q, err);
	if (!st)
		st = columns_session(im, &named, &q, err);
	return st ? st : import_add(im, &q, err);
}

#define COLUMNS(k) \
	{ \
		.name = "columns", .title = "columns named by --columns", .kind = (k), \
		.need = need, .uses = USES_UNIT, .block_tok = 16, .start = columns_start, \
		.record = columns_record \
	}
static const struct importer by_kind[] = {
	[RECORD_CSV] = COLUMNS(RECORD_CSV), [RECORD_JSON] = COLUMNS(RECORD_JSON)
};

const struct importer *importer_columns(enum record_kind kind)
{
	return &by_kind[kind];
}
