/* SPDX-License-Identifier: Apache-2.0 */
/* Trace algebra: applies the options of a trace, in the order of their table. */
#include "config.h"
#include "traces/algebra/shape.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/order.h"
#include "base/rng.h"
#include "traces/algebra/repeat.h"
#include "traces/algebra/sessions.h"
#include "traces/intern.h"

const char *const trace_spreads[] = { "none", "even", "random", NULL };

/* ---- times ---- */

static int64_t last_arrival(const struct trace *t)
{
	return t->req[t->n - 1].arrival_ns;
}

/* Spread requests [i, i + n), which arrive together, over the room_ns that follow. */
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
	qsort(at, n, sizeof *at, order_u64);
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

static enum ar_status spread_arrivals(struct trace *t, const struct trace_args *a,
				      struct ar_err *err)
{
	enum ar_status st;
	int64_t step;

	if (a->spread == SPREAD_NONE)
		return AR_OK;
	step = a->step_ns ? a->step_ns : shortest_step(t);
	if (step == INT64_MAX)
		return ar_fail(err, AR_USAGE, "all requests arrive together; set --spread-step");
	st = trace_check_end(t, (double)last_arrival(t) + (double)step, err);
	for (size_t i = 0, n; i < t->n && !st; i += n) {
		int64_t room = step;

		for (n = 1; i + n < t->n && t->req[i + n].arrival_ns == t->req[i].arrival_ns; n++)
			;
		if (i + n < t->n && t->req[i + n].arrival_ns - t->req[i].arrival_ns < room)
			room = t->req[i + n].arrival_ns - t->req[i].arrival_ns;
		st = spread_group(t, i, n, room, a, err);
	}
	return st ? st :
		    trace_note(t, err, "spread=%s,spread-step=%" PRId64 "ns,trace-seed=%" PRId64,
			       trace_spreads[a->spread], step, a->seed);
}

static int64_t scale_pause(int64_t ns, double x)
{
	return (int64_t)fmin(floor((double)ns * x + 0.5), 9e18);
}

static enum ar_status scale_times(struct trace *t, double x, struct ar_err *err)
{
	enum ar_status st = trace_check_end(t, (double)last_arrival(t) * x, err);

	for (size_t i = 0; i < t->n && !st; i++) {
		struct request *q = &t->req[i];

		q->arrival_ns = (int64_t)floor((double)q->arrival_ns * x + 0.5);
		if (q->think_ns > 0)
			q->think_ns = scale_pause(q->think_ns, x);
	}
	for (size_t s = 0; s < t->n_session && t->link && !st; s++)
		if (t->link[s].join_ns > 0)
			t->link[s].join_ns = scale_pause(t->link[s].join_ns, x);
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

static enum ar_status shift_arrivals(struct trace *t, const struct trace_args *a,
				     struct ar_err *err)
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

/* Drop the runs before the first and after the last run of the requests. */
static void trim_blocks(struct trace *t)
{
	size_t run = t->req[0].run, end = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct request *q = &t->req[i];

		if (q->run < run)
			run = q->run;
		if (q->run + q->n_run > end)
			end = q->run + q->n_run;
	}
	if (end > run)
		memmove(t->run, t->run + run, (end - run) * sizeof *t->run);
	t->n_run = end - run;
	for (size_t i = 0; i < t->n; i++)
		t->req[i].run -= run;
}

enum ar_status trace_keep_first(struct trace *t, size_t n, bool has_first, const char *opts,
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
	return trace_keep_first(t, lo < hi ? hi - lo : 0, !lo, opts, err);
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
		st = trace_keep_first(t, n, has_first, "--type", err);
	}
	free(wanted);
	return st;
}

static enum ar_status not_longer(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	const bool has_first = t->req[0].prompt_tok <= a->longest;
	enum ar_status st;
	size_t n = 0;

	if (!a->longest)
		return AR_OK;
	for (size_t i = 0; i < t->n; i++)
		if (t->req[i].prompt_tok <= a->longest)
			t->req[n++] = t->req[i];
	st = trace_keep_first(t, n, has_first, "--longest-prompt", err);
	return st ? st : trace_note(t, err, "longest-prompt=%" PRId64, a->longest);
}

/* Number of leading full blocks that all prompts share; a shorter prompt shares all it has. */
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

		while (k < n && k < full && trace_block(t, longest, k) == trace_block(t, q, k))
			k++;
		if (k < full)
			n = k;
	}
	return n;
}

/* Requests with the same key are kept or dropped together: the requests of a tree of sessions, else
 * the requests that share the first block after the common ones. */
