/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vLLM, the V1 scheduler, at two versions: chunked prefill.
 *
 * Running sequences are planned first, in order of admission, then waiting ones, until the token
 * budget is spent.  If a running sequence finds no block, the one admitted last or, by priority,
 * the least important one is preempted.  An iteration that preempted admits nobody, even if blocks
 * are free by then.  If the head of the queue is not admitted, those behind it wait too.  The
 * prefix cache is searched whenever the head could be admitted.
 *
 * In 0.16, admission needs blocks for the first chunk only, so prompts are admitted that cannot be
 * finished.  In 0.19, blocks for all known tokens of the sequence must be free and, unless nothing
 * runs, the watermark besides.  Only the first chunk's blocks are then taken.
 *
 * With asynchronous scheduling the last iteration still runs.  Its output tokens count as known, so
 * its sequences are planned again.  A sequence that it finishes is passed over.  It keeps its
 * blocks for this iteration, but can be preempted.
 *
 * A chunk never has to be cut at the maximum length: a sequence ends when it knows that many
 * tokens, so the positions that remain always fit.
 */
#include "config.h"
#include "replay/sched/policy.h"

/* Tokens that id runs next; 0 if the iteration that still runs finishes it. */
static uint32_t chunk_len(const struct sched *s, uint32_t id, int64_t budget)
{
	const struct sched_seq *q = &s->seq[id];
	int64_t n = q->known < q->goal ? q->known - q->comp : 0;

	if (s->lim.long_prefill_tok && n > s->lim.long_prefill_tok)
		n = s->lim.long_prefill_tok;
	return (uint32_t)(n < budget ? n : budget);
}

/* Plan the running sequences.  Returns what is left of the budget.  Ends when a sequence that lacks
 * blocks is itself the victim.  By priority, the victim can be planned already; it is unplanned. */
static int64_t run_running(struct sched *s, int64_t budget)
{
	for (size_t i = 0; i < s->n_running && budget > 0; i++) {
		uint32_t id = s->running[i], n = chunk_len(s, id, budget);

		if (!n)
			continue;
		while (!sched_reserve(s, id, n)) {
			size_t v = sched_victim(s);
			uint32_t victim = s->running[v];

			if (v < i) {
				budget += sched_unplan(s, victim);
				i--;
			}
			sched_preempt(s, v);
			if (victim == id)
				return budget;
		}
		sched_plan(s, id, n);
		budget -= n;
	}
	return budget;
}

/* True: blocks for all known tokens of id are free and, unless nothing runs, the watermark. */
static bool fits(const struct sched *s, uint32_t id)
{
	int64_t keep = s->n_running ? sched_watermark(&s->lim) : 0;

	return sched_fits(s, id, s->seq[id].known, keep);
}

static const char *admit_waiting(struct sched *s, int64_t budget, bool full_fit)
{
	while (budget > 0) {
		uint32_t id = s->wait_head, n;

		if (id == SCHED_NONE)
			return "empty";
		if ((int64_t)s->n_running == s->lim.max_seqs)
			return "seqs";
		sched_match(s);
		n = chunk_len(s, id, budget);
		if (full_fit && !fits(s, id))
			return "blocks";
		if (!sched_reserve(s, id, n))
			return "blocks";
		sched_admit(s);
		sched_plan(s, id, n);
		budget -= n;
	}
	return "budget";
}

static void compose(struct sched *s, bool full_fit)
{
	int64_t budget = run_running(s, s->lim.max_batched_tok);

	s->stop = s->n_preempted ? "preemption" : admit_waiting(s, budget, full_fit);
}

static void compose_0_16(struct sched *s)
{
	compose(s, false);
}

static void compose_0_19(struct sched *s)
{
	compose(s, true);
}

const struct policy policy_vllm_0_16 = {
	.name = "vllm-0.16",
	.host = "vllm-0.24",
	.title = "vLLM 0.16.0",
	.origin = "vLLM 0.16.0, vllm/v1/core/sched/scheduler.py",
	.can = POLICY_LONG_PREFILL | POLICY_ORDER | POLICY_PREFIX_CACHE | POLICY_ASYNC,
	.slots = sched_slots_computed,
	.unfit = sched_unfit_pool,
	.requeue = sched_requeue_first,
	.compose = compose_0_16,
};

const struct policy policy_vllm_0_19 = {
	.name = "vllm-0.19",
	.host = "vllm-0.24",
	.title = "vLLM 0.19, whole sequences must fit to be admitted",
	.origin = "vLLM pull requests 37307 and 44594",
	.can = POLICY_LONG_PREFILL | POLICY_ORDER | POLICY_PREFIX_CACHE | POLICY_WATERMARK |
	       POLICY_ASYNC,
	.slots = sched_slots_computed,
	.unfit = sched_unfit_pool,
	.requeue = sched_requeue_first,
	.compose = compose_0_19,
};
