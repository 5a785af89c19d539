/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders on a local disk for the databases of points that run.  SQLite's log does not work on
 * shared file systems.  Others may write into the disk's folder too, so each database has a new
 * folder of its own there.
 *
 * The folder is locked while the sweep or the point runs.  What nobody locks was left by a sweep
 * that was killed.
 */
#ifndef AR_SWEEP_SCRATCH_H
#define AR_SWEEP_SCRATCH_H

#include "base/status.h"

/* Make a folder.  *path: the database KEY.db in it, which the caller frees.  *lock: an open file
 * that holds the lock, as do its copies in children. */
enum ar_status scratch_open(char **path, int *lock, const char *key, struct ar_err *err);

/* Remove the folder, if it is empty, and unlock it.  A database that is still there was told of: it
 * is marked as one to keep. */
void scratch_close(char *path, int lock);

/* Remove the folders of this user that hold databases alone and that nobody locks. */
void scratch_remove_left(void);

#endif
