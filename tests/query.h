/* SPDX-License-Identifier: Apache-2.0 */
/* Queries of databases for tests. */
#ifndef AR_TESTS_QUERY_H
#define AR_TESTS_QUERY_H

#include <sqlite3.h>
#include <stdint.h>

/* Return the integer result of sql; bails out without a result. */
int64_t ask(sqlite3 *db, const char *sql);
/* Execute sql in the database at path; bails out where that fails. */
void change(const char *path, const char *sql);
/* The only value of a query, through a connection like anybody's; NaN: there is none. */
double value(const char *path, const char *sql);
/* Compare it with want. */
void is_value(const char *path, const char *sql, double want, const char *what);
/* How many views the program has. */
int count_views(void);

#endif
