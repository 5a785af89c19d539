/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copy the keys and values of lists into a pool (see pool.h).
 *
 * A thread block fills one block of the pool after the other, 16 bytes a thread at a time.  The
 * thread blocks of a list take its blocks in turn.  Only the device knows how long lists are; a
 * thread block without work exits at once.
 */
#include "config.h"

#include <cuda_runtime.h>

#include "kernels/exec/pool/pool.h"
#include "kernels/prim/cuda.h"

static constexpr int THREADS = 256;
static constexpr int GRID = 4096;	/* thread blocks; several waves on any GPU */

struct move {
	struct attn_batch b;
	struct kv_bf16 from;
	struct pool to;
	int lists;			/* per request */
};

/* A list: its request and KV head, and its place in the pool. */
struct place {
	int req, kv_head, rows, first;
};

static __device__ struct place place_of(const struct move &m, int list)
{
	const int r = list / m.lists, g = list % m.lists;
	struct place p;

	p.req = r;
	p.kv_head = g / (m.lists / m.b.shape.kv_heads);
	p.rows = m.b.rows.row0[r + 1] - m.b.rows.row0[r];
	p.first = pool_page(m.b.keys.page0, m.lists, list);
	return p;
}

/* Row of the cache, in tokens of one head, where the key at pos lies. */
static __device__ __forceinline__ int64_t key_row(const struct move &m, const struct place &p,
						  int pos)
{
	const int tok = m.b.shape.page_tok;
	const int64_t page = m.b.keys.page[m.b.keys.page0[p.req] + pos / tok];

	return (page * m.b.shape.kv_heads + p.kv_head) * tok + pos % tok;
}

/* Block lists.  The chunk's blocks come last and are complete.  So the chunk begins at the same
 * offset of its first block as in the sequence. */
struct blocks {
	struct block_lists l;

	__device__ int ctx(const struct move &m, const struct place &p, int list) const
	{
		const int tok = m.b.shape.page_tok, ctx = m.b.rows.pos0[p.req];
		const int own = (ctx + p.rows + tok - 1) / tok - ctx / tok;

		return (l.n[list] - own) * tok + ctx % tok;
	}

	__device__ int count(const struct move &, const struct place &, int list) const
	{
		return l.n[list];
	}

	struct cursor {
		int64_t row;

		__device__ int64_t at(const struct move &, const struct place &, int t) const
		{
			return row + t;
		}
	};

	__device__ cursor block(const struct move &m, const struct place &p, int list, int i) const
	{
		const int blk = l.block[(size_t)list * l.stride + i];

		return { key_row(m, p, blk * m.b.shape.page_tok) };
	}
};

/* Token lists, the chunk's tokens, then zeros to the end of the block, because attention must read
 * finite values. */
struct tokens {
	struct token_lists l;

	__device__ int ctx(const struct move &, const struct place &, int list) const
	{
		return l.n[list];
	}

	__device__ int count(const struct move &m, const struct place &p, int list) const
	{
		return (l.n[list] + p.rows + m.b.shape.page_tok - 1) / m.b.shape.page_tok;
	}

	struct cursor {
		const int32_t *tok;
		int n, first;

		__device__ int64_t at(const struct move &m, const struct place &p, int t) const
		{
			const int k = first + t;

			if (k < n)
				return key_row(m, p, tok[k]);
			return k < n + p.rows ? key_row(m, p, m.b.rows.pos0[p.req] + k - n) : -1;
		}
	};

	__device__ cursor block(const struct move &m, const struct place &p, int list, int i) const
	{
		const int32_t page0 = m.b.keys.page0[p.req];
		const int32_t n_page = m.b.keys.page0[p.req + 1] - page0;

		return { l.tok + attn_token_row(&m.b.shape, page0, n_page, p.kv_head), l.n[list],
			 i * m.b.shape.page_tok };
	}
};

/* Thread blocks [list * per, (list + 1) * per) fill the blocks of one list. */
template <typename Lists>
static __global__ void __launch_bounds__(THREADS)
pool_fill(const struct move m, const Lists lists, int per)
{
	const int list = blockIdx.x / per, turn = blockIdx.x % per;
	const struct place p = place_of(m, list);
	const int pieces = m.b.shape.head_dim / 8, all = m.b.shape.page_tok * pieces;
	const int n = lists.count(m, p, list);
	const uint4 *from_k = (const uint4 *)m.from.k, *from_v = (const uint4 *)m.from.v;

	if (!turn && !threadIdx.x)
		m.to.ctx[list] = lists.ctx(m, p, list);
	for (int i = turn; i < n; i += per) {
		const typename Lists::cursor c = lists.block(m, p, list, i);
		const int64_t to = (int64_t)(p.first + i) * all;
		uint4 *__restrict__ k = (uint4 *)m.to.kv.k + to;
		uint4 *__restrict__ v = (uint4 *)m.to.kv.v + to;

		if (!threadIdx.x)
			m.to.page[p.first + i] = p.first + i;
#pragma unroll 4
		for (int x = threadIdx.x; x < all; x += THREADS) {
			const int64_t row = c.at(m, p, x / pieces);
			const int64_t at = row * pieces + x % pieces;

			k[x] = row < 0 ? make_uint4(0, 0, 0, 0) : __ldg(from_k + at);
			v[x] = row < 0 ? make_uint4(0, 0, 0, 0) : __ldg(from_v + at);
		}
	}
}

template <typename Lists>
static enum ar_status fill(const struct attn_call *call, const Lists &from, int lists,
			   struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct move m = { *b, call->kv.bf16, pool_at(b, lists, call->work), lists };
	const int n_list = b->rows.n_req * lists;
	enum ar_status st = AR_OK;
	int per;

	if (!n_list)
		return AR_OK;
	per = GRID / n_list;
	per = per > b->keys.max_kv_blk ? b->keys.max_kv_blk : per < 1 ? 1 : per;
	pool_fill<<<n_list * per, THREADS, 0, (cudaStream_t)call->stream>>>(m, from, per);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status pool_move_blocks(const struct attn_call *call, const struct executor_lists *lists,
				struct ar_err *err)
{
	const struct attn_shape *s = &call->b->shape;
	const int group = s->q_heads / s->kv_heads;
	const int per_kv = (group + lists->heads - 1) / lists->heads;
	const struct blocks from = { lists->blocks };

	return fill(call, from, per_kv * s->kv_heads, err);
}

enum ar_status pool_move_tokens(const struct attn_call *call, const struct executor_lists *lists,
				struct ar_err *err)
{
	const struct tokens from = { lists->tokens };

	return fill(call, from, call->b->shape.kv_heads, err);
}
