/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/engine_defaults.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/gpu.h"
#include "base/log.h"
#include "model/params.h"
#include "model/quant.h"
#include "replay/host/host_probe.h"
#include "src/run/options.h"

/* What a run says about its engine's defaults. */
struct facts {
	struct engine_gpu gpu;
	int64_t max_len; /* of the model; 0: not known */
	int64_t weights; /* bytes of a rank; not known: 0 */
	int64_t state;	 /* ... of the states of a sequence on it */
	bool linear;	 /* the model has linear layers */
	bool index;	 /* ... an indexer */
	bool latent8;	 /* ... latents in 8 bits, and no indexer */
	bool mixed;	 /* ... an 8-bit KV cache, and layers of full attention without */
	char why[256];	 /* why it has no prefix cache; "": it may have one */
};

/* ---- inputs ---- */

/* What cannot be read is reported when it is loaded; only memory must not lack. */
static bool is_read(enum ar_status *st)
{
	const bool read = !*st;

	if (*st != AR_NOMEM)
		*st = AR_OK;
	return read;
}

/* ---- the GPU ---- */

static enum ar_status modelled_gpu(const char *name, struct engine_gpu *gpu, struct ar_err *err)
{
	struct roofline_gpu g;
	enum ar_status st = roofline_gpu_load(&g, name, err);

	snprintf(gpu->name, sizeof gpu->name, "%s", name);
	if (!is_read(&st))
		return st;
	gpu->bytes = g.memory_bytes;
	/* The name of a file need not tell what GPU it is. */
	if (strcasestr(g.source, "A100") && !strcasestr(gpu->name, "A100"))
		snprintf(gpu->name, sizeof gpu->name, "%s, an A100", name);
	return AR_OK;
}

/* A run with a host model asks for the probe later.  It takes as long as the GPU's answer. */
static void begin_probe(const struct run_options *o, int device)
{
	if (strcmp(o->host, "none") != 0 &&
	    (!strcmp(o->host_speed, "auto") || !strcmp(o->host_speed, "probe")))
		host_probe_begin(device);
}

static bool real_gpu(const struct run_options *o, struct engine_gpu *gpu)
{
	const struct backend *cuda = backend_find("cuda");
	int64_t device = 0;
	struct gpu real;

	if (!cuda || (strcmp(o->backend, "cuda") && strcmp(o->backend, "auto")))
		return false;
	opt_get_int(o->group, "device", &device);
	begin_probe(o, (int)device);
	if (gpu_ask((int)device, &real, NULL))
		return false;
	snprintf(gpu->name, sizeof gpu->name, "%s", real.name);
	gpu->bytes = (int64_t)real.mem_bytes;
	gpu->real = true;
	return true;
}

enum ar_status run_engine_gpu(struct engine_gpu *gpu, struct ar_err *err)
{
	*gpu = (struct engine_gpu){ .from = "no GPU is named" };
	return modelled_gpu("h100", gpu, err);
}

static enum ar_status find_gpu(const struct run_options *o, const struct costs *c,
			       struct engine_gpu *gpu, struct ar_err *err)
{
	const struct roofline_options *roof = run_options_of(o, &backend_roofline);

	if (c && c->run.gpu) {
		snprintf(gpu->name, sizeof gpu->name, "%s", c->gpu.name);
		gpu->bytes = c->gpu.mem_bytes;
		gpu->from = "of the costs";
		return AR_OK;
	}
	if (!strcmp(o->backend, backend_roofline.name)) {
		gpu->from = "--gpu";
		return modelled_gpu(roof->gpu, gpu, err);
	}
	gpu->from = "this machine's";
	if (real_gpu(o, gpu))
		return AR_OK;
	return run_engine_gpu(gpu, err);
}

/* ---- the model and the methods ---- */

static bool has_mixed_kv(const struct model *m)
{
	bool full = false, other = false;

	for (int i = 0; i < m->n_layers; i++) {
		const struct layer_spec *l = &m->layer[i];

		full = full || (l->mixer == MIX_FULL && cache_is_bf16(l->cache));
		other = other || !cache_is_bf16(l->cache);
	}
	return full && other;
}

