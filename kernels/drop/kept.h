/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How good a dropper's choice of tokens is.  The measure is dense attention of the last queries
 * over all tokens of their request:
 *
 *   mass     share of this attention that falls on kept tokens, over all heads
 *   recall   kept share of the `top` tokens with the most of this attention
 */
#ifndef AR_KEPT_H
#define AR_KEPT_H

#include "base/status.h"
#include "kernels/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KEPT_QUERIES = 128, KEPT_TOP = 256 };

struct kept_share {
	int n_tok, n_kept; /* tokens of the request so far; kept tokens */
	int queries, top;
	double mass, recall;
};

/* q: [queries][q_heads][head_dim], of the last tokens, k: [n_tok][kv_heads][head_dim], both after
 * RoPE and on the host.  keep: [n_tok] flags.  Reads out->n_tok and out->queries, 1 to n_tok; sets
 * the other members.  Of tokens with equal attention the first counts as the one with more. */
enum ar_status kept_share(const struct attn_shape *s, const bf16_t *q, const bf16_t *k,
			  const uint8_t *keep, struct kept_share *out, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
