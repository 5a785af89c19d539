/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SnapKV on the device; the rule is in snapkv.c.
 *
 *   window  the numbers of a batch of the window's rows and all keys
 *   mass    the attention of these rows, summed over rows, for each query head: columns of lastq.h,
 *           or mass.h where there are more rows, or a device without wgmma
 *   pool    the scores: averages or maxima of neighbours
 *
 * evict_pick_enqueue() then chooses by the scores.
 *
 * A window of 64, 128 Ki keys, 32 query heads over 8, of 128 channels: rows and sums of lastq have
 * 69 GFLOP each, 85 us, and 2.7e8 exponentials, 73 us beside them.  On an H200 an event of 2048 of
 * random keys takes 315 us: rows 118, sums 134, pool 14, pick 39, compaction 14.  With mass.h it
 * took 821 in the same run, and kept the same tokens.  Pool with a barrier for each head, also of
 * averages: 22.  Where most scores are equal, pick reads them several times, 140.
 */
#include "config.h"
#include "kernels/evict/snapkv/snapkv.h"

#include <cfloat>

#include "base/gpu.h"
#include "base/workspace.h"
#include "kernels/drop/mass.h"
#include "kernels/evict/evictor.h"
#include "kernels/prim/cuda.h"
#include "kernels/select/lastq/lastq.h"
#include "kernels/select/top.cuh"
#include "kernels/support.h"

namespace {

constexpr int THREADS = 256, MOST_RADIUS = 511;

/* Numbers of the batch, as places in an array. */
enum { ROW0, POS0 = 2, LEN, PAGE0, NUMBERS = PAGE0 + 2 };

struct room {
	int32_t *number;
	uint32_t *key;	/* [kv_heads][keys] of pick.cuh */
	float *column;	/* [q_heads][keys]; not for mass.h, which has its own */
	void *work;	/* of the kernels of mass */
};

/* The attention to each key, [q_heads][stride]. */
struct heads {
	const float *mass;
	int64_t stride;
};

struct mass_rule rule_of(const struct snapkv *p)
{
	struct mass_rule m = {};

	m.n = (int)p->window;
	m.block = 1;
	m.past = p->softmax == SNAPKV_PREFIX;
	m.heads = true;
	return m;
}

/* Set *fn to the kernels of columns; NULL: there are none, or n rows are too many. */
enum ar_status find_columns(lastq_columns_fn **fn, int *n_sm, const struct attn_shape *s, int n,
			    struct ar_err *err)
{
	const struct support *row = NULL;
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);

	if (!st && n <= LASTQ_MAX)
		row = support_find("lastq-columns", s, NULL, gpu->cc);
	*fn = row ? (lastq_columns_fn *)row->fn : NULL;
	*n_sm = st ? 0 : gpu->n_sm;
	return st;
}

struct room room_at(const struct snapkv *p, const struct attn_shape *s, int n_key, int n_sm,
		    bool columns, struct workspace *w)
{
	const struct mass_rule m = rule_of(p);
	const int n_page = (n_key + s->page_tok - 1) / s->page_tok;
	const struct attn_limits l = { .max_req = 1, .max_row = m.n, .max_kv_blk = n_page,
				       .n_sm = n_sm, .max_page = n_page };
	struct room r;

	r.number = (int32_t *)workspace_take(w, NUMBERS, sizeof *r.number);
	r.key = (uint32_t *)workspace_take(w, (size_t)n_key * s->kv_heads, sizeof *r.key);
	r.column = (float *)workspace_take(w, columns ? (size_t)n_key * s->q_heads : 0,
					   sizeof *r.column);
	r.work = workspace_take(w, columns ? lastq_sm90_work_bytes(s, &l, false) :
				mass_work_bytes(&m, s, &l), 1);
	return r;
}

__global__ void window_batch(struct evict_req r, int n_page, int32_t *number)
{
	number[ROW0] = 0;
	number[ROW0 + 1] = r.n_row;
	number[POS0] = r.n_cand - r.n_row;
	number[LEN] = r.n_cand;
	number[PAGE0] = 0;
	number[PAGE0 + 1] = n_page;
}

/* Grid (keys, KV head): the scores of n keys.  before: heads are added before they are pooled, as
 * for averages, whose order does not matter. */
