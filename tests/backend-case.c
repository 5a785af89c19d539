/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/backend-case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rng.h"
#include "kernels/layer/layer.h"
#include "model/rope.h"
#include "tests/file.h"
#include "tests/gate_file.h"
#include "tests/tap.h"

enum {
	DIM = CASE_DIM,
	ROWS = CASE_HEADS + 2 * CASE_KV_HEADS,
	BASE_TOK = CASE_LEN / 3,
	CAPTURED = 2
};

static const struct rope rope = { .theta = 10000 };
static const struct rope yarn = { .theta = 10000,
				  .type = ROPE_YARN,
				  .factor = 4,
				  .original_len = 128,
				  .beta_fast = 32,
				  .beta_slow = 1,
				  .truncate = 1 };
static const int captured_layer[CASE_LAYERS] = { 0, 0, 1, 1 };
static const int run_layer[CASE_RUN_LAYERS] = { 1, 2 };
static const int mixed_captured[CASE_LAYERS] = { 0, -1, 0, 1 };
static const int every_run[CASE_LAYERS] = { 0, 1, 2, 3 };
static const uint16_t capture_of[2][CASE_REQ] = { { 0 }, { 0, 1 } }; /* by how->twice */

/* ---- the capture ---- */

/* Draw Q, K and V of one captured layer before RoPE, [ROWS][BASE_TOK][DIM].  Ranges of keys share a
 * direction in the slowly rotating pairs, and ranges of queries match one such direction.  So
 * selectors have something to find. */
static void draw_layer(int layer, bf16_t *x)
{
	enum { STRETCH = 60, N = BASE_TOK / STRETCH };
	struct rng r = { (uint64_t)layer + 5 };
	float dir[N][DIM];

	for (int i = 0; i < N * DIM; i++)
		dir[i / DIM][i % DIM] = i % (DIM / 2) < 3 * DIM / 8 ? 0 : 2 * rng_normal(&r);
	for (int h = 0; h < CASE_HEADS + CASE_KV_HEADS; h++)
		for (int t = 0, look = 0; t < BASE_TOK; t++) {
			if (t % STRETCH == 0)
				look = h < CASE_HEADS ? (int)rng_below(&r, N) : t / STRETCH;
			for (int i = 0; i < DIM; i++)
				*x++ = bf16_from_f32(rng_normal(&r) + dir[look][i]);
		}
	for (int i = 0; i < CASE_KV_HEADS * BASE_TOK * DIM; i++)
		*x++ = bf16_from_f32(rng_normal(&r));
}

/* Write token tok of all heads as it is in the file, to[ROWS][n_tok][DIM]. */
static void place_token(const bf16_t *base, const float *trig, int tok, int n_tok, bool rotate,
			bf16_t *to)
{
	const struct attn_shape s = { CASE_HEADS, CASE_KV_HEADS, DIM, 128 };
	const struct layer_seq seq = { base, BASE_TOK };
	const struct layer_row row = { tok % BASE_TOK, rotate ? tok : 0, 0 };
	bf16_t q[CASE_HEADS * DIM], k[CASE_KV_HEADS * DIM];

	layer_rope_ref(&s, &seq, 0, &row, 1, &(struct layer_angles){ trig, DIM, 1 }, q, k);
	for (int h = 0; h < ROWS; h++) {
		const bf16_t *from = h < CASE_HEADS ? q + h * DIM :
				     h < CASE_HEADS + CASE_KV_HEADS ?
						      k + (h - CASE_HEADS) * DIM :
						      base + (h * BASE_TOK + tok % BASE_TOK) * DIM;

		memcpy(to + (h * n_tok + tok) * DIM, from, DIM * sizeof *to);
	}
}

