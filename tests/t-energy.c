/* SPDX-License-Identifier: Apache-2.0 */
/* Energy of a GPU, with a fake NVML library: the counter, its figures in the report, and drivers
 * without a counter. */
#include "config.h"

#include <dlfcn.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "profiler/nvml/energy.h"
#include "src/run/run.h"
#include "tests/alloc_fault.h"
#include "tests/fake_nvml.h"
#include "tests/query.h"
#include "tests/sample_db.h"
#include "tests/tap.h"

enum { IDLE_NS = 20000000 };

static const char uuid[] = "00112233-4455-6677-8899-aabbccddeeff";
static struct fake_nvml *fake;
static char dir[] = "/tmp/t-energy-XXXXXX", path[64];

static bool load_fake(void)
{
	struct fake_nvml *(*get)(void);
	char name[4096],
		*self = strdup(getenv("ATTNREPLAY") ? getenv("ATTNREPLAY") : "./attnreplay");
	void *so;

	snprintf(name, sizeof name, "%s/tests/fake_nvml.so", dirname(self));
	free(self);
	so = dlopen(name, RTLD_NOW);
	if (!so)
		return false;
	setenv("ATTNREPLAY_NVML", name, 1);
	*(void **)&get = dlsym(so, "fake_nvml");
	fake = get();
	return true;
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void not_opened(const char *words, const char *what)
{
	struct energy_meter m = { 0 };
	struct ar_err err = { 0 };

	if (!ok(energy_open(&m, uuid, &err) == AR_NODEV && !m.gpu && strstr(err.msg, words), "%s",
		what))
		diag("%s", err.msg);
}

static void test_missing(void)
{
	setenv("ATTNREPLAY_NVML", "/nonexistent/libnvidia-ml.so", 1);
	not_opened("cannot load '/nonexistent/libnvidia-ml.so', which ATTNREPLAY_NVML names",
		   "a missing library is a missing device and named");
	setenv("ATTNREPLAY_NVML", "libm.so.6", 1);
	not_opened("libnvidia-ml.so.1 lacks nvmlInit_v2", "so is a missing function");
}

static void test_open(void)
{
	fake->init = 9;
	not_opened("NVML cannot start: Unknown Error", "a driver that fails is a missing device");
	fake->init = 0;
	fake->find = 3;
	not_opened("NVML cannot find the GPU: Not Supported", "so is a GPU that NVML has not");
	is_int(fake->open, 0, "and nothing stays open");
	is_str(fake->uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff", "it is looked for by UUID");
	fake->find = 0;
}

static void open_meter(struct energy_meter *m)
{
	struct ar_err err;

	*fake = (struct fake_nvml){ .mj = 1000, .step = 400 };
	if (energy_open(m, uuid, &err))
		bail_out("%s", err.msg);
}

/* Steps of the counter lead to least, or to more where this machine is busy. */
static bool moved(int64_t mj, int64_t least)
{
	return mj >= least && (mj - least) % 400 == 0;
}

/* Each reading takes three calls, until the counter moves. */
static void test_counter(void)
{
	struct energy_meter m;
	struct energy_use use = { 0 };
	struct ar_err err = { 0 };
	int64_t before = now_ns(), outer_ns;

	open_meter(&m);
	fake->tail = 1000000;
	ok(!energy_begin(&m, IDLE_NS, &err), "counting begins");
	outer_ns = now_ns() - before;
	ok(moved(m.mj, 1002200), "with the third step of the counter");
	ok(m.idle_mw >= 400 * 1000000000ll / outer_ns &&
		   m.idle_mw <= (m.mj - 1001800) * 1000000000ll / IDLE_NS,
	   "after %lld mW without the work before", (long long)m.idle_mw);
	fake->mj += 5000;
	before = now_ns();
	ok(!energy_end(&m, &use, &err), "counting ends");
	ok(moved(use.mj, 5400), "with the energy used, up to a step of the counter");
	ok(use.ns > 0 && use.ns >= before - m.at_ns && use.ns <= now_ns() - m.at_ns,
	   "and the time that it was used in");
	is_int(use.idle_mw, m.idle_mw, "the idle power is told");
	energy_close(&m);
	open_meter(&m);
	m.idle_mw = 7;
	ok(!energy_begin(&m, 0, &err), "counting begins again");
	ok(moved(m.mj, 1400), "with the first step of the counter");
	is_int(m.idle_mw, 7, "where the idle power is known");
	energy_close(&m);
	open_meter(&m);
	fake->slow_at = 3;
	ok(!energy_begin(&m, 0, &err), "counting begins while the driver is slow");
	ok(moved(m.mj, 1800), "with a step that was seen when it was made");
	energy_close(&m);
	energy_close(&m);
	is_int(fake->open, 0, "what is closed twice is closed once");
}

static void refused(enum ar_status st, const struct ar_err *err, const char *words,
		    const char *what)
{
	if (!ok(st == AR_NODEV && strstr(err->msg, words), "%s", what))
		diag("%d %s", st, err->msg);
}

static void test_refusals(void)
{
	struct energy_meter m;
	struct energy_use use = { 0 };
	struct ar_err err = { 0 };

	for (int at = 1; at <= 9; at++) {
		open_meter(&m);
		fake->fail_at = at;
		refused(energy_begin(&m, IDLE_NS, &err), &err,
			"NVML cannot read the GPU's energy counter: Not Supported",
			"a counter that cannot be read is refused");
		energy_close(&m);
	}
	open_meter(&m);
	ok(!energy_begin(&m, 0, &err), "counting begins");
	fake->fail_at = 4;
	refused(energy_end(&m, &use, &err), &err, "cannot read", "a later failure is one too");
	fake->fail_at = 0;
	fake->mj = 0;
	refused(energy_end(&m, &use, &err), &err, "counter went back from",
		"so is a counter that goes back");
	fake->step = 0;
	refused(energy_end(&m, &use, &err), &err, "counter stands still",
		"so is one that stands still");
	is_int(use.ns, 0, "and nothing is told");
	energy_close(&m);
	open_meter(&m);
	fake->step = -400ull;
	refused(energy_begin(&m, 1, &err), &err, "went back",
		"so is one that goes back while idle");
	energy_close(&m);
}

/* ---- around a run ---- */

static const struct store_gpu *gpu_of(void *self)
{
	static struct store_gpu gpu;

	(void)self;
	snprintf(gpu.uuid, sizeof gpu.uuid, "%s", uuid);
	snprintf(gpu.driver, sizeof gpu.driver, "CUDA 13.0");
	return &gpu;
}

static void test_run(void)
{
	const struct backend with = { .gpu = gpu_of }, without = { 0 };
	struct run r = { .session.backend = &with };
	struct ar_err err;

	open_meter(&r.session.meter);
	energy_close(&r.session.meter);
	run_energy_begin(&r.session, &r.out.energy);
	run_energy_end(&r.session, &r.out.energy);
	is_int(fake->reads, 0, "a run that is not stored measures nothing");
	if (store_open(&r.session.store, path, &err))
		bail_out("%s", err.msg);
	r.session.backend = &without;
	run_energy_begin(&r.session, &r.out.energy);
	run_energy_end(&r.session, &r.out.energy);
	is_int(fake->reads, 0, "nor does one without a GPU");
	r.session.backend = &with;
	run_energy_begin(&r.session, &r.out.energy);
	fake->mj += 7000;
	run_energy_end(&r.session, &r.out.energy);
	ok(moved(r.out.energy.mj, 7400) && r.out.energy.ns > 0, "a run has its energy");
	is_int(fake->open, 0, "and NVML is closed");
	fake->fail_at = 1;
	run_energy_begin(&r.session, &r.out.energy);
	run_energy_end(&r.session, &r.out.energy);
	ok(!r.out.energy.ns && !fake->open, "the next has none if the counter fails");
	fake->fail_at = 0;
	fake->find = 3;
	run_energy_begin(&r.session, &r.out.energy);
	run_energy_end(&r.session, &r.out.energy);
	ok(!r.out.energy.ns && !fake->open, "... or if the GPU is not found");
	store_close(r.session.store, NULL);
}

static void is_state(const struct run *r, const char *driver, int64_t sm_mhz, int64_t mem_mhz,
		     const char *what)
{
	struct gpu_state s = run_gpu_state(&r->session);

	if (!ok(!strcmp(s.driver, driver) && s.sm_mhz == sm_mhz && s.mem_mhz == mem_mhz &&
			!fake->open,
		"%s", what))
		diag("'%s' %lld %lld", s.driver, (long long)s.sm_mhz, (long long)s.mem_mhz);
}

static void test_state(void)
{
	const struct backend with = { .gpu = gpu_of }, without = { 0 };
	struct run r = { .session.backend = &with };

	*fake = (struct fake_nvml){ 0 };
	is_state(&r, "580.159.04", 1980, 3201, "driver and clocks are read");
	is_str(fake->uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff", "of the run's GPU");
	fake->state = 3;
	is_state(&r, "CUDA 13.0", 0, 0, "what NVML does not tell is not known");
	fake->find = 3;
	is_state(&r, "CUDA 13.0", 0, 0, "the backend's driver stands in for NVML's");
	r.session.backend = &without;
	is_state(&r, "", 0, 0, "a run without a GPU has neither");
}

/* ---- the database ---- */

static const struct sample_run sample = {
	.method = "dense", .dense = true, .percent = 100, .options = "{}"
};

static enum ar_status write_run(struct store *s, int layers_run, struct ar_err *err)
{
	/* 5 J in 50 ms with 60 W idle: 2 J are above idle. */
	static const struct energy_use use = { 50000000, 5000, 60000 };
	struct store_run record = sample_record(&sample);
	int64_t id;
	enum ar_status st;

	record.gpu_state = (struct gpu_state){ "580.159.04", 1980, 3201 };
	record.layers_run = layers_run;
	st = store_run_begin(s, &record, &id, err);
	for (int i = 0; i < SAMPLE_ITERATIONS && !st; i++)
		st = sample_iteration(s, &sample, i, err);
	if (!st)
		st = sample_outcomes(s, &sample, err);
	if (!st)
		st = store_energy(s, &use, err);
	return st ? st : store_run_end(s, "done", NULL, NULL, err);
}

static double real(sqlite3 *db, const char *column)
{
	char sql[128];
	sqlite3_stmt *q;
	double x = NAN;

	snprintf(sql, sizeof sql, "SELECT %s FROM v_energy WHERE run_id = 1", column);
	if (!sqlite3_prepare_v2(db, sql, -1, &q, NULL) && sqlite3_step(q) == SQLITE_ROW)
		x = sqlite3_column_double(q, 0);
	sqlite3_finalize(q);
	return x;
}

/* The sample's requests have 22 prompt and 10 output tokens, in 31 ms. */
static void test_view(void)
{
	static const struct {
		const char *column;
		double want;
	} figure[] = { { "measured_j", 5 },
		       { "wall_s", 0.05 },
		       { "idle_w", 60 },
		       { "above_idle_j", 2 },
		       { "virtual_s", 0.031 },
		       { "served_j", 2 + 60 * 0.031 },
		       { "j_per_token", (2 + 60 * 0.031) / 32 },
		       { "j_per_output_token", (2 + 60 * 0.031) / 10 } };
	struct ar_err err;
	struct store *s;
	sqlite3 *db;

	unlink(path);
	if (store_open(&s, path, &err) || write_run(s, 32, &err) || write_run(s, 4, &err) ||
	    sample_write(s, &sample, &(int64_t){ 0 }, &err) || store_close(s, &err) ||
	    store_open_read(&db, path, &err))
		bail_out("%s", err.msg);
	for (size_t i = 0; i < sizeof figure / sizeof *figure; i++) {
		double x = real(db, figure[i].column);

		if (!ok(fabs(x - figure[i].want) < 1e-9, "%s", figure[i].column))
			diag("%.9g", x);
	}
	is_int(ask(db, "SELECT above_idle_j = 2 AND served_j IS NULL AND j_per_token IS NULL "
		       "FROM v_energy WHERE run_id = 2"),
	       1, "sampled layers have their energy, but the run has none for tokens");
	is_int(ask(db, "SELECT driver = '580.159.04' AND sm_mhz = 1980 AND mem_mhz = 3201 FROM run "
		       "WHERE run_id = 1"),
	       1, "a run has its driver and clocks");
	is_int(ask(db, "SELECT driver IS NULL AND sm_mhz IS NULL AND mem_mhz IS NULL FROM run "
		       "WHERE run_id = 3"),
	       1, "or they are not known");
	is_int(ask(db, "SELECT count(*) FROM v_energy"), 2, "a run without energy is left out");
	sqlite3_close(db);
}

static void test_store_faults(void)
{
	struct ar_err err;
	bool clean = true, fired;
	long k = 0;

	do {
		struct store *s;
		enum ar_status st, close_st;

		unlink(path);
		if (store_open(&s, path, &err))
			bail_out("%s", err.msg);
		fault_arm(k++);
		st = write_run(s, 32, &err);
		fired = fault_disarm();
		close_st = store_close(s, NULL);
		clean = clean && (!fired || st == AR_NOMEM || close_st == AR_NOMEM);
	} while (fired);
	ok(clean && k > 3, "each of %ld allocations can fail", k - 1);
}

int main(void)
{
	plan(0);
	if (!mkdtemp(dir))
		bail_out("cannot make a folder");
	snprintf(path, sizeof path, "%s/a.db", dir);
	test_missing();
	if (load_fake()) {
		test_open();
		test_counter();
		test_refusals();
		test_run();
		test_state();
	} else {
		skip(1, "no library of the tests beside the program");
	}
	test_view();
	test_store_faults();
	unlink(path);
	rmdir(dir);
	return done_testing();
}
