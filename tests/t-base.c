/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, options, statistics, bf16. */
#include "config.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/gpu.h"
#include "base/grow.h"
#include "base/json.h"
#include "base/log.h"
#include "base/number.h"
#include "base/opt.h"
#include "base/order.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "base/stats.h"
#include "base/text.h"
#include "base/workspace.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"

static void test_numbers(void)
{
	int64_t v;
	uint64_t u, w;
	double x;

	ok(num_scaled("5.8926549999999995", 18, 1000000000, &v) && v == 5892655000,
	   "binary residue rounds to the nearest nanosecond");
	ok(num_scaled("19440110.0", 10, 1000000000, &v) && v == 19440110000000000, "seconds");
	ok(num_scaled("1e3", 3, 1000000, &v) && v == 1000000000, "an exponent");
	ok(num_scaled("0.07", 4, 10, &v) && v == 1, "0.7 rounds up");
	ok(num_scaled("0.04", 4, 10, &v) && v == 0, "0.4 rounds down");
	ok(num_scaled("-2.5", 4, 1, &v) && v == -3, "halves go away from zero");
	ok(num_scaled("0.000000000000000000000000000000000000001", 41, 1, &v) && v == 0, "tiny");
	ok(!num_scaled("9223372036.9", 12, 1000000000, &v), "beyond 2^63 ns");
	ok(!num_scaled("1e999999999", 11, 1, &v), "a huge exponent");
	ok(!num_scaled("", 0, 1, &v) && !num_scaled(".", 1, 1, &v) &&
		   !num_scaled("1.2.3", 5, 1, &v) && !num_scaled("1e", 2, 1, &v) &&
		   !num_scaled("nan", 3, 1, &v),
	   "malformed decimals");
	ok(num_u64("18446744073709551615", 20, &u) && u == UINT64_MAX, "the largest u64");
	ok(!num_u64("18446744073709551616", 20, &u) && !num_u64("+1", 2, &u) && !num_u64("", 0, &u),
	   "no overflow, no sign, no nothing");
	ok(num_range("8-11", 4, &u, &w) && u == 8 && w == 11 && num_range("4,", 1, &u, &w) &&
		   u == 4 && w == 4,
	   "a range, or one number");
	ok(!num_range("9-8", 3, &u, &w) && !num_range("4-", 2, &u, &w) &&
		   !num_range("-4", 2, &u, &w) && !num_range("1-2-3", 5, &u, &w) && u == 4 &&
		   w == 4,
	   "bad ranges change nothing");
	ok(num_time("6ms", &v) && v == 6000000, "6ms");
	ok(num_time("1.5s", &v) && v == 1500000000, "1.5s");
	ok(num_time("0", &v) && v == 0 && !num_time("6", &v) && !num_time("6 ms", &v),
	   "a unit is due");
	ok(num_count("64k", &v) && v == 64000 && num_count("64K", &v) && v == 65536 &&
		   num_count("2GiB", &v) && v == 2ll << 30 && num_count("-1", &v) && v == -1,
	   "counts");
	ok(num_count("1.5k", &v) && v == 1500 && num_count("2.50M", &v) && v == 5 << 19,
	   "a fraction of a unit that makes a whole number");
	ok(!num_count("1.5", &v) && !num_count("0.0001k", &v) && !num_count("-2.5", &v),
	   "a count with a fraction is refused, not rounded");
	ok(!num_count("64x", &v) && !num_count("", &v) && !num_count("1 k", &v), "bad counts");
	ok(num_real("0.06", &x) && x == 0.06 && !num_real("inf", &x) && !num_real("1x", &x),
	   "reals");
}

struct conf {
	bool flag;
	int64_t n, t;
	double x;
	char *s;
	struct opt_list l;
	int e;
};

static const char *const colours[] = { "red", "green", NULL };
/* clang-format off */
static const struct opt conf_opts[] = {
	{ .name = "flag", .type = OPT_FLAG, .off = offsetof(struct conf, flag), .help = "a flag" },
	{ .name = "count", .type = OPT_INT, .off = offsetof(struct conf, n), .arg = "N", .def = "8",
	  .min = 1, .max = 100, .help = "a count", .letter = 'n' },
	{ .name = "time", .type = OPT_TIME, .off = offsetof(struct conf, t), .arg = "T", .def = "0",
	  .help = "a time" },
	{ .name = "real", .type = OPT_REAL, .off = offsetof(struct conf, x), .arg = "X",
	  .def = "0.5", .help = "a real" },
	{ .name = "name", .type = OPT_STR, .off = offsetof(struct conf, s), .arg = "S",
	  .help = "a string" },
	{ .name = "item", .type = OPT_LIST, .off = offsetof(struct conf, l), .arg = "S",
	  .help = "a list" },
	{ .name = "colour", .type = OPT_ENUM, .off = offsetof(struct conf, e), .arg = "C",
	  .def = "red",
	  .choice = colours, .help = "a choice" },
	{ .name = "job", .type = OPT_JOB, .arg = "FILE", .help = "a job file" },
	{ 0 }
};
/* clang-format on */

