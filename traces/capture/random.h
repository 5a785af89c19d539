/* SPDX-License-Identifier: Apache-2.0 */
/* Values of random captures.  Each value is a function of the seed and of its place alone.  So any
 * range of tokens can be read.  Heads and tokens that are left out change no other value. */
#ifndef AR_RANDOM_H
#define AR_RANDOM_H

#include "traces/capture/capture.h"

/* True if arg begins as random:SEED does.  A file of such a name is reached with ./ before it. */
bool random_named(const char *arg);
/* AR_USAGE: SEED is no number. */
enum ar_status random_seed(const char *arg, uint64_t *seed, struct ar_err *err);

/* Write tokens [tok0, tok0 + n) of n_head heads to out[n_head][n][head_dim]: about normal, mean 0,
 * variance 1, and never alike.  layer: its number in the model. */
void random_values(uint64_t seed, int layer, enum capture_tensor t, int n_head, int head_dim,
		   int64_t tok0, int64_t n, bf16_t *out);

#endif
