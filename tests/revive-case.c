/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/revive-case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "replay/engine/act_capture.h"
#include "tests/tap.h"

enum { HEADS = CASE_HEADS, KV_HEADS = CASE_KV_HEADS, DIM = CASE_DIM, PAGE = 128 };
enum { N_PAGE = (CASE_LEN + PAGE - 1) / PAGE, SEGMENTS = 3, PROMPT = 400, LAST = 3 };

static const int drop_layer[SEGMENTS - 1] = { 0, 2 };
static const double rate[SEGMENTS - 1] = { 0.5, 0.6 };
static const char lazy[] = "dense+lazyllm:layers=0:0.5+2:0.6,aux-revival=1";
static const double near = 1e-3; /* shares so close may be ranked either way */

/* Q, K and V of a layer, by position. */
struct layer {
	bf16_t q[CASE_LEN][HEADS][DIM], k[CASE_LEN][KV_HEADS][DIM];
	bf16_t cache_k[N_PAGE][KV_HEADS][PAGE][DIM], cache_v[N_PAGE][KV_HEADS][PAGE][DIM];
};

/* A backend, and the tokens of request 0 in the caches of each segment. */
struct life {
	struct backend_case c;
	mixed_read_fn *read;
	const struct attn_engine *engine;
	struct layer *layer; /* [CASE_LAYERS] */
	bool has[SEGMENTS][CASE_LEN];
	int most;		   /* tokens that a decode may revive */
	int n_revived[SEGMENTS];   /* so far */
	int twice, wrong, surplus; /* computed again; against the rule; more than most */
	double off;		   /* of outputs */
};

/* ---- the naive side ---- */

