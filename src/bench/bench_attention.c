/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay bench attention: single kernels, each over a table of shapes. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/gpu.h"
#include "base/log.h"
#include "base/number.h"
#include "kernels/support.h"
#include "src/bench/bench.h"
#include "src/bench/bench_case.h"
#include "src/bench/bench_device.h"
#include "src/bench/bench_table.h"
#include "src/bench/bench_values.h"

/* ---- which cases ---- */

struct grid {
	bool what[BENCH_N];
	bool given; /* --batch, --chunk, --context or --lists was: no default shapes */
	int64_t batch[BENCH_LIST], chunk[BENCH_LIST], context[BENCH_LIST];
	int n_batch, n_chunk, n_context;
	double density[BENCH_LIST];
	int n_density;
	const char *path; /* of --lists; NULL: random ones */
	struct bench_lists lists;
};

struct shape {
	int64_t batch, chunk, context;
};

static const struct shape prefills[] = { { 1, 512, 32 << 10 },	    { 1, 512, 128 << 10 },
					 { 1, 1024, 8 << 10 },	    { 1, 1024, 32 << 10 },
					 { 1, 1024, 64 << 10 },	    { 1, 1024, 128 << 10 },
					 { 8, 512, 8 << 10 },	    { 8, 512, 32 << 10 },
					 { 8, 512, 128 << 10 },	    { 8, 1024, 8 << 10 },
					 { 8, 1024, 32 << 10 },	    { 8, 1024, 64 << 10 },
					 { 8, 1024, 128 << 10 },    { 8, 2048, 8 << 10 },
					 { 8, 2048, 32 << 10 },	    { 8, 2048, 128 << 10 },
					 { 1, 8 << 10, 8 << 10 },   { 1, 32 << 10, 32 << 10 },
					 { 1, 64 << 10, 64 << 10 }, { 0 } };
static const struct shape decodes[] = {
	{ 8, 1, 32 << 10 }, { 8, 1, 128 << 10 }, { 64, 1, 4 << 10 }, { 0 }
};

static bool add_density(const char *text, void *to)
{
	struct grid *g = to;

	return g->n_density < BENCH_LIST && num_real(text, &g->density[g->n_density]) &&
	       g->density[g->n_density] >= 0 && g->density[g->n_density++] <= 1;
}

static bool add_what(const char *text, void *to)
{
	struct grid *g = to;
	int i = 0;

	while (bench_names[i] && strcmp(bench_names[i], text))
		i++;
	if (bench_names[i])
		g->what[i] = true;
	return bench_names[i];
}

static enum ar_status make_grid(struct grid *g, const struct bench_args *a, struct ar_err *err)
{
	char chunk[24] = "1024", context[24] = "128K";
	const struct {
		const char *name, *list, *def;
		int64_t *v;
		int *n;
	} counts[] = {
		{ "batch", a->batch, "8", g->batch, &g->n_batch },
		{ "chunk", a->chunk, chunk, g->chunk, &g->n_chunk },
		{ "context", a->context, context, g->context, &g->n_context },
	};
	enum ar_status st = bench_values("what", a->what, add_what, g,
					 "some of dense, past, table, blocksparse, copy, gather, "
					 "decode, decode-table, window, decode-window, mixed, "
					 "select",
					 err);

	if (!st && a->lists && a->density_given)
		st = ar_fail(err, AR_USAGE, "density has no effect with --lists; leave it out");
	g->path = a->lists;
	g->given = a->lists;
	if (!st && a->lists) {
		st = bench_lists_read(&g->lists, a->lists, err);
		g->density[g->n_density++] = /* of what takes no lists */
			g->lists.block ? g->lists.block_density : g->lists.table_density;
		snprintf(chunk, sizeof chunk, "%lld", (long long)g->lists.chunk);
		snprintf(context, sizeof context, "%lld", (long long)g->lists.context);
	} else if (!st) {
		st = bench_values("density", a->density, add_density, g,
				  "up to 64 numbers from 0 to 1", err);
	}
	for (int i = 0; i < 3 && !st; i++) {
		g->given = g->given || counts[i].list;
		st = bench_counts(counts[i].name, counts[i].list ? counts[i].list : counts[i].def,
				  counts[i].v, counts[i].n, err);
	}
	return st;
}

/* ---- rows ---- */

struct row {
	const char *what;
	int64_t batch, chunk, context, q_heads, kv_heads, head_dim, block_size;
	double density;
	const char *lists; /* their file; NULL: none, or random ones */
	double flops, bytes;
	double executed; /* share of dense attention; select: of past blocks */
	struct bench_result r;
	double tflops, tbs, share;
	struct bench_how how;
};

