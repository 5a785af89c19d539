/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse methods and droppers of backend cpu with weights: on real hidden states. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/weights.h"
#include "replay/engine/act_weights.h"
#include "replay/forward/decoder_ref.h"
#include "replay/forward/rotate.h"
#include "tests/tap.h"
#include "tests/whole_model.h"

/* ---- methods and droppers ---- */

#define REVIVE "dense+lazyllm:layers=0:0.4+1:0.3,aux-revival=1,revive-max=7"
#define UNI "+uniprefill:layers=0+1,p=0.2,mode=append,min-tokens=0,sinks=16,last-q=16,block=16"

static void test_methods(const struct weights *w)
{
	static const char *const all[] = {
		"compact-fp:alpha=0",
		"select=flashprefill,alpha=0/union=none/exec=blocksparse",
		"dense+lazyllm:layers=0:0+1:0",
		"dense+lazyllm:layers=0:0+1:0,aux-revival=1",
		"dense+sliminfer:layers=1:100",
		"dense+uniprefill:layers=0+1,p=1,mode=append,min-tokens=0",
	};
	static const char *const some[] = {
		WHOLE_SPARSE,
		"dense" WHOLE_LAZY,
		WHOLE_SPARSE WHOLE_LAZY,
		REVIVE,
		"dense+sliminfer:layers=0:0.3,window=16,sinks=16,block=16",
		"dense" UNI,
	};
	static struct whole_outputs dense, got, again;

	whole_run(w, whole_three("dense", &dense), 129);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		whole_run(w, whole_three(all[i], &got), 129);
		ok(outputs_same(&got, &dense), "%s: all is selected or kept: dense", all[i]);
	}
	for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
		whole_run(w, whole_three(some[i], &got), 129);
		whole_run(w, whole_three(some[i], &again), 129);
		ok(outputs_distance(&got, &dense) > 0.01 && outputs_same(&got, &again),
		   "%s: not dense: off by %g, the same in each run", some[i],
		   outputs_distance(&got, &dense));
	}
}

/* ---- droppers against plain formulas ---- */

/* Attention of row r over rows 0 ... r. */
static void attend_plainly(const struct layer_spec *l, const struct layer_qkv *p, const bf16_t *q,
			   const bf16_t *k, int r, bf16_t *out)
{
	int dim = l->head_dim, group = l->q_heads / l->kv_heads;

	for (int h = 0; h < l->q_heads; h++) {
		double sum = 0, o[64] = { 0 };

		for (int j = 0; j <= r; j++) {
			const bf16_t *kj = k + (j * l->kv_heads + h / group) * dim;
			const bf16_t *v = p->x + j * layer_qkv_row(p) +
					  layer_qkv_head(p, l->q_heads + l->kv_heads + h / group);
			double x = (double)bf16_dot(q + (r * l->q_heads + h) * dim, kj, dim), e;

			e = exp(x / sqrt(dim));
			sum += e;
			for (int i = 0; i < dim; i++)
				o[i] += e * (double)bf16_to_f32(v[i]);
		}
		for (int i = 0; i < dim; i++)
			out[(r * l->q_heads + h) * dim + i] = bf16_from_f32((float)(o[i] / sum));
	}
}

/* Keep the rows at the positions that the engine kept for segment s, of a prompt in one chunk. */
static int keep_as(const struct drops *d, int s, struct decoder_ref *decoder, int layer,
		   struct layer_row *row)
{
	int32_t index[WHOLE_LEN];
	int n = d->segment[s].n[0], at = 0;

	for (int k = 0; k < n; k++) {
		while (row[at].rotation != d->segment[s].keep[0][k])
			at++;
		index[k] = at;
		row[k] = row[at];
	}
	decoder_ref_keep(decoder, layer, index, n);
	return n;
}

