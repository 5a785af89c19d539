/* SPDX-License-Identifier: Apache-2.0 */
/* Rows on their way into a table, in SQLite's own format: one page of a database in memory.  SQLite
 * copies rows between tables of one definition as they are (the transfer optimization of INSERT
 * INTO ... SELECT *), for a small part of what it takes to make them of values.  Where it would
 * not, it makes them anew, and the result is the same.
 *
 * Instructions for each entry that the cost backend schedules (8.3 of them an iteration), results
 * stored, by how rows of iterations are written (320 without results):
 *
 *     755   through this stage
 *   1,441   by an INSERT of 64 rows
 *   1,750   by an INSERT of each row
 */
#ifndef AR_STORE_STAGE_H
#define AR_STORE_STAGE_H

#include <sqlite3.h>
#include <stdbool.h>

#include "profiler/store/columns.h"

/* The switch: false writes iterations by plain INSERT.  The rows are the same. */
#define STAGE_ITERATIONS true

struct stage;

/* For a table of db that has a rowid, but no key, no index and no trigger, and whose columns are
 * all SET_BY_INSERT.  An SQLite result code, also of stage_flush().  At most one stage per
 * connection: it attaches a database of this name. */
int stage_open(struct stage **out, sqlite3 *db, const struct table *table);
/* Drop what was not flushed.  NULL is fine. */
void stage_close(struct stage *g);

/* No room for another row: flush first. */
bool stage_full(const struct stage *g);
/* row: the table's struct, at most 512 bytes in the database.  What the table demands of its values
 * is the caller's to keep. */
void stage_put(struct stage *g, const void *row);
/* Insert all rows, at most once in a transaction. */
int stage_flush(struct stage *g);

#endif