static const struct bench_col cols[] = {
#define COL(member) offsetof(struct row, member)
	{ "what", "what", COL_TEXT, COL(what), -13, 0, 0 },
	{ "batch", "batch", COL_COUNT, COL(batch), 5, 0, 0 },
	{ "chunk", "chunk", COL_COUNT, COL(chunk), 6, 0, 0 },
	{ "context", "context", COL_COUNT, COL(context), 7, 0, 0 },
	{ "q_heads", NULL, COL_COUNT, COL(q_heads), 0, 0, 0 },
	{ "kv_heads", NULL, COL_COUNT, COL(kv_heads), 0, 0, 0 },
	{ "head_dim", NULL, COL_COUNT, COL(head_dim), 0, 0, 0 },
	{ "block_size", NULL, COL_COUNT, COL(block_size), 0, 0, 0 },
	{ "density", "density", COL_REAL, COL(density), 7, 2, 1 },
	{ "lists", NULL, COL_TEXT, COL(lists), 0, 0, 0 },
	{ "executed", "executed", COL_REAL, COL(executed), 8, 4, 1 },
	{ "flops", "GFLOP", COL_REAL, COL(flops), 9, 1, 1e9 },
	{ "bytes", NULL, COL_REAL, COL(bytes), 0, 0, 0 },
	{ "us", "us", COL_REAL, COL(r.us), 10, 1, 1 },
	{ "min_us", NULL, COL_REAL, COL(r.min_us), 0, 0, 0 },
	{ "event_us", NULL, COL_REAL, COL(r.event_us), 0, 0, 0 },
	{ "tflops", "TFLOP/s", COL_REAL, COL(tflops), 7, 1, 1 },
	{ "tbs", "TB/s", COL_REAL, COL(tbs), 6, 3, 1 },
	{ "share", "% ceil", COL_REAL, COL(share), 6, 1, 0.01 },
	{ "rel_l2", "rel L2", COL_REAL, COL(r.rel_l2), 8, 5, 1 },
	{ "max_abs", "max abs", COL_REAL, COL(r.max_abs), 8, 5, 1 },
	{ "bits_off", "bits off", COL_REAL, COL(r.bits_off), 8, 6, 1 },
	BENCH_HOW_COLS(COL(how)),
#undef COL
	{ 0 }
};

/* ---- running ---- */

struct bench {
	const struct bench_args *a;
	struct grid grid;
	struct bench_device *device; /* NULL: dry run */
	struct bench_table table;
	double tflops, tbs; /* the ceilings; NaN before they are known */
	FILE *cases;	    /* NULL: the options say the cases */
	int n_case;	    /* planned so far */
	int n_off;	    /* rows that are not near the reference */
};

enum { CEILING = 8192 };
static const double rel_l2_most = 0.01, bits_off_most = 0.001;

static enum ar_status put_row(struct bench *b, struct row *r, struct ar_err *err)
{
	r->how.clock = isnan(r->r.us) ? NULL : r->r.traced ? "cupti" : "events";
	r->how.gpu = b->device ? bench_gpu(b->device) : NULL;
	r->how.repeat = b->a->repeat;
	r->how.seed = b->a->seed;
	r->tflops = r->flops / r->r.us * 1e-6;
	r->tbs = r->bytes / r->r.us * 1e-6;
	r->share = isfinite(r->tbs) ? r->tbs / b->tbs : r->tflops / b->tflops;
	return bench_table_put(&b->table, r, err);
}

static const struct bench_result nothing = { .us = NAN,
					     .min_us = NAN,
					     .event_us = NAN,
					     .rel_l2 = NAN,
					     .max_abs = NAN,
					     .kept = NAN,
					     .bits_off = NAN };

/* Measure the ceilings in this run: FLOP/s of a large product, bytes/s read and written of a
 * copy. */
static enum ar_status run_ceilings(struct bench *b, struct ar_err *err)
{
	const double n = CEILING;
	struct row product = { .what = "gemm",
			       .density = NAN,
			       .executed = NAN,
			       .bytes = NAN,
			       .flops = 2 * n * n * n,
			       .r = nothing };
	struct row copy = { .what = "copy",
			    .density = NAN,
			    .executed = NAN,
			    .flops = NAN,
			    .bytes = 4 * (4 * n * n),
			    .r = nothing };
	enum ar_status st = bench_product(b->device, CEILING, &product.r, err);

