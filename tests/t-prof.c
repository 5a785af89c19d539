/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel tracing without a GPU: a missing library, a missing driver, and the rest with a fake CUPTI
 * library. */
#include "config.h"

#include <dlfcn.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiler/cupti/prof.h"
#include "tests/alloc_fault.h"
#include "tests/fake_cupti.h"
#include "tests/tap.h"

static void not_opened(const char *words, const char *what)
{
	struct ar_err err = { 0 };
	struct prof *p;
	enum ar_status st = prof_open(&p, &err);

	if (!ok(st == AR_NODEV && !p && strstr(err.msg, words), "%s", what))
		diag("%d %s", st, err.msg);
}

static void test_missing(void)
{
	setenv("ATTNREPLAY_CUPTI", "/nonexistent/libcupti.so", 1);
	not_opened(HAVE_CUPTI ? "which ATTNREPLAY_CUPTI names" : "built without CUPTI",
		   "a missing library is a missing device and named");
	unsetenv("ATTNREPLAY_CUPTI");
	prof_close(NULL);
	prof_phase(NULL, 0, PHASE_ATTEND);
	ok(1, "without a session there is nothing to close and nothing to announce");
	if (!HAVE_CUPTI || !access("/dev/nvidiactl", F_OK))
		skip(1, "a missing driver is a missing device: there is one, or no CUPTI");
	else
		not_opened("", "a missing driver is a missing device");
}

#if HAVE_CUPTI
static struct fake_cupti *fake;
static void (*launch)(const char *name, uint32_t corr, uint64_t start, uint64_t end);
static void (*node)(uint64_t id, uint64_t from);
static void (*graph_launch)(uint64_t id, uint32_t corr, uint64_t start, uint64_t end);

static bool load_fake(void)
{
	struct fake_cupti *(*get)(void);
	char path[4096],
		*self = strdup(getenv("ATTNREPLAY") ? getenv("ATTNREPLAY") : "./attnreplay");
	void *so;

	snprintf(path, sizeof path, "%s/tests/fake_cupti.so", dirname(self));
	free(self);
	so = dlopen(path, RTLD_NOW);
	if (!so)
		return false;
	setenv("ATTNREPLAY_CUPTI", path, 1);
	*(void **)&get = dlsym(so, "fake_cupti");
	*(void **)&launch = dlsym(so, "fake_launch");
	*(void **)&node = dlsym(so, "fake_node");
	*(void **)&graph_launch = dlsym(so, "fake_graph_launch");
	fake = get();
	return true;
}

static struct prof *open_prof(void)
{
	struct ar_err err = { 0 };
	struct prof *p;

	if (prof_open(&p, &err))
		bail_out("%s", err.msg);
	return p;
}

static void test_open(void)
{
	struct prof *p;
	uint32_t version = fake->version;
	bool cuda_12 = version < 130000;

	fake->version = cuda_12 ? 130001 : 26;
	not_opened(cuda_12 ? "API version 130001" : "API version 26",
		   "a library of another CUDA is refused");
	fake->version = version;
	fake->subscribe = 39;
	not_opened(cuda_12 ? "attached (unnamed)" : "attached (other tool)",
		   "another profiler is named where CUPTI knows its name");
	fake->subscribe = 999;
	not_opened("driver (CUPTI_ERROR_UNKNOWN)", "a missing driver is named");
	fake->subscribe = 0;
	fake->enable = 27;
	not_opened("cuptiActivityEnable failed: CUPTI_ERROR_FAKE (27)", "a refusal is named");
	fake->enable = 0;
	is_int(fake->subscribed, 0, "a failed start leaves nothing subscribed");
	is_int(fake->finalized, 1, "and CUPTI finalized");
	fake->kinds = fake->calls = fake->callbacks = fake->finalized = 0;
	p = open_prof();
	is_int(prof_api_version(p), version, "the library's version is known");
	is_int(fake->kinds * 100 + fake->calls, cuda_12 ? 400 : 216,
	       "two kinds and sixteen launch calls are recorded; with CUDA 12 all calls");
	is_int(fake->callbacks, 2, "graph nodes are watched where they are created and cloned");
	ok(fake->zeroed, "buffers are promised to be cleared");
	prof_phase(p, 0, PHASE_NORM);
	prof_close(p);
	is_int(fake->kinds + fake->calls + fake->callbacks + fake->subscribed + fake->depth, 0,
	       "closing undoes it all");
	is_int(fake->finalized, 1, "and finalizes once");
}

