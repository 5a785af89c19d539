/* SPDX-License-Identifier: Apache-2.0 */
/* Files of sweeps: the points of a file, and messages about a bad one. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/run/options.h"
#include "src/sweep/sweep_point.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"

static enum ar_status load(struct sweep *s, struct run_options *o, const char *text,
			   struct ar_err *err)
{
	enum ar_status st;

	file_write("f.sweep", text, strlen(text));
	st = run_options_init(o, RUN_OWN_ALL, err);
	return st ? st : sweep_load(s, "f.sweep", o->group, err);
}

static void release(struct sweep *s, struct run_options *o)
{
	sweep_release(s);
	run_options_release(o);
}

/* The arguments of each point, each behind a space, a line for each point. */
static char *points(const struct sweep *s, struct opt_group *g)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	for (size_t i = 0; i < s->n_point; i++) {
		struct texts t = { 0 };
		struct ar_err err;

		if (sweep_arguments(s, i, g, &t, &err))
			bail_out("%s", err.msg);
		for (size_t k = 0; k < t.n; k++)
			fprintf(f, " %s", t.v[k]);
		putc('\n', f);
		texts_release(&t);
	}
	fclose(f);
	return text;
}

static void gives(const char *what, const char *file, const char *want)
{
	struct sweep s = { 0 };
	struct run_options o;
	struct ar_err err = { 0 };
	char *got;

	if (load(&s, &o, file, &err))
		bail_out("%s: %s", what, err.msg);
	got = points(&s, o.group);
	is_str(got, want, "%s", what);
	free(got);
	release(&s, &o);
}

static void test_points(void)
{
	gives("a job file is one point", "# job\ntrace = a.csv # it\n\nmethod = dense,compact-fp\n",
	      " --trace a.csv --method dense,compact-fp\n");
	gives("lists multiply, the last one fastest", "seed=[1,2]\ntp = [ 3 , 4 ]\ntrace = a\n",
	      " --seed 1 --tp 3 --trace a\n --seed 1 --tp 4 --trace a\n"
	      " --seed 2 --tp 3 --trace a\n --seed 2 --tp 4 --trace a\n");
	gives("quotes protect commas and brackets",
	      "method = [dense, \"compact-fp:alpha=0.06,window=4\", \"x]\" ]\n",
	      " --method dense\n --method compact-fp:alpha=0.06,window=4\n --method x]\n");
	gives("a value without a list is as it stands", "method = \"dense\", [x]\n",
	      " --method \"dense\", [x]\n");
	gives("a flag has a value or none", "attention-only\nignore-eos = [0, 1]\n",
	      " --attention-only --ignore-eos=0\n --attention-only --ignore-eos\n");
	gives("zipped options change together", "zip: seed, tp = [1, 8], [2, 9]\nlayers = [0, 1]\n",
	      " --seed 1 --tp 8 --layers 0\n --seed 1 --tp 8 --layers 1\n"
	      " --seed 2 --tp 9 --layers 0\n --seed 2 --tp 9 --layers 1\n");
	gives("points are skipped where all values hold",
	      "skip: seed = 1, tp = 8\nseed = [1, 2]\ntp = [8, 9]\nskip: tp = \"9\" , seed=2\n",
	      " --seed 1 --tp 9\n --seed 2 --tp 8\n");
	gives("zipped values are skipped", "zip: seed, tp = [1, 8], [2, 9]\nskip: tp = 9\n",
	      " --seed 1 --tp 8\n");
	gives("a list of files is one of points, lines add up",
	      "capture = x\ncapture = [y, z]\nskip: capture = y\n", " --capture x --capture z\n");
}

static void refused(const char *file, const char *want)
{
	struct sweep s = { 0 };
	struct run_options o;
	struct ar_err err = { 0 };

	is_int(load(&s, &o, file, &err), AR_USAGE, "refused: %s", want);
	is_str(err.msg, want, "... with this message");
	release(&s, &o);
}

