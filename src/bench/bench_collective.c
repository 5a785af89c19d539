/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attnreplay bench collective: how long collectives between the GPUs of this host take.
 *
 * Each rank is a process, as in an engine, and all leave their times in memory that they share.  Of
 * what a collective adds to the ranks' streams in a repeat the longest counts, and of its kernels'
 * own times the shortest: the last rank to come waits for nobody.
 */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/binfile.h"
#include "base/number.h"
#include "base/stats.h"
#include "src/bench/bench.h"
#include "src/bench/bench_table.h"
#include "src/bench/collective.h"
#include "src/run/rank_group.h"
#include "src/run/workers.h"

enum { CASES = 512, LEAST = 256 };
static const int64_t most = (int64_t)1 << 30, join_ns = 120000000000, timeout_ns = 60000000000;

static const char *const ops[] = {
#define X(name, text) text,
	COMM_OPS(X)
#undef X
};

/* The last one is between two ranks. */
static const enum comm_op measured[] = { COMM_REDUCE, COMM_GATHER, COMM_SCATTER, COMM_SWAP,
					 COMM_SEND };

/* What ranks leave: of each case what each rank saw; then the times, [case][rank][repeat]. */
struct board {
	struct collective_about about;
	struct collective_seen seen[CASES][RANKS_MAX];
	struct collective_time took[];
};

struct row {
	const char *what, *mode, *kernel, *same, *digest;
	int64_t ranks, bytes;
	double us, p10_us, p90_us, own_us, gbps;
	struct bench_how how;
};

static const struct bench_col cols[] = {
#define COL(member) offsetof(struct row, member)
	{ "what", "collective", COL_TEXT, COL(what), -13, 0, 0 },
	{ "mode", "mode", COL_TEXT, COL(mode), -6, 0, 0 },
	{ "ranks", "ranks", COL_INT, COL(ranks), 5, 0, 0 },
	{ "bytes", "bytes", COL_INT, COL(bytes), 10, 0, 0 },
	{ "us", "us", COL_REAL, COL(us), 9, 1, 1 },
	{ "p10_us", "p10", COL_REAL, COL(p10_us), 9, 1, 1 },
	{ "p90_us", "p90", COL_REAL, COL(p90_us), 9, 1, 1 },
	{ "own_us", "own", COL_REAL, COL(own_us), 9, 1, 1 },
	{ "bus_gbps", "bus GB/s", COL_REAL, COL(gbps), 8, 1, 1 },
	{ "kernel", "kernel", COL_TEXT, COL(kernel), -12, 0, 0 },
	{ "same_bits", "same bits", COL_TEXT, COL(same), -9, 0, 0 },
	{ "digest", NULL, COL_TEXT, COL(digest), 0, 0, 0 },
	BENCH_HOW_COLS(COL(how)),
#undef COL
	{ 0 }
};

struct bench {
	const struct bench_args *a;
	const struct collective_way *way;
	int ranks, repeat, n;
	struct collective of[CASES];
	int64_t largest;
	struct board *board;
	struct bench_table table;
	struct outfile out;
};

/* ---- cases ---- */

/* A whole message of about so many bytes. */
static int64_t round_bytes(const struct bench *b, int64_t bytes)
{
	const int64_t unit = (int64_t)4 * b->ranks;

	return bytes < unit ? unit : bytes / unit * unit;
}

static enum ar_status parse_sizes(const char *text, int64_t size[2], struct ar_err *err)
{
	char part[2][32];
	int end = 0;

	if (sscanf(text, "%31[^:]:%31[^:]%n", part[0], part[1], &end) == 2 && !text[end] &&
	    num_count(part[0], &size[0]) && num_count(part[1], &size[1]) && size[0] >= LEAST &&
	    size[0] <= size[1] && size[1] <= most)
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "--sizes '%s': want the smallest and the largest message in bytes, from 256 "
		       "to 1G, such as 1K:128M",
		       text);
}

static void add_cases(struct bench *b, enum comm_op op, bool graph, const int64_t size[2])
{
	for (int64_t x = size[0]; x <= size[1]; x *= 2)
		for (int64_t y = x; y <= x / 2 * 3 && y <= size[1]; y += x / 2)
			b->of[b->n++] = (struct collective){ op, graph, round_bytes(b, y) };
	if (b->of[b->n - 1].bytes > b->largest)
		b->largest = b->of[b->n - 1].bytes;
}

static enum ar_status make_cases(struct bench *b, struct ar_err *err)
{
	int64_t size[2];
	enum ar_status st = parse_sizes(b->a->sizes, size, err);

