/* SPDX-License-Identifier: Apache-2.0 */
/* Two traces on one time axis. */
#ifndef AR_MERGE_H
#define AR_MERGE_H

#include "traces/trace.h"

enum trace_align { ALIGN_START, ALIGN_CLOCK };

/* Add the requests of b to a; the two share no prefixes and no sessions.  align: both traces begin
 * together, or each at its absolute time. */
enum ar_status trace_merge(struct trace *a, const struct trace *b, enum trace_align align,
			   struct ar_err *err);

#endif
