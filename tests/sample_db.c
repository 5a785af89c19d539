/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/sample_db.h"

/* End of each iteration in us, and the work of both requests in it. */
/* clang-format off */
static const struct {
	int64_t end_us;
	struct { uint32_t start, n; bool decode, emit; } of[2];		/* n 0: not in it */
} step[SAMPLE_ITERATIONS] = {
	{  3000, { {  0, 2, false, true }, { 0 } } },
	{  9000, { {  2, 1, true, true },  {  0, 7, false, false } } },
	{ 15000, { {  3, 1, true, true },  {  7, 7, false, false } } },
	{ 20500, { {  4, 1, true, true },  { 14, 6, false, true } } },
	{ 23500, { {  5, 1, true, true },  { 20, 1, true, true } } },
	{ 26000, { {  6, 1, true, true },  { 0 } } },
	{ 28500, { {  7, 1, true, true },  { 0 } } },
	{ 31000, { {  8, 1, true, true },  { 0 } } },
};
/* clang-format on */

static const struct store_gpu gpu = {
	.uuid = "00000000-0000-0000-0000-000000000001",
	.name = "NVIDIA H200",
	.cc_major = 9,
	.cc_minor = 0,
	.sm_count = 132,
	.l2_bytes = 52428800,
	.mem_bytes = 150000000000,
};

static int64_t end_ns(const struct sample_run *r, int i)
{
	return i < 0 ? 0 : step[i].end_us * 10 * r->percent;
}

struct store_run sample_record(const struct sample_run *r)
{
	return (struct store_run){
		.trace_name = "s4.csv",
		.trace_sha256 = "00",
		.trace_format = "azure",
		.n_requests = 2,
		.model_name = "llama-3.1-8b",
		.model_json = "{\"hidden_size\": 4096, \"intermediate_size\": 14336, "
			      "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
			      "\"num_key_value_heads\": 8, \"vocab_size\": 128256}",
		.n_layers = 32,
		.hidden = 4096,
		.q_heads = 32,
		.kv_heads = 8,
		.head_dim = 128,
		.tp = 1,
		.method_name = r->method,
		.method_params = "{\"union\": \"none\"}",
		.dense = r->dense,
		.policy = "vllm-0.16",
		.backend = "cuda",
		.seed = 1,
		.version = "1",
		.cmdline = "attnreplay run",
		.options = r->options,
		.setup = r->setup ? r->setup : r->options,
		.clock = "cupti",
		.gpu = &gpu,
		.cupti_api = 130001,
		.layers_run = 32,
		.num_blocks = 100,
		.block_tok = 16,
	};
}

static struct prof_kernel kernel(const char *name, int layer, enum phase phase, int64_t start,
				 int64_t end)
{
	return (struct prof_kernel){
		.name = name,
		.start_ns = 1700000000000000000 + start,
		.end_ns = 1700000000000000000 + end,
		.layer = layer,
		.phase = phase,
		.grid = { 132, 1, 1 },
		.block = { 128, 1, 1 },
		.regs = 168,
		.smem_dynamic = 200000,
		.stream = 7,
		.corr = (uint32_t)(start / 1000),
	};
}

/* Phases: a tenth of the time is select (not when dense), half is attend, the rest is linear. */
static enum ar_status full_iteration(struct store *s, const struct sample_run *r,
				     struct store_iteration *it, struct ar_err *err)
{
	const int64_t t = it->row.start_ns, n = it->row.end_ns - it->row.start_ns;
	const int64_t cut = t + (r->dense ? 0 : n / 10), mid = t + n / 2;
	const struct prof_kernel k[] = {
		kernel("select_kernel", 0, PHASE_SELECT, t, cut),
		kernel("attend_kernel", 0, PHASE_ATTEND, cut, mid),
		kernel("gemm_kernel", PHASE_NO_LAYER, PHASE_HEAD, mid, t + n),
	};
	const int64_t ns[PHASE_COUNT] = {
		[PHASE_SELECT] = cut - t,
		[PHASE_ATTEND] = mid - cut,
		[PHASE_HEAD] = t + n - mid,
	};
	const int32_t count[PHASE_COUNT] = {
		[PHASE_SELECT] = !r->dense,
		[PHASE_ATTEND] = 1,
		[PHASE_HEAD] = 1,
	};

