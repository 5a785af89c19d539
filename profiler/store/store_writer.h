/* SPDX-License-Identifier: Apache-2.0 */
/* The writer: turns calls of store.h into rows.  Used by one thread. */
#ifndef AR_STORE_WRITER_H
#define AR_STORE_WRITER_H

#include "profiler/store/store.h"

struct writer;

/* Take ownership of db; mark runs whose process is gone.  stage: write iterations through
 * store_stage.h, else by INSERT.  On failure db stays the caller's. */
enum ar_status writer_open(struct writer **out, sqlite3 *db, const char *path, bool stage,
			   struct ar_err *err);
/* Roll back the open transaction, then close the file.  NULL is fine. */
enum ar_status writer_close(struct writer *w, struct ar_err *err);

/* Commit the open transaction, if any.  writer_age_ns: its age; 0: none is open. */
enum ar_status writer_commit(struct writer *w, struct ar_err *err);
int64_t writer_age_ns(const struct writer *w);

enum ar_status writer_run_begin(struct writer *w, const struct store_run *r, int64_t *run_id,
				struct ar_err *err);
enum ar_status writer_run_end(struct writer *w, const char *status, const struct prof_loss *loss,
			      const struct store_counts *counts, struct ar_err *err);
/* Add rows; set the members that store.h leaves to the store.  writer_iteration() first commits a
 * transaction that has grown large or old.  row: a struct row_TABLE that begins with run_id. */
enum ar_status writer_iteration(struct writer *w, struct store_iteration *it, struct ar_err *err);
enum ar_status writer_row(struct writer *w, enum table_id t, void *row, struct ar_err *err);
enum ar_status writer_energy(struct writer *w, const struct energy_use *use, struct ar_err *err);

#endif
