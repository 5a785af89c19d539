/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TensorRT-LLM's in-flight batching: capacity GUARANTEED_NO_EVICT or MAX_UTILIZATION, chunks
 * FIRST_COME_FIRST_SERVED or EQUAL_PROGRESS.
 *
 * Step 1, which requests run.  GUARANTEED_NO_EVICT admits a request if there are blocks for its
 * prompt and all its outputs, so nothing is ever preempted.  MAX_UTILIZATION admits it if there are
 * blocks for its prompt.  If a decode finds no block, the last running sequence is preempted, and
 * none is admitted in this iteration.
 *
 * Step 2, how many tokens they run.  Decodes are planned first.  If all missing tokens of the
 * admitted prompts fit the budget, they all run.  Otherwise, with FIRST_COME_FIRST_SERVED, prompts
 * take in order what is left; a cut one is rounded down to whole blocks.  With EQUAL_PROGRESS they
 * take one block each per round.  A prompt that gets nothing waits while later ones are tried.
 * Prompts come before decodes in the batch.
 */
#include "config.h"
#include "replay/sched/policy.h"

/* No evict reserves a slot for the last output too, which is never computed. */
static int64_t slots_to_goal(const struct sched_limits *l, int64_t goal, int64_t longest)
{
	(void)l, (void)longest;
	return goal;
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

static const char *admit_waiting(struct sched *s, bool no_evict)
{
	while (s->wait_head != SCHED_NONE) {
		uint32_t id = s->wait_head;
		const struct sched_seq *q = &s->seq[id];

		if ((int64_t)s->n_running == s->lim.max_seqs)
			return "seqs";
		if (!sched_reserve(s, id, no_evict ? q->goal : q->known))
			return "blocks";
		sched_admit(s);
	}
	return "empty";
}

static int64_t run_decodes(struct sched *s, int64_t budget)
{
	for (size_t i = 0; i < s->n_running; i++)
		if (!sched_in_prefill(s, s->running[i])) {
			sched_plan(s, s->running[i], 1);
			budget--;
		}
	return budget;
}

static uint32_t missing(const struct sched *s, uint32_t id)
{
	return s->seq[id].known - s->seq[id].comp;
}

static bool all_fit(const struct sched *s, int64_t budget)
{
	for (size_t i = 0; i < s->n_running; i++)
		if (sched_in_prefill(s, s->running[i]))
			budget -= missing(s, s->running[i]);
	return budget >= 0;
}

/* Tokens of one block, or the missing tokens of id if fewer; 0 if the budget is smaller. */
static uint32_t next_block(const struct sched *s, uint32_t id, int64_t budget)
{
	int64_t n = missing(s, id);

	if (n > s->lim.block_tok)
		n = s->lim.block_tok;
	return n <= budget ? (uint32_t)n : 0;
}

static void run_equally(struct sched *s, int64_t budget)
{
	size_t first = s->batch.n;
	int64_t before;
	uint32_t n;

	for (size_t i = 0; i < s->n_running; i++) {
		n = sched_in_prefill(s, s->running[i]) ? next_block(s, s->running[i], budget) : 0;
		if (n)
			sched_plan(s, s->running[i], n);
		budget -= n;
	}
	do {
		before = budget;
		for (size_t i = first; i < s->batch.n; i++) {
			n = next_block(s, s->batch.entry[i].req, budget);
			sched_extend(s, i, n);
			budget -= n;
		}
	} while (budget < before);
}

static void run_in_order(struct sched *s, int64_t budget)
{
	for (size_t i = 0; i < s->n_running; i++) {
		uint32_t id = s->running[i];
		int64_t n = missing(s, id);

		if (!sched_in_prefill(s, id))
			continue;
		if (n > budget)
			n = budget - budget % s->lim.block_tok;
		if (n)
			sched_plan(s, id, (uint32_t)n);
		budget -= n;
	}
}

static void compose(struct sched *s, bool no_evict)
{
	size_t n_running = s->n_running, n_decode;
	int64_t budget;

	keep_running(s);
	s->stop = s->n_running < n_running ? "preemption" : admit_waiting(s, no_evict);
	budget = run_decodes(s, s->lim.max_batched_tok);
	n_decode = s->batch.n;
	if (!all_fit(s, budget))
		s->stop = "budget";
	if (s->lim.chunks == SCHED_CHUNKS_EQUAL && !all_fit(s, budget))
		run_equally(s, budget);
	else
		run_in_order(s, budget);
	sched_prefills_first(s, n_decode);
}

static void compose_no_evict(struct sched *s)
{
	compose(s, true);
}

static void compose_max_util(struct sched *s)
{
	compose(s, false);
}

const struct policy policy_trtllm_no_evict = {
	.name = "trtllm-no-evict",
	.title = "TensorRT-LLM, guaranteed no evict",
	.origin = "TensorRT-LLM 02a10fe, capacityScheduler.cpp and microBatchScheduler.cpp",
	.can = POLICY_CHUNKS,
	.check = sched_check_whole_blocks,
	.slots = slots_to_goal,
	.unfit = sched_unfit_pool,
	.requeue = sched_requeue_first,
	.compose = compose_no_evict,
};

const struct policy policy_trtllm_max_util = {
	.name = "trtllm-max-util",
	.title = "TensorRT-LLM, maximum utilization",
	.origin = "TensorRT-LLM 02a10fe, capacityScheduler.cpp and microBatchScheduler.cpp",
	.can = POLICY_CHUNKS,
	.check = sched_check_whole_blocks,
	.slots = sched_slots_computed,
	.unfit = sched_unfit_pool,
	.requeue = sched_requeue_first,
	.compose = compose_max_util,
};