/* The logits of a prompt's last row, with the rows that the engine kept. */
static void run_plainly(const struct weights *w, const struct attn_engine *e,
			const struct act_weights *act, struct layer_row *row, int n, float *logits)
{
	static bf16_t q[WHOLE_LEN * 128], k[WHOLE_LEN * 128], out[WHOLE_LEN * 128];
	struct ar_err err = { 0 };
	struct decoder_ref *d;

	if (decoder_ref_open(&d, w, NULL, NULL, &err) || decoder_ref_room(d, n, &err) ||
	    decoder_ref_begin(d, row, n, &err))
		bail_out("%s", err.msg);
	for (int l = 0; l < TINY_LAYERS; l++) {
		const struct drop *drop = attn_engine_drop(e, l);
		int next = attn_engine_group(e, l)->segment + 1;
		struct rotate x = { act->shape, act_ropes_angles(&act->ropes, l), { 0 }, row, q, k,
				    NULL };
		enum ar_status st = decoder_ref_before(d, l, &err);

		x.product = decoder_ref_product(d, l);
		if (!st)
			st = rotate_ref(&x, &err);
		for (int r = 0; r < n; r++)
			attend_plainly(&w->model.layer[l], &x.product, q, k, r, out);
		if (!st)
			st = decoder_ref_project(d, l, out, &err);
		if (drop && drop->dropper->place == DROP_BEFORE_MLP)
			n = keep_as(&e->drops, next, d, l, row);
		if (st || decoder_ref_mlp(d, l, &err))
			bail_out("%s", err.msg);
		if (drop && drop->dropper->place == DROP_AFTER_LAYER)
			n = keep_as(&e->drops, next, d, l, row);
	}
	if (decoder_ref_end(d, &err) || decoder_ref_logits(d, &(int32_t){ n - 1 }, 1, logits, &err))
		bail_out("%s", err.msg);
	decoder_ref_close(d);
}

static void test_drops(const struct weights *w)
{
	static const char *const methods[] = { "dense" WHOLE_LAZY, "dense" UNI };
	struct batch_entry e = { .n_tok = 290, .known = 290, .n_emit = 1 };
	static float want[TINY_VOCAB];
	static struct whole_outputs o;

	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
		struct layer_row row[WHOLE_LEN];
		struct iter_cost cost;
		struct whole x;
		double most = 0;
		int kept;

		whole_open(&x, w, whole_three(methods[i], &o));
		for (int r = 0; r < 290; r++)
			row[r] = (struct layer_row){ tokens_id(x.tokens, 0, r), r, 0 };
		cost = whole_step(&x, &e, 1);
		kept = cost.drop[cost.n_drop - 1].n_kept;
		run_plainly(w, &((const struct cpu *)x.self)->engine,
			    ((const struct cpu *)x.self)->engine.act_self, row, 290, want);
		for (int v = 0; v < TINY_VOCAB; v++)
			most = fmax(most, fabs((double)want[v] - (double)o.logit[0][0][v]));
		ok(kept < 290 && most < 0.02 * outputs_largest(&o),
		   "%s: %d rows of 290 are left; off plain formulas by %g of %g", methods[i], kept,
		   most, outputs_largest(&o));
		whole_close(&x);
	}
}

/* ---- decodes that revive tokens, against plain formulas ---- */

/* Request 0 by positions.  The residual stream of a token is not kept: it is computed again from
 * the outputs of attention. */
struct plain {
	const struct weights *w;
	const struct act_weights *act;
	struct decoder_ref *d;
	struct layer_row row[WHOLE_LEN];
	bool has[TINY_LAYERS][WHOLE_LEN];
	bf16_t q[TINY_LAYERS][WHOLE_LEN][128], k[TINY_LAYERS][WHOLE_LEN][128];
	bf16_t v[TINY_LAYERS][WHOLE_LEN][128], attn[TINY_LAYERS][WHOLE_LEN][128];
	int twice;
};

/* Bring the token at pos through the layers below. */
static void plain_reach(struct plain *p, int pos, int layer)
{
	struct ar_err err = { 0 };
	enum ar_status st = decoder_ref_begin(p->d, &p->row[pos], 1, &err);

	for (int l = 0; l < layer && !st; l++) {
		st = decoder_ref_before(p->d, l, &err);
		if (!st)
			st = decoder_ref_project(p->d, l, p->attn[l][pos], &err);
		if (!st)
			st = decoder_ref_mlp(p->d, l, &err);
	}
	if (st)
		bail_out("%s", err.msg);
}

