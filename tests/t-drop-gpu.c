/* SPDX-License-Identifier: Apache-2.0 */
/* Droppers on the device equal the references, except where rounding decides. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "kernels/drop/lazyllm/lazyllm.h"
#include "kernels/drop/sliminfer/sliminfer.h"
#include "tests/drop_case.h"
#include "tests/drop_ranks.h"
#include "tests/gpu_test.h"
#include "tests/select_gpu.h"
#include "tests/tap.h"

/* Beside the bands of all droppers. */
enum { N_DIM = 3, N_TEST = 1 + 1 + 2 * N_DIM + 4 * N_DIM + 2 + 6 };

#if HAVE_CUDA
#include "kernels/prim/cuda.h"

static int cases(int usual)
{
	return (int)gpu_test_number("ATTNREPLAY_TEST_CASES", usual);
}

/* huge: logits may be so large that a rounding of one changes its row. */
static void draw_case(struct batch_case *c, struct rng *rng, int dim, int most, bool huge, int *ctx,
		      int *rows)
{
	static const enum case_fill fills[] = { FILL_NORMAL, FILL_BLOCKS, FILL_HUGE };
	static const int heads[][2] = { { 8, 2 }, { 3, 3 }, { 5, 1 }, { 12, 2 } };
	const int *h = heads[rng_below(rng, 4)];
	struct attn_shape s = { h[0], h[1], dim, rng_below(rng, 2) ? 64 : 128 };
	int n = select_draw(rng, 1, 3);

	for (int r = 0; r < n; r++) {
		ctx[r] = rng_below(rng, 2) ? 0 : select_draw(rng, 0, most / 4);
		rows[r] = case_draw_len(rng, most);
	}
	case_chunks(c, rng, fills[rng_below(rng, huge ? 3 : 2)], s, n, ctx, rows);
}

/* ---- numbers of the rows that stay ---- */

static bool index_agrees(uint64_t seed)
{
	struct rng rng = { seed };
	int n = select_draw(&rng, 1, 5), ctx[5] = { 0 }, rows[5];
	struct drop_kept want, got;
	struct batch_case c;
	struct attn_batch b;
	struct ar_err err;
	uint8_t *keep;
	bool good;

	for (int r = 0; r < n; r++)
		rows[r] = rng_below(&rng, 5) ? case_draw_len(&rng, 9000) : 0;
	case_bare_chunks(&c, &rng, (struct attn_shape){ 1, 1, 64, 64 }, n, ctx, rows);
	want = drop_kept_new(&c);
	got = drop_kept_new(&c);
	for (int i = 0; i < c.b.rows.n_row; i++)
		want.keep[i] = rng_below(&rng, seed % 4 + 1) == 0;
	drop_index(&c.b.rows, &want);
	b = gpu_batch(&c.b);
	keep = gpu_copy(want.keep, (size_t)c.b.rows.n_row);
	{
		struct drop_kept d = { keep, gpu_new((size_t)n * sizeof(int32_t), 0xff),
				       gpu_new((size_t)c.b.rows.n_row * sizeof(int32_t), 0xff) };

		gpu_must(drop_index_enqueue(&b.rows, &d,
					    gpu_new(drop_index_work_bytes(c.b.rows.n_row), 0xff),
					    NULL, &err),
			 &err);
		gpu_read(got.n_keep, d.n_keep, (size_t)n * sizeof(int32_t));
		gpu_read(got.index, d.index, (size_t)c.b.rows.n_row * sizeof(int32_t));
	}
	good = !memcmp(got.n_keep, want.n_keep, (size_t)n * sizeof(int32_t));
	for (int r = 0, k = 0; good && r < n; k += want.n_keep[r++])
		good = !memcmp(got.index + k, want.index + k,
			       (size_t)want.n_keep[r] * sizeof(int32_t));
	if (!good)
		diag("seed %llu: %d requests, %d rows", (unsigned long long)seed, n,
		     c.b.rows.n_row);
	drop_kept_free(&want);
	drop_kept_free(&got);
	gpu_free_all();
	case_release(&c);
	return good;
}

