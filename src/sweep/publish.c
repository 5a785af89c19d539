/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/sweep/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profiler/store/store.h"

/* Write a file or a folder to the disk. */
static bool sync_path(const char *path)
{
	const int fd = open(path, O_RDONLY);
	bool done = fd >= 0 && !fsync(fd);

	if (fd >= 0)
		close(fd);
	return done;
}

static bool write_all(int fd, const char *p, size_t n)
{
	while (n) {
		const ssize_t k = write(fd, p, n);

		if (k < 0)
			return false;
		p += k;
		n -= (size_t)k;
	}
	return true;
}

/* Over a network the write error may come as late as close(). */
static bool copy_file(const char *from, const char *to)
{
	static char buf[1 << 20];
	const int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	bool done = in >= 0 && out >= 0;
	ssize_t n = 0;

	while (done && (n = read(in, buf, sizeof buf)) > 0)
		done = write_all(out, buf, (size_t)n);
	done = done && !n && !fsync(out);
	if (in >= 0)
		close(in);
	if (out >= 0 && close(out))
		done = false;
	return done;
}

static bool copy_and_rename(const char *from, const char *to)
{
	char part[PATH_MAX], host[HOST_NAME_MAX + 1] = "";
	int n, number;

	gethostname(host, sizeof host - 1);
	n = snprintf(part, sizeof part, "%s.part.%s.%ld", to, host, (long)getpid());
	if (n >= (int)sizeof part) {
		errno = ENAMETOOLONG;
		return false;
	}
	if (copy_file(from, part) && !rename(part, to)) {
		unlink(from);
		return true;
	}
	number = errno;
	unlink(part);
	errno = number;
	return false;
}

static bool sync_folder(const char *path)
{
	char *name = strdup(path);
	bool done = name && sync_path(dirname(name));

	free(name);
	return done;
}

static bool has_log(const char *path)
{
	char log[PATH_MAX];
	const int n = snprintf(log, sizeof log, "%s-wal", path);

	return n < (int)sizeof log && !access(log, F_OK);
}

/* Write the write-ahead log into the database.  It is left by a run that was killed, or that ended
 * while another program read the database. */
static enum ar_status take_in_log(const char *path, struct ar_err *err)
{
	struct store *s;
	enum ar_status st = store_open(&s, path, err);

	if (!st)
		st = store_close(s, err);
	if (!st && has_log(path))
		st = ar_fail(err, AR_IO, "%s: in use by another program; end it, and copy the file",
			     path);
	return st;
}

enum ar_status publish(const char *from, const char *to, struct ar_err *err)
{
	enum ar_status st = has_log(from) ? take_in_log(from, err) : AR_OK;
	bool done;

	if (st)
		return st;
	done = sync_path(from);
	if (done && rename(from, to))
		done = errno == EXDEV && copy_and_rename(from, to);
	if (done && sync_folder(to))
		return AR_OK;
	return ar_fail(err, AR_IO, "%s: cannot write: %s; the database is %s", to, strerror(errno),
		       from);
}

static bool has_iterations(const char *path)
{
	sqlite3_stmt *q = NULL;
	sqlite3 *db = NULL;
	bool found;

	if (store_open_tables(&db, path, NULL))
		return false;
	found = !sqlite3_prepare_v2(db, "SELECT 1 FROM iteration LIMIT 1", -1, &q, NULL) &&
		sqlite3_step(q) == SQLITE_ROW;
	sqlite3_finalize(q);
	sqlite3_close(db);
	return found;
}

enum ar_status publish_failed(const char *path, const char *to, struct ar_err *err)
{
	enum ar_status st;

	if (access(path, F_OK))
		return AR_OK;
	st = take_in_log(path, err); /* also marks a killed run as aborted */
	if (st)
		return st;
	if (has_iterations(path))
		return publish(path, to, err);
	if (unlink(path))
		st = ar_fail(err, AR_IO, "%s: cannot remove: %s", path, strerror(errno));
	return st;
}
