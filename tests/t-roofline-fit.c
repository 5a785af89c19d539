/* SPDX-License-Identifier: Apache-2.0 */
/* Calibration of the roofline model: known rates come back, from points and from a database. */
#include "config.h"
#include "src/calibrate/calibrate.h"
#include "src/calibrate/roofline_runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiler/store/store.h"
#include "tests/alloc_fault.h"
#include "tests/query.h"
#include "tests/sample_db.h"
#include "tests/tap.h"

static char dir[] = "t-roofline-fit.XXXXXX";

static bool near(double a, double b)
{
	return fabs(a / b - 1) < 0.005;
}

/* ---- points ---- */

/* Points from bound by memory to bound by compute, as a GPU with the rate would have them. */
static size_t make_points(struct roofline_point *p, const struct roofline_rate *r)
{
	size_t n = 0;

	for (int m = 1; m <= 8; m++)
		for (int c = 1; c <= 8; c++, n++) {
			p[n] = (struct roofline_point){ 1000.0 * c * c, 3000.0 * m, 0 };
			p[n].measured = roofline_fit_ns(r, &p[n]);
		}
	return n;
}

static void test_points(void)
{
	const struct roofline_rate known = { .compute = 0.7, .memory = 0.4, .fixed_ns = 2500 };
	struct roofline_rate r = { .compute = 0.1, .memory = 0.9, .fixed_ns = 0 };
	struct roofline_told told = { false, false };
	struct roofline_point p[64];
	size_t n = make_points(p, &known);

	roofline_fit(p, n, &r, &told);
	ok(near(r.compute, 0.7) && near(r.memory, 0.4) && r.fixed_ns == 2500,
	   "known rates come back: %g %g %lld", r.compute, r.memory, (long long)r.fixed_ns);
	ok(told.compute && told.memory, "... both are told");

	for (size_t i = 0; i < n; i++) {
		p[i].compute = 0;
		p[i].measured = p[i].memory / 0.4 + 2500;
	}
	r = (struct roofline_rate){ .compute = 0.3, .memory = 0.9, .fixed_ns = 0 };
	roofline_fit(p, n, &r, &told);
	ok(near(r.memory, 0.4) && r.fixed_ns == 2500 && told.memory, "without FLOPs memory's");
	ok(r.compute == 0.3 && !told.compute, "... and the other stays, untold");

	p[0] = (struct roofline_point){ 0, 100, 700 };
	r = (struct roofline_rate){ .compute = 0.3, .memory = 0.5, .fixed_ns = 0 };
	roofline_fit(p, 1, &r, &told);
	is_int(llround(roofline_fit_ns(&r, &p[0])), 700, "one point is met");

	for (size_t i = 0; i < 8; i++)
		p[i] = (struct roofline_point){ 0, 100.0 * (double)(i + 1),
						30.0 * (double)(i + 1) };
	r = (struct roofline_rate){ .compute = 0.3, .memory = 0.5, .fixed_ns = 9 };
	roofline_fit(p, 8, &r, &told);
	ok(r.memory <= 1, "no fit finds more than the peak: %g", r.memory);
}

/* ---- databases ---- */

static const struct {
	const char *name, *params;
	bool dense;
} methods[] = { { "dense", "{}", true }, { "flashprefill", "{}", false } };

/* A GPU with other shares than the preset it is compared with. */
static struct roofline_gpu known_gpu(void)
{
	struct roofline_gpu g;
	struct ar_err err = { 0 };

	if (roofline_gpu_load(&g, "h200", &err))
		bail_out("%s", err.msg);
	for (int k = 1; k < ROOFLINE_KINDS; k++)
		g.rate[k] = (struct roofline_rate){ .compute = 0.3 + 0.005 * k,
						    .memory = 0.9 - 0.005 * k,
						    .fixed_ns = 100 + 50 * k };
	g.own[roofline_selector_kind("flashprefill")] = true;
	g.own[roofline_executor_kind("blocksparse")] = true;
	g.launch_ns = 900;
	g.graph_launch_ns = 120;
	return g;
}

/* Batches: chunks of 1 to 8192 tokens at 0 to 64K, and 1 to 256 decodes. */
static struct batch make_batch(int i, struct batch_entry *e)
{
	struct batch b = { e, 1, 0, 0, NULL, { 0 } };

	if (i % 2) {
		uint32_t n = 1u << i / 2 % 14;

		*e = (struct batch_entry){ .start = (uint32_t)(i % 5) * 16384,
					   .n_tok = n,
					   .n_emit = i % 4 == 1 };
		b.prefill_tok = n;
		return b;
	}
	b.n = 1u << i / 2 % 9;
	for (size_t k = 0; k < b.n; k++)
		e[k] = (struct batch_entry){ .req = (uint32_t)k,
					     .start = 100 + (uint32_t)(i * i),
					     .n_tok = 1,
					     .kind = ROW_DECODE,
					     .n_emit = 1 };
	b.decode_tok = (int64_t)b.n;
	return b;
}

