/* SPDX-License-Identifier: Apache-2.0 */
/* Skip-softmax of the references: the worked tables of chunks and decodes, settings that skip
 * nothing, and batches against votes that are taken here, in double. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/batch_case.h"
#include "tests/tap.h"

/* out in fp32, the logarithms of sums, and tiles walked and skipped of each KV head. */
struct result {
	bf16_t *out;
	float *f, *lse;
	size_t n, n_lse;
	int64_t count[8];
};

static void result_free(struct result *x)
{
	free(x->out);
	free(x->f);
	free(x->lse);
}

typedef enum ar_status run_fn(const struct attn_call *call, struct ar_err *err);

static enum ar_status run_chunks(const struct attn_call *call, struct ar_err *err)
{
	return attend_ref(call, attend_plan_rows, 0, &(struct block_lists){ 0 }, err);
}

static enum ar_status run_decodes(const struct attn_call *call, struct ar_err *err)
{
	return decode_ref(call, 0, NULL, err);
}

static struct result run(struct batch_case *c, run_fn *fn, struct attn_skip skip)
{
	struct result x = { .n = c->q_len, .n_lse = c->q_len / (size_t)c->b.shape.head_dim };
	struct ar_err err;

	x.out = malloc(x.n * sizeof *x.out);
	x.f = malloc(x.n * sizeof *x.f);
	x.lse = malloc(x.n_lse * sizeof *x.lse);
	if (!x.out || !x.f || !x.lse)
		bail_out("out of memory");
	skip.count = x.count;
	c->b.skip = skip;
	if (fn(&(struct attn_call){ .b = &c->b,
				    .q = c->q,
				    .kv = c->kv,
				    .sink = c->sink,
				    .out = x.out,
				    .lse = x.lse },
	       &err))
		bail_out("%s", err.msg);
	for (size_t i = 0; i < x.n; i++)
		x.f[i] = bf16_to_f32(x.out[i]);
	return x;
}

/* The scaled logit of a row under a head and of a key at position t, in request r. */
static double logit(const struct batch_case *c, int r, int row, int h, int t)
{
	const struct attn_shape *s = &c->b.shape;
	size_t dim = (size_t)s->head_dim;
	const bf16_t *q = c->q + (size_t)(row * s->q_heads + h) * dim;
	size_t page = (size_t)c->page[c->page0[r] + t / s->page_tok];
	const bf16_t *k = c->kv.k +
			  ((page * (size_t)s->kv_heads + (size_t)(h / (s->q_heads / s->kv_heads))) *
				   (size_t)s->page_tok +
			   (size_t)(t % s->page_tok)) *
				  dim;
	double sum = 0;

	for (size_t d = 0; d < dim; d++)
		sum += (double)bf16_to_f32(q[d]) * bf16_to_f32(k[d]);
	return sum / sqrt((double)dim);
}

/* ---- the worked tables ---- */

/* Four heads over two KV heads, logits without a scale: queries are doubled, as the root of four
 * channels is 2. */
static void worked_case(struct batch_case *c, int len, int ctx)
{
	case_decode_keys(c, len);
	case_cut(c, &ctx, (int[]){ len - ctx });
	for (size_t i = 0; i < c->q_len; i++)
		c->q[i] = bf16_from_f32(2 * bf16_to_f32(c->q[i]));
}

/* The share of a row's softmax in the tiles of four keys that have a 'k'. */
static double recall_of(const struct batch_case *c, int row, int h, const char *kept)
{
	double sum = 0, all = 0;

	for (int t = 0; t <= c->b.rows.pos[row]; t++) {
		double e = exp(logit(c, 0, row, h, t));

		all += e;
		sum += kept[t / 4] == 'k' ? e : 0;
	}
	return sum / all;
}

/* exp(lse - dense lse) of a row. */
static double recall(const struct result *x, const struct result *dense, int row, int h)
{
	return exp((double)x->lse[row * 4 + h] - (double)dense->lse[row * 4 + h]);
}

struct chunk_row {
	int head;
	float scale;
	bool clamp;
	const char *tiles[2]; /* of rows 32 to 35 and 36 to 39 */
	double recall[8];     /* by row */
};

static const struct chunk_row chunk_rows[] = {
	{ 0, 2, true, { "kkkkkkkkk", "kkkkkkkkkk" }, { 1, 1, 1, 1, 1, 1, 1, 1 } },
	{ 0,
	  8,
	  true,
	  { "kkksskssk", "kkksskssks" },
	  { .8417, .9403, .9955, .8322, .8317, .9952, .9359, .8203 } },
	{ 3,
	  2,
	  true,
	  { "kkksksskk", "kkksksskkk" },
	  { .9438, .9780, .9744, .9642, .9862, .9920, .9780, .9443 } },
	{ 3, 8, true, { "kkksssssk", "kkkssssskk" }, { 0 } },
	{ 0,
	  80,
	  false,
	  { "kkkssssss", "kkksssssss" },
	  { .3971, .6496, .9731, .5976, .5972, .9729, .6465, .3866 } },
};

