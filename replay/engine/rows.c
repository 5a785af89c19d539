/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/rows_part.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int blocks_until(int64_t n_tok, int page_tok)
{
	return (int)((n_tok + page_tok - 1) / page_tok);
}

/* ---- views ---- */

enum ar_status rows_env_init(struct rows_env *e, int n_layers, struct ar_err *err)
{
	*e = (struct rows_env){ .view = calloc((size_t)n_layers, sizeof *e->view),
				.of = calloc((size_t)n_layers, sizeof *e->of),
				.arrays = calloc((size_t)n_layers * ROW_KINDS, sizeof *e->arrays) };
	return e->view && e->of && e->arrays ? AR_OK : ar_nomem(err);
}

void rows_env_release(struct rows_env *e)
{
	free(e->view);
	free(e->of);
	free(e->arrays);
	*e = (struct rows_env){ 0 };
}

void rows_env_add(struct rows_env *e, int i, const struct row_view *view)
{
	int at = 0;

	while (at < e->n_view &&
	       (e->view[at].segment != view->segment || e->view[at].group != view->group ||
		e->view[at].method != view->method))
		at++;
	if (at == e->n_view)
		e->view[e->n_view++] = *view;
	e->of[i] = at;
}

enum ar_status row_set_init(struct row_set *s, const struct rows_env *e, struct ar_err *err)
{
	*s = (struct row_set){ calloc((size_t)e->n_view, sizeof *s->view), e->of, e->n_view };
	return s->view ? AR_OK : ar_nomem(err);
}

void row_set_release(struct row_set *s)
{
	free(s->view);
	*s = (struct row_set){ 0 };
}

/* ---- sizes ---- */

void rows_limits(struct rows_env *e, const struct backend_env *env, int page_tok)
{
	int seqs = (int)env->max_seqs, tok = (int)env->max_batched_tok;
	int blocks = blocks_until(env->max_len, page_tok), revived = seqs * e->revives;
	int verify = env->max_draft_tok ? seqs * (1 + (int)env->max_draft_tok) : 0;

	verify = verify < tok ? verify : tok;
	e->limit[ROW_PREFILL] = (struct attn_limits){ seqs < tok ? seqs : tok, tok, blocks, 0, 0 };
	e->limit[ROW_DECODE] = (struct attn_limits){ seqs, seqs, blocks, 0, 0 };
	e->limit[ROW_VERIFY] = (struct attn_limits){ seqs < verify ? seqs : verify, verify, blocks,
						     0, 0 };
	e->limit[ROW_REVIVED] = (struct attn_limits){ revived, revived, blocks, 0, 0 };
}

/* Most tiles of rows of a kind.  A whole tile holds at least half a query block of one head.  A
 * plan that cuts tiles into parts has at most EXECUTOR_WAVES tiles per multiprocessor. */
static size_t max_tiles(const struct attn_limits *l, const struct attn_shape *s)
{
	return (size_t)(2 * s->q_heads) * (size_t)attn_max_qblk(l, s->page_tok) +
	       (size_t)(EXECUTOR_WAVES * l->n_sm);
}

/* Most pages of decodes: one for each padded row, and one for padded rows that are revived. */
static int max_pages(const struct rows_env *e, const struct cache_group *g)
{
	return (int)g->n_page + e->limit[ROW_DECODE].max_req + 1;
}

/* Whether rows of a kind come in tiles under m. */
static bool has_tiles(const struct method *m, enum row_kind kind)
{
	return m && m->part[kind].executor->plan;
}

/* The arrays of one kind but for pages. */
static size_t kind_bytes(const struct attn_limits *l, const struct row_view *v, enum row_kind kind)
{
	const struct cache_group *g = v->group;
	size_t pos = g->window ? 2 : 1; /* and the first key, or its own */

	pos += kind == ROW_REVIVED;
	return ((size_t)l->max_req + 1) * 7 * sizeof(int32_t) +
	       (size_t)l->max_row * pos * sizeof(int32_t) +
	       (has_tiles(v->method, kind) ? max_tiles(l, &g->shape) * sizeof(struct attn_tile) :
					     0) +
	       16 * WORKSPACE_ALIGN; /* alignment of the arrays */
}

