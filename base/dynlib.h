/* SPDX-License-Identifier: Apache-2.0 */
/* Optional libraries: loaded by name at run time, so that the program starts without them. */
#ifndef AR_DYNLIB_H
#define AR_DYNLIB_H

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dynlib_sym {
	const char *name;
	void **to; /* receives the address */
};

/* Load soname (for example "libcupti.so.13") and resolve syms, which a NULL name ends.  The search
 * order is: the file in environment variable env; the loader's path; $CUDA_HOME/lib64 and
 * $CUDA_HOME/extras/CUPTI/lib64; the toolkit of the build; the same folders of /usr/local/cuda.
 * AR_NODEV: not found, or a symbol is missing.  The library stays loaded until the program ends. */
enum ar_status dynlib_load(const char *soname, const char *env, const struct dynlib_sym *syms,
			   struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
