/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/drops-case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"

enum { HEADS = CASE_HEADS, DIM = CASE_DIM, PROMPT = 500, LAST = 2 }; /* segment of the last layer */

static const char tight[] = "dense+uniprefill:p=0,block=16,last-q=20,sinks=10,min-tokens=0,"
			    "layers=0+2";

/* A backend, and the positions that request 0 has in the cache of the last layer. */
struct life {
	struct backend_case c;
	mixed_read_fn *read;
	const struct attn_engine *engine;
	struct naive *naive;
	int pos[CASE_LEN], n;
};

static void life_open(struct life *l, const struct backend *b, const char *method,
		      mixed_read_fn *read, drops_engine_fn *engine)
{
	struct ar_err err;

	memset(l, 0, sizeof *l);
	if (case_open(&l->c, b, &(struct case_how){ .method = method, .mixed = true }, &err))
		bail_out("%s", err.msg);
	l->read = read;
	l->engine = engine(l->c.self);
	l->naive = naive_open(&l->c.env);
}

static void life_close(struct life *l)
{
	free(l->naive);
	case_close(&l->c);
}

/* Run a batch, and add the positions that entry `of`, of request 0, has kept. */
static void run(struct life *l, struct batch_entry *e, size_t n, size_t of)
{
	const struct row_segment *s;
	struct iter_cost cost;

	case_run(&l->c, e, n, &cost);
	s = &l->engine->drops.segment[l->engine->drops.n - 1];
	for (int i = 0; i < s->n[of]; i++)
		l->pos[l->n++] = (int)e[of].start + (s->keep[of] ? s->keep[of][i] : i);
}

static void chunk(struct life *l, uint32_t start, uint32_t end, uint32_t known)
{
	struct batch_entry e = { .start = start, .n_tok = end - start, .known = known };

	run(l, &e, 1, 0);
}

/* The error of the last n rows of request 0; they begin at row `at` of the batch. */
static double error_of(const struct life *l, int at, int n)
{
	bf16_t *out = calloc((size_t)(n * HEADS * DIM), sizeof *out);
	double off;

	if (!out)
		bail_out("out of memory");
	l->read(l->c.self, (size_t)(at * HEADS * DIM), (size_t)(n * HEADS * DIM), out);
	off = naive_error(l->naive, l->pos, l->n - n, n, out);
	free(out);
	return off;
}

static bool same_rows(const struct life *a, const struct life *b)
{
	size_t n = (size_t)(a->n * HEADS * DIM);
	bf16_t *x = calloc(2 * n, sizeof *x);
	bool same;

	if (!x)
		bail_out("out of memory");
	a->read(a->c.self, 0, n, x);
	b->read(b->c.self, 0, n, x + n);
	same = a->n == b->n && !memcmp(a->pos, b->pos, (size_t)a->n * sizeof *a->pos) &&
	       !memcmp(x, x + n, n * sizeof *x);
	free(x);
	return same;
}

/* ---- whole prompts ---- */

static void test_keep_all(const struct backend *b, mixed_read_fn *read, drops_engine_fn *engine)
{
	struct life none, all;

	life_open(&none, b, "dense", read, engine);
	life_open(&all, b, "dense+uniprefill:p=1,min-tokens=0,last-q=20,sinks=10,layers=0+2", read,
		  engine);
	chunk(&none, 0, PROMPT, PROMPT);
	chunk(&all, 0, PROMPT, PROMPT);
	ok(all.n == PROMPT && same_rows(&none, &all), "%s: p 1 gives the rows of no dropper",
	   b->name);
	life_close(&none);
	life_close(&all);
}

/* Sinks, last rows and a block of 16 stay at layer 0; of these again at layer 2. */
static void test_whole(const struct backend *b, mixed_read_fn *read, drops_engine_fn *engine,
		       double tolerance)
{
	struct accuracy acc[HEADS];
	struct selection_count count[CASE_KV_HEADS];
	const struct drops *d;
	struct life l;
	struct ar_err err;
	double off;
	int bad = 0;

	life_open(&l, b, tight, read, engine);
	d = &l.engine->drops;
	chunk(&l, 0, PROMPT, PROMPT);
	is_int(d->n, 3, "%s: two drops make three segments", b->name);
	ok(d->segment[0].n[0] == PROMPT && d->segment[1].n[0] >= 30 && d->segment[1].n[0] <= 46 &&
		   d->segment[2].n[0] >= 30 && d->segment[2].n[0] <= d->segment[1].n[0],
	   "%s: %d and %d of %d rows stay", b->name, d->segment[1].n[0], d->segment[2].n[0],
	   PROMPT);
	for (int i = 0; i < 10; i++)
		bad += l.pos[i] != i;
	for (int i = 1; i <= 20; i++)
		bad += l.pos[l.n - i] != PROMPT - i;
	is_int(bad, 0, "%s: sinks and last rows among them", b->name);
	off = error_of(&l, 0, l.n);
	ok(off < tolerance, "%s: rows that stay see each other: off by %g", b->name, off);
	ok(blocks_len(&l.c.blocks, attn_engine_group(l.engine, 0)->no, 0) == PROMPT &&
		   blocks_len(&l.c.blocks, attn_engine_group(l.engine, 2)->no, 0) ==
			   d->segment[1].n[0] &&
		   blocks_len(&l.c.blocks, attn_engine_group(l.engine, 3)->no, 0) == l.n,
	   "%s: caches hold what their layers see", b->name);
	is_int(backend_compare(b, l.c.self,
			       &(struct batch_entry){
				       .n_tok = PROMPT, .known = PROMPT, .n_emit = 1 },
			       2, acc, count, NULL, &err),
	       AR_OK, "%s: a later layer can be compared", b->name);
	ok(acc[0].rel_l2 < 1e-2 && acc[0].mass_recall > 0.999 && acc[0].mass_recall < 1.001,
	   "%s: on its rows, dense is dense", b->name);
	life_close(&l);
}

