/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/drops.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/rng.h"

/* Room for the tokens that decodes revive. */
static bool open_revived(struct drops *d)
{
	size_t entries = (size_t)d->max_entry, segs = (size_t)d->n;
	size_t most = entries * (size_t)d->revives;

	if (!d->revives)
		return true;
	d->back_pos = calloc(segs * entries, sizeof *d->back_pos);
	d->gone = calloc(segs * entries, sizeof *d->gone);
	d->n_back = calloc(segs * entries, sizeof *d->n_back);
	d->revived = calloc(2 * segs * most, sizeof *d->revived);
	d->left = calloc(segs * (size_t)d->max_row, sizeof *d->left);
	d->n_left = calloc(segs, sizeof *d->n_left);
	d->chosen.n = calloc(entries, sizeof *d->chosen.n);
	d->chosen.index = calloc(most, sizeof *d->chosen.index);
	for (size_t s = 0; s < segs; s++) {
		struct row_segment *x = &d->segment[s];

		x->n_back = d->n_back + s * entries;
		x->back = d->back_pos + s * entries;
		x->gone = s < segs - 1 ? d->gone + s * entries : NULL;
	}
	return d->back_pos && d->gone && d->n_back && d->revived && d->left && d->n_left &&
	       d->chosen.n && d->chosen.index;
}

static enum ar_status gather(void *ctx, const void *from, void *to, size_t bytes, void *stream,
			     struct ar_err *err)
{
	const struct drop_link *l = ctx;
	enum ar_status st;

	l->phase(l->phase_ctx, l->layer, PHASE_COMM_SELECT);
	st = world_gather_on(l->world, from, to, bytes, stream, err);
	l->phase(l->phase_ctx, l->layer, PHASE_DROP);
	return st;
}

struct drop_ranks drops_ranks(const struct drop_link *link)
{
	return (struct drop_ranks){ link->world ? world_size(link->world) : 1, gather,
				    (void *)(uintptr_t)link };
}

enum ar_status drops_open(struct drops *d, int n, size_t n_req, int max_entry, int max_row,
			  int revives, struct ar_err *err)
{
	size_t segs = (size_t)n, entries = segs * (size_t)max_entry, rows = segs * (size_t)max_row;

	*d = (struct drops){ .n = n,
			     .revives = revives,
			     .n_req = n_req,
			     .max_entry = max_entry,
			     .max_row = max_row,
			     .req = calloc((size_t)max_entry, sizeof *d->req),
			     .segment = calloc(segs, sizeof *d->segment),
			     .stat = calloc(segs, sizeof *d->stat),
			     .messages = calloc(segs, sizeof *d->messages),
			     .one = calloc(segs, sizeof *d->one),
			     .list = calloc(segs * n_req + 1, sizeof *d->list),
			     .start = calloc(entries, sizeof *d->start),
			     .count = calloc(entries, sizeof *d->count),
			     .keep = calloc(entries, sizeof *d->keep),
			     .before = calloc(entries, sizeof *d->before),
			     .row = calloc(rows, sizeof *d->row),
			     .index = calloc(rows, sizeof *d->index),
			     .n_index = calloc(segs, sizeof *d->n_index),
			     .whole = calloc(rows, sizeof *d->whole),
			     .chunk = calloc((size_t)max_entry, sizeof *d->chunk),
			     .kept = { calloc((size_t)max_row, sizeof *d->kept.keep),
				       calloc((size_t)max_entry, sizeof *d->kept.n_keep),
				       calloc((size_t)max_row, sizeof *d->kept.index) } };
	if (!d->req || !d->segment || !d->stat || !d->messages || !d->one || !d->list ||
	    !d->start || !d->count || !d->keep || !d->before || !d->row || !d->index ||
	    !d->n_index || !d->whole || !d->chunk || !d->kept.keep || !d->kept.n_keep ||
	    !d->kept.index)
		return ar_nomem(err);
	for (int s = 0; s < n; s++) {
		size_t at = (size_t)s * (size_t)max_entry;

		d->segment[s] = (struct row_segment){ .start = d->start + at,
						      .n = d->count + at,
						      .keep = d->keep + at,
						      .before = d->before + at };
	}
	return open_revived(d) ? AR_OK : ar_nomem(err);
}

