/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/backend_roofline.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "kernels/select/density/density.h"
#include "replay/cost/roofline_latent.h"
#include "replay/engine/backends_attn.h"
#include "replay/engine/graph_sizes.h"
#include "replay/engine/run_scope.h"

struct roofline {
	struct backend_env env;
	struct roofline_gpu gpu;
	const struct method *method;
	struct roofline_subject subject;
	int64_t max_captured;
	int *all, *run; /* [n_layers of the model] kinds of all and of executed layers */
	bool run_all;	/* they are equal */
	const struct layer_spec *latent; /* the first layer with latents; NULL: there is none */
	void *cpu;			 /* backend cpu, which selects; or NULL */
	double *of_entry;		 /* [max_seqs] densities of a batch; of its chunks, if cpu
					  * selects */
	struct selection_count *count;	 /* [n_run_layers][kv_heads], if cpu selects */
};

static const char *const latent_forms[] = { "auto", "absorb", "expand", NULL };
static const char *const rates[] = { "own", "engine", NULL };

/* clang-format off */
static const struct opt roofline_opts[] = {
	{ .name = "gpu", .type = OPT_STR, .off = offsetof(struct roofline_options, gpu),
	  .arg = "NAME|FILE", .def = "h200", .choice = roofline_gpu_names,
	  .help = "GPU to model: a preset, or a file of 'attnreplay calibrate roofline'" },
	{ .name = "rates", .type = OPT_ENUM, .off = offsetof(struct roofline_options, rates),
	  .arg = "own|engine", .def = "own", .own = "engine", .choice = rates,
	  .help = "whose kernels to model: the ones here, or those of the policy's engine where "
		  "the GPU has rates of them", .may_differ = true },
	{ .name = "density", .type = OPT_LIST, .off = offsetof(struct roofline_options, density),
	  .arg = "METHOD=SHARE,...",
	  .help = "share of the (query, key) pairs that a sparse method computes, for each method "
		  "that needs one; the option may be repeated",
	  .scope = RUN_DENSITY, .may_differ = true },
	{ .name = "latent", .type = OPT_ENUM, .off = offsetof(struct roofline_options, latent),
	  .arg = "FORM", .def = "auto", .choice = latent_forms,
	  .help = "how chunks of prompts without lists attend to latents: absorb, expand, or auto, "
		  "in the form with fewer FLOPs" },
	{ .name = "routing", .type = OPT_STR, .off = offsetof(struct roofline_options, routing),
	  .arg = "RULE|FILE", .def = "even",
	  .help = "to which experts rows go: even, uniform, zipf:A, or as a file says; all but "
		  "even are drawn for each iteration and layer" },
	{ .name = "routing-seed", .type = OPT_INT,
	  .off = offsetof(struct roofline_options, routing_seed), .arg = "N", .def = "1",
	  .max = 9e15, .help = "seed of --routing" },
	{ 0 }
};
/* clang-format on */

/* ---- densities ---- */

bool roofline_density_is_of(const char *text, const char *method)
{
	const char *eq = strrchr(text, '=');
	const size_t n = eq ? (size_t)(eq - text) : 0;

	return n && !strncmp(text, method, n) &&
	       (method[n] == 0 || (method[n] == ':' && !memchr(text, ':', n)));
}

static enum ar_status parse_share(const char *text, double *share, struct ar_err *err)
{
	const char *eq = strrchr(text, '=');

	if (!eq || eq == text || !num_real(eq + 1, share) || !(*share >= 0 && *share <= 1))
		return ar_fail(err, AR_USAGE,
			       "density '%s': want METHOD=SHARE, a share from 0 to 1, such as "
			       "flashprefill=0.25",
			       text);
	return AR_OK;
}

/* The density of m without a capture; below 0: it is not known. */
static double known_density(const struct roofline_options *o, const struct method *m)
{
	double share = -1;

	if (method_prefill(m)->dense) /* which tiles it skips, only data tell */
		return 1;
	for (size_t i = 0; i < o->density.n; i++)
		if (roofline_density_is_of(o->density.v[i], m->name))
			num_real(strrchr(o->density.v[i], '=') + 1, &share);
	if (share < 0 && !strcmp(method_prefill(m)->selector->name, "density"))
		share = ((const struct density *)method_prefill(m)->param)->share;
	return share;
}

