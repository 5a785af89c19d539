/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a text file or of standard input, compressed by zstd or gzip or not. */
#ifndef AR_READER_H
#define AR_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct reader;

/* Open path for reading; "-" is standard input.  path must outlive the reader.  Compression is
 * recognised by content.  AR_DATA when the file cannot be read or is not text; the message names
 * the kind of file.  AR_INTERRUPTED: a signal came, here or in reader_next(). */
enum ar_status reader_open(struct reader **out, const char *path, struct ar_err *err);
void reader_close(struct reader *r); /* NULL is fine */

/* Get the next line in *s, without its line end, NUL-terminated and writable.  It is valid until
 * the next call.  *s is NULL after the last line.  AR_DATA: damaged or truncated compression. */
enum ar_status reader_next(struct reader *r, char **s, size_t *n, struct ar_err *err);

/* Refuse lines of more than this many bytes; 64 MiB is the most in any case. */
void reader_limit(struct reader *r, size_t bytes);

/* Get line and all lines that follow it as one text, which the caller frees.  It is NULL after a
 * failure.  AR_DATA: it has more than 64 MiB. */
enum ar_status reader_rest(struct reader *r, const char *line, char **text, struct ar_err *err);

/* Bytes of memory that the contents of a file may take: limit, or if it is 0 half of the
 * machine's. */
size_t reader_memory(int64_t limit);

/* Name of the file for messages: "<stdin>" for "-". */
const char *reader_path(const struct reader *r);
/* Number of the line last returned, from 1. */
uint64_t reader_line(const struct reader *r);
/* SHA-256 of the bytes before decompression.  Call it once, after the last line. */
void reader_sha256(struct reader *r, char hex[65]);

#endif
