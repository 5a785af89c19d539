/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay bench decode: parts of a method for decodes, phase by phase, beside dense decodes. */
#include "config.h"
#include "src/bench/bench_decode.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/bench/bench.h"
#include "src/bench/bench_sample.h"
#include "src/bench/bench_table.h"
#include "src/bench/bench_values.h"

struct row {
	const char *part;
	struct bench_shape s;
	struct bench_decode r;
	double core_us, speedup, select_share, executed, tbs, ceiling;
	struct bench_how how;
};

static const struct bench_col cols[] = {
#define COL(member) offsetof(struct row, member)
	{ "decode", "decode", COL_TEXT, COL(part), -47, 0, 0 },
	{ "batch", "batch", COL_COUNT, COL(s.batch), 5, 0, 0 },
	{ "chunk", NULL, COL_COUNT, COL(s.chunk), 0, 0, 0 },
	{ "context", "context", COL_COUNT, COL(s.context), 7, 0, 0 },
	{ "q_heads", NULL, COL_COUNT, COL(s.q_heads), 0, 0, 0 },
	{ "kv_heads", NULL, COL_COUNT, COL(s.kv_heads), 0, 0, 0 },
	{ "head_dim", NULL, COL_COUNT, COL(s.head_dim), 0, 0, 0 },
	{ "block_size", NULL, COL_COUNT, COL(s.page_tok), 0, 0, 0 },
	{ "chunk_us", "meta chunk", COL_REAL, COL(r.chunk_us), 10, 1, 1 },
	{ "meta_us", "meta", COL_REAL, COL(r.append_us), 7, 1, 1 },
	{ "select_us", "select", COL_REAL, COL(r.select_us), 7, 1, 1 },
	{ "decode_us", "decode", COL_REAL, COL(r.decode_us), 8, 1, 1 },
	{ "core_us", "core us", COL_REAL, COL(core_us), 8, 1, 1 },
	{ "event_us", NULL, COL_REAL, COL(r.event_us), 0, 0, 0 },
	{ "speedup", "speedup", COL_REAL, COL(speedup), 7, 2, 1 },
	{ "select_share", "sel %", COL_REAL, COL(select_share), 6, 2, 0.01 },
	{ "executed", "executed", COL_REAL, COL(executed), 8, 4, 1 },
	{ "tbs", "TB/s", COL_REAL, COL(tbs), 6, 3, 1 },
	{ "share", "% copy", COL_REAL, COL(ceiling), 6, 1, 0.01 },
	BENCH_HOW_COLS(COL(how)),
#undef COL
	{ 0 }
};

struct bench {
	const struct bench_args *a;
	char **method; /* "dense/decode=PART"; dense comes first */
	size_t n_method;
	int64_t batch[BENCH_LIST], chunk[BENCH_LIST], context[BENCH_LIST];
	int n_batch, n_chunk, n_context;
	struct bench_device *device; /* NULL: dry run */
	struct bench_table table;
	double tbs; /* of a copy; NaN before it is known */
};

/* ---- parts ---- */

/* Parts are split as methods are, by what their keys look like. */
static enum ar_status split_parts(struct bench *b, const char *list, struct ar_err *err)
{
	size_t n;
	char **all;
	enum ar_status st = method_split(list, &all, &n, err);

	if (st)
		return st;
	b->method = calloc(n + 1, sizeof *b->method);
	if (b->method)
		b->method[b->n_method++] = strdup("dense/decode=dense");
	for (size_t i = 0; i < n; i++) {
		if (b->method && strcmp(all[i], "dense") != 0 &&
		    asprintf(&b->method[b->n_method], "dense/decode=%s", all[i]) > 0)
			b->n_method++;
		free(all[i]);
	}
	free(all);
	return b->method && b->method[0] ? AR_OK : ar_nomem(err);
}

/* Open the method for the shape; device: on the current one. */
static enum ar_status open_method(struct method **m, const char *text, const struct bench_shape *s,
				  bool device, struct ar_err *err)
{
	const struct selector_env env = { .shape = { (int)s->q_heads, (int)s->kv_heads,
						     (int)s->head_dim, (int)s->page_tok },
					  .n_layers = 1,
					  .device = device };
	enum ar_status st = method_parse(m, text, err);

	if (!st)
		st = method_supported(&(*m)->part[ROW_DECODE], &env.shape, NULL, 0, err);
	if (!st)
		st = method_open(*m, &env, err);
	return st || !(*m)->later ? st : method_open((*m)->later, &env, err);
}

/* ---- rows ---- */

/* The bytes of K and V that a launch reads. */
static double bytes_of(const struct row *r)
{
	return r->executed * 4 * (double)(r->s.batch * r->s.context) *
	       (double)(r->s.kv_heads * r->s.head_dim);
}

/* Measure a layer of the method m; takes: one that takes the lists of another. */
static enum ar_status run_layer(struct bench *b, const struct method *m, const char *name,
				bool takes, const struct bench_shape *s, double *dense,
				struct ar_err *err)
{
	struct row r = { .part = name,
			 .s = *s,
			 .r = { NAN, NAN, NAN, NAN, NAN },
			 .executed = b->device ? 1 : NAN,
			 .how = { .repeat = b->a->repeat, .seed = b->a->seed } };
	enum ar_status st = b->device ? bench_decode_run(b->device, m, takes, s, &r.r, err) : AR_OK;

