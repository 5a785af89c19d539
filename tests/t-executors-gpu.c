/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA executors on random ragged batches, over each shape that they take.  All are compared
 * with their references; copy must also equal paged bit for bit.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attend/attend_cut.h"
#include "kernels/methods/method.h"
#include "kernels/methods/shapes.h"
#include "kernels/support.h"
#include "tests/batch_case.h"
#include "tests/gpu_test.h"
#include "tests/tap.h"

/* Beside each executor over each shape. */
enum { N_SIZE = 6, N_TEST = (1 + 4) * N_SIZE + 2 * 4 + 2 + 1 };

static int count_pairs(void)
{
	int n = 0;

	for (int i = 0; executors[i]; i++)
		for (const struct selection_shape *s = selection_shapes; s->bit; s++)
			n += executor_takes(executors[i], s->bit);
	return n;
}

#if HAVE_CUDA

enum { CASES = 12 };

static void draw_case(struct batch_case *c, int page_tok, int dim, struct rng *rng)
{
	static const int groups[] = { 1, 2, 4, 7, 8, 16 };
	int kv_heads = 1 + (int)rng_below(rng, 3), n_req = 1 + (int)rng_below(rng, 4);
	int ctx[4], rows[4];
	struct attn_shape s = { kv_heads * groups[rng_below(rng, 6)], kv_heads, dim, page_tok };

	for (int r = 0; r < n_req; r++) {
		rows[r] = case_draw_len(rng, 300);
		ctx[r] = case_draw_len(rng, 2000) - 1;
		if (rng_below(rng, 4) == 0)
			ctx[r] = ctx[r] / page_tok * page_tok;
	}
	case_chunks(c, rng, rng_below(rng, 4) ? FILL_NORMAL : FILL_HUGE, s, n_req, ctx, rows);
	if (rng_below(rng, 2))
		case_sinks(c, rng);
	if (rng_below(rng, 3) == 0)
		case_overflow(c, rng);
}

/* ---- runs ---- */

struct output {
	bf16_t *out;
	float *lse;
};

static struct output output_new(const struct batch_case *c)
{
	size_t n_row = c->q_len / (size_t)c->b.shape.head_dim;

	return (struct output){ gpu_host(c->q_len * sizeof(bf16_t)),
				gpu_host(n_row * sizeof(float)) };
}

static void output_free(struct output *o)
{
	free(o->out);
	free(o->lse);
}

static bool output_equal(const struct batch_case *c, const struct output *a, const struct output *b)
{
	size_t n_row = c->q_len / (size_t)c->b.shape.head_dim;

	return !memcmp(a->out, b->out, c->q_len * sizeof *a->out) &&
	       !memcmp(a->lse, b->lse, n_row * sizeof *a->lse);
}

static bool output_near(const struct batch_case *c, const struct output *got,
			const struct output *want)
{
	size_t dim = (size_t)c->b.shape.head_dim;
	double diff = 0, norm = 0;
	bool good = true;

	for (size_t i = 0; i < c->q_len; i++) {
		double w = bf16_to_f32(want->out[i]), e = fabs(bf16_to_f32(got->out[i]) - w);

		if (isnan(w)) {
			good = good && isnan(bf16_to_f32(got->out[i]));
			continue;
		}
		good = good && e <= 2e-2 * fmax(1, fabs(w));
		diff += e * e;
		norm += w * w;
	}
	for (size_t i = 0; i < c->q_len / dim; i++)
		good = good &&
		       (isnan(want->lse[i])	  ? isnan(got->lse[i]) :
			want->lse[i] == -INFINITY ? got->lse[i] == -INFINITY :
						    fabs(got->lse[i] - want->lse[i]) <=
							    1e-3 + 1e-5 * fabs(want->lse[i]));
	return good && sqrt(diff) <= 5e-3 * sqrt(norm);
}

/* Run x over lists on the device, its memory full of NaN.  Tiles may be cut for up to n_sm
 * multiprocessors.  *work: its working memory, until gpu_free_all(). */
