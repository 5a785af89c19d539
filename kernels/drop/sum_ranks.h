/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores of tokens or blocks, added up over the heads of all ranks.
 *
 * Ranks gather what each has added up over its own heads.  Each then adds that up in order of
 * ranks.  So all choose from the same bits, whatever the order in which a library would add.
 */
#ifndef AR_SUM_RANKS_H
#define AR_SUM_RANKS_H

#include "kernels/drop/dropper.h"
#include "kernels/drop/mass.h"

#ifdef __cplusplus
extern "C" {
#endif

/* On the host: add up score[n] of all ranks, in place. */
enum ar_status sum_ranks(const struct drop_ranks *ranks, float *score, int n, struct ar_err *err);

/* On the device: parts of scores at[n][pitch], to be added up. */
struct score_parts {
	const float *at;
	int n;
	int64_t pitch;
};

/* Add up the parts of this rank's heads, and gather the sums of all ranks, on the stream.  p: parts
 * of heads; it becomes those sums, one part a rank.  round: the sums are rounded to bf16.  work:
 * sum_ranks_bytes() bytes. */
enum ar_status sum_ranks_enqueue(const struct drop_ranks *ranks, struct score_parts *p, bool round,
				 void *work, void *stream, struct ar_err *err);
size_t sum_ranks_bytes(int ranks, int64_t pitch);

/* The masses of a call as parts of mass_room() blocks; sum and mass: of sum_ranks_bytes() and
 * mass_work_bytes(). */
enum ar_status sum_masses_enqueue(const struct drop_call *call, const struct mass_rule *m,
				  void *sum, void *mass, struct score_parts *out,
				  struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
