/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay trace: look at a trace, bring it into the canonical form, and make one like it. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/binfile.h"
#include "base/number.h"
#include "base/text.h"
#include "src/cmd.h"
#include "src/json_file.h"
#include "src/trace_json.h"
#include "traces/algebra/summary.h"
#include "traces/algebra/synth.h"
#include "traces/importers/date.h"
#include "traces/trace_writers.h"

struct args {
	char *output, *json, *to;
	int64_t lines;
	bool histogram;
	struct synth_args synth;
	struct trace_args trace;
};

/* clang-format off */
static const struct opt own_opts[] = {
	{ .name = "output", .type = OPT_STR, .off = offsetof(struct args, output), .arg = "FILE",
	  .letter = 'o', .help = "write FILE instead of standard output (convert, synth)" },
	{ .name = "to-format", .type = OPT_STR, .off = offsetof(struct args, to), .arg = "FORMAT",
	  .def = "canonical",
	  .help = "write canonical, mooncake, aiperf, vidur or burstgpt (convert)" },
	{ .name = "lines", .type = OPT_INT, .off = offsetof(struct args, lines), .arg = "N",
	  .letter = 'n', .def = "10", .min = 1, .max = 1e15,
	  .help = "print the first N requests (head)" },
	{ .name = "json", .type = OPT_STR, .off = offsetof(struct args, json), .arg = "FILE",
	  .help = JSON_FILE_HELP " (info)" },
	{ .name = "histogram", .type = OPT_FLAG, .off = offsetof(struct args, histogram),
	  .help = "draw histograms of lengths and load, even if the output is no terminal (info)" },
	{ 0 }
};
/* clang-format on */

/* ---- info ---- */

static void print_figure(FILE *f, const char *name, double x, const char *unit)
{
	if (isnan(x))
		fprintf(f, "%-22s-\n", name);
	else
		fprintf(f, "%-22s%.4g%s\n", name, x, unit);
}

static void print_spread(FILE *f, const char *name, const struct spread *s)
{
	fprintf(f,
		"%-22ssum %" PRIu64 ", mean %.1f, min %" PRIu64 ", p50 %" PRIu64 ", p90 %" PRIu64
		", p99 %" PRIu64 ", max %" PRIu64 "\n",
		name, s->sum, (double)s->sum / (double)s->n, s->min, s->p50, s->p90, s->p99,
		s->max);
}

static void print_times(FILE *f, const char *name, const struct spread *s)
{
	const uint64_t v[] = { s->min, s->p50, s->p99, s->max };
	char text[4][32];

	if (!s->n)
		return;
	for (int i = 0; i < 4; i++)
		num_time_str(text[i], sizeof text[i], (double)v[i]);
	fprintf(f, "%-22smin %s, p50 %s, p99 %s, max %s\n", name, text[0], text[1], text[2],
		text[3]);
}

static void print_load(FILE *f, const struct summary *s)
{
	const struct window_counts *second = &s->window[0], *minute = &s->window[2];
	char text[32];

	print_figure(f, "rate", s->rate, " /s");
	print_figure(f, "gap CV", s->gap_cv, "");
	print_times(f, "gap", &s->gap_ns);
	for (int i = 0; i < SUMMARY_WINDOWS; i++) {
		snprintf(text, sizeof text, "dispersion D(%d s)", summary_window_s[i]);
		print_figure(f, text, s->window[i].dispersion, "");
	}
	if (second->windows)
		fprintf(f, "%-22sat most %" PRIu64 " requests, idle %.1f %%\n", "seconds",
			second->max, 100 * second->idle);
	if (minute->windows)
		fprintf(f, "%-22s%" PRIu64 " to %" PRIu64 " requests\n", "minutes", minute->min,
			minute->max);
	fprintf(f, "%-22s%zu\n", "distinct arrivals", s->distinct);
}

