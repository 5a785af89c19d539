/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/comm_preset.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/data.h"

/* The engines of a GPU before NCCL, which has none. */
static const struct {
	const char *gpu, *engine, *name;
} presets[] = {
	{ "h200", "vllm", "h200-vllm" },
	{ "h200", "", "h200-nccl" },
};

const char *comm_preset_of(const char *gpu, const char *policy)
{
	for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
		if (!strcmp(presets[i].gpu, gpu) &&
		    !strncmp(presets[i].engine, policy ? policy : "", strlen(presets[i].engine)))
			return presets[i].name;
	return NULL;
}

bool comm_preset_find(const char *name_or_path, char *path, size_t n)
{
	char preset[64];
	struct stat s;
	int got;

	if (!stat(name_or_path, &s)) {
		got = snprintf(path, n, "%s", name_or_path);
		return got > 0 && (size_t)got < n;
	}
	for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
		if (!strcmp(presets[i].name, name_or_path)) {
			snprintf(preset, sizeof preset, "replay/cost/collectives/%s.comm",
				 name_or_path);
			return data_find(preset, path, n);
		}
	return false;
}