static uint64_t group_key(const struct trace *t, size_t i, uint32_t common)
{
	const struct request *q = &t->req[i];
	const char *name = q->session >= 0 ? t->session[trace_root(t, q->session)] : NULL;

	if (name)
		return intern_hash(name, strlen(name));
	if (q->n_block > common)
		return rng_mix(trace_block(t, q, common));
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
	st = trace_keep_first(t, n, has_first, "--keep", err);
	return st ? st : trace_note(t, err, "keep=%.17g,trace-seed=%" PRId64, a->keep, a->seed);
}

/* ---- lengths ---- */

/* Scale the blocks of q by x; blocks keep their size.  Block j of the result ends in block
 * m = ceil((j + 1) / x) - 1 of the source.  Two prompts share block j if they share block m. */
static bool scale_blocks(struct trace *made, struct request *q, const struct trace *t, double x,
			 struct chain *ids)
{
	uint32_t n = (q->prompt_tok + t->block_tok - 1) / t->block_tok;
	struct chain_key key = { .prev = CHAIN_START };
	struct request scaled = *q;

	scaled.run = made->n_run;
	scaled.n_run = scaled.n_block = 0;

	for (uint32_t j = 0; j < n; j++) {
		double m = ceil((double)(j + 1) / x - 1e-9) - 1;

		key.src = trace_block(t, q, m < q->n_block ? (uint32_t)m : q->n_block - 1);
		key.tail = j + 1 == n ? q->prompt_tok % t->block_tok : 0;
		if (!chain_put(ids, key, ids->n, &key.prev) ||
		    !trace_put_block(made, &scaled, key.prev))
			return false;
	}
	*q = scaled;
	return true;
}

/* Multiply prompts by x.  Shared prefixes are multiplied, too, and cut to whole blocks. */
static enum ar_status scale_prompts(struct trace *t, double x, struct ar_err *err)
{
	struct trace made = { 0 };
	struct chain ids = { 0 };
	bool done = true;

	for (size_t i = 0; i < t->n; i++) {
		double n = floor(t->req[i].prompt_tok * x + 0.5);

		if (n > INT32_MAX)
			return ar_fail(err, AR_USAGE,
				       "--prompt-scale %g: a prompt of %u tokens gets too long", x,
				       t->req[i].prompt_tok);
		t->req[i].prompt_tok = n < 1 ? 1 : (uint32_t)n;
	}
	for (size_t i = 0; i < t->n && done; i++)
		if (t->req[i].n_block)
			done = scale_blocks(&made, &t->req[i], t, x, &ids);
	chain_release(&ids);
	if (!done) {
		free(made.run);
		return ar_nomem(err);
	}
	free(t->run);
	t->run = made.run;
	t->n_run = made.n_run;
	t->cap_run = made.cap_run;
	return AR_OK;
}

static enum ar_status scale_outputs(struct trace *t, double x, struct ar_err *err)
{
	for (size_t i = 0; i < t->n; i++) {
		double n = floor(t->req[i].output_tok * x + 0.5);

		if (n > INT32_MAX)
			return ar_fail(err, AR_USAGE,
				       "--output-scale %g: an output of %u tokens gets too long", x,
				       t->req[i].output_tok);
		t->req[i].output_tok = n < 1 ? 1 : (uint32_t)n;
	}
	return AR_OK;
}

static enum ar_status scale_lengths(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (a->prompt_scale != 0 && a->prompt_scale != 1) {
		st = scale_prompts(t, a->prompt_scale, err);
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

/* A clipped prompt keeps the ids of its blocks, even that of the last, which may become partial:
 * every prompt that shares it is clipped at the same token. */
static enum ar_status clip(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < t->n; i++) {
		struct request *q = &t->req[i];

		if (a->max_prompt && q->prompt_tok > a->max_prompt) {
			q->prompt_tok = (uint32_t)a->max_prompt;
			if (q->n_block)
				trace_cut_blocks(t, q,
						 (q->prompt_tok + t->block_tok - 1) / t->block_tok);
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
	return st ? st :
		    trace_note(t, err, "repeat=%" PRId64 ",repeat-period=%" PRId64 "ns%s",
			       a->repeat, a->period_ns,
			       a->repeat_prefixes ? ",repeat-prefixes=1" : "");
}

/* ---- the whole ---- */

enum ar_status trace_shape(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	static enum ar_status (*const steps[])(struct trace *, const struct trace_args *,
					       struct ar_err *) = {
		spread_arrivals,
		window,
		of_types,
		not_longer,
		trace_over_length,
		thin,
		slice,
		scale_lengths,
		clip,
		repeat,
		trace_session_starts,
		time_scale,
		rate,
		shift_arrivals,
	};
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < sizeof steps / sizeof *steps && !st; i++)
		st = steps[i](t, a, err);
	return st;
}
