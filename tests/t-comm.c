/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives: rings, tables and their files, and what an iteration has of them. */
#include "config.h"
#include "replay/cost/comm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/alloc_fault.h"
#include "tests/tap.h"

static char path[] = "t-comm.XXXXXX";

#define MAGIC "# attnreplay collectives 1\n"
#define COLUMNS "collective type ranks hosts mode bytes n p10_ns p50_ns p90_ns kernel\n"
#define GATHERS "allgather bf16 4 1 inline 1000 9 1 300 500 RING_LL\n"

static void put(const char *text)
{
	FILE *f = fopen(path, "w");

	if (!f || fputs(text, f) < 0 || fclose(f))
		bail_out("%s: cannot write", path);
}

static enum ar_status load(struct comm_table *t, int ranks, struct ar_err *err)
{
	return comm_table_load(t, path, (int[COMM_N_OPS]){ ranks, ranks }, err);
}

static void test_ring(void)
{
	const struct comm_ring r = { 0.5, 1000, 10 };
	const struct comm c = { .ranks = 4, .ring = r, .gbps = 100 };

	is_int(comm_ring_ns(&r, 100, 6, 5000), 1000 + 6 * (10 + 100), "a ring passes parts on");
	is_int(comm_ns(&c, COMM_REDUCE, 20000, false), 1660, "... six times for four to reduce");
	is_int(comm_ns(&c, COMM_GATHER, 20000, true), 1330, "... three times to gather");
	is_int(comm_ring_ns(&r, 1e-300, 6, 5000), INT64_MAX, "no link is too slow");
}

static const char *kernel_of(const struct comm_table *t, enum comm_op op, bool graph, int64_t bytes)
{
	return t->kernel[comm_table_kernel(t, op, graph, bytes)];
}

/* More kernels than have a place. */
static void test_kernels(void)
{
	char text[4096] = MAGIC COLUMNS GATHERS;
	struct comm_table t;
	struct ar_err err;

	for (int i = 1; i < 2 * COMM_KERNELS; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text),
			 "allreduce bf16 4 1 graph %d 9 1 7 9 kernel-%d\n", i, i);
	put(text);
	is_int(load(&t, 4, &err), AR_OK, "a table has many kernels");
	is_str(kernel_of(&t, COMM_REDUCE, true, 3), "kernel-3", "... each has its place");
	is_str(kernel_of(&t, COMM_REDUCE, true, COMM_KERNELS), "others", "... or shares the last");
	is_str(kernel_of(&t, COMM_REDUCE, true, 2 * COMM_KERNELS), "others", "... however many");
	comm_table_release(&t);
}

static void test_lookup(void)
{
	struct comm_table t;
	struct ar_err err = { 0 };
	char want[256];

	put(MAGIC COLUMNS "# of two ranks, of floats, over two hosts, and of another kind\n"
			  "allreduce bf16 2 1 inline 100 9 1 7 9 -\n"
			  "allreduce f32 4 1 inline 100 9 1 7 9 -\n"
			  "allreduce bf16 4 2 inline 100 9 1 7 9 -\n"
			  "alltoall bf16 4 1 inline 100 9 1 7 9 -\n"
			  "barrier - 4 1 inline 0 9 1 7 9 -\n"
			  "allreduce bf16 4 1 inline 1000 9 1 100 200 RING_LL\n"
			  "\n"
			  "allreduce\tbf16  4 1 inline 4000 9 1 400 500 SIMPLE\r\n"
			  "allreduce bf16 4 1 graph 1000 9 1 50 60 RING_LL\n" GATHERS);
	is_int(load(&t, 4, &err), AR_OK, "a table is read");
	is_int(comm_table_ns(&t, COMM_REDUCE, false, 1000), 100, "a point has its time");
	is_int(comm_table_ns(&t, COMM_REDUCE, false, 2000), 200, "... between, by logarithms");
	is_int(comm_table_ns(&t, COMM_REDUCE, false, 1), 100, "... below, the first one's");
	is_int(comm_table_ns(&t, COMM_REDUCE, false, 40000), 4000, "... above, by bytes");
	ok(comm_table_ns(&t, COMM_REDUCE, false, INT64_MAX) > INT64_MAX / 11, "... however many");
	is_int(comm_table_ns(&t, COMM_REDUCE, true, 1000), 50, "a graph has times of its own");
	is_int(comm_table_ns(&t, COMM_GATHER, true, 1000), 300, "... where the file has any");
	is_str(kernel_of(&t, COMM_REDUCE, false, 999), "RING_LL", "the first kernel sends less");
	is_str(kernel_of(&t, COMM_REDUCE, false, 3999), "RING_LL", "... and up to the next");
	is_str(kernel_of(&t, COMM_REDUCE, false, 4000), "SIMPLE",
	       "... which has a name of its own");
	is_str(kernel_of(&t, COMM_REDUCE, false, INT64_MAX), "SIMPLE",
	       "... the last sends the rest");
	comm_table_release(&t);
	is_int(comm_table_load(&t, path, (int[COMM_N_OPS]){ [COMM_SWAP] = 4, [COMM_REDUCE] = 2 },
			       &err),
	       AR_OK, "other collectives are read, each of its number of ranks");
	is_int(comm_table_ns(&t, COMM_SWAP, true, 100), 7, "... and looked up");
	is_int(comm_table_ns(&t, COMM_REDUCE, true, 100), 7, "... as is that of two ranks");
	comm_table_release(&t);
	is_int(load(&t, 2, &err), AR_USAGE, "every collective must be there");
	snprintf(want, sizeof want,
		 "%s: no allgather in bf16 of 2 ranks on one host; the file has ranks 4; take "
		 "one that was measured with as many, or --comm model",
		 path);
	is_str(err.msg, want, "... as the message says");
	comm_table_release(&t);
	put(MAGIC COLUMNS "barrier - 4 1 inline 0 9 1 7 9 -\n");
	is_int(load(&t, 2, &err), AR_USAGE, "a table of nothing has nothing");
	ok(strstr(err.msg, "the file has ranks of no such collective"), "... and says so");
	comm_table_release(&t);
}

