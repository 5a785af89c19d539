/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay bench method: the attention core of methods, stage by stage, beside dense. */
#include "config.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "src/bench/bench_sample.h"
#include "src/bench/bench_session.h"
#include "src/bench/bench_table.h"
#include "src/bench/bench_values.h"

struct row {
	const char *method, *input;
	struct bench_shape s;
	int64_t layers, input_tok, repeats;
	struct bench_sum sum;
	double speedup, select_share, executed, tiles, qunion, group;
	struct bench_how how;
};

static const struct bench_col cols[] = {
#define COL(member) offsetof(struct row, member)
	{ "method", "method", COL_TEXT, COL(method), -24, 0, 0 },
	{ "batch", "batch", COL_COUNT, COL(s.batch), 5, 0, 0 },
	{ "chunk", "chunk", COL_COUNT, COL(s.chunk), 6, 0, 0 },
	{ "context", "context", COL_COUNT, COL(s.context), 7, 0, 0 },
	{ "left", NULL, COL_INT, COL(s.left), 0, 0, 0 },
	{ "q_heads", NULL, COL_COUNT, COL(s.q_heads), 0, 0, 0 },
	{ "kv_heads", NULL, COL_COUNT, COL(s.kv_heads), 0, 0, 0 },
	{ "head_dim", NULL, COL_COUNT, COL(s.head_dim), 0, 0, 0 },
	{ "block_size", NULL, COL_COUNT, COL(s.page_tok), 0, 0, 0 },
	{ "select_us", "select", COL_REAL, COL(sum.us[BENCH_PART_SELECT]), 9, 1, 1 },
	{ "metadata_us", "metadata", COL_REAL, COL(sum.us[BENCH_PART_METADATA]), 9, 1, 1 },
	{ "copy_us", "copy", COL_REAL, COL(sum.us[BENCH_PART_COPY]), 9, 1, 1 },
	{ "attend_us", "attend", COL_REAL, COL(sum.us[BENCH_PART_ATTEND]), 9, 1, 1 },
	{ "drop_us", "drop", COL_REAL, COL(sum.us[BENCH_PART_DROP]), 9, 1, 1 },
	{ "core_us", "core us", COL_REAL, COL(sum.core_us), 9, 1, 1 },
	{ "event_us", NULL, COL_REAL, COL(sum.event_us), 0, 0, 0 },
	{ "speedup", "speedup", COL_REAL, COL(speedup), 7, 2, 1 },
	{ "select_share", "sel %", COL_REAL, COL(select_share), 6, 2, 0.01 },
	{ "executed", "executed", COL_REAL, COL(executed), 8, 4, 1 },
	{ "density", "density", COL_REAL, COL(tiles), 7, 4, 1 },
	{ "density_qunion", "q-union", COL_REAL, COL(qunion), 7, 4, 1 },
	{ "density_group", "union", COL_REAL, COL(group), 7, 4, 1 },
	{ "kept", "kept", COL_REAL, COL(sum.kept), 6, 4, 1 },
	{ "rel_l2", "rel L2", COL_REAL, COL(sum.rel_l2), 8, 5, 1 },
	{ "dense_l2", "to dense", COL_REAL, COL(sum.dense_l2), 8, 5, 1 },
#define X(name, doc) { #name, NULL, COL_INT, COL(sum.count.name), 0, 0, 0 },
	SELECTION_COUNTS(X)
#undef X
		{ "input", NULL, COL_TEXT, COL(input), 0, 0, 0 },
	{ "input_tokens", NULL, COL_COUNT, COL(input_tok), 0, 0, 0 },
	{ "input_repeats", NULL, COL_COUNT, COL(repeats), 0, 0, 0 },
	{ "layers", NULL, COL_INT, COL(layers), 0, 0, 0 },
	BENCH_HOW_COLS(COL(how)),
#undef COL
	{ 0 }
};

struct bench {
	struct bench_session session;
	struct bench_table table;
	struct bench_shape heads; /* heads of all shapes */
	char **method;		  /* dense comes first */
	size_t n_method;
	int64_t batch[BENCH_LIST], chunk[BENCH_LIST], context[BENCH_LIST];
	int n_batch, n_chunk, n_context, n_off;
};

static void bench_release(struct bench *p)
{
	for (size_t i = 0; i < p->n_method; i++)
		free(p->method[i]);
	free(p->method);
	bench_session_close(&p->session);
}

