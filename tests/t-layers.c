/* SPDX-License-Identifier: Apache-2.0 */
/* What layers of a model run and share: methods, cache groups, activations. */
#include "config.h"
#include "replay/engine/attn_engine.h"

#include <string.h>

#include "tests/alloc_fault.h"
#include "tests/tap.h"

enum { LAYERS = 4 };

static struct layer_spec layer[LAYERS];
static const struct model model = { .name = "m", .n_layers = LAYERS, .layer = layer, .tp = 1 };

static void reset_layers(void)
{
	for (int i = 0; i < LAYERS; i++)
		layer[i] = (struct layer_spec){
			.mixer = MIX_FULL, .q_heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 16
		};
}

static struct method *parse(const char *text)
{
	struct method *m;
	struct ar_err err;

	if (method_parse(&m, text, &err))
		bail_out("%s", err.msg);
	return m;
}

static void open_methods(const struct layer_plan *p)
{
	static const float inv[4] = { 1, 0.1f, 0.01f, 0.001f };
	struct ar_err err;

	if (plan_open(p, &model, &(struct selector_env){ .rope_inv = inv }, &err))
		bail_out("%s", err.msg);
}

static void test_plan(void)
{
	struct method *a = parse("dense"), *b = parse("ashape:block=64");
	struct layer_plan p;
	struct attn_shape s;
	struct ar_err err;

	is_int(plan_init(&p, LAYERS, a, &err), AR_OK, "a plan");
	ok(p.n_layers == LAYERS && plan_method(&p, 0) == a && plan_method(&p, 3) == a,
	   "has one method in all layers");
	ok(plan_first(&p, 0) && !plan_first(&p, 1) && !plan_first(&p, 3), "which comes once");
	p.method[2] = b;
	ok(plan_first(&p, 2) && !plan_first(&p, 3), "as does another one");
	ok(plan_open(&p, &model, &(struct selector_env){ .rope_inv = NULL }, &err) == AR_USAGE &&
		   !strcmp(err.msg,
			   "method 'ashape:block=64': blocks of 64 tokens on pages of 128; a block "
			   "must be one page"),
	   "a block that is no page is refused");
	p.page_tok = 64;
	s = plan_shape(&p, &model, 2);
	ok(s.q_heads == 4 && s.kv_heads == 2 && s.head_dim == 8 && s.page_tok == 64,
	   "a layer has its own heads and the pages of the run");
	open_methods(&p);
	plan_release(&p);
	ok(!p.method && !p.n_layers, "a released plan has none");
	method_free(a);
	method_free(b);
}

/* ---- groups ---- */

static void test_one_group(void)
{
	struct method *m = parse("compact-fp");
	struct layer_plan p;
	struct cache_groups g;
	struct ar_err err;
	const struct cache_group *x;
	int some[] = { 1, 3 };

	if (plan_init(&p, LAYERS, m, &err))
		bail_out("%s", err.msg);
	open_methods(&p);
	is_int(groups_init(&g, &model, &p, 3, 100, &err), AR_OK, "groups of layers that are alike");
	x = groups_of(&g, 0);
	ok(g.n == 1 && groups_of(&g, 3) == x, "are one");
	ok(x->mixer == MIX_FULL && x->shape.page_tok == 128 && !x->pages &&
		   x->kv_bytes == 2 * 128 * 8 * sizeof(bf16_t) &&
		   x->state_bytes == method_state_bytes(m, &x->shape),
	   "with the sizes of a page");
	ok(groups_bytes(&g, some, 2, 5) == 5 * 2 * (double)(2 * x->kv_bytes + x->state_bytes) &&
		   groups_bytes(&g, NULL, LAYERS, 5) == 2 * groups_bytes(&g, some, 2, 5),
	   "a page takes as much in every layer");
	is_int(groups_open_pages(&g, 16, 16, 2, &err), AR_OK, "it gets pages");
	ok(x->n_page == pages_needed(16, 16, 3, 128) && pages_free(x->pages) == x->n_page,
	   "as many as the pool needs");
	groups_release(&g);
	ok(!g.n && !g.group && !g.of, "released groups are none");
	is_int(groups_init(&g, &model, &p, 0, 100, &err), AR_OK, "groups again");
	is_int(groups_open_pages(&g, 0, 16, 2, &err), AR_USAGE, "a pool of nothing is refused");
	groups_release(&g);
	plan_release(&p);
	method_free(m);
}

