/* SPDX-License-Identifier: Apache-2.0 */
/* The gate of SeerAttention, the reference: a worked example, the rule against its definition,
 * chunks, options, and refusals. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "kernels/select/selectors.h"
#include "kernels/union/union.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/file.h"
#include "tests/gate_file.h"

static char path[] = "/tmp/t-select-seer-XXXXXX";

/* States of NaN: none is read that was not written. */
static bf16_t *fresh_state(const struct batch_case *c, const struct seer_self *g)
{
	size_t bytes = (size_t)c->n_page * selector_find("seer")->state_bytes(g, &c->b.shape);
	bf16_t *state = malloc(bytes);

	memset(state, 0xff, bytes);
	return state;
}

static void choose(struct batch_case *c, const struct seer_self *g, int layer, bf16_t *state)
{
	struct ar_err err;

	gate_must(selector_find("seer")->ref(&(struct attn_call){ .b = &c->b,
								  .layer = layer,
								  .q = c->q,
								  .kv = c->kv,
								  .state = state },
					     g, &(struct selection){ .mask = c->mask }, &err),
		  &err);
}

static bool kept(const struct batch_case *c, int row, int j)
{
	return c->mask[row * c->b.keys.mask_words + j / 32] >> j % 32 & 1;
}

/* ---- the worked example ---- */

/* Two heads of two channels, blocks of two, one radian a position. */
static void turn(const float x[2], int pos, bf16_t *to)
{
	to[0] = bf16_from_f32(x[0] * cosf((float)pos) - x[1] * sinf((float)pos));
	to[1] = bf16_from_f32(x[1] * cosf((float)pos) + x[0] * sinf((float)pos));
}

static void example(struct batch_case *c, struct seer_self *g, bf16_t *w, float *inv)
{
	static const float k[12][2] = { { 1, 0 },  { 3, 0 }, { 0, 1 },	{ 0, 1 },
					{ -1, 2 }, { 1, 2 }, { 2, -1 }, { 0, -1 },
					{ 1, 1 },  { 1, 1 }, { 0, 2 },	{ 2, 0 } };
	static const float q[4][2][2] = { /* [row][head] */
					  { { 2, 0 }, { -2, 2 } },
					  { { 4, 0 }, { -2, 2 } },
					  { { 0, 2 }, { 2, 2 } },
					  { { 0, 4 }, { 2, 2 } }
	};
	static const struct attn_shape s = { 2, 1, 2, 2 };
	const bf16_t one = bf16_from_f32(1);
	struct rng rng = { 5 };
	int ctx = 8, rows = 4;

	case_chunks(c, &rng, FILL_NORMAL, s, 1, &ctx, &rows);
	for (int t = 0; t < 12; t++)
		turn(k[t], t, c->kv.k + (c->page[t / 2] * 2 + t % 2) * 2);
	for (int i = 0; i < 8; i++)
		turn(q[i / 2][i % 2], 8 + i / 2, c->q + i * 2);
	memset(w, 0, 24 * sizeof *w); /* [head][out][in] */
	w[0 * 6 + 4] = w[1 * 6 + 5] = one;
	w[12 + 0 * 6 + 0] = w[12 + 1 * 6 + 1] = one;
	*inv = 1;
	*g = (struct seer_self){ .rule = { .threshold = 0.15 },
				 .n_layers = 1,
				 .model_layers = 1,
				 .q_heads = 2,
				 .k_heads = 2,
				 .head_dim = 2,
				 .host = { .k = w, .inv = inv } };
}

