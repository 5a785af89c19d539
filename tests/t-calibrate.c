/* SPDX-License-Identifier: Apache-2.0 */
/* Calibration: layers of captures, threads, and XAttention's thresholds and DuoAttention's scores
 * against direct implementations of the rules. */
#include "config.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "kernels/methods/method.h"
#include "kernels/select/xattention/xattention.h"
#include "src/calibrate/calibrate.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

enum { HEADS = 4, KV_HEADS = 2, DIM = 16, TOK = 300 };

static const char *const paths[] = { "t-calibrate-0.st", "t-calibrate-1.st" };
static const char out_path[] = "t-calibrate.json";

/* Layers 1 and 6, before or after RoPE. */
static void write_capture(const char *path, uint64_t seed, const char *applied)
{
	static const char *const name[] = { "layers.1.q", "layers.1.k", "layers.1.v",
					    "layers.6.q", "layers.6.k", "layers.6.v" };
	struct safetensors_tensor t[6];
	struct rng rng = { seed };
	struct outfile f;
	struct ar_err err;

	for (int k = 0; k < 6; k++)
		t[k] = (struct safetensors_tensor){ .name = name[k],
						    .n_dim = 3,
						    .dim = { k % 3 ? KV_HEADS : HEADS, TOK, DIM } };
	if (outfile_open(&f, path, &err) ||
	    safetensors_write_header(&f, t, 6,
				     (const char *const[]){ "rope_applied", applied, "rope_theta",
							    "10000", NULL },
				     &err))
		bail_out("%s", err.msg);
	for (int k = 0; k < 6; k++)
		for (int i = 0; i < t[k].dim[0] * TOK * DIM; i++) {
			bf16_t x = bf16_from_f32(2 * rng_normal(&rng));

			if (outfile_write(&f, &x, sizeof x, &err))
				bail_out("%s", err.msg);
		}
	if (outfile_commit(&f, &err))
		bail_out("%s", err.msg);
	outfile_release(&f);
}

static struct capture *must_open(const char *path)
{
	struct capture *c;
	struct ar_err err;

	if (capture_open(&c, path, &err))
		bail_out("%s", err.msg);
	return c;
}

static void must_load(struct calib_layer *l, struct capture *c, int i, int64_t n_tok, int page_tok)
{
	struct ar_err err;

	if (calib_layer_load(l, c, i, n_tok, page_tok, &err))
		bail_out("%s", err.msg);
}

/* ---- layers ---- */

/* How far x[DIM], of token t, is from raw turned by t, turn 0: from raw. */
static double off_by(const bf16_t *x, const bf16_t *raw, int t, int turn)
{
	double worst = 0;

	for (int i = 0; i < DIM / 2; i++) {
		double angle = turn ? t * pow(10000, -2.0 * i / DIM) : 0;
		double a = bf16_to_f32(raw[i]), b = bf16_to_f32(raw[i + DIM / 2]);

		worst = fmax(worst, fabs(bf16_to_f32(x[i]) - (a * cos(angle) - b * sin(angle))));
		worst = fmax(worst,
			     fabs(bf16_to_f32(x[i + DIM / 2]) - (b * cos(angle) + a * sin(angle))));
	}
	return worst;
}

static bool layer_is(struct capture *c, int turn)
{
	static bf16_t q[HEADS * TOK * DIM], k[KV_HEADS * TOK * DIM], v[KV_HEADS * TOK * DIM];
	enum { N = 100, PAGE = 64 };
	struct calib_layer l;
	struct ar_err err;
	double off = 0;

	must_load(&l, c, 1, N, PAGE);
	if (capture_read(c, 1, CAPTURE_Q, 0, N, q, &err) ||
	    capture_read(c, 1, CAPTURE_K, 0, N, k, &err) ||
	    capture_read(c, 1, CAPTURE_V, 0, N, v, &err))
		bail_out("%s", err.msg);
	for (int t = 0; t < N; t++) {
		for (int h = 0; h < HEADS; h++)
			off = fmax(off, off_by(l.q + (t * HEADS + h) * DIM, q + (h * N + t) * DIM,
					       t, turn));
		for (int h = 0; h < KV_HEADS; h++) {
			size_t at = (size_t)(((l.page[t / PAGE] * KV_HEADS + h) * PAGE + t % PAGE) *
					     DIM);

			off = fmax(off, off_by(l.kv.k + at, k + (h * N + t) * DIM, t, turn));
			off = fmax(off, off_by(l.kv.v + at, v + (h * N + t) * DIM, t, 0));
		}
	}
	ok(l.b.rows.n_row == N && l.b.rows.n_qblk == 2 && l.b.keys.max_kv_blk == 2 &&
		   l.b.keys.mask_words == 1 && l.b.rows.row0[1] == N && !l.b.rows.pos0[0] &&
		   !l.b.rows.left[0],
	   "a layer is one chunk");
	calib_layer_release(&l);
	calib_layer_release(&l);
	return off < 0.05;
}

