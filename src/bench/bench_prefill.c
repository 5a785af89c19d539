/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set holds K and V of whole prompts, Q of one chunk and the selector's state.  All sets hold the
 * same values at different addresses, so that the L2 cache holds none of them.  The row kernels of
 * a layer fill them from the inputs, as in a replay.
 */
#include "config.h"
#include "src/bench/bench_prefill.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/workspace.h"
#include "kernels/layer/layer.h"
#include "kernels/prim/cuda.h"
#include "model/rope.h"
#include "src/bench/bench_load.h"
#include "src/bench/bench_sample.h"

enum { STATE_TOK = 1024, FILL_TOK = 4096, MOST_SETS = 8 };
static const size_t busy_len = (size_t)128 << 20;

struct bench_prefill {
	struct bench_load l;	 /* first: launch() gets a pointer to it */
	struct bench_case whole; /* the last chunk; has the pages of whole prompts */
	struct plan *plan;
	struct method *m, *dense; /* m is the plan's */
	struct bench_input input; /* its data is on the device */
	size_t state_bytes;	  /* of a set */
	char *state;
	int n_kept; /* allocations that live as long as the prefill */

	struct layer_seq seq;

	/* On the device. */
	float *trig;
	struct layer_angles angles;
	struct layer_row *row; /* [max_row] */
	bf16_t *k, *dense_out; /* [max_row] */
	void *dense_work;
	struct drop_kept kept; /* of the dropper */
	int32_t *tok;	       /* [batch] tokens of the chunk */
	int max_row;
};

/* ---- rows ---- */

/* Upload rows for the positions [pos, pos + n) of the requests [r0, r1). */
static enum ar_status upload_rows(struct bench_prefill *p, int r0, int r1, int pos, int n,
				  struct ar_err *err)
{
	const struct bench_input *input = &p->input;
	const struct attn_batch *w = &p->whole.b;
	int tok = w->shape.page_tok;
	size_t bytes = (size_t)(r1 - r0) * (size_t)n * sizeof(struct layer_row);
	struct layer_row *row = malloc(bytes), *to = row;
	enum ar_status st = row ? AR_OK : ar_nomem(err);

	if (st)
		return st;
	for (int r = r0; r < r1; r++)
		for (int i = pos; i < pos + n; i++, to++) {
			int at = (int)(i % input->n_tok);

			to->tok = at;
			to->rotation = input->rope_applied ? i - at : i;
			to->slot = w->keys.page[w->keys.page0[r] + i / tok] * tok + i % tok;
		}
	CU(cudaMemcpy(p->row, row, bytes, cudaMemcpyHostToDevice));
out:
	free(row);
	return st;
}

/* Write Q of the rows to q and their K to p->k, both after RoPE. */
static enum ar_status rope_rows(struct bench_prefill *p, int n_row, bf16_t *q, struct ar_err *err)
{
	assert(n_row <= p->max_row);
	return layer_rope(&p->whole.b.shape, &p->seq, 0, p->row, n_row, &p->angles, q, p->k,
			  p->l.d->stream, err);
}

static enum ar_status fill_cache(struct bench_prefill *p, struct ar_err *err)
{
	const struct attn_batch *w = &p->whole.b;
	struct kv_cache kv = bench_kv_at(&p->l, 0);
	size_t bytes = p->l.kv_len * sizeof *kv.k;
	int end = w->keys.len[0];
	enum ar_status st = AR_OK;

	CU(cudaMemsetAsync(kv.k, 0, bytes, p->l.d->stream));
	CU(cudaMemsetAsync(kv.v, 0, bytes, p->l.d->stream));
	for (int r = 0; r < w->rows.n_req && !st; r++)
		for (int pos = 0; pos < end && !st; pos += FILL_TOK) {
			int n = end - pos < FILL_TOK ? end - pos : FILL_TOK;

			st = upload_rows(p, r, r + 1, pos, n, err);
			if (!st)
				st = rope_rows(p, n, p->l.q, err);
			if (!st)
				st = layer_cache(&w->shape, &p->seq, 0, p->row, n, p->k, &kv,
						 p->l.d->stream, err);
		}
	if (st)
		goto out;
	for (int i = 1; i < p->l.n_set; i++) {
		struct kv_cache to = bench_kv_at(&p->l, i);

		CU(cudaMemcpyAsync(to.k, kv.k, bytes, cudaMemcpyDeviceToDevice, p->l.d->stream));
		CU(cudaMemcpyAsync(to.v, kv.v, bytes, cudaMemcpyDeviceToDevice, p->l.d->stream));
	}
out:
	return st;
}

