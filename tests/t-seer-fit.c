/* SPDX-License-Identifier: Apache-2.0 */
/* Training a gate: targets against their definition, the gradient against finite differences, and
 * the recall of a trained gate. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/safetensors.h"
#include "kernels/select/seer/seer.h"
#include "kernels/select/selectors.h"
#include "src/calibrate/seer_fit.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

enum {
	HEADS = 4,
	KV_HEADS = 2,
	DIM = 16,
	TOK = 16,
	N_TOK = 390,
	N_BLK = 25,
	IN = SEER_POOLS * DIM
};

static float inv[DIM / 2];

/* Keys of a block share a direction, rows of a query block seek some block's. */
static void layer_make(struct calib_layer *l, uint64_t seed)
{
	static int32_t page[N_BLK], pos[N_TOK];
	struct rng rng = { seed };
	float dir[N_BLK][DIM];

	*l = (struct calib_layer){ .page = page, .pos = pos };
	l->b.shape = (struct attn_shape){ HEADS, KV_HEADS, DIM, TOK };
	l->b.rows.n_row = N_TOK;
	for (int i = 0; i < N_TOK; i++)
		pos[i] = i;
	l->q = malloc(N_TOK * HEADS * DIM * sizeof *l->q);
	calib_layer_rows(&l->all, l, 0, N_TOK);
	l->b = l->all.b;
	l->kv.k = calloc(N_BLK * KV_HEADS * TOK * DIM, sizeof *l->kv.k);
	for (int j = 0; j < N_BLK; j++) {
		page[j] = j;
		for (int d = 0; d < DIM; d++)
			dir[j][d] = 1.5f * rng_normal(&rng);
	}
	for (int t = 0; t < N_TOK; t++)
		for (int h = 0; h < KV_HEADS; h++)
			for (int d = 0; d < DIM; d++)
				l->kv.k[((t / TOK * KV_HEADS + h) * TOK + t % TOK) * DIM + d] =
					bf16_from_f32(dir[t / TOK][d] + 0.5f * rng_normal(&rng));
	for (int i = 0; i < N_BLK; i++)
		for (int h = 0; h < HEADS; h++) {
			int j = (int)rng_below(&rng, (uint64_t)i + 1);

			for (int t = i * TOK; t < (i + 1) * TOK && t < N_TOK; t++)
				for (int d = 0; d < DIM; d++)
					l->q[(t * HEADS + h) * DIM + d] =
						bf16_from_f32(dir[j][d] + 0.5f * rng_normal(&rng));
		}
}

static void layer_free(struct calib_layer *l)
{
	free(l->q);
	free(l->kv.k);
}

static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

/* Probability of (row, key) of a head in double. */
static double probability(const struct calib_layer *l, int head, int row, int key)
{
	double all = 0, own = 0;

	for (int t = 0; t <= row; t++) {
		const bf16_t *k = l->kv.k + ((t / TOK * KV_HEADS + head / 2) * TOK + t % TOK) * DIM;
		double x = 0;

		for (int d = 0; d < DIM; d++)
			x += bf16_to_f32(l->q[(row * HEADS + head) * DIM + d]) * bf16_to_f32(k[d]);
		x = exp(x / sqrt(DIM));
		all += x;
		own = t == key ? x : own;
	}
	return own / all;
}

static void test_targets(const struct calib_layer *l, const struct seer_fit_seq *s, int head)
{
	double worst = 0, sum = 0;
	int past = 0;

	for (int i = 0; i < N_BLK; i += 8) {
		double t[N_BLK] = { 0 }, row_sum = 0;

		for (int row = i * TOK; row < (i + 1) * TOK && row < N_TOK; row++)
			for (int key = 0; key <= row; key++)
				t[key / TOK] = fmax(t[key / TOK], probability(l, head, row, key));
		for (int j = 0; j <= i; j++)
			row_sum += t[j];
		for (int j = 0; j < N_BLK; j++) {
			worst = fmax(worst, fabs(s->t[i * N_BLK + j] - t[j] / row_sum));
			past += j > i && s->t[i * N_BLK + j] != 0;
		}
	}
	for (int i = 0; i < N_BLK * N_BLK; i++)
		sum += s->t[i];
	ok(worst < 1e-4, "targets are maxima of the attention by block (%g apart)", worst);
	is_int(past, 0, "with none past the diagonal");
	ok(fabs(sum - N_BLK) < 1e-3, "a row of targets sums to 1");
}