static void write_header(FILE *f, int n_tok, const struct case_how *how)
{
	char text[2048];
	size_t n = 0, at = 0;
	uint64_t len;

	n += (size_t)sprintf(text + n,
			     "{\"__metadata__\":{\"rope_applied\":\"%s\",%s%s"
			     "\"n_prompt\":\"%d\",\"model\":\"small\"}",
			     how->rope_applied ? "true" : "false",
			     how->rope_unknown ? "" : "\"rope_theta\":\"10000\",",
			     how->yarn ? "\"rope_scaling\":\"{\\\"rope_type\\\":\\\"yarn\\\","
					 "\\\"factor\\\":4,"
					 "\\\"original_max_position_embeddings\\\":128}\"," :
					 "",
			     n_tok);
	for (int l = 0; l < CAPTURED; l++)
		for (int t = 0; t < 3; t++) {
			int heads = t ? CASE_KV_HEADS : CASE_HEADS;
			size_t bytes = (size_t)(heads * n_tok * DIM) * sizeof(bf16_t);

			n += (size_t)sprintf(
				text + n,
				",\"layers.%d.%c\":{\"dtype\":\"BF16\",\"shape\":[%d,%d,%d],"
				"\"data_offsets\":[%zu,%zu]}",
				l * 2, "qkv"[t], heads, n_tok, DIM, at, at + bytes);
			at += bytes;
		}
	text[n++] = '}';
	len = n;
	if (fwrite(&len, sizeof len, 1, f) != 1 || fwrite(text, 1, n, f) != n)
		bail_out("cannot write a capture");
}

static void write_capture(FILE *f, const struct case_how *how)
{
	const struct rope *r = how->yarn ? &yarn : &rope;
	int n_tok = how->tile ? BASE_TOK : CASE_LEN;
	float inv[DIM / 2], *trig = calloc((size_t)n_tok * DIM, sizeof *trig);
	bf16_t *base = calloc((size_t)ROWS * BASE_TOK * DIM, sizeof *base);
	size_t n = (size_t)ROWS * (size_t)n_tok * DIM;
	bf16_t *x = calloc(n, sizeof *x);

	if (!trig || !base || !x)
		bail_out("out of memory");
	rope_inv_freq(r, DIM, inv);
	layer_trig_ref(inv, DIM / 2, n_tok, how->rope_applied ? (float)rope_attention_factor(r) : 1,
		       trig);
	write_header(f, n_tok, how);
	for (int l = 0; l < CAPTURED; l++) {
		draw_layer(l, base);
		for (int t = 0; t < n_tok; t++)
			place_token(base, trig, t, n_tok, how->rope_applied, x);
		if (fwrite(x, sizeof *x, n, f) != n)
			bail_out("cannot write a capture");
	}
	free(trig);
	free(base);
	free(x);
}

static struct capture *make_capture(const struct case_how *how)
{
	char path[] = "/tmp/t-backend-XXXXXX";
	int fd = mkstemp(path);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
	struct capture *c;
	struct ar_err err;
	enum ar_status st;

	if (!f)
		bail_out("cannot make a temporary file");
	write_capture(f, how);
	if (fclose(f))
		bail_out("cannot write a capture");
	st = capture_open(&c, path, &err);
	unlink(path);
	if (st)
		bail_out("%s", err.msg);
	return c;
}

static void open_capture(struct backend_case *c, const struct case_how *how)
{
	struct case_how other = *how;

	other.rope_applied = !how->rope_applied;
	c->capture[0] = make_capture(how);
	c->capture[1] = how->one_of_each ? make_capture(&other) : c->capture[0];
}

static void draw_capture(struct backend_case *c)
{
	const struct capture_info shape = { .n_layers = CASE_LAYERS,
					    .q_heads = CASE_HEADS,
					    .kv_heads = CASE_KV_HEADS,
					    .head_dim = DIM,
					    .n_tok = CASE_LEN };
	struct ar_err err;

	if (capture_random(&c->capture[0], "random:1", &shape, &err))
		bail_out("%s", err.msg);
	c->capture[1] = c->capture[0];
}

/* ---- the backend ---- */

void *case_options(const struct backend *b, const char *name, const char *value)
{
	void *opts = b->opts ? calloc(1, b->opts_size) : NULL;
	struct opt_group g[] = { { .opts = b->opts, .base = opts }, { 0 } };
	struct ar_err err;

	if (b->opts && !opts)
		bail_out("out of memory");
	if (b->opts && (opt_init(g, &err) || (name && opt_set(g, name, value, &err))))
		bail_out("%s", err.msg);
	return opts;
}

void case_options_free(const struct backend *b, void *opts)
{
	struct opt_group g[] = { { .opts = b->opts, .base = opts }, { 0 } };

	if (b->opts)
		opt_release(g);
	free(opts);
}