static void test_bad_files(void)
{
	static const struct {
		const char *text, *message;
	} bad[] = {
		{ "", ":1: want '# attnreplay collectives 1'; this is no table of collectives" },
		{ "# attnreplay collections\n", ":1: want '# attnreplay collectives 1'; this is no "
						"table of collectives" },
		{ MAGIC GATHERS, ":2: want a line of the columns, which begins with 'collective "
				 "type ranks'" },
		{ MAGIC COLUMNS "allreduce bf16 4\n", ":3: want 11 words, not 3" },
#define WANT \
	": want whole numbers from 0, at least 1 rank and 1 ns, mode inline or graph, and more " \
	"bytes in each line of a collective"
		{ MAGIC COLUMNS "allreduce bf16 x 1 inline 1 9 1 7 9 -\n", ":3: ranks" WANT },
		{ MAGIC COLUMNS "allreduce bf16 0 1 inline 1 9 1 7 9 -\n", ":3: ranks" WANT },
		{ MAGIC COLUMNS "allreduce bf16 9999 1 inline 1 9 1 7 9 -\n", ":3: ranks" WANT },
		{ MAGIC COLUMNS "allreduce bf16 4 1 eager 1 9 1 7 9 -\n", ":3: mode" WANT },
		{ MAGIC COLUMNS "allreduce bf16 4 1 inline -1 9 1 7 9 -\n", ":3: bytes" WANT },
		{ MAGIC COLUMNS "allreduce bf16 4 1 inline 1 9 1 0 9 -\n", ":3: p50_ns" WANT },
		{ MAGIC COLUMNS GATHERS GATHERS, ":4: bytes" WANT },
	};
	struct comm_table t;
	struct ar_err err;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		put(bad[i].text);
		is_int(load(&t, 4, &err), AR_DATA, "bad table %zu", i);
		is_str(err.msg + strlen(path), bad[i].message, "... with a message");
		comm_table_release(&t);
	}
	is_int(comm_table_load(&t, "no-such-file", (int[COMM_N_OPS]){ 4, 4 }, &err), AR_DATA,
	       "there must be a file");
	put(MAGIC COLUMNS GATHERS "allreduce bf16 4 1 graph 1 9 1 7 9 -\n");
	for (int i = 0; i < 100; i++) {
		enum ar_status st;

		fault_arm(i);
		st = load(&t, 4, &err);
		fault_disarm();
		comm_table_release(&t);
		if (!st)
			break;
		is_int(st, AR_NOMEM, "without memory %d it fails", i);
	}
}

