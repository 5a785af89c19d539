/* SPDX-License-Identifier: Apache-2.0 */
/* How well a model's logits predict the token of a known answer. */
#ifndef AR_EVAL_SCORE_H
#define AR_EVAL_SCORE_H

#include <stdint.h>

/* A position of an answer.  The sums are computed in double. */
struct eval_token {
	int32_t gold;	/* the answer's token */
	int32_t best;	/* the most likely one, the first of equals: greedy decoding takes it */
	int32_t rank;	/* tokens before gold: more likely ones, and equal ones with a smaller id.
		       * So it is 0 exactly if gold is best. */
	double logprob; /* ln p(gold) */
	double kl;	/* KL(dense || this) over the vocabulary, in nats, >= 0; NaN: not known */
};

/* Score logits[vocab].  dense: [vocab] logits of dense attention at the same position; NULL: kl is
 * NaN. */
struct eval_token eval_score(const float *logits, const float *dense, int vocab, int32_t gold);

#endif