static void test_layers(struct capture *const *c)
{
	struct calib_input in = { 0 };

	is_int(calib_tokens(&in, c[0]), TOK, "all of a capture is used");
	in.tokens = 20;
	is_int(calib_tokens(&in, c[0]), 20, "or its first tokens");
	in.tokens = 1000;
	is_int(calib_tokens(&in, c[0]), TOK, "as far as it has them");
	ok(layer_is(c[0], 0), "a capture after RoPE is taken as it is");
	ok(layer_is(c[1], 1), "one before RoPE is turned");
}

/* ---- thresholds ---- */

/* True masses of query block qa in double, by the definition. */
static void true_masses(const struct calib_layer *l, int h, int qa, double *mass)
{
	int tok = l->b.shape.page_tok;

	memset(mass, 0, (size_t)(qa + 1) * sizeof *mass);
	for (int row = qa * tok; row < (qa + 1) * tok && row < l->b.rows.n_row; row++) {
		double x[TOK], sum = 0;

		for (int t = 0; t <= row; t++) {
			x[t] = 0;
			for (int d = 0; d < DIM; d++)
				x[t] += bf16_to_f32(l->q[(row * HEADS + h) * DIM + d]) *
					bf16_to_f32(l->kv.k[((t / tok * KV_HEADS + h / 2) * tok +
							     t % tok) *
								    DIM +
							    d]);
			sum += x[t] = exp(x[t] / sqrt(DIM));
		}
		for (int t = 0; t <= row; t++)
			mass[t / tok] += x[t] / sum;
	}
}

/* The threshold of a head: blocks are taken one by one, the largest that is left first. */
static double threshold(const struct calib_layer *l, int h, int stride, double share)
{
	enum { N = (TOK + 63) / 64 };
	uint32_t estimate[N * N];
	double kept = 0, all = 0;
	struct ar_err err;

	if (xattention_masses(&l->b, stride, 0, h, l->q, l->kv.k, estimate, &err))
		bail_out("%s", err.msg);
	for (int qa = 0; qa < l->b.keys.max_kv_blk; qa++) {
		const uint32_t *w = estimate + qa * l->b.keys.max_kv_blk;
		double mass[N], total = 0, sum = 0, least = INFINITY;

		true_masses(l, h, qa, mass);
		for (int j = 0; j <= qa; j++)
			total += mass[j];
		while (least == INFINITY || sum < share * total) {
			int best = 0;

			for (int j = 1; j <= qa; j++)
				best = mass[j] > mass[best] ? j : best;
			sum += mass[best];
			mass[best] = -1;
			least = fmin(least, w[best]);
		}
		for (int j = 0; j <= qa; j++) {
			all += w[j];
			kept += w[j] >= least ? w[j] : 0;
		}
	}
	return kept / all;
}

/* The calibrator's arguments, from words as on the command line. */
struct setting {
	struct opt_group g[2];
	void *arg;
};

static void setting_init(struct setting *s, const struct calibrator *c, const char *text)
{
	struct ar_err err;

	*s = (struct setting){ .arg = calloc(1, c->arg_size) };
	s->g[0] = (struct opt_group){ .opts = c->opts, .base = s->arg };
	if (opt_init(s->g, &err) || opt_set_all(s->g, text, &err))
		bail_out("%s", err.msg);
}

static void setting_release(struct setting *s)
{
	opt_release(s->g);
	free(s->arg);
}

static cJSON *read_table(void)
{
	struct ar_err err;
	cJSON *o;
	char *text;

	if (text_read(&text, out_path, 1 << 20, &err))
		bail_out("%s", err.msg);
	o = cJSON_Parse(text);
	if (!o)
		bail_out("%s is no JSON: %s", out_path, text);
	free(text);
	return o;
}

static double number(const cJSON *o, const char *key)
{
	return cJSON_GetNumberValue(cJSON_GetObjectItem(o, key));
}