/* Layer 1 has other heads, layer 2 a state beside its pages. */
static void test_groups(void)
{
	struct batch_entry e = { .req = 1, .start = 60, .n_tok = 10 }, piece;
	struct method *a = parse("dense"), *b = parse("compact-fp");
	struct layer_plan p;
	struct cache_groups g;
	struct ar_err err;

	if (plan_init(&p, LAYERS, a, &err))
		bail_out("%s", err.msg);
	p.method[2] = b;
	layer[1].kv_heads = 4;
	open_methods(&p);
	is_int(groups_init(&g, &model, &p, 3, 100, &err), AR_OK, "groups of layers that differ");
	ok(g.n == 3 && groups_of(&g, 0) == groups_of(&g, 3) &&
		   groups_of(&g, 1)->shape.kv_heads == 4 && groups_of(&g, 2)->state_bytes,
	   "are as many as there are kinds");
	if (groups_open_pages(&g, 64, 16, 2, &err))
		bail_out("%s", err.msg);
	is_int(groups_grow(&g, &e, &err), AR_OK, "an entry");
	ok(pages_len(groups_of(&g, 0)->pages, 1) == 70 &&
		   pages_len(groups_of(&g, 1)->pages, 1) == 70 &&
		   pages_len(groups_of(&g, 2)->pages, 1) == 70 && groups_hold(&g, &e),
	   "has room in each");
	pages_drop(groups_of(&g, 2)->pages, 1);
	ok(!groups_hold(&g, &e) && groups_missing(&g, &e, 50, &piece) && piece.start == 0 &&
		   piece.n_tok == 50,
	   "what one of them misses is missing");
	groups_drop(&g, 1);
	ok(!pages_len(groups_of(&g, 0)->pages, 1) && !pages_len(groups_of(&g, 1)->pages, 1),
	   "all forget a request");
	groups_release(&g);
	plan_release(&p);
	reset_layers();
	method_free(a);
	method_free(b);
}

/* Layers 0 and 3 are full, 1 sees 100 keys, 2 is linear.  At most 3 requests run, in entries of at most
 * 300 tokens. */
static void test_mixers(void)
{
	struct batch_entry e = { .req = 1, .n_tok = 300 }, piece;
	struct method *a = parse("dense");
	struct layer_plan p;
	struct cache_groups g;
	const struct cache_group *full, *window, *linear;
	struct ar_err err;
	int run[] = { 0, 1, 2, 3 };
	char text[96];
	bool held = true;

	layer[1].mixer = MIX_WINDOW;
	layer[1].window = 100;
	layer[2] = (struct layer_spec){ .mixer = MIX_LINEAR, .delta = { 2, 4, 8, 16, 4 } };
	if (plan_init(&p, LAYERS, a, &err))
		bail_out("%s", err.msg);
	p.method[2] = NULL;
	open_methods(&p);
	ok(!plan_first(&p, 2), "a layer without attention has no method");
	if (groups_init(&g, &model, &p, 3, 300, &err) || groups_open_pages(&g, 1600, 16, 2, &err))
		bail_out("%s", err.msg);
	full = groups_of(&g, 0);
	window = groups_of(&g, 1);
	linear = groups_of(&g, 2);
	ok(g.n == 3 && groups_of(&g, 3) == full, "layers of one mixer are a group");
	/* 399 tokens end in the fifth page after the one that they begin in */
	ok(full->n_page == 203 && window->n_page == 3 * 5 && window->kv_bytes == full->kv_bytes,
	   "a window needs few pages");
	is_int((long long)linear->state_bytes, 4 * 8 * 16 * 4 + (2 * 2 * 8 + 4 * 16) * 3 * 2,
	       "a linear layer its matrices and the last inputs of the convolution");
	ok(!linear->kv_bytes && linear->n_page == 3, "for each request");
	ok(groups_bytes(&g, NULL, LAYERS, 203) == 2 * 203.0 * 2 * (double)full->kv_bytes +
							  15.0 * 2 * (double)full->kv_bytes +
							  3.0 * (double)linear->state_bytes,
	   "all have their bytes");
	is_str(groups_describe(&g, g.of[1], run, 4, text, sizeof text),
	       "1 window layer of 100 tokens, 0.00 GiB", "a group is described");
	is_str(groups_describe(&g, g.of[0], run, 4, text, sizeof text), "2 full layers, 0.00 GiB",
	       "... with the number of its layers");
	is_str(groups_describe(&g, g.of[2], run, 2, text, sizeof text), "",
	       "... but not if none is executed");
	for (e.start = 0; e.start < 6000; e.start += 300)
		for (int rep = 0; rep < 2 && held; rep++)
			held = !groups_missing(&g, &e, 300, &piece) && !groups_grow(&g, &e, &err);
	ok(held && pages_len(full->pages, 1) == 6000 && pages_len(window->pages, 1) == 6000,
	   "a window's few pages last for any prompt");
	ok(pages_free(window->pages) == 15 - 4 && pages_free(full->pages) == 203 - 47 &&
		   pages_free(linear->pages) == 2,
	   "what it does not see is free");
	e = (struct batch_entry){ .req = 0, .start = 500, .n_tok = 1, .decode = true };
	ok(groups_missing(&g, &e, 300, &piece) && piece.start == 0 && piece.n_tok == 300,
	   "a state is not missing on its own");
	groups_drop(&g, 1);
	ok(pages_free(window->pages) == 15 && pages_free(linear->pages) == 3,
	   "all of it goes with the request");
	groups_release(&g);
	plan_release(&p);
	reset_layers();
	method_free(a);
}

