/* SPDX-License-Identifier: Apache-2.0 */
/* The list of policies. */
#include "config.h"
#include "replay/sched/policy.h"

#include <string.h>

#define POLICIES(X) \
	X(vllm_0_16) \
	X(vllm_0_19) \
	X(vllm_0_24) \
	X(vllm_0_33) \
	X(sarathi) \
	X(vidur_sarathi) \
	X(orca) \
	X(sglang_0_5_21) \
	X(sglang_mixed_0_5_21) \
	X(sglang_0_5_23) \
	X(sglang_mixed_0_5_23) \
	X(trtllm_no_evict) \
	X(trtllm_max_util) \
	X(trtllm_static_batch) \
	X(trtllm_prefill_first)

#define X(name) extern const struct policy policy_##name;
POLICIES(X)
#undef X

#define X(name) &policy_##name,
const struct policy *const policies[] = { POLICIES(X) NULL };
#undef X

const struct policy *policy_find(const char *name)
{
	for (int i = 0; policies[i]; i++) {
		const struct policy *p = policies[i];

		if (!strcmp(p->name, name) || (p->also && !strcmp(p->also, name)))
			return p;
	}
	return NULL;
}

const struct engine_defaults *policy_defaults(const struct policy *p, const char *gpu,
					      int64_t bytes)
{
	const struct engine_defaults *d = p->defaults;

	while (d->from_bytes && (bytes < d->from_bytes || (d->but && strcasestr(gpu, d->but))))
		d++;
	return d;
}
