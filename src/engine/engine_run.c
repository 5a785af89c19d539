/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log says how many tokens of a request a step ran, but not which.  That follows from the order
 * of the request's entries: its prompt after the tokens found in the prefix cache, then one token a
 * step.  A later entry of several tokens computes them again, after a preemption.
 */
#include "config.h"
#include "src/engine/engine_run.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/jsonval.h"
#include "base/log.h"
#include "base/number.h"
#include "model/model.h"
#include "replay/engine/record.h"

/* How far a request is. */
struct progress {
	uint32_t pos, known; /* next position, positions to compute until the next token */
	uint32_t n_entry, n_chunk, n_preempt, cached;
	uint64_t sum; /* of all its entries */
	int64_t recomputed;
	bool again; /* its positions were computed before */
	int64_t first_sched_ns;
	size_t last_step; /* plus 1; 0: none */
};

struct walk {
	const struct engine_run *r;
	struct store *store;
	struct progress *request; /* [n_request] */
	struct batch batch;	  /* entries of a step */
	struct store_entry *row;  /* the same */
};

/* ---- requests ---- */

static uint32_t prompt_of(const struct engine_run *r, size_t i)
{
	uint32_t n = r->log->request[i].prompt_tok;

	return n || !r->trace ? n : r->trace->req[i].prompt_tok;
}

static uint32_t output_of(const struct engine_run *r, size_t i)
{
	uint32_t n = r->log->request[i].output_tok;

	return n || !r->trace ? n : r->trace->req[i].output_tok;
}

static enum ar_status check_request(const struct engine_run *r, size_t i, struct ar_err *err)
{
	const struct engine_request *q = &r->log->request[i];

	if (q->ttft_ns >= 0 && (!prompt_of(r, i) || !output_of(r, i)))
		return ar_fail(
			err, AR_USAGE,
			"%s: the log does not say the lengths of request %zu; name its trace "
			"with --trace",
			r->log->name, i);
	if (r->trace && q->prompt_tok && q->prompt_tok != r->trace->req[i].prompt_tok)
		return ar_fail(err, AR_DATA,
			       "%s: request %zu has %" PRIu32 " prompt tokens, in %s %" PRIu32
			       "; give --trace the trace that the engine ran",
			       r->log->name, i, q->prompt_tok, r->trace->name,
			       r->trace->req[i].prompt_tok);
	return AR_OK;
}

enum ar_status engine_run_check(const struct engine_run *r, struct ar_err *err)
{
	const struct engine_log *log = r->log;
	enum ar_status st = AR_OK;

	if (r->trace && log->n_request && log->n_request != r->trace->n)
		return ar_fail(err, AR_DATA,
			       "%s: %zu requests, but %s has %zu; give --trace the trace that the "
			       "engine ran",
			       log->name, log->n_request, r->trace->name, r->trace->n);
	for (size_t i = 0; i < log->n_request && !st; i++)
		st = check_request(r, i, err);
	return st;
}

/* Times of tokens since arrival_ns; -1: not known. */
static void set_times(const struct engine_request *q, int64_t arrival_ns,
		      struct row_request_outcome *o)
{
	o->first_token_ns = o->finish_ns = -1;
	if (q->ttft_ns < 0)
		return;
	o->first_token_ns = num_add(arrival_ns, q->ttft_ns);
	if (q->last_token_ns >= 0)
		o->finish_ns = num_add(o->first_token_ns, q->last_token_ns - q->first_token_ns);
	else if (o->output_tokens == 1)
		o->finish_ns = o->first_token_ns;
	else if (q->tpot_ns >= 0)
		o->finish_ns = num_add(o->first_token_ns,
				       num_mul(q->tpot_ns, o->output_tokens - 1));
}

