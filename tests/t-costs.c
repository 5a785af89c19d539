/* SPDX-License-Identifier: Apache-2.0 */
/* Costs from an earlier run: the features of a batch, the table, and a run replayed with its own
 * costs.  Also the error of the interpolation for batches that it did not see. */
#include "config.h"
#include "replay/cost/costs.h"
#include "replay/cost/backend_cost.h"
#include "replay/cost/kdtree.h"
#include "replay/engine/record.h"
#include "replay/engine/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/order.h"
#include "base/rng.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"

#define MS 1000000

static char dir[] = "/tmp/t-costs-XXXXXX";
static char path[256]; /* of the database of a test */

/* ---- shapes ---- */

static void test_shape(void)
{
	struct batch_entry e[] = {
		{ .req = 7, .start = 0, .n_tok = 8, .n_emit = 1 },
		{ .req = 2, .start = 100, .n_tok = 3 },
		{ .req = 9, .start = 50, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
		{ .req = 1, .start = 20, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
	};
	const struct batch_entry last = e[3];
	struct batch b = { .entry = e, .n = 4, .prefill_tok = 11, .decode_tok = 2 };
	struct batch_shape s = batch_shape(&b), other;

	is_int(s.feature[BATCH_PREFILL_TOK], 11, "prefill tokens are counted");
	is_int(s.feature[BATCH_PREFILL_PAIRS], 36 + 101 + 102 + 103,
	       "a query is paired with all keys up to itself");
	is_int(s.feature[BATCH_DECODES], 2, "decodes are counted");
	is_int(s.feature[BATCH_DECODE_CONTEXT], 51 + 21, "the keys that decodes read are counted");
	is_int(s.feature[BATCH_LONGEST_DECODE], 51, "... and those of the longest one");

	e[3] = e[0];
	e[0] = last;
	e[1].req = 77;
	other = batch_shape(&b);
	ok(!memcmp(&s, &other, sizeof s), "order and numbers of the requests do not matter");
	e[0].start++;
	e[2].start--;
	other = batch_shape(&b);
	ok(!memcmp(&s.feature, &other.feature, BATCH_LONGEST_DECODE * sizeof *s.feature) &&
		   s.composition != other.composition,
	   "contexts of the same sum are another composition");
	is_int(other.feature[BATCH_LONGEST_DECODE], 50, "... with another longest decode");
	e[0].start--;
	e[2].start++;
	e[1].n_emit = 1;
	ok(batch_shape(&b).composition != s.composition,
	   "a chunk that ends its prompt makes another batch");
}

static uint64_t mark(enum row_kind kind, uint32_t n_emit)
{
	struct batch_entry e = { .start = 100, .n_tok = 3, .kind = kind, .n_emit = n_emit };

	return batch_shape(&(struct batch){ .entry = &e, .n = 1 }).composition;
}

static void test_marks(void)
{
	static const uint64_t stored[2][2] = {
		{ 0x50b31103ccd3ca1f, 0x91f8afe29b4ff2e1 }, /* of prefill, */
		{ 0xcc31a2e4fc8680ae, 0x446ec37700b06d9a }  /* of decodes */
	};
	enum { EMITS = 9, MARKS = ROW_KINDS * EMITS };
	uint64_t seen[MARKS];
	int n = 0, twice = 0;

	for (int kind = 0; kind < 2; kind++)
		for (uint32_t emit = 0; emit < 2; emit++)
			ok(mark(kind, emit) == stored[kind][emit],
			   "%s, %u tokens out: the mark that databases hold: %#llx",
			   row_kind_name(kind), emit, (unsigned long long)mark(kind, emit));
	for (int kind = 0; kind < ROW_KINDS; kind++)
		for (uint32_t emit = 0; emit < EMITS; emit++, n++) {
			seen[n] = mark(kind, emit);
			for (int i = 0; i < n; i++)
				twice += seen[i] == seen[n];
		}
	is_int(twice, 0, "entries of another kind or with more tokens out have other marks");
}

/* ---- the table ---- */

static struct batch_shape shape(int64_t prefill, int64_t pairs, int64_t decodes, int64_t context)
{
	return (struct batch_shape){ { prefill, pairs, decodes, context,
				       decodes ? context / decodes : 0 },
				     decodes + !!prefill,
				     (uint64_t)(prefill * 31 + pairs * 17 + context) };
}

/* A longest decode of as many keys as the mean has, or up to more times as many. */
static void stretch(struct batch_shape *s, struct rng *r, int64_t more)
{
	s->feature[BATCH_LONGEST_DECODE] *= 1 + (int64_t)rng_below(r, (uint64_t)more);
	s->composition = rng_mix(s->composition + (uint64_t)s->feature[BATCH_LONGEST_DECODE]);
}

static struct cost_table *table(void)
{
	struct cost_table *t;

	if (cost_table_create(&t, NULL))
		bail_out("out of memory");
	return t;
}

static void add(struct cost_table *t, struct batch_shape s, int64_t cost)
{
	if (cost_table_add(t, &s, cost, NULL))
		bail_out("out of memory");
}

static void build(struct cost_table *t)
{
	if (cost_table_build(t, NULL))
		bail_out("out of memory");
}

static int64_t find(struct cost_table *t, struct batch_shape s, enum cost_source *from)
{
	int64_t cost = -1;
	int outside;

	*from = cost_table_find(t, &s, &cost, &outside);
	return cost;
}

static void test_reuse(void)
{
	struct cost_table *t = table();
	struct batch_shape a = shape(0, 0, 4, 400), b = shape(64, 2080, 0, 0), c = a;
	enum cost_source from;

	add(t, a, 5 * MS);
	add(t, b, 9 * MS);
	add(t, a, 7 * MS);
	add(t, a, 6 * MS);
	build(t);
	is_int(cost_table_size(t), 4, "a table counts its iterations");
	ok(find(t, a, &from) == 5 * MS && from == COST_MEASURED && find(t, a, &from) == 7 * MS &&
		   find(t, a, &from) == 6 * MS,
	   "costs of a batch come back in the order of measurement");
	ok(find(t, a, &from) == 6 * MS && find(t, a, &from) == 6 * MS && from == COST_MEASURED,
	   "the last one is used again from then on");
	ok(find(t, b, &from) == 9 * MS && from == COST_MEASURED,
	   "costs of other batches are not used up");
	c.composition++;
	find(t, c, &from);
	is_int(from, COST_INTERPOLATED, "equal features do not make an equal batch");
	cost_table_rewind(t);
	ok(find(t, a, &from) == 5 * MS && find(t, a, &from) == 7 * MS,
	   "another run gets them from the first one on");
	cost_table_destroy(t);
}

static int64_t linear(const struct batch_shape *s)
{
	return 3 * MS + 20000 * s->feature[0] + s->feature[1] / 4 + 30000 * s->feature[2] +
	       8 * s->feature[3] + (s->feature[0] ? 400 * s->feature[4] : 0);
}

static struct batch_shape random_shape(struct rng *r)
{
	int64_t p = rng_below(r, 2) ? 4 * (int64_t)rng_below(r, 500) : 0;
	int64_t d = (int64_t)rng_below(r, 60);
	struct batch_shape s = shape(p, p ? 4 * (p * (int64_t)rng_below(r, 2000) + p * p / 8) : 0,
				     d, d * (1 + (int64_t)rng_below(r, 3000)));

	stretch(&s, r, 4);
	return s;
}

static void test_linear(void)
{
	struct cost_table *t = table(), *back = table();
	struct rng r = { 1 };
	struct batch_shape s[1000];
	enum cost_source from;
	int64_t worst = 0;
	int differ = 0, inside = 0;

	for (int i = 0; i < 1000; i++)
		s[i] = random_shape(&r);
	for (int i = 0; i < 1000; i++) {
		add(t, s[i], linear(&s[i]));
		add(back, s[999 - i], linear(&s[999 - i]));
	}
	build(t);
	build(back);
	for (int i = 0; i < 2000; i++) {
		struct batch_shape x = random_shape(&r);
		int64_t cost, off;

		x.composition++;
		cost = find(t, x, &from);
		off = llabs(cost - linear(&x));
		worst = off > worst ? off : worst;
		inside += from == COST_INTERPOLATED;
		differ += find(back, x, &from) != cost;
	}
	ok(worst <= 2, "what is linear is interpolated to the nanosecond, worst %lld",
	   (long long)worst);
	ok(inside > 1900, "nearly all is inside of what was measured: %d of 2000", inside);
	is_int(differ, 0, "the order of measurement does not matter to what is interpolated");
	cost_table_destroy(t);
	cost_table_destroy(back);
}

/* A batch with prompts and decodes takes its work, or the walk of its longest decode. */
static double walked(const struct batch_shape *s)
{
	double work = 5e6 + 6e3 * (double)s->feature[BATCH_PREFILL_TOK];
	double walk = 450 * (double)s->feature[BATCH_LONGEST_DECODE];

	return fmax(work, walk);
}

/* Mean error of what is interpolated, with the longest decode or without. */
static double walk_error(bool longest)
{
	struct cost_table *t = table();
	struct rng r = { 5 };
	enum { N = 2000 };
	double sum = 0;

	for (int i = 0; i < 2 * N; i++) {
		int64_t p = 1 + (int64_t)rng_below(&r, 2000), d = 1 + (int64_t)rng_below(&r, 16);
		struct batch_shape s = shape(p, p * 4000, d,
					     d * (1 + (int64_t)rng_below(&r, 8000)));
		enum cost_source from;
		double cost;

		stretch(&s, &r, 4);
		cost = walked(&s);
		if (!longest)
			s.feature[BATCH_LONGEST_DECODE] = 0;
		if (i == N)
			build(t);
		if (i < N)
			add(t, s, (int64_t)cost);
		else
			sum += fabs((double)find(t, s, &from) / cost - 1);
	}
	cost_table_destroy(t);
	return sum / N;
}

static void test_walk(void)
{
	double with = walk_error(true), without = walk_error(false);

	ok(with < 0.02, "a walk of the longest decode is interpolated, off by %.4f", with);
	ok(without > 4 * with, "... as it would not be without that quantity, off by %.4f",
	   without);
}

static int by_distance(const void *a, const void *b)
{
	const struct kd_found *x = a, *y = b;
	const int c = ORDER(x->dist, y->dist);

	return c ? c : ORDER(x->id, y->id);
}

static void test_tree(void)
{
	enum { N = 2000, K = 12 };
	static struct kd_point p[N];
	static struct kd_found all[N], found[K];
	struct rng r = { 7 };
	struct kdtree *t;
	int differ = 0, n = 0;

	for (int round = 0; round < 20; round++) {
		size_t size = round ? 1 + rng_below(&r, N) : 5;

		for (size_t i = 0; i < size; i++) {
			p[i].id = i; /* few values, so that much is equal */
			for (int d = 0; d < KD_DIMS; d++)
				p[i].at[d] = rng_below(&r, 2) ? 0 : (double)rng_below(&r, 40) / 8;
		}
		if (kdtree_build(&t, p, size, NULL))
			bail_out("out of memory");
		for (int q = 0; q < 50; q++) {
			double at[KD_DIMS];
			size_t got;

			for (int d = 0; d < KD_DIMS; d++)
				at[d] = rng_unit(&r) * 5 * (double)rng_below(&r, 2);
			got = kdtree_nearest(t, at, found, K);
			for (size_t i = 0; i < size; i++) {
				all[i] = (struct kd_found){ 0, p[i].id };
				for (int d = 0; d < KD_DIMS; d++)
					all[i].dist += (p[i].at[d] - at[d]) * (p[i].at[d] - at[d]);
			}
			qsort(all, size, sizeof *all, by_distance);
			differ += got != (size < K ? size : K);
			for (size_t i = 0; i < got; i++)
				differ += all[i].id != found[i].id || all[i].dist != found[i].dist;
			n++;
		}
		kdtree_destroy(t);
	}
	is_int(differ, 0, "the tree finds what looking at all points finds, %d times", n);
}

/* Costs without any trend, equal within each of many clusters: only the true neighbours know
 * them. */
static void test_nearest(void)
{
	struct cost_table *t = table();
	struct rng r = { 2 };
	enum cost_source from;
	double worst = 0;

	for (int k = 0; k < 64; k++)
		for (int i = 0; i < 20; i++) {
			int64_t p = 64 << (k & 3) * 2, n = 1000000ll << (k >> 2 & 3) * 3;
			int64_t d = k & 16 ? 8 : 128, c = k & 32 ? 5000 : 5000 << 5;

			add(t, shape(p, n + i, d, c + (int64_t)rng_below(&r, 50)),
			    MS * (1 + (k * 37) % 64));
		}
	build(t);
	for (int k = 0; k < 64; k++) {
		int64_t p = 64 << (k & 3) * 2, n = 1000000ll << (k >> 2 & 3) * 3;
		int64_t d = k & 16 ? 8 : 128, c = k & 32 ? 5000 : 5000 << 5;
		double want = MS * (1 + (k * 37) % 64);
		double off = fabs((double)find(t, shape(p, n + 10, d, c + 60), &from) / want - 1);

		worst = off > worst ? off : worst;
	}
	ok(worst < 0.01, "the nearest batches correct the trend, worst %.4f", worst);
	cost_table_destroy(t);
}

/* Costs that no line has: 1 row costs as much as 128, many rows go by waves, and attention reads
 * faster where there is more to read. */
static double curved(const struct batch_shape *s)
{
	int64_t rows = s->feature[BATCH_PREFILL_TOK] + s->feature[BATCH_DECODES];
	double work = 22e3 * (double)((rows + 127) / 128 * 128);
	double context = (double)s->feature[BATCH_DECODE_CONTEXT];

	return 1e6 + (work > 4.5e6 ? work : 4.5e6) + (s->feature[BATCH_PREFILL_TOK] ? 5e5 : 0) +
	       0.03 * (double)s->feature[BATCH_PREFILL_PAIRS] +
	       12e3 * (double)s->feature[BATCH_DECODES] + 9 * context / (1 + context / 4e5);
}

/* Most batches are light, and the heaviest lie at the edge of the measured range. */
static struct batch_shape skewed_shape(struct rng *r)
{
	double u = rng_unit(r), v = rng_unit(r);
	int64_t p = rng_below(r, 2) ? 1 + (int64_t)(8000 * u * u * u) : 0;
	int64_t d = (int64_t)(60 * v * v);

	d += !p && !d;
	return shape(p, p * (int64_t)rng_below(r, 3000) + p * (p + 1) / 2, d,
		     d * (1 + (int64_t)rng_below(r, 3000)));
}

struct guess {
	double cost, guess;
};

static int by_cost(const void *a, const void *b)
{
	const struct guess *x = a, *y = b;

	return ORDER(x->cost, y->cost);
}

enum { N_GUESS = 2000, PARTS = 10 };

/* Costs from a table with noise for other batches, lightest first. */
static void guess(struct guess *g, struct rng *r)
{
	struct cost_table *t = table();
	enum cost_source from;

	for (int i = 0; i < N_GUESS; i++) {
		struct batch_shape s = skewed_shape(r);

		add(t, s, (int64_t)(curved(&s) * (1 + 0.02 * (double)rng_normal(r))));
	}
	build(t);
	for (int i = 0; i < N_GUESS; i++) {
		struct batch_shape s = skewed_shape(r);

		s.composition++;
		g[i] = (struct guess){ curved(&s), (double)find(t, s, &from) };
	}
	cost_table_destroy(t);
	qsort(g, N_GUESS, sizeof *g, by_cost);
}

/* An error that heavy batches have in common adds up for the requests that queue behind. */
static void test_bias(void)
{
	static struct guess g[N_GUESS];
	double cost[PARTS] = { 0 }, sum[PARTS] = { 0 }, worst = 0, off = 0, each = 0;
	struct rng r = { 11 };
	int rounds = 10;

	for (int round = 0; round < rounds; round++) {
		guess(g, &r);
		for (int i = 0; i < N_GUESS; i++) {
			cost[i * PARTS / N_GUESS] += g[i].cost;
			sum[i * PARTS / N_GUESS] += g[i].guess;
			each += fabs(g[i].guess / g[i].cost - 1) / N_GUESS / rounds;
		}
	}
	for (int i = 0; i < PARTS; i++) {
		off = fabs(sum[i] / cost[i] - 1);
		worst = off > worst ? off : worst;
	}
	ok(off < 0.005, "what is interpolated for the heaviest tenth of batches has no bias: %.4f",
	   off);
	ok(worst < 0.01, "nor has it for lighter tenths: at most %.4f", worst);
	ok(each < 0.02, "a batch is not far off: %.4f on average", each);
}

static void test_outside(void)
{
	struct cost_table *t = table();
	struct batch_shape s;
	enum cost_source from;
	int64_t cost, min, max;
	double far[2];
	int outside = -1;
	enum { MANY = 131328 };

	add(t, shape(0, 0, 8, 800), 5 * MS);
	add(t, shape(0, 0, 2, 100), 4 * MS);
	add(t, shape(512, 131328, 4, 300), 20 * MS);
	build(t);
	find(t, shape(100, 5050, 4, 300), &from);
	is_int(from, COST_INTERPOLATED, "between the measured ones a cost is interpolated");
	s = shape(512, 131329, 4, 300);
	is_int(cost_table_find(t, &s, &cost, &outside), COST_EXTRAPOLATED, "above it is not");
	is_int(outside, BATCH_PREFILL_PAIRS, "... and the feature is told");
	ok(cost > 0, "... and a cost");
	find(t, shape(0, 0, 1, 100), &from);
	is_int(from, COST_EXTRAPOLATED, "a batch below the range is extrapolated too");
	s = shape(100, 5050, 4, 300);
	ok(cost_table_beyond(t, &s) == 0, "within the range a shape is not beyond it");
	for (int64_t pairs = 2 * MANY; pairs; pairs -= MANY) {
		s = shape(512, 131328 + pairs, 4, 300);
		far[pairs / MANY - 1] = cost_table_beyond(t, &s);
	}
	ok(far[0] > 0 && far[1] > far[0], "farther shapes are: %.3f, %.3f", far[0], far[1]);
	s = shape(512, 131329, 4, 300);
	ok(cost_table_beyond(t, &s) < 1e-4, "... and one that is hardly outside hardly is");
	cost_table_range(t, BATCH_DECODES, &min, &max);
	ok(min == 2 && max == 8, "the range is told");
	cost_table_destroy(t);
}

static void test_degenerate(void)
{
	struct cost_table *t = table();
	enum cost_source from;
	int64_t cost;

	add(t, shape(10, 55, 0, 0), 7 * MS);
	build(t);
	is_int(find(t, shape(20, 210, 0, 0), &from), 7 * MS, "one iteration is a constant");
	cost_table_destroy(t);

	t = table();
	for (int i = 1; i < 9; i++)
		add(t, shape(i, i, i, i), 0);
	build(t);
	is_int(find(t, shape(3, 4, 5, 6), &from), 0, "what costs nothing goes on to");
	cost_table_destroy(t);

	t = table();
	for (int i = 1; i < 9; i++)
		add(t, shape(0, 0, i, i * 100), (10 - i) * MS);
	build(t);
	cost = find(t, shape(0, 0, 1000, 100000), &from);
	ok(cost >= 2 * MS && cost <= 9 * MS, "costs that fall with the work are not carried on");
	cost_table_destroy(t);
}

/* ---- runs ---- */

/* A backend whose costs are not linear, and differ each time. */
struct noisy {
	struct rng r;
	double noise;
};

static enum ar_status noisy_run(void *self, const struct batch *b, struct iter_cost *cost,
				struct ar_err *err)
{
	struct noisy *n = self;
	struct batch_shape s = batch_shape(b);

	(void)err;
	*cost = (struct iter_cost){ .event_ns = -1, .span_ns = -1, .busy_ns = -1 };
	cost->cost_ns = (int64_t)(curved(&s) * (1 + n->noise * (double)rng_normal(&n->r)));
	return AR_OK;
}

static void drop(void *self, uint32_t req)
{
	(void)self, (void)req;
}

static const struct backend noisy_backend = { .name = "noisy", .run = noisy_run, .drop = drop };

/* Replay cfg with a backend into the database. */
static enum ar_status run(struct replay cfg, const struct backend *b, void *self,
			  struct replay_result *res, struct ar_err *err)
{
	const struct store_run record = {
		.trace_name = "t",
		.trace_sha256 = "0",
		.trace_format = "none",
		.n_requests = (int64_t)cfg.trace->n,
		.policy = cfg.limits.policy->name,
		.backend = b->name,
		.version = "1",
		.cmdline = "t",
		.options = "{}",
		.setup = "{}",
		.clock = "cost",
		.num_blocks = cfg.limits.num_blocks,
		.block_tok = cfg.limits.block_tok,
	};
	struct recorder recorder = { .iterations = true, .entries = true };
	const struct observer observer = recorder_observer(&recorder);
	int64_t id;
	enum ar_status st;

	if (store_open(&recorder.store, path, err) ||
	    store_run_begin(recorder.store, &record, &id, err))
		bail_out("%s", err->msg);
	cfg.backend = b;
	cfg.self = self;
	cfg.observer = &observer;
	st = replay_run(&cfg, res, err);
	store_run_end(recorder.store, st ? "failed" : "done", NULL, NULL, NULL);
	store_close(recorder.store, NULL);
	recorder_release(&recorder);
	return st;
}

/* ... with the costs of run 1. */
static enum ar_status run_costs(const struct replay *cfg, bool extrapolate,
				struct replay_result *res, struct ar_err *err)
{
	const struct cost_options o = { .extrapolate = extrapolate };
	struct backend_env env = { 0 };
	char where[300];
	void *self;
	enum ar_status st;

	snprintf(where, sizeof where, "%s:1", path);
	if (costs_open(&env.costs, where, err) || backend_open(&backend_cost, &self, &o, &env, err))
		bail_out("%s", err->msg);
	st = run(*cfg, &backend_cost, self, res, err);
	backend_close(&backend_cost, self);
	costs_close(env.costs);
	return st;
}

static int64_t query(const char *sql)
{
	sqlite3 *db;
	sqlite3_stmt *q;
	int64_t x = -1;

	if (sqlite3_open(path, &db) || sqlite3_prepare_v2(db, sql, -1, &q, NULL) ||
	    sqlite3_step(q) != SQLITE_ROW)
		bail_out("%s: %s", sql, sqlite3_errmsg(db));
	x = sqlite3_column_int64(q, 0);
	sqlite3_finalize(q);
	sqlite3_close(db);
	return x;
}

static void change(const char *sql)
{
	sqlite3 *db;

	if (sqlite3_open(path, &db) || sqlite3_exec(db, sql, NULL, NULL, NULL))
		bail_out("%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_close(db);
}

static void new_path(const char *name)
{
	snprintf(path, sizeof path, "%s/%s.db", dir, name);
}

/* Rows that one of the runs 1 and 2 has and the other one has not. */
static int64_t rows_differ(const char *columns, const char *from)
{
	char sql[1500];

	snprintf(sql, sizeof sql,
		 "WITH a AS (SELECT %s FROM %s WHERE run_id = 1), b AS (SELECT %s FROM %s WHERE "
		 "run_id = 2) SELECT (SELECT count(*) FROM (SELECT * FROM a EXCEPT "
		 "SELECT * FROM b))"
		 " + (SELECT count(*) FROM (SELECT * FROM b EXCEPT SELECT * FROM a))"
		 " + abs((SELECT count(*) FROM a) - (SELECT count(*) FROM b))",
		 columns, from, columns, from);
	return query(sql);
}

enum { BLOCK_TOK = 16, MAX_REQ = 60 };

/* Requests, many of which share a prefix. */
static void random_trace(struct trace *t, struct rng *r)
{
	static struct request req[MAX_REQ];
	static struct block_run run[MAX_REQ * 40];
	int64_t arrival = 0;

	*t = (struct trace){ .req = req,
			     .n = 20 + rng_below(r, MAX_REQ - 20),
			     .run = run,
			     .cap_run = MAX_REQ * 40,
			     .block_tok = BLOCK_TOK,
			     .name = dir };
	for (size_t i = 0; i < t->n; i++) {
		uint32_t prompt = 1 + (uint32_t)rng_below(r, 600),
			 family = (uint32_t)rng_below(r, 4);
		uint32_t shared = (uint32_t)rng_below(r, 30);
		uint64_t id = family;

		arrival += (int64_t)rng_below(r, 3) * (int64_t)rng_below(r, 20 * MS);
		req[i] = (struct request){ .arrival_ns = arrival,
					   .prompt_tok = prompt,
					   .output_tok = 1 + (uint32_t)rng_below(r, 40),
					   .run = t->n_run,
					   .line = i + 1,
					   .priority = (int32_t)rng_below(r, 3) };
		for (uint32_t k = 0; k < (prompt + BLOCK_TOK - 1) / BLOCK_TOK; k++) {
			id = rng_mix(k < shared && (k + 1) * BLOCK_TOK <= prompt ? id :
										   id + 1000 + i);
			trace_put_block(t, &req[i], id);
		}
	}
}

/* Options at random, as far as the policy has them; the longest request fits. */
static struct sched_limits random_limits(const struct policy *p, struct rng *r)
{
	struct sched_limits l = {
		.max_batched_tok = rng_below(r, 2) ? 700 : 64 + (int64_t)rng_below(r, 700),
		.max_seqs = 2 + (int64_t)rng_below(r, 30),
		.block_tok = BLOCK_TOK,
		.num_blocks = 45 + (int64_t)(rng_below(r, 2) ? rng_below(r, 60) : 1000),
		.watermark = p->watermark,
		.survives = true,
		.policy = p,
	};

	if (p->can & POLICY_PREFIX_CACHE)
		l.prefix_cache = rng_below(r, 2);
	if (p->can & POLICY_LONG_PREFILL && rng_below(r, 2))
		l.long_prefill_tok = 100;
	if (p->can & POLICY_ORDER)
		l.order = (int)rng_below(r, 2);
	if (p->can & POLICY_ASYNC)
		l.async = rng_below(r, 2);
	if (p->can & POLICY_CHUNKS)
		l.chunks = (int)rng_below(r, 2);
	return l;
}

static void test_again(void)
{
	int n_round = rounds(12);
	struct rng r = { 3 };
	int64_t preempted = 0, cached = 0;

	for (int i = 0; policies[i]; i++) {
		int64_t differ = 0, guessed = 0;
		int failed = 0;

		for (int round = 0; round < n_round; round++) {
			struct noisy n = { { r.state }, 0.1 };
			struct replay_result res;
			struct ar_err err = { 0 };
			struct trace t;
			struct replay cfg = { .trace = &t,
					      .host.ns = { [HOST_SCHEDULE] = MS / 10,
							   [HOST_SCHEDULE_REQ] = 20000,
							   [HOST_PREPARE_TOK] = 300 } };

			random_trace(&t, &r);
			cfg.limits = random_limits(policies[i], &r);
			new_path("again");
			remove(path);
			failed += !!run(cfg, &noisy_backend, &n, &res, &err);
			preempted += res.preemptions;
			cached += res.cached_tok;
			replay_result_release(&res);
			failed += !!run_costs(&cfg, false, &res, &err);
			replay_result_release(&res);
			if (err.status)
				diag("%s", err.msg);
			differ += rows_differ("iter_no, start_ns, end_ns, host_ns, prefill_tokens,"
					      " decode_tokens, batch_size, blocks_used, waiting,"
					      " running, preempted, stop, prefill_pairs,"
					      " decode_context, composition",
					      "iteration");
			differ += rows_differ("iter_no, req_no, start, n_tokens, decode, emit,"
					      " recompute",
					      "iteration_request");
			differ += rows_differ("req_no, outcome, arrival_ns, first_sched_ns,"
					      " first_token_ns, finish_ns, n_chunks, n_preempt",
					      "request_outcome");
			guessed += query("SELECT count(*) FROM iteration WHERE run_id = 2 AND "
					 "batch_size > 0 AND cost_source <> 'measured'");
		}
		is_int(failed, 0, "%s: runs and runs from their costs end well", policies[i]->name);
		is_int(differ, 0, "%s: from its own costs a run comes out again, row for row",
		       policies[i]->name);
		is_int(guessed, 0, "%s: ... every cost a measured one", policies[i]->name);
	}
	ok(preempted > rounds(50), "among these requests were preempted: %lld",
	   (long long)preempted);
	ok(cached > rounds(5000), "... and prefixes found: %lld", (long long)cached);
}

/* ---- databases of before ---- */

/* The largest number of keys of the longest decode in the costs of run 1; -1: it is not known. */
static int64_t longest_known(void)
{
	struct costs *c;
	struct ar_err err = { 0 };
	int64_t min, max;

	if (costs_open(&c, path, &err))
		bail_out("%s", err.msg);
	cost_table_range(c->table, BATCH_LONGEST_DECODE, &min, &max);
	if (c->no_longest)
		is_int(max, 0, "what is not known is 0");
	max = c->no_longest ? -1 : max;
	costs_close(c);
	return max;
}

/* Run 1, then the same from its costs as run 2: iterations that differ. */
static int64_t again(const struct replay *cfg)
{
	struct replay_result res;
	struct ar_err err = { 0 };

	is_int(run_costs(cfg, false, &res, &err), AR_OK, "its costs are taken");
	replay_result_release(&res);
	return rows_differ("iter_no, start_ns, end_ns, composition", "iteration");
}

static void test_old(void)
{
	struct noisy n = { { 8 }, 0.1 };
	struct rng r = { 9 };
	struct replay_result res;
	struct ar_err err = { 0 };
	struct trace t;
	struct replay cfg = { .trace = &t };
	int64_t longest;

	random_trace(&t, &r);
	cfg.limits = random_limits(policies[0], &r);
	new_path("old");
	run(cfg, &noisy_backend, &n, &res, &err);
	replay_result_release(&res);
	longest = query("SELECT max(longest_decode) FROM iteration WHERE prefill_tokens > 0");
	ok(longest > 100 && query("SELECT max(longest_decode) FROM iteration") > longest,
	   "the longest decode of each iteration is stored");
	is_int(query("SELECT count(*) FROM iteration i WHERE longest_decode <> coalesce((SELECT "
		     "max(start + 1) FROM iteration_request e WHERE e.iter_no = i.iter_no AND "
		     "decode), 0)"),
	       0, "... as the entries have it");
	is_int(longest_known(), longest, "the costs have that of batches with prompts");
	change("UPDATE iteration SET longest_decode = NULL");
	is_int(longest_known(), longest, "a file of before has it in the entries");
	is_int(again(&cfg), 0, "... so the run comes out again");
	new_path("older");
	n.r.state = 8;
	run(cfg, &noisy_backend, &n, &res, &err);
	replay_result_release(&res);
	change("UPDATE iteration SET longest_decode = NULL; DELETE FROM request_span");
	is_int(longest_known(), -1, "without entries it is not known");
	is_int(again(&cfg), 0, "... and the run comes out again all the same");
}

/* ---- another window of the trace ---- */

static double off(const struct replay_result *a, const struct replay_result *b, int metric,
		  double p)
{
	double x = series_percentile(&a->latency[metric], p);
	double y = series_percentile(&b->latency[metric], p);

	diag("%s p%g: %.3f ms, from costs %.3f ms", latency_names[metric], p, x / 1e6, y / 1e6);
	return fabs(y / x - 1);
}

static void read_window(struct trace **t, double scale, int64_t skip, int64_t n)
{
	const char *data = getenv("ATTNREPLAY_DATA");
	const struct trace_args a = { .skip = skip, .requests = n, .time_scale = scale };
	struct ar_err err;
	char file[500];

	snprintf(file, sizeof file, "%s/traces/samples/azure-2023-code-200.csv", data ? data : ".");
	if (trace_read(t, file, &a, &err))
		bail_out("%s", err.msg);
}

static void test_window(double scale)
{
	struct replay cfg = {
		.limits = { .policy = policy_find("vllm-0.16"),
			    .max_batched_tok = 1024,
			    .max_seqs = 64,
			    .block_tok = 16,
			    .num_blocks = 20000 },
	};
	struct trace *learn, *test;
	struct replay_result seen, want, got;
	struct ar_err err = { 0 };

	read_window(&learn, scale, 0, 100);
	read_window(&test, scale, 100, 100);
	new_path("window");
	remove(path);
	cfg.trace = learn;
	run(cfg, &noisy_backend, &(struct noisy){ { 4 }, 0.02 }, &seen, &err);
	cfg.trace = test;
	run(cfg, &noisy_backend, &(struct noisy){ { 5 }, 0.02 }, &want, &err);
	is_int(run_costs(&cfg, true, &got, &err), AR_OK,
	       "a window of the trace, its times by "
	       "%g, is replayed with costs of another",
	       scale);
	diag("of %lld iterations %lld were measured, %lld interpolated, %lld extrapolated",
	     (long long)got.iterations, (long long)got.cost_sources[COST_MEASURED],
	     (long long)got.cost_sources[COST_INTERPOLATED],
	     (long long)got.cost_sources[COST_EXTRAPOLATED]);
	for (int m = LATENCY_TTFT; m <= LATENCY_TPOT; m++)
		for (int p = 50; p <= 99; p += 49)
			ok(off(&want, &got, m, p) < 0.05, "%s p%d is within 5 %%", latency_names[m],
			   p);
	replay_result_release(&seen);
	replay_result_release(&want);
	replay_result_release(&got);
	trace_free(learn);
	trace_free(test);
}

/* ---- unusable runs ---- */

static void refuses(const char *suffix, enum ar_status want, const char *message, const char *what)
{
	struct ar_err err = { 0 };
	struct costs *c = NULL;
	char where[300];

	snprintf(where, sizeof where, "%s%s", path, suffix);
	is_int(costs_open(&c, where, &err), want, "refused: %s", what);
	ok(!c && !strncmp(err.msg, path, strlen(path)) && !strcmp(err.msg + strlen(path), message),
	   "... in these words");
	if (strncmp(err.msg, path, strlen(path)) || strcmp(err.msg + strlen(path), message))
		diag("%s", err.msg);
}

/* Runs 1 and 2 in one table. */
static void test_list(void)
{
	size_t n[3] = { 0 };
	struct ar_err err = { 0 };
	struct costs *c;
	char where[700];

	for (int i = 0; i < 3; i++) {
		snprintf(where, sizeof where, "%s:%d%s%s%s", path, i == 1 ? 2 : 1,
			 i == 2 ? "," : "", i == 2 ? path : "", i == 2 ? ":2" : "");
		is_int(costs_open_list(&c, where, &err), AR_OK, "a list of runs: %s", where);
		n[i] = c ? cost_table_size(c->table) : 0;
		costs_close(c);
	}
	ok(n[0] && n[1] && n[2] == n[0] + n[1], "... has the iterations of all");
	snprintf(where, sizeof where, "%s:1,%s:9", path, path);
	is_int(costs_open_list(&c, where, &err), AR_USAGE, "one of them is not there");
	ok(!c && strstr(err.msg, ": no run 9; "), "... which is said");
	change("INSERT INTO model VALUES(99, 'other', 1, 1, 1, 1, 1, 1, '{}')");
	change("UPDATE run SET model_id = 99 WHERE run_id = 2");
	snprintf(where, sizeof where, "%s:1,%s:2", path, path);
	is_int(costs_open_list(&c, where, &err), AR_USAGE, "two models");
	ok(!c && strstr(err.msg, ":2: its model is not that of ") &&
		   strstr(err.msg, ":1; name runs of one model"),
	   "... in these words");
}

/* The database of test_window(): runs 1, 2 and 3 are done. */
static void test_refusals(void)
{
	struct ar_err err;
	struct costs *c;
	char text[400];

	snprintf(text, sizeof text, ": 3 finished runs; name one of them, as in %s:3", path);
	refuses("", AR_USAGE, text, "one of several runs without a name");
	snprintf(text, sizeof text, ": no run 9; 'attnreplay report %s' lists the runs", path);
	refuses(":9", AR_USAGE, text, "a run that is not there");
	refuses(":0", AR_USAGE, ":0: runs are numbered from 1", "run 0");
	refuses(":x", AR_DATA, ":x: No such file or directory", "a file that is not there");

	test_list();
	change("UPDATE run SET status = 'aborted' WHERE run_id = 2");
	change("UPDATE run SET status = 'running' WHERE run_id = 3");
	refuses(":2", AR_USAGE, ": run 2 is aborted; costs need a finished run",
		"a run that was stopped");
	refuses(":3", AR_USAGE, ": run 3 is running; costs need a finished run",
		"a run that is under way");
	is_int(costs_open(&c, path, &err), AR_OK, "the only run that is done needs no name");
	snprintf(text, sizeof text, "%s:1", path);
	is_str(c->name, text, "... and gets it");
	costs_close(c);

	change("UPDATE iteration SET end_ns = start_ns - 1 WHERE iter_no = 7 AND run_id = 1");
	refuses("", AR_DATA, ": run 1: iteration 7 has a figure out of range", "a cost below 0");
	change("UPDATE iteration SET end_ns = start_ns, prefill_pairs = 1 << 60 WHERE iter_no = 7");
	refuses("", AR_DATA, ": run 1: iteration 7 has a figure out of range",
		"... or more work "
		"than can be done");
	change("UPDATE iteration SET batch_size = 0");
	refuses("", AR_DATA,
		": run 1 has no iteration with a batch; "
		"name a run without --keep-tables requests",
		"nothing but empty batches");
	change("DELETE FROM iteration");
	refuses("", AR_DATA,
		": run 1 has no iteration with a batch; "
		"name a run without --keep-tables requests",
		"a run without iterations");
	change("UPDATE run SET num_blocks = 0");
	refuses("", AR_DATA, ": run 1 has an invalid KV pool", "a pool without blocks");
	change("UPDATE run SET num_blocks = 100; DROP TABLE iteration");
	refuses("", AR_DATA, ": no such table: iteration", "a database that lacks a table");
	change("UPDATE run SET status = 'failed'");
	refuses("", AR_USAGE, ": no run is done; costs need a finished run",
		"a database without a run that is done");
	file_write(path,
		   "no database at all, but longer than a header would be.........."
		   "..................................................",
		   100);
	refuses("", AR_DATA, ": file is not a database; name another file", "what is no database");
}

static void test_faults(void)
{
	struct ar_err err = { 0 };
	struct costs *c;
	enum ar_status st;
	bool fired;
	int bad = 0;
	char where[700];
	long k = 0;

	snprintf(where, sizeof where, "%s:1,%s:1", path, path);
	do {
		fault_arm(k++);
		st = costs_open_list(&c, where, &err);
		fired = fault_disarm();
		bad += fired && (st != AR_NOMEM || c);
		costs_close(c);
	} while (fired);
	ok(!bad && !st && k > 8, "each of %ld allocations can fail", k - 1);
}

int main(void)
{
	char command[64];

	plan(0);
	if (!mkdtemp(dir))
		bail_out("cannot make a folder");
	test_shape();
	test_marks();
	test_reuse();
	test_linear();
	test_tree();
	test_nearest();
	test_walk();
	test_bias();
	test_outside();
	test_degenerate();
	test_again();
	test_old();
	test_faults();
	test_window(0.4); /* requests queue up */
	test_window(2);
	test_window(8); /* most run alone */
	test_refusals();
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	if (system(command))
		diag("cannot remove %s", dir);
	return done_testing();
}
