/* SPDX-License-Identifier: Apache-2.0 */
/* Operands that name runs: DB, or DB:RUN. */
#ifndef AR_SOURCE_H
#define AR_SOURCE_H

#include "base/opt_table.h"
#include "profiler/store/store_runs.h"

/* Add n operands to the list, owned.  A folder, as of a sweep, stands for its databases: all
 * NAME.db, by name, without the NAME.failed.db of points that failed.  AR_DATA: it has none. */
enum ar_status source_expand(struct opt_list *to, char *const *operand, size_t n,
			     struct ar_err *err);
void source_release(struct opt_list *l);

/* Read n operands into source[0..n).  A file that is there has its whole name; else a number after
 * the last colon is a run.  Cuts the operands, to which the paths then point. */
void source_parse(struct store_source *source, char **operand, size_t n);

#endif