static void set_mixers(struct backend_case *c)
{
	c->layer[1] = (struct layer_spec){ .mixer = MIX_LINEAR,
					   .delta = { 1, 2, DIM, DIM, 4 },
					   .ffn = 128 };
	c->layer[3].mixer = MIX_WINDOW;
	c->layer[3].window = CASE_WINDOW;
	c->layer[3].sinks = 1;
	c->model.rope_window.theta = CASE_WINDOW_THETA;
}

enum ar_status case_open(struct backend_case *c, const struct backend *b,
			 const struct case_how *how, struct ar_err *err)
{
	void *opts = case_options(b, how->eager ? "enforce-eager" : NULL, "1");
	enum ar_status st;

	*c = (struct backend_case){ .backend = b };
	for (int i = 0; i < CASE_REQ; i++)
		c->req[i] = (struct request){ .prompt_tok = CASE_LEN - 10, .output_tok = 10 };
	c->trace = (struct trace){ .req = c->req, .n = CASE_REQ };
	for (int i = 0; i < CASE_LAYERS; i++)
		c->layer[i] = (struct layer_spec){ .mixer = MIX_FULL,
						   .q_heads = CASE_HEADS,
						   .kv_heads = CASE_KV_HEADS,
						   .head_dim = DIM,
						   .ffn = 128,
						   .n_experts = how->n_experts,
						   .experts_per_tok = how->n_experts ? 2 : 0 };
	c->model = (struct model){ .name = "small",
				   .n_layers = CASE_LAYERS,
				   .hidden = 64,
				   .layer = c->layer,
				   .vocab = 1001,
				   .max_len = CASE_LEN,
				   .tp = 1,
				   .rope = how->rope_unknown || how->rope_long ?
						   (struct rope){ 0 } :
						   rope };
	if (how->mixed)
		set_mixers(c);
	if (how->rope_long)
		strcpy(c->model.rope_unknown, "rope type 'longrope'");
	if (how->random)
		draw_capture(c);
	else
		open_capture(c, how);
	if (plan_parse(&c->plan, how->method, err))
		bail_out("%s", err->msg);
	c->env = (struct backend_env){
		.trace = &c->trace,
		.model = &c->model,
		.capture = c->capture,
		.n_capture = how->twice ? 2 : 1,
		.capture_of = capture_of[how->twice],
		.captured_layer = how->mixed ? mixed_captured : captured_layer,
		.run_layer = how->mixed || how->every ? every_run : run_layer,
		.n_run_layers = how->mixed || how->every ? CASE_LAYERS : CASE_RUN_LAYERS,
		.tile = how->tile,
		.plan = c->plan,
		.evict = how->evict ? how->evict : plan_evict(c->plan),
		.max_batched_tok = CASE_LEN,
		.max_seqs = 4,
		.max_len = CASE_LEN,
		.max_draft_tok = how->max_draft_tok,
		.num_blocks = 240,
		.memory_share = 0.9,
		.block_tok = 16,
		.blocks = &c->blocks,
		.seed = 3,
		.attention_only = !how->decoder,
		.prof = how->prof,
	};
	st = backend_open(b, &c->self, opts, &c->env, err);
	case_options_free(b, opts);
	if (!st && backend_start(b, c->self, c->env.num_blocks, err))
		bail_out("%s", err->msg);
	return st;
}

void case_close(struct backend_case *c)
{
	if (c->self)
		backend_close(c->backend, c->self);
	blocks_release(&c->blocks);
	plan_free(c->plan);
	if (c->capture[1] != c->capture[0])
		capture_close(c->capture[1]);
	capture_close(c->capture[0]);
}

void case_run(struct backend_case *c, struct batch_entry *entry, size_t n, struct iter_cost *cost)
{
	struct batch b = { .entry = entry, .n = n, .blocks = &c->blocks };
	struct ar_err err;

	for (size_t i = 0; i < n; i++)
		*(entry[i].kind == ROW_DECODE ? &b.decode_tok : &b.prefill_tok) += entry[i].n_tok;
	if (backend_run(c->backend, c->self, &b, cost, &err))
		bail_out("%s", err.msg);
}

void case_drop(struct backend_case *c, uint32_t req)
{
	blocks_leave(&c->blocks, req);
	backend_drop(c->backend, c->self, req);
}

