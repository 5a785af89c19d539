/* SPDX-License-Identifier: Apache-2.0 */
/* A time line in the JSON of Chrome's trace viewer, which ui.perfetto.dev opens.  Times there are
 * us; three decimals keep the ns. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/packed.h"
#include "base/text.h"
#include "src/export/export.h"
#include "src/export/lanes.h"
#include "src/export/script.h"

static const char events[] =
#include "src/export/perfetto.inc"
	;

/* The columns of perfetto.sql. */
enum { PHASE, NAME, PID, TID, START, DURATION, ARGS };

struct timeline {
	const struct packed *out;
	size_t n;
};

static void put_us(FILE *f, const char *key, sqlite3_stmt *q, int column)
{
	int64_t ns = sqlite3_column_int64(q, column);

	if (sqlite3_column_type(q, column) != SQLITE_NULL)
		fprintf(f, ",\"%s\":%s%" PRId64 ".%03d", key, ns < 0 ? "-" : "",
			(int64_t)llabs(ns / 1000), abs((int)(ns % 1000)));
}

static enum ar_status put_event(void *self, sqlite3_stmt *q, bool row, struct ar_err *err)
{
	struct timeline *t = self;
	FILE *f = t->out->f;
	const char *phase = (const char *)sqlite3_column_text(q, PHASE);
	const char *name = (const char *)sqlite3_column_text(q, NAME);
	const char *args = (const char *)sqlite3_column_text(q, ARGS);

	if (!row)
		return AR_OK;
	if (!phase || !name || (!args && sqlite3_column_type(q, ARGS) != SQLITE_NULL))
		return ar_nomem(err);
	fprintf(f, "%s{\"ph\":\"%s\",\"pid\":%lld,\"tid\":%lld,\"name\":", t->n++ ? ",\n" : "",
		phase, sqlite3_column_int64(q, PID), sqlite3_column_int64(q, TID));
	text_put_json(name, f);
	put_us(f, "ts", q, START);
	put_us(f, "dur", q, DURATION);
	if (*phase == 'i')
		fputs(",\"s\":\"t\"", f); /* scope: its thread */
	if (args) {
		fputs(",\"args\":", f);
		text_put_json_value(args, f);
	}
	putc('}', f);
	if (ferror(f))
		return ar_fail(err, AR_IO, "%s: cannot write: %s", t->out->to->path,
			       strerror(errno));
	return AR_OK;
}

/* A run has three processes: iterations, requests and kernels. */
enum { PIDS_OF_RUN = 3 };

static enum ar_status put_runs(const struct report *r, struct timeline *t, struct ar_err *err)
{
	struct script_values v = { .pid = 1 };
	enum ar_status st = AR_OK;

	while (!st && !(st = export_next_run(r, &v.run, err)) && v.run) {
		st = lanes_register(r->db) ? ar_nomem(err) :
					     script_run(r->db, events, &v, put_event, t, err);
		v.pid += PIDS_OF_RUN;
	}
	return st;
}

static enum ar_status perfetto(const struct report *r, struct outfile *f, struct ar_err *err)
{
	struct packed out;
	struct timeline t = { .out = &out };
	enum ar_status st = packed_open(&out, f, err);

	if (st)
		return st;
	fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"program\":\"attnreplay " PACKAGE_VERSION
	      "\"},\"traceEvents\":[\n",
	      out.f);
	st = put_runs(r, &t, err);
	fputs("\n]}\n", out.f);
	return packed_close(&out, st, err);
}

extern const struct exporter export_perfetto;
const struct exporter export_perfetto = { .name = "perfetto", .kernels = true, .write = perfetto };
