/* SPDX-License-Identifier: Apache-2.0 */
/* SnapKV: its parameters, for the reference and the CUDA file. */
#ifndef AR_SNAPKV_H
#define AR_SNAPKV_H

#include "kernels/evict/evictor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum snapkv_pool { SNAPKV_AVG, SNAPKV_MAX };
enum snapkv_group { SNAPKV_AFTER, SNAPKV_BEFORE };
enum snapkv_softmax { SNAPKV_ALL, SNAPKV_PREFIX };
enum snapkv_rule { SNAPKV_RING, SNAPKV_CHUNK };

struct snapkv {
	int variant;
	int64_t budget, window;
	int pool, group, softmax, rule;
	int64_t kernel, sink;
	int64_t local; /* 0: the window */
};

evictor_fn snapkv_enqueue;
size_t snapkv_work_bytes(const void *param, const struct attn_shape *s, int n_key);

#ifdef __cplusplus
}
#endif
#endif