	if (st == AR_NODEV) {
		log_warn("%s; without a ceiling for TFLOP/s", err->msg);
		st = AR_OK;
	}
	if (!st)
		st = bench_copy(b->device, 2 * CEILING, &copy.r, err);
	if (st)
		return st;
	b->tflops = product.flops / product.r.us * 1e-6;
	b->tbs = copy.bytes / copy.r.us * 1e-6;
	st = put_row(b, &product, err);
	return st ? st : put_row(b, &copy, err);
}

/* Decode is bound by reading K and V once for the heads that share them, everything else by its
 * products. */
static struct row row_of(const struct bench_case *c, const struct bench_shape *s, double density,
			 const char *lists)
{
	bool select = c->what == BENCH_SELECT, decode = bench_decodes(c->what);
	double group = (double)(s->q_heads / s->kv_heads);
	double head = (double)cache_token_bytes(NULL, 1, (int)s->head_dim,
						(int)s->head_dim); /* bytes of a token */

	return (struct row){
		.what = bench_names[c->what],
		.batch = s->batch,
		.chunk = decode ? 1 : s->chunk,
		.context = s->context,
		.q_heads = s->q_heads,
		.kv_heads = s->kv_heads,
		.head_dim = s->head_dim,
		.block_size = s->page_tok,
		.lists = bench_takes_lists(c->what) ? lists : NULL,
		.density = (c->n_list && c->what != BENCH_PAST) || c->b.rows.first ? density : NAN,
		.flops = select ? NAN : 4.0 * (double)s->head_dim * (double)c->pairs,
		.bytes = decode ? head * ((double)c->pairs / group) : NAN,
		.executed = select ? NAN : (double)c->pairs / (double)c->dense_pairs,
		.r = nothing,
	};
}

static bool is_off(const struct bench *b, const struct bench_case *c, int part,
		   const struct bench_result *r)
{
	if (!b->device || !b->a->sample)
		return false;
	if (c->moved && part == 0) /* copies are not checked */
		return false;
	return c->what == BENCH_SELECT ? !(r->bits_off <= bits_off_most) :
					 !(r->rel_l2 <= rel_l2_most);
}

/* Names of the rows of a case that has two; NULL: it has one. */
static const char *const parts[BENCH_N][BENCH_PARTS] = {
	[BENCH_COPY] = { "copy-move", "copy-attend" },
	[BENCH_GATHER] = { "gather-move", "gather-attend" },
	[BENCH_SELECT] = { "select", "metadata" },
};

static enum ar_status put_case(struct bench *b, const struct bench_case *c, const struct row *row,
			       const struct bench_result result[BENCH_PARTS], struct ar_err *err)
{
	const char *const *part = parts[c->what];
	enum ar_status st = AR_OK;

	for (int i = 0; i < (part[0] ? BENCH_PARTS : 1) && !st; i++) {
		struct row r = *row;

		r.r = result[i];
		if (part[0])
			r.what = part[i];
		if (c->what == BENCH_SELECT)
			r.executed = r.r.kept;
		if (c->moved && i == 0) { /* keys and values, read and written */
			r.bytes = 2 * (double)c->moved *
				  (double)cache_token_bytes(NULL, 1, (int)r.head_dim,
							    (int)r.head_dim);
			r.flops = NAN;
		}
		b->n_off += is_off(b, c, i, &r.r);
		st = put_row(b, &r, err);
	}
	return st;
}

/* The share that a case keeps: of its lists, or as drawn. */
static double density_of(enum bench_what what, const struct bench_shape *s, double drawn)
{
	if (!s->lists || !bench_takes_lists(what))
		return drawn;
	return what == BENCH_BLOCKSPARSE ? s->lists->block_density : s->lists->table_density;
}

static enum ar_status run_case(struct bench *b, enum bench_what what, const struct bench_shape *s,
			       double density, struct ar_err *err)
{
	struct bench_result result[BENCH_PARTS] = { nothing, nothing };
	struct bench_case c;
	struct row row;
	enum ar_status st;

	if (ar_interrupted())
		return ar_fail(err, AR_INTERRUPTED, "interrupted");
	st = bench_case_make(&c, what, s, density, (uint64_t)b->a->seed, err);
	if (st)
		return st;
	row = row_of(&c, s, density_of(what, s, density), b->grid.path);
	if (b->device)
		st = bench_run(b->device, &c, result, err);
	if (st)
		ar_err_prefix(err, "%s, batch %lld, chunk %lld, context %lld", row.what,
			      (long long)row.batch, (long long)row.chunk, (long long)row.context);
	else
		st = put_case(b, &c, &row, result, err);
	bench_case_release(&c);
	return st;
}

