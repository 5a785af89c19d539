/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file is one JSON value per line, or one value on all lines.  Each value is told by its members
 * and added to the log; values of different kinds do not mix.
 */
#include "config.h"
#include "traces/engine/engine_log.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/json.h"
#include "base/jsonval.h"
#include "base/order.h"
#include "traces/engine/engine_read.h"
#include "traces/importers/import.h"
#include "traces/importers/reader.h"
#include "traces/known_files.h"

const struct engine_request reading_unknown = {
	.arrival_ns = -1,
	.first_token_ns = -1,
	.last_token_ns = -1,
	.ttft_ns = -1,
	.tpot_ns = -1,
	.received_ns = -1,
	.admit_ns = -1,
};

/* ---- messages ---- */

/* Put file and line before the message of a failure. */
static enum ar_status at_log_line(const struct reading *r, enum ar_status st, struct ar_err *err)
{
	if (st == AR_DATA && r->line)
		ar_err_prefix(err, "%s:%" PRIu64, r->path, r->line);
	else if (st == AR_DATA)
		ar_err_prefix(err, "%s", r->path);
	return st;
}

enum ar_status reading_bad(const char *key, const char *want, struct ar_err *err)
{
	return ar_fail(err, AR_DATA, "%s: want %s", key, want);
}

/* ---- members ---- */

const cJSON *reading_member(const cJSON *object, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);

	return cJSON_IsNull(v) ? NULL : v;
}

bool reading_time(const cJSON *v, double unit, int64_t *ns)
{
	double x;

	if (!json_real(v, 0, READING_LAST_S * 1e9 / unit, &x))
		return false;
	*ns = llround(x * unit);
	return true;
}

/* Set *ns to the time object.key; it stays if there is no such member. */
static enum ar_status may_time(const cJSON *object, const char *key, int64_t *ns,
			       struct ar_err *err)
{
	const cJSON *v = reading_member(object, key);

	return !v || reading_time(v, READING_S, ns) ?
		       AR_OK :
		       reading_bad(key, "seconds from 0 to 2e9", err);
}

bool reading_count(const cJSON *v, int64_t min, uint32_t *n)
{
	int64_t x;

	if (!json_int(v, min, INT32_MAX, &x))
		return false;
	*n = (uint32_t)x;
	return true;
}

static enum ar_status may_count(const cJSON *object, const char *key, uint32_t *n,
				struct ar_err *err)
{
	const cJSON *v = reading_member(object, key);

	return !v || reading_count(v, 0, n) ?
		       AR_OK :
		       reading_bad(key, "an integer from 0 to 2147483647", err);
}

static enum ar_status may_limit(const cJSON *object, const char *key, int64_t *n,
				struct ar_err *err)
{
	const cJSON *v = reading_member(object, key);

	return !v || json_int(v, 1, JSON_INT_MAX, n) ?
		       AR_OK :
		       reading_bad(key, "an integer from 1 on", err);
}

static enum ar_status may_text(const cJSON *object, const char *key, char **text,
			       struct ar_err *err)
{
	const cJSON *v = reading_member(object, key);

	if (!v)
		return AR_OK;
	if (!cJSON_IsString(v))
		return reading_bad(key, "a text", err);
	free(*text);
	*text = strdup(v->valuestring);
	return *text ? AR_OK : ar_nomem(err);
}

enum ar_status reading_array(const cJSON *object, const char *key, const cJSON **array,
			     struct ar_err *err)
{
	*array = reading_member(object, key);
	return !*array || cJSON_IsArray(*array) ? AR_OK : reading_bad(key, "an array", err);
}

static enum ar_status add_entry(struct reading *r, uint32_t n_tok, struct ar_err *err)
{
	struct engine_log *log = r->log;

	if (!GROW(log->entry, r->cap_entry, log->n_entry + 1))
		return ar_nomem(err);
	log->entry[log->n_entry++] = (struct engine_entry){ n_tok, -1 };
	return AR_OK;
}