/* Q, K and V of the token at pos. */
static void plain_enter(struct plain *p, int pos, int layer)
{
	const struct layer_spec *s = &p->w->model.layer[layer];
	struct rotate x = { .shape = p->act->shape,
			    .angles = act_ropes_angles(&p->act->ropes, layer),
			    .row = &p->row[pos],
			    .q = p->q[layer][pos],
			    .k = p->k[layer][pos] };
	struct ar_err err = { 0 };

	plain_reach(p, pos, layer);
	if (decoder_ref_before(p->d, layer, &err))
		bail_out("%s", err.msg);
	x.product = decoder_ref_product(p->d, layer);
	if (rotate_ref(&x, &err))
		bail_out("%s", err.msg);
	for (int h = 0; h < s->kv_heads; h++)
		memcpy(p->v[layer][pos] + h * s->head_dim,
		       x.product.x + layer_qkv_head(&x.product, s->q_heads + s->kv_heads + h),
		       (size_t)s->head_dim * sizeof(bf16_t));
	p->twice += p->has[layer][pos];
	p->has[layer][pos] = true;
}

/* Attention of the token at pos over the tokens that are there, up to itself. */
static void plain_attend(struct plain *p, int pos, int layer)
{
	const struct layer_spec *s = &p->w->model.layer[layer];
	int dim = s->head_dim;

	for (int h = 0; h < s->q_heads; h++) {
		int g = h / (s->q_heads / s->kv_heads) * dim;
		double sum = 0, o[64] = { 0 };

		for (int t = 0; t <= pos; t++) {
			double e;

			if (!p->has[layer][t])
				continue;
			e = exp((double)bf16_dot(p->q[layer][pos] + h * dim, p->k[layer][t] + g,
						 dim) /
				sqrt(dim));
			sum += e;
			for (int i = 0; i < dim; i++)
				o[i] += e * (double)bf16_to_f32(p->v[layer][t][g + i]);
		}
		for (int i = 0; i < dim; i++)
			p->attn[layer][pos][h * dim + i] = bf16_from_f32((float)(o[i] / sum));
	}
}

/* Run the rows that the engine ran of entry `of` of its last batch. */
static int plain_step(struct plain *p, const struct attn_engine *e, const struct batch_entry *entry,
		      size_t of)
{
	int n_revived = 0;

	for (int l = 0; l < TINY_LAYERS; l++) {
		const struct row_segment *x = &e->drops.segment[attn_engine_group(e, l)->segment];
		int n_back = rows_n_back(x, of), n = x->n[of], pos[WHOLE_LEN];

		for (int k = 0; k < n; k++)
			pos[k] = k < n_back ? x->back[of][k] :
					      (int)entry->start + (x->keep[of] ?
									   x->keep[of][k - n_back] :
									   k - n_back);
		for (int k = 0; k < n; k++)
			plain_enter(p, pos[k], l);
		for (int k = 0; k < n; k++)
			plain_attend(p, pos[k], l);
		n_revived += n_back;
	}
	return n_revived;
}

static double plain_logits_off(struct plain *p, int pos, const float *got)
{
	float want[TINY_VOCAB];
	struct ar_err err = { 0 };
	double most = 0;

	plain_reach(p, pos, TINY_LAYERS);
	if (decoder_ref_end(p->d, &err) || decoder_ref_logits(p->d, &(int32_t){ 0 }, 1, want, &err))
		bail_out("%s", err.msg);
	for (int v = 0; v < TINY_VOCAB; v++)
		most = fmax(most, fabs((double)want[v] - (double)got[v]));
	return most;
}

/* Serve all requests in chunks; before output `preempt` request 0 loses its cache. */
static void test_revival(const struct weights *w, uint32_t chunk, int preempt)
{
	struct plain *p = calloc(1, sizeof *p);
	static struct whole_outputs o;
	const struct attn_engine *e;
	struct ar_err err = { 0 };
	struct whole x;
	int n_revived = 0, n_out = 0;
	double most = 0;

	if (!p || decoder_ref_open(&p->d, w, NULL, NULL, &err) || decoder_ref_room(p->d, 1, &err))
		bail_out("out of memory");
	whole_open(&x, w, whole_three(REVIVE, &o));
	e = &((const struct cpu *)x.self)->engine;
	p->w = w;
	p->act = e->act_self;
	for (;;) {
		struct batch_entry entry[WHOLE_REQS];
		size_t n = 0;

		if (n_out == preempt) {
			whole_drop(&x, 0);
			memset(p->has, 0, sizeof p->has);
			preempt = -1;
		}
		for (uint32_t q = 0; q < WHOLE_REQS; q++) {
			entry[n] = whole_next(&x, q, chunk);
			n += entry[n].n_tok > 0;
		}
		if (!n || entry[0].req)
			break;
		for (uint32_t t = 0; t < entry[0].n_tok; t++)
			p->row[entry[0].start + t] =
				(struct layer_row){ tokens_id(x.tokens, 0, entry[0].start + t),
						    (int32_t)(entry[0].start + t), 0 };
		whole_step(&x, entry, n);
		n_revived += plain_step(p, e, &entry[0], 0);
		if (entry[0].n_emit)
			most = fmax(most,
				    plain_logits_off(p, (int)(entry[0].start + entry[0].n_tok) - 1,
						     o.logit[0][n_out++]));
	}
	ok(most < 0.02 * outputs_largest(&o) && n_revived > 20 && !p->twice,
	   "chunks of %u: %d outputs, %d rows of revived tokens; off plain formulas by %g of %g",
	   (unsigned)chunk, n_out, n_revived, most, outputs_largest(&o));
	whole_close(&x);
	decoder_ref_close(p->d);
	free(p);
}

