/* SPDX-License-Identifier: Apache-2.0 */
/* The methods that layers of a model run, and the cache groups and activations that they share. */
#include "config.h"
#include "replay/engine/attn_engine.h"

#include <string.h>

#include "tests/alloc_fault.h"
#include "tests/tap.h"

enum { LAYERS = 4 };

static struct layer_spec layer[LAYERS];
static const struct model model = {
	.name = "m", .n_layers = LAYERS, .layer = layer, .tp = 1, .hidden = 96
};

static void reset_layers(void)
{
	for (int i = 0; i < LAYERS; i++)
		layer[i] = (struct layer_spec){
			.mixer = MIX_FULL, .q_heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 16
		};
}

static struct plan *parse(const char *text)
{
	struct plan *p;
	struct ar_err err;

	if (plan_parse(&p, text, &err))
		bail_out("%s", err.msg);
	return p;
}

/* The plan on the layers of the model.  The caller frees *p after it. */
static struct layer_plan apply(const char *text, struct plan **p)
{
	struct layer_plan l;
	struct ar_err err;

	*p = parse(text);
	if (plan_init(&l, *p, &model, &err))
		bail_out("%s", err.msg);
	return l;
}

static void open_methods(const struct layer_plan *p)
{
	static const float inv[4] = { 1, 0.1f, 0.01f, 0.001f };
	struct ar_err err;

	if (plan_open(p, &model, &(struct selector_env){ .rope_inv = inv }, &err))
		bail_out("%s", err.msg);
}

static void test_one_method(void)
{
	struct plan *p;
	struct layer_plan l = apply("compact-fp", &p);

	ok(l.n_layers == LAYERS && plan_method(&l, 0) == plan_single(p) &&
		   plan_method(&l, 3) == plan_single(p) && l.page_tok == 128,
	   "one method runs in all layers");
	ok(plan_first(&l, 0) && !plan_first(&l, 1) && !plan_first(&l, 3), "... it comes once");
	plan_release(&l);
	ok(!l.method && !l.n_layers, "a released plan has none");
	plan_free(p);
}

static void test_two_methods(void)
{
	struct plan *p;
	struct layer_plan l = apply("2-3:ashape:block=64;0-1:dense", &p);
	struct attn_shape s = plan_shape(&l, &model, 2);

	ok(plan_method(&l, 0)->dense && plan_method(&l, 1) == plan_method(&l, 0) &&
		   !plan_method(&l, 2)->dense && plan_method(&l, 3) == plan_method(&l, 2),
	   "layers run the methods of their ranges");
	ok(plan_first(&l, 0) && plan_first(&l, 2) && !plan_first(&l, 1) && !plan_first(&l, 3),
	   "... each comes once");
	ok(s.q_heads == 4 && s.kv_heads == 2 && s.head_dim == 8 && s.page_tok == 64,
	   "a layer has its own heads, and pages as the sparse method takes them");
	open_methods(&l);
	plan_release(&l);
	plan_free(p);
}

/* The first layers of a range or of the model have dense decodes. */
static void test_dense_layers(void)
{
	static const char text[] = "compact-fp/decode=streaming,sink=8,dense-layers=2";
	struct plan *p;
	struct layer_plan l = apply(text, &p);

	for (int i = 0; i < LAYERS; i++) {
		const struct method_part *part = plan_method(&l, i)->part;

		ok(part[ROW_DECODE].dense == (i < 2) &&
			   !strcmp(part[ROW_PREFILL].selector->name, "flashprefill"),
		   "dense-layers=2: layer %d has %s decodes, and the chunks of the others", i,
		   i < 2 ? "dense" : "sparse");
	}
	ok(plan_first(&l, 0) && !plan_first(&l, 1) && plan_first(&l, 2), "... as two methods");
	open_methods(&l);
	plan_release(&l);
	plan_free(p);
}

/* Which layers take the lists of which. */
static void test_sources(void)
{
	static const struct {
		const char *text;
		int source[LAYERS]; /* -1: none */
	} cases[] = {
		{ "dense/decode=oracle", { -1, -1, -1, -1 } },
		{ "dense/decode=oracle,reuse=2", { -1, 0, -1, 2 } },
		{ "dense/decode=oracle,reuse=9", { -1, 0, 0, 0 } },
		{ "dense/decode=oracle,reuse=2,dense-layers=1", { -1, -1, 1, -1 } },
		{ "dense/decode=oracle,reselect=0+3", { -1, 0, 0, -1 } },
		{ "tidal", { -1, -1, -1, 2 } },
		/* of another method between them, layers take none; each method counts its own */
		{ "0:dense/decode=oracle,reuse=3;1:dense;2-:dense/decode=oracle,reuse=3",
		  { -1, -1, 0, 0 } },
		{ "0-1:dense/decode=oracle,reuse=2;2-:dense/decode=quest,dense-layers=0,reuse=2",
		  { -1, 0, -1, 2 } },
	};

	for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
		struct plan *p;
		struct layer_plan l = apply(cases[k].text, &p);
		int same = 0;

		for (int i = 0; i < LAYERS; i++)
			same += plan_source(&l, i) == cases[k].source[i];
		is_int(same, LAYERS, "%s: layers take lists of the right ones", cases[k].text);
		open_methods(&l);
		plan_release(&l);
		plan_free(p);
	}
}

