/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/data.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Set path to dir/sub/rel and return whether that file can be read.  dir "": unknown folder. */
static bool probe_file(const char *dir, const char *sub, const char *rel, char *path, size_t n)
{
	int len = snprintf(path, n, "%s%s/%s", dir, sub, rel);

	return *dir && len > 0 && (size_t)len < n && !access(path, R_OK);
}

/* Write the folder of the running program into dir; "" if unknown. */
static void program_dir(char *dir, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", dir, size - 1);
	char *slash;

	dir[n > 0 ? n : 0] = 0;
	slash = strrchr(dir, '/');
	if (slash)
		*slash = 0;
}

bool data_find(const char *rel, char *path, size_t n)
{
	static const char *const beside[] = { "/../share/attnreplay", "", "/.." };
	const char *env = getenv("ATTNREPLAY_DATA");
	char dir[PATH_MAX];

	if (probe_file(env ? env : "", "", rel, path, n))
		return true;
	program_dir(dir, sizeof dir);
	for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
		if (probe_file(dir, beside[i], rel, path, n))
			return true;
	return probe_file(PKGDATADIR, "", rel, path, n);
}

int data_open(const char *path, int flags)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
	char found[PATH_MAX];

	if (fd >= 0 || errno != ENOENT || *path == '/')
		return fd;
	if (data_find(path, found, sizeof found))
		return open(found, O_RDONLY | O_CLOEXEC | flags);
	errno = ENOENT;
	return -1;
}
