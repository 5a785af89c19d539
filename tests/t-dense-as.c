/* SPDX-License-Identifier: Apache-2.0 */
/* Dense attention at the cost of an engine's kernels: factors, files, interpolation and costs. */
#include "config.h"
#include "replay/cost/dense_as.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/alloc_fault.h"
#include "tests/tap.h"

static char path[] = "t-dense-as.XXXXXX";

static void put(const char *text)
{
	FILE *f = fopen(path, "w");

	if (!f || fputs(text, f) < 0 || fclose(f))
		bail_out("%s: cannot write", path);
}

static void load(struct dense_as *d, const char *value)
{
	struct ar_err err = { 0 };

	if (dense_as_load(d, value, &err))
		bail_out("%s", err.msg);
}

/* ---- loading ---- */

static void test_factors(void)
{
	static const char *const bad[] = {
		"",   "fast", "0.09", "100.1",	     "-1",	"nan",
		"1,", ",1",   "1,0",  "1.2,1.3,1.4", "1.2 1.3", "1.2;1"
	};
	struct dense_as d;

	load(&d, "1.35,1.44");
	ok(!d.file && !*d.about && dense_as_factor(&d.prefill, 3) == 1.35 &&
		   dense_as_factor(&d.decode, 1e9) == 1.44,
	   "a factor each, of any number of keys");
	load(&d, "0.1");
	ok(dense_as_factor(&d.prefill, 1) == 0.1 && dense_as_factor(&d.decode, 1) == 0.1,
	   "one serves both");
	load(&d, "100,0.1");
	is_int((int64_t)dense_as_factor(&d.prefill, 1), 100, "the largest one");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct ar_err err = { 0 };
		char want[256];

		snprintf(want, sizeof want,
			 "dense-as-engine '%s': no such file; want a file of "
			 "contrib/dense_as_engine.py, or one or two factors from 0.1 to 100, such "
			 "as 1.35,1.44",
			 bad[i]);
		is_int(dense_as_load(&d, bad[i], &err), AR_USAGE, "'%s' is refused", bad[i]);
		is_str(err.msg, want, "... which says what can be given");
	}
}

static void refused(const char *text, const char *want)
{
	struct ar_err err = { 0 };
	struct dense_as d;
	char message[256];

	put(text);
	snprintf(message, sizeof message, "%s%s", path, want);
	is_int(dense_as_load(&d, path, &err), AR_DATA, "bad file");
	is_str(err.msg, message, "... says so");
}

#define PAIR_2 \
	": 'decode': pair 2: want [keys, factor], keys from 1 and above those of the pair " \
	"before, factor from 0.1 to 100"

static void test_files(void)
{
	static const char *const bad_pair[] = { "[1, 2]",    "[0.5, 2]",   "[2, 0.09]",
						"[2, 101]",  "[2]",	   "[2, 2, 2]",
						"2",	     "{\"2\": 2}", "[\"2\", 2]",
						"[2, null]", "[1e999, 2]" };
	static const struct {
		const char *text, *want;
	} bad_mixed[] = {
		{ "[]", ": 'mixed': 'prefill': want a number from 0 to 100" },
		{ "{\"prefill\": -1, \"decode\": 1, \"walk_us\": 1}",
		  ": 'mixed': 'prefill': want a number from 0 to 100" },
		{ "{\"prefill\": 1, \"decode\": \"1\", \"walk_us\": 1}",
		  ": 'mixed': 'decode': want a number from 0 to 100" },
		{ "{\"prefill\": 1, \"decode\": 1, \"walk_us\": 101}",
		  ": 'mixed': 'walk_us': want a number from 0 to 100" },
		{ "{\"prefill\": 1, \"decode\": 1}",
		  ": 'mixed': 'walk_us': want a number from 0 to 100" },
		{ "{\"prefill\": 1, \"decode\": 1, \"walk_us\": 1, \"fill_rows\": 1000001}",
		  ": 'mixed': 'fill_rows': want a number from 0 to 1e+06" },
	};
	struct ar_err err = { 0 };
	struct dense_as d;
	char text[2048];
	size_t n;

	put("{\"about\": \"an engine\", \"prefill\": [[128, 1.5], [512, 2.5]], "
	    "\"decode\": [[2000, 1.25]]}");
	load(&d, path);
	ok(d.file && !strcmp(d.about, "an engine") && d.prefill.n == 2 && d.decode.n == 1,
	   "a file has points for each phase");
	put("{\"prefill\": [[1, 1]], \"decode\": [[1, 1]]}");
	load(&d, path);
	is_str(d.about, "", "it need not say what it is of");
	ok(!d.has_mixed && !*d.attention, "nor have a launch for chunks and decodes");
	put("{\"prefill\": [[1, 1]], \"decode\": [[1, 1]], \"attention\": \"FLASH_ATTN 3\", "
	    "\"mixed\": {\"prefill\": 1.25, \"decode\": 0, \"walk_us\": 14.5, "
	    "\"fill_rows\": 2112}}");
	load(&d, path);
	ok(d.has_mixed && d.mixed.prefill == 1.25 && d.mixed.decode == 0 &&
		   d.mixed.walk_us == 14.5 && d.mixed.fill_rows == 2112,
	   "if it has, it has four numbers");
	is_str(d.attention, "FLASH_ATTN 3", "... and the name of the backend");
	for (size_t i = 0; i < sizeof bad_mixed / sizeof *bad_mixed; i++) {
		snprintf(text, sizeof text,
			 "{\"prefill\": [[1, 1]], \"decode\": [[1, 1]], \"mixed\": %s}",
			 bad_mixed[i].text);
		refused(text, bad_mixed[i].want);
	}
	refused("{\n\"prefill\": }", ":2: malformed JSON");
	refused("[]", ": 'prefill': want an array of 1 to 64 pairs [keys, factor]");
	refused("{\"prefill\": 2}", ": 'prefill': want an array of 1 to 64 pairs [keys, factor]");
	refused("{\"prefill\": [[1, 1]], \"decode\": []}",
		": 'decode': want an array of 1 to 64 pairs [keys, factor]");
	for (size_t i = 0; i < sizeof bad_pair / sizeof *bad_pair; i++) {
		snprintf(text, sizeof text, "{\"prefill\": [[1, 1]], \"decode\": [[1, 1], %s]}",
			 bad_pair[i]);
		refused(text, PAIR_2);
	}
	refused("{\"prefill\": [[0.99, 1]], \"decode\": [[1, 1]]}",
		": 'prefill': pair 1: want [keys, factor], keys from 1 and above those of the "
		"pair before, factor from 0.1 to 100");
	for (int points = DENSE_AS_POINTS_MAX; points <= DENSE_AS_POINTS_MAX + 1; points++) {
		n = (size_t)snprintf(text, sizeof text, "{\"decode\": [[1, 1]], \"prefill\": [");
		for (int i = 1; i <= points; i++)
			n += (size_t)snprintf(text + n, sizeof text - n, "%s[%d, 1]",
					      i > 1 ? "," : "", i);
		snprintf(text + n, sizeof text - n, "]}");
		if (points > DENSE_AS_POINTS_MAX) {
			refused(text, ": 'prefill': want an array of 1 to 64 pairs [keys, factor]");
			continue;
		}
		put(text);
		load(&d, path);
		is_int(d.prefill.n, points, "as many points as there is room for");
	}
	is_int(dense_as_load(&d, "/", &err), AR_DATA, "a folder exists and is no such file");
}