static void read_model(const struct policy *p, const struct model *m, struct facts *f)
{
	const char *why = run_uncached(p, m);

	f->max_len = m->max_len;
	for (int i = 0; i < m->n_layers; i++)
		f->linear = f->linear || !mixer_attends(m->layer[i].mixer);
	f->index = m->layer->index.heads > 0;
	f->mixed = has_mixed_kv(m);
	f->latent8 = m->layer->mixer == MIX_LATENT && !f->index && !cache_is_bf16(m->layer->cache);
	if (why)
		snprintf(f->why, sizeof f->why, "%s", why);
}

/* cached: evictors go with a prefix cache. */
static enum ar_status read_method(const char *name, bool cached, struct facts *f,
				  struct ar_err *err)
{
	struct plan *p;
	enum ar_status st = plan_parse(&p, name, err);

	if (!is_read(&st))
		return st;
	if (p->drop || (plan_evict(p) && !cached))
		snprintf(f->why, sizeof f->why, "'%.200s' %s tokens", p->name,
			 p->drop ? "drops" : "evicts");
	plan_free(p);
	return AR_OK;
}

static enum ar_status read_methods(const char *list, bool cached, struct facts *f,
				   struct ar_err *err)
{
	char **name = NULL;
	size_t n = 0;
	enum ar_status st = method_split(list, &name, &n, err);

	if (!is_read(&st))
		return st;
	for (size_t i = 0; i < n; i++) {
		if (!st)
			st = read_method(name[i], cached, f, err);
		free(name[i]);
	}
	free(name);
	return st;
}

/* The facts of the run with costs c. */
static enum ar_status cost_facts(const struct run_options *o, const struct costs *c,
				 struct facts *f, struct ar_err *err)
{
	struct model m;
	enum ar_status st = AR_OK;

	if (c->run.model_json) {
		st = model_parse(&m, c->name, c->run.model_json, err);
		if (is_read(&st)) {
			read_model(policies[o->policy], &m, f);
			model_release(&m);
		}
	}
	if (st || !c->run.method_name)
		return st;
	return read_method(c->run.method_name, o->limits.evict_cache, f, err);
}

static enum ar_status own_facts(const struct run_options *o, struct facts *f, struct ar_err *err)
{
	const struct backend *b = backend_find(o->backend);
	const char *name = o->model ? o->model : o->weights;
	struct model m;
	enum ar_status st;

	if ((b && !b->needs_model) || !name)
		return AR_OK;
	st = model_load_as(&m, name, o->as_model, err);
	if (is_read(&st)) {
		st = model_set_formats(&m, o->quantization, o->kv_dtype, err);
		if (!st && o->kv_skip)
			st = model_skip_kv(&m, o->kv_skip, err);
		is_read(&st);
		read_model(policies[o->policy], &m, f);
		if (!st)
			st = model_split(&m, o->tp, err);
		if (is_read(&st)) {
			f->weights = model_weight_bytes(&m);
			f->state = model_state_bytes(&m);
		}
		model_release(&m);
	}
	return st ? st : read_methods(o->methods, o->limits.evict_cache, f, err);
}

static enum ar_status find_facts(const struct run_options *o, struct facts *f, struct ar_err *err)
{
	const char *name = run_options_costs(o);
	const enum log_level level = log_level;
	struct costs *mine = NULL;
	const struct costs *c = o->costs;
	enum ar_status st = AR_OK;

	log_level = LOG_ERROR; /* what warns about inputs warns when they are loaded */
	if (name && !c) {
		st = costs_open_run(&mine, name, err);
		c = mine;
	}
	is_read(&st);
	if (!st && !f->gpu.from)
		st = find_gpu(o, c, &f->gpu, err);
	if (!st)
		st = c ? cost_facts(o, c, f, err) : own_facts(o, f, err);
	costs_close(mine);
	log_level = level;
	return st;
}

/* ---- values ---- */

struct values {
	int64_t tokens, requests, block_tok;
	bool async, prefix_cache;
	double memory_share;
};

static int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t captured(const struct engine_defaults *d, int64_t requests, int64_t tp)
{
	int64_t most = tp >= 4 && d->captured_tp4 ? d->captured_tp4 : d->captured;

	return lesser(most, d->captured_per_req * requests);
}

