/* SPDX-License-Identifier: Apache-2.0 */
/* To which experts rows go: sums, draws, distributions and files. */
#include "config.h"
#include "replay/cost/experts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/alloc_fault.h"
#include "tests/tap.h"

enum { MOST = 256 };

static char path[] = "t-experts.XXXXXX";
static const int kind[40] = { 1, 2, -1 }; /* else 0 */
static const struct experts_shape shape = { 128, 8, 8, 3, kind };

struct drawn {
	int64_t load[MOST], sent[MOST];
};

static struct experts *make(const char *rule, const struct experts_shape *s)
{
	struct ar_err err = { 0 };
	struct experts *r;

	if (experts_open(&r, rule, s, 7, &err))
		bail_out("%s: %s", rule, err.msg);
	return r;
}

static struct drawn draw(const struct experts *r, int64_t iter, int layer, int64_t rows)
{
	struct drawn d = { 0 };

	experts_draw(r, iter, layer, rows, d.load, d.sent);
	return d;
}

static int64_t sum(const int64_t *x, int n)
{
	int64_t all = 0;

	for (int i = 0; i < n; i++)
		all += x[i];
	return all;
}

static int64_t most(const int64_t *x, int n)
{
	int64_t best = 0;

	for (int i = 0; i < n; i++)
		best = x[i] > best ? x[i] : best;
	return best;
}

static void put(const char *text)
{
	FILE *f = fopen(path, "w");

	if (!f || fputs(text, f) < 0 || fclose(f))
		bail_out("%s: cannot write", path);
}

/* A row has k experts, on 1 to k ranks. */
static void test_sums(void)
{
	static const char *const rules[] = { "even", "uniform", "zipf:1", "zipf:4" };
	static const int64_t rows[] = { 0, 1, 63, 64, 1000, EXPERTS_ROWS, 5 * EXPERTS_ROWS + 100 };

	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
		struct experts *r = make(rules[i], &shape), *again = make(rules[i], &shape);
		bool sums = true, ranks = true, same = true;

		for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
			for (int64_t iter = 0; iter < 20; iter++) {
				struct drawn d = draw(r, iter, 1, rows[k]);
				struct drawn other = draw(again, iter, 1, rows[k]);

				sums = sums && sum(d.load, 128) == 8 * rows[k];
				ranks = ranks && sum(d.sent, 8) >= rows[k] &&
					sum(d.sent, 8) <= 8 * rows[k] + 8 &&
					most(d.sent, 8) <= rows[k];
				same = same && !memcmp(&d, &other, sizeof d);
			}
		ok(sums, "%s: each row has its experts", rules[i]);
		ok(ranks, "... on one rank at least");
		ok(same, "... and every rank draws the same");
		experts_close(again);
		experts_close(r);
	}
}

static void test_draws_differ(void)
{
	struct experts *r = make("zipf:1", &shape);
	struct drawn a = draw(r, 5, 0, 100), b = draw(r, 6, 0, 100), c = draw(r, 5, 1, 100);

	ok(memcmp(&a, &b, sizeof a), "the next iteration draws others");
	ok(memcmp(&a, &c, sizeof a), "... and the next layer");
	experts_close(r);
}

/* Binomial counts of n rows that have an expert with probability p. */
static bool near(double mean, double n, double p)
{
	return fabs(mean - n * p) <= 4 * sqrt(n * p * (1 - p));
}

static void test_uniform(void)
{
	struct experts *r = make("uniform", &shape);
	const struct drawn d = draw(r, 0, 0, EXPERTS_ROWS);
	const double spread = experts_spread(&shape);
	bool loads = true, ranks = true;

	for (int i = 0; i < 128; i++)
		loads = loads && near((double)d.load[i], EXPERTS_ROWS, 8.0 / 128);
	ok(loads, "uniform: experts get what their share is, within 4 deviations");
	for (int i = 0; i < 8; i++)
		ranks = ranks && near((double)d.sent[i], EXPERTS_ROWS, spread / 8);
	ok(ranks, "... and ranks as many rows as sets of experts say");
	ok(fabs(spread - 5.34) < 0.005, "a row goes to %.3f of 8 ranks, of 128 experts", spread);
	ok(fabs(experts_spread(&(struct experts_shape){ 256, 8, 8, 1, kind }) - 5.30) < 0.01,
	   "... to fewer, of 256");
	ok(experts_spread(&(struct experts_shape){ 8, 8, 1, 1, kind }) == 1,
	   "... and to the only one");
	ok(experts_spread(&(struct experts_shape){ 8, 1, 8, 1, kind }) == 1,
	   "... of 8, with one expert");
	experts_close(r);
}