static void test_no_memory(void)
{
	int wrong = 0, n = 0;

	put("{\"about\": \"x\", \"prefill\": [[1, 1], [2, 2]], \"decode\": [[1, 1]]}");
	for (long k = 0;; k++) {
		struct ar_err err = { 0 };
		struct dense_as d;
		enum ar_status st;

		fault_arm(k);
		st = dense_as_load(&d, path, &err);
		if (!fault_disarm())
			break;
		wrong += st != AR_NOMEM;
		n++;
	}
	ok(n > 10 && !wrong, "each of %d failing allocations is reported", n);
}

/* ---- costs ---- */

static void test_interpolation(void)
{
	static const struct {
		double keys, factor;
	} want[] = { { 1, 2 },	   { 100, 2 },	 { 1000, 3 }, { 10000, 4 },
		     { 20000, 3 }, { 40000, 2 }, { 1e12, 2 } };
	const struct dense_as_curve c = { 3, { { 100, 2 }, { 10000, 4 }, { 40000, 2 } } },
				    near = { 2, { { 1e15, 2 }, { 1e15 + 0.125, 4 } } };

	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		ok(fabs(dense_as_factor(&c, want[i].keys) - want[i].factor) < 1e-12, "%g keys: %g",
		   want[i].keys, want[i].factor);
	ok(dense_as_factor(&near, 1e15) == 2 && dense_as_factor(&near, 1e15 + 0.125) == 4,
	   "points whose logarithms are equal");
}

/* A prefill chunk whose rows attend to 101 to 110 keys, and decodes of 20 and 30. */
static struct batch_entry entry[] = {
	{ .start = 100, .n_tok = 10 },
	{ .start = 19, .n_tok = 1, .kind = ROW_DECODE },
	{ .start = 29, .n_tok = 1, .kind = ROW_DECODE },
};
static const struct batch whole = { entry, 3, 10, 2, NULL, { 0 } };
static const struct batch prompt = { entry, 1, 10, 0, NULL, { 0 } };
static const struct batch decodes = { entry + 1, 2, 0, 2, NULL, { 0 } };
static const struct iter_cost cost = {
	.cost_ns = 100000,
	.phase_ns = { [PHASE_ATTEND] = 1000, [PHASE_DECODE] = 100, [PHASE_LINEAR] = 7000 }
};

static int64_t cost_of(const struct dense_as *d, const struct batch *b, const struct iter_cost *c,
		       int64_t n_layers, int64_t n_run_layers)
{
	const struct dense_as_run r = { *d, n_layers, n_run_layers, n_run_layers };
	struct iter_cost x = *c;

	dense_as_set(&r, b, &x);
	return x.cost_ns;
}

