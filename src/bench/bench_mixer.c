/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay bench delta and ssm: the mixer of a gated DeltaNet or a Mamba-2 layer, alone and
 * between its projections, beside the ceilings of this GPU. */
#include "config.h"
#include "src/bench/bench_mixer.h"

#include <math.h>
#include <stddef.h>

#include "base/log.h"
#include "kernels/delta/delta.h"
#include "kernels/ssm/ssm.h"
#include "model/layer_size.h"
#include "src/bench/bench.h"
#include "src/bench/bench_table.h"
#include "src/bench/bench_values.h"

/* ---- work ---- */

/* With rows 0 each sequence has one row, a decode. */
static double count_rows(const struct bench_mixer *x)
{
	return (double)x->batch * (x->rows ? x->rows : 1);
}

double bench_mixer_flops(const struct bench_mixer *x)
{
	const struct layer_spec *l = x->layer;

	return count_rows(x) *
	       (layer_delta_flops(&l->delta, x->rows) + layer_ssm_flops(&l->ssm, x->rows) +
		(x->hidden ? layer_project_flops(l, x->hidden) : 0));
}

static size_t mixer_width(const struct layer_spec *l)
{
	return layer_qkv_width(l) + layer_ba_width(l) + layer_o_width(l);
}

/* A prompt's state is written once; a decode's is read, too. */
double bench_mixer_bytes(const struct bench_mixer *x)
{
	double width = (double)mixer_width(x->layer), state = (double)layer_state_bytes(x->layer);
	double row = x->hidden ? 2 * x->hidden : width, weights = width * x->hidden;

	return (count_rows(x) * row + weights) * sizeof(bf16_t) +
	       x->batch * (x->rows ? 1 : 2) * state;
}

/* ---- rows ---- */

struct row {
	const char *what, *model;
	int64_t batch, rows, k_heads, v_heads, k_dim, v_dim;
	double flops, bytes, floor_us, over;
	struct bench_result r;
	double tflops, tbs;
	struct bench_how how;
};

static const struct bench_col cols[] = {
#define COL(member) offsetof(struct row, member)
	{ "what", "what", COL_TEXT, COL(what), -13, 0, 0 },
	{ "model", NULL, COL_TEXT, COL(model), 0, 0, 0 },
	{ "batch", "batch", COL_COUNT, COL(batch), 5, 0, 0 },
	{ "rows", "rows", COL_COUNT, COL(rows), 6, 0, 0 },
	{ "k_heads", "k heads", COL_COUNT, COL(k_heads), 7, 0, 0 },
	{ "v_heads", "v heads", COL_COUNT, COL(v_heads), 7, 0, 0 },
	{ "k_dim", NULL, COL_COUNT, COL(k_dim), 0, 0, 0 },
	{ "v_dim", NULL, COL_COUNT, COL(v_dim), 0, 0, 0 },
	{ "flops", "GFLOP", COL_REAL, COL(flops), 8, 1, 1e9 },
	{ "bytes", "MB", COL_REAL, COL(bytes), 8, 1, 1e6 },
	{ "us", "us", COL_REAL, COL(r.us), 9, 1, 1 },
	{ "min_us", NULL, COL_REAL, COL(r.min_us), 0, 0, 0 },
	{ "event_us", NULL, COL_REAL, COL(r.event_us), 0, 0, 0 },
	{ "tflops", "TFLOP/s", COL_REAL, COL(tflops), 7, 1, 1 },
	{ "tbs", "TB/s", COL_REAL, COL(tbs), 6, 3, 1 },
	{ "floor_us", "floor us", COL_REAL, COL(floor_us), 9, 1, 1 },
	{ "over_floor", "x floor", COL_REAL, COL(over), 7, 2, 1 },
	{ "rel_l2", "rel L2", COL_REAL, COL(r.rel_l2), 8, 5, 1 },
	BENCH_HOW_COLS(COL(how)),
#undef COL
	{ 0 }
};

