/* SPDX-License-Identifier: Apache-2.0 */
/* Where 'attnreplay select' writes to: standard output, and the files that were asked for. */
#ifndef AR_SELECT_FILES_H
#define AR_SELECT_FILES_H

#include <stdio.h>

#include "src/select/select.h"
#include "src/select/select_args.h"

struct select_files {
	const struct select_args *a;
	enum select_picture picture;
	FILE *json, *csv, *svg;
	FILE *body;			/* of the drawing, whose size is known at the end */
	char *drawn;
	size_t len;
	double height;
	bool opened;
	int n;
};

/* Opens the files at the first call.  Call it when the first selection is sure to be made, so that
 * a refusal leaves old files as they were. */
enum ar_status select_files_open(struct select_files *o, struct ar_err *err);
enum ar_status select_files_put(struct select_files *o, const struct select_result *r,
				struct ar_err *err);
/* Finish the files if st, the status of the work, is AR_OK, and close them.  Returns st or, if it is
 * AR_OK, what went wrong here. */
enum ar_status select_files_close(struct select_files *o, enum ar_status st, struct ar_err *err);

#endif
