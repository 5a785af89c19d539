/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_delta.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/prim/cuda.h"
#include "src/bench/bench_load.h"

enum { CHECKED = 200 }; /* rows of request 0, over several chunks of the kernels */
static const size_t busy_len = (size_t)128 << 20;

/* All sets share weights, outputs and work; each has inputs and states of its own.  With
 * projections the rows before the layer are the inputs, and the mixer's own are shared. */
struct load {
	struct bench_load l; /* first: launch_delta() gets a pointer to it */
	const struct bench_delta *x;
	struct delta_call call;
	struct state_batch b;	      /* prefill */
	const int32_t *slot;	      /* [batch] */
	size_t qkvz, ba, state, tail; /* elements of a set; 0: shared */
	int n_row;

	/* projections: */
	struct gemm *gemm;	/* NULL: none */
	bf16_t *before, *after; /* [n_row][hidden], the rows before and after the layer */
	size_t before_len;	/* elements of a set */
	bf16_t *w_qkvz, *w_ba, *w_out;
};

static const struct delta_spec *spec_of(const struct load *p)
{
	return &p->x->layer->delta;
}

static int out_width(const struct delta_spec *s)
{
	return s->v_heads * s->v_dim;
}

static struct delta_call call_at(const struct load *p, int set)
{
	size_t at = (size_t)set;
	struct delta_call c = p->call;

	c.qkvz += at * p->qkvz;
	c.ba += at * p->ba;
	c.state.s += at * p->state;
	c.state.tail += at * p->tail;
	return c;
}

/* out[n_row][n] = in[n_row][k] w^T. */
static enum ar_status project_rows(const struct load *p, const bf16_t *in, int k, const bf16_t *w,
				   int n, const bf16_t *out, struct ar_err *err)
{
	const struct gemm_args g = {
		.n_batch = 1, .m = p->n_row, .n = n, .k = k, .a = in, .w = w, .c = (bf16_t *)out
	};

	return gemm_run(p->gemm, &g, err);
}

static enum ar_status project_in(const struct load *p, const struct delta_call *c, int set,
				 struct ar_err *err)
{
	const bf16_t *x = p->before + (size_t)set * p->before_len;
	const int hidden = p->x->hidden;
	enum ar_status st = project_rows(p, x, hidden, p->w_qkvz, delta_qkvz_width(&c->spec),
					 c->qkvz, err);

	return st ? st : project_rows(p, x, hidden, p->w_ba, delta_ba_width(&c->spec), c->ba, err);
}

static enum ar_status project_out(const struct load *p, const struct delta_call *c,
				  struct ar_err *err)
{
	return project_rows(p, c->out, out_width(&c->spec), p->w_out, p->x->hidden, p->after, err);
}

static enum ar_status launch_delta(struct bench_load *l, int set, struct ar_err *err)
{
	const struct load *p = (const struct load *)l;
	struct delta_call c = call_at(p, set);
	enum ar_status st = AR_OK;

	bench_stage(l, PHASE_NO_LAYER, PHASE_MIX);
	if (p->gemm)
		st = project_in(p, &c, set, err);
	if (!st)
		st = p->x->rows ? delta_prefill(&c, &p->b, err) :
				  delta_decode(&c, p->n_row, p->slot, err);
	return st || !p->gemm ? st : project_out(p, &c, err);
}

/* ---- memory ---- */

static enum ar_status take_zeros(struct load *p, void *to, size_t bytes, struct ar_err *err)
{
	enum ar_status st = bench_take(&p->l, to, bytes, err);
	void *at;

	if (st)
		return st;
	memcpy(&at, to, sizeof at);
	CU(cudaMemsetAsync(at, 0, bytes, p->l.d->stream));
out:
	return st;
}

