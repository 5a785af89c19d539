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

#include "base/json.h"
#include "base/jsonval.h"
#include "traces/importers/reader.h"
#include "traces/intern.h"

enum { TEXT_MAX_BYTES = 64 << 20 }; /* of a value on several lines */

static const double LAST_S = 9e9; /* of the times that ns in 64 bits hold */
static const double S_NS = 1e9, MS_NS = 1e6;

/* What the values of a file are. */
enum kind { NOTHING, OWN_LINES, AIPERF_LINES, ONE_VALUE };

/* A record of aiperf, which are in order of their ends. */
struct started {
	double ns; /* since 1970 */
	int64_t session;
	struct engine_request q;
};

struct reading {
	struct engine_log *log;
	const char *path;
	uint64_t line; /* 0: the file is one value */
	enum kind kind;
	bool has_header;
	size_t cap_step, cap_entry, cap_request, cap_named, cap_started;
	struct intern_table id; /* names of requests */
	int32_t *named;		/* [by number in id]: the request, -1: no line yet */
	size_t n_named;
	struct started *started; /* [n_started] */
	size_t n_started;
};

static const struct engine_request unknown_request = {
	.arrival_ns = -1,
	.first_token_ns = -1,
	.last_token_ns = -1,
	.ttft_ns = -1,
	.tpot_ns = -1,
	.admit_ns = -1,
};

/* ---- messages ---- */

/* Put file and line before the message of a failure. */
static enum ar_status place(const struct reading *r, enum ar_status st, struct ar_err *err)
{
	if (st == AR_DATA && r->line)
		ar_err_prefix(err, "%s:%" PRIu64, r->path, r->line);
	else if (st == AR_DATA)
		ar_err_prefix(err, "%s", r->path);
	return st;
}

static enum ar_status bad_member(const char *key, const char *want, struct ar_err *err)
{
	return ar_fail(err, AR_DATA, "%s: want %s", key, want);
}

/* ---- members ---- */

static const cJSON *member(const cJSON *object, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);

	return cJSON_IsNull(v) ? NULL : v;
}

static bool time_of(const cJSON *v, double unit, int64_t *ns)
{
	double x;

	if (!json_real(v, 0, LAST_S * S_NS / unit, &x))
		return false;
	*ns = llround(x * unit);
	return true;
}

/* Set *ns to the time object.key; it stays if there is no such member. */
static enum ar_status may_time(const cJSON *object, const char *key, int64_t *ns,
			       struct ar_err *err)
{
	const cJSON *v = member(object, key);

	return !v || time_of(v, S_NS, ns) ? AR_OK : bad_member(key, "seconds from 0 to 9e9", err);
}

static bool count_of(const cJSON *v, int64_t min, uint32_t *n)
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
	const cJSON *v = member(object, key);

	return !v || count_of(v, 0, n) ? AR_OK :
					 bad_member(key, "an integer from 0 to 2147483647", err);
}

static enum ar_status may_limit(const cJSON *object, const char *key, int64_t *n,
				struct ar_err *err)
{
	const cJSON *v = member(object, key);

	return !v || json_int(v, 1, JSON_INT_MAX, n) ? AR_OK :
						       bad_member(key, "an integer from 1 on", err);
}

static enum ar_status may_text(const cJSON *object, const char *key, char **text,
			       struct ar_err *err)
{
	const cJSON *v = member(object, key);

	if (!v)
		return AR_OK;
	if (!cJSON_IsString(v))
		return bad_member(key, "a text", err);
	free(*text);
	*text = strdup(v->valuestring);
	return *text ? AR_OK : ar_nomem(err);
}

static enum ar_status may_array(const cJSON *object, const char *key, const cJSON **array,
				struct ar_err *err)
{
	*array = member(object, key);
	return !*array || cJSON_IsArray(*array) ? AR_OK : bad_member(key, "an array", err);
}

/* ---- arrays that grow ---- */