static void test_iteration(void)
{
	struct layer_spec layer[3] = { { .mixer = MIX_FULL, .ffn = 8 },
				       { .mixer = MIX_NONE, .ffn = 8 },
				       { .mixer = MIX_SSM } };
	struct model m = { .n_layers = 3, .hidden = 10, .vocab = 25, .layer = layer, .tp = 4 };
	struct batch_entry e[] = { { .n_tok = 3 }, { .n_tok = 2, .n_emit = 1 } };
	const struct batch b = { .entry = e, .n = 2, .prefill_tok = 5 };
	const int run[] = { 0 };
	struct comm c = { .ring = { 1, 100, 0 }, .gbps = 1 };
	struct iter_cost cost = { .cost_ns = 1 };
	const int64_t reduce = 100 + 6 * 100 / 4, gather = 100 + 3 * 200 / 4;
	int64_t sent[COMM_KERNELS] = { 0 };

	comm_bind(&c, &m, NULL, 0);
	is_int(c.n_reduce, 5, "sums of the embedding, of mixers and of MLPs");
	is_int(c.n_run_reduce, 5, "... all are executed");
	is_int(comm_launches(&c), 6, "... which are launched, as is the gathering of logits");
	comm_bind(&c, &m, run, 1);
	is_int(c.n_run_reduce, 3, "... or those of some layers and of the embedding");
	comm_add(&c, &b, &cost, sent);
	is_int(cost.cost_ns, 1 + 5 * reduce + gather, "an iteration takes all of them");
	is_int(cost.phase_ns[PHASE_COMM], 3 * reduce + gather, "... its phase the executed");
	is_int(cost.phase_kernels[PHASE_COMM], 4, "... which are so many");
	e[1].n_emit = 0;
	cost = (struct iter_cost){ .cost_ns = INT64_MAX };
	comm_add(&c, &b, &cost, sent);
	is_int(cost.phase_ns[PHASE_COMM], 3 * reduce, "without a token no logits are gathered");
	is_int(cost.cost_ns, INT64_MAX, "sums do not overflow");
}

/* A ring takes 100 ns for a hop and a ns for a byte, so times tell bytes.  Layers are of an MLP
 * alone (1) or have a mixer, too. */
static void test_drops(void)
{
	struct layer_spec layer[4] = { { .mixer = MIX_FULL, .ffn = 8 },
				       { .mixer = MIX_NONE, .ffn = 8 },
				       { .mixer = MIX_FULL, .ffn = 8 },
				       { .mixer = MIX_FULL } };
	struct model m = { .n_layers = 4, .hidden = 10, .vocab = 25, .layer = layer, .tp = 2 };
	/* 30 rows of a prompt, and a decode */
	struct batch_entry e[] = { { .n_tok = 30 }, { .n_tok = 1, .kind = ROW_DECODE } };
	const struct batch b = { .entry = e, .n = 2, .prefill_tok = 30, .decode_tok = 1 };
	struct drop_messages drop[] = { { 0, false, 31, 21, { 5, 0 } },
					{ 2, true, 21, 11, { 7, 3 } } };
	struct comm c = { .ring = { 1, 100, 0 }, .gbps = 1 };
	struct iter_cost cost = { .drop_messages = drop, .n_drop_messages = 2 };
	int64_t sums, scores, row = 2 * 10; /* bytes */

	comm_bind(&c, &m, NULL, 0);
	comm_add(&c, &b, &cost, NULL);
	/* of the embedding and layer 0; of layer 1 and the mixer of 2; of its MLP and layer 3 */
	sums = 7 * comm_ns(&c, COMM_REDUCE, 0, false) + (3 * 31 + 2 * 21 + 2 * 11) * row;
	scores = 3 * comm_ns(&c, COMM_GATHER, 0, false) + (5 + 7 + 3) * 4;
	is_int(cost.phase_ns[PHASE_COMM], sums, "behind a dropper sums are of the rows that stay");
	is_int(cost.phase_kernels[PHASE_COMM], 7, "... as many as without");
	is_int(cost.phase_ns[PHASE_COMM_SELECT], scores, "the scores of a dropper are gathered");
	is_int(cost.phase_kernels[PHASE_COMM_SELECT], 3, "... by a message each");
	is_int(cost.cost_ns, sums + scores, "an iteration takes all of them");
	drop[1].rows = 31; /* they come back */
	cost = (struct iter_cost){ .drop_messages = drop, .n_drop_messages = 2 };
	comm_bind(&c, &m, (int[]){ 0, 2 }, 2);
	comm_add(&c, &b, &cost, NULL);
	is_int(cost.cost_ns, sums + 10 * row + scores, "where rows come back, the layer has them");
	is_int(cost.phase_ns[PHASE_COMM],
	       5 * comm_ns(&c, COMM_REDUCE, 0, false) + (4 * 31 + 11) * row,
	       "a phase has the sums of the layers that run");
}