static void make_layers(struct life *l)
{
	const struct attn_shape shape = { HEADS, KV_HEADS, DIM, PAGE };
	const struct activations *a = &activations_capture;
	struct layer_row row[CASE_LEN];
	struct ar_err err;
	void *self;

	l->layer = calloc(CASE_LAYERS, sizeof *l->layer);
	if (!l->layer)
		bail_out("out of memory");
	if (a->open(&self, &l->c.env, &shape, &err) || a->load_ref(self, &err) ||
	    a->begin(self, 0, 0, CASE_LEN, row, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < CASE_LEN; i++)
		row[i].slot = i;
	for (int i = 0; i < CASE_LAYERS; i++) {
		struct layer *x = &l->layer[i];

		if (a->qkv_ref(self, i, row, CASE_LEN, NULL,
			       &(struct qkv){ x->q[0][0], x->k[0][0],
					      &(struct kv_cache){ .k = x->cache_k[0][0][0],
								  .v = x->cache_v[0][0][0] } },
			       &err))
			bail_out("%s", err.msg);
	}
	a->close(self);
}

/* The attention of the row at pos under head h over the tokens that are there, up to itself:
 * weight[pos + 1], which sum to 1. */
static void weigh(const struct layer *x, const bool *has, int pos, int h, double *weight)
{
	double sum = 0;

	for (int t = 0; t <= pos; t++) {
		double s = 0;

		weight[t] = 0;
		for (int d = 0; d < DIM && has[t]; d++)
			s += (double)bf16_to_f32(x->q[pos][h][d]) *
			     (double)bf16_to_f32(x->k[t][h * KV_HEADS / HEADS][d]);
		if (has[t])
			sum += weight[t] = exp(s / sqrt(DIM));
	}
	for (int t = 0; t <= pos; t++)
		weight[t] /= sum;
}

/* The same, summed over heads. */
static void score(const struct layer *x, const bool *has, int pos, double *sum)
{
	double weight[CASE_LEN];

	memset(sum, 0, CASE_LEN * sizeof *sum);
	for (int h = 0; h < HEADS; h++) {
		weigh(x, has, pos, h, weight);
		for (int t = 0; t <= pos; t++)
			sum[t] += weight[t];
	}
}

/* The largest error of the output of the row at pos, relative to its largest value. */
static double error_of(const struct life *l, int pos, const bf16_t *out)
{
	const struct layer *x = &l->layer[LAST];
	double weight[CASE_LEN], most = 0;

	for (int h = 0; h < HEADS; h++) {
		double size = 0, diff = 0;

		weigh(x, l->has[SEGMENTS - 1], pos, h, weight);
		for (int d = 0; d < DIM; d++) {
			double o = 0;

			for (int t = 0; t <= pos; t++)
				o += weight[t] *
				     (double)bf16_to_f32(x->cache_v[t / PAGE][h * KV_HEADS / HEADS]
								   [t % PAGE][d]);
			size = fmax(size, fabs(o));
			diff = fmax(diff, fabs(o - (double)bf16_to_f32(out[h * DIM + d])));
		}
		most = fmax(most, diff / size);
	}
	return most;
}

/* The score of the n-th best of the tokens listed; n 0: above all. */
static double cut_at(const double *sum, const bool *listed, int n)
{
	double v[CASE_LEN], cut;
	int k = 0;

	for (int t = 0; t < CASE_LEN; t++)
		if (listed[t])
			v[k++] = sum[t];
	qsort(v, (size_t)k, sizeof *v, order_f64);
	cut = n ? v[k - n] : 2 * HEADS;
	return cut;
}

/* ---- steps ---- */

/* Rows of entry `of` in segment s: their positions to pos.  Returns how many there are. */
static int rows_of(const struct life *l, const struct batch_entry *e, size_t of, int s, int *pos)
{
	const struct row_segment *x = &l->engine->drops.segment[s];
	int n_back = rows_n_back(x, of), n = 0;

	for (int k = 0; k < n_back; k++)
		pos[n++] = x->back[of][k];
	for (int k = 0; k < x->n[of] - n_back; k++)
		pos[n++] = (int)e[of].start + (x->keep[of] ? x->keep[of][k] : k);
	return n;
}

/* Of a chunk: count rows of a segment that are kept or dropped against the rule.  listed: the
 * segment's rows; went: the rows that were kept. */
static int chunk_faults(const double *sum, const bool *listed, const bool *went, int last, double r)
{
	bool others[CASE_LEN];
	int n = 0, kept = 0, bad = 0;
	double cut;

	memcpy(others, listed, sizeof others);
	for (int t = 0; t < CASE_LEN; t++) {
		n += listed[t];
		kept += went[t];
	}
	others[last] = false;
	cut = cut_at(sum, others, n - (int)(r * n) - 1);
	for (int t = 0; t < CASE_LEN; t++)
		if (others[t])
			bad += went[t] ? sum[t] < cut * (1 - near) : sum[t] > cut * (1 + near);
	return bad + (kept != n - (int)(r * n)) + !went[last];
}

/* Of a decode: count tokens that are revived or left against the rule.  has: tokens of segment s;
 * next: tokens that the next segment had before; went: tokens that it gets. */
static int decode_faults(const double *sum, const bool *has, const bool *next, const bool *went,
			 int last, double r, int most)
{
	bool others[CASE_LEN];
	int n = 0, revived = 0, bad = 0;
	double cut, least = 2 * HEADS;

	memcpy(others, has, sizeof others);
	others[last] = false;
	for (int t = 0; t < CASE_LEN; t++) {
		n += has[t];
		if (!went[t] || t == last)
			continue;
		revived++;
		least = fmin(least, sum[t]);
		bad += !has[t] || next[t];
	}
	cut = cut_at(sum, others, n - (int)(r * n) - 1);
	for (int t = 0; t < CASE_LEN; t++) {
		if (!others[t] || next[t])
			continue;
		if (went[t])
			bad += sum[t] < cut * (1 - near);
		else
			bad += sum[t] > cut * (1 + near) &&
			       (revived < most || sum[t] > least * (1 + near));
	}
	return bad + !went[last];
}

/* Note the tokens that segment s + 1 got of entry `of`, and compare them with the rule. */
static void check_choice(struct life *l, const struct batch_entry *e, size_t of, int s)
{
	int pos[CASE_LEN], last = (int)(e[of].start + e[of].n_tok) - 1;
	int n = rows_of(l, e, of, s, pos);
	bool listed[CASE_LEN] = { 0 }, went[CASE_LEN] = { 0 };
	double sum[CASE_LEN];

	for (int k = 0; k < n; k++)
		listed[pos[k]] = true;
	n = rows_of(l, e, of, s + 1, pos);
	for (int k = 0; k < n; k++)
		went[pos[k]] = true;
	score(&l->layer[drop_layer[s]], l->has[s], last, sum);
	l->wrong += e[of].kind == ROW_DECODE ? decode_faults(sum, l->has[s], l->has[s + 1], went,
							     last, rate[s], l->most) :
					       chunk_faults(sum, listed, went, last, rate[s]);
	for (int k = 0; k < n; k++) {
		l->twice += l->has[s + 1][pos[k]];
		l->has[s + 1][pos[k]] = true;
	}
	if (e[of].kind == ROW_DECODE) {
		l->n_revived[s + 1] += n - 1;
		l->surplus += n - 1 > l->most;
	}
}

/* The number of the k-th row of entry `of` in the last segment, k as in rows_of(). */
static int row_number(const struct life *l, const struct batch_entry *e, size_t n, size_t of, int k)
{
	const struct row_segment *x = &l->engine->drops.segment[SEGMENTS - 1];
	int at = 0, n_back = rows_n_back(x, of);

	for (int kind = 0; kind < 3; kind++) /* chunks, decodes, revived rows */
		for (size_t i = 0; i < n; i++) {
			bool mine = (kind == 0) == (e[i].kind == ROW_PREFILL);
			int rows = kind == 2 ? rows_n_back(x, i) : x->n[i] - rows_n_back(x, i);

			if (i == of && mine && (kind == 2) == (k < n_back))
				return at + (kind == 2 ? k : k - n_back);
			at += mine ? rows : 0;
		}
	bail_out("no such row");
}

/* Run a batch; entry `of` is of request 0. */
static void run(struct life *l, struct batch_entry *e, size_t n, size_t of)
{
	int pos[CASE_LEN], n_row;
	struct iter_cost cost;
	bf16_t out[HEADS * DIM];

	case_run(&l->c, e, n, &cost);
	n_row = rows_of(l, e, of, 0, pos);
	for (int k = 0; k < n_row; k++)
		l->has[0][pos[k]] = true;
	for (int s = 0; s < SEGMENTS - 1; s++)
		check_choice(l, e, of, s);
	n_row = rows_of(l, e, of, SEGMENTS - 1, pos);
	for (int k = 0; k < n_row; k++) {
		l->read(l->c.self, (size_t)(row_number(l, e, n, of, k) * HEADS * DIM), HEADS * DIM,
			out);
		l->off = fmax(l->off, error_of(l, pos[k], out));
	}
}

static void chunk(struct life *l, uint32_t start, uint32_t end, uint32_t known)
{
	struct batch_entry e = { .start = start, .n_tok = end - start, .known = known };

	run(l, &e, 1, 0);
}

static void decodes(struct life *l, uint32_t start, int n)
{
	for (int i = 0; i < n; i++)
		run(l,
		    &(struct batch_entry){
			    .start = start + (uint32_t)i, .n_tok = 1, .kind = ROW_DECODE },
		    1, 0);
}

static void life_open(struct life *l, const struct backend *b, const char *more, int most,
		      mixed_read_fn *read, drops_engine_fn *engine)
{
	char method[256];
	struct ar_err err;

	snprintf(method, sizeof method, "%s%s", lazy, more);
	memset(l, 0, sizeof *l);
	if (case_open(&l->c, b, &(struct case_how){ .method = method, .every = true }, &err))
		bail_out("%s", err.msg);
	l->read = read;
	l->engine = engine(l->c.self);
	l->most = most;
	make_layers(l);
}

static void life_close(struct life *l)
{
	case_close(&l->c);
	free(l->layer);
}

/* Whether caches and lists of request 0 hold each token of each segment once. */
static bool right_caches(const struct life *l)
{
	bool right = true;

	for (int s = 0; s < SEGMENTS; s++) {
		const struct drop_list *list = drops_tokens(&l->engine->drops, s, 0);
		int layer = s == SEGMENTS - 1 ? LAST : drop_layer[s], n = 0;

		for (int t = 0; t < CASE_LEN; t++)
			n += l->has[s][t];
		right = right && list->n == n &&
			blocks_len(&l->c.blocks, attn_engine_group(l->engine, layer)->no, 0) == n;
		for (int k = 0; k < list->n; k++) {
			bool gone = s < SEGMENTS - 1 && !l->has[s + 1][list->pos[k]];

			right = right && l->has[s][list->pos[k]] &&
				(s == SEGMENTS - 1 || list->gone[k] == gone);
		}
	}
	return right;
}

static void check(const struct life *l, double tolerance, const char *what)
{
	const char *name = l->c.backend->name;

	ok(!l->wrong && !l->surplus, "%s: %s: the rule chooses: %d against it", name, what,
	   l->wrong);
	ok(!l->twice && right_caches(l), "%s: ... each token is computed once in a layer", name);
	ok(l->off < tolerance, "%s: ... rows see what is there up to them: off by %g", name,
	   l->off);
}

/* ---- tests ---- */

static void test_whole(const struct backend *b, mixed_read_fn *read, drops_engine_fn *engine,
		       double tolerance)
{
	struct life l;

	life_open(&l, b, "", 16, read, engine);
	chunk(&l, 0, PROMPT, PROMPT);
	decodes(&l, PROMPT, 20);
	check(&l, tolerance, "a prompt and 20 decodes");
	ok(l.n_revived[1] > 40 && l.n_revived[2] > 20, "%s: they revive %d and %d tokens", b->name,
	   l.n_revived[1], l.n_revived[2]);
	life_close(&l);
	life_open(&l, b, ",revive-max=2", 2, read, engine);
	for (uint32_t at = 0; at < PROMPT; at += 100)
		chunk(&l, at, at + 100, PROMPT);
	decodes(&l, PROMPT, 20);
	check(&l, tolerance, "chunks, and two tokens a decode");
	ok(l.n_revived[1] == 40, "%s: they revive %d and %d tokens", b->name, l.n_revived[1],
	   l.n_revived[2]);
	life_close(&l);
}

/* A decode beside others and prompts; then the request is preempted, and begins anew. */
static void test_beside(const struct backend *b, mixed_read_fn *read, drops_engine_fn *engine,
			double tolerance)
{
	struct batch_entry other = { .req = 1, .n_tok = 200, .known = 200 };
	struct life l;
	struct iter_cost cost;

	life_open(&l, b, "", 16, read, engine);
	case_run(&l.c, &other, 1, &cost);
	chunk(&l, 0, 150, PROMPT);
	chunk(&l, 150, PROMPT, PROMPT);
	for (uint32_t i = 0; i < 8; i++) {
		struct batch_entry e[] = {
			{ .req = 1, .start = 200 + i, .n_tok = 1, .kind = ROW_DECODE },
			{ .start = PROMPT + i, .n_tok = 1, .kind = ROW_DECODE },
			{ .req = 2, .start = 30 * i, .n_tok = 30, .known = 300 },
		};

		run(&l, e, 2 + i % 2, 1);
		if (i % 2 == 0)
			case_run(&l.c, &e[2], 1, &cost);
	}
	check(&l, tolerance, "beside others");
	case_drop(&l.c, 0);
	memset(l.has, 0, sizeof l.has);
	chunk(&l, 0, PROMPT + 8, PROMPT + 8);
	decodes(&l, PROMPT + 8, 6);
	check(&l, tolerance, "a preempted request");
	life_close(&l);
}

static void test_refused(const struct backend *b)
{
	struct backend_case c;
	struct ar_err err;

	is_int(case_open(&c, b, &(struct case_how){ .method = lazy, .mixed = true }, &err),
	       AR_USAGE, "%s: tokens are not revived in other layers", b->name);
	is_str(err.msg,
	       "dropper 'lazyllm:layers=0:0.5+2:0.6,aux-revival=1': layer 1 of model 'small' is "
	       "not of full attention, where tokens cannot be revived; leave out its parameter "
	       "that revives tokens",
	       "... as the message says");
	case_close(&c);
}

void revive_test_all(const struct backend *b, mixed_read_fn *read, drops_engine_fn *engine,
		     double tolerance)
{
	test_whole(b, read, engine, tolerance);
	test_beside(b, read, engine, tolerance);
	test_refused(b);
}
