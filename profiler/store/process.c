/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/process.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The first n - 1 bytes of a file of /proc, up to a line end; "": it cannot be read. */
static void read_proc(const char *path, char *text, size_t n)
{
	FILE *f = fopen(path, "r");

	text[f ? fread(text, 1, n - 1, f) : 0] = 0;
	text[strcspn(text, "\n")] = 0;
	if (f)
		fclose(f);
}

/* When a process started, in clock ticks since boot; -1: there is no such process, or it has ended
 * and waits for its parent.  It tells the process from a later one with the same pid. */
static int64_t process_start(int64_t pid)
{
	char path[64], text[1024];
	long long start = -1;
	const char *p;

	snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
	read_proc(path, text, sizeof text);
	p = strrchr(text, ')'); /* field 2 may hold anything */
	if (!p || !p[1] || strchr("ZX", p[2]))
		return -1;
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (!p || sscanf(p, " %lld", &start) != 1)
		return -1;
	return start;
}

struct process process_here(int64_t pid)
{
	static _Thread_local char boot_id[64];
	struct process p = { .pid = pid, .start = process_start(pid), .ns = -1 };
	struct stat sb;

	read_proc("/proc/sys/kernel/random/boot_id", boot_id, sizeof boot_id);
	if (*boot_id)
		p.boot_id = boot_id;
	if (!stat("/proc/self/ns/pid", &sb))
		p.ns = (int64_t)sb.st_ino;
	return p;
}

enum process_state process_state(const struct process *p)
{
	const struct process here = process_here(p->pid);

	if (!p->boot_id || !here.boot_id || strcmp(p->boot_id, here.boot_id) != 0 ||
	    p->ns != here.ns)
		return PROCESS_UNKNOWN;
	return here.start >= 0 && here.start == p->start ? PROCESS_LIVES : PROCESS_ENDED;
}
