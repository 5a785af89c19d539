/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass against formulas in double precision, on tiny models of each architecture; and
 * captures that are made with it. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "model/rope.h"
#include "replay/forward/forward.h"
#include "src/capture_make.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"
#include "tests/tiny_model.h"
#include "traces/capture/capture.h"

enum { N = 41, HID = TINY_HIDDEN, MAX_WIDTH = 96 };

static char dir[] = "/tmp/t-forward-XXXXXX";
static char arc[64], prompts[64];
static int32_t ids[N];
static struct tiny_weights tw;

/* ---- the formulas ---- */

struct ref {
	double x[TINY_LAYERS + 1][N][HID]; /* that enter each layer, and that leave the last */
	double q[TINY_LAYERS][N][MAX_WIDTH], k[TINY_LAYERS][N][MAX_WIDTH];
	double v[TINY_LAYERS][N][MAX_WIDTH];
	double logit[N][TINY_VOCAB];
};
static struct ref ref;

/* y[out] = w[out][in] x[in] + b */
static void times(double *y, const double *x, const float *w, const float *b, int out, int in)
{
	for (int o = 0; o < out; o++) {
		y[o] = b ? (double)b[o] : 0;
		for (int i = 0; i < in; i++)
			y[o] += (double)w[o * in + i] * x[i];
	}
}

static void normed(double *y, const double *x, const float *w, int n, bool plus)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += x[i] * x[i];
	for (int i = 0; i < n; i++)
		y[i] = x[i] / sqrt(sum / n + 1e-5) * ((double)w[i] + plus);
}

static void turned(double *x, int dim, int pos, const struct rope *r)
{
	float inv[MAX_WIDTH];
	double f = rope_attention_factor(r);

	rope_inv_freq(r, dim, inv);
	for (int i = 0; i < dim / 2; i++) {
		double c = cos(pos * (double)inv[i]), s = sin(pos * (double)inv[i]);
		double a = x[i], b = x[i + dim / 2];

		x[i] = f * (a * c - b * s);
		x[i + dim / 2] = f * (b * c + a * s);
	}
}

static bool sees_window(const struct tiny *m, int layer)
{
	return m->window && !(m->every && (layer + 1) % m->every == 0);
}

static const float *bias(const struct tiny *m, int layer, const char *name)
{
	return m->bias ? tiny_value(&tw, layer, name) : NULL;
}

static void ref_qkv(const struct tiny *m, const struct model *model, int l, int t)
{
	const struct rope *r = sees_window(m, l) && model->rope_window.theta > 0 ?
				       &model->rope_window :
				       &model->rope;
	double y[HID], *q = ref.q[l][t], *k = ref.k[l][t];

	normed(y, ref.x[l][t], tiny_value(&tw, l, "input_layernorm.weight"), HID, m->gemma);
	times(q, y, tiny_value(&tw, l, "self_attn.q_proj.weight"),
	      bias(m, l, "self_attn.q_proj.bias"), m->heads * m->dim, HID);
	times(k, y, tiny_value(&tw, l, "self_attn.k_proj.weight"),
	      bias(m, l, "self_attn.k_proj.bias"), m->kv_heads * m->dim, HID);
	times(ref.v[l][t], y, tiny_value(&tw, l, "self_attn.v_proj.weight"),
	      bias(m, l, "self_attn.v_proj.bias"), m->kv_heads * m->dim, HID);
	for (int h = 0; h < m->heads + m->kv_heads; h++) {
		bool is_q = h < m->heads;
		double *x = is_q ? q + h * m->dim : k + (h - m->heads) * m->dim;

		if (m->qk_norm)
			normed(x, x,
			       tiny_value(&tw, l,
					  is_q ? "self_attn.q_norm.weight" :
						 "self_attn.k_norm.weight"),
			       m->dim, m->gemma);
		turned(x, m->dim, t, r);
	}
}

static void ref_attend(const struct tiny *m, int l, int t, double *out)
{
	int group = m->heads / m->kv_heads;
	int from = sees_window(m, l) && t >= m->window ? t - m->window + 1 : 0;
	double scale = m->scale > 0 ? m->scale : 1 / sqrt(m->dim);

	for (int h = 0; h < m->heads; h++) {
		double sum = 0, *o = out + h * m->dim;

		memset(o, 0, (size_t)m->dim * sizeof *o);
		for (int j = from; j <= t; j++) {
			const double *k = ref.k[l][j] + h / group * m->dim;
			double s = 0, p;

			for (int c = 0; c < m->dim; c++)
				s += ref.q[l][t][h * m->dim + c] * k[c];
			p = exp(s * scale);
			sum += p;
			for (int c = 0; c < m->dim; c++)
				o[c] += p * ref.v[l][j][h / group * m->dim + c];
		}
		for (int c = 0; c < m->dim; c++)
			o[c] /= sum;
	}
}

