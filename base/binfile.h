/* Files: read at offsets, or written so that they appear whole or not at all. */
#ifndef AR_BINFILE_H
#define AR_BINFILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

struct infile {
	char *path;		/* for messages */
	int fd;
	uint64_t size;
};

/* AR_DATA when path cannot be opened or is no regular file. */
enum ar_status infile_open(struct infile *f, const char *path, struct ar_err *err);

/* Exactly n bytes from offset on; AR_DATA when the file ends before. */
enum ar_status infile_read(const struct infile *f, uint64_t offset, void *buf, size_t n,
			   struct ar_err *err);
void infile_release(struct infile *f);	/* may be called twice */

struct outfile {
	char *path, *tmp;	/* NULL: nothing is open */
	FILE *f;		/* for whoever writes a stream */
};

/* Write to a temporary name beside path.  A failed write is AR_IO and named. */
enum ar_status outfile_open(struct outfile *f, const char *path, struct ar_err *err);
enum ar_status outfile_write(struct outfile *f, const void *buf, size_t n, struct ar_err *err);

/* Give the file its name. */
enum ar_status outfile_commit(struct outfile *f, struct ar_err *err);

/* Without a commit before it, nothing is left.  May be called twice. */
void outfile_release(struct outfile *f);

#endif
