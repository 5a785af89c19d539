/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that decodes revive: requests of one row each, on the pages of the decodes. */
#include "config.h"
#include "replay/engine/rows_part.h"

#include <string.h>

int64_t rows_revived_pairs(const struct row_segment *s, size_t i)
{
	int32_t n = rows_n_back(s, i);
	int64_t sum = 0;

	for (int32_t k = 0; k < n; k++) {
		int32_t own = s->back[i][k];

		for (int32_t t = 0; t < s->start[i]; t++)
			sum += s->before[i][t] <= own;
		for (int32_t t = 0; t < n; t++)
			sum += s->back[i][t] <= own;
	}
	return sum;
}

bool rows_revived_take(struct workspace *c, size_t n, size_t n_key, struct row_arrays *a)
{
	a->own = workspace_take(c, n, sizeof *a->own);
	a->key = workspace_take(c, n_key, sizeof *a->key);
	a->gone = workspace_take(c, n_key, sizeof *a->gone);
	return a->own && a->key && a->gone;
}

/* Store revived row r, at position own of a request with end keys from page0 on. */
static void add_revived(const struct row_arrays *a, int r, int32_t own, int32_t end, int32_t page0)
{
	a->pos[r] = a->pos0[r] = end - 1;
	a->len[r] = end;
	a->left[r] = 0;
	a->own[r] = own;
	a->page0[r] = a->page0[r + 1] = page0;
	a->row0[r + 1] = a->qblk0[r + 1] = r + 1;
}

/* Store the positions and the flags of the keys of entry i, from place `at` on. */
static void add_keys(const struct row_arrays *a, const struct rows_part *p, size_t i, int32_t at)
{
	const struct row_segment *s = p->segment;
	const struct batch_entry *e = &p->b->entry[i];
	int32_t start = s->start[i], n_back = rows_n_back(s, i), *key = a->key + at;
	uint8_t *gone = a->gone + at;

	for (int32_t t = 0; t < start && n_back; t++)
		key[t] = s->before[i][t];
	for (int32_t t = 0; t < n_back; t++)
		key[start + t] = s->back[i][t];
	key[start + n_back] = (int32_t)e->start;
	if (s->gone && s->gone[i])
		memcpy(gone, s->gone[i], (size_t)start);
	memset(gone + start, 1, (size_t)n_back);
	gone[start + n_back] = 0;
}

/* Find the activations and the slots of the rows that entry i revives. */
static enum ar_status place_revived(struct layer_row *row, const struct rows_part *p, size_t i,
				    struct ar_err *err)
{
	const struct row_segment *s = p->segment;
	uint32_t req = p->b->entry[i].req;
	const int32_t *page = batch_table(p->b, &p->b->entry[i], p->view->group->no);
	int tok = p->view->group->shape.page_tok;
	enum ar_status st = AR_OK;

	for (int32_t k = 0, at = s->start[i]; k < rows_n_back(s, i) && !st; k++, at++) {
		st = p->env->act->begin(p->env->act_self, req, s->back[i][k], 1, row + k, err);
		row[k].slot = page[at / tok] * tok + at % tok;
	}
	return st;
}

enum ar_status rows_revived_add(struct rows *o, const struct rows_part *p,
				const struct row_arrays *a, struct ar_err *err)
{
	const struct attn_batch *d = &o->part[ROW_DECODE];
	struct attn_batch *out = &o->part[ROW_REVIVED];
	int n = 0, r = 0;
	enum ar_status st = AR_OK;

	a->row0[0] = a->qblk0[0] = 0;
	for (size_t i = 0; i < p->b->n && !st; i++) {
		int32_t n_back = rows_n_back(p->segment, i);

		if (p->b->entry[i].kind != ROW_DECODE || !p->segment->n[i])
			continue;
		add_keys(a, p, i, d->keys.page0[r] * d->shape.page_tok);
		st = place_revived(o->row + o->n_row, p, i, err);
		o->n_row += n_back;
		for (int32_t k = 0; k < n_back; k++)
			add_revived(a, n++, p->segment->back[i][k], d->keys.len[r],
				    d->keys.page0[r]);
		r++;
	}
	*out = *d;
	out->rows = (struct attn_rows){ .n_req = n,
					.n_row = n,
					.n_qblk = n,
					.row0 = a->row0,
					.pos = a->pos,
					.pos0 = a->pos0,
					.qblk0 = a->qblk0,
					.left = a->left,
					.own = a->own };
	out->keys.len = a->len;
	out->keys.page0 = a->page0;
	out->keys.pos = a->key;
	o->gone = p->segment->gone ? a->gone : NULL;
	return st;
}

size_t rows_revived_count(const struct rows_part *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->b->n; i++)
		n += (size_t)rows_n_back(p->segment, i);
	return n;
}

int rows_revived_room(const struct rows_part *p, int n)
{
	return rows_revives(p) && p->view->segment ? n * p->env->revives : 0;
}

void rows_revived_pad(struct rows *o, const struct rows_part *p, const struct row_arrays *a,
		      int32_t *page, int n)
{
	struct attn_batch *b = &o->part[ROW_REVIVED];
	int last = b->keys.n_page - 1;

	page[last] = rows_scratch_page(p->view);
	a->key[(size_t)last * rows_page_tok(p)] = 0;
	for (int r = b->rows.n_row; r < n; r++) {
		rows_pad_row(o, p->view, o->n_row++);
		add_revived(a, r, 0, 1, last);
	}
	b->rows.n_req = b->rows.n_row = b->rows.n_qblk = n;
}
