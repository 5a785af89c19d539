/* SPDX-License-Identifier: Apache-2.0 */
/* The batches, block lists and amounts of work of a benchmark, and its reference. */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "src/bench/bench_case.h"
#include "src/bench/collective.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

static const struct bench_shape small = { .q_heads = 4,
					  .kv_heads = 2,
					  .head_dim = 64,
					  .page_tok = 128,
					  .batch = 2,
					  .chunk = 300,
					  .context = 1000 };

static void make(struct bench_case *c, enum bench_what what, const struct bench_shape *s,
		 double density)
{
	struct ar_err err;

	if (bench_case_make(c, what, s, density, 7, &err))
		bail_out("%s", err.msg);
}

/* Pairs one by one, through the list of each row and head. */
static int64_t count_slowly(const struct bench_case *c)
{
	const struct attn_batch *b = &c->b;
	int tok = b->shape.page_tok;
	int64_t sum = 0;

	for (int r = 0; r < b->rows.n_req; r++)
		for (int row = 0; row < b->rows.row0[r + 1] - b->rows.row0[r]; row++)
			for (int h = 0; h < b->shape.q_heads; h++) {
				const uint16_t *block;
				int n = bench_list(c, r, row, h, &block);

				for (int i = 0; i < n; i++)
					for (int t = 0; t < tok; t++) {
						int key = (block ? block[i] : i) * tok + t;

						sum += key <= b->rows.pos0[r] + row &&
						       key >= bench_first(c, b->rows.row0[r] + row);
					}
			}
	return sum;
}

static void test_work(void)
{
	struct bench_shape one = { .q_heads = 1,
				   .kv_heads = 1,
				   .head_dim = 64,
				   .page_tok = 128,
				   .batch = 1,
				   .chunk = 2,
				   .context = 3 };
	struct bench_case c;

	make(&c, BENCH_DENSE, &one, 1);
	is_int(c.pairs, 5, "two rows that see two and three keys are five pairs");
	bench_case_release(&c);
	one.chunk = one.context = 65536, one.q_heads = 16;
	make(&c, BENCH_DENSE, &one, 1);
	is_int(c.pairs, 16LL * 65536 * 65537 / 2, "a whole prompt is a triangle for each head");
	is_int(c.dense_pairs, c.pairs, "and dense attention has no other pairs");
	bench_case_release(&c);
	one.context = 131072, one.chunk = 1024, one.batch = 8;
	make(&c, BENCH_TABLE, &one, 0);
	is_int(c.pairs, 8LL * 16 * 1024 * 1025 / 2, "a table without past holds the chunk itself");
	bench_case_release(&c);
	make(&c, BENCH_TABLE, &one, 1);
	is_int(c.pairs, c.dense_pairs, "a table of density 1 holds everything");
	bench_case_release(&c);
	make(&c, BENCH_BLOCKSPARSE, &one, 0);
	is_int(c.pairs, 8LL * 16 * 8 * 128 * 129 / 2, "without past, lists hold their own block");
	bench_case_release(&c);
	one.page_tok = 64;
	make(&c, BENCH_BLOCKSPARSE, &one, 0);
	is_int(c.pairs, 8LL * 16 * 16 * 64 * 65 / 2, "of 64 tokens there are twice as many");
	bench_case_release(&c);
	one.page_tok = 128;
	make(&c, BENCH_DECODE, &one, 1);
	is_int(c.pairs, 8LL * 16 * 131072, "decode has one row a request");
	is_int(c.b.rows.pos0[0], 131071, "which stands at the end of its context");
	bench_case_release(&c);
	make(&c, BENCH_DECODE_TABLE, &one, 0);
	is_int(c.pairs, 8LL * 16 * 128, "a decode without past has its own block");
	bench_case_release(&c);
	make(&c, BENCH_MIXED, &one, 1);
	is_int(c.pairs, 16LL * (1024 * 1024 + 1024 * 1025 / 2 + 8 * 131072),
	       "decodes beside a chunk have their own pairs and the chunk's");
	is_int(c.b.rows.n_req, 9, "... which is of one request more");
	bench_case_release(&c);
	make(&c, BENCH_SELECT, &one, 1);
	is_int(c.pairs, 0, "selection attends to nothing");
	is_int(c.b.rows.n_qblk, 64, "but has query blocks");
	bench_case_release(&c);
}