/* ---- samples ---- */

/* Serve the prompts, and compare the last chunk of request 0 in the given order of layers.  Q of
 * the last layer is that of the iteration. */
static void sample(const struct weights *w, const char *method, const int *order,
		   struct accuracy acc[TINY_LAYERS][WHOLE_HEADS], struct whole_outputs *o)
{
	struct batch_entry e[] = {
		{ .n_tok = 150, .known = 290 },
		{ .start = 150, .n_tok = 140, .known = 290, .n_emit = 1, .chunk_no = 1 }
	};
	struct selection_count count[WHOLE_HEADS];
	const struct cpu *c;
	struct ar_err err = { 0 };
	struct whole x;
	bf16_t *q;
	size_t bytes;

	whole_open(&x, w, whole_three(method, o));
	whole_step(&x, &e[0], 1);
	whole_step(&x, &e[1], 1);
	c = x.self;
	bytes = (size_t)row_set_of(&c->set, TINY_LAYERS - 1)->n_row *
		(size_t)(w->model.layer->q_heads * w->model.layer->head_dim) * sizeof *q;
	q = malloc(bytes);
	if (!q)
		bail_out("out of memory");
	memcpy(q, c->q, bytes);
	for (int i = 0; i < TINY_LAYERS; i++) {
		if (backend_compare(&backend_cpu, x.self, &e[1], order[i], acc[order[i]], count,
				    NULL, &err))
			bail_out("%s", err.msg);
		if (order[i] == TINY_LAYERS - 1)
			ok(!memcmp(q, c->q, bytes), "%s: a sample has the Q of the iteration",
			   method);
	}
	free(q);
	whole_serve(&x, 7, WHOLE_BUDGET);
	whole_close(&x);
}

static void test_samples(const struct weights *w)
{
	static const char *const methods[] = { "dense", WHOLE_SPARSE, "dense" WHOLE_LAZY,
					       WHOLE_SPARSE WHOLE_LAZY, REVIVE };
	static const int orders[2][TINY_LAYERS] = { { 0, 1, 2 }, { 2, 0, 1 } };
	static struct whole_outputs first, second;

	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
		struct accuracy a[TINY_LAYERS][WHOLE_HEADS] = { 0 },
				b[TINY_LAYERS][WHOLE_HEADS] = { 0 };
		double error = 0;

		sample(w, methods[i], orders[0], a, &first);
		sample(w, methods[i], orders[1], b, &second);
		for (int l = 0; l < TINY_LAYERS; l++)
			for (int h = 0; h < w->model.layer->q_heads; h++)
				error = fmax(error, a[l][h].rel_l2);
		ok(!memcmp(a, b, sizeof a), "%s: samples in any order are equal", methods[i]);
		ok(strncmp(methods[i], "dense", 5) ? error > 0 : error == 0,
		   "... and off dense attention by %g", error);
		ok(outputs_same(&first, &second), "... and change nothing of the run");
	}
}

int main(void)
{
	struct weights w;

	plan(0);
	whole_begin();
	whole_load(&w, &tiny_models[0]);
	test_methods(&w);
	test_drops(&w);
	test_revival(&w, 100, -1);
	test_revival(&w, 90, 4);
	test_samples(&w);
	weights_release(&w);
	whole_end();
	return done_testing();
}
