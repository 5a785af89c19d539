/* SPDX-License-Identifier: Apache-2.0 */
/* The engine loop with fake policies, backends and stores; latencies; and each allocation failing
 * in turn. */
#include "config.h"
#include "kernels/evict/evictor.h"
#include "replay/engine/record.h"
#include "replay/cost/backend_cost.h"
#include "replay/cost/dense_as.h"
#include "replay/engine/replay.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/stats.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

#define MS 1000000

/* ---- fakes ---- */

struct store {
	int64_t iterations, outcomes, accuracy, selection, kernels, phases;
	int64_t entries, gaps, kept, absorbed, expanded;
	int64_t layer_kernels, layer_ns; /* sums over layers and phases */
	int64_t decode_ns;		 /* of the last iteration; last.phase_ns is gone */
	int64_t fail_at;		 /* iteration, -1: never */
	bool fail_gap;
	struct store_iteration last;
	char outcome[16][16];	     /* by request */
	int64_t first_token, finish; /* of the last outcome */
	uint64_t sampled;	     /* digest of where accuracy was sampled */
	uint64_t decodes;	     /* the same of decodes, in any order */
};

enum ar_status store_iteration(struct store *s, const struct store_iteration *it,
			       struct ar_err *err)
{
	if (it->row.iter_no == s->fail_at)
		return ar_fail(err, AR_IO, "disk full");
	s->iterations++;
	s->kernels += (int64_t)it->n_kernel;
	s->phases += it->phase_ns != NULL;
	s->entries += it->entry ? (int64_t)it->n_entry : 0;
	s->last = *it;
	s->decode_ns = it->phase_ns ? it->phase_ns[PHASE_DECODE] : 0;
	return AR_OK;
}

enum ar_status store_outcome(struct store *s, const struct row_request_outcome *o,
			     struct ar_err *err)
{
	(void)err;
	s->outcomes++;
	s->first_token = o->first_token_ns;
	s->finish = o->finish_ns;
	if (o->req_no < 16)
		snprintf(s->outcome[o->req_no], sizeof s->outcome[0], "%s", o->outcome);
	return AR_OK;
}

enum ar_status store_gap(struct store *s, const struct row_token_gap *g, struct ar_err *err)
{
	if (s->fail_gap)
		return ar_fail(err, AR_IO, "disk full");
	s->gaps += g->n;
	return AR_OK;
}

enum ar_status store_accuracy(struct store *s, const struct row_accuracy_sample *a,
			      struct ar_err *err)
{
	(void)err;
	s->accuracy++;
	if (!strcmp(a->half, "decode")) {
		s->decodes += rng_mix((uint64_t)a->req_no << 32 | (uint64_t)a->chunk_start << 8 |
				      (uint64_t)a->layer);
		return AR_OK;
	}
	s->sampled = rng_mix(s->sampled ^ ((uint64_t)a->req_no << 32 | (uint64_t)a->chunk_no << 8 |
					   (uint64_t)a->layer));
	return AR_OK;
}

enum ar_status store_selection(struct store *s, const struct store_selection *c, struct ar_err *err)
{
	(void)c, (void)err;
	s->selection++;
	return AR_OK;
}

enum ar_status store_kept(struct store *s, const struct row_drop_sample *x, struct ar_err *err)
{
	(void)err;
	s->kept += x->n_kept;
	return AR_OK;
}

enum ar_status store_latent_form(struct store *s, const struct row_latent_form *f,
				 struct ar_err *err)
{
	(void)err;
	*(strcmp(f->form, "absorb") ? &s->expanded : &s->absorbed) += f->n_chunks;
	return AR_OK;
}

enum ar_status store_layer_phase(struct store *s, const struct row_layer_phase *x,
				 struct ar_err *err)
{
	(void)err;
	s->layer_kernels += x->kernels;
	s->layer_ns += x->gpu_ns;
	return AR_OK;
}

/* A backend with two kernels an iteration, in layers 0 and 1. */
struct fake {
	int64_t runs, drops, compares, decodes, lost, fail_at;
	int64_t cost_ns;      /* 0: 1 ms */
	int64_t attention_ns; /* in each of its two phases */
	int32_t selects;      /* kernels of a selector */
	bool raise;	      /* SIGTERM in the third run */
};

static enum ar_status fake_run(void *self, const struct batch *b, struct iter_cost *cost,
			       struct ar_err *err)
{
	static const struct prof_kernel kernel[] = {
		{ .layer = 0, .phase = PHASE_LINEAR, .start_ns = 5, .end_ns = 7 },
		{ .layer = 1, .phase = PHASE_ATTEND, .start_ns = 8, .end_ns = 11 }
	};
	struct fake *f = self;

