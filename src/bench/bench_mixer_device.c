/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_mixer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/delta/delta.h"
#include "kernels/prim/cuda.h"
#include "kernels/ssm/ssm.h"
#include "model/layer_size.h"
#include "src/bench/bench_load.h"

enum { CHECKED = 200 }; /* rows of request 0, over several chunks of the kernels */

/* ---- the mixers ---- */

/* A call of one of them.  See kernels/delta/delta.h and kernels/ssm/ssm.h. */
struct call {
	const struct layer_spec *layer;
	const bf16_t *conv, *conv_bias, *norm;
	const float *a_log, *dt_bias, *d;
	float eps;
	float *state;
	bf16_t *tail;
	const bf16_t *in, *ba;
	bf16_t *out;
	void *work, *stream;
};

static struct delta_call delta_of(const struct call *c)
{
	return (struct delta_call){ c->layer->delta,
				    { c->conv, c->a_log, c->dt_bias, c->norm, c->eps },
				    { c->state, c->tail },
				    c->in,
				    c->ba,
				    (int)layer_qkv_width(c->layer),
				    (int)layer_ba_width(c->layer),
				    c->out,
				    c->work,
				    c->stream };
}

static struct ssm_call ssm_of(const struct call *c)
{
	return (struct ssm_call){ c->layer->ssm,
				  { c->conv, c->conv_bias, c->a_log, c->dt_bias, c->d, c->norm,
				    c->eps },
				  { c->state, c->tail },
				  c->in,
				  (int)layer_qkv_width(c->layer),
				  c->out,
				  c->work,
				  c->stream };
}

static bool is_ssm(const struct layer_spec *l)
{
	return l->mixer == MIX_SSM;
}

static enum ar_status prefill(const struct call *c, const struct state_batch *b, struct ar_err *err)
{
	const struct delta_call d = delta_of(c);
	const struct ssm_call s = ssm_of(c);

	return is_ssm(c->layer) ? ssm_prefill(&s, b, err) : delta_prefill(&d, b, err);
}

static enum ar_status decode(const struct call *c, int n_row, const int32_t *slot,
			     struct ar_err *err)
{
	const struct delta_call d = delta_of(c);
	const struct ssm_call s = ssm_of(c);

	return is_ssm(c->layer) ? ssm_decode(&s, n_row, slot, err) :
				  delta_decode(&d, n_row, slot, err);
}

static void rows_ref(const struct call *c, const struct state_batch *b)
{
	const struct delta_call d = delta_of(c);
	const struct ssm_call s = ssm_of(c);

	if (is_ssm(c->layer))
		ssm_prefill_ref(&s, b);
	else
		delta_prefill_ref(&d, b);
}

static void step_ref(const struct call *c, int n_row, const int32_t *slot)
{
	const struct delta_call d = delta_of(c);
	const struct ssm_call s = ssm_of(c);

	if (is_ssm(c->layer))
		ssm_decode_ref(&s, n_row, slot);
	else
		delta_decode_ref(&d, n_row, slot);
}

/* Elements of a request's state and of its tail, and of the weights.  One mixer has sizes of 0. */
static size_t state_len(const struct layer_spec *l)
{
	return delta_state_len(&l->delta) + ssm_state_len(&l->ssm);
}

static size_t tail_len(const struct layer_spec *l)
{
	return delta_tail_len(&l->delta) + ssm_tail_len(&l->ssm);
}

static size_t channels_of(const struct layer_spec *l)
{
	return (size_t)(delta_channels(&l->delta) + ssm_channels(&l->ssm));
}

static size_t conv_len(const struct layer_spec *l)
{
	return channels_of(l) * (size_t)(l->delta.conv + l->ssm.conv);
}

static size_t bias_len(const struct layer_spec *l)
{
	return l->ssm.conv_bias ? channels_of(l) : 0;
}

static size_t heads_of(const struct layer_spec *l)
{
	return (size_t)(l->delta.v_heads + l->ssm.heads);
}

static size_t norm_len(const struct layer_spec *l)
{
	return (size_t)l->delta.v_dim + (l->ssm.norm ? (size_t)ssm_inner(&l->ssm) : 0);
}

static size_t work_bytes(const struct layer_spec *l, int max_req, int max_row)
{
	return is_ssm(l) ? ssm_work_bytes(&l->ssm, max_req, max_row) :
			   delta_work_bytes(&l->delta, max_req, max_row);
}

/* ---- the load ---- */

/* All sets share weights, outputs and work; each has inputs and states of its own.  With
 * projections the rows before the layer are the inputs, and the mixer's own are shared. */
struct load {
	struct bench_load l; /* first: launch_mixer() gets a pointer to it */
	const struct bench_mixer *x;
	struct call call;
	struct state_batch b;	    /* prefill */
	const int32_t *slot;	    /* [batch] */
	size_t in, ba, state, tail; /* elements of a set; 0: shared */
	int n_row;

	/* projections: */
	struct gemm *gemm;	/* NULL: none */
	bf16_t *before, *after; /* [n_row][hidden], the rows before and after the layer */
	size_t before_len;	/* elements of a set */
	bf16_t *w_in, *w_ba, *w_out;
};

