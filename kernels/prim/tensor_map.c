/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/prim/tensor_map.h"

#include "kernels/prim/cuda.h"

#if CUDART_VERSION < 12050
#define cudaGetDriverEntryPointByVersion(name, out, version, flags, how) \
	cudaGetDriverEntryPoint(name, out, flags, how)
#endif

/* The driver's encoder, without linking the driver library. */
static enum ar_status find_encoder(__typeof__(&cuTensorMapEncodeTiled) *out, struct ar_err *err)
{
	static __typeof__(&cuTensorMapEncodeTiled) found;
	enum cudaDriverEntryPointQueryResult how;
	enum ar_status st = AR_OK;

	if (!found)
		CU(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&found,
						    12000, cudaEnableDefault, &how));
	*out = found;
	if (!found)
		st = ar_fail(err, AR_CUDA, "the driver lacks cuTensorMapEncodeTiled");
out:
	return st;
}

static enum ar_status describe(CUtensorMap *map, const void *base, int rank, const uint64_t *dim,
			       const uint32_t *box, CUtensorMapL2promotion promotion,
			       struct ar_err *err)
{
	const uint64_t stride[2] = { dim[0] * 2, dim[0] * dim[1] * 2 };
	const uint32_t step[3] = { 1, 1, 1 };
	__typeof__(&cuTensorMapEncodeTiled) encode;
	enum ar_status st = find_encoder(&encode, err);

	if (st)
		return st;
	if (encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, (uint32_t)rank, (void *)base, dim, stride,
		   box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promotion,
		   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
		return ar_fail(err, AR_CUDA, "cannot describe a tensor at %p to TMA", base);
	return AR_OK;
}

enum ar_status tensor_map(CUtensorMap *map, const void *base, int rank, const uint64_t *dim,
			  const uint32_t *box, struct ar_err *err)
{
	return describe(map, base, rank, dim, box, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, err);
}

enum ar_status tensor_map_once(CUtensorMap *map, const void *base, int rank, const uint64_t *dim,
			       const uint32_t *box, struct ar_err *err)
{
	return describe(map, base, rank, dim, box, CU_TENSOR_MAP_L2_PROMOTION_NONE, err);
}
