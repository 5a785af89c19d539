/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/experts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/rng.h"
#include "replay/cost/experts_file.h"

enum { STEP = 64, STEPS = EXPERTS_ROWS / STEP };

static const double MOST_SKEW = 4;

/* The rows that are drawn for a layer. */
struct stream {
	uint16_t *set; /* [EXPERTS_ROWS][per_tok] their experts */
	int64_t *sum; /* [STEPS + 1][experts + ranks] what experts_draw() gives of the first ones */
};

struct experts {
	struct experts_shape shape;
	uint64_t seed;
	struct stream *stream; /* [n_stream]; NULL: rows go to experts in turn */
	int n_stream;
	int *of;	      /* [layers] the stream of each */
	int *kind;	      /* [layers] */
	int64_t *load, *sent; /* for experts_most() */
};

/* ---- rules ---- */

enum rule { EVEN, UNIFORM, ZIPF, OF_FILE };

static enum rule read_rule(const char *text, double *skew)
{
	*skew = 0;
	if (!strcmp(text, "even"))
		return EVEN;
	if (!strcmp(text, "uniform"))
		return UNIFORM;
	if (strncmp(text, "zipf:", 5) != 0)
		return OF_FILE;
	if (!num_real(text + 5, skew) || !(*skew >= 0 && *skew <= MOST_SKEW))
		*skew = -1;
	return ZIPF;
}

enum ar_status experts_check(const char *rule, bool *is_file, struct ar_err *err)
{
	double skew;

	*is_file = read_rule(rule, &skew) == OF_FILE;
	if (skew >= 0)
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "routing '%s': want even, uniform, zipf:A with A from 0 to %g, or a file",
		       rule, MOST_SKEW);
}

double experts_spread(const struct experts_shape *s)
{
	const int own = s->experts / s->ranks;
	double none = 1;

	for (int i = 0; i < s->per_tok; i++)
		none *= fmax(s->experts - own - i, 0) / (s->experts - i);
	return s->ranks * (1 - none);
}

/* ---- streams ---- */

/* Put n numbers in a random order. */
static void shuffle(int *x, int n, struct rng *r)
{
	for (int i = n - 1; i > 0; i--) {
		const int k = (int)rng_below(r, (uint64_t)i + 1), had = x[i];

		x[i] = x[k];
		x[k] = had;
	}
}

/* Draw an expert by its weight, of n.  left: their sum. */
static int draw_expert(const double *weight, int n, double left, struct rng *r)
{
	double u = rng_unit(r) * left;
	int last = 0;

	for (int e = 0; e < n && u >= 0; e++) {
		if (weight[e] > 0)
			last = e;
		u -= weight[e];
	}
	return last;
}

/* Draw the experts of a row, by weights or one of the tokens.  now: the weights, of which those
 * that the row has are 0 meanwhile. */
static void draw_row(const struct experts_layer *x, double *now, const struct experts_shape *s,
		     uint16_t *set, struct rng *r)
{
	const size_t k = (size_t)s->per_tok;
	double left = x->total;

	if (x->n_token) {
		memcpy(set, x->token + rng_below(r, x->n_token) * k, k * sizeof *set);
		return;
	}
	for (size_t i = 0; i < k; i++) {
		set[i] = (uint16_t)draw_expert(now, s->experts, left, r);
		left -= now[set[i]];
		now[set[i]] = 0;
	}
	for (size_t i = 0; i < k; i++)
		now[set[i]] = x->weight[set[i]];
}

/* Count `times` rows that go to the experts of set. */
static void add_row(const struct experts_shape *s, const uint16_t *set, int64_t times,
		    int64_t *load, int64_t *sent)
{
	const int own = s->experts / s->ranks;

	for (int i = 0; i < s->per_tok; i++) {
		bool seen = false;

		for (int k = 0; k < i && !seen; k++)
			seen = set[k] / own == set[i] / own;
		load[set[i]] += times;
		sent[set[i] / own] += seen ? 0 : times;
	}
}

/* Sum the rows of a stream up to each step. */
static void sum_rows(const struct experts_shape *s, struct stream *x)
{
	const size_t width = (size_t)(s->experts + s->ranks);

	for (int i = 0; i < STEPS; i++) {
		int64_t *to = x->sum + (size_t)(i + 1) * width;

		memcpy(to, to - width, width * sizeof *to);
		for (int k = i * STEP; k < (i + 1) * STEP; k++)
			add_row(s, x->set + (size_t)k * (size_t)s->per_tok, 1, to, to + s->experts);
	}
}

