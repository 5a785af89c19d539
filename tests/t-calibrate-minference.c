/* SPDX-License-Identifier: Apache-2.0 */
/* MInference's patterns: the candidate that keeps the most attention wins. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "kernels/select/means/means.h"
#include "kernels/select/minference/minference.h"
#include "kernels/select/selectors.h"
#include "src/calibrate/calibrate.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/file.h"
#include "tests/tap.h"

enum { HEADS = 2, DIM = 16, TOK = 7000, FROM = 6900 };

static const char capture_path[] = "t-calibrate-minference.st";
static const char out_path[] = "t-calibrate-minference.json";
static const char one_path[] = "t-calibrate-minference-1.json";

static const char *const candidate[] = {
	"\"stream_llm\", 100, 800",	     "\"vertical_and_slash\", 30, 800",
	"\"vertical_and_slash\", 100, 750",  "\"vertical_and_slash\", 500, 700",
	"\"vertical_and_slash\", 3500, 100", "\"block_sparse\", 8, 1"
};
enum { N_CANDIDATE = sizeof candidate / sizeof *candidate };

/* Channel 0 or 1 of queries (k 0), keys and values. */
static double planted(int k, int head, int pos, int d)
{
	if (!k)
		return d == head ? 0 : d ? 2 : 4;
	return d ? 4.0 * pos / TOK : pos % 2 ? -4 : 4;
}

/* Layer 2.  Head 0 looks the more at a key the later it is, head 1 at every second one. */
static void write_capture(void)
{
	static const char *const name[] = { "layers.2.q", "layers.2.k", "layers.2.v" };
	struct safetensors_tensor t[3];
	struct rng rng = { 5 };
	struct outfile f;
	struct ar_err err;

	for (int k = 0; k < 3; k++)
		t[k] = (struct safetensors_tensor){ .name = name[k],
						    .n_dim = 3,
						    .dim = { k ? 1 : HEADS, TOK, DIM } };
	if (outfile_open(&f, capture_path, &err) ||
	    safetensors_write_header(&f, t, 3,
				     (const char *const[]){ "rope_applied", "true", NULL }, &err))
		bail_out("%s", err.msg);
	for (int k = 0; k < 3; k++)
		for (int i = 0; i < t[k].dim[0] * TOK * DIM; i++) {
			int head = i / (TOK * DIM), pos = i / DIM % TOK;
			double v = i % DIM < 2 ? planted(k, head, pos, i % DIM) :
						 rng_normal(&rng) / 10;
			bf16_t x = bf16_from_f32((float)v);

			if (outfile_write(&f, &x, sizeof x, &err))
				bail_out("%s", err.msg);
		}
	if (outfile_commit(&f, &err))
		bail_out("%s", err.msg);
	outfile_release(&f);
}

/* ---- the rule, written out ---- */

/* The attention of one row that the chosen keys hold. */
static double held(const struct calib_layer *l, int pos, int h, const struct column_lists *c)
{
	static double x[TOK];
	static bool in[TOK + 128]; /* runs reach past the end */
	size_t row = (size_t)(pos / 64 * HEADS + h);
	const struct attn_band *band = &c->band[row];
	double all = 0, some = 0;

	memset(in, 0, sizeof in);
	for (int i = 0; i < c->n_run[row]; i++) {
		int run = c->run[row * (size_t)c->max_run + (size_t)i];

		for (int t = run; t < run + 64; t++)
			in[t] = !band->local || t < band->init || pos - t < band->local;
	}
	for (int i = 0; i < c->n_col[row]; i++)
		in[c->col[row * (size_t)c->max_col + (size_t)i]] = true;
	for (int t = 0; t <= pos; t++) {
		x[t] = 0;
		for (int d = 0; d < DIM; d++)
			x[t] += bf16_to_f32(l->q[(pos * HEADS + h) * DIM + d]) *
				bf16_to_f32(l->kv.k[t * DIM + d]);
		x[t] = exp(x[t] / sqrt(DIM));
		all += x[t];
		some += in[t] ? x[t] : 0;
	}
	return some / all;
}

/* Value of a candidate for each head. */
static void worth(const struct calib_layer *l, int k, double *out)
{
	const struct minference p = { .path = (char *)one_path,
				      .ratio = 1,
				      .last = 64,
				      .sink = 30,
				      .local = 100,
				      .blocks = 100,
				      .force_diag = true };
	const struct selector *s = selector_find("minference");
	const struct selector_env env = { .shape = l->b.shape, .n_layers = 1 };
	size_t n = (size_t)(l->b.rows.n_qblk * HEADS);
	struct column_lists c = { .max_run = l->b.rows.n_qblk + 1, .max_col = TOK };
	float *mean = malloc((size_t)l->b.rows.n_qblk * means_state_bytes(&l->b.shape));
	char text[200];
	struct ar_err err;
	void *self;

	c.run = malloc(n * (size_t)c.max_run * 4);
	c.col = malloc(n * (size_t)c.max_col * 4);
	c.n_run = malloc(n * 4);
	c.n_col = malloc(n * 4);
	c.band = malloc(n * sizeof *c.band);
	snprintf(text, sizeof text, "[{\"0\": [%s], \"1\": [%s]}]", candidate[k], candidate[k]);
	file_write(one_path, text, strlen(text));
	if (s->open(&self, &p, &env, &err) ||
	    s->ref(&(struct attn_call){ .b = &l->b, .q = l->q, .kv = l->kv, .state = mean }, self,
		   &(struct selection){ .columns = c }, &err))
		bail_out("%s", err.msg);
	for (int h = 0; h < HEADS; h++) {
		out[h] = 0;
		for (int pos = FROM; pos < TOK; pos++)
			out[h] += held(l, pos, h, &c) / (TOK - FROM);
	}
	columns_free(&c);
	free(mean);
	s->close(self);
	remove(one_path);
}

