/* SPDX-License-Identifier: Apache-2.0 */
/* The policies of other engines, iteration by iteration.  The schedules of Sarathi-Serve, Vidur and
 * Orca were observed on their code.  The schedules of TensorRT-LLM and SGLang were derived from
 * their rules by hand. */
#include "config.h"
#include "tests/policy-case.h"

#include <math.h>
#include <stdio.h>

#include "tests/tap.h"

#define TOKENS .block_tok = 1, .num_blocks = 1001
#define RETRACTION \
	{ LIMITS(32, 8), .block_tok = 1, .num_blocks = 41 }, { 0 }, \
		{ { 0, 2, 14 }, { 0, 3, 13 }, { 500, 1, 13 }, { 1500, 3, 4 } }, true
#define BASIC_TOKENS \
	{ LIMITS(8, 8), TOKENS }, { 0 }, { { 0, 10, 3 }, { 0, 5, 2 }, { 1500, 3, 2 } }, false
#define LATENCY_TOKENS \
	{ LIMITS(8, 8), TOKENS }, { 2 * MS, MS / 2 }, { { 0, 2, 8 }, { 2900, 20, 2 } }, false

/* clang-format off */
static const struct scenario scenarios[] = {
{ "preemption under sarathi", "sarathi", { LIMITS(16, 8), POOL(6), .watermark = 0.01 }, { 0 },
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

{ "preemption under vidur-sarathi", "vidur-sarathi",
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

/* Each takes 3 of 7 blocks, as many as the longest that runs. */
{ "blocks for the longest", "orca", { LIMITS(15, 8), POOL(7) }, { 0 },
  { { 0, 10, 3 }, { 0, 4, 2 }, { 0, 1, 1 }, { 0, 16, 1 } }, true,
  "0-1 A:10@0 B:4@0 -> A B free 1 blocks\n"
  "1-2 A:1@10 B:1@4 -> A B free 1 blocks\n"
  "2-3 A:1@11 C:1@0 -> A C free 1 empty\n",
  "D rejected: prompt of 16 tokens exceeds the budget of 15 per iteration\n"
  "B ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "A ttft 1 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "C ttft 3 tpot nan e2e 3 queue 2 preempted 0 recomputed 0\n" },

{ "a maximum length that can never fit", "orca", { LIMITS(15, 8), POOL(2), .max_len = 9 }, { 0 },
  { { 0, 4, 2 } }, true,
  "",
  "A rejected: needs 3 KV blocks, 2 are usable\n" },

{ "blocks to completion", "trtllm-no-evict-1.2", { LIMITS(16, 8), POOL(6) },
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

{ "chunks of whole blocks", "trtllm-no-evict-1.2", { LIMITS(12, 8) }, { 0 },
  { { 0, 10, 2 }, { 0, 10, 2 }, { 0, 3, 2 } }, true,
  "0-1 A:10@0 -> A free 92 budget\n"
  "1-2 B:10@0 A:1@10 -> B A free 92 budget\n"
  "2-3 C:3@0 B:1@10 -> C B free 95 empty\n"
  "3-4 C:1@3 -> C free 98 empty\n",
  "A ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n"
  "C ttft 3 tpot 1 e2e 4 queue 2 preempted 0 recomputed 0\n" },

{ "chunks of equal progress", "trtllm-no-evict-1.2",
  { LIMITS(12, 8), .chunks = SCHED_CHUNKS_EQUAL }, { 0 },
  { { 0, 10, 2 }, { 0, 10, 2 }, { 0, 3, 2 } }, true,
  "0-1 A:4@0 B:4@0 C:3@0 -> C free 92 budget\n"
  "1-2 A:6@4 B:4@4 C:1@3 -> A C free 92 budget\n"
  "2-3 B:2@8 A:1@10 -> B A free 94 empty\n"
  "3-4 B:1@10 -> B free 97 empty\n",
  "C ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "A ttft 2 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "B ttft 3 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n" },

{ "basic chunking under trtllm-no-evict", "trtllm-no-evict-1.2", BASIC,
  "0-1 A:8@0\n"
  "1-2 A:2@8 B:5@0 -> A B\n"
  "2-3 C:3@0 A:1@10 B:1@5 -> C A B\n"
  "3-4 A:1@11 C:1@3 -> A C\n", BASIC_OUTCOME },

{ "preemption under trtllm-max-util", "trtllm-max-util-1.2", { LIMITS(16, 8), POOL(6) }, { 0 },
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
{ "over-admission under trtllm-max-util", "trtllm-max-util-1.2", { LIMITS(4, 4), POOL(11) }, { 0 },
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

{ "basic chunking under trtllm-max-util", "trtllm-max-util-1.2", BASIC,
  "0-1 A:8@0\n"
  "1-2 A:2@8 B:5@0 -> A B\n"
  "2-3 C:3@0 A:1@10 B:1@5 -> C A B\n"
  "3-4 A:1@11 C:1@3 -> A C\n", BASIC_OUTCOME },
{ "basic chunks of equal progress under trtllm-max-util", "trtllm-max-util-1.2",
  { LIMITS(8, 8), .chunks = SCHED_CHUNKS_EQUAL }, { 0 },
  { { 0, 10, 3 }, { 0, 5, 2 }, { 1500, 3, 2 } }, false,
  "0-1 A:4@0 B:4@0\n"
  "1-2 A:6@4 B:1@4 -> A B\n"
  "2-3 C:3@0 A:1@10 B:1@5 -> C A B\n"
  "3-4 A:1@11 C:1@3 -> A C\n",
  "B ttft 2 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "A ttft 2 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n"
  "C ttft 1.5 tpot 1 e2e 2.5 queue 0.5 preempted 0 recomputed 0\n" },
{ "chunks of whole blocks under trtllm-max-util", "trtllm-max-util-1.2", { LIMITS(12, 8) }, { 0 },
  { { 0, 10, 2 }, { 0, 10, 2 }, { 0, 3, 2 } }, true,
  "0-1 A:10@0 -> A free 93 budget\n"
  "1-2 B:10@0 A:1@10 -> B A free 93 budget\n"
  "2-3 C:3@0 B:1@10 -> C B free 96 empty\n"
  "3-4 C:1@3 -> C free 99 empty\n",
  "A ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n"
  "C ttft 3 tpot 1 e2e 4 queue 2 preempted 0 recomputed 0\n" },
{ "chunks of equal progress under trtllm-max-util", "trtllm-max-util-1.2",
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

{ "basic chunking under sglang", "sglang-0.5.21", BASIC_TOKENS,
  "0-1 A:8@0\n"
  "1-2 A:2@8 B:5@0 -> A B\n"
  "2-3 C:3@0 -> C\n"
  "3-4 A:1@10 B:1@5 C:1@3 -> A B C\n"
  "4-5 A:1@11 -> A\n",
  "B ttft 2 tpot 2 e2e 4 queue 1 preempted 0 recomputed 0\n"
  "C ttft 1.5 tpot 1 e2e 2.5 queue 0.5 preempted 0 recomputed 0\n"
  "A ttft 2 tpot 1.5 e2e 5 queue 0 preempted 0 recomputed 0\n" },
{ "basic chunking under sglang-mixed", "sglang-mixed-0.5.21", BASIC_TOKENS,
  "0-1 A:8@0\n"
  "1-2 A:2@8 B:5@0 -> A B\n"
  "2-3 C:3@0 A:1@10 B:1@5 -> C A B\n"
  "3-4 C:1@3 A:1@11 -> C A\n",
  "B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n"
  "C ttft 1.5 tpot 1 e2e 2.5 queue 0.5 preempted 0 recomputed 0\n"
  "A ttft 2 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n" },

{ "chunk 8 and latency under sglang", "sglang-0.5.21", LATENCY_TOKENS,
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
{ "chunk 8 and latency under sglang-mixed", "sglang-mixed-0.5.21", LATENCY_TOKENS,
  "0-3 A:2@0 -> A\n"
  "3-9 B:7@0 A:1@2 -> A\n"
  "9-15 B:7@7 A:1@3 -> A\n"
  "15-20.5 B:6@14 A:1@4 -> B A\n"
  "20.5-23.5 B:1@20 A:1@5 -> B A\n"
  "23.5-26 A:1@6 -> A\n"
  "26-28.5 A:1@7 -> A\n"
  "28.5-31 A:1@8 -> A\n",
  "B ttft 17.6 tpot 3 e2e 20.6 queue 0.1 preempted 0 recomputed 0\n"
  "A ttft 3 tpot 4 e2e 31 queue 0 preempted 0 recomputed 0\n" },

{ "blocks under sglang", "sglang-0.5.21", { LIMITS(14, 8) }, { 0 },
  { { 0, 6, 2 }, { 0, 10, 2 }, { 0, 1, 1 } }, true,
  "0-1 A:6@0 B:4@0 -> A free 97 budget\n"
  "1-2 B:6@4 C:1@0 -> B C free 94 empty\n"
  "2-3 A:1@6 B:1@10 -> A B free 95 empty\n",
  "C ttft 2 tpot nan e2e 2 queue 1 preempted 0 recomputed 0\n"
  "A ttft 1 tpot 2 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "B ttft 2 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n" },

/* The place of A is free one iteration after A has finished. */
{ "the sequence limit under sglang", "sglang-0.5.21", { LIMITS(8, 2) }, { 0 },
  { { 0, 4, 2 }, { 0, 4, 4 }, { 0, 4, 1 } }, true,
  "0-1 A:4@0 B:4@0 -> A B free 98 budget\n"
  "1-2 A:1@4 B:1@4 -> A B free 96 seqs\n"
  "2-3 B:1@5 -> B free 98 seqs\n"
  "3-4 C:4@0 -> C free 97 empty\n"
  "4-5 B:1@6 -> B free 98 empty\n",
  "A ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "C ttft 4 tpot nan e2e 4 queue 3 preempted 0 recomputed 0\n"
  "B ttft 1 tpot 1.33333 e2e 5 queue 0 preempted 0 recomputed 0\n" },

/* Of three with 12 outputs the longest prompt goes. */
{ "retraction", "sglang-0.5.21", RETRACTION,
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
  "15-16 B:15@0* -> B free 11 blocks\n"
  "16-17 A:1@14 -> A free 25 empty\n",
  "D ttft 1.5 tpot 1 e2e 4.5 queue 0.5 preempted 0 recomputed 0\n"
  "C ttft 1.5 tpot 1.08333 e2e 14.5 queue 0.5 preempted 0 recomputed 0\n"
  "B ttft 1 tpot 1.25 e2e 16 queue 0 preempted 1 recomputed 14\n"
  "A ttft 1 tpot 1.23077 e2e 17 queue 0 preempted 0 recomputed 0\n" },
/* D finds no room beside the others' possible outputs.  C has the fewest outputs and queues behind
 * D.  It is charged all its outputs again, so that it waits for A to end. */
{ "retraction, mixed", "sglang-mixed-0.5.21", RETRACTION,
  "0-1 A:2@0 B:3@0 -> A B free 35 empty\n"
  "1-2 C:1@0 A:1@2 B:1@3 -> C A B free 32 empty\n"
  "2-3 C:1@1 A:1@3 B:1@4 -> C A B free 29 blocks\n"
  "3-4 C:1@2 A:1@4 B:1@5 -> C A B free 26 blocks\n"
  "4-5 C:1@3 A:1@5 B:1@6 -> C A B free 23 blocks\n"
  "5-6 C:1@4 A:1@6 B:1@7 -> C A B free 20 blocks\n"
  "6-7 C:1@5 A:1@7 B:1@8 -> C A B free 17 blocks\n"
  "7-8 C:1@6 A:1@8 B:1@9 -> C A B free 14 blocks\n"
  "8-9 C:1@7 A:1@9 B:1@10 -> C A B free 11 blocks\n"
  "9-10 C:1@8 A:1@10 B:1@11 -> C A B free 8 blocks\n"
  "10-11 C:1@9 A:1@11 B:1@12 -> C A B free 5 blocks\n"
  "11-12 C:1@10 A:1@12 B:1@13 -> C A B free 2 blocks\n"
  "12-13 A:1@13 B:1@14 -> A B free 11 preemption\n"
  "13-14 D:3@0 A:1@14 -> D A free 22 blocks\n"
  "14-15 C:12@0* D:1@3 -> C D free 24 empty\n"
  "15-16 C:1@12 D:1@4 -> C D free 22 empty\n"
  "16-17 D:1@5 -> D free 34 empty\n",
  "B ttft 1 tpot 1 e2e 13 queue 0 preempted 0 recomputed 0\n"
  "A ttft 1 tpot 1 e2e 14 queue 0 preempted 0 recomputed 0\n"
  "C ttft 1.5 tpot 1.16667 e2e 15.5 queue 0.5 preempted 1 recomputed 11\n"
  "D ttft 12.5 tpot 1 e2e 15.5 queue 11.5 preempted 0 recomputed 0\n" },
/* A pool of 16 tokens.  A has one of its 3 outputs: its prompt takes 12 tokens in whole blocks, and
 * a block more must stay free.  A prompt and a block must be less than the pool. */
{ "a request that can never fit under sglang", "sglang-0.5.21", { LIMITS(8, 8), POOL(4) }, { 0 },
  { { 0, 9, 3 }, { 0, 8, 3 }, { 0, 12, 1 } }, true,
  "0-1 A:8@0 free 2 budget\n"
  "1-2 A:1@8 -> A free 1 blocks\n"
  "2-3 B:8@0 -> B free 2 budget\n"
  "3-4 B:1@8 -> B free 1 empty\n"
  "4-5 B:1@9 -> B free 1 empty\n",
  "C rejected: needs 5 KV blocks, 4 are usable\n"
  "A ttft 2 tpot nan e2e 2 queue 0 preempted 0 recomputed 0\n"
  "B ttft 3 tpot 1 e2e 5 queue 2 preempted 0 recomputed 0\n" },

/* A ends at 2.  The plan made then runs at 3 and still counts A, so C runs at 4.  A decodes once
 * more at 2, C at 5, but not B at 4, behind a prefill batch. */
{ "planned ahead under sglang", "sglang-0.5.21", { LIMITS(8, 2), .async = true }, { 0 },
  { { 0, 4, 2 }, { 0, 4, 4 }, { 0, 4, 1 } }, true,
  "0-1 A:4@0 B:4@0 -> A B free 98 budget\n"
  "1-2 A:1@4 B:1@4 -> A B free 96 seqs\n"
  "2-3 A:1@5 B:1@5 -> B free 96 seqs\n"
  "3-4 B:1@6 -> B free 98 seqs\n"
  "4-5 C:4@0 -> C free 97 empty\n"
  "5-6 C:1@4 free 98 empty\n",
  "A ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "B ttft 1 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n"
  "C ttft 5 tpot nan e2e 5 queue 4 preempted 0 recomputed 0\n" },
/* At 1, B has 12 outputs to come.  A, B and C would take 36 tokens by then; 33 are free behind C
 * and a block.  B ends at 13, and the mark that no more fit is lost one iteration later. */
{ "all outputs known under sglang", "sglang-0.5.21",
  { LIMITS(32, 8), .block_tok = 1, .num_blocks = 41, .ignore_eos = true }, { 0 },
  { { 0, 2, 14 }, { 0, 3, 13 }, { 500, 1, 13 } }, true,
  "0-1 A:2@0 B:3@0 -> A B free 35 empty\n"
  "1-2 A:1@2 B:1@3 -> A B free 33 blocks\n"
  "2-3 A:1@3 B:1@4 -> A B free 31 blocks\n"
  "3-4 A:1@4 B:1@5 -> A B free 29 blocks\n"
  "4-5 A:1@5 B:1@6 -> A B free 27 blocks\n"
  "5-6 A:1@6 B:1@7 -> A B free 25 blocks\n"
  "6-7 A:1@7 B:1@8 -> A B free 23 blocks\n"
  "7-8 A:1@8 B:1@9 -> A B free 21 blocks\n"
  "8-9 A:1@9 B:1@10 -> A B free 19 blocks\n"
  "9-10 A:1@10 B:1@11 -> A B free 17 blocks\n"
  "10-11 A:1@11 B:1@12 -> A B free 15 blocks\n"
  "11-12 A:1@12 B:1@13 -> A B free 13 blocks\n"
  "12-13 A:1@13 B:1@14 -> A B free 11 blocks\n"
  "13-14 A:1@14 -> A free 25 blocks\n"
  "14-15 C:1@0 -> C free 39 empty\n"
  "15-16 C:1@1 -> C free 38 empty\n"
  "16-17 C:1@2 -> C free 37 empty\n"
  "17-18 C:1@3 -> C free 36 empty\n"
  "18-19 C:1@4 -> C free 35 empty\n"
  "19-20 C:1@5 -> C free 34 empty\n"
  "20-21 C:1@6 -> C free 33 empty\n"
  "21-22 C:1@7 -> C free 32 empty\n"
  "22-23 C:1@8 -> C free 31 empty\n"
  "23-24 C:1@9 -> C free 30 empty\n"
  "24-25 C:1@10 -> C free 29 empty\n"
  "25-26 C:1@11 -> C free 28 empty\n"
  "26-27 C:1@12 -> C free 27 empty\n",
  "B ttft 1 tpot 1 e2e 13 queue 0 preempted 0 recomputed 0\n"
  "A ttft 1 tpot 1 e2e 14 queue 0 preempted 0 recomputed 0\n"
  "C ttft 14.5 tpot 1 e2e 26.5 queue 13.5 preempted 0 recomputed 0\n" },

{ "static batches", "trtllm-static-batch-1.2", BASIC,
  "0-1 A:8@0\n"
  "1-2 A:2@8 B:5@0 -> A B\n"
  "2-3 A:1@10 B:1@5 -> A B\n"
  "3-4 A:1@11 -> A\n"
  "4-5 C:3@0 -> C\n"
  "5-6 C:1@3 -> C\n",
  "B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n"
  "A ttft 2 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n"
  "C ttft 3.5 tpot 1 e2e 4.5 queue 2.5 preempted 0 recomputed 0\n" },
{ "prefill first", "trtllm-prefill-first-02a10fe", BASIC,
  "0-1 A:8@0\n"
  "1-2 A:2@8 B:5@0 -> A B\n"
  "2-3 C:3@0 -> C\n"
  "3-4 A:1@10 B:1@5 C:1@3 -> A B C\n"
  "4-5 A:1@11 -> A\n",
  "B ttft 2 tpot 2 e2e 4 queue 1 preempted 0 recomputed 0\n"
  "C ttft 1.5 tpot 1 e2e 2.5 queue 0.5 preempted 0 recomputed 0\n"
  "A ttft 2 tpot 1.5 e2e 5 queue 0 preempted 0 recomputed 0\n" },
/* B needs the blocks that A will need: it waits while A is a prompt, not while A decodes. */
{ "preemption under trtllm-prefill-first", "trtllm-prefill-first-02a10fe",
  { LIMITS(16, 8), POOL(6), .survives = true }, { 0 },
  { { 0, 8, 6 }, { 0, 7, 6 }, { 1500, 4, 2 } }, true,
  "0-1 A:8@0 -> A free 4 blocks\n"
  "1-2 B:7@0 -> B free 2 empty\n"
  "2-3 C:4@0 -> C free 1 empty\n"
  "3-4 A:1@8 B:1@7 -> A B free 1 preemption\n"
  "4-5 A:1@9 B:1@8 -> A B free 0 blocks\n"
  "5-6 A:1@10 B:1@9 -> A B free 0 blocks\n"
  "6-7 A:1@11 B:1@10 -> A B free 0 blocks\n"
  "7-8 A:1@12 -> A free 2 preemption\n"
  "8-9 B:12@0* C:4@0* -> B free 1 budget\n"
  "9-10 C:1@4 -> C free 4 empty\n",
  "A ttft 1 tpot 1.4 e2e 8 queue 0 preempted 0 recomputed 0\n"
  "B ttft 2 tpot 1.4 e2e 9 queue 1 preempted 1 recomputed 11\n"
  "C ttft 1.5 tpot 7 e2e 8.5 queue 0.5 preempted 1 recomputed 4\n" },
{ "prompts that are not cut", "trtllm-no-evict-1.2",
  { LIMITS(8, 8), .chunks = SCHED_CHUNKS_NONE }, { 0 },
  { { 0, 6, 2 }, { 0, 4, 2 }, { 0, 1, 1 }, { 0, 9, 1 } }, true,
  "0-1 A:6@0 -> A free 95 budget\n"
  "1-2 B:4@0 C:1@0 A:1@6 -> B C A free 95 empty\n"
  "2-3 B:1@4 -> B free 98 empty\n",
  "D rejected: 9 tokens at once exceed the budget of 8 per iteration\n"
  "C ttft 2 tpot nan e2e 2 queue 1 preempted 0 recomputed 0\n"
  "A ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n" },
{ "prompts that are not cut under trtllm-max-util", "trtllm-max-util-1.2",
  { LIMITS(8, 8), .chunks = SCHED_CHUNKS_NONE }, { 0 },
  { { 0, 6, 2 }, { 0, 4, 2 }, { 0, 1, 1 }, { 0, 6, 4 } }, true,
  "0-1 A:6@0 -> A free 96 budget\n"
  "1-2 B:4@0 C:1@0 A:1@6 -> B C A free 96 empty\n"
  "2-3 B:1@4 -> B free 98 empty\n",
  "D rejected: 9 tokens at once exceed the budget of 8 per iteration\n"
  "C ttft 2 tpot nan e2e 2 queue 1 preempted 0 recomputed 0\n"
  "A ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n" },
{ "chunks of whole units", "trtllm-no-evict-1.2", { LIMITS(14, 8), .chunk_unit = 3 }, { 0 },
  { { 0, 10, 2 }, { 0, 10, 2 }, { 0, 3, 2 } }, true,
  "0-1 A:10@0 B:3@0 -> A free 92 budget\n"
  "1-2 B:7@3 C:3@0 A:1@10 -> B C A free 92 empty\n"
  "2-3 B:1@10 C:1@3 -> B C free 95 empty\n",
  "A ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "B ttft 2 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "C ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n" },
{ "equal progress by units", "trtllm-no-evict-1.2",
  { LIMITS(12, 8), .chunks = SCHED_CHUNKS_EQUAL, .chunk_unit = 3 }, { 0 },
  { { 0, 10, 2 }, { 0, 10, 2 }, { 0, 3, 2 } }, true,
  "0-1 A:6@0 B:3@0 C:3@0 -> C free 92 budget\n"
  "1-2 A:4@6 B:7@3 C:1@3 -> A B C free 92 empty\n"
  "2-3 A:1@10 B:1@10 -> A B free 94 empty\n",
  "C ttft 1 tpot 1 e2e 2 queue 0 preempted 0 recomputed 0\n"
  "A ttft 2 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n"
  "B ttft 2 tpot 1 e2e 3 queue 0 preempted 0 recomputed 0\n" },
};
/* clang-format on */

/* A is the only one that decodes, so it is kept, and B gives up its part of a prompt. */
static void test_last_decode(void)
{
	struct request req[] = {
		{ .prompt_tok = 1, .output_tok = 23 },
		{ .arrival_ns = MS / 2, .prompt_tok = 20, .output_tok = 1 },
	};
	struct trace t = { .req = req, .n = 2 };
	struct sched_limits lim = { LIMITS(2, 2), .block_tok = 1, .num_blocks = 41,
				    .survives = true };
	struct witness s = { 0 };
	struct replay cfg = replay_of(&t, &lim, "sglang-mixed-0.5.21",
				      &(struct cost_formula){ MS, 0 }, &s);
	struct replay_result res;

	is_int(replay_run(&cfg, &res, NULL), AR_OK, "a prompt that is cut can be retracted");
	is_str(s.outcome,
	       "A ttft 1 tpot 1 e2e 23 queue 0 preempted 0 recomputed 0\n"
	       "B ttft 32.5 tpot nan e2e 32.5 queue 0.5 preempted 1 recomputed 19\n",
	       "... and ends later");
	replay_result_release(&res);
}

/* Where its engine fails, a run ends with the results so far, unless it survives. */
static void test_failure(const char *policy, const struct sched_limits *limits,
			 const struct request *req, size_t n, const char *what, int64_t iterations)
{
	struct trace t = { .req = (struct request *)(uintptr_t)req, .n = n };
	struct sched_limits lim = *limits;
	struct witness s = { .quiet = true };
	struct ar_err err = { 0 };
	struct replay_result res;
	struct replay cfg = replay_of(&t, &lim, policy, &(struct cost_formula){ MS, 0 }, &s);
	char want[200];

	snprintf(want, sizeof want,
		 "iteration %d: policy %s: here the engine fails, %s; give it "
		 "more KV blocks, or go on with --survive-out-of-memory",
		 (int)iterations, policy, what);
	is_int(replay_run(&cfg, &res, &err), AR_ENGINE, "%s: the run fails as its engine", policy);
	is_str(err.msg, want, "... and says why");
	is_int(res.iterations, iterations, "... after %d iterations", (int)iterations);
	replay_result_release(&res);

	cfg.limits.survives = true;
	is_int(replay_run(&cfg, &res, NULL), AR_OK, "... and can survive that");
	ok(res.failures > 0 && res.ok == (int64_t)n, "... once or more, to its end");
	replay_result_release(&res);
}

static void test_failures(void)
{
	static const char prompt[] = "out of memory for a prompt or for decodes beside it";
	/* Of 40 blocks, A and B take two an iteration after the first.  One is left then. */
	static const struct request cut[] = {
		{ .prompt_tok = 1, .output_tok = 23 },
		{ .arrival_ns = MS / 2, .prompt_tok = 20, .output_tok = 1 },
	};
	/* D fits as it is counted, but A, B and C decode into a block each.  SGLang's own code
	 * fails there. */
	static const struct request pages[] = {
		{ .prompt_tok = 16, .output_tok = 2 },
		{ .prompt_tok = 16, .output_tok = 2 },
		{ .prompt_tok = 16, .output_tok = 2 },
		{ .prompt_tok = 9, .output_tok = 1 },
	};
	/* At 3, A decodes into its third block and B into its second.  Of 6 blocks 5 are taken. */
	static const struct request beside[] = {
		{ .prompt_tok = 8, .output_tok = 6 },
		{ .prompt_tok = 7, .output_tok = 6 },
		{ .arrival_ns = 3 * MS / 2, .prompt_tok = 4, .output_tok = 2 },
	};

	test_failure("sglang-mixed-0.5.21",
		     &(struct sched_limits){ LIMITS(2, 2), .block_tok = 1, .num_blocks = 41 }, cut,
		     2, prompt, 20);
	test_failure("sglang-mixed-0.5.21",
		     &(struct sched_limits){ LIMITS(48, 4), .block_tok = 8, .num_blocks = 11 },
		     pages, 4, prompt, 1);
	test_failure("trtllm-prefill-first-02a10fe",
		     &(struct sched_limits){ LIMITS(16, 8), POOL(6) }, beside, 3,
		     "out of memory for a decode", 3);
}

/* What each engine's own code takes on GPUs, by the memory that nvidia-smi reports. */
static void test_defaults(void)
{
	static const struct {
		const char *policy, *gpu;
		int64_t mib, tokens, requests, captured;
		double share; /* with one rank */
	} want[] = {
		{ "vllm-0.16", "NVIDIA H100 80GB HBM3", 81559, 8192, 1024, 512, 0.9 },
		{ "vllm-0.19", "NVIDIA A100-SXM4-80GB", 81920, 2048, 256, 512, 0.9 },
		{ "vllm-0.24", "h200", 143771, 8192, 1024, 512, 0.92 },
		{ "vllm-0.33", "a100", 81920, 2048, 256, 512, 0.92 },
		{ "vllm-0.33", "h100", 81559, 8192, 1024, 512, 0.92 },
		{ "vllm-0.33", "l40s", 46068, 2048, 256, 512, 0.92 },
		{ "vllm-0.33", "NVIDIA B200", 183359, 16384, 1024, 1024, 0.92 },
		{ "vllm-0.24", "NVIDIA B200", 183359, 8192, 1024, 512, 0.92 },
		{ "vllm", "h100", 0, 2048, 256, 512, 0.92 },
		{ "sglang-0.5.21", "h100", 81559, 8192, 2048, 256, 0.83 },
		{ "sglang-0.5.21", "h200", 143771, 8192, 2048, 256, 0.903 },
		{ "sglang-mixed-0.5.21", "l40s", 46068, 4096, 2048, 32, 0.843 },
		{ "sglang-0.5.21", "NVIDIA GeForce RTX 4090", 24564, 4096, 2048, 48, 0.704 },
		{ "sglang-0.5.21", "Tesla T4", 15360, 2048, 2048, 8, 0.735 },
		{ "trtllm-no-evict", "h100", 81559, 8192, 2048, 512, 0.9 },
		{ "sarathi", "a100", 81920, 512, 128, 512, 0.9 },
		{ "vidur-sarathi", "h100", 81559, 512, 128, 512, 0.9 },
		{ "orca", "h100", 81559, 8192, 128, 512, 0.9 },
	};

	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		const struct policy *p = policy_find(want[i].policy);
		const int64_t bytes = want[i].mib << 20;
		const struct engine_defaults *d = policy_defaults(p, want[i].gpu, bytes);
		double share = d->memory_share > 0 ?
				       d->memory_share :
				       p->memory_share(bytes, d->tokens, d->captured, 1);

		ok(d->tokens == want[i].tokens && d->requests == want[i].requests &&
			   d->captured == want[i].captured && fabs(share - want[i].share) < 1e-9,
		   "defaults of %s on %s", want[i].policy, want[i].gpu);
		diag("%lld %lld %lld %g", (long long)d->tokens, (long long)d->requests,
		     (long long)d->captured, share);
	}
	ok(policy_find("sglang")->memory_share((int64_t)81559 << 20, 2048, 256, 1) == 0.874,
	   "SGLang leaves 10 GiB of a large GPU free at least");
}

int main(void)
{
	plan(0);
	test_defaults();
	test_last_decode();
	test_failures();
	for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
		struct replay_result res;

		run_scenario(&scenarios[i], NULL, &res);
		replay_result_release(&res);
	}
	return done_testing();
}