	(void)b;
	if (f->runs == f->fail_at)
		return ar_fail(err, AR_CUDA, "kernel lost");
	if (++f->runs == 3 && f->raise)
		raise(SIGTERM);
	*cost = (struct iter_cost){
		.cost_ns = f->cost_ns ? f->cost_ns : MS,
		.event_ns = MS + 1,
		.span_ns = MS,
		.busy_ns = MS - 1,
		.kernel = kernel,
		.n_kernel = 2,
		.latent = { .absorbed = 1, .expanded = 2 },
		.phase_ns = { [PHASE_ATTEND] = f->attention_ns, [PHASE_DECODE] = f->attention_ns }
	};
	cost->phase_kernels[PHASE_SELECT] = f->selects;
	return AR_OK;
}

/* Two lists of the first and the last piece of 4 tokens. */
static void put_lists(struct piece_lists *l, const struct batch_entry *e)
{
	*l = (struct piece_lists){ .tok = 4,
				   .heads = 2,
				   .stride = 2,
				   .piece = calloc(4, sizeof *l->piece),
				   .n = calloc(2, sizeof *l->n) };
	if (!l->piece || !l->n)
		bail_out("no memory");
	l->n[0] = l->n[1] = e->start / 4 ? 2 : 1;
	l->piece[1] = l->piece[3] = (int32_t)e->start / 4;
}

static enum ar_status fake_compare(void *self, const struct batch_entry *e, int i,
				   struct accuracy *acc, struct selection_count *count,
				   struct method_selection *sel, struct ar_err *err)
{
	struct fake *f = self;

	(void)err;
	*(e->kind == ROW_DECODE ? &f->decodes : &f->compares) += 1;
	f->lost += e->gone > 0;
	for (int h = 0; h < 4; h++)
		acc[h] = (struct accuracy){ 0.01 * (h + 1), 1 - 0.1 * h, 0, 0.5 };
	memset(count, 0, 2 * sizeof *count);
	if (sel)
		put_lists(&sel->chosen.pieces, e);
	(void)i;
	return AR_OK;
}

static void fake_drop(void *self, uint32_t req)
{
	struct fake *f = self;

	(void)req;
	f->drops++;
}

/* Layer 0 lost nothing yet. */
static enum ar_status fake_kept(void *self, const struct batch_entry *e, int i,
				struct kept_share *out, struct ar_err *err)
{
	(void)self, (void)e, (void)err;
	*out = i ? (struct kept_share){ .n_tok = 8, .n_kept = 5 } : (struct kept_share){ 0 };
	return AR_OK;
}

static const struct backend fake_backend = {
	.name = "fake",
	.needs_model = true,
	.run = fake_run,
	.compare = fake_compare,
	.kept = fake_kept,
	.drop = fake_drop,
};

/* Plans nothing in every second iteration. */
static void compose_lazily(struct sched *s)
{
	static int turn;

	s->stop = "lazy";
	if (turn++ % 2)
		policy_find("vllm-0.16")->compose(s);
}

/* Plans nothing while fewer than two requests are there. */
static void compose_pairs(struct sched *s)
{
	s->stop = "pairs";
	if (s->n_running || s->n_waiting > 1)
		policy_find("vllm-0.16")->compose(s);
}

static const struct policy lazy = { .name = "lazy",
				    .slots = sched_slots_computed,
				    .unfit = sched_unfit_pool,
				    .requeue = sched_requeue_first,
				    .compose = compose_lazily };
static const struct policy pairs = { .name = "pairs",
				     .slots = sched_slots_computed,
				     .unfit = sched_unfit_pool,
				     .requeue = sched_requeue_first,
				     .compose = compose_pairs };

static char text_trace[] = "trace";
static struct request three[] = {
	{ .prompt_tok = 10, .output_tok = 3, .line = 2 },
	{ .prompt_tok = 5, .output_tok = 2, .line = 3 },
	{ .arrival_ns = 3 * MS / 2, .prompt_tok = 3, .output_tok = 2, .line = 4 },
};
static const struct trace trace3 = { .req = three, .n = 3, .name = text_trace };
static const int run_layer[] = { 1, 5 };
static struct layer_spec sampled_layer[6];
static const struct model sampled = { .n_layers = 6, .layer = sampled_layer };

static struct recorder recorder;
static struct observer recording;

static struct replay config(struct fake *f, struct store *s)
{
	*f = (struct fake){ .fail_at = -1 };
	*s = (struct store){ .fail_at = -1 };
	recorder_release(&recorder);
	recorder = (struct recorder){
		.store = s, .iterations = true, .entries = true, .phases = true, .kernels = 1
	};
	recording = recorder_observer(&recorder);
	return (struct replay){ .trace = &trace3,
				.limits = { .policy = policy_find("vllm-0.16"),
					    .max_batched_tok = 8,
					    .max_seqs = 8,
					    .block_tok = 4,
					    .num_blocks = 101 },
				.backend = &fake_backend,
				.self = f,
				.observer = &recording,
				.run_layer = run_layer,
				.n_run_layers = 2,
				.model = &sampled,
				.q_heads = 4,
				.kv_heads = 2 };
}

