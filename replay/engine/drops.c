/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/drops.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum ar_status drops_open(struct drops *d, int n, size_t n_req, int max_entry, int max_row,
			  struct ar_err *err)
{
	size_t segs = (size_t)n, entries = segs * (size_t)max_entry, rows = segs * (size_t)max_row;

	*d = (struct drops){ .n = n,
			     .n_req = n_req,
			     .max_entry = max_entry,
			     .max_row = max_row,
			     .req = calloc((size_t)max_entry, sizeof *d->req),
			     .segment = calloc(segs, sizeof *d->segment),
			     .stat = calloc(segs, sizeof *d->stat),
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
	if (!d->req || !d->segment || !d->stat || !d->one || !d->list || !d->start || !d->count ||
	    !d->keep || !d->before || !d->row || !d->index || !d->n_index || !d->whole ||
	    !d->chunk || !d->kept.keep || !d->kept.n_keep || !d->kept.index)
		return ar_nomem(err);
	for (int s = 0; s < n; s++) {
		size_t at = (size_t)s * (size_t)max_entry;

		d->segment[s] = (struct row_segment){ d->start + at, d->count + at, d->keep + at,
						      d->before + at };
	}
	return AR_OK;
}

void drops_close(struct drops *d)
{
	for (size_t i = 0; d->list && i < (size_t)d->n * d->n_req; i++)
		free(d->list[i].pos);
	free(d->list);
	free(d->req);
	free(d->segment);
	free(d->stat);
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
	*d = (struct drops){ 0 };
}

void drops_begin(struct drops *d, const struct batch *b)
{
	int n = 0;

	assert(b->n <= (size_t)d->max_entry);
	d->n_entry = b->n;
	d->n_whole = 0;
	d->prefill = false;
	memset(d->count, 0, (size_t)(d->n * d->max_entry) * sizeof *d->count);
	for (size_t i = 0; i < b->n; i++) {
		const struct batch_entry *e = &b->entry[i];

		d->req[i] = e->req;
		d->start[i] = (int32_t)e->start;
		d->count[i] = (int32_t)e->n_tok;
		d->n_whole += (int)e->n_tok;
		if (e->decode)
			continue;
		d->chunk[n++] = (int32_t)e->n_tok;
		d->prefill = true;
	}
}

enum ar_status drops_grow(const struct drops *d, const struct cache_groups *g,
			  const struct batch *b, int s, struct ar_err *err)
{
	const struct row_segment *x = &d->segment[s];
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < b->n && !st; i++)
		st = groups_grow_segment(g, s, &b->entry[i], x->start[i],
					 (int64_t)x->start[i] + x->n[i], err);
	return st;
}

/* The rows that the dropper which ends segment s sees. */
static const struct row_segment *segment_before(const struct drops *d, int s)
{
	return &d->segment[d->back ? 0 : s];
}

/* Store the rows of one entry that go on.  first: number of its first row there; keep: the
 * flags of its rows, NULL: all stay.  Returns how many there are. */
static int32_t keep_rows(struct drops *d, int s, size_t i, int32_t first, const uint8_t *keep,
			 int32_t *row)
{
	const struct row_segment *x = segment_before(d, s);
	int32_t *index = d->index + (ptrdiff_t)s * d->max_row, n = 0;
	int32_t *whole = d->whole + (ptrdiff_t)(s + 1) * d->max_row;

	for (int32_t k = 0; k < x->n[i]; k++) {
		whole[first + k] = first + k;
		if (!keep || keep[k]) {
			whole[first + k] = d->n_whole + d->n_index[s];
			index[d->n_index[s]++] = first + k;
			row[n++] = x->keep[i] ? x->keep[i][k] : k;
		}
	}
	return n;
}

/* A list without tokens has no array, but is not NULL here. */
static const int32_t *tokens_before(const struct drops *d, int s, uint32_t req)
{
	static const int32_t none;
	const struct drop_list *l = drops_tokens(d, s, req);

	return l->pos ? l->pos : &none;
}

void drops_apply(struct drops *d, const struct batch *b, int s, const uint8_t *keep)
{
	const struct row_segment *x = segment_before(d, s);
	int32_t *row = d->row + (ptrdiff_t)(s + 1) * d->max_row, first = 0;
	size_t next = (size_t)(s + 1) * (size_t)d->max_entry;

	d->n_index[s] = 0;
	d->stat[s].n_row = d->stat[s].n_kept = 0;
	for (int decode = 0; decode < 2; decode++)
		for (size_t i = 0; i < b->n; i++) {
			uint32_t req = b->entry[i].req;
			int32_t n;

			if (b->entry[i].decode != decode)
				continue;
			n = keep_rows(d, s, i, first, decode ? NULL : keep + first, row);
			d->start[next + i] = drops_tokens(d, s + 1, req)->n;
			d->count[next + i] = n;
			d->keep[next + i] = decode ? NULL : row;
			d->before[next + i] = d->windows ? tokens_before(d, s + 1, req) : NULL;
			row += n;
			first += x->n[i];
			d->stat[s].n_row += decode ? 0 : x->n[i];
			d->stat[s].n_kept += decode ? 0 : n;
		}
}

/* Add the rows of entry i in segment s to its tokens. */
static enum ar_status add_tokens(struct drops *d, int s, size_t i, struct ar_err *err)
{
	const struct row_segment *x = &d->segment[s];
	struct drop_list *l = &d->list[(size_t)s * d->n_req + d->req[i]];
	int32_t need = l->n + x->n[i];

	if (need > l->room) {
		int32_t *pos = realloc(l->pos, 2 * (size_t)need * sizeof *pos);

		if (!pos)
			return ar_nomem(err);
		l->pos = pos;
		l->room = 2 * need;
	}
	for (int32_t k = 0; k < x->n[i]; k++)
		l->pos[l->n++] = d->segment[0].start[i] + (x->keep[i] ? x->keep[i][k] : k);
	return AR_OK;
}

enum ar_status drops_end(struct drops *d, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int s = 1; s < d->n; s++)
		for (size_t i = 0; i < d->n_entry && !st; i++) {
			st = add_tokens(d, s, i, err);
			if (d->windows) /* the array may have moved */
				d->before[(size_t)s * (size_t)d->max_entry + i] =
					tokens_before(d, s, d->req[i]);
		}
	return st;
}

void drops_cost(const struct drops *d, struct iter_cost *cost)
{
	cost->drop = d->stat;
	cost->n_drop = d->prefill ? (size_t)d->n - 1 : 0;
}

void drops_forget(struct drops *d, uint32_t req)
{
	for (int s = 1; s < d->n; s++) {
		struct drop_list *l = &d->list[(size_t)s * d->n_req + req];

		free(l->pos);
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
		d->one[s] = (struct row_segment){ d->segment[s].start + i, d->segment[s].n + i,
						  d->segment[s].keep + i,
						  d->segment[s].before + i };
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
