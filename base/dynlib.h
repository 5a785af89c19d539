/* Libraries that are used where they exist: loaded by name at run time, so
 * that the program starts without them. */
#ifndef AR_DYNLIB_H
#define AR_DYNLIB_H

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dynlib_sym {
	const char *name;
	void **to;		/* where the address goes */
};

/* Load soname (for example "libcupti.so.13") and resolve syms, ended by a NULL name.
 * Looked for in order: the file that the environment variable env names, the
 * loader's path, $CUDA_HOME/lib64 and its extras/CUPTI/lib64, the toolkit of the
 * build, /usr/local/cuda/lib64 and its extras/CUPTI/lib64.  AR_NODEV when it is not
 * there or lacks a symbol.  The library stays loaded until the program ends. */
enum ar_status dynlib_load(const char *soname, const char *env,
			   const struct dynlib_sym *syms, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
