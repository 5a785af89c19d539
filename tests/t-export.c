/* SPDX-License-Identifier: Apache-2.0 */
/* Exporters: lanes, names of kernels, compressed streams, and a lack of memory. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/packed.h"
#include "src/export/export.h"
#include "src/export/lanes.h"
#include "src/export/export_names.h"
#include "tests/alloc_fault.h"
#include "tests/sample_db.h"
#include "tests/tap.h"

static char dir[] = "/tmp/t-export-XXXXXX";
static char db_path[64], timeline[64], kernels[64];

static void test_lanes(void)
{
	static const struct {
		int64_t start, end, lane;
	} take[] = {
		{ 0, 10, 1 }, { 0, 4, 2 }, { 3, 30, 3 }, { 4, 5, 2 }, { 12, 13, 2 }, { 12, 13, 1 },
	};
	struct lanes l = { 0 };
	bool same = true;

	for (size_t i = 0; i < sizeof take / sizeof *take; i++)
		same &= lanes_take(&l, take[i].start, take[i].end) == take[i].lane;
	ok(same, "a lane is used again from the end of its interval");
	for (int64_t i = 0; i < 900; i++)
		lanes_take(&l, 100 + i, 2000 - i);
	ok(l.n == 900 && lanes_take(&l, 2000, 2001) && l.n == 900,
	   "there are as many as intervals at one time");
	free(l.lane);
}

static void test_names(void)
{
	static const char *const name[][3] = {
		{ "select_kernel", "select_kernel", "select_kernel" },
		{ "_Z6attendPKfi", "attend(float const*, int)", "attend" },
		{ "_ZN12_GLOBAL__N_14moveILi4EfEEvPT0_",
		  "void (anonymous namespace)::move<4, float>(float*)", "move" },
		{ "_ZN2ar4pack3rowILb1EEEvi", "void ar::pack::row<true>(int)", "row" },
		{ "_Z", "_Z", "_Z" },
	};
	struct ar_err err;

	if (names_load(&err)) {
		skip(1, err.msg);
		return;
	}
	for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
		char *full = name_full(name[i][0]);

		ok(full && !strcmp(full, name[i][1]), "%s is demangled", name[i][0]);
		ok(full && !strcmp(name_cut(full), name[i][2]), "... and cut to %s", name[i][2]);
		free(full);
	}
}

static struct report open_sample(void)
{
	struct report r = { .path = db_path, .dialect = "attnreplay" };
	struct ar_err err;

	if (store_open_read(&r.db, db_path, &err))
		bail_out("%s", err.msg);
	return r;
}

static enum ar_status export_once(const struct export_files *o, bool armed, long k,
				  struct ar_err *err)
{
	struct report r = open_sample();
	enum ar_status st;

	*err = (struct ar_err){ 0 };
	if (armed)
		fault_arm(k);
	st = export_write(o, &r, err);
	sqlite3_close(r.db);
	return st;
}

/* Allocation k fails, for each k, until the export needs fewer. */
static void test_no_memory(const char *what, const struct export_files *o, const char *path)
{
	bool clean = true;
	struct ar_err err;
	long k = 0;

	for (bool failed = true; failed && clean; k++) {
		enum ar_status st = export_once(o, true, k, &err);

		failed = fault_disarm();
		clean = failed ? st == AR_NOMEM && access(path, F_OK) : !st;
		if (!clean)
			diag("allocation %ld: status %d, %s", k, st, err.msg);
		unlink(path);
	}
	ok(clean && k > 1, "%s: each lack of memory is said, and leaves no file", what);
}

static void test_exports(void)
{
	char gz[80], zst[80];
	struct export_files o = { .perfetto = timeline, .nsys = kernels };
	struct ar_err err;

	ok(!export_once(&o, false, 0, &err), "both files are written at once");
	ok(!access(timeline, F_OK) && !access(kernels, F_OK), "... and are there");
	unlink(timeline);
	unlink(kernels);
	test_no_memory("perfetto", &(struct export_files){ .perfetto = timeline }, timeline);
	snprintf(gz, sizeof gz, "%s.gz", timeline);
	test_no_memory("perfetto, gzip", &(struct export_files){ .perfetto = gz }, gz);
	snprintf(zst, sizeof zst, "%s.zst", timeline);
	test_no_memory("perfetto, zstd", &(struct export_files){ .perfetto = zst }, zst);
	test_no_memory("nsys", &(struct export_files){ .nsys = kernels }, kernels);
	o.nsys = NULL;
	ok(export_wanted(&o) && !export_wanted(&(struct export_files){ 0 }),
	   "a file that is named is wanted");
}

int main(void)
{
	struct ar_err err;

	plan(0);
	if (!mkdtemp(dir))
		bail_out("no temporary folder");
	snprintf(db_path, sizeof db_path, "%s/a.db", dir);
	snprintf(timeline, sizeof timeline, "%s/t.json", dir);
	snprintf(kernels, sizeof kernels, "%s/k.sqlite", dir);
	if (sample_database(db_path, &err))
		bail_out("%s", err.msg);
	test_lanes();
	test_names();
	test_exports();
	unlink(db_path);
	rmdir(dir);
	return done_testing();
}
