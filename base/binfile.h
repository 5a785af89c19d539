/* SPDX-License-Identifier: Apache-2.0 */
/* Binary files: reads at offsets, and writes that appear only when the file is complete. */
#ifndef AR_BINFILE_H
#define AR_BINFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

struct infile {
	char *path; /* for messages */
	int fd;
	uint64_t size;
};

/* Open path for reading.  AR_DATA: it cannot be opened or is not a regular file. */
enum ar_status infile_open(struct infile *f, const char *path, struct ar_err *err);

/* Read exactly n bytes from offset on.  AR_DATA: the file ends before. */
enum ar_status infile_read(const struct infile *f, uint64_t offset, void *buf, size_t n,
			   struct ar_err *err);
void infile_release(struct infile *f); /* may be called twice */

struct outfile {
	char *path;   /* as the caller named it, for messages */
	char *target; /* path behind its symbolic links */
	char *tmp;    /* beside target; NULL: a device or pipe, written directly */
	FILE *f;      /* for callers that write a stream */
};

/* Open a temporary file beside the file that path names, behind symbolic links.  It gets the mode
 * of the existing file.  A device, a pipe and the program's standard output are opened directly.
 * AR_IO: a write failed; the message names the file. */
enum ar_status outfile_open(struct outfile *f, const char *path, struct ar_err *err);
enum ar_status outfile_write(struct outfile *f, const void *buf, size_t n, struct ar_err *err);

/* Rename the temporary file to target.  Failed writes to the stream fail here at the latest.
 * Without an open file: do nothing. */
enum ar_status outfile_commit(struct outfile *f, struct ar_err *err);

/* Remove the temporary file unless it was committed.  May be called twice. */
void outfile_release(struct outfile *f);

/* Set *same: paths a and b lead to one output, which may not exist yet. */
enum ar_status outfile_same(const char *a, const char *b, bool *same, struct ar_err *err);

#endif
