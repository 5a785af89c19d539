/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/run.h"

#include "model/layer_size.h"

static bool get_work(const struct run *r, int i, struct layer_work *w)
{
	return backend_layer_work(r->session.backend, r->session.self, i, w);
}

static struct row_run_layer layer_row(const struct run *r, int i, struct layer_work w)
{
	int layer = r->in.prep.run_layer[i], hidden = r->in.model.hidden;
	const struct layer_spec *l = &r->in.model.layer[layer];

	if (!mixer_attends(l->mixer))
		w.n_pair = 0;
	return (struct row_run_layer){
		.layer = layer,
		.kind = run_kind(l->mixer),
		.n_rows = w.n_row,
		.n_pairs = w.n_pair,
		.product_flops = layer_project_flops(l, hidden) * (double)w.n_row +
				 layer_mlp_flops(l, hidden) * (double)w.n_mlp,
		.mixer_flops =
			layer_pair_flops(l) * (double)w.n_pair +
			(layer_delta_flops(&l->delta, true) + layer_ssm_flops(&l->ssm, true)) *
				(double)w.n_row,
		.kv_bytes = w.n_row * layer_cache_bytes(l),
	};
}

/* A dropper leaves all rows to the first layers.  So the layer with the most pairs of its kind has
 * all pairs; without a dropper each layer of the kind has as many.  v_kept has the same rule. */
double run_pairs_left(const struct run *r)
{
	int64_t most[MIXERS] = { 0 };
	struct layer_work w;
	double left = 0, all = 0;

	for (int i = 0; i < r->in.prep.n_run_layers && get_work(r, i, &w); i++) {
		const enum mixer kind = r->in.model.layer[r->in.prep.run_layer[i]].mixer;

		if (mixer_attends(kind) && w.n_pair > most[kind])
			most[kind] = w.n_pair;
	}
	for (int i = 0; i < r->in.prep.n_run_layers && get_work(r, i, &w); i++) {
		const enum mixer kind = r->in.model.layer[r->in.prep.run_layer[i]].mixer;

		left += mixer_attends(kind) ? (double)w.n_pair : 0;
		all += (double)most[kind];
	}
	return all > 0 ? left / all : 1;
}

enum ar_status run_put_layers(const struct run *r, struct ar_err *err)
{
	struct layer_work w;
	enum ar_status st = AR_OK;

	for (int i = 0; i < r->in.prep.n_run_layers && !st && get_work(r, i, &w); i++) {
		const struct row_run_layer row = layer_row(r, i, w);

		st = store_layer(r->session.store, &row, err);
	}
	return st;
}

enum ar_status run_put_hot(const struct run *r, const struct hot_rows *hot, const int *layer,
			   struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < hot->n_layer * hot->n_size && !st; i++) {
		const struct hot_count *c = &hot->count[i];

		if (c->rows)
			st = store_hot_buffer(
				r->session.store,
				&(struct row_hot_buffer){
					.layer = r->in.prep.run_layer[layer[i / hot->n_size]],
					.buffer_tok = hot->size[i % hot->n_size],
					.n_rows = c->rows,
					.listed_tok = c->listed,
					.missed_tok = c->missed },
				err);
	}
	return st;
}
