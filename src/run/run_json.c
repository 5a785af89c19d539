/* SPDX-License-Identifier: Apache-2.0 */
/* The summary of 'attnreplay run' for programs: a JSON object for each method. */
#include "config.h"
#include "src/run/run.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "src/json_file.h"

static cJSON *json_of_text(const char *s)
{
	return s ? cJSON_CreateString(s) : cJSON_CreateNull();
}

static cJSON *json_count(int64_t n)
{
	return cJSON_CreateNumber((double)n);
}

/* The captures, or null if no kernels ran. */
static cJSON *captures(const struct run_inputs *in)
{
	cJSON *all = in->n_capture ? cJSON_CreateArray() : cJSON_CreateNull();
	bool done = all;

	for (size_t i = 0; done && i < in->n_capture; i++) {
		const struct capture_info *info = capture_info(in->capture[i]);
		cJSON *o = cJSON_CreateObject();

		done = json_add(all, NULL, o) && json_add(o, "name", json_of_text(info->name)) &&
		       json_add(o, "checksum", json_of_text(*info->sha256 ? info->sha256 : NULL)) &&
		       json_add(o, "model", json_of_text(*info->model ? info->model : NULL)) &&
		       json_add(o, "tokens", json_count(info->n_tok)) &&
		       json_add(
			       o, "origin",
			       json_of_text(
				       capture_origin_names[capture_origin(info, in->model.name)]));
	}
	if (done)
		return all;
	cJSON_Delete(all);
	return NULL;
}

static cJSON *positive(int64_t n)
{
	return n ? json_count(n) : cJSON_CreateNull();
}

/* What the model needs and what its GPU has, or null if the run has no model. */
static cJSON *json_memory(const struct run_inputs *in)
{
	const struct run_memory *m = &in->memory;
	cJSON *o = m->n_params ? cJSON_CreateObject() : cJSON_CreateNull();

	if (!o || !m->n_params)
		return o;
	if (json_add(o, "parameters", json_count(m->n_params)) &&
	    json_add(o, "weight_bytes", json_count(m->weight_bytes)) &&
	    json_add(o, "token_bytes", json_count(m->token_bytes)) &&
	    json_add(o, "block_bytes", json_count(m->block_bytes)) &&
	    json_add(o, "pool_tokens", json_count(run_pool_tokens(in))) &&
	    json_add(o, "gpu", json_of_text(*m->gpu ? m->gpu : NULL)) &&
	    json_add(o, "gpu_bytes", positive(m->gpu_bytes)) &&
	    json_add(o, "gpu_share",
		     m->gpu_bytes ? cJSON_CreateNumber(m->share) : cJSON_CreateNull()))
		return o;
	cJSON_Delete(o);
	return NULL;
}

/* How the method was tuned, or null. */
static cJSON *json_match(const struct run *r, size_t i, const struct replay_result *res)
{
	return r->session.match ?
		       r->session.tuner->json(r->session.match, i % r->in.n_methods, res) :
		       cJSON_CreateNull();
}

/* The engines, or null if there is one. */
static cJSON *json_replicas(const struct run_options *o)
{
	const struct replay_apart *a = &o->apart;
	const int64_t n = a->prefill ? a->prefill + a->decode : o->replicas;
	cJSON *x = n > 1 ? cJSON_CreateObject() : cJSON_CreateNull();

	if (!x || n == 1)
		return x;
	if (json_add(x, "n", json_count(n)) &&
	    json_add(x, "router", json_of_text(run_options_route(o).router->name)) &&
	    json_add(x, "prefill", positive(a->prefill)) &&
	    json_add(x, "decode", positive(a->decode)) &&
	    json_add(x, "kv_link", json_of_text(a->prefill ? o->kv_link : NULL)))
		return x;
	cJSON_Delete(x);
	return NULL;
}