static enum ar_status store_request(struct walk *w, size_t i, struct ar_err *err)
{
	const struct engine_run *r = w->r;
	const struct engine_request *q = &r->log->request[i];
	const struct progress *p = &w->request[i];
	struct row_request_outcome o = { .req_no = (int64_t)i,
					 .prompt_tokens = prompt_of(r, i),
					 .output_tokens = output_of(r, i),
					 .first_sched_ns = p->first_sched_ns,
					 .n_chunks = p->n_chunk,
					 .n_preempt = p->n_preempt,
					 .recomputed_tokens = p->recomputed,
					 .cached_tokens = p->cached };

	o.arrival_ns = q->arrival_ns >= 0 ? q->arrival_ns :
		       r->trace		  ? r->trace->req[i].arrival_ns :
					    0;
	set_times(q, o.arrival_ns, &o);
	o.outcome = o.finish_ns >= 0 ? "ok" : "unfinished";
	o.replica = o.prefill_replica = o.kv_end_ns = -1;
	return store_outcome(w->store, &o, err);
}

/* ---- steps ---- */

/* Sum the tokens of each request.  Prompt tokens that lack were in the prefix cache. */
static void find_cached(struct walk *w)
{
	const struct engine_log *log = w->r->log;

	for (size_t i = 0; i < log->n_entry; i++)
		if (log->entry[i].req >= 0)
			w->request[log->entry[i].req].sum += log->entry[i].n_tok;
	for (size_t i = 0; i < log->n_request; i++) {
		struct progress *p = &w->request[i];
		uint32_t prompt = prompt_of(w->r, i);
		uint64_t all = (uint64_t)prompt + output_of(w->r, i) - 1;

		if (p->sum && p->sum < all && all - p->sum < prompt && log->request[i].ttft_ns >= 0)
			p->cached = (uint32_t)(all - p->sum);
		p->pos = p->cached;
		p->known = prompt;
		p->first_sched_ns = -1;
	}
}

/* Set *e to the tokens that entry x of a request computed.  at: the step. */
static enum ar_status follow_entry(struct walk *w, const struct engine_entry *x, size_t at,
				   struct batch_entry *e, struct ar_err *err)
{
	const struct engine_log *log = w->r->log;
	struct progress *p = &w->request[x->req];
	bool after = p->pos >= p->known;

	if (p->last_step == at + 1)
		return ar_fail(err, AR_DATA, "%s: step %zu runs request %" PRId32 " twice",
			       log->name, at, x->req);
	if (x->n_tok > INT32_MAX - p->pos)
		return ar_fail(err, AR_DATA,
			       "%s: request %" PRId32 " runs more than 2147483647 tokens",
			       log->name, x->req);
	p->last_step = at + 1;
	if (!p->n_entry)
		p->first_sched_ns = log->step[at].begin_ns;
	if (after && x->n_tok > 1) {
		p->known = p->pos + 1;
		p->pos = 0;
		p->again = true;
		p->n_preempt++;
		after = false;
	}
	*e = (struct batch_entry){ .req = (uint32_t)x->req,
				   .start = p->pos,
				   .n_tok = x->n_tok,
				   .kind = after ? ROW_DECODE : ROW_PREFILL,
				   .n_emit = after || p->pos + x->n_tok >= p->known,
				   .recompute = p->again && !after,
				   .chunk_no = p->n_entry++ };
	p->n_chunk += !after;
	p->recomputed += e->recompute ? x->n_tok : 0;
	p->pos += x->n_tok;
	return AR_OK;
}

/* Fill batch and row from a step.  *named: the log says which requests ran. */
static enum ar_status fill_batch(struct walk *w, size_t at, bool *named, struct ar_err *err)
{
	const struct engine_log *log = w->r->log;
	const struct engine_step *s = &log->step[at];
	struct batch *b = &w->batch;