/* Write Q of the chunk [ctx, ctx + n) to the first n_set sets. */
static enum ar_status fill_queries(struct bench_prefill *p, int ctx, int n, int n_set,
				   struct ar_err *err)
{
	int n_req = p->whole.b.rows.n_req;
	enum ar_status st = upload_rows(p, 0, n_req, ctx, n, err);

	if (!st)
		st = rope_rows(p, n_req * n, p->l.q, err);
	if (st)
		return st;
	for (int i = 1; i < n_set; i++)
		CU(cudaMemcpyAsync(p->l.q + (size_t)i * p->l.q_len, p->l.q,
				   p->l.q_len * sizeof *p->l.q, cudaMemcpyDeviceToDevice,
				   p->l.d->stream));
out:
	return st;
}

/* ---- a chunk ---- */

/* The dropper reads how long the chunks of all requests are. */
static enum ar_status take_tokens(const struct bench_prefill *p, int n, struct ar_err *err)
{
	int n_req = p->whole.b.rows.n_req;
	int32_t *tok = malloc((size_t)n_req * sizeof *tok);
	enum ar_status st = tok ? AR_OK : ar_nomem(err);

	if (st)
		return st;
	for (int r = 0; r < n_req; r++)
		tok[r] = n;
	CU(cudaMemcpy(p->tok, tok, (size_t)n_req * sizeof *tok, cudaMemcpyHostToDevice));
out:
	free(tok);
	return st;
}

/* Make c, the chunk [ctx, ctx + n) under m, and take its batch into l. */
static enum ar_status take_chunk(const struct bench_prefill *p, const struct method *m,
				 struct bench_load *l, struct bench_case *c, int ctx, int n,
				 struct ar_err *err)
{
	enum ar_status st = bench_case_chunk(c, &p->whole, ctx, n, err);

	if (st)
		return st;
	c->executor = m->executor;
	c->lists.heads = method_table_heads(m, &c->b.shape);
	c->b.tail = method_tail(m);
	l->c = c;
	l->b = c->b;
	return bench_take_batch(l, err);
}

static char *state_at(const struct bench_prefill *p, int set)
{
	return p->state ? p->state + (size_t)set * p->state_bytes : NULL;
}

static enum ar_status launch(struct bench_load *l, int set, struct ar_err *err)
{
	struct bench_prefill *p = (struct bench_prefill *)l;
	struct attn_call call = bench_call(l, set);
	enum ar_status st;

	call.layer = p->input.layer;
	call.state = state_at(p, set);
	st = method_enqueue(p->m, &call, bench_stage, l, err);
	if (st || !p->plan->drop)
		return st;
	bench_stage(l, call.layer, PHASE_DROP);
	return drop_enqueue(p->plan->drop, &(struct drop_call){ &call, p->tok, l->b.rows.n_row },
			    &p->kept, err);
}

/* ---- the selector's state ---- */

static enum ar_status show_batch(const struct bench_prefill *p, struct ar_err *err)
{
	struct attn_call call = bench_call(&p->l, 0);

	call.layer = p->input.layer;
	call.state = p->state;
	return method_choose(p->m, &call, err);
}

static enum ar_status show_chunk(struct bench_prefill *p, int ctx, int n, struct ar_err *err)
{
	struct bench_load *l = &p->l;
	int keep = l->n_alloc;
	struct bench_case c = { 0 };
	enum ar_status st = take_chunk(p, p->m, l, &c, ctx, n, err);

	if (!st)
		st = fill_queries(p, ctx, n, 1, err);
	if (!st)
		st = show_batch(p, err);
	bench_drop(l, keep);
	bench_case_release(&c);
	return st;
}

/* Show the selector all tokens before the last chunk, some at a time, as a prefill does. */
static enum ar_status fill_state(struct bench_prefill *p, struct ar_err *err)
{
	int end = p->whole.b.rows.pos0[0], step = p->max_row / p->whole.b.rows.n_req;
	enum ar_status st = AR_OK;

