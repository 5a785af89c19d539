/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/sweep/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

enum { UNIQUE = 6 }; /* letters that differ */

static const char *env(const char *name, const char *other)
{
	const char *s = getenv(name);

	return s && *s ? s : other;
}

static const char *disk(void)
{
	return env("SLURM_TMPDIR", env("TMPDIR", "/tmp"));
}

/* The name of a folder without its last part, which differs. */
static char *prefix(void)
{
	char *s;

	return asprintf(&s, "attnreplay-%s-", env("USER", "user")) < 0 ? NULL : s;
}

static int open_folder(int at, const char *name)
{
	return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* ---- one folder ---- */

static enum ar_status make(char *folder, int *lock, struct ar_err *err)
{
	if (!mkdtemp(folder))
		return ar_fail(err, AR_IO,
			       "%s: cannot make this folder: %s; set TMPDIR to a folder that is "
			       "writable",
			       folder, strerror(errno));
	*lock = open_folder(AT_FDCWD, folder);
	if (*lock < 0 || flock(*lock, LOCK_EX))
		return ar_fail(err, AR_IO, "%s: cannot lock this folder: %s", folder,
			       strerror(errno));
	return AR_OK;
}

enum ar_status scratch_open(char **path, int *lock, const char *key, struct ar_err *err)
{
	char *name = prefix(), *folder = NULL;
	enum ar_status st = AR_OK;

	*path = NULL;
	*lock = -1;
	if (!name || asprintf(&folder, "%s/%sXXXXXX", disk(), name) < 0)
		st = ar_nomem(err);
	if (!st)
		st = make(folder, lock, err);
	if (!st && asprintf(path, "%s/%s.db", folder, key) < 0)
		st = ar_nomem(err);
	free(folder);
	free(name);
	return st;
}

void scratch_close(char *path, int lock)
{
	int mark = -1;

	if (path && rmdir(dirname(path)) && lock >= 0)
		mark = openat(lock, "keep", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (mark >= 0)
		close(mark);
	if (lock >= 0)
		close(lock);
	free(path);
}

/* ---- what is left ---- */

static bool is_database(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot && (!strcmp(dot, ".db") || !strcmp(dot, ".db-wal") || !strcmp(dot, ".db-shm") ||
		       !strcmp(dot, ".db-journal"));
}

/* Remove the files of an open folder.  False: it is empty, or not all of them are databases. */
static bool remove_files(int folder)
{
	int copy = dup(folder), n = 0, others = 0;
	DIR *d = copy < 0 ? NULL : fdopendir(copy);

	if (!d) {
		close(copy);
		return false;
	}
	for (struct dirent *e; (e = readdir(d));)
		*(is_database(e->d_name) ? &n : &others) += *e->d_name != '.';
	rewinddir(d);
	for (struct dirent *e; n && !others && (e = readdir(d));)
		unlinkat(folder, e->d_name, 0);
	closedir(d);
	return n && !others;
}

/* An empty folder may be one that is not locked yet. */
static void remove_one(int at, const char *name)
{
	int folder = open_folder(at, name);
	struct stat sb;

	if (folder < 0)
		return;
	if (!fstat(folder, &sb) && sb.st_uid == geteuid() && !flock(folder, LOCK_EX | LOCK_NB) &&
	    remove_files(folder)) {
		unlinkat(at, name, AT_REMOVEDIR);
		log_warn("%s/%s: left by a sweep that was killed; removed", disk(), name);
	}
	close(folder);
}

void scratch_remove_left(void)
{
	char *name = prefix();
	DIR *d = name ? opendir(disk()) : NULL;

	for (struct dirent *e; d && (e = readdir(d));)
		if (!strncmp(e->d_name, name, strlen(name)) &&
		    strlen(e->d_name) == strlen(name) + UNIQUE)
			remove_one(dirfd(d), e->d_name);
	if (d)
		closedir(d);
	free(name);
}
