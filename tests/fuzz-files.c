/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as each of the small files that options and parameters name.  They are
 * models, gates, patterns, thresholds, plans, job files, sweeps, logs of engines, hosts; factors of
 * dense attention, GPUs of the roofline model, prompts, points of curves.  The file must be read,
 * or refused with a message. */
#include "config.h"

#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/opt.h"
#include "kernels/methods/plan.h"
#include "model/model.h"
#include "replay/cost/comm_table.h"
#include "replay/cost/dense_as.h"
#include "replay/cost/experts.h"
#include "replay/cost/roofline_gpu.h"
#include "replay/host/host.h"
#include "src/bench/bench_lists.h"
#include "src/run/options.h"
#include "src/select/curve.h"
#include "src/sweep/sweep_file.h"
#include "tests/fuzz.h"
#include "traces/engine/engine_log.h"
#include "traces/prompts.h"

const char fuzz_corpus[] = "files";

static bool has_size(const struct layer_spec *l)
{
	const struct delta_spec *d = &l->delta;

	if (l->mixer == MIX_LINEAR)
		return d->k_heads > 0 && d->v_heads >= d->k_heads && d->k_dim > 0 && d->v_dim > 0 &&
		       d->conv > 0;
	return l->head_dim > 0 && l->kv_heads > 0 && l->q_heads >= l->kv_heads &&
	       (l->rotary_dim > 0 || l->mixer == MIX_FULL) &&
	       (l->mixer != MIX_WINDOW || l->window > 0);
}

static void as_model(const char *path)
{
	struct ar_err err = { 0 };
	struct model m;

	if (model_load(&m, path, &err)) {
		told(&err);
		return;
	}
	must(m.n_layers > 0 && m.hidden > 0 && m.vocab > 0, "a model without a size");
	for (int i = 0; i < m.n_layers; i++)
		must(has_size(&m.layer[i]), "a layer without a size");
	if (model_split(&m, 2, &err))
		told(&err);
	model_release(&m);
}

static void as_parameter(const char *what, const char *path)
{
	static const float inv[4] = { 1, 0.1f, 0.01f, 0.001f };
	static const struct selector_env env = { .shape = { 2, 1, 8, 128 },
						 .n_layers = 3,
						 .rope_inv = inv };
	char text[100];
	struct ar_err err = { 0 };
	struct method *m;

	snprintf(text, sizeof text, "%s=%s", what, path);
	must(!method_parse(&m, text, &err), err.msg);
	if (method_open(m, &env, &err))
		told(&err);
	method_free(m);
}

static void as_plan(const char *path)
{
	char text[100];
	struct ar_err err = { 0 };
	struct plan *p;

	snprintf(text, sizeof text, "plan=%s", path);
	if (plan_parse(&p, text, &err)) {
		told(&err);
		return;
	}
	must(p->n_range && p->n_method && *p->params == '{', "a plan without a method");
	for (size_t i = 1; i < p->n_range; i++)
		must(p->range[i - 1].last >= 0 && p->range[i - 1].last < p->range[i].first,
		     "a plan whose ranges overlap");
	plan_free(p);
}

static void as_job(const char *path)
{
	static const char *const choice[] = { "no", "yes", NULL };
	struct all {
		bool flag;
		int64_t n, ns;
		double x;
		char *s;
		struct opt_list list;
		int which;
	} all = { 0 };
#define AT(field) offsetof(struct all, field)
	/* clang-format off */
	static const struct opt opts[] = {
		{ .name = "flag", .type = OPT_FLAG, .off = AT(flag), .help = "flag" },
		{ .name = "n", .type = OPT_INT, .off = AT(n), .arg = "N", .def = "7", .min = 1,
		  .max = 1000, .help = "number" },
		{ .name = "time", .type = OPT_TIME, .off = AT(ns), .arg = "T", .def = "6ms",
		  .help = "time" },
		{ .name = "x", .type = OPT_REAL, .off = AT(x), .arg = "X", .def = "0.5", .max = 1,
		  .help = "share" },
		{ .name = "name", .type = OPT_STR, .off = AT(s), .arg = "NAME", .def = "a",
		  .help = "text" },
		{ .name = "file", .type = OPT_LIST, .off = AT(list), .arg = "FILE",
		  .help = "texts" },
		{ .name = "which", .type = OPT_ENUM, .off = AT(which), .arg = "HOW", .def = "no",
		  .choice = choice, .help = "choice" },
		{ .name = "job", .type = OPT_JOB, .arg = "FILE", .help = "file" },
		{ 0 }
	};
	/* clang-format on */
#undef AT
	struct opt_group g[] = { { .title = "All", .opts = opts, .base = &all }, { 0 } };
	struct ar_err err = { 0 };

	must(!opt_init(g, &err), err.msg);
	if (opt_load(g, path, &err))
		told(&err);
	must(all.n >= 1 && all.n <= 1000 && all.x >= 0 && all.x <= 1 && all.which <= 1,
	     "a value out of its range");
	opt_release(g);
}