static double memory_share(const struct policy *p, const struct engine_defaults *d,
			   const struct engine_gpu *gpu, int64_t tokens, int64_t requests,
			   int64_t tp)
{
	double share = d->memory_share;

	if (!(share > 0) && gpu->bytes)
		share = p->memory_share(gpu->bytes, tokens, captured(d, requests, tp), tp);
	return share > 0.01 ? share : 0.9;
}

int64_t run_states_fit(int64_t state, double left)
{
	return state > 0 && left > 0 ? (int64_t)(left / 2 / (double)state) : 0;
}

/* Requests whose states leave room for KV blocks, of at most n.  What does not fit at all is
 * refused later. */
static int64_t requests_with_room(const struct facts *f, int64_t n, double share)
{
	const double left = share * (double)f->gpu.bytes - (double)f->weights;
	const int64_t fit = f->gpu.real ? run_states_fit(f->state, left) : 0;

	return fit ? lesser(n, fit) : n;
}

static int64_t own_block_tok(const struct engine_defaults *d, const struct facts *f)
{
	if (f->index && d->index_block_tok)
		return d->index_block_tok;
	if (f->mixed && d->mixed_block_tok)
		return d->mixed_block_tok;
	return f->latent8 && d->latent8_block_tok ? d->latent8_block_tok : d->block_tok;
}

/* What the engine itself takes on this GPU for this model. */
static struct values own_values(const struct run_options *o, const struct engine_defaults *d,
				const struct facts *f)
{
	struct values v = { .tokens = d->tokens,
			    .requests = d->requests,
			    .block_tok = own_block_tok(d, f),
			    .async = d->async,
			    .prefix_cache = d->prefix_cache && !(d->linear_uncached && f->linear) };

	v.memory_share = memory_share(policies[o->policy], d, &f->gpu, v.tokens, v.requests, o->tp);
	return v;
}

/* Of these, what the run takes: beside what was given, and as far as it can. */
static struct values run_values(const struct run_options *o, const struct engine_defaults *d,
				const struct facts *f, struct values v)
{
	const struct policy *p = policies[o->policy];
	const bool tokens = opt_given(o->group, "max-num-batched-tokens");
	const bool requests = opt_given(o->group, "max-num-seqs");
	const double share = opt_given(o->group, "gpu-memory-utilization") ? o->memory_share :
									     v.memory_share;
	const int64_t len = o->limits.max_len ? o->limits.max_len : f->max_len;

	v.requests = requests ? o->limits.max_seqs : requests_with_room(f, v.requests, share);
	if (tokens)
		v.tokens = o->limits.max_batched_tok;
	else if (!o->chunked && v.tokens < len) /* no prompt is cut */
		v.tokens = len;
	else if (d->tokens_by_length && len && len < v.tokens / v.requests)
		v.tokens = v.requests * len;
	if (requests && !tokens && v.tokens < v.requests)
		v.tokens = v.requests;
	v.requests = lesser(v.requests, v.tokens);
	v.block_tok = lesser(v.block_tok, v.tokens);
	v.async = v.async && p->can & POLICY_ASYNC;
	/* States are kept where prompts are cut. */
	v.prefix_cache = v.prefix_cache && p->can & POLICY_PREFIX_CACHE && !*f->why &&
			 (o->chunked || !f->linear);
	v.memory_share = memory_share(p, d, &f->gpu, v.tokens, v.requests, o->tp);
	return v;
}

static enum ar_status set_values(struct run_options *o, const struct values *v, struct ar_err *err)
{
	const struct {
		const char *name;
		double x;
	} all[] = { { "max-num-batched-tokens", (double)v->tokens },
		    { "max-num-seqs", (double)v->requests },
		    { "block-size", (double)v->block_tok },
		    { "async-scheduling", v->async },
		    { "enable-prefix-caching", v->prefix_cache },
		    { "gpu-memory-utilization", v->memory_share } };
	enum ar_status st = opt_set_default(o->group, "rates", "engine", err);

	for (size_t i = 0; i < sizeof all / sizeof *all && !st; i++) {
		char text[32];

		snprintf(text, sizeof text, "%.10g", all[i].x);
		st = opt_set_default(o->group, all[i].name, text, err);
	}
	return st;
}

