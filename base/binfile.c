/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/binfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

enum { LINKS_MAX = 40 }; /* as Linux has it */

/* *target: path behind its symbolic links, the caller owns it.  The file may be missing. */
static enum ar_status follow_link(char **target, const char *path, struct ar_err *err)
{
	char to[PATH_MAX], *at = strdup(path), *next;

	for (int i = 0; at && i <= LINKS_MAX; i++) {
		ssize_t n = readlink(at, to, sizeof to - 1);
		const char *slash = strrchr(at, '/');

		if (n < 0) {
			*target = at;
			return AR_OK;
		}
		to[n] = 0;
		if (asprintf(&next, "%.*s%s", *to == '/' || !slash ? 0 : (int)(slash + 1 - at), at,
			     to) < 0)
			next = NULL;
		free(at);
		at = next;
	}
	if (!at)
		return ar_nomem(err);
	free(at);
	return ar_fail(err, AR_IO, "%s: cannot write: %s", path, strerror(ELOOP));
}

static bool one_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Open the temporary file.  old: the file to replace, or NULL. */
static FILE *open_tmp(const char *tmp, const struct stat *old)
{
	int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, old ? 0600 : 0666);
	FILE *f = NULL;

	if (fd < 0)
		return NULL;
	if (!old || !fchmod(fd, old->st_mode & 07777))
		f = fdopen(fd, "wb");
	if (!f) {
		close(fd);
		unlink(tmp);
	}
	return f;
}

/* Devices, pipes and standard output are written directly. */
static FILE *open_direct(const char *path, bool standard_output)
{
	int fd = standard_output ? (fflush(stdout), dup(STDOUT_FILENO)) :
				   open(path, O_WRONLY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");

	if (!f && fd >= 0)
		close(fd);
	return f;
}

static enum ar_status open_file(struct outfile *f, struct ar_err *err)
{
	struct stat old, out;
	bool exists = !stat(f->path, &old);
	bool standard_output = exists && !fstat(STDOUT_FILENO, &out) && one_file(&old, &out);

	if (standard_output || (exists && !S_ISREG(old.st_mode))) {
		f->f = open_direct(f->path, standard_output);
	} else if (!exists || !access(f->target, W_OK)) {
		if (asprintf(&f->tmp, "%s.%ld.tmp", f->target, (long)getpid()) < 0) {
			f->tmp = NULL;
			return ar_nomem(err);
		}
		f->f = open_tmp(f->tmp, exists ? &old : NULL);
	}
	return f->f ? AR_OK :
		      ar_fail(err, AR_IO, "%s: cannot %s: %s", f->path, exists ? "write" : "create",
			      strerror(errno));
}

enum ar_status outfile_open(struct outfile *f, const char *path, struct ar_err *err)
{
	enum ar_status st;

	*f = (struct outfile){ .path = strdup(path) };
	st = f->path ? follow_link(&f->target, path, err) : ar_nomem(err);
	if (!st)
		st = open_file(f, err);
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

/* Return whether a write failed; errno says why.  If that was an earlier one, a temporary file gets
 * one more byte, to fail again: it is removed anyway. */
static bool write_failed(const struct outfile *f)
{
	if (fflush(f->f))
		return true;
	if (!ferror(f->f))
		return false;
	if (f->tmp && putc(0, f->f) != EOF)
		fflush(f->f);
	return true;
}

enum ar_status outfile_commit(struct outfile *f, struct ar_err *err)
{
	FILE *out = f->f;
	bool bad;

	if (!out)
		return AR_OK;
	errno = 0;
	bad = write_failed(f) || (f->tmp && fsync(fileno(out)));
	if (!bad) {
		f->f = NULL;
		bad = fclose(out) || (f->tmp && rename(f->tmp, f->target));
		if (bad && f->tmp)
			unlink(f->tmp);
	}
	return bad ? ar_fail(err, AR_IO, "%s: cannot write: %s", f->path,
			     errno ? strerror(errno) : "earlier output is lost") :
		     AR_OK;
}

/* The stream is open exactly as long as the temporary file exists under its own name. */
void outfile_release(struct outfile *f)
{
	if (f->f) {
		fclose(f->f);
		if (f->tmp)
			unlink(f->tmp);
	}
	free(f->path);
	free(f->target);
	free(f->tmp);
	*f = (struct outfile){ 0 };
}

/* Split target into its folder and its name there. */
static const char *split_path(char *target, struct stat *folder, bool *known)
{
	char *slash = strrchr(target, '/');

	if (slash)
		*slash = 0;
	*known = !stat(!slash ? "." : slash == target ? "/" : target, folder);
	return slash ? slash + 1 : target;
}

enum ar_status outfile_same(const char *a, const char *b, bool *same, struct ar_err *err)
{
	char *at[2] = { NULL, NULL };
	enum ar_status st = follow_link(&at[0], a, err);
	struct stat folder[2], file[2];
	const char *name[2];
	bool known[2];

	*same = false;
	if (!st)
		st = follow_link(&at[1], b, err);
	if (!st) {
		for (int i = 0; i < 2; i++)
			name[i] = split_path(at[i], &folder[i], &known[i]);
		*same = known[0] && known[1] && one_file(&folder[0], &folder[1]) &&
			!strcmp(name[0], name[1]);
		*same = *same ||
			(!stat(a, &file[0]) && !stat(b, &file[1]) && one_file(&file[0], &file[1]));
	}
	free(at[0]);
	free(at[1]);
	return st;
}