static void test_attribution(void)
{
	struct prof *p = open_prof();
	const struct prof_kernel *k;
	const char *first;
	char name[] = "select";
	size_t n;

	launch("warm-up", 1, 10, 20);
	is_int(prof_collect(p, &k, &n, NULL), AR_OK, "the warm-up is collected");
	is_int((long)n * 10 + prof_loss(p)->unattributed, 10,
	       "launches before the first phase are no loss");
	prof_phase(p, 3, PHASE_SELECT);
	launch(name, 5, 1000, 1100);
	prof_phase(p, 3, PHASE_ATTEND);
	launch("attend", 6, 1100, 1500);
	launch("attend", 7, 1050, 1090); /* on another stream */
	prof_phase(p, PHASE_NO_LAYER, PHASE_HEAD);
	launch("gemm", 9, 1600, 1700);
	prof_phase(p, PHASE_NO_LAYER, PHASE_NONE);
	launch("compare", 12, 1800, 1900);
	is_int(fake->depth, 1, "one id is pushed, however many phases there were");
	is_int(prof_collect(p, &k, &n, NULL), AR_OK, "an iteration is collected");
	is_int((long)n, 5, "all its kernels are there");
	ok(k[0].corr == 5 && k[1].corr == 7 && k[2].corr == 6 && k[3].corr == 9 && k[4].corr == 12,
	   "in the order of their start");
	ok(k[0].layer == 3 && k[0].phase == PHASE_SELECT && k[1].phase == PHASE_ATTEND &&
		   k[2].layer == 3 && k[2].phase == PHASE_ATTEND,
	   "each with the layer and phase of its launch");
	ok(k[3].layer == PHASE_NO_LAYER && k[3].phase == PHASE_HEAD, "also outside of the layers");
	ok(k[4].phase == PHASE_NONE && !prof_loss(p)->unattributed,
	   "a launch for no phase is no loss");
	ok(k[2].start_ns == 1100 && k[2].end_ns == 1500 && k[2].grid[0] == 132 &&
		   k[2].block[0] == 384 && k[2].cluster[0] == 2 && k[2].regs == 168 &&
		   k[2].smem_static == 16 && k[2].smem_dynamic == 200000 &&
		   k[2].smem_executed == 233472 && k[2].local_per_thread == 8 &&
		   k[2].launch_type == 1 && k[2].device == 3 && k[2].stream == 7,
	   "times and geometry come back");
	first = k[0].name;
	ok(k[1].name == k[2].name && !strcmp(k[1].name, "attend"), "equal names are one string");
	memcpy(name, "unload", sizeof name);
	is_int(prof_collect(p, &k, &n, NULL), AR_OK, "nothing launched is fine");
	is_int((long)n, 0, "and gives nothing");
	is_str(first, "select", "a name outlives its module");
	prof_close(p);
}

