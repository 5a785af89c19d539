/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell each other after an iteration: the slowest one's times hold, and a rank that
 * scheduled another batch is named.  Each rank is a process. */
#include "config.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "replay/ranks/barrier.h"
#include "replay/ranks/tell.h"
#include "src/run/workers.h"
#include "tests/rank_processes.h"
#include "tests/tap.h"

enum { RANKS = 3, ITERATIONS = 20 };

static struct shared {
	struct rank_page page;
	struct end {
		enum ar_status st;
		struct ar_err err;
		int64_t iterations, cost_ns, span_ns;
		int slowest;
	} end[RANKS];
} * shared;

/* What goes wrong in a rank at iteration `at`. */
static struct wrong {
	int rank, at;
	bool batch, rows, iter, interrupt;
} wrong;

static void run_rank(int rank)
{
	struct end *e = &shared->end[rank];
	struct batch_entry entry[2] = { { .req = 1, .n_tok = 7 }, { .req = 2, .n_tok = 1 } };
	const struct batch b = { .entry = entry, .n = 2 };
	struct rank_tells all;
	struct world *w;

	ar_catch_interrupts();
	e->st = join_as_rank(&w, &shared->page, rank, RANKS, &e->err);
	for (int i = 0; i < ITERATIONS && !e->st; i++) {
		const bool now = rank == wrong.rank && i == wrong.at;
		struct iter_cost c = { .cost_ns = 100 + (rank == 1 || rank == 2), .span_ns = rank };

		entry[0].n_tok += now && wrong.batch;
		c.drop_digest = 5 + (now && wrong.rows);
		if (now && wrong.interrupt)
			raise(SIGTERM);
		e->st = tell_iteration(w, i + (now && wrong.iter), &b, &c, &all, &e->err);
		if (e->st)
			break;
		tell_take_slowest(&all, &c);
		e->iterations++;
		e->cost_ns = c.cost_ns;
		e->span_ns = c.span_ns;
		e->slowest = all.slowest;
	}
	world_close(w);
	_exit(0);
}

static void run_all(struct wrong x)
{
	wrong = x;
	memset(shared, 0, sizeof *shared);
	fork_ranks(RANKS, &shared->page.id, run_rank);
}

static void all_say(enum ar_status st, int64_t iterations, const char *words, const char *what)
{
	bool same = true;

	for (int i = 0; i < RANKS; i++)
		same = same && shared->end[i].st == st && shared->end[i].iterations == iterations &&
		       strstr(shared->end[i].err.msg, words);
	if (!ok(same, "%s", what))
		diag("%s", shared->end[0].err.msg);
}

/* Of 200 repeats the times of ranks differ by 1, 2 ... 200, in any order; the last rank is the
 * longest and the shortest in turn. */
static void test_spread(void)
{
	int64_t ns[RANKS][200];
	struct barrier_spread x;

	for (int i = 0; i < 200; i++) {
		ns[0][i] = 5000 + i;
		ns[1][i] = 5000 + i;
		ns[2][i] = 5000 + i + (i % 2 ? 1 : -1) * (i * 77 % 200 + 1);
	}
	x = barrier_spread(&ns[0][0], RANKS, 200);
	is_int(x.p50_ns, 100, "the median of what ranks differ by behind a barrier");
	is_int(x.p99_ns, 198, "... and what 99 of 100 do not exceed");
	x = barrier_spread((int64_t[]){ 7, 7, 7 }, RANKS, 1);
	ok(!x.p50_ns && !x.p99_ns, "a single one that all leave at once");
	x = barrier_spread((int64_t[]){ 9, -1, 9, 9, 9, 10, -1, 9, 12 }, RANKS, 3);
	ok(x.p50_ns == 3 && x.p99_ns == 3,
	   "a repeat for which the host of a rank was late is none");
	x = barrier_spread((int64_t[]){ -1, 9, 9, -1, -1, 9 }, RANKS, 2);
	ok(x.p50_ns == -1 && x.p99_ns == -1, "... and if there is no other, nothing is known");
}

int main(void)
{
	plan(0);
	test_spread();
	setenv("ATTNREPLAY_NCCL", fake_nccl_path(), 1);
	shared = workers_share(sizeof *shared);
	if (!shared)
		bail_out("no memory");
	run_all((struct wrong){ .rank = -1 });
	all_say(AR_OK, ITERATIONS, "", "ranks with the same batches go on");
	for (int i = 0; i < RANKS; i++)
		ok(shared->end[i].cost_ns == 101 && shared->end[i].span_ns == 1 &&
			   shared->end[i].slowest == 1,
		   "rank %d has the times of the slowest, of two the lowest", i);
	run_all((struct wrong){ .rank = 2, .at = 7, .batch = true });
	all_say(AR_DATA, 7,
		"rank 2 scheduled another batch than rank 0, or kept other rows, in iteration 7",
		"a rank is named at its first other batch");
	run_all((struct wrong){ .rank = 1, .at = 6, .rows = true });
	all_say(AR_DATA, 6, "rank 1 scheduled another batch than rank 0, or kept other rows",
		"... and at the first of which it keeps other rows");
	run_all((struct wrong){ .rank = 1, .at = 5, .interrupt = true });
	all_say(AR_INTERRUPTED, 5, "rank 1 was interrupted", "all stop where one is stopped");
	run_all((struct wrong){ .rank = 2, .at = 4, .iter = true });
	ok(shared->end[0].st == AR_DATA &&
		   strstr(shared->end[0].err.msg, "rank 2 is in another iteration than rank 0"),
	   "a rank in another iteration is named");
	workers_unshare(shared, sizeof *shared);
	return done_testing();
}
