/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/roofline.h"

#include <math.h>
#include <string.h>

#include "base/number.h"
#include "model/layer_size.h"
#include "replay/cost/roofline_count.h"
#include "replay/cost/roofline_latent.h"
#include "replay/cost/roofline_select.h"

enum { MIX_KERNELS = 4 /* of a prompt, as in kernels/delta and kernels/ssm */ };

/* ---- counting ---- */

/* Norm of rows with n_add residuals: x, y and the residuals, x again; and the weights of it and of
 * the norm of the residuals. */
static void add_norm(struct roofline_work *w, double rows, double width, int n_add, int post)
{
	w->bytes += BF16 * width * (rows * (3 + n_add) + 1 + post);
	w->kernels++;
}

/* Rows that the MLP of a layer leaves to the next norm, for each row. */
static int left_over(const struct layer_spec *l)
{
	return l->n_experts && !l->shared_ffn && !l->expert_hidden ? l->experts_per_tok : 1;
}

/* n_batch MLPs of rows each, with or without a gate.  width: of the rows.  up, down: formats of
 * their weights. */
static void add_mlp(const struct layer_spec *l, const struct linear_format *up,
		    const struct linear_format *down, bool experts, double n_batch, double rows,
		    double width, double ffn, int bias, struct roofline_work *work)
{
	int in = layer_mlp_matrices(l) - 1;

	add_weights(&work[PHASE_LINEAR], up, experts, n_batch, rows, in * ffn, width, bias);
	add_moves(&work[PHASE_NORM], (in + 1) * n_batch * rows * ffn);
	add_weights(&work[PHASE_LINEAR], down, experts, n_batch, rows, width, ffn, bias);
}

/* Experts that run, and rows of each. */
struct load {
	double experts, rows;
};

/* Of all ranks, without draws of each iteration. */
static struct load mean_load(const struct roofline_subject *s, const struct layer_spec *l, int rows)
{
	const struct expert_load even = layer_experts(l, rows);
	double n = l->n_experts, k = l->experts_per_tok, touched;

	if (!n || !(s->draws > 0))
		return (struct load){ even.experts, even.rows };
	touched = n * (1 - pow(1 - k / n, pow(rows, s->draws)));
	return (struct load){ touched, rows * k / touched };
}

/* Of the rank with the most, in a step of rows. */
static struct load expert_load(const struct roofline_subject *s, int layer, int64_t step,
			       int64_t rows)
{
	const struct layer_spec *l = &s->model->layer[layer];
	struct load all;

	if (s->experts && l->n_experts) {
		struct experts_most m = experts_most(s->experts, step, layer, rows);

		return (struct load){ m.experts, m.experts > 0 ? m.rows / m.experts : 0 };
	}
	all = mean_load(s, l, (int)rows);
	if (l->held_experts)
		all.experts = ceil(all.experts * l->held_experts / l->n_experts);
	return all;
}

static void count_mlp(const struct model *m, const struct layer_spec *l, int rows, struct load e,
		      struct roofline_work *work)
{
	const struct linear_format *f = l->format, *shared = &f[LINEAR_SHARED];
	const bool experts = l->n_experts;
	const double width = layer_expert_hidden(l, m->hidden);

	if (l->n_experts) {
		add_product(&work[PHASE_LINEAR], 1, rows, l->n_experts, m->hidden, l->mlp_bias);
		add_moves(&work[PHASE_NORM], 2.0 * e.experts * e.rows * width);
	}
	if (l->expert_hidden) { /* between them the sum of a row's experts */
		add_weights(&work[PHASE_LINEAR], &f[LINEAR_AROUND], false, 1, rows, width,
			    m->hidden, 0);
		add_moves(&work[PHASE_NORM], rows * width * (1.0 + l->experts_per_tok));
		add_weights(&work[PHASE_LINEAR], &f[LINEAR_AROUND], false, 1, rows, m->hidden,
			    width, 0);
	}
	add_mlp(l, &f[experts ? LINEAR_EXPERTS : LINEAR_GATE],
		&f[experts ? LINEAR_EXPERTS : LINEAR_DOWN], experts, e.experts, e.rows, width,
		l->ffn, l->mlp_bias, work);
	if (!l->shared_ffn)
		return;
	add_mlp(l, shared, shared, false, 1, rows, m->hidden, l->shared_ffn, 0, work);
	if (l->shared_gate)
		add_product(&work[PHASE_LINEAR], 1, rows, 1, m->hidden, 0);
	for (int i = 0; i < 3 * l->expert_norms; i++)
		add_norm(&work[PHASE_NORM], rows, m->hidden, -1, 0);
	add_moves(&work[PHASE_NORM],
		  rows * (m->hidden * (l->expert_hidden ? 3.0 : 2.0 + l->experts_per_tok) +
			  l->shared_gate));
}

