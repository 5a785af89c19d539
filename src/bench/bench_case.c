/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

const char *const bench_names[] = { "dense",  "past",	       "table",	 "blocksparse",
				    "copy",   "gather",	       "decode", "decode-table",
				    "window", "decode-window", "mixed",	 "select",
				    NULL };

bool bench_decodes(enum bench_what what)
{
	return what == BENCH_DECODE || what == BENCH_DECODE_TABLE || what == BENCH_DECODE_WINDOW;
}

static bool has_window(enum bench_what what)
{
	return what == BENCH_WINDOW || what == BENCH_DECODE_WINDOW;
}

/* Its lists are tables, one per (request, KV head). */
static bool has_tables(enum bench_what what)
{
	return what == BENCH_PAST || what == BENCH_TABLE || what == BENCH_COPY ||
	       what == BENCH_DECODE_TABLE;
}

bool bench_takes_lists(enum bench_what what)
{
	return what == BENCH_BLOCKSPARSE || (has_tables(what) && what != BENCH_PAST);
}

/* Rows of request r, and its keys in the cache. */
static int64_t rows_of(enum bench_what what, const struct bench_shape *s, int r)
{
	return bench_decodes(what) || (what == BENCH_MIXED && r) ? 1 : s->chunk;
}

static int64_t keys_of(enum bench_what what, const struct bench_shape *s, int r)
{
	if (what == BENCH_MIXED && !r)
		return 2 * s->chunk;
	return what == BENCH_PAST ? s->context + s->chunk : s->context;
}

static int64_t most_keys(enum bench_what what, const struct bench_shape *s)
{
	int64_t first = keys_of(what, s, 0), other = keys_of(what, s, 1);

	return first > other ? first : other;
}

/* Check that s->lists are of these shapes. */
static enum ar_status check_lists(enum bench_what what, const struct bench_shape *s,
				  struct ar_err *err)
{
	const struct bench_lists *l = s->lists;
	bool table = has_tables(what);

	if (table ? !l->table : !l->block)
		return ar_fail(err, AR_USAGE, "case %s: the lists have no %s; select with %s",
			       bench_names[what], table ? "table for each KV head" : "blocks",
			       table ? "a method that has one, such as compact-fp" :
				       "a method of blocks");
	if (s->context != l->context || s->page_tok != l->page_tok ||
	    (!bench_decodes(what) && s->chunk != l->chunk))
		return ar_fail(err, AR_USAGE,
			       "the lists are of chunk %lld, context %lld and blocks of %lld "
			       "tokens; measure that shape",
			       (long long)l->chunk, (long long)l->context, (long long)l->page_tok);
	if (s->q_heads * l->kv_heads != l->q_heads * s->kv_heads)
		return ar_fail(err, AR_USAGE,
			       "the lists are of %lld query heads and %lld KV heads; measure as "
			       "many query heads for a KV head",
			       (long long)l->q_heads, (long long)l->kv_heads);
	return AR_OK;
}

enum ar_status bench_shape_check(enum bench_what what, const struct bench_shape *s,
				 struct ar_err *err)
{
	const int64_t most_blocks = UINT16_MAX + 1, most = INT32_MAX;
	const int64_t n_req = s->batch + (what == BENCH_MIXED);
	int64_t keys = most_keys(what, s), blocks = (keys + s->page_tok - 1) / s->page_tok;

	if (s->q_heads % s->kv_heads)
		return ar_fail(err, AR_USAGE, "%lld query heads are no multiple of %lld KV heads",
			       (long long)s->q_heads, (long long)s->kv_heads);
	if (s->chunk > s->context && what != BENCH_MIXED)
		return ar_fail(err, AR_USAGE,
			       "a chunk of %lld tokens is longer than the context "
			       "of %lld, which includes it",
			       (long long)s->chunk, (long long)s->context);
	if (what == BENCH_PAST && s->context % s->page_tok)
		return ar_fail(err, AR_USAGE,
			       "case past: a context of %lld tokens is no multiple "
			       "of the block size, %lld",
			       (long long)s->context, (long long)s->page_tok);
	if (blocks > most_blocks)
		return ar_fail(err, AR_USAGE,
			       "a context of %lld tokens is too long; want at most "
			       "%lld",
			       (long long)keys, (long long)(most_blocks * s->page_tok));
	if (n_req * blocks > most / (s->page_tok * s->kv_heads) ||
	    s->batch * s->chunk > most / (s->q_heads * s->head_dim))
		return ar_fail(err, AR_USAGE,
			       "batch %lld, chunk %lld, context %lld: too large; "
			       "lower one of them",
			       (long long)s->batch, (long long)s->chunk, (long long)s->context);
	return s->lists && bench_takes_lists(what) ? check_lists(what, s, err) : AR_OK;
}

