/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum log_level log_level = LOG_INFO;

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
	va_list ap;

	progress_end();
	fprintf(stderr, "attnreplay: %s", tag[level]);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void progress(const char *what, unsigned long done, unsigned long total)
{
	static double first, last;
	static int tty = -1;
	double t;

	if (tty < 0) {
		const char *term = getenv("TERM");

		tty = isatty(2) && term && strcmp(term, "dumb") != 0;
	}
	if (!tty || log_level < LOG_INFO)
		return;
	t = now_s();
	if (!first)
		first = t;
	if (t - first < 2 || t - last < 0.1)
		return;
	last = t;
	drawn = 1;
	fprintf(stderr, "\r%s %lu/%lu\033[K", what, done, total);
	fflush(stderr);
}

void progress_end(void)
{
	if (drawn)
		fputs("\r\033[K", stderr);
	drawn = 0;
}
