/* SPDX-License-Identifier: Apache-2.0 */
/* The results of a benchmark against the references: a sample of output rows, and the masks and
 * tables of one request. */
#include "config.h"
#include "src/bench/bench_load.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "kernels/prim/cuda.h"

enum { ROWS_PER_HEAD = 4 };

/* One request and KV head: keys and values in order on the host, and a row of q and of out. */
struct desk {
	bf16_t *k, *v, *q, *out;
	double *ref;
};

static enum ar_status gather(const struct bench_load *l, int req, int kv_head, const struct desk *t,
			     struct ar_err *err)
{
	const struct attn_batch *b = &l->c->b;
	size_t blk = (size_t)(b->shape.page_tok * b->shape.head_dim);
	enum ar_status st = AR_OK;

	for (int j = 0; j < b->keys.page0[req + 1] - b->keys.page0[req]; j++) {
		size_t page = (size_t)b->keys.page[b->keys.page0[req] + j];
		size_t at = (page * (size_t)b->shape.kv_heads + (size_t)kv_head) * blk;

		CU(cudaMemcpy(t->k + (size_t)j * blk, l->kv.k + at, blk * sizeof *t->k,
			      cudaMemcpyDeviceToHost));
		CU(cudaMemcpy(t->v + (size_t)j * blk, l->kv.v + at, blk * sizeof *t->v,
			      cudaMemcpyDeviceToHost));
	}
	bench_pack(l->c, req, kv_head, t->k);
	bench_pack(l->c, req, kv_head, t->v);
out:
	return st;
}

/* Add to error: [0] squared differences, [1] squares of the reference.  [2]: largest difference. */
static enum ar_status compare_row(const struct bench_load *l, int req, int row, int head,
				  const struct desk *t, double error[3], struct ar_err *err)
{
	const struct attn_batch *b = &l->c->b;
	size_t dim = (size_t)b->shape.head_dim, at;
	enum ar_status st = AR_OK;
	const uint16_t *block;
	int n = bench_list(l->c, req, row, head, &block);

	at = ((size_t)(b->rows.row0[req] + row) * (size_t)b->shape.q_heads + (size_t)head) * dim;
	CU(cudaMemcpy(t->q, l->q + at, dim * sizeof *t->q, cudaMemcpyDeviceToHost));
	CU(cudaMemcpy(t->out, l->out + at, dim * sizeof *t->out, cudaMemcpyDeviceToHost));
	bench_row_ref(&b->shape, t->q, t->k, t->v, block, n,
		      bench_first(l->c, b->rows.row0[req] + row),
		      bench_position(l->c, req, row, head), t->ref);
	for (size_t i = 0; i < dim; i++) {
		double off = bf16_to_f32(t->out[i]) - t->ref[i];

		error[0] += off * off;
		error[1] += t->ref[i] * t->ref[i];
		if (!(fabs(off) <= error[2])) /* not a number counts as well */
			error[2] = fabs(off);
	}
out:
	return st;
}

/* Check sampled rows: the last row of a random request, then ROWS_PER_HEAD - 1 random rows of it.
 * All are under one random KV head. */
enum ar_status bench_check_rows(const struct bench_load *l, struct bench_result *r,
				struct ar_err *err)
{
	const struct attn_batch *b = &l->c->b;
	const struct attn_shape *s = &b->shape;
	size_t dim = (size_t)s->head_dim, n = (size_t)(b->keys.max_kv_blk * s->page_tok) * dim;
	struct rng rng = { rng_mix(l->d->env.seed + 2000) };
	int group = s->q_heads / s->kv_heads, req = 0, kv_head = 0;
	struct desk t = { .k = malloc((2 * n + 2 * dim) * sizeof *t.k),
			  .ref = malloc(dim * sizeof *t.ref) };
	double error[3] = { 0 };
	enum ar_status st = t.k && t.ref ? AR_OK : ar_nomem(err);

	if (st)
		goto out;
	t.v = t.k + n, t.q = t.v + n, t.out = t.q + dim;
	for (int i = 0; i < l->d->env.sample && !st; i++) {
		int row;

		if (i % ROWS_PER_HEAD == 0) {
			req = (int)rng_below(&rng, (uint64_t)b->rows.n_req);
			kv_head = (int)rng_below(&rng, (uint64_t)s->kv_heads);
			row = attn_n_row(&b->rows, req) - 1;
			st = gather(l, req, kv_head, &t, err);
		} else {
			row = (int)rng_below(&rng, (uint64_t)attn_n_row(&b->rows, req));
		}
		if (!st)
			st = compare_row(l, req, row,
					 kv_head * group + (int)rng_below(&rng, (uint64_t)group),
					 &t, error, err);
	}
	r->rel_l2 = sqrt(error[0] / error[1]);
	r->max_abs = error[2];
out:
	free(t.k);
	free(t.ref);
	return st;
}

/* Request 0 alone, its pages in order, for the selector's reference. */
struct alone {
	struct attn_batch b;
	int32_t *page;
	bf16_t *q, *k, *state;
	uint32_t *mask, *ref, *table, *table_ref;
	struct selection_count *count;
};

static void alone_release(struct alone *a)
{
	free(a->page);
	free(a->q);
	free(a->k);
	free(a->state);
	free(a->mask);
	free(a->ref);
	free(a->table);
	free(a->table_ref);
	free(a->count);
}

