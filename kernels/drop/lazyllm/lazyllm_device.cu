/* SPDX-License-Identifier: Apache-2.0 */
/* LazyLLM on the device: a thread block per request picks tokens by their masses.  For a decode it
 * picks twice: the tokens that the rule keeps, then the largest among the dropped tokens. */
#include "config.h"
#include "kernels/drop/lazyllm/lazyllm.h"

#include "base/workspace.h"
#include "kernels/drop/drop.cuh"
#include "kernels/prim/cuda.h"

namespace {

struct room {
	float *score;		/* [mass_room()] */
	void *sum;		/* sum_ranks_bytes() */
	void *mass;		/* mass_work_bytes() */
};

struct room room_at(const struct mass_rule *m, const struct attn_shape *s, int64_t n_page,
		    int n_req, int ranks, struct workspace *w)
{
	const int64_t n = mass_room(m, s, n_page, n_req);
	struct room r;

	r.score = (float *)workspace_take(w, (size_t)n, sizeof *r.score);
	r.sum = workspace_take(w, sum_ranks_bytes(ranks, n), 1);
	r.mass = workspace_take(w, 0, 0);
	return r;
}

__global__ void __launch_bounds__(TOP_THREADS)
lazyllm_pick(double rate, const struct attn_batch b, struct score_parts part, float *score,
	     uint8_t *keep)
{
	__shared__ struct top_smem sm;
	const struct mass_rule m = lazyllm_mass();
	const int r = blockIdx.x, n = b.rows.row0[r + 1] - b.rows.row0[r];
	const int others = n - 1, goal = lazyllm_stay(rate, n) - 1;

	keep += b.rows.row0[r];
	if (!mass_rows(&m, &b, r) || goal >= others) {
		for (int i = threadIdx.x; i < n; i += TOP_THREADS)
			keep[i] = 1;
		return;
	}
	part.at += mass_first(&m, &b, r) + b.rows.pos0[r];
	score += mass_first(&m, &b, r);
	for (int i = threadIdx.x; i < others; i += TOP_THREADS)
		score[i] = drop_score(part, i);
	__syncthreads();
	const auto one = [](float) { return 1u; };
	const struct top top = goal ? top_find((const float *)score, others, goal, one, sm) :
				      top_none();

	drop_tops([=](int i) { return top_key(score[i]); }, others, top, [](int i) { return i; },
		  [=](int i, bool stays) { keep[i] = stays; }, sm);
	if (!threadIdx.x)
		keep[others] = 1;
}

/* List the scores of at least 0 by their numbers, ascending.  Returns how many there are. */
__device__ int list_scores(const float *score, int n, int32_t *index, struct top_smem &sm)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	int before = 0;

	__syncthreads();	/* scores are written */
	for (int first = 0, turn = 0; first < n; first += TOP_THREADS, turn ^= 1) {
		const int i = first + (int)threadIdx.x;
		const bool has = i < n && score[i] >= 0;
		const uint32_t all = __ballot_sync(~0u, has);
		int at = before + __popc(all & ((1u << lane) - 1));

		if (lane == 0)
			sm.ties[turn][warp] = __popc(all);
		__syncthreads();
		for (int w = 0; w < TOP_WARPS; w++) {
			at += w < warp ? sm.ties[turn][w] : 0;
			before += sm.ties[turn][w];
		}
		if (has)
			index[at] = i;
	}
	return before;
}

/* Of the goal largest scores keep the ones that pass; set all others to -1.  Scores are at least 0,
 * or -1 already.  goal <= number of scores of at least 0. */
template <typename Pass>
__device__ void keep_top(float *score, int n, int goal, const Pass &pass, struct top_smem &sm)
{
	const auto one = [](float) { return 1u; };
	struct top top;

	__syncthreads();	/* scores are written */
	top = goal ? top_find((const float *)score, n, goal, one, sm) : top_none();
	drop_tops([=](int i) { return top_key(score[i]); }, n, top, [](int i) { return i; },
		  [=](int i, bool stays) {
			  if (!stays || !pass(i))
				  score[i] = -1;
		  }, sm);
	__syncthreads();
}