/* ---- masses ---- */

/* The masses of request r from the device's parts. */
static void add_parts(const struct mass_rule *m, const struct batch_case *c, int r,
		      const float *part, float *mass)
{
	int64_t room = mass_room(m, &c->b.shape, c->b.keys.n_page, c->b.rows.n_req);

	for (int i = 0; i < mass_blocks(m, &c->b, r); i++) {
		mass[i] = 0;
		for (int h = 0; h < c->b.shape.kv_heads; h++)
			mass[i] += part[h * room + mass_first(m, &c->b, r) + i];
	}
}

/* Of sums in fp32 a thousandth may differ.  A score that rounds to its other neighbour changes a
 * probability by up to 2^-8 of the score. */
static bool mass_near(const struct mass_rule *m, const struct batch_case *c, int r,
		      const float *got, const float *want)
{
	double rel = m->round ? 0.06 : 2e-3, least = 1e-5 * m->n * c->b.shape.q_heads;
	double worst = 0;
	int at = 0;

	for (int i = 0; i < mass_blocks(m, &c->b, r); i++) {
		double off = fabs((double)got[i] - (double)want[i]) / ((double)want[i] + least);

		if (!(off <= worst)) {
			worst = off;
			at = i;
		}
	}
	if (worst <= rel)
		return true;
	diag("request %d, heads %d/%d of %d, page %d, rows %d, ctx %d, n %d, block %d%s%s", r,
	     c->b.shape.q_heads, c->b.shape.kv_heads, c->b.shape.head_dim, c->b.shape.page_tok,
	     attn_n_row(&c->b.rows, r), c->ctx[r], m->n, m->block, m->chunk ? ", chunk" : "",
	     m->round ? ", rounded" : "");
	diag("block %d of %d: %g, not %g", at, mass_blocks(m, &c->b, r), (double)got[at],
	     (double)want[at]);
	return false;
}

static bool mass_agrees(int dim, bool round, uint64_t seed)
{
	static const int counts[] = { 1, 24, 32, 100, 128, 200, 512 };
	static const int blocks[] = { 1, 16, 64, 128 };
	struct rng rng = { seed };
	struct mass_rule m = { counts[rng_below(&rng, 7)],
			       blocks[rng_below(&rng, 4)],
			       2,
			       false,
			       rng_below(&rng, 2),
			       round,
			       false,
			       0,
			       false };
	int ctx[3], rows[3];
	struct batch_case c;
	struct attn_limits limits;
	struct attn_batch b;
	struct ar_err err;
	float *part, *got, *mass, *want;
	size_t n;
	bool good = true;

	draw_case(&c, &rng, dim, seed % 4 ? 700 : 3000, !round, ctx, rows);
	b = gpu_batch(&c.b);
	limits = select_limits(&c.b);
	gpu_must(mass_enqueue(&m, &b, gpu_copy(c.q, c.q_len * sizeof *c.q),
			      gpu_kv(&c.kv, c.kv_len).k, &part,
			      gpu_new(mass_work_bytes(&m, &c.b.shape, &limits), 0xff), NULL, &err),
		 &err);
	n = (size_t)mass_room(&m, &c.b.shape, c.b.keys.n_page, c.b.rows.n_req) *
	    (size_t)c.b.shape.kv_heads;
	got = gpu_host(n * sizeof *got);
	mass = gpu_host(n * sizeof *mass);
	want = gpu_host(n * sizeof *want);
	gpu_read(got, part, n * sizeof *got);
	for (int r = 0; good && r < c.b.rows.n_req; r++)
		if (mass_rows(&m, &c.b, r)) {
			gpu_must(mass_ref(&m, &c.b, r, c.q, c.kv.k, want, &err), &err);
			add_parts(&m, &c, r, got, mass);
			good = mass_near(&m, &c, r, mass, want);
		}
	free(got);
	free(mass);
	free(want);
	gpu_free_all();
	case_release(&c);
	return good;
}

/* ---- UniPrefill's choice: bit for bit, of the same masses ---- */