static size_t view_bytes(const struct rows_env *e, const struct row_view *v)
{
	const struct cache_group *g = v->group;
	size_t page = (size_t)max_pages(e, g);
	size_t key = e->revives ? page * (size_t)g->shape.page_tok : 0; /* position and flag */
	size_t sum = (size_t)rows_max(e) * sizeof(struct layer_row) +
		     (size_t)rows_max_emit(e) * sizeof(int32_t) + page * sizeof(int32_t) +
		     key * (sizeof(int32_t) + 1);

	for (int k = 0; k < ROW_KINDS; k++)
		if (e->limit[k].max_req)
			sum += kind_bytes(&e->limit[k], v, k);
	return sum;
}

static size_t state_bytes(const struct attn_limits *l)
{
	return (size_t)l->max_req * sizeof(struct state_seq) +
	       (size_t)state_max_chunk(l->max_req, l->max_row) * sizeof(struct state_chunk);
}

size_t rows_bytes(const struct rows_env *e)
{
	size_t sum = 0;

	for (int i = 0; i < e->n_view; i++)
		sum += view_bytes(e, &e->view[i]) +
		       (rows_is_linear(&e->view[i]) ? state_bytes(&e->limit[ROW_PREFILL]) : 0);
	return sum;
}

/* ---- batches ---- */

static struct rows_part part_of(const struct rows_env *e, int view, const struct batch *b,
				const struct row_segment *segment)
{
	const struct row_view *v = &e->view[view];

	return (struct rows_part){ e, v, b, segment ? &segment[v->segment] : NULL };
}

/* The rows of an entry in a view, without revived ones: indices [start, start + n) in the cache. */
struct entry_span {
	int32_t start, n, pos;	      /* pos: position of the entry's first token */
	const int32_t *keep, *before; /* as in struct row_segment */
};

static struct entry_span span_in(const struct row_segment *s, const struct batch *b, size_t i)
{
	const struct batch_entry *e = &b->entry[i];
	int32_t pos = (int32_t)e->start, at = (int32_t)batch_stored(e);
	int32_t n_back = rows_n_back(s, i);

	return s ? (struct entry_span){ s->start[i] + n_back, s->n[i] - n_back, pos, s->keep[i],
					s->before ? s->before[i] : NULL } :
		   (struct entry_span){ at, (int32_t)e->n_tok, pos, NULL, NULL };
}

static struct entry_span span_of(const struct rows_part *p, size_t i)
{
	return span_in(p->segment, p->b, i);
}

/* ---- windows ---- */

/* The position of the token at an index of the cache, where windows count positions. */
static int32_t position_of(const struct entry_span *x, int32_t index)
{
	int32_t k = index - x->start;

	return k < 0 ? x->before[index] : x->pos + (x->keep ? x->keep[k] : k);
}

/* The first key that the row at an index sees, not before key `from`. */
static int32_t first_key(const struct entry_span *x, int32_t index, int window, int32_t from)
{
	int32_t to = index, beyond;

	if (!x->before)
		return index < window ? 0 : index - window + 1;
	beyond = position_of(x, index) - window;
	while (from < to) {
		int32_t mid = from + (to - from) / 2;

		if (position_of(x, mid) > beyond)
			to = mid;
		else
			from = mid + 1;
	}
	return from;
}

int64_t rows_pairs(const struct row_segment *s, const struct batch *b, size_t i, int window)
{
	const struct entry_span x = span_in(s, b, i);
	int64_t start = x.start, n = x.n, sum = 0;
	int64_t whole = !window ? n : window - 1 > start ? window - 1 - start : 0;
	int32_t first = 0;

	if (x.before && window) {
		for (int32_t k = x.start; k < x.start + x.n; k++) {
			first = first_key(&x, k, window, first);
			sum += k - first + 1;
		}
		return sum;
	}
	whole = whole < n ? whole : n; /* rows that see all */
	return whole * start + whole * (whole + 1) / 2 + (n - whole) * window +
	       rows_revived_pairs(s, i);
}

