/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/record.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "replay/engine/replay.h"
#include "replay/ranks/tell.h"

struct store_entry record_entry(const struct batch_entry *e)
{
	return (struct store_entry){ .req = e->req,
				     .start = e->start,
				     .n_tok = e->n_tok,
				     .chunk_no = e->chunk_no,
				     .decode = e->kind == ROW_DECODE,
				     .emit = e->n_emit > 0,
				     .recompute = e->recompute };
}

static enum ar_status fill_rows(struct recorder *r, const struct batch *b, struct ar_err *err)
{
	if (!GROW(r->row, r->cap, b->n))
		return ar_nomem(err);
	for (size_t i = 0; i < b->n; i++)
		r->row[i] = record_entry(&b->entry[i]);
	return AR_OK;
}

/* Add the kernels of an iteration to the sums of their layers. */
static enum ar_status add_kernels(struct recorder *r, const struct iter_cost *c, struct ar_err *err)
{
	for (size_t i = 0; i < c->n_kernel; i++) {
		const struct prof_kernel *k = &c->kernel[i];

		if (k->layer == PHASE_NO_LAYER)
			continue;
		if (k->layer >= r->n_layers) {
			if (!GROW(r->sum, r->cap_sum, (size_t)k->layer + 1))
				return ar_nomem(err);
			while (r->n_layers <= k->layer)
				r->sum[r->n_layers++] = (struct layer_sum){ 0 };
		}
		r->sum[k->layer].ns[k->phase] += k->end_ns - k->start_ns;
		r->sum[k->layer].kernels[k->phase]++;
	}
	return AR_OK;
}

static enum ar_status put_layers(const struct recorder *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int l = 0; l < r->n_layers; l++)
		for (int p = 0; p < PHASE_COUNT && !st; p++)
			if (r->sum[l].kernels[p])
				st = store_layer_phase(r->store,
						       &(struct row_layer_phase){
							       .layer = l,
							       .phase_id = p,
							       .kernels = r->sum[l].kernels[p],
							       .gpu_ns = r->sum[l].ns[p] },
						       err);
	return st;
}

/* Make the rows of ranks; their number is it->n_rank. */
static void fill_ranks(struct row_iteration_rank *row, const struct observed_iteration *it)
{
	for (int i = 0; i < it->n_rank; i++) {
		const struct rank_tell *x = &it->rank[i];

		row[i] = (struct row_iteration_rank){ .rank = i,
						      .cost_ns = x->cost_ns,
						      .span_ns = x->span_ns,
						      .busy_ns = x->busy_ns,
						      .comm_exposed_ns = x->comm_exposed_ns,
						      .comm_overlap_ns = x->comm_overlap_ns };
	}
}

static enum ar_status record_iteration(void *self, const struct observed_iteration *it,
				       struct ar_err *err)
{
	struct recorder *r = self;
	const struct sched *s = it->sched;
	const struct iter_cost *c = it->cost;
	bool kernels = r->kernels && it->no % r->kernels == 0, phases = r->phases && s->batch.n;
	struct row_iteration_rank rank[RANKS_MAX];
	struct batch_shape shape;
	enum ar_status st = r->entries ? fill_rows(r, &s->batch, err) : AR_OK;

	r->latent.absorbed += c->latent.absorbed;
	r->latent.expanded += c->latent.expanded;
	if (!st)
		st = add_kernels(r, c, err);
	if (st || !r->iterations)
		return st;
	shape = batch_shape(&s->batch);
	fill_ranks(rank, it);
	return store_iteration(
		r->store,
		&(struct store_iteration){
			.row = { .iter_no = it->no,
				 .replica = it->replica,
				 .start_ns = it->start_ns,
				 .end_ns = it->end_ns,
				 .host_ns = it->host_ns,
				 .event_ns = c->event_ns,
				 .span_ns = c->span_ns,
				 .busy_ns = c->busy_ns,
				 .prefill_tokens = s->batch.prefill_tok,
				 .decode_tokens = s->batch.decode_tok,
				 .prefill_pairs = shape.feature[BATCH_PREFILL_PAIRS],
				 .decode_context = shape.feature[BATCH_DECODE_CONTEXT],
				 .longest_decode = shape.feature[BATCH_LONGEST_DECODE],
				 .composition = (int64_t)shape.composition,
				 .cost_source = s->batch.n ? cost_source_names[c->source] : NULL,
				 .blocks_used = s->pool.n_usable - s->pool.n_free,
				 .waiting = (int64_t)s->n_waiting,
				 .running = (int64_t)s->n_running,
				 .preempted = (int64_t)s->n_preempted,
				 .stop = s->stop,
				 .host_schedule_ns = it->host->schedule,
				 .host_prepare_ns = it->host->prepare,
				 .host_launch_ns = it->host->launch,
				 .host_update_ns = it->host->update },
			.entry = r->entries ? r->row : NULL,
			.n_entry = s->batch.n,
			.phase_ns = phases ? c->phase_ns : NULL,
			.phase_kernels = phases ? c->phase_kernels : NULL,
			.drop = c->drop,
			.n_drop = c->n_drop,
			.kernel = kernels ? c->kernel : NULL,
			.n_kernel = kernels ? c->n_kernel : 0,
			.rank = rank,
			.n_rank = (size_t)it->n_rank },
		err);
}

