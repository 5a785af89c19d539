/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SGLang, without its radix cache: prompts before decodes.
 *
 * A prefill batch continues the prompt that was cut, then admits from the queue.  Decodes run only
 * if there is nothing to prefill.  With mixed chunks they run in the same batch, and their number
 * is subtracted from the chunk.  At most one prompt is cut, the last one admitted, and none is
 * admitted until all of it is planned.
 *
 * Admission keeps tokens of the pool free for outputs to come.  A new request counts all its
 * outputs, at most 4096, and one block more.  A running one counts its outputs to come times
 * new_token_ratio, which falls with every decode step.  When a decode step lacks blocks, the
 * sequence with the fewest outputs (of equals, the longest prompt) is preempted.  It goes to the
 * end of the queue, and new_token_ratio is set from the outputs so far.
 *
 * With ignore_eos the engine knows when each request ends.  It admits a request if the pool has
 * room at each of these ends.  A prompt is then cut inside of a block.
 *
 * An admission may fail for lack of blocks or of sequence slots.  Then none is tried until a
 * sequence leaves the running batch.  A finished sequence leaves it when the batch is next about to
 * decode.
 *
 * With async, the engine's overlap loop, the last iteration still runs.  The scheduler does not
 * know its outputs: it counts them as outputs to come.  So a sequence that has all its outputs
 * decodes once more, unless a prefill batch runs next.
 *
 * The original takes memory for the next chunk, and for decodes in a mixed batch, without a check,
 * and fails.  A run that survives this lets the chunk wait, and decodes that lack blocks preempt
 * first and run alone.  In the original a sequence that is preempted while its iteration runs loses
 * the output of this iteration.  Here it keeps the output.
 */
#include "config.h"
#include "replay/sched/policy.h"

#include <math.h>
#include <string.h>

enum {
	MOST_EXPECTED = 4096, /* outputs that a request is expected to have */
	STEPS_AHEAD = 20,     /* of every sequence, when the ratio is set again */
	DECAY_STEPS = 600,
};

/* Where the original fails: mem_cache/allocation.py, lines 162, 231 and 575. */
static const char no_prompt[] = "out of memory for a prompt or for decodes beside it";

#define RATIO_FIRST 0.7
#define RATIO_LEAST (0.14 * RATIO_FIRST)

/* A sequence that ends after left more outputs and then frees tokens. */
struct end {
	int64_t left, tokens;
};

/* The engine's running batch has the sequences that decode.  It keeps finished requests until it is
 * next about to decode, and a prefill batch joins it after its iteration. */
struct memory {
	double new_token_ratio; /* share of the outputs to come that is kept free */
	const char *full;  /* why none is admitted for now, or NULL: the engine's batch_is_full */
	size_t n_finished; /* finished requests that the running batch still has */

	/* The last iteration. */
	size_t n_planned; /* n_running after its plan */
	bool prefill;	  /* it had prompts */
	bool along;	  /* ... and decodes beside them */
	bool cut;	  /* one of its prompts goes on */
	bool alone;	  /* meanwhile the running batch was empty */
	bool runs;	  /* it has not ended yet */

	/* With ignore_eos: the ends that this iteration's admissions foresee. */
	size_t n_end;
	struct end end[];
};

static void sglang_begin(struct sched *s)
{
	struct memory *m = s->memory;

	m->new_token_ratio = RATIO_FIRST;
	m->alone = true;
}

static int64_t whole_blocks(const struct sched_limits *l, int64_t n)
{
	return (n + l->block_tok - 1) / l->block_tok * l->block_tok;
}

/* The engine cuts outputs to the tokens that an empty pool admits.  allocator/base.py, line 94. */
static int64_t most_outputs(const struct sched_limits *l, uint32_t prompt_tok)
{
	int64_t pool = (l->num_blocks - 1) * l->block_tok;
	int64_t n = pool - whole_blocks(l, prompt_tok) - l->block_tok - 1;

	return n > 0 ? n : 0;
}

