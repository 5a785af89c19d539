/* SPDX-License-Identifier: Apache-2.0 */
/* The database file: its identity, its version, migration, and messages for its errors. */
#ifndef AR_STORE_FILE_H
#define AR_STORE_FILE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define STORE_APPLICATION_ID 0x41545250 /* 'ATRP' */
enum {					/* PRAGMA user_version */
       STORE_OLDEST = 5,		/* oldest version; migrated when opened for writing */
       STORE_VERSION = 22,
};

/* Turn the last error of db into a message about the file path. */
enum ar_status store_sql_fail(sqlite3 *db, const char *path, struct ar_err *err);

/* Open any SQLite file, whose name is taken as it stands.  flags: SQLITE_OPEN_*.  Returns an SQLite
 * result code; the caller closes *db, also after a failure. */
int store_file_open_plain(sqlite3 **db, const char *path, int flags);

/* Open or create a file for writing; migrate an older one to STORE_VERSION.  AR_DATA: not a
 * database of attnreplay, or of an unknown version.  The caller owns *db and uses it in one thread
 * at a time. */
enum ar_status store_file_open(sqlite3 **db, const char *path, struct ar_err *err);

/* Close db after moving everything into the main file, which can then be copied alone.  db may be
 * NULL. */
enum ar_status store_file_close(sqlite3 *db, const char *path, struct ar_err *err);

/* The URI by which SQLite opens path, with a query such as mode=ro; sqlite3_free() it.  NULL: no
 * memory. */
char *store_file_uri(const char *path, const char *query);

/* Whether the file's last rows may be in a log beside it, which is not there: the file was copied
 * while another program wrote it. */
bool store_file_lacks_log(const char *path);
/* Warn of that.  The file may be whole nevertheless: a program that was killed while it closed the
 * file leaves it without a log, too. */
void store_file_warn_log(const char *path);
/* Whether the file has no table: the first program to write it ended before.  A copy of a file
 * that is written has some. */
bool store_file_is_blank(const char *path);

/* Open a file for reading, without views.  *version: the file's.  A failure is AR_DATA, because the
 * file is input, and its schema may call none but harmless functions. */
enum ar_status store_file_read(sqlite3 **db, const char *path, int64_t *version,
			       struct ar_err *err);

/* Make an empty database for writing, which goes when it is closed.  name: of it, for messages. */
enum ar_status store_file_scratch(sqlite3 **db, const char *name, struct ar_err *err);

/* Make the views and the functions of functions.h, over the tables of a file of the version. */
enum ar_status store_file_views(sqlite3 *db, const char *path, int64_t version, struct ar_err *err);

/* Finds baselines as store_run_begin() says, for the runs of ?1's setup that lack one. */
extern const char store_baseline_sql[];

#endif
