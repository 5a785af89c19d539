/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scales of skip-softmax, by the share of tiles that they skip or by the attention that is left.
 *
 * Each prompt is one chunk, and its last rows are decodes as well.  A tile's gap is the largest
 * difference, over the rows that vote together, of its largest logit and the largest before it.  A
 * scale skips the tiles with gap + log(keys) below its logarithm.  The gap does not depend on the
 * scale: a tile of chunks that is skipped is below what its rows have seen, as thresholds are at
 * most 1, and decodes compare with skipped tiles too.  So one pass finds all scales.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/binfile.h"
#include "base/parallel.h"
#include "kernels/methods/method.h"
#include "src/calibrate/calibrate.h"

struct args {
	char *skip;
	double recall;
	int64_t decodes;
};

/* Bins of gap + log(keys), a hundredth wide; the first also has all below it. */
enum { BINS = 4400, LOWEST = -30 };

struct half {
	uint64_t n_tile, count[BINS]; /* all tiles, and those that a scale may skip */
	double mass[BINS];	      /* attention of their rows, each of which has 1 */
	double rows;		      /* of each head */
};

enum { CHUNKS, DECODES, HALVES };

struct job { /* a layer */
	const struct args *a;
	struct attn_skip how[HALVES];
	const struct calib_layer *l;
	struct half (*sum)[HALVES]; /* [kv_heads] */
};

/* ---- one KV head ---- */

struct tiles { /* of decodes, [row][tile], over the heads that share keys */
	int first, n;
	float *gap;
	double *mass;
};

/* rows: gap is the largest of theirs. */
static void add_tile(struct half *h, float gap, double mass, int keys, bool first)
{
	double at = first ? INFINITY : 100 * (gap + log(keys) - LOWEST);

	h->n_tile++;
	if (gap >= 0 || at >= BINS)
		return;
	h->count[at > 0 ? (int)at : 0]++;
	h->mass[at > 0 ? (int)at : 0] += mass;
}

/* The difference of the logit of a tile's largest probability and of *seen; the tile's mass is
 * added. */
static float gap_of(const float *x, int n, float seen, float *top, double *mass)
{
	*top = 0;
	for (int i = 0; i < n; i++) {
		*top = fmaxf(*top, x[i]);
		*mass += x[i];
	}
	return logf(*top) - logf(seen);
}

/* Rows lo .. hi - 1 of a head, which vote together; x: [hi - lo][n] probabilities. */
static void add_chunk_rows(const struct job *j, struct half *h, const float *x, int lo, int hi)
{
	const int n = j->l->b.rows.n_row, keys = j->how[CHUNKS].keys;
	float seen[64] = { 0 }, top;

	h->rows += hi - lo;
	for (int key = 0; key < hi; key += keys) {
		float gap = -INFINITY;
		double mass = 0;

		for (int row = lo; row < hi; row++) {
			int end = key + keys < row + 1 ? key + keys : row + 1;
			float own = gap_of(x + (size_t)(row - lo) * (size_t)n + key, end - key,
					   seen[row - lo], &top, &mass);

			gap = end > key ? fmaxf(gap, own) : gap;
			seen[row - lo] = fmaxf(seen[row - lo], top);
		}
		add_tile(h, gap, mass, n, !key);
	}
}

/* A row of a head as a decode; x: its probabilities. */
static void see_decode(const struct job *j, struct tiles *t, const float *x, int row)
{
	const int keys = j->how[DECODES].keys, n_tile = row / keys + 1;
	const int given = j->how[DECODES].parts, n_part = given > 1 ? given : 1;
	const size_t at = (size_t)(row - t->first) * (size_t)t->n;
	float seen[64] = { 0 }, top; /* as many as a part may be given */

	for (int i = 0; i < n_tile; i++) {
		int end = (i + 1) * keys < row + 1 ? (i + 1) * keys : row + 1;
		float *part = &seen[i % n_part];
		float own = gap_of(x + i * keys, end - i * keys, *part, &top,
				   &t->mass[at + (size_t)i]);

		t->gap[at + (size_t)i] = fmaxf(t->gap[at + (size_t)i], own);
		*part = fmaxf(*part, top);
	}
}

static void add_decodes(const struct job *j, struct half *h, const struct tiles *t)
{
	const struct attn_shape *s = &j->l->b.shape;
	const int keys = j->how[DECODES].keys, n_part = j->how[DECODES].parts;

	for (int row = t->first; row < j->l->b.rows.n_row; row++) {
		const size_t at = (size_t)(row - t->first) * (size_t)t->n;

		h->rows += s->q_heads / s->kv_heads;
		for (int i = 0; i <= row / keys; i++)
			add_tile(h, t->gap[at + (size_t)i], t->mass[at + (size_t)i], row + 1,
				 i < (n_part > 1 ? n_part : 1));
	}
}