/* Pages of an entry until the end of its rows. */
static int32_t pages_until(const struct row_view *v, int32_t end)
{
	return rows_is_linear(v) ? 1 : blocks_until(end, v->group->shape.page_tok);
}

/* Sizes of the rows of a kind. */
struct part_size {
	size_t req, row, page, emit;
	int64_t max_kv_blk;
};

static struct part_size measure_kind(const struct rows_part *p, enum row_kind kind)
{
	struct part_size s = { 0 };

	if (kind == ROW_REVIVED)
		s.req = s.row = rows_revived_count(p);
	for (size_t i = 0; i < p->b->n; i++) {
		struct entry_span x = span_of(p, i);
		int32_t n = pages_until(p->view, x.start + x.n);

		if (p->b->entry[i].kind != kind || !x.n)
			continue;
		s.req++;
		s.row += (size_t)x.n;
		s.emit += p->b->entry[i].n_emit;
		s.page += (size_t)n;
		s.max_kv_blk = n > s.max_kv_blk ? n : s.max_kv_blk;
	}
	return s;
}

/* Lists and scratch of a method have room for as many pages as the cache has.  Requests that share
 * pages may list more. */
static enum ar_status check_pages(const struct part_size *s, const struct rows_part *p,
				  enum row_kind kind, struct ar_err *err)
{
	const struct method *m = p->view->method;
	int64_t most = p->env->limit[ROW_PREFILL].max_page;

	if (!most || !m || m->part[kind].dense || s->page <= (size_t)most)
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "%zu requests list %zu pages, as they share some, and method '%s' has room "
		       "for the %lld of the cache; lower --max-num-seqs, or take --no-share-kv",
		       s->req, s->page, m->name, (long long)most);
}

static enum ar_status check_part(const struct part_size *s, const struct rows_part *p,
				 enum row_kind kind, struct ar_err *err)
{
	const struct attn_limits *l = &p->env->limit[kind];

	if (s->req > (size_t)l->max_req || s->row > (size_t)l->max_row ||
	    s->max_kv_blk > l->max_kv_blk)
		return ar_fail(err, AR_USAGE,
			       "%zu %s entries with %zu tokens and up to %lld blocks exceed "
			       "the limits of %d entries, %d tokens and %d blocks",
			       s->req, row_kind_name(kind), s->row, (long long)s->max_kv_blk,
			       l->max_req, l->max_row, l->max_kv_blk);
	return check_pages(s, p, kind, err);
}

/* All but the pages of keys: their addresses depend on s->req and s->row only. */
static bool carve_arrays(struct workspace *c, const struct part_size *s, const struct row_view *v,
			 struct row_arrays *a)
{
	bool window = v->group->window;

	a->row0 = workspace_take(c, s->req + 1, sizeof *a->row0);
	a->pos0 = workspace_take(c, s->req, sizeof *a->pos0);
	a->qblk0 = workspace_take(c, s->req + 1, sizeof *a->qblk0);
	a->page0 = workspace_take(c, s->req + 1, sizeof *a->page0);
	a->left = workspace_take(c, s->req, sizeof *a->left);
	a->len = workspace_take(c, s->req, sizeof *a->len);
	a->pos = workspace_take(c, s->row, sizeof *a->pos);
	a->first = window ? workspace_take(c, s->row, sizeof *a->first) : NULL;
	a->page = rows_is_linear(v) ? workspace_take(c, s->req, sizeof *a->page) : NULL;
	return a->row0 && a->pos0 && a->qblk0 && a->page0 && a->left && a->len && a->pos &&
	       (a->first || !window) && (a->page || !rows_is_linear(v));
}

/* Take the arrays of a kind.  n_page: pages of the decodes, on which revived rows are. */
static bool carve_kind(struct workspace *c, const struct part_size *s, const struct rows_part *p,
		       enum row_kind kind, size_t n_page, struct row_arrays *a)
{
	if (!carve_arrays(c, s, p->view, a))
		return false;
	if (kind == ROW_REVIVED)
		return rows_revived_take(c, s->row, n_page * rows_page_tok(p), a);
	if (!rows_is_linear(p->view))
		a->page = workspace_take(c, s->page, sizeof *a->page);
	return a->page;
}

