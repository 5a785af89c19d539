/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sarathi-Serve's scheduler, and Vidur's model of it: stall-free batches.
 *
 * Decodes are planned first.  Then the prompt in progress takes the rest of the budget, then
 * waiting prompts are admitted.  At admission a prompt gets all its blocks, and the watermark must
 * stay free besides.  A decode needs a free block even if its token fits its last block.  If none
 * is free, the last running sequence is preempted, which can be the decode itself.
 *
 * Sarathi-Serve puts prefills before decodes in the batch, and an iteration that preempted admits
 * nobody.  Victims are always the last, so its running list stays in order of arrival.  Vidur can
 * admit a victim again in the same iteration, and plans decodes in the order of the last batch.
 */
#include "config.h"
#include "replay/sched/policy.h"

/* The watermark stays free even when nothing runs. */
static bool sarathi_unfit(const struct sched_limits *l, const struct request *r, char *why,
			  size_t n)
{
	return sched_lacks_blocks(l, r, l->num_blocks - 1 - sched_watermark(l), why, n);
}

static bool sarathi_fits(const struct sched *s, uint32_t id)
{
	return sched_fits(s, id, s->seq[id].known, sched_watermark(&s->lim), true);
}

/* sarathi_run_decodes() and sarathi_run_prefills() return the rest of the budget. */
static int64_t sarathi_run_decodes(struct sched *s, int64_t budget)
{
	for (size_t i = 0; i < s->n_running; i++) {
		uint32_t id = s->running[i];

		if (sched_in_prefill(s, id))
			continue;
		while (!s->pool.n_free && i < s->n_running)
			sched_preempt(s, s->n_running - 1);
		if (i == s->n_running)
			break;
		sched_reserve(s, id, 1);
		sched_plan(s, id, 1);
		budget--;
	}
	return budget;
}

static uint32_t sarathi_chunk_len(const struct sched *s, uint32_t id, int64_t budget)
{
	int64_t n = s->seq[id].known - s->seq[id].comp;

	return (uint32_t)(n < budget ? n : budget);
}

static int64_t sarathi_run_prefills(struct sched *s, int64_t budget)
{
	for (size_t i = 0; i < s->n_running && budget > 0; i++) {
		uint32_t id = s->running[i], n = sarathi_chunk_len(s, id, budget);

		if (!sched_in_prefill(s, id))
			continue;
		sched_plan(s, id, n);
		budget -= n;
	}
	return budget;
}

static const char *sarathi_admit_waiting(struct sched *s, int64_t budget)
{
	while (budget > 0) {
		uint32_t id = s->wait_head, n;

		if (id == SCHED_NONE)
			return "empty";
		if (!sarathi_fits(s, id))
			return "blocks";
		if ((int64_t)s->n_running == s->lim.max_seqs)
			return "seqs";
		n = sarathi_chunk_len(s, id, budget);
		sched_reserve(s, id, s->seq[id].known);
		sched_admit(s);
		sched_plan(s, id, n);
		budget -= n;
	}
	return "budget";
}

static void compose_sarathi(struct sched *s)
{
	int64_t budget = sarathi_run_decodes(s, s->lim.max_batched_tok);
	size_t n_decode = s->batch.n;

	budget = sarathi_run_prefills(s, budget);
	s->stop = s->n_preempted ? "preemption" : sarathi_admit_waiting(s, budget);
	sched_prefills_first(s, n_decode);
}

/* Put running in the order of the batch.  At most one prompt is in progress, as it leaves no budget
 * for another.  If it got no budget itself, it comes first. */
static void keep_batch_order(struct sched *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n_running && s->n_running > s->batch.n; i++)
		if (sched_in_prefill(s, s->running[i]))
			s->running[n++] = s->running[i];
	for (size_t i = 0; i < s->batch.n; i++)
		s->running[n++] = s->batch.entry[i].req;
}

static void compose_vidur(struct sched *s)
{
	int64_t budget = sarathi_run_decodes(s, s->lim.max_batched_tok);

	budget = sarathi_run_prefills(s, budget);
	s->stop = sarathi_admit_waiting(s, budget);
	keep_batch_order(s);
}

/* Sarathi-Serve, sarathi/config.py, and Vidur, vidur/config/config.py.  Neither captures graphs. */
static const struct engine_defaults sarathi_defaults[] = {
	{ .tokens = 512,
	  .requests = 128,
	  .block_tok = 16,
	  .memory_share = 0.9,
	  .captured = 512,
	  .captured_per_req = 2 },
};

const struct policy policy_sarathi = {
	.name = "sarathi",
	.title = "Sarathi-Serve, decodes first and whole prompts reserved",
	.origin = "Sarathi-Serve 96f9911, sarathi/core/scheduler/sarathi_scheduler.py",
	.can = POLICY_WATERMARK,
	.watermark = 0.01,
	.defaults = sarathi_defaults,
	.keeps = KEEPS_ADMITTED,
	.slots = sched_slots_computed,
	.unfit = sarathi_unfit,
	.requeue = sched_requeue_first,
	.compose = compose_sarathi,
};

const struct policy policy_vidur_sarathi = {
	.name = "vidur-sarathi",
	.title = "Vidur's Sarathi, victims may run again at once",
	.origin = "Vidur 7d47513, vidur/scheduler/replica_scheduler",
	.can = POLICY_WATERMARK,
	.watermark = 0.01,
	.defaults = sarathi_defaults,
	.keeps = KEEPS_ADMITTED,
	.slots = sched_slots_computed,
	.unfit = sarathi_unfit,
	.requeue = sched_requeue_first,
	.compose = compose_vidur,
};
