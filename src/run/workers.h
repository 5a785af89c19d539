/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks that all processors work on, in processes of their own: each has what this process has
 * loaded, and leaves its results in memory that they share. */
#ifndef AR_WORKERS_H
#define AR_WORKERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Memory of zeros that processes share; NULL: none. */
void *workers_share(size_t bytes);
void workers_unshare(void *p, size_t bytes); /* NULL is fine */

int64_t workers_now_ns(void); /* of the monotonic clock */
int workers_count(void);      /* how many work at a time */

/* Call task(self, i) for i from 0 to n - 1, in this order, until the clock passes give_up_ns.
 * title: of the progress line.  AR_INTERRUPTED, AR_IO: no process can be started. */
enum ar_status workers_run(int n, void (*task)(void *self, int i), void *self, int64_t give_up_ns,
			   const char *title, struct ar_err *err);

#endif
