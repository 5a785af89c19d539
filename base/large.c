/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/large.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 2 << 20 };

static bool is_large(size_t size)
{
	return size >= PAGE / 2;
}

static void advise(void *p, size_t size)
{
#ifdef MADV_HUGEPAGE
	madvise(p, size, MADV_HUGEPAGE); /* only advice */
#else
	(void)p, (void)size;
#endif
}

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>

/* The address sanitizer notes each byte of an array when it is allocated, which takes longer than
 * many uses of the array.  So large ones are mapped, and it minds EDGE bytes on both sides.  The
 * size of the map is before the array; 0: it has none. */
enum { EDGE = 4096, HEAD = 16 };

static void *behind_head(void *head, size_t mapped)
{
	*(size_t *)head = mapped;
	__asan_poison_memory_region(head, HEAD);
	return (char *)head + HEAD;
}

void *large_alloc(size_t size)
{
	const size_t n = 2 * EDGE + size;
	char *m;

	if (size > SIZE_MAX - PAGE)
		return NULL;
	if (!is_large(size)) {
		m = malloc(HEAD + size);
		return m ? behind_head(m, 0) : NULL;
	}
	m = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		 0);
	if (m == MAP_FAILED)
		return NULL;
	advise(m, n);
	__asan_poison_memory_region(m, EDGE - HEAD);
	__asan_poison_memory_region(m + EDGE + size, EDGE);
	return behind_head(m + EDGE - HEAD, n);
}

__attribute__((no_sanitize_address)) static size_t mapped(const void *p)
{
	return *(const size_t *)(const void *)((const char *)p - HEAD);
}

void large_free(void *p)
{
	const size_t n = p ? mapped(p) : 0;
	char *m = p ? (char *)p - EDGE : NULL;

	if (n) {
		__asan_unpoison_memory_region(m, EDGE);
		__asan_unpoison_memory_region(m + n - EDGE, EDGE);
		munmap(m, n);
	} else if (p) {
		free((char *)p - HEAD);
	}
}
#else
void *large_alloc(size_t size)
{
	void *p;

	if (size > SIZE_MAX - PAGE)
		return NULL;
	if (!is_large(size))
		return malloc(size);
	size = (size + PAGE - 1) / PAGE * PAGE;
	p = aligned_alloc(PAGE, size);
	if (p)
		advise(p, size);
	return p;
}

void large_free(void *p)
{
	free(p);
}
#endif
