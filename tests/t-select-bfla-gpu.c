/* SPDX-License-Identifier: Apache-2.0 */
/* BFLA's masks on the device equal the reference, except blocks where rounding decides. */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/methods/method.h"
#include "kernels/select/bfla/bfla.h"
#include "tests/select_gpu.h"
#include "tests/tap.h"

static const char *const specs[] = {
	"bfla",
	"bfla:min-tokens=0,mass=0.9",
	"bfla:min-tokens=0,block=128,mass=0.8,stride=16,random=0.1",
	"bfla:min-tokens=0,block=128,group=128,mass=0.5,query-grid=absolute,sink=0,local=0",
	"bfla:min-tokens=0,block=512,group=128,mass=0.7,query-grid=absolute,local-anchor=first",
	"bfla:min-tokens=0,group=256,mass=0.7",
	"bfla:min-tokens=0,block=1024,group=256,mass=0.6,query-grid=absolute",
	"bfla:min-tokens=0,block=1024,mass=0.3,threshold=0.05",
	"bfla:min-tokens=0,mass=0,ratio=0.3",
	"bfla:min-tokens=0,pool=mean,mass=0.8",
	"bfla:min-tokens=0,pool=center,block=128,mass=0,min-blocks=5,query-grid=absolute",
	"bfla:min-tokens=0,pool=maxabs,block=512,mass=0.6,ratio=0.1",
	"bfla:min-tokens=0,mass=0.7,score-div=64",
	"bfla:min-tokens=0,block=128,mass=0.6,score-div=64,padding=exclude,query-grid=absolute",
	"bfla:min-tokens=0,block=512,group=128,mass=0.5,min-blocks=3,mask-future=1",
	"bfla:mass=1",
};
enum { N_SPEC = sizeof specs / sizeof *specs, N_TEST = 3 * N_SPEC + 3 };

#if HAVE_CUDA
/* ---- blocks where rounding decides ---- */

/* One channel of a token; absent ones are zeros. */
static double query_at(const struct batch_case *c, int r, int h, int pos, int d)
{
	const struct attn_shape *s = &c->b.shape;
	int row = c->row0[r] + pos - c->ctx[r];

	if (pos < c->ctx[r] || row >= c->row0[r + 1])
		return 0;
	return bf16_to_f32(c->q[(row * s->q_heads + h) * s->head_dim + d]);
}

static double key_at(const struct batch_case *c, int r, int h, int pos, int d)
{
	const struct attn_shape *s = &c->b.shape;
	size_t at;

	if (pos >= c->ctx[r] + c->row0[r + 1] - c->row0[r])
		return 0;
	at = (size_t)(c->page[c->page0[r] + pos / s->page_tok] * s->kv_heads +
		      h / (s->q_heads / s->kv_heads));
	return bf16_to_f32(c->kv.k[(at * (size_t)s->page_tok + (size_t)(pos % s->page_tok)) *
					   (size_t)s->head_dim +
				   (size_t)d]);
}

typedef double at_fn(const struct batch_case *c, int r, int h, int pos, int d);

static double pool(const struct batch_case *c, const struct bfla *p, at_fn *at, int r, int h,
		   int from, int d)
{
	double x = 0;

	if (p->pool == BFLA_CENTER)
		return at(c, r, h, from + (int)p->block / 2, d);
	for (int t = 0; t < p->block; t++) {
		double y = at(c, r, h, from + t, d);

		if (p->pool == BFLA_MEAN)
			x += y / (double)p->block;
		else if (fabs(y) > fabs(x))
			x = y;
	}
	return p->pool == BFLA_MEAN ? bf16_round((float)x) : x;
}

