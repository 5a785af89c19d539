/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums are compared by the root of the sum of squares.  The bound is the sum of all roundings to
 * bf16 on both sides: of the added values, and of the stream after them.  A rounding is half a unit
 * in the last place, at most 2^-8 of the value.
 */
#include "config.h"
#include "tests/rank_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "tests/tap.h"

enum { ELEMS = RANK_ROWS * TINY_HIDDEN, RANKS = 8, WIDTH = 2048 };

struct group {
	const struct tiny *m;
	int tp;
	struct weights whole, rank[RANKS];
	bf16_t attn[RANK_ROWS][WIDTH];
	struct layer_row row[RANK_ROWS];
	rank_run *run;
};

/* Norms of outputs are not linear: leave them out. */
static void read_rank(struct weights *w, const char *dir, int tp, int rank)
{
	struct ar_err err = { 0 };

	if (weights_open_rank(w, dir, tp, rank, &err))
		bail_out("%s", err.msg);
	w->model.layer[RANK_LAYER].post_norms = 0;
	w->layer[RANK_LAYER][WEIGHT_ATTN_POST] = w->layer[RANK_LAYER][WEIGHT_MLP_POST] = NULL;
}

static void open_group(struct group *g)
{
	char dir[] = "/tmp/t-ranks-XXXXXX";
	struct rng r = { 11 };

	if (!mkdtemp(dir) || g->tp > RANKS || g->m->heads * g->m->dim > WIDTH)
		bail_out("%s on %d ranks", g->m->what, g->tp);
	tiny_folder(dir, g->m);
	read_rank(&g->whole, dir, 1, 0);
	for (int k = 0; k < g->tp; k++)
		read_rank(&g->rank[k], dir, g->tp, k);
	tiny_remove(dir);
	rmdir(dir);
	for (int i = 0; i < RANK_ROWS; i++) {
		g->row[i] = (struct layer_row){ .tok = RANK_VOCAB - 1 - 17 * i };
		for (int k = 0; k < WIDTH; k++)
			g->attn[i][k] = bf16_from_f32(rng_normal(&r));
	}
}

static void close_group(struct group *g)
{
	weights_release(&g->whole);
	for (int k = 0; k < g->tp; k++)
		weights_release(&g->rank[k]);
}

/* Run a part with the heads from first on. */
static bool run_part(struct group *g, const struct weights *w, int first, enum rank_part part,
		     struct rank_out *out)
{
	const struct layer_spec *l = &w->model.layer[RANK_LAYER];
	size_t width = (size_t)(l->q_heads * l->head_dim);
	bf16_t *attn = malloc(RANK_ROWS * width * sizeof *attn);
	bool done;

	if (!attn)
		bail_out("out of memory");
	for (size_t i = 0; i < RANK_ROWS; i++)
		memcpy(attn + i * width, &g->attn[i][first * l->head_dim], width * sizeof *attn);
	done = g->run(w, part, g->row, attn, out);
	free(attn);
	return done;
}

static double value(const struct rank_out *o, int i)
{
	return (double)bf16_to_f32(o->x[i / TINY_HIDDEN][i % TINY_HIDDEN]);
}

static double square(double x)
{
	return x * x;
}

/* The values that a part added to x, summed over n ranks. */
struct sum {
	double of[ELEMS];
	double rounded; /* squares of all values that were rounded */
};

static void add(struct sum *s, const struct rank_out *o, const struct rank_out *x)
{
	for (int i = 0; i < ELEMS; i++) {
		double added = value(o, i) - value(x, i);

		s->of[i] += added;
		s->rounded += square(added) + square(value(o, i));
	}
}

static double apart(const struct sum *a, const struct sum *b)
{
	double sum = 0;

	for (int i = 0; i < ELEMS; i++)
		sum += square(a->of[i] - b->of[i]);
	return sqrt(sum);
}

static void check_part(struct group *g, enum rank_part part, const struct rank_out *x)
{
	struct sum whole = { 0 }, ranks = { 0 };
	static struct rank_out o;
	double bound, without = 0;

	run_part(g, &g->whole, 0, part, &o);
	add(&whole, &o, x);
	for (int k = 0; k < g->tp; k++) {
		run_part(g, &g->rank[k], k * g->m->heads / g->tp, part, &o);
		without = apart(&ranks, &whole);
		add(&ranks, &o, x);
	}
	bound = ldexp(sqrt(whole.rounded + ranks.rounded), -8);
	ok(apart(&ranks, &whole) <= bound && without > 10 * bound,
	   "%s: %s of %d ranks adds up to that of the model: %.4f off, at most %.4f", g->m->what,
	   part == RANK_PROJECT ? "the output projection" : "the MLP", g->tp, apart(&ranks, &whole),
	   bound);
	diag("without the last rank %.4f", without);
}

/* Sums of TINY_HIDDEN products in fp32, in any order. */
static void check_logits(const struct group *g, const struct rank_out *whole,
			 const struct rank_out *o, int rank)
{
	int n = RANK_VOCAB / g->tp;
	double off = 0, size = 0;

	for (int r = 0; r < RANK_ROWS; r++)
		for (int i = 0; i < n; i++) {
			double want = (double)whole->logit[r * RANK_VOCAB + rank * n + i];

			off += square((double)o->logit[r * n + i] - want);
			size += square(want);
		}
	ok(off <= size * square(ldexp(TINY_HIDDEN, -24)),
	   "%s: logits of rank %d of %d are those of its tokens: %g off", g->m->what, rank, g->tp,
	   sqrt(off / size));
}

void rank_case(const struct tiny *m, int tp, rank_run *run)
{
	struct tiny with = *m;
	struct group *g = calloc(1, sizeof *g);
	static struct rank_out x, o;

	if (!g)
		bail_out("out of memory");
	with.vocab = RANK_VOCAB;
	with.mlp_bias = !m->gemma;
	*g = (struct group){ .m = &with, .tp = tp, .run = run };
	open_group(g);
	if (run_part(g, &g->whole, 0, RANK_NOTHING, &x)) {
		for (int k = 0; k < tp; k++) {
			run_part(g, &g->rank[k], k * m->heads / tp, RANK_NOTHING, &o);
			ok(!memcmp(o.x, x.x, sizeof x.x), "%s: rank %d of %d has all embeddings",
			   m->what, k, tp);
			check_logits(g, &x, &o, k);
		}
		check_part(g, RANK_PROJECT, &x);
		check_part(g, RANK_MLP, &x);
	} else {
		skip(2 * tp + 2, "no cuBLAS");
	}
	close_group(g);
	free(g);
}