/* A selector with state and a window: tokens that decodes wrote are shown to the selector, but not
 * together with those that no page holds. */
static void test_pieces(void)
{
	struct batch_entry e = { .req = 0, .n_tok = 50 }, decode = { .start = 50, .n_tok = 1 },
			   piece;
	struct method *a = parse("compact-fp");
	struct layer_plan p;
	struct cache_groups g;
	struct ar_err err;

	if (plan_init(&p, LAYERS, a, &err))
		bail_out("%s", err.msg);
	open_methods(&p);
	if (groups_init(&g, &model, &p, 3, 300, &err) || groups_open_pages(&g, 100, 16, 1, &err))
		bail_out("%s", err.msg);
	decode.decode = true;
	if (groups_grow(&g, &e, &err) || groups_grow(&g, &decode, &err))
		bail_out("%s", err.msg);
	e = (struct batch_entry){ .start = 80, .n_tok = 20 };
	ok(groups_missing(&g, &e, 300, &piece) && piece.start == 50 && piece.n_tok == 1 &&
		   groups_hold(&g, &piece),
	   "a piece is held by all pages");
	if (groups_grow(&g, &piece, &err))
		bail_out("%s", err.msg);
	ok(groups_missing(&g, &e, 300, &piece) && piece.start == 51 && piece.n_tok == 29 &&
		   !groups_hold(&g, &piece),
	   "or by none");
	groups_release(&g);
	plan_release(&p);
	method_free(a);
}

static enum ar_status life(struct method *m)
{
	struct layer_plan p = { 0 };
	struct cache_groups g = { 0 };
	struct ar_err err;
	enum ar_status st = plan_init(&p, LAYERS, m, &err);

	if (!st)
		st = groups_init(&g, &model, &p, 3, 100, &err);
	if (!st)
		st = groups_open_pages(&g, 16, 16, 2, &err);
	groups_release(&g);
	plan_release(&p);
	return st;
}

static void test_faults(void)
{
	struct method *m = parse("dense");
	bool clean = true;
	long k;

	for (k = 0;; k++) {
		enum ar_status st;

		fault_arm(k);
		st = life(m);
		if (!fault_disarm()) {
			clean &= st == AR_OK;
			break;
		}
		clean &= st == AR_NOMEM;
	}
	ok(clean && k >= 6, "each of %ld allocations may fail", k);
	method_free(m);
}

/* ---- activations ---- */

static void test_activations(void)
{
	for (int i = 0; activations[i]; i++) {
		const struct activations *a = activations[i];

		ok(a->name && a->open && a->rope && a->n_tok && a->begin && a->load_ref &&
			   a->qkv_ref && a->close,
		   "%s has all that a backend calls", a->name);
		ok(!HAVE_CUDA == !a->load && !HAVE_CUDA == !a->qkv,
		   "and on a device in builds with CUDA");
		a->close(NULL);
	}
}

int main(void)
{
	plan(0);
	reset_layers();
	test_plan();
	test_one_group();
	test_groups();
	test_mixers();
	test_pieces();
	test_faults();
	test_activations();
	return done_testing();
}
