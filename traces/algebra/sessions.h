/* SPDX-License-Identifier: Apache-2.0 */
/* Trace algebra of whole sessions: what is left of those with requests that are too long, and when
 * they start. */
#ifndef AR_SESSIONS_H
#define AR_SESSIONS_H

#include "traces/trace.h"

enum trace_over { OVER_STOP, OVER_DROP, OVER_SKIP, OVER_CLIP };
extern const char *const trace_overs[];	 /* their names, ended by NULL */
extern const char *const trace_orders[]; /* values of --session-order */

/* Apply --longest-request and --over-length. */
enum ar_status trace_over_length(struct trace *t, const struct trace_args *a, struct ar_err *err);

/* Apply --session-starts and --session-order.  A session moves with all that it starts. */
enum ar_status trace_session_starts(struct trace *t, const struct trace_args *a,
				    struct ar_err *err);

#endif
