/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distil a gate of SeerAttention for one layer and head.  Fit the projection of pooled keys, so
 * that the gate's shares come near the shares of the attention.
 *
 *     m[i][j] = the largest probability of a row of query block i and a key of block j
 *     t[i][j] = m[i][j] / sum over j of m[i][j]
 *     loss    = mean over the rows i of sum over j of t[i][j] (log t[i][j] - log a[i][j])
 *
 * a is the gate's share; of its roundings only that of cos and sin to bf16 is done.  The first
 * quarter of a prompt's query blocks does not count.  With g = (a - t) / rows, u[i] the query after
 * RoPE and Rope'(j) the inverse rotation, the gradient is
 *
 *     dW = 1/sqrt(dim) sum over j of f[j] (Rope'(j) sum over i of g[i][j] u[i])^T
 *
 * Each step is one of Adam (AdamW without decay) on one prompt; the prompts take turns.  The rate
 * rises over the first 20 steps and falls to 0 along a cosine.
 */
#ifndef AR_SEER_FIT_H
#define AR_SEER_FIT_H

#include "src/calibrate/calibrate.h"

struct seer_fit_seq { /* a prompt of n blocks, one head */
	int n, dim;
	float *f;    /* [n][SEER_POOLS * dim] pooled keys */
	float *u;    /* [n][dim] queries after RoPE */
	float *t;    /* [n][n] */
	float *trig; /* [n][dim / 2][2] cos and sin of the block's angles */
};

enum ar_status seer_fit_seq_init(struct seer_fit_seq *s, const struct calib_layer *l, int head,
				 const float *inv, struct ar_err *err);
void seer_fit_seq_release(struct seer_fit_seq *s); /* may be called twice */

/* w, grad: [SEER_POOLS * dim][dim].  grad NULL: only the loss. */
enum ar_status seer_fit_loss(const struct seer_fit_seq *s, const float *w, double *loss,
			     float *grad, struct ar_err *err);

struct seer_fit {
	const struct seer_fit_seq *seq; /* of one dim */
	size_t n_seq;
	int steps;
	double rate;
	uint64_t seed;
};

/* Fit w from a random start.  *before, *after: mean loss over the prompts. */
enum ar_status seer_fit_run(const struct seer_fit *fit, float *w, double *before, double *after,
			    struct ar_err *err);

#endif