void case_compare(struct backend_case *c, const struct batch_entry *e, struct case_result *out)
{
	struct ar_err err;

	memset(out, 0, sizeof *out);
	for (int i = 0; i < CASE_RUN_LAYERS; i++)
		if (backend_compare(c->backend, c->self, e, i, out->acc[i], out->count[i], NULL,
				    &err))
			bail_out("%s", err.msg);
}

bool case_same_counts(const struct case_result *a, const struct case_result *b)
{
	return !memcmp(a->count, b->count, sizeof a->count);
}

double case_distance(const struct case_result *a, const struct case_result *b)
{
	double most = 0;

	for (int i = 0; i < CASE_RUN_LAYERS; i++)
		for (int h = 0; h < CASE_HEADS; h++) {
			const struct accuracy *x = &a->acc[i][h], *y = &b->acc[i][h];

			most = fmax(most, fabs(x->rel_l2 - y->rel_l2));
			most = fmax(most, fabs(x->cosine - y->cosine));
			most = fmax(most, fabs(x->mass_recall - y->mass_recall));
		}
	return most;
}

double case_largest_error(const struct case_result *r)
{
	double most = 0;

	for (int i = 0; i < CASE_RUN_LAYERS; i++)
		for (int h = 0; h < CASE_HEADS; h++)
			most = fmax(most, r->acc[i][h].rel_l2);
	return most;
}

/* ---- properties ---- */

#define SPARSE \
	"select=flashprefill,alpha=0.7,sink=1,window=1,dense-first=0/union=none/exec=blocksparse"

static const struct batch_entry last_chunk = {
	.start = 600, .n_tok = 110, .known = 710, .n_emit = 1
};

static void open_or_bail(struct backend_case *c, const struct backend *b,
			 const struct case_how *how)
{
	struct ar_err err;

	if (case_open(c, b, how, &err))
		bail_out("%s", err.msg);
}

/* Run the last chunk of a request after its first 600 tokens. */
static void run_request(struct backend_case *c, uint32_t req, struct case_result *out)
{
	struct batch_entry e[] = { { .n_tok = 600 }, last_chunk };
	struct iter_cost cost;

	for (int i = 0; i < 2; i++) {
		e[i].req = req;
		case_run(c, &e[i], 1, &cost);
	}
	case_compare(c, &e[1], out);
}

static void run_whole(struct backend_case *c, struct case_result *out)
{
	run_request(c, 0, out);
}

static void result_of(const struct backend *b, const struct case_how *how, struct case_result *out)
{
	struct backend_case c;

	open_or_bail(&c, b, how);
	run_whole(&c, out);
	case_close(&c);
}

static void test_dense(const struct backend *b)
{
	struct case_result r;
	double missing = 0;

	result_of(b, &(struct case_how){ .method = "dense" }, &r);
	for (int i = 0; i < CASE_RUN_LAYERS; i++)
		for (int h = 0; h < CASE_HEADS; h++)
			missing = fmax(missing, r.acc[i][h].max_abs + 1 - r.acc[i][h].mass_recall);
	ok(case_largest_error(&r) == 0 && missing == 0, "%s: dense differs from dense by nothing",
	   b->name);
	ok(r.count[0][0].exec_sel == r.count[0][0].exec_total && r.count[0][0].exec_total > 0,
	   "%s: dense runs every pair", b->name);
	result_of(b, &(struct case_how){ .method = "compact-fp:alpha=0" }, &r);
	ok(case_largest_error(&r) < 5e-3, "%s: a threshold of 0 equals dense", b->name);
	ok(r.count[1][1].group_sel == r.count[1][1].group_total, "%s: and keeps every block",
	   b->name);
}

/* A decode is compared with dense attention of its row over all keys. */
static void test_decode(const struct backend *b)
{
	struct batch_entry e[] = { { .n_tok = 600 },
				   { .start = 600, .n_tok = 1, .kind = ROW_DECODE },
				   { .start = 601, .n_tok = 1, .kind = ROW_DECODE } };
	struct case_result r;
	struct iter_cost cost;
	struct backend_case c;

	open_or_bail(&c, b, &(struct case_how){ .method = SPARSE });
	for (int i = 0; i < 3; i++)
		case_run(&c, &e[i], 1, &cost);
	for (int i = 1; i < 3; i++) {
		case_compare(&c, &e[i], &r);
		ok(case_largest_error(&r) == 0 && r.acc[1][CASE_HEADS - 1].mass_recall == 1 &&
			   r.acc[1][0].cosine > 0.999,
		   "%s: dense decode %d differs from dense by nothing", b->name, i);
		is_int(r.count[1][1].exec_sel,
		       (CASE_HEADS / CASE_KV_HEADS) * ((int64_t)e[i].start + 1),
		       "%s: and runs every pair", b->name);
		is_int(r.count[1][1].exec_total, r.count[1][1].exec_sel, "%s: ... of all", b->name);
	}
	case_close(&c);
}

