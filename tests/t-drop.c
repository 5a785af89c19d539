/* SPDX-License-Identifier: Apache-2.0 */
/* Droppers, the references: worked examples, a second implementation, and their rules. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/drop/lazyllm/lazyllm.h"
#include "kernels/drop/sliminfer/sliminfer.h"
#include "kernels/drop/uniprefill/uniprefill.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/tap.h"
#include "traces/capture/capture.h"

static const struct attn_shape tiny = { 2, 1, 4, 4 };

/* Rows that stay, of a batch. */
struct result {
	uint8_t *keep;
	int32_t *n_keep, *index;
};

static void result_free(struct result *x)
{
	free(x->keep);
	free(x->n_keep);
	free(x->index);
}

static enum ar_status try(const struct batch_case *c, const char *name, const void *self, int layer,
			  int n_step, struct result *out, struct ar_err *err)
{
	struct drop d = { .dropper = dropper_find(name), .self = (void *)(uintptr_t)self };
	struct attn_call at = { .b = &c->b, .layer = layer, .q = c->q, .kv = c->kv };
	int32_t chunk[8];
	enum ar_status st;

	for (int r = 0; r < c->n_seq; r++)
		chunk[r] = attn_n_row(&c->b.rows, r);
	st = drop_ref(&d, &(struct drop_call){ &at, chunk, n_step },
		      &(struct drop_kept){ out->keep, out->n_keep, out->index }, err);
	return st;
}

static struct result result_new(const struct batch_case *c)
{
	size_t n = (size_t)c->b.rows.n_row + 1;

	return (struct result){ malloc(n), malloc((size_t)c->n_seq * sizeof(int32_t)),
				malloc(n * sizeof(int32_t)) };
}

static struct result drop_rows(const struct batch_case *c, const char *name, const void *self)
{
	struct result x = result_new(c);
	struct ar_err err;

	if (try(c, name, self, 0, c->b.rows.n_row, &x, &err))
		bail_out("%s", err.msg);
	return x;
}

/* Numbers as "0-1 12-21". */
static const char *ranges(const int32_t *v, int n)
{
	static char text[2][256];
	static int turn;
	char *out = text[turn ^= 1];
	size_t len = 0;

	*out = 0;
	for (int i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && v[k] == v[k - 1] + 1; k++)
			;
		len += (size_t)snprintf(out + len, sizeof *text - len, "%s%d", i ? " " : "", v[i]);
		if (k > i + 1)
			len += (size_t)snprintf(out + len, sizeof *text - len, "-%d", v[k - 1]);
		if (len >= sizeof *text)
			break;
	}
	return out;
}

static const char *kept(const struct batch_case *c, const char *name, const void *self)
{
	static char text[256];
	struct result x = drop_rows(c, name, self);

	snprintf(text, sizeof text, "%s", ranges(x.index, x.n_keep[0]));
	result_free(&x);
	return text;
}

static const char *numbers(const float *v, int n)
{
	static char text[512];
	size_t len = 0;

	for (int i = 0; i < n; i++)
		len += (size_t)snprintf(text + len, sizeof text - len, "%s%.4f", i ? " " : "",
					(double)v[i]);
	return text;
}

/* ---- uniprefill: 22 tokens, blocks of four, three queries ---- */

static const struct uniprefill_self small = {
	.rule = { .p = 0.6, .block = 4, .last_q = 3, .sinks = 2 }
};

