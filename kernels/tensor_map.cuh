/* Host side of the copy engine: tensors described to it. */
#ifndef AR_TENSOR_MAP_CUH
#define AR_TENSOR_MAP_CUH

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/cuda.h"

using encode_fn = decltype(&cuTensorMapEncodeTiled);

/* The driver's encoder, without linking the driver library. */
static enum ar_status find_encoder(encode_fn *out, struct ar_err *err)
{
	static encode_fn found;
	cudaDriverEntryPointQueryResult how;
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

/* A bf16 tensor seen through boxes of 64 columns, swizzled by 128 bytes. */
static enum ar_status encode(CUtensorMap *map, encode_fn fn, const void *base, int rank,
			     const uint64_t *dim, const uint32_t *box, struct ar_err *err)
{
	const uint32_t step[3] = { 1, 1, 1 };
	uint64_t stride[2];

	stride[0] = dim[0] * 2;
	stride[1] = stride[0] * dim[1];
	if (fn(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, (uint32_t)rank, (void *)base, dim, stride,
	       box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
	       CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
		return ar_fail(err, AR_CUDA, "cannot describe a tensor at %p to the copy engine",
			       base);
	return AR_OK;
}

#endif