static void test_lists(enum bench_what what, int page_tok)
{
	struct bench_shape s = small;
	struct bench_case c;
	int past, bad = 0;

	s.page_tok = page_tok;
	make(&c, what, &s, 0.4);
	past = c.b.rows.pos0[0] / page_tok;
	is_int(c.pairs, count_slowly(&c), "%s of %d: pairs are those of the lists",
	       bench_names[what], page_tok);
	ok(c.pairs < c.dense_pairs, "%s of %d: fewer than dense attention has", bench_names[what],
	   page_tok);
	for (int i = 0; i < c.n_list; i++) {
		const uint16_t *block = c.lists.blocks.block + i * c.lists.blocks.stride;
		int own = what != BENCH_BLOCKSPARSE ?
				  c.b.keys.max_kv_blk - 1 :
				  past + i / c.b.shape.q_heads % c.b.rows.qblk0[1],
		    at = 0;

		for (int j = 0; j <= own; j++) {
			bool open = j == own || (what != BENCH_BLOCKSPARSE && j >= past);
			bool kept = at < c.lists.blocks.n[i] && block[at] == j;

			bad += kept != (open || bench_kept(7, i, j, 0.4));
			at += kept;
		}
		bad += at != c.lists.blocks.n[i];
	}
	is_int(bad, 0, "%s of %d: lists ascend, keep what was drawn and what they must",
	       bench_names[what], page_tok);
	bench_case_release(&c);
}

/* Windows of a share of the context; the last row of a request sees as many keys. */
static void test_window(enum bench_what what, int page_tok)
{
	struct bench_shape s = small;
	struct bench_case c;
	int last;

	s.page_tok = page_tok;
	make(&c, what, &s, 0.4);
	last = c.b.rows.n_row - 1;
	is_int(c.pairs, count_slowly(&c), "%s of %d: pairs are those in windows", bench_names[what],
	       page_tok);
	is_int(c.b.rows.pos[last] + 1 - c.b.rows.first[last], 400,
	       "%s of %d: a window is a share of the context", bench_names[what], page_tok);
	bench_case_release(&c);
}

static void test_past(int page_tok)
{
	struct bench_shape s = small;
	struct bench_case c;
	int bad = 0;

	s.page_tok = page_tok, s.context = 896;
	make(&c, BENCH_PAST, &s, 1);
	is_int(c.b.rows.pos0[1], 896, "past of %d: the chunk comes after the context", page_tok);
	is_int(c.pairs, 2LL * 4 * 300 * 896, "past of %d: every row sees every key", page_tok);
	is_int(c.pairs, count_slowly(&c), "past of %d: by its lists", page_tok);
	is_int(c.n_list, 2 * 2, "past of %d: one for each request and KV head", page_tok);
	for (int i = 0; i < c.n_list; i++) {
		const uint16_t *block = c.lists.blocks.block + i * c.lists.blocks.stride;

		bad += c.lists.blocks.n[i] != 896 / page_tok;
		for (int j = 0; j < c.lists.blocks.n[i]; j++)
			bad += block[j] != j;
	}
	is_int(bad, 0, "past of %d: which have the blocks before the chunk and no other", page_tok);
	bench_case_release(&c);
}

