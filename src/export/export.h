/* SPDX-License-Identifier: Apache-2.0 */
/* Exporters: the runs of a database as a file for another program.  An exporter is a file NAME.c
 * and one line in export_list.h. */
#ifndef AR_EXPORT_H
#define AR_EXPORT_H

#include "base/binfile.h"
#include "base/opt.h"
#include "base/status.h"
#include "profiler/store/store_runs.h"
#include "src/report/report.h"

struct exporter {
	const char *name;
	bool kernels; /* reads kernels, by the numbers of one database */
	/* Write r->run, or all runs, to the open file.  The caller commits it. */
	enum ar_status (*write)(const struct report *r, struct outfile *f, struct ar_err *err);
};

/* Files to write, as the user named them; NULL: none. */
struct export_files {
#define EXPORT(name, help) char *name;
#include "src/export/export_list.h"
#undef EXPORT
};

/* The run of r after *run, from 0; 0: there is no more.  No statement stays open. */
enum ar_status export_next_run(const struct report *r, int64_t *run, struct ar_err *err);

extern const struct opt export_opts[]; /* of struct export_files */

/* Return whether a file is to be written. */
bool export_wanted(const struct export_files *o);

/* Check the outputs before the n databases are read.  AR_USAGE: two outputs are one file, one is a
 * database, or one takes a single database and n is above 1. */
enum ar_status export_check(const struct export_files *o, const struct store_source *source,
			    size_t n, struct ar_err *err);

/* Write each file.  It appears when it is complete.  AR_USAGE: there is no such run; AR_DATA,
 * AR_DB: the database is damaged or of another schema; AR_IO: a write failed; AR_INTERRUPTED. */
enum ar_status export_write(const struct export_files *o, const struct report *r,
			    struct ar_err *err);

#endif
