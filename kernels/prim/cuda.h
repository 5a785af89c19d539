/* SPDX-License-Identifier: Apache-2.0 */
/* Checked CUDA runtime calls, for functions with `st`, `err` and a label `out`. */
#ifndef AR_CUDA_H
#define AR_CUDA_H

#include <cuda_runtime_api.h>

#include "base/status.h"

#define CU(call) \
	do { \
		cudaError_t cu_e_ = (call); \
		if (cu_e_ != cudaSuccess) { \
			st = ar_fail(err, AR_CUDA, "%s:%d: %s: %s", __FILE__, __LINE__, #call, \
				     cudaGetErrorString(cu_e_)); \
			goto out; \
		} \
	} while (0)
#define CU_LAUNCHED() CU(cudaGetLastError())

#endif
