/* SPDX-License-Identifier: Apache-2.0 */
/* UniPrefill: shared by the reference and the CUDA file. */
#ifndef AR_UNIPREFILL_H
#define AR_UNIPREFILL_H

#include "kernels/drop/dropper.h"
#include "kernels/drop/layer_list.h"
#include "kernels/drop/mass.h"
#include "kernels/drop/sum_ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

struct uniprefill {
	double p;
	int64_t block, last_q, sinks, min_tokens;
	char *layers; /* NULL: the list published for the model */
	int mode, scores, window_space, crossing, rounding; /* of the choices below */
	bool reconstitute;
};

enum { MODE_OFFICIAL, MODE_APPEND };
enum { SCORES_CACHE, SCORES_CHUNK };
enum { WINDOW_COMPACT, WINDOW_ORIGINAL };
enum { CROSSING_INCLUDE, CROSSING_EXCLUDE };
enum { ROUNDING_BF16, ROUNDING_NONE };

struct uniprefill_self {
	struct uniprefill rule;
	struct layer_list layers;
};

/* Requests of which sinks and last rows are all have no mass: they keep everything. */
AR_BOTH static inline struct mass_rule uniprefill_mass(const struct uniprefill *p)
{
	struct mass_rule m = { (int)p->last_q,
			       (int)p->block,
			       (int)(p->sinks + p->last_q),
			       p->mode == MODE_OFFICIAL,
			       p->mode == MODE_APPEND && p->scores == SCORES_CHUNK,
			       p->rounding == ROUNDING_BF16,
			       false,
			       0,
			       false };

	return m;
}

/* Masses are added as integers, in units of 2^-40: their sum is then the same in every order.  At
 * most 2^16 rows and heads have a mass of 1 each. */
AR_BOTH static inline uint64_t uniprefill_fixed(float x)
{
	return (uint64_t)((double)x * 0x1p40);
}

/* The share of a block's mass in all, the sum of uniprefill_fixed(). */
AR_BOTH static inline float uniprefill_share(float mass, uint64_t all)
{
	return mass / (float)((double)all * 0x1p-40);
}

/* The sum of uniprefill_fixed() up to which shares fit into p. */
AR_BOTH static inline uint64_t uniprefill_limit(const struct uniprefill *p)
{
	return uniprefill_fixed((float)p->p);
}

/* Whether the token at index pos stays whatever its block is.  base, n_blk: the first key with a
 * mass, and the blocks from there on; end: keys of the request. */
AR_BOTH static inline bool uniprefill_stays(const struct uniprefill *p, int pos, int base,
					    int n_blk, int end)
{
	int blk = (pos - base) / (int)p->block;

	if (p->crossing == CROSSING_INCLUDE)
		return pos < p->sinks || pos >= end - p->last_q;
	return base + blk * p->block < p->sinks ||
	       blk >= n_blk - (p->last_q + p->block - 1) / p->block;
}

/* The reference's choice: kept[n] from the masses of n blocks. */
enum ar_status uniprefill_pick(const struct uniprefill *p, const float *mass, int n, uint8_t *kept,
			       struct ar_err *err);

dropper_fn uniprefill_enqueue;
size_t uniprefill_work_bytes(const void *self, int ranks, const struct attn_shape *s,
			     const struct attn_limits *l);

/* CUDA: the same choice from parts of masses, of mass_room() blocks. */
enum ar_status uniprefill_pick_enqueue(const struct uniprefill *p, const struct attn_batch *b,
				       const struct score_parts *part, uint8_t *kept, float *share,
				       void *stream, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