/* So that no outputs are cut. */
static int64_t sglang_slots(const struct sched_limits *l, int64_t goal, int64_t longest)
{
	(void)longest;
	return goal + 2 * l->block_tok;
}

/* Admission wants less than the pool.  With ignore_eos it wants one token less.  It also wants a
 * block for the end of a prompt that is longer after a preemption.  If the pool cannot give that,
 * the original waits for ever. */
static bool sglang_unfit(const struct sched_limits *l, const struct request *r, char *why, size_t n)
{
	int64_t tokens = most_outputs(l, r->prompt_tok);

	if (!l->num_blocks)
		return false;
	if (tokens > r->output_tok)
		tokens = r->output_tok;
	tokens += r->prompt_tok + l->block_tok + 1;
	if (l->ignore_eos)
		tokens += l->block_tok;
	return sched_lacks(whole_blocks(l, tokens) / l->block_tok, l->num_blocks - 1, why, n);
}

/* Tokens that a prefill batch may still take: of the chunk, of max_prefill_tok and of the pool.
 * pool: tokens that are free before the batch.  taken: tokens that the batch takes or that are kept
 * for outputs to come. */
struct budget {
	int64_t chunk, prefill, free, pool;
	double taken;
	bool foreseen; /* the ends of the sequences are listed */
};

/* Tokens of the pool that are not taken.  Summed and rounded as in the engine:
 * mem_cache/prefill_budget.py, remaining_total. */
static double left_of_pool(const struct budget *r)
{
	return (double)r->pool - r->taken;
}

static int64_t at_most(int64_t n)
{
	return n < MOST_EXPECTED ? n : MOST_EXPECTED;
}

/* The engine's max_new_tokens. */
static int64_t all_outputs(const struct sched *s, uint32_t id)
{
	int64_t n = s->seq[id].goal - s->seq[id].prompt;
	int64_t most = most_outputs(&s->lim, s->seq[id].prompt);

	return n < most ? n : most;
}

/* Outputs that the scheduler has seen. */
static int64_t outputs(const struct sched *s, uint32_t id)
{
	return (int64_t)s->seq[id].known - s->seq[id].prompt - sched_in_flight(s, id);
}

static int64_t outputs_to_come(const struct sched *s, uint32_t id)
{
	return all_outputs(s, id) - outputs(s, id);
}

/* Running sequences with all of their prompt. */
static size_t n_decode(const struct sched *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n_running; i++)
		n += !sched_in_prefill(s, s->running[i]);
	return n;
}

/* Requests of the engine's running batch. */
static int64_t batch_size(const struct sched *s)
{
	const struct memory *m = s->memory;

	return (int64_t)(n_decode(s) + m->n_finished);
}

static struct budget prefill_budget(const struct sched *s, bool mixed)
{
	const struct memory *m = s->memory;
	int64_t along = mixed ? batch_size(s) : 0;
	int64_t pool = s->pool.n_free * s->lim.block_tok;
	int64_t most = s->lim.max_prefill_tok ? s->lim.max_prefill_tok : INT64_MAX;
	double kept = 0;

	for (size_t i = 0; i < s->n_running; i++)
		if (!sched_in_prefill(s, s->running[i]))
			kept += (double)at_most(outputs_to_come(s, s->running[i])) *
				m->new_token_ratio;
	return (struct budget){ .chunk = s->lim.max_batched_tok - along,
				.prefill = most - along,
				.free = pool - along,
				.pool = pool,
				.taken = (double)along + kept };
}

/* Plan n tokens of id.  It is charged a block more.  Unless it is cut, it is charged all its
 * outputs, even outputs from before a preemption. */
static void plan_prefill(struct sched *s, struct budget *r, uint32_t id, int64_t n, bool cut)
{
	int64_t tokens = whole_blocks(&s->lim, n);
	int64_t expected = cut ? 0 : at_most(all_outputs(s, id));

	sched_plan(s, id, (uint32_t)n);
	r->chunk -= tokens;
	r->prefill -= tokens;
	r->free -= tokens + s->lim.block_tok;
	r->taken += (double)(tokens + s->lim.block_tok + expected);
}

