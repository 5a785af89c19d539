/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/mixed-case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "replay/engine/act_capture.h"
#include "replay/engine/attn_engine.h"
#include "tests/tap.h"

enum { START = 600, N_TOK = 110, END = START + N_TOK, WINDOW_LAYER = 3, PAGE_TOK = 128 };
enum { N_PAGE = (CASE_LEN + PAGE_TOK - 1) / PAGE_TOK, HEADS = CASE_HEADS, DIM = CASE_DIM };

static const char sparse[] =
	"select=flashprefill,alpha=0.7,sink=1,window=1,dense-first=0/union=none/exec=blocksparse";
static const struct batch_entry last_chunk = {
	.start = START, .n_tok = N_TOK, .known = END, .n_emit = 1
};

/* Results of the last chunk of request 0: of the full layers against dense, of the window layer its
 * output. */
struct result {
	struct accuracy acc[2][HEADS];
	struct selection_count count[2][CASE_KV_HEADS];
	bf16_t out[N_TOK][HEADS][DIM];
};

static bool same(const struct result *a, const struct result *b)
{
	return !memcmp(a, b, sizeof *a);
}

/* ---- the window layer, computed naively ---- */

/* Q of the rows from START on, K and V of all rows, after RoPE, as the activations give them. */
struct naive {
	bf16_t q[CASE_LEN][HEADS][DIM], k[CASE_LEN][CASE_KV_HEADS][DIM];
	bf16_t cache_k[N_PAGE][CASE_KV_HEADS][PAGE_TOK][DIM];
	bf16_t cache_v[N_PAGE][CASE_KV_HEADS][PAGE_TOK][DIM];
	float sink[HEADS];
	bool positions; /* which the window counts */
};

static void read_sinks(const struct backend_env *env, float sink[HEADS])
{
	struct backend_env e = *env;
	struct attn_engine engine;
	struct ar_err err;

	if (plan_parse(&e.plan, "dense", &err) || attn_engine_open(&engine, &e, false, &err))
		bail_out("%s", err.msg);
	memcpy(sink, attn_engine_sink(&engine, engine.sink, WINDOW_LAYER), HEADS * sizeof *sink);
	ok(!attn_engine_sink(&engine, engine.sink, 0) && sink[0] != sink[1],
	   "a layer has sinks, another has none");
	attn_engine_release(&engine);
	plan_free(e.plan);
}

struct naive *naive_open(const struct backend_env *env)
{
	const struct attn_shape shape = { HEADS, CASE_KV_HEADS, DIM, PAGE_TOK };
	const struct activations *a = &activations_capture;
	struct naive *x = calloc(1, sizeof *x);
	struct layer_row row[CASE_LEN];
	struct ar_err err;
	void *self;

