/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a sweep: a job file of 'attnreplay run' in which a value may be a list.
 *
 *   method = [dense, "compact-fp:alpha=0.06"]   a list; quotes protect commas
 *   zip: tp, layers = [1, "0"], [2, "4"]        options that change together
 *   skip: method = dense, tp = 2                points that are not wanted
 *
 * The points are the product of the lines in the order of the file, the last one fastest.
 */
#ifndef AR_SWEEP_FILE_H
#define AR_SWEEP_FILE_H

#include <stddef.h>

#include "base/opt.h"
#include "base/status.h"
#include "src/sweep/sweep_list.h"

enum { SWEEP_POINTS_MAX = 100000 };

/* A line: name[k] takes value[i * name.n + k] in choice i. */
struct sweep_line {
	struct texts name, value;
	unsigned line;
};

struct sweep {
	char *path;
	struct sweep_line *line, *skip; /* a skip has one choice */
	size_t n_line, n_skip, cap_line, cap_skip;
	size_t *point; /* numbers in the product, without skipped points */
	size_t n_point;
};

/* Read the file.  g: the options of 'run'; it is changed, the values are only checked in it.
 * AR_USAGE and AR_DATA: the message names file, line and option. */
enum ar_status sweep_load(struct sweep *s, const char *path, struct opt_group *g,
			  struct ar_err *err);
void sweep_release(struct sweep *s);

/* Arguments of 'run' for point i: "--name", "value" ...  The caller releases them. */
enum ar_status sweep_arguments(const struct sweep *s, size_t i, struct opt_group *g,
			       struct texts *out, struct ar_err *err);

#endif
