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

__attribute__((format(printf, 4, 5)))
static void put(char *buf, size_t size, size_t *n, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	*n += (size_t)vsnprintf(buf + *n, size - *n, fmt, ap);
	va_end(ap);
	if (*n >= size)
		bail_out("the text of a scenario is too long");
}

#define LOG(s, ...) put((s)->log, sizeof (s)->log, &(s)->n_log, __VA_ARGS__)

static void log_iteration(struct store *s, const struct store_iteration *it)
{
	const char *sep = " ->";

	LOG(s, "%g-%g", in_ms(it->row.start_ns), in_ms(it->row.end_ns));
	for (size_t i = 0; i < it->n_entry; i++)
		LOG(s, " %c:%" PRIu32 "@%" PRIu32 "%s", 'A' + (int)it->entry[i].req,
		    it->entry[i].n_tok, it->entry[i].start, it->entry[i].recompute ? "*" : "");
	for (size_t i = 0; i < it->n_entry; i++)
		if (it->entry[i].emit) {
			LOG(s, "%s %c", sep, 'A' + (int)it->entry[i].req);
			sep = "";
		}
	if (s->show_free)
		LOG(s, " free %" PRId64 " %s", s->n_usable - it->row.blocks_used, it->row.stop);
	LOG(s, "\n");
}

static void check_request(struct store *s, const struct store_entry *e, int64_t end_ns)
{
	uint32_t end = e->start + e->n_tok, *high = &s->high[e->req];

	if (!s->n_chunk[e->req])
		s->first[e->req] = e->start;
	s->bad_chunk += e->chunk_no != s->n_chunk[e->req]++;
	s->n_prefill[e->req] += !e->decode;
	s->bad_mark += e->start < *high && !e->recompute;
	*high = end > *high ? end : *high;
	if (!e->emit)
		return;
	if (s->token_ns[e->req])
		s->gaps += rng_mix((uint64_t)(end_ns - s->token_ns[e->req]));
	s->token_ns[e->req] = end_ns;
}

static void check_iteration(struct store *s, const struct store_iteration *it)
{
	const struct row_iteration *row = &it->row;
	int64_t partial = 0, n_tok = 0;

	s->bad_clock += row->start_ns < s->end_ns || row->end_ns < row->start_ns + !!it->n_entry;
	s->end_ns = row->end_ns;
	s->empty += !it->n_entry;
	s->starved += (size_t)row->running != it->n_entry && !s->skips;
	s->preempted += row->preempted;
	s->n_iter++;
	s->bad_blocks += row->blocks_used < 0 || row->blocks_used > s->n_usable;
	for (size_t i = 0; i < it->n_entry; i++) {
		const struct store_entry *e = &it->entry[i];

		n_tok += e->n_tok;
		s->n_emit += e->emit;
		check_request(s, e, row->end_ns);
		if (!e->emit) {
			partial++;
			s->bad_partial += !s->long_prefill_tok && !s->prefill_first &&
					  i + 1 < it->n_entry;
		}
		s->bad_partial += s->long_prefill_tok && e->n_tok > s->long_prefill_tok;
		s->digest = rng_mix(s->digest ^ (uint64_t)e->req << 32 ^ e->n_tok);
		s->digest = rng_mix(s->digest ^ (uint64_t)e->start << 32 ^ e->chunk_no);
	}
	s->digest = rng_mix(s->digest ^ (uint64_t)row->end_ns);
	s->bad_partial += !s->long_prefill_tok && !s->skips && partial > 1;
	s->over_budget += n_tok > s->max_batched_tok ||
			  n_tok != row->prefill_tokens + row->decode_tokens;
	s->over_seqs += row->running > s->max_seqs || (int64_t)it->n_entry > s->max_seqs;
	s->n_tok += n_tok;
}

