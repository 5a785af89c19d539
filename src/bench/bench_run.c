/* SPDX-License-Identifier: Apache-2.0 */
/* Cases and ceilings: their random inputs, and the work that a launch enqueues. */
#include "config.h"
#include "src/bench/bench_load.h"

#include <assert.h>
#include <stdlib.h>

#include "base/rng.h"
#include "kernels/layer/layer.h"
#include "kernels/prim/cuda.h"

struct step {
	enum phase phase;
	enum ar_status (*enqueue)(const struct bench_load *l, int set, struct ar_err *err);
};

/* ---- inputs ---- */

static void load_release(struct bench_load *l)
{
	bench_drop(l, 0);
	gemm_close(l->gemm);
}

static enum ar_status take_tiles(struct bench_load *l, struct ar_err *err)
{
	const struct executor *x = l->c->executor;
	struct attn_batch host = l->c->b;
	struct attn_tile *tile;
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);

	if (st)
		return st;
	assert(attn_is_chunked(&host));
	if (l->c->what == BENCH_MIXED)
		host.rows.n_req = 1;
	l->b.n_sm = host.n_sm = executor_n_sm(x, &host.shape, gpu);
	l->b.n_tile = x->plan(&host, l->c->lists.heads, NULL);
	tile = malloc((size_t)l->b.n_tile * sizeof *tile);
	if (!tile)
		return ar_nomem(err);
	x->plan(&host, l->c->lists.heads, tile);
	l->b.n_part = executor_count_parts(tile, l->b.n_tile);
	st = bench_upload(l, &l->b.tile, tile, (size_t)l->b.n_tile * sizeof *tile, err);
	free(tile);
	return st;
}

static enum ar_status take_lists(struct bench_load *l, struct ar_err *err)
{
	const struct attn_batch *h = &l->c->b;
	const struct executor_lists *from = &l->c->lists;
	size_t n = (size_t)l->c->n_list, tok = (size_t)(h->keys.n_page * h->shape.page_tok);
	struct executor_lists *to = &l->lists;
	enum ar_status st = AR_OK;

	to->heads = from->heads;
	to->blocks.stride = from->blocks.stride;
	if (from->blocks.block)
		st = bench_upload(l, &to->blocks.block, from->blocks.block,
				  n * (size_t)from->blocks.stride * sizeof *from->blocks.block,
				  err);
	if (!st && from->blocks.block)
		st = bench_upload(l, &to->blocks.n, from->blocks.n, n * sizeof *from->blocks.n,
				  err);
	if (!st && from->tokens.tok)
		st = bench_upload(l, &to->tokens.tok, from->tokens.tok,
				  tok * (size_t)h->shape.kv_heads * sizeof *from->tokens.tok, err);
	if (!st && from->tokens.tok)
		st = bench_upload(l, &to->tokens.n, from->tokens.n, n * sizeof *from->tokens.n,
				  err);
	return st;
}

enum ar_status bench_take_batch(struct bench_load *l, struct ar_err *err)
{
	const struct attn_rows *rows = &l->c->b.rows;
	const struct attn_keys *keys = &l->c->b.keys;
	size_t n = (size_t)rows->n_req;
	const struct {
		const int32_t **to, *from;
		size_t n;
	} array[] = {
		{ &l->b.rows.row0, rows->row0, n + 1 },
		{ &l->b.rows.pos, rows->pos, (size_t)rows->n_row },
		{ &l->b.rows.pos0, rows->pos0, n },
		{ &l->b.rows.qblk0, rows->qblk0, n + 1 },
		{ &l->b.rows.left, rows->left, n },
		{ &l->b.keys.len, keys->len, n },
		{ &l->b.keys.page0, keys->page0, n + 1 },
		{ &l->b.keys.page, keys->page, (size_t)keys->n_page },
	};
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < sizeof array / sizeof *array && !st; i++)
		st = bench_upload(l, array[i].to, array[i].from, array[i].n * sizeof(int32_t), err);
	if (!st && rows->first)
		st = bench_upload(l, &l->b.rows.first, rows->first,
				  (size_t)rows->n_row * sizeof *rows->first, err);
	if (!st && l->c->executor)
		st = take_tiles(l, err);
	return st ? st : take_lists(l, err);
}

/* Add one random row to all queries of a request.  So, as in models, some blocks matter more than
 * others to a whole query block. */