static void test_example(void)
{
	static const float want[2][2][6] = {
		/* [query block][head] */
		{ { .0566f, .0580f, .0042f, .0063f, .8749f },
		  { .0015f, .3162f, .5390f, .0885f, .0548f } },
		{ { .1027f, .0075f, .6004f, .2036f, .0006f, .0852f },
		  { .0008f, .0097f, .1166f, .0290f, .0009f, .8430f } },
	};
	static const uint32_t lists[4] = { 1 << 4, 1 << 1 | 1 << 2, 1 << 2 | 1 << 3, 1 << 5 };
	struct batch_case c, past;
	struct seer_self g;
	float inv;
	bf16_t w[24], *state;
	uint32_t table[2];
	int bad = 0;

	example(&c, &g, w, &inv);
	state = fresh_state(&c, &g);
	past = c; /* the context, as a chunk of its own */
	past.row0 = (int32_t[]){ 0, 8 }, past.qblk0 = (int32_t[]){ 0, 4 };
	past.b.rows.row0 = past.row0, past.b.rows.qblk0 = past.qblk0;
	past.b.rows.pos = (int32_t[]){ 0, 1, 2, 3, 4, 5, 6, 7 };
	past.b.rows.pos0 = (int32_t[]){ 0 }, past.b.keys.len = (int32_t[]){ 8 };
	past.b.rows.n_row = 8, past.b.rows.n_qblk = 4;
	past.q = calloc(8 * 2 * 2, sizeof *past.q);
	past.mask = calloc(4 * 2, sizeof *past.mask);
	choose(&past, &g, 0, state);
	choose(&c, &g, 0, state);
	ok(!memcmp(c.mask, lists, sizeof lists), "the worked example's blocks");
	union_ref(&c.b, 1, c.mask, table);
	ok(table[0] == 0x3c && table[1] == 0x36, "their unions with the chunk, head by head");
	union_ref(&c.b, 2, c.mask, table);
	is_int(table[0], 0x3e, "the union of both heads");
	for (int i = 0; i < 24; i++) {
		int row = i / 6, j = i % 6;
		float a = want[row / 2][row % 2][j];

		g.rule.threshold = a * 0.96 - 0.0002;
		choose(&c, &g, 0, state);
		bad += a > 0 && !kept(&c, row, j);
		g.rule.threshold = a * 1.04 + 0.0002;
		choose(&c, &g, 0, state);
		bad += kept(&c, row, j);
	}
	is_int(bad, 0, "its shares, and blocks past the diagonal are never kept");
	free(past.q);
	free(past.mask);
	free(state);
	case_release(&c);
}

/* ---- the rule by its definition, in double and without rounding ---- */

struct definition {
	const struct batch_case *c;
	const struct seer_self *g;
	int layer;
};

/* Channel d of a vector at pos before RoPE. */
static double before(const struct definition *x, const bf16_t *v, int d, int pos)
{
	int half = x->g->head_dim / 2;
	double a = pos * (double)x->g->host.inv[d % half];
	double lo = bf16_to_f32(v[d % half]), hi = bf16_to_f32(v[d % half + half]);

	return d < half ? lo * cos(a) + hi * sin(a) : hi * cos(a) - lo * sin(a);
}

/* y = Rope(pos, x w). */
static void gate_vector(const struct definition *x, const double *in, int n, const bf16_t *w,
			int pos, double *y)
{
	int dim = x->g->head_dim, half = dim / 2;
	double p[64];

	for (int o = 0; o < dim; o++) {
		p[o] = w ? 0 : in[o];
		for (int i = 0; w && i < n; i++)
			p[o] += in[i] * bf16_to_f32(w[o * n + i]);
	}
	for (int d = 0; d < dim; d++) {
		double a = pos * (double)x->g->host.inv[d % half];

		y[d] = d < half ? p[d] * cos(a) - p[d + half] * sin(a) :
				  p[d] * cos(a) + p[d - half] * sin(a);
	}
}

static void gate_key(const struct definition *x, int r, int head, int j, double *y)
{
	const struct attn_shape *s = &x->c->b.shape;
	const struct batch_case *c = x->c;
	int end = c->ctx[r] + c->row0[r + 1] - c->row0[r], dim = s->head_dim, tok = s->page_tok;
	int kv = head / (s->q_heads / s->kv_heads), n = end - j * tok < tok ? end - j * tok : tok;
	int at = x->g->k_heads == s->q_heads ? head : kv;
	double f[192];

	for (int d = 0; d < dim; d++) {
		double max = -INFINITY, min = INFINITY, sum = 0;

		for (int t = 0; t < n; t++) {
			size_t row = (size_t)(c->page[c->page0[r] + j] * s->kv_heads + kv) *
					     (size_t)tok +
				     (size_t)t;
			double v = before(x, c->kv.k + row * (size_t)dim, d, j * tok + t);

			max = fmax(max, v);
			min = fmin(min, v);
			sum += v;
		}
		f[d] = max, f[dim + d] = min, f[2 * dim + d] = sum / n;
	}
	gate_vector(x, f, 3 * dim,
		    x->g->host.k + (size_t)seer_layer(x->g, x->layer) * seer_k_size(x->g) +
			    (size_t)(at * 3 * dim * dim),
		    j * tok, y);
}

