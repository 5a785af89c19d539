/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/capture/capture.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"

const char *const capture_origin_names[] = { "same", "other", "unknown", "random" };
static_assert(sizeof capture_origin_names / sizeof *capture_origin_names == CAPTURE_ORIGINS,
	      "one name for each origin");

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

enum capture_origin capture_origin(const struct capture_info *info, const char *model)
{
	if (info->random)
		return CAPTURE_RANDOM;
	if (!*info->model)
		return CAPTURE_UNKNOWN;
	return strcasecmp(base_name(info->model), base_name(model)) ? CAPTURE_OTHER : CAPTURE_SAME;
}

void capture_warn(const struct capture_info *info, const char *model)
{
	if (capture_origin(info, model) == CAPTURE_OTHER)
		log_warn("%s was captured from %s, not from %s; accuracy and selections are those "
			 "of %s",
			 info->name, info->model, model, info->model);
}
