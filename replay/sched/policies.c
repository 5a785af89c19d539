#include "config.h"
#include "replay/sched/policy.h"

#include <string.h>

extern const struct policy policy_vllm_0_16, policy_vllm_0_19, policy_sarathi,
			   policy_vidur_sarathi, policy_orca, policy_sglang, policy_sglang_mixed,
			   policy_trtllm_no_evict, policy_trtllm_max_util;

const struct policy *const policies[] = {
	&policy_vllm_0_16,
	&policy_vllm_0_19,
	&policy_sarathi,
	&policy_vidur_sarathi,
	&policy_orca,
	&policy_sglang,
	&policy_sglang_mixed,
	&policy_trtllm_no_evict,
	&policy_trtllm_max_util,
	NULL
};

const struct policy *policy_find(const char *name)
{
	for (int i = 0; policies[i]; i++)
		if (!strcmp(policies[i]->name, name))
			return policies[i];
	return NULL;
}