/* ---- running ---- */

struct bench {
	const struct bench_args *a;
	struct model model;
	enum mixer mixer;
	const struct layer_spec *layer; /* the first one with it */
	int64_t batch[BENCH_LIST], rows[BENCH_LIST];
	int n_batch, n_rows;
	struct bench_device *device; /* NULL: dry run */
	struct bench_table table;
	double tflops, tbs; /* the ceilings; NaN before they are known */
	bool mixer_only;    /* there is no cuBLAS for projections */
	int n_off;
};

enum { CEILING = 8192 };
static const double rel_l2_most = 0.016;

static enum ar_status find_layer(struct bench *b, struct ar_err *err)
{
	const bool ssm = b->mixer == MIX_SSM;
	int tp = b->a->tp ? (int)b->a->tp : 1, i = 0;
	const char *usual = ssm ? "nemotron-3-nano-30b-a3b" : "qwen3-next-80b-a3b";
	enum ar_status st = model_load(&b->model, b->a->model ? b->a->model : usual, err);

	if (!st)
		st = model_split(&b->model, tp, err);
	if (st)
		return st;
	while (i < b->model.n_layers && b->model.layer[i].mixer != b->mixer)
		i++;
	if (i == b->model.n_layers)
		return ar_fail(err, AR_USAGE, "model '%s' has no %s layers", b->model.name,
			       ssm ? "state-space" : "linear");
	b->layer = &b->model.layer[i];
	return ssm ? ssm_supported(&b->layer->ssm, 0, err) :
		     delta_supported(&b->layer->delta, 0, err);
}

/* FLOP/s of a large product and bytes/s of a copy, in this run. */
static enum ar_status find_ceilings(struct bench *b, struct ar_err *err)
{
	const double n = CEILING;
	struct bench_result product = { .us = NAN }, copy = { .us = NAN };
	enum ar_status st = bench_product(b->device, CEILING, &product, err);

	if (st == AR_NODEV) {
		log_warn("%s; without a ceiling for TFLOP/s, and without projections", err->msg);
		b->mixer_only = true;
		st = AR_OK;
	}
	if (!st)
		st = bench_copy(b->device, 2 * CEILING, &copy, err);
	b->tflops = 2 * n * n * n / product.us * 1e-6;
	b->tbs = 4 * (4 * n * n) / copy.us * 1e-6;
	if (!st && !b->table.lines)
		printf("ceilings: %.0f TFLOP/s of a product, %.2f TB/s of a copy; floor: the "
		       "longer of the times that they need\n",
		       b->tflops, b->tbs);
	return st;
}

static enum ar_status run_case(struct bench *b, int64_t batch, int64_t rows, bool projects,
			       struct ar_err *err)
{
	static const char *const what[2][2] = { { "decode", "decode-layer" },
						{ "prefill", "prefill-layer" } };
	const struct delta_spec *d = &b->layer->delta;
	const struct ssm_spec *s = &b->layer->ssm;
	const struct bench_mixer x = { b->layer, projects ? b->model.hidden : 0, (int)batch,
				       (int)rows };
	struct row r = { .what = what[rows > 0][projects],
			 .model = b->model.name,
			 .batch = batch,
			 .rows = rows ? rows : 1,
			 .k_heads = d->k_heads + s->groups,
			 .v_heads = d->v_heads + s->heads,
			 .k_dim = d->k_dim + s->state,
			 .v_dim = d->v_dim + s->head_dim,
			 .flops = bench_mixer_flops(&x),
			 .bytes = bench_mixer_bytes(&x),
			 .r = { .us = NAN, .min_us = NAN, .event_us = NAN, .rel_l2 = NAN },
			 .how = { .repeat = b->a->repeat, .seed = b->a->seed } };
	enum ar_status st = AR_OK;