static bool pick_agrees(uint64_t seed)
{
	static const double p[] = { 0, 0.3, 0.6, 0.9, 0.99, 1 };
	struct rng rng = { seed };
	struct uniprefill u = { .p = p[seed % 6],
				.block = 32,
				.last_q = 8,
				.crossing = seed / 6 % 2,
				.rounding = seed / 12 % 2 };
	const struct mass_rule m = uniprefill_mass(&u);
	int n = 2, ctx[2] = { 0, 0 }, rows[2] = { 1 + case_draw_len(&rng, 90000), 40 }, bad = 0;
	struct batch_case c;
	struct attn_batch b;
	struct ar_err err;
	size_t room;
	struct score_parts parts;
	float *part, *mass;
	uint8_t *got, *want, *kept;

	case_bare_chunks(&c, &rng, (struct attn_shape){ 6, 3, 64, 64 }, n, ctx, rows);
	room = (size_t)mass_room(&m, &c.b.shape, c.b.keys.n_page, n);
	part = gpu_host(3 * room * sizeof *part);
	mass = gpu_host(room * sizeof *mass);
	got = gpu_host(room);
	want = gpu_host(room);
	/* few values, so that there are ties */
	for (size_t i = 0; i < 3 * room; i++)
		part[i] = (float)(1 + rng_below(&rng, 20)) * (rng_below(&rng, 50) ? 0.01f : 9);
	b = gpu_batch(&c.b);
	kept = gpu_new(room, 0xff);
	parts = (struct score_parts){ gpu_copy(part, 3 * room * sizeof *part), 3, (int64_t)room };
	gpu_must(uniprefill_pick_enqueue(&u, &b, &parts, kept, gpu_new(room * sizeof(float), 0xff),
					 NULL, &err),
		 &err);
	gpu_read(got, kept, room);
	for (int r = 0; r < n; r++) {
		int blocks = mass_blocks(&m, &c.b, r);

		if (!mass_rows(&m, &c.b, r))
			continue;
		add_parts(&m, &c, r, part, mass);
		gpu_must(uniprefill_pick(&u, mass, blocks, want, &err), &err);
		for (int i = 0; i < blocks; i++)
			bad += want[i] != got[mass_first(&m, &c.b, r) + i];
		if (bad)
			diag("seed %llu, p %g: %d of %d blocks differ", (unsigned long long)seed,
			     u.p, bad, blocks);
	}
	free(part);
	free(mass);
	free(got);
	free(want);
	gpu_free_all();
	case_release(&c);
	return !bad;
}

/* ---- whole calls ---- */

/* One call, by a rank of several or by one with all heads. */
static struct drop_kept rank_call(const struct batch_case *c, const char *name, const void *self,
				  int n_step, struct drop_ranks ranks)
{
	const struct drop d = { .dropper = dropper_find(name), .self = (void *)(uintptr_t)self };
	const struct attn_limits limits = select_limits(&c->b);
	struct attn_batch b = gpu_batch(&c->b);
	size_t n = (size_t)c->b.rows.n_row, n_req = (size_t)c->n_seq;
	struct drop_kept got = drop_kept_new(c),
			 dev = { gpu_new(n, 0xff), gpu_new(n_req * sizeof(int32_t), 0xff),
				 gpu_new(n * sizeof(int32_t), 0xff) };
	struct attn_call at = { .b = &b,
				.q = gpu_copy(c->q, c->q_len * sizeof *c->q),
				.kv = gpu_kv(&c->kv, c->kv_len),
				.work = gpu_new(drop_work_bytes(&d, ranks.n, &c->b.shape, &limits),
						0xff) };
	int32_t chunk[8];
	struct ar_err err;

	for (int r = 0; r < c->n_seq; r++)
		chunk[r] = attn_n_row(&c->b.rows, r);
	gpu_must(drop_enqueue(&d,
			      &(struct drop_call){ .at = &at,
						   .chunk = gpu_copy(chunk, n_req * sizeof *chunk),
						   .n_step = n_step,
						   .ranks = ranks },
			      &dev, &err),
		 &err);
	gpu_read(got.keep, dev.keep, n);
	gpu_read(got.n_keep, dev.n_keep, n_req * sizeof(int32_t));
	gpu_read(got.index, dev.index, n * sizeof(int32_t));
	return got;
}