	it->phase_ns = ns;
	it->phase_kernels = count;
	it->kernel = k + r->dense;
	it->n_kernel = 3 - (size_t)r->dense;
	return store_iteration(s, it, err);
}

/* The four heads in layer 3 have errors of 0.01 to 0.04; half of all blocks were selected. */
static enum ar_status put_quality(struct store *s, const struct store_iteration *it,
				  const struct store_entry *e, struct ar_err *err)
{
	struct store_selection sel = {
		.row = { .iter_no = it->row.iter_no, .req_no = e->req, .chunk_no = e->chunk_no,
			 .layer = 3, .half = "prefill" },
		.count = {
			.tiles_total = 40 * e->n_tok, .tiles_sel = 10 * e->n_tok,
			.qunion_total = 100, .qunion_sel = 30, .sub_total = 40, .sub_sel = 15,
			.kv_total = 10, .kv_sel = 5, .group_total = 10, .group_sel = 5,
			.exec_total = 1000, .exec_sel = 550, .empty_rows = 3,
		},
	};
	enum ar_status st = store_selection(s, &sel, err);

	for (int h = 0; h < 4 && !st; h++) {
		struct row_accuracy_sample a = {
			.iter_no = it->row.iter_no,
			.req_no = e->req,
			.chunk_no = e->chunk_no,
			.chunk_start = e->start,
			.chunk_tokens = e->n_tok,
			.layer = 3,
			.head = h,
			.rel_l2 = 0.01 * (h + 1),
			.cosine = 1 - 0.001 * h,
			.max_abs = 0.5,
			.mass_recall = 0.9 + 0.01 * h,
			.half = "prefill",
		};

		st = store_accuracy(s, &a, err);
	}
	return st;
}

#define ONE_ENGINE .replica = -1, .prefill_replica = -1, .kv_end_ns = -1

enum ar_status sample_iteration(struct store *s, const struct sample_run *r, int i,
				struct ar_err *err)
{
	struct store_entry entry[2];
	struct store_iteration it = {
		.row = {
			.iter_no = i, .replica = -1, .start_ns = end_ns(r, i - 1),
			.end_ns = end_ns(r, i),
			.host_ns = r->host_ns, .blocks_used = 3, .running = 2, .stop = "budget",
			.cost_source = "timed", .prefill_pairs = 30 + i, .decode_context = 60 + i,
			.composition = -1 - i,
		},
		.entry = entry,
	};
	struct row_iteration *row = &it.row;
	enum ar_status st;

	row->span_ns = row->end_ns - row->start_ns;
	row->busy_ns = row->span_ns - 1000;
	row->event_ns = row->span_ns + row->span_ns / 100;
	for (uint32_t q = 0; q < 2; q++) {
		if (!step[i].of[q].n)
			continue;
		entry[it.n_entry++] = (struct store_entry){
			.req = q,
			.start = step[i].of[q].start,
			.n_tok = step[i].of[q].n,
			.chunk_no = (uint32_t)(q ? i - 1 : i),
			.decode = step[i].of[q].decode,
			.emit = step[i].of[q].emit,
		};
		*(step[i].of[q].decode ? &row->decode_tokens :
					 &row->prefill_tokens) += step[i].of[q].n;
	}
	if (!r->full)
		return store_iteration(s, &it, err);
	st = full_iteration(s, r, &it, err);
	for (size_t k = 0; k < it.n_entry && !st; k++)
		if (!entry[k].decode)
			st = put_quality(s, &it, &entry[k], err);
	return st;
}