/* Add the method, the inputs and the settings of run i.  formats: see run_params(). */
static bool add_head(cJSON *o, const struct run *r, size_t i, const struct plan *p,
		     const char *formats, const struct replay_result *res)
{
	const struct store_run *from = r->in.costs ? &r->in.costs->run : &(struct store_run){ 0 };
	const char *params = p ? formats : from->method_params;
	int tp = p ? r->in.model.tp : from->tp;

	return json_add(o, "method", json_of_text(p ? p->name : from->method_name)) &&
	       json_add(o, "repeat", json_count((int64_t)(i / r->in.n_methods))) &&
	       json_add(o, "parameters", params ? cJSON_Parse(params) : cJSON_CreateNull()) &&
	       json_add(o, "match", json_match(r, i, res)) &&
	       json_add(o, "model", json_of_text(p ? r->in.model.name : from->model_name)) &&
	       json_add(o, "tp", tp ? json_count(tp) : cJSON_CreateNull()) &&
	       json_add(o, "weights", json_of_text(r->session.o.weights)) &&
	       json_add(o, "captures", captures(&r->in)) &&
	       json_add(o, "trace", json_of_text(r->in.trace->name)) &&
	       json_add(o, "trace_sha256", json_of_text(r->in.trace->sha256)) &&
	       json_add(o, "policy", json_of_text(r->in.limits.policy->name)) &&
	       json_add(o, "engine_defaults", json_of_text(r->session.defaults)) &&
	       json_add(o, "backend", json_of_text(r->session.backend->name)) &&
	       json_add(o, "clock", json_of_text(run_clock_name(&r->session))) &&
	       json_add(o, "comm", json_of_text(*r->in.comm_text ? r->in.comm_text : NULL)) &&
	       json_add(o, "replicas", json_replicas(&r->session.o)) &&
	       json_add(o, "host", json_of_text(r->in.host.name)) &&
	       json_add(o, "blocks", json_count(r->in.limits.num_blocks)) &&
	       json_add(o, "block_tokens", json_count(r->in.limits.block_tok)) &&
	       json_add(o, "memory", json_memory(&r->in)) &&
	       json_add(o, "db", json_of_text(r->session.o.db)) &&
	       json_add(o, "run_id",
			r->session.store ? json_count(r->out.run_id) : cJSON_CreateNull());
}

static bool add_counts(cJSON *o, const struct replay_result *res)
{
	const int64_t *from = res->cost_sources;
	const struct {
		const char *name;
		int64_t n;
	} list[] = { { "ok", res->ok },
		     { "rejected", res->rejected },
		     { "unfinished", res->unfinished },
		     { "iterations", res->iterations },
		     { "entries", res->entries },
		     { "prefill_tokens", res->prefill_tok },
		     { "decode_tokens", res->decode_tok },
		     { "output_tokens", res->output_tok },
		     { "preemptions", res->preemptions },
		     { "engine_failures", res->failures },
		     { "recomputed_tokens", res->recomputed_tok },
		     { "cached_tokens", res->cached_tok },
		     { "kv_refilled", res->kv_refilled },
		     { "evict_waits", res->evict_waits },
		     { "costs_measured", from[COST_MEASURED] },
		     { "costs_interpolated", from[COST_INTERPOLATED] },
		     { "costs_extrapolated", from[COST_EXTRAPOLATED] } };
	bool done = json_add_real(o, "end_s", (double)res->end_ns / 1e9);

	for (size_t i = 0; done && i < sizeof list / sizeof *list; i++)
		done = json_add(o, list[i].name, json_count(list[i].n));
	return done;
}

/* The messages of collectives by kernel; null without a table. */
static cJSON *json_messages(const struct run_inputs *in, const struct replay_result *res)
{
	cJSON *o = comm_ranks(&in->comm) > 1 && in->comm.table ? cJSON_CreateObject() :
								 cJSON_CreateNull();

	for (int k = 0; k < COMM_KERNELS && cJSON_IsObject(o); k++)
		if (res->comm_sent[k] &&
		    !json_add(o, in->comm_table.kernel[k], json_count(res->comm_sent[k]))) {
			cJSON_Delete(o);
			return NULL;
		}
	return o;
}

static bool add_percentile(cJSON *o, const char *name, const struct series *s, double p)
{
	return json_add(o, name,
			s->n ? cJSON_CreateNumber(series_percentile(s, p) / 1e6) :
			       cJSON_CreateNull());
}

static bool add_latencies(cJSON *o, const struct replay_result *res)
{
	cJSON *all = cJSON_AddObjectToObject(o, "latency_ms");
	bool done = all;

	for (int m = 0; done && m < LATENCY_COUNT; m++) {
		const struct series *s = &res->latency[m];
		cJSON *x = cJSON_AddObjectToObject(all, latency_names[m]);

		done = x && json_add(x, "count", json_count((int64_t)s->n)) &&
		       json_add(x, "mean",
				s->n ? cJSON_CreateNumber(series_mean(s) / 1e6) :
				       cJSON_CreateNull()) &&
		       add_percentile(x, "p50", s, 50) && add_percentile(x, "p90", s, 90) &&
		       add_percentile(x, "p99", s, 99);
	}
	return done;
}