enum ar_status reading_request(struct reading *r, const struct engine_request *q,
			       struct ar_err *err)
{
	struct engine_log *log = r->log;

	if (log->n_request == INT32_MAX)
		return ar_fail(err, AR_DATA, "more than 2147483647 requests");
	if (!GROW(log->request, r->cap_request, log->n_request + 1))
		return ar_nomem(err);
	log->request[log->n_request++] = *q;
	return AR_OK;
}

/* ---- steps ---- */

/* Add a step whose entries follow. */
static enum ar_status add_step(struct reading *r, const cJSON *begin, const cJSON *end,
			       struct ar_err *err)
{
	struct engine_log *log = r->log;
	struct engine_step s = { .first = log->n_entry };

	if (!reading_time(begin, READING_S, &s.begin_ns))
		return reading_bad("begin", "seconds from 0 to 2e9", err);
	if (!reading_time(end, READING_S, &s.end_ns))
		return reading_bad("end", "seconds from 0 to 2e9", err);
	if (s.end_ns < s.begin_ns)
		return ar_fail(err, AR_DATA, "the step ends before it begins");
	if (log->n_step && s.begin_ns < log->step[log->n_step - 1].begin_ns)
		return ar_fail(err, AR_DATA,
			       "the step begins before the previous one; sort the steps by begin");
	for (int i = 0; i < ENGINE_PARTS; i++)
		s.part_ns[i] = -1;
	s.seen_ns = -1;
	if (!GROW(log->step, r->cap_step, log->n_step + 1))
		return ar_nomem(err);
	log->step[log->n_step++] = s;
	return AR_OK;
}

static enum ar_status add_tokens(struct reading *r, const cJSON *tokens, struct ar_err *err)
{
	const cJSON *v;

	if (!cJSON_IsArray(tokens))
		return reading_bad("tokens", "an array of integers from 1 to 2147483647", err);
	cJSON_ArrayForEach(v, tokens) {
		uint32_t n;
		enum ar_status st;

		if (!reading_count(v, 1, &n))
			return reading_bad("tokens", "an array of integers from 1 to 2147483647",
					   err);
		st = add_entry(r, n, err);
		if (st)
			return st;
		r->log->step[r->log->n_step - 1].n_entry++;
	}
	return AR_OK;
}

/* Number a request's name, which may appear before its line. */
static enum ar_status number_of(struct reading *r, const char *id, uint32_t *number,
				struct ar_err *err)
{
	if (!intern_put(&r->id, id, strlen(id), number) ||
	    !GROW(r->named, r->cap_named, (size_t)*number + 1))
		return ar_nomem(err);
	if (*number == r->n_named)
		r->named[r->n_named++] = -1;
	return AR_OK;
}

enum { FIRST_NAME = -2 }; /* entry.req of name 0 until the end; -3 of name 1, ... */

static enum ar_status add_ids(struct reading *r, const cJSON *ids, struct ar_err *err)
{
	const struct engine_step *s = &r->log->step[r->log->n_step - 1];
	struct engine_entry *e = r->log->entry + s->first;
	const cJSON *v;
	int64_t index;
	uint32_t number;

	if (cJSON_GetArraySize(ids) != (int)s->n_entry)
		return ar_fail(err, AR_DATA, "requests has %d numbers, tokens has %zu",
			       cJSON_GetArraySize(ids), s->n_entry);
	cJSON_ArrayForEach(v, ids) {
		enum ar_status st = AR_OK;

		if (cJSON_IsString(v)) {
			st = number_of(r, v->valuestring, &number, err);
			if (!st)
				e->req = FIRST_NAME - (int32_t)number;
		} else if (json_int(v, 0, INT32_MAX, &index)) {
			e->req = (int32_t)index;
		} else {
			st = reading_bad("requests", "an array of texts or of integers from 0 on",
					 err);
		}
		if (st)
			return st;
		e++;
	}
	return AR_OK;
}