/* ---- the loop ---- */

static void test_rows(void)
{
	static struct request two[] = {
		{ .prompt_tok = 8, .output_tok = 6, .line = 1 },
		{ .prompt_tok = 7, .output_tok = 6, .line = 2 },
	};
	const struct trace tight = { .req = two, .n = 2, .name = text_trace };
	struct fake f;
	struct store s;
	struct replay cfg = config(&f, &s);
	struct replay_result res;

	cfg.host.ns[HOST_SCHEDULE] = MS / 4;
	is_int(replay_run(&cfg, &res, NULL), AR_OK, "a run with kernels ends well");
	is_int(res.end_ns, 5 * MS, "host overhead is part of every iteration");
	ok(s.last.row.host_ns == MS / 4 && s.last.row.event_ns == MS + 1 &&
		   s.last.row.busy_ns == MS - 1,
	   "the measured times are stored");
	is_str(s.last.row.cost_source, "timed", "... and that they moved the clock");
	is_int(s.kernels, 8, "the kernels of every iteration are stored");
	is_int(s.entries, res.entries, "the entries of every iteration are stored");
	is_int(s.gaps, res.output_tok - 3, "the time between any two tokens is stored");
	ok(s.layer_kernels == 2 * res.iterations && s.layer_ns == 5 * res.iterations,
	   "the time of kernels by layer, too");
	ok(s.absorbed == res.iterations && s.expanded == 2 * res.iterations,
	   "... and the forms of latent attention");
	is_int(s.phases, 4, "the phase sums of every iteration are stored");
	is_int(f.drops, 3, "the backend drops finished requests");
	replay_result_release(&res);

	cfg = config(&f, &s);
	cfg.host = (struct host){
		.ns = { [HOST_SCHEDULE] = MS, [HOST_SCHEDULE_REQ] = 1000, [HOST_PREPARE_TOK] = 10 }
	};
	replay_run(&cfg, &res, NULL);
	is_int(res.end_ns,
	       2 * MS * res.iterations + 1000 * res.entries +
		       10 * (res.prefill_tok + res.decode_tok),
	       "host overhead grows with the requests and the tokens of an iteration");
	replay_result_release(&res);

	cfg = config(&f, &s);
	recorder.kernels = 2;
	cfg.cost = cost_by_formula(&(struct cost_formula){ 2 * MS, MS / 2 });
	is_int(replay_run(&cfg, &res, NULL), AR_OK, "a run by formula ends well");
	is_int(f.runs, res.iterations, "the backend really runs under the formula");
	ok(!strcmp(s.last.row.cost_source, "formula") &&
		   res.cost_sources[COST_FORMULA] == res.iterations,
	   "... and the rows tell the formula");
	is_int(res.end_ns, 2 * MS * res.iterations + MS / 2 * (res.prefill_tok + res.decode_tok),
	       "the formula moves the clock instead of the measured cost");
	is_int(s.kernels, 2 * ((res.iterations + 1) / 2),
	       "kernels of every second iteration are stored");
	replay_result_release(&res);

	cfg = config(&f, &s);
	recorder.entries = false;
	is_int(replay_run(&cfg, &res, NULL) + s.entries, 0,
	       "no entries are stored when none are wanted");
	is_int((int64_t)s.last.n_entry, 2, "... but their number is");
	replay_result_release(&res);

	cfg = config(&f, &s);
	s.fail_gap = true;
	is_int(replay_run(&cfg, &res, NULL), AR_IO, "gaps that cannot be stored fail the run");
	replay_result_release(&res);

	cfg = config(&f, &s);
	recorder.kernels = 0;
	is_int(replay_run(&cfg, &res, NULL) + s.kernels, 0,
	       "no kernels are stored when none are wanted");
	replay_result_release(&res);

	cfg = config(&f, &s);
	recorder.phases = false;
	is_int(replay_run(&cfg, &res, NULL) + s.phases, 0,
	       "no phase sums are stored when none are measured");
	replay_result_release(&res);

	cfg = config(&f, &s);
	cfg.observer = NULL;
	is_int(replay_run(&cfg, &res, NULL) + s.iterations + s.outcomes + s.gaps, 0,
	       "without an observer nothing is stored");
	is_int(res.ok, 3, "... and the result is complete");
	replay_result_release(&res);

	cfg = config(&f, &s);
	cfg.trace = &tight;
	cfg.limits.num_blocks = 7;
	cfg.limits.max_batched_tok = 16;
	is_int(replay_run(&cfg, &res, NULL), AR_OK, "a short pool is no error");
	ok(res.preemptions > 0 && f.drops == 2 + res.preemptions,
	   "the backend drops preempted requests as well");
	replay_result_release(&res);
}