/* Equal prompts from their beginning, in slots 0, 1, ... */
static enum ar_status take_batch(struct load *p, struct ar_err *err)
{
	int n = p->x->batch, most = state_max_chunk(n, p->n_row);
	int32_t *at = calloc(3 * (size_t)n + 1, sizeof *at);
	int32_t *pos0 = at, *slot = at + n, *row0 = at + 2 * n;
	struct state_seq *seq = calloc((size_t)n, sizeof *seq);
	struct state_chunk *chunk = calloc((size_t)most, sizeof *chunk);
	enum ar_status st = at && seq && chunk ? AR_OK : ar_nomem(err);

	for (int r = 0; r < n && !st; r++) {
		slot[r] = r;
		row0[r + 1] = row0[r] + p->x->rows;
	}
	if (!st)
		st = bench_upload(&p->l, &p->slot, slot, (size_t)n * sizeof *slot, err);
	if (!st)
		p->b = state_plan(&(struct attn_rows){ .n_req = n, .row0 = row0, .pos0 = pos0 },
				  slot, seq, chunk);
	if (!st)
		st = bench_upload(&p->l, &p->b.seq, seq, (size_t)n * sizeof *seq, err);
	if (!st)
		st = bench_upload(&p->l, &p->b.chunk, chunk, (size_t)most * sizeof *chunk, err);
	free(at);
	free(seq);
	free(chunk);
	return st;
}

/* Of the projections; their products have a deviation near 1. */
static enum ar_status take_projections(struct load *p, struct ar_err *err)
{
	const struct delta_spec *s = spec_of(p);
	const size_t hidden = (size_t)p->x->hidden, out = (size_t)out_width(s);
	const float in_scale = 1 / sqrtf((float)hidden), out_scale = 1 / sqrtf((float)out);
	enum ar_status st = bench_take_random(&p->l, &p->w_qkvz,
					      (size_t)delta_qkvz_width(s) * hidden, in_scale, err);

	if (!st)
		st = bench_take_random(&p->l, &p->w_ba, (size_t)delta_ba_width(s) * hidden,
				       in_scale, err);
	if (!st)
		st = bench_take_random(&p->l, &p->w_out, out * hidden, out_scale, err);
	return st ? st :
		    bench_take(&p->l, &p->after, (size_t)p->n_row * hidden * sizeof *p->after, err);
}

static enum ar_status take_weights(struct load *p, struct ar_err *err)
{
	const struct delta_spec *s = spec_of(p);
	size_t heads = (size_t)s->v_heads;
	int sets = p->l.n_set;
	bf16_t *conv, *norm;
	float *a_log, *dt_bias;
	enum ar_status st;

	p->l.n_set = 1;
	st = bench_take_random(&p->l, &conv, (size_t)delta_channels(s) * (size_t)s->conv, 0.5f,
			       err);
	if (!st)
		st = bench_take_random(&p->l, &norm, (size_t)s->v_dim, 1, err);
	if (!st)
		st = take_zeros(p, &a_log, heads * sizeof *a_log, err);
	if (!st)
		st = take_zeros(p, &dt_bias, heads * sizeof *dt_bias, err);
	if (!st && p->x->hidden)
		st = take_projections(p, err);
	p->l.n_set = sets;
	if (!st)
		p->call.w = (struct delta_weights){ conv, a_log, dt_bias, norm, 1e-6f };
	return st;
}

/* Allocate the mixer's inputs: random, or room for the products of random rows. */
static enum ar_status take_inputs(struct load *p, bf16_t **qkvz, bf16_t **ba, struct ar_err *err)
{
	const size_t rows = (size_t)p->n_row;
	const size_t n_qkvz = rows * (size_t)delta_qkvz_width(spec_of(p));
	const size_t n_ba = rows * (size_t)delta_ba_width(spec_of(p));
	const size_t hidden = (size_t)p->x->hidden, own = hidden ? rows * hidden : n_qkvz + n_ba;
	enum ar_status st;