/* [time, tokens] of the last step */
static enum ar_status set_seen(struct reading *r, const cJSON *object, struct ar_err *err)
{
	const cJSON *seen;
	struct engine_step *s = &r->log->step[r->log->n_step - 1];
	enum ar_status st = reading_array(object, "seen", &seen, err);

	if (st || !seen)
		return st;
	return cJSON_GetArraySize(seen) == 2 && reading_time(seen->child, READING_S, &s->seen_ns) &&
			       reading_count(seen->child->next, 1, &s->n_seen) ?
		       AR_OK :
		       reading_bad("seen", "[seconds from 0 to 2e9, a number of tokens]", err);
}

static enum ar_status step_line(struct reading *r, const cJSON *object, struct ar_err *err)
{
	static const char *const part[ENGINE_PARTS] = { "schedule", "execute", "wait", "update" };
	const cJSON *ids;
	enum ar_status st = add_step(r, reading_member(object, "begin"),
				     reading_member(object, "end"), err);

	for (int i = 0; i < ENGINE_PARTS && !st; i++)
		st = may_time(object, part[i], &r->log->step[r->log->n_step - 1].part_ns[i], err);
	if (!st)
		st = set_seen(r, object, err);
	if (!st)
		st = add_tokens(r, reading_member(object, "tokens"), err);
	if (!st)
		st = reading_array(object, "requests", &ids, err);
	return st || !ids ? st : add_ids(r, ids, err);
}

/* [[begin, end, [tokens, ...]], ...] */
static enum ar_status step_array(struct reading *r, const cJSON *steps, struct ar_err *err)
{
	const cJSON *v;
	int i = 0;

	cJSON_ArrayForEach(v, steps) {
		enum ar_status st;

		if (!cJSON_IsArray(v) || cJSON_GetArraySize(v) != 3)
			st = ar_fail(err, AR_DATA, "want [begin, end, [tokens, ...]]");
		else
			st = add_step(r, v->child, v->child->next, err);
		if (!st)
			st = add_tokens(r, v->child->next->next, err);
		if (st == AR_DATA)
			ar_err_prefix(err, "step %d", i);
		if (st)
			return st;
		i++;
	}
	return AR_OK;
}

/* ---- requests ---- */

/* Set TTFT and TPOT from the times of a request. */
static enum ar_status derive_latency(struct engine_request *q, struct ar_err *err)
{
	if (q->first_token_ns >= 0 && q->arrival_ns > q->first_token_ns)
		return ar_fail(err, AR_DATA, "the first token comes before the arrival");
	if (q->last_token_ns >= 0 && q->first_token_ns > q->last_token_ns)
		return ar_fail(err, AR_DATA, "the last token comes before the first");
	if (q->first_token_ns >= 0 && q->arrival_ns >= 0)
		q->ttft_ns = q->first_token_ns - q->arrival_ns;
	if (q->first_token_ns >= 0 && q->last_token_ns >= 0 && q->output_tok > 1)
		q->tpot_ns = (q->last_token_ns - q->first_token_ns) / (q->output_tok - 1);
	return AR_OK;
}

/* A number is the request's place in the file, a text its name. */
static enum ar_status identify_request(struct reading *r, const cJSON *id, struct ar_err *err)
{
	size_t at = r->log->n_request;
	uint32_t number;
	int64_t index;
	enum ar_status st;

	if (json_int(id, 0, INT32_MAX, &index))
		return index == (int64_t)at ?
			       AR_OK :
			       ar_fail(err, AR_DATA,
				       "request %" PRId64 " is number %zu in the file; write the "
				       "requests in order, from 0",
				       index, at);
	if (!cJSON_IsString(id))
		return reading_bad("request", "a text or an integer from 0 on", err);
	st = number_of(r, id->valuestring, &number, err);
	if (!st && r->named[number] >= 0)
		st = ar_fail(err, AR_DATA, "request \"%s\" has a line already", id->valuestring);
	if (!st)
		r->named[number] = (int32_t)at;
	return st;
}