/* With a table messages are counted, those of all layers. */
static void test_messages(void)
{
	struct batch_entry e = { .n_tok = 2, .n_emit = 1 };
	struct batch b = { .entry = &e, .n = 1, .decode_tok = 2 };
	struct comm_table t;
	struct comm c = { .ranks = 4,
			  .table = &t,
			  .n_reduce = 5,
			  .n_run_reduce = 3,
			  .hidden = 100,
			  .vocab = 1000 };
	struct iter_cost cost = { 0 };
	int64_t sent[COMM_KERNELS] = { 0 };
	struct ar_err err;

	put(MAGIC COLUMNS "allreduce bf16 4 1 graph 100 9 1 7 9 ONE\n"
			  "allreduce bf16 4 1 graph 1000 9 1 7 9 TWO\n" GATHERS);
	is_int(load(&t, 4, &err), AR_OK, "a table is read");
	comm_add(&c, &b, &cost, sent);
	b.decode_tok = e.n_tok = 10, e.n_emit = 0;
	comm_add(&c, &b, &cost, sent);
	is_int(sent[0], 5, "small sums are of a kernel");
	is_int(sent[1], 5, "... large ones of another");
	is_int(sent[2], 1, "... and logits of a third");
	comm_table_release(&t);
}

/* Bytes that 8 ranks send of what a rank has, as MiB. */
static double mib(double bytes)
{
	return bytes * 7 / 8 / (1 << 20);
}

/* Of rows, the same number on each of 8 ranks. */
static struct expert_bytes bytes_of(enum expert_way way, int64_t hidden, int64_t n_experts,
				    int64_t rows, bool fp8)
{
	const struct experts_shape s = { (int)n_experts, 8, 8, 1, (int[]){ 0 } };
	struct comm_experts x = { .way = way,
				  .ranks = 8,
				  .n_experts = (int)n_experts,
				  .hidden = hidden,
				  .row_bytes = fp8 ? hidden + hidden / 32 : 2 * hidden };
	const struct experts_most even = { .rows = (double)rows * 8,
					   .sent = (double)rows * experts_spread(&s) };

	return comm_experts_bytes(&x, 8 * rows, rows, &even);
}

static void test_expert_bytes(void)
{
	static const struct {
		const char *name;
		int64_t hidden, n_experts, rows;
		double gather, by_expert, by_rank, combine;
	} want[] = {
		{ "Qwen3 30B-A3B, 1024", 2048, 128, 1024, 28, 14.4, 9.6, 18.7 },
		{ "DeepSeek-V3, 4096", 7168, 256, 4096, 392, 202, 134, 259 },
		{ "DeepSeek-V3, 128", 7168, 256, 128, 12.3, 6.3, 4.2, 8.1 },
	};

	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		const int64_t h = want[i].hidden, n = want[i].n_experts, rows = want[i].rows;
		const struct expert_bytes gather = bytes_of(EXPERT_AGRS, h, n, rows, true);
		const struct expert_bytes rank = bytes_of(EXPERT_A2A, h, n, rows, true);
		const struct expert_bytes expert = bytes_of(EXPERT_A2A_EXPERTS, h, n, rows, true);
		const double logits = (double)(8 * rows * 2 * n);

		ok(fabs(mib(gather.combine) / want[i].gather - 1) < 0.01 &&
			   gather.dispatch == gather.combine + logits,
		   "%s: a rank gathers %.1f MiB, and logits", want[i].name, mib(gather.combine));
		ok(fabs(mib(expert.dispatch) / want[i].by_expert - 1) < 0.01,
		   "... or sends %.1f MiB of fp8 to experts", mib(expert.dispatch));
		ok(fabs(mib(rank.dispatch) / want[i].by_rank - 1) < 0.01,
		   "... or %.1f MiB to ranks", mib(rank.dispatch));
		ok(fabs(mib(rank.combine) / want[i].combine - 1) < 0.01,
		   "... which come back as %.1f MiB", mib(rank.combine));
	}
}