	for (size_t i = 0; i < sizeof measured / sizeof *measured && !st; i++)
		for (int graph = 0; graph < 2; graph++)
			if (measured[i] != COMM_SEND || b->ranks == 2)
				add_cases(b, measured[i], graph, size);
	return st;
}

/* ---- a rank ---- */

static struct collective_time *times_of(const struct bench *b, int i, int rank)
{
	return b->board->took + ((size_t)i * (size_t)b->ranks + (size_t)rank) * (size_t)b->repeat;
}

/* nccl_load() has set the variable, unless the user has. */
static enum ar_status name_library(struct collective_about *about, struct ar_err *err)
{
	const struct nccl *nccl;
	char version[16];
	enum ar_status st = nccl_load(&nccl, err);

	if (!st)
		snprintf(about->library, sizeof about->library, "nccl %s  nvls %s",
			 nccl_version_text(nccl->version, version), getenv("NCCL_NVLS_ENABLE"));
	return st;
}

static enum ar_status run_rank(void *self, const struct world_join *j, struct ar_err *err)
{
	struct bench *b = self;
	struct collective_env env = { (int)b->a->device + j->rank, b->repeat, (uint64_t)b->a->seed,
				      b->largest };
	struct collective_about about = { 0 };
	struct collective_rank *r;
	int64_t n;
	enum ar_status st;

	if (b->a->devices)
		rank_device(b->a->devices, j->rank, &n, &env.device);
	st = b->way->open(&r, j, &env, &about, err);
	if (st)
		return st;
	st = name_library(&about, err);
	if (!j->rank)
		b->board->about = about;
	for (int i = 0; i < b->n && !st; i++)
		st = ar_interrupted() ? ar_fail(err, AR_INTERRUPTED, "interrupted") :
					b->way->measure(r, &b->of[i], times_of(b, i, j->rank),
							&b->board->seen[i][j->rank], err);
	b->way->close(r);
	return st;
}

static enum ar_status run_ranks(struct bench *b, struct ar_err *err)
{
	const struct rank_group g = { b->ranks, join_ns, timeout_ns, true };

	return b->a->dry_run ? AR_OK : rank_group_run(&g, run_rank, b, err);
}

/* ---- results ---- */

/* Of each repeat what it adds on the slowest rank, or its own time on the fastest, sorted, to
 * us[repeat]. */
static void join_ranks(const struct bench *b, int i, bool own, double *us)
{
	for (int k = 0; k < b->repeat; k++) {
		us[k] = own ? INFINITY : -INFINITY;
		for (int rank = 0; rank < b->ranks; rank++) {
			const struct collective_time *t = &times_of(b, i, rank)[k];

			us[k] = own ? fmin(us[k], (double)t->own_ns * 1e-3) :
				      fmax(us[k], (double)t->adds_ns * 1e-3);
		}
	}
	stats_sort(us, (size_t)b->repeat);
}

static bool same_bits(const struct bench *b, int i)
{
	for (int rank = 1; rank < b->ranks; rank++)
		if (b->board->seen[i][rank].digest != b->board->seen[i]->digest)
			return false;
	return true;
}

/* A line of the table of collectives. */
static void put_line(const struct row *r, int repeat, FILE *f)
{
	fprintf(f, "%-13s bf16 %5" PRId64 " 1     %-6s %10" PRId64 " %3d %8.0f %8.0f %8.0f  %s\n",
		r->what, r->ranks, r->mode, r->bytes, repeat, 1e3 * r->p10_us, 1e3 * r->us,
		1e3 * r->p90_us, r->kernel);
}

static enum ar_status put_case(struct bench *b, int i, double *us, struct ar_err *err)
{
	const struct collective *c = &b->of[i];
	const double hops = c->op == COMM_REDUCE ? 2.0 * (b->ranks - 1) :
			    c->op == COMM_SEND	 ? b->ranks :
						   b->ranks - 1;
	char digest[20];
	struct row r = { .what = ops[c->op],
			 .mode = c->graph ? "graph" : "inline",
			 .ranks = b->ranks,
			 .bytes = c->bytes,
			 .us = NAN,
			 .p10_us = NAN,
			 .p90_us = NAN,
			 .own_us = NAN,
			 .how = { .repeat = b->repeat, .seed = b->a->seed } };

