/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/roofline_latent.h"

#include "model/layer_size.h"
#include "replay/cost/roofline_count.h"

enum { FP8 = 1, SCORE = 4, WEIGHT = 4 /* bytes */ };

/* ---- rows ---- */

static void count_index_rows(const struct layer_spec *l, const struct model *m, bool products,
			     double rows, struct roofline_work *work)
{
	const struct index_spec *x = &l->index;
	double q = (double)x->heads * x->dim;

	if (!x->own)
		return;
	/* queries are read in bf16, and written in fp8 */
	work[PHASE_ROPE].bytes += rows * q * (BF16 + FP8);
	work[PHASE_ROPE].kernels++;
	work[PHASE_CACHE].bytes += rows * (BF16 * x->dim + (double)layer_index_bytes(l));
	work[PHASE_CACHE].kernels++;
	if (!products)
		return;
	add_weights(&work[PHASE_LINEAR], &l->format[LINEAR_INDEX], false, 1, rows, q, l->mla.q_lora,
		    0);
	add_product(&work[PHASE_LINEAR], 1, rows, x->dim + x->heads, m->hidden, 0);
}

void roofline_latent_rows(const struct roofline_subject *s, const struct layer_spec *l, int rows,
			  struct roofline_work *work)
{
	const struct mla_spec *a = &l->mla;
	double turned = (l->q_heads + 1.0) * l->rotary_dim, latents = a->q_lora + a->kv_lora;

	count_copy(&work[PHASE_ROPE], rows * (2 * BF16 * turned + TRIG * (double)l->rotary_dim), 0);
	count_copy(&work[PHASE_CACHE],
		   rows * (BF16 * layer_key_dim(l) + (double)layer_latent_bytes(l)), rows);
	if (!s->attention_only) {
		add_moves(&work[PHASE_NORM], (2.0 * rows + 1) * latents);
		if (a->q_lora)
			add_weights(&work[PHASE_LINEAR], &l->format[LINEAR_Q_UP], false, 1, rows,
				    (double)layer_q_width(l), a->q_lora, 0);
	}
	count_index_rows(l, s->model, !s->attention_only, rows, work);
}

/* ---- attention ---- */

/* Rows that run absorbed, and keys that are expanded. */
struct forms {
	double rows, keys;
};

/* The sum over n rows from position start on of the keys that each sees, most at most. */
static double list_pairs(double start, double n, double most)
{
	double under = most - start; /* rows that see fewer than most keys */

	under = under < 0 ? 0 : under > n ? n : under;
	return under * start + under * (under + 1) / 2 + (n - under) * most;
}

static void add_absorbed(const struct layer_spec *l, double n, double pairs, double keys,
			 struct forms *f, struct roofline_work *w)
{
	w->flops += layer_absorbed_flops(l) * pairs;
	w->edge_flops += layer_absorbed_flops(l) * n;
	w->bytes += BF16 * n * l->q_heads * (layer_key_dim(l) + (double)l->mla.kv_lora);
	w->bytes += (double)layer_latent_bytes(l) * keys;
	w->kernels = 1;
	f->rows += n;
}

static void add_expanded(const struct layer_spec *l, double n, double pairs, double keys,
			 struct forms *f, struct roofline_work *w)
{
	w->flops += layer_pair_flops(l) * pairs;
	w->edge_flops += layer_pair_flops(l) * n;
	w->bytes += BF16 * n * (double)(layer_q_width(l) + layer_o_width(l));
	w->bytes += BF16 * keys * ((double)layer_expanded_width(l) + l->rotary_dim);
	w->kernels = 1;
	f->keys += keys;
}

/* Whether a chunk over all its keys is absorbed; auto: it is in the form with fewer FLOPs. */
static bool is_absorbed(const struct layer_spec *l, enum roofline_latent form,
			const struct batch_entry *e)
{
	double n = e->n_tok, start = e->start, pairs = list_pairs(start, n, start + n);
	double more = (layer_absorbed_flops(l) - layer_pair_flops(l)) * pairs -
		      layer_expand_flops(l) * start;

	return form == ROOFLINE_LATENT_ABSORB || (form == ROOFLINE_LATENT_AUTO && more < 0);
}