/* Return room for element n of array v, which has *cap of size bytes each; NULL: no memory. */
static void *grow(void *v, size_t n, size_t *cap, size_t size)
{
	size_t more = *cap ? 2 * *cap : 64;

	if (n < *cap)
		return v;
	v = realloc(v, more * size);
	if (v)
		*cap = more;
	return v;
}

static enum ar_status add_entry(struct reading *r, uint32_t n_tok, struct ar_err *err)
{
	struct engine_log *log = r->log;
	struct engine_entry *v = grow(log->entry, log->n_entry, &r->cap_entry, sizeof *v);

	if (!v)
		return ar_nomem(err);
	log->entry = v;
	v[log->n_entry++] = (struct engine_entry){ n_tok, -1 };
	return AR_OK;
}

static enum ar_status add_request(struct reading *r, const struct engine_request *q,
				  struct ar_err *err)
{
	struct engine_log *log = r->log;
	struct engine_request *v;

	if (log->n_request == INT32_MAX)
		return ar_fail(err, AR_DATA, "more than 2147483647 requests");
	v = grow(log->request, log->n_request, &r->cap_request, sizeof *v);
	if (!v)
		return ar_nomem(err);
	log->request = v;
	v[log->n_request++] = *q;
	return AR_OK;
}

/* ---- steps ---- */

/* Add a step whose entries follow. */
static enum ar_status add_step(struct reading *r, const cJSON *begin, const cJSON *end,
			       struct ar_err *err)
{
	struct engine_log *log = r->log;
	struct engine_step *v, s = { .first = log->n_entry };

	if (!time_of(begin, S_NS, &s.begin_ns))
		return bad_member("begin", "seconds from 0 to 9e9", err);
	if (!time_of(end, S_NS, &s.end_ns))
		return bad_member("end", "seconds from 0 to 9e9", err);
	if (s.end_ns < s.begin_ns)
		return ar_fail(err, AR_DATA, "the step ends before it begins");
	if (log->n_step && s.begin_ns < log->step[log->n_step - 1].begin_ns)
		return ar_fail(err, AR_DATA,
			       "the step begins before the previous one; sort the steps by begin");
	for (int i = 0; i < ENGINE_PARTS; i++)
		s.part_ns[i] = -1;
	v = grow(log->step, log->n_step, &r->cap_step, sizeof *v);
	if (!v)
		return ar_nomem(err);
	log->step = v;
	v[log->n_step++] = s;
	return AR_OK;
}

static enum ar_status add_tokens(struct reading *r, const cJSON *tokens, struct ar_err *err)
{
	const cJSON *v;

	if (!cJSON_IsArray(tokens))
		return bad_member("tokens", "an array of integers from 1 to 2147483647", err);
	cJSON_ArrayForEach(v, tokens) {
		uint32_t n;
		enum ar_status st;

		if (!count_of(v, 1, &n))
			return bad_member("tokens", "an array of integers from 1 to 2147483647",
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
	int32_t *v;

	if (!intern_put(&r->id, id, strlen(id), number))
		return ar_nomem(err);
	v = grow(r->named, *number, &r->cap_named, sizeof *v);
	if (!v)
		return ar_nomem(err);
	r->named = v;
	if (*number == r->n_named)
		v[r->n_named++] = -1;
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
		return ar_fail(err, AR_DATA, "%d requests with %zu numbers of tokens",
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
			st = bad_member("requests", "an array of texts or of integers from 0 on",
					err);
		}
		if (st)
			return st;
		e++;
	}
	return AR_OK;
}

static enum ar_status step_line(struct reading *r, const cJSON *object, struct ar_err *err)
{
	static const char *const part[ENGINE_PARTS] = { "schedule", "execute", "wait", "update" };
	const cJSON *ids;
	enum ar_status st = add_step(r, member(object, "begin"), member(object, "end"), err);