static bool carve_rows(struct workspace *c, const struct row_view *v, size_t n_row, size_t n_emit,
		       struct rows *o)
{
	o->row = rows_is_linear(v) ? NULL : workspace_take(c, n_row, sizeof *o->row);
	o->emit = workspace_take(c, n_emit, sizeof *o->emit);
	return o->emit && (o->row || rows_is_linear(v));
}

/* Store the rows of a request from row `at` on. */
static void add_positions(const struct row_arrays *a, int32_t at, const struct entry_span *x,
			  int window)
{
	int32_t first = 0;

	for (int32_t i = x->start; i < x->start + x->n; i++, at++) {
		a->pos[at] = i;
		if (a->first)
			a->first[at] = first = first_key(x, i, window, first);
	}
}

/* Store the rows of entry e as request r. */
static void add_request(const struct row_arrays *a, int r, const struct rows_part *p,
			const struct batch_entry *e, const struct entry_span *x)
{
	const struct row_view *v = p->view;
	int32_t end = x->start + x->n, n = pages_until(v, end);
	int page_tok = v->group->shape.page_tok;

	a->pos0[r] = x->start;
	a->len[r] = end;
	a->row0[r + 1] = a->row0[r] + x->n;
	a->qblk0[r + 1] = a->qblk0[r] + blocks_until(end, page_tok) - x->start / page_tok;
	a->page0[r + 1] = a->page0[r] + n;
	a->left[r] = (int32_t)e->known - (int32_t)(e->start + e->n_tok);
	add_positions(a, a->row0[r], x, v->group->window);
	memcpy(a->page + a->page0[r], batch_table(p->b, e, v->group->no),
	       (size_t)n * sizeof *a->page);
}

/* Find the activations and the slots of the rows of entry e. */
static enum ar_status place_rows(struct layer_row *row, const struct rows_part *p,
				 const struct batch_entry *e, const struct entry_span *x,
				 struct ar_err *err)
{
	const struct rows_env *env = p->env;
	const int32_t *page = batch_table(p->b, e, p->view->group->no);
	int tok = p->view->group->shape.page_tok;
	uint32_t run = x->keep ? 1 : (uint32_t)x->n; /* consecutive positions */
	enum ar_status st = AR_OK;

	for (int32_t i = 0; i < x->n && !st; i += (int32_t)run)
		st = env->act->begin(env->act_self, e->req,
				     (int64_t)e->start + (x->keep ? x->keep[i] : 0), run, row + i,
				     err);
	for (int32_t i = 0; i < x->n && !st; i++)
		row[i].slot = page[(x->start + i) / tok] * tok + (x->start + i) % tok;
	return st;
}

static enum ar_status add_rows(struct rows *o, const struct rows_part *p,
			       const struct batch_entry *e, const struct entry_span *x,
			       struct ar_err *err)
{
	enum ar_status st = o->row ? place_rows(o->row + o->n_row, p, e, x, err) : AR_OK;

	o->n_row += x->n;
	for (int32_t left = (int32_t)e->n_emit; left; left--)
		o->emit[o->n_emit++] = o->n_row - left;
	return st;
}