static struct drop_kept device_call(const struct batch_case *c, const char *name, const void *self,
				    int n_step)
{
	return rank_call(c, name, self, n_step, (struct drop_ranks){ 0 });
}

/* Whether numbers and counts follow from the flags. */
static bool sound(const struct batch_case *c, const struct drop_kept *got)
{
	int at = 0;

	for (int r = 0; r < c->b.rows.n_req; r++) {
		int before = at;

		for (int i = c->row0[r]; i < c->row0[r + 1]; i++)
			if (got->keep[i] && got->index[at++] != i)
				return false;
		if (got->n_keep[r] != at - before)
			return false;
	}
	return true;
}

/* Rows of request r that neither the reference nor rounding explains. */
static int uniprefill_faults(const struct batch_case *c, const void *self, int r,
			     const uint8_t *got, const uint8_t *want)
{
	const struct uniprefill *p = &((const struct uniprefill_self *)self)->rule;
	const struct mass_rule m = uniprefill_mass(p);
	int rows = attn_n_row(&c->b.rows, r), n = mass_blocks(&m, &c->b, r), bad = 0;
	float *mass = gpu_host((size_t)n * sizeof *mass);
	double *share = gpu_host((size_t)n * sizeof *share), all = 0;
	struct ar_err err;

	if (!memcmp(got, want, (size_t)rows))
		goto out;
	bad = rows;
	if (!mass_rows(&m, &c->b, r))
		goto out;
	gpu_must(mass_ref(&m, &c->b, r, c->q, c->kv.k, mass, &err), &err);
	for (int i = 0; i < n; i++)
		all += mass[i];
	for (int i = 0; i < n; i++)
		share[i] = mass[i] / all;
	bad = drop_share_faults(p, share, c->ctx[r], c->end[r], got, m.round ? 0.06 : 2e-3);
out:
	free(mass);
	free(share);
	return bad;
}

/* Count faults of two sets of equally many rows.  A row in one set only must have nearly the score
 * of the last. */
static int rank_faults(const float *score, int n, int per, const uint8_t *got, const uint8_t *want)
{
	double least = INFINITY, scale = 0;
	int more = 0, bad = 0;

	for (int i = 0; i < n; i++) {
		scale = fmax(scale, fabs((double)score[i / per]));
		if (want[i] != got[i])
			least = fmin(least, score[i / per]);
		more += got[i] - want[i];
	}
	for (int i = 0; i < n; i++)
		bad += want[i] != got[i] && score[i / per] > least + 1e-4 * scale;
	return bad + abs(more);
}

static int sliminfer_faults(const struct batch_case *c, const void *self, int r, const uint8_t *got,
			    const uint8_t *want)
{
	const struct sliminfer *p = &((const struct sliminfer_self *)self)->rule;
	int rows = attn_n_row(&c->b.rows, r), bad;
	float *score = gpu_host((size_t)(rows + 1) * sizeof *score);

	sliminfer_scores(&(struct attn_call){ .b = &c->b, .q = c->q, .kv = c->kv }, p, r, score);
	bad = rank_faults(score, rows, (int)p->block, got, want);
	free(score);
	return bad;
}

static int lazyllm_faults(const struct batch_case *c, const void *self, int r, const uint8_t *got,
			  const uint8_t *want)
{
	const struct mass_rule m = lazyllm_mass();
	float *mass = gpu_host((size_t)c->end[r] * sizeof *mass);
	struct ar_err err;
	int bad;

	(void)self;
	gpu_must(mass_ref(&m, &c->b, r, c->q, c->kv.k, mass, &err), &err);
	bad = rank_faults(mass + c->ctx[r], attn_n_row(&c->b.rows, r), 1, got, want);
	free(mass);
	return bad;
}

typedef int faults_fn(const struct batch_case *c, const void *self, int r, const uint8_t *got,
		      const uint8_t *want);