static void print_reuse(FILE *f, const struct trace *t, const struct summary *s)
{
	const struct spread *b = &s->block;

	if (!b->sum) {
		fprintf(f, "%-22snone in this trace\n", "prefix blocks");
		return;
	}
	fprintf(f, "%-22s%" PRIu64 " of %u tokens\n", "prefix blocks", b->sum, t->block_tok);
	fprintf(f, "%-22sp50 %" PRIu64 ", p99 %" PRIu64 ", max %" PRIu64 "\n",
		"blocks of a request", b->p50, b->p99, b->max);
	fprintf(f, "%-22s%" PRIu64 ", %.1f %% used once\n", "distinct blocks", s->distinct_blocks,
		100.0 * (double)s->blocks_once / (double)s->distinct_blocks);
	fprintf(f, "%-22s%.2f %% of blocks, %.2f %% of prompt tokens, %" PRIu64 " whole prompts\n",
		"ideal prefix reuse", 100.0 * (double)s->blocks_reused / (double)b->sum,
		100.0 * (double)s->tok_reused / (double)s->prompt.sum, s->prompts_reused);
}

static void print_types(FILE *f, const struct trace *t)
{
	for (size_t k = 0; k < t->n_type; k++) {
		size_t n = trace_type_count(t, k);

		if (n) {
			fprintf(f, "%-22s%zu of ", "type", n);
			text_put(t->type[k], f);
			putc('\n', f);
		}
	}
}

/* ---- histograms of info ---- */

enum { BAR = 50, SLICES = 20 };

static void print_bars(FILE *f, const char *title, char label[][32], const uint64_t *count, int n)
{
	uint64_t most = 1;

	for (int i = 0; i < n; i++)
		most = count[i] > most ? count[i] : most;
	fprintf(f, "\n%s\n", title);
	for (int i = 0; i < n; i++) {
		int bar = (int)((count[i] * BAR + most - 1) / most);

		fprintf(f, "%22s  %.*s%*s %" PRIu64 "\n", label[i], bar,
			"##################################################", BAR - bar, "",
			count[i]);
	}
}

/* Draw a histogram of lengths by powers of two. tok: offset of the length, a uint32_t, in struct
 * request. */
static void draw_lengths(FILE *f, const char *what, const struct trace *t, size_t tok)
{
	uint64_t all[32] = { 0 };
	char label[32][32], title[40];
	int lo = 31, hi = 0;

	for (size_t i = 0; i < t->n; i++) {
		const void *p = (const char *)&t->req[i] + tok;
		int k = 31 - __builtin_clz(*(const uint32_t *)p);

		all[k]++;
		lo = k < lo ? k : lo;
		hi = k > hi ? k : hi;
	}
	for (int k = lo; k <= hi; k++)
		snprintf(label[k], sizeof label[k], "%u to %u", 1u << k, 2 * (1u << k) - 1);
	snprintf(title, sizeof title, "requests by %s tokens", what);
	print_bars(f, title, label + lo, all + lo, hi - lo + 1);
}

static void draw_load(FILE *f, const struct trace *t)
{
	int64_t t0 = t->req[0].arrival_ns, step = (t->req[t->n - 1].arrival_ns - t0) / SLICES + 1;
	uint64_t count[SLICES] = { 0 };
	char label[SLICES][32];

	for (size_t i = 0; i < t->n; i++)
		count[(t->req[i].arrival_ns - t0) / step]++;
	for (int k = 0; k < SLICES; k++)
		snprintf(label[k], sizeof label[k], "from %.3f s", (double)(k * step) * 1e-9);
	print_bars(f, "requests over time", label, count, SLICES);
}

static enum ar_status info(struct trace *t, const struct args *a, FILE *f, struct ar_err *err)
{
	int64_t first = t->req[0].arrival_ns, span = t->req[t->n - 1].arrival_ns - first;
	struct summary s;
	enum ar_status st = trace_summarize(&s, t, err);
	char text[DATE_CHARS];