/* ---- the batch ---- */

static void *bench_array(size_t n, size_t size)
{
	return calloc(n ? n : 1, size);
}

void bench_shuffle(int32_t *x, int n, struct rng *rng)
{
	for (int i = 0; i < n; i++) {
		int k = (int)rng_below(rng, (uint64_t)i + 1);

		x[i] = x[k];
		x[k] = i;
	}
}

/* Numbers of rows, query blocks and pages of a request. */
struct extent {
	int rows, qblk, page;
};

static struct extent extent_of(enum bench_what what, const struct bench_shape *s, int r)
{
	int64_t rows = rows_of(what, s, r), keys = keys_of(what, s, r), tok = s->page_tok;
	int page = (int)((keys + tok - 1) / tok);

	return (struct extent){ (int)rows, page - (int)((keys - rows) / tok), page };
}

static bool make_batch(struct bench_case *c, const struct bench_shape *s, struct rng *rng)
{
	struct attn_batch *b = &c->b;
	const struct extent first = extent_of(c->what, s, 0), other = extent_of(c->what, s, 1);
	int n_req = (int)s->batch + (c->what == BENCH_MIXED), more = n_req - 1;
	int n_row = first.rows + more * other.rows, n_page = first.page + more * other.page;
	int n_blk = first.page > other.page ? first.page : other.page;
	int32_t *row0 = bench_array((size_t)n_req + 1, sizeof *row0);
	int32_t *qblk0 = bench_array((size_t)n_req + 1, sizeof *qblk0);
	int32_t *page0 = bench_array((size_t)n_req + 1, sizeof *page0);
	int32_t *pos = bench_array((size_t)n_row, sizeof *pos);
	int32_t *pos0 = bench_array((size_t)n_req, sizeof *pos0);
	int32_t *len = bench_array((size_t)n_req, sizeof *len);
	int32_t *page = bench_array((size_t)n_page, sizeof *page);
	int32_t *left = bench_array((size_t)n_req, sizeof *left);

	b->rows = (struct attn_rows){ n_req, n_row, first.qblk + more * other.qblk,
				      row0,  pos,   pos0,
				      qblk0, left,  NULL,
				      NULL };
	b->keys = (struct attn_keys){ n_page, n_blk, (n_blk + 31) / 32, len, page0, page, NULL };
	if (!row0 || !qblk0 || !page0 || !pos || !pos0 || !len || !page || !left)
		return false;
	for (int r = 0; r < n_req; r++) {
		const struct extent own = r ? other : first;

		len[r] = (int)keys_of(c->what, s, r);
		pos0[r] = len[r] - own.rows;
		left[r] = (int)s->left;
		row0[r + 1] = row0[r] + own.rows;
		qblk0[r + 1] = qblk0[r] + own.qblk;
		page0[r + 1] = page0[r] + own.page;
		for (int i = 0; i < own.rows; i++)
			pos[row0[r] + i] = pos0[r] + i;
	}
	bench_shuffle(page, n_page, rng);
	b->shape = (struct attn_shape){ (int)s->q_heads, (int)s->kv_heads, (int)s->head_dim,
					(int)s->page_tok };
	return true;
}

