/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz targets.  Linked with fuzz_main.c, a target is a test over its corpus.  Compiled alone with
 * -fsanitize=fuzzer, it is a libFuzzer target. */
#ifndef AR_TESTS_FUZZ_H
#define AR_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"

extern const char fuzz_corpus[]; /* a folder of tests/data/corpus */

/* Feed the bytes to the code under test; abort on an error. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static inline void must(bool x, const char *what)
{
	if (x)
		return;
	fprintf(stderr, "fuzz-%s: %s\n", fuzz_corpus, what);
	abort();
}

static inline void told(const struct ar_err *err)
{
	must(*err->msg && err->status, "a failure without a message");
}

enum { HOLD_PATH = 40 };

/* A file in memory with these bytes.  Returns its descriptor and sets path to a name to open. */
static inline int hold(const void *data, size_t n, char path[HOLD_PATH])
{
	int fd = memfd_create("input", 0);

	must(fd >= 0 && (!n || write(fd, data, n) == (ssize_t)n), "no file in memory");
	snprintf(path, HOLD_PATH, "/proc/self/fd/%d", fd);
	return fd;
}

#endif