static int count_letter(const char *text, char c)
{
	int n = 0;

	for (; *text; text++)
		n += *text == c;
	return n;
}

static void test_chunk_row(struct batch_case *c, const struct result *dense,
			   const struct chunk_row *e)
{
	struct result x = run(c, run_chunks,
			      (struct attn_skip){
				      .scale = e->scale, .clamp = e->clamp, .rows = 4, .keys = 4 });
	double off = 0, off_printed = 0;

	for (int row = 0; row < 8; row++) {
		double got = recall(&x, dense, row, e->head);

		off = fmax(off, fabs(got - recall_of(c, row, e->head, e->tiles[row / 4])));
		if (e->recall[0] > 0)
			off_printed = fmax(off_printed, fabs(got - e->recall[row]));
	}
	ok(off < 1e-5, "head %d, scale %g%s: tiles %s and %s", e->head, (double)e->scale,
	   e->clamp ? "" : " without a clamp", e->tiles[0], e->tiles[1]);
	ok(off_printed < 6e-5, "the recalls of the table");
	result_free(&x);
}

/* Tiles that head h skips alone: all heads but h look at nothing. */
static void test_chunk_count(struct batch_case *c, const struct chunk_row *e)
{
	struct result x;
	int walked = 0, skipped = 0;

	for (int i = 0; i < 2; i++) {
		walked += (int)strlen(e->tiles[i]);
		skipped += count_letter(e->tiles[i], 's');
	}
	/* the other head of the KV head has equal logits, and skips nothing below threshold 1 */
	for (int row = 0; row < 8; row++)
		memset(c->q + (row * 4 + (e->head ^ 1)) * 4, 0, 4 * sizeof *c->q);
	x = run(c, run_chunks,
		(struct attn_skip){ .scale = e->scale, .clamp = e->clamp, .rows = 4, .keys = 4 });
	is_int(x.count[e->head / 2 * 2], 2 * walked, "head %d, scale %g: tiles walked", e->head,
	       (double)e->scale);
	is_int(x.count[e->head / 2 * 2 + 1], skipped, "tiles skipped");
	result_free(&x);
}

static void test_chunks(void)
{
	for (size_t i = 0; i < sizeof chunk_rows / sizeof *chunk_rows; i++) {
		struct batch_case c;
		struct result dense;

		worked_case(&c, 40, 32);
		dense = run(&c, run_chunks, (struct attn_skip){ 0 });
		test_chunk_row(&c, &dense, &chunk_rows[i]);
		if (chunk_rows[i].clamp)
			test_chunk_count(&c, &chunk_rows[i]);
		result_free(&dense);
		case_release(&c);
	}
}

struct decode_row {
	int kv_head;
	float scale;
	int parts;
	const char *tiles;
	double recall[2]; /* of its heads */
};

static const struct decode_row decode_rows[] = {
	{ 0, 2, 1, "kksskkskks", { .9780, .9756 } }, { 0, 2, 3, "kkkkkkkkkk", { 1, 1 } },
	{ 0, 8, 1, "kkssssssks", { .8908, .7858 } }, { 0, 8, 3, "kkkkskssks", { .9445, .8574 } },
	{ 1, 2, 1, "kkssksskkk", { .9894, .9780 } }, { 1, 2, 3, "kkkkkkkkkk", { 1, 1 } },
	{ 1, 8, 1, "kksssssskk", { .9317, .9716 } }, { 1, 8, 3, "kkkkskkskk", { .9422, .9936 } },
	{ 0, 40, 1, "kkkkkkkkkk", { 1, 1 } },
};

static void test_decode_row(struct batch_case *c, const struct result *dense,
			    const struct decode_row *e)
{
	struct result x =
		run(c, run_decodes,
		    (struct attn_skip){
			    .scale = e->scale, .clamp = true, .keys = 4, .parts = e->parts });
	double off = 0, off_printed = 0;

	for (int i = 0; i < 2; i++) {
		int head = 2 * e->kv_head + i;
		double got = recall(&x, dense, 0, head);

		off = fmax(off, fabs(got - recall_of(c, 0, head, e->tiles)));
		off_printed = fmax(off_printed, fabs(got - e->recall[i]));
	}
	ok(off < 1e-5, "KV head %d, scale %g, parts %d: tiles %s", e->kv_head, (double)e->scale,
	   e->parts, e->tiles);
	ok(off_printed < 6e-5, "the recalls of the table");
	is_int(x.count[2 * e->kv_head], 10, "tiles walked");
	is_int(x.count[2 * e->kv_head + 1], count_letter(e->tiles, 's'), "tiles skipped");
	result_free(&x);
}

