/* SPDX-License-Identifier: Apache-2.0 */
/* Skip-softmax of the CUDA kernels against the references: outputs, log sums, and the tiles that
 * were walked and skipped.  Logits of some blocks are far below those of others, so that rounding
 * changes no vote. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/support.h"
#include "tests/batch_case.h"
#include "tests/gpu_test.h"
#include "tests/tap.h"

enum { N_CHUNK = 3 * 2 * 2 * 3, N_DECODE = 3 * 2 * 5, N_TEST = 3 * (N_CHUNK + N_DECODE) };

#if HAVE_CUDA
enum { COUNTS = 2 * 3 };

/* Make the keys of about every other block small. */
static void shrink_keys(struct batch_case *c, struct rng *rng)
{
	size_t n = case_page_elements(c);

	for (int i = 0; i < c->page0[c->n_seq]; i++) {
		bf16_t *k = c->kv.k + (size_t)c->page[i] * n;

		if (rng_below(rng, 2))
			for (size_t j = 0; j < n; j++)
				k[j] = bf16_from_f32(bf16_to_f32(k[j]) / 16);
	}
}

struct result {
	bf16_t *out;
	float *lse;
	int64_t count[COUNTS];
	size_t n, n_lse;
};

static struct result result_new(const struct batch_case *c)
{
	struct result x = { .n = c->q_len, .n_lse = c->q_len / (size_t)c->b.shape.head_dim };

	x.out = gpu_host(x.n * sizeof *x.out);
	x.lse = gpu_host(x.n_lse * sizeof *x.lse);
	return x;
}

static void result_free(struct result *x)
{
	free(x->out);
	free(x->lse);
}

static void run_ref(struct result *x, struct batch_case *c, const struct executor *e,
		    const struct executor_lists *l)
{
	struct ar_err err;

	c->b.skip.count = x->count;
	gpu_must(e->ref(
			 &(struct attn_call){
				 .b = &c->b, .q = c->q, .kv = c->kv, .out = x->out, .lse = x->lse },
			 l, &err),
		 &err);
}

static void run_device(struct result *x, struct batch_case *c, const struct executor *e,
		       struct executor_lists l, int n_list)
{
	struct attn_limits most = { c->b.rows.n_req, c->b.rows.n_row, c->b.keys.max_kv_blk,
				    c->b.n_tile + 1, 0 };
	struct attn_batch b = gpu_batch(&c->b);
	struct attn_call call = { .b = &b };
	struct ar_err err;

	b.skip.count = gpu_new(sizeof x->count, 0);
	l.blocks = gpu_lists(&l.blocks, n_list);
	call.q = gpu_copy(c->q, x->n * sizeof *c->q);
	call.kv = gpu_kv(&c->kv, c->kv_len);
	call.out = gpu_new(x->n * sizeof *x->out, 0xff);
	call.lse = gpu_new(x->n_lse * sizeof *x->lse, 0xff);
	call.work = gpu_new(e->work_bytes(&c->b.shape, &most, l.heads), 0xff);
	gpu_must(e->enqueue(&call, &l, &err), &err);
	gpu_read(x->out, call.out, x->n * sizeof *x->out);
	gpu_read(x->lse, call.lse, x->n_lse * sizeof *x->lse);
	gpu_read(x->count, b.skip.count, sizeof x->count);
}

static bool near(const struct result *a, const struct result *b)
{
	double off = 0, all = 0;

	for (size_t i = 0; i < a->n; i++) {
		double x = bf16_to_f32(a->out[i]), y = bf16_to_f32(b->out[i]);

		off += (x - y) * (x - y);
		all += y * y;
	}
	for (size_t i = 0; i < a->n_lse; i++)
		if (!(fabs((double)a->lse[i] - (double)b->lse[i]) < 1e-3) && a->lse[i] != b->lse[i])
			return false;
	return sqrt(off) <= 5e-3 * sqrt(all);
}

