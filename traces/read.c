/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a trace, and how a trace is read with them: importers, then algebra. */
#include "config.h"
#include "traces/trace.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "traces/algebra/merge.h"
#include "traces/algebra/sessions.h"
#include "traces/algebra/shape.h"
#include "traces/importers/import.h"

#define OFF(member) offsetof(struct trace_args, member)

static const char *const restarts[] = { "error", "sort", "append", NULL };
static const char *const warms[] = { "none", "tokens", NULL };
static const char *const contexts[] = { "auto", "cumulative", "delta", NULL };
static const char *const units[] = { "auto", "s", "ms", "us", "ns", NULL };
static const char *const aligns[] = { "start", "clock", NULL };

/* clang-format off */
const struct opt trace_opts[] = {
	{ .name = "format", .type = OPT_STR, .off = OFF(in.format), .arg = "NAME",
	  .help = "trace format, see attnreplay-trace(5); found from the content if not given",
	  .may_differ = true },
	{ .name = "columns", .type = OPT_STR, .off = OFF(in.columns),
	  .arg = "arrival=NAME,prompt=NAME,output=NAME,...",
	  .help = "read CSV or JSON lines of no known format by these columns or keys; arrivals "
		  "are dates or numbers; also session, priority, replica, "
		  "prefix and prefix-tokens",
	  .may_differ = true },
	{ .name = "time-unit", .type = OPT_ENUM, .off = OFF(in.time_unit), .arg = "UNIT",
	  .def = "auto", .choice = units,
	  .help = "unit of times that are numbers; auto: the format's, or seconds with --columns, "
		  "or what the size of a time since 1970 shows" },
	{ .name = "restart", .type = OPT_ENUM, .off = OFF(in.restart), .arg = "HOW", .def = "error",
	  .choice = restarts,
	  .help = "if the trace's clock jumps far back: stop (error), sort all requests (sort), or "
		  "append the rest as a new recording (append)" },
	{ .name = "restart-period", .type = OPT_TIME, .off = OFF(in.period_ns), .arg = "TIME",
	  .def = "0",
	  .help = "time between the starts of appended recordings; 0: the next one starts at the "
		  "last arrival" },
	{ .name = "context", .type = OPT_ENUM, .off = OFF(in.context), .arg = "WHAT", .def = "auto",
	  .choice = contexts,
	  .help = "what later prompts of a session hold: the whole session (cumulative), new "
		  "tokens only (delta), or what the format usually has (auto)" },
	{ .name = "hash-block", .type = OPT_INT, .off = OFF(in.hash_tok), .arg = "N", .def = "0",
	  .min = 0, .max = 1 << 20,
	  .help = "tokens of a prefix block; 0: what the format usually has" },
	{ .name = "image-tokens", .type = OPT_INT, .off = OFF(in.image_tok), .arg = "N", .def = "0",
	  .min = 0, .max = 1 << 20, .help = "add N prompt tokens for each image" },
	{ .name = "warm-prefix", .type = OPT_ENUM, .off = OFF(in.warm_prefix), .arg = "HOW",
	  .def = "none", .choice = warms,
	  .help = "what sessions share: nothing (none), or as many first tokens of their prompts "
		  "as both have of tools and system prompts (tokens)" },
	{ .name = "max-memory", .type = OPT_INT, .off = OFF(in.max_memory), .arg = "SIZE",
	  .def = "0", .min = 0, .max = 1e15, .may_differ = true, .record_only = true,
	  .help = "most bytes that the requests of a trace, or the prompts of --prompts, may "
		  "take in memory, such as 4G; 0: half of the machine's memory" },
	{ .name = "components", .type = OPT_LIST, .off = OFF(in.components), .arg = "FILE",
	  .help = "file with the lengths of the components of RAGPulse prompts; repeat the option "
		  "for more" },
	{ .name = "merge", .type = OPT_LIST, .off = OFF(merge), .arg = "FILE[:NAME=VALUE,...]",
	  .help = "add the requests of another trace; options in its value apply to that trace "
		  "only" },
	{ .name = "align", .type = OPT_ENUM, .off = OFF(align), .arg = "HOW", .def = "start",
	  .choice = aligns,
	  .help = "merged traces begin together (start) or keep their dates (clock)" },
	{ .name = "spread", .type = OPT_ENUM, .off = OFF(spread), .arg = "HOW", .def = "none",
	  .choice = trace_spreads,
	  .help = "spread requests with equal arrival times over the step of the trace's clock, in "
		  "order" },
	{ .name = "spread-step", .type = OPT_TIME, .off = OFF(step_ns), .arg = "TIME", .def = "0",
	  .help = "step of the clock, 0: the shortest time between two arrivals" },
	{ .name = "from", .type = OPT_TIME, .off = OFF(from_ns), .arg = "TIME", .def = "0",
	  .help = "leave out requests that arrive before TIME in the trace" },
	{ .name = "to", .type = OPT_TIME, .off = OFF(to_ns), .arg = "TIME", .def = "0",
	  .help = "leave out requests that arrive at TIME or later, 0: no limit" },
	{ .name = "type", .type = OPT_LIST, .off = OFF(type), .arg = "NAME",
	  .help = "keep requests of this type only; repeat the option for more than one" },
	{ .name = "longest-prompt", .type = OPT_INT, .off = OFF(longest), .arg = "N", .def = "0",
	  .min = 0, .max = INT32_MAX,
	  .help = "leave out requests with prompts of more than N tokens, 0: none" },
	{ .name = "longest-request", .type = OPT_INT, .off = OFF(longest_request), .arg = "N",
	  .def = "0", .min = 0, .max = INT32_MAX,
	  .help = "treat requests of more than N tokens, with their output, as --over-length says, "
		  "0: none" },
	{ .name = "over-length", .type = OPT_ENUM, .off = OFF(over_length), .arg = "HOW",
	  .def = "stop", .choice = trace_overs,
	  .help = "what becomes of a session with too long a request: it stops before (stop), or "
		  "is left out (drop), or that request is (skip) or is cut (clip)" },
	{ .name = "keep", .type = OPT_REAL, .off = OFF(keep), .arg = "SHARE", .def = "1",
	  .min = 1e-9, .max = 1,
	  .help = "keep a random share of the requests; whole sessions, and all prompts with a "
		  "common prefix, stay or go together" },
	{ .name = "skip-requests", .type = OPT_INT, .off = OFF(skip), .arg = "N", .def = "0",
	  .min = 0, .max = 1e15, .help = "of what is left, leave out the first N requests" },
	{ .name = "requests",
	  .also = "num-prompts",
	  .type = OPT_INT, .off = OFF(requests), .arg = "N", .def = "0",
	  .min = 0, .max = 1e15, .help = "of what is left, keep the first N requests; 0: all" },
	{ .name = "prompt-scale", .type = OPT_REAL, .off = OFF(prompt_scale), .arg = "X",
	  .def = "1", .min = 1e-6, .max = 1e6,
	  .help = "multiply prompt tokens, and the prefixes that prompts share, by X" },
	{ .name = "output-scale", .type = OPT_REAL, .off = OFF(output_scale), .arg = "X",
	  .def = "1", .min = 1e-6, .max = 1e6, .help = "multiply output tokens by X" },
	{ .name = "max-prompt-tokens", .type = OPT_INT, .off = OFF(max_prompt), .arg = "N",
	  .def = "0", .min = 0, .max = INT32_MAX,
	  .help = "cut longer prompts to their first N tokens, 0: no limit" },
	{ .name = "max-output-tokens", .type = OPT_INT, .off = OFF(max_output), .arg = "N",
	  .def = "0", .min = 0, .max = INT32_MAX,
	  .help = "cut longer outputs to N tokens, 0: no limit" },
	{ .name = "repeat", .type = OPT_INT, .off = OFF(repeat), .arg = "N", .def = "1",
	  .min = 1, .max = 1e9, .help = "replay the requests N times, one time after another" },
	{ .name = "repeat-period", .type = OPT_TIME, .off = OFF(period_ns), .arg = "TIME",
	  .def = "0",
	  .help = "time between the starts of two repetitions; 0: the trace's span plus its mean "
		  "gap" },
	{ .name = "repeat-prefixes", .type = OPT_FLAG, .off = OFF(repeat_prefixes),
	  .help = "repetitions share the prefixes of the first; if not given, each has its own" },
	{ .name = "session-starts", .type = OPT_STR, .off = OFF(session_starts),
	  .arg = "zero|poisson:RATE|constant:RATE",
	  .help = "start the sessions together, or RATE of them a second; if not given, when the "
		  "trace says" },
	{ .name = "session-order", .type = OPT_ENUM, .off = OFF(session_order), .arg = "HOW",
	  .def = "file", .choice = trace_orders,
	  .help = "order of the sessions with --session-starts: that of the trace, or shuffled" },
	{ .name = "start-within", .type = OPT_STR, .off = OFF(start_within), .arg = "A:B",
	  .help = "begin each session that starts at 0 in its middle, after a share from A to B "
		  "of its time; the prompt before that fills the cache and is counted in nothing" },
	{ .name = "time-scale", .type = OPT_REAL, .off = OFF(time_scale), .arg = "X", .def = "1",
	  .min = 1e-6, .max = 1e6, .help = "multiply arrival times by X; 0.5 doubles the load" },
	{ .name = "rate",
	  .also = "request-rate",
	  .type = OPT_REAL, .off = OFF(rate), .arg = "X", .def = "0",
	  .min = 0, .max = 1e9,
	  .help = "scale times so that X requests a second arrive on average, 0: off" },
	{ .name = "shift", .type = OPT_TIME, .off = OFF(shift_ns), .arg = "TIME", .def = "0",
	  .help = "add TIME to all arrivals" },
	{ .name = "trace-seed", .type = OPT_INT, .off = OFF(seed), .arg = "N", .def = "0",
	  .min = 0, .max = 9e15, .help = "seed of the random choices made on the trace" },
	{ 0 }
};
/* clang-format on */

