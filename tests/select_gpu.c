/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/select_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"

#if HAVE_CUDA
struct attn_limits select_limits(const struct attn_batch *b)
{
	return (struct attn_limits){ .max_req = b->rows.n_req,
				     .max_row = b->rows.n_row,
				     .max_kv_blk = b->keys.max_kv_blk,
				     .n_sm = b->n_sm,
				     .max_page = b->keys.n_page };
}

void select_load(struct select_pair *p)
{
	const struct selector *s = p->selector;
	size_t page = s->state_bytes ? s->state_bytes(p->self, &p->c.b.shape) : 0;

	if (p->c.kv.k)
		p->kv = gpu_kv(&p->c.kv, p->c.kv_len);
	p->state_bytes = (size_t)p->c.n_page * page;
	p->state_ref = malloc(p->state_bytes + 1);
	memset(p->state_ref, 0xff, p->state_bytes);
	p->state = gpu_new(p->state_bytes, 0xff);
}

void select_ref(struct select_pair *p, const struct selection *out)
{
	struct ar_err err;

	if (!p->state)
		select_load(p);
	gpu_must(p->selector->ref(&(struct attn_call){ .b = &p->c.b,
						       .layer = p->layer,
						       .q = p->c.q,
						       .kv = p->c.kv,
						       .state = p->state_ref },
				  p->self, out, &err),
		 &err);
}

void select_device(struct select_pair *p, const struct selection *out)
{
	const struct attn_limits limits = select_limits(&p->c.b);
	const struct selector *s = p->selector;
	selector_fn *enqueue = p->enqueue ? p->enqueue : s->enqueue;
	struct ar_err err;

	if (!p->state)
		select_load(p);
	p->b = gpu_batch(&p->c.b);
	p->q = p->c.q ? gpu_copy(p->c.q, p->c.q_len * sizeof *p->q) : NULL;
	p->work = gpu_new(s->work_bytes ? s->work_bytes(p->self, &p->b.shape, &limits) : 0, 0xff);
	gpu_must(enqueue(&(struct attn_call){ .b = &p->b,
					      .layer = p->layer,
					      .q = p->q,
					      .kv = p->kv,
					      .state = p->state,
					      .work = p->work },
			 p->self, out, &err),
		 &err);
}

const uint32_t *select_masks(struct select_pair *p)
{
	size_t bytes = case_mask_words(&p->c) * sizeof *p->mask;

	p->mask = gpu_new(bytes, 0xa5);
	select_device(p, &(struct selection){ .mask = p->mask });
	free(p->got);
	p->got = malloc(bytes + 1);
	gpu_read(p->got, p->mask, bytes);
	return p->got;
}

const uint32_t *select_both(struct select_pair *p)
{
	select_ref(p, &(struct selection){ .mask = p->c.mask });
	return select_masks(p);
}

void select_release(struct select_pair *p)
{
	gpu_free_all();
	case_release(&p->c);
	free(p->state_ref);
	free(p->got);
}

bool select_agrees(const struct select_pair *p, select_faults_fn *faults)
{
	const struct batch_case *c = &p->c;
	size_t words = (size_t)c->b.keys.mask_words;
	int n = 0;

	for (int r = 0; r < c->b.rows.n_req; r++)
		for (int i = c->qblk0[r]; i < c->qblk0[r + 1]; i++)
			for (int h = 0; h < c->b.shape.q_heads; h++) {
				size_t at = (size_t)(i * c->b.shape.q_heads + h) * words;

				if (memcmp(p->got + at, c->mask + at, words * sizeof *p->got))
					n += faults(p, r, i - c->qblk0[r], h, p->got + at,
						    c->mask + at);
			}
	if (n)
		diag("%d unexplained bits", n);
	return !n;
}

int select_draw(struct rng *rng, int lo, int hi)
{
	return lo + (int)rng_below(rng, (uint64_t)(hi - lo + 1));
}

void select_shapes(const struct select_shape *shape, int n_shape, int most_ctx, select_case_fn *run,
		   void (*report)(const char *of))
{
	int n = ((int)gpu_test_number("ATTNREPLAY_TEST_CASES", 24) + n_shape - 1) / n_shape;

	for (int i = 0; i < n_shape; i++) {
		for (int k = 0; k < n; k++) {
			struct rng rng = { (uint64_t)(i * 1000 + k) };
			int ctx[3], rows[3], n_req = select_draw(&rng, 1, 3);

			for (int r = 0; r < n_req; r++) {
				ctx[r] = select_draw(&rng, 0, k % 4 ? 1500 : most_ctx);
				rows[r] = select_draw(&rng, k % 8 ? 1 : 0, 400);
			}
			run(shape[i].s, (uint64_t)(i * 77 + k), n_req, ctx, rows);
		}
		report(shape[i].of);
	}
}
#endif