static void gate_query(const struct definition *x, int r, int head, int qa, double *y)
{
	const struct attn_shape *s = &x->c->b.shape;
	const struct batch_case *c = x->c;
	int ctx = c->ctx[r], end = ctx + c->row0[r + 1] - c->row0[r], dim = s->head_dim, n = 0;
	double mean[64] = { 0 };

	for (int pos = qa * s->page_tok; pos < (qa + 1) * s->page_tok; pos++) {
		if (pos < ctx || pos >= end)
			continue;
		for (int d = 0; d < dim; d++)
			mean[d] += before(x,
					  c->q + ((size_t)(c->row0[r] + pos - ctx) *
							  (size_t)s->q_heads +
						  (size_t)head) *
							  (size_t)dim,
					  d, pos);
		n++;
	}
	for (int d = 0; d < dim; d++)
		mean[d] /= n;
	gate_vector(x, mean, dim,
		    x->g->host.q ?
			    x->g->host.q + (size_t)seer_layer(x->g, x->layer) * seer_q_size(x->g) +
				    (size_t)(head * dim * dim) :
			    NULL,
		    qa * s->page_tok, y);
}

/* Number of cells whose bit in the mask does not follow from their share.  *near: cells within a
 * tenth of the threshold, which rounding may move. */
static int count_wrong(const struct definition *x, double threshold, int *cells, int *near)
{
	const struct batch_case *c = x->c;
	const struct attn_shape *s = &c->b.shape;
	int wrong = 0;

	for (int r = 0; r < c->n_seq; r++)
		for (int i = c->qblk0[r]; i < c->qblk0[r + 1]; i++)
			for (int h = 0; h < s->q_heads; h++) {
				int qa = c->ctx[r] / s->page_tok + i - c->qblk0[r];
				double y[64], k[64], a[64], sum = 0;

				gate_query(x, r, h, qa, y);
				for (int j = 0; j <= qa; j++) {
					double dot = 0;

					gate_key(x, r, h, j, k);
					for (int d = 0; d < s->head_dim; d++)
						dot += y[d] * k[d];
					a[j] = exp(dot / sqrt(s->head_dim));
					sum += a[j];
				}
				for (int j = 0; j < c->b.keys.mask_words * 32; j++) {
					bool on = kept(c, i * s->q_heads + h, j);
					double share = j <= qa ? a[j] / sum : 0;

					*cells += j <= qa;
					if (j <= qa && fabs(share / threshold - 1) < 0.1)
						*near += 1;
					else
						wrong += on != (share > threshold);
				}
			}
	return wrong;
}

static const struct {
	struct attn_shape shape;
	struct gate_file file;
	const char *what;
} kinds[] = {
	{ { 4, 2, 16, 16 }, { 3, 4, 0, 16 }, "a projection of keys for each query head" },
	{ { 4, 2, 16, 16 }, { 3, 4, 4, 16 }, "one of queries, too" },
	{ { 6, 2, 8, 16 }, { 2, 2, 6, 8 }, "one of keys for each KV head" },
	{ { 3, 3, 32, 64 }, { 1, 3, 3, 32 }, "as many KV heads as query heads" },
};
enum { N_KIND = sizeof kinds / sizeof *kinds };

/* All sequences from their start in cuts of the given tokens at most; the last cut's masks and the
 * states remain. */
static void replay(struct batch_case *c, const struct seer_self *g, int layer, int step,
		   struct rng *rng, bf16_t *state)
{
	int ctx[8] = { 0 }, rows[8], left = 1;

	while (left) {
		left = 0;
		for (int r = 0; r < c->n_seq; r++) {
			int n = rng ? 1 + (int)rng_below(rng, (uint64_t)step) : step;

			rows[r] = n < c->len[r] - ctx[r] ? n : c->len[r] - ctx[r];
		}
		case_cut(c, ctx, rows);
		choose(c, g, layer, state);
		for (int r = 0; r < c->n_seq; r++) {
			ctx[r] += rows[r];
			left += c->len[r] - ctx[r];
		}
	}
}