static void test_thresholds(struct capture **c, const char *mass, const char *stride)
{
	struct calib_input in = { .capture = c, .n = 2, .tokens = 290 };
	int off = 0, bad_layers = 0;
	struct setting s;
	struct ar_err err;
	char text[64];
	cJSON *o;

	snprintf(text, sizeof text, "mass=%s,stride=%s,block=64", mass, stride);
	setting_init(&s, &calibrate_xattention, text);
	if (calibrate_xattention.run(s.arg, &in, out_path, &err))
		bail_out("%s", err.msg);
	o = read_table();
	ok(number(o, "stride") == atoi(stride) && number(o, "block") == 64 &&
		   number(o, "mass") == atof(mass),
	   "a table says what it was made for");
	for (int i = 0; i < 2; i++) {
		const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(o, "threshold"), i);
		const cJSON *layer = cJSON_GetArrayItem(cJSON_GetObjectItem(o, "layers"), i);
		struct calib_layer a, b;

		must_load(&a, c[0], i, 290, 64);
		must_load(&b, c[1], i, 290, 64);
		for (int h = 0; h < HEADS; h++) {
			double want = fmax(threshold(&a, h, atoi(stride), atof(mass)),
					   threshold(&b, h, atoi(stride), atof(mass)));
			double got = cJSON_GetNumberValue(cJSON_GetArrayItem(row, h));

			off += !(got >= want - 1e-9 && got < want + 1.01e-4);
		}
		bad_layers += cJSON_GetNumberValue(layer) != (i ? 6 : 1) ||
			      cJSON_GetArraySize(row) != HEADS;
		calib_layer_release(&a);
		calib_layer_release(&b);
	}
	is_int(bad_layers, 0, "the table has a row for each captured layer");
	is_int(off, 0, "mass %s, stride %s: the largest threshold of two captures, rounded up",
	       mass, stride);
	cJSON_Delete(o);
	setting_release(&s);
}

