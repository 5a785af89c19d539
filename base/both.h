/* SPDX-License-Identifier: Apache-2.0 */
/* AR_BOTH marks functions that the host and CUDA kernels share. */
#ifndef AR_BOTH_H
#define AR_BOTH_H

#ifdef __CUDACC__
#define AR_BOTH __host__ __device__
#else
#define AR_BOTH
#endif

#endif
