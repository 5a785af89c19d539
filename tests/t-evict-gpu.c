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

enum { N_DIM = 3, N_FORM = 11, N_EXACT = 8, N_TEST = N_DIM * N_FORM + N_DIM + N_EXACT };

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
	"h2o:heavy=%,recent=20",
	"h2o:heavy=%,recent=1,norm=1",
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

/* ---- state ---- */

/* Cut the rows of the only sequence of c after the first `at`, as many as a chunk or a decode has.
 * Returns their number; 0: there are none. */
static int cut_next(struct batch_case *c, int at)
{
	int left = c->len[0] - at, rows = left > 300 ? 300 : left > 3 ? left - 3 : left > 0;

	if (rows)
		case_cut(c, &at, &rows);
	return rows;
}

/* The state after all rows of c, or NULL. */
static void *state_ref(struct batch_case *c, const struct evict *e)
{
	size_t bytes = evict_state_bytes(e, &c->b.shape);
	void *state = bytes ? gpu_host((size_t)c->n_page * bytes) : NULL;
	struct ar_err err;

	for (int at = 0, n; state && (n = cut_next(c, at)); at += n)
		gpu_must(evict_add_ref(e,
				       &(struct attn_call){
					       .b = &c->b, .q = c->q, .kv = c->kv, .state = state },
				       &err),
			 &err);
	return state;
}

/* The same on the device.  Rows come twice before they are committed. */
static void *state_gpu(struct batch_case *c, const struct evict *e, const struct kv_cache *kv)
{
	size_t bytes = evict_state_bytes(e, &c->b.shape);
	void *state = bytes ? gpu_new((size_t)c->n_page * bytes, 0x7f) : NULL;
	struct ar_err err;

	for (int at = 0, n; state && (n = cut_next(c, at)); at += n) {
		const struct attn_batch b = gpu_batch(&c->b);
		const struct attn_limits l = select_limits(&c->b);
		const struct attn_call call = {
			.b = &b,
			.q = gpu_copy(c->q, c->q_len * sizeof *c->q),
			.kv = *kv,
			.state = state,
			.work = gpu_new(evict_add_bytes(e, &c->b.shape, &l), 0xff),
		};

		gpu_must(evict_add(e, &call, &err), &err);
		gpu_must(evict_add(e, &call, &err), &err);
		gpu_must(evict_commit(e, &call, &err), &err);
	}
	return state;
}

/* ---- what stays ---- */

