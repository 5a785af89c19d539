/* SPDX-License-Identifier: Apache-2.0 */
/* CUPTI of CUDA 13 or 12, where records are older, subscribers unnamed, and all calls recorded or
 * none. */
#ifndef AR_CUPTI_API_H
#define AR_CUPTI_API_H

#include <cupti.h>

/* cupti_kernel: the record of a kernel.  The library may append to it, never change it.
 * CUPTI_OWN(X): X(f) for each function f that the other version lacks. */
#if CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 cupti_kernel;
enum { CUPTI_KERNEL_BYTES = 216 };
#define CUPTI_OWN(X) \
	X(cuptiSubscribe_v2) X(cuptiActivityEnableRuntimeApi) X(cuptiActivityEnableDriverApi)
#else
typedef CUpti_ActivityKernel9 cupti_kernel;
enum { CUPTI_KERNEL_BYTES = 208 };
#define CUPTI_OWN(X) X(cuptiSubscribe)
#endif

#endif
