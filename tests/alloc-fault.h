/* Make the k-th allocation of the linked objects fail: for programs linked with
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=strndup.  Include it in
 * one file of a program. */
#ifndef AR_ALLOC_FAULT_H
#define AR_ALLOC_FAULT_H

#include <stdbool.h>
#include <stddef.h>

static long fault_in = -1;	/* allocations that still succeed; negative: all of them */
static bool fault_fired;

static bool fault_now(void)
{
	if (fault_in < 0 || fault_in--)
		return false;
	return fault_fired = true;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

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

char *__wrap_strdup(const char *s)
{
	return fault_now() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
	return fault_now() ? NULL : __real_strndup(s, n);
}

#endif