static void test_histories(const struct backend *b, const char *what, const char *method)
{
	const struct case_how how = { .method = method };
	struct batch_entry first = { .n_tok = 600 }, chunk[] = { { .n_tok = 300 },
								 { .start = 300, .n_tok = 84 },
								 { .start = 384, .n_tok = 216 } };
	struct batch_entry mixed[] = {
		{ .req = 1, .n_tok = 200 },
		last_chunk,
		{ .req = 2, .start = 500, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 }
	};
	struct batch_entry last = last_chunk, e;
	struct case_result whole, other;
	struct iter_cost cost;
	struct backend_case c;

	open_or_bail(&c, b, &how);
	run_whole(&c, &whole);
	ok(whole.count[0][0].tiles_sel < whole.count[0][0].tiles_total &&
		   case_largest_error(&whole) > 0,
	   "%s, %s: blocks are left out", b->name, what);
	case_drop(&c, 0);
	for (int i = 0; i < 3; i++)
		case_run(&c, &chunk[i], 1, &cost);
	case_run(&c, &last, 1, &cost);
	case_compare(&c, &last, &other);
	ok(case_same_counts(&whole, &other) && case_distance(&whole, &other) == 0,
	   "%s, %s: a prompt in chunks fills the same cache", b->name, what);

	case_drop(&c, 0);
	case_run(&c, &first, 1, &cost);
	case_drop(&c, 0);
	case_run(&c, &mixed[0], 1, &cost); /* takes the pages of the preempted request */
	run_whole(&c, &other);
	ok(case_same_counts(&whole, &other) && case_distance(&whole, &other) == 0,
	   "%s, %s: a request preempted and recomputed is as before", b->name, what);

	case_drop(&c, 0);
	case_drop(&c, 1);
	case_run(&c, mixed, 3, &cost);
	case_compare(&c, &last, &other);
	ok(case_same_counts(&whole, &other) && case_distance(&whole, &other) == 0,
	   "%s, %s: a prefix that was never run here is filled in, also in a mixed batch", b->name,
	   what);
	ok(cost.cost_ns > 0, "%s, %s: a mixed batch takes time", b->name, what);

	case_drop(&c, 0);
	for (e = (struct batch_entry){ .n_tok = 200 }; e.start < last.start;
	     e = (struct batch_entry){ .start = e.start + e.n_tok, .n_tok = 1, .kind = ROW_DECODE })
		case_run(&c, &e, 1, &cost);
	case_run(&c, &last, 1, &cost);
	case_compare(&c, &last, &other);
	ok(case_same_counts(&whole, &other) && case_distance(&whole, &other) == 0,
	   "%s, %s: pages that decodes filled are known to the selector of the next chunk", b->name,
	   what);
	case_close(&c);
}

/* Write a file of block patterns for all heads. */
static void write_patterns(const char *path)
{
	char text[1024];
	size_t n = 0;

	for (int l = 0; l < CASE_LAYERS; l++)
		for (int h = 0; h < CASE_HEADS; h++)
			n += (size_t)snprintf(text + n, sizeof text - n,
					      "%s\"%d\":[\"block_sparse\",8,1,1]%s",
					      h ? "," :
					      l ? ",{" :
						  "[{",
					      h,
					      h < CASE_HEADS - 1  ? "" :
					      l < CASE_LAYERS - 1 ? "}" :
								    "}]");
	file_write(path, text, n);
}

/* Test every kind of selector state: means of keys in bf16 (with lists and with a union) and in
 * fp32, and keys of a gate. */
