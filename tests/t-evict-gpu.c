/* SPDX-License-Identifier: Apache-2.0 */
/* Evictors on the device keep what the references keep, except where rounding decides, and move
 * it. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/evict/evictor.h"
#include "tests/batch_case.h"
#include "tests/gpu_test.h"
#include "tests/select_gpu.h"
#include "tests/tap.h"

enum { N_DIM = 3, N_FORM = 9, N_TEST = N_DIM * N_FORM + N_DIM };

#if HAVE_CUDA
static const char *const forms[N_FORM] = {
	"snapkv:budget=%,window=32",
	"snapkv:budget=%,variant=kvpress",
	"snapkv:budget=%,variant=trtllm",
	"snapkv:budget=%,variant=frontier,window=100,local=20",
	"snapkv:budget=%,window=9,pool=max,group=before,kernel=7,sink=3",
	"snapkv:budget=%,window=1,softmax=prefix",
	"snapkv:budget=%,window=70,pool=max,kernel=21",
	"snapkv:budget=%,window=150,pool=max,softmax=prefix",
	"streaming:sink=7,recent=%",
};

static struct evict *evictor(const char *form, int budget)
{
	char text[128];
	struct ar_err err;
	struct evict *e;

	snprintf(text, sizeof text, "%.*s%d%s", (int)strcspn(form, "%"), form, budget,
		 strchr(form, '%') + 1);
	gpu_must(evict_parse(&e, text, &err), &err);
	return e;
}

/* An event of the only sequence of c, with n_tail keys behind the candidates. */
static struct evict_req request_of(const struct batch_case *c, const struct evict *e, int n_tail)
{
	bool whole;
	int n = c->len[0] - n_tail, w = evict_window(e, &whole);

	w = w < n ? w : n;
	return (struct evict_req){ .n_key = c->len[0],
				   .n_cand = n,
				   .n_keep = (int)evict_kept(e, n),
				   .row0 = n - w,
				   .n_row = w };
}

/* The reference's lists, in a cache of their own. */
static int32_t *kept_ref(const struct batch_case *c, const struct evict *e, int n_tail)
{
	const struct evict_req r = request_of(c, e, n_tail);
	size_t n = (size_t)(r.n_keep * c->b.shape.kv_heads), bytes = c->kv_len * sizeof(bf16_t);
	struct kv_cache kv = { .k = gpu_host(bytes), .v = gpu_host(bytes) };
	struct evict_call call = { .shape = c->b.shape,
				   .n_req = 1,
				   .req = &r,
				   .page = c->page,
				   .kv = kv,
				   .q = c->all_q,
				   .keep = gpu_host(n * sizeof(int32_t)) };
	struct ar_err err;

	memcpy(kv.k, c->kv.k, bytes);
	memcpy(kv.v, c->kv.v, bytes);
	gpu_must(evict_ref(e, &call, &err), &err);
	free(kv.k);
	free(kv.v);
	return call.keep;
}

static bool has(const int32_t *list, int n, int32_t x)
{
	for (int i = 0; i < n; i++)
		if (list[i] == x)
			return true;
	return false;
}

/* Every element of a[0..n) is in b[0..m); both ascend. */
static bool within(const int32_t *a, int n, const int32_t *b, int m)
{
	for (int i = 0; i < n; i++)
		if ((i && a[i] <= a[i - 1]) || !has(b, m, a[i]))
			return false;
	return true;
}

/* Pages for what stays: where `fork`, every other one lies behind all pages of the case. */
static int32_t *places(const struct batch_case *c, bool fork)
{
	const struct attn_shape *s = &c->b.shape;
	size_t page = (size_t)(s->kv_heads * s->page_tok * s->head_dim);
	int32_t *to = gpu_host((size_t)c->n_page * sizeof *to);

	for (int j = 0; j < c->n_page; j++)
		to[j] = fork && j % 2 ? (int32_t)(c->kv_len / page) + j : c->page[j];
	return to;
}

/* x[n], then as much again. */
static void *twice(const bf16_t *x, size_t n)
{
	bf16_t *y = gpu_host(2 * n * sizeof *y);
	void *dev;

	memset(y, 0xff, 2 * n * sizeof *y);
	memcpy(y, x, n * sizeof *y);
	dev = gpu_copy(y, 2 * n * sizeof *y);
	free(y);
	return dev;
}

/* Places of slots whose key is not that of the token that the list names.  pages: of the slots. */
static int misplaced(const struct batch_case *c, const struct evict_req *r, const int32_t *keep,
		     const int32_t *pages, const bf16_t *got, const bf16_t *old)
{
	const struct attn_shape *s = &c->b.shape;
	int n_wrong = 0, n = r->n_keep + r->n_key - r->n_cand;

	for (int h = 0; h < s->kv_heads; h++)
		for (int i = 0; i < n; i++) {
			int t = i < r->n_keep ? keep[h * r->n_keep + i] : r->n_cand + i - r->n_keep;
			size_t to =
				(size_t)((pages[i / s->page_tok] * s->kv_heads + h) * s->page_tok +
					 i % s->page_tok);
			size_t from = (size_t)((c->page[t / s->page_tok] * s->kv_heads + h) *
						       s->page_tok +
					       t % s->page_tok);
			size_t dim = (size_t)s->head_dim;

			n_wrong += memcmp(got + to * dim, old + from * dim, dim * 2) != 0;
		}
	return n_wrong;
}

