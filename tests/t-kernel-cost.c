/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of an iteration from kernels timed by hand, on clocks with an offset and with drift. */
#include "config.h"

#include <string.h>

#include "replay/engine/kernel_cost.h"
#include "tests/tap.h"

enum { MOST = 16 };

/* Of phase and layer, ns. */
struct timed {
	enum phase phase;
	int layer;
	int64_t from, to;
};

/* The clock of a GPU: it began at `offset` and gains `ppm` millionths. */
static struct iter_cost cost_on(const struct timed *t, size_t n, int64_t offset, double ppm)
{
	static struct prof_kernel kernel[MOST];
	struct iter_cost c = { .kernel = kernel, .n_kernel = n };

	memset(kernel, 0, sizeof kernel);
	for (size_t i = 0; i < n; i++) {
		kernel[i].phase = t[i].phase;
		kernel[i].layer = t[i].layer;
		kernel[i].start_ns = offset + (int64_t)((double)t[i].from * (1 + ppm / 1e6));
		kernel[i].end_ns = offset + (int64_t)((double)t[i].to * (1 + ppm / 1e6));
	}
	kernel_cost(&c, 32, 2);
	return c;
}

/* An iteration of two layers: its sum of embeddings, its layers, its head. */
static const struct timed in_line[] = {
	{ PHASE_COMM, PHASE_NO_LAYER, 1000, 1500 },
	{ PHASE_LINEAR, 0, 2000, 12000 },
	{ PHASE_COMM, 0, 12500, 15500 },
	{ PHASE_LINEAR, 1, 16000, 26000 },
	{ PHASE_COMM, 1, 26500, 29500 },
	{ PHASE_HEAD, PHASE_NO_LAYER, 30000, 34000 },
	{ PHASE_COMM, PHASE_NO_LAYER, 34500, 35500 },
};
enum { IN_LINE = sizeof in_line / sizeof *in_line };

static void test_in_line(void)
{
	const struct iter_cost c = cost_on(in_line, IN_LINE, 0, 0);

	is_int(c.span_ns, 34500, "a span is from the first start to the last end");
	is_int(c.busy_ns, 31500, "gaps are not busy");
	is_int(c.phase_ns[PHASE_COMM], 7500, "phases have the times of their kernels");
	is_int(c.phase_kernels[PHASE_COMM], 4, "... and their number");
	is_int(c.cost_ns, 16 * (28500 - 500) + 6000 + 500,
	       "layers stand for all, but not the head and the sum of embeddings");
	is_int(c.comm_exposed_ns, 7500, "collectives in line are exposed");
	is_int(c.comm_overlap_ns, 0, "... and overlap nothing");
}

static void test_overlap(void)
{
	static const struct timed t[] = {
		{ PHASE_LINEAR, 0, 0, 100 },   { PHASE_COMM, 0, 50, 150 },
		{ PHASE_COMM, 0, 200, 500 },   { PHASE_LINEAR, 0, 300, 400 },
		{ PHASE_LINEAR, 1, 600, 900 }, { PHASE_COMM_SELECT, 1, 700, 800 },
		{ PHASE_COMM, 1, 750, 950 },
	};
	const struct iter_cost c = cost_on(t, sizeof t / sizeof *t, 0, 0);

	is_int(c.comm_exposed_ns, 50 + 200 + 50, "what no other kernel covers is exposed");
	is_int(c.comm_overlap_ns, 50 + 100 + 200, "... and the rest overlaps");
	is_int(c.comm_exposed_ns + c.comm_overlap_ns, 100 + 300 + 250,
	       "... which is the union of collectives");
	is_int(c.phase_ns[PHASE_COMM] + c.phase_ns[PHASE_COMM_SELECT], 100 + 300 + 100 + 200,
	       "... and not their sum");
	is_int(c.busy_ns, 150 + 300 + 350, "times of all are a union, too");
}

/* Of one phase: a kernel that starts while the one before runs. */
static void test_phase(void)
{
	static const struct timed t[] = {
		{ PHASE_LINEAR, 0, 1000, 1600 },
		{ PHASE_LINEAR, 0, 1100, 1700 },
		{ PHASE_LINEAR, 0, 1200, 1300 },
		{ PHASE_LINEAR, 1, 1800, 1900 },
	};
	const struct iter_cost c = cost_on(t, sizeof t / sizeof *t, 0, 0);

	is_int(c.phase_ns[PHASE_LINEAR], 700 + 100, "a time that kernels share counts once");
	is_int(c.phase_kernels[PHASE_LINEAR], 4, "... and both count");
}

/* Of two phases: decodes that start while chunks run. */
static void test_phases(void)
{
	static const struct timed t[] = {
		{ PHASE_ATTEND, 0, 1000, 1600 }, { PHASE_DECODE, 0, 1400, 1700 },
		{ PHASE_LINEAR, 0, 1800, 1900 }, { PHASE_ATTEND, 1, 2000, 2600 },
		{ PHASE_DECODE, 1, 2100, 2500 },
	};
	const struct iter_cost c = cost_on(t, sizeof t / sizeof *t, 0, 0);

	is_int(c.phase_ns[PHASE_ATTEND], 600 + 600, "a time that phases share is the first one's");
	is_int(c.phase_ns[PHASE_DECODE], 100, "... and the other has what it adds");
	is_int(c.phase_ns[PHASE_ATTEND] + c.phase_ns[PHASE_DECODE] + c.phase_ns[PHASE_LINEAR],
	       c.busy_ns, "... so phases add up");
	is_int(c.phase_kernels[PHASE_DECODE], 2, "... and have all of their kernels");
}

static bool within(int64_t x, int64_t y)
{
	return x - y <= y / 5000 && y - x <= y / 5000; /* 200 ppm */
}

static void test_clocks(void)
{
	const struct iter_cost own = cost_on(in_line, IN_LINE, 0, 0);
	const struct iter_cost late = cost_on(in_line, IN_LINE, 1000000000, 0);
	const struct iter_cost drifts = cost_on(in_line, IN_LINE, 1000000000, 100);

	ok(late.cost_ns == own.cost_ns && late.span_ns == own.span_ns &&
		   late.busy_ns == own.busy_ns && late.comm_exposed_ns == own.comm_exposed_ns,
	   "a clock that is a second off gives the same times");
	ok(within(drifts.cost_ns, own.cost_ns) && within(drifts.span_ns, own.span_ns) &&
		   drifts.cost_ns != own.cost_ns,
	   "one that gains 100 millionths gives times that are as much longer");
}

int main(void)
{
	plan(0);
	test_in_line();
	test_overlap();
	test_phase();
	test_phases();
	test_clocks();
	return done_testing();
}