/* Two nodes captured in different phases, in each order of callbacks for their clones. */
static void test_graph(void)
{
	struct prof *p = open_prof();
	const struct prof_kernel *k;
	size_t n;

	prof_phase(p, 3, PHASE_NORM);
	node(101, 0);
	prof_phase(p, 4, PHASE_DECODE);
	node(102, 0);
	prof_phase(p, PHASE_NO_LAYER, PHASE_NONE);
	node(201, 101);
	node(201, 0);
	node(202, 0);
	node(202, 102);
	for (uint32_t i = 0; i < 2; i++) {
		graph_launch(201, 7 + i, 1000 * i + 100, 1000 * i + 200);
		graph_launch(202, 7 + i, 1000 * i + 300, 1000 * i + 400);
	}
	launch("eager", 9, 5000, 5100);
	is_int(prof_collect(p, &k, &n, NULL), AR_OK, "launches of a graph are collected");
	is_int((long)n, 5, "with a kernel for each node and launch");
	ok(n == 5 && k[0].layer == 3 && k[0].phase == PHASE_NORM && k[1].layer == 4 &&
		   k[1].phase == PHASE_DECODE && k[2].phase == PHASE_NORM &&
		   k[3].phase == PHASE_DECODE,
	   "each is for what its node was captured for");
	ok(n == 5 && k[0].graph_node == 201 && k[3].graph_node == 202 && !k[4].graph_node &&
		   k[4].phase == PHASE_NONE,
	   "others are for what they were launched for");
	is_int(prof_loss(p)->unattributed, 0, "nothing is left over");
	graph_launch(301, 10, 6000, 6100);
	node(302, 301);
	graph_launch(302, 10, 6200, 6300);
	prof_collect(p, &k, &n, NULL);
	is_int(prof_loss(p)->unattributed, 2, "nodes that were not seen are counted");
	fake->node = 999;
	node(303, 0);
	node(304, 101);
	fake->node = 0;
	graph_launch(303, 11, 7000, 7100);
	graph_launch(304, 11, 7200, 7300);
	prof_collect(p, &k, &n, NULL);
	is_int(prof_loss(p)->unattributed, 4, "nodes without an id are counted");
	prof_close(p);
}

static void test_many_nodes(void)
{
	enum { N = 20000 };
	struct prof *p = open_prof();
	const struct prof_kernel *k;
	bool right = true;
	size_t n;

	for (uint64_t i = 0; i < N; i++) {
		prof_phase(p, (int)(i % 61), (enum phase)(1 + i % 10));
		node(1 + i % 3 + (i << 32), 0);
	}
	for (uint64_t i = 0; i < N; i++)
		graph_launch(1 + i % 3 + (i << 32), 50, 1000 + 10 * i, 1009 + 10 * i);
	prof_collect(p, &k, &n, NULL);
	for (size_t i = 0; i < n; i++)
		right = right && k[i].layer == (int)(i % 61) &&
			k[i].phase == (enum phase)(1 + i % 10);
	ok(n == N && right, "tens of thousands of nodes are told apart");
	prof_close(p);
}

static void test_ahead(void)
{
	struct prof *p = open_prof();
	const struct prof_kernel *k;
	struct ar_err err = { 0 };
	int forced = fake->forced;
	size_t n;

	prof_phase(p, 2, PHASE_NORM);
	launch("first", 20, 100, 200);
	launch("second", 21, 200, 300);
	is_int((long)fake->waiting, 2, "two kernels have ended");
	prof_ahead(p);
	is_int((long)fake->waiting, 0, "their records are read ahead");
	is_int(fake->forced, forced, "... and none of a kernel that runs");
	launch("third", 22, 300, 400);
	prof_collect(p, &k, &n, NULL);
	ok(n == 3 && k[0].corr == 20 && k[1].corr == 21 && k[2].corr == 22 && k[0].layer == 2 &&
		   k[2].layer == 2,
	   "they are collected with the later ones, each once and with its phase");
	is_int(prof_loss(p)->late + prof_loss(p)->unattributed, 0, "none counts as lost");
	fake->flush = 12;
	prof_ahead(p);
	fake->flush = 0;
	ok(prof_collect(p, &k, &n, &err) == AR_NODEV,
	   "a failure is an error of the next collection");
	prof_close(p);
}