/* The relative difference of a head of the only row. */
static double rel_l2(const struct result *x, const struct result *dense, int h)
{
	double off = 0, all = 0;

	for (int d = h * 4; d < h * 4 + 4; d++) {
		off += pow((double)x->f[d] - (double)dense->f[d], 2);
		all += pow((double)dense->f[d], 2);
	}
	return sqrt(off / all);
}

static void test_decodes(void)
{
	struct batch_case c;
	struct result dense, x;

	worked_case(&c, 39, 38);
	dense = run(&c, run_decodes, (struct attn_skip){ 0 });
	for (size_t i = 0; i < sizeof decode_rows / sizeof *decode_rows; i++)
		test_decode_row(&c, &dense, &decode_rows[i]);
	x = run(&c, run_decodes, (struct attn_skip){ .scale = 8, .keys = 4, .parts = 0 });
	ok(fabs(rel_l2(&x, &dense, 0) - .1179) < 4e-3 && fabs(rel_l2(&x, &dense, 1) - .4476) < 4e-3,
	   "a reference has one part where the kernel cuts; the errors of the table");
	result_free(&x);
	result_free(&dense);
	case_release(&c);
}

/* ---- against votes in double ---- */

enum { MOST_ROWS = 200 };

/* Rows that vote together, in request r under the heads [head, head + n_head), and what they have
 * summed up. */
struct voters {
	int r, row, n_row, head, n_head;
	double top[MOST_ROWS], sum[MOST_ROWS]; /* of kept tiles */
	double seen[4][MOST_ROWS];	       /* decodes: of each part */
};

/* The largest logits of the keys [from, to) and the sum of their exponentials. */
static void look(const struct batch_case *c, const struct voters *v, int i, int from, int to,
		 double *top, double *sum)
{
	int row = v->row + i / v->n_head;

	*top = -INFINITY;
	*sum = 0;
	for (int t = from; t < to && t <= c->b.rows.pos[row]; t++) {
		double x = logit(c, v->r, row, v->head + i % v->n_head, t);

		*top = fmax(*top, x);
		*sum += exp(x);
	}
}

/* Walk tile j.  below: the logarithm of the threshold. */
static void take_tile(const struct batch_case *c, struct voters *v, int j, int n_part, double below)
{
	const struct attn_skip *s = &c->b.skip;
	int n = v->n_row * v->n_head;
	double top[MOST_ROWS], sum[MOST_ROWS], *seen = s->rows ? v->top : v->seen[j % n_part];
	bool skips = j >= n_part;

	for (int i = 0; i < n; i++) {
		look(c, v, i, j * s->keys, (j + 1) * s->keys, &top[i], &sum[i]);
		skips = skips && top[i] - seen[i] < below;
	}
	for (int i = 0; i < n; i++) {
		if (!skips || !s->rows)
			seen[i] = fmax(seen[i], top[i]);
		v->sum[i] += skips ? 0 : sum[i];
	}
}

/* The largest difference of lse from that of these voters. */
static double voters_error(const struct batch_case *c, const struct result *x, struct voters v)
{
	const struct attn_skip *s = &c->b.skip;
	int last = c->b.rows.pos[v.row + v.n_row - 1], n_tile = last / s->keys + 1;
	int n_part = s->rows ? 1 : (int)fmin(fmax(s->parts, 1), n_tile);
	double threshold = s->threshold > 0 ? s->threshold : s->scale / c->b.keys.len[v.r];
	double off = 0;

	if (threshold > 1)
		threshold = s->rows ? 1 : 0;
	for (int i = 0; i < v.n_row * v.n_head; i++) {
		v.top[i] = -INFINITY;
		for (int k = 0; k < 4; k++)
			v.seen[k][i] = -INFINITY;
	}
	for (int j = 0; j < n_tile; j++)
		take_tile(c, &v, j, n_part, log(threshold));
	for (int i = 0; i < v.n_row * v.n_head; i++) {
		int at = (v.row + i / v.n_head) * c->b.shape.q_heads + v.head + i % v.n_head;

		off = fmax(off, fabs(log(v.sum[i]) - (double)x->lse[at]));
	}
	return off;
}

static double batch_error(const struct batch_case *c, const struct result *x)
{
	const struct attn_skip *s = &c->b.skip;
	int group = c->b.shape.q_heads / c->b.shape.kv_heads, heads = s->rows ? 1 : group;
	double off = 0;

	for (int r = 0; r < c->b.rows.n_req; r++)
		for (int head = 0; head < c->b.shape.q_heads; head += heads)
			for (int row = c->b.rows.row0[r], n; row < c->b.rows.row0[r + 1];
			     row += n) {
				n = c->b.rows.row0[r + 1] - row;
				n = s->rows && s->rows < n ? s->rows : n;
				off = fmax(off, voters_error(c, x,
							     (struct voters){ .r = r,
									      .row = row,
									      .n_row = n,
									      .head = head,
									      .n_head = heads }));
			}
	return off;
}

