/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/run.h"

#include "model/layer_size.h"

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
		.kind = run_kind(l->mixer),
		.n_rows = n_row,
		.n_pairs = n_pair,
		.product_flops = layer_project_flops(l, hidden) * (double)n_row +
				 layer_mlp_flops(l, hidden) * (double)mlp_rows(r, i),
		.mixer_flops = layer_pair_flops(l) * (double)n_pair +
			       layer_delta_flops(&l->delta, true) * (double)n_row,
		.kv_bytes = n_row * 2 * l->kv_heads * l->head_dim * (int64_t)sizeof(bf16_t)
	};
}

/* A dropper leaves all rows to the first layers, so the layer of each kind with the most pairs has
 * those that no layer of the kind would lack without a dropper.  v_kept has the same rule. */
double run_pairs_left(const struct run *r)
{
	int64_t most[MIX_LINEAR + 1] = { 0 }, n_row, n_pair;
	double left = 0, all = 0;

	for (int i = 0; r->backend->layer_work && i < r->prep.n_run_layers; i++) {
		const enum mixer kind = r->model.layer[r->prep.run_layer[i]].mixer;

		r->backend->layer_work(r->self, i, &n_row, &n_pair);
		if (kind != MIX_LINEAR && n_pair > most[kind])
			most[kind] = n_pair;
	}
	for (int i = 0; r->backend->layer_work && i < r->prep.n_run_layers; i++) {
		const enum mixer kind = r->model.layer[r->prep.run_layer[i]].mixer;

		r->backend->layer_work(r->self, i, &n_row, &n_pair);
		left += kind == MIX_LINEAR ? 0 : (double)n_pair;
		all += (double)most[kind];
	}
	return all > 0 ? left / all : 1;
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
