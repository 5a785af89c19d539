/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing whole files.  Any failure bails out. */
#ifndef AR_TESTS_FILE_H
#define AR_TESTS_FILE_H

#include <stddef.h>

void file_write(const char *path, const void *p, size_t n);
unsigned char *file_read(const char *path, size_t *n); /* owned by the caller */

#endif