static void test_moved(int page_tok)
{
	struct bench_shape s = small;
	struct bench_case c;
	int64_t n = 0, pairs = 0;

	s.page_tok = page_tok;
	make(&c, BENCH_COPY, &s, 0.4);
	for (int i = 0; i < c.n_list; i++)
		n += c.lists.blocks.n[i];
	ok(c.lists.heads == 2 && c.moved == n * page_tok && c.pairs == count_slowly(&c),
	   "copy of %d: the blocks of its tables are moved, whole", page_tok);
	bench_case_release(&c);
	make(&c, BENCH_GATHER, &s, 0.4);
	is_int(c.moved,
	       c.lists.tokens.n[0] + c.lists.tokens.n[1] + c.lists.tokens.n[2] +
		       c.lists.tokens.n[3] + 4 * 300,
	       "gather of %d: its tokens and the chunk's are moved", page_tok);
	for (int row = 0; row < 300; row++)
		for (int r = 0; r < 2; r++)
			for (int h = 0; h < 4; h++)
				pairs += bench_position(&c, r, row, h) + 1;
	is_int(c.pairs, pairs, "gather of %d: pairs are those of the lists and the chunk",
	       page_tok);
	ok(abs(c.lists.tokens.n[1] - 280) < 60,
	   "gather of %d: tokens are kept with the probability asked for", page_tok);
	bench_case_release(&c);
}

static void test_draws(void)
{
	int n = 0;

	for (int i = 0; i < 100; i++)
		for (int j = 0; j < 1000; j++)
			n += bench_kept(3, i, j, 0.3);
	ok(n > 29500 && n < 30500, "blocks are kept with the probability asked for");
	ok(!bench_kept(1, 2, 3, 0) && bench_kept(1, 2, 3, 1), "none at 0, all at 1");
	n = 0;
	for (int j = 0; j < 16; j++)
		n |= bench_kept(1, 5, j, 0.5) << j;
	is_int(n, 0x9220, "the draw is the one that bench_torch.py makes");
}

static bool is_permutation(const struct bench_case *c)
{
	int n = c->b.keys.page0[c->b.rows.n_req], moved = 0;
	bool *seen = calloc((size_t)n, sizeof *seen), good = true;

	for (int i = 0; i < n; i++) {
		good = good && !seen[c->b.keys.page[i]];
		seen[c->b.keys.page[i]] = true;
		moved += c->b.keys.page[i] != i;
	}
	free(seen);
	return good && moved > n / 2;
}