static enum ar_status check_trace_args(const struct trace_args *a, struct ar_err *err)
{
	if (a->in.columns && a->in.format)
		return ar_fail(err, AR_USAGE,
			       "--columns and --format both say how to read the file; give one of "
			       "them");
	if (a->in.period_ns && a->in.restart != RESTART_APPEND)
		return ar_fail(err, AR_USAGE, "--restart-period needs --restart append");
	if (a->to_ns && a->from_ns >= a->to_ns)
		return ar_fail(err, AR_USAGE, "--to must be later than --from");
	if (a->rate != 0 && a->time_scale != 0 && a->time_scale != 1)
		return ar_fail(err, AR_USAGE,
			       "--rate and --time-scale both scale the times; "
			       "give one of them");
	if (a->step_ns && a->spread == SPREAD_NONE)
		return ar_fail(err, AR_USAGE, "--spread-step has no effect without --spread");
	if ((a->period_ns || a->repeat_prefixes) && a->repeat <= 1)
		return ar_fail(err, AR_USAGE, "--repeat-%s has no effect without --repeat",
			       a->period_ns ? "period" : "prefixes");
	if (a->over_length && !a->longest_request)
		return ar_fail(err, AR_USAGE,
			       "--over-length has no effect without --longest-request");
	if (a->session_order && !a->session_starts)
		return ar_fail(err, AR_USAGE,
			       "--session-order has no effect without --session-starts");
	if (a->start_within && (!a->session_starts || strcmp(a->session_starts, "zero") != 0))
		return ar_fail(err, AR_USAGE,
			       "--start-within needs --session-starts zero, as sessions that start "
			       "later begin with their first request");
	if (a->align && !a->merge.n)
		return ar_fail(err, AR_USAGE, "--align has no effect without --merge");
	return AR_OK;
}