	CU(cudaMemsetAsync(p->state, 0, p->state_bytes, p->l.d->stream));
	for (int ctx = 0; ctx < end && !st; ctx += step)
		st = show_chunk(p, ctx, end - ctx < step ? end - ctx : step, err);
	for (int i = 1; i < p->l.n_set && !st; i++)
		CU(cudaMemcpyAsync(state_at(p, i), p->state, p->state_bytes,
				   cudaMemcpyDeviceToDevice, p->l.d->stream));
out:
	return st;
}

/* ---- memory ---- */

static enum ar_status take_input(struct bench_prefill *p, struct ar_err *err)
{
	const struct bench_input *input = &p->input;
	const struct attn_batch *w = &p->whole.b;
	const struct attn_shape *s = &w->shape;
	int end = w->keys.len[0];
	bool needs_rope = !input->rope_applied || end > input->n_tok;
	float inv[CAPTURE_MAX_DIM / 2], *dev;
	size_t n = (size_t)(s->q_heads + 2 * s->kv_heads) * (size_t)input->n_tok *
		   (size_t)s->head_dim;
	int dim = rope_dim(&input->rope, s->head_dim), half = dim / 2;
	int n_rotation = needs_rope ? end : 1;
	double factor = input->rope_applied ? 1 : rope_attention_factor(&input->rope);
	enum ar_status st = bench_upload(&p->l, &p->seq.data, input->data, n * sizeof *input->data,
					 err);

	p->seq.n_tok = input->n_tok;
	if (!st)
		st = bench_take(&p->l, &p->trig,
				(size_t)n_rotation * (size_t)half * 2 * sizeof *p->trig, err);
	if (!st)
		st = bench_take(&p->l, &p->row, (size_t)p->max_row * sizeof *p->row, err);
	if (!st)
		st = bench_take(&p->l, &p->k,
				(size_t)p->max_row * (size_t)s->kv_heads * (size_t)s->head_dim *
					sizeof *p->k,
				err);
	if (st)
		return st;
	rope_inv_freq(&input->rope, dim, inv);
	p->angles = (struct layer_angles){ p->trig, dim, 1 };
	st = bench_upload(&p->l, &dev, inv, (size_t)half * sizeof *dev, err);
	return st ? st :
		    layer_trig(dev, half, n_rotation, (float)factor, p->trig, p->l.d->stream, err);
}

static enum ar_status take_sets(struct bench_prefill *p, struct ar_err *err)
{
	struct bench_load *l = &p->l;
	const struct attn_batch *w = &p->whole.b;
	size_t q = l->q_len * sizeof *l->q, kv = l->kv_len * sizeof *l->q, n;
	size_t rows = (size_t)w->rows.n_row * (size_t)(w->shape.kv_heads * w->shape.head_dim);
	enum ar_status st;

	/* The first chunk reads no more than itself. */
	l->n_set = bench_sets(l, q + 2 * rows * sizeof *l->q, q + 2 * kv + p->state_bytes);
	l->n_set = l->n_set < MOST_SETS ? l->n_set : MOST_SETS;
	n = (size_t)l->n_set;
	st = bench_take(l, &l->q, n * q, err);
	if (!st)
		st = bench_take(l, &l->kv.k, n * kv, err);
	if (!st)
		st = bench_take(l, &l->kv.v, n * kv, err);
	if (!st && p->state_bytes)
		st = bench_take(l, &p->state, n * p->state_bytes, err);
	if (!st)
		st = bench_take(l, &l->out, q, err);
	if (!st && l->d->env.sample)
		st = bench_take(l, &p->dense_out, q, err);
	return st;
}

/* What the dropper writes and reads. */
static enum ar_status take_kept(struct bench_prefill *p, struct ar_err *err)
{
	size_t rows = (size_t)p->max_row, n_req = (size_t)p->whole.b.rows.n_req;
	enum ar_status st = bench_take(&p->l, &p->kept.keep, rows * sizeof *p->kept.keep, err);

	if (!st)
		st = bench_take(&p->l, &p->kept.n_keep, n_req * sizeof *p->kept.n_keep, err);
	if (!st)
		st = bench_take(&p->l, &p->kept.index, rows * sizeof *p->kept.index, err);
	if (!st)
		st = bench_take(&p->l, &p->tok, n_req * sizeof *p->tok, err);
	return st;
}