	for (int i = 0; i < ENGINE_PARTS && !st; i++)
		st = may_time(object, part[i], &r->log->step[r->log->n_step - 1].part_ns[i], err);
	if (!st)
		st = add_tokens(r, member(object, "tokens"), err);
	if (!st)
		st = may_array(object, "requests", &ids, err);
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
static enum ar_status derive(struct engine_request *q, struct ar_err *err)
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
static enum ar_status identify(struct reading *r, const cJSON *id, struct ar_err *err)
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
		return bad_member("request", "a text or an integer from 0 on", err);
	st = number_of(r, id->valuestring, &number, err);
	if (!st && r->named[number] >= 0)
		st = ar_fail(err, AR_DATA, "request \"%s\" has a line already", id->valuestring);
	if (!st)
		r->named[number] = (int32_t)at;
	return st;
}

static enum ar_status request_line(struct reading *r, const cJSON *object, struct ar_err *err)
{
	struct engine_request q = unknown_request;
	enum ar_status st = identify(r, member(object, "request"), err);

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
		st = may_time(object, "admit", &q.admit_ns, err);
	if (!st)
		st = derive(&q, err);
	return st ? st : add_request(r, &q, err);
}

/* "ttft" and "tpot" of all requests, in ms. */
static enum ar_status latency_arrays(struct reading *r, const cJSON *object, struct ar_err *err)
{
	const cJSON *ttft, *tpot, *a, *b;
	enum ar_status st = may_array(object, "ttft", &ttft, err);

	if (!st)
		st = may_array(object, "tpot", &tpot, err);
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
		struct engine_request q = unknown_request;

		if (a && !cJSON_IsNull(a) && !time_of(a, MS_NS, &q.ttft_ns))
			return bad_member("ttft", "milliseconds from 0 to 9e12", err);
		if (b && !cJSON_IsNull(b) && !time_of(b, MS_NS, &q.tpot_ns))
			return bad_member("tpot", "milliseconds from 0 to 9e12", err);
		st = add_request(r, &q, err);
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
	const cJSON *async = member(object, "async"), *word = member(object, "scheduling");

