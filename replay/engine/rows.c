/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/rows.h"

#include <assert.h>
#include <string.h>

#include "base/workspace.h"

static int blocks_until(int64_t n_tok, int page_tok)
{
	return (int)((n_tok + page_tok - 1) / page_tok);
}

void rows_limits(const struct backend_env *env, int page_tok, struct attn_limits *prefill,
		 struct attn_limits *decode)
{
	int seqs = (int)env->max_seqs, tok = (int)env->max_batched_tok;
	int blocks = blocks_until(env->max_len, page_tok);

	*prefill = (struct attn_limits){ seqs < tok ? seqs : tok, tok, blocks, 0, 0 };
	*decode = (struct attn_limits){ seqs, seqs, blocks, 0, 0 };
}

/* Most tiles of a prefill batch.  A whole tile holds at least half a query block of one head.  A
 * plan that cuts tiles into parts has at most EXECUTOR_WAVES tiles per multiprocessor. */
static size_t max_tiles(const struct rows_env *e)
{
	return (size_t)(2 * e->group->shape.q_heads) *
		       (size_t)attn_max_qblk(&e->prefill, e->group->shape.page_tok) +
	       (size_t)(EXECUTOR_WAVES * e->prefill.n_sm);
}

size_t rows_bytes(const struct rows_env *e, int64_t n_page)
{
	size_t req = (size_t)(e->prefill.max_req + e->decode.max_req + 2);
	size_t row = (size_t)(e->prefill.max_row + e->decode.max_row);
	size_t page = (size_t)n_page + (size_t)e->decode.max_req; /* one per padded row */

	return row * (sizeof(struct layer_row) + sizeof(int32_t)) + req * 7 * sizeof(int32_t) +
	       page * sizeof(int32_t) + max_tiles(e) * sizeof(struct attn_tile) +
	       32 * WORKSPACE_ALIGN; /* alignment of the arrays */
}

/* Sizes of the prefill or of the decode entries of a batch. */
struct size {
	size_t req, row, page;
	int64_t max_kv_blk;
};

static struct size measure(const struct batch *b, int page_tok, bool decode)
{
	struct size s = { 0 };

	for (size_t i = 0; i < b->n; i++) {
		const struct batch_entry *e = &b->entry[i];
		int n = blocks_until((int64_t)e->start + e->n_tok, page_tok);

		if (e->decode != decode)
			continue;
		s.req++;
		s.row += e->n_tok;
		s.page += (size_t)n;
		s.max_kv_blk = n > s.max_kv_blk ? n : s.max_kv_blk;
	}
	return s;
}

static enum ar_status check(const struct size *s, const struct attn_limits *l, const char *kind,
			    struct ar_err *err)
{
	if (s->req > (size_t)l->max_req || s->row > (size_t)l->max_row ||
	    s->max_kv_blk > l->max_kv_blk)
		return ar_fail(err, AR_USAGE,
			       "%zu %s entries with %zu tokens and up to %lld blocks exceed "
			       "the limits of %d entries, %d tokens and %d blocks",
			       s->req, kind, s->row, (long long)s->max_kv_blk, l->max_req,
			       l->max_row, l->max_kv_blk);
	return AR_OK;
}

/* The arrays of an attn_batch while they are filled. */
struct arrays {
	int32_t *row0, *pos, *pos0, *qblk0, *left, *len, *page0, *page;
};

/* page comes last, so that the addresses of all others depend on s->req and s->row only. */
static bool carve_arrays(struct workspace *c, const struct size *s, struct arrays *a)
{
	a->row0 = workspace_take(c, s->req + 1, sizeof *a->row0);
	a->pos0 = workspace_take(c, s->req, sizeof *a->pos0);
	a->qblk0 = workspace_take(c, s->req + 1, sizeof *a->qblk0);
	a->page0 = workspace_take(c, s->req + 1, sizeof *a->page0);
	a->left = workspace_take(c, s->req, sizeof *a->left);
	a->len = workspace_take(c, s->req, sizeof *a->len);
	a->pos = workspace_take(c, s->row, sizeof *a->pos);
	a->page = workspace_take(c, s->page, sizeof *a->page);
	return a->row0 && a->pos0 && a->qblk0 && a->page0 && a->left && a->len && a->pos && a->page;
}