static void test_mass(void)
{
	struct mass_rule m = uniprefill_mass(&small.rule);
	struct batch_case c;
	struct ar_err err;
	float mass[6], all = 0;

	case_formula(&c, tiny, 22);
	case_cut(&c, (int[]){ 0 }, (int[]){ 22 });
	m.round = false;
	if (mass_ref(&m, &c.b, 0, c.q, c.kv.k, mass, &err))
		bail_out("%s", err.msg);
	is_str(numbers(mass, 6), "0.7816 0.8260 0.4800 1.1114 2.7391 0.0619", "masses of blocks");
	m.round = true;
	if (mass_ref(&m, &c.b, 0, c.q, c.kv.k, mass, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < 6; i++)
		all += mass[i] = bf16_round(mass[i]);
	for (int i = 0; i < 6; i++)
		mass[i] = bf16_round(mass[i] / all);
	is_str(numbers(mass, 6), "0.1309 0.1377 0.0801 0.1855 0.4570 0.0104",
	       "shares, rounded all the way");
	case_release(&c);
}

static void test_uniprefill(void)
{
	static const struct {
		double p;
		const char *kept;
	} v[] = { { 0.6, "0-1 12-21" },
		  { 0.7, "0-1 4-7 12-21" },
		  { 0.4, "0-1 16-21" },
		  { 0.8, "0-7 12-21" } };

	for (int i = 0; i < 8; i++) {
		struct uniprefill_self x = small;
		struct batch_case c;

		case_formula(&c, tiny, 22);
		case_cut(&c, (int[]){ 0 }, (int[]){ 22 });
		x.rule.p = v[i % 4].p;
		x.rule.rounding = i / 4;
		is_str(kept(&c, "uniprefill", &x), v[i % 4].kept, "p %g%s", x.rule.p,
		       i / 4 ? "" : ", rounded");
		x.rule.crossing = CROSSING_EXCLUDE;
		if (i % 4 == 0)
			is_str(kept(&c, "uniprefill", &x), "0-3 16-21",
			       "without the crossing block");
		case_release(&c);
	}
}

/* A limit that shares meet exactly: two blocks of one half each. */
static void test_pick(void)
{
	struct uniprefill p = small.rule;
	uint8_t k[4];
	struct ar_err err;

	p.p = 0.5;
	if (uniprefill_pick(&p, (float[]){ 2, 2 }, 2, k, &err))
		bail_out("%s", err.msg);
	ok(k[0] && k[1], "a block after a share of exactly p stays");
	p.p = 0.49;
	if (uniprefill_pick(&p, (float[]){ 2, 2 }, 2, k, &err))
		bail_out("%s", err.msg);
	ok(!k[0] && k[1], "of equal blocks the higher comes first");
	p.p = 0;
	if (uniprefill_pick(&p, (float[]){ 1, 2, 0, 1 }, 4, k, &err))
		bail_out("%s", err.msg);
	ok(!k[0] && k[1] && !k[2] && !k[3], "the first block of all stays at p 0");
	p.p = 1;
	if (uniprefill_pick(&p, (float[]){ 1, 2, 0, 1 }, 4, k, &err))
		bail_out("%s", err.msg);
	ok(k[0] && k[1] && k[2] && k[3], "all stay at p 1");
	p.crossing = CROSSING_EXCLUDE;
	p.p = 0.5;
	if (uniprefill_pick(&p, (float[]){ 1, 6, 0, 1 }, 4, k, &err))
		bail_out("%s", err.msg);
	ok(!k[0] && k[1] && !k[2] && !k[3], "even a crossing block that is to go, if it is first");
}

/* ---- index ---- */

/* A decode is not in the batch, so the prefill's rows begin at 0. */
static void test_index(void)
{
	int ctx[] = { 0, 0, 5 }, rows[] = { 22, 0, 3 };
	struct rng rng = { 3 };
	struct batch_case c;
	struct result x;

	case_chunks(&c, &rng, FILL_NORMAL, tiny, 3, ctx, rows);
	x = result_new(&c);
	for (int i = 0; i < 25; i++)
		x.keep[i] = i < 2 || (i > 11 && i != 23);
	drop_index(&c.b.rows, &(struct drop_kept){ x.keep, x.n_keep, x.index });
	is_str(ranges(x.n_keep, 3), "12 0 2", "how many rows stay, by request");
	is_str(ranges(x.index, 14), "0-1 12-22 24", "and which");
	result_free(&x);
	case_release(&c);
}

/* ---- a second implementation of UniPrefill's selection, in double ---- */

/* bf16, rounded to nearest even. */
static double brief(double x)
{
	int e;
	double m = frexp(x, &e);

	return ldexp(rint(m * 256) / 256, e);
}

static double key_dot(const struct batch_case *c, int r, int row, int h, int key)
{
	const struct attn_shape *s = &c->b.shape;
	int tok = s->page_tok, dim = s->head_dim, kv = h / (s->q_heads / s->kv_heads);
	const bf16_t *k =
		c->kv.k +
		((c->page[c->page0[r] + key / tok] * s->kv_heads + kv) * tok + key % tok) * dim;
	double sum = 0;

	for (int d = 0; d < dim; d++)
		sum += (double)bf16_to_f32(c->q[(row * s->q_heads + h) * dim + d]) *
		       (double)bf16_to_f32(k[d]);
	return sum;
}

/* Shares of the blocks of a whole prompt. */
static int plain_shares(const struct batch_case *c, const struct uniprefill *p, int r,
			double *share)
{
	bool round = p->rounding == ROUNDING_BF16;
	int len = c->end[r], n = (len + (int)p->block - 1) / (int)p->block;
	double *x = calloc((size_t)len, sizeof *x), *w = calloc((size_t)len, sizeof *w), all = 0;

	memset(share, 0, (size_t)n * sizeof *share);
	for (int h = 0; h < c->b.shape.q_heads; h++) {
		memset(w, 0, (size_t)len * sizeof *w);
		for (int i = len - (int)p->last_q; i < len; i++) {
			double max = -INFINITY, sum = 0;

			for (int t = 0; t <= i; t++) {
				x[t] = key_dot(c, r, c->row0[r] + i, h, t);
				x[t] = (round ? brief(x[t]) : x[t]) / sqrt(c->b.shape.head_dim);
				max = fmax(max, x[t]);
			}
			for (int t = 0; t <= i; t++)
				sum += x[t] = exp(x[t] - max);
			for (int t = 0; t <= i; t++)
				w[t] += x[t] / sum;
		}
		for (int t = 0; t < len; t++)
			share[t / p->block] += round ? brief(w[t]) : w[t];
	}
	for (int i = 0; i < n; i++)
		all += share[i] = round ? brief(share[i]) : share[i];
	for (int i = 0; i < n; i++)
		share[i] = round ? brief(share[i] / all) : share[i] / all;
	free(x);
	free(w);
	return n;
}

/* Rows of request r that the rule and rounding do not explain.  near: shares so close are equal. */
static int plain_faults(const struct batch_case *c, const struct uniprefill *p, int r,
			const struct result *x, double near)
{
	double share[256];
	int len = c->end[r], n = plain_shares(c, p, r, share), bad = 0;

	for (int i = 0; i < len; i++) {
		double before = 0, ties = 0, own = share[i / p->block];
		bool forced = i < p->sinks || i >= len - p->last_q;
		bool keep = x->keep[c->row0[r] + i];

		for (int j = 0; j < n; j++) {
			before += share[j] > own * (1 + near) ? share[j] : 0;
			ties += fabs(share[j] - own) <= own * near ? share[j] : 0;
		}
		if (forced || before + ties - own <= p->p - near)
			bad += !keep;
		else if (before > p->p + near)
			bad += keep;
	}
	return bad;
}

/* near 1e-5 is what sums in fp32 may differ by; 2^-7 is a unit in the last place of bf16. */
static void test_plain(struct batch_case *c, const char *of)
{
	static const double p[] = { 0.6, 0.9, 0.99 };

	for (int i = 0; i < 6; i++) {
		struct uniprefill_self x = { .rule = { .p = p[i % 3],
						       .block = i % 2 ? 64 : 16,
						       .last_q = 24,
						       .sinks = 32,
						       .rounding = i / 3 } };
		struct result got = drop_rows(c, "uniprefill", &x);
		int bad = 0, gone = 0;

		for (int r = 0; r < c->n_seq; r++) {
			bad += plain_faults(c, &x.rule, r, &got,
					    x.rule.rounding == ROUNDING_BF16 ? 0x1p-7 : 1e-5);
			gone += attn_n_row(&c->b.rows, r) - got.n_keep[r];
		}
		ok(!bad && (gone || x.rule.p > 0.9), "%s, p %g%s: %d of %d rows dropped", of,
		   x.rule.p, i / 3 ? "" : ", rounded", gone, c->b.rows.n_row);
		result_free(&got);
	}
}

static void test_random(void)
{
	int ctx[] = { 0, 0 }, rows[] = { 700, 333 };
	struct rng rng = { 11 };
	struct batch_case c;

	case_chunks(&c, &rng, FILL_BLOCKS, (struct attn_shape){ 4, 2, 64, 64 }, 2, ctx, rows);
	test_plain(&c, "random blocks");
	case_release(&c);
}

/* The first heads of a captured layer. */
static void test_capture(void)
{
	enum { TOK = 1024, DIM = 128 };
	const char *data = getenv("ATTNREPLAY_DATA");
	int ctx = 0, rows = TOK;
	bf16_t *q = malloc(8 * TOK * DIM * sizeof *q), *k = malloc(2 * TOK * DIM * sizeof *k);
	struct rng rng = { 1 };
	struct capture *in;
	struct batch_case c;
	struct ar_err err;
	char path[512];

	snprintf(path, sizeof path, "%s/traces/samples/niah-2k.arc", data ? data : ".");
	if (!q || !k || capture_open(&in, path, &err) ||
	    capture_read(in, 0, CAPTURE_Q, 0, TOK, q, &err) ||
	    capture_read(in, 0, CAPTURE_K, 0, TOK, k, &err))
		bail_out("%s", path);
	case_chunks(&c, &rng, FILL_NORMAL, (struct attn_shape){ 2, 1, DIM, 128 }, 1, &ctx, &rows);
	for (int t = 0; t < TOK; t++) {
		for (int h = 0; h < 2; h++)
			memcpy(c.q + (t * 2 + h) * DIM, q + (h * TOK + t) * DIM, DIM * sizeof *q);
		memcpy(c.kv.k + (c.page[t / 128] * 128 + t % 128) * DIM, k + t * DIM,
		       DIM * sizeof *k);
	}
	test_plain(&c, "a capture");
	capture_close(in);
	case_release(&c);
	free(q);
	free(k);
}

/* ---- uniprefill: chunks and limits ---- */

static void test_extremes(void)
{
	struct uniprefill_self x = { .rule = { .p = 1, .block = 16, .last_q = 8, .sinks = 5 } };
	struct result all, none;
	int ctx = 0, rows = 200, bad = 0;
	struct rng rng = { 5 };
	struct batch_case c;

	case_chunks(&c, &rng, FILL_HUGE, (struct attn_shape){ 4, 2, 64, 64 }, 1, &ctx, &rows);
	all = drop_rows(&c, "uniprefill", &x);
	is_int(all.n_keep[0], 200, "p 1 keeps everything");
	x.rule.p = 0;
	none = drop_rows(&c, "uniprefill", &x);
	for (int i = 0; i < 200; i++)
		bad += !none.keep[i] && (i < 5 || i >= 192);
	ok(!bad && none.n_keep[0] <= 13 + 16, "p 0 keeps sinks, last rows and one block");
	result_free(&all);
	result_free(&none);
	x.rule.min_tokens = 200;
	is_str(kept(&c, "uniprefill", &x), "0-199", "an iteration of min-tokens rows keeps all");
	x.rule.min_tokens = 0;
	x.rule.sinks = 192;
	is_str(kept(&c, "uniprefill", &x), "0-199", "so does a prompt of sinks and last rows");
	x.rule.sinks = 5;
	case_cut(&c, (int[]){ 0 }, (int[]){ 150 });
	is_str(kept(&c, "uniprefill", &x), "0-149", "the first chunk of a cut prompt keeps all");
	case_cut(&c, (int[]){ 150 }, (int[]){ 50 });
	is_str(kept(&c, "uniprefill", &x), "0-49", "and so does its last");
	case_release(&c);
}

static void test_append(void)
{
	struct uniprefill_self official = { .rule = { .p = 0.5,
						      .block = 16,
						      .last_q = 8,
						      .sinks = 20 } },
			       x = official;
	int ctx = 0, rows = 300, same = 0, kept_sinks = 0, kept_last = 0;
	struct result want, got;
	struct rng rng = { 6 };
	struct batch_case c;

	x.rule.mode = MODE_APPEND;
	case_chunks(&c, &rng, FILL_BLOCKS, (struct attn_shape){ 4, 2, 64, 64 }, 1, &ctx, &rows);
	want = drop_rows(&c, "uniprefill", &official);
	for (int i = 0; i < 2; i++) {
		x.rule.scores = i;
		got = drop_rows(&c, "uniprefill", &x);
		same += !memcmp(got.keep, want.keep, 300);
		result_free(&got);
	}
	ok(same == 2 && want.n_keep[0] < 250, "one chunk: append is official");
	result_free(&want);
	for (int i = 0; i < 2; i++) {
		x.rule.scores = i;
		case_cut(&c, (int[]){ 0 }, (int[]){ 100 });
		got = drop_rows(&c, "uniprefill", &x);
		for (int k = 0; k < 20; k++)
			kept_sinks += got.keep[k];
		result_free(&got);
		case_cut(&c, (int[]){ 100 }, (int[]){ 90 });
		got = drop_rows(&c, "uniprefill", &x);
		for (int k = 82; k < 90; k++)
			kept_last += got.keep[k];
		ok(got.n_keep[0] < 90, "a chunk in the middle drops %d of 90 rows, scores=%s",
		   90 - got.n_keep[0], i ? "chunk" : "cache");
		result_free(&got);
	}
	is_int(kept_sinks, 40, "the first chunk keeps the sinks");
	is_int(kept_last, 16, "every chunk keeps its last rows");
	case_release(&c);
}

/* Keys of the cache outweigh the chunk's: with scores=cache they use up p, with scores=chunk they
 * are not asked. */
static void test_cache_scores(void)
{
	struct uniprefill_self x = {
		.rule = { .p = 0.5, .block = 16, .last_q = 1, .mode = MODE_APPEND }
	};
	int ctx = 64, rows = 64, most = 0;
	struct rng rng = { 8 };
	struct batch_case c;
	struct result got;

	case_chunks(&c, &rng, FILL_NORMAL, (struct attn_shape){ 1, 1, 64, 64 }, 1, &ctx, &rows);
	for (int t = 0; t < 64; t++)
		for (int d = 0; d < 64; d++)
			c.kv.k[(c.page[0] * 64 + t) * 64 + d] = c.q[63 * 64 + d];
	got = drop_rows(&c, "uniprefill", &x);
	is_int(got.n_keep[0], 1, "a chunk that nobody looks at keeps its last row");
	result_free(&got);
	x.rule.scores = SCORES_CHUNK;
	got = drop_rows(&c, "uniprefill", &x);
	most = got.n_keep[0];
	ok(most > 16 && most < 64, "among its own keys it keeps %d of 64 rows", most);
	result_free(&got);
	case_release(&c);
}

/* ---- sliminfer ---- */

static const struct sliminfer_self slim = { .rule = { NULL, 4, 2, 2, 4 },
					    .layers = { 1, { 0 }, { 2 } } };

static void test_sliminfer(void)
{
	struct sliminfer_self x = slim;
	struct batch_case c;
	float score[6];

	case_formula(&c, tiny, 24);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	sliminfer_scores(&(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv }, &x.rule, 0, score);
	is_str(numbers(score, 6), "1.2529 0.4668 1.2871 -0.0117 0.6377 0.9756",
	       "sliminfer: scores of blocks");
	is_str(kept(&c, "sliminfer", &x), "0-3 8-11 16-23", "two blocks by score");
	x.layers.value[0] = 0.34;
	is_str(kept(&c, "sliminfer", &x), "0-3 8-11 16-23", "or a third of all, which is two");
	x.layers.value[0] = 0.33;
	is_str(kept(&c, "sliminfer", &x), "0-3 8-11 20-23", "a share is rounded down");
	x.layers.value[0] = 0;
	is_str(kept(&c, "sliminfer", &x), "0-3 20-23", "sinks and window stay");
	x.layers.value[0] = 1;
	is_str(kept(&c, "sliminfer", &x), "0-23", "all is everything");
	x.rule.window = 3;
	x.rule.block = 18;
	x.layers.value[0] = 0;
	is_str(kept(&c, "sliminfer", &x), "0-23", "a prompt below sinks, window and block is left");
	case_release(&c);
}

/* Budgets come from the chunk as it was before any drop; sinks from the prompt's beginning. */
static void test_slim_chunk(void)
{
	struct sliminfer_self x = slim;
	struct drop d = { .dropper = dropper_find("sliminfer"), .self = &x };
	struct batch_case c;
	struct result got;
	struct ar_err err;

	case_formula(&c, tiny, 40);
	case_cut(&c, (int[]){ 16 }, (int[]){ 24 });
	got = result_new(&c);
	x.layers.value[0] = 0.25;
	if (drop_ref(&d,
		     &(struct drop_call){ &(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv },
					  (int32_t[]){ 48 }, 24 },
		     &(struct drop_kept){ got.keep, got.n_keep, got.index }, &err))
		bail_out("%s", err.msg);
	is_int(got.n_keep[0], 16, "a quarter of 48 tokens and the window stay of 24 rows");
	ok(got.keep[22] && got.keep[23], "the window is the chunk's");
	result_free(&got);
	case_release(&c);
}

/* ---- lazyllm: a second layer over the tokens that stayed, its inputs those of token t + 5 ---- */

static void put_token(struct batch_case *c, int at, int t)
{
	const struct attn_shape *s = &c->b.shape;

	for (int d = 0; d < s->head_dim; d++) {
		for (int h = 0; h < s->q_heads; h++)
			c->all_q[(at * s->q_heads + h) * s->head_dim + d] = bf16_from_f32(
				(float)((5 * h + 3 * t + 7 * d + t * t) % 37 - 18) / 8);
		for (int h = 0; h < s->kv_heads; h++)
			c->kv.k[((c->page[at / s->page_tok] * s->kv_heads + h) * s->page_tok +
				 at % s->page_tok) *
					s->head_dim +
				d] =
				bf16_from_f32(
					(float)((3 * h + 5 * t + 2 * d + 2 * t * t) % 41 - 20) / 8);
	}
}

static void lazy_scores(const struct batch_case *c, const char *want, const char *of)
{
	struct mass_rule m = lazyllm_mass();
	struct ar_err err;
	float mass[12];

	if (mass_ref(&m, &c->b, 0, c->q, c->kv.k, mass, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < c->end[0]; i++)
		mass[i] /= (float)c->b.shape.q_heads;
	is_str(numbers(mass, c->end[0]), want, "lazyllm: attention of the last token, %s", of);
}

static void test_lazyllm(void)
{
	struct lazyllm_self x = { { 1, { 0 }, { 0.25 } } };
	struct batch_case c;
	struct result first;

	case_formula(&c, tiny, 12);
	case_cut(&c, (int[]){ 0 }, (int[]){ 12 });
	lazy_scores(&c,
		    "0.0723 0.0585 0.0614 0.1808 0.0555 0.1994 0.0667 0.0559 0.0632 0.0673 0.0632 "
		    "0.0559",
		    "layer A");
	first = drop_rows(&c, "lazyllm", &x);
	is_str(ranges(first.index, first.n_keep[0]), "0 2-3 5-6 8-11", "a quarter is dropped");
	for (int i = 0; i < 9; i++)
		put_token(&c, i, first.index[i] + 5);
	case_cut(&c, (int[]){ 0 }, (int[]){ 9 });
	lazy_scores(&c, "0.2389 0.0512 0.0451 0.0451 0.0512 0.2389 0.0525 0.2113 0.0657",
		    "layer B");
	x.layers.value[0] = 0.5;
	is_str(kept(&c, "lazyllm", &x), "0 5-8", "then half of those that are left");
	x.layers.value[0] = 0;
	is_str(kept(&c, "lazyllm", &x), "0-8", "rate 0 drops nothing");
	x.layers.value[0] = 1;
	is_str(kept(&c, "lazyllm", &x), "8", "rate 1 all but the last");
	case_cut(&c, (int[]){ 8 }, (int[]){ 1 });
	is_str(kept(&c, "lazyllm", &x), "0", "a chunk of one row keeps it");
	result_free(&first);
	case_release(&c);
}

static void test_lazy_ties(void)
{
	struct lazyllm_self x = { { 1, { 0 }, { 0.5 } } };
	int ctx = 6, rows = 10;
	struct rng rng = { 2 };
	struct batch_case c;

	case_chunks(&c, &rng, FILL_EQUAL, tiny, 1, &ctx, &rows);
	is_str(kept(&c, "lazyllm", &x), "0-3 9", "of equal tokens the lower stay");
	case_release(&c);
}

/* ---- spellings and layers ---- */

static void test_parse(void)
{
	static const struct {
		const char *text, *message;
	} bad[] = {
		{ "nothing", "unknown name: want one that 'attnreplay methods' lists" },
		{ "uniprefill:p=2", "p '2': want a number from 0 to 1" },
		{ "uniprefill:block=48", "block=48: want a power of two" },
		{ "uniprefill:reconstitute=1",
		  "reconstitute=1: dropped tokens do not come back here; use reconstitute=0, as the "
		  "published code does" },
		{ "uniprefill:scores=chunk", "scores=chunk: only with mode=append" },
		{ "uniprefill:layers=7+7", "layers '7+7': want LAYER+LAYER..., ascending" },
		{ "uniprefill:layers=7:0.5", "layers '7:0.5': want LAYER+LAYER..., ascending" },
		{ "uniprefill:layers=7+", "layers '7+': want LAYER+LAYER..., ascending" },
		{ "sliminfer:layers=7",
		  "layers '7': want LAYER:VALUE+LAYER:VALUE..., layers ascending and values from 0 "
		  "to 1.04858e+06" },
		{ "sliminfer:unit=24", "unit=24: block=64 is not a multiple of it" },
		{ "lazyllm:layers=7:1.5",
		  "layers '7:1.5': want LAYER:VALUE+LAYER:VALUE..., layers ascending and values from "
		  "0 to 1" },
		{ "lazyllm:aux-revival=1",
		  "aux-revival=1: dropped tokens do not come back here; use aux-revival=0" },
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct drop *d = (struct drop *)1;
		struct ar_err err = { 0 };
		char want[512];

		snprintf(want, sizeof want, "dropper '%s': %s", bad[i].text, bad[i].message);
		is_int(drop_parse(&d, bad[i].text, &err), AR_USAGE, "'%s' is refused", bad[i].text);
		is_str(err.msg, want, "which the message explains");
		ok(!d, "and nothing is made");
	}
}

static void make_model(struct model *m, const char *name, int n, int period, enum mixer other)
{
	struct ar_err err;

	memset(m, 0, sizeof *m);
	snprintf(m->name, sizeof m->name, "%s", name);
	if (model_set_layers(m, n, &(struct layer_spec){ .q_heads = 8 }, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < n; i++)
		m->layer[i].mixer = (i + 1) % period ? other : MIX_FULL;
}

/* The layers at which a dropper acts, or the message that it refuses a model with. */
static const char *layers_of(const char *text, const struct model *m)
{
	static struct ar_err err;
	int32_t layer[64];
	struct drop *d;
	int n = 0;

	if (drop_parse(&d, text, &err))
		bail_out("%s", err.msg);
	if (drop_open(d, m, &err)) {
		drop_free(d);
		return err.msg;
	}
	for (int i = 0; i < m->n_layers; i++)
		if (drop_acts_after(d, i))
			layer[n++] = i;
	drop_free(d);
	return ranges(layer, n);
}

static void test_layers(void)
{
	struct model plain, next, gemma;

	make_model(&plain, "plain", 32, 1, MIX_FULL);
	make_model(&next, "next", 48, 4, MIX_LINEAR);
	make_model(&gemma, "gemma", 48, 6, MIX_WINDOW);
	is_str(layers_of("uniprefill", &plain), "7 11 15 19 23 27", "published layers of 32");
	is_str(layers_of("uniprefill", &next), "7 11 15 19 23 27 31 35 39 43",
	       "of 48, most of them linear");
	is_str(layers_of("uniprefill", &gemma), "29 35 41", "and of 48, most of them windows");
	is_str(layers_of("uniprefill:layers=5+11", &gemma), "5 11", "layers that are given");
	is_str(layers_of("uniprefill:layers=5+12", &gemma),
	       "dropper 'uniprefill:layers=5+12': layer 12 of model 'gemma' is not one of full "
	       "attention",
	       "layers of windows drop nothing");
	is_str(layers_of("uniprefill:layers=48", &gemma),
	       "dropper 'uniprefill:layers=48': layer 48: model 'gemma' has 48 layers",
	       "layers end with the model");
	gemma.layer[0].mixer = MIX_FULL;
	is_str(layers_of("uniprefill", &gemma),
	       "dropper 'uniprefill': no layers are published for model 'gemma': add "
	       "layers=LAYER+LAYER...",
	       "other models need a list");
	is_str(layers_of("sliminfer", &plain), "10 20", "sliminfer has layers for 32");
	is_str(layers_of("sliminfer", &next),
	       "dropper 'sliminfer': model 'next': add layers=LAYER:SHARE+LAYER:SHARE...", "only");
	is_str(layers_of("lazyllm", &plain), "12 20 28", "lazyllm has layers for 32");
	is_str(layers_of("lazyllm", &next),
	       "dropper 'lazyllm': model 'next': add layers=LAYER:RATE+LAYER:RATE...", "only");
	ok(!drop_acts_after(NULL, 7), "without a dropper none acts");
	model_release(&plain);
	model_release(&next);
	model_release(&gemma);
}

static void test_params(void)
{
	struct ar_err err;
	struct model m;
	struct drop *d;
	char *text;

	make_model(&m, "plain", 32, 1, MIX_FULL);
	if (drop_parse(&d, "uniprefill:p=0.98,window-space=original,layers=7+11", &err) ||
	    drop_open(d, &m, &err))
		bail_out("%s", err.msg);
	text = drop_params(d);
	is_str(text,
	       "{\"drop\":\"uniprefill\",\"p\":0.98,\"block\":64,\"last-q\":128,\"sinks\":128,"
	       "\"layers\":\"7+11\",\"mode\":\"official\",\"scores\":\"cache\","
	       "\"window-space\":\"original\",\"crossing\":\"include\",\"min-tokens\":256,"
	       "\"rounding\":\"bf16\",\"reconstitute\":false}",
	       "parameters for the record");
	ok(d->dropper->original_windows(d->self), "windows may count original positions");
	is_int(d->dropper->place, DROP_BEFORE_MLP, "uniprefill drops before the MLP");
	is_int(dropper_find("lazyllm")->place, DROP_AFTER_LAYER, "lazyllm after it");
	free(text);
	drop_free(d);
	model_release(&m);
}

/* ---- faults ---- */

static const char *const texts[] = { "uniprefill:layers=0", "sliminfer:layers=0:0.5",
				     "lazyllm:layers=0:0.5" };

static enum ar_status make(const char *text, const struct model *m, struct ar_err *err)
{
	struct drop *d;
	enum ar_status st = drop_parse(&d, text, err);
	char *params;

	if (st)
		return st;
	st = drop_open(d, m, err);
	params = st ? NULL : drop_params(d);
	if (!st && !params)
		st = ar_nomem(err);
	free(params);
	drop_free(d);
	return st;
}

static void test_make_faults(void)
{
	struct model m;

	make_model(&m, "plain", 1, 1, MIX_FULL);
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		bool hit = true;
		int bad = 0, k = 0;

		for (; hit && k < 200; k++) {
			struct ar_err err;
			enum ar_status st;

			fault_arm(k);
			st = make(texts[i], &m, &err);
			hit = fault_disarm();
			bad += st != (hit ? AR_NOMEM : AR_OK);
		}
		ok(!bad && k > 5 && !hit, "%s: every allocation that fails is reported", texts[i]);
	}
	model_release(&m);
}

static void test_ref_faults(void)
{
	static const struct lazyllm_self lazy = { { 1, { 0 }, { 0.5 } } };
	static const struct {
		const char *name;
		const void *self;
	} v[] = { { "uniprefill", &small }, { "sliminfer", &slim }, { "lazyllm", &lazy } };
	struct batch_case c;
	struct result x;

	case_formula(&c, tiny, 24);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	x = result_new(&c);
	for (int i = 0; i < 3; i++) {
		bool hit = true;
		int bad = 0, k = 0;

		for (; hit && k < 20; k++) {
			struct ar_err err;
			enum ar_status st;

			fault_arm(k);
			st = try(&c, v[i].name, v[i].self, 0, 24, &x, &err);
			hit = fault_disarm();
			bad += st != (hit ? AR_NOMEM : AR_OK);
		}
		ok(!bad && k > 2 && !hit, "%s: so is every one of a call", v[i].name);
	}
	result_free(&x);
	case_release(&c);
}

int main(void)
{
	plan(0);
	test_mass();
	test_uniprefill();
	test_pick();
	test_index();
	test_random();
	test_capture();
	test_extremes();
	test_append();
	test_cache_scores();
	test_sliminfer();
	test_slim_chunk();
	test_lazyllm();
	test_lazy_ties();
	test_parse();
	test_layers();
	test_params();
	test_make_faults();
	test_ref_faults();
	return done_testing();
}
