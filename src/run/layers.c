/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/run.h"

#include "model/layer_size.h"

static const char *const kinds[] = {
	[MIX_FULL] = "full", [MIX_WINDOW] = "window", [MIX_LINEAR] = "linear"
};

/* Rows of the MLP: those of the next layer where rows are dropped before it. */
static int64_t mlp_rows(const struct run *r, int i)
{
	const struct drop *d = r->env.plan->drop;
	bool before = d && d->dropper->place == DROP_BEFORE_MLP && i + 1 < r->prep.n_run_layers &&
		      drop_acts_after(d, r->prep.run_layer[i]);
	int64_t n_row, n_pair;

	r->backend->layer_work(r->self, i + before, &n_row, &n_pair);
	return n_row;
}

static struct row_run_layer work_of(const struct run *r, int i)
{
	int layer = r->prep.run_layer[i], hidden = r->model.hidden;
	const struct layer_spec *l = &r->model.layer[layer];
	int64_t n_row, n_pair;

	r->backend->layer_work(r->self, i, &n_row, &n_pair);
	if (l->mixer == MIX_LINEAR)
		n_pair = 0;
	return (struct row_run_layer){
		.layer = layer,
		.kind = kinds[l->mixer],
		.n_rows = n_row,
		.n_pairs = n_pair,
		.product_flops = layer_project_flops(l, hidden) * (double)n_row +
				 layer_mlp_flops(l, hidden) * (double)mlp_rows(r, i),
		.mixer_flops = layer_pair_flops(l) * (double)n_pair +
			       layer_delta_flops(&l->delta, true) * (double)n_row,
		.kv_bytes = n_row * 2 * l->kv_heads * l->head_dim * (int64_t)sizeof(bf16_t)
	};
}

enum ar_status run_put_layers(const struct run *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; r->backend->layer_work && i < r->prep.n_run_layers && !st; i++) {
		const struct row_run_layer row = work_of(r, i);

		st = store_layer(r->store, &row, err);
	}
	return st;
}