	if (!st && a->json)
		st = json_file_write(a->json, trace_json(t, &s), err);
	if (st || json_file_alone(a->json))
		return st;
	fprintf(f, "%-22s", "file");
	text_put(t->name, f);
	fprintf(f, "\n%-22s%s\n%-22s%s\n%-22s%zu\n", "format", t->format, "sha256", t->sha256,
		"requests", t->n);
	print_types(f, t);
	if (t->has_epoch) {
		date_format(text, t->epoch_ns + first);
		fprintf(f, "%-22s%s\n", "first arrival", text);
	}
	fprintf(f, "%-22s%" PRId64 ".%09d s\n", "span", span / 1000000000,
		(int)(span % 1000000000));
	print_load(f, &s);
	print_spread(f, "prompt tokens", &s.prompt);
	print_spread(f, "output tokens", &s.output);
	fprintf(f, "%-22s%" PRIu64 " tokens\n", "longest request", s.longest);
	print_figure(f, "length correlation", s.correlation, "");
	if (s.session.n)
		fprintf(f,
			"%-22s%" PRIu64 ", requests p50 %" PRIu64 ", p90 %" PRIu64 ", max %" PRIu64
			"\n",
			"sessions", s.session.n, s.session.p50, s.session.p90, s.session.max);
	if (s.started)
		fprintf(f, "%-22s%" PRIu64 ", of %" PRIu64 " requests\n", "started by others",
			s.started, s.started_requests);
	print_times(f, "think time", &s.think_ns);
	print_reuse(f, t, &s);
	if (s.later.n)
		print_spread(f, "new in later turns", &s.later);
	if (a->histogram || isatty(fileno(f))) {
		draw_lengths(f, "prompt", t, offsetof(struct request, prompt_tok));
		draw_lengths(f, "output", t, offsetof(struct request, output_tok));
		draw_load(f, t);
	}
	return AR_OK;
}

/* ---- head ---- */

static enum ar_status head(struct trace *t, const struct args *a, FILE *f, struct ar_err *err)
{
	(void)err;
	fprintf(f, "%8s %18s %10s %10s %8s %6s %8s\n", "request", "arrival s", "prompt tok",
		"output tok", "blocks", "turn", "line");
	for (size_t i = 0; i < t->n && i < (uint64_t)a->lines; i++) {
		const struct request *q = &t->req[i];

		fprintf(f, "%8zu %8" PRId64 ".%09d %10u %10u %8u %6u %8" PRIu64 "\n", i,
			q->arrival_ns / 1000000000, (int)(q->arrival_ns % 1000000000),
			q->prompt_tok, q->output_tok, q->n_block, q->turn, q->line);
	}
	return AR_OK;
}

/* ---- convert and synth ---- */

static enum ar_status convert(struct trace *t, const struct args *a, FILE *f, struct ar_err *err)
{
	const struct trace_writer *w = trace_writer_find(a->to);

	return w ? trace_write_as(w, t, f, err) : trace_write(t, f, err);
}

static enum ar_status synth(struct trace *t, const struct args *a, FILE *f, struct ar_err *err)
{
	return trace_synthesize(t, &a->synth, a->trace.seed, f, err);
}

/* ---- the command ---- */