enum ar_status store_iteration(struct store *s, const struct store_iteration *it,
			       struct ar_err *err)
{
	if (s->most_iterations && s->n_iter == s->most_iterations)
		return ar_fail(err, AR_DATA, "the run does not end");
	if (s->quiet)
		check_iteration(s, it);
	else
		log_iteration(s, it);
	return AR_OK;
}

enum ar_status store_outcome(struct store *s, const struct row_request_outcome *o,
			     struct ar_err *err)
{
	double tpot = o->output_tokens > 1 ?
		      in_ms(o->finish_ns - o->first_token_ns) / (o->output_tokens - 1) : NAN;

	(void)err;
	s->recomputed += o->recomputed_tokens;
	if (s->quiet)
		s->bad_outcome += o->n_chunks != s->n_prefill[o->req_no] ||
				  (!o->n_preempt && o->cached_tokens != s->first[o->req_no]);
	s->n_rejected += !strcmp(o->outcome, "rejected") && o->reason && *o->reason;
	if (s->quiet)
		return AR_OK;
	if (strcmp(o->outcome, "ok"))
		put(s->outcome, sizeof s->outcome, &s->n_outcome, "%c %s: %s\n",
		    'A' + (int)o->req_no, o->outcome, o->reason);
	else
		put(s->outcome, sizeof s->outcome, &s->n_outcome,
		    "%c ttft %g tpot %g e2e %g queue %g preempted %" PRId64 " recomputed %" PRId64
		    "\n",
		    'A' + (int)o->req_no, in_ms(o->first_token_ns - o->arrival_ns), tpot,
		    in_ms(o->finish_ns - o->arrival_ns), in_ms(o->first_sched_ns - o->arrival_ns),
		    o->n_preempt, o->recomputed_tokens);
	return AR_OK;
}

enum ar_status store_gap(struct store *s, const struct row_token_gap *g, struct ar_err *err)
{
	(void)err;
	s->gaps -= (uint64_t)g->n * rng_mix((uint64_t)g->itl_ns);
	return AR_OK;
}

enum ar_status store_accuracy(struct store *s, const struct row_accuracy_sample *a,
			      struct ar_err *err)
{
	(void)s, (void)a;
	return ar_fail(err, AR_DB, "no accuracy without kernels");
}

enum ar_status store_selection(struct store *s, const struct store_selection *c,
			       struct ar_err *err)
{
	(void)s, (void)c;
	return ar_fail(err, AR_DB, "no selection without kernels");
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

static const struct backend by_formula = { .name = "formula", .run = run_by_formula,
					   .drop = drop };

struct replay replay_of(const struct trace *t, const struct sched_limits *lim, const char *policy,
			const struct cost_formula *cost, struct store *s)
{
	s->n_usable = lim->num_blocks - 1;
	s->max_batched_tok = lim->max_batched_tok;
	s->max_seqs = lim->max_seqs;
	s->long_prefill_tok = lim->long_prefill_tok;
	s->skips = policy_find(policy)->rules.whole_chunks;
	s->prefill_first = s->skips || !strcmp(policy, "sarathi");
	return (struct replay){ .trace = t, .policy = policy_find(policy), .limits = *lim,
				.backend = &by_formula, .self = (void *)(uintptr_t)cost, .store = s,
				.keep_entries = true };
}

void run_scenario(const struct scenario *c, const int32_t *priority, struct replay_result *res)
{
	struct request req[8] = { 0 };
	struct trace t = { .req = req, .name = (char *)(uintptr_t)"scenario" };
	struct sched_limits lim = c->lim;
	struct cost_formula cost = c->cost;
	struct store s = { .show_free = c->show_free };
	struct ar_err err = { 0 };
	struct replay cfg;

	for (; t.n < 8 && c->req[t.n].prompt; t.n++) {
		req[t.n].arrival_ns = c->req[t.n].us * 1000;
		req[t.n].prompt_tok = c->req[t.n].prompt;
		req[t.n].output_tok = c->req[t.n].output;
		req[t.n].priority = priority ? priority[t.n] : 0;
	}
	lim.rules = policy_find(c->policy)->rules;
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
