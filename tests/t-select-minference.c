/* SPDX-License-Identifier: Apache-2.0 */
/* MInference, the reference: worked examples of its patterns, properties of every merge, and
 * pattern files. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "kernels/select/means/means.h"
#include "kernels/select/minference/minference.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/file.h"
#include "tests/tap.h"

static const struct selector *minference(void)
{
	return selector_find("minference");
}

static const struct minference published = { .vertical = 512,
					     .slash = 2048,
					     .ratio = 1,
					     .last = 64,
					     .sink = 30,
					     .local = 100,
					     .blocks = 100,
					     .force_diag = true };

static struct minference_self *open_self(const struct minference *p, struct attn_shape s,
					 int n_layers)
{
	const struct selector_env env = { .shape = s, .n_layers = n_layers };
	struct ar_err err;
	void *self;

	if (minference()->open(&self, p, &env, &err))
		bail_out("%s", err.msg);
	return self;
}

static void lists_make(struct column_lists *l, const struct batch_case *c)
{
	size_t n = (size_t)(c->b.rows.n_qblk * c->b.shape.q_heads);

	l->max_run = c->b.keys.max_kv_blk + 1;
	l->max_col = c->b.keys.max_kv_blk * c->b.shape.page_tok;
	l->run = malloc(n * (size_t)l->max_run * sizeof *l->run);
	l->col = malloc(n * (size_t)l->max_col * sizeof *l->col);
	l->n_run = malloc(n * sizeof *l->n_run);
	l->n_col = malloc(n * sizeof *l->n_col);
	l->band = malloc(n * sizeof *l->band);
}

/* Of a batch of one request. */
static enum ar_status try(const struct batch_case *c, const struct minference_self *self,
			  struct column_lists *l, struct ar_err *err)
{
	struct attn_batch cached = c->b;
	void *state = calloc((size_t)c->n_page, means_state_bytes(&c->b.shape));
	enum ar_status st;

	cached.rows.pos0 = (int32_t[]){ 0 }; /* only keys are read */
	cached.rows.row0 = (int32_t[]){ 0, c->ctx[0] };
	cached.keys.len = c->ctx;
	means_update(&cached, c->kv.k, state);
	st = minference()->ref(
		&(struct attn_call){ .b = &c->b, .q = c->q, .kv = c->kv, .state = state }, self,
		&(struct selection){ .columns = *l }, err);
	free(state);
	return st;
}

static void choose(const struct batch_case *c, const struct minference_self *self,
		   struct column_lists *l)
{
	struct ar_err err;

	if (try(c, self, l, &err))
		bail_out("%s", err.msg);
}

/* Rows [0, n) of one head as "0 4 / 1; ..." */
static const char *text_of(const struct column_lists *l, int n, int q_heads, int head)
{
	static char text[1024];
	size_t at = 0;

	*text = 0;
	for (int i = 0; i < n; i++) {
		int row = i * q_heads + head;

		for (int k = 0; k < l->n_run[row]; k++)
			at += (size_t)snprintf(text + at, sizeof text - at, "%s%d",
					       k ? " " :
					       i ? "; " :
						   "",
					       l->run[row * l->max_run + k]);
		for (int k = 0; k < l->n_col[row]; k++)
			at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", k ? " " : " / ",
					       l->col[row * l->max_col + k]);
	}
	return text;
}

/* ---- worked examples: blocks of four, one head of four channels, 24 tokens ---- */

static const struct attn_shape tiny = { 1, 1, 4, 4 };

static void test_merge(void)
{
	static const char *const want[] = { "0",      "0 4",	       "2 8 / 0",
					    "0 6 12", "3 10 16 / 0 9", "7 14 20 / 0 3" };
	static const int32_t v[] = { 0, 3, 9 }, s[] = { 0, 6, 13 };

	for (int i = 0; i < 6; i++) {
		int32_t run[7], col[24];
		struct minference_row out = { run, col, 0, 0 };

		minference_merge(4, v, 3, s, 3, 4 * i + 4, &out);
		is_str(text_of(&(struct column_lists){ run, &out.n_run, col, &out.n_col, 7, 24,
						       NULL },
			       1, 1, 0),
		       want[i], "columns 0 3 9 and distances 0 6 13 for query block %d", i);
	}
}

