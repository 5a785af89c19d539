/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/store_disk.h"

#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "base/log.h"

enum { FUSE = 0x65735546 };

/* Network file systems, by the number that the kernel gives to each. */
static const struct {
	uint32_t type;
	const char *name;
} networks[] = {
	{ 0x6969, "NFS" },	  { 0x517b, "SMB" },	    { 0xfe534d42, "SMB" },
	{ 0xff534d42, "CIFS" },	  { 0x0bd00bd0, "Lustre" }, { 0x47504653, "GPFS" },
	{ FUSE, "FUSE" },	  { 0x00c36400, "Ceph" },   { 0x5346414f, "AFS" },
	{ 0x19830326, "BeeGFS" }, { 0x01021997, "9P" },
};

/* Kinds of FUSE that count as a network, by the type in the table of mounts.  Type "fuse" names no
 * kind, so it counts, as does a device without a line.  All other kinds are local, such as fuseblk
 * and fuse.mergerfs. */
static const char *const fuse_networks[] = {
	"fuse",		 "virtiofs",	   "fuse.sshfs",     "fuse.glusterfs",	  "fuse.ceph",
	"fuse.s3fs",	 "fuse.rclone",	   "fuse.ceph-fuse", "fuse.gcsfuse",	  "fuse.blobfuse2",
	"fuse.juicefs",	 "fuse.lizardfs",  "fuse.mfs",	     "fuse.alluxio-fuse", "fuse.fuse_dfs",
	"fuse.smbnetfs", "fuse.curlftpfs",
};

static bool ask(const char *path, struct statfs *s, dev_t *device)
{
	char folder[PATH_MAX];
	struct stat sb;

	if (statfs(path, s)) {
		if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
			return false;
		path = dirname(folder);
		if (statfs(path, s))
			return false;
	}
	*device = stat(path, &sb) ? 0 : sb.st_dev;
	return true;
}

/* Set type from a line of the table if it is of the device. */
static bool read_type(const char *line, dev_t device, char type[64])
{
	const char *end = strstr(line, " - "); /* spaces of names are written in octal */
	unsigned major_no, minor_no;

	return end && sscanf(line, "%*d %*d %u:%u", &major_no, &minor_no) == 2 &&
	       makedev(major_no, minor_no) == device && sscanf(end, " - %63s", type) == 1;
}

const char *store_disk_fuse(FILE *mounts, dev_t device)
{
	const char *found = NULL;
	char *line = NULL, type[64] = "fuse";
	size_t n = 0;

	while (getline(&line, &n, mounts) > 0)
		if (read_type(line, device, type))
			break;
	free(line);
	for (size_t i = 0; i < sizeof fuse_networks / sizeof *fuse_networks; i++)
		if (!strcmp(type, fuse_networks[i]))
			found = fuse_networks[i];
	return found;
}

/* Without a table of mounts, FUSE may be a network. */
static const char *ask_fuse(dev_t device, const char *unknown)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "r");
	const char *found = mounts ? store_disk_fuse(mounts, device) : unknown;

	if (mounts)
		fclose(mounts);
	return found;
}

const char *store_disk_network(const char *path)
{
	struct statfs s;
	dev_t device;

	if (!ask(path, &s, &device))
		return NULL;
	for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
		if ((uint32_t)s.f_type == networks[i].type)
			return networks[i].type == FUSE ? ask_fuse(device, networks[i].name) :
							  networks[i].name;
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
