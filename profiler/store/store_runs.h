/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of one or more files behind one connection. */
#ifndef AR_STORE_RUNS_H
#define AR_STORE_RUNS_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* All runs of a file, or one run. */
struct store_source {
	const char *path;
	int64_t run; /* 0: all */
};

/* Open a connection that reads the runs of the n sources, with the views and functions of
 * store_open_read(); n > 0.  One source is read in its file, with all of its runs.  Several are
 * copied into a temporary database, and runs get new numbers in the order of the sources; only
 * kernels may be left out.  The TEMP table source_run tells which run each was: run_id, path, run.
 * It is empty for one source.  Errors: see store_open_read() and store_merge(). */
enum ar_status store_open_runs(sqlite3 **db, const struct store_source *source, size_t n,
			       bool kernels, struct ar_err *err);

#endif
