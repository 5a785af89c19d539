/* SPDX-License-Identifier: Apache-2.0 */
/* The driver and the clocks of a GPU, from NVML (nvml.h). */
#ifndef AR_GPU_STATE_H
#define AR_GPU_STATE_H

#include <stdint.h>

/* driver "": not known; clocks in MHz, 0: not known. */
struct gpu_state {
	char driver[80]; /* the driver's version, as "580.159.04" */
	int64_t sm_mhz, mem_mhz;
};

/* Ask NVML.  uuid: as of nvml_open().  What NVML does not tell stays unknown. */
void gpu_state_read(struct gpu_state *s, const char *uuid);

#endif