static void test_experts(void)
{
	struct layer_spec layer[3] = {
		{ .mixer = MIX_FULL, .ffn = 8 },
		{ .mixer = MIX_FULL, .ffn = 8, .n_experts = 4, .experts_per_tok = 1 },
		{ .mixer = MIX_FULL, .ffn = 8, .n_experts = 4, .experts_per_tok = 1 }
	};
	struct model m = { .n_layers = 3, .hidden = 10, .layer = layer, .tp = 1 };
	const struct experts_shape shape = { 4, 1, 2, 3, (int[]){ -1, 1, 1 } };
	const struct experts_shape two_each = { 4, 1, 4, 3, (int[]){ -1, 1, 1 } };
	struct batch b = { .prefill_tok = 5 };
	struct ar_err err = { 0 };
	struct comm c = { .ranks = 1, .ring = { 1, 100, 0 }, .gbps = 1, .experts = { .ranks = 2 } };
	struct iter_cost cost = { .cost_ns = 1 };

	if (experts_open(&c.experts.experts, "even", &shape, 0, &err))
		bail_out("%s", err.msg);
	comm_bind(&c, &m, (int[]){ 0, 2 }, 2);
	ok(comm_ranks(&c) == 2 && c.experts.n_layer == 2 && c.experts.n_run_layer == 1,
	   "layers with experts are counted");
	comm_add(&c, &b, &cost, NULL);
	is_int(cost.phase_ns[PHASE_COMM], 100 + 5 * (20 + 8) / 2 + 100 + 5 * 20 / 2,
	       "rows and logits are gathered, and results come back");
	is_int(cost.cost_ns, 1 + 2 * cost.phase_ns[PHASE_COMM], "... in each such layer");
	is_int(cost.phase_kernels[PHASE_COMM], 2, "... by two collectives");
	c.experts.way = EXPERT_A2A;
	b.step = (struct batch_step){ 0, 8, 5 };
	cost = (struct iter_cost){ 0 };
	comm_add(&c, &b, &cost, NULL);
	is_int(cost.phase_ns[PHASE_COMM], 2 * (100 + 4 * 5 / 8.0 * 20),
	       "the engine with 5 of 8 rows sends as much of the 4 of a rank, in bf16");
	layer[2].format[LINEAR_EXPERTS] = (struct linear_format){ .kind = FORMAT_FP8_CHANNEL,
								  .rows = ROWS_TOKEN };
	comm_bind(&c, &m, NULL, 0);
	is_int(c.experts.row_bytes, 10 + 4, "a row of an fp8 product has scales");
	is_int(c.experts.n_run_layer, 2, "all layers are executed");
	is_int(comm_launches(&c), 2 * 2, "... which launches two collectives each");
	experts_close(c.experts.experts);
	if (experts_open(&c.experts.experts, "even", &two_each, 0, &err))
		bail_out("%s", err.msg);
	m.tp = 2;
	c.experts.ranks = 4;
	comm_bind(&c, &m, NULL, 0);
	is_int(c.n_reduce, 1 + 2 + 1 + 1, "ranks of an engine add up all but the experts");
	is_int(comm_launches(&c), 5 + 1 + 2 * 3, "... and launch what all of these are");
	is_int(comm_ns(&c, COMM_GATHER, 40, false), 100 + 20, "... and gather from each other");
	is_int(comm_ns(&c, COMM_COLLECT, 40, false), 100 + 3 * 10, "... and from all engines");
	cost = (struct iter_cost){ 0 };
	comm_add(&c, &b, &cost, NULL);
	is_int(cost.phase_kernels[PHASE_COMM], 5 + 2 * 3, "... in an iteration without logits");
	is_int(cost.phase_ns[PHASE_COMM],
	       5 * 200 + 2 * (150 + comm_ns(&c, COMM_SWAP, 3 * 14, false) +
			      comm_ns(&c, COMM_SWAP, 3 * 20, false)),
	       "a rank with 3 of 8 rows sends as much of the 2 of another");
	experts_close(c.experts.experts);
}

int main(void)
{
	int fd = mkstemp(path);

	if (fd < 0 || close(fd))
		bail_out("no temporary file");
	test_ring();
	test_lookup();
	test_kernels();
	test_bad_files();
	test_iteration();
	test_drops();
	test_messages();
	test_expert_bytes();
	test_experts();
	unlink(path);
	return done_testing();
}
