/* SPDX-License-Identifier: Apache-2.0 */
/* A gate of SeerAttention for each captured layer and head; the rule is in seer_fit.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "base/safetensors.h"
#include "kernels/select/seer/seer.h"
#include "model/rope.h"
#include "src/calibrate/calibrate.h"
#include "src/calibrate/seer_fit.h"
#include "src/model_opt.h"

struct args {
	int64_t steps, seed;
	double rate;
	char *model, *as_model;
};

/* ---- a layer ---- */

struct job {
	const struct args *a;
	const float *inv;
	int layer;	       /* of the model */
	struct calib_layer *l; /* of each capture that has the layer */
	size_t n;
	bf16_t *w;		/* [q_heads][SEER_POOLS * head_dim][head_dim] */
	double *before, *after; /* [q_heads] losses */
};

static enum ar_status fit_head(void *ctx, int h, struct ar_err *err)
{
	const struct job *j = ctx;
	size_t dim = (size_t)j->l->b.shape.head_dim, size = SEER_POOLS * dim * dim;
	struct seer_fit_seq *seq = calloc(j->n, sizeof *seq);
	float *w = malloc(size * sizeof *w);
	const struct seer_fit fit = {
		.seq = seq,
		.n_seq = j->n,
		.steps = (int)j->a->steps,
		.rate = j->a->rate,
		.seed = rng_mix(rng_mix((uint64_t)j->a->seed) + ((uint64_t)j->layer << 32) +
				(uint64_t)h),
	};
	enum ar_status st = seq && w ? AR_OK : ar_nomem(err);

	for (size_t i = 0; !st && i < j->n; i++)
		st = seer_fit_seq_init(&seq[i], &j->l[i], h, j->inv, err);
	if (!st)
		st = seer_fit_run(&fit, w, &j->before[h], &j->after[h], err);
	for (size_t i = 0; !st && i < size; i++)
		j->w[(size_t)h * size + i] = bf16_from_f32(w[i]);
	for (size_t i = 0; seq && i < j->n; i++)
		seer_fit_seq_release(&seq[i]);
	free(seq);
	free(w);
	return st;
}

static enum ar_status fit_heads(struct job *j, int q_heads, struct ar_err *err)
{
	double before = 0, after = 0;
	enum ar_status st;

	j->before = calloc((size_t)q_heads, sizeof *j->before);
	j->after = calloc((size_t)q_heads, sizeof *j->after);
	st = j->before && j->after ? parallel_each(q_heads, fit_head, j, err) : ar_nomem(err);
	for (int h = 0; !st && h < q_heads; h++) {
		before += j->before[h] / q_heads;
		after += j->after[h] / q_heads;
	}
	free(j->before);
	free(j->after);
	if (!st)
		log_info("layer %d: divergence %.4f before, %.4f after %lld steps", j->layer,
			 before, after, (long long)j->a->steps);
	return st;
}

static enum ar_status fit_layer(const struct args *a, const struct calib_input *in, int layer,
				const float *inv, bf16_t *w, struct ar_err *err)
{
	struct job j = { .a = a, .inv = inv, .layer = layer, .w = w };
	enum ar_status st = AR_OK;

	j.l = calloc(in->n, sizeof *j.l);
	if (!j.l)
		return ar_nomem(err);
	for (size_t c = 0; !st && c < in->n; c++) {
		int i = capture_find_layer(capture_info(in->capture[c]), (uint64_t)layer);

		if (i < 0)
			continue;
		st = calib_layer_load(&j.l[j.n], in->capture[c], i,
				      calib_tokens(in, in->capture[c]), SEER_BLOCK, err);
		j.n += !st;
	}
	if (!st)
		st = fit_heads(&j, capture_info(*in->capture)->q_heads, err);
	for (size_t c = 0; c < j.n; c++)
		calib_layer_release(&j.l[c]);
	free(j.l);
	return st;
}

/* ---- the file ---- */

struct gate {
	int *layer; /* layers that some capture has, ascending */
	int n;
	char (*name)[96];
	struct safetensors_tensor *t;
	float *inv;
	bf16_t *w; /* of a layer */
	size_t w_bytes;
};

static void gate_release(struct gate *g)
{
	free(g->layer);
	free(g->name);
	free(g->t);
	free(g->inv);
	free(g->w);
}

/* Keys turn back by their angles, and nothing else. */
static enum ar_status check_angles(const char *name, const struct rope *rope, struct ar_err *err)
{
	const char *more = rope_besides_angles(rope);

	return more ? ar_fail(err, AR_DATA,
			      "%s: a gate needs keys before RoPE, but cannot undo %s; take another "
			      "model",
			      name, more) :
		      AR_OK;
}

/* Find RoPE of Q and K: the one that a capture states, else that of --model. */
static enum ar_status find_rope(const struct args *a, const struct calib_input *in,
				struct rope *rope, struct ar_err *err)
{
	struct model m;
	enum ar_status st;