static enum ar_status add_head(const struct job *j, struct half *h, struct tiles *t, int head,
			       struct ar_err *err)
{
	const int n = j->l->b.rows.n_row, tok = j->l->b.shape.page_tok, group = j->how[CHUNKS].rows;
	struct calib_attention x = { 0 };
	enum ar_status st = calib_attention_init(&x, j->l, head, err);

	for (int lo = 0; lo < n && !st; lo += tok) {
		calib_attention_rows(&x, lo / tok);
		for (int g = lo; g < lo + tok && g < n; g += group)
			add_chunk_rows(j, &h[CHUNKS], x.x + (size_t)(g - lo) * (size_t)n, g,
				       g + group < n ? g + group : n);
		for (int row = lo > t->first ? lo : t->first; row < lo + tok && row < n; row++)
			see_decode(j, t, x.x + (size_t)(row - lo) * (size_t)n, row);
		if (ar_interrupted())
			st = ar_fail(err, AR_INTERRUPTED, "interrupted");
	}
	calib_attention_release(&x);
	return st;
}

static enum ar_status add_kv_head(void *ctx, int kv_head, struct ar_err *err)
{
	const struct job *j = ctx;
	const struct attn_shape *s = &j->l->b.shape;
	const int n = j->l->b.rows.n_row, group = s->q_heads / s->kv_heads;
	struct tiles t = { .first = n > j->a->decodes ? n - (int)j->a->decodes : 0,
			   .n = n / j->how[DECODES].keys + 1 };
	size_t cells = (size_t)(n - t.first) * (size_t)t.n;
	enum ar_status st = AR_OK;

	t.gap = malloc(cells * sizeof *t.gap);
	t.mass = calloc(cells, sizeof *t.mass);
	if (!t.gap || !t.mass)
		st = ar_nomem(err);
	for (size_t i = 0; i < cells && !st; i++)
		t.gap[i] = -INFINITY;
	for (int h = kv_head * group; h < (kv_head + 1) * group && !st; h++)
		st = add_head(j, j->sum[kv_head], &t, h, err);
	if (!st)
		add_decodes(j, &j->sum[kv_head][DECODES], &t);
	free(t.gap);
	free(t.mass);
	return st;
}

/* ---- captures ---- */

static enum ar_status add_layer(struct job *j, const struct calib_input *in, struct capture *c,
				int i, const struct skip *s, struct ar_err *err)
{
	struct calib_layer l;
	enum ar_status st = calib_layer_load(&l, c, i, calib_tokens(in, c), 64, err);

	if (st)
		return st;
	j->l = &l;
	j->how[CHUNKS] = skip_of(s, ROW_PREFILL, &l.b.shape);
	j->how[DECODES] = skip_of(s, ROW_DECODE, &l.b.shape);
	st = parallel_each(l.b.shape.kv_heads, add_kv_head, j, err);
	calib_layer_release(&l);
	return st;
}

static void add_half(struct half *sum, const struct half *h)
{
	sum->n_tile += h->n_tile;
	sum->rows += h->rows;
	for (int i = 0; i < BINS; i++) {
		sum->count[i] += h->count[i];
		sum->mass[i] += h->mass[i];
	}
}

/* sum: [HALVES], zeros. */
static enum ar_status measure(const struct args *a, const struct calib_input *in,
			      const struct skip *s, struct half *sum, struct ar_err *err)
{
	const int kv_heads = capture_info(in->capture[0])->kv_heads;
	struct job j = { .a = a, .sum = calloc((size_t)kv_heads, sizeof *j.sum) };
	enum ar_status st = j.sum ? AR_OK : ar_nomem(err);

	for (size_t c = 0; c < in->n && !st; c++)
		for (int i = 0; i < capture_info(in->capture[c])->n_layers && !st; i++)
			st = add_layer(&j, in, in->capture[c], i, s, err);
	for (int h = 0; h < kv_heads && !st; h++)
		for (int k = 0; k < HALVES; k++)
			add_half(&sum[k], &j.sum[h][k]);
	free(j.sum);
	return st;
}

/* ---- scales ---- */

struct found {
	double scale, share, recall; /* tiles skipped, and attention left */
};