static enum ar_status lean_queries(const struct bench_load *l, struct ar_err *err)
{
	const struct attn_shape *s = &l->b.shape;
	size_t width = (size_t)s->q_heads * (size_t)s->head_dim, rows = l->q_len / width;
	uint64_t seed = rng_mix(l->d->env.seed + 1000);
	bf16_t *q = malloc((l->q_len + width) * sizeof *q), *lean = q + l->q_len;
	enum ar_status st = q ? AR_OK : ar_nomem(err);

	if (st)
		return st;
	layer_fill_ref(q, l->q_len, seed, 0.5f);
	for (size_t i = 0; i < rows; i++) {
		if (i % (rows / (size_t)l->b.rows.n_req) == 0)
			layer_fill_ref(lean, width, rng_mix(seed + i), 1);
		for (size_t j = 0; j < width; j++)
			q[i * width + j] =
				bf16_from_f32(bf16_to_f32(q[i * width + j]) + bf16_to_f32(lean[j]));
	}
	for (int i = 0; i < l->n_set; i++)
		CU(cudaMemcpy(l->q + (size_t)i * l->q_len, q, l->q_len * sizeof *q,
			      cudaMemcpyHostToDevice));
out:
	free(q);
	return st;
}

/* The decodes of BENCH_MIXED, and their work. */
static enum ar_status take_decodes(struct bench_load *l, const struct attn_limits *limits,
				   struct ar_err *err)
{
	const struct attn_batch *all = &l->b;
	struct attn_batch *b = &l->decodes;

	*b = *all;
	b->rows.n_req = b->rows.n_row = b->rows.n_qblk = all->rows.n_req - 1;
	b->rows.pos = all->rows.pos + l->c->b.rows.row0[1];
	b->rows.pos0 = all->rows.pos0 + 1;
	b->rows.row0 = b->rows.qblk0 = NULL; /* not looked at */
	b->rows.left = all->rows.left + 1;
	b->keys.n_page = all->keys.n_page - l->c->b.keys.page0[1];
	b->keys.len = all->keys.len + 1;
	b->keys.page0 = all->keys.page0 + 1;
	return bench_take(l, &l->beside, decode_work_bytes(&all->shape, limits), err);
}

static struct attn_limits limits_of(const struct attn_batch *b)
{
	return (struct attn_limits){ b->rows.n_req, b->rows.n_row, b->keys.max_kv_blk, b->n_sm,
				     b->keys.n_page };
}

/* State and lists of the selector.  Means of past blocks are random; the selector computes the
 * means of the chunk's blocks from the keys. */
static enum ar_status take_selection(struct bench_load *l, struct ar_err *err)
{
	const struct attn_batch *b = &l->b;
	const struct attn_shape *s = &b->shape;
	const struct attn_limits limits = limits_of(b);
	const struct method *m = l->d->method;
	size_t n_mask = (size_t)b->rows.n_qblk * (size_t)s->q_heads;
	size_t n_list = (size_t)b->rows.n_req *
			(size_t)union_groups(union_heads(method_prefill(m)->u, s), s);
	size_t words = (size_t)b->keys.mask_words;
	enum ar_status st = bench_take_random(l, &l->state, l->state_len, 1.5f, err);

	if (!st)
		st = lean_queries(l, err);
	if (!st)
		st = bench_take(l, &l->mask, n_mask * words * sizeof *l->mask, err);
	if (!st)
		st = bench_take(l, &l->table, n_list * words * sizeof *l->table, err);
	if (!st)
		st = bench_take(l, &l->lists.blocks.n, n_list * sizeof *l->lists.blocks.n, err);
	l->lists.blocks.stride = b->keys.max_kv_blk;
	if (!st)
		st = bench_take(l, &l->lists.blocks.block,
				n_list * (size_t)b->keys.max_kv_blk * sizeof *l->lists.blocks.block,
				err);
	if (!st)
		st = bench_take(l, &l->work,
				method_prefill(m)->selector->work_bytes(method_prefill(m)->self, s,
									&limits),
				err);
	return st;
}

static enum ar_status take_case(struct bench_load *l, struct ar_err *err)
{
	const struct attn_shape *s = &l->c->b.shape;
	bool select = l->c->what == BENCH_SELECT;
	size_t n_page = (size_t)l->c->b.keys.page0[l->c->b.rows.n_req];
	size_t dim = (size_t)s->head_dim, kv_row = (size_t)s->kv_heads * dim, read;
	struct attn_limits limits;
	enum ar_status st;