/* Most over mean load of ranks and of experts, over all layers: the least, the mean, the most. */
static void ratios(const char *rule, int64_t rows, double rank[3], double expert[3])
{
	const struct experts_shape s = { 128, 8, 8, 40, kind };
	struct experts *r = make(rule, &s);

	rank[0] = expert[0] = INFINITY;
	rank[1] = expert[1] = rank[2] = expert[2] = 0;
	for (int layer = 0; layer < s.layers; layer++) {
		const struct drawn d = draw(r, 0, layer, rows);
		int64_t of_rank[8] = { 0 };
		double x, y;

		for (int i = 0; i < 128; i++)
			of_rank[i / 16] += d.load[i];
		x = (double)most(of_rank, 8) / (double)rows;
		y = (double)most(d.load, 128) / ((double)rows / 16);
		rank[0] = fmin(rank[0], x), rank[2] = fmax(rank[2], x);
		expert[0] = fmin(expert[0], y), expert[2] = fmax(expert[2], y);
		rank[1] += x / s.layers, expert[1] += y / s.layers;
	}
	experts_close(r);
}

/* Figures that were drawn once, elsewhere, are among ours, or within 5 % of them. */
static void test_ratios(void)
{
	static const struct {
		const char *rule;
		int64_t rows;
		double rank, expert;
	} want[] = {
		{ "uniform", 64, 1.11, 2.25 },	 { "zipf:0.5", 64, 1.36, 4.5 },
		{ "zipf:1.0", 64, 1.36, 12.8 },	 { "uniform", 1024, 1.04, 1.30 },
		{ "zipf:0.5", 1024, 1.20, 5.1 }, { "zipf:1.0", 1024, 1.41, 13.4 },
	};

	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		double x[3], y[3];

		ratios(want[i].rule, want[i].rows, x, y);
		ok(x[0] <= 1.05 * want[i].rank && 0.95 * want[i].rank <= x[2],
		   "%s, %d rows: the slowest rank has %.2f times the mean, %.2f to %.2f",
		   want[i].rule, (int)want[i].rows, x[1], x[0], x[2]);
		ok(y[0] <= 1.05 * want[i].expert && 0.95 * want[i].expert <= y[2],
		   "... the busiest expert %.2f times, %.2f to %.2f", y[1], y[0], y[2]);
	}
}

static void test_most(void)
{
	const struct experts_shape s = { 4, 1, 2, 3, kind };
	struct experts *r = make("even", &s);
	struct experts_most m = experts_most(r, 0, 1, 5);

	ok(m.rows == 3 && m.experts == 2 && m.sent == 3, "even: 5 rows, 2 and 1 for one rank");
	experts_close(r);
	put("layer expert weight\n0 0 1\n1 3 1\n1 2 1\n2 0 1\n");
	r = make(path, &s);
	m = experts_most(r, 0, 1, 500);
	ok(m.rows == 500 && m.experts == 1 && m.sent == 500, "one expert gets all");
	m = experts_most(r, 0, 2, 500);
	ok(m.rows == 500 && m.experts == 2, "... in another layer two");
	m = experts_most(r, 0, -1, 500);
	ok(m.rows == 500 && m.experts == 1.5, "... on average over the layers with experts");
	ok(experts_most(r, 0, 9, 500).rows == 0, "... of a kind that is not there, none");
	experts_close(r);
}

static void test_files(void)
{
	const struct experts_shape s = { 4, 2, 2, 3, kind };
	struct experts *r;
	struct drawn d;

	put("# as a router chose\ntoken layer experts\na 1 3 1\nb 1 1 3\n\n  7 0 0 1 \r\n");
	r = make(path, &s);
	d = draw(r, 3, 1, 100);
	ok(d.load[1] == 100 && d.load[3] == 100 && d.sent[0] == 100 && d.sent[1] == 100,
	   "recorded tokens have their experts");
	d = draw(r, 3, 0, 100);
	ok(d.load[0] == 100 && d.load[1] == 100 && d.sent[0] == 100 && d.sent[1] == 0,
	   "... in each layer");
	d = draw(r, 3, 2, 100);
	is_int(d.load[3], 100, "a layer that is not there takes another");
	experts_close(r);
	put("layer expert weight\n2 0 3\n2 3 1\n2 1 4\n");
	r = make(path, &(struct experts_shape){ 4, 1, 2, 3, kind });
	d = draw(r, 0, 0, EXPERTS_ROWS);
	ok(near((double)d.load[0], EXPERTS_ROWS, 3.0 / 8) &&
		   near((double)d.load[3], EXPERTS_ROWS, 1.0 / 8) && d.load[2] == 0,
	   "weights are read, and no line is none");
	experts_close(r);
}