static void test_states(const struct backend *b)
{
	const struct gate_file gate = { CASE_LAYERS, CASE_HEADS, 0, DIM };
	char path[] = "/tmp/t-backend-XXXXXX", seer[128], minference[128];
	struct rng rng = { 21 };
	enum log_level level = log_level;
	int fd = mkstemp(path);

	if (fd < 0 || close(fd))
		bail_out("cannot make a temporary file");
	log_level = LOG_ERROR;
	test_histories(b, "flexprefill", "flexprefill:tau=1,gamma=0.5,min-budget=128");
	write_patterns(path);
	snprintf(minference, sizeof minference, "minference:pattern=%s,blocks=4", path);
	test_histories(b, "minference", minference);
	gate_write(path, &gate, 0, 1, &rng, NULL);
	snprintf(seer, sizeof seer, "seer:gate=%s,threshold=0.1", path);
	test_histories(b, "flashprefill", SPARSE);
	test_histories(b, "compact-fp", "compact-fp:alpha=0.7,sink=1,window=1,dense-first=0");
	test_histories(b, "seer", seer);
	log_level = level;
	unlink(path);
}

/* The results of one executed layer alone. */
static struct case_result layer_of(const struct case_result *r, int i)
{
	struct case_result one = { 0 };

	memcpy(one.acc[0], r->acc[i], sizeof one.acc[0]);
	memcpy(one.count[0], r->count[i], sizeof one.count[0]);
	return one;
}

static bool same_layer(const struct case_result *x, const struct case_result *y, int i)
{
	struct case_result a = layer_of(x, i), b = layer_of(y, i);

	return case_same_counts(&a, &b) && case_distance(&a, &b) == 0;
}

/* Each layer of a plan has the results of a run with its method alone. */
static void test_plan(const struct backend *b)
{
	static const char lists[] = SPARSE, tables[] = "compact-fp:alpha=0.7,sink=1,dense-first=0";
	char text[256];
	struct case_result first, second, both;

	result_of(b, &(struct case_how){ .method = lists }, &first);
	result_of(b, &(struct case_how){ .method = tables }, &second);
	ok(!same_layer(&first, &second, 0) && !same_layer(&first, &second, 1),
	   "%s: two methods differ in each layer", b->name);
	snprintf(text, sizeof text, "0-1:%s;2-:%s", lists, tables);
	result_of(b, &(struct case_how){ .method = text }, &both);
	ok(same_layer(&both, &first, 0) && same_layer(&both, &second, 1),
	   "%s: a plan runs each in its layers", b->name);
	snprintf(text, sizeof text, "0:%s;2-:dense;1:%s", lists, tables);
	result_of(b, &(struct case_how){ .method = text }, &both);
	result_of(b, &(struct case_how){ .method = "dense" }, &first);
	ok(same_layer(&both, &second, 0) && same_layer(&both, &first, 1),
	   "%s: ... beside dense layers", b->name);
}

static void test_captures(const struct backend *b, double tolerance)
{
	struct case_result post, pre, tiled, tiled_post, first, second;
	struct backend_case c;
	struct ar_err err;

	result_of(b, &(struct case_how){ .method = SPARSE, .rope_applied = true }, &post);
	result_of(b, &(struct case_how){ .method = SPARSE }, &pre);
	ok(case_same_counts(&post, &pre) && case_distance(&post, &pre) <= tolerance,
	   "%s: captures before and after RoPE give the same", b->name);
	result_of(b, &(struct case_how){ .method = SPARSE, .tile = true }, &tiled);
	ok(case_same_counts(&tiled, &pre) && case_distance(&tiled, &pre) <= tolerance,
	   "%s: tiling equals a capture that repeats itself", b->name);
	/* Two roundings instead of one: a block near the threshold may be kept or not. */
	result_of(b, &(struct case_how){ .method = SPARSE, .tile = true, .rope_applied = true },
		  &tiled_post);
	ok(case_distance(&tiled_post, &pre) < 0.1, "%s: tiling works after RoPE: off by %g",
	   b->name, case_distance(&tiled_post, &pre));
	result_of(b, &(struct case_how){ .method = SPARSE, .rope_applied = true, .yarn = true },
		  &tiled);
	result_of(b, &(struct case_how){ .method = SPARSE, .yarn = true }, &tiled_post);
	ok(case_same_counts(&tiled, &tiled_post) &&
		   case_distance(&tiled, &tiled_post) <= tolerance &&
		   case_distance(&tiled, &post) > 0.01,
	   "%s: before and after a RoPE with an attention factor, too", b->name);
	is_int(case_open(&c, b,
			 &(struct case_how){ .method = "dense",
					     .twice = true,
					     .one_of_each = true,
					     .yarn = true },
			 &err),
	       AR_DATA, "%s: but not one of each", b->name);
	ok(strstr(err.msg, "one is before RoPE, the other after it") != NULL, "... by name: %s",
	   err.msg);
	case_close(&c);
	open_or_bail(&c, b, &(struct case_how){ .method = SPARSE, .twice = true });
	run_request(&c, 0, &first);
	run_request(&c, 1, &second);
	ok(case_same_counts(&first, &pre) && case_distance(&first, &pre) == 0 &&
		   case_same_counts(&second, &pre) && case_distance(&second, &pre) == 0,
	   "%s: two captures give each request its own", b->name);
	case_close(&c);
}