/* The score of the blocks at q0 and k0; *size: the sum of the magnitudes of its terms. */
static double score(const struct batch_case *c, const struct bfla *p, int r, int h, int q0, int k0,
		    double *size)
{
	struct bfla_rows rows = bfla_rows(p, c->ctx[r], c->row0[r + 1] - c->row0[r]);
	double best = -INFINITY;
	int g = p->pool == BFLA_FLAT ? (int)p->group : (int)p->block;

	*size = 0;
	for (int u = 0; u < p->block; u += g)
		for (int v = 0; v < p->block; v += g) {
			double sum = 0, all = 0;

			if (p->pool == BFLA_FLAT && !bfla_offers(p, &rows, q0 + u, k0 + v))
				continue;
			for (int t = 0; t < (p->pool == BFLA_FLAT ? g : 1); t++)
				for (int d = 0; d < c->b.shape.head_dim; d++) {
					double x = p->pool == BFLA_FLAT ?
							   query_at(c, r, h, q0 + u + t, d) *
								   key_at(c, r, h, k0 + v + t, d) :
							   pool(c, p, query_at, r, h, q0, d) *
								   pool(c, p, key_at, r, h, k0, d);

					sum += x;
					all += fabs(x);
				}
			best = fmax(best, sum);
			*size = fmax(*size, all);
		}
	return best;
}

/* Whether errors of up to slack in the logits x[0 ... n) may decide over block j. */
static bool in_doubt(const struct bfla *p, const double *x, int n, int j, double slack, int top)
{
	double sure = 0, most = 0, all = 0, eps = 4 * slack + 1e-5, share;
	int above = 0, not_below = 0;

	for (int k = 0; k < n; k++) {
		double w = exp(x[k] - x[j]);

		all += w;
		if (x[k] > x[j] + slack) {
			sure += w;
			above++;
		}
		if (k != j && x[k] >= x[j] - slack) {
			most += w;
			not_below++;
		}
	}
	share = 1 / all;
	if (p->mass > 0 && most * share >= p->mass - eps && sure * share <= p->mass + eps)
		return true;
	if (fabs(share - p->threshold) <= eps * p->threshold)
		return true;
	return (p->ratio > 0 || p->least > 0) && not_below >= top && above < top;
}

/* Whether rounding may decide over coarse block j of query block i in any head of a KV head. */
static bool row_in_doubt(const struct batch_case *c, const struct bfla *p, int r, int i,
			 int kv_head, int j)
{
	const struct attn_shape *s = &c->b.shape;
	struct bfla_rows rows = bfla_rows(p, c->ctx[r], c->row0[r + 1] - c->row0[r]);
	int n = bfla_last(p, &rows, i) + 1, b = (int)p->block, group = s->q_heads / s->kv_heads;
	double *x = calloc((size_t)n, sizeof *x), scale = bfla_scale(p, s->head_dim);
	bool doubt = false;

	for (int h = kv_head * group; !doubt && j < n && h < (kv_head + 1) * group; h++) {
		double most = 0, size;

		for (int k = 0; k < n; k++) {
			x[k] = scale * score(c, p, r, h, rows.origin + i * b, k * b, &size);
			most = fmax(most, size);
		}
		doubt = in_doubt(p, x, n, j, 1e-6 + 6e-6 * scale * most,
				 bfla_top(p, (rows.end + b - 1) / b));
	}
	free(x);
	return doubt;
}

/* Whether a differing bit of query block q and block j of pages is in doubt. */
static bool explained(const struct batch_case *c, const struct bfla *p, int r, int q, int head,
		      int j)
{
	const struct attn_shape *s = &c->b.shape;
	struct bfla_rows rows = bfla_rows(p, c->ctx[r], c->row0[r + 1] - c->row0[r]);
	int qa = c->ctx[r] / s->page_tok + q, b = (int)p->block;
	int from = qa * s->page_tok, to = from + s->page_tok;

	from = from > rows.ctx ? from : rows.ctx;
	to = to < rows.end ? to : rows.end;
	for (int i = (from - rows.origin) / b; i <= (to - 1 - rows.origin) / b; i++)
		if (row_in_doubt(c, p, r, i, head / (s->q_heads / s->kv_heads),
				 j * s->page_tok / b))
			return true;
	return false;
}

static int row_faults(const struct select_pair *p, int r, int i, int h, const uint32_t *got,
		      const uint32_t *want)
{
	int n = 0;

	for (int j = 0; j < p->c.b.keys.mask_words * 32; j++)
		if ((got[j / 32] ^ want[j / 32]) >> j % 32 & 1)
			n += !explained(&p->c, p->self, r, i, h, j);
	return n;
}

/* ---- cases ---- */

