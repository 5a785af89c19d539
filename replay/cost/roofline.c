/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/roofline.h"

#include <math.h>
#include <string.h>

#include "base/number.h"
#include "model/layer_size.h"
#include "replay/cost/roofline_select.h"

enum { BF16 = 2, TRIG = 4 /* bytes of a cosine */, LIST = 4 /* of an entry of a list */ };

/* ---- counting ---- */

/* n_batch products of [m][k] and [n][k]. */
static void add_product(struct roofline_work *w, double n_batch, double m, double n, double k)
{
	w->flops += 2 * n_batch * m * n * k;
	w->bytes += BF16 * n_batch * (m * k + n * k + m * n);
	w->kernels++;
}

/* Norm of rows with n_add residuals: x, y and the residuals, x again; and the weights. */
static void add_norm(struct roofline_work *w, double rows, double width, int n_add)
{
	w->bytes += BF16 * width * (rows * (3 + n_add) + 1);
	w->kernels++;
}

static void count_mlp(const struct model *m, int rows, struct roofline_work *work)
{
	const struct layer_spec *l = &m->layer[0];
	const struct expert_load e = layer_experts(l, rows);
	double all = (double)e.experts * e.rows;

	if (l->n_experts) {
		add_product(&work[PHASE_LINEAR], 1, rows, l->n_experts, m->hidden);
		work[PHASE_NORM].bytes += BF16 * 2 * all * m->hidden;
		work[PHASE_NORM].kernels++;
	}
	add_product(&work[PHASE_LINEAR], e.experts, e.rows, 2.0 * l->ffn, m->hidden);
	work[PHASE_NORM].bytes += BF16 * 3 * all * l->ffn;
	work[PHASE_NORM].kernels++;
	add_product(&work[PHASE_LINEAR], e.experts, e.rows, m->hidden, l->ffn);
}

/* Add the work of the layer outside attention. */
static void count_rows(const struct roofline_subject *s, int rows, struct roofline_work *work)
{
	const struct model *m = s->model;
	const struct layer_spec *l = &m->layer[0];
	double turned = (l->q_heads + l->kv_heads) * (double)l->head_dim;

	work[PHASE_ROPE] = (struct roofline_work){
		0, rows * (2 * BF16 * turned + TRIG * (double)l->head_dim), 1
	};
	work[PHASE_CACHE] =
		(struct roofline_work){ 0, 4.0 * BF16 * rows * l->kv_heads * l->head_dim, 1 };
	if (s->attention_only)
		return;
	add_norm(&work[PHASE_NORM], rows, m->hidden, l->n_experts ? l->experts_per_tok : 1);
	add_product(&work[PHASE_LINEAR], 1, rows, (double)layer_qkv_width(l), m->hidden);
	add_product(&work[PHASE_LINEAR], 1, rows, m->hidden, (double)layer_o_width(l));
	add_norm(&work[PHASE_NORM], rows, m->hidden, 1);
	count_mlp(m, rows, work);
}

static void count_head(const struct roofline_subject *s, int rows, int emit,
		       struct roofline_work *w)
{
	const struct model *m = s->model;

	if (s->attention_only)
		return;
	add_norm(w, rows, m->hidden, m->layer[0].n_experts ? m->layer[0].experts_per_tok : 1);
	if (!emit)
		return;
	w->bytes += BF16 * (double)emit * (2.0 * m->hidden + m->vocab);
	w->kernels += 2;
	add_product(w, 1, emit, m->vocab, m->hidden);
}

/* Attention of pairs of (row, key) by n rows over keys. */
static void add_attention(const struct layer_spec *l, double n, double pairs, double keys,
			  struct roofline_work *w)
{
	w->flops += 4.0 * l->head_dim * l->q_heads * pairs;
	w->bytes += 2.0 * BF16 * l->head_dim * (n * l->q_heads + keys * l->kv_heads);
	w->kernels = 1;
}

static void count_chunk(const struct roofline_subject *s, const struct batch_entry *e,
			double density, struct roofline_work *work)
{
	const struct method *m = s->method;
	const struct layer_spec *l = &s->model->layer[0];
	double n = e->n_tok, len = e->start + n, pairs = n * e->start + n * (n + 1) / 2;
	double mask = roofline_mask_bytes(s, e);

	if (m->dense)
		density = 1;
	else
		roofline_select(s, e, &work[PHASE_SELECT]);
	if (method_shape(m) & (SHAPE_MASK | SHAPE_TABLE)) {
		work[PHASE_METADATA].bytes += mask + LIST * 8 * mask * density;
		work[PHASE_METADATA].kernels = method_shape(m) == SHAPE_TABLE ? 2 : 1;
	}
	if (m->executor->copies) {
		work[PHASE_COPY].bytes += 4.0 * BF16 * l->head_dim * l->kv_heads * len * density;
		work[PHASE_COPY].kernels = 1;
	}
	add_attention(l, n, pairs * density, len * density, &work[PHASE_ATTEND]);
}

void roofline_count(const struct roofline_subject *s, const struct batch *b, const double *density,
		    struct roofline_work work[PHASE_COUNT])
{
	int rows = 0, emit = 0;

	memset(work, 0, PHASE_COUNT * sizeof *work);
	for (size_t i = 0; i < b->n; i++) {
		const struct batch_entry *e = &b->entry[i];
		double len = (double)e->start + e->n_tok;

		rows += (int)e->n_tok;
		emit += e->emit;
		if (e->decode)
			add_attention(&s->model->layer[0], 1, len, len, &work[PHASE_DECODE]);
		else
			count_chunk(s, e, density[i], work);
	}
	count_rows(s, rows, work);
	count_head(s, rows, emit, &work[PHASE_HEAD]);
}

/* ---- times ---- */

const struct roofline_rate *roofline_rate_of(const struct roofline_gpu *g, const struct method *m,
					     enum phase p)
{
	int kind = (int)p;

	if (p == PHASE_SELECT)
		kind = roofline_selector_kind(m->selector->name);
	else if (p == PHASE_ATTEND && !m->dense)
		kind = roofline_executor_kind(m->executor->name);
	return &g->rate[g->own[kind] ? kind : (int)p];
}

static int64_t in_ns(double x)
{
	return x < 0x1p63 ? (int64_t)llround(x) : INT64_MAX;
}

int64_t roofline_ns(const struct roofline_gpu *g, const struct roofline_rate *r,
		    const struct roofline_work *w)
{
	double compute = w->flops / (1e3 * g->tflops * r->compute);
	double memory = w->bytes / (g->gbps * r->memory);

	if (!w->kernels)
		return 0;
	return num_add(in_ns(compute > memory ? compute : memory), r->fixed_ns);
}

struct roofline_time roofline_time(const struct roofline_gpu *g, const struct method *m,
				   const struct roofline_work work[PHASE_COUNT], bool prefill,
				   int n_layers)
{
	struct roofline_time t = { 0 };
	int64_t launch = prefill ? g->launch_ns : g->graph_launch_ns;

	for (int p = 1; p < PHASE_COUNT; p++) {
		int times = p == PHASE_HEAD ? 1 : n_layers;

		t.phase_ns[p] = num_mul(times, roofline_ns(g, roofline_rate_of(g, m, p), &work[p]));
		t.kernels[p] = times * work[p].kernels;
		t.cost_ns = num_add(t.cost_ns, t.phase_ns[p]);
		t.cost_ns = num_add(t.cost_ns, num_mul(launch, t.kernels[p]));
	}
	return t;
}