static enum ar_status take_all(struct bench_prefill *p, struct ar_err *err)
{
	struct bench_load *l = &p->l;
	const struct attn_batch *w = &p->whole.b;
	const struct attn_shape *s = &w->shape;
	size_t n_page = (size_t)w->keys.n_page, work;
	struct attn_limits limits = { w->rows.n_req, p->max_row, w->keys.max_kv_blk, 0,
				      w->keys.n_page };
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);

	if (!st)
		limits.n_sm = executor_n_sm(p->m->executor, s, gpu);
	l->q_len = (size_t)p->max_row * (size_t)(s->q_heads * s->head_dim);
	l->kv_len = n_page * (size_t)(s->page_tok * s->kv_heads * s->head_dim);
	p->state_bytes = workspace_aligned(n_page * method_state_bytes(p->m, s));
	l->busy_len = busy_len;
	if (!st)
		st = take_input(p, err);
	if (!st)
		st = bench_take(l, &l->busy, l->busy_len * sizeof *l->busy, err);
	work = method_work_bytes(p->m, s, &limits);
	if (!st && p->plan->drop) {
		size_t drop = drop_work_bytes(p->plan->drop, s, &limits);

		work = drop > work ? drop : work;
		st = take_kept(p, err);
	}
	if (!st)
		st = bench_take(l, &l->work, work, err);
	if (!st && l->d->env.sample)
		st = bench_take(l, &p->dense_work, method_work_bytes(p->dense, s, &limits), err);
	if (!st)
		st = take_sets(p, err);
	if (!st)
		st = fill_cache(p, err);
	if (!st && p->state)
		st = fill_state(p, err);
	p->n_kept = l->n_alloc;
	return st;
}

/* Free *plan even after a failure. */
static enum ar_status open_method(const struct bench_input *input, const char *text,
				  struct plan **plan, struct ar_err *err)
{
	float inv[CAPTURE_MAX_DIM / 2];
	const char *more = rope_besides_angles(&input->rope);
	struct selector_env env = {
		.shape = input->shape,
		.n_layers = input->n_layers,
		.rope_inv = input->rope.theta > 0 && !more ? inv : NULL,
		.rope_unknown = more,
		.device = true,
		.repeats = input->repeats,
	};
	enum ar_status st = bench_plan(plan, text, err);

	if (!st)
		st = bench_plan_drop(*plan, input->layer, err);
	if (st)
		return st;
	rope_inv_freq(&input->rope, input->shape.head_dim, inv);
	env.shape.page_tok = method_page_tok(plan_single(*plan));
	return method_open(plan_single(*plan), &env, err);
}

enum ar_status bench_prefill_open(struct bench_prefill **out, struct bench_device *d,
				  const char *method, const struct bench_shape *s,
				  const struct bench_input *input, struct ar_err *err)
{
	struct bench_prefill *p = calloc(1, sizeof *p);
	struct bench_shape shape = *s;
	enum ar_status st;

	*out = NULL;
	if (!p)
		return ar_nomem(err);
	p->l.d = d;
	p->input = *input;
	st = open_method(input, method, &p->plan, err);
	if (!st)
		st = method_parse(&p->dense, "dense", err);
	if (st)
		goto out;
	p->m = plan_single(p->plan);
	shape.page_tok = method_page_tok(p->m);
	p->max_row = (int)(s->batch * (s->chunk > STATE_TOK ? s->chunk : STATE_TOK));
	p->max_row = p->max_row > FILL_TOK ? p->max_row : FILL_TOK;
	st = bench_case_make(&p->whole, BENCH_DENSE, &shape, 1, d->env.seed, err);
	if (!st)
		st = take_all(p, err);
out:
	if (st)
		bench_prefill_close(p);
	else
		*out = p;
	return st;
}

enum ar_status bench_prefill_use(struct bench_prefill *p, const char *method, struct ar_err *err)
{
	struct plan *plan = NULL;
	enum ar_status st = open_method(&p->input, method, &plan, err);

	if (st) {
		plan_free(plan);
		return st;
	}
	plan_free(p->plan);
	p->plan = plan;
	p->m = plan_single(plan);
	return AR_OK;
}

