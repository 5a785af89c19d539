/* SPDX-License-Identifier: Apache-2.0 */
/* How Q and K of each executed layer rotate: the part that all activations share.  Layers with a
 * window may have a RoPE of their own. */
#ifndef AR_ACT_ROPE_H
#define AR_ACT_ROPE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/layer/layer.h"
#include "replay/engine/backend.h"

struct activations_device;

enum { ACT_ROPES = 2 }; /* of full and of window layers */

struct act_rope {
	struct rope r;
	int dim;      /* channels of a head that it rotates */
	float factor; /* of its cosines and sines */
	float *trig;  /* [n_rotation][dim / 2] cos and sin */
};

struct act_ropes {
	struct act_rope rope[ACT_ROPES];
	int n;
	int *of;		   /* [n_run_layers] index into rope[], owned */
	int64_t n_rotation;	   /* Q and K are rotated by 0 ... n_rotation - 1 */
	const struct model *model; /* borrowed */
	const int *run_layer;	   /* [n_run_layers] borrowed */
};

/* Set the RoPE of each executed layer: full, that of layers that see all keys, and the model's own
 * for window layers.  applied: Q and K are after RoPE, and so have its attention factor already.
 * Release *a even after a failure. */
enum ar_status act_ropes_open(struct act_ropes *a, const struct backend_env *env, int head_dim,
			      const struct rope *full, bool applied, struct ar_err *err);
void act_ropes_release(struct act_ropes *a);

/* Make the cosines and sines on the host; free them. */
enum ar_status act_ropes_load_ref(struct act_ropes *a, struct ar_err *err);
void act_ropes_unload_ref(struct act_ropes *a);

/* Make them in the device's memory. */
enum ar_status act_ropes_load(struct act_ropes *a, const struct activations_device *d,
			      struct ar_err *err);

/* How Q and K of executed layer i rotate. */
struct layer_angles act_ropes_angles(const struct act_ropes *a, int i);

#endif
