/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of an iteration on the GPU, from events or from traced kernels. */
#include "config.h"
#include "replay/engine/backend_cuda.h"

static int64_t scaled(const struct cuda *c, int64_t layers_ns, int64_t head_ns)
{
	return layers_ns * c->env.model->n_layers / c->env.n_run_layers + head_ns;
}

enum ar_status cuda_event_cost(struct cuda *c, struct iter_cost *cost, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	float layers, head;

	CU(cudaEventElapsedTime(&layers, c->clock.begin, c->clock.head));
	CU(cudaEventElapsedTime(&head, c->clock.head, c->clock.end));
	cost->event_ns = (int64_t)(((double)layers + head) * 1e6);
	cost->cost_ns = scaled(c, (int64_t)((double)layers * 1e6), (int64_t)((double)head * 1e6));
out:
	return st;
}

enum ar_status cuda_collect(struct cuda *c, struct iter_cost *cost, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (c->env.prof)
		st = prof_collect(c->env.prof, &cost->kernel, &cost->n_kernel, err);
	while (!st && cost->n_kernel && cost->kernel->phase == PHASE_NONE) {
		cost->kernel++;
		cost->n_kernel--;
	}
	return st;
}

/* The union of kernel times in order of start. */
struct cover {
	int64_t end, ns;
};

static void cover(struct cover *u, const struct prof_kernel *k)
{
	const int64_t from = k->start_ns > u->end ? k->start_ns : u->end;

	if (k->end_ns > from)
		u->ns += k->end_ns - from;
	u->end = k->end_ns > u->end ? k->end_ns : u->end;
}

void cuda_kernel_cost(const struct cuda *c, struct iter_cost *cost)
{
	const int64_t first = cost->kernel[0].start_ns;
	struct cover all = { first, 0 }, layers = all, comm = all, others = all;
	int64_t once = 0; /* of the sum of embeddings */
	bool head = false;

	for (size_t i = 0; i < cost->n_kernel; i++) {
		const struct prof_kernel *k = &cost->kernel[i];

		head |= k->phase == PHASE_HEAD;
		if (!head && k->phase == PHASE_COMM && k->layer == PHASE_NO_LAYER)
			once += k->end_ns - k->start_ns;
		cover(&all, k);
		cover(k->phase == PHASE_COMM ? &comm : &others, k);
		if (!head)
			cover(&layers, k);
		cost->phase_ns[k->phase] += k->end_ns - k->start_ns;
		cost->phase_kernels[k->phase]++;
	}
	cost->busy_ns = all.ns;
	cost->span_ns = all.end - first;
	cost->cost_ns = scaled(c, layers.end - first - once, all.end - layers.end + once);
	cost->comm_exposed_ns = all.ns - others.ns;
	cost->comm_overlap_ns = comm.ns - cost->comm_exposed_ns;
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
