/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vLLM, the V1 scheduler, at four versions: chunked prefill.
 *
 * Running sequences are planned first, in order of admission, then waiting ones, until the token
 * budget is spent.  If a running sequence finds no block, the one admitted last or, by priority,
 * the least important one is preempted.  An iteration that preempted admits nobody, even if blocks
 * are free by then.  If the head of the queue is not admitted, the sequences behind it wait, too.
 * The prefix cache is searched whenever the head could be admitted.
 *
 * In 0.16, admission needs blocks for the first chunk only, so prompts are admitted that cannot be
 * finished.  From 0.19 on, blocks for all known tokens of the sequence must be free and, unless
 * nothing runs, the watermark besides.  Only the first chunk's blocks are then taken.
 *
 * In 0.24, free blocks without a name, which nobody can find, are taken before all others.  In
 * 0.33, the cap on a chunk is not for the only sequence.  By priority, a sequence that lacks blocks
 * can be the victim itself.  Then 0.33 goes on with the sequences behind it, where others stop.
 *
 * With asynchronous scheduling the last iteration still runs.  Its output tokens count as known, so
 * its sequences are planned again.  A sequence that it finishes is passed over.  It keeps its
 * blocks for this iteration, but can be preempted.  Before 0.33, such a victim leaves a gap in the
 * list over which the plan steps: one sequence gets no entry.
 *
 * A chunk never has to be cut at the maximum length: a sequence ends when it knows that many
 * tokens, so the positions that remain always fit.
 *
 * A prefix cache keeps the states of linear layers that a chunk ends with.  So chunks of a prompt
 * end where blocks end, also where a prefix ends that others share: align_0_24(), align_0_33().
 *
 * By priority, the first of equals is preempted that arrived at the same time.
 */
#include "config.h"
#include "replay/sched/policy.h"

/* Rules in which the versions differ, with line numbers.  The first line is of kv_cache_manager.py
 * of 0.24.0, the others are of sched/scheduler.py of 0.33.0. */
enum rule {
	WHOLE_FITS = 1,	    /* admission needs blocks for all known tokens, not for a chunk: 372 */
	ALONE_UNCAPPED = 2, /* no cap on a chunk of the only sequence: 761 */
	OTHERS_RUN = 4, /* after a sequence that is its own victim, the next one is planned: 988 */
	NO_GAP = 8,	/* after a victim that was passed over, none is left out: 947 */
	SAVES = 16,	/* a kernel saves a state within the last chunk of a prompt: 561 */
};

/* Most tokens of a chunk of this plan. */
static int64_t cap(const struct sched *s, unsigned rules)
{
	bool alone = s->n_running + s->n_waiting == 1;

	if (!s->lim.long_prefill_tok || (alone && rules & ALONE_UNCAPPED))
		return INT64_MAX;
	return s->lim.long_prefill_tok;
}

/* A chunk of a prompt whose states are kept. */
struct chunk {
	int64_t start, end; /* as far as the budget allows */
	int64_t known;	    /* tokens that are there */
	int64_t whole;	    /* where the prompt ends, or what was computed before a preemption */
	int64_t tok;	    /* tokens between states */
	int64_t junction;   /* tokens of a prefix that others share, or 0 */
};

static int64_t round_down(int64_t n, int64_t tok)
{
	return n / tok * tok;
}

/* Where the chunk ends: scheduler.py:330 of 0.24.0.  At admission a shared prefix is a stop. */
static int64_t align_0_24(const struct chunk *c)
{
	int64_t last = round_down(c->known, c->tok), n = c->end - c->start, shared = 0;

	if (c->end < last)
		n = round_down(n, c->tok);
	else if (c->start < last && last < c->end)
		n = last - c->start;
	if (c->junction > c->start)
		shared = c->junction - c->start;
	if (shared >= c->tok && n > shared)
		n = round_down(shared, c->tok);
	return c->start + n;
}

/* A chunk that would run past a stop ends there. */
static void stop_at(const struct chunk *c, int64_t stop, int64_t *end)
{
	if (c->start < stop && stop < *end)
		*end = stop;
}