/* Store entry e as request r.  page: the pages of its request. */
static void add_request(const struct arrays *a, int r, const struct batch_entry *e,
			const int32_t *page, int page_tok)
{
	int32_t start = (int32_t)e->start, end = start + (int32_t)e->n_tok;
	int32_t n = blocks_until(end, page_tok);

	a->pos0[r] = start;
	a->len[r] = end;
	a->row0[r + 1] = a->row0[r] + (int32_t)e->n_tok;
	a->qblk0[r + 1] = a->qblk0[r] + n - start / page_tok;
	a->page0[r + 1] = a->page0[r] + n;
	a->left[r] = (int32_t)e->known - end;
	for (int32_t i = start; i < end; i++)
		a->pos[a->row0[r] + i - start] = i;
	memcpy(a->page + a->page0[r], page, (size_t)n * sizeof *page);
}

static enum ar_status add_rows(struct rows *o, const struct rows_env *env,
			       const struct batch_entry *e, struct ar_err *err)
{
	const int32_t *page = pages_of(env->group->pages, e->req);
	struct layer_row *row = o->row + o->n_row;
	int tok = env->group->shape.page_tok;
	enum ar_status st = env->act->begin(env->act_self, e->req, e->start, e->n_tok, row, err);

	if (st)
		return st;
	for (uint32_t i = 0; i < e->n_tok; i++) {
		int64_t pos = (int64_t)e->start + i;

		row[i].slot = page[pos / tok] * tok + (int32_t)(pos % tok);
	}
	o->n_row += (int)e->n_tok;
	if (e->emit)
		o->emit[o->n_emit++] = o->n_row - 1;
	return AR_OK;
}

/* Add all decode entries of b, or all prefill entries. */
static enum ar_status add_kind(struct rows *o, const struct rows_env *env, const struct batch *b,
			       bool decode, const struct arrays *a, struct attn_batch *out,
			       struct ar_err *err)
{
	int r = 0, n_blk = 0;

	a->row0[0] = a->qblk0[0] = a->page0[0] = 0;
	for (size_t i = 0; i < b->n; i++) {
		const struct batch_entry *e = &b->entry[i];
		enum ar_status st;
		int own;

		if (e->decode != decode)
			continue;
		add_request(a, r++, e, pages_of(env->group->pages, e->req),
			    env->group->shape.page_tok);
		own = a->page0[r] - a->page0[r - 1];
		n_blk = own > n_blk ? own : n_blk;
		st = add_rows(o, env, e, err);
		if (st)
			return st;
	}
	out->shape = env->group->shape;
	out->rows = (struct attn_rows){ r,	 a->row0[r], a->qblk0[r], a->row0, a->pos,
					a->pos0, a->qblk0,   a->left,	  NULL };
	out->keys = (struct attn_keys){ a->page0[r], n_blk,    (n_blk + 31) / 32,
					a->len,	     a->page0, a->page };
	assert(attn_is_chunked(out));
	return AR_OK;
}

static enum ar_status too_small(struct ar_err *err)
{
	return ar_fail(err, AR_USAGE, "the batch does not fit the memory allocated for batches");
}

static enum ar_status add_tiles(struct attn_batch *b, const struct method *m, struct workspace *c,
				struct ar_err *err)
{
	struct attn_tile *tile;

	b->n_tile = method_plan(m, b, NULL);
	tile = workspace_take(c, (size_t)b->n_tile, sizeof *tile);
	if (!tile)
		return too_small(err);
	method_plan(m, b, tile);
	b->tile = tile;
	b->n_part = executor_count_parts(tile, b->n_tile);
	return AR_OK;
}

/* A padded row: the first token there is, at position 0 of the scratch page. */
static struct layer_row padded_row(const struct rows_env *e)
{
	return (struct layer_row){ .slot = e->scratch * e->group->shape.page_tok };
}

