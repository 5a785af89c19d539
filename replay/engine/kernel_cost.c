/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/kernel_cost.h"

/* The union of kernel times in order of start. */
struct cover {
	int64_t end, ns;
};

/* Add a kernel.  Returns the time by which the union grows. */
static int64_t cover(struct cover *u, const struct prof_kernel *k)
{
	const int64_t from = k->start_ns > u->end ? k->start_ns : u->end;
	const int64_t own = k->end_ns > from ? k->end_ns - from : 0;

	u->ns += own;
	u->end = k->end_ns > u->end ? k->end_ns : u->end;
	return own;
}

static bool is_comm(enum phase p)
{
	return p == PHASE_COMM || p == PHASE_COMM_SELECT;
}

void kernel_cost(struct iter_cost *cost, int n_layers, int n_run)
{
	const int64_t first = cost->kernel[0].start_ns;
	struct cover all = { first, 0 }, layers = all, comm = all, others = all;
	struct cover own[PHASE_COUNT]; /* of phases of collectives */
	int64_t once = 0;	       /* of the sum of embeddings */
	bool head = false;

	for (int p = 0; p < PHASE_COUNT; p++)
		own[p] = all;
	for (size_t i = 0; i < cost->n_kernel; i++) {
		const struct prof_kernel *k = &cost->kernel[i];
		int64_t ns;

		head |= k->phase == PHASE_HEAD;
		if (!head && k->phase == PHASE_COMM && k->layer == PHASE_NO_LAYER)
			once += k->end_ns - k->start_ns;
		cover(&all, k);
		ns = cover(is_comm(k->phase) ? &comm : &others, k);
		if (!head)
			cover(&layers, k);
		cost->phase_ns[k->phase] += is_comm(k->phase) ? cover(&own[k->phase], k) : ns;
		cost->phase_kernels[k->phase]++;
	}
	cost->busy_ns = all.ns;
	cost->span_ns = all.end - first;
	cost->cost_ns = (layers.end - first - once) * n_layers / n_run + all.end - layers.end +
			once;
	cost->comm_exposed_ns = all.ns - others.ns;
	cost->comm_overlap_ns = comm.ns - cost->comm_exposed_ns;
}
