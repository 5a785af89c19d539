/* attnreplay trace: look at a trace, and bring it into the canonical form. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "src/cmd.h"
#include "traces/binfile.h"
#include "traces/import.h"
#include "traces/summary.h"

struct args {
	char *output;
	int64_t lines;
	struct trace_args trace;
};

static const struct opt own_opts[] = {
	{ .name = "output", .type = OPT_STR, .off = offsetof(struct args, output), .arg = "FILE",
	  .letter = 'o', .help = "write FILE instead of standard output (convert)" },
	{ .name = "lines", .type = OPT_INT, .off = offsetof(struct args, lines), .arg = "N",
	  .letter = 'n', .def = "10", .min = 1, .max = 1e15, .help = "print the first N requests (head)" },
	{ 0 }
};

/* ---- info ---- */

static void print_figure(const char *name, double x, const char *unit)
{
	if (isnan(x))
		printf("%-22s-\n", name);
	else
		printf("%-22s%.4g%s\n", name, x, unit);
}

static void print_spread(const char *name, const struct spread *s)
{
	printf("%-22ssum %" PRIu64 ", min %u, p50 %u, p90 %u, p99 %u, max %u\n", name, s->sum,
	       s->min, s->p50, s->p90, s->p99, s->max);
}

static void print_reuse(const struct trace *t, const struct summary *s)
{
	uint64_t blocks = 0;

	for (size_t i = 0; i < t->n; i++)
		blocks += t->req[i].n_block;
	if (!blocks) {
		printf("%-22snone in this trace\n", "prefix blocks");
		return;
	}
	printf("%-22s%" PRIu64 " of %u tokens\n", "prefix blocks", blocks, t->block_tok);
	printf("%-22s%.2f %% of blocks, %.2f %% of prompt tokens\n", "ideal prefix reuse",
	       100.0 * (double)s->blocks_reused / (double)blocks,
	       100.0 * (double)s->tok_reused / (double)s->prompt.sum);
}

static enum ar_status info(const struct trace *t, const struct args *a, struct ar_err *err)
{
	int64_t span = t->req[t->n - 1].arrival_ns - t->req[0].arrival_ns;
	struct summary s;
	enum ar_status st = trace_summarize(&s, t, err);
	char text[DATE_CHARS];

	(void)a;
	if (st)
		return st;
	printf("%-22s%s\n%-22s%s\n%-22s%s\n%-22s%zu\n", "file", t->name, "format", t->format,
	       "sha256", t->sha256, "requests", t->n);
	if (t->has_epoch) {
		date_format(text, t->epoch_ns + t->req[0].arrival_ns);
		printf("%-22s%s\n", "first arrival", text);
	}
	printf("%-22s%" PRId64 ".%09d s\n", "span", span / 1000000000, (int)(span % 1000000000));
	print_figure("rate", s.rate, " /s");
	print_figure("gap CV", s.gap_cv, "");
	for (int i = 0; i < SUMMARY_WINDOWS; i++) {
		snprintf(text, sizeof text, "dispersion D(%d s)", summary_window_s[i]);
		print_figure(text, s.dispersion[i], "");
	}
	printf("%-22s%zu\n", "distinct arrivals", s.distinct);
	print_spread("prompt tokens", &s.prompt);
	print_spread("output tokens", &s.output);
	if (t->n_session)
		printf("%-22s%zu\n", "sessions", t->n_session);
	print_reuse(t, &s);
	return AR_OK;
}

/* ---- head ---- */

static enum ar_status head(const struct trace *t, const struct args *a, struct ar_err *err)
{
	(void)err;
	printf("%8s %18s %10s %10s %8s %6s %8s\n", "request", "arrival s", "prompt tok",
	       "output tok", "blocks", "turn", "line");
	for (size_t i = 0; i < t->n && i < (uint64_t)a->lines; i++) {
		const struct request *q = &t->req[i];

		printf("%8zu %8" PRId64 ".%09d %10u %10u %8u %6u %8" PRIu64 "\n", i,
		       q->arrival_ns / 1000000000, (int)(q->arrival_ns % 1000000000), q->prompt_tok,
		       q->output_tok, q->n_block, q->turn, q->line);
	}
	return AR_OK;
}

