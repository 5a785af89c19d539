/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UniPrefill on the device; the rule is in uniprefill.c.  After sum_masses_enqueue():
 *
 *   uniprefill_pick   a thread block per request: the shares, and the blocks that stay.  No sort:
 *                     top_find() finds the least share of the fewest that exceed p.
 *   uniprefill_rows   a thread per row: does it stay?
 */
#include "config.h"
#include "kernels/drop/uniprefill/uniprefill.h"

#include "base/workspace.h"
#include "kernels/drop/drop.cuh"
#include "kernels/prim/cuda.h"

namespace {

constexpr int ROWS_THREADS = 256;

struct room {
	uint8_t *kept;		/* [mass_room()] */
	float *share;
	void *sum;		/* sum_ranks_bytes() */
	void *mass;		/* mass_work_bytes() */
};

struct room room_at(const struct mass_rule *m, const struct attn_shape *s, int64_t n_page,
		    int n_req, int ranks, struct workspace *w)
{
	const size_t n = (size_t)mass_room(m, s, n_page, n_req);
	struct room r;

	r.kept = (uint8_t *)workspace_take(w, n, sizeof *r.kept);
	r.share = (float *)workspace_take(w, n, sizeof *r.share);
	r.sum = workspace_take(w, sum_ranks_bytes(ranks, (int64_t)n), 1);
	r.mass = workspace_take(w, 0, 0);
	return r;
}

__device__ __forceinline__ float rounded(const struct uniprefill &p, float x)
{
	return drop_rounded(p.rounding == ROUNDING_BF16, x);
}

/* Take away the block that crosses p, if it is not the only one. */
__device__ void exclude(struct top &top, const float *share, int n, struct top_smem &sm)
{
	const uint64_t above = top.key == ~0u ? 0 :
		top_sum([=](int i) { return top_key(share[i]); }, n, top.key + 1,
			[](uint32_t) { return (uint64_t)1; }, sm);

	if (above || top.ties > 1)
		top.ties--;
}

__global__ void __launch_bounds__(TOP_THREADS)
uniprefill_pick(const struct uniprefill p, const struct attn_batch b, struct score_parts part,
		uint8_t *kept, float *share)
{
	__shared__ struct top_smem sm;
	const struct mass_rule m = uniprefill_mass(&p);
	const int r = blockIdx.x, n = mass_blocks(&m, &b, r);
	const auto fixed = [](float x) { return uniprefill_fixed(x); };
	const auto weight = [&](float x) { return uniprefill_fixed(rounded(p, x)); };

	if (!mass_rows(&m, &b, r))
		return;
	part.at += mass_first(&m, &b, r);
	kept += mass_first(&m, &b, r);
	share += mass_first(&m, &b, r);
	for (int i = threadIdx.x; i < n; i += TOP_THREADS)
		share[i] = rounded(p, drop_score(part, i));
	__syncthreads();
	const uint64_t all = top_sum(share, n, fixed, sm);

	for (int i = threadIdx.x; i < n; i += TOP_THREADS)
		share[i] = uniprefill_share(share[i], all);
	__syncthreads();
	if (top_sum(share, n, weight, sm) <= uniprefill_limit(&p)) {
		for (int i = threadIdx.x; i < n; i += TOP_THREADS)
			kept[i] = 1;
		return;
	}
	struct top top = top_find((const float *)share, n, uniprefill_limit(&p) + 1, weight, sm);

	if (p.crossing == CROSSING_EXCLUDE)
		exclude(top, share, n, sm);
	drop_tops([=](int i) { return top_key(share[i]); }, n, top,
		  [=](int i) { return n - 1 - i; },
		  [=](int i, bool stays) { kept[i] = stays; }, sm);
}

__global__ void uniprefill_rows(const struct uniprefill p, const struct attn_batch b,
				const uint8_t *kept, uint8_t *keep)
{
	const struct mass_rule m = uniprefill_mass(&p);
	const int row = blockIdx.x * ROWS_THREADS + threadIdx.x;

	if (row >= b.rows.n_row)
		return;
	const int r = drop_request(b.rows, row), base = mass_base(&m, &b, r);
	const int pos = b.rows.pos[row], n = mass_blocks(&m, &b, r);

	keep[row] = !mass_rows(&m, &b, r) || uniprefill_stays(&p, pos, base, n, b.keys.len[r]) ||
		    kept[mass_first(&m, &b, r) + (pos - base) / p.block];
}

}

enum ar_status uniprefill_pick_enqueue(const struct uniprefill *p, const struct attn_batch *b,
				       const struct score_parts *part, uint8_t *kept, float *share,
				       void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	uniprefill_pick<<<b->rows.n_req, TOP_THREADS, 0, (cudaStream_t)stream>>>(
		*p, *b, *part, kept, share);
	CU_LAUNCHED();
out:
	return st;
}

size_t uniprefill_work_bytes(const void *self, int ranks, const struct attn_shape *s,
			     const struct attn_limits *l)
{
	const struct mass_rule m = uniprefill_mass(&((const struct uniprefill_self *)self)->rule);
	struct workspace w = workspace_at(NULL);

	room_at(&m, s, l->max_page, l->max_req, ranks, &w);
	return w.used + mass_work_bytes(&m, s, l);
}

enum ar_status uniprefill_enqueue(const struct drop_call *call, const void *self, uint8_t *keep,
				  struct ar_err *err)
{
	const struct uniprefill *p = &((const struct uniprefill_self *)self)->rule;
	const struct attn_call *at = call->at;
	const struct attn_batch *b = at->b;
	const struct mass_rule m = uniprefill_mass(p);
	const cudaStream_t stream = (cudaStream_t)at->stream;
	struct workspace w = workspace_at(at->work);
	const struct room room = room_at(&m, &b->shape, b->keys.n_page, b->rows.n_req,
					 call->ranks.n, &w);
	struct score_parts part;
	enum ar_status st = AR_OK;

	if (!b->rows.n_row)
		return AR_OK;
	if (call->n_step <= p->min_tokens) {
		CU(cudaMemsetAsync(keep, 1, b->rows.n_row, stream));
		return AR_OK;
	}
	st = sum_masses_enqueue(call, &m, room.sum, room.mass, &part, err);
	if (!st)
		st = uniprefill_pick_enqueue(p, b, &part, room.kept, room.share, at->stream, err);
	if (st)
		return st;
	uniprefill_rows<<<(b->rows.n_row + ROWS_THREADS - 1) / ROWS_THREADS, ROWS_THREADS, 0,
			  stream>>>(*p, *b, room.kept, keep);
	CU_LAUNCHED();
out:
	return st;
}