	b->n = s->n_entry;
	b->prefill_tok = b->decode_tok = 0;
	*named = true;
	for (size_t i = 0; i < s->n_entry; i++) {
		const struct engine_entry *x = &log->entry[s->first + i];
		struct batch_entry *e = &b->entry[i];
		enum ar_status st = AR_OK;

		if (x->req >= 0)
			st = follow_entry(w, x, at, e, err);
		else
			*e = (struct batch_entry){ .n_tok = x->n_tok,
						   .kind = x->n_tok == 1 ? ROW_DECODE :
									   ROW_PREFILL };
		if (st)
			return st;
		*named = *named && x->req >= 0;
		*(e->kind == ROW_DECODE ? &b->decode_tok : &b->prefill_tok) += x->n_tok;
		w->row[i] = record_entry(e);
	}
	return AR_OK;
}

static enum ar_status store_step(struct walk *w, size_t at, struct ar_err *err)
{
	const struct engine_step *s = &w->r->log->step[at];
	struct batch_shape shape = { 0 };
	bool named;
	enum ar_status st = fill_batch(w, at, &named, err);

	if (st)
		return st;
	if (named)
		shape = batch_shape(&w->batch);
	return store_iteration(
		w->store,
		&(struct store_iteration){
			.row = { .iter_no = (int64_t)at,
				 .replica = -1,
				 .start_ns = s->begin_ns,
				 .end_ns = s->end_ns,
				 .host_ns = -1,
				 .event_ns = -1,
				 .span_ns = -1,
				 .busy_ns = -1,
				 .prefill_tokens = w->batch.prefill_tok,
				 .decode_tokens = w->batch.decode_tok,
				 .prefill_pairs = shape.feature[BATCH_PREFILL_PAIRS],
				 .decode_context = shape.feature[BATCH_DECODE_CONTEXT],
				 .longest_decode = shape.feature[BATCH_LONGEST_DECODE],
				 .composition = (int64_t)shape.composition,
				 .running = (int64_t)s->n_entry },
			.entry = named ? w->row : NULL,
			.n_entry = s->n_entry },
		err);
}

/* ---- the run ---- */

static enum ar_status walk_begin(struct walk *w, struct ar_err *err)
{
	const struct engine_log *log = w->r->log;
	size_t longest = 1;

	for (size_t i = 0; i < log->n_step; i++)
		if (log->step[i].n_entry > longest)
			longest = log->step[i].n_entry;
	w->request = calloc(log->n_request + 1, sizeof *w->request);
	w->batch.entry = malloc(longest * sizeof *w->batch.entry);
	w->row = malloc(longest * sizeof *w->row);
	if (!w->request || !w->batch.entry || !w->row)
		return ar_nomem(err);
	find_cached(w);
	return AR_OK;
}

static enum ar_status store_all(struct walk *w, struct ar_err *err)
{
	const struct engine_log *log = w->r->log;
	enum ar_status st = walk_begin(w, err);

	for (size_t i = 0; i < log->n_step && !st; i++)
		st = ar_interrupted() ? ar_fail(err, AR_INTERRUPTED, "interrupted") :
					store_step(w, i, err);
	for (size_t i = 0; i < log->n_request && !st; i++)
		st = store_request(w, i, err);
	free(w->request);
	free(w->batch.entry);
	free(w->row);
	return st;
}

/* The options of the engine that the log tells, under the names of attnreplay. */
static char *options_json(const struct engine_log *log)
{
	cJSON *o = cJSON_CreateObject();
	bool done = o && json_add_string(o, "log", log->name);
	char *text;

	if (done && log->async >= 0)
		done = json_add(o, "async-scheduling", cJSON_CreateBool(log->async));
	if (done && log->max_batched_tok)
		done = json_add(o, "max-num-batched-tokens",
				cJSON_CreateNumber((double)log->max_batched_tok));
	if (done && log->max_seqs)
		done = json_add(o, "max-num-seqs", cJSON_CreateNumber((double)log->max_seqs));
	text = done ? cJSON_PrintUnformatted(o) : NULL;
	cJSON_Delete(o);
	return text;
}

