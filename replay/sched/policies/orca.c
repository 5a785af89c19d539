/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orca, the baseline of Sarathi-Serve and Vidur: iteration-level scheduling without chunks.
 *
 * All running sequences are planned first; then waiting prompts are admitted whole.  Each reserves
 * the blocks of the maximum length, so nothing is ever preempted.  The originals limit only the
 * number of sequences.  Here a prompt also waits until the token budget has room for all of it.
 */
#include "config.h"
#include "replay/sched/policy.h"

#include <inttypes.h>
#include <stdio.h>

static int64_t orca_slots(const struct sched_limits *l, int64_t goal, int64_t longest)
{
	(void)goal;
	return l->max_len ? l->max_len : longest - 1;
}

static bool orca_unfit(const struct sched_limits *l, const struct request *r, char *why, size_t n)
{
	if (r->prompt_tok <= l->max_batched_tok)
		return sched_unfit_pool(l, r, why, n);
	snprintf(why, n,
		 "prompt of %" PRIu32 " tokens exceeds the budget of %" PRId64 " per iteration",
		 r->prompt_tok, l->max_batched_tok);
	return true;
}

static int64_t orca_run_running(struct sched *s, int64_t budget)
{
	for (size_t i = 0; i < s->n_running; i++)
		sched_plan(s, s->running[i], 1);
	return budget - (int64_t)s->n_running;
}

static const char *orca_admit_waiting(struct sched *s, int64_t budget)
{
	while (s->wait_head != SCHED_NONE) {
		uint32_t id = s->wait_head, n = s->seq[id].known;

		if ((int64_t)s->n_running == s->lim.max_seqs)
			return "seqs";
		if (n > budget)
			return "budget";
		if (!sched_reserve(s, id, s->longest))
			return "blocks";
		sched_admit(s);
		sched_plan(s, id, n);
		budget -= n;
	}
	return "empty";
}

static void orca_compose(struct sched *s)
{
	int64_t budget = orca_run_running(s, s->lim.max_batched_tok);

	s->stop = orca_admit_waiting(s, budget);
}

/* Sarathi-Serve, sarathi/config.py.  The original has no limit of tokens. */
static const struct engine_defaults orca_defaults[] = {
	{ .tokens = 8192,
	  .requests = 128,
	  .block_tok = 16,
	  .memory_share = 0.9,
	  .captured = 512,
	  .captured_per_req = 2 },
};

const struct policy policy_orca = {
	.name = "orca",
	.title = "Orca, whole prompts and blocks for the maximum length",
	.origin = "Sarathi-Serve 96f9911, sarathi/core/scheduler/orca_scheduler.py",
	.defaults = orca_defaults,
	.keeps = KEEPS_BLOCKS,
	.slots = orca_slots,
	.unfit = orca_unfit,
	.requeue = sched_requeue_first,
	.compose = orca_compose,
};