/* One request: a prompt and two decodes of 1 ms each, which take the host 3 ms. */
static void test_host_clock(bool async, int64_t first_token, int64_t finish, int64_t wait)
{
	static struct request one = { .prompt_tok = 4, .output_tok = 3, .line = 1 };
	const struct trace trace = { .req = &one, .n = 1, .name = text_trace };
	const char *how = async ? "async" : "sync";
	struct fake f;
	struct store s;
	struct replay cfg = config(&f, &s);
	struct replay_result res;

	cfg.trace = &trace;
	cfg.limits.async = async;
	cfg.host = (struct host){
		.ns = { [HOST_EAGER] = 3 * MS, [HOST_UPDATE] = MS / 10, [HOST_ADMIT] = MS / 5 }
	};
	is_int(replay_run(&cfg, &res, NULL), AR_OK, "a host slower than the GPU, %s", how);
	is_int(s.first_token, first_token, "... a token has the time of its record");
	is_int(s.finish, finish, "... and so has the last");
	is_int(res.end_ns, finish, "... which ends the run");
	is_int(s.last.row.host_ns, wait, "the GPU's wait is stored");
	ok(!s.last.row.host_schedule_ns && !s.last.row.host_prepare_ns &&
		   s.last.row.host_launch_ns == 3 * MS && s.last.row.host_update_ns == MS / 10,
	   "... beside the parts of the host's time");
	replay_result_release(&res);
}

/* The same, 1 ms for each iteration, served: 7 ms to the engine, 2 ms to the client. */
static void test_front_end(void)
{
	static struct request two[] = { { .prompt_tok = 4, .output_tok = 3, .line = 1 },
					{ .prompt_tok = 8, .output_tok = 1, .line = 2 } };
	const struct trace trace = { .req = two, .n = 2, .name = text_trace };
	struct fake f;
	struct store s;
	struct replay cfg = config(&f, &s);
	struct replay_result res;

	cfg.trace = &trace;
	cfg.host = (struct host){ .ns = { [HOST_RECEIVE] = 3 * MS,
					  [HOST_RECEIVE_TOK] = MS,
					  [HOST_DELIVER] = MS,
					  [HOST_DELIVER_REQ] = MS } };
	is_int(replay_run(&cfg, &res, NULL), AR_OK, "a served engine");
	is_int(s.first_token, 14 * MS, "a prompt takes its way to the engine, its token one back");
	is_int(s.finish, s.first_token, "... the last one, too");
	ok(res.latency[LATENCY_TTFT].n == 2 && res.latency[LATENCY_TTFT].run[0].x == 10 * MS &&
		   res.latency[LATENCY_TPOT].run[0].x == MS,
	   "... as the client sees it");
	replay_result_release(&res);
}

/* Kernels of a selector are launched one by one, in all layers of the model. */
static void test_host_selection(void)
{
	struct fake f;
	struct store s;
	struct replay cfg = config(&f, &s);
	struct replay_result res;

	f.selects = 10;
	cfg.host =
		(struct host){ .ns = { [HOST_EAGER_KERNEL] = MS }, .n_layers = 6, .n_kernels = 6 };
	is_int(replay_run(&cfg, &res, NULL), AR_OK, "a selector's kernels");
	is_int(s.last.row.host_launch_ns, 6 * MS + 30 * MS, "... count in the launch");
	replay_result_release(&res);
}

/* Dense attention at an engine's cost: three iterations with prefill, of which one has decodes, and
 * one of decodes only, in two of eight layers. */
static void test_dense_as(void)
{
	const struct dense_as_run twice = { { .prefill = { 1, { { 1, 2 } } },
					      .decode = { 1, { { 1, 5 } } } },
					    .n_layers = 8,
					    .n_run_layers = 2 };
	struct fake f;
	struct store s;
	struct replay cfg = config(&f, &s);
	struct replay_result res;

	cfg.cost = cost_dense_as(&twice);
	cfg.host.ns[HOST_SCHEDULE] = MS;
	f.attention_ns = 1000;
	is_int(replay_run(&cfg, &res, NULL), AR_OK, "a run as an engine's ends well");
	is_int(res.end_ns, 4 * 2 * MS + 3 * 4000 + 2 * 16000,
	       "the phases take longer by their factors");
	is_int(s.last.row.end_ns - s.last.row.start_ns - s.last.row.host_ns, MS + 16000,
	       "... which is in the cost of an iteration");
	ok(s.decode_ns == 1000 && s.last.row.span_ns == MS, "... and not in what was measured");
	replay_result_release(&res);
}