enum { ITERATIONS = 84, HALF = 50 };

static enum ar_status put_iteration(struct store *s, const struct roofline_gpu *g,
				    const struct roofline_subject *subject, int i,
				    struct ar_err *err)
{
	static struct batch_entry e[256];
	static struct store_entry row[256];
	static double density[256];
	struct batch b = make_batch(i, e);
	struct roofline_work work[PHASE_COUNT];
	struct roofline_time t;
	struct store_iteration it = { 0 };

	for (size_t k = 0; k < b.n; k++) {
		row[k] = (struct store_entry){ e[k].req,
					       e[k].start,
					       e[k].n_tok,
					       (uint32_t)i,
					       e[k].kind == ROW_DECODE,
					       e[k].n_emit > 0,
					       false };
		density[k] = subject->method->dense ? 1 : HALF / 100.0;
	}
	roofline_count(subject, 0, &b, density, work);
	t = roofline_time(g, subject->method, work, b.prefill_tok > 0, 32);
	it.row = (struct row_iteration){ .iter_no = i,
					 .end_ns = t.cost_ns,
					 .event_ns = -1,
					 .span_ns = t.cost_ns,
					 .busy_ns = t.cost_ns,
					 .cost_source = "timed",
					 .host_schedule_ns = -1,
					 .host_prepare_ns = -1,
					 .host_launch_ns = -1,
					 .host_update_ns = -1 };
	it.entry = row;
	it.n_entry = b.n;
	it.phase_ns = t.phase_ns;
	it.phase_kernels = t.kernels;
	return store_iteration(s, &it, err);
}

/* A run of the method as the known GPU would have run it. */
static void put_run(const char *db, int method, const char *clock, bool counts)
{
	const struct sample_run sample = { .method = methods[method].name,
					   .dense = methods[method].dense,
					   .options = "{\"attention-only\":false}" };
	struct store_run rec = sample_record(&sample);
	struct roofline_gpu g = known_gpu();
	struct roofline_subject subject;
	struct model model;
	struct method *m;
	struct store *s;
	struct ar_err err = { 0 };
	int64_t run;
	enum ar_status st;

	rec.clock = clock;
	if (model_parse(&model, rec.model_name, rec.model_json, &err) ||
	    method_parse(&m, rec.method_name, &err) || store_open(&s, db, &err))
		bail_out("%s", err.msg);
	subject = (struct roofline_subject){ .model = &model, .method = m };
	st = store_run_begin(s, &rec, &run, &err);
	for (int i = 0; i < ITERATIONS && !st; i++)
		st = put_iteration(s, &g, &subject, i, &err);
	if (!st && counts)
		st = store_selection(s,
				     &(struct store_selection){
					     .row = { .half = "prefill" },
					     .count = { .exec_total = 100, .exec_sel = HALF } },
				     &err);
	if (!st)
		st = store_run_end(s, "done", NULL, NULL, &err);
	if (st || store_close(s, &err))
		bail_out("%s", err.msg);
	model_release(&model);
	method_free(m);
}

static enum ar_status calibrate(const char *run, const char *out, struct ar_err *err)
{
	const struct calibrator *c = &calibrate_roofline;
	char first[64], second[64], *path[] = { first, second };
	void *arg = calloc(1, c->arg_size);
	struct opt_group g[] = { { .opts = c->opts, .base = arg }, { 0 } };
	const char *comma = strchr(run, ',');
	enum ar_status st;

	if (!arg || opt_init(g, err))
		bail_out("out of memory");
	snprintf(first, sizeof first, "%.*s", (int)strcspn(run, ","), run);
	snprintf(second, sizeof second, "%s", comma ? comma + 1 : "");
	st = c->run_logs(arg, path, comma ? 2 : 1, out, err);
	opt_release(g);
	free(arg);
	return st;
}

static void is_rate(const struct roofline_gpu *got, const struct roofline_gpu *want, int kind,
		    bool compute, bool memory)
{
	const struct roofline_rate *a = &got->rate[kind], *b = &want->rate[kind];
	char name[96];

	ok((!compute || near(a->compute, b->compute)) && (!memory || near(a->memory, b->memory)) &&
		   llabs(a->fixed_ns - b->fixed_ns) <= 3,
	   "%s comes back: %g %g %lld, of %g %g %lld", roofline_kind_name(kind, name, sizeof name),
	   a->compute, a->memory, (long long)a->fixed_ns, b->compute, b->memory,
	   (long long)b->fixed_ns);
}

