/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/layer_gap.h"

#include <stddef.h>

const char *layer_gap(const struct layer_spec *l)
{
	if (l->mixer == MIX_LATENT)
		return "latent attention";
	if (l->mixer == MIX_CHUNK)
		return "attention within chunks";
	if (l->v_dim && l->v_dim != l->head_dim)
		return "values of another size than keys";
	if (l->k_is_v)
		return "values from the product of keys";
	if (l->qk_norm_all)
		return "norms of all heads together";
	if (l->expert_norms)
		return "experts with norms of their own";
	return NULL;
}

enum ar_status model_check_gap(const struct model *m, struct ar_err *err)
{
	for (int i = 0; i < m->n_layers; i++) {
		const char *gap = layer_gap(&m->layer[i]);

		if (gap)
			return ar_fail(err, AR_USAGE,
				       "model %s, layer %d: %s: there are no kernels for it; use "
				       "--backend roofline without captures or weights, or "
				       "--backend cost",
				       m->name, i, gap);
	}
	return AR_OK;
}
