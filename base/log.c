/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/number.h"
#include "base/text.h"

enum log_level log_level = LOG_INFO;
double progress_period_s = 10;

bool log_option(const char *arg)
{
	if (!strcmp(arg, "-q"))
		log_level = LOG_ERROR;
	else if (!strcmp(arg, "-v"))
		log_level = LOG_DEBUG;
	else
		return false;
	return true;
}

static int drawn; /* a progress line is on the terminal */

void log_line(enum log_level level, const char *fmt, ...)
{
	static const char *const tag[] = { "", "warning: ", "", "debug: " };
	char line[8192];
	va_list ap;

	progress_end();
	fprintf(stderr, "attnreplay: %s", tag[level]);
	va_start(ap, fmt);
	if (vsnprintf(line, sizeof line, fmt, ap) > 0)
		text_put(line, stderr);
	va_end(ap);
	fputc('\n', stderr);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Times of progress, in seconds; 0: none yet. */
static double first, last;

static bool on_terminal(void)
{
	static int tty = -1;

	if (tty < 0) {
		const char *term = getenv("TERM");

		tty = isatty(2) && term && strcmp(term, "dumb") != 0;
	}
	return tty;
}

bool progress_due(void)
{
	double t;

	if (log_level < LOG_INFO)
		return false;
	t = now_s();
	if (!first)
		first = last = t;
	return on_terminal() ? t - first >= 2 && t - last >= 0.1 : t - last >= progress_period_s;
}

void progress(const char *what, unsigned long done, unsigned long total)
{
	char left[64] = "", time[32];

	if (!progress_due())
		return;
	last = now_s();
	if (done)
		snprintf(left, sizeof left, ", about %s left",
			 num_time_str(time, sizeof time,
				      (last - first) * 1e9 * (double)(total - done) /
					      (double)done));
	if (!on_terminal()) {
		log_line(LOG_INFO, "%s %lu/%lu%s", what, done, total, left);
		return;
	}
	drawn = 1;
	fprintf(stderr, "\r%s %lu/%lu%s\033[K", what, done, total, left);
	fflush(stderr);
}

void progress_end(void)
{
	if (drawn)
		fputs("\r\033[K", stderr);
	drawn = 0;
}