/* Run a method on a shape.  *dense: time of dense, NaN before the first method, which is dense. */
static enum ar_status run_one(struct bench *p, const char *method, const struct bench_shape *shape,
			      double *dense, struct ar_err *err)
{
	const struct bench_session *s = &p->session;
	struct row r = { .method = method,
			 .input = bench_session_input(s),
			 .s = *shape,
			 .layers = s->n_layer,
			 .input_tok = bench_session_tok(s),
			 .repeats = bench_session_repeats(s, shape),
			 .how = { .repeat = s->a->repeat, .seed = s->a->seed } };
	const struct selection_count *c = &r.sum.count;
	enum ar_status st = bench_session_run(&p->session, method, shape,
					      (struct bench_chunks){ .last = true }, &r.sum, err);

	if (st) {
		ar_err_prefix(err, "%s, batch %lld, chunk %lld, context %lld", method,
			      (long long)shape->batch, (long long)shape->chunk,
			      (long long)shape->context);
		return st;
	}
	p->n_off += r.sum.off;
	if (isnan(*dense))
		*dense = r.sum.core_us;
	r.s.page_tok = r.sum.page_tok;
	r.how.clock = !s->device ? NULL : r.sum.traced ? "cupti" : "events";
	r.how.gpu = s->device ? bench_gpu(s->device) : NULL;
	r.speedup = *dense / r.sum.core_us;
	r.select_share = (r.sum.us[BENCH_PART_SELECT] + r.sum.us[BENCH_PART_DROP]) / *dense;
	r.executed = bench_ratio(c->exec_sel, c->exec_total);
	r.tiles = bench_ratio(c->tiles_sel, c->tiles_total);
	r.qunion = bench_ratio(c->qunion_sel, c->qunion_total);
	r.group = bench_ratio(c->group_sel, c->group_total);
	return bench_table_put(&p->table, &r, err);
}

typedef enum ar_status shape_fn(struct bench *p, const struct bench_shape *shape,
				struct ar_err *err);

static enum ar_status check_shape(struct bench *p, const struct bench_shape *shape,
				  struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int page_tok;

	for (size_t i = 0; i < p->n_method && !st; i++) {
		st = bench_session_check(p->method[i], shape, &page_tok, NULL, err);
		if (!st)
			st = bench_session_check_drop(&p->session, p->method[i], err);
	}
	return st;
}

static enum ar_status run_shape(struct bench *p, const struct bench_shape *shape,
				struct ar_err *err)
{
	enum ar_status st = AR_OK;
	double dense = NAN;

	for (size_t i = 0; i < p->n_method && !st; i++)
		st = run_one(p, p->method[i], shape, &dense, err);
	return st;
}

static enum ar_status each_shape(struct bench *p, shape_fn *fn, struct ar_err *err)
{
	struct bench_shape s = p->heads;
	enum ar_status st = AR_OK;

	for (int i = 0; i < p->n_batch; i++)
		for (int k = 0; k < p->n_context; k++)
			for (int j = 0; j < p->n_chunk && !st; j++) {
				s.batch = p->batch[i];
				s.context = p->context[k];
				s.chunk = p->chunk[j] < s.context ? p->chunk[j] : s.context;
				st = fn(p, &s, err);
			}
	return st;
}

/* Split the list: "dense" first, then the other methods. */
static enum ar_status split_methods(struct bench *p, const char *list, struct ar_err *err)
{
	size_t n;
	char **all;
	enum ar_status st = method_split(list, &all, &n, err);

	if (st)
		return st;
	p->method = calloc(n + 1, sizeof *p->method);
	if (p->method)
		p->method[p->n_method++] = strdup("dense");
	for (size_t i = 0; i < n; i++)
		if (p->method && strcmp(all[i], "dense"))
			p->method[p->n_method++] = all[i];
		else
			free(all[i]);
	free(all);
	return p->method && p->method[0] ? AR_OK : ar_nomem(err);
}

enum ar_status bench_method(const struct bench_args *a, struct ar_err *err)
{
	struct bench p = {
		.table = { .cols = cols, .lines = a->format == FORMAT_JSON, .path = a->json }
	};
	enum ar_status st = split_methods(&p, a->method, err);

	if (!st)
		st = bench_counts("batch", a->batch ? a->batch : "8", p.batch, &p.n_batch, err);
	if (!st)
		st = bench_counts("chunk", a->chunk ? a->chunk : "1024", p.chunk, &p.n_chunk, err);
	if (!st)
		st = bench_counts("context", a->context ? a->context : "128K", p.context,
				  &p.n_context, err);
	if (!st)
		st = bench_session_open(&p.session, a, err);
	p.heads.left = a->left;
	if (!st)
		st = bench_session_heads(&p.session, a->tp ? a->tp : 1, &p.heads, err);
	if (!st)
		st = each_shape(&p, check_shape, err);
	if (!st)
		st = bench_session_device(&p.session, err);
	if (!st)
		st = bench_table_open(&p.table, err);
	if (st)
		goto out;
	if (!p.table.lines)
		bench_session_print(&p.session, &p.heads);
	bench_table_heads(&p.table);
	st = each_shape(&p, run_shape, err);
	if (!st && p.n_off)
		st = ar_fail(err, AR_CUDA,
			     "%d rows differ from double precision: do not trust "
			     "them",
			     p.n_off);
out:
	st = bench_table_close(&p.table, st, err);
	bench_release(&p);
	return st;
}
