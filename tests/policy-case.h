/* SPDX-License-Identifier: Apache-2.0 */
/* Replays without kernels for tests of policies, recorded as text or checked while they run. */
#ifndef AR_POLICY_CASE_H
#define AR_POLICY_CASE_H

#include "replay/cost/backend_cost.h"
#include "replay/engine/replay.h"

#define MS 1000000

/* An observer that writes the text of a scenario, or checks properties of its events. */
struct witness {
	struct observer observer;      /* replay_of() fills it in */
	char log[4096], outcome[1024]; /* text of the scenario */
	size_t n_log, n_outcome;
	bool show_free;
	int64_t n_usable;

	/* For the checked properties: */
	bool quiet, prefill_first, skips; /* skips: a prompt may wait for a whole block */
	bool alone_uncapped;		  /* long_prefill_tok is not for the only request */
	int64_t max_batched_tok, max_seqs, long_prefill_tok;
	int64_t most_iterations; /* the run fails after that many; 0: never */
	int64_t n_rejected;	 /* with a reason */
	int64_t overrun;	 /* decodes of requests that have all their tokens */
	int64_t end_ns, n_tok, recomputed, n_emit, preempted, n_iter;
	int64_t bad_clock, bad_partial, starved, over_budget, over_seqs, empty, bad_blocks,
		bad_chunk;
	int64_t bad_outcome, bad_mark;
	uint32_t n_chunk[64]; /* by request */
	uint32_t n_prefill[64], first[64], high[64];
	int64_t token_ns[64], before_ns[64]; /* of the last output and of the one before; 0: none */
	int64_t token_iter[64];		     /* the iteration of the last output, from 1 */
	uint64_t digest, gaps; /* gaps: hashes of the entries' gaps less the result's; ends as 0 */
};

/* A request; arrival in microseconds.  In the logs a star marks work that is repeated. */
struct req3 {
	int64_t us;
	uint32_t prompt, output;
};

struct scenario {
	const char *name, *policy;
	struct sched_limits lim;  /* block_tok 0: blocks of 4, 100 usable */
	struct cost_formula cost; /* 0: 1 ms an iteration */
	struct req3 req[8];
	bool show_free;
	const char *log, *outcome;
};

#define LIMITS(t, s) .max_batched_tok = (t), .max_seqs = (s)
#define POOL(n) .block_tok = 4, .num_blocks = (n) + 1

/* Options that all reference workloads share. */
#define BASIC { LIMITS(8, 8) }, { 0 }, { { 0, 10, 3 }, { 0, 5, 2 }, { 1500, 3, 2 } }, false
#define BASIC_OUTCOME \
	"B ttft 2 tpot 1 e2e 3 queue 1 preempted 0 recomputed 0\n" \
	"A ttft 2 tpot 1 e2e 4 queue 0 preempted 0 recomputed 0\n" \
	"C ttft 1.5 tpot 1 e2e 2.5 queue 0.5 preempted 0 recomputed 0\n"

struct replay replay_of(const struct trace *t, const struct sched_limits *lim, const char *policy,
			const struct cost_formula *cost, struct witness *s);

/* Run a scenario: three tests.  priority: one for each request, or NULL.  The caller releases
 * *res. */
void run_scenario(const struct scenario *c, const int32_t *priority, struct replay_result *res);

#endif
