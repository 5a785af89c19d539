/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/status.h"

#include <signal.h>
#include <stdarg.h>
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

static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t first_s; /* time of the first signal, monotonic clock */

/* One interrupt can arrive as several signals: timeout(1), shells and other parents send it to the
 * process and to its group.  Signals within a second count as one. */
static void on_signal(int sig)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (!interrupted) {
		first_s = (sig_atomic_t)now.tv_sec;
		interrupted = 1;
	} else if ((sig_atomic_t)now.tv_sec - first_s > 1) {
		signal(sig, SIG_DFL);
		raise(sig);
	}
}

void ar_catch_interrupts(void)
{
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
}

int ar_interrupted(void)
{
	return interrupted;
}