enum ar_status roofline_check_density(const struct roofline_options *o, struct plan *const *plan,
				      size_t n, bool capture, struct ar_err *err)
{
	double share;

	for (size_t k = 0; k < n; k++)
		if (plan[k]->drop)
			return ar_fail(err, AR_USAGE,
				       "method '%s': backend roofline models no dropper; run it "
				       "with another backend",
				       plan[k]->name);
	for (size_t k = 0; k < n; k++)
		if (!plan_single(plan[k]) || plan_single(plan[k])->first ||
		    plan_single(plan[k])->later)
			return ar_fail(err, AR_USAGE,
				       "method '%s': its layers differ, and backend roofline "
				       "models one method in all layers; run it with another "
				       "backend",
				       plan[k]->name);
	for (size_t i = 0; i < o->density.n; i++) {
		enum ar_status st = parse_share(o->density.v[i], &share, err);
		bool used = false;

		if (st)
			return st;
		for (size_t k = 0; k < n; k++)
			used = used || (!plan_dense_rows(plan[k], ROW_PREFILL) &&
					roofline_density_is_of(o->density.v[i],
							       plan_single(plan[k])->name));
		if (!used)
			return ar_fail(
				err, AR_USAGE,
				"density '%s' has no effect: no sparse method has this name; "
				"leave it out",
				o->density.v[i]);
	}
	for (size_t k = 0; k < n; k++)
		if (!capture && known_density(o, plan_single(plan[k])) < 0)
			return ar_fail(err, AR_USAGE,
				       "the density of method '%s' is not known; give it with "
				       "--density %s=SHARE, or a capture to select from with "
				       "--capture FILE",
				       plan_single(plan[k])->name, plan_single(plan[k])->name);
	return AR_OK;
}

/* Density of a chunk: the pairs that the method selects, summed over layers and heads. */
static enum ar_status select_density(struct roofline *c, const struct batch_entry *e, double *share,
				     struct ar_err *err)
{
	int n = c->env.n_run_layers * model_attention(c->env.model)->kv_heads;
	double selected = 0, total = 0;
	enum ar_status st = backend_cpu_count(c->cpu, e, c->count, err);

	for (int i = 0; i < n && !st; i++) {
		selected += (double)c->count[i].exec_sel;
		total += (double)c->count[i].exec_total;
	}
	*share = total > 0 ? selected / total : 1;
	return st;
}

/* ---- the backend ---- */

static void roofline_close(void *self)
{
	struct roofline *c = self;

	if (!c)
		return;
	backend_close(&backend_cpu, c->cpu);
	free(c->all);
	free(c->run);
	free(c->of_entry);
	free(c->count);
	free(c);
}

static enum ar_status set_captured(struct roofline *c, struct ar_err *err)
{
	struct graph_sizes s;
	enum ar_status st = graph_sizes_open(&s, NULL, c->env.max_seqs, c->env.max_captured,
					     c->env.max_batched_tok, err);

	if (!st)
		c->max_captured = s.size[s.n - 1];
	if (!st)
		graph_sizes_release(&s);
	return st;
}

/* Open backend cpu if the density of the method is to be found. */
static enum ar_status open_selection(struct roofline *c, struct ar_err *err)
{
	const struct backend_env *env = &c->env;
	size_t n = (size_t)(env->n_run_layers * model_attention(env->model)->kv_heads);

	if (method_prefill(c->method)->dense || !env->n_capture)
		return AR_OK;
	c->count = calloc(n, sizeof *c->count);
	return c->count ? backend_open(&backend_cpu, &c->cpu, NULL, env, err) : ar_nomem(err);
}

static enum ar_status find_kinds(struct roofline *c, struct ar_err *err)
{
	const struct backend_env *env = &c->env;
	size_t n = (size_t)env->model->n_layers;

	c->all = calloc(n, sizeof *c->all);
	c->run = calloc(n, sizeof *c->run);
	if (!c->all || !c->run)
		return ar_nomem(err);
	roofline_kinds(env->model, NULL, env->model->n_layers, c->all);
	roofline_kinds(env->model, env->run_layer, env->n_run_layers, c->run);
	c->run_all = !memcmp(c->all, c->run, n * sizeof *c->all);
	return AR_OK;
}