static const struct verb {
	const char *name;
	enum ar_status (*run)(struct trace *t, const struct args *a, FILE *f, struct ar_err *err);
	const char *opt[6]; /* action-specific options that it takes */
	bool may_lack_file;
} verbs[] = {
	{ "info", info, { "histogram", "json" }, false },
	{ "convert", convert, { "output", "to-format" }, false },
	{ "head", head, { "lines" }, false },
	{ "synth", synth, { "output", "count", "sessions", "arrivals", "lengths" }, true },
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

/* Write the file whole or not at all. */
static enum ar_status put_file(const struct verb *v, struct trace *t, const struct args *a,
			       struct ar_err *err)
{
	struct outfile out;
	enum ar_status st = outfile_open(&out, a->output, err);

	if (st)
		return st;
	st = v->run(t, a, out.f, err);
	if (st)
		ar_err_prefix(err, "%s", a->output);
	else
		st = outfile_commit(&out, err);
	outfile_release(&out);
	return st;
}

static bool verb_takes(const struct verb *v, const char *opt)
{
	for (const char *const *o = v->opt; *o; o++)
		if (!strcmp(*o, opt))
			return true;
	return false;
}

static enum ar_status check_options(const struct opt_group *g, const struct verb *v,
				    struct ar_err *err)
{
	for (int i = 0; i < N_VERBS; i++)
		for (const char *const *o = verbs[i].opt; *o; o++)
			if (opt_given(g, *o) && !verb_takes(v, *o))
				return ar_fail(err, AR_USAGE,
					       "--%s has no effect in 'trace %s'; "
					       "leave it out",
					       *o, v->name);
	return AR_OK;
}

/* Without a file there is nothing to read or to shape; the seed draws. */
static enum ar_status check_lacks_file(const struct opt_group *g, struct ar_err *err)
{
	for (const struct opt *o = trace_opts; o->name; o++)
		if (opt_given(g, o->name) && strcmp(o->name, "trace-seed"))
			return ar_fail(err, AR_USAGE,
				       "%s has no effect without a FILE; leave it out", o->name);
	return AR_OK;
}

static enum ar_status check_format(const char *to, struct ar_err *err)
{
	return trace_writer_find(to) || !strcmp(to, "canonical") ?
		       AR_OK :
		       ar_fail(err, AR_USAGE,
			       "to-format '%s': want canonical, mooncake, aiperf, vidur or "
			       "burstgpt",
			       to);
}

static enum ar_status run_verb(const struct opt_group *g, const struct args *a, int argc,
			       char **argv, struct ar_err *err)
{
	const struct verb *v = verbs;
	struct trace *t = NULL;
	enum ar_status st;

	if (!argc)
		return ar_fail(err, AR_USAGE, "no action given; want info, convert, head or synth");
	if (argc > 2)
		return ar_fail(err, AR_USAGE, "unexpected operand '%s'; trace takes one FILE",
			       argv[2]);
	while (v < verbs + N_VERBS && strcmp(v->name, argv[0]))
		v++;
	if (v == verbs + N_VERBS)
		return ar_fail(err, AR_USAGE,
			       "unknown action '%s'; want info, convert, head or synth", argv[0]);
	st = check_options(g, v, err);
	if (!st)
		st = check_format(a->to, err);
	if (st)
		return st;
	if (argc == 2)
		st = trace_read(&t, argv[1], &a->trace, err);
	else if (!v->may_lack_file)
		st = ar_fail(err, AR_USAGE, "trace %s needs a FILE", v->name);
	else
		st = check_lacks_file(g, err);
	if (!st && a->output && strcmp(a->output, "-"))
		st = put_file(v, t, a, err);
	else if (!st)
		st = v->run(t, a, stdout, err);
	trace_free(t);
	return st;
}

static enum ar_status trace_main(int argc, char **argv, struct ar_err *err)
{
	struct args a = { 0 };
	struct opt_group g[] = { { .title = "Options", .opts = own_opts, .base = &a },
				 { .title = "Synthesis", .opts = synth_opts, .base = &a.synth },
				 { .title = "Trace", .opts = trace_opts, .base = &a.trace },
				 { 0 } };
	enum ar_status st = opt_init(g, err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st)
		st = run_verb(g, &a, argc, argv, err);
	opt_release(g);
	return st;
}

static void trace_show_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	const struct opt_group g[] = { { .title = "Options", .opts = own_opts },
				       { .title = "Synthesis", .opts = synth_opts },
				       { .title = "Trace", .opts = trace_opts },
				       { 0 } };

	show(g, f);
}

const struct cmd cmd_trace = {
	.name = "trace",
	.usage = "info [OPTION]... FILE\n"
		 "convert [-o FILE] [OPTION]... FILE\n"
		 "head [-n N] [OPTION]... FILE\n"
		 "synth [-o FILE] [OPTION]... [FILE]",
	.title = "look at a request trace, convert it to the canonical form, or make one",
	.run = trace_main,
	.options = trace_show_options,
};