static bool call_agrees(const char *name, const void *self, faults_fn *faults, int dim,
			uint64_t seed)
{
	struct rng rng = { seed };
	struct drop_kept want, got;
	struct batch_case c;
	int ctx[3], rows[3], bad = 0;

	draw_case(&c, &rng, dim, seed % 6 ? 900 : 8000, faults != uniprefill_faults, ctx, rows);
	want = drop_case(&c, name, self);
	got = device_call(&c, name, self, c.b.rows.n_row);
	for (int r = 0; r < c.n_seq; r++)
		if (c.row0[r + 1] > c.row0[r])
			bad += faults(&c, self, r, got.keep + c.row0[r], want.keep + c.row0[r]);
	if (bad || !sound(&c, &got))
		diag("%s, seed %llu: %d of %d rows differ", name, (unsigned long long)seed, bad,
		     c.b.rows.n_row);
	bad += !sound(&c, &got);
	drop_kept_free(&want);
	drop_kept_free(&got);
	gpu_free_all();
	case_release(&c);
	return !bad;
}

/* ---- bands: every dropper ---- */

/* Rows that the device keeps though the loose reference drops them, and the reverse. */
static int outside(const struct batch_case *c, const struct dropper_band *b)
{
	struct drop *d = drop_case_open(b->text, b->value);
	struct drop_kept got = device_call(c, d->dropper->name, d->self, c->b.rows.n_row);
	struct drop_kept strict = drop_case_band(c, b->text, b->strict);
	struct drop_kept loose = drop_case_band(c, b->text, b->loose);
	int n = 0;

	for (int i = 0; i < c->b.rows.n_row; i++)
		n += strict.keep[i] > got.keep[i] || got.keep[i] > loose.keep[i];
	drop_kept_free(&got);
	drop_kept_free(&strict);
	drop_kept_free(&loose);
	drop_free(d);
	gpu_free_all();
	return n;
}

static void test_band(const struct dropper_band *b, int dim)
{
	int bad = 0, all = 0;

	for (int k = 0; k < cases(8); k++) {
		struct rng rng = { (uint64_t)(dim * 4000 + k) };
		int ctx[3], rows[3];
		struct batch_case c;

		draw_case(&c, &rng, dim, 900, false, ctx, rows);
		bad += outside(&c, b);
		all += c.b.rows.n_row;
		case_release(&c);
	}
	ok(bad <= b->slack * all, "%s, %s, heads of %d: %d of %d rows are outside of its band",
	   b->text, b->value, dim, bad, all);
}

static void test_bands(int dim)
{
	for (int i = 0; droppers[i]; i++)
		for (const struct dropper_band *b = droppers[i]->band; b && b->text; b++)
			test_band(b, dim);
}

/* ---- ranks that share the heads, one after another ---- */

static void copy(void *to, const void *from, size_t bytes)
{
	gpu_must(cudaMemcpy(to, from, bytes, cudaMemcpyDefault) == cudaSuccess ? AR_OK : AR_CUDA,
		 &(struct ar_err){ .msg = "cannot copy a message" });
}

static int rows_differ(const struct drop_kept *a, const struct drop_kept *b, int n)
{
	int x = 0;

	for (int i = 0; i < n; i++)
		x += a->keep[i] != b->keep[i];
	return x;
}

/* Count rows that the ranks of a case keep and one with all heads does not, and rows that differ
 * between ranks. */
static void meet_case(const struct batch_case *whole, const struct drop *d, int *off, int *other)
{
	struct drop_kept one = device_call(whole, d->dropper->name, d->self, whole->b.rows.n_row);
	struct drop_kept got[2 * DROP_RANKS];
	struct drop_meeting m = { .copy = copy };

	for (int k = 0; k < 2 * DROP_RANKS; k++) {
		struct batch_case c = drop_rank_case(whole, k % DROP_RANKS);

		got[k] = rank_call(&c, d->dropper->name, d->self, c.b.rows.n_row,
				   drop_meet(&m, k % DROP_RANKS, k >= DROP_RANKS));
		drop_rank_free(&c);
		gpu_free_all();
	}
	*off += rows_differ(&got[DROP_RANKS], &one, whole->b.rows.n_row);
	*other += rows_differ(&got[DROP_RANKS], &got[DROP_RANKS + 1], whole->b.rows.n_row);
	drop_kept_free(&one);
	for (int k = 0; k < 2 * DROP_RANKS; k++)
		drop_kept_free(&got[k]);
	drop_meeting_free(&m);
}

