/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/store_disk.h"

#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/vfs.h>

#include "base/log.h"

/* Network file systems, by the number that the kernel gives to each. */
static const struct {
	uint32_t type;
	const char *name;
} networks[] = {
	{ 0x6969, "NFS" },	  { 0x517b, "SMB" },	    { 0xfe534d42, "SMB" },
	{ 0xff534d42, "CIFS" },	  { 0x0bd00bd0, "Lustre" }, { 0x47504653, "GPFS" },
	{ 0x65735546, "FUSE" },	  { 0x00c36400, "Ceph" },   { 0x5346414f, "AFS" },
	{ 0x19830326, "BeeGFS" }, { 0x01021997, "9P" },
};

static bool ask(const char *path, struct statfs *s)
{
	char folder[PATH_MAX];

	if (!statfs(path, s))
		return true;
	return snprintf(folder, sizeof folder, "%s", path) < (int)sizeof folder &&
	       !statfs(dirname(folder), s);
}

const char *store_disk_network(const char *path)
{
	struct statfs s;

	if (!ask(path, &s))
		return NULL;
	for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
		if ((uint32_t)s.f_type == networks[i].type)
			return networks[i].name;
	return NULL;
}

void store_disk_warn(const char *path)
{
	const char *network = store_disk_network(path);

	if (network)
		log_warn(
			"%s: on a network file system (%s), whose locks may fail: let no other "
			"program use it, or write to a local disk and copy the file, as sweep does",
			path, network);
}