static enum ar_status run(struct batch_case *c, const struct executor *x,
			  const struct executor_lists *dev, int n_sm, void **work, struct output *o,
			  struct ar_err *err)
{
	struct attn_limits most = { c->b.rows.n_req, c->b.rows.n_row, c->b.keys.max_kv_blk, 0,
				    c->b.keys.n_page };
	size_t bytes = c->q_len * sizeof *o->out;
	size_t lse_bytes = c->q_len / (size_t)c->b.shape.head_dim * sizeof *o->lse;
	bf16_t *q = gpu_copy(c->q, bytes), *out = gpu_new(bytes, 0xff);
	float *lse = gpu_new(lse_bytes, 0xff), *sink = NULL;
	struct kv_cache kv = gpu_kv(&c->kv, c->kv_len);
	struct attn_batch b;
	enum ar_status st = AR_OK;

	most.n_sm = gpu_n_sm() ? n_sm : 0;
	c->b.n_sm = most.n_sm;
	case_plan(c, x->plan, dev->heads);
	b = gpu_batch(&c->b);
	if (c->sink)
		sink = gpu_copy(c->sink, (size_t)c->b.shape.q_heads * sizeof *sink);
	*work = gpu_new(x->work_bytes(&c->b.shape, &most, dev->heads), 0xff);
	if (x->move)
		st = x->move(&(struct attn_call){ .b = &b, .kv = kv, .work = *work }, dev, err);
	if (!st)
		st = x->enqueue(&(struct attn_call){ .b = &b,
						     .q = q,
						     .kv = kv,
						     .sink = sink,
						     .out = out,
						     .lse = lse,
						     .work = *work },
				dev, err);
	if (st)
		return st;
	gpu_read(o->out, out, bytes);
	gpu_read(o->lse, lse, lse_bytes);
	return AR_OK;
}

static struct token_lists gpu_tokens(const struct batch_case *c, const struct token_lists *l)
{
	size_t heads = (size_t)c->b.shape.kv_heads;

	return (struct token_lists){
		gpu_copy(l->tok, (size_t)c->b.keys.n_page * (size_t)c->b.shape.page_tok * heads *
					 sizeof *l->tok),
		gpu_copy(l->n, (size_t)c->b.rows.n_req * heads * sizeof *l->n),
	};
}

static struct column_lists gpu_columns(const struct batch_case *c, const struct column_lists *l)
{
	size_t n = (size_t)c->b.rows.n_qblk * (size_t)c->b.shape.q_heads;

	return (struct column_lists){ gpu_copy(l->run, n * (size_t)l->max_run * sizeof *l->run),
				      gpu_copy(l->n_run, n * sizeof *l->n_run),
				      gpu_copy(l->col, n * (size_t)l->max_col * sizeof *l->col),
				      gpu_copy(l->n_col, n * sizeof *l->n_col),
				      l->max_run,
				      l->max_col,
				      gpu_copy(l->band, n * sizeof *l->band) };
}

/* ---- one case of each executor: whether it is right ---- */

typedef bool case_fn(struct batch_case *c, struct rng *rng, enum ar_status *st, struct ar_err *err);

static bool copy_case(struct batch_case *c, struct rng *rng, enum ar_status *st, struct ar_err *err)
{
	int group = c->b.shape.q_heads / c->b.shape.kv_heads, n_sm = 1 + (int)rng_below(rng, 300);
	struct executor_lists l = { .heads = 1 + (int)rng_below(rng, (uint64_t)group) }, dev = l;
	struct output got = output_new(c), paged = output_new(c), want = output_new(c);
	bool good = false;
	void *work;

	case_tables(c, l.heads, 0.3, &l.blocks, rng);
	dev.blocks = gpu_lists(&l.blocks, case_n_list(c, attend_plan_rows, l.heads));
	*st = run(c, executor_find("paged"), &dev, n_sm, &work, &paged, err);
	if (!*st)
		*st = run(c, executor_find("copy"), &dev, n_sm, &work, &got, err);
	if (!*st)
		*st = executor_find("copy")->ref(&(struct attn_call){ .b = &c->b,
								      .q = c->q,
								      .kv = c->kv,
								      .sink = c->sink,
								      .out = want.out,
								      .lse = want.lse },
						 &l, err);
	if (!*st)
		good = output_equal(c, &got, &paged) && output_near(c, &got, &want);
	lists_free(&l.blocks);
	output_free(&got);
	output_free(&paged);
	output_free(&want);
	return good;
}