static void test_slash(void)
{
	struct minference p = {
		.vertical = 4, .slash = 4, .ratio = 1, .last = 2, .sink = 1, .local = 1
	};
	struct minference_self *self = open_self(&p, tiny, 1);
	struct column_lists l;
	struct batch_case c;

	case_formula(&c, tiny, 24);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	lists_make(&l, &c);
	choose(&c, self, &l);
	is_str(text_of(&l, 6, 1, 0),
	       "0; 0 4; 3 7 11 / 0; 7 11 15 / 0; 11 15 19 / 0 9; 0 15 19 23 / 9",
	       "the four largest columns and distances, by the last two rows");
	columns_free(&l);
	case_cut(&c, (int[]){ 18 }, (int[]){ 6 });
	lists_make(&l, &c);
	choose(&c, self, &l);
	is_str(text_of(&l, 2, 1, 0), "11 15 19 / 0 9; 0 15 19 23 / 9",
	       "a chunk that begins inside of a block has the same rows");
	columns_free(&l);
	case_cut(&c, (int[]){ 21 }, (int[]){ 1 });
	lists_make(&l, &c);
	choose(&c, self, &l);
	is_str(text_of(&l, 1, 1, 0), "0 4 8 12 16 20", "a single row sees everything");
	columns_free(&l);
	free(self);
	case_release(&c);
}

static const char file[] = "test-minference.json";

static void write_file(const char *text)
{
	file_write(file, text, strlen(text));
}

/* Products of a query block with the blocks, largest first. */
static void test_block_order(void)
{
	static const char *const want[] = {
		"8; 12",
		"0 8; 4 12",
		"0 4 8; 0 4 12",
		"0 4 8 12; 0 4 8 12",
		"0 4 8 12; 0 4 8 12 16",
	};
	struct minference p = {
		.path = (char *)file, .ratio = 1, .last = 2, .sink = 1, .local = 1
	};
	struct column_lists l;
	struct batch_case c;

	write_file("[{\"0\": [\"block_sparse\", 8, 1, 0.5]}]");
	case_formula(&c, tiny, 20);
	case_cut(&c, (int[]){ 12 }, (int[]){ 8 });
	lists_make(&l, &c);
	for (p.blocks = 1; p.blocks <= 5; p.blocks++) {
		struct minference_self *self = open_self(&p, tiny, 1);

		choose(&c, self, &l);
		is_str(text_of(&l, 2, 1, 0), want[p.blocks - 1], "%d blocks of largest products",
		       (int)p.blocks);
		free(self);
	}
	columns_free(&l);
	case_release(&c);
}

static void test_block(void)
{
	struct minference p = {
		.path = (char *)file, .ratio = 1, .last = 2, .sink = 1, .local = 1, .blocks = 3
	};
	struct minference_self *self;
	struct column_lists l;
	struct batch_case c;

	write_file("[{\"0\": [\"block_sparse\", 8, 1, 0.5]}]");
	case_formula(&c, tiny, 24);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	lists_make(&l, &c);
	self = open_self(&p, tiny, 1);
	choose(&c, self, &l);
	is_str(text_of(&l, 6, 1, 0), "0; 0 4; 0 4 8; 0 4 8; 0 4 12; 8 16 20",
	       "the three blocks of largest products");
	ok(minference()->state_bytes(self, &tiny) == 16, "of means, which are a state");
	free(self);
	p.force_diag = true;
	self = open_self(&p, tiny, 1);
	choose(&c, self, &l);
	is_str(text_of(&l, 6, 1, 0), "0; 0 4; 0 4 8; 0 8 12; 4 12 16; 8 16 20",
	       "the diagonal goes first where it is forced");
	columns_free(&l);
	case_cut(&c, (int[]){ 16 }, (int[]){ 8 });
	lists_make(&l, &c);
	choose(&c, self, &l);
	is_str(text_of(&l, 2, 1, 0), "4 12 16; 8 16 20", "a chunk has the rows of the whole");
	columns_free(&l);
	free(self);
	case_release(&c);
}

/* ---- properties ---- */

static int draw(struct rng *rng, int lo, int hi)
{
	return lo + (int)rng_below(rng, (uint64_t)(hi - lo + 1));
}

/* Up to n ascending numbers below end, 0 among them. */
static int draw_places(struct rng *rng, int n, int end, int32_t *out)
{
	int k = 0;

	for (int t = 0; t < end; t++)
		if (!t || rng_below(rng, (uint64_t)end) < (uint64_t)n)
			out[k++] = t;
	return k;
}

enum { END = 400 };

static bool in(const int32_t *list, int n, int x)
{
	for (int i = 0; i < n; i++)
		if (list[i] == x)
			return true;
	return false;
}