static void test_refused(void)
{
	static const struct {
		const char *file, *want;
	} bad[] = {
		{ "seed = 1\nmethods = x", "f.sweep:2: unknown option 'methods'; did you mean "
					   "'method'?" },
		{ "seed", "f.sweep:1: option 'seed' needs a value" },
		{ "= 1", "f.sweep:1: unknown option ''" },
		{ "seed = [1, x]", "f.sweep:1: seed 'x': want an integer from 0 to 9e+15" },
		{ "trace =", "f.sweep:1: trace '': want a value" },
		{ "seed = []", "f.sweep:1: seed: an empty value" },
		{ "seed = [1,,2]", "f.sweep:1: seed: an empty value" },
		{ "seed = [1, \"\"]", "f.sweep:1: seed: an empty value" },
		{ "seed = [1, 2", "f.sweep:1: seed: a list without its end ']'" },
		{ "seed = [1, \"2]", "f.sweep:1: seed: a quote without its end" },
		{ "seed = [\"1\" 2]", "f.sweep:1: seed: '2]' after a quoted value; want a comma" },
		{ "seed = [1] 2", "f.sweep:1: seed: '2' after the list" },
		{ "seed = 1\n\nseed = 2", "f.sweep:3: seed: given in line 1 already" },
		{ "db = x", "f.sweep:1: db: each point has a file of its own, in the folder of "
			    "--out; leave it out" },
		{ "json = x", "f.sweep:1: json: each point has a file of its own, in the folder "
			      "of --out; leave it out" },
		{ "job = x", "f.sweep:1: job: a sweep cannot name a job file; write its lines "
			     "here" },
		{ "trace = [a, -]", "f.sweep:1: trace '-': every point reads the trace; name a "
				    "file" },
		{ "backend = auto", "f.sweep:1: backend 'auto': points may run on several "
				    "machines; name cuda, cpu or cost" },
		{ "zip: seed, tp", "f.sweep:1: zip: want [VALUE, ...], [VALUE, ...]" },
		{ "zip: seed, tp = 1, 2", "f.sweep:1: zip: want [VALUE, ...], [VALUE, ...]" },
		{ "zip: seed, tp = [1, 2],", "f.sweep:1: zip: want [VALUE, ...], [VALUE, ...]" },
		{ "zip: seed, tp = [1, 2], [3]",
		  "f.sweep:1: zip: 1 values for 2 options; give each option one" },
		{ "zip: seed, tp = [1, 2] x", "f.sweep:1: zip: 'x' after the list; want a comma" },
		{ "zip: seed, = [1, 2]", "f.sweep:1: zip: an empty value" },
		{ "zip: seed, seed = [1, 2]", "f.sweep:1: seed: given twice" },
		{ "zip: seed, x = [1, 2]", "f.sweep:1: unknown option 'x'" },
		{ "seed = 1\nskip: seed", "f.sweep:2: skip: want NAME = VALUE, ..." },
		{ "seed = 1\nskip: seed = 1, tp", "f.sweep:2: skip: want NAME = VALUE, ..." },
		{ "seed = 1\nskip: seed =", "f.sweep:2: skip: an empty value" },
		{ "seed = 1\nskip: seed = 2",
		  "f.sweep:2: skip: no line gives 'seed' the value '2'" },
		{ "seed = 1\nskip: tp = 1", "f.sweep:2: skip: no line gives 'tp' the value '1'" },
		{ "seed = [1]\nskip: seed = 1", "f.sweep: every point is skipped" },
		{ "# nothing\n", "f.sweep: no options; write 'trace = FILE' and others" },
	};
	struct sweep s = { 0 };
	struct run_options o;
	struct ar_err err = { 0 };

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refused(bad[i].file, bad[i].want);
	if (run_options_init(&o, RUN_OWN_ALL, &err))
		bail_out("%s", err.msg);
	is_int(sweep_load(&s, "no.sweep", o.group, &err), AR_DATA, "a file must be there");
	is_str(err.msg, "no.sweep: No such file or directory", "... it is named");
	release(&s, &o);
}

