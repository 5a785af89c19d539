/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SGLang at two versions: prompts before decodes.
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
 * With ignore_eos and without the radix cache, the engine knows when each request ends.  It admits
 * a request if the pool has room at each of these ends.  A prompt is then cut inside of a block.
 * In 0.5.23 ignore_eos keeps all outputs to come of running requests free.
 *
 * An admission may fail for lack of blocks or of sequence slots.  Then none is tried until a
 * sequence leaves the running batch.  In 0.5.21 a finished sequence leaves it when the batch is
 * next about to decode, in 0.5.23 at once.
 *
 * With async, the engine's overlap loop, the last iteration still runs.  The scheduler does not
 * know its outputs: it counts them as outputs to come.  So in 0.5.21 a sequence that has all its
 * outputs decodes once more, unless a prefill batch runs next.  0.5.23 leaves it out.
 *
 * In 0.5.23 the radix cache (radix_cache.h) can be on.  Its blocks that nobody uses count as free.
 * The head of the queue is looked up when it could be admitted.  A chunk enters the cache when the
 * next one is planned, a prompt when it has run, the outputs when the sequence has finished.  A
 * preempted sequence leaves nothing there.  Every 32 plans the prefixes of the first 128 waiting
 * sequences count as used.
 *
 * The original takes memory for the next chunk and, in 0.5.21, for decodes in a mixed batch without
 * a check, and fails.  A run that survives this lets the chunk wait, and decodes that lack blocks
 * preempt first and run alone.  In 0.5.23 decodes that lack blocks sit out.
 */
#include "config.h"
#include "replay/sched/policy.h"

#include <math.h>
#include <string.h>

enum {
	MOST_EXPECTED = 4096, /* outputs that a request is expected to have */
	STEPS_AHEAD = 20,     /* of every sequence, when the ratio is set again */
	DECAY_STEPS = 600,
	TOUCH_PLANS = 32, /* plans from one refresh of waiting prefixes to the next */
	TOUCHED = 128,	  /* sequences whose prefixes it refreshes */
};

/* MIXED: with mixed chunks.  The others are rules of 0.5.23: lines of its managers/scheduler.py,
 * the last one of schedule_policy.py. */
enum rule {
	MIXED = 1,
	LEAVES_AT_ONCE = 2,   /* a finished request leaves the running batch: 3966 */
	CUT_HAS_ONE = 4,      /* the prompt that goes on has one place, not two: 4225 */
	BUDGET_FIRST = 8,     /* a spent budget admits nobody, while the pool is not: 4207 */
	DECODES_SIT_OUT = 16, /* ... that lack blocks beside a prompt: 4393 */
	EOS_WHOLE = 32,	      /* with ignore_eos all outputs to come count: 787 */

	RULES_0_5_23 = LEAVES_AT_ONCE | CUT_HAS_ONE | BUDGET_FIRST | DECODES_SIT_OUT | EOS_WHOLE,
};

static bool has(const struct sched *s, enum rule rule)
{
	return s->lim.policy->rules & rule;
}

/* Where the original fails: mem_cache/allocation.py of 0.5.21, lines 162, 231 and 575. */
static const char no_prompt[] = "out of memory for a prompt or for decodes beside it";

#define RATIO_FIRST 0.7
#define RATIO_LEAST (0.14 * RATIO_FIRST)

/* A sequence that ends after left more outputs and then frees tokens. */
struct end {
	int64_t left, tokens;
};

/* The engine's running batch has the sequences that decode.  In 0.5.21 it keeps finished requests
 * until it is next about to decode.  A prefill batch joins it after its iteration. */
struct memory {
	double new_token_ratio; /* share of the outputs to come that is kept free */
	const char *full;  /* why none is admitted for now, or NULL: the engine's batch_is_full */
	size_t n_finished; /* finished requests that the running batch still has */
	uint64_t n_lookup; /* plans that looked at the queue */

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
	if (l->ignore_eos && !l->prefix_cache)
		tokens += l->block_tok;
	return sched_lacks(whole_blocks(l, tokens) / l->block_tok, l->num_blocks - 1, why, n);
}

/* Tokens that a prefill batch may still take, of the chunk and of max_prefill_tok, and what it
 * takes of the pool.  now: tokens at once; taken: also those that are kept for outputs to come.
 * blocks: that it needs, and that decodes beside it need.  They are taken when it is complete. */