	p->l.n_set =
		bench_sets(&p->l, (size_t)bench_delta_bytes(p->x),
			   (own + p->tail) * sizeof **qkvz + p->state * sizeof *p->call.state.s);
	if (hidden) {
		p->before_len = own;
		st = bench_take(&p->l, qkvz, n_qkvz * sizeof **qkvz, err);
		if (!st)
			st = bench_take(&p->l, ba, n_ba * sizeof **ba, err);
		return st ? st : bench_take_random(&p->l, &p->before, own, 1, err);
	}
	p->qkvz = n_qkvz;
	p->ba = n_ba;
	st = bench_take_random(&p->l, qkvz, n_qkvz, 1, err);
	return st ? st : bench_take_random(&p->l, ba, n_ba, 1, err);
}

static enum ar_status take_all(struct load *p, struct ar_err *err)
{
	const struct delta_spec *s = spec_of(p);
	size_t batch = (size_t)p->x->batch, sets;
	size_t out = (size_t)p->n_row * (size_t)out_width(s);
	bf16_t *qkvz, *ba;
	enum ar_status st;

	p->state = batch * delta_state_len(s);
	p->tail = batch * delta_tail_len(s);
	p->l.busy_len = busy_len;
	st = bench_take(&p->l, &p->l.busy, busy_len * sizeof *p->l.busy, err);
	if (!st)
		st = bench_take(&p->l, &p->call.out, out * sizeof *p->call.out, err);
	if (!st)
		st = bench_take(&p->l, &p->call.work, delta_work_bytes(s, p->x->batch, p->n_row),
				err);
	if (!st)
		st = take_inputs(p, &qkvz, &ba, err);
	if (st)
		return st;
	sets = (size_t)p->l.n_set;
	st = take_zeros(p, &p->call.state.s, sets * p->state * sizeof *p->call.state.s, err);
	if (!st)
		st = take_zeros(p, &p->call.state.tail, sets * p->tail * sizeof *qkvz, err);
	if (!st)
		st = take_weights(p, err);
	if (!st)
		st = take_batch(p, err);
	p->call.qkvz = qkvz;
	p->call.ba = ba;
	p->call.qkvz_stride = delta_qkvz_width(s);
	p->call.ba_stride = delta_ba_width(s);
	p->call.stream = p->l.d->stream;
	return st;
}

/* ---- check ---- */

/* Copies on the host of the arrays for the check of the first n rows of set 0. */
struct host {
	bf16_t *qkvz, *ba, *conv, *norm, *tail, *out, *want;
	float *a_log, *dt_bias, *state;
	void *mem;
};

static enum ar_status read_back(const struct load *p, int n, struct host *h, struct ar_err *err)
{
	const struct delta_call *c = &p->call;
	const struct delta_spec *s = &c->spec;
	size_t rows = (size_t)n, heads = (size_t)s->v_heads, used = 0;
	size_t out = rows * heads * (size_t)s->v_dim;
	const struct {
		void *to;
		const void *from; /* NULL: zeros */
		size_t bytes;
	} array[] = {
		{ &h->qkvz, c->qkvz, rows * (size_t)c->qkvz_stride * sizeof *h->qkvz },
		{ &h->ba, c->ba, rows * (size_t)c->ba_stride * sizeof *h->ba },
		{ &h->conv, c->w.conv,
		  (size_t)delta_channels(s) * (size_t)s->conv * sizeof *h->conv },
		{ &h->norm, c->w.norm, (size_t)s->v_dim * sizeof *h->norm },
		{ &h->a_log, c->w.a_log, heads * sizeof *h->a_log },
		{ &h->dt_bias, c->w.dt_bias, heads * sizeof *h->dt_bias },
		{ &h->out, c->out, out * sizeof *h->out },
		{ &h->want, NULL, out * sizeof *h->want },
		{ &h->state, NULL, delta_state_len(s) * sizeof *h->state },
		{ &h->tail, NULL, delta_tail_len(s) * sizeof *h->tail },
	};
	const size_t n_array = sizeof array / sizeof *array;
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < n_array; i++)
		used += workspace_aligned(array[i].bytes);
	h->mem = calloc(used, 1);
	if (!h->mem)
		return ar_nomem(err);
	used = 0;
	for (size_t i = 0; i < n_array; i++) {
		void *to = (char *)h->mem + used;

		memcpy(array[i].to, &to, sizeof to);
		if (array[i].from)
			CU(cudaMemcpy(to, array[i].from, array[i].bytes, cudaMemcpyDeviceToHost));
		used += workspace_aligned(array[i].bytes);
	}