static double activated(const struct tiny *m, double g)
{
	return m->gemma ? 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) :
			  g / (1 + exp(-g));
}

static void ref_rest(const struct tiny *m, int l, int t)
{
	double attn[MAX_WIDTH], y[HID], d[HID], gate[TINY_FFN], up[TINY_FFN];
	double *x = ref.x[l + 1][t];

	ref_attend(m, l, t, attn);
	times(d, attn, tiny_value(&tw, l, "self_attn.o_proj.weight"),
	      m->o_bias ? tiny_value(&tw, l, "self_attn.o_proj.bias") : NULL, HID,
	      m->heads * m->dim);
	if (m->gemma)
		normed(d, d, tiny_value(&tw, l, "post_attention_layernorm.weight"), HID, true);
	for (int i = 0; i < HID; i++)
		x[i] = ref.x[l][t][i] + d[i];
	normed(y, x,
	       tiny_value(&tw, l,
			  m->gemma ? "pre_feedforward_layernorm.weight" :
				     "post_attention_layernorm.weight"),
	       HID, m->gemma);
	times(gate, y, tiny_value(&tw, l, "mlp.gate_proj.weight"), NULL, TINY_FFN, HID);
	times(up, y, tiny_value(&tw, l, "mlp.up_proj.weight"), NULL, TINY_FFN, HID);
	for (int i = 0; i < TINY_FFN; i++)
		gate[i] = activated(m, gate[i]) * up[i];
	times(d, gate, tiny_value(&tw, l, "mlp.down_proj.weight"), NULL, HID, TINY_FFN);
	if (m->gemma)
		normed(d, d, tiny_value(&tw, l, "post_feedforward_layernorm.weight"), HID, true);
	for (int i = 0; i < HID; i++)
		x[i] += d[i];
}

static void ref_run(const struct tiny *m, const struct model *model)
{
	const float *embed = tiny_value(&tw, -1, "model.embed_tokens.weight");
	const float *norm = tiny_value(&tw, -1, "model.norm.weight");
	const float *head = m->tied ? embed : tiny_value(&tw, -1, "lm_head.weight");
	double y[HID];

	for (int t = 0; t < N; t++)
		for (int i = 0; i < HID; i++)
			ref.x[0][t][i] = (double)embed[ids[t] * HID + i] *
					 (m->gemma ? sqrt(HID) : 1);
	for (int l = 0; l < TINY_LAYERS; l++) {
		for (int t = 0; t < N; t++)
			ref_qkv(m, model, l, t);
		for (int t = 0; t < N; t++)
			ref_rest(m, l, t);
	}
	for (int t = 0; t < N; t++) {
		normed(y, ref.x[TINY_LAYERS][t], norm, HID, m->gemma);
		times(ref.logit[t], y, head, NULL, TINY_VOCAB, HID);
	}
}

/* ---- the pass ---- */

/* The results of a pass, row by row. */
struct got {
	const struct tiny *m;
	bf16_t x[TINY_LAYERS + 1][N][HID];
	bf16_t q[TINY_LAYERS][N][MAX_WIDTH], k[TINY_LAYERS][N][MAX_WIDTH];
	bf16_t v[TINY_LAYERS][N][MAX_WIDTH];
	float logit[N][TINY_VOCAB];
};
static struct got whole, parts;

static enum ar_status keep(void *ctx, const struct forward_layer *l, struct ar_err *err)
{
	struct got *g = ctx;
	size_t q = (size_t)(g->m->heads * g->m->dim), k = (size_t)(g->m->kv_heads * g->m->dim);

	(void)err;
	for (int r = 0; r < l->n_row; r++) {
		size_t t = (size_t)l->pos0 + (size_t)r;

		memcpy(g->x[l->layer][t], l->x + r * HID, sizeof g->x[0][0]);
		memcpy(g->q[l->layer][t], l->q + (size_t)r * q, q * sizeof *l->q);
		memcpy(g->k[l->layer][t], l->k + (size_t)r * k, k * sizeof *l->k);
		memcpy(g->v[l->layer][t], l->v + r * l->v_step, k * sizeof *l->v);
	}
	return AR_OK;
}