	if (b->board) {
		join_ranks(b, i, true, us);
		r.own_us = stats_percentile(us, (size_t)b->repeat, 50);
		join_ranks(b, i, false, us);
		r.us = stats_percentile(us, (size_t)b->repeat, 50);
		r.p10_us = stats_percentile(us, (size_t)b->repeat, 10);
		r.p90_us = stats_percentile(us, (size_t)b->repeat, 90);
		r.kernel = b->board->seen[i]->kernel;
		r.same = !collective_is_alike(c->op) ? "-" : same_bits(b, i) ? "yes" : "no";
		snprintf(digest, sizeof digest, "%016" PRIx64, b->board->seen[i]->digest);
		r.digest = digest;
		r.how.clock = b->way->clock;
		r.how.gpu = b->board->about.gpu;
		if (b->out.f)
			put_line(&r, b->repeat, b->out.f);
	}
	r.gbps = hops / b->ranks * (double)c->bytes / r.own_us * 1e-3;
	return bench_table_put(&b->table, &r, err);
}

static void put_head(const struct bench *b, FILE *f)
{
	const struct collective_about *about = &b->board->about;
	const time_t now = time(NULL);
	struct tm day;

	gmtime_r(&now, &day);
	fprintf(f,
		"# attnreplay collectives 1\n"
		"# gpu %s  ranks %d  %s  driver %s  measured %04d-%02d-%02d\n"
		"# what a collective adds to a stream of kernels, clock %s\n"
		"collective    type ranks hosts mode        bytes   n   p10_ns   p50_ns   p90_ns  "
		"kernel\n",
		about->gpu, b->ranks, about->library, about->driver, day.tm_year + 1900,
		day.tm_mon + 1, day.tm_mday, b->way->clock);
}

static enum ar_status put_all(struct bench *b, struct ar_err *err)
{
	double *us = calloc((size_t)b->repeat, sizeof *us);
	enum ar_status st = us ? AR_OK : ar_nomem(err);
	int other = 0;

	if (!st && b->out.f && b->board)
		put_head(b, b->out.f);
	if (!st)
		bench_table_heads(&b->table);
	for (int i = 0; i < b->n && !st; i++) {
		st = put_case(b, i, us, err);
		other += b->board && b->of[i].op == COMM_GATHER && !same_bits(b, i);
	}
	free(us);
	if (!st && other)
		st = ar_fail(err, AR_CUDA,
			     "ranks have gathered different data in %d cases, so there is no file; "
			     "check NCCL and the link",
			     other);
	return st ? st : outfile_commit(&b->out, err);
}

/* ---- the mode ---- */

static enum ar_status check(const struct bench_args *a, struct ar_err *err)
{
	int64_t n;
	int device;

	if (a->tp < 2 || a->tp > RANKS_MAX)
		return ar_fail(err, AR_USAGE,
			       "bench collective needs --tp N, the ranks, from 2 to %d", RANKS_MAX);
	if (a->devices && (!rank_device(a->devices, 0, &n, &device) || n != a->tp))
		return ar_fail(err, AR_USAGE,
			       "--devices '%s': want the number of a GPU for each of %" PRId64
			       " ranks, as 0,1 or 4-7",
			       a->devices, a->tp);
	if (a->memory == MEMORY_HOST && !getenv("ATTNREPLAY_NCCL"))
		return ar_fail(err, AR_USAGE,
			       "memory host: NCCL does not reach the memory of the host; name a "
			       "library that does in ATTNREPLAY_NCCL");
	return AR_OK;
}

static size_t board_size(const struct bench *b)
{
	return sizeof *b->board +
	       sizeof *b->board->took * (size_t)(b->n * b->ranks) * (size_t)b->repeat;
}

enum ar_status bench_collective(const struct bench_args *a, struct ar_err *err)
{
	struct bench b = {
		.a = a,
		.way = a->memory == MEMORY_HOST ? &collective_host : &collective_device,
		.ranks = (int)a->tp,
		.repeat = (int)a->repeat,
		.table = { .cols = cols, .lines = a->format == FORMAT_JSON, .path = a->json }
	};
	enum ar_status st = check(a, err);

	if (!st)
		st = make_cases(&b, err);
	if (!st && !a->dry_run && !(b.board = workers_share(board_size(&b))))
		st = ar_nomem(err);
	if (!st && a->out)
		st = outfile_open(&b.out, a->out, err);
	if (!st)
		st = bench_table_open(&b.table, err);
	if (!st)
		st = run_ranks(&b, err);
	if (!st)
		st = put_all(&b, err);
	st = bench_table_close(&b.table, st, err);
	outfile_release(&b.out);
	workers_unshare(b.board, board_size(&b));
	return st;
}