/* Draw the rows of a stream.  order: expert order[i] takes the place of expert i. */
static void draw_rows(const struct experts_shape *s, const struct experts_layer *from, double *now,
		      const int *order, struct rng *r, uint16_t *set)
{
	for (int i = 0; i < EXPERTS_ROWS; i++, set += s->per_tok) {
		draw_row(from, now, s, set, r);
		for (int k = 0; k < s->per_tok; k++)
			set[k] = (uint16_t)order[set[k]];
	}
}

/* Draw a stream.  permuted: which expert has which weight is drawn, too. */
static enum ar_status draw_stream(const struct experts_shape *s, const struct experts_layer *from,
				  bool permuted, uint64_t seed, struct stream *x,
				  struct ar_err *err)
{
	const size_t n = (size_t)s->experts;
	struct rng r = { seed };
	int *order = malloc(n * sizeof *order);
	double *now = calloc(n, sizeof *now);
	bool has;

	x->set = malloc(EXPERTS_ROWS * (size_t)s->per_tok * sizeof *x->set);
	x->sum = calloc((STEPS + 1) * (n + (size_t)s->ranks), sizeof *x->sum);
	has = order && now && x->set && x->sum;
	for (int i = 0; i < s->experts && has; i++)
		order[i] = i;
	if (has && permuted)
		shuffle(order, s->experts, &r);
	if (has && from->weight)
		memcpy(now, from->weight, n * sizeof *now);
	if (has) {
		draw_rows(s, from, now, order, &r, x->set);
		sum_rows(s, x);
	}
	free(order);
	free(now);
	return has ? AR_OK : ar_nomem(err);
}

/* Draw n streams, in turn from the layers x[0..n_x). */
static enum ar_status draw_streams(struct experts *r, const struct experts_layer *x, int n_x, int n,
				   bool permuted, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	r->stream = calloc((size_t)n, sizeof *r->stream);
	if (!r->stream)
		return ar_nomem(err);
	r->n_stream = n;
	for (int i = 0; i < n && !st; i++)
		st = draw_stream(&r->shape, &x[i % n_x], permuted,
				 rng_mix(r->seed ^ rng_mix((uint64_t)i)), &r->stream[i], err);
	return st;
}

/* Weights 1 / (i + 1)^skew.  Equal ones are the same in all layers. */
static enum ar_status draw_zipf(struct experts *r, double skew, struct ar_err *err)
{
	const int n = r->shape.experts, n_stream = skew > 0 ? r->shape.layers : 1;
	struct experts_layer x = { .weight = malloc((size_t)n * sizeof *x.weight) };
	enum ar_status st;

	if (!x.weight)
		return ar_nomem(err);
	for (int i = 0; i < n; i++)
		x.total += x.weight[i] = pow(i + 1, -skew);
	for (int i = 0; i < r->shape.layers; i++)
		r->of[i] = i % n_stream;
	st = draw_streams(r, &x, 1, n_stream, skew > 0, err);
	free(x.weight);
	return st;
}

static enum ar_status draw_file(struct experts *r, const char *path, struct ar_err *err)
{
	struct experts_file f;
	enum ar_status st = experts_file_load(&f, path, &r->shape, err);

	for (int i = 0; i < r->shape.layers && !st; i++)
		r->of[i] = (int)experts_file_layer(&f, i);
	if (!st)
		st = draw_streams(r, f.layer, (int)f.n, (int)f.n, false, err);
	experts_file_release(&f);
	return st;
}

enum ar_status experts_open(struct experts **out, const char *rule,
			    const struct experts_shape *shape, uint64_t seed, struct ar_err *err)
{
	struct experts *r = *out = calloc(1, sizeof *r);
	bool is_file;
	double skew;
	enum ar_status st = experts_check(rule, &is_file, err);

	if (!r)
		return ar_nomem(err);
	r->shape = *shape;
	r->seed = seed;
	r->of = calloc((size_t)shape->layers, sizeof *r->of);
	r->kind = malloc((size_t)shape->layers * sizeof *r->kind);
	r->load = malloc((size_t)shape->experts * sizeof *r->load);
	r->sent = malloc((size_t)shape->ranks * sizeof *r->sent);
	if (!r->of || !r->kind || !r->load || !r->sent)
		st = ar_nomem(err);
	else
		memcpy(r->kind, shape->kind, (size_t)shape->layers * sizeof *r->kind);
	if (!st && is_file)
		st = draw_file(r, rule, err);
	else if (!st && read_rule(rule, &skew) != EVEN)
		st = draw_zipf(r, skew, err);
	if (!st)
		return AR_OK;
	experts_close(r);
	*out = NULL;
	return st;
}