/* Device against reference. */
static bool compare(struct batch_case *c, const struct executor *x, const struct executor_lists *l,
		    const struct executor_lists *dev, int n_sm, enum ar_status *st,
		    struct ar_err *err)
{
	struct output got = output_new(c), want = output_new(c);
	bool good = false;
	void *work;

	*st = run(c, x, dev, n_sm, &work, &got, err);
	if (!*st)
		*st = x->ref(&(struct attn_call){ .b = &c->b,
						  .q = c->q,
						  .kv = c->kv,
						  .sink = c->sink,
						  .out = want.out,
						  .lse = want.lse },
			     l, err);
	if (!*st)
		good = output_near(c, &got, &want);
	output_free(&got);
	output_free(&want);
	return good;
}

/* The executor and shape that any_case() runs. */
static struct {
	const struct executor *x;
	unsigned shape;
} tried;

static bool any_case(struct batch_case *c, struct rng *rng, enum ar_status *st, struct ar_err *err)
{
	struct executor_lists l, dev;
	bool good;

	if (!case_shape(c, tried.shape, c->b.shape.q_heads / c->b.shape.kv_heads, &l, rng))
		return false;
	dev = (struct executor_lists){ .heads = l.heads };
	if (l.blocks.n)
		dev.blocks = gpu_lists(
			&l.blocks,
			case_n_list(c, l.heads ? attend_plan_rows : attend_plan_blocks, l.heads));
	if (l.tokens.n)
		dev.tokens = gpu_tokens(c, &l.tokens);
	if (l.columns.n_run)
		dev.columns = gpu_columns(c, &l.columns);
	good = compare(c, tried.x, &l, &dev, 1 + (int)rng_below(rng, 300), st, err);
	shape_lists_free(&l);
	return good;
}

/* Only the kernel for compute capability 9.0 does. */
static bool takes_parts(void)
{
	return gpu_n_sm();
}

static void test_cases(case_fn *fn, const char *what, int page_tok, int dim)
{
	enum ar_status st = AR_OK;
	struct ar_err err = { 0 };
	bool good = true;

	for (int k = 0; k < CASES && good && !st; k++) {
		struct rng rng = { rng_mix((uint64_t)(k + 1000 * page_tok + dim)) };
		struct batch_case c;

		draw_case(&c, page_tok, dim, &rng);
		good = fn(&c, &rng, &st, &err);
		if (!good && !st)
			diag("case %d: %d query heads, %d KV heads, %d requests", k,
			     c.b.shape.q_heads, c.b.shape.kv_heads, c.b.rows.n_req);
		gpu_free_all();
		case_release(&c);
	}
	ok(good && !st, "%s, head size %d, blocks of %d tokens%s%s", what, dim, page_tok,
	   st ? ": " : "", st ? err.msg : "");
}

/* Whether the GPU has kernels of the executor's family for this size. */
static bool has_kernel(const struct executor *x, int page_tok, int dim)
{
	const struct attn_shape s = { 1, 1, dim, page_tok };
	const struct gpu *gpu;
	struct ar_err err;

	gpu_must(gpu_current(&gpu, &err), &err);
	return !support_check(x->kernel, &s, NULL, gpu->cc, &err);
}

static void test_copy(int page_tok, int dim)
{
	if (has_kernel(executor_find("copy"), page_tok, dim))
		test_cases(copy_case, "copy is paged to the last bit", page_tok, dim);
	else
		skip(1, "no kernel for the head size");
}

static void test_pairs(int page_tok, int dim)
{
	for (int i = 0; executors[i]; i++)
		for (const struct selection_shape *s = selection_shapes; s->bit; s++) {
			char what[96];

			if (!executor_takes(executors[i], s->bit))
				continue;
			tried.x = executors[i];
			tried.shape = s->bit;
			snprintf(what, sizeof what, "%s: %s", tried.x->name, s->title);
			if (has_kernel(tried.x, page_tok, dim))
				test_cases(any_case, what, page_tok, dim);
			else
				skip(1, "no kernel for the head size");
		}
}

/* ---- long lists of runs and columns ---- */

enum listed { BOTH, ONLY_RUNS, ONLY_COLUMNS, ALL };

static const char *const listed_name[] = { "runs and columns", "only runs", "only columns",
					   "all keys under a band" };

/* List k, of a query block that begins at st, has all keys before its end: columns, fewer than a
 * page, then runs that straddle pages.  Most rows see few keys.  Every fifth list is empty. */