/* The same in 0.33.0, scheduler.py:538.  A chunk shorter than a block ends anywhere if no chunk can
 * be as long. */
static int64_t align_0_33(const struct sched *s, const struct chunk *c)
{
	int64_t end = c->end, most = s->lim.max_batched_tok, aligned = round_down(end, c->tok);
	int64_t shared = 0;
	bool saves = end >= c->whole &&
		     kv_groups_saves(s->groups, c->start, end, round_down(c->whole - 1, c->tok));

	if (s->lim.long_prefill_tok && s->lim.long_prefill_tok < most)
		most = s->lim.long_prefill_tok;
	if (end < c->whole && (aligned > c->start || c->tok <= most))
		end = aligned;
	if (c->start < c->junction && c->junction < end)
		shared = c->start + round_down(c->junction - c->start, c->tok);
	stop_at(c, shared, &end);
	if (!saves) {
		if (c->start % c->tok)
			stop_at(c, round_down(c->start, c->tok) + c->tok, &end);
		stop_at(c, round_down(c->known - 1, c->tok), &end);
	}
	return end;
}

/* Tokens of a chunk of n tokens of id that ends where its states can be kept; 0: none is that
 * short. */
static int64_t align_chunk(const struct sched *s, uint32_t id, int64_t n, unsigned rules)
{
	const struct sched_seq *q = &s->seq[id];
	struct chunk c = { .start = q->comp,
			   .end = q->comp + n,
			   .known = q->known - sched_in_flight(s, id),
			   .tok = kv_groups_states(s->groups),
			   .junction = rules & SAVES || !q->row ? q->junction : 0 };

	c.whole = c.known - 1 > q->prompt ? c.known - 1 : q->prompt;
	if (!c.tok || c.start >= c.whole)
		return n;
	n = (rules & SAVES ? align_0_33(s, &c) : align_0_24(&c)) - c.start;
	return n > 0 ? n : 0;
}

static inline int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Tokens that id would run next; 0 if the iteration that still runs finishes it. */
static inline int64_t vllm_wanted(const struct sched *s, uint32_t id)
{
	const struct sched_seq *q = &s->seq[id];

	return q->known < q->goal ? q->known - q->comp : 0;
}

/* Tokens that id runs next, at most. */
static inline uint32_t vllm_chunk_len(const struct sched *s, uint32_t id, int64_t most,
				      unsigned rules)
{
	int64_t n = lesser(vllm_wanted(s, id), most);

	return (uint32_t)(s->groups && n ? align_chunk(s, id, n, rules) : n);
}

/* Preempt until id, which is running[*i], has blocks for n more tokens.  False: it is a victim
 * itself.  By priority, a victim can be planned already; it is unplanned.  *i follows id down the
 * list, but with the gap it stays and the next sequence is left out. */
static bool vllm_make_room(struct sched *s, size_t *i, uint32_t n, int64_t *budget, unsigned rules)
{
	uint32_t id = s->running[*i];

	while (!sched_reserve(s, id, n)) {
		size_t v = sched_victim(s);
		uint32_t victim = s->running[v];

		if (v < *i) {
			uint32_t planned = sched_unplan(s, victim);

			*budget += planned;
			*i -= planned || rules & NO_GAP;
		}
		sched_preempt(s, v);
		if (victim == id)
			return false;
	}
	return true;
}

/* Plan the running sequences.  Returns the rest of the budget. */
static int64_t vllm_run_running(struct sched *s, unsigned rules)
{
	int64_t budget = s->lim.max_batched_tok, most = cap(s, rules);

	for (size_t i = 0; i < s->n_running && budget > 0; i++) {
		uint32_t id = s->running[i];
		uint32_t n = vllm_chunk_len(s, id, lesser(budget, most), rules);

		if (!n)
			continue;
		if (vllm_make_room(s, &i, n, &budget, rules)) {
			sched_plan(s, id, n);
			budget -= n;
		} else if (rules & OTHERS_RUN) {
			i--; /* it has left the list */
		} else {
			break;
		}
	}
	return budget;
}