/* A given option is found by a bit of its scope, also if a job file gives it. */
static void test_scope(void)
{
	static const struct opt first[] = { { .name = "a",
					      .type = OPT_FLAG,
					      .off = offsetof(struct conf, flag),
					      .scope = 1 },
					    { 0 } },
				second[] = { { .name = "b",
					       .type = OPT_INT,
					       .off = offsetof(struct conf, n),
					       .scope = 2 | 4 },
					     { .name = "c",
					       .type = OPT_REAL,
					       .off = offsetof(struct conf, x),
					       .scope = 4 },
					     { .name = "d",
					       .type = OPT_INT,
					       .off = offsetof(struct conf, t) },
					     { 0 } };
	struct conf c = { 0 };
	struct opt_group g[] = { { .opts = first, .base = &c },
				 { .opts = second, .base = &c },
				 { 0 } };

	opt_init(g, NULL);
	ok(!opt_given_of(g, ~0u), "an option that was not given has no scope to be found by");
	opt_set_all(g, "c=1,d=1,b=1", NULL);
	ok(opt_given_of(g, 4) == &second[0],
	   "the first of those given is found, by one of its bits");
	ok(!opt_given_of(g, 1 | 8), "... and none by a bit that no given option has");
	g[1].from_job = g[1].given;
	g[1].given = 0;
	ok(opt_given_of(g, 2) == &second[0], "a job file gives options too");
}

static enum ar_status parse(struct conf *c, struct ar_err *err, int *argc, char **argv)
{
	struct opt_group g[] = { { .title = "Options", .opts = conf_opts, .base = c }, { 0 } };
	enum ar_status st;

	memset(c, 0, sizeof *c);
	st = opt_init(g, err);
	if (!st)
		st = opt_parse(g, argc, argv, err);
	if (st)
		opt_release(g);
	return st;
}

static void release(struct conf *c)
{
	struct opt_group g[] = { { .opts = conf_opts, .base = c }, { 0 } };

	opt_release(g);
}

#define ARGV(...) \
	(char *[]) \
	{ \
		__VA_ARGS__ \
	}
static char a_[] = "--count", b_[] = "12", c_[] = "file", d_[] = "--flag", e_[] = "--item=x",
	    f_[] = "--item", g_[] = "y", h_[] = "--", i_[] = "--count=101", j_[] = "--colour=blue",
	    k_[] = "--nope", l_[] = "-n3", m_[] = "--job", n_[] = "--time=5";

static void test_options(void)
{
	struct ar_err err;
	struct conf c;
	int argc = 8;
	char **argv = ARGV(a_, b_, c_, d_, e_, f_, g_, h_);
	char path[] = "/tmp/t-base-XXXXXX";
	int fd = mkstemp(path);
	FILE *f = fdopen(fd, "w");

	ok(parse(&c, &err, &argc, argv) == AR_OK && argc == 1 && !strcmp(argv[0], "file") &&
		   c.n == 12 && c.flag && c.l.n == 2 && !strcmp(c.l.v[1], "y") && c.x == 0.5 &&
		   c.e == 0,
	   "options in any order");
	release(&c);
	argc = 1;
	ok(parse(&c, &err, &argc, ARGV(i_)) == AR_USAGE, "out of range is wrong usage");
	is_str(err.msg, "count '101': want an integer from 1 to 100", "and says the range");
	argc = 1;
	ok(parse(&c, &err, &argc, ARGV(j_)) == AR_USAGE, "an unknown choice");
	is_str(err.msg, "colour 'blue': want one of red, green", "and names the choices");
	argc = 1;
	ok(parse(&c, &err, &argc, ARGV(k_)) == AR_USAGE, "an unknown option");
	argc = 1;
	ok(parse(&c, &err, &argc, ARGV(a_)) == AR_USAGE, "a missing value");
	argc = 1;
	ok(parse(&c, &err, &argc, ARGV(n_)) == AR_USAGE, "a time without unit");

	fputs("# job\ncount = 40\nflag\nitem=a\nitem=b # c\ncolour=green\n", f);
	fflush(f);
	argc = 3;
	ok(parse(&c, &err, &argc, ARGV(l_, m_, path)) == AR_OK && c.n == 3 && c.flag &&
		   c.l.n == 2 && c.e == 1,
	   "the command line wins over a job file that follows");
	release(&c);
	argc = 4;
	ok(parse(&c, &err, &argc, ARGV(m_, path, l_, e_)) == AR_OK && c.n == 3 && c.l.n == 1,
	   "and over one that stands before");
	release(&c);
	fputs("count = x\n", f);
	fclose(f);
	argc = 2;
	ok(parse(&c, &err, &argc, ARGV(m_, path)) == AR_USAGE && strstr(err.msg, ":7: count 'x'"),
	   "a bad line is named");
	unlink(path);
	argc = 2;
	ok(parse(&c, &err, &argc, ARGV(m_, path)) == AR_DATA, "a missing job file");
}