/* Layers 1 and 3 have no full attention. */
static void test_mixers(void)
{
	struct plan *p;
	struct layer_plan l;

	layer[1].mixer = MIX_WINDOW;
	layer[3].mixer = MIX_LINEAR;
	l = apply("0:compact-fp;2:flashprefill;3:flexprefill", &p);
	ok(!plan_method(&l, 0)->dense && !plan_method(&l, 2)->dense,
	   "layers with full attention need a method");
	ok(!plan_method(&l, 1) && !plan_method(&l, 3) && !plan_first(&l, 1),
	   "... other layers none, and one that is given is not used there");
	open_methods(&l);
	plan_release(&l);
	plan_free(p);
	reset_layers();
}

static void test_misfits(void)
{
	static const struct {
		const char *text, *msg;
	} cases[] = {
		{ "0-1:dense;3:compact-fp", "no method for layer 2 of model m; add one, such as "
					    "2:dense" },
		{ "1-:dense", "no method for layer 0 of model m; add one, such as 0:dense" },
		{ "0-4:dense", "layers 0-4, but model m has the layers 0 to 3; name those" },
		{ "dense/decode=oracle,reselect=1+3",
		  "layer 0 takes lists, but no layer before it chooses: add 0 to reselect, or "
		  "dense-layers=1" },
		{ "dense/decode=oracle,reuse=2+uniprefill:layers=0",
		  "dropper 'uniprefill' leaves other tokens in each layer, so no layer can take "
		  "the lists of another: leave out reuse and reselect, or the dropper" },
		{ "dense/decode=oracle,reuse=4",
		  "layer 3 has other heads than layer 0, whose lists it takes: add 3 to reselect" },
		{ "0-3:dense;4-:compact-fp", "layers 4-, but model m has the layers 0 to 3; name "
					     "those" },
	};

	layer[3].kv_heads = 4;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct plan *p = parse(cases[i].text);
		struct ar_err err = { 0 };
		struct layer_plan l;
		char want[256];

		snprintf(want, sizeof want, "method '%s': %s", cases[i].text, cases[i].msg);
		is_str(plan_init(&l, p, &model, &err) == AR_USAGE ? err.msg : "accepted", want,
		       "'%s' does not fit the model", cases[i].text);
		plan_release(&l);
		plan_free(p);
	}
	reset_layers();
}

