/* SPDX-License-Identifier: Apache-2.0 */
/* The first and the last pieces on the device: a thread block per list. */
#include "config.h"
#include "kernels/select/streaming/streaming.h"

#include "kernels/prim/cuda.h"

static constexpr int THREADS = 128;

static __global__ void __launch_bounds__(THREADS)
streaming_lists(const int32_t *__restrict__ len, int groups, struct streaming rule,
		struct piece_lists l)
{
	const struct streaming_list own = streaming_list(&rule, &l, len[blockIdx.x / groups]);

	streaming_write(&own, &l, blockIdx.x, threadIdx.x, THREADS);
}

enum ar_status streaming_enqueue(const struct attn_call *call, const void *self,
				 const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const int groups = pieces_groups(&b->shape, &out->pieces);
	enum ar_status st = AR_OK;

	if (!b->rows.n_req)
		return AR_OK;
	streaming_lists<<<b->rows.n_req * groups, THREADS, 0, (cudaStream_t)call->stream>>>
		(b->keys.len, groups, *(const struct streaming *)self, out->pieces);
	CU_LAUNCHED();
out:
	return st;
}
