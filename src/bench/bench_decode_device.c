/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_decode.h"

#include <stdlib.h>

#include "kernels/methods/selection_count.h"
#include "kernels/prim/cuda.h"
#include "src/bench/bench_load.h"

/* Batches over the same keys: of a row each, of whole requests, and of a chunk. */
enum { ROWS, WHOLE, CHUNK, BATCHES };

struct load {
	struct bench_load l; /* first: launches get a pointer to it */
	const struct method_part *part;
	struct bench_case c[BATCHES];
	size_t state_bytes, prune_bytes; /* of a set */
	char *state, *prune_state;
	void *lists; /* that pass between layers */
	int keep;    /* allocations that serve every batch */
};

static struct attn_call call_of(struct load *x, int set)
{
	struct attn_call call = bench_call(&x->l, set);

	call.state = x->state ? x->state + (size_t)set * x->state_bytes : NULL;
	call.prune_state = x->prune_state ? x->prune_state + (size_t)set * x->prune_bytes : NULL;
	call.lists = x->lists;
	call.next = x->l.c == &x->c[ROWS];
	return call;
}

static enum ar_status launch_append(struct bench_load *l, int set, struct ar_err *err)
{
	struct load *x = (struct load *)l;
	struct attn_call call = call_of(x, set);

	return method_append(x->part, &call, bench_stage, l, err);
}

static enum ar_status launch_rows(struct bench_load *l, int set, struct ar_err *err)
{
	struct load *x = (struct load *)l;
	struct attn_call call = call_of(x, set);
	enum ar_status st = launch_append(l, set, err);

	return st ? st : method_enqueue(x->part, &call, bench_stage, l, err);
}

/* Batch i becomes the one that launches run. */
static enum ar_status use(struct load *x, int i, struct ar_err *err)
{
	bench_drop(&x->l, x->keep);
	x->l.c = &x->c[i];
	x->l.b = x->c[i].b;
	return bench_take_batch(&x->l, err);
}

static enum ar_status make_cases(struct load *x, const struct bench_shape *s, struct ar_err *err)
{
	const uint64_t seed = x->l.d->env.seed;
	struct bench_shape whole = *s, one = *s;
	enum ar_status st;

	whole.chunk = s->context;
	one.batch = 1;
	st = bench_case_make(&x->c[ROWS], BENCH_DECODE, s, 1, seed, err);
	if (!st)
		st = bench_case_make(&x->c[WHOLE], BENCH_DENSE, &whole, 1, seed, err);
	if (!st)
		st = bench_case_make(&x->c[CHUNK], BENCH_DENSE, &one, 1, seed, err);
	for (int i = 0; i < BATCHES; i++)
		x->c[i].executor = NULL; /* there are no tiles */
	return st;
}

static enum ar_status take_memory(struct load *x, struct ar_err *err)
{
	struct bench_load *l = &x->l;
	const struct attn_batch *b = &x->c[ROWS].b;
	const struct attn_shape *s = &b->shape;
	const struct attn_limits most = { b->rows.n_req, b->rows.n_row, b->keys.max_kv_blk, 0,
					  b->keys.n_page };
	const size_t dim = (size_t)s->head_dim, n_page = (size_t)b->keys.n_page;
	size_t read;
	enum ar_status st;

	l->q_len = (size_t)(b->rows.n_row * s->q_heads) * dim;
	l->kv_len = n_page * (size_t)(s->page_tok * s->kv_heads) * dim;
	x->state_bytes = n_page * method_state_bytes(x->part, s);
	x->prune_bytes = x->part->prune ? n_page * method_state_bytes(x->part->prune, s) : 0;
	read = x->part->dense ? 2 * l->kv_len * sizeof *l->q : x->state_bytes + l->kv_len / 8;
	l->n_set = bench_sets(l, read,
			      (l->q_len + 2 * l->kv_len) * sizeof *l->q + x->state_bytes +
				      x->prune_bytes);
	st = bench_take_random(l, &l->q, l->q_len, 1, err);
	if (!st)
		st = bench_take_random(l, &l->kv.k, l->kv_len, 1, err);
	if (!st)
		st = bench_take_random(l, &l->kv.v, l->kv_len, 1, err);
	if (!st && x->state_bytes)
		st = bench_take(l, &x->state, (size_t)l->n_set * x->state_bytes, err);
	if (!st && x->prune_bytes)
		st = bench_take(l, &x->prune_state, (size_t)l->n_set * x->prune_bytes, err);
	if (!st)
		st = bench_take(l, &l->out, l->q_len * sizeof *l->out, err);
	if (!st)
		st = bench_take(l, &l->work, method_work_bytes(x->part, s, &most), err);
	if (!st && method_lists_bytes(x->part, s, &most))
		st = bench_take(l, &x->lists, method_lists_bytes(x->part, s, &most), err);
	x->keep = l->n_alloc;
	return st;
}

