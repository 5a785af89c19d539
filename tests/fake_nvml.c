/* SPDX-License-Identifier: Apache-2.0 */
/* A fake NVML library with one GPU, whose counter moves when it is read. */
#include "tests/fake_nvml.h"

#include <stdio.h>

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int rc);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **gpu);
int nvmlDeviceGetTotalEnergyConsumption(void *gpu, unsigned long long *mj);

enum { NOT_SUPPORTED = 3 };

static struct fake_nvml fake;

struct fake_nvml *fake_nvml(void)
{
	return &fake;
}

int nvmlInit_v2(void)
{
	fake.open += !fake.init;
	return fake.init;
}

int nvmlShutdown(void)
{
	fake.open--;
	return 0;
}

const char *nvmlErrorString(int rc)
{
	return rc == NOT_SUPPORTED ? "Not Supported" : "Unknown Error";
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **gpu)
{
	snprintf(fake.uuid, sizeof fake.uuid, "%s", uuid);
	*gpu = &fake;
	return fake.find;
}

int nvmlDeviceGetTotalEnergyConsumption(void *gpu, unsigned long long *mj)
{
	fake.reads++;
	if (gpu != &fake || (fake.fail_at && fake.reads >= fake.fail_at))
		return NOT_SUPPORTED;
	if (fake.reads % 3 == 0)
		fake.mj += fake.step;
	*mj = fake.mj;
	return 0;
}