/* Every row sees a share of as many keys as the last row could, at least one. */
static bool make_window(struct bench_case *c, double share)
{
	const struct attn_rows *rows = &c->b.rows;
	int32_t *first = bench_array((size_t)rows->n_row, sizeof *first);
	int window = share > 0 ? (int)ceil(share * c->b.keys.len[0]) : 1;

	c->b.rows.first = first;
	for (int i = 0; first && i < rows->n_row; i++)
		first[i] = rows->pos[i] < window ? 0 : rows->pos[i] - window + 1;
	return first;
}

/* ---- lists ---- */

bool bench_kept(uint64_t seed, int64_t list, int block, double density)
{
	uint64_t x = rng_mix(rng_mix(rng_mix(seed) + (uint64_t)list) + (uint64_t)block);

	return (double)(x >> 11) * 0x1p-53 < density;
}

/* Whether list i keeps a block that real lists name.  They are the same for each request. */
static bool listed(const struct bench_case *c, const struct bench_lists *l, int i, int block)
{
	const struct attn_shape *s = &c->b.shape;

	if (has_tables(c->what))
		return bench_lists_table(l, i % s->kv_heads, block);
	return bench_lists_block(l, i % s->q_heads, i / s->q_heads % c->b.rows.qblk0[1], block);
}

/* Lists are numbered by request, then query block where they are per query block, then head. */
static bool make_lists(struct bench_case *c, const struct bench_lists *real, double density,
		       uint64_t seed)
{
	const struct attn_batch *b = &c->b;
	bool table = has_tables(c->what);
	int past = b->rows.pos0[0] / b->shape.page_tok, n_qblk = b->rows.qblk0[1];
	int heads = table ? b->shape.kv_heads : b->shape.q_heads;
	struct block_lists *l = &c->lists.blocks;

	c->lists.heads = table ? b->shape.q_heads / b->shape.kv_heads : 0;
	c->n_list = b->rows.n_req * heads * (table ? 1 : n_qblk);
	l->stride = b->keys.max_kv_blk;
	l->block = bench_array((size_t)c->n_list * (size_t)l->stride, sizeof *l->block);
	l->n = bench_array((size_t)c->n_list, sizeof *l->n);
	if (!l->block || !l->n)
		return false;
	for (int i = 0; i < c->n_list; i++) {
		int own = table ? past : past + i / heads % n_qblk;
		int end = c->what == BENCH_PAST ? past : table ? b->keys.max_kv_blk : own + 1;
		uint16_t *block = l->block + (size_t)i * (size_t)l->stride;

		for (int j = 0; j < end; j++)
			if (j >= own ||
			    (real ? listed(c, real, i, j) : bench_kept(seed, i, j, density)))
				block[l->n[i]++] = (uint16_t)j;
	}
	return true;
}

/* Draw token lists as make_lists() draws block lists. */
static bool make_tokens(struct bench_case *c, double density, uint64_t seed)
{
	const struct attn_batch *b = &c->b;
	struct token_lists *l = &c->lists.tokens;
	int heads = b->shape.kv_heads, n_page = b->keys.page0[1];

	c->n_list = b->rows.n_req * heads;
	l->tok = bench_array((size_t)(b->keys.n_page * b->shape.page_tok) * (size_t)heads,
			     sizeof *l->tok);
	l->n = bench_array((size_t)c->n_list, sizeof *l->n);
	if (!l->tok || !l->n)
		return false;
	for (int i = 0; i < c->n_list; i++) {
		int32_t *tok = l->tok + attn_token_row(&b->shape, b->keys.page0[i / heads], n_page,
						       i % heads);

		for (int t = 0; t < b->rows.pos0[0]; t++)
			if (bench_kept(seed, i, t, density))
				tok[l->n[i]++] = t;
	}
	return true;
}

/* ---- work ---- */

/* Sum of min(i, most) over i = 1 .. m; 0 for m < 0. */
static int64_t ramp(int64_t m, int64_t most)
{
	int64_t low = m < most ? m : most;

	return m < 0 ? 0 : low * (low + 1) / 2 + (m - low) * most;
}

/* Causal (row, key) pairs of the rows [pos, pos + n) with the keys of a block. */
static int64_t block_pairs(int64_t pos, int64_t n, int64_t block, int64_t page_tok)
{
	int64_t seen = pos - block * page_tok + 1;

	return ramp(seen + n - 1, page_tok) - ramp(seen - 1, page_tok);
}