/* Blocks that an admission leaves free unless nothing runs.  The engine counts the null block:
 * 0.24.0, kv_cache_manager.py:163. */
static int64_t watermark(const struct sched *s)
{
	return s->n_running ? (int64_t)(s->lim.watermark * (double)s->lim.num_blocks) : 0;
}

/* The watermark is beside the whole sequence, and beside its next n tokens: these can need more
 * blocks of a window, behind a prefix that was found.  0.33.0, kv_cache_manager.py:546, 585. */
static bool vllm_fits(const struct sched *s, uint32_t id, uint32_t n)
{
	const struct sched_seq *q = &s->seq[id];
	int64_t keep = watermark(s);

	return sched_fits(s, id, q->known, keep, true) &&
	       (!keep || sched_fits(s, id, q->comp + n, keep, false));
}

static const char *vllm_admit_waiting(struct sched *s, int64_t budget, unsigned rules)
{
	int64_t most = cap(s, rules);

	while (budget > 0) {
		uint32_t id = s->wait_head, n;

		if (id == SCHED_NONE)
			return "empty";
		if ((int64_t)s->n_running == s->lim.max_seqs)
			return "seqs";
		sched_match(s);
		if (s->lim.chunks == SCHED_CHUNKS_NONE && lesser(vllm_wanted(s, id), most) > budget)
			return "budget";
		n = vllm_chunk_len(s, id, lesser(budget, most), rules);
		if (!n)
			return "budget";
		if (rules & WHOLE_FITS && !vllm_fits(s, id, n))
			return "blocks";
		if (!sched_reserve(s, id, n))
			return "blocks";
		sched_admit(s);
		sched_plan(s, id, n);
		budget -= n;
	}
	return "budget";
}

static void vllm_compose(struct sched *s)
{
	unsigned rules = s->lim.policy->rules;
	int64_t budget = vllm_run_running(s, rules);

	s->stop = s->n_preempted ? "preemption" : vllm_admit_waiting(s, budget, rules);
}

static const struct kv_rules groups_0_16 = { .spread = 1.25 };
static const struct kv_rules groups_0_19 = { .spread = 1.5, .windows_whole = true };
static const struct kv_rules groups_0_24 = {
	.spread = 1.5, .pads = true, .names = KV_NAMES_ENDS, .states = true
};
/* States as on Hopper GPUs: gdn/qwen_gdn_linear_attn.py, FLASHINFER_GDN_CHECKPOINT_ALIGNMENT. */
static const struct kv_rules groups_0_33 = { .spread = 1.5,
					     .pads = true,
					     .pads_states = true,
					     .processed = true,
					     .names = KV_NAMES_REPLAY,
					     .states = true,
					     .saves = true,
					     .delta_tok = 64 };

#define CAN \
	(POLICY_LONG_PREFILL | POLICY_ORDER | POLICY_PREFIX_CACHE | POLICY_ASYNC | \
	 POLICY_WHOLE_PROMPTS | POLICY_KV_APART)

#define GIB ((int64_t)1 << 30)
#define LARGE_GPU \
	.from_bytes = 70 * GIB, .but = "A100", .tokens = 8192, .requests = 1024, \
	.latent8_block_tok = 64
#define OTHER_GPU .tokens = 2048, .requests = 256
#define ALL_GPUS \
	.tokens_by_length = true, .block_tok = 16, .index_block_tok = 64, .async = true, \
	.prefix_cache = true, .captured = 512, .captured_per_req = 2

/* Of 'vllm serve': engine/arg_utils.py, get_batch_defaults(), and config/.  Asynchronous scheduling
 * is on where nothing forbids it: 0.16.0, config/vllm.py:687.  From 0.21 on memory for graphs is
 * set aside before KV blocks: 0.24.0, envs.py:1894.  On Hopper GPUs latents in 8 bits are read by
 * FlashMLA, which has blocks of 64 alone: v1/attention/backends/mla/flashmla.py.  From 0.33 on a
 * block of 8-bit layers is as large as 16 tokens of others: platforms/interface.py. */
