/* Text files, whole. */
#ifndef AR_TEXT_H
#define AR_TEXT_H

#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All of the file, ended by a zero, owned by the caller.  AR_DATA when it cannot be read or has
 * more than max bytes. */
enum ar_status text_read(char **out, const char *path, size_t max, struct ar_err *err);

/* The line, from 1, on which end lies. */
int text_line(const char *text, const char *end);

#ifdef __cplusplus
}
#endif
#endif