static void test_definition(int kind)
{
	const int lens[] = { 300, 77, 512, 16 };
	const struct attn_shape s = kinds[kind].shape;
	struct rng rng = { (uint64_t)kind + 1 };
	struct seer p = { .gate = path, .threshold = 0.05 };
	int wrong = 0, cells = 0, near = 0;
	struct seer_self *g;
	struct batch_case c;
	bf16_t *state;
	struct ar_err err;

	gate_write(path, &kinds[kind].file, 0, 1, &rng, NULL);
	gate_must(gate_open(&g, &p, s, kinds[kind].file.n_layers, false, &err), &err);
	for (int k = 0; k < 3; k++) {
		int layer = (int)rng_below(&rng, (uint64_t)kinds[kind].file.n_layers);

		case_make(&c, &rng, FILL_NORMAL, s, 4, lens);
		state = fresh_state(&c, g);
		replay(&c, g, layer, 100 + k * 200, &rng, state);
		wrong += count_wrong(&(struct definition){ &c, g, layer }, p.threshold, &cells,
				     &near);
		free(state);
		case_release(&c);
	}
	is_int(wrong, 0, "masks are those of the definition: %s", kinds[kind].what);
	ok(near < cells / 10 && cells > 100, "few of %d cells are near the threshold", cells);
	selector_find("seer")->close(g);
}

/* ---- chunks ---- */

static void test_chunks(void)
{
	const int lens[] = { 300, 512 };
	const struct attn_shape s = { 4, 2, 16, 16 };
	struct rng rng = { 9 };
	struct seer p = { .gate = path, .threshold = 0.03 };
	struct seer_self *g;
	struct batch_case c;
	bf16_t *whole, *cut;
	uint32_t *mask;
	size_t bytes, at = 0;
	int same = 0, ctx[2] = { 0 }, rows[2], n = rounds(20);
	struct ar_err err;

	gate_write(path, &(struct gate_file){ 1, 4, 0, 16 }, 0, 1, &rng, NULL);
	gate_must(gate_open(&g, &p, s, 1, false, &err), &err);
	case_make(&c, &rng, FILL_NORMAL, s, 2, lens);
	bytes = (size_t)c.n_page * selector_find("seer")->state_bytes(g, &s);
	whole = fresh_state(&c, g);
	case_cut(&c, ctx, lens);
	choose(&c, g, 0, whole);
	mask = malloc(case_mask_words(&c) * sizeof *mask);
	memcpy(mask, c.mask, case_mask_words(&c) * sizeof *mask);
	for (int k = 20 - n; k < 20; k++) {
		cut = fresh_state(&c, g);
		replay(&c, g, 0, 1 + 10 * k, &rng, cut);
		same += !memcmp(whole, cut, bytes);
		free(cut);
	}
	is_int(same, n, "keys do not depend on where chunks begin and end");
	cut = fresh_state(&c, g);
	same = 0;
	for (; ctx[0] < 300; ctx[0] += rows[0]) {
		rows[0] = 300 - ctx[0] < 48 ? 300 - ctx[0] : 48;
		rows[1] = 0;
		case_cut(&c, ctx, rows);
		choose(&c, g, 0, cut);
		for (int row = 0; row < c.b.rows.n_qblk * 4; row++, at += 1)
			same += c.mask[row * c.b.keys.mask_words] == mask[at];
	}
	is_int(same, 19 * 4, "chunks of whole blocks have the masks of the whole prompt");
	selector_find("seer")->close(g);
	free(whole);
	free(cut);
	free(mask);
	case_release(&c);
}

/* ---- options ---- */