static void test_accuracy(void)
{
	struct fake f;
	struct store s;
	struct replay cfg = config(&f, &s);
	struct replay_result res;
	const struct sample_sums *sum = &res.sample[ROW_PREFILL];
	uint64_t first;

	cfg.accuracy = 1;
	is_int(replay_run(&cfg, &res, NULL), AR_OK, "a run with samples ends well");
	is_int(f.compares, 4 * 2, "a share of 1 compares every prefill chunk in every layer");
	ok(s.accuracy == 4 * 2 * 4 && s.selection == 4 * 2 * 2, "a sample has a row for each head");
	is_int(s.kept, 4 * 5, "and, where rows were dropped before, what was kept");
	ok(sum->n == 8 && fabs(sum->rel_l2_sum / (double)sum->n_heads - 0.025) < 1e-12 &&
		   fabs(sum->rel_l2_max - 0.04) < 1e-12 && fabs(sum->cosine_min - 0.7) < 1e-12 &&
		   fabs(sum->recall_sum / (double)sum->n_heads - 0.5) < 1e-12,
	   "samples are summed up");
	replay_result_release(&res);

	cfg = config(&f, &s);
	is_int(replay_run(&cfg, &res, NULL) + f.compares, 0, "a share of 0 compares nothing");
	replay_result_release(&res);

	cfg = config(&f, &s);
	cfg.accuracy = 0.5;
	replay_run(&cfg, &res, NULL);
	replay_result_release(&res);
	first = s.sampled;
	ok(f.compares > 0 && f.compares < 8, "a share of a half compares some");
	cfg = config(&f, &s);
	cfg.accuracy = 0.5;
	replay_run(&cfg, &res, NULL);
	replay_result_release(&res);
	ok(s.sampled == first, "the same seed samples the same places");
	cfg = config(&f, &s);
	cfg.accuracy = 0.5;
	cfg.seed = 7;
	replay_run(&cfg, &res, NULL);
	replay_result_release(&res);
	ok(s.sampled != first, "another seed samples other places");

	cfg = config(&f, &s);
	cfg.accuracy = 1;
	sampled_layer[5].mixer = MIX_WINDOW;
	replay_run(&cfg, &res, NULL);
	replay_result_release(&res);
	is_int(f.compares, 4, "layers that do not see all keys are not compared");
	sampled_layer[5].mixer = MIX_FULL;
}

/* Compare a share of the decodes, in a run with a budget of so many tokens. */
static void run_decodes(struct fake *f, struct store *s, double share, int64_t budget,
			uint64_t seed)
{
	struct replay cfg = config(f, s);
	struct replay_result res;

	cfg.accuracy_decode = share;
	cfg.limits.max_batched_tok = budget;
	cfg.seed = seed;
	if (replay_run(&cfg, &res, NULL))
		bail_out("a run with samples of decodes failed");
	is_int(res.sample[ROW_DECODE].n, f->decodes, "samples of decodes are summed up");
	replay_result_release(&res);
}

static void test_decode_accuracy(void)
{
	struct fake f;
	struct store s;
	uint64_t all, some;
	int parts = 0;

	run_decodes(&f, &s, 1, 8, 0);
	is_int(f.decodes, 4 * 2, "a share of 1 compares every decode in every layer");
	ok(!f.compares && !s.kept, "... and no chunk");
	ok(s.accuracy == 4 * 2 * 4 && s.selection == 4 * 2 * 2, "... with a row for each head");
	all = s.decodes;
	run_decodes(&f, &s, 1, 100, 7);
	ok(s.decodes == all, "... whatever the schedule and the seed");
	for (uint64_t seed = 0; seed < 8; seed++) {
		run_decodes(&f, &s, 0.5, 8, seed);
		parts += f.decodes > 0 && f.decodes < 8;
		ok(f.decodes % 2 == 0, "a decode is compared in all layers or in none");
		some = s.decodes;
		run_decodes(&f, &s, 0.5, 100, seed);
		ok(s.decodes == some, "the sample is that of another schedule");
	}
	ok(parts > 4, "a share of a half compares some");
}