static void test_refusals(void)
{
	static const struct {
		const char *text, *message;
	} bad[] = {
		{ "", ": no layer has a line" },
		{ "layer expert weight\n", ": no layer has a line" },
		{ "layer expert\n", ":1: want 'layer expert weight' or 'token layer experts'" },
		{ "token layer experts more\n",
		  ":1: want 'layer expert weight' or 'token layer experts'" },
		{ "layer expert weight\n3 0 1\n", ":2: want a layer that the model has" },
		{ "layer expert weight\nx 0 1\n", ":2: want a layer that the model has" },
		{ "token layer experts\n1\n", ":2: want a layer that the model has" },
		{ "layer expert weight\n0 4 1\n", ":2: want an expert that the model has" },
#define WEIGHT "want one weight of each expert, above 0 and below 1e9"
		{ "layer expert weight\n0 0 0\n", ":2: " WEIGHT },
		{ "layer expert weight\n0 0\n", ":2: " WEIGHT },
		{ "layer expert weight\n0 0 1 1\n", ":2: " WEIGHT },
		{ "layer expert weight\n0 0 1\n0 0 2\n", ":3: " WEIGHT },
		{ "layer expert weight\n1 0 1\n", ": layer 1 has weights of 1 experts, but a row "
						  "goes to 2; give more" },
		{ "token layer experts\n0 0 1 1\n",
		  ":2: want as many experts of the model as a token has, all different" },
		{ "token layer experts\n0 0 1\n",
		  ":2: want as many experts of the model as a token has, all different" },
		{ "token layer experts\n0 0 1 2 3\n",
		  ":2: want no more experts than a token of the model has" },
	};
	const struct experts_shape s = { 4, 2, 2, 3, kind };
	static const char *const rules[] = { "zipf:5", "zipf:-1", "zipf:x" };
	struct ar_err err;
	struct experts *r;
	bool is_file;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		put(bad[i].text);
		is_int(experts_open(&r, path, &s, 0, &err), AR_DATA, "bad file %zu", i);
		is_str(err.msg + strlen(path), bad[i].message, "... with a message");
	}
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
		is_int(experts_open(&r, rules[i], &s, 0, &err), AR_USAGE, "%s", rules[i]);
	is_str(err.msg,
	       "routing 'zipf:x': want even, uniform, zipf:A with A from 0 to 4, or a file",
	       "... with a message");
	ok(!experts_check("zipf", &is_file, &err) && is_file, "a word without a number is a file");
	ok(!experts_check("uniform", &is_file, &err) && !is_file, "... and a rule is none");
	is_int(experts_open(&r, "no-such-file", &s, 0, &err), AR_DATA, "there must be a file");
}

static void test_no_memory(const char *rule)
{
	const struct experts_shape s = { 4, 2, 2, 2, kind };
	struct ar_err err;
	struct experts *r;
	int i = 0;

	for (enum ar_status st = AR_NOMEM; st; i++) {
		fault_arm(i);
		st = experts_open(&r, rule, &s, 0, &err);
		fault_disarm();
		if (st && st != AR_NOMEM)
			bail_out("%s: %s", rule, err.msg);
	}
	experts_close(r);
	ok(i > 4, "%s: without memory it fails", rule);
}

int main(void)
{
	int fd = mkstemp(path);

	if (fd < 0 || close(fd))
		bail_out("no temporary file");
	test_sums();
	test_draws_differ();
	test_uniform();
	test_ratios();
	test_most();
	test_files();
	test_refusals();
	test_no_memory("zipf:1");
	put("token layer experts\n0 0 1 2\n0 1 1 2\n");
	test_no_memory(path);
	put("layer expert weight\n0 0 1\n0 1 1\n");
	test_no_memory(path);
	experts_close(NULL);
	unlink(path);
	return done_testing();
}
