/* SPDX-License-Identifier: Apache-2.0 */
/* The front end of an engine: which requests are over its queue limits. */
#include "config.h"
#include "replay/sched/front.h"

#include <string.h>

#include "tests/alloc_fault.h"
#include "tests/tap.h"

static struct front *start(const struct front_limits *l)
{
	struct front *f;

	if (front_open(&f, l, 8, NULL))
		bail_out("out of memory");
	return f;
}

static bool admits(struct front *f, int64_t at, uint32_t tok)
{
	char why[160];

	return front_admits(f, at, tok, why, sizeof why);
}

static void test_requests(void)
{
	const struct front_limits l = { .has_reqs = true, .reqs = 2 };
	struct front *f = start(&l);
	char why[160];

	ok(admits(f, 0, 10) && admits(f, 0, 20), "requests up to the limit are admitted");
	ok(!front_admits(f, 1, 1, why, sizeof why), "the next one is rejected");
	is_str(why, "HTTP 503: 2 requests are unfinished, max-num-queued-reqs 2", "... and why");
	front_first(f, 5, 10);
	front_last(f, 7);
	ok(!admits(f, 6, 1), "a request that is not finished counts");
	ok(admits(f, 7, 1), "... and one that finishes at that time does not");
	ok(!admits(f, 8, 1), "its place is taken");
	front_close(f);
}

static void test_tokens(void)
{
	const struct front_limits l = { .has_tok = true, .tok = 30 };
	struct front *f = start(&l);
	char why[160];

	ok(admits(f, 0, 29) && admits(f, 0, 1000), "below the limit any prompt is admitted");
	ok(!front_admits(f, 0, 1, why, sizeof why), "... and then none");
	is_str(why, "HTTP 503: 1029 prompt tokens are queued, max-num-queued-tokens 30",
	       "... and why");
	front_first(f, 5, 1000);
	ok(!admits(f, 4, 1), "a prompt counts until its first output");
	ok(admits(f, 5, 1), "... and not at that time");
	ok(!admits(f, 6, 1), "equality is over the limit");
	front_first(f, 7, 1);
	ok(admits(f, 7, 1), "each prompt counts for itself");
	front_close(f);
}

static void test_extremes(void)
{
	const struct front_limits none = { .has_reqs = false }, both = { true, true, 0, 1 },
				  tok = { .has_tok = true };
	struct front *f = start(&none);
	int n = 0;

	for (int i = 0; i < 1000; i++) {
		n += admits(f, i, UINT32_MAX);
		front_first(f, i, UINT32_MAX);
	}
	is_int(n, 1000, "without limits all are admitted");
	front_close(f);
	f = start(&both);
	ok(!admits(f, 0, 1), "no request is admitted where none may be unfinished");
	front_close(f);
	f = start(&tok);
	ok(!admits(f, 0, 1), "... or no token queued");
	front_close(f);
}

static void test_faults(void)
{
	const struct front_limits l = { .has_reqs = true, .reqs = 2 };
	struct front *f;
	enum ar_status st;
	bool fired;
	int bad = 0;
	long k = 0;

	do {
		fault_arm(k++);
		st = front_open(&f, &l, 8, NULL);
		fired = fault_disarm();
		bad += fired && st != AR_NOMEM;
		front_close(f);
	} while (fired);
	ok(!bad && !st && k == 3, "each of %ld allocations can fail", k - 1);
	front_close(NULL);
}

int main(void)
{
	plan(0);
	test_requests();
	test_tokens();
	test_extremes();
	test_faults();
	return done_testing();
}
