/* SPDX-License-Identifier: Apache-2.0 */
/* Where a database lies.  SQLite's write-ahead log needs memory that all programs of the file
 * share.  Two hosts share none, and network file systems may lack it and have locks that fail. */
#ifndef AR_STORE_DISK_H
#define AR_STORE_DISK_H

#include <stdio.h>
#include <sys/types.h>

/* The name of the network file system that holds the file, or its folder if there is no file.
 * NULL: it is on another one. */
const char *store_disk_network(const char *path);
/* The same for a device of FUSE.  mounts: a table in the format of /proc/self/mountinfo, which says
 * of what kind the device is.  A device without a line counts as a network. */
const char *store_disk_fuse(FILE *mounts, dev_t device);
/* Warn if the file is on a network file system. */
void store_disk_warn(const char *path);

#endif
