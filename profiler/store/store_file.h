/* SPDX-License-Identifier: Apache-2.0 */
/* The database as a file: is it ours, which version, and how its errors read. */
#ifndef AR_STORE_FILE_H
#define AR_STORE_FILE_H

#include <sqlite3.h>

#include "base/status.h"

#define STORE_APPLICATION_ID 0x41545250		/* 'ATRP' */
enum {					/* PRAGMA user_version */
	STORE_OLDEST = 5,		/* is read as it is, and migrated when opened for writing */
	STORE_VERSION = 7,
};

/* The database's last error as a message about the file. */
enum ar_status store_sql_fail(sqlite3 *db, const char *path, struct ar_err *err);

/* Open or create for writing; an older file becomes one of STORE_VERSION.  AR_DATA: not a database
 * of ours, or one of a version that is not known here.  *db is the caller's, who alone may use
 * it. */
enum ar_status store_file_open(sqlite3 **db, const char *path, struct ar_err *err);

/* Put everything into the main file, so that it can be copied alone.  Closes db (NULL is
 * fine). */
enum ar_status store_file_close(sqlite3 *db, const char *path, struct ar_err *err);

#endif