/* The executor's reference reads pages, ours the keys of one head in order. */
static double difference(const struct bench_case *c, struct rng *rng)
{
	const struct attn_shape *s = &c->b.shape;
	size_t dim = (size_t)s->head_dim, row = (size_t)s->q_heads * dim;
	size_t blk = (size_t)s->page_tok * dim, page = (size_t)s->kv_heads * blk;
	size_t n_q = (size_t)c->b.rows.n_row * row;
	size_t n_kv = (size_t)c->b.keys.page0[c->b.rows.n_req] * page;
	bf16_t *q = malloc((2 * n_q + 2 * n_kv) * sizeof *q), *out = q + n_q;
	struct kv_cache kv = { .k = out + n_q, .v = out + n_q + n_kv };
	bf16_t *k = malloc(2 * (size_t)c->b.keys.max_kv_blk * blk * sizeof *k);
	bf16_t *v = k + (size_t)c->b.keys.max_kv_blk * blk;
	double ref[256], worst = 0;
	struct ar_err err;

	for (size_t i = 0; i < 2 * n_q + 2 * n_kv; i++)
		q[i] = bf16_from_f32(rng_normal(rng));
	if (bench_decodes(c->what) ?
		    decode_ref(&(struct attn_call){ .b = &c->b, .q = q, .kv = kv, .out = out }, 0,
			       &c->lists.blocks, &err) :
		    c->executor->ref(
			    &(struct attn_call){ .b = &c->b, .q = q, .kv = kv, .out = out },
			    &c->lists, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < 40; i++) {
		int r = (int)rng_below(rng, (uint64_t)c->b.rows.n_req), at, n;
		int h = (int)rng_below(rng, (uint64_t)s->q_heads);
		size_t kv_head = (size_t)(h / (s->q_heads / s->kv_heads));
		const uint16_t *block;

		at = (int)rng_below(rng, (uint64_t)attn_n_row(&c->b.rows, r));
		for (size_t j = 0; j < (size_t)c->b.keys.max_kv_blk * blk; j++) {
			size_t p = (size_t)c->b.keys.page[(size_t)c->b.keys.page0[r] + j / blk] *
					   page +
				   kv_head * blk + j % blk;

			k[j] = kv.k[p];
			v[j] = kv.v[p];
		}
		bench_pack(c, r, (int)kv_head, k);
		bench_pack(c, r, (int)kv_head, v);
		n = bench_list(c, r, at, h, &block);
		bench_row_ref(s, q + (size_t)(c->b.rows.row0[r] + at) * row + (size_t)h * dim, k, v,
			      block, n, bench_first(c, c->b.rows.row0[r] + at),
			      bench_position(c, r, at, h), ref);
		for (size_t d = 0; d < dim; d++)
			worst = fmax(worst,
				     fabs(ref[d] -
					  bf16_to_f32(out[(size_t)(c->b.rows.row0[r] + at) * row +
							  (size_t)h * dim + d])));
	}
	free(q);
	free(k);
	return worst;
}

static void test_rows(enum bench_what what, int page_tok)
{
	struct bench_shape s = small;
	struct rng rng = { 5 };
	struct bench_case c;
	double worst;

	s.page_tok = page_tok;
	if (what == BENCH_PAST)
		s.context = 896;
	make(&c, what, &s, 0.4);
	ok(is_permutation(&c), "%s of %d: pages are shuffled", bench_names[what], page_tok);
	worst = difference(&c, &rng);
	ok(worst < 0.004, "%s of %d: rows in double precision are the executor's",
	   bench_names[what], page_tok);
	diag("largest difference %g", worst);
	bench_case_release(&c);
}

/* Where the heads of a KV head share tables in groups of three, the fourth has its own. */
static void test_groups(void)
{
	static const int want[] = { 0, 0, 0, 1, 2, 2, 2, 3 };
	struct bench_shape s = small;
	const uint16_t *block;
	struct bench_case c;
	int bad = 0;

	s.q_heads = 8, s.batch = 1;
	make(&c, BENCH_BLOCKSPARSE, &s, 0.5);
	c.lists.heads = 3;
	for (int h = 0; h < 8; h++) {
		int n = bench_list(&c, 0, 7, h, &block);

		bad += block != c.lists.blocks.block + want[h] * c.lists.blocks.stride ||
		       n != c.lists.blocks.n[want[h]];
	}
	is_int(bad, 0, "heads find the table of their group");
	bench_case_release(&c);
}

static void refuses(enum bench_what what, const struct bench_shape *s, const char *want)
{
	struct ar_err err = { 0 };
	enum ar_status st = bench_shape_check(what, s, &err);

	is_str(st == AR_USAGE ? err.msg : "", want, "refused: %s", want);
}

static void test_check(void)
{
	struct bench_shape s = small;

	is_int(bench_shape_check(BENCH_DENSE, &s, NULL), AR_OK, "a shape that fits passes");
	s.kv_heads = 3;
	refuses(BENCH_DENSE, &s, "4 query heads are no multiple of 3 KV heads");
	s = small, s.chunk = 1001;
	refuses(BENCH_DENSE, &s,
		"a chunk of 1001 tokens is longer than the context of 1000, "
		"which includes it");
	s = small, s.context = 8388609;
	refuses(BENCH_DENSE, &s, "a context of 8388609 tokens is too long; want at most 8388608");
	s = small, s.batch = 10000, s.context = 1 << 20;
	refuses(BENCH_DENSE, &s,
		"batch 10000, chunk 300, context 1048576: too large; lower one of them");
	s = small, s.batch = 1 << 15;
	refuses(BENCH_DENSE, &s,
		"batch 32768, chunk 300, context 1000: too large; lower one of them");
	s = small;
	refuses(BENCH_PAST, &s,
		"case past: a context of 1000 tokens is no multiple of the block size, 128");
	s.context = 8388608;
	refuses(BENCH_PAST, &s, "a context of 8388908 tokens is too long; want at most 8388608");
}

static void test_faults(enum bench_what what)
{
	int bad = 0;
	long k = 0;

	for (;; k++) {
		struct bench_case c;
		struct ar_err err = { 0 };
		enum ar_status st;

		fault_arm(k);
		st = bench_case_make(&c, what, &small, 0.5, 1, &err);
		if (!fault_disarm()) {
			bench_case_release(&c);
			break;
		}
		bad += st != AR_NOMEM || c.b.rows.row0 || c.lists.blocks.n || c.lists.tokens.n;
	}
	ok(k > 5, "a case needs memory more than once");
	is_int(bad, 0, "and each time that there is none it says so and keeps nothing");
}

/* Reading real lists while allocations fail, and their repetition over heads. */
static void test_real(void)
{
	const char *sample = "traces/samples/niah-32k-lists.json";
	struct bench_lists l;
	struct ar_err err;
	int bad = 0, off = 0;
	long k = 0;

	for (;; k++) {
		enum ar_status st;

		fault_arm(k);
		st = bench_lists_read(&l, sample, &err);
		if (!fault_disarm())
			break;
		bad += st != AR_NOMEM || l.block || l.table;
	}
	is_int(bad, 0, "lists that do not fit into memory are not kept");
	for (int j = 0; j < l.n_blk; j++) {
		for (int i = 0; i < l.n_qblk; i++)
			off += bench_lists_block(&l, 3, i, j) != bench_lists_block(&l, 11, i, j);
		off += bench_lists_table(&l, 1, j) != bench_lists_table(&l, 3, j);
	}
	is_int(off, 0, "more heads than the file's repeat them");
	bench_lists_release(&l);
	bench_lists_release(&l);
}

static void test_kernels(void)
{
	static const char *const names[][2] = {
		{ "_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE",
		  "RING_LL" },
		{ "_Z40ncclDevKernel_AllReduce_Sum_bf16_TREE_LL24ncclDevKernelArgsStorageILm4096EE",
		  "TREE_LL" },
		{ "_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE",
		  "RING_LL" },
		{ "_Z21ncclDevKernel_Generic24ncclDevKernelArgsStorageILm4096EE",
		  "ncclDevKernel_Generic" },
		{ "_Z3sumPf", "sum" },
		{ "plain", "plain" },
	};
	char text[COLLECTIVE_KERNEL];

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		collective_kernel(names[i][0], text);
		is_str(text, names[i][1], "the name of kernel '%s'", names[i][0]);
	}
}

int main(void)
{
	plan(0);
	test_kernels();
	test_real();
	test_work();
	test_draws();
	for (int tok = 64; tok <= 128; tok *= 2) {
		test_lists(BENCH_TABLE, tok);
		test_lists(BENCH_BLOCKSPARSE, tok);
		test_lists(BENCH_DECODE_TABLE, tok);
		test_window(BENCH_WINDOW, tok);
		test_window(BENCH_DECODE_WINDOW, tok);
		test_past(tok);
		test_moved(tok);
		test_rows(BENCH_DENSE, tok);
		test_rows(BENCH_PAST, tok);
		test_rows(BENCH_TABLE, tok);
		test_rows(BENCH_BLOCKSPARSE, tok);
		test_rows(BENCH_DECODE_TABLE, tok);
		test_rows(BENCH_COPY, tok);
		test_rows(BENCH_GATHER, tok);
		test_rows(BENCH_WINDOW, tok);
		test_rows(BENCH_DECODE_WINDOW, tok);
		test_rows(BENCH_MIXED, tok);
	}
	test_groups();
	test_check();
	test_faults(BENCH_TABLE);
	test_faults(BENCH_GATHER);
	test_faults(BENCH_WINDOW);
	return done_testing();
}
