/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SnapKV on the device; the rule is in snapkv.c.
 *
 *   window  the numbers of a batch of the window's rows and all keys, for mass.h
 *   mass    the attention of these rows, summed over rows and the heads of a group
 *   pool    the scores: averages or maxima of neighbours
 *   pick    the largest scores of a KV head, in order, and the tokens that stay in any case
 *
 * Averages of sums are sums of averages, so group=before and group=after keep the same.  Maxima are
 * of the sums of a group: group=after with pool=max is refused.
 */
#include "config.h"
#include "kernels/evict/snapkv/snapkv.h"

#include <cfloat>

#include "base/workspace.h"
#include "kernels/drop/mass.h"
#include "kernels/evict/evictor.h"
#include "kernels/prim/cuda.h"
#include "kernels/select/pick.cuh"
#include "kernels/select/top.cuh"

namespace {

constexpr int THREADS = 256;

/* Numbers of the batch, as places in an array. */
enum { ROW0, LEN = 2, PAGE0, NUMBERS = PAGE0 + 2 };

struct room {
	int32_t *number;
	uint32_t *key;	/* [kv_heads][keys] of pick.cuh */
	void *mass;
};

struct mass_rule rule_of(const struct snapkv *p)
{
	struct mass_rule m = {};

	m.n = (int)p->window;
	m.block = 1;
	m.past = p->softmax == SNAPKV_PREFIX;
	return m;
}

struct room room_at(const struct snapkv *p, const struct attn_shape *s, int n_key,
		    struct workspace *w)
{
	const struct mass_rule m = rule_of(p);
	const int n_page = (n_key + s->page_tok - 1) / s->page_tok;
	const struct attn_limits l = { .max_req = 1, .max_row = m.n, .max_kv_blk = n_page,
				       .max_page = n_page };
	struct room r;

	r.number = (int32_t *)workspace_take(w, NUMBERS, sizeof *r.number);
	r.key = (uint32_t *)workspace_take(w, (size_t)n_key * s->kv_heads, sizeof *r.key);
	r.mass = workspace_take(w, mass_work_bytes(&m, s, &l), 1);
	return r;
}

__global__ void window_batch(struct evict_req r, int n_page, int32_t *number)
{
	number[ROW0] = r.row0;
	number[ROW0 + 1] = r.row0 + r.n_row;
	number[LEN] = r.n_cand;
	number[PAGE0] = 0;
	number[PAGE0 + 1] = n_page;
}

/* Grid (keys, KV head).  mass: [KV head][room]. */
__global__ void pool_keys(const float *__restrict__ mass, int64_t room, int n, int kernel,
			    bool max, int sink, uint32_t *__restrict__ key)
{
	const int t = blockIdx.x * THREADS + threadIdx.x, radius = kernel / 2;
	const float *own = mass + (size_t)blockIdx.y * room;
	float sum = 0, top = -FLT_MAX;

	if (t >= n)
		return;
	for (int u = t > radius ? t - radius : 0; u <= t + radius && u < n; u++) {
		sum += own[u];
		top = fmaxf(top, own[u]);
	}
	key[(size_t)blockIdx.y * n + t] = t < sink ? ~0u : top_key(max ? top : sum);
}

/* Grid (KV head).  n keys, of which the last ones of the request stay. */
__global__ void __launch_bounds__(PICK_THREADS)
pick_keys(struct evict_req r, int n, int ld, const uint32_t *__restrict__ all,
	    int32_t *__restrict__ lists)
{
	__shared__ struct pick_smem sm;
	const uint32_t *own = all + (size_t)blockIdx.x * ld;
	const auto key = [=](int t) { return own[t]; };
	const int last = r.n_cand - n, best = r.n_keep - last;
	int32_t *keep = lists + r.keep0 + (size_t)blockIdx.x * r.n_keep;
	const struct pick p = pick_find<PICK_COUNT>(sm, n, (uint32_t)best, key);

	__syncthreads();
	pick_walk(sm, p, n, key, [=](int t, bool taken, uint32_t rank) {
		if (taken)
			keep[rank] = t;
	});
	for (int i = threadIdx.x; i < last; i += PICK_THREADS)
		keep[best + i] = n + i;
}

}

size_t snapkv_work_bytes(const void *param, const struct attn_shape *s, int n_key)
{
	struct workspace w = workspace_at(NULL);

	room_at((const struct snapkv *)param, s, n_key, &w);
	return w.used;
}

enum ar_status snapkv_enqueue(const void *param, const struct evict_call *call, struct ar_err *err)
{
	const struct snapkv *p = (const struct snapkv *)param;
	const struct attn_shape *s = &call->shape;
	const struct evict_req *r = call->req;
	const cudaStream_t stream = (cudaStream_t)call->stream;
	const int n_page = (r->n_cand + s->page_tok - 1) / s->page_tok;
	const int ld = r->n_cand - (p->local ? 0 : r->n_row);	/* keys that are pooled */
	const int n = r->n_cand - (p->local ? (int)p->local : r->n_row);
	const struct mass_rule rule = rule_of(p);
	struct workspace w = workspace_at(call->work);
	const struct room room = room_at(p, s, r->n_cand, &w);
	struct attn_batch b = {};
	float *mass;
	enum ar_status st = AR_OK;

	if (p->pool == SNAPKV_MAX && p->group == SNAPKV_AFTER && s->q_heads > s->kv_heads)
		return ar_fail(err, AR_USAGE,
			       "evictor 'snapkv': there are no kernels for pool=max with "
			       "group=after; take group=before");
	b.shape = *s;
	b.rows.n_req = 1;
	b.rows.n_row = r->n_row;
	b.rows.row0 = room.number + ROW0;
	b.keys.n_page = b.keys.max_kv_blk = n_page;
	b.keys.len = room.number + LEN;
	b.keys.page0 = room.number + PAGE0;
	b.keys.page = call->page + r->page0;
	window_batch<<<1, 1, 0, stream>>>(*r, n_page, room.number);
	CU_LAUNCHED();
	st = mass_enqueue(&rule, &b, call->q, call->kv.k, &mass, room.mass, call->stream, err);
	if (st)
		return st;
	pool_keys<<<dim3((ld + THREADS - 1) / THREADS, s->kv_heads), THREADS, 0, stream>>>
		(mass, mass_room(&rule, s, n_page, 1), ld, (int)p->kernel, p->pool == SNAPKV_MAX,
		 (int)p->sink, room.key);
	CU_LAUNCHED();
	pick_keys<<<s->kv_heads, PICK_THREADS, 0, stream>>>(*r, n, ld, room.key, call->keep);
	CU_LAUNCHED();
out:
	return st;
}