static void list_all(struct column_lists *l, int k, int st, int tok)
{
	int32_t *run = l->run + k * l->max_run, *col = l->col + k * l->max_col;

	l->n_run[k] = l->n_col[k] = 0;
	for (int at = 0; at < k % tok && k % 5; at++)
		col[l->n_col[k]++] = at;
	for (int at = k % tok; at < st + tok && k % 5; at += tok)
		run[l->n_run[k]++] = at;
	l->band[k] = (struct attn_band){ 300 + k, 100 + 7 * k, k % 3 * tok / 2 };
}

static void list_only_columns(struct column_lists *l, int k, int st, struct rng *rng)
{
	l->n_run[k] = l->n_col[k] = 0;
	for (int at = 0; at < st; at++)
		if (rng_unit(rng) < 0.6)
			l->col[k * l->max_col + l->n_col[k]++] = at;
}

static void list_columns(const struct batch_case *c, enum listed what, struct column_lists *l,
			 struct rng *rng)
{
	int heads = c->b.shape.q_heads, tok = c->b.shape.page_tok;

	case_columns(c, 0.6, l, rng);
	for (int r = 0; r < c->b.rows.n_req; r++)
		for (int k = c->qblk0[r] * heads; k < c->qblk0[r + 1] * heads; k++) {
			int st = (c->ctx[r] / tok + k / heads - c->qblk0[r]) * tok;

			if (what == ALL)
				list_all(l, k, st, tok);
			else if (what == ONLY_COLUMNS)
				list_only_columns(l, k, st, rng);
			else if (what == ONLY_RUNS)
				l->n_col[k] = 0;
		}
}

/* Parts with something to do that the kernel before attention made, whose pieces begin work. */
static int count_begun(const struct batch_case *c, const void *work)
{
	struct attend_piece *piece = gpu_host((size_t)c->b.n_tile * sizeof *piece);
	int n = 0;

	gpu_read(piece, work, (size_t)c->b.n_tile * sizeof *piece);
	for (int i = 0; i < c->b.n_tile; i++)
		n += c->tile[piece[i].tile].part < piece[i].n_part && piece[i].n_part > 1 &&
		     piece[i].n > 0;
	free(piece);
	return n;
}

/* One row, and rows of more than a block, after contexts whose tiles are cut; a short request. */
static void test_long(enum listed what, int page_tok, int dim)
{
	enum { TIMES = 4 };
	struct attn_shape s = { 4, 2, dim, page_tok };
	const struct executor *x = executor_find("columns");
	struct rng rng = { rng_mix((uint64_t)(what + 10 * page_tok + dim)) };
	struct output first, again, want;
	struct executor_lists l = { 0 }, dev = l;
	bool good = true;
	struct batch_case c;
	struct ar_err err;
	int parts = 0;
	void *work;

	if (!takes_parts()) {
		skip(1, "the device's kernel takes whole tiles");
		return;
	}
	case_chunks(&c, &rng, what == BOTH ? FILL_HUGE : FILL_NORMAL, s, 4,
		    (int[]){ 4321, 2500, 3072, 77 }, (int[]){ 1, 70, 64, 9 });
	list_columns(&c, what, &l.columns, &rng);
	first = output_new(&c);
	again = output_new(&c);
	want = output_new(&c);
	dev.columns = gpu_columns(&c, &l.columns);
	for (int i = 0; i < TIMES && good; i++) {
		struct output *o = i ? &again : &first;

		gpu_must(run(&c, x, &dev, 132, &work, o, &err), &err);
		parts += count_begun(&c, work);
		good = !i || output_equal(&c, &again, &first);
	}
	if (!good)
		diag("not the bits of the first launch");
	if (x->ref(
		    &(struct attn_call){
			    .b = &c.b, .q = c.q, .kv = c.kv, .out = want.out, .lse = want.lse },
		    &l, &err))
		bail_out("%s", err.msg);
	ok(good && output_near(&c, &first, &want) && c.b.n_part && parts >= TIMES * 8,
	   "columns, %s, in parts (%d), head size %d, blocks of %d tokens", listed_name[what],
	   parts / TIMES, dim, page_tok);
	output_free(&first);
	output_free(&again);
	output_free(&want);
	columns_free(&l.columns);
	gpu_free_all();
	case_release(&c);
}

