/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefill on the device: steps of which only the scan runs along the sequence.
 *
 *   conv    convolution, SiLU and norms; a warp has 8 rows of a head
 *   chunk   per chunk of 64 rows and key head: products within the chunk, and a triangular inverse
 *   scan    per sequence, value head and 32 value channels: the state, chunk after chunk
 *   norm    output norm and gate, in place; then the rows that the next call's convolution needs
 *
 * On Hopper, at head size 128, two kernels do it: keys is chunk with the convolution of q and k.
 * scan_sm90 has the convolution of v, the norm and the tails.  So v and the rows before their norm
 * stay on the chip.
 *
 * S is the state where a chunk begins, g the sum of the log decays up to a row.  The rows u that
 * the delta rule adds to the state solve a triangular system:
 *
 *   L_ij = beta_i exp(g_i - g_j) k_i k_j for j < i       (1 + L) u = beta (v - exp(g) k S)
 *   o_i = exp(g_i) q_i S + sum over j <= i of exp(g_i - g_j) (q_i k_j) u_j
 *   S = exp(g_end) S + sum of exp(g_end - g_i) k_i u_i^T
 *
 * No exponent is positive.  1 + L does not depend on S, so its inverse is made before the scan.
 *
 * GB at 32 K tokens, 16 key and 32 value heads of 128; the last column: from the L2 cache:
 *
 *              reads   writes
 *   conv        0.54     0.54
 *   chunk       0.27     0.27
 *   scan        0.82     0.27   3.5: slices and value heads share tiles
 *   norm        0.54     0.27
 *
 *   keys        0.27     0.54
 *   scan_sm90   1.07     0.27   1.3: value heads share q and k
 *
 * At 4 TB/s the four take 0.9 ms, the two 0.54 ms.  Measured on an H200: 1.57 ms and 0.90 ms.
 *
 * Thread blocks of scan_sm90 start where none of keys is left to start, and wait for its end.  So
 * 64, 512, 2048 and 32 Ki rows take 23, 34, 79 and 907 us, not 28, 37, 82 and 911.
 *
 * Only one kernel, which keeps q, k, T and mix on the chip, can go below that: its 1.08 GB take
 * 0.26 ms.  The instructions must shrink as well.  A multiprocessor has 124 chunks of a value head:
 *
 *   SiLU    24 Ki of a chunk, two of the special functions each, 16 a cycle: 3072 cycles, 0.22 ms
 *   keys    61 of 100 issue slots of 0.32 ms: 0.20 ms
 *   scan    3774 issue slots of a chunk, see delta_scan_sm90.cu: 0.26 ms
 *
 * So 0.52 ms would use 88 of 100 issue slots.  Pieces of a sequence side by side do not help.  Each
 * piece also carries its transition, 128 columns beside the 128 of the state.  Then it runs again
 * from its true state.  That is three times the chain's instructions, 0.13 ms more.
 *
 * Failed experiment: keys beside scan_sm90 on each multiprocessor.  The scan gives a thread 96
 * registers and has fewer stages, keys 64.  It waits for a flag of each chunk.  Persistent thread
 * blocks of keys follow the order of its need.  All bits stay equal, in us:
 *
 *   scan 2 stages, each flag read when a stage is free                        1546
 *   scan 3 or 4 stages, flags read before; keys also where no scan runs        989
 *   a kernel of 17 us sorts the order before, so no thread of keys computes it 921
 *   three thread blocks of keys at first, two of which leave: clusters of the
 *     scan start late                                                 1163 to 1198
 *
 * The two in line took 925 in the same run.  Alone keys take 568 there and the scan 641, together
 * 755 and 880.  So each hinders the other, though 53 of 100 issue slots are used.  By count, shared
 * memory is busy in 70 of 100 cycles.
 */
#include "config.h"

#include <assert.h>

#include "kernels/delta/delta_work.h"
#include "kernels/support.h"

/* Run the n kernels of part, one after the other. */
static enum ar_status prefill_part(const struct delta_call *c, const struct state_batch *b,
				   delta_enqueue_fn *const *part, int n, struct ar_err *err)
{
	const struct delta_args a = { *c, *b, delta_work_at(c->work, &c->spec, b->n_chunk),
				      delta_channels(&c->spec), c->spec.v_heads / c->spec.k_heads };
	enum ar_status st = AR_OK;

	assert(!delta_supported(&c->spec, 0, NULL) && c->qkvz_stride % 8 == 0);
	for (int i = 0; !st && b->n_chunk && i < n; i++)
		st = part[i](&a, err);
	return st;
}

enum ar_status delta_prefill_sm80(const struct delta_call *c, const struct state_batch *b,
				  struct ar_err *err)
{
	static delta_enqueue_fn *const part[] = { delta_conv_enqueue, delta_chunk_enqueue,
						  delta_scan_enqueue, delta_norm_enqueue };

	return prefill_part(c, b, part, sizeof part / sizeof *part, err);
}

enum ar_status delta_prefill_sm90(const struct delta_call *c, const struct state_batch *b,
				  struct ar_err *err)
{
	static delta_enqueue_fn *const part[] = { delta_keys_sm90_enqueue,
						  delta_scan_sm90_enqueue };

	return prefill_part(c, b, part, sizeof part / sizeof *part, err);
}

enum ar_status delta_prefill(const struct delta_call *c, const struct state_batch *b,
			     struct ar_err *err)
{
	const struct attn_shape s = delta_shape(&c->spec);
	support_fn *fn;
	enum ar_status st = support_dispatch(&fn, "delta", &s, NULL, err);

	return st ? st : ((delta_prefill_fn *)fn)(c, b, err);
}

enum ar_status delta_decode(const struct delta_call *c, int n_row, const int32_t *slot,
			    struct ar_err *err)
{
	const struct attn_shape s = delta_shape(&c->spec);
	support_fn *fn;
	enum ar_status st = support_dispatch(&fn, "delta-step", &s, NULL, err);

	return st || !n_row ? st : ((delta_decode_fn *)fn)(c, n_row, slot, err);
}
