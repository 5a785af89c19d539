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
 * end of the queue, and new_token_ratio is set from the outputs so far.  After an admission has
 * failed for lack of blocks or of sequence slots, none is tried until a sequence leaves.
 *
 * The original takes memory for the next chunk, and for decodes in a mixed batch, without a check.
 * Here the chunk waits, and decodes that lack blocks preempt first and run alone.
 */
#include "config.h"
#include "replay/sched/policy.h"

enum {
	MOST_EXPECTED = 4096, /* outputs that a request is expected to have */
	STEPS_AHEAD = 20,     /* of every sequence, when the ratio is set again */
	DECAY_STEPS = 600,
};

#define RATIO_FIRST 0.7
#define RATIO_LEAST (0.14 * RATIO_FIRST)

struct memory {
	double new_token_ratio; /* share of the outputs to come that is kept free */
	const char *full;	/* why none is admitted until a sequence leaves, or NULL */
	size_t n_left_running;	/* n_running after the last iteration */
};

static void begin(struct sched *s)
{
	struct memory *m = s->memory;

	m->new_token_ratio = RATIO_FIRST;
}

/* All outputs, with the last one, and a block more. */
static int64_t slots(const struct sched_limits *l, int64_t goal, int64_t longest)
{
	(void)longest;
	return goal + l->block_tok;
}

/* Tokens that a prefill batch may still take: of the chunk, and of the pool without the tokens
 * kept for outputs to come. */
struct budget {
	int64_t chunk;
	double pool;
};

static int64_t expected(const struct sched *s, uint32_t id)
{
	int64_t n = s->seq[id].goal - s->seq[id].known;

	return n < MOST_EXPECTED ? n : MOST_EXPECTED;
}

static struct budget prefill_budget(const struct sched *s, bool mixed)
{
	const struct memory *m = s->memory;
	int64_t n_decode = 0;
	double kept = 0;

	for (size_t i = 0; i < s->n_running; i++) {
		if (sched_in_prefill(s, s->running[i]))
			continue;
		kept += (double)expected(s, s->running[i]) * m->new_token_ratio;
		n_decode += mixed;
	}
	return (struct budget){ s->lim.max_batched_tok - n_decode,
				(double)(s->pool.n_free * s->lim.block_tok - n_decode) - kept };
}

static int64_t whole_blocks(const struct sched *s, int64_t n)
{
	return block_pool_need(&s->pool, n) * s->lim.block_tok;
}

/* Plan n tokens of id.  Its outputs to come are subtracted from the pool unless it is cut. */
static void plan_prefill(struct sched *s, struct budget *r, uint32_t id, int64_t n, bool cut)
{
	sched_plan(s, id, (uint32_t)n);
	r->chunk -= whole_blocks(s, n);
	r->pool -= (double)(whole_blocks(s, n) + (cut ? 0 : expected(s, id)));
}

static bool prompt_is_cut(const struct sched *s)
{
	return s->n_running && sched_in_prefill(s, s->running[s->n_running - 1]);
}

static void continue_cut(struct sched *s, struct budget *r)
{
	uint32_t id = s->running[s->n_running - 1];
	int64_t n = s->seq[id].known - s->seq[id].comp;
	bool cut = n > r->chunk;

	if (cut)
		n = r->chunk;
	if (n > 0 && sched_reserve(s, id, (uint32_t)n))
		plan_prefill(s, r, id, n, cut);
	else
		r->chunk = 0;
}

static const char *admit_waiting(struct sched *s, struct budget *r)
{
	struct memory *m = s->memory;

	while (s->wait_head != SCHED_NONE) {
		uint32_t id = s->wait_head;
		int64_t n = s->seq[id].known;
		bool cut = whole_blocks(s, n) > r->chunk;

		if ((int64_t)s->n_running == s->lim.max_seqs)
			return m->full = "seqs";
		if ((double)(n + expected(s, id) + s->lim.block_tok) > r->pool)
			return m->full = "blocks";
		if (cut)
			n = r->chunk - r->chunk % s->lim.block_tok;
		if (n <= 0)
			return "budget";
		if (!sched_reserve(s, id, (uint32_t)n))
			return m->full = "blocks";
		sched_admit(s);
		plan_prefill(s, r, id, n, cut);
		if (r->pool <= 0)
			return m->full = "blocks";
		if (r->chunk <= 0)
			return "budget";
	}
	return "empty";
}

static const char *run_prefills(struct sched *s, struct budget *r)
{
	struct memory *m = s->memory;

	if (prompt_is_cut(s)) {
		m->full = NULL;
		continue_cut(s, r);
	}
	return m->full ? m->full : admit_waiting(s, r);
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

static void run_decodes(struct sched *s)
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
	size_t least = s->n_running - 1, n_decode = 0;

	for (size_t i = 0; i < s->n_running; i++) {
		const struct sched_seq *q = &s->seq[s->running[i]], *w = &s->seq[s->running[least]];
		uint32_t out = q->known - q->prompt, fewest = w->known - w->prompt;

		if (sched_in_prefill(s, s->running[i]))
			continue;
		if (!n_decode++ || out < fewest || (out == fewest && q->prompt >= w->prompt))
			least = i;
	}
	return n_decode > 1 ? least : s->n_running - 1;
}

static double suggested_ratio(const struct sched *s)
{
	double outputs = 0, most = 1;

	for (size_t i = 0; i < s->n_running; i++) {
		const struct sched_seq *q = &s->seq[s->running[i]];

		if (sched_in_prefill(s, s->running[i]))
			continue;
		outputs += q->known - q->prompt + STEPS_AHEAD;
		most += q->goal - q->prompt;
	}
	return outputs < most ? outputs / most : 1;
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

static void compose(struct sched *s, bool mixed)
{
	struct memory *m = s->memory;
	bool enough = blocks_for_decodes(s) <= s->pool.n_free, along = mixed && enough;
	struct budget left = prefill_budget(s, mixed);
	size_t n_along;

	if (s->n_running < m->n_left_running)
		m->full = NULL;
	if (along)
		run_decodes(s);
	n_along = s->batch.n;
	if (along || !mixed)
		s->stop = run_prefills(s, &left);
	if (s->batch.n > n_along)
		sched_prefills_first(s, n_along);
	else if (enough)
		lower_ratio(m);
	else
		retract(s);
	if (!s->batch.n)
		run_decodes(s);
	m->n_left_running = s->n_running;
}

static void compose_plain(struct sched *s)
{
	compose(s, false);
}

static void compose_mixed(struct sched *s)
{
	compose(s, true);
}

const struct policy policy_sglang = {
	.name = "sglang",
	.title = "SGLang, prompts before decodes",
	.origin = "SGLang 00550cd, python/sglang/srt/managers/schedule_policy.py",
	.check = sched_check_whole_blocks,
	.slots = slots,
	.unfit = sched_unfit_pool,
	.requeue = sched_requeue_last,
	.memory_size = sizeof(struct memory),
	.begin = begin,
	.compose = compose_plain,
};

const struct policy policy_sglang_mixed = {
	.name = "sglang-mixed",
	.title = "SGLang with mixed chunks, decodes beside prompts",
	.origin = "SGLang 00550cd, python/sglang/srt/managers/schedule_policy.py",
	.check = sched_check_whole_blocks,
	.slots = slots,
	.unfit = sched_unfit_pool,
	.requeue = sched_requeue_last,
	.memory_size = sizeof(struct memory),
	.begin = begin,
	.compose = compose_mixed,
};
