/* SPDX-License-Identifier: Apache-2.0 */
/* A mask of a given density: shared by the reference and the CUDA file. */
#ifndef AR_DENSITY_H
#define AR_DENSITY_H

#include "base/rng.h"
#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DENSITY_PER_HEAD, DENSITY_PER_GROUP };

struct density {
	double share;
	int64_t seed;
	int per;
	int block; /* index into 64, 128 */
};

/* One mask row, of query block qa.  past: whole blocks before the chunk. */
AR_BOTH static inline void density_row(const struct density *p, const struct attn_shape *s,
				       int layer, int head, int past, int qa, int words,
				       uint32_t *row)
{
	int group = p->per == DENSITY_PER_GROUP, n = group ? past : qa;
	int left = (int)(p->share * n + 0.5);
	int kv_head = head / (s->q_heads / s->kv_heads);
	uint64_t who = group ? (uint64_t)kv_head : (uint64_t)qa << 16 | (uint64_t)head;
	uint64_t key = rng_mix(rng_mix((uint64_t)p->seed) + ((uint64_t)layer << 48) + who);

	for (int w = 0; w < words; w++) {
		uint32_t bits = 0;

		for (int j = w * 32; j <= qa && j < w * 32 + 32; j++) {
			/* Selection sampling (Knuth): of the n - j blocks to come, left are still
			 * to be kept.  Every choice is as likely as any other. */
			uint64_t draw = rng_mix(key + (uint64_t)j) >> 32;
			int keep = j >= n || (int64_t)(draw * (uint64_t)(n - j) >> 32) < left;

			left -= keep && j < n;
			bits |= (uint32_t)keep << j % 32;
		}
		row[w] = bits;
	}
}

selector_fn density_enqueue;

#ifdef __cplusplus
}
#endif
#endif