enum ar_status sample_outcomes(struct store *s, const struct sample_run *r, struct ar_err *err)
{
	/* clang-format off */
	const struct row_request_outcome o[] = {
		{ .req_no = 0, ONE_ENGINE,
		  .arrival_ns = 0, .first_sched_ns = 0, .first_token_ns = end_ns(r, 0),
		  .finish_ns = end_ns(r, 7), .prompt_tokens = 2, .output_tokens = 8, .n_chunks = 1,
		  .outcome = "ok" },
		{ .req_no = 1, ONE_ENGINE,
		  .arrival_ns = 29000 * r->percent, .first_sched_ns = end_ns(r, 0),
		  .first_token_ns = end_ns(r, 3), .finish_ns = end_ns(r, 4), .prompt_tokens = 20,
		  .output_tokens = 2, .n_chunks = 3, .outcome = "ok" },
	};
	/* clang-format on */
	static const struct {
		int64_t us, n;
	} gap[] = { { 2500, 3 }, { 3000, 2 }, { 5500, 1 }, { 6000, 2 } };
	enum ar_status st = store_outcome(s, &o[0], err);

	if (!st)
		st = store_outcome(s, &o[1], err);
	for (int i = 0; i < 2 && !st; i++) /* of one session */
		st = store_turn(s, &(struct row_request_turn){ .req_no = i, .turn = i }, err);
	for (size_t i = 0; i < sizeof gap / sizeof *gap && !st; i++)
		st = store_gap(s,
			       &(struct row_token_gap){ .itl_ns = gap[i].us * 10 * r->percent,
							.n = gap[i].n },
			       err);
	return st;
}

/* Dense gives both answers, of 8 and 2 tokens; the other method misses the last token of the first,
 * and loses 0.5 nats with each. */
static enum ar_status put_answers(struct store *s, const struct sample_run *r, struct ar_err *err)
{
	static const int64_t n[] = { 8, 2 };
	enum ar_status st = AR_OK;

	for (int64_t q = 0; q < 2 && !st; q++) {
		const int64_t wrong = !r->dense && !q;
		const double loss = r->dense ? 0 : 0.5;

		st = store_eval_prompt(s,
				       &(struct row_eval_prompt){ .req_no = q,
								  .task = q ? "vt" : "multikey",
								  .length = q ? 22 : 10,
								  .n_answer = n[q],
								  .n_best = n[q] - wrong,
								  .exact = !wrong,
								  .rank_max = 3 * wrong,
								  .logprob = -(0.25 + loss) *
									     (double)n[q],
								  .kl = loss * (double)n[q],
								  .expected = q ? -1 : 1 },
				       err);
		for (int64_t i = 0; i < n[q] && !st; i++)
			st = store_eval_token(s,
					      &(struct row_eval_token){
						      .req_no = q,
						      .out_no = i,
						      .gold = 40 + i,
						      .best = i == 7 && wrong ? 9 : 40 + i,
						      .rank = i == 7 ? 3 * wrong : 0,
						      .logprob = -0.25 - loss,
						      .kl = loss },
					      err);
	}
	return st;
}

static enum ar_status put_replicate(struct store *s, int i, double scale, struct ar_err *err)
{
	static const struct {
		const char *metric;
		double p50, p90, p99; /* ms */
	} latency[] = { { "ttft", 10.3, 16.14, 17.454 },
			{ "tpot", 3.5, 3.9, 3.99 },
			{ "itl", 3, 6, 6 },
			{ "e2e", 25.8, 29.96, 30.896 },
			{ "queue", 0.05, 0.09, 0.099 } };
	const struct row_replicate r = { .replicate_no = i,
					 .ok = 2,
					 .good = -1,
					 .output_tokens = 10,
					 .duration_ns = (int64_t)(31e6 * scale) };
	enum ar_status st = store_replicate(s, &r, err);

	for (size_t k = 0; k < sizeof latency / sizeof *latency && !st; k++)
		st = store_replicate_latency(s,
					     &(struct row_replicate_latency){
						     .replicate_no = i,
						     .metric = latency[k].metric,
						     .p50 = latency[k].p50 * 1e6 * scale,
						     .p90 = latency[k].p90 * 1e6 * scale,
						     .p99 = latency[k].p99 * 1e6 * scale },
					     err);
	return st;
}

