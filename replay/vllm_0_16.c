/*
 * vLLM 0.16.0, the V1 scheduler: first come first served, chunked prefill, synchronous engine.
 *
 * Running sequences go first, in order of admission, then waiting ones, until the token budget
 * is spent.  Where a running sequence finds no block, the one admitted last gives its own
 * up and returns to the head of the queue; an iteration that preempted admits nobody,
 * even if blocks are free by then.  Admission asks for the blocks of the first chunk only, so
 * that prompts are admitted that cannot be finished.  The head of the queue blocks those
 * behind it.  What the prefix cache has of it is looked up whenever it could be admitted.
 *
 * A chunk never has to be cut at the maximum length: a sequence ends when it knows that many
 * tokens, so the positions that remain always fit.
 */
#include "config.h"
#include "replay/policy.h"

static uint32_t chunk_len(const struct sched *s, uint32_t id, int64_t budget)
{
	int64_t n = s->seq[id].known - s->seq[id].comp;

	if (s->lim.long_prefill_tok && n > s->lim.long_prefill_tok)
		n = s->lim.long_prefill_tok;
	return (uint32_t)(n < budget ? n : budget);
}

/* Returns what is left of the budget.  Ends at once when the sequence that asks is the one
 * that has to go: it was the last. */
static int64_t run_running(struct sched *s, int64_t budget)
{
	for (size_t i = 0; i < s->n_running && budget > 0; i++) {
		uint32_t id = s->running[i], n = chunk_len(s, id, budget);

		while (!sched_reserve(s, id, n))
			if (sched_preempt_last(s) == id)
				return budget;
		sched_plan(s, id, n);
		budget -= n;
	}
	return budget;
}

static const char *admit_waiting(struct sched *s, int64_t budget)
{
	while (budget > 0) {
		uint32_t id = s->wait_head, n;

		if (id == SCHED_NONE)
			return "empty";
		if ((int64_t)s->n_running == s->lim.max_seqs)
			return "seqs";
		sched_match(s);
		n = chunk_len(s, id, budget);
		if (!sched_reserve(s, id, n))
			return "blocks";
		sched_admit(s);
		sched_plan(s, id, n);
		budget -= n;
	}
	return "budget";
}

static void compose(struct sched *s)
{
	int64_t budget = run_running(s, s->lim.max_batched_tok);

	s->stop = s->n_preempted ? "preemption" : admit_waiting(s, budget);
}

const struct policy policy_vllm_0_16 = {
	.name = "vllm-0.16",
	.title = "vLLM 0.16.0, first come first served",
	.origin = "vLLM 0.16.0, vllm/v1/core/sched/scheduler.py",
	.can = POLICY_PREFIX_CACHE,
	.compose = compose,
};
