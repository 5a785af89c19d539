/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for large arrays that are read here and there.  In pages of the usual size, such reads
 * take longer to find a page than to read it. */
#ifndef AR_LARGE_H
#define AR_LARGE_H

#include <stddef.h>

/* `size` bytes without a value, for free(), in large pages where the system has them.  NULL: there
 * is no memory. */
void *large_alloc(size_t size);

#endif