static enum ar_status request_line(struct reading *r, const cJSON *object, struct ar_err *err)
{
	struct engine_request q = reading_unknown;
	enum ar_status st = identify_request(r, reading_member(object, "request"), err);

	if (!st)
		st = may_count(object, "prompt_tokens", &q.prompt_tok, err);
	if (!st)
		st = may_count(object, "output_tokens", &q.output_tok, err);
	if (!st)
		st = may_time(object, "arrival", &q.arrival_ns, err);
	if (!st)
		st = may_time(object, "first_token", &q.first_token_ns, err);
	if (!st)
		st = may_time(object, "last_token", &q.last_token_ns, err);
	if (!st)
		st = may_time(object, "received", &q.received_ns, err);
	if (!st)
		st = may_time(object, "admit", &q.admit_ns, err);
	if (!st)
		st = derive_latency(&q, err);
	return st ? st : reading_request(r, &q, err);
}

/* "ttft" and "tpot" of all requests, in ms. */
static enum ar_status latency_arrays(struct reading *r, const cJSON *object, struct ar_err *err)
{
	const cJSON *ttft, *tpot, *a, *b;
	enum ar_status st = reading_array(object, "ttft", &ttft, err);

	if (!st)
		st = reading_array(object, "tpot", &tpot, err);
	if (st)
		return st;
	if (ttft && tpot && cJSON_GetArraySize(ttft) != cJSON_GetArraySize(tpot))
		return ar_fail(err, AR_DATA,
			       "%d values in ttft and %d in tpot; want null in tpot for a request "
			       "of one output token",
			       cJSON_GetArraySize(ttft), cJSON_GetArraySize(tpot));
	a = ttft ? ttft->child : NULL;
	b = tpot ? tpot->child : NULL;
	while (!st && (a || b)) {
		struct engine_request q = reading_unknown;

		if (a && !cJSON_IsNull(a) && !reading_time(a, READING_MS, &q.ttft_ns))
			return reading_bad("ttft", "milliseconds from 0 to 2e12", err);
		if (b && !cJSON_IsNull(b) && !reading_time(b, READING_MS, &q.tpot_ns))
			return reading_bad("tpot", "milliseconds from 0 to 2e12", err);
		st = reading_request(r, &q, err);
		a = a ? a->next : NULL;
		b = b ? b->next : NULL;
	}
	return st;
}

/* ---- the header ---- */

/* "vLLM 0.24.0" is engine "vllm" and version "0.24.0". */
static enum ar_status split_engine(struct engine_log *log, struct ar_err *err)
{
	char *blank = log->engine ? strchr(log->engine, ' ') : NULL;

	for (char *c = log->engine; c && *c; c++)
		*c = (char)tolower((unsigned char)*c);
	if (!blank)
		return AR_OK;
	*blank = 0;
	if (log->version)
		return AR_OK;
	log->version = strdup(blank + 1);
	return log->version ? AR_OK : ar_nomem(err);
}

static enum ar_status scheduling(struct engine_log *log, const cJSON *object, struct ar_err *err)
{
	const cJSON *async = reading_member(object, "async"),
		    *word = reading_member(object, "scheduling");

	if (async && !cJSON_IsBool(async))
		return reading_bad("async", "true or false", err);
	if (async)
		log->async = cJSON_IsTrue(async);
	if (!word)
		return AR_OK;
	if (!cJSON_IsString(word) ||
	    (strcmp(word->valuestring, "async") && strcmp(word->valuestring, "sync")))
		return reading_bad("scheduling", "\"async\" or \"sync\"", err);
	log->async = !strcmp(word->valuestring, "async");
	return AR_OK;
}