static void test_options(void)
{
	struct attn_shape s = { 4, 2, 16, 16 };
	struct rng rng = { 4 };
	struct seer p = { .gate = path, .threshold = 1 };
	int len = 330, ctx = 0, rows = 330, n[4] = { 0 }, least = 0, any = 0, alone = 0;
	struct seer_self *g;
	struct batch_case c;
	bf16_t *state;
	struct ar_err err;

	gate_write(path, &(struct gate_file){ 1, 4, 0, 16 }, 0, 1, &rng, NULL);
	gate_must(gate_open(&g, &p, s, 1, false, &err), &err);
	case_make(&c, &rng, FILL_NORMAL, s, 1, &len);
	state = fresh_state(&c, g);
	case_cut(&c, &ctx, &rows);
	choose(&c, g, 0, state);
	for (int i = 0; i < c.b.rows.n_qblk * 4; i++)
		any += c.mask[i] != 0;
	is_int(any, 0, "no share is above 1, and nothing else is kept");
	g->rule.diagonal = true;
	choose(&c, g, 0, state);
	for (int i = 0; i < c.b.rows.n_qblk * 4; i++)
		n[0] += c.mask[i] == 1u << i / 4;
	is_int(n[0], 84, "diagonal keeps each query block's own");
	g->rule.diagonal = false;
	g->rule.dense_tail = true;
	choose(&c, g, 0, state);
	for (int i = 0; i < 84; i++)
		n[1] += c.mask[i] == (i / 4 < 19 ? 0 : (2u << i / 4) - 1);
	is_int(n[1], 84, "dense-tail opens the last two query blocks");
	c.left[0] = 1;
	choose(&c, g, 0, state);
	for (int i = 0; i < 84; i++)
		any += c.mask[i] != 0;
	is_int(any, 0, "of a prompt's last chunk only");
	g->rule.dense_first = true;
	choose(&c, g, 0, state);
	for (int i = 0; i < 84; i++)
		n[2] += c.mask[i] == (2u << i / 4) - 1;
	is_int(n[2], 84, "dense-first opens a chunk without context");
	g->rule.dense_first = g->rule.dense_tail = false;
	case_cut(&c, (int[]){ 329 }, (int[]){ 1 });
	choose(&c, g, 0, state);
	for (int h = 0; h < 4; h++)
		alone += c.mask[h] == (2u << 20) - 1;
	is_int(alone, 4, "a chunk of one row sees everything");
	case_cut(&c, &ctx, &rows);
	for (int k = 0; k < 5; k++) {
		static const double ratio[] = { 1e-3, 0.3, 0.5, 0.9, 1 };
		static const int want[] = { 1, 3, 6, 14, 21 };
		int good = 0;

		g->rule.nz_ratio = ratio[k];
		choose(&c, g, 0, state);
		for (int i = 0; i < 84; i++) {
			int blocks = i / 4 + 1 < want[k] ? i / 4 + 1 : want[k];

			good += __builtin_popcount(c.mask[i]) == blocks && c.mask[i] < 2u << i / 4;
		}
		is_int(good, 84, "nz-ratio %g keeps %d of 21 blocks", ratio[k], want[k]);
	}
	g->rule.nz_ratio = 0.5;
	choose(&c, g, 0, state);
	for (int i = 0; i < 84; i++) { /* the row's own masks by threshold are nested in it */
		uint32_t by_rank = c.mask[i];

		for (g->rule.threshold = 0.9; g->rule.threshold > 1e-5; g->rule.threshold *= 0.9) {
			g->rule.nz_ratio = 0;
			choose(&c, g, 0, state);
			if ((c.mask[i] & by_rank) != c.mask[i])
				break;
		}
		least += (c.mask[i] & by_rank) == by_rank;
		g->rule.nz_ratio = 0.5;
		choose(&c, g, 0, state);
	}
	is_int(least, 84, "those that nz-ratio keeps have the largest shares");
	selector_find("seer")->close(g);
	free(state);
	case_release(&c);
}

/* Equal shares, from equal keys before a RoPE that turns nothing. */
static void test_ties(void)
{
	const struct attn_shape s = { 2, 1, 16, 16 };
	struct rng rng = { 4 };
	struct seer p = { .gate = path, .nz_ratio = 0.5 };
	int ctx = 0, rows = 320, good = 0;
	struct seer_self *g;
	struct batch_case c;
	bf16_t *state;
	struct ar_err err;

	gate_write(path, &(struct gate_file){ 1, 2, 0, 16 }, 0, 1, &rng, NULL);
	gate_must(gate_open(&g, &p, s, 1, false, &err), &err);
	memset(g->host.inv, 0, 8 * sizeof *g->host.inv);
	case_chunks(&c, &rng, FILL_EQUAL, s, 1, &ctx, &rows);
	state = fresh_state(&c, g);
	choose(&c, g, 0, state);
	for (int i = 0; i < 40; i++)
		good += c.mask[i] == (i / 2 < 5 ? (2u << i / 2) - 1 : 31);
	is_int(good, 40, "among equals the first are kept");
	selector_find("seer")->close(g);
	free(state);
	case_release(&c);
}

