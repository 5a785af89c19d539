/* SPDX-License-Identifier: Apache-2.0 */
/* Messages on standard error, one line each, and a progress line. */
#ifndef AR_LOG_H
#define AR_LOG_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

extern enum log_level log_level; /* set by log_option() */

/* Obey -q or -v.  False: arg is neither. */
bool log_option(const char *arg);

#define log_at(level, ...) \
	do { \
		if ((level) <= log_level) \
			log_line(level, __VA_ARGS__); \
	} while (0)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

/* Control characters of the message are escaped, see text_put(). */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

extern double progress_period_s; /* between lines where standard error is no terminal */

/* Write "what done/total, about TIME left" to standard error, unless with -q.  On a terminal the
 * line is redrawn, at most ten times a second and not in the first two seconds; progress_end()
 * erases it.  Elsewhere it is a line of its own every progress_period_s. */
bool progress_due(void); /* whether progress() would write now */
void progress(const char *what, unsigned long done, unsigned long total);
void progress_end(void);

#ifdef __cplusplus
}
#endif
#endif