/* Ragged batches whose logits rise and fall, so that some tiles are skipped. */
static void test_batch(struct attn_shape s, bool decodes, struct attn_skip skip)
{
	const int ctx[] = { 0, 300, 517 }, rows[] = { 150, 70, 129 }, one[] = { 1, 1, 1 };
	struct rng rng = { 9 };
	struct batch_case c;
	struct result x;
	int64_t skipped = 0, walked = 0;

	case_chunks(&c, &rng, FILL_HUGE, s, 3, ctx, decodes ? one : rows);
	for (size_t i = 0; i < c.q_len; i++)
		c.q[i] = bf16_from_f32(bf16_to_f32(c.q[i]) / 8);
	x = run(&c, decodes ? run_decodes : run_chunks, skip);
	for (int h = 0; h < s.kv_heads; h++) {
		walked += x.count[2 * h];
		skipped += x.count[2 * h + 1];
	}
	ok(batch_error(&c, &x) < 1e-3 && skipped > 0 && skipped < walked,
	   "blocks of %d, tiles of %d x %d, %d parts, scale %g, threshold %g", s.page_tok,
	   skip.rows, skip.keys, skip.parts, (double)skip.scale, (double)skip.threshold);
	result_free(&x);
	case_release(&c);
}

static void test_batches(void)
{
	static const int page[] = { 16, 64, 128 };

	for (int i = 0; i < 3; i++) {
		struct attn_shape s = { 6, 2, 16, page[i] };

		for (int k = 64; k <= 128; k *= 2) {
			test_batch(s, false,
				   (struct attn_skip){
					   .scale = 100, .clamp = true, .rows = 64, .keys = k });
			test_batch(s, false,
				   (struct attn_skip){ .threshold = 0.5f, .rows = 32, .keys = k });
		}
		test_batch(s, true, (struct attn_skip){ .threshold = 0.2f, .keys = 64 });
		test_batch(s, true, (struct attn_skip){ .scale = 200, .keys = 64, .parts = 4 });
	}
}

/* ---- what skips nothing ---- */

static bool same(const struct result *a, const struct result *b)
{
	return !memcmp(a->out, b->out, a->n * sizeof *a->out) &&
	       !memcmp(a->lse, b->lse, a->n_lse * sizeof *a->lse);
}

static void test_nothing(bool decodes)
{
	const int ctx[] = { 300, 40 }, rows[] = { 70, 129 }, one[] = { 1, 1 };
	run_fn *fn = decodes ? run_decodes : run_chunks;
	int r = decodes ? 0 : 64, k = decodes ? 64 : 128;
	struct rng rng = { 10 };
	struct batch_case c;
	struct result dense, x;
	float *sink;

	case_chunks(&c, &rng, FILL_NORMAL, (struct attn_shape){ 6, 2, 16, 64 }, 2, ctx,
		    decodes ? one : rows);
	dense = run(&c, fn, (struct attn_skip){ 0 });
	x = run(&c, fn, (struct attn_skip){ .rows = r, .keys = k });
	ok(same(&x, &dense) && !x.count[0], "scale 0 has the bits of dense, and counts nothing");
	result_free(&x);
	x = run(&c, fn, (struct attn_skip){ .threshold = 1e-30f, .rows = r, .keys = k });
	ok(same(&x, &dense) && x.count[0] && !x.count[1], "so has a threshold of almost 0");
	result_free(&x);
	x = run(&c, fn, (struct attn_skip){ .scale = 500, .clamp = true, .rows = r, .keys = k });
	ok(same(&x, &dense) == decodes, "above 1, decodes skip nothing, chunks skip as at 1");
	result_free(&x);
	result_free(&dense);
	case_sinks(&c, &rng);
	dense = run(&c, fn, (struct attn_skip){ 0 });
	x = run(&c, fn, (struct attn_skip){ .threshold = 1, .rows = r, .keys = k });
	ok(same(&x, &dense) && !x.count[0], "rows with sinks skip nothing");
	result_free(&x);
	result_free(&dense);
	sink = c.sink;
	c.sink = NULL;
	case_window(&c, 50, &rng);
	dense = run(&c, fn, (struct attn_skip){ 0 });
	x = run(&c, fn, (struct attn_skip){ .threshold = 1, .rows = r, .keys = k });
	ok(same(&x, &dense) && !x.count[0], "nor do rows under a window");
	result_free(&x);
	result_free(&dense);
	c.sink = sink;
	case_release(&c);
}

int main(void)
{
	plan(0);
	test_chunks();
	test_decodes();
	test_batches();
	test_nothing(false);
	test_nothing(true);
	return done_testing();
}
