/* MInference on the device: its sums against the reference's, and its runs and columns against
 * those that the reference takes from the same sums.  ATTNREPLAY_TEST_CASES sets how many. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/selectors/lastq.h"
#include "kernels/selectors/means.h"
#include "kernels/selectors/minference.h"
#include "tests/batch_case.h"
#include "tests/file.h"
#include "tests/gpu.h"
#include "tests/tap.h"

enum { N_SHAPE = 6, N_TEST = 2 * (N_SHAPE + 1) + 3 };

#if HAVE_CUDA
static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

static int draw(struct rng *rng, int lo, int hi)
{
	return lo + (int)rng_below(rng, (uint64_t)(hi - lo + 1));
}

/* Of one layer, a random pattern for each head. */
static struct minference_self *open_random(const struct minference *p, struct attn_shape s,
					   struct rng *rng)
{
	const struct selector_env env = { .shape = s, .n_layers = 1, .device = true };
	char text[4096];
	size_t n = (size_t)snprintf(text, sizeof text, "[{");
	struct ar_err err;
	void *self;

	for (int h = 0; h < s.q_heads; h++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s\"%d\": [\"%s\", %d, %d]",
				      h ? ", " : "", h, minference_patterns[rng_below(rng, 3)],
				      draw(rng, 0, 700), draw(rng, 0, 3000));
	n += (size_t)snprintf(text + n, sizeof text - n, "}]");
	file_write(p->path, text, n);
	must(selector_find("minference")->open(&self, p, &env, &err), &err);
	remove(p->path);
	return self;
}

/* Rows of both sides; on the device in memory of its own. */
struct rows {
	struct column_lists ref, dev, got;
	size_t n;
};

static void rows_make(struct rows *x, const struct batch_case *c,
		      const struct minference_self *self)
{
	struct column_lists *l = &x->ref;

	x->n = (size_t)(c->b.n_qblk * c->b.shape.q_heads);
	l->max_run = c->b.max_kv_blk + 1;
	l->max_col = c->b.max_kv_blk * c->b.shape.page_tok;
	l->max_col = self->max_vertical < l->max_col ? self->max_vertical : l->max_col;
	x->got = x->dev = *l;
	for (int i = 0; i < 2; i++) {
		struct column_lists *to = i ? &x->got : l;

		to->run = calloc(x->n * (size_t)l->max_run, 4);
		to->col = calloc(x->n * (size_t)l->max_col + 1, 4);
		to->n_run = calloc(x->n, 4);
		to->n_col = calloc(x->n, 4);
		to->band = calloc(x->n, sizeof *l->band);
	}
	x->dev.run = gpu_new(x->n * (size_t)l->max_run * 4, 0xff);
	x->dev.col = gpu_new(x->n * (size_t)l->max_col * 4, 0xff);
	x->dev.n_run = gpu_new(x->n * 4, 0xff);
	x->dev.n_col = gpu_new(x->n * 4, 0xff);
	x->dev.band = gpu_new(x->n * sizeof *l->band, 0xff);
}

static void rows_read(struct rows *x)
{
	gpu_read(x->got.run, x->dev.run, x->n * (size_t)x->dev.max_run * 4);
	gpu_read(x->got.col, x->dev.col, x->n * (size_t)x->dev.max_col * 4);
	gpu_read(x->got.n_run, x->dev.n_run, x->n * 4);
	gpu_read(x->got.n_col, x->dev.n_col, x->n * 4);
	gpu_read(x->got.band, x->dev.band, x->n * sizeof *x->got.band);
}

static bool row_equal(const struct rows *x, size_t i)
{
	const struct column_lists *a = &x->ref, *b = &x->got;

	return a->n_run[i] == b->n_run[i] && a->n_col[i] == b->n_col[i] &&
	       !memcmp(&a->band[i], &b->band[i], sizeof *a->band) &&
	       !memcmp(a->run + i * (size_t)a->max_run, b->run + i * (size_t)a->max_run,
		       (size_t)a->n_run[i] * 4) &&
	       !memcmp(a->col + i * (size_t)a->max_col, b->col + i * (size_t)a->max_col,
		       (size_t)a->n_col[i] * 4);
}