static void test_merges(void)
{
	int disjoint = 0, single = 0, covered = 0, bounded = 0, n = 0;

	for (int k = 0; k < 300; k++) {
		struct rng rng = { (uint64_t)k };
		int tok = draw(&rng, 1, 16), end = tok * draw(&rng, 1, END / tok - 1);
		int32_t v[END], s[END], run[END], col[END];
		struct minference_row out = { run, col, 0, 0 };
		int n_v = draw_places(&rng, draw(&rng, 0, END), END, v);
		int n_s = draw_places(&rng, draw(&rng, 0, END), END, s);
		bool seen[END + 16] = { false }, good = true;

		minference_merge(tok, v, n_v, s, n_s, end, &out);
		n++;
		bounded += out.n_run <= (end + tok - 1) / tok;
		for (int i = 1; i < out.n_run; i++)
			good &= run[i] >= run[i - 1] + tok;
		disjoint += good && run[0] >= 0 && run[out.n_run - 1] < end;
		for (int i = 0; i < out.n_run; i++)
			memset(seen + run[i], true, (size_t)tok * sizeof *seen);
		good = true;
		for (int i = 0; i < out.n_col; i++) {
			good &= !seen[col[i]] && col[i] < end - tok && in(v, n_v, col[i]) &&
				(!i || col[i] > col[i - 1]);
			seen[col[i]] = true;
		}
		single += good;
		good = true;
		for (int pos = end - tok; pos < end; pos++) {
			for (int i = 0; i < n_s && s[i] <= pos; i++)
				good &= seen[pos - s[i]];
			for (int i = 0; i < n_v && v[i] <= pos; i++)
				good &= seen[v[i]];
		}
		covered += good;
	}
	is_int(disjoint, n, "runs ascend and do not overlap");
	is_int(bounded, n, "there are no more than there are blocks");
	is_int(single, n, "columns are before the query block, in no run, and in order");
	is_int(covered, n, "every row finds all columns and distances that it can");
}

/* ---- a layer of all patterns: blocks of four ---- */

/* With equal keys the first columns, distances and blocks are the largest.  A run ends at each
 * distance, from the largest on end to end. */
static bool sees(const struct minference_head *x, int last, int i, int j)
{
	int end = (i / 4 + 1) * 4, far = end - x->slash + 1;

	if (j > i)
		return false;
	switch (x->pattern) {
	case PATTERN_SLASH: return j < x->vertical || j >= (far > 4 ? far - 4 : 0);
	case PATTERN_SHAPE: return j < x->vertical || i - j < (x->slash ? x->slash : 1);
	default: return i / 4 < last || j / 4 < last - 1 || j / 4 == i / 4;
	}
}

/* Check rows [ctx, ctx + rows) of a prompt as they come out of the method.  head: the pattern in
 * the file. */
static bool layer_right(struct batch_case *c, const struct minference_head *head, int blocks,
			int ctx, int rows, bool *counted)
{
	const struct selector_env env = { .shape = c->b.shape, .n_layers = 1 };
	float *state = calloc((size_t)c->n_page, means_state_bytes(&c->b.shape));
	struct selection_count count;
	char text[100];
	struct method *m;
	struct ar_err err;
	bf16_t *out;
	int64_t pairs = 0;
	bool good = true;

	case_cut(c, (int[]){ 0 }, &ctx);
	means_update(&c->b, c->kv.k, state);
	case_cut(c, &ctx, &rows);
	out = malloc(c->q_len * sizeof *out);
	snprintf(text, sizeof text, "minference:pattern=%s,sink=0,local=1,blocks=%d", file, blocks);
	if (method_parse(&m, text, &err) || method_open(m, &env, &err) ||
	    method_ref(method_prefill(m),
		       &(struct attn_call){
			       .b = &c->b, .q = c->q, .kv = c->kv, .state = state, .out = out },
		       &count, &err))
		bail_out("%s", err.msg);
	for (int i = ctx; i < ctx + rows; i++)
		for (int h = 0; h < 4; h++)
			for (int j = 0; j < 64; j++) {
				bool want = rows == 1 ? j <= i : sees(&head[h], blocks, i, j);
				bf16_t o = out[((i - ctx) * 4 + h) * 64 + j];

				good &= (bf16_to_f32(o) > 0) == want;
				pairs += want;
			}
	*counted = count.exec_sel == pairs;
	method_free(m);
	free(state);
	free(out);
	return good;
}

