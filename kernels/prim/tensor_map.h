/* What the copy engine of Hopper (TMA) is told about a tensor. */
#ifndef AR_TENSOR_MAP_H
#define AR_TENSOR_MAP_H

#include <cuda.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A dense bf16 tensor of 2 or 3 dimensions, innermost first, seen through boxes that are 64
 * elements wide.  They come swizzled by 128 bytes; what lies outside of the tensor comes as
 * zeros. */
enum ar_status tensor_map(CUtensorMap *map, const void *base, int rank, const uint64_t *dim,
			  const uint32_t *box, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
