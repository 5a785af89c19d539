/* SPDX-License-Identifier: Apache-2.0 */
/* Scores added up over ranks, on the device: a thread a score adds up the parts of its heads. */
#include "config.h"
#include "kernels/drop/sum_ranks.h"

#include "kernels/drop/drop.cuh"
#include "kernels/prim/cuda.h"

namespace {

constexpr int SUM_THREADS = 256;

__global__ void sum_heads(const struct score_parts p, bool round, float *own)
{
	const int64_t i = (int64_t)blockIdx.x * SUM_THREADS + threadIdx.x;

	if (i < p.pitch)
		own[i] = drop_rounded(round, drop_score(p, i));
}

}

size_t sum_ranks_bytes(int ranks, int64_t pitch)
{
	return ranks < 2 ? 0 : (size_t)(1 + ranks) * (size_t)pitch * sizeof(float);
}

enum ar_status sum_ranks_enqueue(const struct drop_ranks *ranks, struct score_parts *p, bool round,
				 void *work, void *stream, struct ar_err *err)
{
	float *own = (float *)work, *all = own + p->pitch;
	enum ar_status st = AR_OK;

	if (ranks->n < 2)
		return AR_OK;
	sum_heads<<<(unsigned)((p->pitch + SUM_THREADS - 1) / SUM_THREADS), SUM_THREADS, 0,
		    (cudaStream_t)stream>>>(*p, round, own);
	CU_LAUNCHED();
	st = ranks->gather(ranks->ctx, own, all, (size_t)p->pitch * sizeof *own, stream, err);
	p->at = all;
	p->n = ranks->n;
out:
	return st;
}

enum ar_status sum_masses_enqueue(const struct drop_call *call, const struct mass_rule *m,
				  void *sum, void *mass, struct score_parts *out,
				  struct ar_err *err)
{
	const struct attn_call *at = call->at;
	const struct attn_batch *b = at->b;
	float *part;
	enum ar_status st = mass_enqueue(m, b, at->q, at->kv.k, &part, mass, at->stream, err);

	if (st)
		return st;
	*out = { part, b->shape.kv_heads,
		 mass_room(m, &b->shape, b->keys.n_page, b->rows.n_req) };
	return sum_ranks_enqueue(&call->ranks, out, m->round, sum, at->stream, err);
}