struct switches {
	bool own, plain;
	int64_t n;
};

static const struct opt switch_opts[] = {
	{ .name = "own",
	  .type = OPT_FLAG,
	  .off = offsetof(struct switches, own),
	  .own = "the engine's",
	  .also_no = "disable-it",
	  .help = "a switch" },
	{ .name = "plain", .type = OPT_FLAG, .off = offsetof(struct switches, plain), .help = "x" },
	{ .name = "count",
	  .type = OPT_INT,
	  .off = offsetof(struct switches, n),
	  .arg = "N",
	  .def = "8",
	  .own = "the engine's",
	  .help = "a count" },
	{ 0 }
};

static enum ar_status parse_switches(struct opt_group *g, struct switches *s, const char *arg,
				     struct ar_err *err)
{
	char copy[64], *argv[] = { copy };
	int argc = 1;
	enum ar_status st;

	*g = (struct opt_group){ .title = "Switches", .opts = switch_opts, .base = s };
	*s = (struct switches){ 0 };
	snprintf(copy, sizeof copy, "%s", arg);
	st = opt_init(g, err);
	return st ? st : opt_parse(g, &argc, argv, err);
}

/* A flag that something else may set has --no-NAME; such options keep what was given. */
static void test_own(void)
{
	static const struct {
		const char *arg;
		bool own;
		const char *msg;
	} tries[] = {
		{ "--own", true, NULL },
		{ "--own=yes", true, NULL },
		{ "--own=1", true, NULL },
		{ "--own=no", false, NULL },
		{ "--no-own", false, NULL },
		{ "--own=maybe", false, "own 'maybe': want yes or no" },
		{ "--no-own=1", false, "option '--no-own=1' takes no value" },
		{ "--no-plain", false, "unknown option '--no-plain'; did you mean '--plain'?" },
		{ "--disable-it", false,
		  "unknown option '--disable-it'; did you mean '--no-own'?" },
		{ "--no-owm", false, "unknown option '--no-owm'; did you mean '--no-own'?" },
	};
	struct opt_group g[2] = { { 0 } };
	struct switches s;
	struct ar_err err;
	char help[512] = "";
	FILE *f;

	for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
		enum ar_status st = parse_switches(g, &s, tries[i].arg, &err);

		if (tries[i].msg)
			is_str(st == AR_USAGE ? err.msg : NULL, tries[i].msg, "%s is refused",
			       tries[i].arg);
		else
			ok(!st && s.own == tries[i].own && opt_given(g, "own"), "%s is taken",
			   tries[i].arg);
	}
	parse_switches(g, &s, "--count=3", &err);
	ok(!opt_set_default(g, "count", "5", &err) && s.n == 3, "what was given is kept");
	ok(!opt_set_default(g, "own", "yes", &err) && s.own && !opt_given(g, "own"),
	   "what was not is set, and does not count as given");
	ok(!opt_set_default(g, "none", "5", &err), "an option that is not there is left alone");
	f = fmemopen(help, sizeof help, "w");
	opt_help(g, f);
	fclose(f);
	ok(strstr(help, "\n      --own\n      --no-own") &&
		   strstr(help, "a count [default the engine's]"),
	   "the help has both names, and who sets the default");
}

