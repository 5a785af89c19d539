/* The options of a trace, applied one after another in the order of their table. */
#include "config.h"
#include "traces/algebra/shape.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "traces/importers/import.h"

#define OFF(member) offsetof(struct trace_args, member)

static const char *const restarts[] = { "error", "sort", "append", NULL };
static const char *const contexts[] = { "auto", "cumulative", "delta", NULL };
static const char *const aligns[] = { "start", "clock", NULL };
enum spread { SPREAD_NONE, SPREAD_EVEN, SPREAD_RANDOM };
static const char *const spreads[] = { "none", "even", "random", NULL };

const struct opt trace_opts[] = {
	{ .name = "format", .type = OPT_STR, .off = OFF(in.format), .arg = "NAME",
	  .help = "format of the trace, one of attnreplay-trace(5); found by its content when not "
		  "given", .may_differ = true },
	{ .name = "restart", .type = OPT_ENUM, .off = OFF(in.restart), .arg = "HOW", .def = "error",
	  .choice = restarts,
	  .help = "where the clock of the trace goes back by much: an error, sort all, or append "
		  "what follows to what was before" },
	{ .name = "restart-period", .type = OPT_TIME, .off = OFF(in.period_ns), .arg = "TIME",
	  .def = "0",
	  .help = "time from the start of a recording to that of the next one appended, 0: it "
		  "starts at the last arrival" },
	{ .name = "context", .type = OPT_ENUM, .off = OFF(in.context), .arg = "WHAT", .def = "auto",
	  .choice = contexts,
	  .help = "what the prompts of later turns hold: all of the session (cumulative), what "
		  "is new (delta), or as is usual in the format" },
	{ .name = "hash-block", .type = OPT_INT, .off = OFF(in.hash_tok), .arg = "N", .def = "0",
	  .min = 0, .max = 1 << 20,
	  .help = "tokens of a prefix block, 0: as is usual in the format" },
	{ .name = "image-tokens", .type = OPT_INT, .off = OFF(in.image_tok), .arg = "N", .def = "0",
	  .min = 0, .max = 1 << 20, .help = "add N prompt tokens for each image" },
	{ .name = "components", .type = OPT_LIST, .off = OFF(in.components), .arg = "FILE",
	  .help = "lengths of the components of RAGPulse prompts, once for each file" },
	{ .name = "merge", .type = OPT_LIST, .off = OFF(merge), .arg = "FILE[:NAME=VALUE,...]",
	  .help = "add the requests of another trace, shaped by options of its own" },
	{ .name = "align", .type = OPT_ENUM, .off = OFF(align), .arg = "HOW", .def = "start",
	  .choice = aligns,
	  .help = "merged traces begin together, or stand where their dates put them" },
	{ .name = "spread", .type = OPT_ENUM, .off = OFF(spread), .arg = "HOW", .def = "none",
	  .choice = spreads,
	  .help = "place requests that arrive together inside the step of the clock, in order" },
	{ .name = "spread-step", .type = OPT_TIME, .off = OFF(step_ns), .arg = "TIME", .def = "0",
	  .help = "step of the clock, 0: the shortest time between two arrivals" },
	{ .name = "from", .type = OPT_TIME, .off = OFF(from_ns), .arg = "TIME", .def = "0",
	  .help = "leave out requests that arrive before TIME in the trace" },
	{ .name = "to", .type = OPT_TIME, .off = OFF(to_ns), .arg = "TIME", .def = "0",
	  .help = "leave out requests that arrive at TIME or later, 0: no limit" },
	{ .name = "type", .type = OPT_LIST, .off = OFF(type), .arg = "NAME",
	  .help = "keep requests of this type only; repeat the option for more than one" },
	{ .name = "keep", .type = OPT_REAL, .off = OFF(keep), .arg = "SHARE", .def = "1",
	  .min = 1e-9, .max = 1,
	  .help = "keep a random share, of whole sessions and of prompts with a common prefix" },
	{ .name = "skip-requests", .type = OPT_INT, .off = OFF(skip), .arg = "N", .def = "0",
	  .min = 0, .max = 1e15, .help = "then leave out the first N requests" },
	{ .name = "requests", .type = OPT_INT, .off = OFF(requests), .arg = "N", .def = "0",
	  .min = 0, .max = 1e15, .help = "then keep N requests, 0: all" },
	{ .name = "prompt-scale", .type = OPT_REAL, .off = OFF(prompt_scale), .arg = "X",
	  .def = "1", .min = 1e-6, .max = 1e6,
	  .help = "multiply prompt tokens by X, and the prefixes that prompts share" },
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
	  .def = "0", .help = "time between two repetitions, 0: the span and the mean gap" },
	{ .name = "repeat-prefixes", .type = OPT_FLAG, .off = OFF(repeat_prefixes),
	  .help = "repetitions share the prefixes of the first, else each has its own" },
	{ .name = "time-scale", .type = OPT_REAL, .off = OFF(time_scale), .arg = "X", .def = "1",
	  .min = 1e-6, .max = 1e6, .help = "multiply arrival times by X; 0.5 doubles the load" },
	{ .name = "rate", .type = OPT_REAL, .off = OFF(rate), .arg = "X", .def = "0",
	  .min = 0, .max = 1e9,
	  .help = "scale times so that X requests a second arrive on average, 0: off" },
	{ .name = "shift", .type = OPT_TIME, .off = OFF(shift_ns), .arg = "TIME", .def = "0",
	  .help = "add TIME to all arrivals" },
	{ .name = "trace-seed", .type = OPT_INT, .off = OFF(seed), .arg = "N", .def = "0",
	  .min = 0, .max = 9e15, .help = "seed of what is random in shaping the trace" },
	{ 0 }
};