	for (size_t c = 0; c < in->n; c++)
		if (capture_info(in->capture[c])->rope.theta > 0) {
			*rope = capture_info(in->capture[c])->rope;
			return check_angles(capture_info(in->capture[c])->name, rope, err);
		}
	if (!a->model)
		return ar_fail(err, AR_USAGE, "%s: does not state its RoPE; add --model NAME",
			       capture_info(*in->capture)->name);
	st = model_load_as(&m, a->model, a->as_model, err);
	if (st)
		return st;
	*rope = m.rope;
	if (*m.rope_unknown)
		st = ar_fail(err, AR_DATA,
			     "model %s: a gate needs keys before RoPE, but the angles of %s are "
			     "not known",
			     m.name, m.rope_unknown);
	else
		st = check_angles(m.name, rope, err);
	model_release(&m);
	return st;
}

static enum ar_status gate_init(struct gate *g, const struct args *a, const struct calib_input *in,
				struct ar_err *err)
{
	const struct capture_info *info = capture_info(*in->capture);
	size_t dim = (size_t)info->head_dim, max = CAPTURE_MAX_LAYER + 1;
	struct rope rope;
	enum ar_status st = find_rope(a, in, &rope, err);

	if (st)
		return st;
	g->w_bytes = (size_t)info->q_heads * SEER_POOLS * dim * dim * sizeof *g->w;
	g->layer = calloc(max, sizeof *g->layer);
	g->name = calloc(max, sizeof *g->name);
	g->t = calloc(max, sizeof *g->t);
	g->inv = calloc(dim, sizeof *g->inv);
	g->w = malloc(g->w_bytes);
	if (!g->layer || !g->name || !g->t || !g->inv || !g->w)
		return ar_nomem(err);
	rope_inv_freq(&rope, info->head_dim, g->inv);
	for (int l = 0; l <= CAPTURE_MAX_LAYER; l++) {
		bool any = false;

		for (size_t c = 0; !any && c < in->n; c++)
			any = capture_find_layer(capture_info(in->capture[c]), (uint64_t)l) >= 0;
		if (!any)
			continue;
		snprintf(g->name[g->n], sizeof *g->name, SEER_TENSOR, l, 'k');
		g->t[g->n] = (struct safetensors_tensor){
			.name = g->name[g->n],
			.n_dim = 3,
			.dim = { info->q_heads, SEER_POOLS * info->head_dim, info->head_dim }
		};
		g->layer[g->n++] = l;
	}
	return AR_OK;
}

static enum ar_status write_gate(const struct gate *g, const struct args *a,
				 const struct calib_input *in, const char *path, struct ar_err *err)
{
	static const char *const meta[] = { "seerattn_gate_type", "Qavg_Kmaxminavg",
					    "seerattn_gate_block_size", "64", NULL };
	struct outfile f;
	enum ar_status st = outfile_open(&f, path, err);

	if (st)
		return st;
	st = safetensors_write_header(&f, g->t, (size_t)g->n, meta, err);
	for (int i = 0; !st && i < g->n; i++) {
		progress("layers", (unsigned long)i, (unsigned long)g->n);
		st = fit_layer(a, in, g->layer[i], g->inv, g->w, err);
		if (!st)
			st = outfile_write(&f, g->w, g->w_bytes, err);
	}
	progress_end();
	if (!st)
		st = outfile_commit(&f, err);
	outfile_release(&f);
	return st;
}

static enum ar_status run_seer(const void *arg, const struct calib_input *in, const char *out,
			       struct ar_err *err)
{
	struct gate g = { 0 };
	enum ar_status st = gate_init(&g, arg, in, err);

	if (!st)
		st = write_gate(&g, arg, in, out, err);
	gate_release(&g);
	return st;
}

#define OFF(member) offsetof(struct args, member)
/* clang-format off */
static const struct opt opts[] = {
	{ .name = "steps", .type = OPT_INT, .off = OFF(steps), .arg = "N", .def = "500",
	  .max = 1 << 30, .help = "train a random gate for N steps" },
	{ .name = "rate", .type = OPT_REAL, .off = OFF(rate), .arg = "X", .def = "0.001", .max = 1,
	  .help = "the largest learning rate" },
	{ .name = "seed", .type = OPT_INT, .off = OFF(seed), .arg = "N", .def = "1", .max = 1e15,
	  .help = "seed of the random gate" },
	{ .name = "model", .type = OPT_STR, .off = OFF(model), .arg = "NAME",
	  .help = "take RoPE from this model if no capture states it" },
	AS_MODEL_OPT(OFF(as_model)),
	{ 0 }
};
/* clang-format on */

const struct calibrator calibrate_seer = {
	.name = "seer",
	.title = "a gate, for the parameter gate",
	.opts = opts,
	.arg_size = sizeof(struct args),
	.run = run_seer,
};