__global__ void __launch_bounds__(TOP_THREADS)
lazyllm_revive(double rate, int most, const struct attn_batch b, struct score_parts part,
	       float *score, const struct drop_revived out)
{
	__shared__ struct top_smem sm;
	const struct mass_rule m = lazyllm_decode_mass();
	const int r = blockIdx.x, n = b.keys.len[r], others = n - 1;
	const int goal = lazyllm_stay(rate, n) - 1;
	const uint8_t *gone = out.gone + (int64_t)b.keys.page0[r] * b.shape.page_tok;
	int32_t *index = out.index + (int64_t)r * most;

	part.at += mass_first(&m, &b, r);
	score += mass_first(&m, &b, r);
	for (int i = threadIdx.x; i < others; i += TOP_THREADS)
		score[i] = drop_score(part, i);
	keep_top(score, others, goal, [=](int i) { return gone[i] != 0; }, sm);

	const int there = (int)top_sum([=](int i) { return top_key(score[i]); }, others, top_key(0),
				       [](uint32_t) { return 1u; }, sm);

	if (there > most)
		keep_top(score, others, most, [](int) { return true; }, sm);
	const int listed = list_scores(score, others, index, sm);

	if (!threadIdx.x)
		out.n[r] = listed;
}

}

size_t lazyllm_work_bytes(const void *self, int ranks, const struct attn_shape *s,
			  const struct attn_limits *l)
{
	const struct mass_rule m = lazyllm_mass();
	struct workspace w = workspace_at(NULL);

	(void)self;
	room_at(&m, s, l->max_page, l->max_req, ranks, &w);
	return w.used + mass_work_bytes(&m, s, l);
}

enum ar_status lazyllm_enqueue(const struct drop_call *call, const void *self, uint8_t *keep,
			       struct ar_err *err)
{
	const struct layer_list *l = &((const struct lazyllm_self *)self)->layers;
	const double rate = l->value[layer_list_find(l, call->at->layer)];
	const struct attn_call *at = call->at;
	const struct attn_batch *b = at->b;
	const struct mass_rule m = lazyllm_mass();
	struct workspace w = workspace_at(at->work);
	const struct room room = room_at(&m, &b->shape, b->keys.n_page, b->rows.n_req,
					 call->ranks.n, &w);
	struct score_parts part;
	enum ar_status st;

	if (!b->rows.n_row)
		return AR_OK;
	st = sum_masses_enqueue(call, &m, room.sum, room.mass, &part, err);
	if (st)
		return st;
	lazyllm_pick<<<b->rows.n_req, TOP_THREADS, 0, (cudaStream_t)at->stream>>>(
		rate, *b, part, room.score, keep);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status lazyllm_revive_enqueue(const struct drop_call *call, const void *self,
				      const struct drop_revived *out, struct ar_err *err)
{
	const struct lazyllm_self *x = (const struct lazyllm_self *)self;
	const struct layer_list *l = &x->layers;
	const double rate = l->value[layer_list_find(l, call->at->layer)];
	const struct attn_call *at = call->at;
	const struct attn_batch *b = at->b;
	const struct mass_rule m = lazyllm_decode_mass();
	struct workspace w = workspace_at(at->work);
	const struct room room = room_at(&m, &b->shape, b->keys.n_page, b->rows.n_req,
					 call->ranks.n, &w);
	struct score_parts part;
	enum ar_status st;

	if (!b->rows.n_req)
		return AR_OK;
	st = sum_masses_enqueue(call, &m, room.sum, room.mass, &part, err);
	if (st)
		return st;
	lazyllm_revive<<<b->rows.n_req, TOP_THREADS, 0, (cudaStream_t)at->stream>>>(
		rate, x->revives, *b, part, room.score, *out);
	CU_LAUNCHED();
out:
	return st;
}
