/* SPDX-License-Identifier: Apache-2.0 */
/* Operands that name runs: DB, or DB:RUN. */
#ifndef AR_SOURCE_H
#define AR_SOURCE_H

#include "profiler/store/store_runs.h"

/* Read n operands into source[0..n).  A file that is there has its whole name; else a number after
 * the last colon is a run.  Cuts the operands, to which the paths then point. */
void source_parse(struct store_source *source, char **operand, size_t n);

#endif
