/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SGLang, without its radix cache and its overlap loop: prompts before decodes.
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
 * After an admission has failed for lack of blocks or of sequence slots, none is tried until a
 * sequence leaves the running batch, which finished ones do when it is next about to decode.
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

/* The engine's running batch is what decodes.  It keeps finished requests until it is next about to
 * decode, and a prefill batch joins it after its iteration. */
struct memory {
	double new_token_ratio; /* share of the outputs to come that is kept free */
	const char *full;  /* why none is admitted for now, or NULL: the engine's batch_is_full */
	size_t n_finished; /* finished requests that the running batch still has */

	/* The last iteration. */
	size_t n_planned; /* n_running after its plan */
	bool prefill;	  /* it had prompts */
	bool cut;	  /* one of them goes on */
	bool alone;	  /* meanwhile the running batch was empty */
};

static void begin(struct sched *s)
{
	struct memory *m = s->memory;

	m->new_token_ratio = RATIO_FIRST;
	m->alone = true;
}

/* All outputs, and a block and a token more: admission wants less than the pool. */
static int64_t slots(const struct sched_limits *l, int64_t goal, int64_t longest)
{
	(void)longest;
	return goal + l->block_tok + 1;
}

/* Tokens that a prefill batch may still take: of the chunk, of the pool, and of the pool without the
 * tokens kept for outputs to come. */
struct budget {
	int64_t chunk, free;
	double pool;
};

static int64_t at_most(int64_t n)
{
	return n < MOST_EXPECTED ? n : MOST_EXPECTED;
}

/* Outputs to come. */
static int64_t expected(const struct sched *s, uint32_t id)
{
	return at_most(s->seq[id].goal - s->seq[id].known);
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
	int64_t free = s->pool.n_free * s->lim.block_tok - along;
	double kept = 0;

	for (size_t i = 0; i < s->n_running; i++)
		if (!sched_in_prefill(s, s->running[i]))
			kept += (double)expected(s, s->running[i]) * m->new_token_ratio;
	return (struct budget){ s->lim.max_batched_tok - along, free, (double)free - kept };
}

static int64_t whole_blocks(const struct sched *s, int64_t n)
{
	return block_pool_need(&s->pool, n) * s->lim.block_tok;
}

/* Plan n tokens of id.  It is charged a block more and, unless it is cut, all its outputs, also those
 * that it had before it was retracted. */
static void plan_prefill(struct sched *s, struct budget *r, uint32_t id, int64_t n, bool cut)
{
	int64_t tokens = whole_blocks(s, n);
	int64_t outputs = cut ? 0 : at_most(s->seq[id].goal - s->seq[id].prompt);

	sched_plan(s, id, (uint32_t)n);
	r->chunk -= tokens;
	r->free -= tokens + s->lim.block_tok;
	r->pool -= (double)(tokens + s->lim.block_tok + outputs);
}

static bool prompt_is_cut(const struct sched *s)
{
	return s->n_running && sched_in_prefill(s, s->running[s->n_running - 1]);
}