static void test_ranks(const struct dropper_band *b, int dim)
{
	struct drop *d = drop_case_open(b->text, b->value);
	int off = 0, other = 0, all = 0;

	for (int k = 0; k < cases(8); k++) {
		struct rng rng = { (uint64_t)(dim * 5000 + k) };
		int ctx[] = { 0, 0, 40 }, rows[] = { 300, 700, 500 };
		struct batch_case c;

		case_chunks(&c, &rng, FILL_BLOCKS, (struct attn_shape){ 8, 4, dim, 64 }, 3, ctx,
			    rows);
		meet_case(&c, d, &off, &other);
		all += c.b.rows.n_row;
		case_release(&c);
	}
	ok(!other && off <= b->slack * all,
	   "%s, %s, heads of %d: %d rows differ between ranks, %d of %d from one rank's", b->text,
	   b->value, dim, other, off, all);
	drop_free(d);
}

static void test_rank_bands(int dim)
{
	for (int i = 0; droppers[i]; i++)
		for (const struct dropper_band *b = droppers[i]->band; b && b->text; b++)
			test_ranks(b, dim);
}

/* ---- the rules of droppers, row by row ---- */

static void test_uniprefill(int dim)
{
	static const double p[] = { 0.3, 0.6, 0.9, 0.99 };
	int n = cases(16), good = 0;

	for (int k = 0; k < n; k++) {
		struct uniprefill_self x = { .rule = { .p = p[k % 4],
						       .block = 32 << k / 2 % 3,
						       .last_q = k % 5 ? 24 : 128,
						       .sinks = 32,
						       .rounding = k / 4 % 2,
						       .mode = k % 3 ? MODE_OFFICIAL :
								       MODE_APPEND } };

		good += call_agrees("uniprefill", &x, uniprefill_faults, dim,
				    (uint64_t)(dim * 1000 + k));
	}
	is_int(good, n, "uniprefill, heads of %d", dim);
}

static void test_sliminfer(int dim)
{
	static const double value[] = { 0, 0.25, 0.5, 3 };
	int n = cases(12), good = 0;

	for (int k = 0; k < n; k++) {
		struct sliminfer_self x = { .rule = { NULL, 48, k % 2 ? 16 : 3, 40, 50 },
					    .layers = { 1, { 0 }, { value[k % 4] } } };

		good += call_agrees("sliminfer", &x, sliminfer_faults, dim,
				    (uint64_t)(dim * 2000 + k));
	}
	is_int(good, n, "sliminfer, heads of %d", dim);
}

static void test_lazyllm(int dim)
{
	static const double rate[] = { 0, 0.3, 0.7, 1 };
	int n = cases(12), good = 0;

	for (int k = 0; k < n; k++) {
		struct lazyllm_self x = { .layers = { 1, { 0 }, { rate[k % 4] } } };

		good += call_agrees("lazyllm", &x, lazyllm_faults, dim, (uint64_t)(dim * 3000 + k));
	}
	is_int(good, n, "lazyllm, heads of %d", dim);
}

/* ---- tokens that decodes revive ---- */

static int descending(const void *x, const void *y)
{
	const float *a = x, *b = y;

	return ORDER(*b, *a);
}

/* The k-th largest of n numbers. */
static float largest(const float *v, int n, int k)
{
	float *x = gpu_host((size_t)n * sizeof *x), found;

	memcpy(x, v, (size_t)n * sizeof *x);
	qsort(x, (size_t)n, sizeof *x, descending);
	found = x[k - 1];
	free(x);
	return found;
}

/* Whether the n tokens that request r revives follow from the masses of its keys, up to
 * rounding. */