/* The method reads the same values that were written. */
static void test_reads(void)
{
	static const struct selector_env env = { .shape = { HEADS, KV_HEADS, DIM, 64 },
						 .n_layers = 8 };
	const struct selector *s = selector_find("xattention");
	char *path = strdup(out_path);
	struct xattention p = { .table = path, .stride = 2 };
	struct ar_err err;
	void *self;
	cJSON *o = read_table(), *rows = cJSON_GetObjectItem(o, "threshold");
	int off = 0;

	if (s->open(&self, &p, &env, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < 8 * HEADS; i++) {
		const cJSON *row = cJSON_GetArrayItem(rows, i / HEADS > 3);

		off += ((struct xattention_self *)self)->threshold[i] !=
		       (float)cJSON_GetNumberValue(cJSON_GetArrayItem(row, i % HEADS));
	}
	is_int(off, 0, "the selector reads the table, each layer its nearest row");
	s->close(self);
	cJSON_Delete(o);
	free(path);
}

/* ---- DuoAttention's scores ---- */

enum { SINK = 5, RECENT = 240, DUO_ROWS = 7 };

/* Outputs of row t under a part of decodes. */
static void decode_row(const struct calib_layer *l, int t, const char *part, bf16_t *out)
{
	struct calib_rows rows;
	struct method *m;
	struct ar_err err;

	calib_layer_rows(&rows, l, t, t + 1);
	if (method_parse(&m, part, &err) ||
	    method_open(m, &(struct selector_env){ .shape = l->b.shape, .n_layers = 1 }, &err) ||
	    method_ref(&m->part[ROW_DECODE],
		       &(struct attn_call){ .b = &rows.b, .q = rows.q, .kv = l->kv, .out = out },
		       NULL, &err))
		bail_out("%s", err.msg);
	method_free(m);
}

/* Add the errors of the rows of a layer, by KV head. */
static void add_losses(struct capture *c, int i, double loss[KV_HEADS])
{
	struct calib_layer l;

	must_load(&l, c, i, 290, 64);
	for (int k = 1; k <= DUO_ROWS; k++) {
		int t = SINK + RECENT + (290 - SINK - RECENT) * k / DUO_ROWS - 1;
		bf16_t all[HEADS * DIM], near[HEADS * DIM];

		decode_row(&l, t, "dense", all);
		decode_row(&l, t, "dense/decode=streaming,sink=5,recent=240", near);
		for (int h = 0; h < HEADS; h++) {
			double off = 0, size = 0;

			for (int d = h * DIM; d < (h + 1) * DIM; d++) {
				double x = bf16_to_f32(all[d]), y = bf16_to_f32(near[d]);

				off += (x - y) * (x - y);
				size += x * x;
			}
			loss[h / 2] += sqrt(off / size) / (2.0 * DUO_ROWS * 2);
		}
	}
	calib_layer_release(&l);
}

/* Layers 1 and 6 are captured, and the model has 8.  A layer has the score of the nearest. */
static void test_duo(struct capture **c)
{
	static const int from[8] = { 0, 0, 0, 0, 1, 1, 1, 1 };
	struct calib_input in = { .capture = c, .n = 2, .tokens = 290 };
	double want[2][KV_HEADS] = { 0 }, most = 0;
	struct setting s;
	struct ar_err err;
	char *text, *at;
	int n = 0;

	for (int k = 0; k < 4; k++)
		add_losses(c[k / 2], k % 2, want[k % 2]);
	setting_init(&s, &calibrate_duo, "sink=5,recent=240,rows=7,layers=8");
	if (calibrate_duo.run(s.arg, &in, out_path, &err) ||
	    text_read(&text, out_path, 1 << 20, &err))
		bail_out("%s", err.msg);
	at = text;
	for (char *end; n < 8 * KV_HEADS; n++, at = end) {
		double got = strtod(at, &end);
		int row = n / KV_HEADS;

		if (end == at)
			break;
		most = fmax(most, fabs(got - fmin(want[from[row]][n % KV_HEADS], 1)));
	}
	is_int(n, 8 * KV_HEADS, "duo: a score for each layer of the model and KV head");
	is_str(at, "\n", "... and no more");
	ok(most < 0.01, "... the error of streaming decodes, off by %g", most);
	ok(want[0][0] > 0.1 && want[0][0] < 1, "... which is %g", want[0][0]);
	free(text);
	setting_release(&s);
	setting_init(&s, &calibrate_duo, "layers=6,recent=30,sink=0");
	is_int(calibrate_duo.run(s.arg, &in, out_path, &err), AR_USAGE, "fewer layers are refused");
	is_str(err.msg, "layers '6': a capture has layer 6; give the number of layers of its model",
	       "... and why");
	setting_release(&s);
	setting_init(&s, &calibrate_duo, "sink=200,recent=90");
	is_int(calibrate_duo.run(s.arg, &in, out_path, &err), AR_DATA, "so are short captures");
	is_str(err.msg,
	       "t-calibrate-0.st: 290 tokens, all of which heads with 200 first and 90 last ones "
	       "see; take longer captures, or lower --sink and --recent",
	       "... and why");
	setting_release(&s);
}

/* ---- errors ---- */

static void test_faults(struct capture **c, const struct calibrator *x, const char *text)
{
	struct calib_input in = { .capture = c, .n = 2, .tokens = 70 };
	struct setting s;
	struct ar_err err;
	bool hit = true;
	int bad = 0, k = 0;

	setting_init(&s, x, text);
	fault_threads(true); /* with threads the k-th allocation is not always the same one */
	for (; hit && k < 1000; k++) {
		enum ar_status st;

		remove(out_path);
		fault_arm(k);
		st = x->run(s.arg, &in, out_path, &err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK) || !remove(out_path) != !hit;
	}
	fault_threads(false);
	ok(!bad && k > 40 && k < 1000,
	   "%s: every allocation that fails is reported and leaves no file", x->name);
	is_int(x->run(s.arg, &in, "/none/x", &err), AR_IO,
	       "a folder that is not there is reported");
	setting_release(&s);
}

/* Last: an interrupt is for good. */
static void test_interrupt(struct capture **c, const struct calibrator *x, const char *text)
{
	struct calib_input in = { .capture = c, .n = 2 };
	struct setting s;
	struct ar_err err;

	setting_init(&s, x, text);
	ar_catch_interrupts();
	raise(SIGTERM);
	is_int(x->run(s.arg, &in, out_path, &err), AR_INTERRUPTED, "%s: an interrupt ends it",
	       x->name);
	ok(remove(out_path), "and leaves no file");
	setting_release(&s);
}

int main(void)
{
	struct capture *c[2];

	plan(0);
	write_capture(paths[0], 1, "true");
	write_capture(paths[1], 2, "false");
	for (int i = 0; i < 2; i++)
		c[i] = must_open(paths[i]);
	test_layers(c);
	test_thresholds(c, "0.9", "4");
	test_thresholds(c, "0.5", "8");
	test_thresholds(c, "0", "8");
	test_thresholds(c, "0.8", "16");
	test_reads();
	test_duo(c);
	test_faults(c, &calibrate_xattention, "mass=0.9,stride=8,block=64");
	test_faults(c, &calibrate_duo, "sink=5,recent=30");
	test_faults(c, &calibrate_skip, "decodes=20");
	test_interrupt(c, &calibrate_xattention, "mass=0.9,stride=8,block=64");
	test_interrupt(c, &calibrate_duo, "sink=5,recent=30");
	test_interrupt(c, &calibrate_skip, "decodes=20");
	for (int i = 0; i < 2; i++) {
		capture_close(c[i]);
		remove(paths[i]);
	}
	return done_testing();
}