/* The prompt goes on by a chunk, or by what the pool has left if that is anything. */
static void continue_cut(struct sched *s, struct budget *r)
{
	uint32_t id = s->running[s->n_running - 1];
	int64_t n = s->seq[id].known - s->seq[id].comp, most = r->chunk;
	bool cut;

	if (r->pool >= 1 && r->pool < (double)most)
		most = (int64_t)r->pool;
	cut = n > most;
	if (cut)
		n = most;
	if (n > 0 && sched_reserve(s, id, (uint32_t)n))
		plan_prefill(s, r, id, n, cut);
	else
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

/* most: requests that still may join the prefill batch. */
static const char *admit_waiting(struct sched *s, struct budget *r, int64_t most)
{
	struct memory *m = s->memory;

	for (; s->wait_head != SCHED_NONE; most--) {
		uint32_t id = s->wait_head;
		int64_t n = s->seq[id].known;
		bool cut = whole_blocks(s, n) > r->chunk;

		if (most <= 0)
			return m->full = "seqs";
		if ((double)(n + expected(s, id) + s->lim.block_tok) >= r->pool)
			return m->full = "blocks";
		if (cut)
			n = r->chunk - r->chunk % s->lim.block_tok;
		if (n <= 0)
			return "budget";
		if (!sched_reserve(s, id, (uint32_t)n))
			return m->full = "blocks";
		sched_admit(s);
		plan_prefill(s, r, id, n, cut);
		if (r->pool <= 0 || r->free <= 0)
			return m->full = "blocks";
		if (r->chunk <= 0)
			return "budget";
	}
	return "empty";
}

static const char *run_prefills(struct sched *s, struct budget left)
{
	const struct memory *m = s->memory;
	int64_t most = most_prefills(s) - prompt_is_cut(s);

	if (prompt_is_cut(s))
		continue_cut(s, &left);
	return m->full ? m->full : admit_waiting(s, &left, most);
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
	size_t least = s->n_running - 1, n = 0;

	for (size_t i = 0; i < s->n_running; i++) {
		const struct sched_seq *q = &s->seq[s->running[i]], *w = &s->seq[s->running[least]];
		uint32_t out = q->known - q->prompt, fewest = w->known - w->prompt;

		if (sched_in_prefill(s, s->running[i]))
			continue;
		if (!n++ || out < fewest || (out == fewest && q->prompt >= w->prompt))
			least = i;
	}
	return n > 1 ? least : s->n_running - 1;
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

/* The running batch is about to decode: finished requests leave it.  Returns whether any did. */
static bool drop_finished(struct memory *m)
{
	bool any = m->n_finished;

	m->n_finished = 0;
	if (any)
		m->full = NULL;
	return any;
}

/* The last iteration has run.  Its prefill batch joins the running batch, without those of it that
 * finished or go on; the mark of an empty running batch is lost then.  After decodes the finished
 * ones stay, until the engine is idle. */
static void join(struct sched *s)
{
	struct memory *m = s->memory;
	size_t finished = m->n_planned - s->n_running;

	if (!m->prefill)
		m->n_finished += finished;
	else if (finished || m->cut || m->alone)
		m->full = NULL;
	if (s->idled) {
		drop_finished(m);
		m->new_token_ratio = RATIO_FIRST;
	}
}

static void compose(struct sched *s, bool mixed)
{
	struct memory *m = s->memory;
	bool enough = blocks_for_decodes(s) <= s->pool.n_free, along = mixed && enough;
	struct budget left;
	size_t n_along;

	join(s);
	left = prefill_budget(s, mixed);
	m->alone = along || !batch_size(s);
	if (along)
		run_decodes(s);
	n_along = s->batch.n;
	if (along || !mixed)
		s->stop = run_prefills(s, left);
	if (!s->batch.n && !n_decode(s) && drop_finished(m)) {
		m->alone = true;
		s->stop = run_prefills(s, prefill_budget(s, mixed));
	}
	m->prefill = s->batch.n > n_along;
	if (m->prefill) {
		sched_prefills_first(s, n_along);
		if (mixed)
			m->n_finished = 0;
	} else {
		drop_finished(m);
		if (enough)
			lower_ratio(m);
		else
			retract(s);
	}
	if (!s->batch.n)
		run_decodes(s);
	m->cut = prompt_is_cut(s);
	m->n_planned = s->n_running;
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
	.origin = "SGLang 0.5.21, python/sglang/srt/managers/scheduler.py and schedule_policy.py",
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
	.origin = "SGLang 0.5.21, python/sglang/srt/managers/scheduler.py and schedule_policy.py",
	.check = sched_check_whole_blocks,
	.slots = slots,
	.unfit = sched_unfit_pool,
	.requeue = sched_requeue_last,
	.memory_size = sizeof(struct memory),
	.begin = begin,
	.compose = compose_mixed,
};