/* The newest piece does not count, and the first one is missed once by a buffer that holds it. */
static void test_hot_buffers(void)
{
	static const int64_t size[] = { 2, 4 };
	struct fake f;
	struct store s;
	struct replay cfg = config(&f, &s);
	struct replay_result res;
	const struct hot_count *none, *one;

	cfg.accuracy_decode = 1;
	cfg.hot_size = size;
	cfg.n_hot_size = 2;
	if (replay_run(&cfg, &res, NULL))
		bail_out("a run with hot buffers failed");
	none = hot_rows_count(&res.hot, 0, 0);
	one = hot_rows_count(&res.hot, 0, 1);
	is_int(res.hot.n_layer, 2, "hot buffers: the layers that see all keys");
	ok(none->rows == 4 && one->rows == 4, "... each decode reads lists");
	ok(none->listed > 0 && none->missed == none->listed, "... too small a buffer misses all");
	ok(one->listed == none->listed && one->missed > 0 && one->missed < one->listed,
	   "... a buffer of a piece keeps it");
	replay_result_release(&res);
	cfg = config(&f, &s);
	cfg.hot_size = size;
	cfg.n_hot_size = 2;
	is_int(replay_run(&cfg, &res, NULL) + res.hot.n_layer + f.decodes, 0,
	       "... and nothing is counted where no decode is drawn");
	replay_result_release(&res);
}

/* What has left is made again for a comparison, but not with weights. */
static void test_evicted(bool weights)
{
	static const int64_t size[] = { 4 };
	struct fake f;
	struct store s;
	struct replay cfg = config(&f, &s);
	struct replay_result res;
	struct evict *evict;
	struct ar_err err;

	if (evict_parse(&evict, "streaming:sink=1,recent=2", &err))
		bail_out("%s", err.msg);
	cfg.limits.evict = evict;
	cfg.weights = weights;
	cfg.accuracy_decode = 1;
	cfg.hot_size = size;
	cfg.n_hot_size = 1;
	if (replay_run(&cfg, &res, &err))
		bail_out("%s", err.msg);
	ok(f.decodes && !f.lost == weights, "decodes of requests that lost tokens are %s",
	   weights ? "left alone" : "compared");
	replay_result_release(&res);
	evict_free(evict);
}

static void test_empty(void)
{
	static struct request two[] = {
		{ .prompt_tok = 4, .output_tok = 1, .line = 1 },
		{ .arrival_ns = 9 * MS, .prompt_tok = 4, .output_tok = 1, .line = 2 },
	};
	const struct trace pair = { .req = two, .n = 2, .name = text_trace };
	const struct trace alone = { .req = two, .n = 1, .name = text_trace };
	struct fake f;
	struct store s;
	struct replay cfg = config(&f, &s);
	struct replay_result res;
	struct ar_err err = { 0 };

	cfg.limits.policy = &lazy;
	is_int(replay_run(&cfg, &res, &err), AR_OK, "a policy may skip an iteration");
	ok(res.iterations == 2 * f.runs && s.iterations == res.iterations &&
		   res.end_ns == f.runs * MS,
	   "an empty iteration is recorded, costs nothing and does not reach the backend");
	replay_result_release(&res);

	cfg = config(&f, &s);
	cfg.limits.policy = &pairs;
	cfg.trace = &pair;
	is_int(replay_run(&cfg, &res, &err), AR_OK, "an arrival can free a policy that is stuck");
	is_int(res.end_ns, 10 * MS, "the clock jumps to it");
	replay_result_release(&res);

	cfg = config(&f, &s);
	cfg.limits.policy = &pairs;
	cfg.trace = &alone;
	is_int(replay_run(&cfg, &res, &err), AR_ENGINE,
	       "a policy that is stuck for good is an error");
	is_str(err.msg,
	       "iteration 2: policy pairs cannot schedule any of 1 requests; give it more KV "
	       "blocks",
	       "... that says so");
	ok(res.unfinished == 1 && !strcmp(s.outcome[0], "unfinished"), "... and leaves an outcome");
	replay_result_release(&res);
}

static void test_failures(void)
{
	struct fake f;
	struct store s;
	struct replay cfg = config(&f, &s);
	struct replay_result res;
	struct ar_err err = { 0 };

	f.fail_at = 2;
	is_int(replay_run(&cfg, &res, &err), AR_CUDA, "a failing backend ends the run");
	is_str(err.msg, "iteration 2: kernel lost", "... naming the iteration");
	ok(s.iterations == 2 && res.ok == 0 && res.unfinished == 3 && s.outcomes == 3,
	   "... after whole iterations, with an outcome for every request");
	replay_result_release(&res);

	cfg = config(&f, &s);
	s.fail_at = 3;
	is_int(replay_run(&cfg, &res, &err), AR_IO, "a failing store ends the run");
	is_str(err.msg, "iteration 3: disk full", "... with its own message");
	ok(res.ok == 1 && res.unfinished == 2 && !strcmp(s.outcome[1], "ok"),
	   "... and what had finished stays finished");
	replay_result_release(&res);

	cfg = config(&f, &s);
	cfg.limits.num_blocks = 3;
	log_level = LOG_ERROR;
	is_int(replay_run(&cfg, &res, &err), AR_OK, "requests that cannot fit are no error");
	log_level = LOG_INFO;
	ok(res.rejected == 1 && res.ok == 2 && !strcmp(s.outcome[0], "rejected"),
	   "... they are rejected, the others run");
	replay_result_release(&res);
}