/* "vllm-0.24.0"; "engine" if the log does not say. */
static void name_engine(const struct engine_run *r, char *name, size_t n)
{
	const struct engine_log *log = r->log;

	if (r->name)
		snprintf(name, n, "%s", r->name);
	else
		snprintf(name, n, "%s%s%s", log->engine ? log->engine : "engine",
			 log->version ? "-" : "", log->version ? log->version : "");
}

/* Name the model after its architecture, as the log does not name the model.  False: no memory. */
static bool name_model(const char *json, char *name, size_t n)
{
	cJSON *config = json_parse_all(json, NULL);
	const cJSON *archs = cJSON_GetObjectItemCaseSensitive(config, "architectures");
	const char *arch = cJSON_GetStringValue(cJSON_GetArrayItem(archs, 0));

	snprintf(name, n, "%s", arch ? arch : "model");
	cJSON_Delete(config);
	return config;
}

/* A model that attnreplay cannot run is left out. */
static enum ar_status read_model(const struct engine_log *log, struct model *m, struct ar_err *err)
{
	struct ar_err why = { 0 };
	enum ar_status st = AR_OK;
	char name[64];

	*m = (struct model){ 0 };
	if (log->model_json && !name_model(log->model_json, name, sizeof name))
		st = AR_NOMEM;
	else if (log->model_json)
		st = model_parse(m, name, log->model_json, &why);
	if (st == AR_NOMEM)
		return ar_nomem(err);
	if (st)
		log_warn("%s: %s; the run has no model", log->name, why.msg);
	return AR_OK;
}

static enum ar_status begin_run(const struct engine_run *r, const struct model *m,
				const char *options, struct store *s, int64_t *run_id,
				struct ar_err *err)
{
	const struct engine_log *log = r->log;
	const struct layer_spec none = { 0 }, *layer = m->layer ? model_attention(m) : &none;
	struct store_gpu gpu = { 0 };
	char name[128];

	name_engine(r, name, sizeof name);
	if (log->gpu) {
		snprintf(gpu.uuid, sizeof gpu.uuid, "%s", log->gpu);
		snprintf(gpu.name, sizeof gpu.name, "%s", log->gpu);
	}
	return store_run_begin(
		s,
		&(struct store_run){
			.trace_name = r->trace ? r->trace->name : log->name,
			.trace_sha256 = r->trace ? r->trace->sha256 : "",
			.trace_format = r->trace ? r->trace->format : "engine",
			.n_requests = (int64_t)(r->trace ? r->trace->n : log->n_request),
			.model_name = m->json ? m->name : NULL,
			.model_json = m->json,
			.n_layers = m->n_layers,
			.hidden = m->hidden,
			.q_heads = layer->q_heads,
			.kv_heads = layer->kv_heads,
			.head_dim = layer->head_dim,
			.tp = 1,
			.policy = log->engine ? log->engine : "engine",
			.backend = name,
			.version = r->version,
			.cmdline = r->cmdline,
			.options = options,
			.setup = "{}",
			.clock = "engine",
			.gpu = log->gpu ? &gpu : NULL,
			.layers_run = m->n_layers },
		run_id, err);
}

enum ar_status engine_run_store(const struct engine_run *r, struct store *s, int64_t *run_id,
				struct ar_err *err)
{
	struct walk w = { .r = r, .store = s };
	char *options = options_json(r->log);
	struct model m;
	enum ar_status st = options ? read_model(r->log, &m, err) : ar_nomem(err), st2;

	if (st) {
		free(options);
		return st;
	}
	st = begin_run(r, &m, options, s, run_id, err);
	if (!st) {
		st = store_all(&w, err);
		st2 = store_run_end(s,
				    !st			 ? "done" :
				    st == AR_INTERRUPTED ? "aborted" :
							   "failed",
				    NULL, NULL, st ? NULL : err);
		st = st ? st : st2;
	}
	model_release(&m);
	free(options);
	return st;
}
