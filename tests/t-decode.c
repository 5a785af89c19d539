/* SPDX-License-Identifier: Apache-2.0 */
/* The reference of decode attention against single rows in double precision: over all blocks, over
 * block tables, and under windows and sinks. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/bench/bench_case.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

enum { GROUP = 3, MAX_BLK = 3 };

/* The keys or values of one KV head of request r in order. */
static void in_order(const struct batch_case *c, const bf16_t *from, int r, int kv_head, bf16_t *to)
{
	const struct attn_shape *s = &c->b.shape;
	size_t block = (size_t)(s->page_tok * s->head_dim);

	for (int j = 0; j < c->page0[r + 1] - c->page0[r]; j++) {
		size_t page = (size_t)c->page[c->page0[r] + j];

		memcpy(to + (size_t)j * block,
		       from + (page * (size_t)s->kv_heads + (size_t)kv_head) * block,
		       block * sizeof *to);
	}
}

/* The largest difference of out from rows that see their blocks; l NULL: all.  Lists are of up to
 * `heads` heads. */
static double error_of(const struct batch_case *c, int heads, const struct block_lists *l,
		       const bf16_t *out)
{
	const struct attn_shape *s = &c->b.shape;
	size_t dim = (size_t)s->head_dim;
	size_t len = (size_t)(c->b.keys.max_kv_blk * s->page_tok) * dim;
	int per_kv = (GROUP + heads - 1) / heads;
	bf16_t *k = malloc(2 * len * sizeof *k), *v = k + len;
	double *want = malloc(dim * sizeof *want), worst = 0;

	for (int r = 0; r < c->b.rows.n_req; r++)
		for (int h = 0; h < s->q_heads; h++) {
			size_t row = (size_t)(r * s->q_heads + h) * dim;
			int list = r * s->kv_heads * per_kv + h / GROUP * per_kv +
				   h % GROUP / heads;
			int n = l ? l->n[list] : c->ctx[r] / s->page_tok + 1;

			in_order(c, c->kv.k, r, h / GROUP, k);
			in_order(c, c->kv.v, r, h / GROUP, v);
			bench_row_ref(s, c->q + row, k, v, l ? l->block + list * l->stride : NULL,
				      n, 0, c->ctx[r], want);
			for (size_t d = 0; d < dim; d++)
				worst = fmax(worst, fabs(want[d] - bf16_to_f32(out[row + d])));
		}
	free(k);
	free(want);
	return worst;
}

/* Whether the executor gives the same bits as decode_ref(), in out. */
static bool same_as_executor(const struct batch_case *c, int heads, const struct block_lists *l,
			     const bf16_t *out)
{
	const struct executor_lists lists = { .heads = heads, .blocks = *l };
	bf16_t *own = malloc(c->q_len * sizeof *own);
	struct ar_err err;
	bool same;

	if (executor_find("decode")->ref(
		    &(struct attn_call){ .b = &c->b, .q = c->q, .kv = c->kv, .out = own }, &lists,
		    &err))
		bail_out("%s", err.msg);
	same = !memcmp(own, out, c->q_len * sizeof *own);
	free(own);
	return same;
}

/* Two requests, two KV heads, groups of `heads` heads.  Tables are counted in binary, so that the
 * first is empty; the row's own block is in some tables only. */
static void test_tables(int page_tok, int heads)
{
	const struct attn_shape s = { 2 * GROUP, 2, 32, page_tok };
	const int ctx[] = { 2 * page_tok + 7, page_tok - 1 }, rows[] = { 1, 1 };
	int n_list = 2 * 2 * ((GROUP + heads - 1) / heads), n_zero = 0;
	uint16_t block[24 * MAX_BLK] = { 0 };
	int32_t n[24] = { 0 };
	struct block_lists l = { block, n, MAX_BLK };
	struct rng rng = { 5 };
	struct batch_case c;
	struct ar_err err;
	bf16_t *out;

	for (int i = 0; i < n_list; i++)
		for (int j = 0; j <= ctx[i / (n_list / 2)] / page_tok; j++)
			if (i >> j & 1)
				block[i * MAX_BLK + n[i]++] = (uint16_t)j;
	case_chunks(&c, &rng, FILL_NORMAL, s, 2, ctx, rows);
	out = malloc(c.q_len * sizeof *out);
	is_int(decode_ref(&(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv, .out = out }, heads,
			  &l, &err),
	       AR_OK, "decode under tables of %d heads, blocks of %d", heads, page_tok);
	ok(error_of(&c, heads, &l, out) < 0.02, "each row sees what its table lists");
	ok(same_as_executor(&c, heads, &l, out), "and under the executor");
	for (int d = 0; d < s.head_dim; d++)
		n_zero += out[d] == 0;
	is_int(n_zero, s.head_dim, "a row under an empty table is 0");
	is_int(decode_ref(&(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv, .out = out }, 0,
			  NULL, &err),
	       AR_OK, "decode without tables");
	ok(error_of(&c, GROUP, NULL, out) < 0.02, "each row sees all tokens up to its own");
	ok(same_as_executor(&c, 0, &(struct block_lists){ 0 }, out), "and under the executor");
	free(out);
	case_release(&c);
}

