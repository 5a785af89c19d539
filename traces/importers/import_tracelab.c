/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TraceLab (arXiv 2606.30560; uw-syfi/TraceLab, commit 0b8a262): rounds of coding agents with
 * token counts and the times of what went in and came out.
 */
#include "config.h"
#include "traces/importers/import.h"

#include <string.h>

static const char *const need[] = { "session_id", "input_tokens_total", "output_tokens",
				    "timing_events", NULL };
static const char *const may[] = { "provider",
				   "project",
				   "user",
				   "user_id",
				   "round_index",
				   "round_id",
				   "model",
				   "prefix_tokens",
				   "newly_append_tokens",
				   "claude_uncached_input_tokens",
				   "claude_cache_creation_input_tokens",
				   "claude_cache_read_input_tokens",
				   "reasoning_output_tokens",
				   "tools",
				   "current_input_event_count",
				   "current_user_message_count",
				   "current_tool_result_count",
				   "current_user_message_chars",
				   "current_tool_result_chars",
				   "current_input_chars",
				   "first_input_event_type",
				   "store",
				   "trace_key",
				   "turn_id",
				   NULL };

static bool is_text(struct span v, const char *text)
{
	return v.s && v.n == strlen(text) + 2 && !memcmp(v.s + 1, text, v.n - 2);
}

/* Events of a round, in the order of the record. */
struct events {
	size_t n, n_out; /* all, and of the model */
	int64_t start_ns, end_ns;
};

/* A round starts with the last message or result of a tool before what the model says first, and
 * ends with the last that it says. */
static void take_event(struct events *e, bool in, int64_t ns)
{
	if (!e->n || (in && !e->n_out))
		e->start_ns = ns;
	e->n++;
	if (in)
		return;
	if (!e->n_out || ns > e->end_ns)
		e->end_ns = ns;
	e->n_out++;
}

static enum ar_status read_event(struct import *im, const char **s, struct events *e,
				 struct ar_err *err)
{
	struct span type = { 0 }, at = { 0 }, name, v;
	int64_t ns;
	enum ar_status st;

	while (record_step(s, '}', &name)) {
		v = record_skip(s);
		if (name.n == 10 && !memcmp(name.s, "event_type", 10))
			type = v;
		if (name.n == 9 && !memcmp(name.s, "timestamp", 9))
			at = v;
	}
	if (!at.s || *at.s != '"')
		return import_fail(im, err, "an event of timing_events lacks \"timestamp\"");
	at = (struct span){ at.s + 1, at.n - 2 };
	st = import_date(im, "timestamp", at, &ns, err);
	if (!st)
		take_event(e, is_text(type, "user_message") || is_text(type, "tool_result"), ns);
	return st;
}

static enum ar_status read_events(struct import *im, struct span list, struct events *e,
				  struct ar_err *err)
{
	const char *s = list.s;
	struct span none;
	enum ar_status st = AR_OK;

	if (*s != '[')
		return import_fail(im, err, "timing_events is \"%s\", want an array",
				   span_show(list).s);
	while (!st && record_step(&s, ']', &none)) {
		if (*s != '{')
			return import_fail(im, err, "timing_events has \"%s\", want objects",
					   span_show(record_skip(&s)).s);
		st = read_event(im, &s, e, err);
	}
	return st;
}

/* The tokens of the prompt are those that a cache held, and new ones. */
static enum ar_status check_tokens(struct import *im, const struct record *r, uint32_t prompt_tok,
				   uint32_t *cached_tok, struct ar_err *err)
{
	uint32_t fresh;
	enum ar_status st;

	if (!record_get(r, "prefix_tokens"))
		return AR_OK;
	st = import_count(im, r, "prefix_tokens", cached_tok, err);
	if (st || !record_get(r, "newly_append_tokens"))
		return st;
	st = import_count(im, r, "newly_append_tokens", &fresh, err);
	if (!st && (uint64_t)*cached_tok + fresh != prompt_tok)
		st = import_fail(im, err,
				 "input_tokens_total is %u, but prefix_tokens and "
				 "newly_append_tokens are %u and %u",
				 prompt_tok, *cached_tok, fresh);
	return st;
}

static enum ar_status tracelab_record(struct import *im, const struct record *r, struct ar_err *err)
{
	struct round round = { .grows = true };
	struct request q = request_none;
	struct events e = { 0 };
	enum ar_status st = import_lengths(im, r, "input_tokens_total", "output_tokens", &q, err);

	if (!st)
		st = check_tokens(im, r, q.prompt_tok, &round.cached_tok, err);
	if (!st)
		st = import_name(im, r, "session_id", &im->session, &round.session, err);
	if (!st && record_get(r, "model")) {
		st = import_name(im, r, "model", &im->type, &round.type, err);
		round.type++;
	}
	if (!st)
		st = read_events(im, record_find(r, "timing_events")->value, &e, err);
	if (st)
		return st;
	if (!e.n) {
		import_warn(im, WARN_NO_ARRIVAL);
		return AR_OK;
	}
	if (!e.n_out)
		import_warn(im, WARN_NO_TIME);
	im->t->has_epoch = true;
	round.prompt_tok = q.prompt_tok;
	round.output_tok = q.output_tok;
	round.start_ns = e.start_ns;
	round.end_ns = e.n_out && e.end_ns > e.start_ns ? e.end_ns : e.start_ns;
	return import_round(im, &round, err);
}

const struct importer importer_tracelab = {
	.name = "tracelab",
	.title = "TraceLab rounds of coding agents (JSON lines)",
	.kind = RECORD_JSON,
	.need = need,
	.may = may,
	.large = true,
	.block_tok = 16,
	.record = tracelab_record,
	.finish = import_rounds_end,
};