static struct call call_at(const struct load *p, int set)
{
	size_t at = (size_t)set;
	struct call c = p->call;

	c.in += at * p->in;
	c.ba += at * p->ba;
	c.state += at * p->state;
	c.tail += at * p->tail;
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

static enum ar_status project_in(const struct load *p, const struct call *c, int set,
				 struct ar_err *err)
{
	const bf16_t *x = p->before + (size_t)set * p->before_len;
	const int hidden = p->x->hidden, ba = (int)layer_ba_width(c->layer);
	enum ar_status st = project_rows(p, x, hidden, p->w_in, (int)layer_qkv_width(c->layer),
					 c->in, err);

	return st || !ba ? st : project_rows(p, x, hidden, p->w_ba, ba, c->ba, err);
}

static enum ar_status project_out(const struct load *p, const struct call *c, struct ar_err *err)
{
	return project_rows(p, c->out, (int)layer_o_width(c->layer), p->w_out, p->x->hidden,
			    p->after, err);
}

static enum ar_status launch_mixer(struct bench_load *l, int set, struct ar_err *err)
{
	const struct load *p = (const struct load *)l;
	struct call c = call_at(p, set);
	enum ar_status st = AR_OK;

	bench_stage(l, PHASE_NO_LAYER, PHASE_MIX);
	if (p->gemm)
		st = project_in(p, &c, set, err);
	if (!st)
		st = p->x->rows ? prefill(&c, &p->b, err) : decode(&c, p->n_row, p->slot, err);
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

/* Random elements; none for n 0. */
static enum ar_status take_random(struct load *p, bf16_t **to, size_t n, float scale,
				  struct ar_err *err)
{
	*to = NULL;
	return n ? bench_take_random(&p->l, to, n, scale, err) : AR_OK;
}

/* Of the projections; their products have a deviation near 1. */
static enum ar_status take_projections(struct load *p, struct ar_err *err)
{
	const struct layer_spec *l = p->x->layer;
	const size_t hidden = (size_t)p->x->hidden, out = layer_o_width(l);
	const float in_scale = 1 / sqrtf((float)hidden), out_scale = 1 / sqrtf((float)out);
	enum ar_status st = take_random(p, &p->w_in, layer_qkv_width(l) * hidden, in_scale, err);

	if (!st)
		st = take_random(p, &p->w_ba, layer_ba_width(l) * hidden, in_scale, err);
	if (!st)
		st = take_random(p, &p->w_out, out * hidden, out_scale, err);
	return st ? st :
		    bench_take(&p->l, &p->after, (size_t)p->n_row * hidden * sizeof *p->after, err);
}

static enum ar_status take_weights(struct load *p, struct ar_err *err)
{
	const struct layer_spec *l = p->x->layer;
	size_t heads = heads_of(l);
	int sets = p->l.n_set;
	bf16_t *conv, *bias, *norm;
	float *zeros;
	enum ar_status st;

	p->l.n_set = 1;
	st = take_random(p, &conv, conv_len(l), 0.5f, err);
	if (!st)
		st = take_random(p, &bias, bias_len(l), 0.25f, err);
	if (!st)
		st = take_random(p, &norm, norm_len(l), 1, err);
	if (!st)
		st = take_zeros(p, &zeros, heads * sizeof *zeros, err);
	if (!st && p->x->hidden)
		st = take_projections(p, err);
	p->l.n_set = sets;
	if (st)
		return st;
	p->call.conv = conv;
	p->call.conv_bias = bias;
	p->call.norm = norm;
	p->call.a_log = p->call.dt_bias = p->call.d = zeros;
	p->call.eps = 1e-6f;
	return AR_OK;
}

/* Allocate the mixer's inputs: random, or room for the products of random rows. */
static enum ar_status take_inputs(struct load *p, bf16_t **in, bf16_t **ba, struct ar_err *err)
{
	const size_t rows = (size_t)p->n_row, hidden = (size_t)p->x->hidden;
	const size_t n_in = rows * layer_qkv_width(p->x->layer);
	const size_t n_ba = rows * layer_ba_width(p->x->layer);
	const size_t own = hidden ? rows * hidden : n_in + n_ba;
	enum ar_status st;

	p->l.n_set = bench_sets(&p->l, (size_t)bench_mixer_bytes(p->x),
				(own + p->tail) * sizeof **in + p->state * sizeof *p->call.state);
	if (hidden) {
		p->before_len = own;
		st = bench_take(&p->l, in, n_in * sizeof **in, err);
		if (!st)
			st = bench_take(&p->l, ba, (n_ba + 1) * sizeof **ba, err);
		return st ? st : bench_take_random(&p->l, &p->before, own, 1, err);
	}
	p->in = n_in;
	p->ba = n_ba;
	st = bench_take_random(&p->l, in, n_in, 1, err);
	return st ? st : take_random(p, ba, n_ba, 1, err);
}

static enum ar_status take_all(struct load *p, struct ar_err *err)
{
	const struct layer_spec *l = p->x->layer;
	size_t batch = (size_t)p->x->batch, sets;
	size_t out = (size_t)p->n_row * layer_o_width(l);
	bf16_t *in, *ba;
	enum ar_status st;