/* Whether the device keeps what references with a little less and a little more keep, and moves it.
 * near 0: exactly what the reference keeps. */
static bool agrees(const struct batch_case *c, const char *form, int budget, int n_tail, int near)
{
	struct evict *e = evictor(form, budget), *less = evictor(form, budget - near);
	struct evict *more = evictor(form, budget + near);
	const struct evict_req r = request_of(c, e, n_tail), rl = request_of(c, less, n_tail);
	const struct evict_req rm = request_of(c, more, n_tail);
	int32_t *strict = kept_ref(c, less, n_tail), *loose = kept_ref(c, more, n_tail);
	size_t n = (size_t)(r.n_keep * c->b.shape.kv_heads), bytes = c->kv_len * sizeof(bf16_t);
	int32_t *keep = gpu_host(n * sizeof *keep);
	bf16_t *k = gpu_host(2 * bytes), *v = gpu_host(2 * bytes);
	int32_t *to = places(c, budget % 2);
	struct evict_call call = {
		.shape = c->b.shape,
		.n_req = 1,
		.req = &r,
		.page = gpu_copy(c->page, (size_t)c->n_page * sizeof *c->page),
		.to = budget % 2 ? gpu_copy(to, (size_t)c->n_page * sizeof *to) : NULL,
		.kv = { .k = twice(c->kv.k, c->kv_len), .v = twice(c->kv.v, c->kv_len) },
		.q = gpu_copy(c->all_q,
			      (size_t)(c->len[0] * c->b.shape.q_heads * c->b.shape.head_dim) *
				      sizeof *c->all_q),
		.keep = gpu_new(n * sizeof *keep, 0xff),
		.work = gpu_new(evict_work_bytes(e, &c->b.shape, r.n_cand) + 1, 0xff),
	};
	bool good = true;
	struct ar_err err;
	int wrong;

	gpu_must(evict_enqueue(e, &call, &err), &err);
	gpu_read(keep, call.keep, n * sizeof *keep);
	gpu_read(k, call.kv.k, 2 * bytes);
	gpu_read(v, call.kv.v, 2 * bytes);
	for (int h = 0; h < c->b.shape.kv_heads; h++) {
		const int32_t *own = keep + h * r.n_keep;

		good &= within(strict + h * rl.n_keep, rl.n_keep, own, r.n_keep) &&
			within(own, r.n_keep, loose + h * rm.n_keep, rm.n_keep);
	}
	wrong = good ? misplaced(c, &r, keep, to, k, c->kv.k) +
				misplaced(c, &r, keep, to, v, c->kv.v) :
		       0;
	if (!good || wrong)
		diag("%s, heads %d/%d of %d, page %d: %d of %d stay, %d behind; %d misplaced", form,
		     c->b.shape.q_heads, c->b.shape.kv_heads, c->b.shape.head_dim,
		     c->b.shape.page_tok, r.n_keep, r.n_cand, n_tail, wrong);
	free(strict);
	free(loose);
	free(keep);
	free(to);
	free(k);
	free(v);
	gpu_free_all();
	evict_free(e);
	evict_free(less);
	evict_free(more);
	return good && !wrong;
}

static bool random_agrees(uint64_t seed, const char *form, int dim)
{
	static const int heads[][2] = { { 8, 2 }, { 3, 3 }, { 5, 1 }, { 12, 2 } };
	struct rng rng = { seed };
	const int *h = heads[rng_below(&rng, 4)];
	struct attn_shape s = { h[0], h[1], dim, rng_below(&rng, 2) ? 64 : 128 };
	int len = select_draw(&rng, 400, 6000),
	    n_tail = rng_below(&rng, 2) ? select_draw(&rng, 0, 90) : 0;
	int budget = select_draw(&rng, 180, len - n_tail - 40);
	struct batch_case c;
	bool good;

	case_make(&c, &rng, rng_below(&rng, 2) ? FILL_NORMAL : FILL_BLOCKS, s, 1, &len);
	good = agrees(&c, form, budget, n_tail, strstr(form, "snapkv") ? 2 + budget / 100 : 0);
	case_release(&c);
	return good;
}

static void run_all(void)
{
	static const int dims[N_DIM] = { 64, 128, 256 };
	int n = (int)gpu_test_number("ATTNREPLAY_TEST_CASES", 12);

	for (int d = 0; d < N_DIM; d++) {
		const struct attn_shape s = { 4, 2, dims[d], 64 };
		struct rng rng = { 3 };
		struct batch_case c;
		int len = 500;

		if (!gpu_attends(dims[d])) {
			skip(N_FORM + 1, "the GPU lacks shared memory for such heads");
			continue;
		}
		for (int f = 0; f < N_FORM; f++) {
			int n_wrong = 0;

			for (int i = 0; i < n; i++)
				n_wrong += !random_agrees((uint64_t)(i + 100 * f), forms[f],
							  dims[d]);
			is_int(n_wrong, 0, "heads of %d, %s", dims[d], forms[f]);
		}
		case_make(&c, &rng, FILL_EQUAL, s, 1, &len);
		ok(agrees(&c, "snapkv:budget=%,window=8,pool=max,group=before", 300, 0, 0),
		   "heads of %d: of equal keys the first ones stay", dims[d]);
		case_release(&c);
	}
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
