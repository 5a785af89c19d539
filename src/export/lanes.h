/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of a time line: intervals that overlap get different lanes, and a lane is used again after
 * its interval has ended. */
#ifndef AR_EXPORT_LANES_H
#define AR_EXPORT_LANES_H

#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>

struct lane {
	int64_t end_ns;
	int64_t no; /* from 1 */
};

/* A heap: the lane that is free first stands first.  Zero it before use; free lane. */
struct lanes {
	struct lane *lane;
	size_t n, cap;
};

/* The lane of [start, end), in ns.  Calls come in order of start.  0: no memory. */
int64_t lanes_take(struct lanes *l, int64_t start_ns, int64_t end_ns);

/* Add to db the SQL function lane(start_ns, end_ns), without any lane in use.  No statement of db
 * may be open.  Not 0: there is no memory. */
int lanes_register(sqlite3 *db);

#endif