static void test_layer(void)
{
	static const struct attn_shape s = { 4, 1, 64, 4 };
	static const int pattern[] = { PATTERN_SHAPE, PATTERN_SLASH, PATTERN_BLOCK, PATTERN_SHAPE };
	struct rng rng = { 9 };
	int rows_off = 0, counts_off = 0;

	for (int k = 0; k < 300; k++) {
		int len = draw(&rng, 1, 64), ctx = draw(&rng, 0, len - 1);
		int rows = draw(&rng, 1, len - ctx);
		struct minference_head head[4];
		struct batch_case c;
		char text[400] = "[{";
		bool counted;

		for (int h = 0; h < 4; h++) {
			head[h] = (struct minference_head){ pattern[h], draw(&rng, 0, 20),
							    draw(&rng, pattern[h] == PATTERN_SLASH,
								 20) };
			sprintf(text + strlen(text), "%s\"%d\": [\"%s\", %d, %d]", h ? ", " : "", h,
				minference_patterns[pattern[h]], head[h].vertical, head[h].slash);
		}
		write_file(strcat(text, "}]"));
		case_make(&c, &rng, FILL_EQUAL, s, 1, &len);
		case_unit_values(&c);
		rows_off += !layer_right(&c, head, draw(&rng, 1, 10), ctx, rows, &counted);
		counts_off += !counted;
		case_release(&c);
	}
	remove(file);
	is_int(rows_off, 0, "rows see what each head's pattern says, an A-shape key by key");
	is_int(counts_off, 0, "and the pairs are counted");
}

/* ---- files ---- */

static enum ar_status open_text(const char *text, struct minference_self **self, struct ar_err *err)
{
	struct minference p = published;
	const struct selector_env env = { .shape = { 2, 1, 64, 64 }, .n_layers = 2 };
	void *out = NULL;
	enum ar_status st;

	p.path = (char *)file;
	if (text)
		write_file(text);
	st = minference()->open(&out, &p, &env, err);
	*self = out;
	return st;
}

static void test_file(void)
{
	static const struct {
		const char *text, *msg;
	} bad[] = {
		{ "[{},\n{]", "test-minference.json:2: malformed JSON" },
#define LAYERS \
	"test-minference.json: want an array with an object for each of 2 layers; " \
	"'calibrate minference --layers 2' writes one"
		{ "{}", LAYERS },
		{ "[{}]", LAYERS },
		{ "[{},[]]", "test-minference.json: layer 1: want an object with an entry for each "
			     "head" },
#define WANT " want [PATTERN, N, N, ...] with one of vertical_and_slash, stream_llm, block_sparse"
		{ "[{},{\"1\":[\"slash\",1,1,1]}]", "test-minference.json: layer 1, head 1:" WANT },
		{ "[{\"0\":[\"stream_llm\",1]},{}]",
		  "test-minference.json: layer 0, head 0:" WANT },
		{ "[{\"0\":[\"stream_llm\",1,-1]},{}]",
		  "test-minference.json: layer 0, head 0:" WANT },
		{ "[{\"0\":[\"stream_llm\",0.5,1]},{}]",
		  "test-minference.json: layer 0, head 0:" WANT },
		{ "[{\"0\":[7,1,1]},{}]", "test-minference.json: layer 0, head 0:" WANT },
		{ "[{\"0\":7},{}]", "test-minference.json: layer 0, head 0:" WANT },
	};
	struct minference_self *x;
	struct method *m;
	struct ar_err err;

	ok(!open_text("[{\"0\": [\"vertical_and_slash\", 10, 20, 0.9],"
		      " \"1\": [\"stream_llm\", 100, 800, 1], \"7\": [\"other\"]},\n"
		      " {\"1\": [\"block_sparse\", 8, 1, 0]}]",
		      &x, &err),
	   "a file of all patterns is read, other ranks' heads are not");
	ok(x->head[0].pattern == PATTERN_SLASH && x->head[0].vertical == 30 &&
		   x->head[0].slash == 50,
	   "sizes below what is forced are raised");
	ok(x->head[1].pattern == PATTERN_SHAPE && x->head[1].vertical == 100 &&
		   x->head[1].slash == 800,
	   "those of an A-shape are not");
	ok(x->head[2].pattern == PATTERN_SLASH && x->head[2].vertical == 1000 &&
		   x->head[2].slash == 6096,
	   "a head that is lacking has the published sizes");
	ok(x->head[3].pattern == PATTERN_BLOCK && x->any_block, "layers are in order");
	is_int(x->max_vertical, 1000, "the longest list of columns counts");
	free(x);
	is_int(method_parse(&m, "minference:pattern=test-minference.json,ratio=0.25", &err), AR_OK,
	       "sizes can be scaled");
	if (method_open(m, &(struct selector_env){ .shape = { 2, 1, 64, 64 }, .n_layers = 2 },
			&err))
		bail_out("%s", err.msg);
	x = method_prefill(m)->self;
	ok(x->head[2].vertical == 250 && x->head[2].slash == 1524 && x->head[0].vertical == 30 &&
		   x->head[0].slash == 50,
	   "a quarter of the file's, but for what is forced");
	ok(x->head[1].vertical == 100 && x->head[1].slash == 800, "and not those of an A-shape");
	method_free(m);
	if (method_parse(&m, "minference:pattern=test-minference.json", &err) ||
	    method_open(m,
			&(struct selector_env){
				.shape = { 4, 2, 64, 64 }, .n_layers = 2, .repeats = 2 },
			&err))
		bail_out("%s", err.msg);
	x = method_prefill(m)->self;
	ok(x->head[2].slash == 50 && x->head[3].slash == 800 && x->head[4].slash == 6096 &&
		   x->head[7].pattern == PATTERN_BLOCK,
	   "heads that are repeated have the file's as often");
	method_free(m);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		is_int(open_text(bad[i].text, &x, &err), AR_DATA, "file %zu is refused", i);
		is_str(err.msg, bad[i].msg, "and why");
	}
	remove(file);
	is_int(open_text(NULL, &x, &err), AR_DATA, "a file that there is not is refused");
	is_str(err.msg, "test-minference.json: No such file or directory", "and why");
}