static enum ar_status record_request(void *self, const struct observed_request *q,
				     struct ar_err *err)
{
	const struct recorder *r = self;
	const struct sched_seq *s = q->seq;

	return store_outcome(r->store,
			     &(struct row_request_outcome){
				     .req_no = q->id,
				     .replica = q->replica,
				     .prefill_replica = q->prefill_replica,
				     .kv_end_ns = q->kv_end_ns,
				     .arrival_ns = q->arrival_ns,
				     .first_sched_ns = q->first_sched_ns,
				     .first_token_ns = q->first_token_ns,
				     .finish_ns = q->finish_ns,
				     .prompt_tokens = q->prompt_tok,
				     .output_tokens = s->known - q->prompt_tok,
				     .n_chunks = s->n_chunk - s->n_decode,
				     .n_preempt = s->n_preempt,
				     .recomputed_tokens = (int64_t)s->recomputed,
				     .cached_tokens = (int64_t)s->cached,
				     .outcome = q->outcome,
				     .reason = q->reason },
			     err);
}

static enum ar_status put_kept(const struct recorder *r, const struct observed_sample *x,
			       struct ar_err *err)
{
	return store_kept(r->store,
			  &(struct row_drop_sample){ .iter_no = x->iter_no,
						     .req_no = x->entry->req,
						     .chunk_no = x->entry->chunk_no,
						     .layer = x->layer,
						     .n_tokens = x->kept->n_tok,
						     .n_kept = x->kept->n_kept,
						     .queries = x->kept->queries,
						     .mass = x->kept->mass,
						     .top = x->kept->top,
						     .top_recall = x->kept->recall },
			  err);
}

static enum ar_status record_sample(void *self, const struct observed_sample *x, struct ar_err *err)
{
	const struct recorder *r = self;
	const struct batch_entry *e = x->entry;
	enum ar_status st = AR_OK;

	for (int h = 0; h < x->q_heads && !st; h++)
		st = store_accuracy(r->store,
				    &(struct row_accuracy_sample){
					    .iter_no = x->iter_no,
					    .req_no = e->req,
					    .chunk_no = e->chunk_no,
					    .chunk_start = e->start,
					    .chunk_tokens = e->n_tok,
					    .layer = x->layer,
					    .head = h,
					    .rel_l2 = x->acc[h].rel_l2,
					    .cosine = x->acc[h].cosine,
					    .max_abs = x->acc[h].max_abs,
					    .mass_recall = x->acc[h].mass_recall,
					    .half = row_kind_name(e->kind) },
				    err);
	for (int h = 0; h < x->kv_heads && !st; h++)
		st = store_selection(r->store,
				     &(struct store_selection){
					     .row = { .iter_no = x->iter_no,
						      .req_no = e->req,
						      .chunk_no = e->chunk_no,
						      .layer = x->layer,
						      .kv_head = h,
						      .half = row_kind_name(e->kind) },
					     .count = x->count[h] },
				     err);
	return st || !x->kept ? st : put_kept(r, x, err);
}

static enum ar_status put_form(const struct recorder *r, const char *form, int64_t chunks,
			       struct ar_err *err)
{
	return chunks ? store_latent_form(r->store,
					  &(struct row_latent_form){ .form = form,
								     .n_chunks = chunks },
					  err) :
			AR_OK;
}

static enum ar_status record_end(void *self, const struct replay_result *res, struct ar_err *err)
{
	const struct recorder *r = self;
	const struct series *s = &res->latency[LATENCY_ITL];
	enum ar_status st = put_layers(r, err);

	for (size_t i = 0; i < s->n_run && !st; i++)
		st = store_gap(r->store,
			       &(struct row_token_gap){ .itl_ns = (int64_t)s->run[i].x,
							.n = (int64_t)s->run[i].n },
			       err);
	if (!st)
		st = put_form(r, "absorb", r->latent.absorbed, err);
	return st ? st : put_form(r, "expand", r->latent.expanded, err);
}

struct observer recorder_observer(struct recorder *r)
{
	return (struct observer){ .self = r,
				  .iteration = record_iteration,
				  .request = record_request,
				  .sample = record_sample,
				  .end = record_end };
}

void recorder_release(struct recorder *r)
{
	free(r->row);
	free(r->sum);
	r->row = NULL;
	r->sum = NULL;
	r->cap = r->cap_sum = 0;
	r->n_layers = 0;
}
