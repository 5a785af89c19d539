/* SPDX-License-Identifier: Apache-2.0 */
/*
 * H2O on the device; the rule is in h2o.c.
 *
 *   mass    the attention of up to SLAB rows of each request, by KV head: mass.h
 *   add     takes it into the state, beside the sums of earlier rows
 *   commit  adds it to them
 *   scores  the keys of pick.cuh; evict_pick_enqueue() then chooses by them
 *
 * A batch of decodes has one row of each request, so one mass.  Chunks may have more than SLAB
 * rows; from the last rows on, each SLAB of them is a mass of its own.
 */
#include "config.h"
#include "kernels/evict/h2o/h2o.h"

#include "base/workspace.h"
#include "kernels/drop/mass.h"
#include "kernels/prim/cuda.h"
#include "kernels/select/top.cuh"

namespace {

constexpr int THREADS = 256, SLAB = 128;

struct mass_rule rule_of(int n)
{
	struct mass_rule m = {};

	m.n = n;
	m.block = 1;
	return m;
}

__device__ __forceinline__ struct h2o_state *state_at(struct h2o_state *state,
						      const struct attn_shape &s,
						      const int32_t *page, int h, int t)
{
	return state + ((size_t)page[t / s.page_tok] * s.kv_heads + h) * s.page_tok +
	       t % s.page_tok;
}

/* The state of this thread's key.  Grid (keys, KV head, request); NULL: there is no key. */
__device__ __forceinline__ struct h2o_state *own_state(const struct attn_batch &b, int t,
						       struct h2o_state *state)
{
	const int r = blockIdx.z;

	return t < b.keys.len[r] ? state_at(state, b.shape, b.keys.page + b.keys.page0[r],
					    blockIdx.y, t) : NULL;
}

/* A key that is new has the state of an earlier tenant of its place. */
__global__ void add_mass(struct attn_batch b, struct mass_rule rule,
			 const float *__restrict__ mass, int64_t room, struct h2o_state *state)
{
	const int t = blockIdx.x * THREADS + threadIdx.x, r = blockIdx.z;
	const int rows = mass_rows(&rule, &b, r), end = b.keys.len[r] - rule.skip;
	struct h2o_state *own = own_state(b, t, state), x;

	if (!own)
		return;
	x = *own;
	if (!rule.skip) {
		if (t >= b.rows.pos0[r])
			x.sum = x.rows = 0;
		x.more = x.more_rows = 0;
	}
	if (rows && t < end) {
		x.more += mass[blockIdx.y * room + mass_first(&rule, &b, r) + t];
		x.more_rows += min(rows, end - t);
	}
	*own = x;
}

__global__ void commit_mass(struct attn_batch b, struct h2o_state *state)
{
	struct h2o_state *own = own_state(b, blockIdx.x * THREADS + threadIdx.x, state);

	if (own)
		*own = { own->sum + own->more, own->rows + own->more_rows, 0, 0 };
}

/* Grid (keys, KV head): the keys of the first n candidates. */
__global__ void score_keys(struct attn_shape s, const int32_t *page, int n, bool norm,
			   struct h2o_state *state, uint32_t *__restrict__ key)
{
	const int t = blockIdx.x * THREADS + threadIdx.x;

	if (t >= n)
		return;
	const struct h2o_state x = *state_at(state, s, page, blockIdx.y, t);

	key[(size_t)blockIdx.y * n + t] = top_key(norm ? x.sum / x.rows : x.sum);
}

dim3 grid_of(const struct attn_batch *b)
{
	return dim3((b->keys.max_kv_blk * b->shape.page_tok + THREADS - 1) / THREADS,
		    b->shape.kv_heads, b->rows.n_req);
}

}

size_t h2o_add_bytes(const struct attn_shape *s, const struct attn_limits *l)
{
	const struct mass_rule m = rule_of(l->max_row > l->max_req ? SLAB : 1);

	return mass_work_bytes(&m, s, l);
}

enum ar_status h2o_add(const void *, const struct attn_call *call, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const bool single = b->rows.n_row == b->rows.n_req;
	const int most = b->rows.n_row - b->rows.n_req + 1;	/* rows of a request */
	struct mass_rule m = rule_of(single ? 1 : SLAB);
	enum ar_status st = AR_OK;
	float *mass;

	for (; m.skip < most; m.skip += m.n) {
		st = mass_enqueue(&m, b, call->q, call->kv.k, &mass, call->work, call->stream, err);
		if (st)
			return st;
		add_mass<<<grid_of(b), THREADS, 0, (cudaStream_t)call->stream>>>
			(*b, m, mass, mass_room(&m, &b->shape, b->keys.n_page, b->rows.n_req),
			 (struct h2o_state *)call->state);
		CU_LAUNCHED();
	}
out:
	return st;
}

enum ar_status h2o_commit(const void *, const struct attn_call *call, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	commit_mass<<<grid_of(call->b), THREADS, 0, (cudaStream_t)call->stream>>>
		(*call->b, (struct h2o_state *)call->state);
	CU_LAUNCHED();
out:
	return st;
}

size_t h2o_work_bytes(const void *, const struct attn_shape *s, int n_key)
{
	return (size_t)n_key * s->kv_heads * sizeof(uint32_t);
}

enum ar_status h2o_enqueue(const void *param, const struct evict_call *call, struct ar_err *err)
{
	const struct h2o *p = (const struct h2o *)param;
	const struct evict_req *r = call->req;
	const int n = r->n_cand - (int)p->recent;
	uint32_t *key = (uint32_t *)call->work;
	enum ar_status st = AR_OK;

	score_keys<<<dim3((n + THREADS - 1) / THREADS, call->shape.kv_heads), THREADS, 0,
		     (cudaStream_t)call->stream>>>
		(call->shape, call->page + r->page0, n, p->norm, (struct h2o_state *)call->state,
		 key);
	CU_LAUNCHED();
	st = evict_pick_enqueue(call, key, n, n, err);
out:
	return st;
}