static bool revives_right(const struct batch_case *c, const struct lazyllm_self *x, int r,
			  const uint8_t *gone, int n, const int32_t *index)
{
	const struct mass_rule m = lazyllm_decode_mass();
	int len = c->end[r], goal = lazyllm_stay(x->layers.value[0], len) - 1, sure = 0, may = 0;
	float *mass = gpu_host((size_t)len * sizeof *mass), cut, least = INFINITY, near;
	bool *mine = gpu_host((size_t)len * sizeof *mine), good = n <= x->revives;
	struct ar_err err;

	gpu_must(mass_ref(&m, &c->b, r, c->q, c->kv.k, mass, &err), &err);
	memset(mine, 0, (size_t)len * sizeof *mine);
	for (int k = 0; k < n; k++) {
		good = good && index[k] >= 0 && index[k] < len - 1 && gone[index[k]] &&
		       (!k || index[k] > index[k - 1]);
		if (!good)
			goto out;
		mine[index[k]] = true;
		least = fminf(least, mass[index[k]]);
	}
	cut = goal ? largest(mass, len - 1, goal) : INFINITY;
	near = 1e-4f * (float)c->b.shape.q_heads;
	for (int i = 0; i < len - 1; i++) {
		sure += gone[i] && mass[i] > cut + near;
		may += gone[i] && mass[i] >= cut - near;
		good = good && (!mine[i] || mass[i] >= cut - near);
		good = good && (!gone[i] || mine[i] || mass[i] <= fmaxf(cut, least) + near ||
				n < x->revives);
	}
	good = good && n >= (sure < x->revives ? sure : x->revives) && n <= may;
out:
	free(mass);
	free(mine);
	return good;
}

static bool revival_agrees(const struct lazyllm_self *x, int dim, uint64_t seed)
{
	const struct drop d = { .dropper = dropper_find("lazyllm"), .self = (void *)(uintptr_t)x };
	struct rng rng = { seed };
	struct batch_case c;
	struct attn_limits limits;
	struct attn_batch b;
	struct attn_call at;
	struct drop_revived dev;
	int ctx[3], rows[3], bad = 0, n_key;
	int32_t *n, *index;
	struct ar_err err;
	uint8_t *gone;

	draw_case(&c, &rng, dim, seed % 6 ? 900 : 8000, true, ctx, rows);
	for (int r = 0; r < c.n_seq; r++) {
		ctx[r] = c.len[r] - 1;
		rows[r] = 1;
	}
	case_cut(&c, ctx, rows);
	limits = select_limits(&c.b);
	b = gpu_batch(&c.b);
	n_key = c.b.keys.n_page * c.b.shape.page_tok;
	gone = gpu_host((size_t)n_key);
	n = gpu_host((size_t)c.n_seq * sizeof *n);
	index = gpu_host((size_t)(c.n_seq * x->revives) * sizeof *index);
	for (int i = 0; i < n_key; i++)
		gone[i] = rng_below(&rng, 1 + seed % 4) == 0;
	dev = (struct drop_revived){
		gpu_copy(gone, (size_t)n_key), gpu_new((size_t)c.n_seq * sizeof *n, 0xff),
		gpu_new((size_t)(c.n_seq * x->revives) * sizeof *index, 0xff)
	};
	at = (struct attn_call){ .b = &b,
				 .q = gpu_copy(c.q, c.q_len * sizeof *c.q),
				 .kv = gpu_kv(&c.kv, c.kv_len),
				 .work = gpu_new(drop_work_bytes(&d, 1, &c.b.shape, &limits),
						 0xff) };
	gpu_must(drop_revive_enqueue(&d, &(struct drop_call){ .at = &at, .n_step = c.n_seq }, &dev,
				     &err),
		 &err);
	gpu_read(n, dev.n, (size_t)c.n_seq * sizeof *n);
	gpu_read(index, dev.index, (size_t)(c.n_seq * x->revives) * sizeof *index);
	for (int r = 0; r < c.n_seq; r++)
		bad += !revives_right(&c, x, r, gone + c.page0[r] * c.b.shape.page_tok, n[r],
				      index + r * x->revives);
	if (bad)
		diag("seed %llu: %d of %d requests", (unsigned long long)seed, bad, c.n_seq);
	free(gone);
	free(n);
	free(index);
	gpu_free_all();
	case_release(&c);
	return !bad;
}

