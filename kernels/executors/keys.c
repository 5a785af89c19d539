#include "config.h"
#include "kernels/executors/keys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum ar_status keys_init(struct keys *k, const struct attn_batch *b, struct ar_err *err)
{
	size_t n = ((size_t)b->max_kv_blk + 1) * (size_t)b->shape.page_tok;

	k->n = 0;
	k->pos = malloc(n * sizeof *k->pos);
	k->score = malloc((n + (size_t)b->shape.head_dim) * sizeof *k->score);
	k->sum = k->score ? k->score + n : NULL;
	return k->pos && k->score ? AR_OK : ar_nomem(err);
}

void keys_release(struct keys *k)
{
	free(k->pos);
	free(k->score);
}

/* Element of k and v where the key at pos begins. */
static size_t key_at(const struct attn_batch *b, int req, int head, int pos)
{
	const struct attn_shape *s = &b->shape;
	size_t page = (size_t)b->page[b->page0[req] + pos / s->page_tok];
	size_t kv_head = (size_t)(head / (s->q_heads / s->kv_heads));

	return ((page * (size_t)s->kv_heads + kv_head) * (size_t)s->page_tok +
		(size_t)(pos % s->page_tok)) * (size_t)s->head_dim;
}

void keys_attend(struct keys *k, const struct attn_batch *b, int req, int row, int head,
		 const bf16_t *q, const struct kv_cache *kv, bf16_t *out, float *lse)
{
	int dim = b->shape.head_dim, last = b->ctx[req] + row;
	size_t at = (size_t)(b->row0[req] + row) * (size_t)b->shape.q_heads + (size_t)head;
	float scale = 1 / sqrtf((float)dim), max = -INFINITY, sum = 0;

	for (int i = 0; i < k->n; i++) {
		k->score[i] = -INFINITY;
		if (k->pos[i] <= last)
			k->score[i] = scale * bf16_dot(q + at * (size_t)dim,
						  kv->k + key_at(b, req, head, k->pos[i]), dim);
		max = fmaxf(max, k->score[i]);
	}
	memset(k->sum, 0, (size_t)dim * sizeof *k->sum);
	for (int i = 0; i < k->n; i++) {
		const bf16_t *v;
		float p;

		if (k->pos[i] > last)
			continue;
		p = expf(k->score[i] - max);
		v = kv->v + key_at(b, req, head, k->pos[i]);
		sum += p;
		for (int d = 0; d < dim; d++)
			k->sum[d] += p * bf16_to_f32(v[d]);
	}
	for (int d = 0; d < dim; d++)
		out[at * (size_t)dim + (size_t)d] = sum > 0 ? bf16_from_f32(k->sum[d] / sum) : 0;
	if (lse)
		lse[at] = sum > 0 ? max + logf(sum) : -INFINITY;
}
