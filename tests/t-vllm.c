/* Policies, iteration by iteration: scenarios whose schedules were observed on the
 * engine itself, then properties of random workloads.  The store is a recorder. */
#include "config.h"
#include "replay/replay.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/rng.h"
#include "tests/tap.h"

#define MS 1000000

struct store {
	char log[4096], outcome[1024];	/* text of the scenario */
	size_t n_log, n_outcome;
	bool show_free;
	int64_t n_usable;

	/* What the properties need. */
	bool quiet, prefill_first, skips;	/* skips: prompts may wait for a whole block */
	int64_t max_batched_tok, long_prefill_tok;
	int64_t end_ns, n_tok, recomputed, n_emit, preempted, n_iter;
	int64_t bad_clock, bad_partial, starved, over_budget, empty, bad_blocks, bad_chunk;
	uint32_t n_chunk[64];		/* by request */
	uint64_t digest;
};

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

	LOG(s, "%g-%g", in_ms(it->start_ns), in_ms(it->end_ns));
	for (size_t i = 0; i < it->n_entry; i++)
		LOG(s, " %c:%" PRIu32 "@%" PRIu32 "%s", 'A' + (int)it->entry[i].req,
		    it->entry[i].n_tok, it->entry[i].start, it->entry[i].recompute ? "*" : "");
	for (size_t i = 0; i < it->n_entry; i++)
		if (it->entry[i].emit) {
			LOG(s, "%s %c", sep, 'A' + (int)it->entry[i].req);
			sep = "";
		}
	if (s->show_free)
		LOG(s, " free %" PRId64 " %s", s->n_usable - it->blocks_used, it->stop);
	LOG(s, "\n");
}

static void check_iteration(struct store *s, const struct store_iteration *it)
{
	int64_t partial = 0, n_tok = 0;

	s->bad_clock += it->start_ns < s->end_ns || it->end_ns < it->start_ns + !!it->n_entry;
	s->end_ns = it->end_ns;
	s->empty += !it->n_entry;
	s->starved += (size_t)it->running != it->n_entry && !s->skips;
	s->preempted += it->preempted;
	s->n_iter++;
	s->bad_blocks += it->blocks_used < 0 || it->blocks_used > s->n_usable;
	for (size_t i = 0; i < it->n_entry; i++) {
		const struct store_entry *e = &it->entry[i];

		n_tok += e->n_tok;
		s->n_emit += e->emit;
		s->bad_chunk += e->chunk_no != s->n_chunk[e->req]++;
		if (!e->emit) {
			partial++;
			s->bad_partial += !s->long_prefill_tok && !s->prefill_first &&
					  i + 1 < it->n_entry;
		}
		s->bad_partial += s->long_prefill_tok && e->n_tok > s->long_prefill_tok;
		s->digest = rng_mix(s->digest ^ (uint64_t)e->req << 32 ^ e->n_tok);
		s->digest = rng_mix(s->digest ^ (uint64_t)e->start << 32 ^ e->chunk_no);
	}
	s->digest = rng_mix(s->digest ^ (uint64_t)it->end_ns);
	s->bad_partial += !s->long_prefill_tok && !s->skips && partial > 1;
	s->over_budget += n_tok > s->max_batched_tok || n_tok != it->prefill_tok + it->decode_tok;
	s->n_tok += n_tok;
}

enum ar_status store_iteration(struct store *s, const struct store_iteration *it,
			       struct ar_err *err)
{
	(void)err;
	if (s->quiet)
		check_iteration(s, it);
	else
		log_iteration(s, it);
	return AR_OK;
}

enum ar_status store_outcome(struct store *s, const struct store_outcome *o, struct ar_err *err)
{
	double tpot = o->output_tok > 1 ?
		      in_ms(o->finish_ns - o->first_token_ns) / (o->output_tok - 1) : NAN;

	(void)err;
	s->recomputed += o->recomputed_tok;
	if (s->quiet)
		return AR_OK;
	if (strcmp(o->outcome, "ok"))
		put(s->outcome, sizeof s->outcome, &s->n_outcome, "%c %s: %s\n", 'A' + (int)o->req,
		    o->outcome, o->reason);
	else
		put(s->outcome, sizeof s->outcome, &s->n_outcome,
		    "%c ttft %g tpot %g e2e %g queue %g preempted %" PRIu32 " recomputed %" PRId64
		    "\n",
		    'A' + (int)o->req, in_ms(o->first_token_ns - o->arrival_ns), tpot,
		    in_ms(o->finish_ns - o->arrival_ns), in_ms(o->first_sched_ns - o->arrival_ns),
		    o->n_preempt, o->recomputed_tok);
	return AR_OK;
}

enum ar_status store_accuracy(struct store *s, const struct store_accuracy *a, struct ar_err *err)
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

/* Arrival in microseconds.  In the logs a star marks work that is done again. */
struct req3 { int64_t us; uint32_t prompt, output; };

struct scenario {
	const char *name, *policy;
	struct sched_limits lim;	/* block_tok 0: blocks of 4, 100 usable */
	struct cost_formula cost;	/* 0: 1 ms an iteration */
	struct req3 req[8];
	bool show_free;
	const char *log, *outcome;
};

#define LIMITS(t, s) .max_batched_tok = (t), .max_seqs = (s)
#define POOL(n) .block_tok = 4, .num_blocks = (n) + 1

