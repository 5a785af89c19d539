/* SPDX-License-Identifier: Apache-2.0 */
/* Run methods on a chunk: the backend gets a batch of one request, whose context precedes the
 * chunk. */
#include "config.h"
#include "src/select/select_run.h"

#include <stdlib.h>

#include "base/log.h"
#include "replay/engine/attn_engine.h"
#include "src/select/select_chunk.h"
#include "src/select/select_files.h"

const char *const select_backends[] = { "cpu", "cuda", NULL };

/* ---- a method on a chunk ---- */

struct shown {
	const struct backend *backend;
	const struct select_chunk *chunk;
	struct plan *plan; /* of method alone */
	const struct method *method;
	struct request req; /* the only request of the trace */
	struct trace trace;
	struct batch_entry entry;
	struct backend_env env;
	struct blocks blocks;
	void *self;
	struct accuracy *acc;
	struct selection_count *count;
	struct select_files *out;
	bool scores;
};

static enum ar_status show_layer(struct shown *x, int i, struct ar_err *err)
{
	const struct select_chunk *c = x->chunk;
	const struct layer_spec *l = &c->model.layer[c->layer[i]];
	struct method_selection sel = { .scored = x->scores };
	enum ar_status st = backend_compare(x->backend, x->self, &x->entry, i, x->acc, x->count,
					    &sel, err);
	const struct select_result r = {
		.capture = capture_info(c->capture)->name,
		.random = capture_info(c->capture)->random,
		.model = c->model.name,
		.backend = x->backend->name,
		.method = x->method,
		.layer = c->layer[i],
		.shape = { l->q_heads, l->kv_heads, l->head_dim, method_page_tok(x->method) },
		.ctx = c->ctx,
		.chunk = c->chunk,
		.left = c->known - c->ctx - c->chunk,
		.sel = &sel,
		.count = x->count,
		.acc = x->acc,
	};

	if (!st)
		st = select_files_put(x->out, &r, err);
	method_selection_release(&sel);
	return st;
}

static enum ar_status open_backend(struct shown *x, struct ar_err *err)
{
	const struct backend *b = x->backend;
	void *options = calloc(1, b->opts_size + 1);
	struct opt_group g[] = { { .opts = b->opts, .base = options }, { 0 } };
	enum ar_status st = options ? opt_init(g, err) : ar_nomem(err);

	if (!st)
		st = backend_open(b, &x->self, options, &x->env, err);
	if (!st)
		st = backend_start(b, x->self, x->env.num_blocks, err);
	if (options)
		opt_release(g);
	free(options);
	return st;
}

/* compare() runs the chunk, but needs its keys in the cache.  Running only the last row of the
 * chunk puts them there. */
static enum ar_status show_layers(struct shown *x, struct ar_err *err)
{
	struct iter_cost unused;
	struct batch_entry last = x->entry;
	struct batch b = { .entry = &last, .n = 1, .prefill_tok = 1, .blocks = &x->blocks };
	enum ar_status st = open_backend(x, err);

	last.start += last.n_tok - 1;
	last.n_tok = 1;
	if (!st)
		st = select_files_open(x->out, err);
	if (!st)
		st = backend_run(x->backend, x->self, &b, &unused, err);
	for (int i = 0; i < x->chunk->n_layers && !st; i++) {
		st = show_layer(x, i, err);
		if (!st && ar_interrupted())
			st = ar_fail(err, AR_INTERRUPTED, "interrupted");
	}
	backend_close(x->backend, x->self);
	blocks_release(&x->blocks);
	return st;
}

static enum ar_status shown_init(struct shown *x, struct select_chunk *c, const char *method,
				 struct ar_err *err)
{
	static const uint16_t capture_of[] = { 0 };
	int end = c->ctx + c->chunk;
	enum ar_status st = plan_parse(&x->plan, method, err);

	if (st)
		return st;
	x->method = plan_single(x->plan);
	x->chunk = c;
	x->req = (struct request){ .prompt_tok = (uint32_t)c->known, .output_tok = 1 };
	x->trace = (struct trace){ .req = &x->req, .n = 1 };
	x->entry = (struct batch_entry){ .start = (uint32_t)c->ctx,
					 .n_tok = (uint32_t)c->chunk,
					 .known = (uint32_t)c->known,
					 .n_emit = c->known == end };
	x->env = (struct backend_env){
		.trace = &x->trace,
		.model = &c->model,
		.capture = &c->capture,
		.n_capture = 1,
		.capture_of = capture_of,
		.captured_layer = c->captured,
		.run_layer = c->layer,
		.n_run_layers = c->n_layers,
		.plan = x->plan,
		.blocks = &x->blocks,
		.max_batched_tok = c->chunk,
		.max_seqs = 1,
		.max_len = end,
		.num_blocks = end / 128 + 2,
		.block_tok = 128,
		.attention_only = true,
	};
	return st;
}