static void as_sweep(const char *path)
{
	struct run_options o;
	struct sweep s = { 0 };
	struct ar_err err = { 0 };
	struct texts t = { 0 };

	must(!run_options_init(&o, RUN_OWN_ALL, &err), err.msg);
	if (sweep_load(&s, path, o.group, &err)) {
		told(&err);
	} else {
		must(s.n_point >= 1 && s.n_point <= SWEEP_POINTS_MAX, "too many points, or none");
		must(!sweep_arguments(&s, s.n_point - 1, o.group, &t, &err), err.msg);
		must(t.n >= 1, "a point without an option");
	}
	texts_release(&t);
	sweep_release(&s);
	run_options_release(&o);
}

static void as_engine_log(const char *path)
{
	struct ar_err err = { 0 };
	struct engine_log *log;
	size_t n_entry = 0;

	if (engine_log_open(&log, path, &err)) {
		told(&err);
		return;
	}
	must(log->n_step || log->n_request, "an empty log");
	for (size_t i = 0; i < log->n_step; i++) {
		const struct engine_step *s = &log->step[i];

		must(s->begin_ns >= 0 && s->begin_ns <= s->end_ns && s->first == n_entry,
		     "a step out of order");
		n_entry += s->n_entry;
	}
	must(n_entry == log->n_entry, "entries without a step");
	for (size_t i = 0; i < log->n_entry; i++)
		must(log->entry[i].n_tok && log->entry[i].req >= -1 &&
			     log->entry[i].req < (int64_t)log->n_request,
		     "an entry of no request");
	engine_log_close(log);
}

static void as_host(const char *path)
{
	struct ar_err err = { 0 };
	struct host h;

	if (host_load_file(&h, path, &err)) {
		told(&err);
		return;
	}
	must(h.max_captured >= 0, "a graph of fewer than no tokens");
	for (int i = 0; i < HOST_N_TIMES; i++)
		must(h.ns[i] >= 0, "a time below 0");
	for (int k = 0; k < HOST_KINDS; k++)
		for (int i = 0; i < HOST_SPREAD; i++)
			must(!h.spread[k][i] == !h.spread[k][0] && h.spread[k][i] >= 0 &&
				     h.spread[k][i] <= 1000000,
			     "a spread that is not whole");
}

static void check_curve(const struct dense_as_curve *c)
{
	must(c->n >= 1 && c->n <= DENSE_AS_POINTS_MAX, "a curve without points");
	for (int i = 0; i < c->n; i++) {
		double keys = c->point[i].keys, factor = dense_as_factor(c, keys),
		       after = dense_as_factor(c, keys * 1.5);

		must(keys > (i ? c->point[i - 1].keys : 0), "a curve out of order");
		must(factor > 0.099 && factor < 100.1 && after > 0.099 && after < 100.1,
		     "a factor out of its range");
	}
}

static void as_dense_as(const char *path)
{
	struct ar_err err = { 0 };
	struct dense_as d;

	if (dense_as_load(&d, path, &err)) {
		told(&err);
		return;
	}
	check_curve(&d.prefill);
	check_curve(&d.decode);
	must(d.mixed.prefill >= 0 && d.mixed.prefill <= 100 && d.mixed.decode >= 0 &&
		     d.mixed.decode <= 100 && d.mixed.walk_us >= 0 && d.mixed.walk_us <= 100 &&
		     d.mixed.fill_rows >= 0 && d.mixed.fill_rows <= 1e6,
	     "a mixed launch out of its range");
}