/* The least scale that skips the share; if none does, the one that skips most.  recall > 0: the
 * largest that leaves this recall. */
static struct found find(const struct half *h, double share, double recall)
{
	struct found x = { .recall = 1 };
	double mass = 0;
	uint64_t n = 0;

	for (int i = 0; i < BINS && (recall > 0 || x.share < share); i++) {
		n += h->count[i];
		mass += h->mass[i];
		if (!h->count[i])
			continue;
		if (1 - mass / h->rows < recall)
			break;
		x = (struct found){ exp(LOWEST + (i + 1) / 100.), (double)n / (double)h->n_tile,
				    1 - mass / h->rows };
	}
	return x;
}

/* Write the scales for a share, or for the recall.  Returns whether a higher share has others. */
static bool put(FILE *f, const struct args *a, const struct half *sum, double share)
{
	const struct found p = find(&sum[CHUNKS], share, a->recall);
	const struct found d = find(&sum[DECODES], share, a->recall);

	fprintf(f, "%s,prefill=%.6g,decode=%.6g\n", a->skip, p.scale, d.scale);
	printf("%6g%12.4g%8.4f%8.4f%12.4g%8.4f%8.4f\n", a->recall > 0 ? a->recall : share, p.scale,
	       p.share, p.recall, d.scale, d.share, d.recall);
	return a->recall == 0 && (p.share >= share || d.share >= share);
}

static enum ar_status write_scales(const struct args *a, const struct half *sum, const char *out,
				   struct ar_err *err)
{
	struct outfile f;
	enum ar_status st = outfile_open(&f, out, err);

	if (st)
		return st;
	printf("%6s%12s%8s%8s%12s%8s%8s\n", a->recall > 0 ? "recall" : "share", "prefill", "share",
	       "recall", "decode", "share", "recall");
	for (int i = 1; i < 10 && put(f.f, a, sum, i / 10.); i++)
		;
	st = outfile_commit(&f, err);
	outfile_release(&f);
	return st;
}

/* ---- the calibration ---- */

/* Make a method with the part, which must say all but the scales. */
static enum ar_status parse_part(struct method **m, const char *part, struct ar_err *err)
{
	static const char dense[] = "dense/skip=";
	char *text = malloc(sizeof dense + strlen(part));
	enum ar_status st;

	if (!text)
		return ar_nomem(err);
	strcpy(text, dense);
	st = method_parse(m, strcat(text, part), err);
	free(text);
	if (st)
		return st;
	if ((*m)->skip->prefill > 0 || (*m)->skip->decode > 0 || (*m)->skip->threshold > 0) {
		method_free(*m);
		return ar_fail(err, AR_USAGE,
			       "skip part '%s' has a scale or a threshold, which calibrate finds; "
			       "leave it out",
			       part);
	}
	(*m)->skip->prefill = (*m)->skip->decode = 1;
	return AR_OK;
}

static enum ar_status run_skip(const void *arg, const struct calib_input *in, const char *out,
			       struct ar_err *err)
{
	const struct args *a = arg;
	struct half *sum = NULL;
	struct method *m;
	enum ar_status st = parse_part(&m, a->skip, err);

	if (st)
		return st;
	sum = calloc(HALVES, sizeof *sum);
	st = sum ? measure(a, in, m->skip, sum, err) : ar_nomem(err);
	if (!st)
		st = write_scales(a, sum, out, err);
	free(sum);
	method_free(m);
	return st;
}

#define OFF(member) offsetof(struct args, member)
/* clang-format off */
static const struct opt opts[] = {
	{ .name = "skip", .type = OPT_STR, .off = OFF(skip), .arg = "PART",
	  .def = "softmax,parts=8",
	  .help = "part to find scales for, with its tile and the parts of decodes" },
	{ .name = "recall", .type = OPT_REAL, .off = OFF(recall), .arg = "SHARE", .def = "0",
	  .max = 1, .help = "find the scales that leave this share of the attention, instead of "
			    "those that skip shares of the tiles; 0: the latter" },
	{ .name = "decodes", .type = OPT_INT, .off = OFF(decodes), .arg = "N", .def = "256",
	  .min = 1, .max = CAPTURE_MAX_TOK,
	  .help = "last tokens of each prompt that count as decodes" },
	{ 0 }
};
/* clang-format on */

const struct calibrator calibrate_skip = {
	.name = "skip",
	.title = "scales of skip-softmax, for --skip",
	.opts = opts,
	.arg_size = sizeof(struct args),
	.run = run_skip,
};
