/* SPDX-License-Identifier: Apache-2.0 */
/* LazyLLM: its parameters and its state, for the reference and the CUDA file. */
#ifndef AR_LAZYLLM_H
#define AR_LAZYLLM_H

#include "kernels/drop/dropper.h"
#include "kernels/drop/layer_list.h"
#include "kernels/drop/mass.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lazyllm {
	char *layers; /* NULL: the list for 32 layers */
	bool aux_revival;
	int64_t revive_max;
};

struct lazyllm_self {
	struct layer_list layers;
	int revives; /* tokens of a request in a decode, at most; 0: none */
};

/* Each token is a block, scored by the last row.  A chunk of one row keeps it. */
AR_BOTH static inline struct mass_rule lazyllm_mass(void)
{
	struct mass_rule m = { 1, 1, 1, false, false, false, false, 0, false };

	return m;
}

/* The same for a decode. */
AR_BOTH static inline struct mass_rule lazyllm_decode_mass(void)
{
	struct mass_rule m = lazyllm_mass();

	m.least = 0;
	return m;
}

/* How many of n rows stay; the last row always does. */
AR_BOTH static inline int lazyllm_stay(double rate, int n)
{
	int pruned = (int)(rate * n);

	return pruned < n ? n - pruned : 1;
}

dropper_fn lazyllm_enqueue;
dropper_revive_fn lazyllm_revive_enqueue;
size_t lazyllm_work_bytes(const void *self, int ranks, const struct attn_shape *s,
			  const struct attn_limits *l);

#ifdef __cplusplus
}
#endif
#endif