out:
	return st;
}

static double rel_distance(const bf16_t *x, const bf16_t *want, size_t n)
{
	double off = 0, sum = 0;

	for (size_t i = 0; i < n; i++) {
		double y = bf16_to_f32(want[i]), d = bf16_to_f32(x[i]) - y;

		off += d * d;
		sum += y * y;
	}
	return sqrt(off / sum);
}

/* Compare the first rows of request 0 after a launch on set 0, from states of zeros. */
static enum ar_status check_first_rows(struct load *p, struct bench_result *r, struct ar_err *err)
{
	static const int32_t slot;
	int n = p->x->rows < CHECKED ? p->x->rows : CHECKED;
	const int32_t row0[] = { 0, n }, pos0[] = { 0 };
	struct state_seq seq;
	struct state_chunk chunk[CHECKED / STATE_CHUNK + 1];
	struct state_batch b;
	struct host h = { 0 };
	struct delta_call c = p->call;
	enum ar_status st = AR_OK;

	CU(cudaMemsetAsync(p->call.state.s, 0, p->state * sizeof *p->call.state.s, p->l.d->stream));
	CU(cudaMemsetAsync(p->call.state.tail, 0, p->tail * sizeof *p->call.state.tail,
			   p->l.d->stream));
	st = bench_launch(&p->l, launch_delta, -1, 0, err);
	if (st)
		return st;
	CU(cudaStreamSynchronize(p->l.d->stream));
	st = read_back(p, n ? n : 1, &h, err);
	if (st)
		goto out;
	c.w = (struct delta_weights){ h.conv, h.a_log, h.dt_bias, h.norm, p->call.w.eps };
	c.state = (struct delta_state){ h.state, h.tail };
	c.qkvz = h.qkvz;
	c.ba = h.ba;
	c.out = h.want;
	b = state_plan(&(struct attn_rows){ .n_req = 1, .row0 = row0, .pos0 = pos0 }, &slot, &seq,
		       chunk);
	if (n)
		delta_prefill_ref(&c, &b);
	else
		delta_decode_ref(&c, 1, &slot);
	r->rel_l2 = rel_distance(h.out, h.want,
				 (size_t)(n ? n : 1) * (size_t)(c.spec.v_heads * c.spec.v_dim));
out:
	free(h.mem);
	return st;
}

enum ar_status bench_delta_run(struct bench_device *d, const struct bench_delta *x,
			       struct bench_result *r, struct ar_err *err)
{
	struct load p = { .l = { .d = d, .n_set = 1 },
			  .x = x,
			  .call = { .spec = x->layer->delta },
			  .n_row = x->batch * (x->rows ? x->rows : 1) };
	const struct gpu *gpu = NULL;
	enum ar_status st = gpu_current(&gpu, err);

	if (!st)
		st = delta_supported(&x->layer->delta, gpu->cc, err);
	if (!st && x->hidden)
		st = gemm_open(&p.gemm, d->stream, err);
	if (!st)
		st = take_all(&p, err);
	if (!st)
		st = bench_measure(&p.l, launch_delta, r, err);
	if (!st && d->env.sample)
		st = check_first_rows(&p, r, err);
	bench_drop(&p.l, 0);
	gemm_close(p.gemm);
	return st;
}
