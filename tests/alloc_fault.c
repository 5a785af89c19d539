/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/alloc_fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <zstd.h>

#include "base/status.h"
#include "tests/tap.h"

static atomic_long left = -1; /* calls that still succeed; negative: all calls */
static atomic_bool fired;
static atomic_bool no_threads;

void fault_arm(long k)
{
	fired = false;
	left = k;
}

bool fault_disarm(void)
{
	left = -1;
	return fired;
}

void fault_threads(bool fail)
{
	no_threads = fail;
}

/* Count a call, and say whether it is to fail. */
static bool fault_now(void)
{
	if (left < 0 || atomic_fetch_sub(&left, 1) != 0)
		return false;
	fired = true;
	return true;
}

/* The linker sends every call of f to __wrap_f and names the true one __real_f. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
ZSTD_CStream *__real_ZSTD_createCStream(void);
ZSTD_DStream *__real_ZSTD_createDStream(void);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);
enum ar_status __real_ar_nomem_at(struct ar_err *err, const char *file);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
ZSTD_CStream *__wrap_ZSTD_createCStream(void);
ZSTD_DStream *__wrap_ZSTD_createDStream(void);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);
enum ar_status __wrap_ar_nomem_at(struct ar_err *err, const char *file);

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

void *__wrap_aligned_alloc(size_t align, size_t n)
{
	return fault_now() ? NULL : __real_aligned_alloc(align, n);
}

char *__wrap_strdup(const char *s)
{
	return fault_now() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
	return fault_now() ? NULL : __real_strndup(s, n);
}

ZSTD_CStream *__wrap_ZSTD_createCStream(void)
{
	return fault_now() ? NULL : __real_ZSTD_createCStream();
}

ZSTD_DStream *__wrap_ZSTD_createDStream(void)
{
	return fault_now() ? NULL : __real_ZSTD_createDStream();
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg)
{
	return no_threads ? EAGAIN : __real_pthread_create(t, a, f, arg);
}

/* Whatever a test lets fail has a name: a source file of the program without one fails the test. */
enum ar_status __wrap_ar_nomem_at(struct ar_err *err, const char *file)
{
	struct ar_err named;
	const enum ar_status st = __real_ar_nomem_at(&named, file);

	if (strstr(named.msg, ".c;") && !strstr(file, "tests/"))
		bail_out("%s: base/status.c has no row for this file", file);
	if (err)
		*err = named;
	return st;
}