/* ---- histories ---- */

static void decodes(struct life *l, uint32_t start, int n)
{
	for (int i = 0; i < n; i++)
		run(l,
		    &(struct batch_entry){
			    .start = start + (uint32_t)i, .n_tok = 1, .kind = ROW_DECODE },
		    1, 0);
}

static void test_decodes(const struct backend *b, mixed_read_fn *read, drops_engine_fn *engine,
			 double tolerance)
{
	struct batch_entry mixed[] = {
		{ .start = PROMPT + 4, .n_tok = 1, .kind = ROW_DECODE },
		{ .req = 1, .n_tok = 300, .known = 300 },
	};
	struct life l, again;
	int before;
	double off;

	life_open(&l, b, tight, read, engine);
	chunk(&l, 0, PROMPT, PROMPT);
	before = l.n;
	decodes(&l, PROMPT, 4);
	is_int(l.n, before + 4, "%s: decodes stay", b->name);
	off = error_of(&l, 0, 1);
	ok(off < tolerance, "%s: and see what is left of the prompt: off by %g", b->name, off);
	run(&l, mixed, 2, 0);
	off = error_of(&l, l.engine->drops.segment[LAST].n[1], 1);
	ok(off < tolerance, "%s: also beside a prompt: off by %g", b->name, off);
	ok(l.engine->drops.segment[LAST].n[1] <= 46, "%s: which is dropped from", b->name);
	life_open(&again, b, tight, read, engine);
	chunk(&again, 0, 400, 400);
	decodes(&again, 400, 2);
	case_drop(&again.c, 0);
	again.n = 0;
	chunk(&again, 0, PROMPT, PROMPT);
	decodes(&again, PROMPT, 1);
	off = error_of(&again, 0, 1);
	ok(off < tolerance && again.n == before + 1,
	   "%s: a preempted request begins anew: off by %g", b->name, off);
	life_close(&l);
	life_close(&again);
}

static void test_append(const struct backend *b, mixed_read_fn *read, drops_engine_fn *engine,
			double tolerance)
{
	char method[256];
	struct life official, append;
	double off = 0;
	int n;

	snprintf(method, sizeof method, "%s,mode=append", tight);
	life_open(&official, b, tight, read, engine);
	life_open(&append, b, method, read, engine);
	chunk(&official, 0, PROMPT, PROMPT);
	chunk(&append, 0, PROMPT, PROMPT);
	ok(same_rows(&official, &append), "%s: one chunk: append is official", b->name);
	case_drop(&official.c, 0);
	case_drop(&append.c, 0);
	official.n = append.n = 0;
	for (uint32_t at = 0; at < PROMPT; at += 125) {
		n = append.n;
		chunk(&official, at, at + 125, PROMPT);
		chunk(&append, at, at + 125, PROMPT);
		off = error_of(&append, 0, append.n - n);
		if (off >= tolerance)
			break;
	}
	ok(off < tolerance && append.n < 250, "%s: chunks append %d rows: off by %g", b->name,
	   append.n, off);
	is_int(official.n, PROMPT, "%s: official drops nothing of a prompt in chunks", b->name);
	decodes(&append, PROMPT, 1);
	off = error_of(&append, 0, 1);
	ok(off < tolerance, "%s: a decode sees the rows of all chunks: off by %g", b->name, off);
	life_close(&official);
	life_close(&append);
}