static void test_database(void)
{
	const struct roofline_gpu want = known_gpu();
	struct roofline_gpu got, preset;
	struct ar_err err = { 0 };

	put_run("a.db", 0, "cupti", false);
	put_run("a.db", 1, "cupti", true);
	if (!is_int(calibrate("a.db:1,a.db:2", "a.json", &err), AR_OK,
		    "two runs are calibrated on"))
		bail_out("%s", err.msg);
	if (roofline_gpu_load(&got, "a.json", &err) || roofline_gpu_load(&preset, "h200", &err))
		bail_out("%s", err.msg);
	is_rate(&got, &want, PHASE_LINEAR, true, true);
	is_rate(&got, &want, PHASE_NORM, false, true);
	is_rate(&got, &want, PHASE_ROPE, false, true);
	is_rate(&got, &want, PHASE_CACHE, false, true);
	is_rate(&got, &want, PHASE_METADATA, false, true);
	is_rate(&got, &want, PHASE_ATTEND, true, true);
	is_rate(&got, &want, PHASE_DECODE, false, true);
	is_rate(&got, &want, PHASE_HEAD, false, true);
	is_rate(&got, &want, roofline_selector_kind("flashprefill"), true, true);
	is_rate(&got, &want, roofline_executor_kind("blocksparse"), true, true);
	ok(got.launch_ns == 900 && got.graph_launch_ns == 120, "... and what launches add");
	is_int(got.memory_bytes, 150000000000, "... and the GPU's memory");
	is_int(got.rate[PHASE_COPY].fixed_ns, preset.rate[PHASE_COPY].fixed_ns,
	       "what no run has stays as in the preset");
	is_str(got.about, "fitted to 168 iterations of 2 runs on NVIDIA H200",
	       "the file says what it is from");
}

static void refused(const char *run, const char *want)
{
	struct ar_err err = { 0 };

	ok(calibrate(run, "x.json", &err) == AR_USAGE && strstr(err.msg, want), "refused: %s",
	   err.msg);
}

static void test_refusals(void)
{
	struct ar_err err = { 0 };

	refused("a.db", "a.db: 2 finished runs; name one of them");
	put_run("b.db", 1, "cupti", false);
	refused("b.db", "b.db:1: the density of flashprefill was not measured; measure it with an "
			"--accuracy above 0");
	change("b.db", "DELETE FROM request_span");
	refused("b.db", "b.db:1: the run has no entries of batches; measure it without "
			"--keep-tables and --keep-entries no");
	change("b.db", "UPDATE run SET clock = 'cpu'");
	refused("b.db",
		"b.db:1: its clock is 'cpu'; want a run of backend cuda that CUPTI measured");
	change("b.db", "UPDATE model SET config = json_set(config, '$.sliding_window', 8)");
	change("b.db", "UPDATE run SET clock = 'cupti'");
	refused("b.db", "has layers without full attention or layers that differ; fit a GPU to");
	change("b.db", "UPDATE run SET clock = 'cpu'");
	change("b.db", "UPDATE run SET model_id = NULL");
	refused("b.db", "b.db:1: no kernels were run; want a run of backend cuda");
	change("b.db", "UPDATE run SET clock = 'modelled'");
	refused("b.db:1", "b.db: run 1 is modelled; costs need a finished run");
	put_run("c.db", 0, "cupti", false);
	change("c.db", "UPDATE iteration SET span_ns = NULL");
	is_int(calibrate("c.db", "x.json", &err), AR_DATA, "a run without spans");
	is_str(err.msg, "c.db:1: no iteration has a time", "... is bad data");
	change("c.db", "DROP TABLE iteration_phase");
	is_int(calibrate("c.db", "x.json", &err), AR_DATA, "a file without a table is bad data");
	ok(access("x.json", F_OK), "no file was written");
	is_int(calibrate("a.db:1", "none/x.json", &err), AR_IO, "a file that cannot be written");
}

static void test_no_memory(void)
{
	int wrong = 0, n = 0;

	for (long k = 0;; k++, n++) {
		struct roofline_runs in = { 0 };
		struct ar_err err = { 0 };
		enum ar_status st;

		fault_arm(k);
		st = roofline_runs_add(&in, "a.db:2", &err);
		roofline_runs_release(&in);
		if (!fault_disarm())
			break;
		wrong += st != AR_NOMEM;
	}
	ok(n > 20 && !wrong, "each of %d failing allocations is reported, but for %d", n, wrong);
}

int main(void)
{
	plan(0);
	test_points();
	if (!mkdtemp(dir) || chdir(dir))
		bail_out("cannot make a folder");
	test_database();
	test_refusals();
	test_no_memory();
	if (chdir("..") || system("rm -rf t-roofline-fit.??????"))
		bail_out("cannot remove the folder");
	return done_testing();
}