	if (!x)
		bail_out("out of memory");
	if (a->open(&self, env, &shape, &err) || a->load_ref(self, &err) ||
	    a->begin(self, 0, 0, CASE_LEN, row, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < CASE_LEN; i++)
		row[i].slot = i;
	if (a->qkv_ref(self, WINDOW_LAYER, row, CASE_LEN, NULL,
		       &(struct qkv){ x->q[0][0], x->k[0][0],
				      &(struct kv_cache){ .k = x->cache_k[0][0][0],
							  .v = x->cache_v[0][0][0] } },
		       &err))
		bail_out("%s", err.msg);
	a->close(self);
	read_sinks(env, x->sink);
	return x;
}

/* out[DIM]: head h of the i-th row, over itself and the keys in the window before it. */
static void attend(const struct naive *x, const int *kept, int i, int h, double out[DIM])
{
	int first = i < CASE_WINDOW ? 0 : i - CASE_WINDOW + 1, g = h * CASE_KV_HEADS / HEADS;
	double sum = exp((double)x->sink[h]);

	for (first = x->positions ? 0 : first; x->positions; first++)
		if (kept[first] > kept[i] - CASE_WINDOW)
			break;
	memset(out, 0, DIM * sizeof *out);
	for (int k = first; k <= i; k++) {
		int t = kept ? kept[k] : k, pos = kept ? kept[i] : i;
		const bf16_t *v = x->cache_v[t / PAGE_TOK][g][t % PAGE_TOK];
		double s = 0;

		for (int d = 0; d < DIM; d++)
			s += (double)bf16_to_f32(x->q[pos][h][d]) *
			     (double)bf16_to_f32(x->k[t][g][d]);
		s = exp(s / sqrt(DIM));
		sum += s;
		for (int d = 0; d < DIM; d++)
			out[d] += s * (double)bf16_to_f32(v[d]);
	}
	for (int d = 0; d < DIM; d++)
		out[d] /= sum;
}

void naive_positions(struct naive *x)
{
	x->positions = true;
}

double naive_error(const struct naive *x, const int *kept, int i, int n, const bf16_t *out)
{
	double most = 0;

	for (int k = 0; k < n * HEADS; k++) {
		double want[DIM], size = 0, diff = 0;

		attend(x, kept, i + k / HEADS, k % HEADS, want);
		for (int d = 0; d < DIM; d++) {
			size = fmax(size, fabs(want[d]));
			diff = fmax(diff, fabs(want[d] - (double)bf16_to_f32(out[k * DIM + d])));
		}
		most = fmax(most, diff / size);
	}
	return most;
}

/* ---- histories ---- */

static void run(struct backend_case *c, struct batch_entry *e, size_t n)
{
	struct iter_cost cost;

	case_run(c, e, n, &cost);
}

/* row: the first row of the last chunk in the batch that ran last. */
static void measure(struct backend_case *c, mixed_read_fn *read, int row, struct result *r)
{
	struct ar_err err;

	memset(r, 0, sizeof *r);
	read(c->self, (size_t)(row * HEADS * DIM), N_TOK * HEADS * DIM, r->out[0][0]);
	for (int i = 0; i < 2; i++)
		if (backend_compare(c->backend, c->self, &last_chunk, 2 * i, r->acc[i], r->count[i],
				    NULL, &err))
			bail_out("%s", err.msg);
}

static void run_last(struct backend_case *c, mixed_read_fn *read, struct result *r)
{
	struct batch_entry last = last_chunk;

	run(c, &last, 1);
	measure(c, read, 0, r);
}

static void test_histories(struct backend_case *c, mixed_read_fn *read, const struct result *whole)
{
	const char *name = c->backend->name;
	struct batch_entry first = { .n_tok = START }, mixed[] = {
		{ .req = 1, .n_tok = 200 },
		last_chunk,
		{ .req = 2, .start = 500, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 }
	};
	struct batch_entry chunk[] = { { .n_tok = 300 },
				       { .start = 300, .n_tok = 1 },
				       { .start = 301, .n_tok = 299 } };
	struct result other;

	case_drop(c, 0);
	for (int i = 0; i < 3; i++)
		run(c, &chunk[i], 1);
	run_last(c, read, &other);
	ok(same(whole, &other), "%s: a prompt in chunks gives the same in every layer", name);

	case_drop(c, 0);
	run(c, &first, 1);
	case_drop(c, 0);
	run(c, &mixed[0], 1); /* takes the pages of the preempted request */
	run(c, &first, 1);
	run_last(c, read, &other);
	ok(same(whole, &other), "%s: a request preempted and recomputed is as before", name);

	case_drop(c, 0);
	case_drop(c, 1);
	run(c, mixed, 3);
	measure(c, read, 200, &other);
	ok(!memcmp(&whole->acc, &other.acc, sizeof whole->acc) &&
		   !memcmp(&whole->count, &other.count, sizeof whole->count) &&
		   !memcmp(&whole->out, &other.out, sizeof whole->out),
	   "%s: a prefix that was never run is filled in, also in a mixed batch", name);

	case_drop(c, 0);
	case_drop(c, 2);
	first.n_tok = 560;
	run(c, &first, 1);
	for (uint32_t i = 560; i < START; i++)
		run(c, &(struct batch_entry){ .start = i, .n_tok = 1, .kind = ROW_DECODE }, 1);
	run_last(c, read, &other);
	ok(same(whole, &other), "%s: after decodes it is the same", name);
}

/* More decodes than a window has keys, then as many of a request whose pages went to others. */
static void test_decodes(struct backend_case *c, mixed_read_fn *read, const struct naive *x,
			 double tolerance)
{
	bf16_t row[2][HEADS][DIM];
	double most = 0;

	case_drop(c, 0);
	case_drop(c, 1);
	run(c, &(struct batch_entry){ .n_tok = 450 }, 1);
	run(c, &(struct batch_entry){ .req = 1, .n_tok = 30 }, 1);
	for (uint32_t i = 0; i < 150; i++) {
		struct batch_entry e[] = {
			{ .start = 450 + i, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
			{ .req = 1, .start = 30 + i, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 }
		};

		run(c, e, 2);
		if (i % 10 && i != 149)
			continue;
		read(c->self, 0, 2 * HEADS * DIM, row[0][0]);
		most = fmax(most, naive_error(x, NULL, 450 + (int)i, 1, row[0][0]));
		most = fmax(most, naive_error(x, NULL, 30 + (int)i, 1, row[1][0]));
	}
	ok(most < tolerance, "%s: decodes see the keys in their window: off by %g",
	   c->backend->name, most);
}

/* The largest error of the naive rows' Q of head 0, as rotated values of the capture. */
static double rope_error(const struct backend_env *env, const struct naive *x)
{
	static bf16_t raw[HEADS][CASE_LEN][DIM];
	double most = 0;
	struct ar_err err;

	if (capture_read(env->capture[0], env->captured_layer[WINDOW_LAYER], CAPTURE_Q, 0, CASE_LEN,
			 raw[0][0], &err))
		bail_out("%s", err.msg);
	for (int t = 0; t < CASE_LEN; t += 7)
		for (int i = 0; i < DIM / 2; i++) {
			double a = t * pow(CASE_WINDOW_THETA, -2.0 * i / DIM);
			double re = (double)bf16_to_f32(raw[0][t][i]);
			double im = (double)bf16_to_f32(raw[0][t][i + DIM / 2]);
			double want = re * cos(a) - im * sin(a);

			most = fmax(most, fabs(want - (double)bf16_to_f32(x->q[t][0][i])));
		}
	return most;
}

/* A capture of 720 tokens for all requests: their rows of one position are the same. */
void mixed_test_all(const struct backend *b, mixed_read_fn *read, double tolerance)
{
	const struct case_how how = { .method = sparse, .mixed = true };
	struct batch_entry first = { .n_tok = START };
	struct backend_case c;
	struct result whole;
	struct naive *x;
	struct ar_err err;
	double off;

	if (case_open(&c, b, &how, &err))
		bail_out("%s", err.msg);
	x = naive_open(&c.env);
	run(&c, &first, 1);
	run_last(&c, read, &whole);
	off = naive_error(x, NULL, START, N_TOK, whole.out[0][0]);
	ok(off < tolerance, "%s: rows of a window layer see the keys in it: off by %g", b->name,
	   off);
	ok(whole.count[0][0].tiles_sel < whole.count[0][0].tiles_total &&
		   !memcmp(whole.count[0], whole.count[1], sizeof whole.count[0]),
	   "%s: full layers run the method", b->name);
	off = rope_error(&c.env, x);
	ok(off < 0.05, "%s: which turn by the base of window layers: off by %g", b->name, off);
	test_histories(&c, read, &whole);
	test_decodes(&c, read, x, tolerance);
	free(x);
	case_close(&c);
}