static enum ar_status show_selection(const struct backend *backend, struct select_chunk *c,
				     const char *method, struct select_files *out,
				     struct ar_err *err)
{
	const struct layer_spec *l = model_attention(&c->model);
	struct shown x = {
		.backend = backend,
		.out = out,
		.scores = out->a->scores,
		.acc = calloc((size_t)l->q_heads, sizeof *x.acc),
		.count = calloc((size_t)l->kv_heads, sizeof *x.count),
	};
	enum ar_status st = x.acc && x.count ? shown_init(&x, c, method, err) : ar_nomem(err);

	if (!st)
		st = show_layers(&x, err);
	plan_free(x.plan);
	free(x.acc);
	free(x.count);
	return st;
}

/* Check that the files named by a method can be read, before any output. */
static enum ar_status look_at(struct select_chunk *c, const char *method, struct ar_err *err)
{
	struct shown x = { 0 };
	enum ar_status st = shown_init(&x, c, method, err);

	if (!st)
		st = attn_engine_try(&x.env, err);
	plan_free(x.plan);
	return st;
}

/* ---- all methods ---- */

/* Check all that needs no capture: names and parameters of methods, and --scores. */
static enum ar_status check_methods(char *const *name, size_t n, const struct select_args *a,
				    struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < n && !st; i++) {
		struct method *m;

		st = method_parse(&m, name[i], err);
		if (!st && a->scores && !method_prefill(m)->selector->scores)
			st = ar_fail(err, AR_USAGE,
				     "method '%s': selector '%s' has no scores; leave out "
				     "--scores",
				     name[i], method_prefill(m)->selector->name);
		method_free(m);
	}
	if (!st && a->scores && !a->json)
		st = ar_fail(err, AR_USAGE, "--scores adds to the JSON; add --json FILE");
	if (!st && a->scores && a->backend)
		st = ar_fail(err, AR_USAGE,
			     "--scores has no effect with --backend cuda; use "
			     "--backend cpu");
	return st;
}

/* Check captures, chunks and files of methods before any output.  The first method on the first
 * capture is left out: it runs first, and fails by itself. */
static enum ar_status look_at_all(const struct select_args *a, char *const *method, size_t n,
				  struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < a->captures.n && !st; i++) {
		struct select_chunk c = { 0 };

		st = select_chunk_load(&c, a->captures.v[i], a, err);
		for (size_t k = i ? 0 : 1; k < n && !st; k++)
			st = look_at(&c, method[k], err);
		select_chunk_release(&c);
	}
	return st;
}

static enum ar_status select_all(const struct backend *b, const struct select_args *a,
				 char *const *method, size_t n, struct ar_err *err)
{
	struct select_files out = { .a = a };
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < a->captures.n && !st; i++) {
		struct select_chunk c = { 0 };

		st = select_chunk_load(&c, a->captures.v[i], a, err);
		if (!st)
			capture_warn(capture_info(c.capture), c.model.name);
		if (!st)
			model_warn(&c.model);
		for (size_t k = 0; k < n && !st; k++) {
			progress("selections", i * n + k, a->captures.n * n);
			st = show_selection(b, &c, method[k], &out, err);
		}
		select_chunk_release(&c);
	}
	progress_end();
	return select_files_close(&out, st, err);
}

enum ar_status select_run(const struct select_args *a, struct ar_err *err)
{
	const struct backend *b = backend_find(select_backends[a->backend]);
	char **method = NULL;
	size_t n = 0;
	enum ar_status st = AR_OK;

	if (!a->captures.n)
		return ar_fail(err, AR_USAGE,
			       "no capture given; name one with --capture FILE, or take "
			       "random values with --capture random:0");
	st = select_files_check(a, err);
	if (!st)
		st = method_split(a->methods, &method, &n, err);
	if (!st)
		st = check_methods(method, n, a, err);
	if (!st && !b)
		st = ar_fail(err, AR_NODEV,
			     "backend %s: this program was built without CUDA; use "
			     "--backend cpu",
			     select_backends[a->backend]);
	if (!st)
		st = look_at_all(a, method, n, err);
	if (!st)
		st = select_all(b, a, method, n, err);
	for (size_t i = 0; i < n; i++)
		free(method[i]);
	free(method);
	return st;
}