static void test_own_job(void)
{
	static const struct {
		const char *line;
		bool own;
		const char *msg;
	} tries[] = { { "own = no\n", false, NULL },
		      { "no-own\n", false, NULL },
		      { "own = yes\n", true, NULL },
		      { "own\n", true, NULL },
		      { "no-own = yes\n", false, ":1: option 'no-own' takes no value" },
		      { "no-plain\n", false, ":1: unknown option 'no-plain'" } };

	for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
		char path[] = "/tmp/t-base-XXXXXX";
		FILE *f = fdopen(mkstemp(path), "w");
		struct switches s = { .own = !tries[i].own };
		struct opt_group g[] = { { .opts = switch_opts, .base = &s }, { 0 } };
		struct ar_err err = { 0 };
		enum ar_status st;

		fputs(tries[i].line, f);
		fclose(f);
		st = opt_load(g, path, &err);
		ok(tries[i].msg ? st == AR_USAGE && strstr(err.msg, tries[i].msg) :
				  !st && s.own == tries[i].own,
		   "a job file with %.*s: %s", (int)strcspn(tries[i].line, "\n"), tries[i].line,
		   err.msg);
		unlink(path);
	}
}

static int n_used;

static enum ar_status use_item(const char *value, struct ar_err *err)
{
	n_used++;
	return strcmp(value, "bad") ? AR_OK : ar_fail(err, AR_DATA, "bad: of no use");
}

/* An option may name a thing that is used from then on. */
static void test_use(void)
{
	static const struct opt opts[] = { { .name = "item", .type = OPT_LIST, .use = use_item },
					   { 0 } };
	struct opt_list l = { 0 };
	struct opt_group g[] = { { .opts = opts, .base = &l }, { 0 } };
	cJSON *o = cJSON_Parse("{\"item\":[\"a\",\"b\"]}");
	struct ar_err err;

	ok(!opt_set_json(g, o, &err) && n_used == 2, "each value of a list is used");
	ok(opt_set(g, "item", "bad", &err) == AR_DATA && !strcmp(err.msg, "bad: of no use"),
	   "... and what is of no use is refused");
	opt_release(g);
	cJSON_Delete(o);
}

/* The JSON of opt_json() sets the same values.  Then options that differ from the defaults count as
 * given. */
static void test_options_of_json(void)
{
	struct conf from = { 0 }, to = { 0 };
	struct opt_group g[] = { { .opts = conf_opts, .base = &from }, { 0 } },
			 h[] = { { .opts = conf_opts, .base = &to }, { 0 } };
	static const struct {
		const char *json, *message;
	} bad[] = { { "{\"nope\": 1}", "option 'nope' is not known to this program" },
		    { "{\"count\": null}", "option 'count': not a value of an option" },
		    { "{\"item\": [2, []]}", "option 'item': not a value of an option" } };
	cJSON *object = cJSON_CreateObject();
	struct ar_err err = { 0 };

	opt_init(g, NULL);
	opt_init(h, NULL);
	opt_set_all(g, "flag=1,count=9,time=1500us,real=0.1,name=a b,item=c,item=d,colour=green",
		    NULL);
	opt_set(h, "count", "3", NULL);
	ok(opt_json(g, object) && !opt_set_json(h, object, &err) && to.flag && to.n == 3 &&
		   to.t == 1500000 && to.x == 0.1 && !strcmp(to.s, "a b") && to.l.n == 2 &&
		   !strcmp(to.l.v[1], "d") && to.e == 1,
	   "options come from JSON where they were not given");
	opt_release(h);
	opt_init(h, NULL);
	opt_set(g, "real", "0.5", NULL);
	cJSON_Delete(object);
	object = cJSON_CreateObject();
	ok(opt_json(g, object) && !opt_set_json(h, object, &err) && opt_given(h, "time") &&
		   !opt_given(h, "real"),
	   "... and count as given where they are not the defaults");
	cJSON_Delete(object);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		object = cJSON_Parse(bad[i].json);
		h->given = 0;
		is_int(opt_set_json(h, object, &err), AR_DATA, "bad data: %s", bad[i].json);
		is_str(err.msg, bad[i].message, "... says so");
		cJSON_Delete(object);
	}
	opt_release(g);
	opt_release(h);
}

static void test_stats(void)
{
	double x[] = { 10, 1, 4, 3, 2 };

	stats_sort(x, 5);
	ok(stats_percentile(x, 5, 50) == 3 && fabs(stats_percentile(x, 5, 90) - 7.6) < 1e-12 &&
		   fabs(stats_percentile(x, 5, 95) - 8.8) < 1e-12 &&
		   fabs(stats_percentile(x, 5, 99) - 9.76) < 1e-12,
	   "linear percentiles of 1 2 3 4 10");
	ok(stats_percentile(x, 1, 99) == 1, "one value");
}

