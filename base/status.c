/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/status.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum ar_status ar_fail(struct ar_err *err, enum ar_status st, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return st;
	err->status = st;
	va_start(ap, fmt);
	vsnprintf(err->msg, sizeof err->msg, fmt, ap);
	va_end(ap);
	return st;
}

/* What a source file needs memory for.  The first row counts whose path begins that of the file. */
static const struct {
	const char *path, *what;
} owners[] = {
	{ "base/json", "a JSON file" },
	{ "base/opt", "the options" },
	{ "base/safetensors", "a file of tensors" },
	{ "base/", "a file or its statistics" },
	{ "kernels/methods/", "the methods" },
	{ "kernels/", "the work of a method" },
	{ "model/", "the model" },
	{ "profiler/store/", "the database" },
	{ "profiler/", "the times of kernels" },
	{ "replay/cost/", "the costs" },
	{ "replay/engine/", "the batches of the replay" },
	{ "replay/forward/", "the layers of the model" },
	{ "replay/sched/", "the scheduler" },
	{ "src/bench/", "the benchmark" },
	{ "src/calibrate/", "the calibration" },
	{ "src/chart/", "a chart" },
	{ "src/engine/", "the engine's log" },
	{ "src/eval/", "the answers" },
	{ "src/export/", "the export" },
	{ "src/report/", "the report" },
	{ "src/run/", "the run" },
	{ "src/search/", "the search" },
	{ "src/select/", "the selections" },
	{ "src/sweep/", "the sweep" },
	{ "src/tune/", "the thresholds" },
	{ "src/", "the command" },
	{ "traces/capture/", "the capture" },
	{ "traces/engine/", "the engine's log" },
	{ "traces/", "the trace" },
};

enum ar_status ar_nomem_at(struct ar_err *err, const char *file)
{
	/* The paths of all files begin with that of the tree. */
	const size_t tree = strlen(__FILE__) - strlen("base/status.c");
	const char *path = strncmp(file, __FILE__, tree) ? file : file + tree, *what = path;

	for (size_t i = 0; i < sizeof owners / sizeof *owners; i++)
		if (!strncmp(path, owners[i].path, strlen(owners[i].path))) {
			what = owners[i].what;
			break;
		}
	return ar_fail(err, AR_NOMEM,
		       "out of memory for %s; end other programs, or take less of the input", what);
}

void ar_err_prefix(struct ar_err *err, const char *fmt, ...)
{
	char head[sizeof err->msg], tail[sizeof err->msg];
	va_list ap;

	if (!err)
		return;
	va_start(ap, fmt);
	vsnprintf(head, sizeof head, fmt, ap);
	va_end(ap);
	memcpy(tail, err->msg, sizeof tail);
	if (snprintf(err->msg, sizeof err->msg, "%s: %s", head, tail) < 0)
		memcpy(err->msg, tail, sizeof tail);
}

int ar_exit_code(enum ar_status st)
{
	static const int code[] = {
#define X(name, code, text) code,
		AR_STATUS_MAP(X)
#undef X
	};

	return code[st];
}

static _Atomic int64_t first_ns; /* time of the first signal, monotonic clock; 0: none came */

/* One interrupt can arrive as several signals: timeout(1), shells and other parents send it to the
 * process and to its group.  Signals within a second count as one. */
static void on_signal(int sig)
{
	struct timespec now;
	int64_t now_ns, first = 0;

	clock_gettime(CLOCK_MONOTONIC, &now);
	now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
	if (!atomic_compare_exchange_strong(&first_ns, &first, now_ns) &&
	    now_ns - first >= 1000000000) {
		signal(sig, SIG_DFL);
		raise(sig);
	}
}

static void catch_unless_ignored(int sig)
{
	if (signal(sig, on_signal) == SIG_IGN)
		signal(sig, SIG_IGN);
}

void ar_catch_interrupts(void)
{
	catch_unless_ignored(SIGHUP); /* nohup(1) ignores it */
	catch_unless_ignored(SIGINT); /* shells ignore it in the background */
	signal(SIGTERM, on_signal);
}

int ar_interrupted(void)
{
	return first_ns != 0;
}
