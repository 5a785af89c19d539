/* SPDX-License-Identifier: Apache-2.0 */
/* The views of attnreplay-db(5) in the file itself, for other programs.  Readers of ours make them
 * as TEMP views, which come before views of the file, so nothing here reads what a file says. */
#ifndef AR_STORED_VIEWS_H
#define AR_STORED_VIEWS_H

#include <sqlite3.h>

/* Make the file's views those of this program, where they are not.  Returns an SQLite result
 * code. */
int stored_views_make(sqlite3 *db);

/* Drop the views of the file that have names of ours: statements that change tables would check
 * them.  Returns an SQLite result code. */
int stored_views_drop(sqlite3 *db);

#endif