/* A file with k lists of ten values. */
static char *tens(int k)
{
	static const char *const name[] = { "seed",  "tp",	 "sample-layers",
					    "users", "requests", "repeat" };
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	for (int i = 0; i < k; i++)
		fprintf(f, "%s = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n", name[i]);
	fclose(f);
	return text;
}

static void test_many(void)
{
	struct sweep s = { 0 };
	struct run_options o;
	struct ar_err err = { 0 };
	char *five = tens(5), *six = tens(6);

	is_int(load(&s, &o, five, &err), AR_OK, "a file may have 100000 points");
	is_int((long long)s.n_point, 100000, "... all of them");
	release(&s, &o);
	refused(six, "f.sweep: more than 100000 points; make several files of it");
	free(five);
	free(six);
}

static void test_faults(void)
{
	static const char file[] = "seed = [1, 2]\nzip: tp, layers = [1, 0], [2, \"1,2\"]\n"
				   "skip: seed = 1, tp = 2\nattention-only\n";
	bool failed = true;
	long n = 0, bad = 0;

	for (; failed; n++) {
		struct sweep s = { 0 };
		struct texts t = { 0 };
		struct run_options o = { 0 };
		struct ar_err err = { 0 };
		enum ar_status st;

		fault_arm(n);
		st = load(&s, &o, file, &err);
		if (!st)
			st = sweep_arguments(&s, 2, o.group, &t, &err);
		failed = fault_disarm();
		bad += st != (failed ? AR_NOMEM : AR_OK);
		texts_release(&t);
		release(&s, &o);
	}
	ok(n > 20 && !bad, "without memory a file is not read (%ld places)", n - 1);
}

/* A point, from its file to its key. */
static enum ar_status open_point(char key[RUN_KEY_SIZE], struct ar_err *err)
{
	struct sweep_base b = { 0 };
	struct sweep_point p = { 0 };
	enum ar_status st = sweep_base_open(&b, "f.sweep", "1.2.3", err);

	if (!st)
		st = sweep_point_open(&p, &b, 1, err);
	memcpy(key, p.key, RUN_KEY_SIZE);
	sweep_point_release(&p);
	sweep_base_release(&b);
	return st;
}

static void test_point_faults(void)
{
	static const char file[] = "trace = a.csv\nbackend = cpu\nmodel = niah-llama-14m\n"
				   "method = dense,compact-fp\nseed = [1, 2]\n";
	static const char records[] = "trace = a.csv\nbackend = cost\nkeep-entries = no\n"
				      "max-num-seqs = [1, 2]\n";
	char want[RUN_KEY_SIZE], key[RUN_KEY_SIZE];
	struct ar_err err = { 0 };
	bool failed = true;
	long n = 0, bad = 0;

	file_write("a.csv", "x", 1);
	file_write("f.sweep", records, sizeof records - 1);
	is_int(open_point(key, &err), AR_OK, "options of the database may be given");
	file_write("f.sweep", file, sizeof file - 1);
	if (open_point(want, &err))
		bail_out("%s", err.msg);
	for (; failed; n++) {
		enum ar_status st;

		fault_arm(n);
		st = open_point(key, &err);
		failed = fault_disarm();
		bad += failed ? st != AR_NOMEM : st || strcmp(key, want) != 0;
	}
	ok(n > 20 && !bad, "without memory a point has no key (%ld places)", n - 1);
}

int main(void)
{
	char dir[] = "/tmp/t-sweep-XXXXXX", command[64];

	plan(0);
	if (!mkdtemp(dir) || chdir(dir))
		bail_out("cannot make a temporary folder");
	test_points();
	test_refused();
	test_many();
	test_faults();
	test_point_faults();
	snprintf(command, sizeof command, "rm -r %s", dir);
	if (chdir("/") || system(command))
		diag("%s is left", dir);
	return done_testing();
}