/* Add the work of RoPE, and of the KV cache. */
static void count_cache(const struct layer_spec *l, int rows, struct roofline_work *work)
{
	double turned = (double)(layer_q_width(l) + layer_k_width(l));
	double kv = (double)(layer_k_width(l) + layer_v_width(l));

	count_copy(&work[PHASE_ROPE], rows * (2 * BF16 * turned + TRIG * (double)l->rotary_dim), 0);
	count_copy(&work[PHASE_CACHE], rows * (BF16 * kv + (double)layer_cache_bytes(l)), rows);
}

/* Add the work of the products and norms around a mixer. */
static void count_around(const struct model *m, const struct layer_spec *l, int rows,
			 struct roofline_work *work)
{
	const bool states = !mixer_attends(l->mixer);
	const struct linear_format *f = l->format;

	if (!l->beside)
		add_norm(&work[PHASE_NORM], rows, m->hidden, left_over(l), l->post_norms);
	add_weights(&work[PHASE_LINEAR], &f[states ? LINEAR_IN : LINEAR_Q], false, 1, rows,
		    (double)layer_qkv_width(l), m->hidden, l->qkv_bias);
	if (layer_ba_width(l))
		add_weights(&work[PHASE_LINEAR], &f[LINEAR_BA], false, 1, rows,
			    (double)layer_ba_width(l), m->hidden, 0);
	if (l->qk_norm)
		add_moves(&work[PHASE_NORM],
			  2 * (rows * (double)(layer_q_width(l) + layer_k_width(l)) + l->head_dim));
	if (l->out_gate)
		add_moves(&work[PHASE_NORM], 3 * rows * (double)layer_o_width(l));
	add_weights(&work[PHASE_LINEAR], &f[states ? LINEAR_OUT : LINEAR_O], false, 1, rows,
		    m->hidden, (double)layer_o_width(l), l->o_bias);
}

/* Add the work of the layer outside attention. */
static void count_rows(const struct roofline_subject *s, const struct layer_spec *l, int rows,
		       struct load e, struct roofline_work *work)
{
	const struct model *m = s->model;

	if (l->mixer == MIX_LATENT)
		roofline_latent_rows(s, l, rows, work);
	else if (mixer_attends(l->mixer))
		count_cache(l, rows, work);
	if (s->attention_only)
		return;
	if (l->mixer != MIX_NONE)
		count_around(m, l, rows, work);
	if (!l->ffn)
		return;
	/* with what two mixers side by side left */
	add_norm(&work[PHASE_NORM], rows, m->hidden, 1 + l->beside, l->post_norms);
	count_mlp(m, l, rows, e, work);
}

static void count_head(const struct roofline_subject *s, int rows, int emit,
		       struct roofline_work *w)
{
	const struct model *m = s->model;
	const struct layer_spec *last = &m->layer[m->n_layers - 1];

	if (s->attention_only)
		return;
	add_norm(w, rows, m->hidden, left_over(last), last->post_norms);
	if (!emit)
		return;
	w->bytes += BF16 * (double)emit * (2.0 * m->hidden + m->vocab);
	w->kernels += 2;
	add_weights(w, &m->head, false, 1, emit, m->vocab, m->hidden, 0);
}

/* Attention of pairs of (row, key) by n rows over keys. */
static void add_attention(const struct layer_spec *l, double n, double pairs, double keys,
			  struct roofline_work *w)
{
	w->flops += layer_pair_flops(l) * pairs;
	w->edge_flops += layer_pair_flops(l) * n;
	w->bytes += BF16 * n * (double)(layer_q_width(l) + layer_o_width(l));
	w->bytes += (double)layer_cache_bytes(l) * keys;
	w->kernels = 1;
}

/* Attention of n rows from position start on, each to the last `window` keys up to its own; rows
 * before position window see all keys. */
