/* SPDX-License-Identifier: Apache-2.0 */
/* A fake NVML library with one GPU, whose counter moves when it is read. */
#include "tests/fake_nvml.h"

#include <stdio.h>
#include <unistd.h>

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int rc);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **gpu);
int nvmlDeviceGetTotalEnergyConsumption(void *gpu, unsigned long long *mj);
int nvmlSystemGetDriverVersion(char *version, unsigned size);
int nvmlDeviceGetClockInfo(void *gpu, int of, unsigned *mhz);

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
	if (fake.reads == fake.slow_at)
		usleep(50000);
	if (gpu != &fake || (fake.fail_at && fake.reads >= fake.fail_at))
		return NOT_SUPPORTED;
	if (fake.reads % 3 == 0)
		fake.mj += fake.step + (fake.reads == 6 ? fake.tail : 0);
	*mj = fake.mj;
	return 0;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
	snprintf(version, size, "580.159.04");
	return fake.state;
}

int nvmlDeviceGetClockInfo(void *gpu, int of, unsigned *mhz)
{
	*mhz = of == 1 ? 1980 : of == 2 ? 3201 : 0;
	return gpu == &fake ? fake.state : NOT_SUPPORTED;
}