static void test_bf16(void)
{
	ok(bf16_from_f32(1.0f) == 0x3f80 && bf16_to_f32(0xc000) == -2.0f, "exact values");
	ok(bf16_from_f32(1.00390625f) == 0x3f80 && bf16_from_f32(1.01171875f) == 0x3f82,
	   "ties go to even");
	ok(isnan(bf16_to_f32(bf16_from_f32(NAN))) && isinf(bf16_to_f32(bf16_from_f32(INFINITY))),
	   "inf and nan");
}

static void test_rng(void)
{
	struct rng r = { 0 };
	double s = 0;

	ok(rng_u64(&r) == 0xe220a8397b1dcdaf && rng_u64(&r) == 0x6e789e6aa1b965f4,
	   "splitmix64's published sequence for seed 0");
	for (int i = 0; i < 10000; i++)
		s += rng_unit(&r);
	ok(fabs(s / 10000 - 0.5) < 0.02 && rng_below(&r, 7) < 7, "uniforms");
}

static void test_text(void)
{
	static const char path[] = "t-base.text";
	char *big = malloc(10001), *text;
	struct ar_err err;

	for (int i = 0; i < 10000; i++)
		big[i] = i % 100 ? 'x' : '\n';
	big[10000] = 0;
	file_write(path, big, 10000);
	ok(!text_read(&text, path, 10000, &err) && !strcmp(text, big), "all of a text is read");
	is_int(text_line(text, text + 201), 4, "lines are counted from 1");
	free(text);
	is_int(text_read(&text, path, 9999, &err), AR_DATA, "a text that is too large is refused");
	is_str(err.msg, "t-base.text: too large, more than 9999 bytes", "with its name");
	file_write(path, "", 0);
	ok(!text_read(&text, path, 10, &err) && !*text, "an empty text is one");
	free(text);
	remove(path);
	ok(text_read(&text, path, 10, &err) == AR_DATA && !text, "a missing text is refused");
	is_int(text_read(&text, ".", 10, &err), AR_DATA, "a folder is no text");
	free(big);
}

static char *written(int (*shown)(const char *, FILE *), void (*put)(const char *, FILE *),
		     const char *s)
{
	static char text[256];
	FILE *f = fmemopen(text, sizeof text, "w");

	if (shown)
		shown(s, f);
	else
		put(s, f);
	fclose(f);
	return text;
}

static void test_foreign_text(void)
{
	/* no UTF-8: a lone byte, a cut character, an overlong /, a surrogate, beyond U+10FFFF */
	static const char bad[] = "\xff|\xe2\x82|\xc0\xaf|\xed\xa0\x80|\xf4\x90\x80\x80|\xe2";
	static const char good[] = "a\u00fc\u20ac\U0001f600\u013c";
	char *clean;

	is_str(written(text_put, NULL, good), good, "UTF-8 is shown as it is");
	is_int(text_put(good, NULL), 5, "... in a column for each character");
	is_str(written(text_put, NULL, "\x1b[2J\x7f\t\n\xc2\x9b\\"),
	       "\\x1b[2J\\x7f\\x09\\x0a\\xc2\\x9b\\", "control characters are escaped");
	is_int(text_put("\x1b\xc2\x9b", NULL), 12, "... in four columns a byte");
	is_str(written(text_put, NULL, "a\u202eb\u2066"), "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6",
	       "... as are those that override the direction of writing");
	is_str(written(text_put, NULL, bad),
	       "\\xff|\\xe2\\x82|\\xc0\\xaf|\\xed\\xa0\\x80|\\xf4\\x90\\x80\\x80|\\xe2",
	       "... and so is what is no UTF-8");
	is_str(written(NULL, text_put_json, "\"\\\n\x1f\xc2\x85\xff\u00fc"),
	       "\"\\\"\\\\\\n\\u001f\\u0085\ufffd\u00fc\"", "JSON escapes");
	is_str(written(NULL, text_put_json_value, "{\"a\":\"\\\\\x7f\"}"),
	       "{\"a\":\"\\\\\\u007f\"}", "JSON that is ready keeps its own");
	is_str(written(NULL, text_put_json_value, "{\"\\\"Inf\":-Inf,\"b\":[Inf]}"),
	       "{\"\\\"Inf\":null,\"b\":[null]}", "... but for numbers that are infinite");
	is_str(written(NULL, text_put_xml, "<a b='\"'>]]>&\t\xc2\x9b\u013c"),
	       "&lt;a b=&#39;&#34;&#39;&gt;]]&gt;&amp;&#9;&#155;\u013c", "XML escapes");
	is_str(written(NULL, text_put_xml, "\x1b\xff\xef\xbf\xbf"), "\ufffd\ufffd\ufffd",
	       "... and replaces what it forbids");
	is_str(written(NULL, text_put_csv, "=a,\"b\""), "\"'=a,\"\"b\"\"\"", "CSV marks a formula");
	is_str(written(NULL, text_put_csv, "-1.5e3"), "-1.5e3", "... but no number");
	is_str(written(NULL, text_put_csv, ""), "\"\"", "... and an empty text is one");
	is_str(written(NULL, text_put_csv, "a\x1b\t\n\xff\u202e"), "\"a\\x1b\t\n\\xff\u202e\"",
	       "... and control characters are escaped");
	clean = text_utf8(bad);
	is_str(clean,
	       "\ufffd|\ufffd\ufffd|\ufffd\ufffd|\ufffd\ufffd\ufffd|"
	       "\ufffd\ufffd\ufffd\ufffd|\ufffd",
	       "a copy has a replacement for each byte that is no UTF-8");
	free(clean);
}