/* ---- whole methods ---- */

static struct executor_lists drawn; /* on the host */

static enum ar_status ref_tokens(const struct attn_call *call, const void *self,
				 const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	size_t heads = (size_t)b->shape.kv_heads;

	(void)self, (void)err;
	memcpy(out->tokens.tok, drawn.tokens.tok,
	       (size_t)(b->keys.n_page * b->shape.page_tok) * heads * sizeof *out->tokens.tok);
	memcpy(out->tokens.n, drawn.tokens.n,
	       (size_t)b->rows.n_req * heads * sizeof *out->tokens.n);
	return AR_OK;
}

static enum ar_status enqueue_tokens(const struct attn_call *call, const void *self,
				     const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	size_t heads = (size_t)b->shape.kv_heads;

	(void)self;
	(void)err;
	gpu_write(out->tokens.tok, drawn.tokens.tok,
		  (size_t)(b->keys.n_page * b->shape.page_tok) * heads * sizeof *out->tokens.tok);
	gpu_write(out->tokens.n, drawn.tokens.n,
		  (size_t)b->rows.n_req * heads * sizeof *out->tokens.n);
	return AR_OK;
}

/* As large as case_columns makes them, so that rows have the same stride everywhere. */
static void plenty(const void *self, const struct attn_shape *s, int *max_run, int *max_col)
{
	(void)self, (void)s;
	*max_run = *max_col = 1 << 20;
}

static enum ar_status put_columns(const struct attn_batch *b, const struct column_lists *to,
				  void (*put)(void *, const void *, size_t))
{
	const struct column_lists *from = &drawn.columns;
	size_t n = (size_t)(b->rows.n_qblk * b->shape.q_heads);

	if (to->max_run != from->max_run || to->max_col != from->max_col)
		bail_out("rows of another stride");
	put(to->n_run, from->n_run, n * sizeof *to->n_run);
	put(to->n_col, from->n_col, n * sizeof *to->n_col);
	put(to->band, from->band, n * sizeof *to->band);
	put(to->run, from->run, n * (size_t)to->max_run * sizeof *to->run);
	put(to->col, from->col, n * (size_t)to->max_col * sizeof *to->col);
	return AR_OK;
}

static void put_host(void *to, const void *from, size_t n)
{
	memcpy(to, from, n);
}

static enum ar_status ref_columns(const struct attn_call *call, const void *self,
				  const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	(void)self, (void)err;
	return put_columns(b, &out->columns, put_host);
}

static enum ar_status enqueue_columns(const struct attn_call *call, const void *self,
				      const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	(void)self;
	(void)err;
	return put_columns(b, &out->columns, gpu_write);
}

static void note_phase(void *ctx, int layer, enum phase phase)
{
	char *text = ctx;

	(void)layer;
	strcat(text, phase == PHASE_SELECT   ? "S" :
		     phase == PHASE_METADATA ? "M" :
		     phase == PHASE_COPY     ? "C" :
		     phase == PHASE_ATTEND   ? "A" :
					       "?");
}

static void test_method(struct batch_case *c, const struct selector *s, const char *exec,
			const char *phases)
{
	const struct method_part m = { .selector = s, .executor = executor_find(exec) };
	struct attn_limits most = { c->b.rows.n_req, c->b.rows.n_row, c->b.keys.max_kv_blk, 0,
				    c->b.keys.n_page };
	struct output got = output_new(c), want = output_new(c);
	size_t bytes = c->q_len * sizeof *got.out;
	size_t lse_bytes = c->q_len / (size_t)c->b.shape.head_dim * sizeof *got.lse;
	struct selection_count count[2], ref[2];
	struct kv_cache kv = gpu_kv(&c->kv, c->kv_len);
	bf16_t *out = gpu_new(bytes, 0xff);
	float *lse = gpu_new(lse_bytes, 0xff);
	char announced[16] = "";
	struct attn_batch b;
	struct ar_err err;
	void *work;

	case_plan(c, m.executor->plan, 0);
	b = gpu_batch(&c->b);
	work = gpu_new(method_work_bytes(&m, &c->b.shape, &most), 0xff);
	if (method_enqueue(&m,
			   &(struct attn_call){ .b = &b,
						.q = gpu_copy(c->q, bytes),
						.kv = kv,
						.out = out,
						.lse = lse,
						.work = work },
			   note_phase, announced, &err) ||
	    method_ref(
		    &m,
		    &(struct attn_call){
			    .b = &c->b, .q = c->q, .kv = c->kv, .out = want.out, .lse = want.lse },
		    ref, &err))
		bail_out("%s", err.msg);
	gpu_read(got.out, out, bytes);
	gpu_read(got.lse, lse, lse_bytes);
	if (method_count_device(&m, &c->b, work, count, &err))
		bail_out("%s", err.msg);
	ok(output_near(c, &got, &want) && !memcmp(count, ref, sizeof count),
	   "%s of %d: outputs and counts of the method are the reference's", exec,
	   c->b.shape.page_tok);
	is_str(announced, phases, "%s of %d: its phases are announced in order", exec,
	       c->b.shape.page_tok);
	output_free(&got);
	output_free(&want);
	gpu_free_all();
}

