/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor maps: descriptions of tensors for TMA. */
#ifndef AR_TENSOR_MAP_H
#define AR_TENSOR_MAP_H

#include <cuda.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Describe a dense bf16 tensor of 2 or 3 dimensions, innermost first.  Boxes are 64 elements wide
 * and arrive in the 128-byte swizzle.  Elements outside the tensor arrive as zeros. */
enum ar_status tensor_map(CUtensorMap *map, const void *base, int rank, const uint64_t *dim,
			  const uint32_t *box, struct ar_err *err);

/* The same for a tensor that is read once: a box asks memory for no more than it holds. */
enum ar_status tensor_map_once(CUtensorMap *map, const void *base, int rank, const uint64_t *dim,
			       const uint32_t *box, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