static void test_revival(int dim)
{
	static const double rate[] = { 0, 0.3, 0.7, 1 };
	static const int most[] = { 1, 16, 300 };
	int n = cases(24), good = 0;

	for (int k = 0; k < n; k++) {
		struct lazyllm_self x = { { 1, { 0 }, { rate[k % 4] } }, most[k / 4 % 3] };

		good += revival_agrees(&x, dim, (uint64_t)(dim * 4000 + k));
	}
	is_int(good, n, "lazyllm's revival, heads of %d", dim);
}

/* Whole captures by the published parameters, against the second implementation. */
static void test_captures(void)
{
	for (int k = 0; k < 6; k++) {
		struct uniprefill_self x = drop_published(k);
		struct batch_case c;
		int bad = 0, n = 0;

		for (int i = 0; i < drop_captures(); i++)
			for (int l = 0; drop_case_capture(&c, i, l, 0); l++, n++) {
				struct drop_kept got = device_call(&c, "uniprefill", &x,
								   c.b.rows.n_row);
				int own = drop_plain_faults(&c, &x.rule, &got, k / 3 ? 2e-3 : 0.06);

				diag("%s", drop_text(&c, &x.rule, &got));
				bad += own + !sound(&c, &got);
				drop_kept_free(&got);
				gpu_free_all();
				case_release(&c);
			}
		is_int(bad, 0, "uniprefill, p %g%s: %d captured layers", x.rule.p,
		       k / 3 ? "" : ", rounded", n);
	}
}

/* Iterations and prompts in which nothing is dropped. */
static void test_gates(void)
{
	struct uniprefill_self x = { .rule = { .p = 0, .block = 64, .last_q = 16, .sinks = 16 } };
	int ctx[] = { 0, 0 }, rows[] = { 600, 30 };
	struct rng rng = { 4 };
	struct batch_case c;
	struct drop_kept got;

	case_chunks(&c, &rng, FILL_NORMAL, (struct attn_shape){ 8, 2, 128, 64 }, 2, ctx, rows);
	x.rule.min_tokens = 700;
	got = device_call(&c, "uniprefill", &x, 700);
	ok(got.n_keep[0] == 600 && got.n_keep[1] == 30 && sound(&c, &got),
	   "min-tokens: a small iteration keeps everything");
	drop_kept_free(&got);
	case_cut(&c, ctx, (int[]){ 500, 30 });
	got = device_call(&c, "uniprefill", &x, 701);
	ok(got.n_keep[0] == 500 && got.n_keep[1] == 30 && sound(&c, &got),
	   "official: so does the first chunk of a prompt");
	drop_kept_free(&got);
	gpu_free_all();
	case_release(&c);
}

static void run_all(void)
{
	int n = cases(24), good = 0;

	for (int k = 0; k < n; k++)
		good += index_agrees((uint64_t)k);
	is_int(good, n, "numbers of the rows that stay");
	good = 0;
	for (int k = 0; k < n; k++)
		good += pick_agrees((uint64_t)k);
	is_int(good, n, "uniprefill's choice");
	for (int dim = 64; dim <= 256; dim *= 2) {
		for (int round = 0; round < 2; round++) {
			int m = cases(12);

			good = 0;
			for (int k = 0; k < m; k++)
				good += mass_agrees(dim, round, (uint64_t)(dim * 100 + k));
			is_int(good, m, "masses, heads of %d%s", dim, round ? ", rounded" : "");
		}
		test_bands(dim);
		test_rank_bands(dim);
		test_uniprefill(dim);
		test_sliminfer(dim);
		test_lazyllm(dim);
		test_revival(dim);
	}
	test_gates();
	test_captures();
}
#else
#define run_all NULL
#endif

int main(void)
{
	int n_band = 0;

	for (int i = 0; droppers[i]; i++)
		for (const struct dropper_band *b = droppers[i]->band; b && b->text; b++)
			n_band++;
	return gpu_main(N_TEST + 2 * N_DIM * n_band, run_all);
}