void drops_close(struct drops *d)
{
	for (size_t i = 0; d->list && i < (size_t)d->n * d->n_req; i++) {
		free(d->list[i].pos);
		free(d->list[i].gone);
	}
	free(d->list);
	free(d->req);
	free(d->segment);
	free(d->stat);
	free(d->messages);
	free(d->one);
	free(d->start);
	free(d->count);
	free(d->keep);
	free(d->before);
	free(d->row);
	free(d->index);
	free(d->n_index);
	free(d->whole);
	free(d->chunk);
	free(d->kept.keep);
	free(d->kept.n_keep);
	free(d->kept.index);
	free(d->back_pos);
	free(d->gone);
	free(d->n_back);
	free(d->revived);
	free(d->left);
	free(d->n_left);
	free(d->chosen.n);
	free(d->chosen.index);
	*d = (struct drops){ 0 };
}

/* Number of entry i in segment s. */
static size_t in_segment(const struct drops *d, int s, size_t i)
{
	return (size_t)s * (size_t)d->max_entry + i;
}

/* A list without tokens has no arrays, but positions are not NULL here. */
static const int32_t *tokens_before(const struct drops *d, int s, uint32_t req)
{
	static const int32_t none;
	const struct drop_list *l = drops_tokens(d, s, req);

	return l->pos ? l->pos : &none;
}

/* Set the tokens that the caches of entry i hold already in segment s. */
static void set_before(struct drops *d, int s, size_t i)
{
	size_t at = in_segment(d, s, i);

	d->before[at] = (d->windows && s) || d->revives ? tokens_before(d, s, d->req[i]) : NULL;
	if (d->revives)
		d->gone[at] = drops_tokens(d, s, d->req[i])->gone;
}

void drops_begin(struct drops *d, const struct batch *b)
{
	int n = 0;

	assert(b->n <= (size_t)d->max_entry);
	d->n_entry = b->n;
	d->n_whole = 0;
	d->prefill = false;
	d->digest = 0;
	memset(d->count, 0, (size_t)(d->n * d->max_entry) * sizeof *d->count);
	if (d->revives)
		memset(d->n_back, 0, (size_t)(d->n * d->max_entry) * sizeof *d->n_back);
	for (size_t i = 0; i < b->n; i++) {
		const struct batch_entry *e = &b->entry[i];

		d->req[i] = e->req;
		d->start[i] = (int32_t)batch_stored(e);
		d->count[i] = (int32_t)e->n_tok;
		d->n_whole += (int)e->n_tok;
		if (d->revives)
			set_before(d, 0, i);
		if (e->kind == ROW_DECODE)
			continue;
		d->chunk[n++] = (int32_t)e->n_tok;
		d->prefill = true;
	}
}

enum ar_status drops_grow(const struct drops *d, struct blocks *blocks, const struct batch *b,
			  int s, struct ar_err *err)
{
	const struct row_segment *x = &d->segment[s];
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < b->n && !st; i++)
		st = blocks_place_rows(blocks, s, &b->entry[i], x->start[i],
				       (int64_t)x->start[i] + x->n[i], err);
	return st;
}

/* The rows that the dropper which ends segment s sees. */
static const struct row_segment *segment_before(const struct drops *d, int s)
{
	return &d->segment[d->back ? 0 : s];
}

/* n rows of segment s from row `first` on do not go on. */
static void leave_rows(struct drops *d, int s, int32_t first, int32_t n)
{
	int32_t *left = d->left + (ptrdiff_t)s * d->max_row;

	for (int32_t k = 0; k < n; k++)
		left[d->n_left[s]++] = first + k;
}

/* Store the rows of one entry that go on.  first: number of its first row there; keep: the
 * flags of its rows, NULL: all stay.  Returns how many there are. */
static int32_t keep_rows(struct drops *d, int s, size_t i, int32_t first, const uint8_t *keep,
			 int32_t *row)
{
	const struct row_segment *x = segment_before(d, s);
	int32_t *index = d->index + (ptrdiff_t)s * d->max_row, n = 0;
	int32_t *whole = d->whole + (ptrdiff_t)(s + 1) * d->max_row;

	for (int32_t k = 0; k < x->n[i] - rows_n_back(x, i); k++) {
		whole[first + k] = first + k;
		if (d->revives && keep && !keep[k])
			leave_rows(d, s, first + k, 1);
		if (!keep || keep[k]) {
			whole[first + k] = d->n_whole + d->n_index[s];
			index[d->n_index[s]++] = first + k;
			row[n++] = x->keep[i] ? x->keep[i][k] : k;
		}
	}
	return n;
}

