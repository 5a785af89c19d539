/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/policy-case.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "tests/tap.h"

static double in_ms(int64_t ns)
{
	return (double)ns / MS;
}

__attribute__((format(printf, 4, 5))) static void put(char *buf, size_t size, size_t *n,
						      const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	*n += (size_t)vsnprintf(buf + *n, size - *n, fmt, ap);
	va_end(ap);
	if (*n >= size)
		bail_out("the text of a scenario is too long");
}

#define LOG(s, ...) put((s)->log, sizeof(s)->log, &(s)->n_log, __VA_ARGS__)

static void log_iteration(struct witness *s, const struct observed_iteration *it)
{
	const struct batch *b = &it->sched->batch;
	const struct block_pool *pool = &it->sched->pool;
	const char *sep = " ->";

	LOG(s, "%g-%g", in_ms(it->start_ns), in_ms(it->end_ns));
	for (size_t i = 0; i < b->n; i++)
		LOG(s, " %c:%" PRIu32 "@%" PRIu32 "%s", 'A' + (int)b->entry[i].req,
		    b->entry[i].n_tok, b->entry[i].start, b->entry[i].recompute ? "*" : "");
	for (size_t i = 0; i < b->n; i++)
		if (b->entry[i].n_emit) {
			LOG(s, "%s %c", sep, 'A' + (int)b->entry[i].req);
			sep = "";
		}
	if (s->show_free)
		LOG(s, " free %" PRId64 " %s", pool->n_free, it->sched->stop);
	LOG(s, "\n");
}

static void check_request(struct witness *s, const struct batch_entry *e, int64_t end_ns)
{
	uint32_t end = e->start + e->n_tok, *high = &s->high[e->req];

	if (!s->n_chunk[e->req])
		s->first[e->req] = e->start;
	s->bad_chunk += e->chunk_no != s->n_chunk[e->req]++;
	s->n_prefill[e->req] += e->kind != ROW_DECODE;
	s->bad_mark += e->start < *high && !e->recompute;
	*high = end > *high ? end : *high;
	if (!e->n_emit)
		return;
	if (s->token_ns[e->req])
		s->gaps += rng_mix((uint64_t)(end_ns - s->token_ns[e->req]));
	s->before_ns[e->req] = s->token_ns[e->req];
	s->token_ns[e->req] = end_ns;
	s->token_iter[e->req] = s->n_iter;
}

/* A preempted request loses the output of the iteration before, where the policy says so. */
static void check_dropped(struct witness *s, const struct sched *sched)
{
	for (size_t i = 0; i < sched->n_preempted; i++) {
		uint32_t id = sched->preempted[i];

		if (!sched->lim.async || !sched->lim.policy->drops_in_flight || !s->n_iter ||
		    s->token_iter[id] != s->n_iter)
			continue;
		s->n_emit--;
		if (s->before_ns[id])
			s->gaps -= rng_mix((uint64_t)(s->token_ns[id] - s->before_ns[id]));
		s->token_ns[id] = s->before_ns[id];
	}
}

static void check_iteration(struct witness *s, const struct observed_iteration *it)
{
	const struct sched *sched = it->sched;
	const struct batch *b = &sched->batch;
	bool alone = sched->n_running + sched->n_waiting == 1;
	int64_t partial = 0, n_tok = 0;

	s->bad_clock += it->start_ns < s->end_ns || it->end_ns < it->start_ns + !!b->n;
	s->end_ns = it->end_ns;
	s->empty += !b->n;
	s->starved += sched->n_running != b->n && !s->skips;
	s->preempted += (int64_t)sched->n_preempted;
	check_dropped(s, sched);
	s->n_iter++;
	s->bad_blocks += sched->pool.n_free < 0 || sched->pool.n_free > s->n_usable ||
			 sched->pool.n_usable != s->n_usable;
	for (size_t i = 0; i < b->n; i++) {
		const struct batch_entry *e = &b->entry[i];

		n_tok += e->n_tok;
		s->n_emit += e->n_emit;
		check_request(s, e, it->end_ns);
		if (!e->n_emit && e->start + e->n_tok == e->known) {
			s->overrun++;
		} else if (!e->n_emit) {
			partial++;
			s->bad_partial += !s->long_prefill_tok && !s->prefill_first && i + 1 < b->n;
		}
		s->bad_partial += s->long_prefill_tok && e->n_tok > s->long_prefill_tok &&
				  !(alone && s->alone_uncapped);
		s->digest = rng_mix(s->digest ^ (uint64_t)e->req << 32 ^ e->n_tok);
		s->digest = rng_mix(s->digest ^ (uint64_t)e->start << 32 ^ e->chunk_no);
	}
	s->digest = rng_mix(s->digest ^ (uint64_t)it->end_ns);
	s->bad_partial += !s->long_prefill_tok && !s->skips && partial > 1;
	s->over_budget += n_tok > s->max_batched_tok || n_tok != b->prefill_tok + b->decode_tok;
	s->over_seqs += (int64_t)sched->n_running > s->max_seqs || (int64_t)b->n > s->max_seqs;
	s->n_tok += n_tok;
}