static bool prompt_is_cut(const struct sched *s)
{
	return s->n_running && sched_in_prefill(s, s->running[s->n_running - 1]);
}

/* Plan the next chunk of the prompt that goes on.  A pool that has less left, but not nothing, cuts
 * the chunk. */
static void continue_cut(struct sched *s, struct budget *r)
{
	uint32_t id = s->running[s->n_running - 1];
	int64_t n = s->seq[id].known - s->seq[id].comp, most = r->chunk;
	double pool = left_of_pool(r);
	bool cut;

	if (pool >= 1 && pool < (double)most)
		most = (int64_t)pool;
	cut = n > most;
	if (cut)
		n = most;
	if (n > 0 && sched_reserve(s, id, (uint32_t)n)) {
		plan_prefill(s, r, id, n, cut);
		return;
	}
	if (n > 0)
		s->fails = no_prompt;
	r->chunk = 0;
}

/* Requests that may be in a prefill batch.  The prompt that goes on holds a slot, and is in the
 * batch as well. */
static int64_t most_prefills(const struct sched *s)
{
	int64_t beside = s->lim.max_seqs - batch_size(s);
	int64_t slots = s->lim.max_seqs - (int64_t)s->n_running;

	return beside < slots ? beside : slots;
}

/* List the end of id, behind the ends listed before it unless they come later. */
static void foresee(struct sched *s, uint32_t id)
{
	struct memory *m = s->memory;
	struct end e = { outputs_to_come(s, id), s->seq[id].prompt + outputs(s, id) };
	size_t i = m->n_end;

	if (e.left <= 0)
		return;
	for (m->n_end++; i && m->end[i - 1].left > e.left; i--)
		m->end[i] = m->end[i - 1];
	m->end[i] = e;
}

/* Add the end of a request to the list at the same place as the engine: before the first end that
 * is not earlier.  If there is none, it goes before the last one. */
static void foresee_later(struct sched *s, uint32_t id)
{
	struct memory *m = s->memory;
	struct end e = { outputs_to_come(s, id), s->seq[id].prompt + outputs(s, id) };
	size_t i = 0;

	if (e.left <= 0)
		return;
	while (i + 1 < m->n_end && m->end[i].left < e.left)
		i++;
	memmove(&m->end[i + 1], &m->end[i], (m->n_end - i) * sizeof *m->end);
	m->end[i] = e;
	m->n_end++;
}

/* With ignore_eos: does the pool have room at each end if n tokens of id are admitted? */
static bool room_at_ends(struct sched *s, struct budget *r, uint32_t id, int64_t n)
{
	struct memory *m = s->memory;
	int64_t tokens = whole_blocks(&s->lim, n) + s->lim.block_tok, free = r->free - tokens;

	if (free < 0 || (double)tokens > left_of_pool(r))
		return false;
	if (r->foreseen) {
		foresee_later(s, id);
	} else {
		m->n_end = 0;
		foresee(s, id);
		for (size_t i = 0; i < s->n_running; i++)
			foresee(s, s->running[i]);
		r->foreseen = true;
	}
	for (size_t i = 0; i < m->n_end; i++) {
		int64_t batch = (int64_t)(m->n_end - i);

		if (free - m->end[i].left * batch <= batch)
			return false;
		free += m->end[i].tokens;
	}
	return true;
}

/* Does the pool have room for id, with n tokens known? */
static bool room(struct sched *s, struct budget *r, uint32_t id, int64_t n)
{
	int64_t left = outputs_to_come(s, id);

	if (s->lim.ignore_eos)
		return room_at_ends(s, r, id, n);
	return (double)(n + at_most(left > 0 ? left : 0) + s->lim.block_tok) < left_of_pool(r);
}

