/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/nvml/nvml.h"

#include <stdio.h>

#include "base/dynlib.h"

struct nvml nvml;

static const struct dynlib_sym syms[] = {
	{ "nvmlInit_v2", (void **)&nvml.init },
	{ "nvmlShutdown", (void **)&nvml.shutdown },
	{ "nvmlErrorString", (void **)&nvml.error },
	{ "nvmlDeviceGetHandleByUUID", (void **)&nvml.find },
	{ "nvmlDeviceGetTotalEnergyConsumption", (void **)&nvml.energy },
	{ "nvmlSystemGetDriverVersion", (void **)&nvml.driver },
	{ "nvmlDeviceGetClockInfo", (void **)&nvml.clock },
	{ 0 },
};

enum ar_status nvml_check(int rc, const char *what, struct ar_err *err)
{
	return rc ? ar_fail(err, AR_NODEV, "NVML cannot %s: %s", what, nvml.error(rc)) : AR_OK;
}

enum ar_status nvml_open(void **gpu, const char *uuid, struct ar_err *err)
{
	char name[64];
	enum ar_status st = dynlib_load("libnvidia-ml.so.1", "ATTNREPLAY_NVML", syms, err);

	*gpu = NULL;
	if (!st)
		st = nvml_check(nvml.init(), "start", err);
	if (st)
		return st;
	snprintf(name, sizeof name, "GPU-%s", uuid);
	st = nvml_check(nvml.find(name, gpu), "find the GPU", err);
	if (st) {
		*gpu = NULL;
		nvml.shutdown();
	}
	return st;
}

void nvml_close(void)
{
	nvml.shutdown();
}