/* The clock starts left_ns before its end: the first iteration fits, the second does not. */
static void test_clock_end(const char *what, const struct cost_formula *formula, struct host host,
			   int64_t cost_ns, int64_t left_ns, bool async)
{
	static struct request late = { .prompt_tok = 4, .output_tok = 3, .line = 1 };
	const struct trace one = { .req = &late, .n = 1, .name = text_trace };
	struct fake f;
	struct store s;
	struct replay cfg = config(&f, &s);
	struct replay_result res;
	struct ar_err err = { 0 };

	late.arrival_ns = INT64_MAX - left_ns;
	f.cost_ns = cost_ns;
	cfg.trace = &one;
	cfg.cost = formula ? cost_by_formula(formula) : (struct cost){ 0 };
	cfg.host = host;
	cfg.limits.async = async;
	is_int(replay_run(&cfg, &res, &err), AR_DATA, "%s past the clock's end is an error", what);
	is_str(err.msg, "iteration 1: the clock passed 292 years", "... that says so");
	ok(s.iterations == 1 && res.iterations == 1 && s.last.row.start_ns == late.arrival_ns &&
		   s.last.row.end_ns > s.last.row.start_ns && res.end_ns == s.last.row.end_ns,
	   "... and keeps the iterations before");
	is_str(s.outcome[0], "unfinished", "... with an outcome for the request");
	replay_result_release(&res);
}

static void test_clock(void)
{
	const int64_t half = INT64_MAX / 2 + 1;
	const struct host none = { 0 };

	test_clock_end("a measured cost", NULL, none, half, half + 1, false);
	test_clock_end("a formula's time", &(struct cost_formula){ half, 0 }, none, 0, half + 1,
		       false);
	test_clock_end("a formula's product", &(struct cost_formula){ 0, INT64_MAX / 5 }, none, 0,
		       INT64_MAX / 5 * 4 + 1, false);
	test_clock_end("host time", NULL, (struct host){ .ns[HOST_SCHEDULE] = half }, 0,
		       half + 2 * MS, false);
	test_clock_end("host time of requests", NULL,
		       (struct host){ .ns[HOST_SCHEDULE_REQ] = half }, 0, half + 2 * MS, false);
	test_clock_end("host time of tokens", NULL,
		       (struct host){ .ns[HOST_PREPARE_TOK] = INT64_MAX / 5 }, 0,
		       INT64_MAX / 5 * 4 + 2 * MS, false);
	test_clock_end("a plan ahead", NULL, none, half, half + 1, true);
}

static void test_interrupt(void)
{
	struct fake f;
	struct store s;
	struct replay cfg = config(&f, &s);
	struct replay_result res;
	struct ar_err err = { 0 };

	f.raise = true;
	ar_catch_interrupts();
	is_int(replay_run(&cfg, &res, &err), AR_INTERRUPTED, "a signal ends the run");
	ok(f.runs == 3 && s.iterations == 3 && res.iterations == 3,
	   "... at the end of an iteration");
	is_str(err.msg, "interrupted after 3 iterations; 1 of 3 requests finished",
	       "... and says so");
	ok(!strcmp(s.outcome[1], "ok") && !strcmp(s.outcome[2], "unfinished"),
	   "... with an outcome for every request");
	replay_result_release(&res);
}

/* ---- latencies ---- */

static void test_series(void)
{
	static const double p[] = { 0, 1, 50, 90, 95, 99, 100 };
	struct series s = { 0 };
	struct rng r = { 11 };
	double x[500];
	int bad = 0;

	for (int round = 0; round < 200; round++) {
		size_t n = 1 + rng_below(&r, 500);
		double sum = 0;

		for (size_t i = 0; i < n; i++) {
			x[i] = rng_below(&r, 2) && i ? x[i - 1] :
						       1.25 * (double)rng_below(&r, 40) - 20;
			sum += x[i];
			if (series_add(&s, x[i], NULL))
				bail_out("out of memory");
		}
		if (series_sort(&s, NULL))
			bail_out("out of memory");
		stats_sort(x, n);
		for (size_t i = 0; i < sizeof p / sizeof *p; i++)
			bad += series_percentile(&s, p[i]) != stats_percentile(x, n, p[i]);
		bad += fabs(series_mean(&s) - sum / (double)n) > 1e-9 || s.n != n;
		series_release(&s);
	}
	is_int(bad, 0, "percentiles of runs of equal values are those of the plain list");
	for (int i = 0; i < 100000; i++)
		if (series_add(&s, (double)rng_below(&r, 50), NULL))
			bail_out("out of memory");
	ok(s.n == 100000 && s.cap <= 256, "room is taken for values that differ, not for all");
	series_release(&s);
	bad = 0;
	for (uint64_t i = 0; i < 600011; i++) /* each number below this prime, in another order */
		if (series_add(&s, (double)(i * 7919 % 600011), NULL))
			bail_out("out of memory");
	ok(s.n_sorted > 500000, "many values are sorted part by part");
	if (series_sort(&s, NULL))
		bail_out("out of memory");
	for (size_t i = 0; i < s.n_run; i++)
		bad += s.run[i].x != (double)i || s.run[i].n != 1;
	ok(s.n_run == 600011 && !bad, "... and all of them in order in the end");
	series_release(&s);
}