static bool same_masks(const struct method *m, struct rng *rng, struct attn_shape s, int n,
		       const int *ctx, const int *rows, float scale)
{
	static const enum case_fill fills[] = { FILL_NORMAL, FILL_NORMAL, FILL_BLOCKS, FILL_EQUAL };
	struct select_pair p = { .selector = method_prefill(m)->selector,
				 .self = method_prefill(m)->self };
	bool good;

	case_chunks(&p.c, rng, fills[rng_below(rng, 4)], s, n, ctx, rows);
	for (size_t i = 0; i < p.c.q_len; i++)
		p.c.q[i] = bf16_from_f32(bf16_to_f32(p.c.q[i]) * scale);
	select_both(&p);
	good = select_agrees(&p, row_faults);
	select_release(&p);
	return good;
}

/* Long contexts in one case of four, long chunks in another. */
static bool agrees(const struct method *m, int dim, uint64_t seed)
{
	static const float scales[] = { 0.02f, 0.1f, 1 };
	struct rng rng = { seed };
	struct attn_shape s = { 8, seed % 3 ? 2 : 4, dim, 128 };
	int n = 1 + (int)rng_below(&rng, 3), ctx[3], rows[3];
	bool good;

	for (int r = 0; r < n; r++) {
		ctx[r] = (int)rng_below(&rng, seed % 4 == 1 ? 18000 : 3000);
		rows[r] = 1 + (int)rng_below(&rng, seed % 4 == 2 ? 3000 : 500);
		ctx[r] -= rng_below(&rng, 2) ? ctx[r] % 128 : 0;
	}
	good = same_masks(m, &rng, s, n, ctx, rows, scales[seed % 3]);
	if (!good)
		diag("seed %llu", (unsigned long long)seed);
	return good;
}

/* Enough requests for large tiles. */
static void test_many(void)
{
	enum { N = 40 };
	struct rng rng = { 40 };
	int ctx[N], rows[N], good = 0;
	struct ar_err err;
	struct method *m;

	for (int r = 0; r < N; r++) {
		ctx[r] = r ? (int)rng_below(&rng, 600) : 9000;
		rows[r] = 1 + (int)rng_below(&rng, 200);
	}
	gpu_must(method_parse(&m, "bfla:min-tokens=0,mass=0.9", &err), &err);
	for (int k = 0; k < 3; k++)
		good += same_masks(m, &rng, (struct attn_shape){ 16, 8, 64, 128 }, N, ctx, rows,
				   0.1f);
	is_int(good, 3, "40 requests, 16 heads over 8");
	method_free(m);
}

/* One request more or less changes the number of parts into which products are cut.  One token more
 * changes whether a row's blocks are compared each with each. */
static void test_borders(void)
{
	enum { N = 20 };
	struct rng rng = { 128 };
	int ctx[N], rows[N], good = 0;
	struct ar_err err;
	struct method *m;

	gpu_must(method_parse(&m, "bfla:min-tokens=0,block=128,mass=0.8,min-blocks=9", &err), &err);
	for (int n = 1; n <= N; n++) {
		for (int r = 0; r < n; r++) {
			ctx[r] = (int)rng_below(&rng, 1500);
			rows[r] = (int)rng_below(&rng, 150);
		}
		good += same_masks(m, &rng, (struct attn_shape){ 8, 4, 64, 128 }, n, ctx, rows,
				   0.1f);
	}
	is_int(good, N, "1 to 20 requests, some without a row");
	good = 0;
	rows[0] = 200;
	for (int k = 0; k < 3; k++) {
		ctx[0] = 16383 - rows[0] + k;
		good += same_masks(m, &rng, (struct attn_shape){ 2, 1, 64, 128 }, 1, ctx, rows,
				   0.1f);
	}
	is_int(good, 3, "128 blocks and 129");
	method_free(m);
}

static void run_all(void)
{
	int n = (int)gpu_test_number("ATTNREPLAY_TEST_CASES", 6);

	for (int i = 0; i < N_SPEC; i++) {
		struct method *m;
		struct ar_err err;

		gpu_must(method_parse(&m, specs[i], &err), &err);
		for (int dim = 64; dim <= 256; dim *= 2) {
			int good = 0;

			for (int k = 0; k < n; k++)
				good += agrees(m, dim, (uint64_t)(i * 100000 + dim * 100 + k));
			is_int(good, n, "%s, heads of %d", specs[i], dim);
		}
		method_free(m);
	}
	test_many();
	test_borders();
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