static void test_workspace(void)
{
	static _Alignas(WORKSPACE_ALIGN) char mem[3 * WORKSPACE_ALIGN];
	struct workspace size = workspace_at(NULL), w = { mem, sizeof mem, 0 };

	workspace_take(&size, 3, sizeof(double));
	workspace_take(&size, 0, sizeof(double));
	workspace_take(&size, WORKSPACE_ALIGN + 1, 1);
	ok(size.used == sizeof mem, "without memory, arrays are measured, each aligned");
	ok(workspace_take(&w, 3, sizeof(double)) == mem &&
		   workspace_take(&w, 0, sizeof(double)) == mem + WORKSPACE_ALIGN &&
		   workspace_take(&w, WORKSPACE_ALIGN + 1, 1) == mem + WORKSPACE_ALIGN,
	   "arrays follow each other");
	ok(w.used == sizeof mem, "and take what was measured");
	ok(!workspace_take(&w, 1, 1) && w.used == sizeof mem, "a full block gives nothing");
	ok(workspace_take(&w, 0, 1) && w.used == sizeof mem, "but an array of nothing");
	w = workspace_at(mem);
	workspace_take(&w, sizeof mem, 1);
	ok(workspace_take(&w, 1, 1) == mem + sizeof mem, "a block without a size has no end");
}

/* ---- the GPU ---- */

static void test_gpu(void)
{
	const struct gpu *g = NULL, *again = NULL;
	struct ar_err err = { 0 };
	enum ar_status st = gpu_current(&g, &err);

	if (st)
		ok((st == AR_CUDA || st == AR_NODEV) && *err.msg, "no GPU: %s", err.msg);
	else
		ok(!gpu_current(&again, &err) && g == again && *g->name && g->cc >= 50 &&
			   g->n_sm > 0 && g->smem_bytes >= 48 << 10 && g->l2_bytes &&
			   g->mem_bytes > g->l2_bytes,
		   "a GPU is asked once: %s", g->name);
}

static int done[100];

static enum ar_status mark(void *ctx, int i, struct ar_err *err)
{
	done[i]++;
	return i == *(int *)ctx ? ar_fail(err, AR_DATA, "number %d", i) : AR_OK;
}

static void test_threads(void)
{
	struct ar_err err;
	int bad = -1, wrong = 0;

	for (int threads = 1; threads >= 0; threads--) {
		fault_threads(!threads);
		memset(done, 0, sizeof done);
		wrong += parallel_each(100, mark, &bad, &err) != AR_OK;
		for (int i = 0; i < 100; i++)
			wrong += done[i] != 1;
	}
	fault_threads(false);
	is_int(wrong, 0, "each number is worked on once, with threads and without");
	bad = 7;
	ok(parallel_each(100, mark, &bad, &err) == AR_DATA && !strcmp(err.msg, "number 7"),
	   "a failure is handed on");
	ok(!parallel_each(0, mark, &bad, &err), "nothing to do is fine");
}