/* ---- times ---- */

enum ar_status trace_check_end(const struct trace *t, double end_ns, struct ar_err *err)
{
	if (end_ns < 9.2e18 - (double)t->epoch_ns)
		return AR_OK;
	return ar_fail(err, AR_USAGE, "arrivals would go beyond 2^63 ns");
}

static int64_t last_arrival(const struct trace *t)
{
	return t->req[t->n - 1].arrival_ns;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Move the n requests from i on, which arrive together, into the room_ns that follow. */
static enum ar_status spread_group(struct trace *t, size_t i, size_t n, int64_t room_ns,
				   const struct trace_args *a, struct ar_err *err)
{
	struct rng rng = { rng_mix((uint64_t)a->seed) ^ i };
	uint64_t *at = malloc(n * sizeof *at);

	if (!at)
		return ar_nomem(err);
	for (size_t k = 0; k < n; k++)
		at[k] = a->spread == SPREAD_RANDOM ? rng_below(&rng, (uint64_t)room_ns) :
			(uint64_t)((unsigned __int128)room_ns * k / n);
	qsort(at, n, sizeof *at, by_value);
	for (size_t k = 0; k < n; k++)
		t->req[i + k].arrival_ns += (int64_t)at[k];
	free(at);
	return AR_OK;
}

static int64_t shortest_step(const struct trace *t)
{
	int64_t step = INT64_MAX;

	for (size_t i = 1; i < t->n; i++) {
		int64_t d = t->req[i].arrival_ns - t->req[i - 1].arrival_ns;

		if (d && d < step)
			step = d;
	}
	return step;
}

static enum ar_status spread(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	enum ar_status st;
	int64_t step;

	if (a->spread == SPREAD_NONE)
		return AR_OK;
	step = a->step_ns ? a->step_ns : shortest_step(t);
	if (step == INT64_MAX)
		return ar_fail(err, AR_USAGE,
			       "all requests arrive together; say with --spread-step how far to "
			       "spread them");
	st = trace_check_end(t, (double)last_arrival(t) + (double)step, err);
	for (size_t i = 0, n; i < t->n && !st; i += n) {
		int64_t room = step;

		for (n = 1; i + n < t->n && t->req[i + n].arrival_ns == t->req[i].arrival_ns; n++)
			;
		if (i + n < t->n && t->req[i + n].arrival_ns - t->req[i].arrival_ns < room)
			room = t->req[i + n].arrival_ns - t->req[i].arrival_ns;
		st = spread_group(t, i, n, room, a, err);
	}
	return st ? st : trace_note(t, err, "spread=%s,spread-step=%" PRId64 "ns,trace-seed=%"
				    PRId64, spreads[a->spread], step, a->seed);
}

static enum ar_status scale_times(struct trace *t, double x, struct ar_err *err)
{
	enum ar_status st = trace_check_end(t, (double)last_arrival(t) * x, err);

	for (size_t i = 0; i < t->n && !st; i++) {
		struct request *q = &t->req[i];

		q->arrival_ns = (int64_t)floor((double)q->arrival_ns * x + 0.5);
		if (q->think_ns > 0)
			q->think_ns = (int64_t)fmin(floor((double)q->think_ns * x + 0.5), 9e18);
	}
	return st;
}

static enum ar_status time_scale(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	enum ar_status st;

	if (a->time_scale == 0 || a->time_scale == 1)
		return AR_OK;
	st = scale_times(t, a->time_scale, err);
	if (st)
		ar_err_prefix(err, "--time-scale %g", a->time_scale);
	return st ? st : trace_note(t, err, "time-scale=%.17g", a->time_scale);
}

static enum ar_status rate(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	double span_s = (double)(last_arrival(t) - t->req[0].arrival_ns) * 1e-9, x;
	enum ar_status st;

	if (a->rate == 0)
		return AR_OK;
	if (span_s == 0)
		return ar_fail(err, AR_USAGE,
			       "--rate %g: requests that arrive together have no rate", a->rate);
	x = (double)t->n / span_s / a->rate;
	log_info("--rate %g is --time-scale %g", a->rate, x);
	st = scale_times(t, x, err);
	if (st)
		ar_err_prefix(err, "--rate %g", a->rate);
	return st ? st : trace_note(t, err, "rate=%.17g", a->rate);
}

static enum ar_status shift(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	enum ar_status st;

	if (!a->shift_ns)
		return AR_OK;
	st = trace_check_end(t, (double)last_arrival(t) + (double)a->shift_ns, err);
	for (size_t i = 0; i < t->n && !st; i++)
		t->req[i].arrival_ns += a->shift_ns;
	return st ? st : trace_note(t, err, "shift=%" PRId64 "ns", a->shift_ns);
}

/* ---- which requests are left ---- */

/* The first request that arrives at t_ns or later. */
static size_t first_from(const struct trace *t, int64_t t_ns)
{
	size_t lo = 0, hi = t->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (t->req[mid].arrival_ns < t_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Drop the blocks that stand outside of those of the requests. */
static void trim_blocks(struct trace *t)
{
	size_t block = t->req[0].block, end = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct request *q = &t->req[i];

		if (q->block < block)
			block = q->block;
		if (q->block + q->n_block > end)
			end = q->block + q->n_block;
	}
	if (end > block)
		memmove(t->block, t->block + block, (end - block) * sizeof *t->block);
	t->n_block = end - block;
	for (size_t i = 0; i < t->n; i++)
		t->req[i].block -= block;
}

/* The first n requests are what is left of all; without the first of all, time counts from the
 * first that is left. */
static enum ar_status settle(struct trace *t, size_t n, bool has_first, const char *opts,
			     struct ar_err *err)
{
	int64_t t0 = has_first || !n ? 0 : t->req[0].arrival_ns;

	if (!n)
		return ar_fail(err, AR_DATA, "none of its %zu requests is left; check %s", t->n,
			       opts);
	t->n = n;
	for (size_t i = 0; i < n; i++)
		t->req[i].arrival_ns -= t0;
	if (t->has_epoch)
		t->epoch_ns += t0;
	trim_blocks(t);
	return AR_OK;
}

static enum ar_status keep_range(struct trace *t, size_t lo, size_t hi, const char *opts,
				 struct ar_err *err)
{
	if (!lo && hi == t->n)
		return AR_OK;
	if (lo < hi)
		memmove(t->req, t->req + lo, (hi - lo) * sizeof *t->req);
	return settle(t, lo < hi ? hi - lo : 0, !lo, opts, err);
}

static enum ar_status window(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	size_t lo = first_from(t, a->from_ns), hi = a->to_ns ? first_from(t, a->to_ns) : t->n;
	enum ar_status st = AR_OK;

	if (a->from_ns)
		st = trace_note(t, err, "from=%" PRId64 "ns", a->from_ns);
	if (!st && a->to_ns)
		st = trace_note(t, err, "to=%" PRId64 "ns", a->to_ns);
	return st ? st : keep_range(t, lo, hi, "--from, --to", err);
}

static enum ar_status slice(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	size_t lo = (uint64_t)a->skip < t->n ? (size_t)a->skip : t->n, hi = t->n;
	enum ar_status st = AR_OK;

	if (a->skip)
		st = trace_note(t, err, "skip-requests=%" PRId64, a->skip);
	if (!st && a->requests)
		st = trace_note(t, err, "requests=%" PRId64, a->requests);
	if (a->requests && (uint64_t)a->requests < hi - lo)
		hi = lo + (size_t)a->requests;
	return st ? st : keep_range(t, lo, hi, "--skip-requests", err);
}

static enum ar_status no_type(const struct trace *t, const char *name, struct ar_err *err)
{
	char all[256] = "none";
	size_t n = 0;

	for (size_t i = 0; i < t->n_type && n < sizeof all; i++)
		n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", t->type[i]);
	return ar_fail(err, AR_USAGE, "no request is of type '%s'; the types are: %s", name, all);
}

static enum ar_status of_types(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	bool *wanted = calloc(t->n_type + 1, sizeof *wanted), has_first;
	enum ar_status st = wanted ? AR_OK : ar_nomem(err);
	size_t n = 0;

	for (size_t k = 0; k < a->type.n && !st; k++) {
		size_t i = 0;

		while (i < t->n_type && strcmp(t->type[i], a->type.v[k]))
			i++;
		if (i == t->n_type)
			st = no_type(t, a->type.v[k], err);
		else
			wanted[i + 1] = true;
		if (!st)
			st = trace_note(t, err, "type=%s", a->type.v[k]);
	}
	if (!st && a->type.n) {
		has_first = wanted[t->req[0].type];
		for (size_t i = 0; i < t->n; i++)
			if (wanted[t->req[i].type])
				t->req[n++] = t->req[i];
		st = settle(t, n, has_first, "--type", err);
	}
	free(wanted);
	return st;
}

/* The leading full blocks that all prompts have in common, as far as each of them goes. */
static uint32_t common_blocks(const struct trace *t)
{
	const struct request *longest = &t->req[0];
	uint32_t n;

	for (size_t i = 1; i < t->n; i++)
		if (t->req[i].n_block > longest->n_block)
			longest = &t->req[i];
	n = longest->n_block ? longest->prompt_tok / t->block_tok : 0;
	for (size_t i = 0; i < t->n; i++) {
		const struct request *q = &t->req[i];
		uint32_t full = q->n_block ? q->prompt_tok / t->block_tok : 0, k = 0;

		while (k < n && k < full &&
		       t->block[longest->block + k] == t->block[q->block + k])
			k++;
		if (k < full)
			n = k;
	}
	return n;
}

/* Requests with the same key stay together: those of a session, else those that share more of their
 * prefix than all do. */
static uint64_t group_key(const struct trace *t, size_t i, uint32_t common)
{
	const struct request *q = &t->req[i];
	const char *name = q->session >= 0 ? t->session[q->session] : NULL;

	if (name)
		return names_hash(name, strlen(name));
	if (q->n_block > common)
		return rng_mix(t->block[q->block + common]);
	return rng_mix(~(uint64_t)i);
}

static enum ar_status thin(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	uint32_t common = common_blocks(t);
	bool has_first = false;
	enum ar_status st;
	size_t n = 0;

	if (a->keep == 0 || a->keep == 1)
		return AR_OK;
	for (size_t i = 0; i < t->n; i++) {
		struct rng rng = { rng_mix((uint64_t)a->seed) ^ group_key(t, i, common) };

		if (rng_unit(&rng) >= a->keep)
			continue;
		has_first |= !i;
		t->req[n++] = t->req[i];
	}
	st = settle(t, n, has_first, "--keep", err);
	return st ? st : trace_note(t, err, "keep=%.17g,trace-seed=%" PRId64, a->keep, a->seed);
}

/* ---- lengths ---- */

static enum ar_status scale_outputs(struct trace *t, double x, struct ar_err *err)
{
	for (size_t i = 0; i < t->n; i++) {
		double n = floor(t->req[i].output_tok * x + 0.5);

		if (n > INT32_MAX)
			return ar_fail(err, AR_USAGE,
				       "--output-scale %g: an output of %u tokens gets too long",
				       x, t->req[i].output_tok);
		t->req[i].output_tok = n < 1 ? 1 : (uint32_t)n;
	}
	return AR_OK;
}

static enum ar_status scale_lengths(struct trace *t, const struct trace_args *a,
				    struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (a->prompt_scale != 0 && a->prompt_scale != 1) {
		st = trace_scale_prompts(t, a->prompt_scale, err);
		if (!st)
			st = trace_note(t, err, "prompt-scale=%.17g", a->prompt_scale);
	}
	if (!st && a->output_scale != 0 && a->output_scale != 1) {
		st = scale_outputs(t, a->output_scale, err);
		if (!st)
			st = trace_note(t, err, "output-scale=%.17g", a->output_scale);
	}
	return st;
}

/* A clipped prompt keeps the ids of its blocks, the last one included: where it was full,
 * every prompt that shares it is clipped at the same token. */
static enum ar_status clip(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < t->n; i++) {
		struct request *q = &t->req[i];

		if (a->max_prompt && q->prompt_tok > a->max_prompt) {
			q->prompt_tok = (uint32_t)a->max_prompt;
			if (q->n_block)
				q->n_block = (q->prompt_tok + t->block_tok - 1) / t->block_tok;
		}
		if (a->max_output && q->output_tok > a->max_output)
			q->output_tok = (uint32_t)a->max_output;
	}
	if (a->max_prompt)
		st = trace_note(t, err, "max-prompt-tokens=%" PRId64, a->max_prompt);
	if (!st && a->max_output)
		st = trace_note(t, err, "max-output-tokens=%" PRId64, a->max_output);
	return st;
}

static enum ar_status repeat(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	enum ar_status st;

	if (a->repeat <= 1)
		return AR_OK;
	st = trace_repeat(t, a->repeat, a->period_ns, a->repeat_prefixes, err);
	return st ? st : trace_note(t, err, "repeat=%" PRId64 ",repeat-period=%" PRId64
				    "ns%s", a->repeat, a->period_ns,
				    a->repeat_prefixes ? ",repeat-prefixes=1" : "");
}

/* ---- the whole ---- */

static enum ar_status shape(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	static enum ar_status (*const steps[])(struct trace *, const struct trace_args *,
					       struct ar_err *) = {
		spread, window, of_types, thin, slice, scale_lengths, clip, repeat, time_scale,
		rate, shift,
	};
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < sizeof steps / sizeof *steps && !st; i++)
		st = steps[i](t, a, err);
	return st;
}