/* ---- windows and sinks ---- */

/* A row at position pos that sees keys from first on; k, v in order. */
static void naive_row(const bf16_t *q, const bf16_t *k, const bf16_t *v, int dim, int first,
		      int pos, double sink, double *out)
{
	double sum = exp(sink);

	for (int d = 0; d < dim; d++)
		out[d] = 0;
	for (int key = first; key <= pos; key++) {
		double dot = 0;

		for (int d = 0; d < dim; d++)
			dot += (double)bf16_to_f32(q[d]) * bf16_to_f32(k[key * dim + d]);
		sum += dot = exp(dot / sqrt(dim));
		for (int d = 0; d < dim; d++)
			out[d] += dot * bf16_to_f32(v[key * dim + d]);
	}
	for (int d = 0; d < dim; d++)
		out[d] /= sum;
}

/* worst, or the largest difference of a row from want[dim] if that is larger, or no number. */
static double farther(double worst, const double *want, const bf16_t *row, size_t dim)
{
	for (size_t d = 0; d < dim; d++) {
		double off = fabs(want[d] - bf16_to_f32(row[d]));

		worst = off > worst || isnan(off) ? off : worst; /* no number: it stays */
	}
	return worst;
}

/* The largest difference of out from naive rows. */
static double window_error(const struct batch_case *c, const bf16_t *out)
{
	const struct attn_shape *s = &c->b.shape;
	size_t dim = (size_t)s->head_dim;
	size_t len = (size_t)(c->b.keys.max_kv_blk * s->page_tok) * dim;
	bf16_t *k = malloc(2 * len * sizeof *k), *v = k + len;
	double *want = malloc(dim * sizeof *want), worst = 0;

	for (int r = 0; r < c->b.rows.n_req; r++)
		for (int h = 0; h < s->q_heads; h++) {
			size_t row = (size_t)(r * s->q_heads + h) * dim;

			in_order(c, c->kv.k, r, h / GROUP, k);
			in_order(c, c->kv.v, r, h / GROUP, v);
			naive_row(c->q + row, k, v, s->head_dim,
				  c->b.rows.first ? c->b.rows.first[r] : 0, c->ctx[r],
				  c->sink ? c->sink[h] : -INFINITY, want);
			worst = farther(worst, want, out + row, dim);
		}
	free(k);
	free(want);
	return worst;
}

/* window -1: none, only sinks. */
static void test_window(int page_tok, int window, bool sinks)
{
	const struct attn_shape s = { 2 * GROUP, 2, 32, page_tok };
	const int ctx[] = { 3 * page_tok + 7, page_tok - 1, 0, 4 * page_tok },
		  rows[] = { 1, 1, 1, 1 };
	struct rng rng = { 6 };
	struct batch_case c;
	struct ar_err err;
	bf16_t *out;
	double off;

	case_chunks(&c, &rng, FILL_NORMAL, s, 4, ctx, rows);
	if (window >= 0)
		case_window(&c, window, &rng);
	if (sinks)
		case_sinks(&c, &rng);
	out = malloc(c.q_len * sizeof *out);
	if (decode_ref(
		    &(struct attn_call){
			    .b = &c.b, .q = c.q, .kv = c.kv, .sink = c.sink, .out = out },
		    0, NULL, &err))
		bail_out("%s", err.msg);
	off = window_error(&c, out);
	ok(off < 0.02, "blocks of %d, window %d%s", page_tok, window, sinks ? ", sinks" : "");
	if (!(off < 0.02))
		diag("off by %g", off);
	free(out);
	case_release(&c);
}

/* ---- keys in any order ---- */

/* Of the worked example, keys 0, 1, ... have come in this order.  A row sees the keys up to its own
 * position: the outputs show them, as equal scores weigh values alike. */
