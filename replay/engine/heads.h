/* SPDX-License-Identifier: Apache-2.0 */
/* Gather a sample of accuracy and selections from the heads of all ranks.  Heads get their numbers
 * in the whole model. */
#ifndef AR_HEADS_H
#define AR_HEADS_H

#include "kernels/methods/accuracy.h"
#include "kernels/methods/selection_count.h"
#include "replay/ranks/world.h"

struct heads {
	int own_q, own_kv;	       /* of this rank */
	int q, kv;		       /* of all ranks; ranks can share KV heads */
	struct accuracy *acc;	       /* [q] */
	struct selection_count *count; /* [kv] */
	struct selection_count *each;  /* [ranks][own_kv] */
	struct world *world;	       /* borrowed; NULL: this rank is alone */
};

/* own_q, own_kv: heads of a rank.  whole_kv: KV heads of the model, which count where there is a
 * world.  Release *h in any case. */
enum ar_status heads_open(struct heads *h, struct world *world, int own_q, int own_kv, int whole_kv,
			  struct ar_err *err);
void heads_release(struct heads *h);

/* Gather acc[own_q] and count[own_kv] of all ranks.  Counts of ranks that share a KV head are added
 * up.  Errors as of world_gather(). */
enum ar_status heads_gather(struct heads *h, const struct accuracy *acc,
			    const struct selection_count *count, struct ar_err *err);

#endif