	if (ar_interrupted())
		return ar_fail(err, AR_INTERRUPTED, "interrupted");
	if (b->device) {
		st = bench_mixer_run(b->device, &x, &r.r, err);
		r.how.clock = r.r.traced ? "cupti" : "events";
		r.how.gpu = bench_gpu(b->device);
	}
	if (st)
		return st;
	r.tflops = r.flops / r.r.us * 1e-6;
	r.tbs = r.bytes / r.r.us * 1e-6;
	r.floor_us = fmax(r.flops / b->tflops, r.bytes / b->tbs) * 1e-6;
	r.over = r.r.us / r.floor_us;
	b->n_off += b->device && b->a->sample && !(r.r.rel_l2 <= rel_l2_most);
	return bench_table_put(&b->table, &r, err);
}

/* The mixer, then the layer. */
static enum ar_status run_both(struct bench *b, int64_t batch, int64_t rows, struct ar_err *err)
{
	enum ar_status st = run_case(b, batch, rows, false, err);

	return st || b->mixer_only ? st : run_case(b, batch, rows, true, err);
}

static enum ar_status run_cases(struct bench *b, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < b->n_batch; i++) {
		for (int j = 0; j < b->n_rows && !st; j++)
			st = run_both(b, b->batch[i], b->rows[j], err);
		if (!st)
			st = run_both(b, b->batch[i], 0, err);
	}
	return st;
}

/* Positions in the inputs fit 32 bits. */
static enum ar_status check_sizes(const struct bench *b, struct ar_err *err)
{
	for (int i = 0; i < b->n_batch; i++)
		for (int j = 0; j < b->n_rows; j++)
			if (b->batch[i] * b->rows[j] > INT32_MAX / (int64_t)mixer_width(b->layer))
				return ar_fail(err, AR_USAGE,
					       "batch %lld, chunk %lld: too large; lower one of "
					       "them",
					       (long long)b->batch[i], (long long)b->rows[j]);
	return AR_OK;
}

static enum ar_status open_device(struct bench *b, struct ar_err *err)
{
	const struct bench_env env = { (int)b->a->device, (int)b->a->repeat, (int)b->a->sample,
				       (uint64_t)b->a->seed };

	return b->a->dry_run ? AR_OK : bench_open(&b->device, &env, err);
}

static enum ar_status run_mixer(const struct bench_args *a, enum mixer mixer, struct ar_err *err)
{
	struct bench b = {
		.a = a,
		.mixer = mixer,
		.tflops = NAN,
		.tbs = NAN,
		.table = { .cols = cols, .lines = a->format == FORMAT_JSON, .path = a->json }
	};
	enum ar_status st = bench_counts("batch", a->batch ? a->batch : "8", b.batch, &b.n_batch,
					 err);

	if (!st)
		st = bench_counts("chunk", a->chunk ? a->chunk : "1024", b.rows, &b.n_rows, err);
	if (!st)
		st = find_layer(&b, err);
	if (!st)
		st = check_sizes(&b, err);
	if (!st)
		st = open_device(&b, err);
	if (!st)
		st = bench_table_open(&b.table, err);
	if (st)
		goto out;
	if (b.device)
		st = find_ceilings(&b, err);
	if (!st)
		bench_table_heads(&b.table);
	if (!st)
		st = run_cases(&b, err);
	if (!st && b.n_off)
		st = ar_fail(err, AR_CUDA,
			     "%d rows differ from the reference (rel L2 above %g): do not trust "
			     "them",
			     b.n_off, rel_l2_most);
out:
	st = bench_table_close(&b.table, st, err);
	bench_close(b.device);
	model_release(&b.model);
	return st;
}

enum ar_status bench_delta(const struct bench_args *a, struct ar_err *err)
{
	return run_mixer(a, MIX_LINEAR, err);
}

enum ar_status bench_ssm(const struct bench_args *a, struct ar_err *err)
{
	return run_mixer(a, MIX_SSM, err);
}
