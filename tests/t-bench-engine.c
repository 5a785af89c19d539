/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of a benchmark, on the host: rows and pages of chunks, the cache that activations
 * fill, and the methods that run on it. */
#include "config.h"
#include "src/bench/bench_engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"

enum { HEADS = 4, KV_HEADS = 2, DIM = 64, BATCH = 3, CONTEXT = 1000, CHUNK = 232, MAX_ROW = 900 };

static const struct attn_shape heads = { HEADS, KV_HEADS, DIM, 0 };
static const struct bench_shape shape = { .q_heads = HEADS,
					  .kv_heads = KV_HEADS,
					  .head_dim = DIM,
					  .batch = BATCH,
					  .chunk = CHUNK,
					  .context = CONTEXT,
					  .left = 50 };

static struct bench_input input_of(int64_t n_tok)
{
	struct bench_input x;
	struct ar_err err;

	if (bench_input_random(&x, &heads, n_tok, 3, &err))
		bail_out("%s", err.msg);
	return x;
}

static enum ar_status try_open(struct bench_engine *e, const struct bench_input *x,
			       const char *method, struct ar_err *err)
{
	const struct bench_engine_env env = {
		.shape = &shape, .input = x, .max_row = MAX_ROW, .seed = 5
	};

	return bench_engine_open(e, &env, method, err);
}

static void must_open(struct bench_engine *e, const struct bench_input *x, const char *method)
{
	struct ar_err err;

	if (try_open(e, x, method, &err))
		bail_out("%s", err.msg);
}

static const struct rows *must_stage(struct bench_engine *e, int ctx, int n)
{
	struct ar_err err;
	size_t used;

	if (bench_engine_rows(e, ctx, n, NULL, &used, &err))
		bail_out("%s", err.msg);
	if (used > e->rows.bytes)
		bail_out("rows need more memory than they said");
	return &e->host.view[0];
}

/* ---- rows ---- */

static void test_rows(void)
{
	struct bench_input x = input_of(CONTEXT);
	struct bench_engine e;
	const struct attn_batch *b;
	const struct rows *r;
	uint8_t seen[3 * 8] = { 0 };
	int bad = 0, moved = 0;

	must_open(&e, &x, "dense");
	r = must_stage(&e, 512, 256);
	b = &r->part[ROW_PREFILL];
	ok(b->rows.n_req == BATCH && b->rows.row0[1] == 256 && b->rows.n_row == BATCH * 256,
	   "a chunk has as many rows as was asked for, in each request");
	ok(b->rows.pos0[2] == 512 && b->rows.pos[256 + 7] == 519, "from its beginning on");
	is_int(b->rows.left[1], CONTEXT + 50 - 768, "what the prompt has after it is left");
	is_int(b->keys.page0[1], 6, "it sees the pages up to its end");
	for (int i = 0; i < BATCH * 256; i++)
		bad += r->row[i].slot !=
		       b->keys.page[i / 256 * 6 + (512 + i % 256) / 128] * 128 + i % 128;
	is_int(bad, 0, "its keys go to them");
	r = must_stage(&e, CONTEXT - CHUNK, CHUNK);
	for (int i = 0; i < BATCH * 8; i++) {
		seen[r->part[ROW_PREFILL].keys.page[i]]++;
		moved += r->part[ROW_PREFILL].keys.page[i] != i;
	}
	for (int i = 0; i < BATCH * 8; i++)
		bad += seen[i] != 1;
	ok(!bad && moved > BATCH * 4, "the prompts share all pages, shuffled");
	is_int(bench_engine_group(&e)->n_page, BATCH * 8, "and there are no more");
	bench_engine_release(&e);
	bench_input_release(&x);
}

/* ---- the cache ---- */

/* The caches and activations of a backend on the host. */
struct host {
	struct bench_engine e;
	struct kv_cache kv;
	bf16_t *q, *k, *out;
	void *state;
};

static void *zeros(size_t n)
{
	void *p = calloc(n, 1);

	if (!p)
		bail_out("no memory");
	return p;
}

static struct attn_call call_of(struct host *h, const struct rows *r)
{
	return (struct attn_call){
		.b = &r->part[ROW_PREFILL], .q = h->q, .kv = h->kv, .state = h->state, .out = h->out
	};
}