	l->b = l->c->b;
	l->q_len = (size_t)l->b.rows.n_row * (size_t)s->q_heads * dim;
	l->kv_len = n_page * (size_t)s->page_tok * kv_row;
	l->state_len = select ? n_page * kv_row : 0;
	read = select ? l->state_len : 2 * l->kv_len;
	if (bench_decodes(l->c->what))
		read = (size_t)((double)read * (double)l->c->pairs / (double)l->c->dense_pairs);
	l->n_set = bench_sets(l, (l->q_len + read) * sizeof *l->q,
			      (l->q_len + l->state_len + 2 * l->kv_len) * sizeof *l->q);
	st = bench_take_batch(l, err);
	if (!st)
		st = bench_take_random(l, &l->q, l->q_len, 1, err);
	if (!st)
		st = bench_take_random(l, &l->kv.k, l->kv_len, 1, err);
	if (!st && select)
		return take_selection(l, err);
	if (!st)
		st = bench_take_random(l, &l->kv.v, l->kv_len, 1, err);
	if (!st)
		st = bench_take(l, &l->out, l->q_len * sizeof *l->out, err);
	limits = limits_of(&l->b);
	if (!st)
		st = bench_take(l, &l->work,
				bench_decodes(l->c->what) ?
					decode_work_bytes(s, &limits) :
					l->c->executor->work_bytes(s, &limits, l->lists.heads),
				err);
	if (!st && l->c->what == BENCH_MIXED)
		st = take_decodes(l, &limits, err);
	return st;
}

/* ---- steps ---- */

static enum ar_status enqueue_attend(const struct bench_load *l, int set, struct ar_err *err)
{
	struct attn_call call = bench_call(l, set);

	return l->c->executor->enqueue(&call, &l->lists, err);
}

static enum ar_status enqueue_move(const struct bench_load *l, int set, struct ar_err *err)
{
	struct attn_call call = bench_call(l, set);

	return l->c->executor->move(&call, &l->lists, err);
}

static enum ar_status enqueue_decode(const struct bench_load *l, int set, struct ar_err *err)
{
	struct attn_call call = bench_call(l, set);

	return decode_enqueue(&call, 0, &l->lists.blocks, err);
}

static enum ar_status enqueue_mixed(const struct bench_load *l, int set, struct ar_err *err)
{
	struct attn_call call = bench_call(l, set);
	size_t at = (size_t)l->c->b.rows.row0[1] * (size_t)l->b.shape.q_heads *
		    (size_t)l->b.shape.head_dim;
	enum ar_status st = l->c->executor->enqueue(&call, &l->lists, err);

	call.b = &l->decodes;
	call.q += at;
	call.out += at;
	call.work = l->beside;
	call.beside = true;
	return st ? st : decode_enqueue(&call, 0, NULL, err);
}

static enum ar_status enqueue_selection(const struct bench_load *l, int set, struct ar_err *err)
{
	const struct method *m = l->d->method;
	struct attn_call call = bench_call(l, set);

	call.state = l->state + (size_t)set * l->state_len;
	return method_prefill(m)->selector->enqueue(&call, method_prefill(m)->self,
						    &(struct selection){ .mask = l->mask }, err);
}

static enum ar_status enqueue_metadata(const struct bench_load *l, int set, struct ar_err *err)
{
	int heads = union_heads(method_prefill(l->d->method)->u, &l->b.shape);
	struct block_lists lists = l->lists.blocks;
	enum ar_status st = union_enqueue(&l->b, heads, l->mask, l->table, l->d->stream, err);

	(void)set;
	return st ? st :
		    lists_enqueue(l->table, l->b.rows.n_req * union_groups(heads, &l->b.shape),
				  l->b.keys.mask_words, &lists, l->d->stream, err);
}

static enum ar_status launch_product(struct bench_load *l, int set, struct ar_err *err)
{
	struct kv_cache kv = bench_kv_at(l, set);
	const struct gemm_args x = { .n_batch = 1,
				     .m = l->side,
				     .n = l->side,
				     .k = l->side,
				     .a = bench_q_at(l, set),
				     .w = kv.k,
				     .c = l->out };

	bench_stage(l, PHASE_NO_LAYER, PHASE_LINEAR);
	return gemm_run(l->gemm, &x, err);
}

static enum ar_status launch_copy(struct bench_load *l, int set, struct ar_err *err)
{
	struct kv_cache kv = bench_kv_at(l, set);
	enum ar_status st = AR_OK;

	bench_stage(l, PHASE_NO_LAYER, PHASE_COPY);
	CU(cudaMemcpyAsync(kv.v, kv.k, l->kv_len * sizeof *kv.k, cudaMemcpyDeviceToDevice,
			   l->d->stream));
out:
	return st;
}

