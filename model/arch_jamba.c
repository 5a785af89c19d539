/* SPDX-License-Identifier: Apache-2.0 */
/* Jamba: its state-space layers are Mamba-1, whose decays differ by channel. */
#include "config.h"
#include "model/arch.h"

#include <stddef.h>

static const char *const hf_names[] = { "jamba", "JambaForCausalLM", NULL };

static enum ar_status jamba_read(struct model *m, const struct cJSON *config, const char *path,
				 struct ar_err *err)
{
	(void)m;
	(void)config;
	return ar_fail(err, AR_DATA,
		       "%s: the state-space layers of Jamba are Mamba-1 (mamba_dt_rank), of which "
		       "nothing is modelled here; use a model with Mamba-2 layers",
		       path);
}

extern const struct arch arch_jamba;
const struct arch arch_jamba = { .name = "jamba", .hf_names = hf_names, .read = jamba_read };
