/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TensorRT-LLM's in-flight batching without reuse of blocks: capacity GUARANTEED_NO_EVICT,
 * MAX_UTILIZATION, STATIC_BATCH or PREFILL_FIRST, chunks FIRST_COME_FIRST_SERVED, EQUAL_PROGRESS or
 * none.
 *
 * Step 1, which requests run.  GUARANTEED_NO_EVICT admits a request if there are blocks for its
 * prompt and all its outputs, so nothing is ever preempted.  MAX_UTILIZATION admits it if there are
 * blocks for its prompt.  If a decode finds no block, the last running sequence is preempted, and
 * none is admitted in this iteration.  STATIC_BATCH admits as GUARANTEED_NO_EVICT does, but only
 * while no sequence decodes; prompts that go on wait as well.  PREFILL_FIRST lets decodes wait
 * while there are prompts.  It admits a request if free blocks can hold three things: its prompt,
 * all its outputs, and the rest of each prompt that goes on.
 *
 * Step 2, how many tokens they run.  Decodes are planned first.  If all missing tokens of the
 * admitted prompts fit the budget, they all run.  Otherwise, with FIRST_COME_FIRST_SERVED, prompts
 * take the rest in order; a cut one is rounded down to whole units.  With EQUAL_PROGRESS they take
 * one unit each per round.  A prompt that gets nothing waits while later ones are tried.  Without
 * chunks, the first prompt that does not fit the budget ends the batch.  Prompts come before
 * decodes in the batch.
 *
 * With PREFILL_FIRST the original fails when a decode finds no block.  Here the last running
 * sequence is preempted, as under MAX_UTILIZATION.
 */
#include "config.h"
#include "replay/sched/policy.h"

#include <inttypes.h>
#include <stdio.h>

enum capacity { NO_EVICT, MAX_UTIL, STATIC_BATCH, PREFILL_FIRST };

/* Kinds of entries in an iteration. */
enum { DECODES = 1, PROMPTS = 2 };

/* No evict reserves a slot for the last output too, which is never computed. */
static int64_t slots_to_goal(const struct sched_limits *l, int64_t goal, int64_t longest)
{
	(void)l, (void)longest;
	return goal;
}

/* Without chunks, a request must fit the budget.  So must it when it is computed again. */
static bool exceeds(const struct sched_limits *l, int64_t tokens, char *why, size_t n)
{
	if (l->chunks != SCHED_CHUNKS_NONE || tokens <= l->max_batched_tok)
		return false;
	snprintf(why, n,
		 "%" PRId64 " tokens at once exceed the budget of %" PRId64 " per iteration",
		 tokens, l->max_batched_tok);
	return true;
}

static bool trtllm_unfit(const struct sched_limits *l, const struct request *r, char *why, size_t n)
{
	return exceeds(l, r->prompt_tok, why, n) || sched_unfit_pool(l, r, why, n);
}

static bool unfit_again(const struct sched_limits *l, const struct request *r, char *why, size_t n)
{
	return exceeds(l, sched_goal(l, r) - 1, why, n) || sched_unfit_pool(l, r, why, n);
}

/* Reserve blocks for the next decode step.  With no evict they are reserved already. */
static void keep_running(struct sched *s)
{
	for (size_t i = 0; i < s->n_running; i++) {
		uint32_t id = s->running[i];

		while (!sched_in_prefill(s, id) && i < s->n_running && !sched_reserve(s, id, 1))
			sched_preempt(s, s->n_running - 1);
	}
}

/* Free blocks that no prompt that goes on will need. */
static int64_t n_spare(const struct sched *s)
{
	int64_t n = s->pool.n_free;

	for (size_t i = 0; i < s->n_running; i++) {
		const struct sched_seq *q = &s->seq[s->running[i]];

		if (sched_in_prefill(s, s->running[i]))
			n -= block_pool_need(&s->pool, sched_most_stored(s, s->running[i])) -
			     q->n_block;
	}
	return n;
}

static const char *trtllm_admit_waiting(struct sched *s, enum capacity how)
{
	bool all = how == NO_EVICT || how == STATIC_BATCH;

	while (s->wait_head != SCHED_NONE) {
		uint32_t id = s->wait_head;
		const struct sched_seq *q = &s->seq[id];
		int64_t most = sched_most_stored(s, id);

		if ((int64_t)s->n_running == s->lim.max_seqs)
			return "seqs";
		if (how == PREFILL_FIRST && block_pool_need(&s->pool, most) > n_spare(s))
			return "blocks";
		if (!sched_reserve(s, id, all ? (uint32_t)most : q->known))
			return "blocks";
		sched_admit(s);
	}
	return "empty";
}

