/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/nvml/gpu_state.h"

#include <stddef.h>

#include "profiler/nvml/nvml.h"

static int64_t clock_mhz(void *gpu, int of)
{
	unsigned mhz = 0;

	return nvml.clock(gpu, of, &mhz) ? 0 : (int64_t)mhz;
}

void gpu_state_read(struct gpu_state *s, const char *uuid)
{
	void *gpu;

	*s = (struct gpu_state){ 0 };
	if (nvml_open(&gpu, uuid, NULL))
		return;
	if (nvml.driver(s->driver, sizeof s->driver))
		*s->driver = 0;
	s->sm_mhz = clock_mhz(gpu, NVML_CLOCK_OF_SM);
	s->mem_mhz = clock_mhz(gpu, NVML_CLOCK_OF_MEMORY);
	nvml_close();
}