/* ---- what differs ---- */

struct note {
	char *text;
	size_t n, size;
};

static __attribute__((format(printf, 2, 3))) void add(struct note *t, const char *format, ...)
{
	va_list ap;

	if (t->n >= t->size)
		return;
	t->n += (size_t)snprintf(t->text + t->n, t->size - t->n, "%s", t->n ? "; " : "");
	if (t->n >= t->size)
		return;
	va_start(ap, format);
	t->n += (size_t)vsnprintf(t->text + t->n, t->size - t->n, format, ap);
	va_end(ap);
}

static void add_count(struct note *t, int64_t ours, int64_t own, const char *what)
{
	if (ours != own)
		add(t, "%" PRId64 " %s, the engine's own %" PRId64, ours, what, own);
}

static void add_switch(struct note *t, bool ours, bool own, const char *what, const char *why)
{
	const bool because = !ours && *why;

	if (ours != own)
		add(t, "%s%s%s%s%s, the engine's own is %s", ours ? "" : "no ", what,
		    because ? " (" : "", because ? why : "", because ? ")" : "",
		    own ? "on" : "off");
}

/* Say where the run differs from the engine's own defaults. */
static void compare(struct run_options *o, const struct facts *f, const struct values *own)
{
	const struct policy *p = policies[o->policy];
	const char *unmodelled = "not modelled for this policy";
	struct note t = { .text = o->engine_differs, .size = sizeof o->engine_differs };
	double share = own->memory_share;
	const bool has_share = opt_get_real(o->group, "gpu-memory-utilization", &share);

	*t.text = 0;
	add_count(&t, o->limits.max_batched_tok, own->tokens, "tokens");
	add_count(&t, o->limits.max_seqs, own->requests, "requests");
	add_count(&t, o->limits.block_tok, own->block_tok, "tokens a block");
	add_switch(&t, o->limits.async, own->async, "asynchronous scheduling",
		   p->can & POLICY_ASYNC ? "" : unmodelled);
	add_switch(&t, o->limits.prefix_cache, own->prefix_cache, "prefix cache",
		   p->can & POLICY_PREFIX_CACHE ? f->why : unmodelled);
	if (has_share && o->engine_defaults == RUN_DEFAULTS_ENGINE && share != own->memory_share)
		add(&t, "%g of the memory, the engine's own %g", share, own->memory_share);
}

enum ar_status run_engine_defaults(struct run_options *o, const struct engine_gpu *gpu,
				   struct ar_err *err)
{
	const struct policy *p = policies[o->policy];
	struct facts f = { 0 };
	const struct engine_defaults *d;
	struct values own, v;
	enum ar_status st = AR_OK;

	if (gpu)
		f.gpu = *gpu;
	st = find_facts(o, &f, err);
	if (st)
		return st;
	d = policy_defaults(p, f.gpu.name, f.gpu.bytes);
	own = own_values(o, d, &f);
	v = run_values(o, d, &f, own);
	if (o->engine_defaults == RUN_DEFAULTS_ENGINE && !o->resumed)
		st = set_values(o, &v, err);
	if (!opt_given(o->group, "max-num-seqs"))
		o->limits.max_seqs = lesser(o->limits.max_seqs, o->limits.max_batched_tok);
	o->engine_gpu = f.gpu;
	compare(o, &f, &own);
	return st;
}

char *run_defaults_text(const struct run_options *o)
{
	const bool none = o->engine_defaults == RUN_DEFAULTS_NONE;
	char *text;

	if (asprintf(&text, "%s %s on %s (%s)%s%s", none ? "none; beside" : "of",
		     policies[o->policy]->name, o->engine_gpu.name, o->engine_gpu.from,
		     *o->engine_differs ? ": " : "", o->engine_differs) < 0)
		return NULL;
	return text;
}

int64_t run_most_captured(const struct run_options *o)
{
	const struct policy *p = policies[o->policy];

	if (o->engine_defaults == RUN_DEFAULTS_NONE)
		return 0;
	return captured(policy_defaults(p, o->engine_gpu.name, o->engine_gpu.bytes),
			o->limits.max_seqs, o->tp);
}
