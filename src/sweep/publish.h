/* SPDX-License-Identifier: Apache-2.0 */
/* Databases move into the folder of a sweep whole: a file that appears there is complete. */
#ifndef AR_SWEEP_PUBLISH_H
#define AR_SWEEP_PUBLISH_H

#include "base/status.h"

/* Move the closed database from to the path to, which is replaced.  It is on the disk when this
 * returns.  Between file systems: copy beside it, then rename.  AR_IO: the message names from,
 * which is still there. */
enum ar_status publish(const char *from, const char *to, struct ar_err *err);

/* End the database of a failed run at path.  Move it to the path to if it has an iteration, else
 * remove it.  Without a file: do nothing. */
enum ar_status publish_failed(const char *path, const char *to, struct ar_err *err);

#endif
