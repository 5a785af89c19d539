/* SPDX-License-Identifier: Apache-2.0 */
/* A batch whose host was late runs again on all ranks, also on those that were in time.  Each rank
 * is a process; a batch adds up over them, and one that ran alone would wait for ever. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "replay/ranks/again.h"
#include "src/run/workers.h"
#include "tests/rank_processes.h"
#include "tests/tap.h"

enum { RANKS = 3, BATCHES = 8 };

static struct shared {
	struct rank_page page;
	struct end {
		enum ar_status st;
		struct ar_err err;
		int runs[BATCHES];   /* how often each batch ran */
		bool again[BATCHES]; /* what again_if_late() said */
		bool wrong;	     /* a first run was whole, or a second was not */
	} end[RANKS];
} * shared;

/* Which runs of which batch are late in a rank: 'x' both, '1' the first, '-' none. */
static const char *const late_in[RANKS] = { "--x----1", "---1-1--", "-------x" };

struct rank {
	struct world *w;
	int rank, batch;
	const char *late;
};

static enum ar_status run_batch(void *ctx, bool whole, bool *late, struct ar_err *err)
{
	const struct rank *r = ctx;
	struct end *e = &shared->end[r->rank];
	const char when = r->late[r->batch];
	bf16_t x[5] = { 0 };
	enum ar_status st = AR_OK;

	e->wrong |= whole != (e->runs[r->batch] > 0);
	for (int i = 0; i < 3 && !st && r->w; i++)
		st = world_reduce(r->w, x, 5, NULL, err);
	*late = when == 'x' || (when == '1' && !e->runs[r->batch]);
	e->runs[r->batch]++;
	return st;
}

static void run_batches(struct world *w, int rank, const char *late)
{
	struct rank r = { w, rank, 0, late };
	struct end *e = &shared->end[rank];
	bool slow = false;

	for (; r.batch < BATCHES && !e->st; r.batch++)
		e->st = again_if_late(w, run_batch, &r, &slow, &e->again[r.batch], &e->err);
}

static void run_rank(int rank)
{
	struct end *e = &shared->end[rank];
	struct world *w;

	e->st = join_as_rank(&w, &shared->page, rank, RANKS, &e->err);
	if (!e->st)
		run_batches(w, rank, late_in[rank]);
	world_close(w);
	_exit(0);
}

/* Batches of a rank that ran twice are '2' in text. */
static const char *twice(int rank, char text[BATCHES + 1])
{
	const struct end *e = &shared->end[rank];

	for (int i = 0; i < BATCHES; i++)
		text[i] = e->runs[i] == 2 && e->again[i]  ? '2' :
			  e->runs[i] == 1 && !e->again[i] ? '1' :
							    '?';
	text[BATCHES] = 0;
	return text;
}

int main(void)
{
	char text[BATCHES + 1];

	plan(0);
	setenv("ATTNREPLAY_NCCL", fake_nccl_path(), 1);
	shared = workers_share(sizeof *shared);
	if (!shared)
		bail_out("no memory");
	run_batches(NULL, 0, "-1-xx-1x");
	is_str(twice(0, text), "12121122",
	       "one rank: a batch whose host was late runs again, once");
	ok(!shared->end[0].wrong, "... and then as a whole");
	memset(shared, 0, sizeof *shared);
	setenv("FAKE_NCCL_SLOW", "1:300", 1);
	fork_ranks(RANKS, &shared->page.id, run_rank);
	for (int i = 0; i < RANKS; i++) {
		const struct end *e = &shared->end[i];

		if (!ok(!e->st, "rank %d of several does not wait for ever", i))
			diag("%s", e->err.msg);
		is_str(twice(i, text), "11211212", "... and runs again what was late in any");
		ok(!e->wrong, "... as a whole");
	}
	workers_unshare(shared, sizeof *shared);
	return done_testing();
}
