/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The KV cache groups of a model, as vLLM makes them.  0.16.0: v1/core/kv_cache_utils.py and
 * HybridAttentionMambaModelConfig of model_executor/models/config.py.  0.33.0:
 * v1/core/kv_cache_planning.py and update_block_size_for_backend() of platforms/interface.py.
 *
 * Layers that keep the same things in blocks of the same bytes are of one type.  Each type is cut
 * into groups of as many layers as the smallest type has.  So a block of the pool fits any group.
 * If layers differ in bytes, layers with fewer bytes get more tokens in a block.  Beside layers
 * with a state, a block of attention gets enough tokens to hold one.  Layers that are an MLP alone
 * are in no group.
 */
#ifndef AR_MODEL_GROUPS_H
#define AR_MODEL_GROUPS_H

#include "replay/sched/kv_groups.h"

struct model_groups {
	struct kv_group *group; /* [n], in the order of their first layers */
	size_t n;
	int *of;	     /* [layers of the model] index of the layer's group; -1: it has none */
	int64_t block_tok;   /* tokens of a block where a layer's tokens are largest */
	int64_t block_bytes; /* of a block of the pool, in all layers of a group */
};

/* block_tok: tokens of a block as asked for.  rules->spread: types are not cut if the largest has
 * less than spread times the layers of the smallest.  cache: a prefix cache keeps states, at the
 * ends of blocks.  Elements of K and V have 2 bytes, of states as
 * many as the layers say.  Release *g even after a failure.
 * AR_USAGE, naming the layers: no block fits all of them. */
enum ar_status model_groups_init(struct model_groups *g, const struct model *m, int64_t block_tok,
				 const struct kv_rules *rules, bool cache, struct ar_err *err);
void model_groups_release(struct model_groups *g);

/* True: one group of full attention, as where no layer differs. */
bool model_groups_plain(const struct model_groups *g);

#endif
