/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/available.h"

#include <math.h>
#include <stdio.h>

double memory_available(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	double kib = INFINITY, x;
	char line[128];

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "MemAvailable: %lf kB", &x) == 1)
			kib = x;
	if (f)
		fclose(f);
	return kib * 1024;
}