void experts_close(struct experts *r)
{
	if (!r)
		return;
	for (int i = 0; i < r->n_stream; i++) {
		free(r->stream[i].set);
		free(r->stream[i].sum);
	}
	free(r->stream);
	free(r->of);
	free(r->kind);
	free(r->load);
	free(r->sent);
	free(r);
}

/* ---- draws ---- */

/* Deal rows to experts in turn, from one rank to the next. */
static void deal(const struct experts_shape *s, int64_t rows, int64_t *load, int64_t *sent)
{
	const int64_t all = rows * s->per_tok;
	const int own = s->experts / s->ranks;

	for (int i = 0; i < s->experts; i++)
		load[i % s->ranks * own + i / s->ranks] = all / s->experts + (i < all % s->experts);
	for (int i = 0; i < s->ranks; i++)
		sent[i] = (int64_t)ceil((double)rows * experts_spread(s) / s->ranks);
}

/* Add times as much as rows [0, n) of a stream give. */
static void add_rows(const struct experts_shape *s, const struct stream *x, int64_t n,
		     int64_t times, int64_t *load, int64_t *sent)
{
	const int64_t *sum = x->sum + (size_t)(n / STEP) * (size_t)(s->experts + s->ranks);

	for (int i = 0; i < s->experts; i++)
		load[i] += times * sum[i];
	for (int i = 0; i < s->ranks; i++)
		sent[i] += times * sum[s->experts + i];
	for (int64_t k = n - n % STEP; k < n; k++)
		add_row(s, x->set + (size_t)k * (size_t)s->per_tok, times, load, sent);
}

void experts_draw(const struct experts *r, int64_t iter, int layer, int64_t rows, int64_t *load,
		  int64_t *sent)
{
	const struct experts_shape *s = &r->shape;
	const struct stream *x;
	struct rng from = { rng_mix(r->seed ^ rng_mix((uint64_t)iter)) + (uint64_t)layer };
	int64_t first, end;

	if (!r->stream) {
		deal(s, rows, load, sent);
		return;
	}
	x = &r->stream[r->of[layer]];
	first = (int64_t)rng_below(&from, STEPS) * STEP;
	end = first + rows % EXPERTS_ROWS;
	memset(load, 0, (size_t)s->experts * sizeof *load);
	memset(sent, 0, (size_t)s->ranks * sizeof *sent);
	add_rows(s, x, EXPERTS_ROWS, rows / EXPERTS_ROWS + end / EXPERTS_ROWS, load, sent);
	add_rows(s, x, end % EXPERTS_ROWS, 1, load, sent);
	add_rows(s, x, first, -1, load, sent);
}

/* The largest of each figure over the ranks, in r->load and r->sent. */
static struct experts_most find_most(const struct experts *r)
{
	const int own = r->shape.experts / r->shape.ranks;
	struct experts_most most = { 0 };

	for (int k = 0; k < r->shape.ranks; k++) {
		double experts = 0, rows = 0;

		for (int e = k * own; e < (k + 1) * own; e++) {
			experts += r->load[e] > 0;
			rows += (double)r->load[e];
		}
		most.experts = fmax(most.experts, experts);
		most.rows = fmax(most.rows, rows);
		most.sent = fmax(most.sent, (double)r->sent[k]);
	}
	return most;
}

struct experts_most experts_most(struct experts *r, int64_t iter, int kind, int64_t rows)
{
	struct experts_most mean = { 0 };
	int n = 0;

	for (int i = 0; i < r->shape.layers; i++) {
		struct experts_most x;

		if (kind < 0 ? r->kind[i] < 0 : r->kind[i] != kind)
			continue;
		experts_draw(r, iter, i, rows, r->load, r->sent);
		x = find_most(r);
		mean.experts += x.experts;
		mean.rows += x.rows;
		mean.sent += x.sent;
		n++;
	}
	if (!n)
		return mean;
	return (struct experts_most){ mean.experts / n, mean.rows / n, mean.sent / n };
}
