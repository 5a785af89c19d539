/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/comm_experts.h"

#include "model/format.h"

enum { BF16 = 2, SCALE = 4, SCALED = 128 /* channels */ };

const char *const expert_way_names[] = { "agrs", "a2a", "a2a-experts", NULL };

void comm_experts_bind(struct comm_experts *x, const struct model *m, const int *run, int n)
{
	const int64_t h = m->hidden;

	x->hidden = h;
	x->n_layer = x->n_run_layer = 0;
	for (int i = 0; i < m->n_layers; i++) {
		const struct layer_spec *l = &m->layer[i];

		if (!l->n_experts)
			continue;
		x->n_experts = l->n_experts;
		x->row_bytes = format_is_fp8_product(&l->format[LINEAR_EXPERTS]) ?
				       h + SCALE * ((h + SCALED - 1) / SCALED) :
				       BF16 * h;
		x->n_layer++;
	}
	for (int i = 0; i < n && run; i++)
		x->n_run_layer += m->layer[run[i]].n_experts > 0;
	if (!run)
		x->n_run_layer = x->n_layer;
}

enum comm_op comm_experts_op(enum expert_way way, bool combines)
{
	if (way != EXPERT_AGRS)
		return COMM_SWAP;
	return combines ? COMM_SCATTER : COMM_COLLECT;
}

struct expert_bytes comm_experts_bytes(const struct comm_experts *x, int64_t rows, int64_t largest,
				       const struct experts_most *of)
{
	const double result = (double)(BF16 * x->hidden);
	double copies = x->way == EXPERT_A2A ? of->sent : of->rows;

	if (x->way == EXPERT_AGRS)
		return (struct expert_bytes){ (double)rows * (result + BF16 * x->n_experts),
					      (double)rows * result };
	copies *= rows ? x->ranks * (double)largest / (double)rows : 0;
	return (struct expert_bytes){ copies * (double)x->row_bytes, copies * result };
}