/* Run all tokens in chunks of step. */
static void run(struct got *g, const struct weights *w, const struct tiny *m, int step)
{
	struct ar_err err = { 0 };
	struct forward *f;
	enum ar_status st;

	memset(g, 0, sizeof *g);
	g->m = m;
	st = forward_open(&f, w, N, keep, g, &err);
	for (int at = 0; at < N && !st; at += step) {
		int n = N - at < step ? N - at : step;

		st = forward_run(f, ids + at, n, &err);
		if (!st)
			memcpy(g->x[TINY_LAYERS][at], forward_hidden(f),
			       (size_t)n * sizeof g->x[0][0]);
		for (int r = 0; r < n && !st; r += 3) /* some rows at a time */
			st = forward_logits(f, r, n - r < 3 ? n - r : 3, g->logit[at + r], &err);
	}
	if (st)
		bail_out("%s: %s", m->what, err.msg);
	forward_close(f);
}

struct distance {
	double diff, size;
};

static void measure(struct distance *d, double got, double want)
{
	d->diff += (got - want) * (got - want);
	d->size += want * want;
}

static double relative(const struct distance *d)
{
	return sqrt(d->diff / d->size);
}

static double far(const bf16_t *got, const double *want, int width, int row)
{
	struct distance d = { 0, 0 };

	for (int t = 0; t < N; t++)
		for (int i = 0; i < width; i++)
			measure(&d, (double)bf16_to_f32(got[t * row + i]), want[t * row + i]);
	return relative(&d);
}

static void compare(const struct tiny *m, double bound)
{
	struct distance d = { 0, 0 };
	double worst = 0;

	for (int l = 0; l < TINY_LAYERS; l++) {
		double x = far(*whole.x[l + 1], *ref.x[l + 1], HID, HID);
		double q = far(*whole.q[l], *ref.q[l], m->heads * m->dim, MAX_WIDTH);
		double k = far(*whole.k[l], *ref.k[l], m->kv_heads * m->dim, MAX_WIDTH);
		double v = far(*whole.v[l], *ref.v[l], m->kv_heads * m->dim, MAX_WIDTH);

		worst = fmax(worst, fmax(fmax(x, q), fmax(k, v)));
		diag("%s layer %d: x %.4f q %.4f k %.4f v %.4f", m->what, l, x, q, k, v);
	}
	ok(worst < bound, "%s: hidden states, Q, K and V are the formulas': %.4f", m->what, worst);
	for (int t = 0; t < N; t++)
		for (int i = 0; i < TINY_VOCAB; i++)
			measure(&d, (double)whole.logit[t][i], ref.logit[t][i]);
	ok(relative(&d) < bound, "... so are logits: %.4f", relative(&d));
}

static void test_models(void)
{
	static const int steps[] = { 9, 40 };
	struct ar_err err = { 0 };
	struct weights w;

	for (int i = 0; i < TINY_MODELS; i++) {
		const struct tiny *m = &tiny_models[i];

		tiny_make(&tw, m);
		tiny_config(dir, m);
		tiny_write(dir, &tw, 1);
		if (!ok(!weights_open(&w, dir, &err), "%s: weights are read: %s", m->what, err.msg))
			bail_out("no model");
		ref_run(m, &w.model);
		run(&whole, &w, m, N);
		compare(m, 0.02);
		for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
			run(&parts, &w, m, steps[k]);
			ok(!memcmp(&parts, &whole, sizeof whole), "... chunks of %d give the same",
			   steps[k]);
		}
		weights_release(&w);
		tiny_free(&tw);
	}
}

/* ---- refusals ---- */

static void load(struct weights *w, const struct tiny *m)
{
	struct ar_err err = { 0 };

	tiny_folder(dir, m);
	if (weights_open(w, dir, &err))
		bail_out("no model: %s", err.msg);
}

static enum ar_status stop(void *ctx, const struct forward_layer *l, struct ar_err *err)
{
	(void)ctx;
	return l->layer ? ar_fail(err, AR_DATA, "stopped") : AR_OK;
}