/* ---- files ---- */

static void test_heads_and_layers(void)
{
	const struct gate_file file = { 2, 2, 4, 8 };
	struct attn_shape s = { 2, 1, 8, 64 };
	struct rng rng = { 4 };
	struct seer p = { .gate = path };
	struct seer_self *g;
	bf16_t *w[4];
	int same = 0, of[5];
	struct ar_err err;

	gate_write(path, &file, 7, 5, &rng, w);
	gate_must(gate_open(&g, &p, s, 5, false, &err), &err);
	for (int l = 0; l < 2; l++) {
		for (int i = 0; i < 24 * 8; i++)
			same += g->host.k[l * 192 + i % 8 * 24 + i / 8] == w[2 * l][i];
		for (int i = 0; i < 128; i++)
			same += g->host.q[l * 128 + i / 64 * 64 + i % 8 * 8 + i / 8 % 8] ==
				w[2 * l + 1][i];
	}
	is_int(same, 2 * (192 + 128), "a rank has the matrices of the first heads, transposed");
	for (int l = 0; l < 5; l++)
		of[l] = seer_layer(g, l);
	ok(!memcmp(of, (int[]){ 0, 0, 0, 1, 1 }, sizeof of), "two layers serve five");
	selector_find("seer")->close(g);
	for (int i = 0; i < 4; i++)
		free(w[i]);
}

/* Heads that are repeated have the file's matrices as often. */
static void test_repeated(void)
{
	const struct gate_file files[] = { { 2, 4, 4, 8 }, { 2, 2, 4, 8 }, { 2, 4, 0, 8 } };
	const struct attn_shape own = { 4, 2, 8, 64 }, twice = { 8, 4, 8, 64 };
	struct rng rng = { 4 };
	const struct seer p = { .gate = path };
	struct ar_err err;
	float inv[4] = { 1 };

	for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
		struct selector_env env = { .shape = twice, .n_layers = 2, .rope_inv = inv };
		size_t k, q, off = 0;
		struct seer_self *a, *b;
		void *x;

		gate_write(path, &files[f], 0, 1, &rng, NULL);
		gate_must(gate_open(&a, &p, own, 2, false, &err), &err);
		is_int(selector_find("seer")->open(&x, &p, &env, &err), AR_DATA,
		       "a gate of fewer heads is refused");
		env.repeats = 2;
		gate_must(selector_find("seer")->open(&x, &p, &env, &err), &err);
		b = x;
		k = seer_k_size(a) * sizeof(bf16_t), q = seer_q_size(a) * sizeof(bf16_t);
		for (int l = 0; l < 2; l++)
			for (int r = 0; r < 2; r++) {
				size_t to = (size_t)(2 * l + r), from = (size_t)l;

				off += !!memcmp((char *)b->host.k + to * k,
						(char *)a->host.k + from * k, k);
				off += b->host.q && memcmp((char *)b->host.q + to * q,
							   (char *)a->host.q + from * q, q);
			}
		ok(b->k_heads == 2 * a->k_heads && !b->host.q == !a->host.q && !off,
		   "but serves such heads repeated");
		selector_find("seer")->close(a);
		selector_find("seer")->close(b);
	}
}

/* Four heads of eight channels: a file whose matrices hand on the mean of keys. */
static void write_mean(void)
{
	enum { HEADS = 4, D = 8, IN = SEER_POOLS * D };
	bf16_t w[HEADS][IN][D] = { 0 };
	char name[96];
	const struct safetensors_tensor t = { .name = name, .n_dim = 3, .dim = { HEADS, IN, D } };
	struct outfile f;
	struct ar_err err;

	snprintf(name, sizeof name, SEER_TENSOR, 0, 'k');
	for (int h = 0; h < HEADS; h++)
		for (int d = 0; d < D; d++)
			w[h][2 * D + d][d] = bf16_from_f32(1);
	gate_must(outfile_open(&f, path, &err), &err);
	gate_must(safetensors_write_header(&f, &t, 1, (const char *const[]){ NULL }, &err), &err);
	gate_must(outfile_write(&f, w, sizeof w, &err), &err);
	gate_must(outfile_commit(&f, &err), &err);
	outfile_release(&f);
}