static void test_json_lines(void)
{
	static const char want[] = "{\n"
				   "  \"a\": \"\\u0001\",\n"
				   "  \"b\": [1, 0.50, null],\n"
				   "  \"c\": [\n"
				   "    [],\n"
				   "    [\n      [2],\n      {}\n    ]\n"
				   "  ]\n"
				   "}\n";
	cJSON *o = cJSON_Parse("{\"a\":\"\\u0001\",\"b\":[1],\"c\":[[],[[2],{}]]}");
	cJSON *b = cJSON_GetObjectItem(o, "b");
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	enum ar_status st;

	if (!json_add(b, NULL, cJSON_CreateRaw("0.50")) || !json_add_real(b, NULL, NAN) || !f)
		bail_out("out of memory");
	st = json_put_lines(o, f, NULL);
	fclose(f);
	is_int(st, AR_OK, "JSON is written over several lines");
	is_str(text, want, "... what holds no others on one");
	free(text);
	f = open_memstream(&text, &n);
	is_int(json_put_lines(NULL, f, NULL), AR_NOMEM, "no value: there was no memory for it");
	fclose(f);
	free(text);
}

/* Add n numbers one by one; return how often the room changed, -1 after a failure. */
static int add_numbers(int **v, size_t *cap, int n)
{
	int changes = 0;

	for (int i = 0; i < n; i++) {
		const size_t before = *cap;

		if (!GROW(*v, *cap, (size_t)i + 1))
			return -1;
		changes += *cap != before;
		(*v)[i] = i;
	}
	return changes;
}

static void test_growth(void)
{
	int *v = NULL, *old, kept = 0, n;
	size_t cap = 0;
	bool grown;

	n = add_numbers(&v, &cap, 1000);
	for (int i = 0; i < 1000; i++)
		kept += v[i] == i;
	ok(n > 0 && n < 10 && kept == 1000 && cap < 2000, "1000 elements grow %d times", n);
	old = v;
	ok(GROW(v, cap, cap) && v == old && cap >= 1000, "an array with room stays");
	for (size_t need = cap + 1; need; need = need == SIZE_MAX ? 0 : SIZE_MAX) {
		const size_t before = cap;

		fault_arm(0);
		grown = GROW(v, cap, need);
		ok(fault_disarm() == (need < SIZE_MAX) && !grown && v == old && cap == before &&
			   v[999] == 999,
		   "an array that cannot grow to %zu stays", need);
	}
	ok(!GROW(v, cap, SIZE_MAX / sizeof *v + 1), "no size wraps around");
	ok(array_room(SIZE_MAX / 2 + 1, SIZE_MAX) == SIZE_MAX, "... nor does a number of elements");
	ok(GROW(v, cap, 5000) && cap == 5000 && v[999] == 999, "many are added at once");
	free(v);
}

/* The message names what there is no memory for, by the source file that wants it. */
static void test_nomem(void)
{
	static const struct {
		const char *file, *what;
	} rows[] = {
		{ "base/json.c", "a JSON file" },
		{ "base/opt.c", "the options" },
		{ "kernels/methods/plan_parse.c", "the methods" },
		{ "kernels/select/seer/seer.c", "the work of a method" },
		{ "model/model.c", "the model" },
		{ "profiler/store/store.c", "the database" },
		{ "replay/sched/blocks.c", "the scheduler" },
		{ "src/report/report.c", "the report" },
		{ "src/cmd_run.c", "the command" },
		{ "traces/capture/arc.c", "the capture" },
		{ "traces/importers/import.c", "the trace" },
		{ "/of/a/plug-in.so", "/of/a/plug-in.so" },
	};
	const size_t tree = strlen(__FILE__) - strlen("tests/t-base.c");
	char file[512], want[128];
	struct ar_err err;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		snprintf(file, sizeof file, "%.*s%s", *rows[i].file == '/' ? 0 : (int)tree,
			 __FILE__, rows[i].file);
		snprintf(want, sizeof want,
			 "out of memory for %s; end other programs, or take less of the input",
			 rows[i].what);
		is_int(ar_nomem_at(&err, file), AR_NOMEM, "a failure of %s", rows[i].file);
		is_str(err.msg, want, "... names what it is for");
	}
	is_int(ar_nomem_at(NULL, rows[0].file), AR_NOMEM, "nobody need ask why");
}

