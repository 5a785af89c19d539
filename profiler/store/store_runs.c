/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/store_runs.h"

#include "profiler/store/store.h"
#include "profiler/store/store_file.h"
#include "profiler/store/store_merge.h"

static const char name[] = "a temporary database";

static enum ar_status copy_from(sqlite3 *db, const struct store_source *source, size_t n,
				bool kernels, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < n && !st; i++) {
		const struct merge_rule rule = { .all = true,
						 .kernels = kernels,
						 .run = source[i].run };
		struct merge_count count;

		st = store_merge(db, name, source[i].path, &rule, &count, err);
	}
	return st ? st : store_file_views(db, name, STORE_VERSION, err);
}

enum ar_status store_open_runs(sqlite3 **out, const struct store_source *source, size_t n,
			       bool kernels, struct ar_err *err)
{
	sqlite3 *db = NULL;
	enum ar_status st = n > 1 ? store_file_scratch(&db, name, err) :
				    store_open_read(&db, source->path, err);

	*out = NULL;
	if (!st &&
	    sqlite3_exec(db, "CREATE TEMP TABLE source_run(run_id, path, run)", NULL, NULL, NULL))
		st = store_sql_fail(db, name, err);
	if (!st && n > 1)
		st = copy_from(db, source, n, kernels, err);
	if (st)
		sqlite3_close(db);
	else
		*out = db;
	return st;
}