static const struct scenario scenarios[] = {
{ "basic chunking", "vllm-0.16", { LIMITS(8, 8) }, { 0 },
  { { 0, 10, 3 }, { 0, 5, 2 }, { 1500, 3, 2 } }, false,
  "0-1 A:8@0\n"
  "1-2 A:2@8 B:5@0 -> A B\n"
  "2-3 A:1@10 B:1@5 C:3@0 -> A B C\n"
  "3-4 A:1@11 C:1@3 -> A C\n",
  "B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n"
  "A ttft 2 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n"
  "C ttft 1.5 tpot 1 e2e 2.5 queue 0.5 preempted 0 recomputed 0\n" },

{ "a cap per request", "vllm-0.16", { LIMITS(8, 8), .long_prefill_tok = 3 }, { 0 },
  { { 0, 10, 2 }, { 0, 7, 2 }, { 0, 2, 3 }, { 2000, 2, 1 } }, false,
  "0-1 A:3@0 B:3@0 C:2@0 -> C\n"
  "1-2 A:3@3 B:3@3 C:1@2 -> C\n"
  "2-3 A:3@6 B:1@6 C:1@3 D:2@0 -> B C D\n"
  "3-4 A:1@9 B:1@7 -> A B\n"
  "4-5 A:1@10 -> A\n",
  "C ttft 1 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "D ttft 1 tpot nan e2e 1 queue 0 preempted 0 recomputed 0\n"
  "B ttft 3 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n"
  "A ttft 4 tpot 1 e2e 5 queue 0 preempted 0 recomputed 0\n" },

{ "the sequence limit", "vllm-0.16", { LIMITS(8, 2) }, { 0 },
  { { 0, 4, 2 }, { 0, 4, 4 }, { 0, 4, 1 } }, true,
  "0-1 A:4@0 B:4@0 -> A B free 98 budget\n"
  "1-2 A:1@4 B:1@4 -> A B free 96 seqs\n"
  "2-3 B:1@5 C:4@0 -> B C free 97 empty\n"
  "3-4 B:1@6 -> B free 98 empty\n",
  "A ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "C ttft 3 tpot nan e2e 3 queue 2 preempted 0 recomputed 0\n"
  "B ttft 1 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n" },

{ "chunk 8 and latency", "vllm-0.16", { LIMITS(8, 8) }, { 2 * MS, MS / 2 },
  { { 0, 2, 8 }, { 2900, 20, 2 } }, false,
  "0-3 A:2@0 -> A\n"
  "3-9 A:1@2 B:7@0 -> A\n"
  "9-15 A:1@3 B:7@7 -> A\n"
  "15-20.5 A:1@4 B:6@14 -> A B\n"
  "20.5-23.5 A:1@5 B:1@20 -> A B\n"
  "23.5-26 A:1@6 -> A\n"
  "26-28.5 A:1@7 -> A\n"
  "28.5-31 A:1@8 -> A\n",
  "B ttft 17.6 tpot 3 e2e 20.6 queue 0.1 preempted 0 recomputed 0\n"
  "A ttft 3 tpot 4 e2e 31 queue 0 preempted 0 recomputed 0\n" },

{ "chunk 32 and latency", "vllm-0.16", { LIMITS(32, 8) }, { 2 * MS, MS / 2 },
  { { 0, 2, 8 }, { 2900, 20, 2 } }, false,
  "0-3 A:2@0 -> A\n"
  "3-15.5 A:1@2 B:20@0 -> A B\n"
  "15.5-18.5 A:1@3 B:1@20 -> A B\n"
  "18.5-21 A:1@4 -> A\n"
  "21-23.5 A:1@5 -> A\n"
  "23.5-26 A:1@6 -> A\n"
  "26-28.5 A:1@7 -> A\n"
  "28.5-31 A:1@8 -> A\n",
  "B ttft 12.6 tpot 3 e2e 15.6 queue 0.1 preempted 0 recomputed 0\n"
  "A ttft 3 tpot 4 e2e 31 queue 0 preempted 0 recomputed 0\n" },

{ "preemption by recompute", "vllm-0.16", { LIMITS(16, 8), POOL(6) }, { 0 },
  { { 0, 8, 6 }, { 0, 7, 6 }, { 1500, 4, 2 } }, true,
  "0-1 A:8@0 B:7@0 -> A B free 2 empty\n"
  "1-2 A:1@8 B:1@7 -> A B free 1 empty\n"
  "2-3 A:1@9 B:1@8 -> A B free 0 blocks\n"
  "3-4 A:1@10 B:1@9 -> A B free 0 blocks\n"
  "4-5 A:1@11 B:1@10 -> A B free 0 blocks\n"
  "5-6 A:1@12 -> A free 2 preemption\n"
  "6-7 B:12@0* C:4@0 -> B C free 2 budget\n"
  "7-8 C:1@4 -> C free 4 empty\n",
  "A ttft 1 tpot 1 e2e 6 queue 0 preempted 0 recomputed 0\n"
  "B ttft 1 tpot 1.2 e2e 7 queue 0 preempted 1 recomputed 11\n"
  "C ttft 5.5 tpot 1 e2e 6.5 queue 4.5 preempted 0 recomputed 0\n" },

{ "over-admission", "vllm-0.16", { LIMITS(4, 4), POOL(8) }, { 0 },
  { { 0, 20, 6 }, { 1000, 20, 2 } }, true,
  "0-1 A:4@0 free 7 budget\n"
  "1-2 A:4@4 free 6 budget\n"
  "2-3 A:4@8 free 5 budget\n"
  "3-4 A:4@12 free 4 budget\n"
  "4-5 A:4@16 -> A free 3 budget\n"
  "5-6 A:1@20 B:3@0 -> A free 1 budget\n"
  "6-7 A:1@21 B:3@3 -> A free 0 budget\n"
  "7-8 A:1@22 -> A free 2 preemption\n"
  "8-9 A:1@23 B:3@0* -> A free 1 budget\n"
  "9-10 A:1@24 -> A free 1 preemption\n"
  "10-11 B:4@0* free 7 budget\n"
  "11-12 B:4@4* free 6 budget\n"
  "12-13 B:4@8 free 5 budget\n"
  "13-14 B:4@12 free 4 budget\n"
  "14-15 B:4@16 -> B free 3 budget\n"
  "15-16 B:1@20 -> B free 2 empty\n",
  "A ttft 5 tpot 1 e2e 10 queue 0 preempted 0 recomputed 0\n"
  "B ttft 14 tpot 1 e2e 15 queue 4 preempted 2 recomputed 9\n" },

{ "admission of whole sequences", "vllm-0.19", { LIMITS(4, 4), POOL(8) }, { 0 },
  { { 0, 20, 6 }, { 1000, 20, 2 } }, true,
  "0-1 A:4@0 free 7 budget\n"
  "1-2 A:4@4 free 6 budget\n"
  "2-3 A:4@8 free 5 budget\n"
  "3-4 A:4@12 free 4 budget\n"
  "4-5 A:4@16 -> A free 3 budget\n"
  "5-6 A:1@20 -> A free 2 blocks\n"
  "6-7 A:1@21 -> A free 2 blocks\n"
  "7-8 A:1@22 -> A free 2 blocks\n"
  "8-9 A:1@23 -> A free 2 blocks\n"
  "9-10 A:1@24 -> A free 1 blocks\n"
  "10-11 B:4@0 free 7 budget\n"
  "11-12 B:4@4 free 6 budget\n"
  "12-13 B:4@8 free 5 budget\n"
  "13-14 B:4@12 free 4 budget\n"
  "14-15 B:4@16 -> B free 3 budget\n"
  "15-16 B:1@20 -> B free 2 empty\n",
  "A ttft 5 tpot 1 e2e 10 queue 0 preempted 0 recomputed 0\n"
  "B ttft 14 tpot 1 e2e 15 queue 9 preempted 0 recomputed 0\n" },

/* Of 5 blocks the first request may take all, others leave two. */
{ "the watermark", "vllm-0.19", { LIMITS(32, 4), POOL(5), .watermark = 0.4 }, { 0 },
  { { 0, 16, 2 }, { 500, 4, 2 }, { 500, 8, 1 }, { 500, 4, 1 } }, true,
  "0-1 A:16@0 -> A free 1 empty\n"
  "1-2 A:1@16 -> A free 0 blocks\n"
  "2-3 B:4@0 C:8@0 -> B C free 2 blocks\n"
  "3-4 B:1@4 D:4@0 -> B D free 2 empty\n",
  "A ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "C ttft 2.5 tpot nan e2e 2.5 queue 1.5 preempted 0 recomputed 0\n"
  "B ttft 2.5 tpot 1 e2e 3.5 queue 1.5 preempted 0 recomputed 0\n"
  "D ttft 3.5 tpot nan e2e 3.5 queue 2.5 preempted 0 recomputed 0\n" },

{ "the same under sarathi", "sarathi", { LIMITS(16, 8), POOL(6), .watermark = 0.01 }, { 0 },
  { { 0, 8, 6 }, { 0, 7, 6 }, { 1500, 4, 2 } }, true,
  "0-1 A:8@0 B:7@0 -> A B free 2 empty\n"
  "1-2 A:1@8 B:1@7 -> A B free 1 empty\n"
  "2-3 A:1@9 B:1@8 -> A B free 0 blocks\n"
  "3-4 A:1@10 -> A free 3 preemption\n"
  "4-5 B:10@0* A:1@11 -> B A free 0 blocks\n"
  "5-6 A:1@12 -> A free 2 preemption\n"
  "6-7 B:11@0* C:4@0 -> B C free 2 empty\n"
  "7-8 B:1@11 C:1@4 -> B C free 1 empty\n",
  "A ttft 1 tpot 1 e2e 6 queue 0 preempted 0 recomputed 0\n"
  "B ttft 1 tpot 1.4 e2e 8 queue 0 preempted 2 recomputed 19\n"
  "C ttft 5.5 tpot 1 e2e 6.5 queue 4.5 preempted 0 recomputed 0\n" },

{ "the same under vidur-sarathi", "vidur-sarathi",
  { LIMITS(16, 8), POOL(6), .watermark = 0.01 }, { 0 },
  { { 0, 8, 6 }, { 0, 7, 6 }, { 1500, 4, 2 } }, true,
  "0-1 A:8@0 B:7@0 -> A B free 2 empty\n"
  "1-2 A:1@8 B:1@7 -> A B free 1 empty\n"
  "2-3 A:1@9 B:1@8 -> A B free 0 blocks\n"
  "3-4 A:1@10 B:10@0* -> A B free 0 blocks\n"
  "4-5 A:1@11 B:11@0* -> A B free 0 blocks\n"
  "5-6 A:1@12 -> A free 2 blocks\n"
  "6-7 B:12@0* C:4@0 -> B C free 2 budget\n"
  "7-8 C:1@4 -> C free 4 empty\n",
  "A ttft 1 tpot 1 e2e 6 queue 0 preempted 0 recomputed 0\n"
  "B ttft 1 tpot 1.2 e2e 7 queue 0 preempted 3 recomputed 30\n"
  "C ttft 5.5 tpot 1 e2e 6.5 queue 4.5 preempted 0 recomputed 0\n" },

#define BASIC \
  { LIMITS(8, 8) }, { 0 }, { { 0, 10, 3 }, { 0, 5, 2 }, { 1500, 3, 2 } }, false
#define BASIC_OUTCOME \
  "B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n" \
  "A ttft 2 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n" \
  "C ttft 1.5 tpot 1 e2e 2.5 queue 0.5 preempted 0 recomputed 0\n"
{ "basic chunking under sarathi", "sarathi", BASIC,
  "0-1 A:8@0\n"
  "1-2 A:2@8 B:5@0 -> A B\n"
  "2-3 C:3@0 A:1@10 B:1@5 -> C A B\n"
  "3-4 A:1@11 C:1@3 -> A C\n", BASIC_OUTCOME },
{ "basic chunking under vidur-sarathi", "vidur-sarathi", BASIC,
  "0-1 A:8@0\n"
  "1-2 A:2@8 B:5@0 -> A B\n"
  "2-3 A:1@10 B:1@5 C:3@0 -> A B C\n"
  "3-4 A:1@11 C:1@3 -> A C\n", BASIC_OUTCOME },

{ "whole prompts", "orca", { LIMITS(15, 8) }, { 0 },
  { { 0, 10, 3 }, { 0, 5, 2 }, { 1500, 3, 2 } }, false,
  "0-1 A:10@0 B:5@0 -> A B\n"
  "1-2 A:1@10 B:1@5 -> A B\n"
  "2-3 A:1@11 C:3@0 -> A C\n"
  "3-4 C:1@3 -> C\n",
  "B ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "A ttft 1 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "C ttft 1.5 tpot 1 e2e 2.5 queue 0.5 preempted 0 recomputed 0\n" },

/* Each takes 3 of 7 blocks, those of the longest that runs. */
{ "blocks for the longest", "orca", { LIMITS(15, 8), POOL(7) }, { 0 },
  { { 0, 10, 3 }, { 0, 4, 2 }, { 0, 1, 1 }, { 0, 16, 1 } }, true,
  "0-1 A:10@0 B:4@0 -> A B free 1 blocks\n"
  "1-2 A:1@10 B:1@4 -> A B free 1 blocks\n"
  "2-3 A:1@11 C:1@0 -> A C free 1 empty\n",
  "D rejected: prompt of 16 tokens, an iteration has 15\n"
  "B ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "A ttft 1 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "C ttft 3 tpot nan e2e 3 queue 2 preempted 0 recomputed 0\n" },

{ "blocks to completion", "trtllm-no-evict", { LIMITS(16, 8), POOL(6) },
  { 0 }, { { 0, 8, 6 }, { 0, 7, 6 }, { 1500, 4, 2 }, { 1500, 19, 6 } }, true,
  "0-1 A:8@0 -> A free 2 blocks\n"
  "1-2 A:1@8 -> A free 2 blocks\n"
  "2-3 A:1@9 -> A free 2 blocks\n"
  "3-4 A:1@10 -> A free 2 blocks\n"
  "4-5 A:1@11 -> A free 2 blocks\n"
  "5-6 A:1@12 -> A free 2 blocks\n"
  "6-7 B:7@0 C:4@0 -> B C free 0 empty\n"
  "7-8 B:1@7 C:1@4 -> B C free 0 empty\n"
  "8-9 B:1@8 -> B free 2 empty\n"
  "9-10 B:1@9 -> B free 2 empty\n"
  "10-11 B:1@10 -> B free 2 empty\n"
  "11-12 B:1@11 -> B free 2 empty\n",
  "D rejected: needs 7 KV blocks, 6 are usable\n"
  "A ttft 1 tpot 1 e2e 6 queue 0 preempted 0 recomputed 0\n"
  "C ttft 5.5 tpot 1 e2e 6.5 queue 4.5 preempted 0 recomputed 0\n"
  "B ttft 7 tpot 1 e2e 12 queue 6 preempted 0 recomputed 0\n" },

{ "chunks of whole blocks", "trtllm-no-evict", { LIMITS(12, 8) }, { 0 },
  { { 0, 10, 2 }, { 0, 10, 2 }, { 0, 3, 2 } }, true,
  "0-1 A:10@0 -> A free 92 budget\n"
  "1-2 B:10@0 A:1@10 -> B A free 92 budget\n"
  "2-3 C:3@0 B:1@10 -> C B free 95 empty\n"
  "3-4 C:1@3 -> C free 98 empty\n",
  "A ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n"
  "C ttft 3 tpot 1 e2e 4 queue 2 preempted 0 recomputed 0\n" },

{ "chunks of equal progress", "trtllm-no-evict",
  { LIMITS(12, 8), .chunks = SCHED_CHUNKS_EQUAL }, { 0 },
  { { 0, 10, 2 }, { 0, 10, 2 }, { 0, 3, 2 } }, true,
  "0-1 A:4@0 B:4@0 C:3@0 -> C free 92 budget\n"
  "1-2 A:6@4 B:4@4 C:1@3 -> A C free 92 budget\n"
  "2-3 B:2@8 A:1@10 -> B A free 94 empty\n"
  "3-4 B:1@10 -> B free 97 empty\n",
  "C ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "A ttft 2 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "B ttft 3 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n" },

{ "basic chunking under trtllm-no-evict", "trtllm-no-evict", BASIC,
  "0-1 A:8@0\n"
  "1-2 A:2@8 B:5@0 -> A B\n"
  "2-3 C:3@0 A:1@10 B:1@5 -> C A B\n"
  "3-4 A:1@11 C:1@3 -> A C\n", BASIC_OUTCOME },

{ "preemption under trtllm-max-util", "trtllm-max-util", { LIMITS(16, 8), POOL(6) }, { 0 },
  { { 0, 8, 6 }, { 0, 7, 6 }, { 1500, 4, 2 } }, true,
  "0-1 A:8@0 B:7@0 -> A B free 2 empty\n"
  "1-2 A:1@8 B:1@7 -> A B free 1 empty\n"
  "2-3 A:1@9 B:1@8 -> A B free 0 blocks\n"
  "3-4 A:1@10 B:1@9 -> A B free 0 blocks\n"
  "4-5 A:1@11 B:1@10 -> A B free 0 blocks\n"
  "5-6 A:1@12 -> A free 2 preemption\n"
  "6-7 B:12@0* C:4@0 -> B C free 2 empty\n"
  "7-8 C:1@4 -> C free 4 empty\n",
  "A ttft 1 tpot 1 e2e 6 queue 0 preempted 0 recomputed 0\n"
  "B ttft 1 tpot 1.2 e2e 7 queue 0 preempted 1 recomputed 11\n"
  "C ttft 5.5 tpot 1 e2e 6.5 queue 4.5 preempted 0 recomputed 0\n" },

/* B and C have their blocks while there is no room for a chunk; C at 5 and B at 9 give them back
 * without having run. */
{ "over-admission under trtllm-max-util", "trtllm-max-util", { LIMITS(4, 4), POOL(11) }, { 0 },
  { { 0, 20, 6 }, { 1000, 20, 2 }, { 1000, 1, 1 } }, true,
  "0-1 A:4@0 free 6 budget\n"
  "1-2 A:4@4 free 0 budget\n"
  "2-3 A:4@8 free 0 budget\n"
  "3-4 A:4@12 free 0 budget\n"
  "4-5 A:4@16 -> A free 0 budget\n"
  "5-6 A:1@20 -> A free 0 budget\n"
  "6-7 A:1@21 -> A free 0 budget\n"
  "7-8 A:1@22 -> A free 0 budget\n"
  "8-9 A:1@23 -> A free 0 budget\n"
  "9-10 A:1@24 -> A free 4 preemption\n"
  "10-11 B:4@0 free 5 budget\n"
  "11-12 B:4@4 free 5 budget\n"
  "12-13 B:4@8 free 5 budget\n"
  "13-14 B:4@12 free 5 budget\n"
  "14-15 B:4@16 -> B free 5 budget\n"
  "15-16 C:1@0 B:1@20 -> C B free 4 empty\n",
  "A ttft 5 tpot 1 e2e 10 queue 0 preempted 0 recomputed 0\n"
  "C ttft 15 tpot nan e2e 15 queue 14 preempted 0 recomputed 0\n"
  "B ttft 14 tpot 1 e2e 15 queue 9 preempted 0 recomputed 0\n" },

{ "basic chunking under trtllm-max-util", "trtllm-max-util", BASIC,
  "0-1 A:8@0\n"
  "1-2 A:2@8 B:5@0 -> A B\n"
  "2-3 C:3@0 A:1@10 B:1@5 -> C A B\n"
  "3-4 A:1@11 C:1@3 -> A C\n", BASIC_OUTCOME },
{ "basic chunks of equal progress under trtllm-max-util", "trtllm-max-util",
  { LIMITS(8, 8), .chunks = SCHED_CHUNKS_EQUAL }, { 0 },
  { { 0, 10, 3 }, { 0, 5, 2 }, { 1500, 3, 2 } }, false,
  "0-1 A:4@0 B:4@0\n"
  "1-2 A:6@4 B:1@4 -> A B\n"
  "2-3 C:3@0 A:1@10 B:1@5 -> C A B\n"
  "3-4 A:1@11 C:1@3 -> A C\n",
  "B ttft 2 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "A ttft 2 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n"
  "C ttft 1.5 tpot 1 e2e 2.5 queue 0.5 preempted 0 recomputed 0\n" },
{ "chunks of whole blocks under trtllm-max-util", "trtllm-max-util", { LIMITS(12, 8) }, { 0 },
  { { 0, 10, 2 }, { 0, 10, 2 }, { 0, 3, 2 } }, true,
  "0-1 A:10@0 -> A free 93 budget\n"
  "1-2 B:10@0 A:1@10 -> B A free 93 budget\n"
  "2-3 C:3@0 B:1@10 -> C B free 96 empty\n"
  "3-4 C:1@3 -> C free 99 empty\n",
  "A ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n"
  "C ttft 3 tpot 1 e2e 4 queue 2 preempted 0 recomputed 0\n" },
{ "chunks of equal progress under trtllm-max-util", "trtllm-max-util",
  { LIMITS(12, 8), .chunks = SCHED_CHUNKS_EQUAL }, { 0 },
  { { 0, 10, 2 }, { 0, 10, 2 }, { 0, 3, 2 } }, true,
  "0-1 A:4@0 B:4@0 C:3@0 -> C free 93 budget\n"
  "1-2 A:6@4 B:4@4 C:1@3 -> A C free 93 budget\n"
  "2-3 B:2@8 A:1@10 -> B A free 94 empty\n"
  "3-4 B:1@10 -> B free 97 empty\n",
  "C ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "A ttft 2 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "B ttft 3 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n" },

{ "a watermark that is always kept", "sarathi",
  { LIMITS(32, 4), POOL(5), .watermark = 0.2 }, { 0 },
  { { 0, 17, 1 }, { 0, 14, 1 }, { 0, 1, 1 } }, true,
  "0-1 B:14@0 -> B free 1 blocks\n"
  "1-2 C:1@0 -> C free 4 empty\n",
  "A rejected: needs 5 KV blocks, 4 are usable\n"
  "B ttft 1 tpot nan e2e 1 queue 0 preempted 0 recomputed 0\n"
  "C ttft 2 tpot nan e2e 2 queue 1 preempted 0 recomputed 0\n" },

{ "the maximum length", "vllm-0.16", { LIMITS(8, 8), .max_len = 12 }, { 0 },
  { { 0, 10, 30 }, { 0, 12, 1 } }, false,
  "0-1 A:8@0\n"
  "1-2 A:2@8 -> A\n"
  "2-3 A:1@10 -> A\n",
  "B rejected: prompt of 12 tokens, maximum length 12\n"
  "A ttft 2 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n" },

{ "a request that can never fit", "vllm-0.16", { LIMITS(8, 8), POOL(3) }, { 0 },
  { { 0, 10, 4 }, { 0, 10, 3 }, { 5000, 1, 1 } }, true,
  "0-1 B:8@0 free 1 budget\n"
  "1-2 B:2@8 -> B free 0 empty\n"
  "2-3 B:1@10 -> B free 0 empty\n"
  "3-4 B:1@11 -> B free 0 empty\n"
  "5-6 C:1@0 -> C free 2 empty\n",
  "A rejected: needs 4 KV blocks, 3 are usable\n"
  "B ttft 2 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n"
  "C ttft 1 tpot nan e2e 1 queue 0 preempted 0 recomputed 0\n" },

#define TOKENS .block_tok = 1, .num_blocks = 1001
#define RETRACTION \
  { LIMITS(32, 8), .block_tok = 1, .num_blocks = 41 }, { 0 }, \
  { { 0, 2, 14 }, { 0, 3, 13 }, { 500, 1, 13 }, { 1500, 3, 4 } }, true
#define BASIC_TOKENS \
  { LIMITS(8, 8), TOKENS }, { 0 }, { { 0, 10, 3 }, { 0, 5, 2 }, { 1500, 3, 2 } }, false
#define LATENCY_TOKENS \
  { LIMITS(8, 8), TOKENS }, { 2 * MS, MS / 2 }, { { 0, 2, 8 }, { 2900, 20, 2 } }, false
{ "basic chunking under sglang", "sglang", BASIC_TOKENS,
  "0-1 A:8@0\n"
  "1-2 A:2@8 B:5@0 -> A B\n"
  "2-3 C:3@0 -> C\n"
  "3-4 A:1@10 B:1@5 C:1@3 -> A B C\n"
  "4-5 A:1@11 -> A\n",
  "B ttft 2 tpot 2 e2e 4 queue 1 preempted 0 recomputed 0\n"
  "C ttft 1.5 tpot 1 e2e 2.5 queue 0.5 preempted 0 recomputed 0\n"
  "A ttft 2 tpot 1.5 e2e 5 queue 0 preempted 0 recomputed 0\n" },
{ "basic chunking under sglang-mixed", "sglang-mixed", BASIC_TOKENS,
  "0-1 A:8@0\n"
  "1-2 A:2@8 B:5@0 -> A B\n"
  "2-3 C:3@0 A:1@10 B:1@5 -> C A B\n"
  "3-4 A:1@11 C:1@3 -> A C\n", BASIC_OUTCOME },

{ "chunk 8 and latency under sglang", "sglang", LATENCY_TOKENS,
  "0-3 A:2@0 -> A\n"
  "3-9 B:8@0\n"
  "9-15 B:8@8\n"
  "15-19 B:4@16 -> B\n"
  "19-22 A:1@2 B:1@20 -> A B\n"
  "22-24.5 A:1@3 -> A\n"
  "24.5-27 A:1@4 -> A\n"
  "27-29.5 A:1@5 -> A\n"
  "29.5-32 A:1@6 -> A\n"
  "32-34.5 A:1@7 -> A\n"
  "34.5-37 A:1@8 -> A\n",
  "B ttft 16.1 tpot 3 e2e 19.1 queue 0.1 preempted 0 recomputed 0\n"
  "A ttft 3 tpot 4.85714 e2e 37 queue 0 preempted 0 recomputed 0\n" },
{ "chunk 8 and latency under sglang-mixed", "sglang-mixed", LATENCY_TOKENS,
  "0-3 A:2@0 -> A\n"
  "3-9 B:7@0 A:1@2 -> A\n"
  "9-15 B:7@7 A:1@3 -> A\n"
  "15-20.5 B:6@14 A:1@4 -> B A\n"
  "20.5-23.5 A:1@5 B:1@20 -> A B\n"
  "23.5-26 A:1@6 -> A\n"
  "26-28.5 A:1@7 -> A\n"
  "28.5-31 A:1@8 -> A\n",
  "B ttft 17.6 tpot 3 e2e 20.6 queue 0.1 preempted 0 recomputed 0\n"
  "A ttft 3 tpot 4 e2e 31 queue 0 preempted 0 recomputed 0\n" },

{ "blocks under sglang", "sglang", { LIMITS(14, 8) }, { 0 },
  { { 0, 6, 2 }, { 0, 10, 2 }, { 0, 1, 1 } }, true,
  "0-1 A:6@0 B:4@0 -> A free 97 budget\n"
  "1-2 B:6@4 C:1@0 -> B C free 94 empty\n"
  "2-3 A:1@6 B:1@10 -> A B free 95 empty\n",
  "C ttft 2 tpot nan e2e 2 queue 1 preempted 0 recomputed 0\n"
  "A ttft 1 tpot 2 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "B ttft 2 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n" },

{ "the sequence limit under sglang", "sglang", { LIMITS(8, 2) }, { 0 },
  { { 0, 4, 2 }, { 0, 4, 4 }, { 0, 4, 1 } }, true,
  "0-1 A:4@0 B:4@0 -> A B free 98 budget\n"
  "1-2 A:1@4 B:1@4 -> A B free 96 seqs\n"
  "2-3 C:4@0 -> C free 97 empty\n"
  "3-4 B:1@5 -> B free 98 empty\n"
  "4-5 B:1@6 -> B free 98 empty\n",
  "A ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "C ttft 3 tpot nan e2e 3 queue 2 preempted 0 recomputed 0\n"
  "B ttft 1 tpot 1.33333 e2e 5 queue 0 preempted 0 recomputed 0\n" },

/* Of three with 12 outputs the longest prompt goes. */
{ "retraction", "sglang", RETRACTION,
  "0-1 A:2@0 B:3@0 -> A B free 35 empty\n"
  "1-2 C:1@0 -> C free 34 empty\n"
  "2-3 D:3@0 -> D free 31 empty\n"
  "3-4 A:1@2 B:1@3 C:1@1 D:1@3 -> A B C D free 27 empty\n"
  "4-5 A:1@3 B:1@4 C:1@2 D:1@4 -> A B C D free 23 empty\n"
  "5-6 A:1@4 B:1@5 C:1@3 D:1@5 -> A B C D free 19 empty\n"
  "6-7 A:1@5 B:1@6 C:1@4 -> A B C free 22 empty\n"
  "7-8 A:1@6 B:1@7 C:1@5 -> A B C free 19 empty\n"
  "8-9 A:1@7 B:1@8 C:1@6 -> A B C free 16 empty\n"
  "9-10 A:1@8 B:1@9 C:1@7 -> A B C free 13 empty\n"
  "10-11 A:1@9 B:1@10 C:1@8 -> A B C free 10 empty\n"
  "11-12 A:1@10 B:1@11 C:1@9 -> A B C free 7 empty\n"
  "12-13 A:1@11 B:1@12 C:1@10 -> A B C free 4 empty\n"
  "13-14 A:1@12 B:1@13 C:1@11 -> A B C free 1 empty\n"
  "14-15 A:1@13 C:1@12 -> A C free 13 preemption\n"
  "15-16 B:15@0* -> B free 11 empty\n"
  "16-17 A:1@14 -> A free 25 empty\n",
  "D ttft 1.5 tpot 1 e2e 4.5 queue 0.5 preempted 0 recomputed 0\n"
  "C ttft 1.5 tpot 1.08333 e2e 14.5 queue 0.5 preempted 0 recomputed 0\n"
  "B ttft 1 tpot 1.25 e2e 16 queue 0 preempted 1 recomputed 14\n"
  "A ttft 1 tpot 1.23077 e2e 17 queue 0 preempted 0 recomputed 0\n" },
/* D finds no room beside what the others may produce.  C has the fewest outputs and queues behind
 * D. */
{ "retraction, mixed", "sglang-mixed", RETRACTION,
  "0-1 A:2@0 B:3@0 -> A B free 35 empty\n"
  "1-2 C:1@0 A:1@2 B:1@3 -> C A B free 32 empty\n"
  "2-3 A:1@3 B:1@4 C:1@1 -> A B C free 29 blocks\n"
  "3-4 A:1@4 B:1@5 C:1@2 -> A B C free 26 blocks\n"
  "4-5 A:1@5 B:1@6 C:1@3 -> A B C free 23 blocks\n"
  "5-6 A:1@6 B:1@7 C:1@4 -> A B C free 20 blocks\n"
  "6-7 A:1@7 B:1@8 C:1@5 -> A B C free 17 blocks\n"
  "7-8 A:1@8 B:1@9 C:1@6 -> A B C free 14 blocks\n"
  "8-9 A:1@9 B:1@10 C:1@7 -> A B C free 11 blocks\n"
  "9-10 A:1@10 B:1@11 C:1@8 -> A B C free 8 blocks\n"
  "10-11 A:1@11 B:1@12 C:1@9 -> A B C free 5 blocks\n"
  "11-12 A:1@12 B:1@13 C:1@10 -> A B C free 2 blocks\n"
  "12-13 A:1@13 B:1@14 -> A B free 11 preemption\n"
  "13-14 D:3@0 C:12@0* A:1@14 -> D C A free 10 empty\n"
  "14-15 D:1@3 C:1@12 -> D C free 23 empty\n"
  "15-16 D:1@4 -> D free 35 empty\n"
  "16-17 D:1@5 -> D free 34 empty\n",
  "B ttft 1 tpot 1 e2e 13 queue 0 preempted 0 recomputed 0\n"
  "A ttft 1 tpot 1 e2e 14 queue 0 preempted 0 recomputed 0\n"
  "C ttft 1.5 tpot 1.08333 e2e 14.5 queue 0.5 preempted 1 recomputed 11\n"
  "D ttft 12.5 tpot 1 e2e 15.5 queue 11.5 preempted 0 recomputed 0\n" },
/* Without room for its outputs and a block more it is never admitted. */
{ "a request that can never fit sglang", "sglang", { LIMITS(8, 8), POOL(4) }, { 0 },
  { { 0, 10, 3 }, { 0, 9, 3 } }, true,
  "0-1 B:8@0 free 2 budget\n"
  "1-2 B:1@8 -> B free 1 empty\n"
  "2-3 B:1@9 -> B free 1 empty\n"
  "3-4 B:1@10 -> B free 1 empty\n",
  "A rejected: needs 5 KV blocks, 4 are usable\n"
  "B ttft 2 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n" },
};

#define PRIORITY .order = SCHED_PRIORITY

static const struct { struct scenario c; int32_t priority[8]; } by_priority[] = {
{ { "a victim already planned", "vllm-0.16", { LIMITS(16, 8), POOL(4), PRIORITY }, { 0 },
  { { 0, 6, 4 }, { 500, 8, 3 }, { 1200, 3, 2 } }, true,
  "0-1 A:6@0 -> A free 2 empty\n"
  "1-2 A:1@6 B:8@0 -> A B free 0 empty\n"
  "2-3 B:1@8 -> B free 1 preemption\n"
  "3-4 B:1@9 C:3@0 -> B C free 0 blocks\n"
  "4-5 C:1@3 A:8@0* -> C A free 1 empty\n"
  "5-6 A:1@8 -> A free 1 empty\n",
  "B ttft 1.5 tpot 1 e2e 3.5 queue 0.5 preempted 0 recomputed 0\n"
  "C ttft 2.8 tpot 1 e2e 3.8 queue 1.8 preempted 0 recomputed 0\n"
  "A ttft 1 tpot 1.66667 e2e 6 queue 0 preempted 1 recomputed 7\n" }, { 5, 1, 3 } },

{ { "an empty iteration", "vllm-0.16", { LIMITS(16, 8), POOL(6), PRIORITY }, { 0 },
  { { 0, 8, 6 }, { 500, 8, 6 }, { 2500, 4, 2 } }, true,
  "0-1 A:8@0 -> A free 4 empty\n"
  "1-2 A:1@8 B:8@0 -> A B free 1 empty\n"
  "2-3 A:1@9 B:1@8 -> A B free 0 empty\n"
  "3-4 A:1@10 B:1@9 -> A B free 0 blocks\n"
  "4-5 A:1@11 B:1@10 -> A B free 0 blocks\n"
  "5-5 free 3 preemption\n"
  "5-6 B:1@11 C:4@0 -> B C free 2 blocks\n"
  "6-7 B:1@12 C:1@4 -> B C free 0 blocks\n"
  "7-8 A:13@0* -> A free 2 empty\n",
  "B ttft 1.5 tpot 1 e2e 6.5 queue 0.5 preempted 0 recomputed 0\n"
  "C ttft 3.5 tpot 1 e2e 4.5 queue 2.5 preempted 0 recomputed 0\n"
  "A ttft 1 tpot 1.4 e2e 8 queue 0 preempted 1 recomputed 12\n" }, { 5, 1, 0 } },
};

static struct replay replay_of(const struct trace *t, const struct sched_limits *lim,
			       const char *policy, struct cost_formula *cost, struct store *s)
{
	s->n_usable = lim->num_blocks - 1;
	s->max_batched_tok = lim->max_batched_tok;
	s->long_prefill_tok = lim->long_prefill_tok;
	s->skips = policy_find(policy)->rules.whole_chunks;
	s->prefill_first = s->skips || !strcmp(policy, "sarathi");
	return (struct replay){ .trace = t, .policy = policy_find(policy), .limits = *lim,
				.backend = backend_find("cost"), .self = cost, .store = s };
}

/* priority: by request, or NULL. */
static void run_scenario(const struct scenario *c, const int32_t *priority,
			 struct replay_result *res)
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

/* 1e-9 relative, or zero. */
static bool near(double got, double want)
{
	bool same = fabs(got - want) <= 1e-9 * fabs(want);

	if (!same)
		diag("got %.17g, want %.17g", got, want);
	return same;
}

/* In milliseconds: chunk 8 of the latency scenario. */
static void worked_figures(const struct replay_result *r)
{
	const struct series *ttft = &r->latency[LATENCY_TTFT], *tpot = &r->latency[LATENCY_TPOT],
			    *itl = &r->latency[LATENCY_ITL];

	ok(near(series_percentile(ttft, 50), 10.3 * MS) &&
	   near(series_percentile(ttft, 99), 17.454 * MS), "TTFT percentiles are the worked ones");
	ok(near(series_mean(tpot), 3.5 * MS) && near(series_percentile(tpot, 50), 3.5 * MS) &&
	   near(series_percentile(tpot, 99), 3.99 * MS), "TPOT figures are the worked ones");
	is_int((long long)itl->n, 8, "gaps are pooled over requests");
	ok(near(series_mean(itl), 3.875 * MS) && near(series_percentile(itl, 50), 3.0 * MS) &&
	   near(series_percentile(itl, 90), 6.0 * MS), "ITL figures are the worked ones");
	ok(near((double)r->ok / ((double)r->end_ns / MS), 2 / 31.0) && r->output_tok == 10,
	   "throughput is the worked one");
}

/* ---- properties ---- */

struct kind {
	const char *name;
	bool tight, cap, cache;
	const char *policy;
	int order, chunks;
};

/* Prompts in blocks of 8 that often begin alike. */
static void random_blocks(struct trace *t, struct rng *r)
{
	for (size_t i = 0; i < t->n; i++) {
		uint64_t id = 0;

		t->req[i].block = t->n_block;
		t->req[i].n_block = (t->req[i].prompt_tok + 7) / 8;
		for (uint32_t k = 0; k < t->req[i].n_block; k++)
			t->block[t->n_block++] = id = rng_mix(id + rng_below(r, 5) / 4);
	}
	t->block_tok = 8;
}

static void random_trace(struct trace *t, struct request *req, uint64_t *block, struct rng *r)
{
	int64_t now = 0;

	t->req = req;
	t->block = block;
	t->n = 1 + rng_below(r, 60);
	t->name = (char *)(uintptr_t)"random";
	for (size_t i = 0; i < t->n; i++) {
		now += (int64_t)rng_below(r, 3 * MS) * (int64_t)rng_below(r, 2);
		req[i] = (struct request){ .arrival_ns = now,
					   .prompt_tok = 1 + (uint32_t)rng_below(r, 90),
					   .output_tok = 1 + (uint32_t)rng_below(r, 40),
					   .line = i + 1 };
	}
	for (size_t i = 0; i < t->n; i++)
		req[i].priority = (int32_t)rng_below(r, 3) - 1;
	if (rng_below(r, 2))
		random_blocks(t, r);
}

static struct sched_limits random_limits(const struct trace *t, struct rng *r,
					 const struct kind *kind)
{
	const struct policy *p = policy_find(kind->policy);
	struct sched_limits l = { .max_seqs = 1 + (int64_t)rng_below(r, 16),
				  .prefix_cache = kind->cache, .order = kind->order,
				  .chunks = kind->chunks,
				  .watermark = p->watermark, .rules = p->rules };
	int64_t most = 0;

	l.max_batched_tok = l.max_seqs + (int64_t)rng_below(r, 60) + 90 * l.rules.whole_prompts;
	l.block_tok = 1 + (int64_t)rng_below(r, 16);
	if (l.rules.whole_chunks && l.max_batched_tok < l.block_tok)
		l.max_batched_tok = l.block_tok;
	l.long_prefill_tok = kind->cap ? 1 + (int64_t)rng_below(r, 12) : 0;
	if (!kind->tight) {
		if (sched_ample_blocks(t, &l, &l.num_blocks, NULL))
			bail_out("out of memory");
		return l;
	}
	for (size_t i = 0; i < t->n; i++) {
		int64_t slots = t->req[i].prompt_tok + t->req[i].output_tok - !l.rules.to_completion;
		int64_t need = (slots + l.block_tok - 1) / l.block_tok;

		most = need > most ? need : most;
	}
	most += l.rules.spare_block * 2;	/* and the last output */
	if (l.watermark > 0)		/* 1 %: nobody is rejected for it */
		most += most / 50 + 1;
	l.num_blocks = 1 + most + (int64_t)rng_below(r, (uint64_t)most + 1);
	return l;
}

/* The scheduler alone, without clock: all blocks come back. */
static bool blocks_come_back(const struct trace *t, const struct sched_limits *l,
			     const struct policy *p)
{
	struct sched *s;
	bool back;

	if (sched_open(&s, t, l, NULL))
		bail_out("out of memory");
	for (size_t i = 0; i < t->n; i++)
		sched_arrive(s, (uint32_t)i);
	while (s->n_waiting || s->n_running) {
		int64_t owned = 0;

		sched_begin(s);
		p->compose(s);
		for (size_t i = 0; i < s->n_running; i++) {
			const struct sched_seq *q = &s->seq[s->running[i]];

			owned += q->n_block;
			bool whole = p->rules.keep_watermark ||	/* prompts are reserved whole */
				     !strcmp(p->name, "trtllm-max-util");
			uint32_t tok = p->rules.whole_prompts ? s->longest : p->rules.to_completion ? q->goal :
				       whole && q->comp < q->admitted ? q->admitted : q->comp;

			if (q->n_block != (tok + l->block_tok - 1) / l->block_tok)
				owned = -1000000;	/* not what its positions need */
		}
		if (l->prefix_cache ? owned < s->pool.n_usable - s->pool.n_free :
				      owned != s->pool.n_usable - s->pool.n_free)
			break;		/* shared blocks have several owners */
		sched_complete(s);
	}
	back = s->pool.n_free == s->pool.n_usable && s->pool.n_usable == l->num_blocks - 1;
	sched_close(s);
	return back;
}

struct totals {
	int64_t bad_tokens, bad_outputs, unfinished, not_same, leaked, preempted, iterations,
		failed, cached;
	struct store sum;
};

static void one_workload(struct rng *r, const struct kind *kind, struct totals *sum)
{
	struct request req[60];
	uint64_t block[60 * 12];
	struct trace t = { 0 };
	struct sched_limits lim;
	struct cost_formula cost = { MS, 20000 };
	struct store s[2] = { { .quiet = true }, { .quiet = true } };
	struct replay_result res;
	int64_t want = 0, outputs = 0;

	random_trace(&t, req, block, r);
	lim = random_limits(&t, r, kind);
	for (size_t i = 0; i < t.n; i++) {
		want += req[i].prompt_tok + req[i].output_tok - 1;
		outputs += req[i].output_tok;
	}
	for (int k = 0; k < 2; k++) {
		struct replay cfg = replay_of(&t, &lim, kind->policy, &cost, &s[k]);

		sum->failed += replay_run(&cfg, &res, NULL) != AR_OK;
		sum->unfinished += res.ok != (int64_t)t.n;
		sum->bad_tokens += res.recomputed_tok != s[k].recomputed;
		replay_result_release(&res);
	}
	sum->bad_tokens += s[0].n_tok - s[0].recomputed + res.cached_tok != want ||
			   (!kind->tight && s[0].recomputed) || (!kind->cache && res.cached_tok);
	sum->cached += res.cached_tok;
	sum->bad_outputs += s[0].n_emit != outputs;
	sum->not_same += s[0].digest != s[1].digest;
	sum->leaked += !blocks_come_back(&t, &lim, policy_find(kind->policy));
	sum->preempted += s[0].preempted;
	sum->iterations += s[0].n_iter;
	sum->sum.bad_clock += s[0].bad_clock;
	sum->sum.bad_partial += s[0].bad_partial;
	sum->sum.starved += s[0].starved;
	sum->sum.over_budget += s[0].over_budget;
	sum->sum.empty += s[0].empty;
	sum->sum.bad_blocks += s[0].bad_blocks;
	sum->sum.bad_chunk += s[0].bad_chunk;
}

static void properties(uint64_t seed, const struct kind *how)
{
	const char *kind = how->name;
	const struct sched_rules rules = policy_find(how->policy)->rules;
	struct rng r = { seed };
	struct totals t = { 0 };

	for (int i = 0; i < 200; i++)
		one_workload(&r, how, &t);
	diag("%s: 200 workloads, %" PRId64 " iterations, %" PRId64 " preemptions, %" PRId64
	     " tokens cached", kind, t.iterations, t.preempted, t.cached);
	is_int(t.failed + t.unfinished, 0, "%s: every request finishes", kind);
	is_int(t.bad_tokens, 0, "%s: tokens run are the sum of P + O - 1, and the recomputed, less "
	       "the cached", kind);
	is_int(t.bad_outputs, 0, "%s: every request gets its outputs", kind);
	is_int(t.sum.bad_partial, 0, "%s: %s", kind, how->cap ? "no chunk exceeds the cap" :
	       "at most one partial prefill, and it comes last");
	ok(!t.sum.starved || how->order == SCHED_PRIORITY,
	   "%s: every running sequence is in the batch but by priority", kind);
	is_int(t.sum.over_budget, 0, "%s: the token budget holds", kind);
	ok(!t.sum.empty || how->tight, "%s: no iteration is empty in an ample pool", kind);
	is_int(how->order == SCHED_FCFS && !strncmp(how->policy, "vllm", 4) ? t.sum.empty : 0, 0,
	       "%s: nor at all in vLLM's order of arrival", kind);
	is_int(t.sum.bad_clock, 0, "%s: the clock only moves forward", kind);
	is_int(t.leaked + t.sum.bad_blocks, 0, "%s: blocks are owned as needed and all come back",
	       kind);
	is_int(t.sum.bad_chunk, 0, "%s: chunks of a request are numbered in order", kind);
	is_int(t.not_same, 0, "%s: a second run is the same", kind);
	ok((how->tight && !rules.to_completion && !rules.whole_prompts) == (t.preempted > 0),
	   "%s: preemptions happen where blocks are short and not all reserved", kind);
	ok(how->cache == (t.cached > 0), "%s: prefixes are found with a cache only", kind);
}

static const struct kind kinds[] = {
	{ "ample pool", false, false, false, "vllm-0.16", SCHED_FCFS, 0 },
	{ "tight pool", true, false, false, "vllm-0.16", SCHED_FCFS, 0 },
	{ "ample pool, capped", false, true, false, "vllm-0.16", SCHED_FCFS, 0 },
	{ "tight pool, capped", true, true, false, "vllm-0.16", SCHED_FCFS, 0 },
	{ "ample pool, cache", false, false, true, "vllm-0.16", SCHED_FCFS, 0 },
	{ "tight pool, cache", true, false, true, "vllm-0.16", SCHED_FCFS, 0 },
	{ "tight pool, capped, cache", true, true, true, "vllm-0.16", SCHED_FCFS, 0 },
	{ "0.19, tight pool", true, false, false, "vllm-0.19", SCHED_FCFS, 0 },
	{ "0.19, tight pool, capped, cache", true, true, true, "vllm-0.19", SCHED_FCFS, 0 },
	{ "orca, ample pool", false, false, false, "orca", SCHED_FCFS, 0 },
	{ "orca, tight pool", true, false, false, "orca", SCHED_FCFS, 0 },
	{ "trtllm, ample pool", false, false, false, "trtllm-no-evict", SCHED_FCFS, 0 },
	{ "trtllm, tight pool", true, false, false, "trtllm-no-evict", SCHED_FCFS, 0 },
	{ "trtllm, tight pool, equal chunks", true, false, false, "trtllm-no-evict", SCHED_FCFS,
	  SCHED_CHUNKS_EQUAL },
	{ "sglang, ample pool", false, false, false, "sglang", SCHED_FCFS, 0 },
	{ "sglang, tight pool", true, false, false, "sglang", SCHED_FCFS, 0 },
	{ "sglang-mixed, ample pool", false, false, false, "sglang-mixed", SCHED_FCFS, 0 },
	{ "sglang-mixed, tight pool", true, false, false, "sglang-mixed", SCHED_FCFS, 0 },
	{ "trtllm-max-util, ample pool", false, false, false, "trtllm-max-util", SCHED_FCFS, 0 },
	{ "trtllm-max-util, tight pool", true, false, false, "trtllm-max-util", SCHED_FCFS, 0 },
	{ "trtllm-max-util, tight pool, equal chunks", true, false, false, "trtllm-max-util",
	  SCHED_FCFS, SCHED_CHUNKS_EQUAL },
	{ "sarathi, ample pool", false, false, false, "sarathi", SCHED_FCFS, 0 },
	{ "sarathi, tight pool", true, false, false, "sarathi", SCHED_FCFS, 0 },
	{ "vidur-sarathi, tight pool", true, false, false, "vidur-sarathi", SCHED_FCFS, 0 },
	{ "priority, tight pool", true, false, false, "vllm-0.16", SCHED_PRIORITY, 0 },
	{ "priority, tight pool, capped, cache", true, true, true, "vllm-0.16", SCHED_PRIORITY, 0 },
	{ "0.19, priority, tight pool", true, false, false, "vllm-0.19", SCHED_PRIORITY, 0 },
};

int main(void)
{
	plan(0);
	for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
		struct replay_result res;

		run_scenario(&scenarios[i], NULL, &res);
		if (!strcmp(scenarios[i].name, "chunk 8 and latency"))
			worked_figures(&res);
		replay_result_release(&res);
	}
	for (size_t i = 0; i < sizeof by_priority / sizeof *by_priority; i++) {
		struct replay_result res;

		run_scenario(&by_priority[i].c, by_priority[i].priority, &res);
		replay_result_release(&res);
	}
	ok(!policy_find("vllm"), "a policy without its version is not known");
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		properties(i + 1, &kinds[i]);
	return done_testing();
}