static void test_refused(void)
{
	static const int32_t odd[2][2] = { { 5, TINY_VOCAB }, { -1, 5 } };
	struct ar_err err = { 0 };
	struct forward *f;
	struct weights w;
	double theta;

	load(&w, &tiny_models[0]);
	ok(forward_open(&f, &w, 65, NULL, NULL, &err) == AR_USAGE && !f &&
		   strstr(err.msg, "65 tokens are more than max_position_embeddings 64 of model"),
	   "no tokens beyond the model's length: %s", err.msg);
	theta = w.model.rope.theta;
	w.model.rope.theta = 0;
	strcpy(w.model.rope_unknown, "rope type 'longrope'");
	ok(forward_open(&f, &w, 4, NULL, NULL, &err) == AR_DATA &&
		   strstr(err.msg, "the angles of rope type 'longrope' are not known"),
	   "no angles: %s", err.msg);
	w.model.rope.theta = theta;
	is_int(forward_open(&f, &w, 4, stop, NULL, &err), AR_OK, "a pass over four tokens");
	for (int i = 0; i < 2; i++)
		ok(forward_run(f, odd[i], 2, &err) == AR_DATA &&
			   strstr(err.msg, i ? "token 0 of the prompt is -1" :
					       "token 1 of the prompt is 70, but the vocabulary"),
		   "a token that is none: %s", err.msg);
	ok(forward_run(f, ids, 5, &err) == AR_USAGE &&
		   strstr(err.msg, "5 tokens after 0 are more than 4"),
	   "a fifth token: %s", err.msg);
	ok(forward_run(f, ids, 2, &err) == AR_DATA && !strcmp(err.msg, "stopped"),
	   "who sees a layer may end the pass");
	forward_close(f);
	forward_close(NULL);
	weights_release(&w);
}

/* Run two chunks and logits with allocation k failing; true: none failed. */
static bool run_faulty(const struct weights *w, long k, int *bad)
{
	static float logit[TINY_VOCAB];
	struct ar_err err = { 0 };
	struct forward *f = NULL;
	enum ar_status st;
	bool failed;

	fault_arm(k);
	st = forward_open(&f, w, 8, NULL, NULL, &err);
	if (!st)
		st = forward_run(f, ids, 3, &err);
	if (!st)
		st = forward_run(f, ids, 5, &err);
	if (!st)
		st = forward_logits(f, 4, 1, logit, &err);
	failed = fault_disarm();
	*bad += st != (failed ? AR_NOMEM : AR_OK);
	forward_close(f);
	return !failed;
}

static void test_faults(void)
{
	struct weights w;
	int bad = 0;
	long k = 0;

	load(&w, &tiny_models[4]);
	while (!run_faulty(&w, k, &bad))
		k += fault_stride(7);
	ok(!bad && k > 50, "each of %ld allocations of a pass fails cleanly", k);
	weights_release(&w);
}

/* ---- captures ---- */

static void write_prompts(void)
{
	char text[2000];
	size_t n = (size_t)sprintf(text, "[1, 2, 3]\n\n{\"task\":\"x\",\"prompt\":[");

	for (int i = 0; i < N; i++)
		n += (size_t)sprintf(text + n, "%s%d", i ? "," : "", ids[i]);
	n += (size_t)sprintf(text + n, "]}\n[70]\n");
	file_write(prompts, text, n);
}

/* The captured values are the ones that the pass showed. */
static void check_tensor(struct capture *c, int i, enum capture_tensor t, const bf16_t *want,
			 int heads, int dim, int n_tok)
{
	static bf16_t x[MAX_WIDTH * N];
	struct ar_err err = { 0 };
	int wrong = 0;

	if (capture_read_finite(c, i, t, 0, n_tok, x, &err))
		bail_out("%s", err.msg);
	for (int h = 0; h < heads; h++)
		for (int r = 0; r < n_tok; r++)
			for (int k = 0; k < dim; k++)
				wrong += x[(h * n_tok + r) * dim + k] !=
					 want[r * MAX_WIDTH + h * dim + k];
	is_int(wrong, 0, "layer %d, tensor %d: as the pass has it", capture_info(c)->layer[i],
	       (int)t);
}

