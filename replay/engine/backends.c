/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/backend.h"

#include <string.h>

#include "replay/cost/backend_cost.h"
#include "replay/cost/backend_roofline.h"
#include "replay/engine/backends_attn.h"

const char *const cost_source_names[] = {
	[COST_TIMED] = "timed",
	[COST_FORMULA] = "formula",
	[COST_MEASURED] = "measured",
	[COST_INTERPOLATED] = "interpolated",
	[COST_EXTRAPOLATED] = "extrapolated",
	[COST_MODELLED] = "modelled",
};

const struct backend *const backends[] = {
#if HAVE_CUDA
	&backend_cuda,
#endif
	&backend_cpu, &backend_cost, &backend_roofline, NULL
};

const struct backend *backend_find(const char *name)
{
	for (int i = 0; backends[i]; i++)
		if (!strcmp(backends[i]->name, name))
			return backends[i];
	return NULL;
}
