/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic sessions: turns whose prompts grow, with think times. */
#ifndef AR_SYNTH_SESSIONS_H
#define AR_SYNTH_SESSIONS_H

#include "traces/trace.h"

/* Replace the requests of t by those of n sessions, which start at start_ns[n].  Their statistics
 * are those of the sessions of t, or, if it has no requests, of real agents.  Session i depends on
 * seed, i and the statistics alone.  AR_USAGE: t has requests, but no sessions or no blocks. */
enum ar_status trace_make_sessions(struct trace *t, const int64_t *start_ns, size_t n,
				   uint64_t seed, struct ar_err *err);

#endif