static void make(const struct tiny *m, const struct capture_make *a, int n_layers, int n_tok,
		 bool rope)
{
	struct ar_err err = { 0 };
	const struct capture_info *info;
	struct capture *c;
	struct weights w;

	load(&w, m);
	run(&whole, &w, m, N);
	ok(!capture_make(a, arc, &err) && !capture_open(&c, arc, &err), "%s: a capture is made: %s",
	   m->what, err.msg);
	info = capture_info(c);
	ok(info->n_layers == n_layers && info->n_tok == n_tok && info->n_prompt == n_tok &&
		   info->rope_applied && info->q_heads == m->heads &&
		   info->kv_heads == m->kv_heads && info->head_dim == m->dim &&
		   info->frame_tok == a->frame_tok && !strcmp(info->model, w.model.name),
	   "... and says what it is");
	ok(rope ? rope_equal(&info->rope, &w.model.rope) : !(info->rope.theta > 0),
	   "... its RoPE is %s",
	   rope ? "the model's" : "left out: it is not the same in all layers");
	for (int i = 0; i < n_layers; i++) {
		int l = info->layer[i];

		check_tensor(c, i, CAPTURE_Q, *whole.q[l], m->heads, m->dim, n_tok);
		check_tensor(c, i, CAPTURE_K, *whole.k[l], m->kv_heads, m->dim, n_tok);
		check_tensor(c, i, CAPTURE_V, *whole.v[l], m->kv_heads, m->dim, n_tok);
	}
	capture_close(c);
	weights_release(&w);
}

static void test_capture(void)
{
	static const int some[] = { 0, 2 }, full[] = { 1 };
	struct capture_make a = {
		.weights = dir, .prompt = prompts, .index = 1, .level = 1, .frame_tok = 16
	};

	make(&tiny_models[0], &a, TINY_LAYERS, N, true);
	make(&tiny_models[4], &a, TINY_LAYERS, N, false);
	a.layer = full;
	a.n_layers = 1;
	make(&tiny_models[4], &a, 1, N, true);
	a.layer = some;
	a.n_layers = 2;
	a.tokens = 33;
	a.frame_tok = 100;
	make(&tiny_models[3], &a, 2, 33, true);
}

static void test_capture_refused(void)
{
	static const int high[] = { 1, 3 };
	static const struct {
		struct capture_make a;
		enum ar_status st;
		const char *message;
	} cases[] = {
		{ { .index = 99 }, AR_DATA, "has 3 prompts; there is no number 99" },
		{ { .index = 2 }, AR_DATA, "token 0 of the prompt is 70, but the vocabulary" },
		{ { .tokens = 4 }, AR_USAGE, "prompts.jsonl: the prompt has 3 tokens, not 4" },
		{ { .layer = high, .n_layers = 2 }, AR_USAGE, "has layers 0 to 2" },
		{ { .prompt = "/nowhere" }, AR_DATA, "/nowhere: No such file or directory" },
		{ { .weights = "/nowhere" }, AR_DATA, "/nowhere: no such file" },
		{ { .frame_tok = 1 << 30 }, AR_USAGE, "frames of 1073741824 tokens are too large" },
	};
	struct ar_err err = { 0 };
	struct weights w;

	load(&w, &tiny_models[0]);
	weights_release(&w);
	remove(arc);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct capture_make a = cases[i].a;

		a.weights = a.weights ? a.weights : dir;
		a.prompt = a.prompt ? a.prompt : prompts;
		a.frame_tok = a.frame_tok ? a.frame_tok : 16;
		ok(capture_make(&a, arc, &err) == cases[i].st &&
			   strstr(err.msg, cases[i].message) && access(arc, F_OK),
		   "refused: %s", err.msg);
	}
}

static void test_capture_faults(void)
{
	const struct capture_make a = { .weights = dir, .prompt = prompts, .frame_tok = 2 };
	struct ar_err err;
	int bad = 0;
	long k = 0;

	for (bool failed = true; failed; k += fault_stride(41)) {
		enum ar_status st;

		err = (struct ar_err){ 0 };
		fault_arm(k);
		st = capture_make(&a, arc, &err);
		failed = fault_disarm();
		if (st != (failed ? AR_NOMEM : AR_OK)) {
			diag("allocation %ld: %s", k, err.msg);
			bad++;
		}
	}
	ok(!bad && k > 100, "each of %ld allocations of a capture fails cleanly", k);
}

static void clean(void)
{
	tiny_remove(dir);
	remove(arc);
	remove(prompts);
	rmdir(dir);
}

int main(void)
{
	log_level = LOG_ERROR;
	if (!mkdtemp(dir))
		bail_out("no folder");
	for (int i = 0; i < N; i++)
		ids[i] = (i * 37 + i * i) % TINY_VOCAB;
	snprintf(arc, sizeof arc, "%s/x.arc", dir);
	snprintf(prompts, sizeof prompts, "%s/prompts.jsonl", dir);
	write_prompts();
	plan(0);
	test_models();
	test_refused();
	test_faults();
	test_capture();
	test_capture_refused();
	test_capture_faults();
	clean();
	return done_testing();
}
