/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/host/host_probe.h"

#include <algorithm>
#include <chrono>

#include "kernels/prim/cuda.h"

namespace {

constexpr int ROUNDS = 31, LAUNCHES = 100, KERNELS = 100;

__global__ void empty()
{
}

double now_ns()
{
	using namespace std::chrono;

	return duration<double, std::nano>(steady_clock::now().time_since_epoch()).count();
}

double median(double (&ns)[ROUNDS])
{
	std::nth_element(ns, ns + ROUNDS / 2, ns + ROUNDS);
	return ns[ROUNDS / 2];
}

enum ar_status record_graph(cudaStream_t s, cudaGraphExec_t *exec, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	cudaGraph_t graph = NULL;

	CU(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < KERNELS; i++)
		empty<<<1, 32, 0, s>>>();
	CU(cudaStreamEndCapture(s, &graph));
	CU(cudaGraphInstantiate(exec, graph, 0));
out:
	if (graph)
		cudaGraphDestroy(graph);
	return st;
}

} // namespace

enum ar_status host_probe_launches(struct probe *p, int device, void (*wait)(void *ctx), void *ctx,
				   struct ar_err *err)
{
	enum ar_status st = AR_OK;
	cudaStream_t s = NULL;
	cudaGraphExec_t exec = NULL;
	double launch[ROUNDS], graph[ROUNDS];

	CU(cudaSetDevice(device));
	CU(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	st = record_graph(s, &exec, err);
	if (st)
		goto out;
	if (wait)
		wait(ctx);
	for (int i = 0; i < ROUNDS; i++) {
		const double since = now_ns();

		for (int k = 0; k < LAUNCHES; k++)
			empty<<<1, 32, 0, s>>>();
		launch[i] = (now_ns() - since) / LAUNCHES;
		CU_LAUNCHED();
		CU(cudaStreamSynchronize(s));
	}
	for (int i = 0; i < ROUNDS; i++) {
		const double since = now_ns();

		CU(cudaGraphLaunch(exec, s));
		graph[i] = now_ns() - since;
		CU(cudaStreamSynchronize(s));
	}
	p->ns[PROBE_LAUNCH] = median(launch);
	p->ns[PROBE_GRAPH] = median(graph);
out:
	if (exec)
		cudaGraphExecDestroy(exec);
	if (s)
		cudaStreamDestroy(s);
	return st;
}

void host_probe_reset(void)
{
	cudaDeviceReset();
}
