/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans of OpenTelemetry's GenAI conventions: lines of the OTLP file exporter, and objects with
 * "spans" whose attributes are an object, as inference-perf (kubernetes-sigs/inference-perf, commit
 * 7de5ef2) replays them.
 */
#include "config.h"
#include "traces/importers/import.h"

#include <string.h>

#include "base/number.h"

static const char *const need[] = { "resourceSpans", NULL };
static const char *const need_flat[] = { "spans", NULL };
static const char *const may[] = { NULL };
static const char *const may_flat[] = { "trace_id", "span_count", "collected_at", NULL };

/* What is read of a span and its attributes. */
enum what {
	TRACE,
	START_NS,
	END_NS,
	START_DATE,
	END_DATE,
	STATUS,
	ATTRIBUTES,
	OPERATION,
	CONVERSATION,
	MODEL,
	INPUT,
	OUTPUT,
	CACHED,
	N_WHAT
};

struct key {
	const char *name;
	enum what what;
};
static const struct key span_keys[] = { { "traceId", TRACE },
					{ "trace_id", TRACE },
					{ "startTimeUnixNano", START_NS },
					{ "endTimeUnixNano", END_NS },
					{ "start_time", START_DATE },
					{ "end_time", END_DATE },
					{ "status", STATUS },
					{ "attributes", ATTRIBUTES },
					{ 0 } };
static const struct key attribute_keys[] = { { "gen_ai.operation.name", OPERATION },
					     { "gen_ai.conversation.id", CONVERSATION },
					     { "gen_ai.request.model", MODEL },
					     { "gen_ai.usage.input_tokens", INPUT },
					     { "gen_ai.usage.prompt_tokens", INPUT },
					     { "gen_ai.usage.output_tokens", OUTPUT },
					     { "gen_ai.usage.completion_tokens", OUTPUT },
					     { "gen_ai.usage.cache_read.input_tokens", CACHED },
					     { 0 } };

/* Values by what they are; s NULL: absent. */
struct seen {
	struct span v[N_WHAT];
};

static bool is_name(struct span v, const char *text)
{
	return v.n == strlen(text) && !memcmp(v.s, text, v.n);
}

static void put(struct seen *seen, const struct key *keys, struct span name, struct span v)
{
	for (; keys->name; keys++)
		if (is_name(name, keys->name) && !is_name(v, "null"))
			seen->v[keys->what] = v;
}

/* The value of a JSON string without its quotes, or a number as it is. */
static struct span bare(struct span v)
{
	return v.s && *v.s == '"' ? (struct span){ v.s + 1, v.n - 2 } : v;
}

/* The value of member `want` of an object, or a span without a start. */
static struct span member(struct span object, const char *want)
{
	const char *s = object.s;
	struct span name, v, found = { 0 };

	while (*object.s == '{' && record_step(&s, '}', &name)) {
		v = record_skip(&s);
		if (is_name(name, want))
			found = v;
	}
	return found;
}

/* ---- attributes ---- */

/* OTLP has {"key": ..., "value": {"intValue": ...}}. */
static void typed_attributes(struct seen *seen, struct span list)
{
	struct span e, name;

	while (record_next(&list, &e)) {
		struct span key = member(e, "key"), value = member(e, "value");
		const char *s = value.s;

		if (!key.s || !s || *s != '{' || !record_step(&s, '}', &name))
			continue;
		put(seen, attribute_keys, bare(key), record_skip(&s));
	}
}

static void read_attributes(struct seen *seen)
{
	const struct span all = seen->v[ATTRIBUTES];
	const char *s = all.s;
	struct span name;

	if (!s)
		return;
	if (*s == '[')
		typed_attributes(seen, all);
	while (*all.s == '{' && record_step(&s, '}', &name))
		put(seen, attribute_keys, name, record_skip(&s));
}

/* ---- a span ---- */

/* Requests are the spans of an operation that generates; agents and tools are spans around them. */
static bool is_request(const struct seen *seen)
{
	const struct span op = bare(seen->v[OPERATION]);

	return op.s ? is_name(op, "chat") || is_name(op, "text_completion") ||
			       is_name(op, "generate_content") :
		      seen->v[INPUT].s != NULL;
}

static bool has_failed(const struct seen *seen)
{
	struct span code = { 0 };

	if (seen->v[STATUS].s)
		code = member(seen->v[STATUS], "code");
	return code.s && (is_name(code, "2") || is_name(bare(code), "STATUS_CODE_ERROR"));
}

static enum ar_status count_of(const struct import *im, const struct seen *seen, enum what w,
			       const char *name, uint32_t *n, struct ar_err *err)
{
	const struct span v = bare(seen->v[w]);
	uint64_t x;

	if (!v.s)
		return import_fail(im, err,
				   "a span of a request lacks \"%s\"; its texts have no token "
				   "counts",
				   name);
	if (!num_u64(v.s, v.n, &x) || x > INT32_MAX)
		return import_fail(im, err, "%s is \"%s\", want an integer from 0 to 2147483647",
				   name, span_show(v).s);
	*n = (uint32_t)x;
	return AR_OK;
}

