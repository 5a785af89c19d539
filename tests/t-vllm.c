/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's policies, iteration by iteration, against schedules that were observed on the engine. */
#include "config.h"
#include "tests/policy-case.h"

#include <math.h>
#include <string.h>

#include "tests/tap.h"

/* clang-format off */
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

/* Planned at 0, 0, 1, 2 and 3: C, which arrives at 1.5, misses the third. */
{ "asynchronous scheduling", "vllm-0.16", { LIMITS(8, 8), .async = true }, { 0 },
  { { 0, 10, 4 }, { 0, 5, 2 }, { 1500, 3, 2 } }, true,
  "0-1 A:8@0 free 98 budget\n"
  "1-2 A:2@8 B:5@0 -> A B free 95 empty\n"
  "2-3 A:1@10 B:1@5 -> A B free 95 empty\n"
  "3-4 A:1@11 C:3@0 -> A C free 94 empty\n"
  "4-5 A:1@12 C:1@3 -> A C free 95 empty\n",
  "B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n"
  "A ttft 2 tpot 1 e2e 5 queue 0 preempted 0 recomputed 0\n"
  "C ttft 2.5 tpot 1 e2e 3.5 queue 1.5 preempted 0 recomputed 0\n" },
{ "the same in step", "vllm-0.16", { LIMITS(8, 8) }, { 0 },
  { { 0, 10, 4 }, { 0, 5, 2 }, { 1500, 3, 2 } }, true,
  "0-1 A:8@0 free 98 budget\n"
  "1-2 A:2@8 B:5@0 -> A B free 95 empty\n"
  "2-3 A:1@10 B:1@5 C:3@0 -> A B C free 94 empty\n"
  "3-4 A:1@11 C:1@3 -> A C free 96 empty\n"
  "4-5 A:1@12 -> A free 96 empty\n",
  "B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n"
  "C ttft 1.5 tpot 1 e2e 2.5 queue 0.5 preempted 0 recomputed 0\n"
  "A ttft 2 tpot 1 e2e 5 queue 0 preempted 0 recomputed 0\n" },
/* B has to go while its last token is on its way, and finishes all the same. */
{ "preempted at the end", "vllm-0.16", { LIMITS(16, 8), POOL(4), .async = true }, { 0 },
  { { 0, 7, 4 }, { 0, 7, 2 }, { 0, 1, 1 } }, true,
  "0-1 A:7@0 B:7@0 -> A B free 0 blocks\n"
  "1-2 A:1@7 B:1@7 -> A B free 0 blocks\n"
  "2-3 A:1@8 -> A free 1 preemption\n"
  "3-4 A:1@9 C:1@0 -> A C free 0 empty\n",
  "B ttft 1 tpot 1 e2e 2 queue 0 preempted 1 recomputed 0\n"
  "A ttft 1 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n"
  "C ttft 4 tpot nan e2e 4 queue 3 preempted 0 recomputed 0\n" },
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

{ { "preempted at the end by priority", "vllm-0.16",
  { LIMITS(16, 8), POOL(4), PRIORITY, .async = true }, { 0 },
  { { 0, 7, 4 }, { 0, 7, 2 }, { 0, 1, 1 } }, true,
  "0-1 A:7@0 B:7@0 -> A B free 0 blocks\n"
  "1-2 A:1@7 B:1@7 -> A B free 0 blocks\n"
  "2-3 A:1@8 -> A free 1 preemption\n"
  "3-4 A:1@9 C:1@0 -> A C free 0 empty\n",
  "B ttft 1 tpot 1 e2e 2 queue 0 preempted 1 recomputed 0\n"
  "A ttft 1 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n"
  "C ttft 4 tpot nan e2e 4 queue 3 preempted 0 recomputed 0\n" }, { 0, 1, 2 } },

{ { "a victim of its own ends the plan", "vllm-0.24",
  { LIMITS(16, 8), POOL(3), PRIORITY }, { 0 },
  { { 0, 1, 3 }, { 0, 3, 3 }, { 1000, 2, 2 } }, false,
  "0-1 A:1@0 B:3@0 -> A B\n"
  "1-2 A:1@1 B:1@3 C:2@0 -> A B C\n"
  "2-3 A:1@2 -> A\n"
  "3-4 C:1@2 B:5@0* -> C B\n",
  "A ttft 1 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "C ttft 1 tpot 2 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "B ttft 1 tpot 1.5 e2e 4 queue 0 preempted 1 recomputed 4\n" }, { 1, 2, 0 } },

{ { "a victim of its own makes room for others", "vllm-0.33",
  { LIMITS(16, 8), POOL(3), PRIORITY }, { 0 },
  { { 0, 1, 3 }, { 0, 3, 3 }, { 1000, 2, 2 } }, false,
  "0-1 A:1@0 B:3@0 -> A B\n"
  "1-2 A:1@1 B:1@3 C:2@0 -> A B C\n"
  "2-3 A:1@2 C:1@2 -> A C\n"
  "3-4 B:5@0* -> B\n",
  "A ttft 1 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "C ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "B ttft 1 tpot 1.5 e2e 4 queue 0 preempted 1 recomputed 4\n" }, { 1, 2, 0 } },

{ { "a victim that was passed over hides the next", "vllm-0.24",
  { LIMITS(16, 8), POOL(4), PRIORITY, .async = true }, { 0 },
  { { 0, 5, 3 }, { 1000, 4, 2 }, { 1000, 2, 2 } }, false,
  "0-1 A:5@0 -> A\n"
  "1-2 A:1@5 -> A\n"
  "2-3 A:1@6 B:4@0 C:2@0 -> A B C\n"
  "3-4 B:1@4 -> B\n"
  "4-5 C:1@2 -> C\n",
  "A ttft 1 tpot 1 e2e 3 queue 0 preempted 1 recomputed 0\n"
  "B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n"
  "C ttft 2 tpot 2 e2e 4 queue 1 preempted 0 recomputed 0\n" }, { 2, 0, 1 } },

{ { "... which is planned", "vllm-0.33",
  { LIMITS(16, 8), POOL(4), PRIORITY, .async = true }, { 0 },
  { { 0, 5, 3 }, { 1000, 4, 2 }, { 1000, 2, 2 } }, false,
  "0-1 A:5@0 -> A\n"
  "1-2 A:1@5 -> A\n"
  "2-3 A:1@6 B:4@0 C:2@0 -> A B C\n"
  "3-4 B:1@4 C:1@2 -> B C\n",
  "A ttft 1 tpot 1 e2e 3 queue 0 preempted 1 recomputed 0\n"
  "B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n"
  "C ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n" }, { 2, 0, 1 } },
};
/* clang-format on */

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
		   near(series_percentile(ttft, 99), 17.454 * MS),
	   "TTFT percentiles are the worked ones");
	ok(near(series_mean(tpot), 3.5 * MS) && near(series_percentile(tpot, 50), 3.5 * MS) &&
		   near(series_percentile(tpot, 99), 3.99 * MS),
	   "TPOT figures are the worked ones");
	is_int((long long)itl->n, 8, "gaps are pooled over requests");
	ok(near(series_mean(itl), 3.875 * MS) && near(series_percentile(itl, 50), 3.0 * MS) &&
		   near(series_percentile(itl, 90), 6.0 * MS),
	   "ITL figures are the worked ones");
	ok(near((double)r->ok / ((double)r->end_ns / MS), 2 / 31.0) && r->output_tok == 10,
	   "throughput is the worked one");
}

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
	ok(policy_find("vllm") == policy_find("vllm-0.33"), "the name alone is the newest version");
	return done_testing();
}