static enum ar_status capture_sizes(struct engine_log *log, const cJSON *object, struct ar_err *err)
{
	const cJSON *sizes, *v;
	enum ar_status st = reading_array(object, "cudagraph_capture_sizes", &sizes, err);

	if (st || !sizes || !sizes->child)
		return st;
	log->capture_size = malloc((size_t)cJSON_GetArraySize(sizes) * sizeof *log->capture_size);
	if (!log->capture_size)
		return ar_nomem(err);
	cJSON_ArrayForEach(v, sizes)
		if (!json_int(v, 1, INT32_MAX, &log->capture_size[log->n_capture_size++]))
			return reading_bad("cudagraph_capture_sizes",
					   "integers from 1 to 2147483647", err);
	qsort(log->capture_size, log->n_capture_size, sizeof *log->capture_size, order_i64);
	return AR_OK;
}

/* A model that is no object, such as a file's name, says nothing of the model. */
static enum ar_status model_of(struct engine_log *log, const cJSON *object, struct ar_err *err)
{
	const cJSON *v = reading_member(object, "model");

	if (!cJSON_IsObject(v))
		return AR_OK;
	log->model_json = cJSON_PrintUnformatted(v);
	return log->model_json ? AR_OK : ar_nomem(err);
}

/* What stands between the clients and the engine, and how fast its host is. */
static enum ar_status front_of(struct engine_log *log, const cJSON *object, struct ar_err *err)
{
	const cJSON *front = reading_member(object, "front"),
		    *probe = reading_member(object, "probe");

	if (front && !cJSON_IsString(front))
		return reading_bad("front", "a text", err);
	log->http = front && !strcmp(front->valuestring, "http");
	return !probe || probe_read(&log->probe, probe) ?
		       AR_OK :
		       reading_bad("probe", "what 'attnreplay bench host --json' writes", err);
}

static enum ar_status log_header(struct reading *r, const cJSON *object, struct ar_err *err)
{
	struct engine_log *log = r->log;
	enum ar_status st;

	if (r->has_header)
		return ar_fail(err, AR_DATA, "a second header; want one log in a file");
	r->has_header = true;
	st = may_text(object, "engine", &log->engine, err);
	if (!st)
		st = may_text(object, "version", &log->version, err);
	if (!st)
		st = split_engine(log, err);
	if (!st)
		st = may_text(object, "gpu", &log->gpu, err);
	if (!st)
		st = scheduling(log, object, err);
	if (!st)
		st = may_limit(object, "budget", &log->max_batched_tok, err);
	if (!st)
		st = may_limit(object, "max_num_batched_tokens", &log->max_batched_tok, err);
	if (!st)
		st = may_limit(object, "max_num_seqs", &log->max_seqs, err);
	if (!st)
		st = capture_sizes(log, object, err);
	if (!st)
		st = front_of(log, object, err);
	return st ? st : model_of(log, object, err);
}

/* ---- values ---- */

/* All values of a file are lines of one kind, or there is one value. */
static enum ar_status same_kind(struct reading *r, enum reading_kind kind, struct ar_err *err)
{
	if (r->kind != NOTHING && (r->kind != kind || kind == ONE_VALUE))
		return ar_fail(err, AR_DATA,
			       "a second log of another kind or run; want one log in a file");
	r->kind = kind;
	return AR_OK;
}

static enum ar_status whole_log(struct reading *r, const cJSON *object, struct ar_err *err)
{
	const cJSON *steps;
	enum ar_status st = log_header(r, object, err);

	if (!st)
		st = reading_array(object, "steps", &steps, err);
	if (!st)
		st = step_array(r, steps, err);
	return st ? st : latency_arrays(r, object, err);
}