/* Positions of the tokens that segment s > 0 revives, or their indices in the cache of the segment
 * before. */
static int32_t *revived_of(const struct drops *d, int s, bool index)
{
	return d->revived + (ptrdiff_t)(2 * s + index) * d->max_entry * d->revives;
}

/* Add the tokens that entry i, the k-th decode, revives after segment s, as d->chosen says.  at:
 * revived tokens of the entries before.  Returns the number of its own. */
static int32_t revive(struct drops *d, int s, size_t i, int k, int32_t at)
{
	const struct row_segment *x = &d->segment[s];
	const int32_t *chosen = d->chosen.index + (ptrdiff_t)k * d->revives;
	int32_t *pos = revived_of(d, s + 1, false) + at, *index = revived_of(d, s + 1, true) + at;
	int32_t n = d->chosen.n[k];

	for (int32_t j = 0; j < n; j++) {
		int32_t own = chosen[j] - x->start[i]; /* among the rows that segment s revives */

		pos[j] = own < 0 ? x->before[i][chosen[j]] : x->back[i][own];
		index[j] = chosen[j];
	}
	d->n_back[in_segment(d, s + 1, i)] = n;
	d->back_pos[in_segment(d, s + 1, i)] = pos;
	return n;
}

/* Add the rows that go on from segment s to the digest, and the tokens that n decodes revive. */
static void digest_rows(struct drops *d, int s, int n)
{
	const int32_t *index = d->index + (ptrdiff_t)s * d->max_row;

	for (int i = 0; i < d->n_index[s]; i++)
		d->digest = rng_mix(d->digest ^ (uint64_t)index[i]);
	for (int k = 0; k < n; k++)
		for (int i = 0; i < d->chosen.n[k]; i++)
			d->digest = rng_mix(d->digest ^
					    (uint64_t)d->chosen.index[k * d->revives + i]);
}

void drops_apply(struct drops *d, const struct batch *b, int s, const uint8_t *keep)
{
	const struct row_segment *x = segment_before(d, s);
	int32_t *row = d->row + (ptrdiff_t)(s + 1) * d->max_row, first = 0, n_revived = 0;
	size_t next = in_segment(d, s + 1, 0);
	int k = 0; /* decodes so far */
	int32_t n_before = 0;

	d->n_index[s] = 0;
	if (d->revives)
		d->n_left[s] = 0;
	d->stat[s].n_row = d->stat[s].n_kept = 0;
	for (int decode = 0; decode < 2; decode++)
		for (size_t i = 0; i < b->n; i++) {
			int32_t n, own = x->n[i] - rows_n_back(x, i);

			if ((b->entry[i].kind == ROW_DECODE) != decode)
				continue;
			n = keep_rows(d, s, i, first, decode ? NULL : keep + first, row);
			d->start[next + i] = drops_tokens(d, s + 1, b->entry[i].req)->n;
			d->count[next + i] = n;
			d->keep[next + i] = decode ? NULL : row;
			set_before(d, s + 1, i);
			row += n;
			first += own;
			d->stat[s].n_row += decode ? 0 : own;
			d->stat[s].n_kept += decode ? 0 : n;
			if (!decode || !d->revives)
				continue;
			n = revive(d, s, i, k++, n_revived);
			d->count[next + i] += n;
			n_revived += n;
			n_before += rows_n_back(x, i);
		}
	if (d->revives)
		leave_rows(d, s, first, n_before);
	digest_rows(d, s, k);
}

static enum ar_status grow_list(struct drop_list *l, int32_t need, bool flags, struct ar_err *err)
{
	size_t cap = l->cap;

	return (!flags || GROW(l->gone, cap, (size_t)need)) && GROW(l->pos, l->cap, (size_t)need) ?
		       AR_OK :
		       ar_nomem(err);
}

/* Add the rows of entry i in segment s to its tokens: revived ones first.  All are gone yet. */
static enum ar_status add_tokens(struct drops *d, int s, size_t i, struct ar_err *err)
{
	const struct row_segment *x = &d->segment[s];
	struct drop_list *l = &d->list[(size_t)s * d->n_req + d->req[i]];
	int32_t n_back = rows_n_back(x, i);
	enum ar_status st = grow_list(l, l->n + x->n[i], d->revives, err);

	if (st)
		return st;
	if (l->gone)
		memset(l->gone + l->n, 1, (size_t)x->n[i]);
	for (int32_t k = 0; k < n_back; k++)
		l->pos[l->n++] = x->back[i][k];
	for (int32_t k = 0; k < x->n[i] - n_back; k++)
		l->pos[l->n++] = d->segment[0].start[i] + (x->keep[i] ? x->keep[i][k] : k);
	return AR_OK;
}

