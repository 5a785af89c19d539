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

enum ar_status ar_nomem(struct ar_err *err)
{
	return ar_fail(err, AR_NOMEM, "out of memory");
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