static bool close(const float *a, const float *b, int n)
{
	for (int i = 0; i < n; i++)
		if (!(fabsf(a[i] - b[i]) <= 1e-4f * b[i] + 1e-9f))
			return false;
	return true;
}

struct tally {
	int cases, sums, rows;
};

/* dev: the sums on the device. */
static void compare(struct tally *t, const struct batch_case *c, const struct minference_self *self,
		    struct rows *x, const float *dev)
{
	const struct attn_shape *s = &c->b.shape;
	size_t n = (size_t)c->b.max_kv_blk * (size_t)s->page_tok;
	size_t heads = (size_t)(c->b.n_req * s->q_heads);
	float *y = malloc(3 * n * sizeof *y);
	bool sums = true, rows = true;
	struct ar_err err;

	for (int r = 0; r < c->b.n_req; r++)
		for (int h = 0; h < s->q_heads; h++) {
			const float *column = dev + (size_t)(r * s->q_heads + h) * n;
			const float *slash = column + heads * n;
			int rows_of = c->row0[r + 1] - c->row0[r], end = c->ctx[r] + rows_of;

			if (rows_of < 2 || self->head[h].pattern != PATTERN_SLASH)
				continue;
			lastq_ref(&c->b, r, h, (int)self->rule.last, c->q, c->kv.k, y, y + n,
				  y + 2 * n);
			sums &= close(column, y + n, end) && close(slash, y + 2 * n, end);
			must(minference_lists(&c->b, self, &self->head[h], r, h, column, slash,
					      &x->ref, &err), &err);
		}
	for (size_t i = 0; i < x->n; i++)
		rows &= row_equal(x, i);
	t->cases++;
	t->sums += sums;
	t->rows += rows;
	free(y);
}

static void run_case(struct tally *t, struct attn_shape s, uint64_t seed, int n, const int *ctx,
		     const int *rows)
{
	static const enum case_fill fill[] = { FILL_NORMAL, FILL_BLOCKS, FILL_HUGE, FILL_EQUAL };
	struct rng rng = { seed };
	const struct minference p = { .path = (char *)"test-minference-gpu.json",
				      .last = seed % 3 ? 64 : draw(&rng, 1, 128),
				      .sink = draw(&rng, 0, 40), .local = draw(&rng, 1, 200),
				      .blocks = draw(&rng, 1, 40), .force_diag = seed % 2 };
	struct minference_self *self = open_random(&p, s, &rng);
	const struct selector *selector = selector_find("minference");
	struct attn_limits limits = { .max_req = n };
	struct batch_case c;
	struct attn_batch b;
	struct kv_cache kv;
	struct rows x;
	size_t state_bytes, sum_bytes;
	float *state, *sums;
	void *work, *state_dev;
	bf16_t *q;
	struct ar_err err;

	case_chunks(&c, &rng, fill[seed % 4], s, n, ctx, rows);
	limits.max_row = c.b.n_row;
	limits.max_kv_blk = c.b.max_kv_blk;
	state_bytes = (size_t)c.n_page * means_state_bytes(&s);
	state = malloc(state_bytes);
	case_cut(&c, (int[3]){ 0 }, ctx);
	means_update(&c.b, c.kv.k, state);
	case_cut(&c, ctx, rows);
	rows_make(&x, &c, self);
	b = gpu_batch(&c.b);
	kv = gpu_kv(&c.kv, c.kv_len);
	q = gpu_copy(c.q, c.q_len * sizeof *q);
	state_dev = gpu_copy(state, state_bytes);
	work = gpu_new(minference_work_bytes(self, &s, &limits), 0xff);
	must(selector->ref(&c.b, self, 0, c.q, &c.kv, state,
			   &(struct selection){ .columns = x.ref }, &err), &err);
	must(minference_enqueue(&b, self, 0, q, &kv, state_dev,
				&(struct selection){ .columns = x.dev }, work, NULL, &err), &err);
	sum_bytes = 2 * (size_t)(n * s.q_heads * c.b.max_kv_blk * s.page_tok) * sizeof *sums;
	sums = malloc(sum_bytes);
	gpu_read(sums, work, sum_bytes);
	rows_read(&x);
	compare(t, &c, self, &x, sums);
	columns_free(&x.ref);
	columns_free(&x.got);
	free(sums);
	free(state);
	free(self);
	gpu_free_all();
	case_release(&c);
}

