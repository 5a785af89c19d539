/* Lines of a text file or of standard input, zstd-compressed or not. */
#ifndef AR_READER_H
#define AR_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct reader;

/* path "-" is standard input; path must outlive the reader.  Compression is found by
 * content.  AR_DATA when the file cannot be read or is not text; the message names what
 * was found. */
enum ar_status reader_open(struct reader **out, const char *path, struct ar_err *err);
void reader_close(struct reader *r);	/* NULL is fine */

/* The next line without its end, terminated by NUL, writable, valid until the next call;
 * *s is NULL after the last.  Damaged or truncated compression is AR_DATA. */
enum ar_status reader_next(struct reader *r, char **s, size_t *n, struct ar_err *err);

/* As messages name the file: "<stdin>" for "-". */
const char *reader_path(const struct reader *r);
/* Number of the line last returned, from 1. */
uint64_t reader_line(const struct reader *r);
/* Of the bytes as they were read, before decompression.  Call it once, after the last line. */
void reader_sha256(struct reader *r, char hex[65]);

#endif
