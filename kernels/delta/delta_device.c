/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefill on the device: four steps, of which only the scan runs along the sequence.
 *
 *   conv    convolution, SiLU and norms; a warp has 8 rows of a head
 *   chunk   per chunk of 64 rows and key head: products within the chunk, and a triangular inverse
 *   scan    per sequence, value head and 32 value channels: the state, chunk after chunk
 *   norm    output norm and gate, in place; then the rows that the next call's convolution needs
 *
 * Within a chunk with begin state S, g the sum of the log decays up to a row, the rows u that the
 * delta rule adds to the state solve a triangular system:
 *
 *   L_ij = beta_i exp(g_i - g_j) k_i k_j for j < i       (1 + L) u = beta (v - exp(g) k S)
 *   o_i = exp(g_i) q_i S + sum over j <= i of exp(g_i - g_j) (q_i k_j) u_j
 *   S = exp(g_end) S + sum of exp(g_end - g_i) k_i u_i^T
 *
 * No exponent is positive.  1 + L does not depend on S, so its inverse is made before the scan.
 *
 * Bytes at 32 K tokens, 16 key and 32 value heads of 128: conv reads and writes 0.54 GB each; chunk
 * reads 0.27 and writes 0.27; the scan reads 0.8 from memory, 3.5 from the L2 cache as four slices
 * and two value heads share tiles, and writes 0.27; norm moves 0.8.
 */
#include "config.h"

#include <assert.h>

#include "base/gpu.h"
#include "kernels/delta/delta_work.h"

enum ar_status delta_prefill(const struct delta_call *c, const struct delta_batch *b,
			     struct ar_err *err)
{
	static delta_enqueue_fn *const part[] = { delta_conv_enqueue, delta_chunk_enqueue,
						  delta_scan_enqueue, delta_norm_enqueue };
	const struct delta_args a = { *c, *b, delta_work_at(c->work, &c->spec, b->n_chunk),
				      delta_channels(&c->spec), c->spec.v_heads / c->spec.k_heads };
	enum ar_status st = AR_OK;

	assert(!delta_supported(&c->spec, 0, NULL) && c->qkvz_stride % 8 == 0);
	for (size_t i = 0; !st && b->n_chunk && i < sizeof part / sizeof *part; i++)
		st = part[i](&a, err);
	return st;
}