/* ---- calibration ---- */

struct args { /* of the calibrator */
	int64_t from, layers;
	bool as_published;
};

static enum ar_status calibrate(const struct args *a, int64_t tokens, struct ar_err *err)
{
	struct capture *c;
	struct calib_input in = { .capture = &c, .n = 1, .tokens = tokens };
	enum ar_status st = capture_open(&c, capture_path, err);

	if (st)
		return st;
	st = calibrate_minference.run(a, &in, out_path, err);
	capture_close(c);
	return st;
}

static char *calibrated(const struct args *a, int64_t tokens)
{
	struct ar_err err;
	char *text;

	if (calibrate(a, tokens, &err) || text_read(&text, out_path, 1 << 20, &err))
		bail_out("%s", err.msg);
	remove(out_path);
	return text;
}

static void test_best(void)
{
	double w[N_CANDIDATE][HEADS];
	struct calib_layer l;
	struct capture *c;
	struct ar_err err;
	char want[400] = "[\n  {\n", *got;
	int best[HEADS] = { 0 };

	if (capture_open(&c, capture_path, &err) || calib_layer_load(&l, c, 0, TOK, 64, &err))
		bail_out("%s", err.msg);
	for (int k = 0; k < N_CANDIDATE; k++)
		worth(&l, k, w[k]);
	for (int h = 0; h < HEADS; h++) {
		for (int k = 1; k < N_CANDIDATE; k++)
			best[h] = w[k][h] > w[best[h]][h] ? k : best[h];
		snprintf(want + strlen(want), 200, "%s    \"%d\": [%s, %.4f]", h ? ",\n" : "", h,
			 candidate[best[h]], w[best[h]][h]);
	}
	strcat(want, "\n  }");
	got = calibrated(&(struct args){ .from = FROM }, 0);
	ok(!strncmp(got, want, strlen(want)), "the best candidate of each head is written, with "
					      "its worth");
	is_int(best[0], 5, "blocks, where a head looks at most of them");
	is_int(best[1], 4, "columns, where it looks at every second key");
	free(got);
	calib_layer_release(&l);
	capture_close(c);
}

static int count(const char *text, const char *what)
{
	int n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

static void test_layers(void)
{
	char *text = calibrated(&(struct args){ .from = 0 }, 200);

	is_int(count(text, "{"), 3, "the array ends with the last captured layer");
	free(text);
	text = calibrated(&(struct args){ .from = 0, .layers = 5 }, 200);
	is_int(count(text, "{"), 5, "or the array has as many layers as the model");
	is_int(count(text, "\"1\": "), 5, "each with every head");
	is_int(count(text, "stream_llm"), 10, "of equal candidates the first one is taken");
	free(text);
	text = calibrated(&(struct args){ .from = 0, .as_published = true }, 200);
	is_int(count(text, "\"vertical_and_slash\", 100, 800"), 6,
	       "as published an A-shape becomes columns and distances");
	free(text);
	text = calibrated(&(struct args){ .from = FROM, .as_published = true }, 0);
	is_int(count(text, "\"0\": [\"vertical_and_slash\", 1000, 6096"), 3,
	       "and blocks become many");
	free(text);
}

static void test_faults(void)
{
	struct args a = { .from = 200 };
	struct ar_err err;
	bool hit = true;
	int bad = 0, k = 0;

	is_int(calibrate(&a, 200, &err), AR_USAGE, "without a row to judge by it is refused");
	is_str(err.msg,
	       "t-calibrate-minference.st: no row to score: of 200 tokens "
	       "none is at 200 or later; lower --from",
	       "the message gives the reason");
	a.from = 100;
	fault_threads(true); /* with threads the k-th allocation is not always the same one */
	for (; hit && k < 1000; k++) {
		enum ar_status st;

		fault_arm(k);
		st = calibrate(&a, 200, &err);
		hit = fault_disarm();
		bad += (hit ? !st : st) || !remove(out_path) != !hit;
	}
	fault_threads(false);
	ok(!bad && !hit && k > 20, "every allocation that fails is reported and leaves no file");
}

int main(void)
{
	plan(0);
	write_capture();
	test_best();
	test_layers();
	test_faults();
	remove(capture_path);
	return done_testing();
}