	if (async && !cJSON_IsBool(async))
		return bad_member("async", "true or false", err);
	if (async)
		log->async = cJSON_IsTrue(async);
	if (!word)
		return AR_OK;
	if (!cJSON_IsString(word) ||
	    (strcmp(word->valuestring, "async") && strcmp(word->valuestring, "sync")))
		return bad_member("scheduling", "\"async\" or \"sync\"", err);
	log->async = !strcmp(word->valuestring, "async");
	return AR_OK;
}

static int ascending(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static enum ar_status capture_sizes(struct engine_log *log, const cJSON *object, struct ar_err *err)
{
	const cJSON *sizes, *v;
	enum ar_status st = may_array(object, "cudagraph_capture_sizes", &sizes, err);

	if (st || !sizes || !sizes->child)
		return st;
	log->capture_size = malloc((size_t)cJSON_GetArraySize(sizes) * sizeof *log->capture_size);
	if (!log->capture_size)
		return ar_nomem(err);
	cJSON_ArrayForEach(v, sizes)
		if (!json_int(v, 1, INT32_MAX, &log->capture_size[log->n_capture_size++]))
			return bad_member("cudagraph_capture_sizes",
					  "integers from 1 to 2147483647", err);
	qsort(log->capture_size, log->n_capture_size, sizeof *log->capture_size, ascending);
	return AR_OK;
}

/* A model that is no object, such as a file's name, says nothing of the model. */
static enum ar_status model_of(struct engine_log *log, const cJSON *object, struct ar_err *err)
{
	const cJSON *v = member(object, "model");

	if (!cJSON_IsObject(v))
		return AR_OK;
	log->model_json = cJSON_PrintUnformatted(v);
	return log->model_json ? AR_OK : ar_nomem(err);
}

static enum ar_status header(struct reading *r, const cJSON *object, struct ar_err *err)
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
	return st ? st : model_of(log, object, err);
}

/* ---- vllm bench serve ---- */

enum { INPUT_LENS, OUTPUT_LENS, TTFTS, ITLS, START_TIMES, N_BENCH };
static const char *const bench_key[N_BENCH] = { "input_lens", "output_lens", "ttfts", "itls",
						"start_times" };

/* Sum of the gaps between tokens, in s; NAN: not an array of such. */
static double sum_of(const cJSON *gaps)
{
	const cJSON *v;
	double x, sum = cJSON_IsArray(gaps) ? 0 : NAN;

	cJSON_ArrayForEach(v, gaps)
		sum += json_real(v, 0, LAST_S, &x) ? x : NAN;
	return sum;
}

/* Request i, whose values are v.  A request that failed has no output tokens and no times.  zero_ns:
 * the earliest start. */
static enum ar_status bench_request(struct reading *r, const cJSON *const v[N_BENCH],
				    int64_t zero_ns, struct ar_err *err)
{
	struct engine_request q = unknown_request;
	double span = v[ITLS] ? sum_of(v[ITLS]) : 0;
	bool failed;

	if (!count_of(v[INPUT_LENS], 0, &q.prompt_tok))
		return bad_member("input_lens", "integers from 0 to 2147483647", err);
	if (!count_of(v[OUTPUT_LENS], 0, &q.output_tok))
		return bad_member("output_lens", "integers from 0 to 2147483647", err);
	failed = !q.output_tok;
	if (!time_of(v[TTFTS], S_NS, &q.ttft_ns))
		return bad_member("ttfts", "seconds from 0 to 9e9", err);
	if (!(span <= LAST_S))
		return bad_member("itls", "arrays of seconds from 0 to 9e9", err);
	if (v[START_TIMES] && !time_of(v[START_TIMES], S_NS, &q.arrival_ns))
		return bad_member("start_times", "seconds from 0 to 9e9", err);
	if (v[START_TIMES])
		q.arrival_ns -= zero_ns;
	if (failed)
		q.ttft_ns = -1;
	if (!failed && v[ITLS] && q.output_tok > 1)
		q.tpot_ns = llround(span * S_NS / (q.output_tok - 1));
	if (!failed && v[START_TIMES]) {
		q.first_token_ns = q.arrival_ns + q.ttft_ns;
		if (v[ITLS])
			q.last_token_ns = q.first_token_ns + llround(span * S_NS);
	}
	return add_request(r, &q, err);
}

static enum ar_status bench(struct reading *r, const cJSON *object, struct ar_err *err)
{
	const cJSON *array, *v[N_BENCH], *start;
	int64_t zero_ns = INT64_MAX, ns;
	enum ar_status st = AR_OK;
	int n = 0;

	for (int i = 0; i < N_BENCH; i++) {
		st = may_array(object, bench_key[i], &array, err);
		if (st)
			return st;
		if (!array && i <= TTFTS)
			return ar_fail(err, AR_DATA,
				       "the result lacks \"%s\"; run 'vllm bench serve' with "
				       "--save-detailed",
				       bench_key[i]);
		if (!i)
			n = cJSON_GetArraySize(array);
		if (array && cJSON_GetArraySize(array) != n)
			return ar_fail(err, AR_DATA, "%d values in %s and %d in %s",
				       cJSON_GetArraySize(array), bench_key[i], n, *bench_key);
		v[i] = array ? array->child : NULL;
	}
	for (start = v[START_TIMES]; start; start = start->next)
		if (time_of(start, S_NS, &ns) && ns < zero_ns)
			zero_ns = ns;
	for (int k = 0; k < n && !st; k++) {
		st = bench_request(r, v, zero_ns, err);
		if (st == AR_DATA)
			ar_err_prefix(err, "request %d", k);
		for (int i = 0; i < N_BENCH; i++)
			v[i] = v[i] ? v[i]->next : NULL;
	}
	return st;
}

/* ---- aiperf ---- */

/* Set *v to metrics.key.value, NULL: no such metric.  unit: what it must be in. */
static enum ar_status metric(const cJSON *metrics, const char *key, const char *unit,
			     const cJSON **v, struct ar_err *err)
{
	const cJSON *m = member(metrics, key), *u = member(m, "unit");

	*v = member(m, "value");
	if (m && (!*v || !cJSON_IsString(u) || strcmp(u->valuestring, unit)))
		return ar_fail(err, AR_DATA, "%s: want a value in %s", key, unit);
	return AR_OK;
}

static enum ar_status metric_time(const cJSON *metrics, const char *key, int64_t *ns,
				  struct ar_err *err)
{
	const cJSON *v;
	enum ar_status st = metric(metrics, key, "ms", &v, err);

