/* SPDX-License-Identifier: Apache-2.0 */
/* Dates as traces write them, to the nanosecond. */
#ifndef AR_DATE_H
#define AR_DATE_H

#include <stdbool.h>
#include <stdint.h>

#include "traces/importers/trace_record.h"

enum date_zone { DATE_BARE = 1, DATE_ZONED };

/* "2023-11-16 18:15:46.6805900", 'T' as well, no or up to nine digits of fraction, then
 * nothing (taken as UTC), "Z", "+00", "+00:00" or "+0000": nanoseconds since 1970. */
bool date_parse(struct span s, int64_t *ns, enum date_zone *zone);
/* "2023-11-16T18:15:46.680590000Z", for ns from 0 to DATE_MAX_NS; buf has DATE_CHARS bytes. */
enum { DATE_CHARS = 80 };
#define DATE_MAX_NS INT64_C(9223372036000000000)
void date_format(char *buf, int64_t ns);

#endif