/* The tokens of entry i that went on from segment s are not gone. */
static void mark_gone(struct drops *d, int s, size_t i)
{
	const struct row_segment *from = &d->segment[s], *to = &d->segment[s + 1];
	uint8_t *gone = drops_tokens(d, s, d->req[i])->gone;
	int32_t n_back = rows_n_back(from, i), to_back = rows_n_back(to, i), at = 0;
	const int32_t *pos = revived_of(d, s + 1, false), *index = revived_of(d, s + 1, true);
	uint8_t *own = gone + from->start[i] + n_back;

	for (int32_t k = 0; k < to_back; k++)
		gone[index[to->back[i] - pos + k]] = 0;
	for (int32_t k = 0; k < from->n[i] - n_back; k++)
		if (at < to->n[i] - to_back && (from->keep[i] ? from->keep[i][k] : k) ==
						       (to->keep[i] ? to->keep[i][at] : at)) {
			own[k] = 0;
			at++;
		}
}

enum ar_status drops_end(struct drops *d, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int s = d->revives ? 0 : 1; s < d->n; s++)
		for (size_t i = 0; i < d->n_entry && !st; i++) {
			st = add_tokens(d, s, i, err);
			set_before(d, s, i); /* the arrays may have moved */
			if (!st && d->revives && s < d->n - 1)
				mark_gone(d, s, i);
		}
	return st;
}

int drops_slots(const struct drops *d, const struct blocks *blocks, const struct cache_group *g,
		int s, int32_t *slot)
{
	const struct row_segment *x = &d->segment[s];
	const int32_t *index = revived_of(d, s, true);
	int tok = g->shape.page_tok, n = 0;

	for (size_t i = 0; i < d->n_entry; i++) {
		const int32_t *page = blocks_table(blocks, g->no, d->req[i]);

		for (int32_t k = 0; k < rows_n_back(x, i); k++, n++)
			slot[n] = page[index[n] / tok] * tok + index[n] % tok;
	}
	return n;
}

static int64_t segment_rows(const struct drops *d, int s)
{
	int64_t n = 0;

	for (size_t i = 0; i < d->n_entry; i++)
		n += d->segment[s].n[i];
	return n;
}

void drops_cost(const struct drops *d, struct iter_cost *cost)
{
	for (int s = 0; s < d->n - 1; s++) {
		d->messages[s].rows = segment_rows(d, d->back ? 0 : s);
		d->messages[s].kept = segment_rows(d, s + 1);
	}
	cost->drop_messages = d->messages;
	cost->n_drop_messages = (size_t)d->n - 1;
	cost->drop = d->stat;
	cost->n_drop = d->prefill ? (size_t)d->n - 1 : 0;
	cost->drop_digest = d->digest;
}

void drops_forget(struct drops *d, uint32_t req)
{
	for (int s = 0; s < d->n; s++) {
		struct drop_list *l = &d->list[(size_t)s * d->n_req + req];

		free(l->pos);
		free(l->gone);
		*l = (struct drop_list){ 0 };
	}
}

/* Number of the entry of req in the last batch. */
static size_t entry_of(const struct drops *d, uint32_t req)
{
	size_t i = 0;

	while (d->req[i] != req)
		i++;
	assert(i < d->n_entry);
	return i;
}

const struct row_segment *drops_entry(struct drops *d, uint32_t req)
{
	size_t i = d->n == 1 ? 0 : entry_of(d, req);

	if (d->n == 1)
		return NULL;
	for (int s = 0; s < d->n; s++)
		d->one[s] = (struct row_segment){ .start = d->segment[s].start + i,
						  .n = d->segment[s].n + i,
						  .keep = d->segment[s].keep + i,
						  .before = d->segment[s].before + i };
	return d->one;
}

int drops_entry_index(const struct drops *d, uint32_t req, int s, int32_t *index)
{
	size_t i = entry_of(d, req);
	const int32_t *from = d->segment[s].keep[i], *to = d->segment[s + 1].keep[i];
	int n = 0;

	for (int32_t k = 0; k < d->segment[s].n[i]; k++)
		if (n < d->segment[s + 1].n[i] && (from ? from[k] : k) == (to ? to[n] : n))
			index[n++] = k;
	return n;
}