void bench_prefill_close(struct bench_prefill *p)
{
	if (!p)
		return;
	bench_drop(&p->l, 0);
	bench_case_release(&p->whole);
	plan_free(p->plan);
	method_free(p->dense);
	free(p);
}

/* ---- results ---- */

static double rel_l2(const bf16_t *x, const bf16_t *ref, size_t n)
{
	double off = 0, sum = 0;

	for (size_t i = 0; i < n; i++) {
		double y = bf16_to_f32(ref[i]), d = bf16_to_f32(x[i]) - y;

		off += d * d;
		sum += y * y;
	}
	return sqrt(off / sum);
}

/* Compare request 0's output of the last launch with that of dense attention. */
static enum ar_status against_dense(struct bench_prefill *p, const bf16_t *dense,
				    struct bench_core *core, struct ar_err *err)
{
	const struct attn_batch *b = &p->l.c->b;
	size_t n = (size_t)b->rows.row0[1] * (size_t)(b->shape.q_heads * b->shape.head_dim);
	bf16_t *x = malloc(2 * n * sizeof *x);
	enum ar_status st = x ? AR_OK : ar_nomem(err);

	if (st)
		return st;
	CU(cudaMemcpy(x, p->l.out, n * sizeof *x, cudaMemcpyDeviceToHost));
	CU(cudaMemcpy(x + n, dense, n * sizeof *x, cudaMemcpyDeviceToHost));
	core->dense_l2 = rel_l2(x, x + n, n);
out:
	free(x);
	return st;
}

static void no_phase(void *ctx, int layer, enum phase phase)
{
	(void)ctx;
	(void)layer;
	(void)phase;
}

/* Run the chunk under dense attention and compare. */
static enum ar_status compare_dense(struct bench_prefill *p, struct bench_core *core,
				    struct ar_err *err)
{
	struct bench_load l = { .d = p->l.d };
	struct attn_call call = bench_call(&p->l, 0);
	const struct attn_batch *b = &p->l.c->b;
	struct bench_case c = { 0 };
	enum ar_status st = take_chunk(p, p->dense, &l, &c, b->rows.pos0[0], b->rows.row0[1], err);

	call.b = &l.b;
	call.layer = p->input.layer;
	call.out = p->dense_out;
	call.work = p->dense_work;
	if (!st)
		st = method_enqueue(p->dense, &call, no_phase, NULL, err);
	if (st)
		goto out;
	CU(cudaStreamSynchronize(l.d->stream));
	st = against_dense(p, p->dense_out, core, err);
out:
	bench_drop(&l, 0);
	bench_case_release(&c);
	return st;
}

/* The case by which bench_check_rows() checks a selection, by the selection's shape. */
static const struct {
	unsigned shape;
	enum bench_what what;
} checked[] = { { SHAPE_ALL, BENCH_DENSE },
		{ SHAPE_MASK, BENCH_BLOCKSPARSE },
		{ SHAPE_TABLE, BENCH_TABLE },
		{ SHAPE_TOKENS, BENCH_GATHER },
		{ 0 } };

/* Check sampled rows of request 0 over the lists of its selection. */
static enum ar_status check_rows(struct bench_prefill *p, const struct method_selection *x,
				 struct bench_core *core, struct ar_err *err)
{
	int i = 0;
	struct bench_case one = *p->l.c;
	struct bench_load l = p->l;
	struct bench_result r = { .rel_l2 = NAN };
	enum ar_status st;

	while (checked[i].shape && checked[i].shape != method_shape(p->m))
		i++;
	if (!checked[i].shape)
		return AR_OK;
	one.what = checked[i].what;
	one.b.rows.n_req = 1;
	one.lists = x->lists;
	l.c = &one;
	st = bench_check_rows(&l, &r, err);
	core->checked = !st;
	core->rel_l2 = r.rel_l2;
	return st;
}

static enum ar_status count_all(const struct bench_prefill *p, const struct method_selection *x,
				struct selection_count *sum, struct ar_err *err)
{
	const struct attn_batch *b = &p->l.c->b;
	struct selection_count *count = calloc((size_t)b->shape.kv_heads, sizeof *count);
	enum ar_status st = count ? method_count(p->m, b, &x->chosen, x->table, count, err) :
				    ar_nomem(err);

