/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SnapKV: the last rows of a prompt choose the keys that stay.
 *
 *   a[p][t]  = sum over rows of the window of softmax over t of q[p] . k[t] / sqrt(head_dim)
 *   score[t] = the pooled a, of neighbours of t; heads of a group are added before it or after it
 *
 * The window stays, and `sink` first tokens.  The others with the largest scores fill the budget.
 * Without `local` no key of the window is pooled.  Averages count zeros beyond the borders.
 *
 * Sources differ in details, so `variant` sets the parameters as one of them has it.
 */
#include "config.h"
#include "kernels/evict/snapkv/snapkv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select/scores.h"

static int64_t snapkv_kept(const void *param, int64_t n_tok)
{
	const struct snapkv *p = param;

	return n_tok < p->budget ? n_tok : p->budget;
}

/* In the order of the names of `variant`; NULL: as the default says. */
static const struct {
	const char *window, *pool, *kernel, *group, *softmax, *sink, *local;
} variants[] = {
	{ "32", "avg", "5", "after", "all", "0", "0" },
	{ "64", "avg", "5", "after", "all", "0", "0" },
	{ "32", "max", "63", "before", "prefix", "0", "0" },
	{ "256", "avg", "21", "before", "all", "4", "128" },
};

static enum ar_status snapkv_settle(struct opt_group *g, struct ar_err *err)
{
	struct snapkv *p = g->base;
	const struct {
		const char *name, *value;
	} set[] = {
		{ "window", variants[p->variant].window },
		{ "pool", variants[p->variant].pool },
		{ "kernel", variants[p->variant].kernel },
		{ "group", variants[p->variant].group },
		{ "softmax", variants[p->variant].softmax },
		{ "sink", variants[p->variant].sink },
		{ "local", variants[p->variant].local },
	};
	enum ar_status st = AR_OK;
	int64_t forced;

	for (size_t i = 0; i < sizeof set / sizeof *set && !st; i++)
		st = opt_set_default(g, set[i].name, set[i].value, err);
	if (st)
		return st;
	forced = p->sink + (p->local ? p->local : p->window);
	if (p->kernel % 2 == 0)
		return ar_fail(err, AR_USAGE, "kernel=%lld: want an odd number",
			       (long long)p->kernel);
	if (p->softmax == SNAPKV_PREFIX && p->local)
		return ar_fail(err, AR_USAGE,
			       "softmax=prefix: the window has no scores then; leave out local");
	if (p->budget > forced)
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "budget=%lld: %lld tokens stay in any case; want a larger budget",
		       (long long)p->budget, (long long)forced);
}

static int snapkv_window(const void *param, bool *whole)
{
	const struct snapkv *p = param;

	*whole = p->rule == SNAPKV_RING;
	return (int)p->window;
}

/* The window's rows are kept, and read with all keys; scores are written, pooled and ranked. */
static void snapkv_count(const void *param, const struct evict_rows *r, struct evict_work *w)
{
	const struct snapkv *p = param;
	const struct attn_shape *s = r->shape;
	double rows = (double)p->window * s->q_heads, row = s->head_dim * sizeof(bf16_t);

	if (!r->n_gone)
		return;
	w->flops += 2 * rows * r->n_cand * s->head_dim;
	w->bytes += 2 * rows * row + r->n_cand * s->kv_heads * (row + 4 * sizeof(float));
	w->kernels += 3;
}

/* ---- reference ---- */

/* a of query head p, of the first n keys. */
static void add_heads(struct scores *x, const struct evict_call *call, const struct evict_req *r,
		      const struct attn_batch *b, const struct snapkv *p, int head, int n, float *a)
{
	scores_rows(x, b, r->row0, r->n_row, head, call->q);
	scores_multiply(x, r->n_row, r->n_cand);
	for (int i = 0; i < r->n_row; i++) {
		bool all = p->softmax == SNAPKV_ALL;
		int seen = r->n_cand - r->n_row + (all ? i + 1 : 0);
		const float *prob = scores_soften(x, i, seen);

		for (int t = 0; t < n && t < seen; t++)
			a[t] += prob[t];
	}
}

/* Add a[0..n) to score, pooled. */
static void pool(const struct snapkv *p, const float *a, int n, float *score)
{
	int radius = (int)p->kernel / 2;

	for (int t = 0; t < n; t++) {
		float sum = 0, max = -INFINITY;

		for (int u = t > radius ? t - radius : 0; u <= t + radius && u < n; u++) {
			sum += a[u];
			max = fmaxf(max, a[u]);
		}
		score[t] += p->pool == SNAPKV_MAX ? max : sum / (float)p->kernel;
	}
}