static void test_costs(void)
{
	struct iter_cost c = cost;
	struct dense_as d;

	load(&d, "1");
	is_int(cost_of(&d, &whole, &cost, 8, 2), 100000, "a factor of 1 changes nothing");
	load(&d, "1.5,3");
	is_int(cost_of(&d, &whole, &cost, 2, 2), 100000 + 500 + 200,
	       "the phases grow by their factors");
	is_int(cost_of(&d, &whole, &cost, 9, 2), 100000 + 500 * 9 / 2 + 200 * 9 / 2,
	       "... scaled to all layers");
	is_int(cost_of(&d, &prompt, &cost, 2, 2), 100500, "without decodes only one");
	is_int(cost_of(&d, &decodes, &cost, 2, 2), 100200, "... or the other");
	load(&d, "0.5,0.25");
	is_int(cost_of(&d, &whole, &cost, 4, 2), 100000 - 1000 - 150, "or they shrink");
	c.phase_ns[PHASE_DECODE] = 3;
	is_int(cost_of(&d, &decodes, &c, 1, 1), 100000 - 2, "times are whole ns, rounded");
	c.cost_ns = 900;
	is_int(cost_of(&d, &prompt, &c, 4, 2), 0, "... and not below 0");

	d.prefill = (struct dense_as_curve){ 2, { { 105.5 / 2, 1 }, { 105.5 * 2, 3 } } };
	d.decode = (struct dense_as_curve){ 2, { { 10, 1 }, { 250, 5 } } };
	is_int(cost_of(&d, &whole, &cost, 2, 2), 100000 + 1000 + 200,
	       "the factors are those of the mean of prompts and the sum of decodes");
}

/* The cost of batch b; walk: of which the walk of the longest decode, in the two layers. */
static void is_mixed(const struct dense_as_run *r, const struct batch *b, int64_t more,
		     int64_t walk, const char *what)
{
	struct iter_cost c = cost;

	dense_as_set(r, b, &c);
	is_int(c.cost_ns, 100000 + 4 * more, "%s", what);
	is_int(c.phase_ns[PHASE_WALK], walk, "... of which %lld ns are a walk", (long long)walk);
	ok(c.phase_ns[PHASE_ATTEND] == 1000 && c.phase_ns[PHASE_DECODE] == 100,
	   "... and measured phases stay");
}

/* The chunk alone takes 2 * 1000 ns in two layers, the decodes alone 3 * 100. */
static void test_mixed(void)
{
	struct dense_as_run r = { .n_layers = 8, .n_run_layers = 2, .n_walk_layers = 2 };
	struct dense_as *d = &r.factors;

	load(d, "2,3");
	d->has_mixed = true;
	d->mixed = (struct dense_as_mixed){ 1.5, 0.5, 10, 0 };
	is_mixed(&r, &whole, 3150 - 1100, 0,
		 "one launch for chunks and decodes takes a share of both");
	d->mixed.walk_us = 100; /* for 1000 keys: the 30 of the longest decode take 3 us a layer */
	is_mixed(&r, &whole, 6000 - 1100, 6000 - 3150, "or the walk of the longest decode");
	d->mixed.fill_rows = 29; /* the chunk has 10 */
	is_mixed(&r, &whole, 3150 - 1100, 0, "in which keys are split if chunks are short");
	d->mixed.fill_rows = 19;
	is_mixed(&r, &whole, 6000 - 1100, 6000 - 3150, "but not if they are longer");
	r.n_walk_layers = 1;
	is_mixed(&r, &whole, 3150 - 1100, 0, "and in layers that attend to all keys");
	d->mixed = (struct dense_as_mixed){ 0 };
	is_mixed(&r, &whole, -1100, 0, "or it takes less");
	is_mixed(&r, &prompt, 1000, 0, "chunks alone are as before");
	is_mixed(&r, &decodes, 200, 0, "and decodes alone");
}

static void test_saturation(void)
{
	struct iter_cost c = { .cost_ns = INT64_MAX - 5, .phase_ns = { [PHASE_ATTEND] = 3 } };
	struct dense_as d;

	load(&d, "2");
	is_int(cost_of(&d, &prompt, &c, 1, 1), INT64_MAX - 2, "a cost near the clock's end");
	is_int(cost_of(&d, &prompt, &c, 2, 1), INT64_MAX, "... ends there");
	c = (struct iter_cost){ .phase_ns = { [PHASE_ATTEND] = INT64_MAX / 4 } };
	load(&d, "100");
	is_int(cost_of(&d, &prompt, &c, 8, 4), INT64_MAX, "a time past the clock's end");
	load(&d, "2");
	is_int(cost_of(&d, &prompt, &c, 8, 4), INT64_MAX, "... of all layers");
	c.cost_ns = INT64_MAX;
	load(&d, "0.5");
	is_int(cost_of(&d, &prompt, &c, 1000, 1), 0, "... or taken off");
}

int main(void)
{
	int fd = mkstemp(path);

	plan(0);
	if (fd < 0)
		bail_out("no temporary file");
	close(fd);
	test_factors();
	test_files();
	test_no_memory();
	test_interpolation();
	test_costs();
	test_mixed();
	test_saturation();
	unlink(path);
	return done_testing();
}
