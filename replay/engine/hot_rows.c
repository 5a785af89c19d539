/* SPDX-License-Identifier: Apache-2.0 */
/* Hot buffers of all requests. */
#include "config.h"
#include "replay/engine/hot_rows.h"

#include <stdlib.h>

#include "replay/engine/hot_list.h"

/* Of a request. */
struct hot_buffers {
	int n;
	struct hot_list list[]; /* [n_layer][n_list][n_size] */
};

enum ar_status hot_rows_init(struct hot_rows *h, const int64_t *size, int n_size, int n_layer,
			     size_t n_req, struct ar_err *err)
{
	*h = (struct hot_rows){ .size = size,
				.n_size = n_size,
				.n_layer = n_layer,
				.n_req = n_req,
				.count = calloc((size_t)(n_layer * n_size) + 1, sizeof *h->count),
				.of = calloc(n_req + 1, sizeof *h->of) };
	return h->count && h->of ? AR_OK : ar_nomem(err);
}

static void buffers_free(struct hot_buffers *b)
{
	for (int i = 0; b && i < b->n; i++)
		hot_list_release(&b->list[i]);
	free(b);
}

void hot_rows_release(struct hot_rows *h)
{
	for (size_t i = 0; h->of && i < h->n_req; i++)
		buffers_free(h->of[i]);
	free(h->of);
	free(h->count);
	*h = (struct hot_rows){ 0 };
}

void hot_rows_forget(struct hot_rows *h, uint32_t req)
{
	buffers_free(h->of[req]);
	h->of[req] = NULL;
}

static struct hot_buffers *buffers_of(const struct hot_rows *h, int n_list, int tok)
{
	int n = h->n_layer * n_list * h->n_size;
	struct hot_buffers *b = calloc(1, sizeof *b + (size_t)n * sizeof *b->list);

	for (; b && b->n < n; b->n++)
		if (!hot_list_init(&b->list[b->n], (int)(h->size[b->n % h->n_size] / tok))) {
			b->n++;
			buffers_free(b);
			return NULL;
		}
	return b;
}

enum ar_status hot_rows_read(struct hot_rows *h, uint32_t req, int i, const struct piece_lists *l,
			     int n_list, int pos, struct ar_err *err)
{
	struct hot_list *of;

	if (!h->of[req])
		h->of[req] = buffers_of(h, n_list, l->tok);
	if (!h->of[req])
		return ar_nomem(err);
	of = h->of[req]->list + i * n_list * h->n_size;
	for (int k = 0; k < n_list * h->n_size; k++) {
		struct hot_count *c = &h->count[i * h->n_size + k % h->n_size];
		int list = k / h->n_size, n = l->n[list];
		const int32_t *piece = l->piece + (ptrdiff_t)list * l->stride;

		n -= n && piece[n - 1] == pos / l->tok;
		c->rows += !list;
		c->listed += (int64_t)n * l->tok;
		c->missed += (int64_t)hot_list_read(&of[k], piece, n) * l->tok;
	}
	return AR_OK;
}
