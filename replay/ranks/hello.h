/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks that were started apart compare before they run. */
#ifndef AR_HELLO_H
#define AR_HELLO_H

#include "replay/ranks/world.h"

/* lines: "name=value\n" in order of names.  AR_USAGE: a rank has other lines than rank 0; the
 * message, which all ranks return, names the first such rank and the first such line.  Else errors
 * of world_gather(). */
enum ar_status hello_same(struct world *w, const char *lines, struct ar_err *err);

#endif
