/* SPDX-License-Identifier: Apache-2.0 */
/* The views of attnreplay-db(5) in the file itself, for other programs.  Readers of ours make them
 * as TEMP views.  These hide the views of the file, so a hostile file cannot change them. */
#ifndef AR_STORED_VIEWS_H
#define AR_STORED_VIEWS_H

#include <stddef.h>

#include <sqlite3.h>

/* The length of the statement that sql begins with, without its semicolon.  Only a semicolon that
 * ends a line, or the text, ends a statement. */
size_t stored_views_length(const char *sql);

/* Replace each view of the file that differs from the program's, and add those that it lacks.
 * Returns an SQLite result code. */
int stored_views_make(sqlite3 *db);

/* Drop the views of the file that have names of ours: statements that change tables would check
 * them.  Returns an SQLite result code. */
int stored_views_drop(sqlite3 *db);

#endif