static void compare(struct batch_case *c, const struct executor *e, const struct executor_lists *l,
		    int n_list, const char *what)
{
	struct result got = result_new(c), want = result_new(c);
	const struct attn_skip *s = &c->b.skip;
	int64_t skipped = 0;

	run_ref(&want, c, e, l);
	run_device(&got, c, e, *l, n_list);
	for (int i = 1; i < COUNTS; i += 2)
		skipped += want.count[i];
	ok(near(&got, &want), "%s: head size %d, blocks of %d, tiles of %d x %d, %d parts", what,
	   c->b.shape.head_dim, c->b.shape.page_tok, s->rows, s->keys, s->parts);
	ok(!memcmp(got.count, want.count, sizeof got.count),
	   "the same tiles are walked and skipped");
	ok((skipped > 0) == (s->threshold > 0.1f), "%lld are skipped", (long long)skipped);
	if (memcmp(got.count, want.count, sizeof got.count))
		for (int i = 0; i < COUNTS; i += 2)
			diag("%lld of %lld, want %lld of %lld", (long long)got.count[i + 1],
			     (long long)got.count[i], (long long)want.count[i + 1],
			     (long long)want.count[i]);
	result_free(&got);
	result_free(&want);
	gpu_free_all();
}

/* kind: every block, one that skips nothing, or tables. */
static void test_chunk(int dim, int page_tok, int rows, int kind)
{
	const struct attn_shape s = { 6, 3, dim, page_tok };
	const int ctx[] = { 0, 1000, 777 }, n[] = { 300, 129, 40 };
	const struct executor *e = executor_find("paged");
	struct executor_lists l = { .heads = kind == 2 ? 2 : 0 };
	struct rng rng = { 11 };
	struct batch_case c;
	int n_list = 0;

	case_chunks(&c, &rng, FILL_NORMAL, s, 3, ctx, n);
	shrink_keys(&c, &rng);
	c.b.skip = (struct attn_skip){ .threshold = kind == 1 ? 1e-30f : 0.3f,
				       .rows = rows,
				       .keys = attend_step(&s) };
	c.b.n_sm = 132;
	if (kind == 2) {
		n_list = case_n_list(&c, e->plan, l.heads);
		case_tables(&c, l.heads, 0.6, &l.blocks, &rng);
	}
	case_plan(&c, e->plan, l.heads);
	compare(&c, e, &l, n_list, kind == 2 ? "tables" : kind ? "nothing is skipped" : "chunks");
	if (kind == 2)
		lists_free(&l.blocks);
	case_release(&c);
}

static void test_chunks(void)
{
	for (int dim = 64; dim <= 256; dim *= 2)
		for (int page_tok = 64; page_tok <= 128; page_tok *= 2)
			for (int rows = 32; rows <= 64; rows *= 2)
				for (int kind = 0; kind < 3; kind++)
					test_chunk(dim, page_tok, rows, kind);
}

static void test_decode(int dim, int page_tok, int heads, int parts, float threshold)
{
	const struct attn_shape s = { heads, 2, dim, page_tok };
	const int ctx[] = { 0, 62, 63, 1000, 4999 }, n[] = { 1, 1, 1, 1, 1 };
	struct executor_lists l = { 0 };
	struct rng rng = { 12 };
	struct batch_case c;

	case_chunks(&c, &rng, FILL_NORMAL, s, 5, ctx, n);
	shrink_keys(&c, &rng);
	c.b.skip = (struct attn_skip){ .threshold = threshold, .keys = 64, .parts = parts };
	compare(&c, executor_find("decode"), &l, 0, "decodes");
	case_release(&c);
}

static void test_decodes(void)
{
	for (int dim = 64; dim <= 256; dim *= 2)
		for (int page_tok = 64; page_tok <= 128; page_tok *= 2) {
			test_decode(dim, page_tok, 4, 1, 0.3f);
			test_decode(dim, page_tok, 32, 1, 0.3f);
			test_decode(dim, page_tok, 6, 3, 0.3f);
			test_decode(dim, page_tok, 8, 40, 0.3f);
			/* where the kernel cuts, no reference knows the parts */
			test_decode(dim, page_tok, 8, 0, 1e-30f);
		}
}

static void run_all(void)
{
	const struct attn_shape s = { 6, 3, 128, 128 };
	const struct gpu *gpu;
	struct ar_err err;

	gpu_must(gpu_current(&gpu, &err), &err);
	if (support_find("attend-skip", &s, NULL, gpu->cc))
		test_chunks();
	else
		skip(3 * N_CHUNK, "chunks skip on compute capability 9.0");
	test_decodes();
}
#else
static void run_all(void)
{
}
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