/* Tokens that a prompt of n runs if the chunk has room for no more. */
static int64_t cut_at(const struct sched *s, const struct budget *r, int64_t n)
{
	int64_t whole = s->lim.ignore_eos ? n : whole_blocks(&s->lim, n);
	int64_t unit = s->lim.ignore_eos ? 1 : s->lim.block_tok;

	return whole <= r->chunk ? n : r->chunk - r->chunk % unit;
}

/* most: requests that still may join the prefill batch. */
static const char *sglang_admit_waiting(struct sched *s, struct budget *r, int64_t most)
{
	struct memory *m = s->memory;

	for (; s->wait_head != SCHED_NONE; most--) {
		uint32_t id = s->wait_head;
		int64_t known = s->seq[id].known, n = cut_at(s, r, known);

		if (most <= 0)
			return m->full = "seqs";
		if (!room(s, r, id, known))
			return m->full = "blocks";
		if (n <= 0)
			return "budget";
		if (!sched_reserve(s, id, (uint32_t)n)) {
			s->fails = no_prompt; /* they have taken the blocks already */
			return m->full = "blocks";
		}
		sched_admit(s);
		plan_prefill(s, r, id, n, n < known);
		if (left_of_pool(r) <= 0 || r->free <= 0)
			return m->full = "blocks";
		if (r->chunk <= 0 || r->prefill <= 0)
			return "budget";
	}
	return "empty";
}

static const char *sglang_run_prefills(struct sched *s, struct budget left)
{
	const struct memory *m = s->memory;
	int64_t most = most_prefills(s) - prompt_is_cut(s);

	if (prompt_is_cut(s))
		continue_cut(s, &left);
	return m->full ? m->full : sglang_admit_waiting(s, &left, most);
}

/* Would sglang_run_prefills() plan anything, if decodes had not to fit beside it? */
static bool would_prefill(struct sched *s, struct budget left)
{
	const struct memory *m = s->memory;
	uint32_t id = s->wait_head;
	int64_t known;

	if (prompt_is_cut(s))
		return left.chunk > 0;
	if (m->full || id == SCHED_NONE || most_prefills(s) <= 0)
		return false;
	known = s->seq[id].known;
	return room(s, &left, id, known) && cut_at(s, &left, known) > 0;
}

static int64_t blocks_for_decodes(const struct sched *s)
{
	int64_t n = 0;

	for (size_t i = 0; i < s->n_running; i++) {
		const struct sched_seq *q = &s->seq[s->running[i]];

		n += !sched_in_prefill(s, s->running[i]) &&
		     block_pool_need(&s->pool, (int64_t)q->comp + 1) > q->n_block;
	}
	return n;
}

static void sglang_run_decodes(struct sched *s)
{
	for (size_t i = 0; i < s->n_running; i++) {
		uint32_t id = s->running[i];

		if (sched_in_prefill(s, id))
			continue;
		sched_reserve(s, id, 1);
		sched_plan(s, id, 1);
	}
}

/* The sequence to preempt, an index into running.  A single decode is kept: the last one running
 * is preempted instead, the prompt that is cut. */
static size_t victim(const struct sched *s)
{
	size_t least = s->n_running - 1, n = 0;

	for (size_t i = 0; i < s->n_running; i++) {
		const struct sched_seq *q = &s->seq[s->running[i]], *w = &s->seq[s->running[least]];
		int64_t out = outputs(s, s->running[i]), fewest = outputs(s, s->running[least]);

		if (sched_in_prefill(s, s->running[i]))
			continue;
		if (!n++ || out < fewest || (out == fewest && q->prompt >= w->prompt))
			least = i;
	}
	return n > 1 ? least : s->n_running - 1;
}

static double suggested_ratio(const struct sched *s)
{
	double soon = 0, most = 1;

	for (size_t i = 0; i < s->n_running; i++) {
		uint32_t id = s->running[i];

		if (sched_in_prefill(s, id))
			continue;
		soon += (double)(outputs(s, id) + STEPS_AHEAD);
		most += (double)all_outputs(s, id);
	}
	return soon < most ? soon / most : 1;
}