/* The reference's lists, in a cache of their own.  state: of all rows, or NULL. */
static int32_t *kept_ref(const struct batch_case *c, const struct evict *e, int n_tail,
			 const void *state)
{
	size_t state_bytes = (size_t)c->n_page * evict_state_bytes(e, &c->b.shape);
	const struct evict_req r = request_of(c, e, n_tail);
	size_t n = (size_t)(r.n_keep * c->b.shape.kv_heads), bytes = c->kv_len * sizeof(bf16_t);
	struct kv_cache kv = { .k = gpu_host(bytes), .v = gpu_host(bytes) };
	struct evict_call call = { .shape = c->b.shape,
				   .n_req = 1,
				   .req = &r,
				   .page = c->page,
				   .kv = kv,
				   .state = gpu_host(state_bytes + 1),
				   .q = c->all_q,
				   .keep = gpu_host(n * sizeof(int32_t)) };
	struct ar_err err;

	memcpy(kv.k, c->kv.k, bytes);
	memcpy(kv.v, c->kv.v, bytes);
	if (state)
		memcpy(call.state, state, state_bytes);
	gpu_must(evict_ref(e, &call, &err), &err);
	free(kv.k);
	free(kv.v);
	free(call.state);
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

/* n bytes, then as many again. */
static void *twice(const void *x, size_t n)
{
	char *y = gpu_host(2 * n);
	void *dev;

	memset(y, 0xff, 2 * n);
	memcpy(y, x, n);
	dev = gpu_copy(y, 2 * n);
	free(y);
	return dev;
}

/* Places of slots whose `size` bytes are not those of the token that the list names.  pages: of the
 * slots. */
static int misplaced(const struct batch_case *c, const struct evict_req *r, const int32_t *keep,
		     const int32_t *pages, const void *got, const void *old, size_t size)
{
	const struct attn_shape *s = &c->b.shape;
	int n_wrong = 0, n = r->n_keep + r->n_key - r->n_cand;

	for (int h = 0; h < s->kv_heads; h++)
		for (int i = 0; i < n; i++) {
			int t = i < r->n_keep ? keep[h * r->n_keep + i] : r->n_cand + i - r->n_keep;
			size_t to =
				(size_t)((pages[i / s->page_tok] * s->kv_heads + h) * s->page_tok +
					 i % s->page_tok);
			size_t from;

			if (t < 0 || t >= r->n_key) { /* no token */
				n_wrong++;
				continue;
			}
			from = (size_t)((c->page[t / s->page_tok] * s->kv_heads + h) * s->page_tok +
					t % s->page_tok);

			n_wrong += memcmp((const char *)got + to * size,
					  (const char *)old + from * size, size) != 0;
		}
	return n_wrong;
}

/* Whether the event of the device moves what its list says.  call: of the device, but for kv and
 * state, which are given.  keep: the list is read into it. */
static int run_event(const struct batch_case *c, const struct evict *e, struct evict_call call,
		     const int32_t *to, const void *state, int32_t *keep)
{
	const size_t dim = (size_t)c->b.shape.head_dim * sizeof(bf16_t);
	const size_t own = evict_token_bytes(e), n_tok = c->kv_len * sizeof(bf16_t) / dim;
	const void *old[] = { c->kv.k, c->kv.v, state };
	const size_t size[] = { dim, dim, own };
	void *dev[3], *got = gpu_host(2 * n_tok * dim);
	struct ar_err err;
	int n_wrong = 0;

	for (int i = 0; i < 3; i++)
		dev[i] = size[i] ? twice(old[i], n_tok * size[i]) : NULL;
	call.kv = (struct kv_cache){ .k = dev[0], .v = dev[1] };
	call.state = dev[2];
	gpu_must(evict_enqueue(e, &call, &err), &err);
	gpu_read(keep, call.keep, (size_t)(call.req->n_keep * c->b.shape.kv_heads) * sizeof *keep);
	for (int i = 0; i < 3; i++) {
		if (!size[i])
			continue;
		gpu_read(got, dev[i], 2 * n_tok * size[i]);
		n_wrong += misplaced(c, call.req, keep, to, got, old[i], size[i]);
	}
	free(got);
	return n_wrong;
}

/* Whether the device keeps what references with a little less and a little more keep, and moves it.
 * near 0: exactly what the reference keeps. */
static bool agrees(struct batch_case *c, const char *form, int budget, int n_tail, int near)
{
	struct evict *e = evictor(form, budget), *less = evictor(form, budget - near);
	struct evict *more = evictor(form, budget + near);
	const struct evict_req r = request_of(c, e, n_tail), rl = request_of(c, less, n_tail);
	const struct evict_req rm = request_of(c, more, n_tail);
	void *want = state_ref(c, e), *state = NULL;
	int32_t *strict = kept_ref(c, less, n_tail, want), *loose = kept_ref(c, more, n_tail, want);
	size_t n = (size_t)(r.n_keep * c->b.shape.kv_heads);
	size_t bytes = (size_t)c->n_page * evict_state_bytes(e, &c->b.shape);
	int32_t *keep = gpu_host(n * sizeof *keep), *to = places(c, budget % 2);
	const struct kv_cache kv = gpu_kv(&c->kv, c->kv_len);
	void *dev = state_gpu(c, e, &kv);
	struct evict_call call = {
		.shape = c->b.shape,
		.n_req = 1,
		.req = &r,
		.page = gpu_copy(c->page, (size_t)c->n_page * sizeof *c->page),
		.to = budget % 2 ? gpu_copy(to, (size_t)c->n_page * sizeof *to) : NULL,
		.q = gpu_copy(c->all_q,
			      (size_t)(c->len[0] * c->b.shape.q_heads * c->b.shape.head_dim) *
				      sizeof *c->all_q),
		.keep = gpu_new(n * sizeof *keep, 0xff),
		.work = gpu_new(evict_work_bytes(e, &c->b.shape, r.n_cand) + 1, 0xff),
	};
	bool good = true;
	int wrong;

	if (dev) {
		state = gpu_host(bytes);
		gpu_read(state, dev, bytes);
	}
	wrong = run_event(c, e, call, to, state, keep);
	for (int h = 0; h < c->b.shape.kv_heads; h++) {
		const int32_t *own = keep + h * r.n_keep;

		good &= within(strict + h * rl.n_keep, rl.n_keep, own, r.n_keep) &&
			within(own, r.n_keep, loose + h * rm.n_keep, rm.n_keep);
	}
	if (!good || wrong)
		diag("%s, heads %d/%d of %d, page %d: %d of %d stay, %d behind; %d misplaced", form,
		     c->b.shape.q_heads, c->b.shape.kv_heads, c->b.shape.head_dim,
		     c->b.shape.page_tok, r.n_keep, r.n_cand, n_tail, wrong);
	free(want);
	free(state);
	free(strict);
	free(loose);
	free(keep);
	free(to);
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
	bool state = strstr(form, "h2o"); /* its reference reads all rows */
	int len = select_draw(&rng, 400, state ? 700 : 6000),
	    n_tail = rng_below(&rng, 2) ? select_draw(&rng, 0, 90) : 0;
	int budget = select_draw(&rng, 180, len - n_tail - 40);
	struct batch_case c;
	bool good;

	case_make(&c, &rng, rng_below(&rng, 2) ? FILL_NORMAL : FILL_BLOCKS, s, 1, &len);
	good = agrees(&c, form, budget, n_tail, strstr(form, "streaming") ? 0 : 2 + budget / 100);
	case_release(&c);
	return good;
}

/* The keys and queries of the worked examples in the first channels of wider heads: queries times
 * four, as logits are divided by 8 and not by 2. */
static void worked_case(struct batch_case *c, int n)
{
	const struct attn_shape s = { 4, 2, 64, 64 };
	struct rng rng = { 1 };
	struct batch_case from;

	case_decode_keys(&from, n);
	case_make(c, &rng, FILL_NORMAL, s, 1, &n);
	memset(c->kv.k, 0, c->kv_len * sizeof *c->kv.k);
	memset(c->all_q, 0, (size_t)(n * s.q_heads * s.head_dim) * sizeof *c->all_q);
	for (int i = 0; i < n * s.q_heads * 4; i++)
		c->all_q[i / 4 * s.head_dim + i % 4] =
			bf16_from_f32(bf16_to_f32(from.all_q[i]) * 4);
	for (int i = 0; i < n * s.kv_heads; i++) {
		int t = i / s.kv_heads, h = i % s.kv_heads, tok = from.b.shape.page_tok;
		size_t at = (size_t)((from.page[t / tok] * s.kv_heads + h) * tok + t % tok);
		size_t to = (size_t)((c->page[t / s.page_tok] * s.kv_heads + h) * s.page_tok +
				     t % s.page_tok);

		memcpy(c->kv.k + to * (size_t)s.head_dim, from.kv.k + at * 4, 4 * sizeof(bf16_t));
	}
	case_release(&from);
}

/* Exactly what the reference keeps, where no two scores are near. */
static void test_exact(void)
{
	static const struct {
		const char *form;
		int budget, n;
	} exact[N_EXACT] = {
		{ "snapkv:budget=%,window=4,kernel=3,variant=kvpress", 12, 40 },
		{ "snapkv:budget=%,window=4,kernel=3,variant=trtllm", 12, 40 },
		{ "snapkv:budget=%,window=4,kernel=3,variant=trtllm,softmax=all", 12, 40 },
		{ "snapkv:budget=%,window=4,kernel=3,pool=max,group=after", 12, 40 },
		{ "snapkv:budget=%,window=4,kernel=3,variant=frontier,sink=2,local=3", 12, 40 },
		{ "h2o:heavy=%,recent=4", 3, 12 },
		{ "h2o:heavy=%,recent=4", 9, 39 },
		{ "h2o:heavy=%,recent=4,norm=1", 3, 12 },
	};

	for (int i = 0; i < N_EXACT; i++) {
		struct batch_case c;

		worked_case(&c, exact[i].n);
		ok(agrees(&c, exact[i].form, exact[i].budget, 0, 0),
		   "the worked example, %s: just what the reference keeps", exact[i].form);
		case_release(&c);
	}
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

			for (int i = 0; i < (strstr(forms[f], "h2o") ? (n + 3) / 4 : n); i++)
				n_wrong += !random_agrees((uint64_t)(i + 100 * f), forms[f],
							  dims[d]);
			is_int(n_wrong, 0, "heads of %d, %s", dims[d], forms[f]);
		}
		case_make(&c, &rng, FILL_EQUAL, s, 1, &len);
		ok(agrees(&c, "snapkv:budget=%,window=8,pool=max,group=before", 300, 0, 0),
		   "heads of %d: of equal keys the first ones stay", dims[d]);
		case_release(&c);
	}
	test_exact();
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
