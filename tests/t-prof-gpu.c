/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel tracing on a GPU: every launch is recorded once, in order, with its phase and its time. */
#include "config.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "profiler/cupti/prof.h"
#include "tests/gpu_test.h"
#include "tests/tap.h"

int prof_spin_launch(long long ns, void *stream);

enum { TESTS = 22, LAYERS = 4, EACH = 3, MANY = 40000 };

static const enum phase phases[] = { PHASE_SELECT, PHASE_ATTEND, PHASE_LINEAR };
enum { PHASES = 3, LAUNCHES = LAYERS * PHASES * EACH };

static struct prof *p;
static cudaStream_t stream;
static const struct prof_kernel *kernel;
static size_t n_kernel;

static void check(int result, const char *what)
{
	if (result)
		bail_out("%s: %s", what, cudaGetErrorString((cudaError_t)result));
}

static void collect(void)
{
	struct ar_err err = { 0 };

	check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	if (prof_collect(p, &kernel, &n_kernel, &err))
		bail_out("%s", err.msg);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The launches of a small model: layers, phases, kernels of 20 us each. */
static void launch_model(void)
{
	for (int layer = 0; layer < LAYERS; layer++)
		for (int i = 0; i < PHASES; i++) {
			prof_phase(p, layer, phases[i]);
			for (int k = 0; k < EACH; k++)
				check(prof_spin_launch(20000, stream), "launch");
		}
}

static bool in_order(void)
{
	for (size_t i = 1; i < n_kernel; i++)
		if (kernel[i].start_ns < kernel[i - 1].start_ns ||
		    kernel[i].corr <= kernel[i - 1].corr)
			return false;
	return true;
}

static bool attributed(void)
{
	for (size_t i = 0; i < n_kernel; i++)
		if (kernel[i].layer != (int)(i / (PHASES * EACH)) ||
		    kernel[i].phase != phases[i / EACH % PHASES])
			return false;
	return true;
}

static void test_model(void)
{
	cudaEvent_t begin, end;
	float ms;
	int64_t t0, t1, span, busy = 0;
	bool right = true;

	check(cudaEventCreate(&begin), "cudaEventCreate");
	check(cudaEventCreate(&end), "cudaEventCreate");
	t0 = now_ns();
	check(cudaEventRecord(begin, stream), "cudaEventRecord");
	launch_model();
	check(cudaEventRecord(end, stream), "cudaEventRecord");
	collect();
	t1 = now_ns();
	check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
	is_int((long long)n_kernel, LAUNCHES, "every launch is there once");
	if (n_kernel != LAUNCHES) {
		skip(7, "launches are missing");
		return;
	}
	ok(in_order(), "in the order of launch and start");
	ok(attributed(), "each with its layer and phase");
	for (size_t i = 0; i < n_kernel; i++) {
		busy += kernel[i].end_ns - kernel[i].start_ns;
		right = right && strstr(kernel[i].name, "prof_spin") && kernel[i].grid[0] == 2 &&
			kernel[i].block[0] == 32 && kernel[i].regs > 0;
	}
	ok(right, "each with its name and geometry");
	ok(busy >= LAUNCHES * 20000LL * 9 / 10, "each lasts as long as it spins (%lld ns in all)",
	   (long long)busy);
	span = kernel[n_kernel - 1].end_ns - kernel[0].start_ns;
	ok(busy <= span, "kernels of one stream do not overlap");
	if (!ok(fabs((double)ms * 1e6 - (double)span) <= 0.1 * (double)span + 50000,
		"the span agrees with CUDA events"))
		diag("events %.0f ns, span %lld ns", (double)ms * 1e6, (long long)span);
	ok(kernel[0].start_ns >= t0 - 1000000 && kernel[n_kernel - 1].end_ns <= t1 + 1000000,
	   "times are on the scale of the wall clock");
	check(cudaEventDestroy(begin), "cudaEventDestroy");
	check(cudaEventDestroy(end), "cudaEventDestroy");
}

/* Half of the launches have ended when their records are read. */
static void test_ahead(void)
{
	const struct timespec half = { 0, LAUNCHES * 20000 / 2 };
	const int64_t zero = prof_loss(p)->zero_ts;

	launch_model();
	nanosleep(&half, NULL);
	prof_ahead(p);
	collect();
	ok(n_kernel == LAUNCHES && in_order() && attributed(),
	   "records that are read while kernels run, and later ones, are there once");
	is_int(prof_loss(p)->zero_ts, zero, "none is read before its kernel has ended");
}

/* The same launches from a graph, three times, with another phase announced. */
static void test_graph(void)
{
	enum { TIMES = 3 };
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	bool right = true;

	check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
	launch_model();
	check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
	prof_phase(p, PHASE_NO_LAYER, PHASE_NONE);
	check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
	check(cudaGraphDestroy(graph), "cudaGraphDestroy");
	collect();
	is_int((long long)n_kernel, 0, "a capture launches nothing");
	for (int i = 0; i < TIMES; i++)
		check(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
	prof_ahead(p);
	collect();
	is_int((long long)n_kernel, TIMES * LAUNCHES, "every kernel of a graph is there each time");
	for (size_t i = 0; i < n_kernel; i++)
		right = right && kernel[i].graph_node &&
			kernel[i].layer == (int)(i % LAUNCHES / (PHASES * EACH)) &&
			kernel[i].phase == phases[i / EACH % PHASES];
	ok(right, "with the layer and phase of its capture");
	check(prof_spin_launch(1000, stream), "launch");
	collect();
	ok(n_kernel == 1 && !kernel[0].graph_node && kernel[0].phase == PHASE_NONE,
	   "launches after it are their own");
	check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
}

static void test_rest(void)
{
	bool right = true;
	void *mem;

	check(cudaMalloc(&mem, 1 << 20), "cudaMalloc");
	check(cudaMemsetAsync(mem, 0, 1 << 20, stream), "cudaMemsetAsync");
	collect();
	is_int((long long)n_kernel, 0, "nothing is reported twice, and a memset is no kernel");
	check(cudaFree(mem), "cudaFree");
	prof_phase(p, PHASE_NO_LAYER, PHASE_HEAD);
	check(prof_spin_launch(1000, stream), "launch");
	prof_phase(p, PHASE_NO_LAYER, PHASE_NONE);
	check(prof_spin_launch(1000, stream), "launch");
	collect();
	is_int((long long)n_kernel, 2, "launches after it are there");
	ok(n_kernel == 2 && kernel[0].layer == PHASE_NO_LAYER && kernel[0].phase == PHASE_HEAD &&
		   kernel[1].phase == PHASE_NONE,
	   "also outside of the layers, and for no phase");
	for (int i = 0; i < MANY; i++) {
		prof_phase(p, i % 61, PHASE_ATTEND);
		check(prof_spin_launch(0, stream), "launch");
	}
	collect();
	is_int((long long)n_kernel, MANY, "tens of thousands of launches are all there");
	for (size_t i = 0; i < n_kernel; i++)
		right = right && kernel[i].layer == (int)(i % 61) &&
			kernel[i].phase == PHASE_ATTEND;
	ok(right && in_order(), "in order, with their layers");
}

int main(void)
{
	struct ar_err err = { 0 };
	enum ar_status st;

	plan(TESTS);
	st = prof_open(&p, &err); /* before the first CUDA call */
	if (!gpu_usable()) {
		skip(TESTS, "no usable GPU");
		prof_close(p);
		return done_testing();
	}
	if (!ok(!st, "tracing starts before the first CUDA call")) {
		diag("%s", err.msg);
		skip(TESTS - 1, "no tracing");
		return done_testing();
	}
	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	check(prof_spin_launch(1000, stream), "launch");
	collect();
	is_int((long long)n_kernel, 1, "a launch before the first phase is reported");
	test_model();
	test_ahead();
	test_graph();
	test_rest();
	is_int(prof_loss(p)->dropped + prof_loss(p)->zero_ts + prof_loss(p)->unattributed +
		       prof_loss(p)->late,
	       0, "nothing was lost");
	prof_close(p);
	return done_testing();
}