__global__ void __launch_bounds__(THREADS)
pool_keys(struct heads all, int group, int n, int kernel, bool max, bool before, int sink,
	  uint32_t *__restrict__ key)
{
	__shared__ float own[THREADS + 2 * MOST_RADIUS];
	const int radius = kernel / 2, first = blockIdx.x * THREADS - radius;
	const int t = blockIdx.x * THREADS + threadIdx.x, count = THREADS + 2 * radius;
	const float *mass = all.mass + (size_t)blockIdx.y * group * all.stride;
	const int step = before ? group : 1;
	float score = 0;

	for (int g = 0; g < group; g += step, mass += step * all.stride) {
		float sum = 0, top = -FLT_MAX;

		for (int i = threadIdx.x; i < count; i += THREADS) {
			const bool there = first + i >= 0 && first + i < n;
			float x = 0;

#pragma unroll 4
			for (int k = 0; k < step; k++)
				x += there ? mass[k * all.stride + first + i] : 0;
			own[i] = x;
		}
		__syncthreads();
		for (int i = 0; i < kernel; i++) {
			sum += own[threadIdx.x + i];
			top = fmaxf(top, own[threadIdx.x + i]);
		}
		score += max ? top : sum;
		__syncthreads();
	}
	if (t < n)
		key[(size_t)blockIdx.y * n + t] = t < sink ? ~0u : top_key(score);
}

/* Enqueue the attention of the window. */
enum ar_status enqueue_mass(const struct snapkv *p, const struct evict_call *call,
			    const struct room &room, lastq_columns_fn *columns, int n_sm,
			    struct heads *out, struct ar_err *err)
{
	const struct attn_shape *s = &call->shape;
	const struct evict_req *r = call->req;
	const int n_page = (r->n_cand + s->page_tok - 1) / s->page_tok;
	const struct mass_rule rule = rule_of(p);
	const struct lastq sums = { room.column, NULL, r->n_cand };
	const bf16_t *q = call->q + (size_t)r->row0 * s->q_heads * s->head_dim;
	struct attn_batch b = {};
	enum ar_status st = AR_OK;
	float *mass;

	b.shape = *s;
	b.n_sm = n_sm;
	b.rows.n_req = 1;
	b.rows.n_row = r->n_row;
	b.rows.row0 = room.number + ROW0;
	b.rows.pos0 = room.number + POS0;
	b.keys.n_page = b.keys.max_kv_blk = n_page;
	b.keys.len = room.number + LEN;
	b.keys.page0 = room.number + PAGE0;
	b.keys.page = call->page + r->page0;
	window_batch<<<1, 1, 0, (cudaStream_t)call->stream>>>(*r, n_page, room.number);
	CU_LAUNCHED();
	if (columns) {
		*out = { room.column, sums.stride };
		return columns(&b, r->n_row, rule.past, q, call->kv.k, &sums, room.work,
			       call->stream, err);
	}
	st = mass_enqueue(&rule, &b, q, call->kv.k, &mass, room.work, call->stream, err);
	*out = { mass, mass_room(&rule, s, n_page, 1) };
out:
	return st;
}

}

size_t snapkv_work_bytes(const void *param, const struct attn_shape *s, int n_key)
{
	const struct snapkv *p = (const struct snapkv *)param;
	struct workspace w = workspace_at(NULL);
	lastq_columns_fn *columns;
	struct ar_err unused;
	int n_sm;

	find_columns(&columns, &n_sm, s, (int)p->window, &unused);
	room_at(p, s, n_key, n_sm, columns, &w);
	return w.used;
}

enum ar_status snapkv_enqueue(const void *param, const struct evict_call *call, struct ar_err *err)
{
	const struct snapkv *p = (const struct snapkv *)param;
	const struct attn_shape *s = &call->shape;
	const struct evict_req *r = call->req;
	const cudaStream_t stream = (cudaStream_t)call->stream;
	const int ld = r->n_cand - (p->local ? 0 : r->n_row);	/* keys that are pooled */
	const int n = r->n_cand - (p->local ? (int)p->local : r->n_row);
	struct workspace w = workspace_at(call->work);
	lastq_columns_fn *columns;
	struct heads heads;
	int n_sm;
	enum ar_status st = find_columns(&columns, &n_sm, s, (int)p->window, err);

	if (st)
		return st;
	const struct room room = room_at(p, s, r->n_cand, n_sm, columns, &w);

	st = enqueue_mass(p, call, room, columns, n_sm, &heads, err);
	if (st)
		return st;
	pool_keys<<<dim3((ld + THREADS - 1) / THREADS, s->kv_heads), THREADS, 0, stream>>>
		(heads, s->q_heads / s->kv_heads, ld, (int)p->kernel, p->pool == SNAPKV_MAX,
		 p->pool == SNAPKV_AVG || p->group == SNAPKV_BEFORE, (int)p->sink, room.key);
	CU_LAUNCHED();
	st = evict_pick_enqueue(call, room.key, n, ld, err);
out:
	return st;
}
