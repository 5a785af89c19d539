/* SPDX-License-Identifier: Apache-2.0 */
/* DuoAttention's files: which heads stream, and files that do not fit. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/select/duo/duo.h"
#include "kernels/select/selectors.h"
#include "tests/decode_case.h"
#include "tests/file.h"
#include "tests/tap.h"

static const char layer0[] = ".605\t0\t.969\t.684\t.025\t.969\t.040\t0\n";

static void write_text(const char *text)
{
	file_write("t-select-duo.tsv", text, strlen(text));
}

/* Layer 0 of the published scores of Llama 3.1 8B. */
static void test_example(void)
{
	static const int len = 131072;
	static const bool full[8] = { true, false, true, true, false, true, false, false };
	struct rng rng = { 1 };
	struct batch_case c;
	struct decode_case x;
	const struct piece_lists *l = &x.sel.chosen.pieces;
	int64_t keys = 0;
	int off = 0;

	write_text(layer0);
	case_make_bare(&c, &rng, (struct attn_shape){ 32, 8, 128, 128 }, 1, &len);
	decode_choose(&x, "duo,file=t-select-duo.tsv", &c);
	for (int h = 0; h < 8; h++) {
		keys += (int64_t)l->n[h] * l->tok;
		off += l->n[h] * l->tok != (full[h] ? len : 128 + 256);
	}
	is_int(off, 0, "heads 0, 2, 3 and 5 see everything, the others sink and recent tokens");
	ok(fabs((double)keys / (8.0 * len) - .5015) < 5e-5, "a share of .5015 of the keys is read");
	decode_release(&x);
	case_release(&c);
}

/* The bits of layer `layer` with these KV heads of this rank, or 0xdead after an error. */
static uint32_t bits(struct duo p, int n_layers, int layer, int heads, int repeats,
		     struct ar_err *err)
{
	struct selector_env env = { .shape = { heads * 2, heads, 64, 64 },
				    .n_layers = n_layers,
				    .repeats = repeats };
	uint32_t x = 0xdead;
	void *self;

	p.file = p.file ? p.file : (char[]){ "t-select-duo.tsv" };
	if (selector_find("duo")->open(&self, &p, &env, err))
		return x;
	x = ((struct duo_self *)self)->layer[layer].full[0];
	selector_find("duo")->close(self);
	return x;
}

static void test_ranks(void)
{
	struct duo p = { .sparsity = 0.5 };
	struct ar_err err;

	write_text("0.5 0.2 0.5 7\r\n\n0.5 -3 0.5 0.5");
	is_int(bits(p, 2, 0, 4, 1, &err), 8,
	       "equal scores stream in the order of layers and heads");
	is_int(bits(p, 2, 1, 4, 1, &err), 13, "... in all layers together");
	is_int(bits(p, 2, 1, 2, 1, &err), 1, "a rank has the first heads of the file");
	is_int(bits(p, 2, 0, 8, 2, &err), 0x88, "repeated heads have the scores of the file's");
	p.sparsity = 1;
	is_int(bits(p, 2, 0, 4, 1, &err), 0, "sparsity 1 streams all heads");
	p.sparsity = 0;
	is_int(bits(p, 2, 1, 4, 1, &err), 15, "sparsity 0 streams none");
}

static void refused(const char *text, const char *want)
{
	struct ar_err err = { 0 };

	write_text(text);
	bits((struct duo){ .sparsity = 0.5 }, 2, 0, 4, 1, &err);
	is_str(err.msg, want, "refused");
}

static void test_refusals(void)
{
	struct ar_err err = { 0 };
	void *self;

	refused("1 2 3 4\n1 2 x 4\n", "t-select-duo.tsv:2: want numbers");
	refused("1 nan 3 4\n1 2 3 4\n", "t-select-duo.tsv:1: want numbers");
	refused("1 2 3 4\n1 2 3\n", "t-select-duo.tsv:2: 3 numbers; the lines before have 4");
	refused("1 2 3 4\n", "t-select-duo.tsv: 1 lines of 4 numbers; want one for each of 2 "
			     "layers and 4 KV heads; 'calibrate duo --layers 2' writes one");
	refused("1 2\n1 2\n", "t-select-duo.tsv: 2 lines of 2 numbers; want one for each of 2 "
			      "layers and 4 KV heads; 'calibrate duo --layers 2' writes one");
	bits((struct duo){ .file = (char[]){ "none.tsv" } }, 1, 0, 1, 1, &err);
	ok(!strncmp(err.msg, "none.tsv: ", 10), "a file that is not there");
	bits((struct duo){ 0 }, 1, 0, 257, 1, &err);
	is_str(err.msg, "duo: 257 KV heads; it takes up to 256", "too many heads");
	selector_find("duo")->open(&self, &(struct duo){ 0 }, &(struct selector_env){ 0 }, &err);
	is_str(err.msg,
	       "duo has no scores: add file=FILE, a line a layer with a number for each KV head",
	       "no file");
}

int main(void)
{
	plan(0);
	test_example();
	test_ranks();
	test_refusals();
	unlink("t-select-duo.tsv");
	return done_testing();
}