enum ar_status rows_build(struct rows *out, const struct rows_env *e, const struct batch *b,
			  const struct method *tiles, int pad, size_t *used, struct ar_err *err)
{
	int tok = e->group->shape.page_tok;
	struct size pre = measure(b, tok, false), dec = measure(b, tok, true);
	struct workspace c = { e->mem, e->bytes, 0 };
	struct arrays pre_arrays, dec_arrays;
	struct rows o = { 0 };
	size_t n_row;
	enum ar_status st = check(&pre, &e->prefill, "prefill", err);

	if (!st)
		st = check(&dec, &e->decode, "decode", err);
	if (st)
		return st;
	n_row = pre.row + dec.row > (size_t)pad ? pre.row + dec.row : (size_t)pad;
	o.row = workspace_take(&c, n_row, sizeof *o.row);
	o.emit = workspace_take(&c, pre.req + dec.req, sizeof *o.emit);
	if (!o.row || !o.emit || !carve_arrays(&c, &pre, &pre_arrays) ||
	    !carve_arrays(&c, &dec, &dec_arrays))
		return too_small(err);
	st = add_kind(&o, e, b, false, &pre_arrays, &o.prefill, err);
	o.n_prefill = o.n_row;
	o.prefill.n_sm = e->prefill.n_sm;
	o.prefill.tail = e->tail;
	if (!st)
		st = add_kind(&o, e, b, true, &dec_arrays, &o.decode, err);
	if (!st && tiles && o.prefill.rows.n_req)
		st = add_tiles(&o.prefill, tiles, &c, err);
	if (st)
		return st;
	while (o.n_row < pad)
		o.row[o.n_row++] = padded_row(e);
	*out = o;
	*used = c.used;
	return AR_OK;
}

/* Pad to n requests.  A padded request has one token, in the scratch page. */
static void add_padding(struct rows *o, const struct rows_env *e, const struct arrays *a, int n)
{
	struct attn_batch *b = &o->decode;

	for (int r = b->rows.n_req; r < n; r++) {
		o->row[r] = padded_row(e);
		a->pos0[r] = 0;
		a->len[r] = 1;
		a->pos[r] = 0;
		a->left[r] = 0;
		a->page[a->page0[r]] = e->scratch;
		a->row0[r + 1] = a->row0[r] + 1;
		a->qblk0[r + 1] = a->qblk0[r] + 1;
		a->page0[r + 1] = a->page0[r] + 1;
	}
	for (int r = 0; r < n; r++)
		o->emit[r] = r;
	b->rows.n_req = b->rows.n_row = b->rows.n_qblk = o->n_row = o->n_emit = n;
	b->keys.n_page = a->page0[n];
	b->keys.max_kv_blk = e->decode.max_kv_blk;
	b->keys.mask_words = (b->keys.max_kv_blk + 31) / 32;
}

enum ar_status rows_build_decodes(struct rows *out, const struct rows_env *e, const struct batch *b,
				  int n, size_t *used, struct ar_err *err)
{
	struct size s = measure(b, e->group->shape.page_tok, true);
	struct workspace c = { e->mem, e->bytes, 0 };
	struct rows o = { 0 };
	struct arrays a;
	enum ar_status st = check(&s, &e->decode, "decode", err);

	if (st)
		return st;
	assert(s.req == b->n && s.req <= (size_t)n && n <= e->decode.max_req);
	s.page += (size_t)n - s.req;
	s.req = s.row = (size_t)n;
	o.row = workspace_take(&c, s.row, sizeof *o.row);
	o.emit = workspace_take(&c, s.req, sizeof *o.emit);
	if (!o.row || !o.emit || !carve_arrays(&c, &s, &a))
		return too_small(err);
	st = add_kind(&o, e, b, true, &a, &o.decode, err);
	if (st)
		return st;
	add_padding(&o, e, &a, n);
	*out = o;
	*used = c.used;
	return AR_OK;
}

static void *moved(const void *p, const void *mem, void *copy)
{
	return p ? (char *)copy + ((const char *)p - (const char *)mem) : NULL;
}

static struct attn_batch batch_at(const struct attn_batch *b, const void *mem, void *copy)
{
	struct attn_batch o = *b;

	o.rows.row0 = moved(b->rows.row0, mem, copy);
	o.rows.pos = moved(b->rows.pos, mem, copy);
	o.rows.pos0 = moved(b->rows.pos0, mem, copy);
	o.rows.qblk0 = moved(b->rows.qblk0, mem, copy);
	o.rows.left = moved(b->rows.left, mem, copy);
	o.keys.len = moved(b->keys.len, mem, copy);
	o.keys.page0 = moved(b->keys.page0, mem, copy);
	o.keys.page = moved(b->keys.page, mem, copy);
	o.tile = moved(b->tile, mem, copy);
	return o;
}

struct rows rows_at(const struct rows *r, const void *mem, void *copy)
{
	struct rows o = *r;

	o.row = moved(r->row, mem, copy);
	o.emit = moved(r->emit, mem, copy);
	o.prefill = batch_at(&r->prefill, mem, copy);
	o.decode = batch_at(&r->decode, mem, copy);
	return o;
}
