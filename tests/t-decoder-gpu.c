/* SPDX-License-Identifier: Apache-2.0 */
/* A decoder of layers that differ, against the same layers computed on the host. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu_test.h"
#include "tests/tap.h"

#if HAVE_CUDA

#include "base/rng.h"
#include "kernels/layer/layer.h"
#include "model/layer_size.h"
#include "replay/engine/decoder_state.h"

enum { HIDDEN = 64, ROWS = 37, EMIT = 3, VOCAB = 100 };
#define EPS 1e-3f /* the norms show it */

/* ---- layers ---- */

#define HEADS .q_heads = 4, .kv_heads = 2, .head_dim = 16
#define EXPERTS .n_experts = 16, .experts_per_tok = 3, .ffn = 24

/* Phases of a layer, L linear and N norm: before attention and after it. */
#define MAMBA .ssm = { 8, 8, 1, 16, 4, 1, 1, 128, 4, 0, 0 }

static const struct kind {
	const char *name, *before, *after;
	struct layer_spec spec;
} kinds[] = {
	{ "llama", "NL", "LNLNL", { HEADS, .ffn = 96 } },
	{ "qwen2", "NL", "LNLNL", { HEADS, .qkv_bias = 1, .ffn = 96 } },
	{ "qwen3-moe", "NLN", "LNLNLNL", { HEADS, EXPERTS, .qk_norm = 1 } },
	{ "gemma3",
	  "NLN",
	  "LNLNL",
	  { HEADS, .qk_norm = 1, .post_norms = 1, .act = ACT_GELU_TANH, .ffn = 96 } },
	{ "gpt-oss",
	  "NL",
	  "LNLNLNL",
	  { HEADS, EXPERTS, .qkv_bias = 1, .o_bias = 1, .mlp_bias = 1, .act = ACT_SWIGLU_CLAMP } },
	{ "qwen3-next, full",
	  "NLN",
	  "NLNLNLNLLNLN",
	  { HEADS, EXPERTS, .qk_norm = 1, .out_gate = 1, .shared_ffn = 40, .shared_gate = 1 } },
	{ "qwen3-next, linear",
	  "NL",
	  "LNLNLNLLNLN",
	  { .mixer = MIX_LINEAR,
	    EXPERTS,
	    .delta = { 2, 4, 16, 16, 4 },
	    .shared_ffn = 40,
	    .shared_gate = 1 } },
	{ "mamba before an MLP", "NL", "LNLNL", { .mixer = MIX_SSM, MAMBA, .ffn = 96 } },
	{ "mamba alone", "NL", "L", { .mixer = MIX_SSM, MAMBA } },
	{ "attention beside that", "L", "LNNLNL", { HEADS, .beside = 1, .ffn = 96 } },
	{ "an MLP alone", "", "NLNL", { .mixer = MIX_NONE, .act = ACT_RELU2, .ffn = 96 } },
	{ "experts alone",
	  "",
	  "NLNLNLLNLN",
	  { .mixer = MIX_NONE, EXPERTS, .act = ACT_RELU2, .shared_ffn = 40 } },
	{ "experts between two products",
	  "",
	  "NLNLNLNLLNLN",
	  { .mixer = MIX_NONE, EXPERTS, .expert_hidden = 32, .act = ACT_RELU2, .shared_ffn = 40 } },
	{ "a shared expert alone", "NL", "LNLNLLNLN", { HEADS, .ffn = 96, .shared_ffn = 40 } },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- the decoder ---- */

static struct layer_spec layer[2 * KINDS];
static int executed[2 * KINDS];
static struct model model = {
	.name = "mixed",
	.n_layers = 2 * KINDS,
	.hidden = HIDDEN,
	.vocab = VOCAB,
	.layer = layer,
	.norm_eps = EPS,
	.norm_plus_one = 1,
};
static char phases[64];
static size_t n_phase;

static void note(void *ctx, int number, enum phase phase)
{
	(void)ctx;
	(void)number;
	if (n_phase < sizeof phases - 1)
		phases[n_phase++] = "?LN???????HMD"[phase];
}

static bool are_phases(const char *want, const char *what)
{
	bool same = n_phase == strlen(want) && !memcmp(phases, want, n_phase);

	if (!same)
		diag("%s: %.*s instead of %s", what, (int)n_phase, phases, want);
	n_phase = 0;
	return same;
}

static enum ar_status open_decoder(struct decoder **d, struct ar_err *err)
{
	const struct decoder_env env = { .model = &model,
					 .layer = executed,
					 .n_layers = model.n_layers,
					 .max_row = ROWS,
					 .max_emit = EMIT,
					 .drops = true,
					 .seed = 5,
					 .phase = note };

	return decoder_open(d, &env, err);
}

/* All device memory of d on the host.  The zeros are the last array. */
static char *mirror(const struct decoder *d)
{
	size_t bytes = (size_t)((char *)(d->zero + EMIT) - (char *)d->mem);
	char *m = gpu_host(bytes);

	gpu_read(m, d->mem, bytes);
	return m;
}

/* An array of d in a mirror. */
static bf16_t *seen(const struct decoder *d, char *m, const bf16_t *device)
{
	return device ? (bf16_t *)(m + ((const char *)device - (const char *)d->mem)) : NULL;
}

/* ---- the same on the host ---- */

static bf16_t *rows_new(size_t n)
{
	bf16_t *x = calloc(n + 1, sizeof *x);

	if (!x)
		bail_out("out of memory");
	return x;
}

/* Rows of n elements, of n_batch matrices; the caller frees them.  bias NULL: none. */
static bf16_t *times(int n_batch, int m, int n, int k, const bf16_t *a, const bf16_t *w,
		     const bf16_t *bias)
{
	bf16_t *c = rows_new((size_t)(n_batch * m * n));

	for (int i = 0; i < n_batch * m; i++)
		for (int j = 0; j < n; j++) {
			int at = i / m * n + j;

			c[i * n + j] = bf16_from_f32((bias ? bf16_to_f32(bias[at]) : 0) +
						     bf16_dot(a + i * k, w + at * k, k));
		}
	return c;
}

struct host {
	int n;
	const struct layer_spec *l;
	bf16_t *w[W_COUNT];
	bf16_t *x, *y; /* [n][HIDDEN] */
};

static void host_norm(struct host *h, const bf16_t *add, int n_add, const bf16_t *w,
		      const bf16_t *post)
{
	layer_norm_ref(
		&(struct layer_norm_args){ h->x, add, n_add, w, h->y, h->n, HIDDEN, EPS, post, 1 });
}

/* The output of attention through its gate and the output projection. */
static bf16_t *host_project(const struct host *h, bf16_t *attn)
{
	const struct layer_spec *l = h->l;
	int n = (int)layer_qkv_width(l), o = (int)layer_o_width(l);
	bf16_t *qkv = times(1, h->n, n, HIDDEN, h->y, h->w[W_QKV], h->w[W_QKV_BIAS]), *out;
	const struct layer_qkv p = {
		qkv, h->n, l->q_heads, l->kv_heads, l->head_dim, l->out_gate, 1
	};

	if (l->out_gate)
		layer_out_gate_ref(&p, attn, attn);
	out = times(1, h->n, HIDDEN, o, attn, h->w[W_O], h->w[W_O_BIAS]);
	free(qkv);
	return out;
}

/* One MLP, or the MLPs of experts, of rows y[h->n][width]. */
static bf16_t *host_gated(const struct host *h, struct expert_load e, const bf16_t *y, int width,
			  int ffn, enum layer_weight up, enum layer_weight down,
			  const bf16_t *up_bias, const bf16_t *down_bias)
{
	int all = e.experts * e.rows;
	bf16_t *in = rows_new((size_t)(all * width)), *act = rows_new((size_t)(all * ffn)), *x;

	layer_gather_ref(y, h->n, NULL, all, width, in);
	x = times(e.experts, e.rows, (layer_mlp_matrices(h->l) - 1) * ffn, width, in, h->w[up],
		  up_bias);
	layer_act_ref(h->l->act, x, all, ffn, act);
	free(x);
	x = times(e.experts, e.rows, width, ffn, act, h->w[down], down_bias);
	free(in);
	free(act);
	return x;
}

/* The same between the two products of experts of their own width. */
static bf16_t *host_squeezed(const struct host *h)
{
	const struct layer_spec *l = h->l;
	int width = l->expert_hidden;
	bf16_t *narrow = times(1, h->n, width, HIDDEN, h->y, h->w[W_EXPERT_DOWN], NULL), *out;
	bf16_t *rows = host_gated(h, layer_experts(l, h->n), narrow, width, l->ffn, W_GATE_UP,
				  W_DOWN, NULL, NULL);

	layer_sum_ref(
		&(struct layer_sum_args){ rows, l->experts_per_tok, NULL, NULL, h->n, width });
	out = times(1, h->n, HIDDEN, width, rows, h->w[W_EXPERT_UP], NULL);
	free(narrow);
	free(rows);
	return out;
}

/* Return the output of a layer's MLP: *n_add rows for each row of x, whose mean is added to it. */
static bf16_t *host_mlp(const struct host *h, int *n_add)
{
	const struct layer_spec *l = h->l;
	bf16_t *add = l->expert_hidden ?
			      host_squeezed(h) :
			      host_gated(h, layer_experts(l, h->n), h->y, HIDDEN, l->ffn, W_GATE_UP,
					 W_DOWN, h->w[W_GATE_UP_BIAS], h->w[W_DOWN_BIAS]);
	bf16_t *shared, *gate;

	*n_add = l->n_experts && !l->expert_hidden ? l->experts_per_tok : 1;
	if (!l->shared_ffn)
		return add;
	shared = host_gated(h, (struct expert_load){ 1, h->n }, h->y, HIDDEN, l->shared_ffn,
			    W_SHARED_GATE_UP, W_SHARED_DOWN, NULL, NULL);
	gate = l->shared_gate ? times(1, h->n, 1, HIDDEN, h->y, h->w[W_SHARED_GATE], NULL) : NULL;
	layer_sum_ref(&(struct layer_sum_args){ add, *n_add, shared, gate, h->n, HIDDEN });
	*n_add = 1;
	free(shared);
	free(gate);
	return add;
}

static void host_take(const struct decoder *d, char *m, int i, struct host *h)
{
	h->l = d->layer[i].spec;
	for (int k = 0; k < W_COUNT; k++)
		h->w[k] = seen(d, m, d->layer[i].w[k]);
}

/* The output of a layer that has the rows of the one before it is added to that one's. */
static bf16_t *host_beside(const struct decoder *d, char *m, int i, bf16_t *attn, struct host *h)
{
	bf16_t *add, *more;

	host_take(d, m, i - 1, h);
	host_norm(h, NULL, 0, h->w[W_NORM1], NULL);
	add = host_project(h, attn);
	host_take(d, m, i, h);
	more = host_project(h, attn);
	layer_sum_ref(&(struct layer_sum_args){ add, 1, more, NULL, h->n, HIDDEN });
	free(more);
	return add;
}

/* h->x and h->y after layer i and the final norm. */
static void host_layer(const struct decoder *d, char *m, int i, bf16_t *attn, struct host *h)
{
	bf16_t *add = NULL;
	int n_add = 0;

	host_take(d, m, i, h);
	memcpy(h->x, seen(d, m, d->x0), (size_t)(h->n * HIDDEN) * sizeof *h->x);
	if (h->l->beside) {
		add = host_beside(d, m, i, attn, h);
		n_add = 1;
	} else if (h->l->mixer != MIX_NONE) {
		host_norm(h, NULL, 0, h->w[W_NORM1], NULL);
		add = host_project(h, attn);
		n_add = 1;
	}
	if (h->l->ffn) {
		host_norm(h, add, n_add, h->w[W_NORM2], h->w[W_POST1]);
		free(add);
		add = host_mlp(h, &n_add);
	}
	host_norm(h, add, n_add, seen(d, m, d->norm), h->w[W_POST2]);
	free(add);
}

/* ---- tests ---- */

/* Distance of rows on the device from want, relative to it. */
static double distance(const bf16_t *device, const bf16_t *want, int n)
{
	bf16_t *got = rows_new((size_t)n);
	double off = 0, sum = 0;

	gpu_read(got, device, (size_t)n * sizeof *got);
	for (int i = 0; i < n; i++) {
		double w = bf16_to_f32(want[i]), x = bf16_to_f32(got[i]) - w;

		off += x * x;
		sum += w * w;
	}
	free(got);
	return sqrt(off / sum);
}

static bf16_t *attention_of(const struct layer_spec *l, int n)
{
	size_t len = (size_t)n * layer_o_width(l);
	bf16_t *x = rows_new(len);
	struct rng r = { 77 };

	for (size_t i = 0; i < len; i++)
		x[i] = bf16_from_f32(rng_normal(&r));
	return x;
}

static void test_layer(struct decoder *d, char *m, int i, int n)
{
	const struct kind *k = &kinds[i];
	bf16_t *attn = attention_of(&k->spec, n);
	bf16_t *dev = gpu_copy(attn, (size_t)n * layer_o_width(&k->spec) * sizeof *attn);
	bf16_t x[ROWS * HIDDEN], y[ROWS * HIDDEN];
	struct host h = { .n = n, .x = x, .y = y };
	int32_t *emit = gpu_copy((int32_t[]){ 0 }, sizeof *emit);
	struct ar_err err;
	bool order;

	gpu_must(decoder_begin(d, NULL, n, &err), &err);
	if (k->spec.beside) {
		gpu_must(decoder_before(d, i - 1, i - 1, &err), &err);
		gpu_must(decoder_after(d, i - 1, i - 1, dev, &err), &err);
	}
	n_phase = 0;
	gpu_must(decoder_before(d, i, i, &err), &err);
	order = are_phases(k->before, k->name);
	gpu_must(decoder_after(d, i, i, dev, &err), &err);
	order &= are_phases(k->after, k->name);
	gpu_must(decoder_head(d, emit, 1, &err), &err);
	ok(order & are_phases("H", k->name), "%s: the phases of %d rows", k->name, n);
	host_layer(d, m, i, attn, &h);
	ok(distance(d->now.x, x, n * HIDDEN) < 0.01 && distance(d->now.y, y, n * HIDDEN) < 0.01,
	   "%s: %d rows are as on the host: %g and %g off", k->name, n,
	   distance(d->now.x, x, n * HIDDEN), distance(d->now.y, y, n * HIDDEN));
	free(attn);
}

/* The norm of Q and K works in the product, and a linear layer has its projections there. */
static void test_products(struct decoder *d, char *m, int i)
{
	const struct layer_weights *w = &d->layer[i];
	const struct layer_spec *l = w->spec;
	int n = 5, wide = (int)layer_qkv_width(l), ba = (int)layer_ba_width(l);
	struct decoder_mix mix;
	bf16_t y[ROWS * HIDDEN], *want;
	struct ar_err err;
	double off;

	gpu_must(decoder_begin(d, NULL, n, &err), &err);
	gpu_must(decoder_before(d, i, i, &err), &err);
	gpu_read(y, d->now.y, (size_t)(n * HIDDEN) * sizeof *y);
	want = times(1, n, wide, HIDDEN, y, seen(d, m, w->w[W_QKV]), seen(d, m, w->w[W_QKV_BIAS]));
	if (l->qk_norm)
		layer_qk_norm_ref(&(struct layer_qkv){ want, n, l->q_heads, l->kv_heads,
						       l->head_dim, l->out_gate, 1 },
				  seen(d, m, w->w[W_QK_NORM]), EPS);
	off = distance(d->wide, want, n * wide);
	ok(off < 0.01, "%s: the product is as on the host: %g off", kinds[i].name, off);
	free(want);
	if (l->mixer != MIX_LINEAR)
		return;
	mix = decoder_mix(d, i);
	want = times(1, n, ba, HIDDEN, y, seen(d, m, w->w[W_BA]), NULL);
	off = distance(mix.ba, want, n * ba);
	ok(mix.in == d->wide && mix.in_stride == wide && mix.ba_stride == ba && off < 0.01,
	   "... and so is that of b and a: %g off", off);
	free(want);
}

/* The drawn parameters of a mixer are finite, and not all alike. */
static void test_mixer(struct decoder *d, int i)
{
	const struct decoder_mix mix = decoder_mix(d, i);
	const struct layer_spec *l = d->layer[i].spec;
	float a[4], dt[4];
	bool fine = true;

	gpu_read(a, mix.a_log, sizeof a);
	gpu_read(dt, mix.dt_bias, sizeof dt);
	for (int h = 0; h < 4; h++)
		fine = fine && fabsf(a[h]) < 4 && fabsf(dt[h]) < 4 && a[h] != dt[h] &&
		       (!h || a[h] != a[h - 1]);
	fine = fine && !l->ssm.heads == !mix.d && !l->ssm.heads == !mix.conv_bias;
	ok(fine && mix.conv && mix.norm && mix.eps > 0, "a mixer has weights: a_log %g, %g", a[0],
	   a[1]);
}

static bool same_rows(const bf16_t *device, const bf16_t *want, int n)
{
	bf16_t *got = rows_new((size_t)(n * HIDDEN));
	bool same;

	gpu_read(got, device, (size_t)(n * HIDDEN) * sizeof *got);
	same = !memcmp(got, want, (size_t)(n * HIDDEN) * sizeof *got);
	free(got);
	return same;
}

/* Keep some rows and compare them with the same rows before. */
static bool keeps(struct decoder *d, int i, const int32_t *index, int n)
{
	int before = d->n_row, n_add = d->n_add, all = before * HIDDEN;
	bf16_t *x = rows_new((size_t)all), *add = rows_new((size_t)(n_add * all));
	bf16_t *kept = rows_new((size_t)(n * HIDDEN));
	int32_t *dev = gpu_copy(index, (size_t)n * sizeof *dev);
	struct ar_err err;
	bool same;

	gpu_read(x, d->now.x, (size_t)all * sizeof *x);
	gpu_read(add, d->now.add, (size_t)(n_add * all) * sizeof *add);
	n_phase = 0;
	gpu_must(decoder_keep(d, i, dev, n, &err), &err);
	same = are_phases("D", kinds[i].name);
	layer_gather_ref(x, before, index, n, HIDDEN, kept);
	same &= d->n_row == n && d->n_add == 1 && same_rows(d->now.x, kept, n);
	layer_sum_ref(&(struct layer_sum_args){ add, n_add, NULL, NULL, before, HIDDEN });
	layer_gather_ref(add, before, index, n, HIDDEN, kept);
	same &= n_add > 1 ? distance(d->now.add, kept, n * HIDDEN) < 0.01 :
			    same_rows(d->now.add, kept, n);
	free(x);
	free(add);
	free(kept);
	return same;
}

/* Between the halves of a layer and after it; then the pass goes on, and the next one is as if no
 * row had been dropped. */
static void test_keep(struct decoder *d, int i)
{
	static const int32_t half[] = { 0, 3, 4, 9, 10, 11, 19 }, few[] = { 1, 2, 6 };
	bf16_t *attn = attention_of(&kinds[i].spec, 20);
	bf16_t *dev = gpu_copy(attn, 20 * layer_o_width(&kinds[i].spec) * sizeof *attn);
	bf16_t was[20 * HIDDEN];
	struct ar_err err;
	bool kept = true;

	for (int pass = 0; pass < 2; pass++) {
		gpu_must(decoder_begin(d, NULL, 20, &err), &err);
		gpu_must(decoder_before(d, i, i, &err), &err);
		gpu_must(decoder_project(d, i, i, dev, &err), &err);
		kept &= pass || keeps(d, i, half, 7);
		gpu_must(decoder_mlp(d, i, i, &err), &err);
		kept &= pass || keeps(d, i, few, 3);
		gpu_must(decoder_head(d, d->zero, 1, &err), &err);
		if (pass) {
			ok(same_rows(d->home.x, was, 20), "... and the next pass is as before");
			continue;
		}
		ok(kept && d->n_row == 3, "%s: rows are kept between and after its halves",
		   kinds[i].name);
		gpu_must(decoder_begin(d, NULL, 20, &err), &err);
		gpu_must(decoder_before(d, i, i, &err), &err);
		gpu_must(decoder_after(d, i, i, dev, &err), &err);
		gpu_must(decoder_head(d, d->zero, 1, &err), &err);
		gpu_read(was, d->home.x, sizeof was);
	}
	free(attn);
}

static void test_refusals(void)
{
	static const struct {
		struct layer_spec spec;
		const char *want;
	} bad[] = {
		{ { HEADS, .ffn = 12 },
		  "mixed: hidden size 64, that of experts 64, FFN 12 and 0 experts must be "
		  "multiples of 8, head size 16 of 16; choose another --model or --tp, or "
		  "--attention-only" },
		{ { HEADS, .ffn = 16, .shared_ffn = 12 },
		  "mixed: the shared expert's FFN 12, and 0 " },
		{ { .mixer = MIX_LINEAR, .ffn = 16, .delta = { 1, 1, 16, 20, 4 } },
		  "16 channels of keys and 20 of values in linear layers must be" },
		{ { .mixer = MIX_SSM, .ssm = { 12, 8, 1, 16, 4, 1, 1, 128, 4, 0, 0 } },
		  "12 heads of state-space layers must be a multiple of 8" },
		{ { .q_heads = 1, .kv_heads = 1, .head_dim = 512, .qk_norm = 1, .ffn = 16 },
		  "mixed: the norm of Q and K takes heads of at most 256, not of 512" },
	};
	struct layer_spec was = layer[KINDS];
	struct decoder *d;
	struct ar_err err;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		layer[KINDS] = bad[i].spec;
		is_int(open_decoder(&d, &err), AR_USAGE, "a layer is refused");
		ok(strstr(err.msg, bad[i].want) && !d, "... by name: %s", err.msg);
	}
	layer[KINDS] = was;
}