/* Run the chunk [ctx, ctx + n): Q, K and V, then the method. */
static void must_run(struct host *h, int ctx, int n, struct selection_count *count)
{
	const struct attn_engine *e = &h->e.engine;
	const struct rows *r = must_stage(&h->e, ctx, n);
	const struct attn_call call = call_of(h, r);
	const struct qkv out = { h->q, h->k, &h->kv };
	struct ar_err err;

	if (e->act->qkv_ref(e->act_self, 0, r->row, r->n_row, NULL, &out, &err) ||
	    method_ref(method_prefill(bench_engine_method(&h->e)), &call, count, &err))
		bail_out("%s", err.msg);
}

static void open_host(struct host *h, const struct bench_input *x, const char *method)
{
	const struct cache_group *g;
	struct ar_err err;

	must_open(&h->e, x, method);
	g = bench_engine_group(&h->e);
	h->kv.k = zeros((size_t)g->n_page * groups_plane_bytes(g, 0));
	h->kv.v = zeros((size_t)g->n_page * groups_plane_bytes(g, 1));
	h->state = zeros((size_t)g->n_page * g->state_bytes + 1);
	h->q = zeros(MAX_ROW * HEADS * DIM * sizeof *h->q);
	h->out = zeros(MAX_ROW * HEADS * DIM * sizeof *h->out);
	h->k = zeros(MAX_ROW * KV_HEADS * DIM * sizeof *h->k);
	if (h->e.engine.act->load_ref(h->e.engine.act_self, &err))
		bail_out("%s", err.msg);
}

static void close_host(struct host *h)
{
	bench_engine_release(&h->e);
	free(h->kv.k);
	free(h->kv.v);
	free(h->state);
	free(h->q);
	free(h->out);
	free(h->k);
}

static void run_all(struct host *h, struct selection_count *count)
{
	for (int at = 0; at < CONTEXT - CHUNK; at += MAX_ROW / BATCH)
		must_run(h, at,
			 at + MAX_ROW / BATCH < CONTEXT - CHUNK ? MAX_ROW / BATCH :
								  CONTEXT - CHUNK - at,
			 count);
	must_run(h, CONTEXT - CHUNK, CHUNK, count);
}

/* Rows of request 1 against double precision over the input's own values. */
static double difference(const struct host *h, const struct bench_input *x)
{
	const int rows[] = { 0, 100, CHUNK - 1 };
	double worst = 0, ref[DIM];

	for (int i = 0; i < 3; i++)
		for (int head = 0; head < HEADS; head++) {
			int pos = CONTEXT - CHUNK + rows[i], kv = head / (HEADS / KV_HEADS);
			size_t at = (size_t)((CHUNK + rows[i]) * HEADS + head) * DIM;
			const bf16_t *q = x->data + (head * CONTEXT + pos) * DIM;
			const bf16_t *k = x->data + (size_t)(HEADS + kv) * CONTEXT * DIM;
			const bf16_t *v = k + (size_t)KV_HEADS * CONTEXT * DIM;

			/* no key is read past the row's own */
			bench_row_ref(attn_engine_shape(&h->e.engine, 0), q, k, v, NULL,
				      CONTEXT / 128 + 1, 0, pos, ref);
			for (size_t d = 0; d < DIM; d++)
				worst = fmax(worst, fabs(bf16_to_f32(h->out[at + d]) - ref[d]));
		}
	return worst;
}

static void test_dense(void)
{
	struct bench_input x = input_of(CONTEXT);
	struct selection_count count[KV_HEADS];
	struct host h = { 0 };
	double off;

	open_host(&h, &x, "dense");
	run_all(&h, count);
	off = difference(&h, &x);
	ok(off > 0 && off < 0.02, "the last chunk attends to all tokens of the input, off by %g",
	   off);
	close_host(&h);
	bench_input_release(&x);
}

/* The K or V of a token of request 0 in KV head 1. */
static const bf16_t *cached(const struct host *h, const bf16_t *x, int pos)
{
	const int32_t page = h->e.host.view[0].part[ROW_PREFILL].keys.page[pos / 128];

	return x + ((size_t)(page * KV_HEADS + 1) * 128 + (size_t)(pos % 128)) * DIM;
}