/* Whether there are kernels for the case, on the device if it is open. */
static enum ar_status check_kernel(struct bench *b, enum bench_what what,
				   const struct bench_shape *s, double density, struct ar_err *err)
{
	const struct attn_shape shape = { (int)s->q_heads, (int)s->kv_heads, (int)s->head_dim,
					  (int)s->page_tok };
	const struct gpu *gpu = NULL;
	enum ar_status st = b->device ? gpu_current(&gpu, err) : AR_OK;

	(void)density;
	return st ? st : support_check(bench_kernel(what), &shape, NULL, gpu ? gpu->cc : 0, err);
}

static enum ar_status check_case(struct bench *b, enum bench_what what, const struct bench_shape *s,
				 double density, struct ar_err *err)
{
	enum ar_status st = check_kernel(b, what, s, density, err);

	b->n_case++;
	return st ? st : bench_shape_check(what, s, err);
}

typedef enum ar_status case_fn(struct bench *b, enum bench_what what, const struct bench_shape *s,
			       double density, struct ar_err *err);

/* The cases of one shape.  Without a past there is nothing to select. */
static enum ar_status each_of_shape(struct bench *b, const struct shape *shape, bool decode,
				    case_fn *fn, struct ar_err *err)
{
	const struct grid *g = &b->grid;
	int64_t chunk = shape->chunk < shape->context ? shape->chunk : shape->context;
	const struct bench_shape s = { .q_heads = b->a->q_heads,
				       .kv_heads = b->a->kv_heads,
				       .head_dim = b->a->head_dim,
				       .page_tok = b->a->block_size,
				       .batch = shape->batch,
				       .chunk = chunk,
				       .context = shape->context,
				       .lists = g->path ? &g->lists : NULL };
	enum bench_what all = decode ? BENCH_DECODE : BENCH_DENSE;
	enum bench_what table = decode ? BENCH_DECODE_TABLE : BENCH_TABLE;
	enum bench_what window = decode ? BENCH_DECODE_WINDOW : BENCH_WINDOW;
	bool past = s.context - s.chunk >= 128;
	enum ar_status st = AR_OK;

	if (g->what[all])
		st = fn(b, all, &s, 1, err);
	if (g->what[BENCH_PAST] && !decode && !st)
		st = fn(b, BENCH_PAST, &s, 1, err);
	for (int i = 0; i < g->n_density && g->what[table] && past && !st; i++)
		st = fn(b, table, &s, g->density[i], err);
	for (int i = 0; i < g->n_density && g->what[window] && !st; i++)
		st = fn(b, window, &s, g->density[i], err);
	if (decode)
		return st;
	if (g->what[BENCH_MIXED] && !st)
		st = fn(b, BENCH_MIXED, &s, 1, err);
	for (int i = 0; i < g->n_density && g->what[BENCH_BLOCKSPARSE] && !st; i++)
		st = fn(b, BENCH_BLOCKSPARSE, &s, g->density[i], err);
	for (int i = 0; i < g->n_density && g->what[BENCH_COPY] && past && !st; i++)
		st = fn(b, BENCH_COPY, &s, g->density[i], err);
	for (int i = 0; i < g->n_density && g->what[BENCH_GATHER] && past && !st; i++)
		st = fn(b, BENCH_GATHER, &s, g->density[i], err);
	if (g->what[BENCH_SELECT] && past && !st)
		st = fn(b, BENCH_SELECT, &s, 1, err);
	return st;
}

static enum ar_status each_default(struct bench *b, case_fn *fn, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (const struct shape *s = prefills; s->batch && !st; s++)
		st = each_of_shape(b, s, false, fn, err);
	for (const struct shape *s = decodes; s->batch && !st; s++)
		st = each_of_shape(b, s, true, fn, err);
	return st;
}

static enum ar_status each_case(struct bench *b, case_fn *fn, struct ar_err *err)
{
	const struct grid *g = &b->grid;
	enum ar_status st = AR_OK;

	if (!g->given)
		return each_default(b, fn, err);
	for (int i = 0; i < g->n_batch; i++)
		for (int k = 0; k < g->n_context; k++) {
			struct shape s = { g->batch[i], 1, g->context[k] };

			for (int j = 0; j < g->n_chunk && !st; j++) {
				s.chunk = g->chunk[j];
				st = each_of_shape(b, &s, false, fn, err);
			}
			s.chunk = 1;
			if (!st)
				st = each_of_shape(b, &s, true, fn, err);
		}
	return st;
}