static void add_dense(const struct layer_spec *l, enum roofline_latent form,
		      const struct batch_entry *e, struct forms *f, struct roofline_work *w)
{
	double n = e->n_tok, start = e->start, keys = start + n;
	double pairs = list_pairs(start, n, keys);

	if (is_absorbed(l, form, e))
		add_absorbed(l, n, pairs, keys, f, w);
	else
		add_expanded(l, n, pairs, keys, f, w);
}

/* Rows over the lists of an indexer. */
static void add_sparse(const struct layer_spec *l, const struct batch_entry *e, struct forms *f,
		       struct roofline_work *w)
{
	double n = e->n_tok, start = e->start, keys = start + n, most = l->index.topk;
	double pairs = list_pairs(start, n, most);

	add_absorbed(l, n, pairs, pairs < keys ? pairs : keys, f, w);
	w->bytes += 2 * LIST * n * most;
}

static void add_scores(const struct layer_spec *l, const struct batch_entry *e,
		       struct roofline_work *work)
{
	const struct index_spec *x = &l->index;
	double n = e->n_tok, start = e->start, keys = start + n;
	double pairs = list_pairs(start, n, keys);

	work[PHASE_SELECT].fp8_flops += 2.0 * x->heads * x->dim * pairs;
	work[PHASE_SELECT].bytes += (double)layer_index_bytes(l) * keys +
				    n * x->heads * ((double)x->dim * FP8 + WEIGHT);
	work[PHASE_SELECT].kernels = 1;
	work[PHASE_METADATA].bytes += 2 * SCORE * pairs;
	work[PHASE_METADATA].kernels = 1;
}

/* Whether chunks of the batch attend to lists: a prompt is longer than a list. */
static bool chunks_are_sparse(const struct layer_spec *l, const struct batch *b)
{
	bool sparse = false;

	for (size_t i = 0; i < b->n && l->index.heads; i++) {
		const struct batch_entry *e = &b->entry[i];

		sparse = sparse ||
			 (e->kind != ROW_DECODE && (int64_t)e->start + e->n_tok > l->index.topk);
	}
	return sparse;
}

/* The product of expanded keys; and those of absorbed rows before and after attention, by heads,
 * for which engines widen the weights. */
static void count_forms(const struct layer_spec *l, const struct forms *f, struct roofline_work *w)
{
	double nope = l->head_dim - l->rotary_dim, lora = l->mla.kv_lora;

	if (f->keys > 0)
		add_weights(w, &l->format[LINEAR_KV_UP], false, 1, f->keys,
			    (double)layer_expanded_width(l), lora, 0);
	if (f->rows > 0) {
		add_product(w, l->q_heads, f->rows, lora, nope, 0);
		add_product(w, l->q_heads, f->rows, layer_v_dim(l), lora, 0);
	}
}

void roofline_latent_mix(const struct roofline_subject *s, const struct layer_spec *l,
			 const struct batch *b, struct roofline_work *work)
{
	bool sparse = chunks_are_sparse(l, b);
	struct forms f = { 0 };

	for (size_t i = 0; i < b->n; i++) {
		const struct batch_entry *e = &b->entry[i];
		bool decode = e->kind == ROW_DECODE, listed = l->index.heads && (decode || sparse);
		struct roofline_work *w = &work[decode ? PHASE_DECODE : PHASE_ATTEND];
		double keys = (double)e->start + e->n_tok;

		if (listed)
			add_sparse(l, e, &f, w);
		else if (decode)
			add_absorbed(l, e->n_tok, list_pairs(e->start, e->n_tok, keys), keys, &f,
				     w);
		else
			add_dense(l, s->latent, e, &f, w);
		if (listed && l->index.own)
			add_scores(l, e, work);
	}
	count_forms(l, &f, &work[PHASE_LATENT]);
}

struct latent_chunks roofline_latent_chunks(const struct roofline_subject *s,
					    const struct layer_spec *l, const struct batch *b)
{
	bool sparse = chunks_are_sparse(l, b);
	struct latent_chunks n = { 0 };

	for (size_t i = 0; i < b->n; i++) {
		if (b->entry[i].kind == ROW_DECODE)
			continue;
		if (sparse || is_absorbed(l, s->latent, &b->entry[i]))
			n.absorbed++;
		else
			n.expanded++;
	}
	return n;
}