/* Make the state of all keys, and measure that of a chunk. */
static enum ar_status run_state(struct load *x, struct bench_decode *out, struct ar_err *err)
{
	struct bench_result r[BENCH_STAGES];
	const bool states = x->state || x->prune_state;
	enum ar_status st = states ? use(x, WHOLE, err) : AR_OK;

	if (!states)
		return st;
	for (int i = 0; i < x->l.n_set && !st; i++)
		st = bench_launch(&x->l, launch_append, -1, i, err);
	if (st)
		return st;
	CU(cudaStreamSynchronize(x->l.d->stream));
	st = use(x, CHUNK, err);
	if (!st)
		st = bench_measure(&x->l, launch_append, r, err);
	if (!st)
		out->chunk_us = r->us;
out:
	return st;
}

static enum ar_status run_rows(struct load *x, struct bench_decode *out, struct ar_err *err)
{
	struct bench_result r[BENCH_STAGES];
	enum ar_status st = use(x, ROWS, err);

	if (!st)
		st = bench_measure(&x->l, launch_rows, r, err);
	for (int k = 0; k < x->l.n_stage && !st; k++) {
		double *us = x->l.stage[k] == PHASE_META   ? &out->append_us :
			     x->l.stage[k] == PHASE_DECODE ? &out->decode_us :
							     &out->select_us;

		*us += r[k].us;
		out->event_us += r[k].event_us;
		out->traced &= r[k].traced;
	}
	return st;
}

/* Let the part choose once; those that are measured from here on take its lists. */
static enum ar_status choose_once(struct load *x, const struct method_part *takes,
				  struct ar_err *err)
{
	enum ar_status st = use(x, ROWS, err);

	if (!st)
		st = bench_launch(&x->l, launch_rows, -1, 0, err);
	x->part = takes;
	return st;
}

static enum ar_status count(struct load *x, struct selection_count *sum, struct ar_err *err)
{
	const struct attn_batch *b = &x->c[ROWS].b;
	const struct attn_call call = call_of(x, 0);
	struct selection_count *each = calloc((size_t)b->shape.kv_heads, sizeof *each);
	enum ar_status st = each ? AR_OK : ar_nomem(err);

	if (!st)
		st = method_count_device(x->part, b, method_room(x->part, &call), each, err);
	for (int i = 0; i < b->shape.kv_heads && !st; i++)
		selection_add(sum, &each[i], 1);
	free(each);
	return st;
}

enum ar_status bench_decode_run(struct bench_device *d, const struct method *m, bool takes,
				const struct bench_shape *s, struct bench_decode *out,
				struct ar_err *err)
{
	const struct method_part *part = &m->part[ROW_DECODE];
	struct load x = { .l = { .d = d }, .part = part };
	enum ar_status st = make_cases(&x, s, err);

	x.c[ROWS].b.skip = skip_of(m->skip, ROW_DECODE, &x.c[ROWS].b.shape);
	*out = (struct bench_decode){ .traced = true };
	if (!st)
		st = take_memory(&x, err);
	if (!st)
		st = run_state(&x, out, err);
	if (!st && takes)
		st = choose_once(&x, &m->later->part[ROW_DECODE], err);
	if (takes)
		out->chunk_us = 0;
	if (!st)
		st = run_rows(&x, out, err);
	if (!st && !part->dense)
		st = count(&x, &out->count, err);
	bench_drop(&x.l, 0);
	for (int i = 0; i < BATCHES; i++)
		bench_case_release(&x.c[i]);
	return st;
}
