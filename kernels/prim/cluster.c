/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/prim/cluster.h"

#include "kernels/prim/cuda.h"

cudaLaunchConfig_t cluster_launch(cudaLaunchAttribute *attribute, int n)
{
	*attribute = (cudaLaunchAttribute){ .id = cudaLaunchAttributeClusterDimension };
	attribute->val.clusterDim.x = (unsigned)n;
	attribute->val.clusterDim.y = attribute->val.clusterDim.z = 1;
	return (cudaLaunchConfig_t){ .attrs = attribute, .numAttrs = 1 };
}

enum ar_status cluster_count(int *count, const void *kernel, int n, int threads, int bytes,
			     struct ar_err *err)
{
	cudaLaunchAttribute attribute;
	cudaLaunchConfig_t config = cluster_launch(&attribute, n);
	enum ar_status st = AR_OK;

	config.gridDim = (struct dim3){ (unsigned)n, 1, 1 };
	config.blockDim = (struct dim3){ (unsigned)threads, 1, 1 };
	config.dynamicSmemBytes = (size_t)bytes;
	CU(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
	CU(cudaOccupancyMaxActiveClusters(count, kernel, &config));
out:
	return st;
}