/* (row, key) pairs of list i, for one head. */
static int64_t list_pairs(const struct bench_case *c, int i)
{
	const struct attn_batch *b = &c->b;
	const struct block_lists *l = &c->lists.blocks;
	const uint16_t *block = l->block + (size_t)i * (size_t)l->stride;
	int64_t pos = b->rows.pos0[0], end = b->keys.len[0], tok = b->shape.page_tok;
	int64_t sum = 0;

	if (c->what == BENCH_BLOCKSPARSE) {
		int64_t own = pos / tok + i / b->shape.q_heads % b->rows.qblk0[1];

		pos = own * tok > pos ? own * tok : pos;
		end = (own + 1) * tok < end ? (own + 1) * tok : end;
	}
	if (c->what == BENCH_GATHER) {
		int64_t rows = end - pos;

		return rows * c->lists.tokens.n[i] + rows * (rows + 1) / 2;
	}
	for (int k = 0; k < l->n[i]; k++)
		sum += block_pairs(pos, end - pos, block[k], tok);
	return sum;
}

static void count_pairs(struct bench_case *c)
{
	const struct attn_batch *b = &c->b;
	int64_t rows = b->rows.row0[1];
	int heads = c->what == BENCH_BLOCKSPARSE ? 1 : b->shape.q_heads / b->shape.kv_heads;

	for (int i = 0; i < b->rows.n_row; i++)
		c->dense_pairs += (int64_t)(b->rows.pos[i] + 1) * b->shape.q_heads;
	if (c->what == BENCH_DENSE || c->what == BENCH_DECODE || c->what == BENCH_MIXED)
		c->pairs = c->dense_pairs;
	for (int i = 0; i < b->rows.n_row && has_window(c->what); i++)
		c->pairs += (int64_t)(b->rows.pos[i] - b->rows.first[i] + 1) * b->shape.q_heads;
	for (int i = 0; i < c->n_list; i++)
		c->pairs += list_pairs(c, i) * heads;
	for (int i = 0; i < c->n_list && c->what == BENCH_COPY; i++)
		c->moved += (int64_t)c->lists.blocks.n[i] * b->shape.page_tok;
	for (int i = 0; i < c->n_list && c->what == BENCH_GATHER; i++)
		c->moved += c->lists.tokens.n[i] + rows;
}

/* ---- cases ---- */

static const char *const executor[BENCH_N] = {
	/* none: decodes, select */
	[BENCH_DENSE] = "paged",  [BENCH_PAST] = "paged",
	[BENCH_TABLE] = "paged",  [BENCH_BLOCKSPARSE] = "blocksparse",
	[BENCH_COPY] = "copy",	  [BENCH_GATHER] = "gather",
	[BENCH_WINDOW] = "paged", [BENCH_MIXED] = "paged",
};

const char *bench_kernel(enum bench_what what)
{
	if (what == BENCH_SELECT)
		return "flashprefill"; /* of compact-fp */
	return executor[what] ? executor_find(executor[what])->kernel : "decode";
}

enum ar_status bench_case_make(struct bench_case *c, enum bench_what what,
			       const struct bench_shape *s, double density, uint64_t seed,
			       struct ar_err *err)
{
	struct rng rng = { seed };
	bool lists = has_tables(what) || what == BENCH_BLOCKSPARSE;

	memset(c, 0, sizeof *c);
	c->what = what;
	if (executor[what])
		c->executor = executor_find(executor[what]);
	if (!make_batch(c, s, &rng) ||
	    (lists && !make_lists(c, bench_takes_lists(what) ? s->lists : NULL, density, seed)) ||
	    (what == BENCH_GATHER && !make_tokens(c, density, seed)) ||
	    (has_window(what) && !make_window(c, density))) {
		bench_case_release(c);
		return ar_nomem(err);
	}
	count_pairs(c);
	return AR_OK;
}