/* ---- runs ---- */

static const struct {
	struct step step[BENCH_PARTS];
	int n;
} steps[] = {
	[BENCH_DENSE] = { { { PHASE_ATTEND, enqueue_attend } }, 1 },
	[BENCH_PAST] = { { { PHASE_ATTEND, enqueue_attend } }, 1 },
	[BENCH_TABLE] = { { { PHASE_ATTEND, enqueue_attend } }, 1 },
	[BENCH_BLOCKSPARSE] = { { { PHASE_ATTEND, enqueue_attend } }, 1 },
	[BENCH_COPY] = { { { PHASE_COPY, enqueue_move }, { PHASE_ATTEND, enqueue_attend } }, 2 },
	[BENCH_GATHER] = { { { PHASE_COPY, enqueue_move }, { PHASE_ATTEND, enqueue_attend } }, 2 },
	[BENCH_DECODE] = { { { PHASE_DECODE, enqueue_decode } }, 1 },
	[BENCH_DECODE_TABLE] = { { { PHASE_DECODE, enqueue_decode } }, 1 },
	[BENCH_WINDOW] = { { { PHASE_ATTEND, enqueue_attend } }, 1 },
	[BENCH_DECODE_WINDOW] = { { { PHASE_DECODE, enqueue_decode } }, 1 },
	[BENCH_MIXED] = { { { PHASE_ATTEND, enqueue_mixed } }, 1 },
	[BENCH_SELECT] = { { { PHASE_SELECT, enqueue_selection },
			     { PHASE_METADATA, enqueue_metadata } },
			   2 },
};

static enum ar_status launch_case(struct bench_load *l, int set, struct ar_err *err)
{
	const struct step *step = steps[l->c->what].step;
	enum ar_status st = AR_OK;

	for (int k = 0; k < steps[l->c->what].n && !st; k++) {
		bench_stage(l, PHASE_NO_LAYER, step[k].phase);
		st = step[k].enqueue(l, set, err);
	}
	return st;
}

/* Launch set 0 once more, as the outputs may be another set's, and check it. */
static enum ar_status check_outputs(struct bench_load *l, struct bench_result *r,
				    struct ar_err *err)
{
	enum ar_status st = bench_launch(l, launch_case, -1, 0, err);

	if (st)
		return st;
	CU(cudaStreamSynchronize(l->d->stream));
	st = l->c->what == BENCH_SELECT ? bench_check_selection(l, r, err) :
					  bench_check_rows(l, &r[steps[l->c->what].n - 1], err);
out:
	return st;
}

enum ar_status bench_run(struct bench_device *d, const struct bench_case *c,
			 struct bench_result result[BENCH_PARTS], struct ar_err *err)
{
	struct bench_load l = { .d = d, .c = c };
	enum ar_status st = take_case(&l, err);

	if (!st)
		st = bench_measure(&l, launch_case, result, err);
	if (!st && d->env.sample)
		st = check_outputs(&l, result, err);
	load_release(&l);
	return st;
}

enum ar_status bench_product(struct bench_device *d, int n, struct bench_result *r,
			     struct ar_err *err)
{
	size_t len = (size_t)n * (size_t)n;
	struct bench_load l = { .d = d, .side = n, .q_len = len, .kv_len = len };
	enum ar_status st = gemm_open(&l.gemm, d->stream, err);

	l.n_set = bench_sets(&l, 2 * len * sizeof *l.q, 2 * len * sizeof *l.q);
	if (!st)
		st = bench_take_random(&l, &l.q, len, 1, err);
	if (!st)
		st = bench_take_random(&l, &l.kv.k, l.kv_len, 1, err);
	if (!st)
		st = bench_take(&l, &l.out, len * sizeof *l.out, err);
	if (!st)
		st = bench_measure(&l, launch_product, r, err);
	load_release(&l);
	return st;
}

enum ar_status bench_copy(struct bench_device *d, int n, struct bench_result *r, struct ar_err *err)
{
	size_t len = (size_t)n * (size_t)n;
	struct bench_load l = { .d = d, .kv_len = len };
	enum ar_status st;

	l.n_set = bench_sets(&l, len * sizeof *l.kv.k, 2 * len * sizeof *l.kv.k);
	st = bench_take_random(&l, &l.kv.k, l.kv_len, 1, err);
	if (!st)
		st = bench_take_random(&l, &l.kv.v, len, 1, err);
	if (!st)
		st = bench_measure(&l, launch_copy, r, err);
	load_release(&l);
	return st;
}
