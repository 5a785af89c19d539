/*
 * TensorRT-LLM's in-flight batching: capacity GUARANTEED_NO_EVICT, chunks FIRST_COME_FIRST_SERVED.
 *
 * First who may run: a request is admitted when it has the blocks for its prompt and all its
 * outputs, so that nothing is ever preempted.  Then how much: decodes first; the admitted prompts
 * take all that remains of them if that fits the budget, else in order what there is room for, a
 * cut one rounded down to whole blocks.  One that gets nothing waits while later ones are tried.
 * Prompts stand before decodes in the batch.
 */
#include "config.h"
#include "replay/policy.h"

static const char *admit_waiting(struct sched *s)
{
	while (s->wait_head != SCHED_NONE) {
		uint32_t id = s->wait_head;

		if ((int64_t)s->n_running == s->lim.max_seqs)
			return "seqs";
		if (!sched_reserve(s, id, s->seq[id].goal))
			return "blocks";
		sched_admit(s);
	}
	return "empty";
}

static bool in_prefill(const struct sched *s, uint32_t id)
{
	return s->seq[id].comp < s->seq[id].prompt;
}

static int64_t run_decodes(struct sched *s, int64_t budget)
{
	for (size_t i = 0; i < s->n_running; i++)
		if (!in_prefill(s, s->running[i])) {
			sched_plan(s, s->running[i], 1);
			budget--;
		}
	return budget;
}

/* Returns whether a prompt was cut or skipped. */
static bool run_prefills(struct sched *s, int64_t budget)
{
	bool cut = false;

	for (size_t i = 0; i < s->n_running; i++) {
		uint32_t id = s->running[i];
		int64_t n = s->seq[id].known - s->seq[id].comp;

		if (!in_prefill(s, id))
			continue;
		if (n > budget) {
			n = budget - budget % s->lim.block_tok;
			cut = true;
		}
		if (n)
			sched_plan(s, id, (uint32_t)n);
		budget -= n;
	}
	return cut;
}

static void compose(struct sched *s)
{
	size_t n_decode;
	int64_t budget;

	s->stop = admit_waiting(s);
	budget = run_decodes(s, s->lim.max_batched_tok);
	n_decode = s->batch.n;
	if (run_prefills(s, budget))
		s->stop = "budget";
	sched_prefills_first(s, n_decode);
}

const struct policy policy_trtllm_no_evict = {
	.name = "trtllm-no-evict",
	.title = "TensorRT-LLM, guaranteed no evict, chunks first come first served",
	.origin = "TensorRT-LLM 02a10fe, capacityScheduler.cpp and microBatchScheduler.cpp",
	.rules.to_completion = true,
	.compose = compose,
};
