/* Backend "cpu": the references in C.  Attention core only: there are no projections, no MLP
 * and no language-model head, and the clock runs while a method or the decode attention
 * does. */
#include "config.h"
#include "replay/engine/backends_attn.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "replay/engine/accuracy.h"
#include "replay/engine/rows.h"

struct cpu {
	struct backend_env env;
	struct method *dense;
	struct source source;
	bf16_t *data;			/* the captures */
	struct layer_seq *seq;
	float *trig;
	struct pages *pages;
	struct rows_env rows;
	struct kv_cache *kv;		/* [n_run_layers] */
	void **state;			/* [n_run_layers] of the selector, or all NULL */
	bf16_t *q, *k, *out, *out_dense;
	float *lse, *lse_dense;
};

static void *array(size_t n, size_t size)
{
	return calloc(n ? n : 1, size);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void cpu_close(void *self)
{
	struct cpu *c = self;

	if (!c)
		return;
	for (int i = 0; i < c->env.n_run_layers; i++) {
		if (c->kv) {
			free(c->kv[i].k);
			free(c->kv[i].v);
		}
		if (c->state)
			free(c->state[i]);
	}
	free(c->kv);
	free(c->state);
	free(c->rows.mem);
	pages_close(c->pages);
	free(c->q);
	free(c->k);
	free(c->out);
	free(c->out_dense);
	free(c->lse);
	free(c->lse_dense);
	free(c->trig);
	free(c->seq);
	free(c->data);
	source_release(&c->source);
	method_free(c->dense);
	free(c);
}

/* ---- opening ---- */

static enum ar_status put(void *ctx, size_t off, size_t pitch, const bf16_t *from, size_t width,
			  size_t rows, struct ar_err *err)
{
	bf16_t *to = (bf16_t *)ctx + off;

	(void)err;
	for (size_t r = 0; r < rows; r++)
		memcpy(to + r * pitch, from + r * width, width * sizeof *to);
	return AR_OK;
}

static enum ar_status load(struct cpu *c, struct ar_err *err)
{
	const struct source *s = &c->source;
	size_t half = (size_t)s->shape.head_dim / 2;
	float *inv = array(half, sizeof *inv);
	enum ar_status st;

	c->data = array(s->elems, sizeof *c->data);
	c->seq = array(s->n_seq, sizeof *c->seq);
	c->trig = array((size_t)s->n_turn * half, 2 * sizeof *c->trig);
	if (!inv || !c->data || !c->seq || !c->trig) {
		st = ar_nomem(err);
		goto out;
	}
	rope_inv_freq(&s->rope, s->shape.head_dim, inv);
	layer_trig_ref(inv, (int)half, (int)s->n_turn, c->trig);
	source_seqs(s, c->data, c->seq);
	st = source_load(s, c->env.capture, put, c->data, err);
out:
	free(inv);
	return st;
}

static enum ar_status cpu_open(void **self, const void *opts, const struct backend_env *env,
			       struct ar_err *err)
{
	struct cpu *c = calloc(1, sizeof *c);
	enum ar_status st;

	(void)opts;
	*self = NULL;
	if (!c)
		return ar_nomem(err);
	c->env = *env;
	st = method_parse(&c->dense, "dense", err);
	if (!st)
		st = source_init(&c->source, env, err);
	if (!st)
		st = source_open_method(&c->source, env, false, err);
	if (!st)
		st = load(c, err);
	if (st) {
		cpu_close(c);
		return st;
	}
	*self = c;
	return AR_OK;
}

/* ---- memory of a run ---- */

static bool alloc_cache(struct cpu *c, size_t n_page)
{
	const struct attn_shape *s = &c->source.shape;
	size_t page = pages_offset(s, 1, 0), state = method_state_bytes(c->env.method, s);
	int n = c->env.n_run_layers;

	c->kv = array((size_t)n, sizeof *c->kv);
	c->state = array((size_t)n, sizeof *c->state);
	if (!c->kv || !c->state)
		return false;
	for (int i = 0; i < n; i++) {
		c->kv[i].k = array(n_page, page * sizeof(bf16_t));
		c->kv[i].v = array(n_page, page * sizeof(bf16_t));
		if (state)
			c->state[i] = array(n_page, state);
		if (!c->kv[i].k || !c->kv[i].v || (state && !c->state[i]))
			return false;
	}
	return true;
}

static bool alloc_rows(struct cpu *c, int64_t n_page)
{
	const struct attn_shape *s = &c->source.shape;
	size_t row = (size_t)(c->rows.prefill.max_row + c->rows.decode.max_row);
	size_t q = row * (size_t)s->q_heads, k = row * (size_t)s->kv_heads;
	size_t dim = (size_t)s->head_dim * sizeof(bf16_t);

	c->rows.bytes = rows_bytes(&c->rows, n_page);
	c->rows.mem = array(c->rows.bytes, 1);
	c->q = array(q, dim);
	c->k = array(k, dim);
	c->out = array(q, dim);
	c->out_dense = array(q, dim);
	c->lse = array(q, sizeof *c->lse);
	c->lse_dense = array(q, sizeof *c->lse);
	return c->rows.mem && c->q && c->k && c->out && c->out_dense && c->lse && c->lse_dense;
}

static enum ar_status cpu_start(void *self, int64_t num_blocks, struct ar_err *err)
{
	struct cpu *c = self;
	const struct backend_env *env = &c->env;
	int64_t n_page = pages_needed(num_blocks, env->block_tok, env->max_seqs,
					c->source.shape.page_tok);
	enum ar_status st = pages_open(&c->pages, n_page, c->source.shape.page_tok, env->trace->n,
				       err);

	if (st)
		return st;
	c->rows.source = &c->source;
	c->rows.pages = c->pages;
	c->rows.capture_of = env->capture_of;
	c->rows.tail = method_tail(env->method);
	rows_limits(env, c->source.shape.page_tok, &c->rows.prefill, &c->rows.decode);
	if (!alloc_rows(c, n_page) || !alloc_cache(c, (size_t)n_page))
		return ar_nomem(err);
	return AR_OK;
}

/* ---- iterations ---- */

/* The time since *t is the phase's. */
static void lap(struct iter_cost *cost, enum phase phase, int64_t *t)
{
	int64_t now = now_ns();

	cost->phase_ns[phase] += now - *t;
	*t = now;
}

/* Layer i of the batch, with its outputs in out. */
static struct attn_call call_of(const struct cpu *c, const struct attn_batch *b, int i)
{
	return (struct attn_call){ .b = b, .layer = c->env.run_layer[i], .q = c->q,
				   .kv = c->kv[i], .state = c->state[i], .out = c->out };
}

/* The method over the chunks in layer i.  References that copy do it as they attend. */
static enum ar_status prefill(struct cpu *c, int i, const struct attn_batch *b,
			      struct iter_cost *cost, struct ar_err *err)
{
	const struct method *m = c->env.method;
	struct method_selection x = { 0 };
	int64_t t = now_ns();
	struct attn_call call = call_of(c, b, i);
	enum ar_status st = AR_OK;

	if (!m->dense) {
		st = method_choose_ref(m, &call, &x, err);
		lap(cost, PHASE_SELECT, &t);
	}
	if (!st && x.chosen.mask) {
		method_lower_ref(b, &x);
		lap(cost, PHASE_METADATA, &t);
	}
	if (!st)
		st = m->executor->ref(&call, &x.lists, err);
	lap(cost, PHASE_ATTEND, &t);
	method_selection_release(&x);
	return st;
}

/* Attention of layer i; its times are added to cost. */
static enum ar_status attend(struct cpu *c, int i, const struct rows *r, struct iter_cost *cost,
			     struct ar_err *err)
{
	size_t skip = (size_t)(r->n_prefill * c->source.shape.q_heads * c->source.shape.head_dim);
	struct attn_call call = call_of(c, &r->decode, i);
	enum ar_status st = r->prefill.rows.n_req ? prefill(c, i, &r->prefill, cost, err) : AR_OK;
	int64_t t = now_ns();

	if (st || !r->decode.rows.n_req)
		return st;
	call.q += skip;
	call.out += skip;
	st = decode_ref(&call, 0, NULL, err);
	lap(cost, PHASE_DECODE, &t);
	return st;
}

/* What the selector keeps beside the pages that the rows are in. */
static enum ar_status refresh(struct cpu *c, int i, const struct rows *r, struct ar_err *err)
{
	struct method_selection x = { 0 };
	struct attn_call call = call_of(c, &r->prefill, i);
	enum ar_status st = method_choose_ref(c->env.method, &call, &x, err);

	method_selection_release(&x);
	return st;
}

static void rotate(struct cpu *c, int i, const struct rows *r)
{
	layer_rope_ref(&c->source.shape, c->seq, c->source.layer_of[i], r->row, r->n_row, c->trig,
		       c->q, c->k);
}

/* Bring the rows into the cache, where they are not yet; run attention, or for a fill what it keeps
 * beside the cache.  fill: b is an entry that rows_missing() named. */
static enum ar_status iterate(struct cpu *c, const struct batch *b, bool fill,
			      struct iter_cost *cost, struct ar_err *err)
{
	const struct batch_entry *one = b->entry;
	bool held = fill && pages_len(c->pages, one->req) >= (int64_t)one->start + one->n_tok;
	struct rows r;
	size_t used;
	enum ar_status st = AR_OK;

	for (size_t e = 0; e < b->n && !st; e++)
		st = rows_grow(c->pages, &b->entry[e], err);
	if (!st)
		st = rows_build(&r, &c->rows, b, NULL, &used, err);
	for (int i = 0; i < c->env.n_run_layers && !st; i++) {
		rotate(c, i, &r);
		if (!held)
			layer_cache_ref(&c->source.shape, c->seq, c->source.layer_of[i], r.row,
					r.n_row, c->k, &c->kv[i]);
		if (!fill)
			st = attend(c, i, &r, cost, err);
		else if (c->state[i])
			st = refresh(c, i, &r, err);
	}
	return st;
}

static enum ar_status fill_missing(struct cpu *c, const struct batch *b, struct ar_err *err)
{
	struct batch_entry piece;
	struct iter_cost unused = { 0 };
	enum ar_status st = AR_OK;

	for (size_t e = 0; e < b->n && !st; e++)
		while (!st && rows_missing(c->pages, &b->entry[e], c->state[0] != NULL,
					   c->rows.prefill.max_row, &piece))
			st = iterate(c, &(struct batch){ .entry = &piece, .n = 1 }, true, &unused,
				     err);
	return st;
}

static enum ar_status cpu_run(void *self, const struct batch *b, struct iter_cost *cost,
			      struct ar_err *err)
{
	struct cpu *c = self;
	struct iter_cost x = { .event_ns = -1, .span_ns = -1, .busy_ns = -1 };
	int64_t sum = 0;
	enum ar_status st = fill_missing(c, b, err);

	if (!st)
		st = iterate(c, b, false, &x, err);
	if (st)
		return st;
	for (int p = 0; p < PHASE_COUNT; p++)
		sum += x.phase_ns[p];
	x.cost_ns = sum * c->env.model->n_layers / c->env.n_run_layers;
	*cost = x;
	return AR_OK;
}

/* The method over the rows, with all that it leaves on its way. */
static enum ar_status attend_counted(struct cpu *c, int i, const struct rows *r,
				     struct selection_count *count, struct method_selection *x,
				     struct ar_err *err)
{
	const struct method *m = c->env.method;
	struct attn_call call = call_of(c, &r->prefill, i);
	enum ar_status st = method_select_ref(m, &call, x, err);

	call.lse = c->lse;
	if (!st)
		st = m->executor->ref(&call, &x->lists, err);
	return st ? st : method_count(m, &r->prefill, &x->chosen, x->table, count, err);
}

static enum ar_status cpu_compare(void *self, const struct batch_entry *e, int i,
				  struct accuracy *acc, struct selection_count *count,
				  struct method_selection *sel, struct ar_err *err)
{
	struct cpu *c = self;
	struct batch_entry one = *e;
	struct method_selection own = { 0 };
	struct attn_call dense;
	struct rows r;
	size_t used;
	enum ar_status st;

	assert(!e->decode);
	st = rows_build(&r, &c->rows, &(struct batch){ .entry = &one, .n = 1 }, NULL, &used, err);
	if (st)
		return st;
	dense = call_of(c, &r.prefill, i);
	dense.out = c->out_dense;
	dense.lse = c->lse_dense;
	rotate(c, i, &r);
	st = attend_counted(c, i, &r, count, sel ? sel : &own, err);
	if (!st)
		st = method_ref(c->dense, &dense, NULL, err);
	if (!st)
		st = accuracy_measure(&c->source.shape, r.n_row, c->out, c->out_dense, c->lse,
				      c->lse_dense, acc, err);
	method_selection_release(&own);
	return st;
}

static void cpu_drop(void *self, uint32_t req)
{
	struct cpu *c = self;

	pages_drop(c->pages, req);
}

const struct backend backend_cpu = {
	.name = "cpu",
	.title = "attention core by the C references; no projections, MLP or head",
	.needs_model = true,
	.open = cpu_open,
	.start = cpu_start,
	.run = cpu_run,
	.compare = cpu_compare,
	.drop = cpu_drop,
	.close = cpu_close,
};