static uint32_t missing(const struct sched *s, uint32_t id)
{
	return s->seq[id].known - s->seq[id].comp;
}

static int64_t trtllm_run_decodes(struct sched *s, int64_t budget)
{
	for (size_t i = 0; i < s->n_running; i++)
		if (!sched_in_prefill(s, s->running[i])) {
			sched_plan(s, s->running[i], 1);
			budget--;
		}
	return budget;
}

static bool all_fit(const struct sched *s, int64_t budget)
{
	for (size_t i = 0; i < s->n_running; i++)
		if (sched_in_prefill(s, s->running[i]))
			budget -= missing(s, s->running[i]);
	return budget >= 0;
}

/* Tokens of one unit, or the missing tokens of id if fewer; 0 if the budget is smaller. */
static uint32_t next_unit(const struct sched *s, uint32_t id, int64_t budget)
{
	int64_t n = missing(s, id), unit = sched_chunk_unit(&s->lim);

	if (n > unit)
		n = unit;
	return n <= budget ? (uint32_t)n : 0;
}

static void run_equally(struct sched *s, int64_t budget)
{
	size_t first = s->batch.n;
	int64_t before;
	uint32_t n;

	for (size_t i = 0; i < s->n_running; i++) {
		n = sched_in_prefill(s, s->running[i]) ? next_unit(s, s->running[i], budget) : 0;
		if (n)
			sched_plan(s, s->running[i], n);
		budget -= n;
	}
	do {
		before = budget;
		for (size_t i = first; i < s->batch.n; i++) {
			n = next_unit(s, s->batch.entry[i].req, budget);
			sched_extend(s, i, n);
			budget -= n;
		}
	} while (budget < before);
}

static void run_in_order(struct sched *s, int64_t budget)
{
	int64_t unit = sched_chunk_unit(&s->lim);

	for (size_t i = 0; i < s->n_running; i++) {
		uint32_t id = s->running[i];
		int64_t n = missing(s, id);

		if (!sched_in_prefill(s, id))
			continue;
		if (n > budget)
			n = budget - budget % unit;
		if (n)
			sched_plan(s, id, (uint32_t)n);
		budget -= n;
	}
}

static bool any(const struct sched *s, unsigned kinds)
{
	for (size_t i = 0; i < s->n_running; i++)
		if (kinds & (sched_in_prefill(s, s->running[i]) ? PROMPTS : DECODES))
			return true;
	return false;
}

/* Prompts in order, up to the first that exceeds the budget. */
static void run_whole(struct sched *s, int64_t budget)
{
	for (size_t i = 0; i < s->n_running; i++) {
		uint32_t id = s->running[i], n = missing(s, id);

		if (!sched_in_prefill(s, id))
			continue;
		if (n > budget)
			return;
		sched_plan(s, id, n);
		budget -= n;
	}
}

static void run_prompts(struct sched *s, int64_t budget)
{
	bool fit = all_fit(s, budget);

	if (!fit)
		s->stop = "budget";
	if (s->lim.chunks == SCHED_CHUNKS_NONE)
		run_whole(s, budget);
	else if (s->lim.chunks == SCHED_CHUNKS_EQUAL && !fit)
		run_equally(s, budget);
	else
		run_in_order(s, budget);
}

/* Keep the running sequences, then admit others.  Returns the kinds of sequences that the iteration
 * runs. */
static unsigned decodes_first(struct sched *s, enum capacity how)
{
	size_t n_running = s->n_running;

	keep_running(s);
	if (how == STATIC_BATCH && any(s, DECODES)) {
		s->stop = "static";
		return DECODES;
	}
	s->stop = s->n_running < n_running ? "preemption" : trtllm_admit_waiting(s, how);
	return DECODES | PROMPTS;
}

/* Admit first; decodes are kept only if there is no prompt. */
static unsigned prompts_first(struct sched *s)
{
	size_t n_running;

	s->stop = trtllm_admit_waiting(s, PREFILL_FIRST);
	if (any(s, PROMPTS))
		return PROMPTS;
	n_running = s->n_running;
	keep_running(s);
	if (s->n_running < n_running) {
		s->stop = "preemption";
		s->fails = "out of memory for a decode";
	}
	return DECODES;
}