static void add_window(const struct layer_spec *l, double start, double n, struct roofline_work *w)
{
	double past = start + n - l->window, keys = start + n, pairs = n * start + n * (n + 1) / 2;
	double before = start - l->window; /* keys that the first row does not see, less one */

	if (past > 0)
		pairs -= past * (past + 1) / 2;
	if (before > 0)
		pairs += before * (before + 1) / 2;
	if (before + 1 > 0)
		keys -= before + 1;
	add_attention(l, n, pairs, keys, w);
}

/* (row, key) pairs of rows [0, n) which each see the keys of their chunk up to their own. */
static double chunk_pairs(double n, double chunk)
{
	double whole = floor(n / chunk), rest = n - whole * chunk;

	return whole * chunk * (chunk + 1) / 2 + rest * (rest + 1) / 2;
}

/* Attention of n rows from position start on, each within its chunk of `window` positions. */
static void add_chunked(const struct layer_spec *l, double start, double n, struct roofline_work *w)
{
	double first = floor(start / l->window) * l->window;
	double pairs = chunk_pairs(start + n, l->window) - chunk_pairs(start, l->window);

	add_attention(l, n, pairs, start + n - first, w);
}

/* A mixer with a state: n rows of one request.  A prompt takes the four kernels of delta.h. */
static void add_mix(const struct layer_spec *l, double n, bool decode, struct roofline_work *w)
{
	w->flops += n * (layer_delta_flops(&l->delta, !decode) + layer_ssm_flops(&l->ssm, !decode));
	w->bytes += BF16 * n * (double)(layer_qkv_width(l) + layer_ba_width(l) + layer_o_width(l));
	w->bytes += 2.0 * (double)layer_state_bytes(l);
}

/* A chunk under the method. */
static void count_chunk(const struct roofline_subject *s, const struct layer_spec *l,
			const struct batch_entry *e, double density, struct roofline_work *work)
{
	const struct method_part *m = method_prefill(s->method);
	double n = e->n_tok, start = batch_stored(e), len = start + n;
	double pairs = n * start + n * (n + 1) / 2;
	double mask = roofline_mask_bytes(s, l, e);

	if (m->dense)
		density = 1;
	else
		roofline_select(s, l, e, &work[PHASE_SELECT]);
	if (method_shape(m) & (SHAPE_MASK | SHAPE_TABLE)) {
		work[PHASE_METADATA].bytes += mask + LIST * 8 * mask * density;
		work[PHASE_METADATA].kernels = method_shape(m) == SHAPE_TABLE ? 2 : 1;
	}
	if (m->executor->copies) {
		work[PHASE_COPY].bytes += 2.0 * (double)layer_cache_bytes(l) * len * density;
		work[PHASE_COPY].kernels = 1;
	}
	add_attention(l, n, pairs * density, len * density, &work[PHASE_ATTEND]);
}

/* Rows of entry e that an evictor sees, and its event. */
static void count_evict(const struct evict *evict, const struct layer_spec *l,
			const struct batch_entry *e, struct roofline_work *w)
{
	const struct attn_shape shape = { l->q_heads, l->kv_heads, l->head_dim, 0 };
	const struct evict_rows rows = { .shape = &shape,
					 .stored = batch_stored(e),
					 .n_row = e->n_tok,
					 .n_cand = batch_stores(e),
					 .n_gone = e->evict };
	struct evict_work x = { .kernels = 0 };

	evict_count(evict, &rows, &x);
	w->flops += x.flops;
	w->bytes += x.bytes;
	w->kernels = x.kernels > w->kernels ? x.kernels : w->kernels; /* of all requests */
}

/* Parts are long, and seldom there: add_weights() clears its own. */
static void clear(struct roofline_work work[PHASE_COUNT])
{
	for (int p = 0; p < PHASE_COUNT; p++)
		memset(&work[p], 0, offsetof(struct roofline_work, part));
}

