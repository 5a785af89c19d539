#include "config.h"
#include "replay/backend.h"

#include <string.h>

#include "replay/backend_cost.h"

const struct backend *const backends[] = {
	&backend_cost,
	NULL
};

const struct backend *backend_find(const char *name)
{
	for (int i = 0; backends[i]; i++)
		if (!strcmp(backends[i]->name, name))
			return backends[i];
	return NULL;
}
