/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that join and gather over a fake NCCL, each a process; and how they end if one fails. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "replay/ranks/world.h"
#include "src/run/workers.h"
#include "tests/rank_processes.h"
#include "tests/tap.h"

enum { CALLS = 20, BIG = 3 << 20, SUMMED = 700001 };

/* How each rank ended. */
struct end {
	enum ar_status st;
	struct ar_err err;
	int calls; /* that succeeded with the right data */
};

static struct shared {
	struct rank_page page;
	struct end end[4];
	int signal[4]; /* that ended its process */
} * shared;

static bool gather(struct world *w, size_t bytes, struct end *e)
{
	const int n = world_size(w);
	char *mine = malloc(bytes), *all = malloc((size_t)n * bytes);
	bool right = mine && all;

	memset(mine, 'a' + world_rank(w), bytes);
	e->st = world_gather(w, mine, all, bytes, &e->err);
	for (size_t i = 0; i < (size_t)n * bytes && right && !e->st; i++)
		right = all[i] == (char)('a' + (int)(i / bytes));
	free(mine);
	free(all);
	return right && !e->st;
}

/* Sums and gathers as a decoder has them: of values that depend on the place and the rank. */
static bool add_up(struct world *w, struct end *e)
{
	const int n = world_size(w);
	bf16_t *x = malloc(SUMMED * sizeof *x), all[2 * 4], mine[2];
	bool right = x;

	for (int i = 0; i < SUMMED; i++)
		x[i] = bf16_from_f32((float)(i % 8 + world_rank(w)));
	e->st = world_reduce(w, x, SUMMED, NULL, &e->err);
	for (int i = 0; i < SUMMED && right && !e->st; i++)
		right = bf16_to_f32(x[i]) == (float)(n * (i % 8) + n * (n - 1) / 2);
	free(x);
	memset(mine, 'a' + world_rank(w), sizeof mine);
	if (!e->st)
		e->st = world_gather_on(w, mine, all, sizeof mine, NULL, &e->err);
	if (!e->st)
		e->st = world_wait(w, NULL, &e->err);
	for (int i = 0; i < n && !e->st; i++)
		right &= all[2 * i] == 0x101 * ('a' + i) && all[2 * i] == all[2 * i + 1];
	return right && !e->st && world_device(w) == -1;
}

/* Collectives that an engine has and a run has not.  Part `to` of rank `from` is of one value. */
static bool exchange(struct world *w, struct end *e)
{
	const int n = world_size(w), me = world_rank(w);
	bf16_t *from = malloc(4 * SUMMED * sizeof *from), *to = malloc(4 * SUMMED * sizeof *to);
	bool right = from && to;

	for (int i = 0; i < n * SUMMED && right; i++)
		from[i] = bf16_from_f32((float)(1 + me + 8 * (i / SUMMED)));
	e->st = world_scatter(w, from, to, SUMMED, NULL, &e->err);
	for (int i = 0; i < SUMMED && right && !e->st; i++)
		right = bf16_to_f32(to[i]) == (float)(n * (n + 1) / 2 + 8 * n * me);
	if (!e->st)
		e->st = world_swap(w, from, to, SUMMED * sizeof *to, NULL, &e->err);
	for (int i = 0; i < n * SUMMED && right && !e->st; i++)
		right = bf16_to_f32(to[i]) == (float)(1 + i / SUMMED + 8 * me);
	if (!e->st && n == 2)
		e->st = world_send(w, from, to, SUMMED * sizeof *to, NULL, &e->err);
	for (int i = 0; i < SUMMED && right && !e->st && n == 2 && me; i++)
		right = bf16_to_f32(to[i]) == 1;
	free(from);
	free(to);
	return right && !e->st;
}

/* bytes 0: add_up() instead of gather(); 1: exchange(). */
static void run_rank(int rank, int size, size_t bytes)
{
	struct end *e = &shared->end[rank];
	struct world_join join = { .rank = rank,
				   .size = size,
				   .id = shared->page.id,
				   .join_ns = 1000000000,
				   .timeout_ns = 1000000000,
				   .page = &shared->page };
	struct world *w;

	e->st = world_open(&w, &join, &e->err);
	for (int i = 0; i < CALLS && !e->st; i++)
		e->calls += bytes > 1 ? gather(w, bytes, e) : bytes ? exchange(w, e) : add_up(w, e);
	world_close(w);
	_exit(0);
}

/* Run ranks `from` to size - 1.  name NULL: the fake behaves. */
static void run_from(int from, int size, size_t bytes, const char *name, const char *value)
{
	const struct nccl *nccl;
	struct ar_err err;
	pid_t child[4];
	int status;

	memset(shared, 0, sizeof *shared);
	if (nccl_load(&nccl, &err) || nccl->GetUniqueId(&shared->page.id))
		bail_out("%s", err.msg);
	if (name)
		setenv(name, value, 1);
	fflush(NULL);
	for (int i = from; i < size; i++)
		if (!(child[i] = fork()))
			run_rank(i, size, bytes);
	for (int i = from; i < size; i++) {
		waitpid(child[i], &status, 0);
		shared->signal[i] = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
		if (shared->signal[i]) /* as the parent of ranks does */
			rank_page_fail(&shared->page, i);
	}
	if (name)
		unsetenv(name);
}