static void test_gradient(const struct seer_fit_seq *s)
{
	float w[IN * DIM], grad[IN * DIM];
	struct rng rng = { 3 };
	double loss, worst = 0, size = 0;
	struct ar_err err;

	for (int i = 0; i < IN * DIM; i++)
		w[i] = 0.1f * rng_normal(&rng);
	must(seer_fit_loss(s, w, &loss, grad, &err), &err);
	for (int k = 0; k < 100; k++) {
		int i = (int)rng_below(&rng, IN * DIM);
		float old = w[i];
		double up, down;

		w[i] = old + 0.01f;
		must(seer_fit_loss(s, w, &up, NULL, &err), &err);
		w[i] = old - 0.01f;
		must(seer_fit_loss(s, w, &down, NULL, &err), &err);
		w[i] = old;
		worst = fmax(worst, fabs((up - down) / 0.02 - grad[i]));
		size = fmax(size, fabs((double)grad[i]));
	}
	ok(loss > 0, "a random gate diverges");
	ok(worst < 0.01 * size, "the gradient is that of the loss (up to %g, %g off)", size, worst);
}

static void test_perfect(const struct seer_fit_seq *s)
{
	float w[IN * DIM] = { 0 }, grad[IN * DIM], worst = 0;
	struct seer_fit_seq same = *s;
	double loss = 1;
	struct ar_err err;

	same.t = calloc(N_BLK * N_BLK, sizeof *same.t);
	for (int i = 0; i < N_BLK; i++)
		for (int j = 0; j <= i; j++)
			same.t[i * N_BLK + j] = 1.0f / (float)(i + 1);
	must(seer_fit_loss(&same, w, &loss, grad, &err), &err);
	for (int i = 0; i < IN * DIM; i++)
		worst = fmaxf(worst, fabsf(grad[i]));
	ok(fabs(loss) < 1e-6 && worst < 1e-6f, "a gate that has the targets has no loss");
	for (int i = 0; i < N_BLK / 4; i++)
		memset(same.t + i * N_BLK, 0x7f, N_BLK * sizeof *same.t);
	must(seer_fit_loss(&same, w, &loss, grad, &err), &err);
	ok(fabs(loss) < 1e-6, "the first quarter of the query blocks does not count");
	free(same.t);
}

/* Share of the true attention in the k best blocks of each query block by the gate. */
static double recall(const struct calib_layer *l, const struct seer_fit_seq *s, const float *w,
		     int head, double ratio)
{
	bf16_t k[IN * DIM * HEADS] = { 0 }, *state = malloc(N_BLK * HEADS * DIM * sizeof *state);
	const struct seer_self g = { .rule = { .nz_ratio = ratio },
				     .n_layers = 1,
				     .model_layers = 1,
				     .q_heads = HEADS,
				     .k_heads = HEADS,
				     .head_dim = DIM,
				     .host = { .k = k, .inv = inv } };
	uint32_t mask[N_BLK * HEADS];
	double kept = 0, all = 0;
	struct ar_err err;

	for (int i = 0; i < IN; i++)
		for (int o = 0; o < DIM; o++)
			k[(head * DIM + o) * IN + i] = bf16_from_f32(w[i * DIM + o]);
	must(selector_find("seer")->ref(
		     &(struct attn_call){ .b = &l->b, .q = l->q, .kv = l->kv, .state = state }, &g,
		     &(struct selection){ .mask = mask }, &err),
	     &err);
	for (int i = N_BLK / 4; i < N_BLK; i++)
		for (int j = 0; j <= i; j++) {
			all += s->t[i * N_BLK + j];
			if (mask[i * HEADS + head] >> j & 1)
				kept += s->t[i * N_BLK + j];
		}
	free(state);
	return kept / all;
}

static void test_run(const struct calib_layer *l, const struct seer_fit_seq *s, int head)
{
	struct seer_fit fit = { .seq = s, .n_seq = 2, .steps = 0, .rate = 1e-2, .seed = 7 };
	float w[IN * DIM], again[IN * DIM];
	double before, after, random, found;
	struct ar_err err;

	must(seer_fit_run(&fit, w, &before, &after, &err), &err);
	ok(before == after, "no steps change nothing");
	random = recall(l, s, w, head, 0.3);
	fit.steps = 150;
	must(seer_fit_run(&fit, w, &before, &after, &err), &err);
	found = recall(l, s, w, head, 0.3);
	ok(after < 0.6 * before, "150 steps bring the loss from %.3f to %.3f", before, after);
	ok(found > random + 0.15, "and the recall from %.3f to %.3f", random, found);
	must(seer_fit_run(&fit, again, &before, &after, &err), &err);
	ok(!memcmp(w, again, sizeof w), "the same seed gives the same gate");
	fit.seed = 8;
	must(seer_fit_run(&fit, again, &before, &after, &err), &err);
	ok(memcmp(w, again, sizeof w) != 0, "another seed gives another gate");
}

