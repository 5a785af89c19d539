/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/large.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 2 << 20 };

void *large_alloc(size_t size)
{
	void *p;

	if (size < PAGE / 2 || size > SIZE_MAX - PAGE)
		return malloc(size);
	size = (size + PAGE - 1) / PAGE * PAGE;
	p = aligned_alloc(PAGE, size);
#ifdef MADV_HUGEPAGE
	if (p)
		madvise(p, size, MADV_HUGEPAGE); /* only advice */
#endif
	return p;
}