#define TO_0_19 .linear_uncached = true, .memory_share = 0.9, .pool = POOL_GRAPHLESS
static const struct engine_defaults defaults_0_16[] = {
	{ LARGE_GPU, ALL_GPUS, TO_0_19 },
	{ OTHER_GPU, ALL_GPUS, TO_0_19 },
};
static const struct engine_defaults defaults_0_24[] = {
	{ LARGE_GPU, ALL_GPUS, .linear_uncached = true, .memory_share = 0.92 },
	{ OTHER_GPU, ALL_GPUS, .linear_uncached = true, .memory_share = 0.92 },
};
static const struct engine_defaults defaults_0_33[] = {
	{ .from_bytes = 160 * GIB,
	  .tokens = 16384,
	  .requests = 1024,
	  .tokens_by_length = true,
	  .block_tok = 16,
	  .index_block_tok = 64,
	  .async = true,
	  .prefix_cache = true,
	  .memory_share = 0.92,
	  .captured = 1024,
	  .captured_per_req = 2,
	  .mixed_block_tok = 32 },
	{ LARGE_GPU, ALL_GPUS, .memory_share = 0.92, .mixed_block_tok = 32 },
	{ OTHER_GPU, ALL_GPUS, .memory_share = 0.92, .mixed_block_tok = 32 },
};

const struct policy policy_vllm_0_16 = {
	.name = "vllm-0.16",
	.host = "vllm-0.24-serve",
	.title = "vLLM 0.16.0",
	.origin = "vLLM 0.16.0, vllm/v1/core/sched/scheduler.py",
	.can = CAN,
	.groups = &groups_0_16,
	.defaults = defaults_0_16,
	.slots = sched_slots_computed,
	.unfit = sched_unfit_pool,
	.requeue = sched_requeue_first,
	.compose = vllm_compose,
};

const struct policy policy_vllm_0_19 = {
	.name = "vllm-0.19",
	.host = "vllm-0.24-serve",
	.title = "vLLM 0.19, whole sequences must fit to be admitted",
	.origin = "vLLM 0.19.0, vllm/v1/core; the watermark is that of pull request 44594",
	.can = CAN | POLICY_WATERMARK,
	.rules = WHOLE_FITS,
	.groups = &groups_0_19,
	.defaults = defaults_0_16,
	.slots = sched_slots_computed,
	.unfit = sched_unfit_pool,
	.requeue = sched_requeue_first,
	.compose = vllm_compose,
};

const struct policy policy_vllm_0_24 = {
	.name = "vllm-0.24",
	.host = "vllm-0.24-serve",
	.title = "vLLM 0.24, KV blocks that nobody can find are taken first",
	.origin = "vLLM 0.24.0, vllm/v1/core",
	.can = CAN | POLICY_WATERMARK,
	.unnamed_first = true,
	.rules = WHOLE_FITS,
	.groups = &groups_0_24,
	.defaults = defaults_0_24,
	.slots = sched_slots_computed,
	.unfit = sched_unfit_pool,
	.requeue = sched_requeue_first,
	.compose = vllm_compose,
};

const struct policy policy_vllm_0_33 = {
	.name = "vllm-0.33",
	.also = "vllm",
	.host = "vllm-0.24-serve",
	.title = "vLLM 0.33, no cap for a request that is alone",
	.origin = "vLLM 0.33.0, vllm/v1/core",
	.can = CAN | POLICY_WATERMARK | POLICY_QUEUE,
	.unnamed_first = true,
	.rules = WHOLE_FITS | ALONE_UNCAPPED | OTHERS_RUN | NO_GAP | SAVES,
	.groups = &groups_0_33,
	.defaults = defaults_0_33,
	.slots = sched_slots_computed,
	.unfit = sched_unfit_pool,
	.requeue = sched_requeue_first,
	.compose = vllm_compose,
};
