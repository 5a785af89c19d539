/* SPDX-License-Identifier: Apache-2.0 */
/* The state of backend "cpu". */
#ifndef AR_BACKEND_CPU_H
#define AR_BACKEND_CPU_H

#include "replay/engine/attn_engine.h"
#include "replay/engine/backends_attn.h"

struct cpu {
	struct backend_env env;
	struct attn_engine engine;
	struct rows_env rows;
	struct row_set set;  /* of the batch that was built last */
	struct kv_cache *kv; /* [n_run_layers] */
	void **state;	     /* [n_run_layers] of the selector, or all NULL */
	bf16_t *q, *k, *out, *out_dense;
	float *lse, *lse_dense;
};

#endif