static void run_all(int size, size_t bytes, const char *name, const char *value)
{
	run_from(0, size, bytes, name, value);
}

static bool all_done(int size)
{
	for (int i = 0; i < size; i++)
		if (shared->end[i].st || shared->end[i].calls != CALLS || shared->signal[i])
			return false;
	return true;
}

static void test_gather(void)
{
	for (int n = 1; n <= 4; n++) {
		run_all(n, 256, NULL, NULL);
		ok(all_done(n), "%d ranks gather records", n);
	}
	run_all(2, BIG, NULL, NULL);
	ok(all_done(2), "... and large messages");
	run_all(3, 0, NULL, NULL);
	ok(all_done(3), "... and add up");
	for (int n = 2; n <= 4; n++) {
		run_all(n, 1, NULL, NULL);
		ok(all_done(n), "%d ranks scatter, swap and send", n);
	}
	run_all(2, 256, "FAKE_NCCL_PROGRESS", "3");
	ok(all_done(2), "... if each call goes on after it returns");
	run_all(3, 256, "FAKE_NCCL_SLOW", "1:5000");
	ok(all_done(3), "... if one is late");
}

static void says(int rank, const char *words, const char *what)
{
	const struct end *e = &shared->end[rank];

	if (!ok(e->st && strstr(e->err.msg, words), "%s", what))
		diag("rank %d: status %d, %s", rank, (int)e->st, e->err.msg);
}

static void test_failures(void)
{
	run_all(3, 256, "FAKE_NCCL_ERROR", "1:9:3");
	says(1, "rank 1 of 3: NCCL cannot gather: internal error; a fake error",
	     "an error of the library is named");
	ok(shared->end[0].st == AR_IO && shared->end[2].st == AR_IO, "... and the other ranks end");
	is_int(shared->page.stop, 1 + 1, "... as that one has failed first");
	ok(shared->end[0].calls >= 7, "... with the calls before it");
	run_all(2, 1, "FAKE_NCCL_ERROR", "0:5:3");
	says(0, "NCCL cannot swap parts: internal error", "so is what it could not do");
	run_all(3, 256, "FAKE_NCCL_HANG", "2:7");
	ok(shared->end[0].st && shared->end[1].st && shared->end[2].st,
	   "no rank waits for ever for one that hangs");
	says(shared->page.stop - 1, "no answer from rank 2 within 1", "... which is named");
	run_all(2, 256, "FAKE_NCCL_DIE", "1:5");
	is_int(shared->signal[1], SIGABRT, "a rank dies");
	ok(shared->end[0].st == AR_IO && shared->end[0].calls == 4, "... and the other ends");
	run_from(1, 3, 256, NULL, NULL);
	says(shared->page.stop - 1, "of 3: no answer from rank 0 within 1",
	     "a rank that never comes is missed");
	is_int(shared->end[shared->page.stop - 1].st, AR_NODEV, "... as a device would be");
}

/* In a process of its own, as the library is loaded once. */
static void load_apart(const char *file, const char *version, const char *words, const char *what)
{
	struct ar_err *err = &shared->end->err;
	const struct nccl *nccl;
	pid_t child;

	memset(shared, 0, sizeof *shared);
	fflush(NULL);
	child = fork();
	if (!child) {
		setenv("ATTNREPLAY_NCCL", file, 1);
		setenv("FAKE_NCCL_VERSION", version, 1);
		_exit(nccl_load(&nccl, err) != AR_NODEV);
	}
	waitpid(child, NULL, 0);
	if (!ok(strstr(err->msg, words), "%s", what))
		diag("%s", err->msg);
}

static void test_load(void)
{
	load_apart("/nonexistent/libnccl.so.2", "22809",
		   "cannot load '/nonexistent/libnccl.so.2', which ATTNREPLAY_NCCL names",
		   "a missing library is named");
	load_apart("libm.so.6", "22809", "libnccl.so.2 lacks ncclGetVersion",
		   "so is a missing function");
	load_apart(fake_nccl_path(), "21805", "NCCL 2.18.5 is too old; want 2.19.0 or newer",
		   "a library may be too old");
}

static void test_environment(void)
{
	is_str(getenv("NCCL_NVLS_ENABLE"), "1", "what the user sets for NCCL stays");
	is_str(getenv("NCCL_RUNTIME_CONNECT"), "0", "... and what is not set has our values");
}

int main(void)
{

	plan(0);
	shared = workers_share(sizeof *shared);
	if (!shared)
		bail_out("no memory");
	test_load();
	setenv("ATTNREPLAY_NCCL", fake_nccl_path(), 1);
	setenv("NCCL_NVLS_ENABLE", "1", 1);
	test_gather();
	test_environment();
	test_failures();
	workers_unshare(shared, sizeof *shared);
	return done_testing();
}