static void test_faults(const struct calib_layer *l, const struct seer_fit_seq *s)
{
	struct seer_fit fit = { .seq = s, .n_seq = 2, .steps = 2, .rate = 1e-2 };
	struct seer_fit_seq one;
	float w[IN * DIM];
	double before, after;
	struct ar_err err;
	bool hit = true;
	int bad = 0, k = 0;

	for (; hit && k < 50; k++) {
		enum ar_status st;

		fault_arm(k);
		st = seer_fit_seq_init(&one, l, 0, inv, &err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
		if (hit)
			bad += one.f || one.t;
	}
	ok(!bad && k > 5, "every allocation that fails for a prompt is reported");
	seer_fit_seq_release(&one);
	seer_fit_seq_release(&one);
	for (hit = true, bad = k = 0; hit && k < 100; k++) {
		enum ar_status st;

		fault_arm(k);
		st = seer_fit_run(&fit, w, &before, &after, &err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
	}
	ok(!bad && k > 15, "and in descending");
}

/* ---- captures ---- */

static const char cap_path[] = "t-seer-fit.st", out_path[] = "t-seer-fit-gate.st";

static void capture_write(const char *theta)
{
	static const char *const name[] = { "layers.3.q", "layers.3.k", "layers.3.v",
					    "layers.5.q", "layers.5.k", "layers.5.v" };
	struct safetensors_tensor t[6];
	struct rng rng = { 5 };
	struct outfile f;
	struct ar_err err;

	for (int k = 0; k < 6; k++)
		t[k] = (struct safetensors_tensor){
			.name = name[k], .n_dim = 3, .dim = { k % 3 ? KV_HEADS : HEADS, N_TOK, DIM }
		};
	must(outfile_open(&f, cap_path, &err), &err);
	must(safetensors_write_header(&f, t, 6,
				      (const char *const[]){ "rope_applied", "true",
							     theta ? "rope_theta" : NULL, theta,
							     NULL },
				      &err),
	     &err);
	for (int k = 0; k < 6; k++)
		for (int i = 0; i < t[k].dim[0] * N_TOK * DIM; i++) {
			bf16_t x = bf16_from_f32(rng_normal(&rng));

			must(outfile_write(&f, &x, sizeof x, &err), &err);
		}
	must(outfile_commit(&f, &err), &err);
	outfile_release(&f);
}

static enum ar_status calibrate(const char *model, struct ar_err *err)
{
	void *arg = calloc(1, calibrate_seer.arg_size);
	struct opt_group g[2] = { { .opts = calibrate_seer.opts, .base = arg }, { 0 } };
	struct capture *c;
	struct calib_input in = { .capture = &c, .n = 1 };
	enum ar_status st;

	must(opt_init(g, err), err);
	must(opt_set(g, "steps", "3", err), err);
	if (model)
		must(opt_set(g, "model", model, err), err);
	must(capture_open(&c, cap_path, err), err);
	st = calibrate_seer.run(arg, &in, out_path, err);
	capture_close(c);
	opt_release(g);
	free(arg);
	return st;
}

static void test_file(void)
{
	const struct selector_env env = { .shape = { HEADS, KV_HEADS, DIM, SEER_BLOCK },
					  .n_layers = 4,
					  .rope_inv = inv };
	struct seer p = { .gate = (char *)(uintptr_t)out_path, .threshold = 0.5 };
	struct safetensors *s;
	void *self = NULL;
	struct ar_err err;

	unlink(out_path);
	capture_write(NULL);
	ok(calibrate(NULL, &err) == AR_USAGE && strstr(err.msg, "add --model NAME") &&
		   access(out_path, F_OK),
	   "a capture that does not say its RoPE: %s", err.msg);
	ok(calibrate("/nonexistent/model", &err) == AR_DATA && access(out_path, F_OK),
	   "an unknown model is refused and leaves no file");
	must(calibrate("llama-3.1-8b", &err), &err);
	ok(!access(out_path, F_OK), "a known model is enough");
	capture_write("10000");
	must(calibrate(NULL, &err), &err);
	must(safetensors_open(&s, out_path, &err), &err);
	ok(safetensors_count(s) == 2 && safetensors_at(s, 0)->dim[0] == HEADS &&
		   !strcmp(safetensors_at(s, 1)->name,
			   "model.layers.5.self_attn.attn_gate.mask_linear_k.weight") &&
		   !strcmp(safetensors_meta(s, "seerattn_gate_type"), "Qavg_Kmaxminavg"),
	   "the file has the captured layers, under the released names");
	safetensors_close(s);
	ok(selector_find("seer")->open(&self, &p, &env, &err) == AR_OK, "the selector takes it");
	selector_find("seer")->close(self);
	unlink(out_path);
	unlink(cap_path);
}

int main(void)
{
	struct seer_fit_seq s[2];
	struct calib_layer l;
	struct ar_err err;

	plan(0);
	log_level = LOG_ERROR;
	for (int k = 0; k < DIM / 2; k++)
		inv[k] = powf(10000, -2.0f * (float)k / DIM);
	layer_make(&l, 11);
	must(seer_fit_seq_init(&s[0], &l, 1, inv, &err), &err);
	must(seer_fit_seq_init(&s[1], &l, 0, inv, &err), &err);
	test_targets(&l, s, 1);
	test_gradient(s);
	test_perfect(s);
	test_run(&l, s, 1);
	test_faults(&l, s);
	seer_fit_seq_release(&s[0]);
	seer_fit_seq_release(&s[1]);
	layer_free(&l);
	test_file();
	return done_testing();
}