/* Add all entries of a kind.  page0: of the first request. */
static enum ar_status add_entries(struct rows *o, const struct rows_part *p, enum row_kind kind,
				  int32_t page0, const struct row_arrays *a, struct ar_err *err)
{
	struct attn_batch *out = &o->part[kind];
	int r = 0, n_blk = 0;

	a->row0[0] = a->qblk0[0] = 0;
	a->page0[0] = page0;
	for (size_t i = 0; i < p->b->n; i++) {
		const struct batch_entry *e = &p->b->entry[i];
		struct entry_span x = span_of(p, i);
		enum ar_status st;
		int own;

		if (e->kind != kind || !x.n)
			continue;
		add_request(a, r++, p, e, &x);
		own = a->page0[r] - a->page0[r - 1];
		n_blk = own > n_blk ? own : n_blk;
		st = add_rows(o, p, e, &x, err);
		if (st)
			return st;
	}
	out->shape = p->view->group->shape;
	out->n_sm = p->env->limit[kind].n_sm;
	out->rows = (struct attn_rows){ r,	 a->row0[r], a->qblk0[r], a->row0,  a->pos,
					a->pos0, a->qblk0,   a->left,	  a->first, NULL };
	out->keys = (struct attn_keys){ a->page0[r], n_blk, (n_blk + 31) / 32, a->len, a->page0,
					a->page,     NULL };
	assert(attn_is_chunked(out));
	return AR_OK;
}

static enum ar_status too_small(struct ar_err *err)
{
	return ar_fail(err, AR_USAGE, "the batch does not fit the memory allocated for batches");
}

static enum ar_status add_tiles(struct attn_batch *b, const struct method_part *m,
				struct workspace *c, struct ar_err *err)
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

static enum ar_status add_state(struct rows *o, struct workspace *c, struct ar_err *err)
{
	const struct attn_batch *b = &o->part[ROW_PREFILL];
	int max_chunk = state_max_chunk(b->rows.n_req, b->rows.n_row);
	struct state_seq *seq = workspace_take(c, (size_t)b->rows.n_req, sizeof *seq);
	struct state_chunk *chunk = workspace_take(c, (size_t)max_chunk, sizeof *chunk);

	if (!seq || !chunk)
		return too_small(err);
	o->state = state_plan(&b->rows, b->keys.page, seq, chunk);
	return AR_OK;
}

/* Add the rows of a kind.  tiles: the method that plans their tiles, if they have some. */
static enum ar_status add_kind(struct rows *o, const struct rows_part *p, enum row_kind kind,
			       const struct row_arrays *a, const struct method *tiles,
			       struct workspace *c, struct ar_err *err)
{
	const struct method *m = p->view->method;
	struct attn_batch *b = &o->part[kind];
	enum ar_status st = kind == ROW_REVIVED ? rows_revived_add(o, p, a, err) :
						  add_entries(o, p, kind, 0, a, err);

	if (st || !m)
		return st;
	b->tail = method_tail(&m->part[kind]);
	m = tiles ? tiles : m;
	b->skip = skip_of(m->skip, kind, &b->shape);
	return p->env->tiles && b->rows.n_req && has_tiles(m, kind) ?
		       add_tiles(b, &m->part[kind], c, err) :
		       AR_OK;
}

/* Whether a view has a part for rows of a kind. */
static bool has_part(const struct rows_part *p, enum row_kind kind)
{
	return kind == ROW_REVIVED ? rows_revives(p) : p->env->limit[kind].max_req > 0;
}

/* The state of a linear layer and the choice of a dropper cannot go back to before a draft. */
static enum ar_status check_verify(const struct rows_part *p, const struct part_size *s,
				   struct ar_err *err)
{
	if (!s->req || (!rows_is_linear(p->view) && !p->segment))
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "%zu verify entries meet %s, which cannot take refused drafts back; leave "
		       "the drafts out",
		       s->req, p->segment ? "a dropper" : "a linear layer");
}

/* Measure the rows of all kinds.  sum: gets the rows, and the rows that output a token. */
static enum ar_status measure_all(const struct rows_part *p, struct part_size s[ROW_KINDS],
				  struct part_size *sum, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	*sum = (struct part_size){ 0 };
	for (int k = 0; k < ROW_KINDS && !st; k++) {
		s[k] = measure_kind(p, k);
		sum->row += s[k].row;
		sum->emit += s[k].emit;
		st = check_part(&s[k], p, k, err);
	}
	return st ? st : check_verify(p, &s[ROW_VERIFY], err);
}

/* Row r is a padded one: the first token there is, at position 0 of the scratch page. */
static enum ar_status build_view(struct rows *out, const struct rows_part *p,
				 const struct method *tiles, int pad, struct workspace *c,
				 struct ar_err *err)
{
	struct part_size s[ROW_KINDS], sum;
	struct row_arrays a;
	struct rows o = { 0 };
	enum ar_status st = measure_all(p, s, &sum, err);