static void test_order(void)
{
	static const int32_t key[12] = { 0, 3, 5, 1, 9, 2, 8, -1, -1, -1, -1, -1 };
	static const int32_t row0[] = { 0, 1, 2, 3 }, pos[] = { 6, 6, 6 }, left[3],
			     own[] = { 1, 3, 9 }, len[] = { 7, 7, 7 }, page0[4],
			     page[] = { 2, 0, 1 };
	static const char want[3][8] = { "1001000", "1101010", "1111111" };
	const struct attn_batch b = {
		.shape = { 1, 1, 8, 4 },
		.rows = { 3, 3, 3, row0, pos, pos, row0, left, NULL, own },
		.keys = { 3, 3, 1, len, page0, page, key },
	};
	bf16_t q[3 * 8] = { 0 }, k[3 * 4 * 8] = { 0 }, v[3 * 4 * 8] = { 0 }, out[3 * 8];
	struct ar_err err;
	int bad = 0;

	for (int i = 0; i < 7; i++)
		v[(page[i / 4] * 4 + i % 4) * 8 + i] = bf16_from_f32(1);
	is_int(decode_ref(
		       &(struct attn_call){ .b = &b, .q = q, .kv = { .k = k, .v = v }, .out = out },
		       0, NULL, &err),
	       AR_OK, "keys with positions of their own");
	for (int r = 0; r < 3; r++)
		for (int i = 0; i < 7; i++)
			bad += (bf16_to_f32(out[r * 8 + i]) > 0) != (want[r][i] == '1');
	is_int(bad, 0, "a row sees those up to its own, wherever they lie");
	is_int(out[0], bf16_from_f32(0.5f), "and weighs no other");
}

/* The largest difference of out from naive rows of a batch of case_positions(). */
static double order_error(const struct batch_case *c, const int *rows, const bf16_t *out)
{
	const struct attn_shape *s = &c->b.shape;
	size_t dim = (size_t)s->head_dim, len = 0;
	bf16_t *mem;
	double *want = malloc(dim * sizeof *want), worst = 0;
	int at = 0;

	for (int r = 0; r < c->n_seq; r++)
		len = fmax(len, c->page0[r + 1] - c->page0[r]);
	len *= (size_t)s->page_tok * dim;
	mem = malloc(4 * len * sizeof *mem);
	for (int r = 0; r < c->n_seq; r++)
		for (int i = 0; i < rows[r]; i++, at++)
			for (int h = 0; h < s->q_heads; h++) {
				const int32_t *pos = c->b.keys.pos + c->page0[r] * s->page_tok;
				bf16_t *k = mem, *v = mem + len, *to = mem + 2 * len;
				size_t row = (size_t)(at * s->q_heads + h) * dim;

				in_order(c, c->kv.k, r, h / GROUP, k);
				in_order(c, c->kv.v, r, h / GROUP, v);
				for (int t = 0; t < c->len[r]; t++) {
					size_t p = (size_t)pos[t] * dim;

					memcpy(to + p, k + (size_t)t * dim, dim * sizeof *to);
					memcpy(to + len + p, v + (size_t)t * dim, dim * sizeof *to);
				}
				naive_row(c->q + row, to, to + len, s->head_dim, 0,
					  c->b.rows.own[at], c->sink ? c->sink[h] : -INFINITY,
					  want);
				worst = farther(worst, want, out + row, dim);
			}
	free(mem);
	free(want);
	return worst;
}

static void test_positions(int page_tok, bool sinks)
{
	const struct attn_shape s = { 2 * GROUP, 2, 32, page_tok };
	const int ctx[] = { 3 * page_tok + 7, page_tok - 1, 0, 4 * page_tok },
		  one[] = { 1, 1, 1, 1 }, rows[] = { 9, 0, 1, 4 };
	struct rng rng = { 7 };
	struct batch_case c;
	struct ar_err err;
	bf16_t *out;
	double off;

	case_chunks(&c, &rng, FILL_NORMAL, s, 4, ctx, one);
	case_positions(&c, rows, &rng);
	if (sinks)
		case_sinks(&c, &rng);
	out = malloc(c.q_len * sizeof *out);
	if (decode_ref(
		    &(struct attn_call){
			    .b = &c.b, .q = c.q, .kv = c.kv, .sink = c.sink, .out = out },
		    0, NULL, &err))
		bail_out("%s", err.msg);
	off = order_error(&c, rows, out);
	ok(off < 0.02, "blocks of %d, keys in any order%s: off by %g", page_tok,
	   sinks ? ", sinks" : "", off);
	free(out);
	case_release(&c);
}

int main(void)
{
	static const int page[] = { 16, 64, 128 };

	plan(28 + 3 * 15 + 3);
	for (int i = 0; i < 3; i++) {
		const int window[] = { 1, 7, page[i], page[i] + 1, 1000, 0 };

		for (int k = 0; k < 12; k++)
			test_window(page[i], window[k / 2], k % 2);
		test_window(page[i], -1, true);
		test_positions(page[i], false);
		test_positions(page[i], true);
	}
	test_order();
	test_tables(64, 1);
	test_tables(64, GROUP);
	test_tables(128, 2);
	test_tables(16, 1);
	return done_testing();
}
