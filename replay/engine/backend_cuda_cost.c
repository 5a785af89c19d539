/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of an iteration on the GPU from events, and its traced kernels. */
#include "config.h"
#include "replay/engine/backend_cuda.h"

enum ar_status cuda_event_cost(struct cuda *c, struct iter_cost *cost, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	float layers, head;

	CU(cudaEventElapsedTime(&layers, c->clock.begin, c->clock.head));
	CU(cudaEventElapsedTime(&head, c->clock.head, c->clock.end));
	cost->event_ns = (int64_t)(((double)layers + head) * 1e6);
	cost->cost_ns = (int64_t)((double)layers * 1e6) * c->env.model->n_layers /
				c->env.n_run_layers +
			(int64_t)((double)head * 1e6);
out:
	return st;
}

enum ar_status cuda_collect(struct cuda *c, struct iter_cost *cost, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	size_t from = 0;

	if (c->env.prof)
		st = prof_collect(c->env.prof, &cost->kernel, &cost->n_kernel, err);
	if (st)
		return st;
	for (size_t i = 0; i < cost->n_kernel; i++)
		if (cost->kernel[i].layer == CUDA_HOLD)
			from = i;
	while (from < cost->n_kernel && cost->kernel[from].phase == PHASE_NONE)
		from++;
	cost->kernel += from;
	cost->n_kernel -= from;
	return AR_OK;
}

/* The executed layer with kernels that follows layer at. */
static int layer_after(const struct cuda *c, int at)
{
	do
		at++;
	while (at < c->env.n_run_layers && cuda_skips(c, at));
	return at;
}

bool cuda_starved(const struct cuda *c, const struct iter_cost *cost)
{
	int64_t end = 0;
	int n = c->env.n_run_layers, at = 0;

	for (size_t i = 0; i < cost->n_kernel; i++) {
		const struct prof_kernel *k = &cost->kernel[i];
		int after = k->phase == PHASE_HEAD ? n : layer_after(c, at);
		bool next = k->phase == PHASE_HEAD ?
				    at < n :
				    after < n && k->layer == c->env.run_layer[after];

		if (next) {
			at = after;
			if (at >= CUDA_AHEAD && c->clock.enqueued_ns[at] >= end)
				return true;
		}
		end = k->end_ns > end ? k->end_ns : end;
	}
	return false;
}
