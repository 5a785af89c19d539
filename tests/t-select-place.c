/* SPDX-License-Identifier: Apache-2.0 */
/* Selectors that use positions only: tri-shape and random masks. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "kernels/select/density/density.h"
#include "kernels/select/trishape/trishape.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

static void choose(struct batch_case *c, const char *name, const void *param, int layer)
{
	struct ar_err err;

	if (selector_find(name)->ref(&(struct attn_call){ .b = &c->b, .layer = layer, .kv = c->kv },
				     param, &(struct selection){ .mask = c->mask }, &err))
		bail_out("%s", err.msg);
}

/* ---- tri-shape ---- */

/* Blocks a to b are left out, b < a: none. */
static const struct {
	int prompt, ctx, chunk, last_dense, start, recent, a, b;
} vector[] = {
	{ 158, 98, 5, 15, 32, 32, 1, 1 },    { 158, 140, 4, 14, 32, 32, 1, 2 },
	{ 158, 129, 16, 10, 32, 32, 1, 2 },  { 158, 140, 10, 12, 32, 32, 0, -1 },
	{ 158, 124, 4, 10, 32, 32, 1, 1 },   { 158, 110, 34, 14, 32, 32, 1, 1 },
	{ 190, 151, 9, 10, 32, 32, 1, 2 },   { 300, 250, 11, 10, 64, 96, 2, 3 },
	{ 300, 250, 11, 10, 32, 32, 1, 5 },  { 300, 250, 11, 10, 96, 64, 3, 4 },
	{ 158, 45, 40, 113, 32, 32, 0, -1 }, { 131072, 65536, 2048, 100, 128, 1920, 4, 1987 },
};

static bool trishape_is(int i)
{
	const struct trishape p = { vector[i].start, vector[i].recent, vector[i].last_dense, 0 };
	struct rng rng = { (uint64_t)i };
	struct batch_case c;
	bool good = true;

	case_make_bare(&c, &rng, (struct attn_shape){ 2, 1, 16, 32 }, 1, &vector[i].prompt);
	case_cut(&c, &vector[i].ctx, &vector[i].chunk);
	c.mask = malloc(case_mask_words(&c) * sizeof *c.mask);
	memset(c.mask, 0xff, case_mask_words(&c) * sizeof *c.mask);
	choose(&c, "trishape", &p, 0);
	for (int q = 0; q < c.b.rows.n_qblk; q++)
		for (int j = 0; j < c.b.keys.mask_words * 32; j++) {
			bool want = j <= vector[i].ctx / 32 + q &&
				    (j < vector[i].a || j > vector[i].b);

			good &= case_kept(&c, q, 0, j) == want && case_kept(&c, q, 1, j) == want;
		}
	case_release(&c);
	return good;
}

static void test_trishape(void)
{
	struct method *m;
	struct ar_err err;

	for (int i = 0; i < (int)(sizeof vector / sizeof *vector); i++)
		ok(trishape_is(i),
		   "a prompt of %d, %d cached, a chunk of %d, %d dense, %d + %d kept",
		   vector[i].prompt, vector[i].ctx, vector[i].chunk, vector[i].last_dense,
		   vector[i].start, vector[i].recent);
	is_int(method_parse(&m, "trishape:start=200", &err), AR_USAGE,
	       "half a block cannot be kept");
	is_str(err.msg,
	       "method 'trishape:start=200': start=200 and recent=1920: want multiples of "
	       "block=128",
	       "which the message says");
}

/* ---- density ---- */

static const struct attn_shape shape = { 8, 2, 16, 16 };

static void chunk(struct batch_case *c, int ctx, int rows)
{
	struct rng rng = { 7 };

	case_bare_chunks(c, &rng, shape, 1, &ctx, &rows);
	c->mask = malloc(case_mask_words(c) * sizeof *c->mask);
}

static void test_density(void)
{
	struct density p = { .share = 0.3, .seed = 1 };
	struct batch_case c;
	int wrong = 0, each[100] = { 0 }, rows = 0, uneven = 0;
	uint32_t *first;
	size_t bytes;

	chunk(&c, 1600 + 5, 40);
	bytes = case_mask_words(&c) * sizeof *c.mask;
	first = malloc(bytes);
	for (int layer = 0; layer < 200; layer++) {
		choose(&c, "density", &p, layer);
		for (int q = 0; q < c.b.rows.n_qblk; q++)
			for (int h = 0; h < shape.q_heads; h++, rows++) {
				int qa = 100 + q, n = 0;

				for (int j = 0; j < c.b.keys.mask_words * 32; j++)
					n += case_kept(&c, q, h, j);
				for (int j = 0; j < 100; j++)
					each[j] += case_kept(&c, q, h, j);
				wrong += n != (int)(0.3 * qa + 0.5) + 1 || !case_kept(&c, q, h, qa);
			}
		if (!layer)
			memcpy(first, c.mask, bytes);
	}
	is_int(wrong, 0, "each row keeps its share of the blocks before its own, and its own");
	/* Of 3200 rows or more, a share of 0.3 is 960 with a deviation of 26. */
	for (int j = 0; j < 100; j++)
		uneven += abs(each[j] - 3 * rows / 10) > rows / 20;
	is_int(uneven, 0, "every block as often as any other");
	ok(memcmp(first, c.mask, bytes), "layers differ");
	choose(&c, "density", &p, 0);
	ok(!memcmp(first, c.mask, bytes), "the same again is the same");
	p.seed = 2;
	choose(&c, "density", &p, 0);
	ok(memcmp(first, c.mask, bytes), "seeds differ");
	p.share = 1;
	choose(&c, "density", &p, 0);
	for (int j = 0; j < 101; j++)
		wrong += !case_kept(&c, 0, 0, j);
	is_int(wrong, 0, "density 1 is everything");
	free(first);
	case_release(&c);
}

static void test_group(void)
{
	const struct density p = { .share = 0.25, .seed = 3, .per = DENSITY_PER_GROUP };
	struct batch_case c;
	int wrong = 0, n = 0, differ = 0;

	chunk(&c, 1605, 40);
	choose(&c, "density", &p, 5);
	for (int q = 0; q < c.b.rows.n_qblk; q++)
		for (int h = 0; h < shape.q_heads; h++)
			for (int j = 0; j < c.b.keys.mask_words * 32; j++)
				wrong += case_kept(&c, q, h, j) !=
					 (j < 100 ? case_kept(&c, 0, h / 4 * 4, j) : j <= 100 + q);
	for (int j = 0; j < 100; j++) {
		n += case_kept(&c, 0, 0, j);
		differ += case_kept(&c, 0, 0, j) != case_kept(&c, 0, 4, j);
	}
	is_int(wrong, 0, "the rows of a KV head agree before the chunk, which is open");
	is_int(n, 25, "a quarter of the blocks before it are kept");
	ok(differ, "KV heads differ");
	case_release(&c);
}

int main(void)
{
	plan(0);
	test_trishape();
	test_density();
	test_group();
	return done_testing();
}