/* ---- cases of a file ---- */

static enum ar_status open_cases(struct bench *b, struct ar_err *err)
{
	const char *path = b->a->cases;

	if (b->grid.given)
		return ar_fail(err, AR_USAGE,
			       "--cases replaces --batch, --chunk, --context and --lists; "
			       "leave them out");
	b->cases = strcmp(path, "-") ? fopen(path, "r") : stdin;
	return b->cases ? AR_OK : ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
}

static void close_cases(struct bench *b)
{
	if (b->cases && b->cases != stdin)
		fclose(b->cases);
}

/* WHAT BATCH CHUNK CONTEXT [DENSITY or LISTS], each as its option. */
static enum ar_status run_line(struct bench *b, char *line, struct ar_err *err)
{
	struct bench_args a = *b->a;
	char *last = NULL, *rest;
	char **const field[] = { &a.what, &a.batch, &a.chunk, &a.context, &last };
	int n = 0, n_case = b->n_case;
	enum ar_status st;

	for (char *s = strtok_r(line, " \t", &rest); s; s = strtok_r(NULL, " \t", &rest), n++)
		if (n < 5)
			*field[n] = s;
	if (n < 4 || n > 5)
		return ar_fail(err, AR_USAGE, "want WHAT BATCH CHUNK CONTEXT [DENSITY or LISTS]");
	if (last) {
		bool number = strspn(last, "0123456789.,eE+-") == strlen(last);

		a.density = number ? last : a.density;
		a.density_given = false; /* the field replaces it */
		a.lists = number ? NULL : last;
	}
	bench_lists_release(&b->grid.lists);
	b->grid = (struct grid){ 0 };
	st = make_grid(&b->grid, &a, err);
	if (!st)
		st = each_case(b, check_case, err);
	if (!st && b->n_case == n_case)
		st = ar_fail(err, AR_USAGE,
			     "nothing to select from: the context must be at least "
			     "128 tokens longer than the chunk");
	return st ? st : each_case(b, run_case, err);
}

/* Run a line before reading the next, whose writer may wait for the result. */
static enum ar_status each_line(struct bench *b, struct ar_err *err)
{
	char *line = NULL;
	size_t size = 0;
	enum ar_status st = AR_OK;

	for (int n = 1; !st && getline(&line, &size, b->cases) > 0; n++) {
		line[strcspn(line, "#\n")] = 0;
		if (line[strspn(line, " \t")])
			st = run_line(b, line, err);
		if (st)
			ar_err_prefix(err, "%s:%d", b->a->cases, n);
	}
	if (!st && ferror(b->cases))
		st = ar_fail(err, AR_DATA, "%s: %s", b->a->cases, strerror(errno));
	free(line);
	return st;
}

static enum ar_status open_device(struct bench *b, struct ar_err *err)
{
	const struct bench_env env = { (int)b->a->device, (int)b->a->repeat, (int)b->a->sample,
				       (uint64_t)b->a->seed };

	return b->a->dry_run ? AR_OK : bench_open(&b->device, &env, err);
}

enum ar_status bench_attention(const struct bench_args *a, struct ar_err *err)
{
	struct bench b = {
		.a = a,
		.tflops = NAN,
		.tbs = NAN,
		.table = { .cols = cols, .lines = a->format == FORMAT_JSON, .path = a->json }
	};
	enum ar_status st = make_grid(&b.grid, a, err);

	if (!st)
		st = a->cases ? open_cases(&b, err) : each_case(&b, check_case, err);
	if (!st)
		st = open_device(&b, err);
	if (!st && b.device && !a->cases)
		st = each_case(&b, check_kernel, err);
	if (!st)
		st = bench_table_open(&b.table, err);
	if (st)
		goto out;
	bench_table_heads(&b.table);
	if (b.device)
		st = run_ceilings(&b, err);
	if (!st)
		st = a->cases ? each_line(&b, err) : each_case(&b, run_case, err);
	if (!st && b.n_off)
		st = ar_fail(err, AR_CUDA,
			     "%d rows differ from the reference (rel L2 above %g, "
			     "or bits off above %g): do not trust them",
			     b.n_off, rel_l2_most, bits_off_most);
out:
	st = bench_table_close(&b.table, st, err);
	bench_close(b.device);
	bench_lists_release(&b.grid.lists);
	close_cases(&b);
	return st;
}