	for (int i = 0; i < b->shape.kv_heads && !st; i++)
		selection_add(sum, &count[i], 1);
	free(count);
	return st;
}

/* Launch set 0, untimed, and count its selection.  Release *x, even after a failure. */
static enum ar_status select_once(struct bench_prefill *p, struct method_selection *x,
				  struct selection_count *count, struct ar_err *err)
{
	enum ar_status st = bench_launch(&p->l, launch, -1, 0, err);

	if (st)
		return st;
	CU(cudaStreamSynchronize(p->l.d->stream));
	st = method_selection_device(p->m, &p->l.c->b, p->l.work, x, err);
	if (!st)
		st = count_all(p, x, count, err);
out:
	return st;
}

/* Read how many rows the dropper of the last launch kept. */
static enum ar_status count_kept(const struct bench_prefill *p, struct bench_core *core,
				 struct ar_err *err)
{
	int n = p->l.b.rows.n_row;
	uint8_t *keep = malloc((size_t)n);
	int64_t sum = 0;
	enum ar_status st = keep ? AR_OK : ar_nomem(err);

	if (st)
		return st;
	CU(cudaMemcpy(keep, p->kept.keep, (size_t)n, cudaMemcpyDeviceToHost));
	for (int i = 0; i < n; i++)
		sum += keep[i];
	core->kept = (double)sum / n;
out:
	free(keep);
	return st;
}

/* Launch set 0 once more, count its selection and check its outputs: those there may be of another
 * set. */
static enum ar_status look_at(struct bench_prefill *p, struct bench_core *core, struct ar_err *err)
{
	struct method_selection x = { 0 };
	enum ar_status st = select_once(p, &x, &core->count, err);

	if (!st && p->plan->drop)
		st = count_kept(p, core, err);
	if (st || !p->l.d->env.sample)
		goto out;
	st = check_rows(p, &x, core, err);
	if (!st && !p->m->dense)
		st = compare_dense(p, core, err);
out:
	method_selection_release(&x);
	return st;
}

static void add_times(const struct bench_load *l, const struct bench_result *r,
		      struct bench_core *core)
{
	static const int part[PHASE_COUNT] = {
		[PHASE_SELECT] = BENCH_PART_SELECT, [PHASE_METADATA] = BENCH_PART_METADATA,
		[PHASE_COPY] = BENCH_PART_COPY,	    [PHASE_ATTEND] = BENCH_PART_ATTEND,
		[PHASE_DROP] = BENCH_PART_DROP,
	};

	for (int k = 0; k < l->n_stage; k++) {
		core->us[part[l->stage[k]]] += r[k].us;
		core->event_us += r[k].event_us;
		core->traced &= r[k].traced;
	}
}

enum ar_status bench_prefill_run(struct bench_prefill *p, int ctx, int n, struct bench_core *core,
				 struct ar_err *err)
{
	struct bench_core x = { .traced = true, .rel_l2 = NAN, .dense_l2 = NAN, .kept = NAN };
	struct bench_result r[BENCH_STAGES];
	struct bench_case c = { 0 };
	enum ar_status st = take_chunk(p, p->m, &p->l, &c, ctx, n, err);

	if (!st)
		st = fill_queries(p, ctx, n, p->l.n_set, err);
	if (!st && p->plan->drop)
		st = take_tokens(p, n, err);
	if (!st)
		st = bench_measure(&p->l, launch, r, err);
	if (!st) {
		add_times(&p->l, r, &x);
		st = look_at(p, &x, err);
	}
	if (!st)
		*core = x;
	bench_drop(&p->l, p->n_kept);
	bench_case_release(&c);
	return st;
}

enum ar_status bench_prefill_count(struct bench_prefill *p, int ctx, int n,
				   struct selection_count *count, struct ar_err *err)
{
	struct selection_count sum = { 0 };
	struct method_selection x = { 0 };
	struct bench_case c = { 0 };
	enum ar_status st = take_chunk(p, p->m, &p->l, &c, ctx, n, err);

	if (!st)
		st = fill_queries(p, ctx, n, 1, err);
	if (!st)
		st = select_once(p, &x, &sum, err);
	if (!st)
		*count = sum;
	method_selection_release(&x);
	bench_drop(&p->l, p->n_kept);
	bench_case_release(&c);
	return st;
}
