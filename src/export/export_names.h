/* SPDX-License-Identifier: Apache-2.0 */
/* Names of kernels as people write them.  The C++ runtime demangles them; it is loaded at run time,
 * so that the program neither builds with it nor needs it to start. */
#ifndef AR_EXPORT_NAMES_H
#define AR_EXPORT_NAMES_H

#include <sqlite3.h>

#include "base/status.h"

/* Load the C++ runtime.  AR_NODEV: there is none; names then stay mangled. */
enum ar_status names_load(struct ar_err *err);

/* The demangled name, or a copy of one that is not mangled; the caller frees it.  NULL: no
 * memory. */
char *name_full(const char *name);

/* Cut a demangled name to the function's own: no return type, namespaces, template arguments and
 * parameters.  Returns full. */
char *name_cut(char *full);

/* Add to db the SQL functions full_name(x) and short_name(x) of a kernel's stored name.  Returns an
 * SQLite result code. */
int names_register(sqlite3 *db);

#endif
