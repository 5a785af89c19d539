/* SPDX-License-Identifier: Apache-2.0 */
/* The table of shapes: each shape has memory on the host, a place on the device, lists that can be
 * read, and counts. */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/shapes.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

static void few(const void *self, const struct attn_shape *s, int *max_run, int *max_col)
{
	(void)self, (void)s;
	*max_run = 3;
	*max_col = 1 << 20;
}

static struct piece_form four(const void *self, const struct attn_shape *s, int len)
{
	(void)self, (void)s, (void)len;
	return (struct piece_form){ .tok = 4, .heads = 2, .most = 3, .mask = true };
}

/* A selector that gives the row's shape, under a union where the row is a table; one of pieces is
 * its own pruner too. */
static struct method_part method_of(const struct selection_shape *row, struct selector *s)
{
	static struct method_part prune;

	*s = (struct selector){ .name = "any",
				.scores = true,
				.columns = few,
				.pieces = four,
				.gives = row->bit & (SHAPE_MASK | SHAPE_TABLE) ? 0 : row->bit };
	prune.selector = s;
	return (struct method_part){ .selector = s,
				     .prune = row->bit == SHAPE_PIECES ? &prune : NULL,
				     .dense = row->bit == SHAPE_ALL,
				     .u = row->bit == SHAPE_TABLE ? UNION_GROUP : UNION_NONE };
}

static bool holds_all(const struct method_selection *x, const struct selection_shape *row)
{
	for (const struct shape_array *a = row->array; a->bytes; a++)
		if (!shape_array(x, a))
			return false;
	return true;
}

/* Arrays in their order, each on a boundary, none over the next one or past the end. */
static bool lies_well(const struct shape_extent *e)
{
	size_t n = shape_bytes(e), at = 0;
	char *mem = aligned_alloc(256, n + 256);
	struct method_selection x;
	bool good = mem;

	shape_lay(&x, e, mem);
	for (const struct shape_array *a = e->row->array; good && a->bytes; a++) {
		size_t place = (size_t)((char *)shape_array(&x, a) - mem);

		good = place == at && place % 256 == 0;
		at += shape_room(a, e);
	}
	free(mem);
	return good && at == n;
}

/* Entries of all lists of request 0. */
static int n_entries(const struct selection_shape *row, const struct method_selection *x,
		     const struct attn_batch *b)
{
	int past = b->rows.pos0[0] / b->shape.page_tok, n = 0;

	for (const struct shape_list *l = row->list; l->name; l++)
		for (int h = 0; h < b->shape.q_heads; h++)
			for (int i = 0; i < b->rows.qblk0[1]; i++) {
				struct shape_place at = { &b->shape, past, b->keys.page0[1], h, i };

				for (int k = 0; l->next(x, &at, &k) >= 0;)
					n++;
			}
	return n;
}

static void test_failures(const struct selection_shape *row, const struct method_part *m,
			  const struct attn_batch *b)
{
	int n = 0, bad = 0;
	bool fault;

	do {
		struct method_selection x = { .scored = true };
		struct ar_err err;
		enum ar_status st;

		fault_arm(n);
		st = method_selection_init(&x, m, b, &err);
		fault = fault_disarm();
		n += fault;
		bad += fault != (st != AR_OK);
		method_selection_release(&x);
		bad += x.chosen.score || x.chosen.mask || x.lists.blocks.n;
	} while (fault);
	ok(!bad && n, "%s: each of %d allocations may fail", row->title, n);
}

static void test_row(const struct selection_shape *row, struct batch_case *c)
{
	struct selector s;
	struct method_part m = method_of(row, &s);
	struct method_selection x = { .scored = row->bit != SHAPE_ALL };
	struct selection_count count[2];
	const struct attn_batch *b = &c->b;
	const struct attn_limits most = { b->rows.n_req, b->rows.n_row, b->keys.max_kv_blk, 0,
					  b->keys.n_page };
	struct shape_extent e = shape_extent(&m, b), limit = shape_most(&m, &b->shape, &most);
	struct ar_err err;
	enum ar_status st = method_selection_init(&x, &m, b, &err);

	is_int((long long)method_shape(&m), (long long)row->bit, "%s: a selector gives it",
	       row->title);
	ok(!st && holds_all(&x, row), "%s: every array has memory", row->title);
	ok(lies_well(&e), "%s: the arrays lie one after the other", row->title);
	ok(shape_bytes(&limit) >= shape_bytes(&e), "%s: the limits hold the batch", row->title);
	is_int(n_entries(row, &x, b), row->bit == SHAPE_ALL ? 4 * (3 + 4) : 0,
	       "%s: what is not selected is not listed", row->title);
	ok(!method_count(&m, b, &x.chosen, x.table, count, &err) &&
		   (count[0].exec_sel == count[0].exec_total) == (row->bit == SHAPE_ALL),
	   "%s: it is counted", row->title);
	method_selection_release(&x);
	ok(!holds_all(&x, row) == !!row->array->bytes, "%s: nothing is left", row->title);
	test_failures(row, &m, b);
}

int main(void)
{
	struct rng rng = { 7 };
	struct batch_case c;

	plan(0);
	case_bare_chunks(&c, &rng, (struct attn_shape){ 4, 2, 16, 8 }, 2, (int[]){ 20, 3 },
			 (int[]){ 12, 9 });
	for (const struct selection_shape *row = selection_shapes; row->bit; row++)
		test_row(row, &c);
	case_release(&c);
	return done_testing();
}