	if (st)
		return st;
	if (!carve_rows(c, p->view, sum.row > (size_t)pad ? sum.row : (size_t)pad, sum.emit, &o))
		return too_small(err);
	for (int k = 0; k < ROW_KINDS && !st; k++) {
		if (!has_part(p, k))
			continue;
		st = carve_kind(c, &s[k], p, k, s[ROW_DECODE].page, &a) ?
			     add_kind(&o, p, k, &a, tiles, c, err) :
			     too_small(err);
	}
	if (!st && rows_is_linear(p->view))
		st = add_state(&o, c, err);
	if (st)
		return st;
	while (o.n_row < pad)
		rows_pad_row(&o, p->view, o.n_row++);
	*out = o;
	return AR_OK;
}

enum ar_status rows_build(struct row_set *out, const struct rows_env *e, const struct batch *b,
			  const struct row_segment *segment, const struct method *tiles, int pad,
			  size_t *used, struct ar_err *err)
{
	struct workspace c = { e->mem, e->bytes, 0 };
	enum ar_status st = AR_OK;

	for (int i = 0; i < e->n_view && !st; i++) {
		const struct rows_part p = part_of(e, i, b, segment);

		st = build_view(&out->view[i], &p, tiles, pad, &c, err);
	}
	*used = c.used;
	return st;
}

/* ---- padded decodes ---- */

/* Pad to n requests.  A padded request has one token, in the scratch page. */
static void add_padding(struct rows *o, const struct rows_part *p, const struct row_arrays *a,
			int n)
{
	struct attn_batch *b = &o->part[ROW_DECODE];

	for (int r = b->rows.n_req; r < n; r++) {
		rows_pad_row(o, p->view, r);
		a->pos0[r] = 0;
		a->len[r] = 1;
		a->pos[r] = 0;
		if (a->first)
			a->first[r] = 0;
		a->left[r] = 0;
		a->page[a->page0[r]] = rows_scratch_page(p->view);
		a->row0[r + 1] = a->row0[r] + 1;
		a->qblk0[r + 1] = a->qblk0[r] + 1;
		a->page0[r + 1] = a->page0[r] + 1;
	}
	for (int r = 0; r < n; r++)
		o->emit[r] = r;
	b->rows.n_req = b->rows.n_row = b->rows.n_qblk = o->n_row = o->n_emit = n;
	b->keys.n_page = rows_revives(p) ? max_pages(p->env, p->view->group) : a->page0[n];
	b->keys.max_kv_blk = p->env->limit[ROW_DECODE].max_kv_blk;
	b->keys.mask_words = (b->keys.max_kv_blk + 31) / 32;
}

/* Take the arrays of a view for revived rows, and its pages.  a: [ROW_KINDS]. */
static bool carve_room(struct workspace *c, const struct rows_part *p, struct row_arrays *a, int n)
{
	size_t page = (size_t)max_pages(p->env, p->view->group);
	size_t row = (size_t)rows_revived_room(p, n);

	a[ROW_DECODE].page = workspace_take(c, page, sizeof *a->page);
	return a[ROW_DECODE].page && carve_kind(c, &(struct part_size){ .req = row, .row = row }, p,
						ROW_REVIVED, page, &a[ROW_REVIVED]);
}

/* Measure the decodes of a view and take its arrays, a[ROW_KINDS].  *n_page: gets the pages of keys
 * besides. */