/* A context longer than the input repeats it: the same V, and K that goes on turning. */
static void test_repeated(void)
{
	struct bench_input x = input_of(400);
	struct selection_count count[KV_HEADS];
	struct host h = { 0 };
	bool same_v, same_k;

	open_host(&h, &x, "dense");
	run_all(&h, count);
	same_v = !memcmp(cached(&h, h.kv.v, 5), cached(&h, h.kv.v, 805), DIM * sizeof(bf16_t));
	same_k = !memcmp(cached(&h, h.kv.k, 5), cached(&h, h.kv.k, 805), DIM * sizeof(bf16_t));
	ok(same_v && !same_k, "position 805 has V of token 5, and K of another position");
	ok(!memcmp(cached(&h, h.kv.k, 5), x.data + ((HEADS + 1) * 400 + 5) * DIM,
		   DIM * sizeof(bf16_t)),
	   "K of the first copy is the input's");
	close_host(&h);
	bench_input_release(&x);
}

/* ---- methods ---- */

static int64_t selected(struct host *h)
{
	struct selection_count count[KV_HEADS];

	must_run(h, CONTEXT - CHUNK, CHUNK, count);
	return count[0].tiles_sel + count[1].tiles_sel;
}

static void test_use(void)
{
	struct bench_input x = input_of(CONTEXT);
	struct selection_count count[KV_HEADS];
	struct host h = { 0 }, fresh = { 0 };
	struct ar_err err;
	int64_t few, many;

	open_host(&h, &x, "compact-fp:alpha=0.9");
	run_all(&h, count);
	few = selected(&h);
	if (bench_engine_use(&h.e, "compact-fp:alpha=0.01", &err))
		bail_out("%s", err.msg);
	many = selected(&h);
	open_host(&fresh, &x, "compact-fp:alpha=0.01");
	run_all(&fresh, count);
	ok(few < many && many == selected(&fresh),
	   "a lower threshold selects more, as if from the start");
	is_int(bench_engine_use(&h.e, "0:dense;1-:compact-fp", &err), AR_USAGE,
	       "a plan of layers is refused");
	is_int(bench_engine_use(&h.e, "dense+uniprefill:layers=5", &err), AR_USAGE,
	       "and so is a dropper that does not act after the layer");
	is_int(selected(&h), many, "after which the method is the one before");
	close_host(&h);
	close_host(&fresh);
	bench_input_release(&x);
}

/* Heads 2 and 3 repeat heads 0 and 1 of the pattern's file, so its entry "2" is not read. */
static void test_repeated_heads(void)
{
	static const char path[] = "t-bench-engine.json", text[] = "[{\"2\": \"no pattern\"}]";
	struct bench_input x = input_of(CONTEXT);
	enum ar_status st[2];
	struct ar_err err;

	file_write(path, text, sizeof text - 1);
	for (int i = 0; i < 2; i++) {
		struct bench_engine e;

		x.repeats = i + 1;
		st[i] = try_open(&e, &x, "minference:pattern=t-bench-engine.json", &err);
		bench_engine_release(&e);
	}
	ok(st[0] == AR_DATA && !st[1], "a selector knows that heads of the input are repeated");
	unlink(path);
	bench_input_release(&x);
}

/* ---- no memory ---- */

static void test_faults(void)
{
	struct bench_input x = input_of(CONTEXT);
	struct bench_engine e;
	struct ar_err err = { 0 };
	int bad = 0, opened = 0;

	for (long k = 0, done = 0; !done; k++) {
		enum ar_status st;

		fault_arm(k);
		st = try_open(&e, &x, "compact-fp", &err);
		done = !fault_disarm();
		bad += st != (done ? AR_OK : AR_NOMEM);
		opened++;
		if (!done)
			bench_engine_release(&e);
	}
	ok(opened > 10 && !bad, "%d allocations fail in turn, and the engine says so", opened - 1);
	for (long k = 0, done = 0; !done; k++) {
		const struct method *before = bench_engine_method(&e);
		enum ar_status st;

		fault_arm(k);
		st = bench_engine_use(&e, "compact-fp:alpha=0.3", &err);
		done = !fault_disarm();
		bad += st != (done ? AR_OK : AR_NOMEM) ||
		       (bench_engine_method(&e) == before) != !done;
	}
	is_int(bad, 0, "and without memory for another method it keeps the one that it has");
	bench_engine_release(&e);
	bench_input_release(&x);
}

int main(void)
{
	plan(0);
	test_rows();
	test_dense();
	test_repeated();
	test_use();
	test_repeated_heads();
	test_faults();
	return done_testing();
}