static void test_methods(int page_tok)
{
	static const struct selector tokens = { .name = "tokens",
						.gives = SHAPE_TOKENS,
						.ref = ref_tokens,
						.enqueue = enqueue_tokens };
	static const struct selector columns = { .name = "columns",
						 .gives = SHAPE_COLUMNS,
						 .columns = plenty,
						 .ref = ref_columns,
						 .enqueue = enqueue_columns };
	struct rng rng = { 77 };
	struct batch_case c;

	case_chunks(&c, &rng, FILL_NORMAL, (struct attn_shape){ 8, 2, 128, page_tok }, 2,
		    (int[]){ 1500, 333 }, (int[]){ 300, 77 });
	case_tokens(&c, 0.2, &drawn.tokens, &rng);
	case_columns(&c, 0.2, &drawn.columns, &rng);
	test_method(&c, &tokens, "gather", "SCA");
	test_method(&c, &columns, "columns", "SA");
	tokens_free(&drawn.tokens);
	columns_free(&drawn.columns);
	case_release(&c);
}

/* ---- the rest ---- */

static void test_nothing(void)
{
	struct attn_batch b = { .shape = { 8, 2, 128, 128 } };
	struct attn_call call = { .b = &b };
	struct executor_lists none = { 0 };
	int32_t first = 0;
	struct ar_err err;

	ok(!executor_find("columns")->enqueue(&call, &none, &err) &&
		   !executor_find("gather")->move(&call, &none, &err),
	   "nothing to do");
	b.rows.first = &first;
	is_int(executor_find("columns")->enqueue(&call, &none, &err), AR_USAGE,
	       "columns: a window under lists");
}

/* Launches that lack an argument, on a machine without a GPU. */
static void test_failure(void)
{
	struct attn_batch b = {
		.shape = { 8, 2, 128, 128 }, .rows.n_req = 1, .n_tile = 1, .keys.max_kv_blk = 1
	};
	struct executor_lists none = { .heads = 4 };
	struct kv_cache kv = { 0 };
	struct ar_err err = { 0 };

	ok(executor_find("copy")->move(&(struct attn_call){ .b = &b, .kv = kv }, &none, &err) ==
			   AR_CUDA &&
		   executor_find("gather")->move(&(struct attn_call){ .b = &b, .kv = kv }, &none,
						 &err) == AR_CUDA &&
		   executor_find("columns")->enqueue(&(struct attn_call){ .b = &b, .kv = kv },
						     &none, &err) == AR_CUDA &&
		   err.msg[0],
	   "without a GPU a launch fails with a message");
}

int main(void)
{
	const int n = N_TEST + N_SIZE * count_pairs();

	plan(n);
	test_nothing();
	if (!gpu_usable()) {
		test_failure();
		skip(n - 3, "no usable GPU");
		return done_testing();
	}
	for (int page_tok = 64; page_tok <= 128; page_tok *= 2) {
		for (int dim = 64; dim <= 256; dim *= 2) {
			test_copy(page_tok, dim);
			test_pairs(page_tok, dim);
			for (enum listed what = BOTH; what <= ALL; what++)
				test_long(what, page_tok, dim);
		}
		test_methods(page_tok);
	}
	skip(1, "there is a GPU");
	return done_testing();
}

#else
int main(void)
{
	const int n = N_TEST + N_SIZE * count_pairs();

	plan(n);
	gpu_usable();
	skip(n, "no usable GPU");
	return done_testing();
}
#endif
