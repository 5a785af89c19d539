/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements of the chunks of a prefill, and checks of their results. */
#include "config.h"
#include "src/bench/bench_prefill_state.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/prim/cuda.h"

/* The dropper reads how long the chunks of all requests are. */
static enum ar_status take_tokens(const struct bench_prefill *p, int n, struct ar_err *err)
{
	int n_req = (int)p->e.trace.n;
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

static enum ar_status launch_chunk(struct bench_load *l, int set, struct ar_err *err)
{
	struct bench_prefill *p = (struct bench_prefill *)l;
	const struct drop *drop = p->e.plan->drop;
	struct attn_call call = bench_prefill_call(p, set);
	enum ar_status st = method_enqueue(method_prefill(bench_engine_method(&p->e)), &call,
					   bench_stage, l, err);

	if (st || !drop)
		return st;
	bench_stage(l, call.layer, PHASE_DROP);
	return drop_enqueue(drop,
			    &(struct drop_call){
				    .at = &call, .chunk = p->tok, .n_step = l->b.rows.n_row },
			    &p->kept, err);
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
	const struct attn_batch *b = &p->c.b;
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

/* Run the staged chunk under dense attention and compare. */
static enum ar_status compare_dense(struct bench_prefill *p, struct bench_core *core,
				    struct ar_err *err)
{
	const struct method *dense = p->e.engine.dense;
	const struct attn_batch *b = &p->c.b;
	struct attn_call call = bench_prefill_call(p, 0);
	enum ar_status st = bench_prefill_stage(p, b->rows.pos0[0], b->rows.row0[1], dense, err);

	call.state = NULL;
	call.out = p->dense_out;
	call.work = p->dense_work;
	if (!st)
		st = method_enqueue(method_prefill(dense), &call, bench_no_phase, NULL, err);
	if (st)
		goto out;
	CU(cudaStreamSynchronize(p->l.d->stream));
	st = against_dense(p, p->dense_out, core, err);
out:
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
	struct bench_case one = p->c;
	struct bench_load l = p->l;
	struct bench_result r = { .rel_l2 = NAN };
	enum ar_status st;

	while (checked[i].shape &&
	       checked[i].shape != method_shape(method_prefill(bench_engine_method(&p->e))))
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
	const struct attn_batch *b = &p->c.b;
	struct selection_count *count = calloc((size_t)b->shape.kv_heads, sizeof *count);
	enum ar_status st = count ? method_count(method_prefill(bench_engine_method(&p->e)), b,
						 &x->chosen, x->table, count, err) :
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
	enum ar_status st = bench_launch(&p->l, launch_chunk, -1, 0, err);

	if (st)
		return st;
	CU(cudaStreamSynchronize(p->l.d->stream));
	st = method_selection_device(method_prefill(bench_engine_method(&p->e)), &p->c.b, p->l.work,
				     x, err);
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

/* Launch set 0 once more, as the outputs may be another set's.  Count its selection and check its
 * outputs. */
static enum ar_status look_at(struct bench_prefill *p, struct bench_core *core, struct ar_err *err)
{
	struct method_selection x = { 0 };
	enum ar_status st = select_once(p, &x, &core->count, err);

	if (!st && p->e.plan->drop)
		st = count_kept(p, core, err);
	if (st || !p->l.d->env.sample)
		goto out;
	st = check_rows(p, &x, core, err);
	if (!st && !bench_engine_method(&p->e)->dense)
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
	enum ar_status st = bench_prefill_queries(p, ctx, n, p->l.n_set, err);

	if (!st && p->e.plan->drop)
		st = take_tokens(p, n, err);
	if (!st)
		st = bench_measure(&p->l, launch_chunk, r, err);
	if (st)
		return st;
	add_times(&p->l, r, &x);
	st = look_at(p, &x, err);
	if (!st)
		*core = x;
	return st;
}

enum ar_status bench_prefill_count(struct bench_prefill *p, int ctx, int n,
				   struct selection_count *count, struct ar_err *err)
{
	struct selection_count sum = { 0 };
	struct method_selection x = { 0 };
	enum ar_status st = bench_prefill_queries(p, ctx, n, 1, err);

	if (!st)
		st = select_once(p, &x, &sum, err);
	if (!st)
		*count = sum;
	method_selection_release(&x);
	return st;
}