/* The window of the last layer, in chunks and in decodes. */
static void test_windows(const struct backend *b, mixed_read_fn *read, drops_engine_fn *engine,
			 double tolerance)
{
	struct life l;
	double off = 0;

	life_open(&l, b,
		  "dense+uniprefill:p=0.7,block=16,last-q=20,sinks=10,min-tokens=0,layers=0+2,"
		  "mode=append,window-space=original",
		  read, engine);
	naive_positions(l.naive);
	for (uint32_t at = 0; at < PROMPT; at += 250) {
		int n = l.n;

		chunk(&l, at, at + 250, PROMPT);
		off = error_of(&l, 0, l.n - n);
		if (off >= tolerance)
			break;
	}
	ok(off < tolerance && l.n < 400 && l.n > CASE_WINDOW + 20,
	   "%s: a window of positions over %d rows: off by %g", b->name, l.n, off);
	decodes(&l, PROMPT, 2);
	off = error_of(&l, 0, 1);
	ok(off < tolerance, "%s: decodes have it, too: off by %g", b->name, off);
	life_close(&l);
}

/* All tokens come back at layer 2, which decides as if it were the first that drops. */
static void test_back(const struct backend *b, mixed_read_fn *read, drops_engine_fn *engine,
		      double tolerance)
{
	static const char rule[] = "dense+uniprefill:p=0,block=16,last-q=20,sinks=10,min-tokens=0,"
				   "mode=append,layers=";
	char method[256];
	struct life back, alone;
	double off = 0;

	snprintf(method, sizeof method, "%s0+2,reconstitute=1", rule);
	life_open(&back, b, method, read, engine);
	snprintf(method, sizeof method, "%s2", rule);
	life_open(&alone, b, method, read, engine);
	for (uint32_t at = 0; at < PROMPT; at += 250) {
		int n = back.n;

		chunk(&back, at, at + 250, PROMPT);
		chunk(&alone, at, at + 250, PROMPT);
		off = fmax(off, error_of(&back, 0, back.n - n));
	}
	ok(back.n == alone.n && !memcmp(back.pos, alone.pos, (size_t)back.n * sizeof *back.pos),
	   "%s: tokens that come back are chosen from anew: %d stay", b->name, back.n);
	ok(off < tolerance, "%s: and see each other: off by %g", b->name, off);
	ok(blocks_len(&back.c.blocks, attn_engine_group(back.engine, 2)->no, 0) == PROMPT &&
		   blocks_len(&back.c.blocks, attn_engine_group(back.engine, 3)->no, 0) == back.n,
	   "%s: the cache of a layer that drops holds all", b->name);
	life_close(&back);
	life_close(&alone);
}

/* ---- other droppers ---- */

static void test_others(const struct backend *b, mixed_read_fn *read, drops_engine_fn *engine,
			double tolerance)
{
	static const struct {
		const char *method;
		int n[2];
	} v[] = {
		/* two blocks by score, one of sinks, two of the window, the last of 4 rows; then
		 * up to half of the prompt's 32 blocks, which is all */
		{ "dense+sliminfer:block=16,unit=4,window=8,sinks=8,layers=0:2+2:0.5", { 68, 68 } },
		{ "dense+lazyllm:layers=0:0.5+2:0.9", { 250, 25 } },
	};

	for (int i = 0; i < 2; i++) {
		struct life l;
		double off;

		life_open(&l, b, v[i].method, read, engine);
		chunk(&l, 0, PROMPT, PROMPT);
		off = error_of(&l, 0, l.n);
		ok(l.engine->drops.segment[1].n[0] == v[i].n[0] && l.n == v[i].n[1] &&
			   off < tolerance,
		   "%s: %s leaves %d and %d rows: off by %g", b->name, v[i].method,
		   l.engine->drops.segment[1].n[0], l.n, off);
		life_close(&l);
	}
}

/* ---- refusals ---- */

static void test_refused(const struct backend *b)
{
	struct batch_entry cached = { .start = 100, .n_tok = 50 };
	struct backend_case c;
	struct iter_cost cost;
	struct ar_err err;

	if (case_open(&c, b, &(struct case_how){ .method = tight, .mixed = true }, &err))
		bail_out("%s", err.msg);
	is_int(backend_run(b, c.self,
			   &(struct batch){ .entry = &cached, .n = 1, .blocks = &c.blocks }, &cost,
			   &err),
	       AR_USAGE, "%s: tokens of the prefix cache are refused", b->name);
	case_close(&c);
	is_int(case_open(&c, b, &(struct case_how){ .method = tight }, &err), AR_USAGE,
	       "%s: so are layers that are not executed", b->name);
	case_close(&c);
}

void drops_test_all(const struct backend *b, mixed_read_fn *read, drops_engine_fn *engine,
		    double tolerance)
{
	test_keep_all(b, read, engine);
	test_whole(b, read, engine, tolerance);
	test_decodes(b, read, engine, tolerance);
	test_append(b, read, engine, tolerance);
	test_windows(b, read, engine, tolerance);
	test_back(b, read, engine, tolerance);
	test_others(b, read, engine, tolerance);
	test_refused(b);
}