static enum ar_status check(const struct trace_args *a, struct ar_err *err)
{
	if (a->in.period_ns && a->in.restart != RESTART_APPEND)
		return ar_fail(err, AR_USAGE, "--restart-period needs --restart append");
	if (a->to_ns && a->from_ns >= a->to_ns)
		return ar_fail(err, AR_USAGE, "--to must be later than --from");
	if (a->rate != 0 && a->time_scale != 0 && a->time_scale != 1)
		return ar_fail(err, AR_USAGE, "--rate and --time-scale both scale the times; "
			       "give one of them");
	if (a->step_ns && a->spread == SPREAD_NONE)
		return ar_fail(err, AR_USAGE, "--spread-step has no effect without --spread");
	if ((a->period_ns || a->repeat_prefixes) && a->repeat <= 1)
		return ar_fail(err, AR_USAGE, "--repeat-%s has no effect without --repeat",
			       a->period_ns ? "period" : "prefixes");
	if (a->align && !a->merge.n)
		return ar_fail(err, AR_USAGE, "--align has no effect without --merge");
	return AR_OK;
}

/* Read a file: in holds where it has no options of its own. */
static enum ar_status import_part(struct trace **out, const char *path, struct trace_args *own,
				  const struct import_args *in, struct ar_err *err)
{
	struct import_args how = own->in;
	enum ar_status st;

	if (!how.format)
		how.format = in->format;
	if (!how.components.n)
		how.components = in->components;
	st = import_file(out, path, &how, err);
	if (!st) {
		st = shape(*out, own, err);
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
	own.in.format = NULL;
	own.in.components = (struct opt_list){ 0 };
	if (!st && options)
		st = opt_set_all(g, options, err);
	if (!st && own.merge.n)
		st = ar_fail(err, AR_USAGE, "a trace that is merged cannot merge others");
	if (!st)
		st = check(&own, err);
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

/* FILE or FILE:NAME=VALUE,... */
static enum ar_status read_spec(struct trace **out, const char *spec, const struct import_args *in,
				struct ar_err *err)
{
	char *path = strdup(spec), *colon = path ? strrchr(path, ':') : NULL;
	enum ar_status st;

	if (!path)
		return ar_nomem(err);
	if (colon && strchr(colon, '='))
		*colon++ = 0;
	else
		colon = NULL;
	st = read_part(out, path, colon, in, err);
	free(path);
	return st;
}

enum ar_status trace_read(struct trace **out, const char *path, const struct trace_args *a,
			  struct ar_err *err)
{
	struct trace *t = NULL, *more;
	enum ar_status st;

	*out = NULL;
	st = check(a, err);
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
		st = shape(t, a, err);
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
