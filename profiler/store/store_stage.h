/* SPDX-License-Identifier: Apache-2.0 */
/* Fast insertion of rows.  The stage is one page of a database in memory, where rows are written in
 * SQLite's own format.  Between tables of equal definition SQLite copies rows as they are (the
 * transfer optimization of INSERT INTO ... SELECT *).  That costs a small part of making rows from
 * values.  Where SQLite does not use the optimization, it remakes the rows, with the same result.
 *
 * Instructions per entry that the cost backend schedules, by how rows of iterations are written
 * (8.3 entries per iteration; 320 instructions if no results are stored):
 *
 *     755   through this stage
 *   1,441   by an INSERT of 64 rows
 *   1,750   by an INSERT of each row
 */
#ifndef AR_STORE_STAGE_H
#define AR_STORE_STAGE_H

#include <sqlite3.h>
#include <stdbool.h>

#include "profiler/store/store_columns.h"

/* False: write iterations by plain INSERT.  The rows are the same. */
#define STAGE_ITERATIONS true

struct stage;

/* Open a stage for a table of db.  The table must have a rowid, no key, no index and no trigger,
 * and only SET_BY_INSERT columns.  At most one stage per connection: it attaches a database named
 * "stage".  Returns an SQLite result code, as stage_flush() does. */
int stage_open(struct stage **out, sqlite3 *db, const struct table *table);
/* Close the stage; rows that were not flushed are lost.  NULL is fine. */
void stage_close(struct stage *g);

/* True: no room for another row.  Call stage_flush() first. */
bool stage_full(const struct stage *g);
/* Add a row.  row: the table's struct row_TABLE, at most 512 bytes in the database.  Its values
 * must satisfy the checks of the table, which are not run. */
void stage_put(struct stage *g, const void *row);
/* Insert all rows into the table.  At most one call per transaction. */
int stage_flush(struct stage *g);

#endif