	p->state = batch * state_len(l);
	p->tail = batch * tail_len(l);
	st = bench_take(&p->l, &p->call.out, out * sizeof *p->call.out, err);
	if (!st)
		st = bench_take(&p->l, &p->call.work, work_bytes(l, p->x->batch, p->n_row), err);
	if (!st)
		st = take_inputs(p, &in, &ba, err);
	if (st)
		return st;
	sets = (size_t)p->l.n_set;
	st = take_zeros(p, &p->call.state, sets * p->state * sizeof *p->call.state, err);
	if (!st)
		st = take_zeros(p, &p->call.tail, sets * p->tail * sizeof *in, err);
	if (!st)
		st = take_weights(p, err);
	if (!st)
		st = take_batch(p, err);
	p->call.in = in;
	p->call.ba = ba;
	p->call.stream = p->l.d->stream;
	return st;
}

/* ---- check ---- */

/* Copies on the host of the arrays for the check of the first n rows of set 0. */
struct host {
	bf16_t *in, *ba, *conv, *bias, *norm, *tail, *out, *want;
	float *zeros, *state;
	void *mem;
};

static enum ar_status read_back(const struct load *p, int n, struct host *h, struct ar_err *err)
{
	const struct call *c = &p->call;
	const struct layer_spec *l = c->layer;
	size_t rows = (size_t)n, used = 0, out = rows * layer_o_width(l);
	const struct {
		void *to;
		const void *from; /* NULL: zeros */
		size_t bytes;
	} array[] = {
		{ &h->in, c->in, rows * layer_qkv_width(l) * sizeof *h->in },
		{ &h->ba, c->ba, rows * layer_ba_width(l) * sizeof *h->ba },
		{ &h->conv, c->conv, conv_len(l) * sizeof *h->conv },
		{ &h->bias, c->conv_bias, bias_len(l) * sizeof *h->bias },
		{ &h->norm, c->norm, norm_len(l) * sizeof *h->norm },
		{ &h->zeros, NULL, heads_of(l) * sizeof *h->zeros },
		{ &h->out, c->out, out * sizeof *h->out },
		{ &h->want, NULL, out * sizeof *h->want },
		{ &h->state, NULL, state_len(l) * sizeof *h->state },
		{ &h->tail, NULL, tail_len(l) * sizeof *h->tail },
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
		if (array[i].from && array[i].bytes)
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
	struct call c = p->call;
	enum ar_status st = AR_OK;

	CU(cudaMemsetAsync(p->call.state, 0, p->state * sizeof *p->call.state, p->l.d->stream));
	CU(cudaMemsetAsync(p->call.tail, 0, p->tail * sizeof *p->call.tail, p->l.d->stream));
	st = bench_launch(&p->l, launch_mixer, -1, 0, err);
	if (st)
		return st;
	CU(cudaStreamSynchronize(p->l.d->stream));
	st = read_back(p, n ? n : 1, &h, err);
	if (st)
		goto out;
	c.conv = h.conv;
	c.conv_bias = c.conv_bias ? h.bias : NULL;
	c.norm = c.norm ? h.norm : NULL;
	c.a_log = c.dt_bias = c.d = h.zeros;
	c.state = h.state;
	c.tail = h.tail;
	c.in = h.in;
	c.ba = h.ba;
	c.out = h.want;
	b = state_plan(&(struct attn_rows){ .n_req = 1, .row0 = row0, .pos0 = pos0 }, &slot, &seq,
		       chunk);
	if (n)
		rows_ref(&c, &b);
	else
		step_ref(&c, 1, &slot);
	r->rel_l2 = rel_distance(h.out, h.want, (size_t)(n ? n : 1) * layer_o_width(c.layer));
out:
	free(h.mem);
	return st;
}

enum ar_status bench_mixer_run(struct bench_device *d, const struct bench_mixer *x,
			       struct bench_result *r, struct ar_err *err)
{
	struct load p = { .l = { .d = d, .n_set = 1 },
			  .x = x,
			  .call = { .layer = x->layer },
			  .n_row = x->batch * (x->rows ? x->rows : 1) };
	const struct gpu *gpu = NULL;
	enum ar_status st = gpu_current(&gpu, err);

	if (!st)
		st = is_ssm(x->layer) ? ssm_supported(&x->layer->ssm, gpu->cc, err) :
					delta_supported(&x->layer->delta, gpu->cc, err);
	if (!st && x->hidden)
		st = gemm_open(&p.gemm, d->stream, err);
	if (!st)
		st = take_all(&p, err);
	if (!st)
		st = bench_measure(&p.l, launch_mixer, r, err);
	if (!st && d->env.sample)
		st = check_first_rows(&p, r, err);
	bench_drop(&p.l, 0);
	gemm_close(p.gemm);
	return st;
}