/* A value by the member that only its kind has. */
static const struct form {
	const char *key;
	enum reading_kind kind;
	enum ar_status (*read)(struct reading *, const cJSON *, struct ar_err *);
} forms[] = {
	{ "begin", OWN_LINES, step_line },	    { "request", OWN_LINES, request_line },
	{ "steps", ONE_VALUE, whole_log },	    { "metadata", AIPERF_LINES, reading_aiperf },
	{ "input_lens", ONE_VALUE, reading_bench }, { "ttfts", ONE_VALUE, reading_bench },
	{ "engine", OWN_LINES, log_header },
};

/* The file is no log.  Say what it is: a known one, or a trace of importer f; NULL: neither. */
static enum ar_status not_a_log(const struct known_file *known, const struct importer *f,
				struct ar_err *err)
{
	if (f)
		return ar_fail(err, AR_DATA,
			       "this is a trace of requests (%s), which 'attnreplay run --trace' "
			       "reads",
			       f->name);
	return ar_fail(err, AR_DATA,
		       "%s%s; a log is one of contrib/vllm_steps.py, a JSON object with "
		       "\"steps\", a result of 'vllm bench serve --save-detailed', or "
		       "profile_export.jsonl of aiperf",
		       known ? "this looks like " : "unknown kind of file",
		       known ? known->title : "");
}

/* The first value of a file is no value of a log. */
static enum ar_status unknown_value(const cJSON *v, struct ar_err *err)
{
	const struct importer *f = NULL;
	struct record names, first = { 0 };
	struct ar_err unused;
	enum ar_status st;
	char *text;

	if (!known_file_names(&names, v))
		return not_a_log(NULL, NULL, err);
	text = cJSON_PrintUnformatted(v);
	if (!text)
		return ar_nomem(err);
	if (!record_json(&first, text, strlen(text), &unused))
		f = importer_fitting(&first);
	st = not_a_log(known_file(&names), f, err);
	record_release(&first);
	cJSON_free(text);
	return st;
}

static enum ar_status one_value(struct reading *r, const cJSON *v, struct ar_err *err)
{
	enum ar_status st;

	if (cJSON_IsArray(v) && !cJSON_IsObject(v->child)) {
		st = same_kind(r, ONE_VALUE, err);
		return st ? st : step_array(r, v, err);
	}
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
		if (json_has(v, forms[i].key)) {
			st = same_kind(r, forms[i].kind, err);
			return st ? st : forms[i].read(r, v, err);
		}
	if (r->kind == NOTHING)
		return unknown_value(v, err);
	return ar_fail(err, AR_DATA,
		       "neither a step, a request nor a header of a log; see "
		       "attnreplay-import-engine(1)");
}

static enum ar_status parse_line(struct reading *r, const char *text, const char **end,
				 struct ar_err *err)
{
	cJSON *v = json_parse_all(text, end);
	enum ar_status st;

	if (!v && json_nomem())
		return ar_nomem(err);
	st = v ? one_value(r, v, err) : ar_fail(err, AR_DATA, "not JSON");
	if (v)
		*end = NULL;
	cJSON_Delete(v);
	return st;
}

/* ---- the file ---- */

/* The same for a line that is not JSON: a header of CSV, or text. */
static enum ar_status not_json(const char *line, struct ar_err *err)
{
	struct record r = { 0 };
	char *header = strdup(line);
	struct ar_err unused;
	enum ar_status st = AR_OK;

	if (!header)
		return ar_nomem(err);
	if (*line != '{' && *line != '[' && !record_csv_header(&r, header, &unused) &&
	    (known_file(&r) || importer_fitting(&r)))
		st = not_a_log(known_file(&r), importer_fitting(&r), err);
	free(header);
	return st;
}

/* The first line is no value, so the file is one value, or something else. */
static enum ar_status one_text(struct reading *r, struct reader *in, const char *line,
			       struct ar_err *err)
{
	uint64_t first = reader_line(in);
	const char *end = NULL;
	char *text;
	enum ar_status st = not_json(line, err);

