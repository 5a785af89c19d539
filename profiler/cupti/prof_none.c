/* SPDX-License-Identifier: Apache-2.0 */
/* A build without CUPTI's headers traces nothing. */
#include "config.h"
#include "profiler/cupti/prof.h"

enum ar_status prof_open(struct prof **out, struct ar_err *err)
{
	*out = NULL;
	return ar_fail(err, AR_NODEV,
		       "this program was built without CUPTI; build it where "
		       "cupti.h is, or run without kernel tracing");
}

void prof_close(struct prof *p)
{
	(void)p;
}

uint32_t prof_api_version(const struct prof *p)
{
	(void)p;
	return 0;
}

void prof_phase(void *p, int layer, enum phase phase)
{
	(void)p;
	(void)layer;
	(void)phase;
}

void prof_ahead(struct prof *p)
{
	(void)p;
}

enum ar_status prof_collect(struct prof *p, const struct prof_kernel **kernel, size_t *n,
			    struct ar_err *err)
{
	(void)p;
	(void)err;
	*kernel = NULL;
	*n = 0;
	return AR_OK;
}

const struct prof_loss *prof_loss(const struct prof *p)
{
	static const struct prof_loss none;

	(void)p;
	return &none;
}