struct budget {
	int64_t chunk, prefill, now, blocks;
	double taken;
	bool foreseen; /* the ends of the sequences are listed */
};

/* Tokens of the pool that are not taken.  Summed and rounded as in the engine:
 * mem_cache/prefill_budget.py, remaining_total and remaining_current. */
static double left_of_pool(const struct sched *s, const struct budget *r)
{
	return (double)(s->pool.n_free * s->lim.block_tok) - r->taken;
}

static int64_t left_now(const struct sched *s, const struct budget *r)
{
	return s->pool.n_free * s->lim.block_tok - r->now;
}

static bool pool_spent(const struct sched *s, const struct budget *r)
{
	return left_of_pool(s, r) <= 0 || left_now(s, r) <= 0;
}

static bool budget_spent(const struct budget *r)
{
	return r->chunk <= 0 || r->prefill <= 0;
}

static int64_t at_most(int64_t n)
{
	return n < MOST_EXPECTED ? n : MOST_EXPECTED;
}

/* The engine's max_new_tokens.  sched_goal() has cut them, but not to none. */
static int64_t all_outputs(const struct sched *s, uint32_t id)
{
	int64_t n = s->seq[id].goal - s->seq[id].prompt;

	return n > 1 || most_outputs(&s->lim, s->seq[id].prompt) ? n : 0;
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

/* Tokens that these add to what is stored: an evictor makes room in the prompt. */
static int64_t storage_to_come(const struct sched *s, uint32_t id)
{
	return sched_growth(s, id, outputs_to_come(s, id));
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

/* blocks: that decodes beside the prompts take. */
static struct budget prefill_budget(const struct sched *s, int64_t blocks)
{
	const struct memory *m = s->memory;
	int64_t along = has(s, MIXED) ? batch_size(s) : 0;
	int64_t most = s->lim.max_prefill_tok ? s->lim.max_prefill_tok : INT64_MAX;
	double ratio = has(s, EOS_WHOLE) && s->lim.ignore_eos ? 1 : m->new_token_ratio, kept = 0;

	for (size_t i = 0; i < s->n_running; i++)
		if (!sched_in_prefill(s, s->running[i]))
			kept += (double)at_most(storage_to_come(s, s->running[i])) * ratio;
	return (struct budget){ .chunk = s->lim.max_batched_tok - along,
				.prefill = most - along,
				.now = along,
				.blocks = blocks,
				.taken = (double)along + kept };
}

/* Blocks of the prefix just found that count as free. */
static int64_t loose_blocks(const struct sched *s, uint32_t id)
{
	return s->radix ? radix_cache_loose(s->radix, s->seq[id].row) : 0;
}

/* Blocks that n more tokens of id take, behind those that it has or has found. */
static int64_t more_blocks(const struct sched *s, uint32_t id, int64_t n)
{
	const struct sched_seq *q = &s->seq[id];
	int64_t has = q->n_block ? q->n_block : q->comp / s->lim.block_tok;

	return block_pool_need(&s->pool, sched_stored(q) + n) - has;
}

static bool blocks_fit(const struct sched *s, const struct budget *r, uint32_t id, int64_t n)
{
	return r->blocks + more_blocks(s, id, n) + loose_blocks(s, id) <= s->pool.n_free;
}

/* Plan n tokens of id.  It is charged a block more.  Unless it is cut, it is charged all its
 * outputs, even outputs from before a preemption. */
static void plan_prefill(struct sched *s, struct budget *r, uint32_t id, int64_t n, bool cut)
{
	int64_t tokens = whole_blocks(&s->lim, n);
	int64_t expected = cut ? 0 : at_most(sched_growth(s, id, all_outputs(s, id)));

	r->blocks += more_blocks(s, id, n);
	sched_plan(s, id, (uint32_t)n);
	r->chunk -= tokens;
	r->prefill -= tokens;
	r->now += tokens + s->lim.block_tok;
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
	double pool = left_of_pool(s, r);
	bool cut;

	if (pool >= 1 && pool < (double)most)
		most = (int64_t)pool;
	cut = n > most;
	if (cut)
		n = most;
	if (n > 0 && blocks_fit(s, r, id, n)) {
		plan_prefill(s, r, id, n, cut);
		return;
	}
	if (n > 0)
		s->fails = no_prompt;
	r->chunk = 0;
}

/* Requests that may be in a prefill batch.  In 0.5.21 the prompt that goes on holds a slot, and is
 * in the batch as well. */
static int64_t most_prefills(const struct sched *s)
{
	int64_t beside = s->lim.max_seqs - batch_size(s);
	int64_t slots = s->lim.max_seqs - (int64_t)s->n_running;

	return beside < slots || has(s, CUT_HAS_ONE) ? beside : slots;
}

static struct end end_of(const struct sched *s, uint32_t id)
{
	int64_t n = s->seq[id].prompt + outputs(s, id);

	return (struct end){ outputs_to_come(s, id), n - sched_leaving(s, id) };
}

/* List the end of id, behind the ends listed before it unless they come later. */
static void foresee(struct sched *s, uint32_t id)
{
	struct memory *m = s->memory;
	struct end e = end_of(s, id);
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
	struct end e = end_of(s, id);
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
	int64_t tokens = whole_blocks(&s->lim, n) + s->lim.block_tok;
	int64_t free = left_now(s, r) - tokens;

	if (free < 0 || (double)tokens > left_of_pool(s, r))
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

/* The engine looks at the end of each sequence. */
static bool knows_ends(const struct sched *s)
{
	return s->lim.ignore_eos && !s->lim.prefix_cache;
}

/* Does the pool have room for id, with n tokens to run?  The prefix that it found is taken. */
static bool room(struct sched *s, struct budget *r, uint32_t id, int64_t n)
{
	int64_t left = storage_to_come(s, id), found = loose_blocks(s, id) * s->lim.block_tok;

	if (knows_ends(s))
		return room_at_ends(s, r, id, n);
	return (double)(n + at_most(left > 0 ? left : 0) + s->lim.block_tok) <
	       left_of_pool(s, r) - (double)found;
}

/* Tokens that a prompt of n runs if the chunk has room for no more. */
static int64_t cut_at(const struct sched *s, const struct budget *r, int64_t n)
{
	int64_t whole = knows_ends(s) ? n : whole_blocks(&s->lim, n);
	int64_t unit = knows_ends(s) ? 1 : s->lim.block_tok;

	return whole <= r->chunk ? n : r->chunk - r->chunk % unit;
}

/* most: requests that still may join the prefill batch. */
static const char *sglang_admit_waiting(struct sched *s, struct budget *r, int64_t most)
{
	struct memory *m = s->memory;

	for (; s->wait_head != SCHED_NONE; most--) {
		uint32_t id = s->wait_head;
		int64_t all, n;

		if (has(s, BUDGET_FIRST) && !pool_spent(s, r) && budget_spent(r))
			return "budget";
		if (most <= 0)
			return m->full = "seqs";
		sched_match(s);
		all = (int64_t)s->seq[id].known - s->seq[id].comp;
		n = cut_at(s, r, all);
		if (!room(s, r, id, all))
			return m->full = "blocks";
		if (n <= 0)
			return "budget";
		if (!blocks_fit(s, r, id, n)) {
			s->fails = no_prompt; /* they have taken the blocks already */
			return m->full = "blocks";
		}
		sched_admit(s);
		plan_prefill(s, r, id, n, n < all);
		if (pool_spent(s, r))
			return m->full = "blocks";
		if (budget_spent(r))
			return "budget";
	}
	return "empty";
}

/* The prefixes of waiting sequences count as used, the head's last. */
static void touch_waiting(struct sched *s)
{
	struct memory *m = s->memory;
	uint32_t id[TOUCHED];
	size_t n = 0;

	if (!s->radix || m->n_lookup++ % TOUCH_PLANS)
		return;
	for (uint32_t w = s->wait_head; w != SCHED_NONE && n < TOUCHED; w = s->seq[w].next)
		id[n++] = w;
	while (n--)
		radix_cache_match(s->radix, id[n], s->seq[id[n]].known, &s->seq[id[n]].row);
}

/* Take the blocks of the prompts that are planned.  The engine empties a page more for each of
 * them, unless a page is a token: mem_cache/allocation.py, alloc_paged_token_slots_extend(). */
static void take_blocks(struct sched *s)
{
	int64_t tok = s->lim.block_tok, each = tok > 1 ? tok : 0;
	int64_t n = s->batch.prefill_tok + s->batch.decode_tok + (int64_t)s->batch.n * each;

	sched_make_room(s, (n + tok - 1) / tok);
	for (size_t i = 0; i < s->batch.n; i++)
		sched_reserve(s, s->batch.entry[i].req, 0);
}

/* blocks: that decodes beside the prompts take. */
static const char *plan_prefills(struct sched *s, int64_t blocks)
{
	struct memory *m = s->memory;
	bool cut = prompt_is_cut(s), looks = s->wait_head != SCHED_NONE && (cut || !m->full);
	struct budget left;
	int64_t most;

	if (!cut && !looks)
		return m->full ? m->full : "empty";
	most = most_prefills(s) - cut;
	if (!cut && most <= 0)
		return m->full = "seqs";
	if (looks)
		touch_waiting(s);
	left = prefill_budget(s, blocks);
	if (cut)
		continue_cut(s, &left);
	return m->full ? m->full : sglang_admit_waiting(s, &left, most);
}

static void sglang_run_prefills(struct sched *s, int64_t blocks)
{
	s->stop = plan_prefills(s, blocks);
	take_blocks(s);
}

/* Would plan_prefills() plan anything, if decodes had not to fit beside it? */
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

/* The iteration that still runs gives the last output of id, and the engine knows it. */
static bool ends(const struct sched *s, uint32_t id)
{
	return s->seq[id].known == s->seq[id].goal && !s->lim.policy->overruns;
}

/* Of the first n running sequences, which decode, those that end. */
static size_t n_ending(const struct sched *s, size_t n)
{
	size_t n_end = 0;

	for (size_t i = 0; i < n; i++)
		n_end += ends(s, s->running[i]);
	return n_end;
}

/* One of them does not end. */
static bool any_decodes(const struct sched *s, size_t n)
{
	size_t i = 0;

	while (i < n && ends(s, s->running[i]))
		i++;
	return i < n;
}

/* Blocks that the first n running sequences take to decode. */
static int64_t blocks_for_decodes(const struct sched *s, size_t n)
{
	int64_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		const struct sched_seq *q = &s->seq[s->running[i]];

		sum += !ends(s, s->running[i]) && sched_stored(q) >= q->n_block * s->pool.block_tok;
	}
	return sum;
}

/* Make room for the decodes of the first n running sequences.  False: there are too few blocks. */
static bool decodes_fit(struct sched *s, size_t n)
{
	int64_t blocks = blocks_for_decodes(s, n);

	sched_make_room(s, blocks);
	return blocks <= s->pool.n_free;
}

/* The engine empties a page for each. */
static void sglang_run_decodes(struct sched *s, size_t n)
{
	if (s->radix)
		sched_make_room(s, (int64_t)(n - n_ending(s, n)));
	for (size_t i = 0; i < n; i++) {
		uint32_t id = s->running[i];

		if (ends(s, id))
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
	int64_t tok = s->lim.block_tok;

	do {
		sched_preempt(s, victim(s));
		sched_make_room(s, ((int64_t)n_decode(s) * STEPS_AHEAD + tok - 1) / tok);
	} while (!decodes_fit(s, n_decode(s)));
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

/* In 0.5.23, the last prefill batch joins the running batch.  A request that left either of them
 * clears the full mark, and so does a prompt that goes on.  An empty running batch loses it. */
static void join_at_once(struct sched *s)
{
	struct memory *m = s->memory;

	if (m->n_planned > s->n_running || (m->prefill && (m->cut || m->alone)))
		m->full = NULL;
}

/* In 0.5.21, the last prefill batch joins the running batch.  Its requests that go on, or are known
 * to have finished, do not join.  An empty running batch loses its full mark then.  Other finished
 * requests stay in the running batch until the engine is idle. */
static void join_late(struct sched *s)
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
}

static void join_running(struct sched *s)
{
	struct memory *m = s->memory;

	if (m->cut && prompt_is_cut(s))
		sched_enter(s, s->running[s->n_running - 1],
			    s->seq[s->running[s->n_running - 1]].comp);
	if (has(s, LEAVES_AT_ONCE))
		join_at_once(s);
	else
		join_late(s);
	if (m->prefill && m->along)
		newest_first(s);
	if (s->idled) {
		drop_finished(m);
		m->new_token_ratio = RATIO_FIRST;
	}
}

/* Mixed chunks: the first n running sequences decode beside the prompts.  In 0.5.23 none does if
 * they lack blocks. */
static void decode_beside(struct sched *s, size_t n)
{
	struct memory *m = s->memory;

	if (!decodes_fit(s, n))
		return;
	m->alone = true;
	m->along = any_decodes(s, n);
	m->n_finished = 0;
	sglang_run_decodes(s, n);
}

/* There is nothing to prefill.  While requests end, nobody is preempted. */
static void decode_alone(struct sched *s)
{
	struct memory *m = s->memory;
	size_t n = n_decode(s);

	drop_finished(m);
	if (decodes_fit(s, n)) {
		if (any_decodes(s, n))
			lower_ratio(m);
	} else if (n_ending(s, n)) {
		return;
	} else {
		retract(s);
	}
	sglang_run_decodes(s, n_decode(s));
}

static void sglang_compose(struct sched *s)
{
	struct memory *m = s->memory;
	bool along = has(s, MIXED), asks = along && !has(s, DECODES_SIT_OUT);
	int64_t blocks;
	size_t n;

	join_running(s);
	n = n_decode(s);
	blocks = asks ? blocks_for_decodes(s, n) : 0;
	m->alone = !batch_size(s);
	m->along = false;
	if (blocks <= s->pool.n_free)
		sglang_run_prefills(s, blocks);
	else if (would_prefill(s, prefill_budget(s, 0)))
		s->fails = no_prompt;
	if (!s->batch.n && !n && !m->runs && drop_finished(m)) {
		m->alone = true;
		sglang_run_prefills(s, 0);
	}
	m->prefill = s->batch.n;
	if (!m->prefill)
		decode_alone(s);
	else if (along)
		decode_beside(s, n);
	m->cut = prompt_is_cut(s);
	m->n_planned = s->n_running;
	m->runs = s->lim.async && s->batch.n;
}

#define GIB ((int64_t)1 << 30)
#define ALL_GPUS \
	.requests = 2048, .block_tok = 1, .index_block_tok = 64, .async = true, \
	.prefix_cache = true, .pool = POOL_STATIC, .captured_per_req = 1

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

/* What its policies share. */
#define SGLANG(version) \
	.drops_in_flight = true, \
	.origin = "SGLang " version \
		  ", python/sglang/srt/managers/scheduler.py and schedule_policy.py", \
	.check = sched_check_whole_blocks, .defaults = sglang_defaults, \
	.memory_share = sglang_memory_share, .slots = sglang_slots, .most_outputs = most_outputs, \
	.unfit = sglang_unfit, .requeue = sched_requeue_last, \
	.memory_size = sizeof(struct memory), .memory_per_seq = sizeof(struct end), \
	.begin = sglang_begin, .compose = sglang_compose

#define CAN (POLICY_ASYNC | POLICY_PREFILL_TOKENS | POLICY_IGNORE_EOS | POLICY_FAILS)

const struct policy policy_sglang_0_5_21 = {
	.name = "sglang-0.5.21",
	.title = "SGLang 0.5.21, prompts before decodes",
	.can = CAN,
	.overruns = true,
	SGLANG("0.5.21"),
};

const struct policy policy_sglang_mixed_0_5_21 = {
	.name = "sglang-mixed-0.5.21",
	.title = "SGLang 0.5.21 with mixed chunks, decodes beside prompts",
	.can = CAN,
	.rules = MIXED,
	.overruns = true,
	SGLANG("0.5.21"),
};

const struct policy policy_sglang_0_5_23 = {
	.name = "sglang-0.5.23",
	.also = "sglang",
	.title = "SGLang 0.5.23, prompts before decodes",
	.can = CAN | POLICY_PREFIX_CACHE,
	.radix_tree = true,
	.rules = RULES_0_5_23,
	SGLANG("0.5.23"),
};

const struct policy policy_sglang_mixed_0_5_23 = {
	.name = "sglang-mixed-0.5.23",
	.also = "sglang-mixed",
	.title = "SGLang 0.5.23 with mixed chunks, decodes beside prompts",
	.can = CAN | POLICY_PREFIX_CACHE,
	.radix_tree = true,
	.rules = MIXED | RULES_0_5_23,
	SGLANG("0.5.23"),
};