static enum ar_status time_of(struct import *im, const struct seen *seen, bool end, int64_t *ns,
			      struct ar_err *err)
{
	const struct span v = bare(seen->v[end ? END_NS : START_NS]);
	const struct span date = bare(seen->v[end ? END_DATE : START_DATE]);
	uint64_t x;

	if (!v.s && !date.s)
		return import_fail(im, err, "a span of a request lacks its %s",
				   end ? "end" : "start");
	if (!v.s)
		return import_date(im, end ? "end_time" : "start_time", date, ns, err);
	if (!num_u64(v.s, v.n, &x) || x > INT64_MAX)
		return import_fail(im, err, "%s is \"%s\", want nanoseconds since 1970",
				   end ? "endTimeUnixNano" : "startTimeUnixNano", span_show(v).s);
	*ns = (int64_t)x;
	return AR_OK;
}

static enum ar_status name_of(struct import *im, const struct seen *seen, struct round *r,
			      struct ar_err *err)
{
	const bool talks = seen->v[CONVERSATION].s != NULL;
	const struct span id = seen->v[talks ? CONVERSATION : TRACE];
	enum ar_status st;

	if (!id.s)
		return import_fail(im, err, "a span of a request lacks \"traceId\"");
	r->grows = talks;
	st = import_name_text(im, talks ? "gen_ai.conversation.id" : "traceId", id, &im->session,
			      &r->session, err);
	if (st || !seen->v[MODEL].s)
		return st;
	st = import_name_text(im, "gen_ai.request.model", seen->v[MODEL], &im->type, &r->type, err);
	r->type++;
	return st;
}

static enum ar_status read_span(struct import *im, struct span text, struct ar_err *err)
{
	struct seen seen = { 0 };
	struct round r = { 0 };
	const char *s = text.s;
	struct span name;
	enum ar_status st;

	while (record_step(&s, '}', &name))
		put(&seen, span_keys, name, record_skip(&s));
	read_attributes(&seen);
	if (!is_request(&seen))
		return AR_OK;
	if (has_failed(&seen)) {
		import_warn(im, WARN_NO_OUTPUT);
		return AR_OK;
	}
	st = count_of(im, &seen, INPUT, "gen_ai.usage.input_tokens", &r.prompt_tok, err);
	if (!st)
		st = count_of(im, &seen, OUTPUT, "gen_ai.usage.output_tokens", &r.output_tok, err);
	if (!st && seen.v[CACHED].s)
		st = count_of(im, &seen, CACHED, "gen_ai.usage.cache_read.input_tokens",
			      &r.cached_tok, err);
	if (!st)
		st = time_of(im, &seen, false, &r.start_ns, err);
	if (!st)
		st = time_of(im, &seen, true, &r.end_ns, err);
	if (!st && r.end_ns < r.start_ns)
		st = import_fail(im, err, "a span of a request ends before it starts");
	if (!st)
		st = name_of(im, &seen, &r, err);
	return st ? st : import_round(im, &r, err);
}

/* Read the spans below a list that the members of path lead to. */
static enum ar_status read_list(struct import *im, const char *name, struct span list,
				const char *const *path, struct ar_err *err)
{
	struct span e;
	enum ar_status st = AR_OK;

	if (*list.s != '[')
		return import_fail(im, err, "%s is \"%s\", want an array", name, span_show(list).s);
	while (!st && record_next(&list, &e)) {
		struct span below;

		if (*e.s != '{')
			return import_fail(im, err, "%s has \"%s\", want objects", name,
					   span_show(e).s);
		if (!*path) {
			st = read_span(im, e, err);
			continue;
		}
		below = member(e, *path);
		if (below.s)
			st = read_list(im, *path, below, path + 1, err);
	}
	return st;
}

static enum ar_status otel_record(struct import *im, const struct record *r, struct ar_err *err)
{
	static const char *const path[] = { "scopeSpans", "spans", NULL };
	const struct field *f = record_find(r, "resourceSpans");

	im->t->has_epoch = true;
	return f ? read_list(im, "resourceSpans", f->value, path, err) :
		   read_list(im, "spans", record_find(r, "spans")->value, path + 2, err);
}

const struct importer importer_otel = {
	.name = "otel",
	.title = "OpenTelemetry GenAI spans, as OTLP writes them (JSON lines)",
	.kind = RECORD_JSON,
	.need = need,
	.may = may,
	.large = true,
	.block_tok = 16,
	.record = otel_record,
	.finish = import_rounds_end,
};

const struct importer importer_otel_flat = {
	.name = "otel-flat",
	.title = "OpenTelemetry GenAI spans with flat attributes (JSON lines)",
	.kind = RECORD_JSON,
	.need = need_flat,
	.may = may_flat,
	.large = true,
	.block_tok = 16,
	.record = otel_record,
	.finish = import_rounds_end,
};
