/* SPDX-License-Identifier: Apache-2.0 */
/* MInference on the device.  Its sums are compared with the reference.  Its runs and columns are
 * compared with the lists that the reference makes from the same sums.  ATTNREPLAY_TEST_CASES sets
 * the number of batches. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select/lastq/lastq.h"
#include "kernels/select/means/means.h"
#include "kernels/select/minference/minference.h"
#include "kernels/select/selectors.h"
#include "tests/file.h"
#include "tests/select_gpu.h"
#include "tests/tap.h"

enum { N_SHAPE = 6, N_TEST = 2 * (N_SHAPE + 2) + 1 };

#if HAVE_CUDA
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
				      select_draw(rng, 0, 700), select_draw(rng, 0, 3000));
	n += (size_t)snprintf(text + n, sizeof text - n, "}]");
	file_write(p->path, text, n);
	gpu_must(selector_find("minference")->open(&self, p, &env, &err), &err);
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

	x->n = (size_t)(c->b.rows.n_qblk * c->b.shape.q_heads);
	l->max_run = c->b.keys.max_kv_blk + 1;
	l->max_col = c->b.keys.max_kv_blk * c->b.shape.page_tok;
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

static struct tally {
	int cases, sums, rows;
} t;

/* dev: the sums on the device. */
static void compare(const struct select_pair *p, struct rows *x, const float *dev)
{
	const struct minference_self *self = p->self;
	const struct batch_case *c = &p->c;
	const struct attn_shape *s = &c->b.shape;
	size_t n = (size_t)c->b.keys.max_kv_blk * (size_t)s->page_tok;
	size_t heads = (size_t)(c->b.rows.n_req * s->q_heads);
	float *y = malloc(2 * n * sizeof *y);
	bool sums = true, rows = true;
	struct ar_err err;

	for (int r = 0; r < c->b.rows.n_req; r++)
		for (int h = 0; h < s->q_heads; h++) {
			const float *column = dev + (size_t)(r * s->q_heads + h) * n;
			const float *slash = column + heads * n;
			int rows_of = c->row0[r + 1] - c->row0[r], end = c->ctx[r] + rows_of;

			if (rows_of < 2 || self->head[h].pattern != PATTERN_SLASH)
				continue;
			gpu_must(lastq_ref(&c->b, r, h, (int)self->rule.last, c->q, c->kv.k, y,
					   y + n, &err),
				 &err);
			sums &= close(column, y, end) && close(slash, y + n, end);
			gpu_must(minference_lists(&c->b, self, &self->head[h], r, h, column, slash,
						  &x->ref, &err),
				 &err);
		}
	for (size_t i = 0; i < x->n; i++)
		rows &= row_equal(x, i);
	t.cases++;
	t.sums += sums;
	t.rows += rows;
	free(y);
}

static void run_case(struct attn_shape s, uint64_t seed, int n, const int *ctx, const int *rows)
{
	static const enum case_fill fill[] = { FILL_NORMAL, FILL_RISING, FILL_BLOCKS, FILL_HUGE,
					       FILL_EQUAL };
	struct rng rng = { seed };
	const struct minference param = { .path = (char *)"test-minference-gpu.json",
					  .ratio = seed % 4 ? 1 : 0.3,
					  .last = seed % 3 ? 64 : select_draw(&rng, 1, 128),
					  .sink = select_draw(&rng, 0, 40),
					  .local = select_draw(&rng, 1, 200),
					  .blocks = select_draw(&rng, 1, 40),
					  .force_diag = seed % 2 };
	struct minference_self *self = open_random(&param, s, &rng);
	struct select_pair p = { .selector = selector_find("minference"), .self = self };
	size_t sum_bytes;
	struct rows x;
	float *sums;

	case_chunks(&p.c, &rng, fill[seed % 5], s, n, ctx, rows);
	select_load(&p);
	case_cut(&p.c, (int[3]){ 0 }, ctx);
	if (p.state_bytes)
		means_update(&p.c.b, p.c.kv.k, p.state_ref);
	gpu_write(p.state, p.state_ref, p.state_bytes);
	case_cut(&p.c, ctx, rows);
	p.c.b.n_sm = seed % 4 ? select_draw(&rng, 1, 200) : 0;
	rows_make(&x, &p.c, self);
	select_ref(&p, &(struct selection){ .columns = x.ref });
	select_device(&p, &(struct selection){ .columns = x.dev });
	sum_bytes = 2 * (size_t)(n * s.q_heads * p.c.b.keys.max_kv_blk * s.page_tok) * sizeof *sums;
	sums = malloc(sum_bytes);
	gpu_read(sums, p.work, sum_bytes);
	rows_read(&x);
	compare(&p, &x, sums);
	columns_free(&x.ref);
	columns_free(&x.got);
	free(sums);
	free(self);
	select_release(&p);
}

static void report(const char *of)
{
	is_int(t.sums, t.cases, "columns and diagonals add up alike: %s", of);
	is_int(t.rows, t.cases, "runs and columns follow from them: %s", of);
	t = (struct tally){ 0 };
}

static void test_empty(void)
{
	struct attn_batch b = { .shape = { 2, 1, 64, 64 }, .rows.n_req = 1, .keys.max_kv_blk = 1 };
	const struct minference p = {
		.vertical = 1, .slash = 1, .ratio = 1, .last = 1, .sink = 1, .local = 1
	};
	const struct selector_env env = { .shape = b.shape, .n_layers = 1 };
	struct kv_cache kv = { 0 };
	struct selection none = { 0 };
	struct ar_err err = { 0 };
	void *self;

	gpu_must(selector_find("minference")->open(&self, &p, &env, &err), &err);
	ok(!minference_enqueue(&(struct attn_call){ .b = &b, .kv = kv }, self, &none, &err),
	   "an empty batch launches nothing");
	free(self);
}

static void run_all(void)
{
	static const struct select_shape shape[N_SHAPE] = {
		{ { 4, 2, 64, 64 }, "heads of 64, groups of 2" },
		{ { 8, 1, 128, 64 }, "heads of 128, groups of 8" },
		{ { 3, 1, 128, 64 }, "groups of 3" },
		{ { 3, 3, 128, 64 }, "groups of 1" },
		{ { 6, 1, 256, 64 }, "heads of 256, groups of 6" },
		{ { 10, 2, 64, 64 }, "groups of 5" },
	};

	select_shapes(shape, N_SHAPE, 9000, run_case, report);
	run_case(shape[0].s, 1, 2, (int[]){ 2048 * 16, 4096 }, (int[]){ 300, 1 });
	run_case(shape[1].s, 2, 2, (int[]){ 2048 - 100, 4096 }, (int[]){ 101, 2048 });
	run_case(shape[2].s, 3, 2, (int[]){ 4096 - 100, 4096 - 200 }, (int[]){ 101, 200 });
	report("on both sides of where work is split");
	for (int k = 0; k < 4; k++) /* one has equal keys only */
		run_case(shape[0].s, (uint64_t)k + 4, 2, (int[]){ 20000 + k, 12288 - 4 + k },
			 (int[]){ 200, 4 });
	report("where few of many are taken");
	test_empty();
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