static enum ar_status put_replicates(struct store *s, const struct sample_run *r,
				     struct ar_err *err)
{
	const struct row_resampling how = { .replicates = 41,
					    .unit = "request",
					    .units = 2,
					    .block = 1,
					    .draw_key = 7,
					    .cost_error = 0,
					    .extrapolated = 0,
					    .cached = 0,
					    .run_cached = 0,
					    .steady_replays = 41,
					    .unsteady = 0 };
	enum ar_status st = store_resampling(s, &how, err);

	for (int i = 0; i < 41 && !st; i++)
		st = put_replicate(s, i, (0.8 + 0.01 * i) * (double)r->percent / 100, err);
	return st;
}

enum ar_status sample_write(struct store *s, const struct sample_run *r, int64_t *run_id,
			    struct ar_err *err)
{
	const struct store_run record = sample_record(r);
	enum ar_status st = store_run_begin(s, &record, run_id, err);

	for (int i = 0; i < SAMPLE_ITERATIONS && !st; i++)
		st = sample_iteration(s, r, i, err);
	if (!st)
		st = sample_outcomes(s, r, err);
	if (!st && r->full)
		st = put_answers(s, r, err);
	if (!st && r->replicates)
		st = put_replicates(s, r, err);
	return st ? st : store_run_end(s, "done", NULL, &(struct store_counts){ 3, 5 }, err);
}

#define SETUP "{\"seed\": 1}" /* of each run of the sample database */

static enum ar_status write_failed_run(struct store *s, struct ar_err *err)
{
	const struct sample_run r = { .method = "tri-shape",
				      .percent = 150,
				      .host_ns = 1000000,
				      .options = "{\"host-overhead\": 1000000, \"extend\": "
						 "\"tile\"}",
				      .setup = SETUP };
	/* clang-format off */
	const struct row_request_outcome o[] = {
		{ .req_no = 0, ONE_ENGINE,
		  .arrival_ns = 0, .first_sched_ns = 0, .first_token_ns = 4500000,
		  .finish_ns = -1, .prompt_tokens = 2, .output_tokens = 8, .n_chunks = 1,
		  .outcome = "unfinished" },
		{ .req_no = 1, ONE_ENGINE,
		  .arrival_ns = 2900000, .first_sched_ns = -1, .first_token_ns = -1,
		  .finish_ns = -1, .prompt_tokens = 2000, .output_tokens = 2, .outcome = "rejected",
		  .reason = "longer than --max-model-len" },
	};
	/* clang-format on */
	const struct prof_loss loss = { .records = 10, .dropped = 2, .unattributed = 1 };
	struct store_run record = sample_record(&r);
	int64_t id;
	enum ar_status st;

	record.layers_run = 4;
	st = store_run_begin(s, &record, &id, err);
	for (int i = 0; i < 2 && !st; i++)
		st = sample_iteration(s, &r, i, err);
	for (int i = 0; i < 2 && !st; i++)
		st = store_outcome(s, &o[i], err);
	return st ? st : store_run_end(s, "failed", &loss, NULL, err);
}

enum ar_status sample_database(const char *path, struct ar_err *err)
{
	static const struct sample_run dense = {
		.method = "dense",
		.dense = true,
		.percent = 100,
		.full = true,
		.replicates = true,
		.options = "{\"method\": \"dense,compact-fp\", \"seed\": 1, \"host-overhead\": 0}",
		.setup = SETUP,
	};
	struct sample_run sparse = dense;
	struct store *s = NULL;
	int64_t id;
	enum ar_status st = store_open(&s, path, err), close_st;

	if (st)
		return st;
	sparse.method = "compact-fp";
	sparse.dense = false;
	sparse.percent = 50;
	st = sample_write(s, &dense, &id, err);
	if (!st)
		st = sample_write(s, &sparse, &id, err);
	if (!st)
		st = write_failed_run(s, err);
	close_st = store_close(s, st ? NULL : err);
	return st ? st : close_st;
}