/* Read a file.  in: format or columns, and components, for a file whose own options set none. */
static enum ar_status import_part(struct trace **out, const char *path, struct trace_args *own,
				  const struct import_args *in, struct ar_err *err)
{
	struct import_args how = own->in;
	enum ar_status st;

	if (!how.format && !how.columns) {
		how.format = in->format;
		how.columns = in->columns;
	}
	if (!how.components.n)
		how.components = in->components;
	st = import_file(out, path, &how, err);
	if (!st) {
		st = trace_shape(*out, own, err);
		if (st)
			ar_err_prefix(err, "%s", path);
	}
	return st;
}

static enum ar_status read_part(struct trace **out, const char *path, const char *options,
				const struct import_args *in, struct ar_err *err)
{
	struct trace_args own = { 0 };
	struct opt_group g[] = { { .opts = trace_opts, .base = &own }, { 0 } };
	enum ar_status st = opt_init(g, err);
	struct trace *t = NULL;

	own.in = *in;
	own.in.format = own.in.columns = NULL;
	own.in.components = (struct opt_list){ 0 };
	if (!st && options)
		st = opt_set_all(g, options, err);
	if (!st && own.merge.n)
		st = ar_fail(err, AR_USAGE, "a trace that is merged cannot merge others");
	if (!st)
		st = check_trace_args(&own, err);
	if (st)
		ar_err_prefix(err, "%s", path);
	else
		st = import_part(&t, path, &own, in, err);
	opt_release(g);
	if (st) {
		trace_free(t);
		return st;
	}
	*out = t;
	return AR_OK;
}

size_t trace_path_length(const char *spec)
{
	size_t n = strlen(spec), end = n;

	while (end-- > 0)
		if (spec[end] == ':') {
			size_t name = strspn(spec + end + 1, "abcdefghijklmnopqrstuvwxyz-");

			if (name && spec[end + 1 + name] == '=')
				return end;
		}
	return n;
}

/* FILE or FILE:NAME=VALUE,... */
static enum ar_status read_spec(struct trace **out, const char *spec, const struct import_args *in,
				struct ar_err *err)
{
	const size_t n = trace_path_length(spec);
	char *path = strndup(spec, n);
	enum ar_status st;

	if (!path)
		return ar_nomem(err);
	st = read_part(out, path, spec[n] ? spec + n + 1 : NULL, in, err);
	free(path);
	return st;
}

enum ar_status trace_read(struct trace **out, const char *path, const struct trace_args *a,
			  struct ar_err *err)
{
	struct trace *t = NULL, *more;
	enum ar_status st;

	*out = NULL;
	st = check_trace_args(a, err);
	if (!st)
		st = read_spec(&t, path, &a->in, err);
	for (size_t i = 0; i < a->merge.n && !st; i++) {
		st = read_spec(&more, a->merge.v[i], &a->in, err);
		if (st)
			break;
		st = trace_merge(t, more, (enum trace_align)a->align, err);
		trace_free(more);
	}
	if (!st) {
		st = trace_shape(t, a, err);
		if (st)
			ar_err_prefix(err, "%s", path);
	}
	if (st) {
		trace_free(t);
		return st;
	}
	*out = t;
	return AR_OK;
}
