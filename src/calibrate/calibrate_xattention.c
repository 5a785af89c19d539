/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thresholds of XAttention, one for each layer and head.
 *
 * Each prompt is one chunk.  A block's true mass is a sum of softmax probabilities.  For each query
 * block of a head, take the fewest blocks whose true mass reaches the share 'mass'.  Their smallest
 * estimated mass is a cut: the blocks estimated at least as large include them all.  The threshold
 * is the share of these blocks in the estimated mass, summed over the query blocks.  Of several
 * captures the largest threshold counts.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/jsonval.h"
#include "kernels/select/top.h"
#include "kernels/select/xattention/xattention.h"
#include "base/parallel.h"
#include "src/calibrate/calibrate.h"

struct args {
	double mass;
	int stride, block; /* indices into 4, 8, 16 and 64, 128 */
};

static const char *const strides[] = { "4", "8", "16", NULL };
static const char *const blocks[] = { "64", "128", NULL };

static int stride_tok(const struct args *a)
{
	return 4 << a->stride;
}

static int block_tok(const struct args *a)
{
	return 64 << a->block;
}

/* ---- true masses ---- */

/* True mass of the blocks 0 .. qa for query block qa, to mass. */
static void true_masses(struct calib_attention *t, int qa, double *mass)
{
	int tok = t->l->b.shape.page_tok, lo = qa * tok;
	int hi = lo + tok < t->l->b.rows.n_row ? lo + tok : t->l->b.rows.n_row;

	calib_attention_rows(t, qa);
	for (int j = 0; j <= qa; j++)
		mass[j] = 0;
	for (int row = lo; row < hi; row++) {
		const float *x = t->x + (size_t)(row - lo) * (size_t)t->l->b.rows.n_row;

		for (int i = 0; i <= row; i++)
			mass[i / tok] += x[i];
	}
}

/* ---- the rule ---- */

/* Add the estimated mass of a query block with n blocks to *all, and the part to keep to *kept. */
static void add_row(const double *mass, const uint32_t *estimate, int n, double share,
		    struct top_cell *cell, uint64_t *kept, uint64_t *all)
{
	uint32_t least = UINT32_MAX;
	double total = 0, sum = 0;

	for (int j = 0; j < n; j++) {
		cell[j] = (struct top_cell){ mass[j], j };
		total += mass[j];
	}
	top_sort(cell, n);
	for (int j = 0; j < n && (!j || sum < share * total); j++) {
		const uint32_t own = estimate[cell[j].at];

		sum += cell[j].key;
		least = own < least ? own : least;
	}
	for (int j = 0; j < n; j++) {
		*kept += estimate[j] >= least ? estimate[j] : 0;
		*all += estimate[j];
	}
}

/* ---- layers and captures ---- */

struct job { /* a layer */
	const struct args *a;
	const struct calib_layer *l;
	double *row; /* [q_heads] thresholds so far */
};

static enum ar_status fit_head(void *ctx, int h, struct ar_err *err)
{
	const struct job *j = ctx;
	const struct attn_batch *b = &j->l->b;
	struct calib_attention t = { 0 };
	size_t blks = (size_t)b->keys.max_kv_blk;
	uint32_t *estimate = malloc(blks * blks * sizeof *estimate);
	struct top_cell *cell = malloc(blks * sizeof *cell);
	double *mass = malloc(blks * sizeof *mass);
	uint64_t kept = 0, all = 0;
	enum ar_status st = estimate && cell && mass ? calib_attention_init(&t, j->l, h, err) :
						       ar_nomem(err);

	if (!st)
		st = xattention_masses(b, stride_tok(j->a), 0, h, j->l->q, j->l->kv.k, estimate,
				       err);
	for (int qa = 0; !st && qa < b->keys.max_kv_blk; qa++) {
		true_masses(&t, qa, mass);
		add_row(mass, estimate + (size_t)qa * blks, qa + 1, j->a->mass, cell, &kept, &all);
		if (ar_interrupted())
			st = ar_fail(err, AR_INTERRUPTED, "interrupted");
	}
	if (!st)
		j->row[h] = fmax(j->row[h], (double)kept / (double)all);
	calib_attention_release(&t);
	free(estimate);
	free(cell);
	free(mass);
	return st;
}

static enum ar_status fit_layer(const void *arg, const struct calib_input *in, struct capture *c,
				int i, void *row, struct ar_err *err)
{
	struct calib_layer l;
	struct job j = { .a = arg, .l = &l, .row = row };
	enum ar_status st = calib_layer_load(&l, c, i, calib_tokens(in, c), block_tok(arg), err);

	if (!st)
		st = parallel_each(capture_info(c)->q_heads, fit_head, &j, err);
	calib_layer_release(&l);
	return st;
}

/* Rounded up, so that the threshold still finds these blocks. */
static bool add_thresholds(cJSON *rows, const double *threshold, int q_heads)
{
	cJSON *row = cJSON_CreateArray();
	bool done = json_add(rows, NULL, row);
	char text[32];

	for (int h = 0; h < q_heads && done; h++) {
		snprintf(text, sizeof text, "%.4f", ceil(threshold[h] * 1e4) / 1e4);
		done = json_add(row, NULL, cJSON_CreateRaw(text));
	}
	return done;
}

static cJSON *make_table(const void *arg, void *const *table, int q_heads)
{
	const struct args *a = arg;
	cJSON *o = cJSON_CreateObject(), *layers, *rows;
	bool done = json_add_string(o, "selector", "xattention") &&
		    json_add_real(o, "stride", stride_tok(a)) &&
		    json_add_real(o, "block", block_tok(a)) && json_add_real(o, "mass", a->mass);

	layers = cJSON_AddArrayToObject(o, "layers");
	rows = cJSON_AddArrayToObject(o, "threshold");
	for (int l = 0; l <= CAPTURE_MAX_LAYER && done; l++)
		if (table[l])
			done = json_add_real(layers, NULL, l) &&
			       add_thresholds(rows, table[l], q_heads);
	if (done)
		return o;
	cJSON_Delete(o);
	return NULL;
}

static enum ar_status run_xattention(const void *arg, const struct calib_input *in, const char *out,
				     struct ar_err *err)
{
	static const struct calib_table table = { .entry = sizeof(double),
						  .fit = fit_layer,
						  .make = make_table };

	return calib_table(&table, arg, in, out, err);
}

#define OFF(member) offsetof(struct args, member)
/* clang-format off */
static const struct opt opts[] = {
	{ .name = "mass", .type = OPT_REAL, .off = OFF(mass), .arg = "X", .def = "0.9", .max = 1,
	  .help = "find thresholds that keep the blocks with a share X of the true attention "
		  "mass" },
	{ .name = "stride", .type = OPT_ENUM, .off = OFF(stride), .arg = "N", .def = "8",
	  .choice = strides, .help = "stride of the method that will read the table" },
	{ .name = "block", .type = OPT_ENUM, .off = OFF(block), .arg = "N", .def = "128",
	  .choice = blocks, .help = "tokens of a block of that method" },
	{ 0 }
};
/* clang-format on */

const struct calibrator calibrate_xattention = {
	.name = "xattention",
	.title = "thresholds by layer and head, for the parameter table",
	.opts = opts,
	.arg_size = sizeof(struct args),
	.run = run_xattention,
};