	if (!st && b->device && !m->part[ROW_DECODE].dense)
		r.executed = bench_ratio(r.r.count.exec_sel, r.r.count.exec_total);
	if (st) {
		ar_err_prefix(err, "%s, batch %lld, context %lld", r.part, (long long)s->batch,
			      (long long)s->context);
		return st;
	}
	r.core_us = r.r.select_us + r.r.decode_us;
	*dense = isnan(*dense) ? r.core_us : *dense;
	r.speedup = *dense / r.core_us;
	r.select_share = r.r.select_us / *dense;
	r.tbs = bytes_of(&r) / r.r.decode_us * 1e-6;
	r.ceiling = r.tbs / b->tbs;
	r.how.clock = !b->device ? NULL : r.r.traced ? "cupti" : "events";
	r.how.gpu = b->device ? bench_gpu(b->device) : NULL;
	return bench_table_put(&b->table, &r, err);
}

static enum ar_status run_one(struct bench *b, const char *text, const struct bench_shape *s,
			      double *dense, struct ar_err *err)
{
	const char *part = text + strlen("dense/decode=");
	char takes[160];
	struct method *m = NULL;
	enum ar_status st = open_method(&m, text, s, b->device, err);

	snprintf(takes, sizeof takes, "%s (takes)", part);
	if (!st)
		st = run_layer(b, m, part, false, s, dense, err);
	if (!st && m->later)
		st = run_layer(b, m, takes, true, s, dense, err);
	method_free(m);
	return st;
}

static enum ar_status run_shape(struct bench *b, const struct bench_shape *s, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	double dense = NAN;

	for (size_t i = 0; i < b->n_method && !st; i++)
		st = ar_interrupted() ? ar_fail(err, AR_INTERRUPTED, "interrupted") :
					run_one(b, b->method[i], s, &dense, err);
	return st;
}

static enum ar_status check_shape(struct bench *b, const struct bench_shape *s, struct ar_err *err)
{
	enum ar_status st = bench_shape_check(BENCH_DENSE, s, err);

	for (size_t i = 0; i < b->n_method && !st; i++) {
		struct method *m = NULL;

		st = open_method(&m, b->method[i], s, false, err);
		method_free(m);
	}
	return st;
}

typedef enum ar_status shape_fn(struct bench *b, const struct bench_shape *s, struct ar_err *err);

static enum ar_status each_shape(struct bench *b, shape_fn *fn, struct ar_err *err)
{
	const struct bench_args *a = b->a;
	struct bench_shape s = { .q_heads = a->q_heads,
				 .kv_heads = a->kv_heads,
				 .head_dim = a->head_dim,
				 .page_tok = a->block_size };
	enum ar_status st = AR_OK;

	for (int i = 0; i < b->n_batch; i++)
		for (int k = 0; k < b->n_context; k++)
			for (int j = 0; j < b->n_chunk && !st; j++) {
				s.batch = b->batch[i];
				s.context = b->context[k];
				s.chunk = b->chunk[j] < s.context ? b->chunk[j] : s.context;
				st = fn(b, &s, err);
			}
	return st;
}

static enum ar_status open_device(struct bench *b, struct ar_err *err)
{
	const struct bench_env env = { (int)b->a->device, (int)b->a->repeat, 0,
				       (uint64_t)b->a->seed };
	const double bytes = 4 * 16384.0 * 16384;
	struct bench_result copy = { .us = NAN };
	enum ar_status st = b->a->dry_run ? AR_OK : bench_open(&b->device, &env, err);

	if (!st && b->device)
		st = bench_copy(b->device, 16384, &copy, err);
	b->tbs = bytes / copy.us * 1e-6;
	return st;
}

static void release(struct bench *b)
{
	for (size_t i = 0; i < b->n_method; i++)
		free(b->method[i]);
	free(b->method);
	bench_close(b->device);
}

enum ar_status bench_decode(const struct bench_args *a, struct ar_err *err)
{
	struct bench b = {
		.a = a,
		.tbs = NAN,
		.table = { .cols = cols, .lines = a->format == FORMAT_JSON, .path = a->json }
	};
	enum ar_status st = split_parts(&b, a->decode, err);

	if (!st)
		st = bench_counts("batch", a->batch ? a->batch : "8", b.batch, &b.n_batch, err);
	if (!st)
		st = bench_counts("chunk", a->chunk ? a->chunk : "1024", b.chunk, &b.n_chunk, err);
	if (!st)
		st = bench_counts("context", a->context ? a->context : "128K", b.context,
				  &b.n_context, err);
	if (!st)
		st = each_shape(&b, check_shape, err);
	if (!st)
		st = open_device(&b, err);
	if (!st)
		st = bench_table_open(&b.table, err);
	if (st)
		goto out;
	bench_table_heads(&b.table);
	st = each_shape(&b, run_shape, err);
out:
	st = bench_table_close(&b.table, st, err);
	release(&b);
	return st;
}