	if (!st && v && !time_of(v, MS_NS, ns))
		st = bad_member(key, "milliseconds from 0 to 9e12", err);
	return st;
}

static enum ar_status metric_count(const cJSON *metrics, const char *key, uint32_t *n,
				   struct ar_err *err)
{
	const cJSON *v;
	enum ar_status st = metric(metrics, key, "tokens", &v, err);

	if (!st && v && !count_of(v, 0, n))
		st = bad_member(key, "an integer from 0 to 2147483647", err);
	return st;
}

/* When a request was sent.  Doubles hold ns since 1970 to 256 ns. */
static enum ar_status started(struct started *s, const cJSON *metadata, struct ar_err *err)
{
	const cJSON *session = member(metadata, "session_num");

	if (!json_real(member(metadata, "request_start_ns"), 0, LAST_S * S_NS, &s->ns))
		return bad_member("request_start_ns", "ns from 0 to 9e18", err);
	if (session && !json_int(session, 0, JSON_INT_MAX, &s->session))
		return bad_member("session_num", "an integer from 0 on", err);
	return AR_OK;
}

/* Lengths and latencies.  A request that failed has an error_isl only. */
static enum ar_status metrics_of(struct engine_request *q, const cJSON *m, struct ar_err *err)
{
	int64_t e2e_ns = -1;
	enum ar_status st = metric_count(m, "error_isl", &q->prompt_tok, err);

	if (!st)
		st = metric_count(m, "input_sequence_length", &q->prompt_tok, err);
	if (!st)
		st = metric_count(m, "output_sequence_length", &q->output_tok, err);
	if (!st)
		st = metric_time(m, "time_to_first_token", &q->ttft_ns, err);
	if (!st)
		st = metric_time(m, "inter_token_latency", &q->tpot_ns, err);
	if (!st)
		st = metric_time(m, "request_latency", &e2e_ns, err);
	if (!st && e2e_ns >= 0 && e2e_ns < q->ttft_ns)
		st = ar_fail(err, AR_DATA, "request_latency is less than time_to_first_token");
	q->last_token_ns = q->ttft_ns < 0 ? -1 : e2e_ns; /* from the arrival until the end */
	return st;
}

static enum ar_status aiperf_line(struct reading *r, const cJSON *object, struct ar_err *err)
{
	struct started *v = grow(r->started, r->n_started, &r->cap_started, sizeof *v);
	enum ar_status st;

	if (!v)
		return ar_nomem(err);
	r->started = v;
	v += r->n_started++;
	*v = (struct started){ .q = unknown_request };
	st = started(v, member(object, "metadata"), err);
	return st ? st : metrics_of(&v->q, member(object, "metrics"), err);
}

static int by_start(const void *a, const void *b)
{
	const struct started *x = a, *y = b;

	if (x->ns != y->ns)
		return x->ns < y->ns ? -1 : 1;
	return (x->session > y->session) - (x->session < y->session);
}

/* Add the requests of aiperf in order of their starts; the first starts at 0. */
static enum ar_status add_started(struct reading *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (r->n_started)
		qsort(r->started, r->n_started, sizeof *r->started, by_start);
	for (size_t i = 0; i < r->n_started && !st; i++) {
		struct engine_request q = r->started[i].q;

		q.arrival_ns = llround(r->started[i].ns - r->started->ns);
		if (q.ttft_ns >= 0)
			q.first_token_ns = q.arrival_ns + q.ttft_ns;
		if (q.last_token_ns >= 0)
			q.last_token_ns += q.arrival_ns;
		st = add_request(r, &q, err);
	}
	return st;
}

/* ---- values ---- */

/* All values of a file are lines of one kind, or there is one value. */
static enum ar_status same_kind(struct reading *r, enum kind kind, struct ar_err *err)
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
	enum ar_status st = header(r, object, err);