void roofline_count(const struct roofline_subject *s, int layer, const struct batch *b,
		    const double *density, struct roofline_work work[PHASE_COUNT])
{
	const struct layer_spec *l = &s->model->layer[layer];
	int rows = 0, emit = 0, mix[2] = { 0 };
	const bool lists = !s->method->part[ROW_DECODE].dense;
	double decodes = 0, keys = 0; /* of all decodes: the sums are exact below 2^53 */
	struct load load;

	clear(work);
	for (size_t i = 0; i < b->n; i++) {
		const struct batch_entry *e = &b->entry[i];
		bool decode = e->kind == ROW_DECODE;

		if (s->method->evict)
			count_evict(s->method->evict, l, e, &work[PHASE_EVICT]);
		rows += (int)e->n_tok;
		emit += (int)e->n_emit;
		if ((l->mixer == MIX_LINEAR || l->mixer == MIX_SSM) && !s->attention_only) {
			add_mix(l, e->n_tok, decode, &work[PHASE_MIX]);
			mix[decode] = decode ? 1 : MIX_KERNELS;
		} else if (l->mixer == MIX_WINDOW)
			add_window(l, e->start, e->n_tok,
				   &work[decode ? PHASE_DECODE : PHASE_ATTEND]);
		else if (l->mixer == MIX_CHUNK)
			add_chunked(l, e->start, e->n_tok,
				    &work[decode ? PHASE_DECODE : PHASE_ATTEND]);
		else if (l->mixer == MIX_FULL && decode)
			decodes++, keys += lists ? roofline_listed(s, l, e, &work[PHASE_SELECT]) :
						   batch_stores(e);
		else if (l->mixer == MIX_FULL)
			count_chunk(s, l, e, density[i], work);
	}
	if (decodes)
		add_attention(l, decodes, keys, keys, &work[PHASE_DECODE]);
	if (l->mixer == MIX_FULL)
		roofline_meta(s, l, rows, &work[PHASE_META]);
	if (l->mixer == MIX_LATENT)
		roofline_latent_mix(s, l, b, work);
	if (!cache_is_bf16(l->cache))
		work[PHASE_DECODE].kind = roofline_cache_kind(l->cache);
	work[PHASE_MIX].kernels = mix[0] + mix[1];
	load = expert_load(s, layer, b->step.no, b->step.rows ? b->step.rows : rows);
	count_rows(s, l, rows, load, work);
	count_head(s, rows, emit, &work[PHASE_HEAD]);
}

/* ---- times ---- */

const struct roofline_rate *roofline_rate_of(const struct roofline_gpu *g, const struct method *m,
					     enum phase p)
{
	int kind = (int)p;

	if (!m)
		return &g->rate[p];
	if (p == PHASE_SELECT)
		kind = roofline_selector_kind(method_prefill(m)->selector->name);
	else if (p == PHASE_ATTEND && !method_prefill(m)->dense)
		kind = roofline_executor_kind(method_prefill(m)->executor->name);
	return &g->rate[g->own[kind] ? kind : (int)p];
}

static int64_t in_ns(double x)
{
	return x < 0x1p63 ? (int64_t)llround(x) : INT64_MAX;
}

int64_t roofline_ns(const struct roofline_gpu *g, const struct roofline_rate *r,
		    const struct roofline_work *w)
{
	double peak = g->tflops_fp8 > 0 ? g->tflops_fp8 : g->tflops;
	double flops = w->flops + w->fp8_flops * g->tflops / peak + r->edge * w->edge_flops;
	double compute = flops / (1e3 * g->tflops * r->compute);
	double memory = (w->bytes + r->edge * w->edge_bytes) / (g->gbps * r->memory);

	if (!w->kernels)
		return 0;
	return num_add(in_ns(compute > memory ? compute : memory),
		       r->each ? num_mul(w->kernels, r->fixed_ns) : r->fixed_ns);
}

/* The rate of part i; NULL: that of the phase. */
static const struct roofline_rate *part_rate(const struct roofline_gpu *g, int i)
{
	const int all = ROOFLINE_FORMATS + i % FORMATS, kind = ROOFLINE_FORMATS + i;

	if (g->own[kind])
		return &g->rate[kind];
	return g->own[all] ? &g->rate[all] : NULL;
}

/* Time of a part of w, whose phase has the rate r. */
static int64_t part_ns(const struct roofline_gpu *g, const struct roofline_rate *r,
		       const struct roofline_work *w, int i)
{
	const struct roofline_part *p = &w->part[i];
	const struct roofline_rate *own = part_rate(g, i);
	struct roofline_rate x = own ? *own : *r;
	double peak = p->fp8 && g->tflops_fp8 > 0 ? g->tflops_fp8 : g->tflops;
	struct roofline_work one = { .flops = p->flops * g->tflops / peak,
				     .bytes = p->bytes,
				     .kernels = p->kernels,
				     .edge_flops = p->edge_flops * g->tflops / peak };

	if (!x.each)
		x.fixed_ns = x.fixed_ns * p->kernels / w->kernels;
	return roofline_ns(g, &x, &one);
}