/* An unknown RoPE base is accepted when nothing is rotated, and refused otherwise. */
static void test_unknown_rope(const struct backend *b)
{
	static const char *const why[] = {
		"neither the capture nor the model says how",
		"which is not known; pack the capture with its rope_theta",
		"of rope type 'longrope', which model small has, are not known; replay captures "
		"after",
		"but rope type 'longrope' cannot be undone; use a method without a gate",
		"of rope type 'longrope', which model small has, are not known; replay captures "
		"after",
	};
	const struct case_how asks[] = {
		{ .method = "dense", .rope_applied = true, .rope_unknown = true, .tile = true },
		{ .method = "seer:gate=mean", .rope_applied = true, .rope_unknown = true },
		{ .method = "dense", .rope_applied = true, .rope_long = true, .tile = true },
		{ .method = "seer:gate=mean", .rope_applied = true, .rope_long = true },
		{ .method = "dense", .rope_long = true }
	};
	struct case_result known, unknown, longer;
	struct backend_case c;
	struct ar_err err;

	result_of(b, &(struct case_how){ .method = SPARSE, .rope_applied = true }, &known);
	result_of(b,
		  &(struct case_how){
			  .method = SPARSE, .rope_applied = true, .rope_unknown = true },
		  &unknown);
	ok(case_same_counts(&known, &unknown) && case_distance(&known, &unknown) == 0,
	   "%s: rows that are not turned need no rotary embedding", b->name);
	result_of(b,
		  &(struct case_how){ .method = SPARSE, .rope_applied = true, .rope_long = true },
		  &longer);
	ok(case_same_counts(&known, &longer) && case_distance(&known, &longer) == 0,
	   "%s: nor its angles", b->name);
	for (int i = 0; i < 5; i++) {
		is_int(case_open(&c, b, &asks[i], &err), AR_DATA,
		       "%s, %s: where it is needed, none is refused", b->name, asks[i].method);
		ok(strstr(err.msg, why[i]) != NULL, "... by name: %s", err.msg);
		case_close(&c);
	}
}

static void test_errors(const struct backend *b)
{
	struct batch_entry past = { .start = 0, .n_tok = 10 },
			   many[] = { { .req = 0, .n_tok = 1 }, { .req = 1, .n_tok = CASE_LEN } };
	struct iter_cost cost = { .cost_ns = 77 };
	struct ar_err err;
	struct backend_case c;

	open_or_bail(&c, b, &(struct case_how){ .method = "dense" });
	past.start = CASE_LEN - 5;
	ok(backend_run(c.backend, c.self,
		       &(struct batch){ .entry = &past, .n = 1, .blocks = &c.blocks }, &cost,
		       &err) != AR_OK,
	   "%s: positions past the longest request are refused", b->name);
	case_drop(&c, 0);
	is_int(backend_run(c.backend, c.self,
			   &(struct batch){ .entry = many, .n = 2, .blocks = &c.blocks }, &cost,
			   &err),
	       AR_USAGE, "%s: so are more tokens than a batch can have", b->name);
	is_int(cost.cost_ns, 77, "%s: a failure leaves the cost alone", b->name);
	case_close(&c);
}

void case_test_all(const struct backend *b, double tolerance)
{
	test_dense(b);
	test_decode(b);
	test_states(b);
	test_plan(b);
	test_captures(b, tolerance);
	test_unknown_rope(b);
	test_errors(b);
}
