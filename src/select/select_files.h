/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs of 'attnreplay select': standard output and the files of --json, --csv and --svg. */
#ifndef AR_SELECT_FILES_H
#define AR_SELECT_FILES_H

#include <stdio.h>

#include "base/binfile.h"
#include "src/select/select.h"
#include "src/select/select_args.h"

struct select_files {
	const struct select_args *a;
	enum select_picture picture;
	struct outfile json, csv, svg;
	FILE *body; /* the drawing; the file begins with its height */
	char *drawn;
	size_t len;
	double height;
	bool opened;
	int n;
};

/* AR_USAGE: two of the files are the same. */
enum ar_status select_files_check(const struct select_args *a, struct ar_err *err);

/* Open the files at the first call; later calls do nothing.  Call it after all checks, so that a
 * refused command leaves old files unchanged. */
enum ar_status select_files_open(struct select_files *o, struct ar_err *err);
enum ar_status select_files_put(struct select_files *o, const struct select_result *r,
				struct ar_err *err);
/* Finish the files and make them appear if st, the status of the work, is AR_OK.  Returns st, or if
 * it is AR_OK the status of writing. */
enum ar_status select_files_close(struct select_files *o, enum ar_status st, struct ar_err *err);

#endif