static void test_faults(void)
{
	struct minference p = {
		.path = (char *)file, .ratio = 1, .last = 2, .sink = 1, .local = 1, .blocks = 3
	};
	struct attn_shape two = { 2, 1, 4, 4 };
	const struct selector_env env = { .shape = two, .n_layers = 1 };
	struct column_lists l;
	struct batch_case c;
	struct ar_err err;
	void *self = NULL, *state;
	bool hit = true;
	int bad = 0, k = 0;

	write_file("[{\"0\": [\"block_sparse\", 8, 1, 0.5]}]");
	for (; hit && k < 100; k++) {
		enum ar_status st;

		fault_arm(k);
		st = minference()->open(&self, &p, &env, &err);
		hit = fault_disarm();
		bad += hit ? !st || self : st;
	}
	ok(!bad && !hit && k > 2, "an allocation that fails while a file is read is an error");
	case_formula(&c, two, 24);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	lists_make(&l, &c);
	state = calloc((size_t)c.n_page, means_state_bytes(&c.b.shape));
	for (k = 0, hit = true; hit && k < 20; k++) {
		enum ar_status st;

		fault_arm(k);
		st = minference()->ref(
			&(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv, .state = state },
			self, &(struct selection){ .columns = l }, &err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
	}
	ok(!bad && !hit && k > 5, "so is one while heads of either kind are selected");
	free(state);
	columns_free(&l);
	case_release(&c);
	free(self);
	remove(file);
}

static void test_method(void)
{
	struct selector_env env = { .shape = { 256, 8, 64, 64 }, .n_layers = 1, .device = true };
	struct method *m;
	struct ar_err err = { 0 };
	void *self;

	ok(!method_parse(&m, "minference:vertical=1000", &err), "it is a method");
	is_str(m->params,
	       "{\"blocks\":100,\"exec\":\"columns\",\"force-diag\":true,\"last\":64,\"local\":100,"
	       "\"ratio\":1,\"select\":\"minference\",\"sink\":30,\"slash\":2048,"
	       "\"union\":\"none\",\"vertical\":1000}",
	       "with its parameters");
	is_int(method_page_tok(m), 64, "its blocks have 64 tokens");
	method_free(m);
	is_int(method_parse(&m, "minference:exec=blocksparse", &err), AR_USAGE,
	       "its lists are no masks");
	is_int(minference()->open(&self, &published, &env, &err), AR_USAGE,
	       "a device takes so many heads only");
	is_str(err.msg, "minference on CUDA takes up to 128 query heads, not 256",
	       "which the message says");
}

int main(void)
{
	plan(0);
	test_merge();
	test_slash();
	test_block_order();
	test_block();
	test_merges();
	test_layer();
	test_file();
	test_faults();
	test_method();
	return done_testing();
}
