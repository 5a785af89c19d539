/* SPDX-License-Identifier: Apache-2.0 */
/* Copies runs from one database into another.  Rows get new numbers there.  columns.def says which
 * columns hold numbers of rows; a copy holds the new ones. */
#ifndef AR_STORE_MERGE_H
#define AR_STORE_MERGE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Which runs to copy.  A run is taken once: run.run_key tells whether it is there already. */
struct merge_rule {
	bool all;     /* copy every run as it is, with or without a key, ended or not; each gets a
		       * row in temp.source_run (store_runs.h) */
	bool no_key;  /* also runs without a key, which are not recognised the next time */
	bool failed;  /* also runs that did not end; one that is 'running' becomes 'aborted' */
	bool verify;  /* compare the requests of runs that are there already */
	bool kernels; /* with their kernels */
	int64_t run;  /* this run only; 0: all runs */
};

struct merge_count {
	int64_t added, there, unfinished, keyless;
};

/* Copy runs of the file path into db, whose name for messages is db_path, in one transaction.  The
 * file stays as it is; one of an older version is copied and migrated first.  *n counts the runs.
 *
 * AR_DATA: the file cannot be read or holds tables that db has not; a device, model or other shared
 * row differs from that of db; with verify: a run differs from the run of its key.
 * AR_USAGE: the file does not hold rule->run.  AR_DB, AR_IO, AR_INTERRUPTED. */
enum ar_status store_merge(sqlite3 *db, const char *db_path, const char *path,
			   const struct merge_rule *rule, struct merge_count *n,
			   struct ar_err *err);

#endif