/* The first layer of latent attention, NULL: there is none. */
static const struct layer_spec *latent_layer(const struct model *m)
{
	for (int i = 0; i < m->n_layers; i++)
		if (m->layer[i].mixer == MIX_LATENT)
			return &m->layer[i];
	return NULL;
}

static enum ar_status check_latent(const struct roofline_options *o, const struct model *m,
				   struct ar_err *err)
{
	if (o->latent == ROOFLINE_LATENT_AUTO || latent_layer(m))
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "latent has no effect: %s has no latent attention; leave it out", m->name);
}

static enum ar_status roofline_open(void **self, const void *opts, const struct backend_env *env,
				    struct ar_err *err)
{
	const struct roofline_options *o = opts;
	const double density = known_density(o, plan_single(env->plan));
	const struct roofline_engine *e = NULL;
	struct roofline *c;
	enum ar_status st;

	*self = NULL;
	if (check_latent(o, env->model, err))
		return AR_USAGE;
	c = calloc(1, sizeof *c);
	if (!c)
		return ar_nomem(err);
	c->env = *env;
	c->method = plan_single(env->plan);
	c->subject = (struct roofline_subject){ .model = env->model,
						.method = c->method,
						.attention_only = env->attention_only,
						.latent = (enum roofline_latent)o->latent,
						.experts = env->experts };
	c->latent = latent_layer(env->model);
	c->of_entry = calloc((size_t)env->max_seqs, sizeof *c->of_entry);
	for (int64_t i = 0; c->of_entry && i < env->max_seqs; i++)
		c->of_entry[i] = density;
	st = c->of_entry ? roofline_gpu_load(&c->gpu, o->gpu, err) : ar_nomem(err);
	if (!st && o->rates == ROOFLINE_RATES_ENGINE && env->policy)
		e = roofline_gpu_take(&c->gpu, env->policy);
	c->subject.draws = e ? e->draws : 0;
	if (!st)
		st = find_kinds(c, err);
	if (!st)
		st = set_captured(c, err);
	if (!st)
		st = open_selection(c, err);
	if (st) {
		roofline_close(c);
		return st;
	}
	*self = c;
	return AR_OK;
}

static int64_t roofline_max_captured(void *self)
{
	return ((struct roofline *)self)->max_captured;
}

static enum ar_status roofline_start(void *self, int64_t num_blocks, struct ar_err *err)
{
	struct roofline *c = self;

	return c->cpu ? backend_start(&backend_cpu, c->cpu, num_blocks, err) : AR_OK;
}

static enum ar_status roofline_run(void *self, const struct batch *b, struct iter_cost *cost,
				   struct ar_err *err)
{
	struct roofline *c = self;
	struct roofline_time all, run;

	for (size_t i = 0; c->cpu && i < b->n; i++) {
		enum ar_status st = AR_OK;

		if (b->entry[i].kind != ROW_DECODE)
			st = select_density(c, &b->entry[i], &c->of_entry[i], err);
		if (st)
			return st;
	}
	all = roofline_iteration(&c->gpu, &c->subject, c->all, b, c->of_entry);
	run = c->run_all ? all : roofline_iteration(&c->gpu, &c->subject, c->run, b, c->of_entry);
	*cost = (struct iter_cost){ .cost_ns = all.cost_ns,
				    .source = COST_MODELLED,
				    .event_ns = -1,
				    .span_ns = -1,
				    .busy_ns = -1 };
	memcpy(cost->phase_ns, run.phase_ns, sizeof run.phase_ns);
	memcpy(cost->phase_kernels, run.kernels, sizeof run.kernels);
	if (c->latent)
		cost->latent = roofline_latent_chunks(&c->subject, c->latent, b);
	return AR_OK;
}

static void roofline_drop(void *self, uint32_t req)
{
	struct roofline *c = self;

	if (c->cpu)
		backend_drop(&backend_cpu, c->cpu, req);
}

const struct backend backend_roofline = {
	.name = "roofline",
	.title = "modelled times of a GPU's kernels, no kernels",
	.opts = roofline_opts,
	.opts_size = sizeof(struct roofline_options),
	.needs_model = true,
	.modelled = true,
	.open = roofline_open,
	.max_captured = roofline_max_captured,
	.start = roofline_start,
	.run = roofline_run,
	.drop = roofline_drop,
	.close = roofline_close,
};