	if (st)
		return at_log_line(r, st, err);
	st = reader_rest(in, line, &text, err);
	if (!st) {
		st = parse_line(r, text, &end, err);
		r->line = end ? first + (uint64_t)text_line(text, end) - 1 : 0;
	}
	free(text);
	return at_log_line(r, st, err);
}

static enum ar_status all_lines(struct reading *r, struct reader *in, struct ar_err *err)
{
	enum ar_status st;
	const char *end;
	char *line;
	size_t n;

	while (!(st = reader_next(in, &line, &n, err)) && line) {
		if (!line[strspn(line, " 	")])
			continue;
		r->line = reader_line(in);
		st = parse_line(r, line, &end, err);
		if (st == AR_DATA && end && r->kind == NOTHING)
			return one_text(r, in, line, err);
		if (r->kind == ONE_VALUE)
			r->line = 0;
		if (!st && ar_interrupted())
			st = ar_fail(err, AR_INTERRUPTED, "interrupted");
		if (st)
			return at_log_line(r, st, err);
	}
	return st;
}

/* Replace names in entries by places in request[]. */
static enum ar_status resolve(struct reading *r, size_t step, struct engine_entry *e,
			      struct ar_err *err)
{
	const struct engine_log *log = r->log;
	const char *name = e->req <= FIRST_NAME ? r->id.v[FIRST_NAME - e->req] : NULL;

	if (!log->n_request) {
		e->req = -1;
		return AR_OK;
	}
	if (name)
		e->req = r->named[FIRST_NAME - e->req];
	if (name && e->req < 0)
		return ar_fail(err, AR_DATA,
			       "%s: step %zu ran request \"%s\", which has no line of its own",
			       r->path, step, name);
	if (e->req >= 0 && (size_t)e->req >= log->n_request)
		return ar_fail(err, AR_DATA,
			       "%s: step %zu ran request %d, but the log has %zu requests", r->path,
			       step, e->req, log->n_request);
	return AR_OK;
}

static enum ar_status finish_log(struct reading *r, struct ar_err *err)
{
	struct engine_log *log = r->log;
	enum ar_status st = reading_aiperf_end(r, err);

	for (size_t i = 0; i < log->n_step; i++)
		for (size_t k = 0; k < log->step[i].n_entry && !st; k++)
			st = resolve(r, i, &log->entry[log->step[i].first + k], err);
	if (!st && !log->n_step && !log->n_request)
		st = ar_fail(err, AR_DATA, "%s: neither steps nor requests in the log", r->path);
	return st;
}

static enum ar_status read_log(struct engine_log *log, const char *path, struct ar_err *err)
{
	struct reading r = { .log = log };
	struct reader *in;
	const char *base;
	enum ar_status st = reader_open(&in, path, err);

	if (st)
		return st;
	r.path = reader_path(in);
	base = strrchr(r.path, '/');
	log->name = strdup(base ? base + 1 : r.path);
	st = log->name ? all_lines(&r, in, err) : ar_nomem(err);
	if (!st)
		st = finish_log(&r, err);
	reader_close(in);
	intern_release(&r.id);
	free(r.named);
	free(r.started);
	return st;
}

enum ar_status engine_log_open(struct engine_log **out, const char *path, struct ar_err *err)
{
	struct engine_log *log = calloc(1, sizeof *log);
	enum ar_status st;

	*out = NULL;
	if (!log)
		return ar_nomem(err);
	log->async = -1;
	st = read_log(log, path, err);
	if (st)
		engine_log_close(log);
	else
		*out = log;
	return st;
}

void engine_log_close(struct engine_log *log)
{
	if (!log)
		return;
	free(log->name);
	free(log->engine);
	free(log->version);
	free(log->gpu);
	free(log->model_json);
	free(log->capture_size);
	free(log->step);
	free(log->entry);
	free(log->request);
	free(log);
}