static void as_comm(const char *path)
{
	struct ar_err err = { 0 };
	struct comm_table t;

	if (comm_table_load(&t, path, (int[COMM_N_OPS]){ 4, 4 }, &err)) {
		told(&err);
	} else {
		for (int64_t bytes = 1; bytes < (int64_t)1 << 60; bytes *= 3)
			must(comm_table_ns(&t, COMM_REDUCE, true, bytes) >= 0 &&
				     comm_table_ns(&t, COMM_GATHER, false, bytes) >= 0,
			     "a collective of negative time");
	}
	comm_table_release(&t);
}

static void as_routing(const char *path)
{
	const int kind[3] = { 0, 0, 0 };
	const struct experts_shape shape = { 4, 2, 2, 3, kind };
	struct ar_err err = { 0 };
	struct experts *r;

	if (experts_open(&r, path, &shape, 1, &err))
		told(&err);
	else
		must(experts_most(r, 1, 0, 99).rows >= 99, "rows without experts");
	experts_close(r);
}

static void as_gpu(const char *path)
{
	struct ar_err err = { 0 };
	struct roofline_gpu g;

	if (roofline_gpu_load(&g, path, &err)) {
		told(&err);
		return;
	}
	must(g.tflops > 0 && g.gbps > 0 && g.launch_ns >= 0 && g.graph_launch_ns >= 0,
	     "a GPU without a rate");
	for (int i = 1; i < ROOFLINE_KINDS; i++)
		must(!g.own[i] || (g.rate[i].compute > 0 && g.rate[i].memory > 0 &&
				   g.rate[i].fixed_ns >= 0),
		     "a kind without a rate");
}

static void as_prompts(const char *path)
{
	struct ar_err err = { 0 };
	struct prompts p = { 0 };

	if (prompts_read(&p, path, &err))
		told(&err);
	else
		must(p.n > 0, "a file without prompts");
	for (size_t i = 0; i < p.n && !err.status; i++) {
		const struct prompt *v = &p.v[i];

		must(prompts_at(&p, v->line) == v, "a prompt of another line");
		must(v->n_prompt > 0 && !v->answer == !v->n_answer, "a prompt without tokens");
		for (uint32_t k = 0; k < v->n_prompt; k++)
			must(v->prompt[k] >= 0, "a token below 0");
		for (uint32_t k = 0; k < v->n_answer; k++)
			must(v->answer[k] >= 0, "a token below 0");
	}
	prompts_release(&p);
}

static void as_curve(const char *path)
{
	struct ar_err err = { 0 };
	sqlite3 *db = NULL;
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	must(f != NULL, "no memory");
	if (curve_read(&db, path, &err))
		told(&err);
	else if (curve_put_svg(db, f, &err) || curve_put_points(db, f, &err))
		told(&err);
	fclose(f);
	free(text);
	sqlite3_close(db);
}

static void as_lists(const char *path)
{
	struct ar_err err = { 0 };
	struct bench_lists l;

	if (bench_lists_read(&l, path, &err)) {
		told(&err);
		return;
	}
	must(l.block || l.table, "a selection without lists");
	must(l.block_density >= 0 && l.block_density <= 1 && l.table_density >= 0 &&
		     l.table_density <= 1,
	     "a share outside of 0 to 1");
	if (l.block)
		bench_lists_block(&l, (int)l.q_heads - 1, l.n_qblk - 1, l.n_blk - 1);
	if (l.table)
		bench_lists_table(&l, (int)l.kv_heads - 1, l.n_blk - 1);
	bench_lists_release(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char path[HOLD_PATH];
	int fd = hold(data, n, path);

	as_model(path);
	as_parameter("minference:pattern", path);
	as_parameter("seer:gate", path);
	as_parameter("xattention:table", path);
	as_plan(path);
	as_job(path);
	as_sweep(path);
	as_engine_log(path);
	as_host(path);
	as_dense_as(path);
	as_comm(path);
	as_routing(path);
	as_gpu(path);
	as_prompts(path);
	as_curve(path);
	as_lists(path);
	close(fd);
	return 0;
}
