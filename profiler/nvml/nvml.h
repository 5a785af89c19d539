/* SPDX-License-Identifier: Apache-2.0 */
/* NVML, a library of the driver.  It is loaded when it is needed, so a build without CUDA has this
 * too. */
#ifndef AR_NVML_H
#define AR_NVML_H

#include "base/status.h"

enum { NVML_CLOCK_OF_SM = 1, NVML_CLOCK_OF_MEMORY = 2 };

/* NVML's interface, as its manual has it.  Its header is not always where the driver is.  Results
 * other than 0 are errors. */
struct nvml {
	int (*init)(void);
	int (*shutdown)(void);
	const char *(*error)(int rc);
	int (*find)(const char *uuid, void **gpu);
	int (*energy)(void *gpu, unsigned long long *mj);
	int (*driver)(char *version, unsigned size);
	int (*clock)(void *gpu, int of, unsigned *mhz);
};
extern struct nvml nvml; /* set by nvml_open() */

/* Load NVML and find the GPU by its UUID, which CUDA_VISIBLE_DEVICES does not change; uuid is that
 * of struct store_gpu, without "GPU-".  Environment variable ATTNREPLAY_NVML names another library.
 * Each success needs an nvml_close().  AR_NODEV: there is no NVML, or it has no such GPU; then *gpu
 * is NULL and nothing is open. */
enum ar_status nvml_open(void **gpu, const char *uuid, struct ar_err *err);
void nvml_close(void);

/* AR_NODEV where rc is an error: "NVML cannot WHAT: ...". */
enum ar_status nvml_check(int rc, const char *what, struct ar_err *err);

#endif
