/* SPDX-License-Identifier: Apache-2.0 */
/* The writer: turns what store.h hands over into rows.  Used by one thread. */
#ifndef AR_STORE_WRITER_H
#define AR_STORE_WRITER_H

#include "profiler/store/store.h"

struct writer;

/* Take over db; mark runs of processes that are gone.  stage: write iterations through
 * store_stage.h, else by INSERT. */
enum ar_status writer_open(struct writer **out, sqlite3 *db, const char *path, bool stage,
			   struct ar_err *err);
/* Roll back what is not committed, finish the file.  NULL is fine. */
enum ar_status writer_close(struct writer *w, struct ar_err *err);

/* Commit what there is.  writer_age_ns: how long the open transaction has lasted, 0: none
 * is open. */
enum ar_status writer_commit(struct writer *w, struct ar_err *err);
int64_t writer_age_ns(const struct writer *w);

enum ar_status writer_run_begin(struct writer *w, const struct store_run *r, int64_t *run_id,
				struct ar_err *err);
enum ar_status writer_run_end(struct writer *w, const char *status, const struct prof_loss *loss,
			      struct ar_err *err);
/* What is left to the store of a row they fill in.  writer_iteration() commits before the rows when
 * the transaction has grown large or old. */
enum ar_status writer_iteration(struct writer *w, struct store_iteration *it, struct ar_err *err);
enum ar_status writer_outcome(struct writer *w, struct row_request_outcome *o, struct ar_err *err);
enum ar_status writer_gap(struct writer *w, struct row_token_gap *g, struct ar_err *err);
enum ar_status writer_accuracy(struct writer *w, struct row_accuracy_sample *a,
			       struct ar_err *err);
enum ar_status writer_selection(struct writer *w, struct store_selection *a, struct ar_err *err);

#endif
