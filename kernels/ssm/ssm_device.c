/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefill on the device.
 *
 *   conv   convolution and SiLU of x, B and C; a warp has 8 rows of 64 channels
 *   scan   per sequence, head and 64 of its channels: the state, chunk after chunk
 *   norm   gate and norm, in place
 *   tails  the rows that the next call's convolution needs
 *
 * On Hopper two kernels do the first three where a state is 128 and a head 64: see ssm_sm90.cu.
 */
#include "config.h"

#include <assert.h>

#include "kernels/ssm/ssm_work.h"
#include "kernels/support.h"

/* Run the n kernels of part, one after the other, then keep the tails. */
static enum ar_status prefill_part(const struct ssm_call *c, const struct state_batch *b,
				   ssm_enqueue_fn *const *part, int n, struct ar_err *err)
{
	const struct ssm_spec *s = &c->spec;
	const struct ssm_args a = { *c,
				    *b,
				    ssm_work_at(c->work, s, b->n_chunk),
				    ssm_inner(s),
				    ssm_channels(s),
				    s->heads / s->groups,
				    0 };
	const struct state_conv conv = ssm_conv_of(c);
	enum ar_status st = AR_OK;

	assert(!ssm_supported(s, 0, NULL) && c->in_stride % 8 == 0);
	if (!b->n_chunk)
		return AR_OK;
	for (int i = 0; !st && i < n; i++)
		st = part[i](&a, err);
	return st ? st : state_keep_tails(&conv, b, c->stream, err);
}

enum ar_status ssm_prefill_sm80(const struct ssm_call *c, const struct state_batch *b,
				struct ar_err *err)
{
	static ssm_enqueue_fn *const part[] = { ssm_conv_enqueue, ssm_scan_enqueue,
						ssm_norm_enqueue };

	return prefill_part(c, b, part, sizeof part / sizeof *part, err);
}

/* The heads of a cluster of thread blocks have the same B and C. */
enum ar_status ssm_prefill_sm90(const struct ssm_call *c, const struct state_batch *b,
				struct ar_err *err)
{
	static ssm_enqueue_fn *const part[] = { ssm_sm90_enqueue, ssm_norm_enqueue };
	const int group = c->spec.heads / c->spec.groups;

	if (c->spec.state != 128 || group % SSM_OCTET)
		return ssm_prefill_sm80(c, b, err);
	return prefill_part(c, b, part, c->w.norm && group > SSM_OCTET ? 2 : 1, err);
}

enum ar_status ssm_prefill(const struct ssm_call *c, const struct state_batch *b,
			   struct ar_err *err)
{
	const struct attn_shape s = ssm_shape(&c->spec);
	support_fn *fn;
	enum ar_status st = support_dispatch(&fn, "ssm", &s, NULL, err);

	return st ? st : ((ssm_prefill_fn *)fn)(c, b, err);
}