static enum ar_status alone_init(struct alone *a, const struct bench_load *l, int groups,
				 struct ar_err *err)
{
	const struct attn_shape *s = &l->c->b.shape;
	size_t n = (size_t)l->c->b.keys.page0[1], kv_row = (size_t)(s->kv_heads * s->head_dim);
	size_t words = (size_t)l->b.keys.mask_words;
	size_t n_mask = (size_t)l->c->b.rows.qblk0[1] * (size_t)s->q_heads * words;

	a->b = l->c->b;
	a->b.rows.n_req = 1;
	a->b.rows.n_row = a->b.rows.row0[1];
	a->b.rows.n_qblk = a->b.rows.qblk0[1];
	a->page = malloc(n * sizeof *a->page);
	a->q = malloc(l->q_len / (size_t)l->b.rows.n_req * sizeof *a->q);
	a->k = calloc(n * (size_t)s->page_tok * kv_row, sizeof *a->k);
	a->state = malloc(n * kv_row * sizeof *a->state);
	a->mask = malloc(n_mask * sizeof *a->mask);
	a->ref = malloc(n_mask * sizeof *a->ref);
	a->table = malloc((size_t)groups * words * sizeof *a->table);
	a->table_ref = malloc((size_t)groups * words * sizeof *a->table_ref);
	a->count = calloc((size_t)s->kv_heads, sizeof *a->count);
	if (!a->page || !a->q || !a->k || !a->state || !a->mask || !a->ref || !a->table ||
	    !a->table_ref || !a->count)
		return ar_nomem(err);
	for (size_t i = 0; i < n; i++)
		a->page[i] = (int32_t)i;
	a->b.keys.page = a->page;
	return AR_OK;
}

/* Copy request 0 from the device; keys of the chunk's blocks only. */
static enum ar_status alone_fetch(struct alone *a, const struct bench_load *l, int groups,
				  struct ar_err *err)
{
	const struct attn_batch *b = &l->c->b;
	const struct attn_shape *s = &b->shape;
	size_t kv_row = (size_t)(s->kv_heads * s->head_dim), page = (size_t)s->page_tok * kv_row;
	size_t words = (size_t)b->keys.mask_words * sizeof *a->mask;
	enum ar_status st = AR_OK;

	for (size_t j = 0; j < (size_t)b->keys.page0[1]; j++) {
		size_t from = (size_t)b->keys.page[j];

		CU(cudaMemcpy(a->state + j * kv_row, l->state + from * kv_row,
			      kv_row * sizeof *a->state, cudaMemcpyDeviceToHost));
		if ((int)j >= b->rows.pos0[0] / s->page_tok)
			CU(cudaMemcpy(a->k + j * page, l->kv.k + from * page, page * sizeof *a->k,
				      cudaMemcpyDeviceToHost));
	}
	CU(cudaMemcpy(a->q, l->q, l->q_len / (size_t)b->rows.n_req * sizeof *a->q,
		      cudaMemcpyDeviceToHost));
	CU(cudaMemcpy(a->mask, l->mask, (size_t)(b->rows.qblk0[1] * s->q_heads) * words,
		      cudaMemcpyDeviceToHost));
	CU(cudaMemcpy(a->table, l->table, (size_t)groups * words, cudaMemcpyDeviceToHost));
out:
	return st;
}

static double bits_off(const uint32_t *x, const uint32_t *y, size_t n_word)
{
	int64_t n = 0;

	for (size_t i = 0; i < n_word; i++)
		n += __builtin_popcount(x[i] ^ y[i]);
	return (double)n / (32.0 * (double)n_word);
}

enum ar_status bench_check_selection(const struct bench_load *l, struct bench_result r[BENCH_PARTS],
				     struct ar_err *err)
{
	const struct method *m = l->d->method;
	const struct attn_shape *s = &l->b.shape;
	int heads = union_heads(method_prefill(m)->u, s), groups = union_groups(heads, s);
	struct selection_count sum = { 0 };
	struct alone a = { 0 };
	struct kv_cache kv;
	enum ar_status st = alone_init(&a, l, groups, err);

	if (!st)
		st = alone_fetch(&a, l, groups, err);
	if (st)
		goto out;
	kv = (struct kv_cache){ .k = a.k };
	st = method_prefill(m)->selector->ref(
		&(struct attn_call){ .b = &a.b, .q = a.q, .kv = kv, .state = a.state },
		method_prefill(m)->self, &(struct selection){ .mask = a.ref }, err);
	if (st)
		goto out;
	union_ref(&a.b, heads, a.mask, a.table_ref);
	r[0].bits_off = bits_off(a.mask, a.ref,
				 (size_t)(a.b.rows.n_qblk * s->q_heads * a.b.keys.mask_words));
	r[1].bits_off = bits_off(a.table, a.table_ref, (size_t)(groups * a.b.keys.mask_words));
	st = method_count(method_prefill(m), &a.b, &(struct selection){ .mask = a.mask }, a.table,
			  a.count, err);
	if (st)
		goto out;
	for (int i = 0; i < s->kv_heads; i++)
		selection_add(&sum, &a.count[i], 1);
	r[0].kept = (double)sum.tiles_sel / (double)sum.tiles_total;
	r[1].kept = (double)sum.group_sel / (double)sum.group_total;
out:
	alone_release(&a);
	return st;
}
