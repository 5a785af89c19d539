/* SPDX-License-Identifier: Apache-2.0 */
/* A statfs() in place of the system's: each file lies on a file system of the kind whose number is
 * in FAKE_DISK.  Part of a test, or a library for LD_PRELOAD. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Both names are the same function on a machine of 64 bits. */
int statfs(const char *path, struct statfs *s)
{
	const char *kind = getenv("FAKE_DISK");

	memset(s, 0, sizeof *s);
	s->f_type = (__typeof__(s->f_type))strtoul(kind ? kind : "0", NULL, 0);
	return access(path, F_OK);
}

int statfs64(const char *path, struct statfs64 *s)
{
	return statfs(path, (struct statfs *)s);
}