/* ---- faults ---- */

static void test_faults(void)
{
	struct fake f;
	struct store s;
	const struct sched_limits two = { .policy = &lazy, .block_tok = 4, .max_seqs = 2 };
	struct replay_result res;
	struct ar_err err = { 0 };
	enum ar_status st;
	int64_t blocks = -1;
	bool fired;
	int bad = 0;
	long k = 0;

	do {
		struct replay cfg = config(&f, &s);

		fault_arm(k++);
		st = replay_run(&cfg, &res, &err);
		fired = fault_disarm();
		bad += fired && (st != AR_NOMEM || !strstr(err.msg, "out of memory"));
		replay_result_release(&res);
	} while (fired);
	ok(!bad && !st && k > 10, "replay: each of %ld allocations can fail", k - 1);

	fault_arm(0);
	st = sched_ample_blocks(&trace3, &two, &blocks, &err);
	ok(fault_disarm() && st == AR_NOMEM && blocks == -1,
	   "sizing the pool: its allocation can fail");
	sched_ample_blocks(&trace3, &two, &blocks, NULL);
	is_int(blocks, 3 + 2 + 1, "an ample pool holds the largest requests that run together");
}

static void test_cost(void)
{
	const struct backend *b = backend_find("cost");
	const struct cost_options o = { .formula = { 6 * MS, 20000 } };
	const struct backend_env env = { 0 };
	struct batch_entry e = { .n_tok = 100 };
	struct batch batch = { .entry = &e, .n = 1, .prefill_tok = 100, .decode_tok = 3 };
	struct iter_cost cost = { 0 };
	struct kept_share kept = { .n_tok = 1 };
	struct layer_work work = { 7, 7, 7 };
	struct ar_err err = { 0 };
	void *self;

	fault_arm(0);
	is_int(backend_open(b, &self, &o, &env, &err), AR_NOMEM, "cost: its allocation can fail");
	fault_disarm();
	is_int(backend_open(b, &self, &o, &env, &err) + backend_start(b, self, 5, &err) +
		       backend_run(b, self, &batch, &cost, &err),
	       AR_OK, "cost: runs");
	is_int(cost.cost_ns, 6 * MS + 103 * 20000, "cost: fixed and per token");
	is_int(cost.span_ns, -1, "cost: there is no kernel time");
	batch.decode_tok = INT64_MAX / 20000;
	backend_run(b, self, &batch, &cost, &err);
	is_int(cost.cost_ns, INT64_MAX, "cost: a sum past the largest time is the largest time");
	ok(backend_fit_blocks(b, self) == BACKEND_ANY_BLOCKS &&
		   backend_max_captured(b, self) == -1 && !backend_gpu(b, self) &&
		   !backend_compares(b),
	   "cost: it has no limit of blocks, no graphs, no GPU and no reference");
	ok(!backend_kept(b, self, &e, 0, &kept, &err) && !kept.n_tok, "... drops no tokens");
	ok(!backend_layer_work(b, self, 0, &work) && work.n_row == 7,
	   "... and has no work of layers");
	backend_drop(b, self, 0);
	backend_close(b, self);
	backend_close(b, NULL);
	ok(!backend_find("none"), "an unknown backend is not found");
}

int main(void)
{
	plan(0);
	test_rows();
	test_host_clock(false, 33 * MS / 10, 95 * MS / 10, 2 * MS);
	test_host_clock(true, 63 * MS / 10, 95 * MS / 10, 2 * MS);
	test_front_end();
	test_host_selection();
	test_dense_as();
	test_accuracy();
	test_decode_accuracy();
	test_hot_buffers();
	test_evicted(false);
	test_evicted(true);
	test_empty();
	test_failures();
	test_clock();
	test_series();
	test_faults();
	test_cost();
	test_interrupt(); /* last: the signal is remembered */
	recorder_release(&recorder);
	return done_testing();
}