	if (!st)
		st = may_array(object, "steps", &steps, err);
	if (!st)
		st = step_array(r, steps, err);
	return st ? st : latency_arrays(r, object, err);
}

/* A value by the member that only its kind has. */
static const struct form {
	const char *key;
	enum kind kind;
	enum ar_status (*read)(struct reading *, const cJSON *, struct ar_err *);
} forms[] = {
	{ "begin", OWN_LINES, step_line },  { "request", OWN_LINES, request_line },
	{ "steps", ONE_VALUE, whole_log },  { "metadata", AIPERF_LINES, aiperf_line },
	{ "input_lens", ONE_VALUE, bench }, { "ttfts", ONE_VALUE, bench },
	{ "engine", OWN_LINES, header },
};

static enum ar_status one_value(struct reading *r, const cJSON *v, struct ar_err *err)
{
	enum ar_status st;

	if (cJSON_IsArray(v)) {
		st = same_kind(r, ONE_VALUE, err);
		return st ? st : step_array(r, v, err);
	}
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
		if (json_has(v, forms[i].key)) {
			st = same_kind(r, forms[i].kind, err);
			return st ? st : forms[i].read(r, v, err);
		}
	return ar_fail(err, AR_DATA,
		       "neither a step, a request nor a header of a log; see "
		       "attnreplay-import-engine(1)");
}

static enum ar_status parse(struct reading *r, const char *text, const char **end,
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

/* The first line is no value, so the file is one value.  Append the other lines to it. */
static enum ar_status rest_of(struct reader *in, char **text, size_t len, struct ar_err *err)
{
	enum ar_status st;
	size_t n, cap = len + 1;
	char *line, *more;

	while (!(st = reader_next(in, &line, &n, err)) && line) {
		if (len + n > TEXT_MAX_BYTES)
			return ar_fail(
				err, AR_DATA,
				"%s: a value of more than 64 MiB; write a line for each step",
				reader_path(in));
		if (len + n + 2 > cap) {
			cap = 2 * (len + n + 2);
			more = realloc(*text, cap);
			if (!more)
				return ar_nomem(err);
			*text = more;
		}
		(*text)[len++] = '\n';
		strcpy(*text + len, line);
		len += n;
	}
	return st;
}

static enum ar_status one_text(struct reading *r, struct reader *in, const char *line, size_t n,
			       struct ar_err *err)
{
	uint64_t first = reader_line(in);
	char *text = strdup(line);
	const char *end = NULL;
	enum ar_status st = text ? rest_of(in, &text, n, err) : ar_nomem(err);

	if (!st) {
		st = parse(r, text, &end, err);
		r->line = end ? first + (uint64_t)text_line(text, end) - 1 : 0;
		st = place(r, st, err);
	}
	free(text);
	return st;
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
		st = parse(r, line, &end, err);
		if (st == AR_DATA && end && r->kind == NOTHING)
			return one_text(r, in, line, n, err);
		if (r->kind == ONE_VALUE)
			r->line = 0;
		if (!st && ar_interrupted())
			st = ar_fail(err, AR_INTERRUPTED, "interrupted");
		if (st)
			return place(r, st, err);
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

static enum ar_status finish(struct reading *r, struct ar_err *err)
{
	struct engine_log *log = r->log;
	enum ar_status st = add_started(r, err);

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
		st = finish(&r, err);
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
