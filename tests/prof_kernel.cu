/* SPDX-License-Identifier: Apache-2.0 */
/* A long-running kernel for the tests of tracing. */
#include "config.h"

#include <cuda_runtime.h>

extern "C" int prof_spin_launch(long long ns, void *stream);

__global__ void __launch_bounds__(32) prof_spin(long long ns)
{
	unsigned long long begin, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - begin < (unsigned long long)ns);
}

extern "C" int prof_spin_launch(long long ns, void *stream)
{
	prof_spin<<<2, 32, 0, (cudaStream_t)stream>>>(ns);
	return (int)cudaGetLastError();
}
