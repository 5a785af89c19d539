/* Allocations that fail on demand.  Included once by a test that links with
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc. */
#ifndef AR_FAULT_H
#define AR_FAULT_H

#include <stdbool.h>
#include <stddef.h>

/* The allocation with this number, from 0, fails; -1: none.  fault_fired: it did. */
static long fault_countdown = -1;
static bool fault_fired;

static bool fault_now(void)
{
	if (fault_countdown < 0 || fault_countdown--)
		return false;
	fault_fired = true;
	return true;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
	return fault_now() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fault_now() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fault_now() ? NULL : __real_realloc(p, n);
}

#endif
