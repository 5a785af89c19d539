/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/store.h"

#include <string.h>

#include "base/number.h"

enum ar_status store_where(const char *where, char **path, int64_t *run, struct ar_err *err)
{
	const char *colon = strrchr(where, ':');
	uint64_t number = 0;

	*path = NULL;
	if (!colon || !num_u64(colon + 1, strlen(colon + 1), &number))
		colon = where + strlen(where);
	else if (!number || number > INT64_MAX)
		return ar_fail(err, AR_USAGE, "%s: runs are numbered from 1", where);
	*run = (int64_t)number;
	*path = strndup(where, (size_t)(colon - where));
	return *path ? AR_OK : ar_nomem(err);
}