static enum ar_status carve_decodes(struct rows *o, const struct rows_part *p, struct row_arrays *a,
				    int n, struct workspace *c, size_t *n_page, struct ar_err *err)
{
	const struct part_size fixed = { .req = (size_t)n, .row = (size_t)n };
	size_t n_row = fixed.row + (size_t)rows_revived_room(p, n);
	struct part_size s = measure_kind(p, ROW_DECODE);
	enum ar_status st = check_part(&s, p, ROW_DECODE, err);

	if (st)
		return st;
	assert(s.req == p->b->n && s.req <= (size_t)n && n <= p->env->limit[ROW_DECODE].max_req);
	*n_page += rows_is_linear(p->view) || rows_revives(p) ? 0 : s.page + (size_t)n - s.req;
	*o = (struct rows){ 0 };
	return carve_rows(c, p->view, n_row, fixed.req, o) &&
			       carve_arrays(c, &fixed, p->view, &a[ROW_DECODE]) &&
			       (!rows_revives(p) || carve_room(c, p, a, n)) ?
		       AR_OK :
		       too_small(err);
}

/* Add the decodes of a view, padded to n, and the rows that they revive.  page0: of the first
 * request. */
static enum ar_status add_decodes(struct rows *o, const struct rows_part *p,
				  const struct row_arrays *a, int n, int32_t page0,
				  struct ar_err *err)
{
	const struct method *m = p->view->method;
	struct attn_batch *b = &o->part[ROW_DECODE];
	enum ar_status st = add_entries(o, p, ROW_DECODE, page0, &a[ROW_DECODE], err);

	if (st)
		return st;
	b->skip = skip_of(m ? m->skip : NULL, ROW_DECODE, &b->shape);
	add_padding(o, p, &a[ROW_DECODE], n);
	if (!rows_revives(p))
		return AR_OK;
	st = rows_revived_add(o, p, &a[ROW_REVIVED], err);
	rows_revived_pad(o, p, &a[ROW_REVIVED], a[ROW_DECODE].page, rows_revived_room(p, n));
	return st;
}

enum ar_status rows_build_decodes(struct row_set *out, const struct rows_env *e,
				  const struct batch *b, const struct row_segment *segment, int n,
				  size_t *used, struct ar_err *err)
{
	struct workspace c = { e->mem, e->bytes, 0 };
	size_t n_page = 0;
	int32_t *page, page0 = 0;
	enum ar_status st = AR_OK;

	for (int i = 0; i < e->n_view && !st; i++) {
		const struct rows_part p = part_of(e, i, b, segment);

		st = carve_decodes(&out->view[i], &p, &e->arrays[i * ROW_KINDS], n, &c, &n_page,
				   err);
	}
	page = st ? NULL : workspace_take(&c, n_page, sizeof *page);
	if (!st && !page)
		st = too_small(err);
	for (int i = 0; i < e->n_view && !st; i++) {
		const struct rows_part p = part_of(e, i, b, segment);
		struct row_arrays *a = &e->arrays[i * ROW_KINDS];
		bool shared = !a[ROW_DECODE].page;

		if (shared)
			a[ROW_DECODE].page = page;
		st = add_decodes(&out->view[i], &p, a, n, shared ? page0 : 0, err);
		page0 = shared ? out->view[i].part[ROW_DECODE].keys.n_page : page0;
	}
	*used = c.used;
	return st;
}

/* ---- copies ---- */

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
	o.rows.first = moved(b->rows.first, mem, copy);
	o.rows.own = moved(b->rows.own, mem, copy);
	o.keys.len = moved(b->keys.len, mem, copy);
	o.keys.page0 = moved(b->keys.page0, mem, copy);
	o.keys.page = moved(b->keys.page, mem, copy);
	o.keys.pos = moved(b->keys.pos, mem, copy);
	o.tile = moved(b->tile, mem, copy);
	return o;
}

void row_set_at(struct row_set *out, const struct row_set *s, const void *mem, void *copy)
{
	for (int i = 0; i < s->n_view; i++) {
		const struct rows *r = &s->view[i];
		struct rows *o = &out->view[i];

		*o = *r;
		o->row = moved(r->row, mem, copy);
		o->emit = moved(r->emit, mem, copy);
		for (int k = 0; k < ROW_KINDS; k++)
			o->part[k] = batch_at(&r->part[k], mem, copy);
		o->gone = moved(r->gone, mem, copy);
		o->state.seq = moved(r->state.seq, mem, copy);
		o->state.chunk = moved(r->state.chunk, mem, copy);
	}
}