void bench_case_release(struct bench_case *c)
{
	const struct attn_rows *rows = &c->b.rows;
	const struct attn_keys *keys = &c->b.keys;
	const void *arrays[] = { rows->row0,	    rows->pos,		 rows->pos0,
				 rows->qblk0,	    rows->left,		 keys->len,
				 keys->page0,	    keys->page,		 c->lists.blocks.block,
				 c->lists.blocks.n, c->lists.tokens.tok, c->lists.tokens.n,
				 rows->first };

	for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
		free((void *)(uintptr_t)arrays[i]);
	memset(c, 0, sizeof *c);
}

/* ---- single rows ---- */

static int kv_list(const struct bench_case *c, int req, int head)
{
	const struct attn_shape *s = &c->b.shape;

	return req * s->kv_heads + head / (s->q_heads / s->kv_heads);
}

void bench_pack(const struct bench_case *c, int req, int kv_head, bf16_t *k)
{
	const struct attn_batch *b = &c->b;
	size_t dim = (size_t)b->shape.head_dim;
	int n, n_page = b->keys.page0[req + 1] - b->keys.page0[req];
	const int32_t *tok;

	if (c->what != BENCH_GATHER)
		return;
	n = c->lists.tokens.n[req * b->shape.kv_heads + kv_head];
	tok = c->lists.tokens.tok + attn_token_row(&b->shape, b->keys.page0[req], n_page, kv_head);
	for (int i = 0; i < n; i++)
		memmove(k + (size_t)i * dim, k + (size_t)tok[i] * dim, dim * sizeof *k);
	memmove(k + (size_t)n * dim, k + (size_t)b->rows.pos0[req] * dim,
		(size_t)attn_n_row(&b->rows, req) * dim * sizeof *k);
}

int bench_position(const struct bench_case *c, int req, int row, int head)
{
	return row + (c->what == BENCH_GATHER ? c->lists.tokens.n[kv_list(c, req, head)] :
						c->b.rows.pos0[req]);
}

int bench_list(const struct bench_case *c, int req, int row, int head, const uint16_t **block)
{
	const struct attn_shape *s = &c->b.shape;
	const struct block_lists *l = &c->lists.blocks;
	int past = c->b.rows.pos0[req] / s->page_tok, group = s->q_heads / s->kv_heads, list;
	int own = bench_position(c, req, row, head) / s->page_tok, heads = c->lists.heads;

	*block = NULL;
	if (!l->block || (heads && own - past >= attn_body(&c->b, req)))
		return own + 1;
	if (heads) /* a table serves `heads` heads, the last of a KV head maybe fewer */
		list = kv_list(c, req, head) * ((group + heads - 1) / heads) + head % group / heads;
	else
		list = (c->b.rows.qblk0[req] + own - past) * s->q_heads + head;
	*block = l->block + (size_t)list * (size_t)l->stride;
	return l->n[list];
}

/* Online softmax: the sums are scaled down whenever a larger score turns up. */
void bench_row_ref(const struct attn_shape *s, const bf16_t *q, const bf16_t *k, const bf16_t *v,
		   const uint16_t *block, int n, int first, int pos, double *out)
{
	double scale = 1 / sqrt(s->head_dim), max = -INFINITY, sum = 0;

	for (int d = 0; d < s->head_dim; d++)
		out[d] = 0;
	for (int i = 0; i < n; i++) {
		int key = (block ? block[i] : i) * s->page_tok, end = key + s->page_tok;

		for (; key < end && key <= pos; key++) {
			size_t at = (size_t)key * (size_t)s->head_dim;
			double x = 0, p;

			if (key < first)
				continue;
			for (int d = 0; d < s->head_dim; d++)
				x += (double)bf16_to_f32(q[d]) * bf16_to_f32(k[at + (size_t)d]);
			x *= scale;
			if (x > max) {
				double down = exp(max - x);

				for (int d = 0; d < s->head_dim; d++)
					out[d] *= down;
				sum *= down;
				max = x;
			}
			p = exp(x - max);
			sum += p;
			for (int d = 0; d < s->head_dim; d++)
				out[d] += p * bf16_to_f32(v[at + (size_t)d]);
		}
	}
	for (int d = 0; d < s->head_dim && sum > 0; d++)
		out[d] /= sum;
}
