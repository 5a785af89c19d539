/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/binfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/data.h"

enum ar_status infile_open(struct infile *f, const char *path, struct ar_err *err)
{
	struct infile in = { .path = strdup(path), .fd = -1 };
	enum ar_status st = AR_OK;
	struct stat s;

	*f = (struct infile){ .fd = -1 };
	if (!in.path)
		return ar_nomem(err);
	in.fd = data_open(path, O_NONBLOCK);
	if (in.fd < 0 || fstat(in.fd, &s))
		st = ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
	else if (!S_ISREG(s.st_mode))
		st = ar_fail(err, AR_DATA, "%s: not a regular file", path);
	if (st) {
		infile_release(&in);
		return st;
	}
	in.size = (uint64_t)s.st_size;
	*f = in;
	return AR_OK;
}

enum ar_status infile_read(const struct infile *f, uint64_t offset, void *buf, size_t n,
			   struct ar_err *err)
{
	char *p = buf;

	if (offset > f->size || n > f->size - offset)
		return ar_fail(err, AR_DATA, "%s: truncated: %zu bytes at offset %llu are missing",
			       f->path, n, (unsigned long long)offset);
	while (n) {
		ssize_t got = pread(f->fd, p, n, (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return ar_fail(err, AR_DATA, "%s: cannot read at offset %llu: %s", f->path,
				       (unsigned long long)offset,
				       got ? strerror(errno) : "the file shrank");
		p += got;
		offset += (uint64_t)got;
		n -= (size_t)got;
	}
	return AR_OK;
}

void infile_release(struct infile *f)
{
	if (f->fd >= 0)
		close(f->fd);
	free(f->path);
	*f = (struct infile){ .fd = -1 };
}

enum ar_status outfile_open(struct outfile *f, const char *path, struct ar_err *err)
{
	size_t n = strlen(path) + 32;
	enum ar_status st = AR_OK;

	*f = (struct outfile){ .path = strdup(path), .tmp = malloc(n) };
	if (!f->path || !f->tmp) {
		st = ar_nomem(err);
	} else {
		snprintf(f->tmp, n, "%s.%ld.tmp", path, (long)getpid());
		f->f = fopen(f->tmp, "wbx");
		if (!f->f)
			st = ar_fail(err, AR_IO, "%s: cannot create: %s", path, strerror(errno));
	}
	if (st)
		outfile_release(f);
	return st;
}

enum ar_status outfile_write(struct outfile *f, const void *buf, size_t n, struct ar_err *err)
{
	if (fwrite(buf, 1, n, f->f) != n)
		return ar_fail(err, AR_IO, "%s: cannot write: %s", f->path, strerror(errno));
	return AR_OK;
}

enum ar_status outfile_commit(struct outfile *f, struct ar_err *err)
{
	FILE *out = f->f;

	if (fflush(out) || fsync(fileno(out)))
		return ar_fail(err, AR_IO, "%s: cannot write: %s", f->path, strerror(errno));
	f->f = NULL;
	if (fclose(out) || rename(f->tmp, f->path)) {
		enum ar_status st = ar_fail(err, AR_IO, "%s: cannot write: %s", f->path,
					    strerror(errno));

		unlink(f->tmp);
		return st;
	}
	return AR_OK;
}

/* The stream is open exactly as long as the temporary file exists under its own name. */
void outfile_release(struct outfile *f)
{
	if (f->f) {
		fclose(f->f);
		unlink(f->tmp);
	}
	free(f->path);
	free(f->tmp);
	*f = (struct outfile){ 0 };
}