static bool add_accuracy(cJSON *o, const char *name, const struct sample_sums *s)
{
	double n = (double)s->n_heads;
	cJSON *x;

	if (!s->n_heads)
		return json_add(o, name, cJSON_CreateNull());
	x = cJSON_AddObjectToObject(o, name);
	return x && json_add(x, "samples", json_count(s->n)) &&
	       json_add_real(x, "rel_l2_mean", s->rel_l2_sum / n) &&
	       json_add_real(x, "rel_l2_max", s->rel_l2_max) &&
	       json_add_real(x, "cosine_min", s->cosine_min) &&
	       json_add_real(x, "recall_mean", s->recall_sum / n);
}

static bool add_goodput(cJSON *o, const struct trace *trace, const char *slo,
			const struct replay_result *res)
{
	struct run_goodput g = run_goodput(trace, res);
	cJSON *x;

	if (!slo)
		return json_add(o, "goodput", cJSON_CreateNull());
	x = cJSON_AddObjectToObject(o, "goodput");
	return x && json_add(x, "slo", json_of_text(slo)) && json_add_real(x, "requests", g.good) &&
	       json_add_real(x, "of", g.of) && json_add_real(x, "share", g.share) &&
	       json_add_real(x, "per_s", g.per_s);
}

/* The KV cache groups, or null if the run has none. */
static cJSON *groups(const struct run_inputs *in, const struct replay_result *res)
{
	const struct sched_limits *l = &in->limits;
	cJSON *all = res->group_peak ? cJSON_CreateArray() : cJSON_CreateNull();
	bool done = all;

	for (size_t i = 0; done && res->group_peak && i < l->n_group; i++) {
		const struct kv_group *g = &l->group[i];
		cJSON *o = cJSON_CreateObject();

		done = json_add(all, NULL, o) &&
		       json_add(o, "kind", json_of_text(run_kind(g->mixer))) &&
		       json_add(o, "window", positive(g->window)) &&
		       json_add(o, "layers", json_count(g->n_layers)) &&
		       json_add(o, "block_tokens", positive(g->block_tok)) &&
		       json_add(o, "block_bytes", json_count(in->groups.block_bytes)) &&
		       json_add(o, "peak_blocks", json_count(res->group_peak[i]));
	}
	if (done)
		return all;
	cJSON_Delete(all);
	return NULL;
}

enum ar_status run_json_open(struct run_session *s, struct ar_err *err)
{
	bool same = false;
	enum ar_status st = AR_OK;

	if (s->o.json && s->o.db)
		st = outfile_same(s->o.json, s->o.db, &same, err);
	if (same)
		return ar_fail(err, AR_USAGE, "%s: given for two outputs; name another file",
			       s->o.db);
	return st ? st : json_file_open(&s->json, s->o.json, err);
}

/* The stream is flushed: run_method_apart() may be in a process that ends without that. */
enum ar_status run_json_put(struct run *r, size_t i, const struct plan *p,
			    const struct replay_result *res, struct ar_err *err)
{
	FILE *f = r->session.json.f;
	char *params = NULL;
	cJSON *o;
	enum ar_status st;

	if (!f)
		return AR_OK;
	fputs(i > r->session.first ? ",\n" : "{\"schema\":\"attnreplay-run-1\",\"runs\":[\n", f);
	o = cJSON_CreateObject();
	params = p ? run_params(&r->in.model, p) : NULL;
	if (o &&
	    !((params || !p) && add_head(o, r, i, p, params, res) && add_counts(o, res) &&
	      json_add(o, "comm_messages", json_messages(&r->in, res)) && add_latencies(o, res) &&
	      add_accuracy(o, "accuracy", &res->sample[ROW_PREFILL]) &&
	      add_accuracy(o, "accuracy_decode", &res->sample[ROW_DECODE]) &&
	      add_goodput(o, r->in.trace, r->session.o.slo, res) &&
	      json_add(o, "kv_groups", groups(&r->in, res)) &&
	      (!r->session.watch || r->session.watch->json(r->session.watch->ctx, i, o)))) {
		cJSON_Delete(o);
		o = NULL;
	}
	free(params);
	st = json_put(o, f, err);
	if (!st && (fflush(f) || ferror(f)))
		st = ar_fail(err, AR_IO, "%s: cannot write: %s", r->session.json.path,
			     strerror(errno));
	return st;
}

enum ar_status run_json_close(struct run_session *s, enum ar_status st, struct ar_err *err)
{
	if (!st && s->json.f) {
		fputs("]}\n", s->json.f);
		st = outfile_commit(&s->json, err);
	}
	outfile_release(&s->json);
	return st;
}