static void trtllm_compose(struct sched *s, enum capacity how)
{
	unsigned kinds = how == PREFILL_FIRST ? prompts_first(s) : decodes_first(s, how);
	int64_t budget = s->lim.max_batched_tok;
	size_t n_decode;

	if (kinds & DECODES)
		budget = trtllm_run_decodes(s, budget);
	n_decode = s->batch.n;
	if (kinds & PROMPTS)
		run_prompts(s, budget);
	sched_prefills_first(s, n_decode);
}

static void compose_no_evict(struct sched *s)
{
	trtllm_compose(s, NO_EVICT);
}

static void compose_max_util(struct sched *s)
{
	trtllm_compose(s, MAX_UTIL);
}

static void compose_static_batch(struct sched *s)
{
	trtllm_compose(s, STATIC_BATCH);
}

static void compose_prefill_first(struct sched *s)
{
	trtllm_compose(s, PREFILL_FIRST);
}

/* tensorrt_llm/llmapi/llm_args.py; the prefix cache is its block reuse. */
static const struct engine_defaults trtllm_defaults[] = {
	{ .tokens = 8192,
	  .requests = 2048,
	  .block_tok = 32,
	  .async = true,
	  .prefix_cache = true,
	  .memory_share = 0.9,
	  .pool = POOL_OF_FREE,
	  .captured = 512,
	  .captured_per_req = 2 },
};

const struct policy policy_trtllm_no_evict = {
	.name = "trtllm-no-evict-1.2",
	.also = "trtllm-no-evict",
	.title = "TensorRT-LLM 1.2, guaranteed no evict",
	.origin = "TensorRT-LLM 1.2, capacityScheduler.cpp and microBatchScheduler.cpp",
	.can = POLICY_CHUNKS | POLICY_CHUNK_UNIT,
	.defaults = trtllm_defaults,
	.check = sched_check_whole_blocks,
	.keeps = KEEPS_ALL,
	.slots = slots_to_goal,
	.unfit = trtllm_unfit,
	.requeue = sched_requeue_first,
	.compose = compose_no_evict,
};

const struct policy policy_trtllm_max_util = {
	.name = "trtllm-max-util-1.2",
	.also = "trtllm-max-util",
	.title = "TensorRT-LLM 1.2, maximum utilization",
	.origin = "TensorRT-LLM 1.2, capacityScheduler.cpp and microBatchScheduler.cpp",
	.can = POLICY_CHUNKS | POLICY_CHUNK_UNIT,
	.defaults = trtllm_defaults,
	.check = sched_check_whole_blocks,
	.keeps = KEEPS_ADMITTED,
	.slots = sched_slots_computed,
	.unfit = unfit_again,
	.requeue = sched_requeue_first,
	.compose = compose_max_util,
};

const struct policy policy_trtllm_static_batch = {
	.name = "trtllm-static-batch-1.2",
	.title = "TensorRT-LLM 1.2, static batch",
	.origin = "TensorRT-LLM 1.2, capacityScheduler.cpp and microBatchScheduler.cpp",
	.can = POLICY_CHUNKS | POLICY_CHUNK_UNIT,
	.defaults = trtllm_defaults,
	.check = sched_check_whole_blocks,
	.keeps = KEEPS_ALL,
	.slots = slots_to_goal,
	.unfit = trtllm_unfit,
	.requeue = sched_requeue_first,
	.compose = compose_static_batch,
};

const struct policy policy_trtllm_prefill_first = {
	.name = "trtllm-prefill-first-02a10fe",
	.title = "TensorRT-LLM at commit 02a10fe, prefill first",
	.origin = "TensorRT-LLM 02a10fe, capacityScheduler.cpp and microBatchScheduler.cpp",
	.can = POLICY_CHUNKS | POLICY_CHUNK_UNIT | POLICY_FAILS,
	.defaults = trtllm_defaults,
	.check = sched_check_whole_blocks,
	.keeps = KEEPS_ADMITTED,
	.slots = slots_to_goal,
	.unfit = unfit_again,
	.requeue = sched_requeue_first,
	.compose = compose_prefill_first,
};