static void test_losses(void)
{
	struct prof *p = open_prof();
	const struct prof_kernel *k;
	struct ar_err err = { 0 };
	size_t n;

	prof_phase(p, 0, PHASE_NORM);
	launch("good", 10, 100, 200);
	launch("no time", 11, 0, 0);
	launch("backwards", 12, 300, 200);
	fake->depth = 0;
	launch("lost scope", 13, 300, 400);
	fake->depth = 1;
	fake->dropped = 4;
	prof_collect(p, &k, &n, NULL);
	is_int((long)n, 2, "kernels without times are left out");
	is_int(prof_loss(p)->zero_ts, 2, "and counted");
	is_int(prof_loss(p)->unattributed, 1, "a kernel without attribution is counted");
	is_int(prof_loss(p)->dropped, 4, "and what CUPTI dropped");
	launch("late", 13, 500, 600);
	launch("good", 14, 700, 800);
	prof_collect(p, &k, &n, NULL);
	ok(n == 1 && k[0].corr == 14, "a kernel of an earlier collection is left out");
	is_int(prof_loss(p)->late, 1, "and counted");
	is_int(prof_loss(p)->records, 6, "all records are");
	fake->push = 999;
	prof_phase(p, 0, PHASE_ROPE);
	fake->push = 0;
	ok(prof_collect(p, &k, &n, &err) == AR_NODEV && strstr(err.msg, "keeping track of phases"),
	   "a phase that could not be announced is an error of the next collection");
	fake->flush = 12;
	ok(prof_collect(p, &k, &n, &err) == AR_NODEV && strstr(err.msg, "cuptiActivityFlushAll"),
	   "a flush that fails is an error");
	fake->flush = 0;
	prof_close(p);
}

static void test_many(void)
{
	enum { N = 60000 };
	struct prof *p = open_prof();
	const struct prof_kernel *k;
	bool right = true;
	char name[32];
	static char names[300][32];
	size_t n;

	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof name, "kernel %d", i);
		memcpy(names[i], name, sizeof name);
	}
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < N; i++) {
			prof_phase(p, (int)(i % 61), (enum phase)(1 + i % 10));
			launch(names[i % 300], 1 + round * N + i, 1000 + 10 * i, 1009 + 10 * i);
		}
		prof_collect(p, &k, &n, NULL);
		right = right && n == N;
		for (uint32_t i = 0; i < n; i++)
			right = right && k[i].start_ns == 1000 + 10 * (int64_t)i &&
				k[i].layer == (int)(i % 61) &&
				k[i].phase == (enum phase)(1 + i % 10) &&
				!strcmp(k[i].name, names[i % 300]);
	}
	ok(right, "tens of thousands of launches in several buffers come back in order");
	is_int(fake->dirty, 0, "buffers are clear when they are handed out again");
	is_int(prof_loss(p)->dropped + prof_loss(p)->late + prof_loss(p)->unattributed, 0,
	       "nothing is lost");
	prof_close(p);
}

static enum ar_status trace_once(struct ar_err *err)
{
	const struct prof_kernel *k;
	struct prof *p;
	size_t n;
	enum ar_status st = prof_open(&p, err);

	if (st)
		return st;
	prof_phase(p, 0, PHASE_NORM);
	launch("a", 1, 10, 20);
	node(1, 0);
	st = prof_collect(p, &k, &n, err);
	if (!st && prof_loss(p)->dropped)
		st = AR_NOMEM;
	prof_close(p);
	return st;
}

static void test_faults(void)
{
	struct ar_err err;
	bool clean = true;
	long k = 0;

	for (;; k++) {
		enum ar_status st;

		fault_arm(k);
		st = trace_once(&err);
		if (!fault_disarm())
			break;
		clean = clean && st == AR_NOMEM;
	}
	ok(clean && k >= 9, "each of %ld allocations fails cleanly", k);
	is_int(fake->subscribed + fake->kinds + fake->calls + fake->callbacks + fake->depth, 0,
	       "nothing stays open");
}

static void test_fake(void)
{
	if (!load_fake()) {
		skip(1, "no library that looks like CUPTI");
		return;
	}
	test_open();
	test_attribution();
	test_graph();
	test_many_nodes();
	test_ahead();
	test_losses();
	test_many();
	test_faults();
}
#else
static void test_fake(void)
{
	const struct prof_kernel *k;
	size_t n = 1;

	ok(!prof_collect(NULL, &k, &n, NULL) && !n && !prof_loss(NULL)->records &&
		   !prof_api_version(NULL),
	   "a build without CUPTI traces nothing");
}
#endif

int main(void)
{
	plan(0);
	test_missing();
	test_fake();
	return done_testing();
}