/* ---- convert ---- */

static enum ar_status write_and_close(const struct trace *t, FILE *f, const char *path,
				      struct ar_err *err)
{
	enum ar_status st = trace_write(t, f, err);

	if (st)
		ar_err_prefix(err, "%s", path);
	if (fclose(f) && !st)
		st = ar_fail(err, AR_IO, "%s: %s", path, strerror(errno));
	return st;
}

/* path appears whole or not at all, unless it is a device or a pipe, which a rename would replace
 * by a file. */
static enum ar_status write_file(const struct trace *t, const char *path, struct ar_err *err)
{
	struct outfile out;
	enum ar_status st;
	struct stat s;
	FILE *f;

	if (!stat(path, &s) && !S_ISREG(s.st_mode)) {
		f = fopen(path, "w");
		if (!f)
			return ar_fail(err, AR_IO, "%s: cannot write: %s", path, strerror(errno));
		return write_and_close(t, f, path, err);
	}
	st = outfile_open(&out, path, err);
	if (st)
		return st;
	st = trace_write(t, out.f, err);
	if (st)
		ar_err_prefix(err, "%s", path);
	else
		st = outfile_commit(&out, err);
	outfile_release(&out);
	return st;
}

static enum ar_status convert(const struct trace *t, const struct args *a, struct ar_err *err)
{
	if (a->output && strcmp(a->output, "-"))
		return write_file(t, a->output, err);
	return trace_write(t, stdout, err);
}

/* ---- the command ---- */

static const struct {
	const char *name;
	enum ar_status (*run)(const struct trace *t, const struct args *a, struct ar_err *err);
	const char *opt;	/* of own_opts, the one that it takes */
} verbs[] = {
	{ "info", info, NULL },
	{ "convert", convert, "output" },
	{ "head", head, "lines" },
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static enum ar_status run_verb(const struct opt_group *g, const struct args *a, int argc,
			       char **argv, struct ar_err *err)
{
	struct trace *t;
	enum ar_status st;
	int v = 0;

	if (argc != 2)
		return ar_fail(err, AR_USAGE, "want info, convert or head, and one FILE");
	while (v < N_VERBS && strcmp(verbs[v].name, argv[0]))
		v++;
	if (v == N_VERBS)
		return ar_fail(err, AR_USAGE, "unknown action '%s'; want info, convert or head",
			       argv[0]);
	for (int i = 0; i < N_VERBS; i++)
		if (i != v && verbs[i].opt && opt_given(g, verbs[i].opt))
			return ar_fail(err, AR_USAGE, "--%s has no effect in 'trace %s'",
				       verbs[i].opt, verbs[v].name);
	st = trace_read(&t, argv[1], &a->trace, err);
	if (!st)
		st = verbs[v].run(t, a, err);
	trace_free(t);
	return st;
}

static enum ar_status run(int argc, char **argv, struct ar_err *err)
{
	struct args a = { 0 };
	struct opt_group g[] = {
		{ .title = "Options", .opts = own_opts, .base = &a },
		{ .title = "Trace", .opts = trace_opts, .base = &a.trace },
		{ 0 }
	};
	enum ar_status st = opt_init(g, err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st)
		st = run_verb(g, &a, argc, argv, err);
	opt_release(g);
	return st;
}

static void options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	const struct opt_group g[] = {
		{ .title = "Options", .opts = own_opts },
		{ .title = "Trace", .opts = trace_opts },
		{ 0 }
	};

	show(g, f);
}

const struct cmd cmd_trace = {
	.name = "trace",
	.usage = "info [OPTION]... FILE\n"
		 "convert [-o FILE] [OPTION]... FILE\n"
		 "head [-n N] [OPTION]... FILE",
	.title = "look at a request trace or convert it to the canonical form",
	.run = run,
	.options = options,
};
