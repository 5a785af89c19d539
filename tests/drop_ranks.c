/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/drop_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"

/* Copy a rank's part of each of n groups of `heads` heads, of `size` elements each. */
static bf16_t *slice(const bf16_t *x, size_t n, int heads, size_t size, int rank)
{
	const size_t own = (size_t)heads / DROP_RANKS * size;
	bf16_t *out = malloc(n * own * sizeof *out + 1);

	if (!out)
		bail_out("out of memory");
	for (size_t i = 0; i < n; i++)
		memcpy(out + i * own, x + (i * DROP_RANKS + (size_t)rank) * own, own * sizeof *out);
	return out;
}

struct batch_case drop_rank_case(const struct batch_case *whole, int rank)
{
	const struct attn_shape *s = &whole->b.shape;
	const size_t dim = (size_t)s->head_dim, page = (size_t)s->page_tok * dim;
	const size_t n_page = whole->kv_len / ((size_t)s->kv_heads * page);
	struct batch_case c = *whole;

	c.q = slice(whole->q, (size_t)whole->b.rows.n_row, s->q_heads, dim, rank);
	c.kv.k = slice(whole->kv.k, n_page, s->kv_heads, page, rank);
	c.kv.v = slice(whole->kv.v, n_page, s->kv_heads, page, rank);
	c.q_len = whole->q_len / DROP_RANKS;
	c.kv_len = whole->kv_len / DROP_RANKS;
	c.b.shape.q_heads /= DROP_RANKS;
	c.b.shape.kv_heads /= DROP_RANKS;
	return c;
}

void drop_rank_free(struct batch_case *c)
{
	free(c->q);
	free(c->kv.k);
	free(c->kv.v);
}

static enum ar_status gather(void *ctx, const void *from, void *to, size_t bytes, void *stream,
			     struct ar_err *err)
{
	struct drop_meeting *m = ctx;
	const int at = m->n[m->rank]++;
	struct drop_message *mine = &m->sent[m->rank][at];

	(void)stream;
	if (!m->together) {
		*mine = (struct drop_message){ malloc(bytes), bytes };
		if (!mine->bytes)
			return ar_nomem(err);
		m->copy(mine->bytes, from, bytes);
	}
	for (int k = 0; k < DROP_RANKS; k++) {
		const struct drop_message *x = m->together ? &m->sent[k][at] : mine;

		if (x->size != bytes)
			return ar_fail(err, AR_DATA, "rank %d sends %zu bytes, not %zu", k, x->size,
				       bytes);
		m->copy((char *)to + (size_t)k * bytes, x->bytes, bytes);
	}
	return AR_OK;
}

struct drop_ranks drop_meet(struct drop_meeting *m, int rank, bool together)
{
	m->together = together;
	m->rank = rank;
	m->n[rank] = 0;
	return (struct drop_ranks){ DROP_RANKS, gather, m };
}

void drop_meeting_free(struct drop_meeting *m)
{
	for (int k = 0; k < DROP_RANKS; k++)
		for (int i = 0; i < 16; i++)
			free(m->sent[k][i].bytes);
}
