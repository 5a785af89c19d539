/* SPDX-License-Identifier: Apache-2.0 */
/* A log of an engine as a run of the database, so that reports show it beside replays. */
#ifndef AR_ENGINE_RUN_H
#define AR_ENGINE_RUN_H

#include "base/status.h"
#include "profiler/store/store.h"
#include "traces/engine/engine_log.h"
#include "traces/trace.h"

struct engine_run {
	const struct engine_log *log;
	const struct trace *trace; /* that the engine ran, NULL: not known */
	const char *name;	   /* of the engine with its version, NULL: the log's */
	const char *version, *cmdline;
};

/* Check that lengths of all requests that have times are known, and that log and trace have the
 * same requests.  AR_USAGE: no lengths; AR_DATA: another trace. */
enum ar_status engine_run_check(const struct engine_run *r, struct ar_err *err);

/* Store the run.  *run_id: its number.  AR_DATA: the steps do not fit the requests; the run is
 * stored as failed. */
enum ar_status engine_run_store(const struct engine_run *r, struct store *s, int64_t *run_id,
				struct ar_err *err);

#endif