static void join(struct roofline_work *w, const struct roofline_part *p)
{
	w->flops += p->flops;
	w->bytes += p->bytes;
	w->edge_flops += p->edge_flops;
}

/* Time of w with its parts.  Products in bf16 have their share of the phase's fixed time; those of
 * experts without rates of their own are like the others. */
static int64_t whole_ns(const struct roofline_gpu *g, const struct roofline_rate *r,
			const struct roofline_work *w)
{
	struct roofline_rate rest = *r;
	struct roofline_work one = *w;
	int64_t sum = 0;

	if (!w->parts)
		return roofline_ns(g, r, w);
	for (int i = 0; i < ROOFLINE_PARTS; i++) {
		if (!roofline_has_part(w, i))
			continue;
		if (i % FORMATS == FORMAT_BF16 && !part_rate(g, i)) {
			join(&one, &w->part[i]);
			continue;
		}
		sum = num_add(sum, part_ns(g, r, w, i));
		one.kernels -= w->part[i].kernels;
	}
	if (w->kernels && !rest.each)
		rest.fixed_ns = rest.fixed_ns * one.kernels / w->kernels;
	return num_add(sum, roofline_ns(g, &rest, &one));
}

struct roofline_time roofline_time(const struct roofline_gpu *g, const struct method *m,
				   const struct roofline_work work[PHASE_COUNT], bool prefill,
				   int n_layers)
{
	struct roofline_time t = { 0 };
	int64_t launch = prefill ? g->launch_ns : g->graph_launch_ns;

	for (int p = 1; p < PHASE_COUNT; p++) {
		int times = p == PHASE_HEAD ? 1 : n_layers;
		const struct roofline_rate *r;

		if (!work[p].kernels)
			continue;
		r = g->own[work[p].kind] ? &g->rate[work[p].kind] : roofline_rate_of(g, m, p);
		t.phase_ns[p] = num_mul(times, whole_ns(g, r, &work[p]));
		t.kernels[p] = times * work[p].kernels;
		t.cost_ns = num_add(t.cost_ns, t.phase_ns[p]);
		t.cost_ns = num_add(t.cost_ns, num_mul(launch, t.kernels[p]));
	}
	return t;
}

void roofline_kinds(const struct model *m, const int *layer, int n, int *times)
{
	memset(times, 0, (size_t)m->n_layers * sizeof *times);
	for (int i = 0; i < n; i++)
		times[model_layer_kind(m, layer ? layer[i] : i)]++;
}

static void add_time(struct roofline_time *sum, const struct roofline_time *t)
{
	for (int p = 1; p < PHASE_COUNT; p++) {
		sum->phase_ns[p] = num_add(sum->phase_ns[p], t->phase_ns[p]);
		sum->kernels[p] += t->kernels[p];
	}
	sum->cost_ns = num_add(sum->cost_ns, t->cost_ns);
}

/* Let attention of chunks and decodes take no less than walk_ns in each of n_layers. */
static void add_walk(struct roofline_time *t, int64_t walk_ns, int n_layers)
{
	int64_t more = num_mul(n_layers, walk_ns) -
		       num_add(t->phase_ns[PHASE_ATTEND], t->phase_ns[PHASE_DECODE]);

	if (more <= 0)
		return;
	t->phase_ns[PHASE_WALK] = more;
	t->cost_ns = num_add(t->cost_ns, more);
}

struct roofline_time roofline_iteration(const struct roofline_gpu *g,
					const struct roofline_subject *s, const int *times,
					const struct batch *b, const double *density)
{
	struct roofline_time sum = { 0 };
	bool prefill = false, first = true;

	for (size_t i = 0; i < b->n; i++)
		prefill = prefill || b->entry[i].kind != ROW_DECODE;
	for (int i = 0; i < s->model->n_layers; i++) {
		bool full = s->model->layer[i].mixer == MIX_FULL;
		struct roofline_work work[PHASE_COUNT];
		struct roofline_time t;

		if (!times[i])
			continue;
		roofline_count(s, i, b, density, work);
		if (!first)
			work[PHASE_HEAD].kernels = 0;
		first = false;
		t = roofline_time(g, full ? s->method : NULL, work, prefill, times[i]);
		if (full && prefill && s->method->part[ROW_DECODE].dense)
			add_walk(&t, decode_walk_ns(&g->walk, g->tflops, &s->model->layer[i], b),
				 times[i]);
		add_time(&sum, &t);
	}
	return sum;
}