static void test_mean(void)
{
	const struct attn_shape s = { 4, 2, 8, 64 };
	struct seer p = { .gate = path };
	struct seer_self *file, *mean;
	struct rng rng = { 4 };
	struct batch_case c;
	int ctx = 0, rows = 640, kept_of[2] = { 0 };
	uint32_t *mask;
	bf16_t *state;
	struct ar_err err;

	write_mean();
	gate_must(gate_open(&file, &p, s, 1, false, &err), &err);
	p.gate = (char[]){ "mean" };
	gate_must(gate_open(&mean, &p, s, 30, false, &err), &err);
	is_int(seer_layer(mean, 29), 0, "gate=mean has one gate for all layers");
	case_chunks(&c, &rng, FILL_NORMAL, s, 1, &ctx, &rows);
	mask = calloc(case_mask_words(&c), sizeof *mask);
	state = fresh_state(&c, mean);
	file->rule.threshold = mean->rule.threshold = 0.12;
	choose(&c, file, 0, state);
	memcpy(mask, c.mask, case_mask_words(&c) * sizeof *mask);
	choose(&c, mean, 29, state);
	ok(!memcmp(mask, c.mask, case_mask_words(&c) * sizeof *mask),
	   "it selects what a file of the mean of keys does");
	for (int i = 0; i < 40; i++)
		for (int j = 0; j < 10; j++)
			kept_of[kept(&c, i, j)]++;
	ok(kept_of[0] > 40 && kept_of[1] > 40, "some blocks, %d of 400", kept_of[1]);
	selector_find("seer")->close(file);
	selector_find("seer")->close(mean);
	free(mask);
	free(state);
	case_release(&c);
}

static void test_refused(void)
{
	static const struct {
		struct gate_file file;
		const char *wrong;
	} cases[] = {
		{ { 1, 3, 0, 8 }, "is [3, 24, 8]; want [4 or a multiple, 24, 8]" },
		{ { 1, 2, 0, 8 }, "is [2, 24, 8]; want [4 or a multiple, 24, 8]" },
		{ { 1, 4, 0, 16 }, "is [4, 48, 16]; want [4 or a multiple, 24, 8]" },
		{ { 1, 3, 4, 8 }, "is [3, 24, 8]; want [2 or a multiple, 24, 8]" },
		{ { 1, 2, 2, 8 },
		  "mask_linear_q.weight' is [2, 8, 8]; want [4 or a multiple, 8, 8]" },
	};
	const struct attn_shape s = { 4, 2, 8, 64 };
	struct rng rng = { 4 };
	struct seer p = { 0 };
	struct seer_self *g;
	struct ar_err err;

	ok(gate_open(&g, &p, s, 1, false, &err) == AR_USAGE && strstr(err.msg, "add gate=FILE"),
	   "no gate: %s", err.msg);
	p.gate = (char[]){ "/nonexistent/gate" };
	ok(gate_open(&g, &p, s, 1, false, &err) == AR_DATA && strstr(err.msg, "No such file"),
	   "a missing file");
	p.gate = path;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		gate_write(path, &cases[i].file, 0, 1, &rng, NULL);
		ok(gate_open(&g, &p, s, 1, false, &err) == AR_DATA &&
			   !strncmp(err.msg, path, strlen(path)) && strstr(err.msg, cases[i].wrong),
		   "refused: %s", cases[i].wrong);
	}
}

