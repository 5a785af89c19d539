/* SPDX-License-Identifier: Apache-2.0 */
/* Databases on network file systems, which have no write-ahead log. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "profiler/store/store_disk.h"
#include "profiler/store/store_file.h"
#include "tests/tap.h"

/* The journal mode of a file that is opened for runs. */
static const char *journal(const char *path)
{
	static char mode[16];
	struct ar_err err = { 0 };
	sqlite3_stmt *q = NULL;
	sqlite3 *db;

	if (store_file_open(&db, path, &err))
		bail_out("%s", err.msg);
	if (sqlite3_prepare_v2(db, "PRAGMA journal_mode", -1, &q, NULL) ||
	    sqlite3_step(q) != SQLITE_ROW)
		bail_out("%s", sqlite3_errmsg(db));
	snprintf(mode, sizeof mode, "%s", (const char *)sqlite3_column_text(q, 0));
	sqlite3_finalize(q);
	if (store_file_close(db, path, &err))
		bail_out("%s", err.msg);
	return mode;
}

/* A table of mounts: the type of device 0:MINOR, of which one has a name with spaces. */
static void test_fuse(void)
{
	static char table[] =
		"22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
		"40 22 0:40 / /home/me/my\\040-\\040files rw,nosuid - fuse.sshfs me@host:/ rw\n"
		"41 22 0:41 / /all rw master:7 - fuse.mergerfs a:b rw\n"
		"42 22 0:42 / /win rw - fuseblk /dev/vdb1 rw\n"
		"43 22 0:43 / /jobs rw,nosuid shared:2 master:3 - fuse.glusterfs host:/jobs rw\n"
		"44 22 0:44 / /bucket rw - fuse mount-s3 rw\n";
	static const struct {
		unsigned minor_no;
		const char *name;
	} cases[] = { { 21, NULL },  { 40, "fuse.sshfs" },     { 41, NULL },
		      { 42, NULL },  { 43, "fuse.glusterfs" }, { 44, "fuse" },
		      { 45, "fuse" } };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		FILE *f = fmemopen(table, sizeof table - 1, "r");

		if (!f)
			bail_out("no table");
		is_str(store_disk_fuse(f, makedev(0, cases[i].minor_no)), cases[i].name,
		       "device %u of a table of mounts", cases[i].minor_no);
		fclose(f);
	}
}

/* What FUSE counts as here: the device of a folder may have no line, such as one of btrfs. */
static const char *fuse_here(void)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "r");
	const char *name = "FUSE";
	struct stat s;

	if (mounts) {
		if (stat(".", &s))
			bail_out("no folder");
		name = store_disk_fuse(mounts, s.st_dev);
		fclose(mounts);
	}
	return name;
}

int main(void)
{
	static const char fuse[] = "0x65735546";
	static const struct {
		const char *kind, *name; /* NULL: no network */
	} disks[] = {
		{ "0x6969", "NFS" },	    { "0xff534d42", "CIFS" }, { "0xfe534d42", "SMB" },
		{ "0x0bd00bd0", "Lustre" }, { "0x47504653", "GPFS" }, { fuse, NULL },
		{ "0xef53", NULL },	    { "0x01021994", NULL },   { "0x9123683e", NULL },
		{ "0x58465342", NULL },	    { "0x794c7630", NULL },
	};
	char folder[] = "/tmp/attnreplay-XXXXXX";

	plan(0);
	test_fuse();
	if (!mkdtemp(folder) || chdir(folder))
		bail_out("no folder");
	for (size_t i = 0; i < sizeof disks / sizeof *disks; i++) {
		const char *name = disks[i].kind == fuse ? fuse_here() : disks[i].name;

		setenv("FAKE_DISK", disks[i].kind, 1);
		is_str(store_disk_network("x.db"), name, "%s by number", disks[i].kind);
		is_str(store_disk_network("new.db"), name,
		       "... as the folder of a file that is not there");
		is_str(journal("x.db"), name ? "delete" : "wal", "... with its journal");
	}
	setenv("FAKE_DISK", "0x6969", 1);
	is_str(store_disk_network("none/x.db"), NULL, "no folder is on none");
	unlink("x.db");
	rmdir(folder);
	return done_testing();
}