static void retract(struct sched *s)
{
	struct memory *m = s->memory;

	while (blocks_for_decodes(s) > s->pool.n_free)
		sched_preempt(s, victim(s));
	m->new_token_ratio = suggested_ratio(s);
	m->full = NULL;
	s->stop = "preemption";
}

static void lower_ratio(struct memory *m)
{
	m->new_token_ratio -= (RATIO_FIRST - RATIO_LEAST) / DECAY_STEPS;
	if (m->new_token_ratio < RATIO_LEAST)
		m->new_token_ratio = RATIO_LEAST;
}

/* The running batch is about to decode: finished requests leave it.  Returns whether any did. */
static bool drop_finished(struct memory *m)
{
	bool any = m->n_finished;

	m->n_finished = 0;
	if (any)
		m->full = NULL;
	return any;
}

/* The engine puts the decodes of a mixed batch behind its prompts.  So the sequences whose prompt
 * has just ended come first from now on: managers/schedule_batch.py, mix_with_running(). */
static void newest_first(struct sched *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n_running; i++) {
		uint32_t id = s->running[i];

		if (s->seq[id].comp != s->seq[id].admitted)
			continue;
		memmove(&s->running[n + 1], &s->running[n], (i - n) * sizeof *s->running);
		s->running[n++] = id;
	}
}

/* The last prefill batch joins the running batch.  Its requests that go on, or are known to have
 * finished, do not join.  An empty running batch loses its full mark then.  Other finished requests
 * stay in the running batch until the engine is idle. */
static void join_running(struct sched *s)
{
	struct memory *m = s->memory;
	size_t finished = m->n_planned - s->n_running;

	if (m->prefill && (m->along || !s->lim.async)) {
		if (finished)
			m->full = NULL;
	} else {
		m->n_finished += finished;
	}
	if (m->prefill && (m->cut || m->alone))
		m->full = NULL;
	if (m->prefill && m->along)
		newest_first(s);
	if (s->idled) {
		drop_finished(m);
		m->new_token_ratio = RATIO_FIRST;
	}
}

static void sglang_compose(struct sched *s, bool mixed)
{
	struct memory *m = s->memory;
	bool enough = blocks_for_decodes(s) <= s->pool.n_free, along = mixed && enough;
	struct budget left;
	size_t n_along;

	join_running(s);
	left = prefill_budget(s, mixed);
	m->alone = along || !batch_size(s);
	if (along)
		sglang_run_decodes(s);
	n_along = s->batch.n;
	if (along || !mixed)
		s->stop = sglang_run_prefills(s, left);
	else if (would_prefill(s, left))
		s->fails = no_prompt;
	if (!s->batch.n && !n_decode(s) && !m->runs && drop_finished(m)) {
		m->alone = true;
		s->stop = sglang_run_prefills(s, prefill_budget(s, mixed));
	}
	m->prefill = s->batch.n > n_along;
	m->along = n_along;
	if (m->prefill) {
		sched_prefills_first(s, n_along);
		if (mixed)
			m->n_finished = 0;
	} else {
		drop_finished(m);
		if (!enough)
			retract(s);
		else if (n_decode(s))
			lower_ratio(m);
	}
	if (!s->batch.n)
		sglang_run_decodes(s);
	m->cut = prompt_is_cut(s);
	m->n_planned = s->n_running;
	m->runs = s->lim.async && s->batch.n;
}

static void compose_plain(struct sched *s)
{
	sglang_compose(s, false);
}

static void compose_mixed(struct sched *s)
{
	sglang_compose(s, true);
}

#define GIB ((int64_t)1 << 30)
#define ALL_GPUS \
	.requests = 2048, .block_tok = 1, .async = true, .prefix_cache = true, \
	.pool = POOL_STATIC, .captured_per_req = 1

/* SGLang 0.5.21, arg_groups/memory_hook.py, by GPU.  Requests are 2048 to 4096 by the tokens of the
 * pool (pool_configurator.py:1573); only pools of more than 4 times the model's length have more
 * than 2048. */
