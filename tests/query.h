/* Databases, asked. */
#ifndef AR_TESTS_QUERY_H
#define AR_TESTS_QUERY_H

#include <sqlite3.h>
#include <stdint.h>

/* The integer that sql answers with; bails out where there is none. */
int64_t ask(sqlite3 *db, const char *sql);

#endif