/* All layers share pages of one size. */
static void test_page_sizes(void)
{
	static const struct {
		const char *text, *msg;
		int page_tok; /* 0: as the plan takes it */
	} cases[] = {
		{ "ashape:block=64",
		  "method 'ashape:block=64': blocks of 64 tokens on pages of 128; a block must be "
		  "one page",
		  128 },
		{ "0:dense;1:compact-fp;2-:ashape:block=64",
		  "method 'ashape:block=64' has blocks of 64 tokens and method 'compact-fp' has "
		  "blocks of 128, but all layers share one page size; give the former block=128",
		  0 },
		{ "0:ashape:block=64;1-:compact-fp",
		  "method 'compact-fp' has blocks of 128 tokens and method 'ashape:block=64' has "
		  "blocks of 64, but all layers share one page size; give the latter block=128",
		  0 },
		{ "0:seer:gate=mean;1-:compact-fp",
		  "method 'compact-fp' has blocks of 128 tokens and method 'seer:gate=mean' has "
		  "blocks of 64, but all layers share one page size; take methods with blocks of "
		  "one size",
		  0 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ar_err err = { 0 };
		struct plan *p;
		struct layer_plan l = apply(cases[i].text, &p);

		if (cases[i].page_tok)
			l.page_tok = cases[i].page_tok;
		is_str(plan_open(&l, &model, &(struct selector_env){ .rope_inv = NULL }, &err) ==
				       AR_USAGE ?
			       err.msg :
			       "accepted",
		       cases[i].msg, "'%s' is refused", cases[i].text);
		plan_release(&l);
		plan_free(p);
	}
}

/* Lists of decodes take pages of any size: they do not choose it. */
static void test_decode_pages(void)
{
	struct plan *p;
	struct layer_plan l = apply("0:dense/decode=streaming;1-:ashape:block=64", &p);

	is_int(l.page_tok, 64, "the pages are those of the first sparse prefill");
	open_methods(&l);
	plan_release(&l);
	plan_free(p);
	l = apply("dense/decode=streaming", &p);
	is_int(l.page_tok, 128, "... without one as for dense attention");
	l.page_tok = 64;
	open_methods(&l);
	plan_release(&l);
	plan_free(p);
}

/* ---- groups ---- */

static struct blocks tables;

/* Empty the tables of request q. */
static void drop(uint32_t q)
{
	blocks_end(&tables);
	blocks_leave(&tables, q);
	blocks_begin(&tables);
}

static void test_one_group(void)
{
	struct plan *own;
	struct layer_plan p = apply("compact-fp", &own);
	struct cache_groups g;
	struct ar_err err;
	const struct cache_group *x;
	int some[] = { 1, 3 };

	open_methods(&p);
	is_int(groups_init(&g, &model, &p, 3, 100, &err), AR_OK, "groups of layers that are alike");
	x = groups_of(&g, 0);
	ok(g.n == 1 && groups_of(&g, 3) == x, "are one");
	ok(x->mixer == MIX_FULL && x->shape.page_tok == 128 && !x->n_page &&
		   x->kv_bytes == 2 * 2 * 128 * 8 * sizeof(bf16_t) &&
		   x->state_bytes ==
			   method_state_bytes(method_prefill(plan_single(own)), &x->shape),
	   "with the sizes of a page");
	ok(groups_bytes(&g, some, 2, 5) == 5 * 2 * (double)(x->kv_bytes + x->state_bytes) &&
		   groups_bytes(&g, NULL, LAYERS, 5) == 2 * groups_bytes(&g, some, 2, 5),
	   "a page takes as much in every layer");
	is_int(groups_open_blocks(&g, &tables, 16, 16, 2, &err), AR_OK, "it gets pages");
	ok(x->n_page == blocks_pages(16, 16, 3, 128) && blocks_free(&tables, 0) == x->n_page,
	   "as many as the pool needs");
	groups_release(&g);
	blocks_release(&tables);
	ok(!g.n && !g.group && !g.of, "released groups are none");
	is_int(groups_init(&g, &model, &p, 0, 100, &err), AR_OK, "groups again");
	is_int(groups_open_blocks(&g, &tables, 0, 16, 2, &err), AR_USAGE,
	       "a pool of nothing is refused");
	groups_release(&g);
	blocks_release(&tables);
	plan_release(&p);
	plan_free(own);
}

/* Layer 1 keeps one plane of 12 elements a token. */
static void test_layouts(void)
{
	static const struct cache_layout odd = { "odd", 1u << 31, 1, { { 1, 12, ELEM_BF16 } } };
	struct plan *own;
	struct layer_plan p = apply("dense", &own);
	struct cache_groups g;
	const struct cache_group *x, *y;
	struct ar_err err;

	layer[1].cache = &odd;
	layer[2].cache = cache_layouts;
	is_int(groups_init(&g, &model, &p, 3, 100, &err), AR_OK, "groups of layers with layouts");
	x = groups_of(&g, 0);
	y = groups_of(&g, 1);
	ok(g.n == 2 && groups_of(&g, 2) == x && x->kv_bytes == 2 * groups_plane_bytes(x, 0),
	   "layers of one layout are a group");
	ok(y->kv_bytes == 128 * 12 * sizeof(bf16_t) && groups_plane_bytes(y, 0) == y->kv_bytes &&
		   groups_bytes(&g, NULL, LAYERS, 5) ==
			   5 * (double)((LAYERS - 1) * x->kv_bytes + y->kv_bytes),
	   "bytes are those of the layout");
	groups_release(&g);
	plan_release(&p);
	plan_free(own);
	reset_layers();
}

/* Layer 1 has other heads, layer 2 a state beside its pages. */
static void test_groups(void)
{
	struct batch_entry e = { .req = 1, .start = 60, .n_tok = 10 }, piece;
	struct plan *own;
	struct layer_plan p = apply("0-1:dense;2:compact-fp;3:dense", &own);
	struct cache_groups g;
	struct ar_err err;

	layer[1].kv_heads = 4;
	open_methods(&p);
	is_int(groups_init(&g, &model, &p, 3, 100, &err), AR_OK, "groups of layers that differ");
	ok(g.n == 3 && groups_of(&g, 0) == groups_of(&g, 3) &&
		   groups_of(&g, 1)->shape.kv_heads == 4 && groups_of(&g, 2)->state_bytes,
	   "are as many as there are kinds");
	if (groups_open_blocks(&g, &tables, 64, 16, 2, &err))
		bail_out("%s", err.msg);
	blocks_begin(&tables);
	is_int(blocks_place(&tables, &e, &err), AR_OK, "an entry");
	ok(blocks_len(&tables, groups_of(&g, 0)->no, 1) == 70 &&
		   blocks_len(&tables, groups_of(&g, 1)->no, 1) == 70 &&
		   blocks_len(&tables, groups_of(&g, 2)->no, 1) == 70 && blocks_hold(&tables, &e),
	   "has room in each");
	e.req = 0;
	if (blocks_grow(&tables, 0, 0, 70, &err) || blocks_grow(&tables, 1, 0, 70, &err))
		bail_out("%s", err.msg);
	ok(!blocks_hold(&tables, &e) && blocks_missing(&tables, &e, 50, &piece) &&
		   piece.start == 0 && piece.n_tok == 50,
	   "what one of them misses is missing");
	drop(1);
	ok(!blocks_len(&tables, groups_of(&g, 0)->no, 1) &&
		   !blocks_len(&tables, groups_of(&g, 1)->no, 1),
	   "all forget a request");
	groups_release(&g);
	blocks_release(&tables);
	plan_release(&p);
	reset_layers();
	plan_free(own);
}

/* Rows that are dropped after layer 1 may be revived: the layer keeps their residual streams. */
static void test_aux(void)
{
	int two[] = { 1, 2 };
	struct plan *own, *without;
	struct layer_plan p = apply("dense+lazyllm:layers=1:0.5,aux-revival=1", &own);
	struct layer_plan q = apply("dense+lazyllm:layers=1:0.5", &without);
	struct cache_groups g, h;
	struct ar_err err;
	double page;

	open_methods(&p);
	open_methods(&q);
	if (groups_init(&g, &model, &p, 3, 100, &err) ||
	    groups_init(&h, &model, &q, 3, 100, &err) ||
	    groups_open_blocks(&g, &tables, 64, 16, 2, &err))
		bail_out("%s", err.msg);
	blocks_begin(&tables);
	page = (double)(groups_of(&g, 1)->shape.page_tok * model.hidden * 2);
	ok(page > 0 && g.n == 2 &&
		   groups_bytes(&g, NULL, LAYERS, 7) ==
			   groups_bytes(&h, NULL, LAYERS, 7) + 7 * page &&
		   groups_bytes(&g, two, 2, 7) == groups_bytes(&h, two, 2, 7) + 7 * page &&
		   groups_bytes(&g, &two[1], 1, 7) == groups_bytes(&h, &two[1], 1, 7),
	   "an aux cache has a hidden state for each token, in one layer");
	ok(groups_aux_bytes(&g) == page * (double)groups_of(&g, 1)->n_page &&
		   groups_aux_bytes(&h) == 0,
	   "... of all pages");
	groups_release(&g);
	blocks_release(&tables);
	groups_release(&h);
	plan_release(&p);
	plan_release(&q);
	plan_free(own);
	plan_free(without);
}

/* Layers 0 and 3 are full, 1 sees 100 keys, 2 is linear.  At most 3 requests run, in entries of at
 * most 300 tokens. */
static void test_mixed_groups(void)
{
	struct batch_entry e = { .req = 1, .n_tok = 300 }, piece;
	struct plan *a = parse("dense");
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
	if (plan_init(&p, a, &model, &err))
		bail_out("%s", err.msg);
	p.method[1] = plan_single(a);
	open_methods(&p);
	ok(!plan_first(&p, 2), "a layer without attention has no method");
	if (groups_init(&g, &model, &p, 3, 300, &err) ||
	    groups_open_blocks(&g, &tables, 1600, 16, 2, &err))
		bail_out("%s", err.msg);
	blocks_begin(&tables);
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
	ok(groups_bytes(&g, NULL, LAYERS, 203) == 2 * 203.0 * (double)full->kv_bytes +
							  15.0 * (double)full->kv_bytes +
							  3.0 * (double)linear->state_bytes,
	   "all have their bytes");
	is_str(groups_describe(&g, g.of[1], run, 4, text, sizeof text),
	       "1 window layer of 100 tokens, 0.00 GiB", "a group is described");
	is_str(groups_describe(&g, g.of[0], run, 4, text, sizeof text), "2 full layers, 0.00 GiB",
	       "... with the number of its layers");
	is_str(groups_describe(&g, g.of[2], run, 2, text, sizeof text), "",
	       "... but not if none is executed");
	g.group[g.of[1]].mixer = MIX_NONE;
	is_str(groups_describe(&g, g.of[1], run, 4, text, sizeof text), "",
	       "... or none stores anything");
	g.group[g.of[1]].mixer = MIX_WINDOW;
	for (e.start = 0; e.start < 6000; e.start += 300)
		for (int rep = 0; rep < 2 && held; rep++)
			held = !blocks_missing(&tables, &e, 300, &piece) &&
			       !blocks_place(&tables, &e, &err);
	ok(held && blocks_len(&tables, full->no, 1) == 6000 &&
		   blocks_len(&tables, window->no, 1) == 6000,
	   "a window's few pages last for any prompt");
	ok(blocks_free(&tables, window->no) == 15 - 4 &&
		   blocks_free(&tables, full->no) == 203 - 47 &&
		   blocks_free(&tables, linear->no) == 2,
	   "what it does not see is free");
	e = (struct batch_entry){ .req = 0, .start = 500, .n_tok = 1, .kind = ROW_DECODE };
	ok(blocks_missing(&tables, &e, 300, &piece) && piece.start == 0 && piece.n_tok == 300,
	   "a state is not missing on its own");
	drop(1);
	ok(blocks_free(&tables, window->no) == 15 && blocks_free(&tables, linear->no) == 3,
	   "all of it goes with the request");
	groups_release(&g);
	blocks_release(&tables);
	plan_release(&p);
	reset_layers();
	plan_free(a);
}

/* A selector with state and a window: tokens that decodes wrote are shown to the selector, but not
 * together with tokens that no page holds. */
static void test_pieces(void)
{
	struct batch_entry e = { .req = 0, .n_tok = 50 }, decode = { .start = 50, .n_tok = 1 },
			   piece;
	struct plan *a = parse("compact-fp");
	struct layer_plan p;
	struct cache_groups g;
	struct ar_err err;

	if (plan_init(&p, a, &model, &err))
		bail_out("%s", err.msg);
	open_methods(&p);
	if (groups_init(&g, &model, &p, 3, 300, &err) ||
	    groups_open_blocks(&g, &tables, 100, 16, 1, &err))
		bail_out("%s", err.msg);
	blocks_begin(&tables);
	decode.kind = ROW_DECODE;
	if (blocks_place(&tables, &e, &err) || blocks_place(&tables, &decode, &err))
		bail_out("%s", err.msg);
	e = (struct batch_entry){ .start = 80, .n_tok = 20 };
	ok(blocks_missing(&tables, &e, 300, &piece) && piece.start == 50 && piece.n_tok == 1 &&
		   blocks_hold(&tables, &piece),
	   "a piece is held by all pages");
	if (blocks_place(&tables, &piece, &err))
		bail_out("%s", err.msg);
	ok(blocks_missing(&tables, &e, 300, &piece) && piece.start == 51 && piece.n_tok == 29 &&
		   !blocks_hold(&tables, &piece),
	   "or by none");
	groups_release(&g);
	blocks_release(&tables);
	plan_release(&p);
	plan_free(a);
}

static enum ar_status life(const struct plan *own)
{
	struct layer_plan p = { 0 };
	struct cache_groups g = { 0 };
	struct ar_err err;
	enum ar_status st = plan_init(&p, own, &model, &err);

	if (!st)
		st = groups_init(&g, &model, &p, 3, 100, &err);
	if (!st)
		st = groups_open_blocks(&g, &tables, 16, 16, 2, &err);
	groups_release(&g);
	blocks_release(&tables);
	plan_release(&p);
	return st;
}

static void test_faults(void)
{
	struct plan *own = parse("dense");
	bool clean = true;
	long k;

	for (k = 0;; k++) {
		enum ar_status st;

		fault_arm(k);
		st = life(own);
		if (!fault_disarm()) {
			clean &= st == AR_OK;
			break;
		}
		clean &= st == AR_NOMEM;
	}
	ok(clean && k >= 6, "each of %ld allocations may fail", k);
	plan_free(own);
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
	test_one_method();
	test_two_methods();
	test_dense_layers();
	test_sources();
	test_mixers();
	test_misfits();
	test_page_sizes();
	test_decode_pages();
	test_one_group();
	test_layouts();
	test_groups();
	test_aux();
	test_mixed_groups();
	test_pieces();
	test_faults();
	test_activations();
	return done_testing();
}