static enum ar_status see_iteration(void *self, const struct observed_iteration *it,
				    struct ar_err *err)
{
	struct witness *s = self;

	if (s->most_iterations && s->n_iter == s->most_iterations)
		return ar_fail(err, AR_DATA, "the run does not end");
	if (s->quiet)
		check_iteration(s, it);
	else
		log_iteration(s, it);
	return AR_OK;
}

static enum ar_status see_request(void *self, const struct observed_request *r, struct ar_err *err)
{
	struct witness *s = self;
	const struct sched_seq *q = r->seq;
	uint32_t n_out = q->known - r->prompt_tok;
	double tpot = n_out > 1 ? in_ms(r->finish_ns - r->first_token_ns) / (n_out - 1) : NAN;

	(void)err;
	s->recomputed += (int64_t)q->recomputed;
	if (s->quiet)
		s->bad_outcome += q->n_chunk - q->n_decode != s->n_prefill[r->id] ||
				  (!q->n_preempt && q->cached != s->first[r->id]);
	s->n_rejected += !strcmp(r->outcome, "rejected") && r->reason && *r->reason;
	if (s->quiet)
		return AR_OK;
	if (strcmp(r->outcome, "ok"))
		put(s->outcome, sizeof s->outcome, &s->n_outcome, "%c %s: %s\n", 'A' + (int)r->id,
		    r->outcome, r->reason);
	else
		put(s->outcome, sizeof s->outcome, &s->n_outcome,
		    "%c ttft %g tpot %g e2e %g queue %g preempted %" PRIu32 " recomputed %" PRIu64
		    "\n",
		    'A' + (int)r->id, in_ms(r->first_token_ns - r->arrival_ns), tpot,
		    in_ms(r->finish_ns - r->arrival_ns), in_ms(r->first_sched_ns - r->arrival_ns),
		    q->n_preempt, q->recomputed);
	return AR_OK;
}

static enum ar_status see_sample(void *self, const struct observed_sample *x, struct ar_err *err)
{
	(void)self, (void)x;
	return ar_fail(err, AR_DATA, "no samples without kernels");
}

static enum ar_status see_end(void *self, const struct replay_result *res, struct ar_err *err)
{
	struct witness *s = self;
	const struct series *itl = &res->latency[LATENCY_ITL];

	(void)err;
	for (size_t i = 0; i < itl->n_run; i++)
		s->gaps -= itl->run[i].n * rng_mix((uint64_t)itl->run[i].x);
	return AR_OK;
}

static enum ar_status run_by_formula(void *self, const struct batch *b, struct iter_cost *cost,
				     struct ar_err *err)
{
	(void)err;
	*cost = (struct iter_cost){ .cost_ns = cost_formula_ns(self, b) };
	return AR_OK;
}

static void drop(void *self, uint32_t req)
{
	(void)self, (void)req;
}

static const struct backend by_formula = { .name = "formula", .run = run_by_formula, .drop = drop };

struct replay replay_of(const struct trace *t, const struct sched_limits *lim, const char *policy,
			const struct cost_formula *cost, struct witness *s)
{
	const struct policy *p = policy_find(policy);
	struct replay cfg = { .trace = t,
			      .limits = *lim,
			      .backend = &by_formula,
			      .self = (void *)(uintptr_t)cost,
			      .observer = &s->observer };

	cfg.limits.policy = p;
	s->observer = (struct observer){ s, see_iteration, see_request, see_sample, see_end };
	s->n_usable = lim->num_blocks - 1;
	s->max_batched_tok = lim->max_batched_tok;
	s->max_seqs = lim->max_seqs;
	s->long_prefill_tok = lim->long_prefill_tok;
	s->skips = p->check == sched_check_whole_blocks;
	s->alone_uncapped = !strcmp(policy, "vllm-0.33");
	s->prefill_first = s->skips || !strcmp(policy, "sarathi");
	return cfg;
}

void run_scenario(const struct scenario *c, const int32_t *priority, struct replay_result *res)
{
	struct request req[8] = { 0 };
	struct trace t = { .req = req, .name = (char *)(uintptr_t) "scenario" };
	struct sched_limits lim = c->lim;
	struct cost_formula cost = c->cost;
	struct witness s = { .show_free = c->show_free };
	struct ar_err err = { 0 };
	struct replay cfg;

	for (; t.n < 8 && c->req[t.n].prompt; t.n++) {
		req[t.n].arrival_ns = c->req[t.n].us * 1000;
		req[t.n].prompt_tok = c->req[t.n].prompt;
		req[t.n].output_tok = c->req[t.n].output;
		req[t.n].priority = priority ? priority[t.n] : 0;
	}
	if (!lim.block_tok) {
		lim.block_tok = 4;
		lim.num_blocks = 101;
	}
	if (!cost.fixed_ns)
		cost.fixed_ns = MS;
	cfg = replay_of(&t, &lim, c->policy, &cost, &s);
	is_int(replay_run(&cfg, res, &err), AR_OK, "%s: runs to its end", c->name);
	is_str(s.log, c->log, "%s: the schedule is the engine's", c->name);
	is_str(s.outcome, c->outcome, "%s: the latencies are the engine's", c->name);
}
