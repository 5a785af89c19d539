/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of DuoAttention on the device: a thread block per list.  The bits of a layer's heads are
 * arguments of the kernel. */
#include "config.h"
#include "kernels/select/duo/duo.h"

#include "kernels/prim/cuda.h"

static constexpr int THREADS = 256;

static __global__ void __launch_bounds__(THREADS)
duo_lists(const int32_t *__restrict__ len, int heads, struct streaming near,
	  const __grid_constant__ struct duo_layer layer, struct piece_lists l)
{
	const struct streaming_list own = duo_list(&near, &layer, blockIdx.x % heads, &l,
						   len[blockIdx.x / heads]);

	streaming_write(&own, &l, blockIdx.x, threadIdx.x, THREADS);
}

enum ar_status duo_enqueue(const struct attn_call *call, const void *self,
			   const struct selection *out, struct ar_err *err)
{
	const struct duo_self *x = (const struct duo_self *)self;
	const struct attn_batch *b = call->b;
	const int heads = b->shape.kv_heads;
	enum ar_status st = AR_OK;

	if (!b->rows.n_req)
		return AR_OK;
	duo_lists<<<b->rows.n_req * heads, THREADS, 0, (cudaStream_t)call->stream>>>
		(b->keys.len, heads, x->near, x->layer[call->layer], out->pieces);
	CU_LAUNCHED();
out:
	return st;
}