static void test_orders(void)
{
	const char *text[] = { "b", "a", "ab" };
	int64_t down[] = { INT64_MIN, 3, INT64_MAX, -1 };
	int32_t i32[] = { INT32_MAX, INT32_MIN, 0 };
	uint64_t u64[] = { UINT64_MAX, 0, 1 };
	double f64[] = { 0.5, -INFINITY, 1e-300, INFINITY };

	qsort(text, 3, sizeof *text, order_text);
	ok(!strcmp(text[0], "a") && !strcmp(text[1], "ab"), "texts in order");
	qsort(down, 4, sizeof *down, order_i64_down);
	ok(down[0] == INT64_MAX && down[1] == 3 && down[2] == -1, "integers, the largest first");
	qsort(i32, 3, sizeof *i32, order_i32);
	ok(i32[0] == INT32_MIN && i32[1] == 0, "integers whose difference overflows");
	qsort(u64, 3, sizeof *u64, order_u64);
	ok(u64[0] == 0 && u64[2] == UINT64_MAX, "integers without a sign");
	qsort(f64, 4, sizeof *f64, order_f64);
	ok(f64[0] < -1 && f64[1] < 1e-200 && f64[2] < 1, "numbers that differ by less than 1");
	ok(ORDER(1, 2) < 0 && !ORDER(2, 2) && ORDER(2, 1) > 0, "an order of two values");
}

/* The text that progress() writes to standard error, without a terminal. */
static const char *heard(double period_s, enum log_level level, unsigned long n_done)
{
	static char text[256];
	int keep = dup(STDERR_FILENO), fd[2];
	ssize_t n;

	if (keep < 0 || pipe(fd) || dup2(fd[1], STDERR_FILENO) < 0)
		bail_out("no pipe");
	progress_period_s = period_s;
	log_level = level;
	progress("method 2 of 3: requests", n_done, 8);
	log_level = LOG_INFO;
	dup2(keep, STDERR_FILENO);
	close(keep);
	close(fd[1]);
	n = read(fd[0], text, sizeof text - 1);
	text[n > 0 ? n : 0] = 0;
	close(fd[0]);
	return text;
}

static void test_progress(void)
{
	is_str(heard(1e9, LOG_INFO, 0), "", "no progress before the period has passed");
	is_str(heard(0, LOG_INFO, 0), "attnreplay: method 2 of 3: requests 0/8\n",
	       "then a line; nothing is done yet, so no time left is known");
	is_str(heard(1e9, LOG_INFO, 4), "", "and none in the period after it");
	ok(!strncmp(heard(0, LOG_INFO, 4), "attnreplay: method 2 of 3: requests 4/8, about ", 47) &&
		   strstr(heard(0, LOG_INFO, 4), " left\n"),
	   "later with the time left");
	is_str(heard(0, LOG_ERROR, 4), "", "none with -q");
}

/* Raise sig twice, pause_us apart, in a process that had disposition as its handler at the start.
 * Returns whether the process was interrupted, or -1: the second signal killed it. */
static int signalled(int sig, void (*disposition)(int), useconds_t pause_us)
{
	int ended;
	pid_t child = fork();

	if (!child) {
		signal(sig, disposition);
		ar_catch_interrupts();
		raise(sig);
		usleep(pause_us);
		raise(sig);
		_exit(ar_interrupted());
	}
	if (child < 0 || waitpid(child, &ended, 0) != child)
		bail_out("no child");
	return WIFSIGNALED(ended) && WTERMSIG(ended) == sig ? -1 : WEXITSTATUS(ended);
}

static void test_signals(void)
{
	static const struct {
		int sig;
		bool may_ignore; /* stays ignored if the program began so */
		const char *name;
	} s[] = { { SIGHUP, true, "SIGHUP" },
		  { SIGINT, true, "SIGINT" },
		  { SIGTERM, false, "SIGTERM" } };

	for (size_t i = 0; i < sizeof s / sizeof *s; i++) {
		is_int(signalled(s[i].sig, SIG_DFL, 100000), 1,
		       "%s: two within a second are one interrupt", s[i].name);
		is_int(signalled(s[i].sig, SIG_IGN, 0), !s[i].may_ignore,
		       "... and where it was ignored, it %s",
		       s[i].may_ignore ? "stays so" : "counts");
		is_int(signalled(s[i].sig, SIG_DFL, 1050000), -1,
		       "... and one more than a second later kills");
	}
}

int main(void)
{
	plan(0);
	test_signals();
	test_numbers();
	test_options();
	test_own();
	test_own_job();
	test_options_of_json();
	test_use();
	test_scope();
	test_stats();
	test_bf16();
	test_rng();
	test_text();
	test_foreign_text();
	test_workspace();
	test_gpu();
	test_threads();
	test_growth();
	test_nomem();
	test_json_lines();
	test_orders();
	test_progress();
	return done_testing();
}