static const struct engine_defaults sglang_defaults[] = {
	{ .from_bytes = 160 * GIB, .tokens = 16384, .captured = 512, ALL_GPUS },
	{ .from_bytes = 60 * GIB, .tokens = 8192, .captured = 256, .captured_tp4 = 512, ALL_GPUS },
	{ .from_bytes = 35 * GIB, .tokens = 4096, .captured = 32, .captured_tp4 = 160, ALL_GPUS },
	{ .from_bytes = 20 * GIB, .tokens = 4096, .captured = 48, .captured_tp4 = 160, ALL_GPUS },
	{ .tokens = 2048, .captured = 8, ALL_GPUS },
};

/* Numbers of tokens that CUDA graphs of prompts are captured for: cuda_graph_hook.py. */
static int64_t prefill_graphs(int64_t tokens)
{
	static const struct {
		int64_t first, last, step;
	} sizes[] = { { 4, 32, 4 },	 { 48, 256, 16 },     { 288, 512, 32 },
		      { 576, 1024, 64 }, { 1280, 4096, 256 }, { 4608, INT64_MAX, 512 } };
	int64_t n = 0;

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes && tokens >= sizes[i].first; i++) {
		int64_t last = tokens < sizes[i].last ? tokens : sizes[i].last;

		n += (last - sizes[i].first) / sizes[i].step + 1;
	}
	return n;
}

/* The engine estimates what else needs memory, in MiB, and rounds the share to thousandths. */
static double sglang_memory_share(int64_t bytes, int64_t tokens, int64_t captured, int64_t tp)
{
	const double mib = (double)bytes / (1 << 20);
	double other = 512 + 1.5 * (double)(tokens > 2048 ? tokens : 2048) + 128 * (double)tp +
		       2 * (double)captured + 8 * (double)prefill_graphs(tokens);

	if (bytes > 60 * GIB && other < 10 * 1024)
		other = 10 * 1024;
	return round((mib - other) / mib * 1000) / 1000;
}

const struct policy policy_sglang = {
	.name = "sglang-0.5.21",
	.drops_in_flight = true,
	.also = "sglang",
	.title = "SGLang 0.5.21, prompts before decodes",
	.origin = "SGLang 0.5.21, python/sglang/srt/managers/scheduler.py and schedule_policy.py",
	.can = POLICY_ASYNC | POLICY_PREFILL_TOKENS | POLICY_IGNORE_EOS | POLICY_FAILS,
	.check = sched_check_whole_blocks,
	.defaults = sglang_defaults,
	.memory_share = sglang_memory_share,
	.slots = sglang_slots,
	.most_outputs = most_outputs,
	.unfit = sglang_unfit,
	.requeue = sched_requeue_last,
	.overruns = true,
	.memory_size = sizeof(struct memory),
	.memory_per_seq = sizeof(struct end),
	.begin = sglang_begin,
	.compose = compose_plain,
};

const struct policy policy_sglang_mixed = {
	.name = "sglang-mixed-0.5.21",
	.drops_in_flight = true,
	.also = "sglang-mixed",
	.title = "SGLang 0.5.21 with mixed chunks, decodes beside prompts",
	.origin = "SGLang 0.5.21, python/sglang/srt/managers/scheduler.py and schedule_policy.py",
	.can = POLICY_ASYNC | POLICY_PREFILL_TOKENS | POLICY_IGNORE_EOS | POLICY_FAILS,
	.check = sched_check_whole_blocks,
	.defaults = sglang_defaults,
	.memory_share = sglang_memory_share,
	.slots = sglang_slots,
	.most_outputs = most_outputs,
	.unfit = sglang_unfit,
	.requeue = sched_requeue_last,
	.overruns = true,
	.memory_size = sizeof(struct memory),
	.memory_per_seq = sizeof(struct end),
	.begin = sglang_begin,
	.compose = compose_mixed,
};