/* Every kind twice: each is warmed up once, and hidden states stay finite through all. */
static void run_all(void)
{
	const char *required = getenv("ATTNREPLAY_REQUIRE_GPU");
	struct decoder *d;
	struct ar_err err;
	enum ar_status st;
	size_t bytes;
	char *m;

	for (int i = 0; i < 2 * KINDS; i++) {
		layer[i] = kinds[i % KINDS].spec;
		executed[i] = i;
	}
	test_refusals();
	st = open_decoder(&d, &err);
	if (st && (st != AR_NODEV || (required && !strcmp(required, "1"))))
		bail_out("%s", err.msg);
	if (st) {
		diag("no cuBLAS: %s", err.msg);
		return;
	}
	m = mirror(d);
	bytes = (size_t)((char *)(d->norm) - (char *)d->mem);
	is_int((long long)bytes, (long long)decoder_layers_bytes(&model),
	       "the weights of layers that differ take what is said");
	for (int i = 0; i < KINDS; i++) {
		test_layer(d, m, i, 1);
		test_layer(d, m, i, ROWS);
		if (kinds[i].spec.mixer == MIX_NONE)
			continue;
		test_products(d, m, i);
		if (!kinds[i].spec.beside)
			test_keep(d, i);
		if (!mixer_attends(kinds[i].spec.mixer))
			test_mixer(d, i);
	}
	free(m);
	decoder_close(d);
	gpu_free_all();
}

int main(void)
{
	plan(0);
	if (!gpu_usable())
		skip_all("no usable GPU");
	run_all();
	return done_testing();
}

#else

int main(void)
{
	if (!gpu_usable())
		skip_all("no usable GPU");
}

#endif