/* Choose for KV head h: scores of n keys; a, score: [n]. */
static enum ar_status choose(const struct snapkv *p, struct scores *x,
			     const struct evict_call *call, const struct evict_req *r, int h, int n,
			     float *a, float *score, struct ar_err *err)
{
	const struct attn_batch b = evict_batch(call, r);
	int32_t *keep = call->keep + r->keep0 + (ptrdiff_t)h * r->n_keep;
	int group = call->shape.q_heads / call->shape.kv_heads;
	int last = p->local ? (int)p->local : r->n_row, best = r->n_keep - last;

	memset(a, 0, (size_t)n * sizeof *a);
	memset(score, 0, (size_t)n * sizeof *score);
	scores_keys(x, &b, 0, h, call->kv.k);
	for (int g = 0; g < group; g++) {
		add_heads(x, call, r, &b, p, h * group + g, n, a);
		if (p->group == SNAPKV_BEFORE && g < group - 1)
			continue;
		pool(p, a, n, score);
		memset(a, 0, (size_t)n * sizeof *a);
	}
	for (int t = 0; t < p->sink; t++)
		score[t] = INFINITY;
	for (int i = 0; i < last; i++)
		keep[best + i] = r->n_cand - last + i;
	return evict_top(score, r->n_cand - last, best, keep, err);
}

static enum ar_status snapkv_request_ref(const struct snapkv *p, const struct evict_call *call,
					 const struct evict_req *r, struct ar_err *err)
{
	const struct attn_batch b = evict_batch(call, r);
	int n = r->n_cand - (p->local ? 0 : r->n_row);
	float *a = malloc(2 * (size_t)n * sizeof *a);
	struct scores x;
	enum ar_status st = a ? scores_init(&x, &b, r->n_row, err) : ar_nomem(err);

	if (!st) {
		for (int h = 0; h < call->shape.kv_heads && !st; h++)
			st = choose(p, &x, call, r, h, n, a, a + n, err);
		scores_release(&x);
	}
	free(a);
	return st;
}

static enum ar_status snapkv_ref(const void *param, const struct evict_call *call,
				 struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < call->n_req && !st; i++)
		st = snapkv_request_ref(param, call, &call->req[i], err);
	return st;
}

#define OFF(member) offsetof(struct snapkv, member)
static const char *const variant_names[] = { "snapkv", "kvpress", "trtllm", "frontier", NULL };
static const char *const pool_names[] = { "avg", "max", NULL };
static const char *const group_names[] = { "after", "before", NULL };
static const char *const softmax_names[] = { "all", "prefix", NULL };
static const char *const rule_names[] = { "ring", "chunk", NULL };
/* clang-format off */
static const struct opt params[] = {
	{ .name = "variant", .type = OPT_ENUM, .off = OFF(variant), .arg = "NAME",
	  .def = "snapkv", .choice = variant_names,
	  .help = "source of the parameters that are not given" },
	{ .name = "budget", .type = OPT_INT, .off = OFF(budget), .arg = "N", .def = "2048",
	  .min = 1, .max = 1 << 24, .help = "tokens that stay of a prompt, the window included" },
	{ .name = "window", .type = OPT_INT, .off = OFF(window), .arg = "N", .def = "32",
	  .min = 1, .max = 1024, .help = "last rows of the prompt, which choose, and stay" },
	{ .name = "window-rule", .type = OPT_ENUM, .off = OFF(rule), .arg = "RULE", .def = "ring",
	  .choice = rule_names,
	  .help = "ring: the window reaches into earlier chunks; chunk: not" },
	{ .name = "pool", .type = OPT_ENUM, .off = OFF(pool), .arg = "KIND", .def = "avg",
	  .choice = pool_names, .help = "how scores of neighbours are pooled" },
	{ .name = "kernel", .type = OPT_INT, .off = OFF(kernel), .arg = "N", .def = "5",
	  .min = 1, .max = 1023, .help = "tokens that are pooled, an odd number" },
	{ .name = "group", .type = OPT_ENUM, .off = OFF(group), .arg = "WHEN", .def = "after",
	  .choice = group_names,
	  .help = "sum the heads of a group before the pooling or after it" },
	{ .name = "softmax", .type = OPT_ENUM, .off = OFF(softmax), .arg = "RANGE", .def = "all",
	  .choice = softmax_names,
	  .help = "keys of the softmax: all that a row sees, or those before the window" },
	{ .name = "sink", .type = OPT_INT, .off = OFF(sink), .arg = "N", .def = "0",
	  .max = 1 << 20, .help = "first tokens that stay in any case" },
	{ .name = "local", .type = OPT_INT, .off = OFF(local), .arg = "N", .def = "0",
	  .max = 1 << 20,
	  .help = "last tokens that stay, beside the best; 0: the window" },
	{ 0 }
};
/* clang-format on */

extern const struct evictor evictor_snapkv;
const struct evictor evictor_snapkv = {
	.name = "snapkv",
	.params = params,
	.param_size = sizeof(struct snapkv),
	.settle = snapkv_settle,
	.kept = snapkv_kept,
	.work = snapkv_count,
	.window = snapkv_window,
	.ref = snapkv_ref,
	.work_bytes = HAVE_CUDA ? snapkv_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? snapkv_enqueue : NULL,
};