/* A file of two or three tensors of four bytes each. */
static void test_refused_headers(void)
{
#define K(l, type, shape, at) \
	"\"model.layers." #l ".self_attn.attn_gate.mask_linear_k.weight\":" \
	"{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" at "}"
#define Q(l, type, shape, at) \
	"\"model.layers." #l ".self_attn.attn_gate.mask_linear_q.weight\":" \
	"{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" at "}"
	static const struct {
		const char *header, *wrong;
	} cases[] = {
		{ "{\"x\":{\"dtype\":\"BF16\",\"shape\":[40],\"data_offsets\":[0,80]}}",
		  "no tensor is named like "
		  "model.layers.0.self_attn.attn_gate.mask_linear_k.weight" },
		{ "{" K(0, "F16", "[1,6,2]", "[0,24]") "," K(1, "BF16", "[28]", "[24,80]") "}",
		  "layers.0.self_attn.attn_gate.mask_linear_k.weight': want BF16 [heads, in, "
		  "out]" },
		{ "{" K(0, "BF16", "[1,6,2]", "[0,24]") "," K(1, "BF16", "[28]", "[24,80]") "}",
		  "layers.1.self_attn.attn_gate.mask_linear_k.weight': want BF16 [heads, in, "
		  "out]" },
		{ "{" K(0, "BF16", "[1,6,2]", "[0,24]") "," K(
			  1, "BF16", "[1,6,2]",
			  "[24,48]") "," Q(1, "BF16", "[1,2,2]",
					   "[48,56]") "," K(7, "BF16", "[1,6,2]", "[56,80]") "}",
		  "layers.1.self_attn.attn_gate.mask_linear_k.weight' has a projection of queries, "
		  "unlike other layers" },
		{ "{" K(0, "BF16", "[1,6,2]", "[0,24]") "," K(
			  1, "BF16", "[1,6,2]",
			  "[24,48]") "," Q(0, "BF16", "[1,2,2]",
					   "[48,56]") "," K(7, "BF16", "[1,6,2]", "[56,80]") "}",
		  "layers.1.self_attn.attn_gate.mask_linear_k.weight' has no projection of "
		  "queries, unlike other layers" },
	};
	const struct attn_shape s = { 1, 1, 2, 64 };
	struct seer p = { .gate = path };
	struct seer_self *g;
	struct ar_err err;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		size_t len = strlen(cases[i].header);
		unsigned char *file = calloc(1, 8 + len + 80);

		file[0] = (unsigned char)len;
		file[1] = (unsigned char)(len >> 8);
		memcpy(file + 8, cases[i].header, len);
		file_write(path, file, 8 + len + 80);
		free(file);
		ok(gate_open(&g, &p, s, 2, false, &err) == AR_DATA &&
			   strstr(err.msg, cases[i].wrong),
		   "refused: %s", cases[i].wrong);
	}
}

static void test_faults(void)
{
	const struct attn_shape s = { 4, 2, 8, 16 };
	struct rng rng = { 4 };
	struct seer p = { .gate = path };
	struct seer_self *g;
	struct batch_case c;
	bf16_t *state;
	bool hit = true;
	int bad = 0, k = 0, ctx = 0, rows = 40;
	struct ar_err err;

	gate_write(path, &(struct gate_file){ 2, 2, 4, 8 }, 0, 1, &rng, NULL);
	for (; hit && k < 1000; k++) {
		enum ar_status st;

		fault_arm(k);
		st = gate_open(&g, &p, s, 2, false, &err);
		hit = fault_disarm();
		/* The JSON reader cannot tell a lack of memory from a malformed header. */
		bad += hit ? st != AR_NOMEM && st != AR_DATA : st != AR_OK;
		if (hit && !st)
			selector_find("seer")->close(g);
	}
	ok(!bad && k > 10 && k < 1000, "every allocation that fails in opening is reported");
	case_chunks(&c, &rng, FILL_NORMAL, s, 1, &ctx, &rows);
	state = fresh_state(&c, g);
	for (hit = true, bad = k = 0; hit && k < 10; k++) {
		enum ar_status st;

		fault_arm(k);
		st = selector_find("seer")->ref(
			&(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv, .state = state }, g,
			&(struct selection){ .mask = c.mask }, &err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
	}
	ok(!bad && k > 3, "and in selecting");
	selector_find("seer")->close(g);
	free(state);
	case_release(&c);
}

int main(void)
{
	int fd = mkstemp(path);

	plan(0);
	log_level = LOG_ERROR;
	if (fd < 0 || close(fd))
		bail_out("no temporary file");
	test_example();
	for (int i = 0; i < N_KIND; i++)
		test_definition(i);
	test_chunks();
	test_options();
	test_ties();
	test_heads_and_layers();
	test_repeated();
	test_mean();
	test_refused();
	test_refused_headers();
	test_faults();
	unlink(path);
	return done_testing();
}