static void report(const struct tally *t, const char *of)
{
	is_int(t->sums, t->cases, "columns and diagonals add up alike: %s", of);
	is_int(t->rows, t->cases, "runs and columns follow from them: %s", of);
}

static void run_all(void)
{
	static const struct { struct attn_shape s; const char *of; } shape[N_SHAPE] = {
		{ { 4, 2, 64, 64 }, "heads of 64, groups of 2" },
		{ { 8, 1, 128, 64 }, "heads of 128, groups of 8" },
		{ { 3, 1, 128, 64 }, "groups of 3" },
		{ { 3, 3, 128, 64 }, "groups of 1" },
		{ { 6, 1, 256, 64 }, "heads of 256, groups of 6" },
		{ { 10, 2, 64, 64 }, "groups of 5" },
	};
	int n = ((int)gpu_test_number("ATTNREPLAY_TEST_CASES", 24) + N_SHAPE - 1) / N_SHAPE;
	struct tally t;

	for (int i = 0; i < N_SHAPE; i++) {
		t = (struct tally){ 0 };
		for (int k = 0; k < n; k++) {
			struct rng rng = { (uint64_t)(i * 1000 + k) };
			int ctx[3], rows[3], n_req = draw(&rng, 1, 3);

			for (int r = 0; r < n_req; r++) {
				ctx[r] = draw(&rng, 0, k % 4 ? 1500 : 9000);
				rows[r] = draw(&rng, k % 8 ? 1 : 0, 400);
			}
			run_case(&t, shape[i].s, (uint64_t)(i * 77 + k), n_req, ctx, rows);
		}
		report(&t, shape[i].of);
	}
	t = (struct tally){ 0 };
	run_case(&t, shape[0].s, 1, 2, (int[]){ 2048 * 16, 4096 }, (int[]){ 300, 1 });
	run_case(&t, shape[1].s, 2, 2, (int[]){ 2048 - 100, 4096 }, (int[]){ 101, 2048 });
	run_case(&t, shape[2].s, 3, 2, (int[]){ 4096 - 100, 4096 - 200 }, (int[]){ 101, 200 });
	report(&t, "on both sides of where work is split");
}

static void test_refusals(void)
{
	struct attn_batch b = { .shape = { 2, 1, 96, 64 }, .n_req = 1, .n_qblk = 1,
				.max_kv_blk = 1 };
	const struct minference p = { .vertical = 1, .slash = 1, .last = 1, .sink = 1, .local = 1 };
	const struct selector_env env = { .shape = b.shape, .n_layers = 1 };
	struct kv_cache kv = { 0 };
	struct selection none = { 0 };
	struct ar_err err = { 0 };
	void *self;

	must(selector_find("minference")->open(&self, &p, &env, &err), &err);
	is_int(minference_enqueue(&b, self, 0, NULL, &kv, NULL, &none, NULL, NULL, &err),
	       AR_USAGE, "a head size without a kernel is refused");
	is_str(err.msg,
	       "scores of the last queries on the GPU take head sizes 64, 128 and 256, not 96",
	       "which the message says");
	b.n_qblk = 0;
	ok(!minference_enqueue(&b, self, 0, NULL, &kv, NULL, &none, NULL, NULL, &err),
	   "an empty batch launches nothing");
	free(self);
}
#endif

int main(void)
{
	plan(N_TEST);
	if (!gpu_usable()) {
		skip(N_TEST, "no usable GPU");
		return done_testing();
	}
#if HAVE_CUDA
	run_all();
	test_refusals();
#endif
	return done_testing();
}
