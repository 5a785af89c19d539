/* SPDX-License-Identifier: Apache-2.0 */
/* Outcomes of requests, without steps, as load generators write them. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/jsonval.h"
#include "base/log.h"
#include "base/order.h"
#include "traces/engine/engine_read.h"

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
		sum += json_real(v, 0, READING_LAST_S, &x) ? x : NAN;
	return sum;
}

/* Request i, whose values are v.  A request that failed has no output tokens and no times.
 * zero_ns: the earliest start. */
static enum ar_status bench_request(struct reading *r, const cJSON *const v[N_BENCH],
				    int64_t zero_ns, struct ar_err *err)
{
	struct engine_request q = reading_unknown;
	double span = v[ITLS] ? sum_of(v[ITLS]) : 0;
	bool failed;

	if (!reading_count(v[INPUT_LENS], 0, &q.prompt_tok))
		return reading_bad("input_lens", "integers from 0 to 2147483647", err);
	if (!reading_count(v[OUTPUT_LENS], 0, &q.output_tok))
		return reading_bad("output_lens", "integers from 0 to 2147483647", err);
	failed = !q.output_tok;
	if (!reading_time(v[TTFTS], READING_S, &q.ttft_ns))
		return reading_bad("ttfts", "seconds from 0 to 2e9", err);
	if (!(span <= READING_LAST_S))
		return reading_bad("itls", "arrays of seconds from 0 to 2e9", err);
	if (v[START_TIMES] && !reading_time(v[START_TIMES], READING_S, &q.arrival_ns))
		return reading_bad("start_times", "seconds from 0 to 2e9", err);
	if (v[START_TIMES])
		q.arrival_ns -= zero_ns;
	if (failed)
		q.ttft_ns = -1;
	if (!failed && v[ITLS] && q.output_tok > 1)
		q.tpot_ns = llround(span * READING_S / (q.output_tok - 1));
	if (!failed && v[START_TIMES]) {
		q.first_token_ns = q.arrival_ns + q.ttft_ns;
		if (v[ITLS])
			q.last_token_ns = q.first_token_ns + llround(span * READING_S);
	}
	return reading_request(r, &q, err);
}

enum ar_status reading_bench(struct reading *r, const cJSON *object, struct ar_err *err)
{
	const cJSON *array, *v[N_BENCH], *start;
	int64_t zero_ns = INT64_MAX, ns;
	enum ar_status st = AR_OK;
	int n = 0;

	for (int i = 0; i < N_BENCH; i++) {
		st = reading_array(object, bench_key[i], &array, err);
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
		if (reading_time(start, READING_S, &ns) && ns < zero_ns)
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

/* Set *v to metrics.key.value, NULL: no such metric.  unit: the unit that it must have. */
static enum ar_status metric(const cJSON *metrics, const char *key, const char *unit,
			     const cJSON **v, struct ar_err *err)
{
	const cJSON *m = reading_member(metrics, key), *u = reading_member(m, "unit");

	*v = reading_member(m, "value");
	if (m && (!*v || !cJSON_IsString(u) || strcmp(u->valuestring, unit)))
		return ar_fail(err, AR_DATA, "%s: want a value in %s", key, unit);
	return AR_OK;
}

static enum ar_status metric_time(const cJSON *metrics, const char *key, int64_t *ns,
				  struct ar_err *err)
{
	const cJSON *v;
	enum ar_status st = metric(metrics, key, "ms", &v, err);

	if (!st && v && !reading_time(v, READING_MS, ns))
		st = reading_bad(key, "milliseconds from 0 to 2e12", err);
	return st;
}

static enum ar_status metric_count(const cJSON *metrics, const char *key, uint32_t *n,
				   struct ar_err *err)
{
	const cJSON *v;
	enum ar_status st = metric(metrics, key, "tokens", &v, err);

	if (!st && v && !reading_count(v, 0, n))
		st = reading_bad(key, "an integer from 0 to 2147483647", err);
	return st;
}

/* When a request was sent.  Doubles hold ns since 1970 to 256 ns. */
static enum ar_status started(struct started *s, const cJSON *metadata, struct ar_err *err)
{
	const cJSON *session = reading_member(metadata, "session_num");

	if (!json_real(reading_member(metadata, "request_start_ns"), 0, 4e18, &s->ns))
		return reading_bad("request_start_ns", "ns from 0 to 4e18", err);
	if (session && !json_int(session, 0, JSON_INT_MAX, &s->session))
		return reading_bad("session_num", "an integer from 0 on", err);
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

enum ar_status reading_aiperf(struct reading *r, const cJSON *object, struct ar_err *err)
{
	const cJSON *metadata = reading_member(object, "metadata");
	const cJSON *metrics = reading_member(object, "metrics");
	const cJSON *phase = reading_member(metadata, "benchmark_phase");
	struct started *v;
	enum ar_status st;

	if (cJSON_IsString(phase) && !strcmp(phase->valuestring, "warmup")) {
		r->n_warmup++;
		return AR_OK;
	}
	if (!GROW(r->started, r->cap_started, r->n_started + 1))
		return ar_nomem(err);
	v = &r->started[r->n_started++];
	*v = (struct started){ .q = reading_unknown };
	st = started(v, metadata, err);
	r->first_output |= reading_member(metrics, "time_to_first_output_token") != NULL;
	return st ? st : metrics_of(&v->q, metrics, err);
}

static int by_start(const void *a, const void *b)
{
	const struct started *x = a, *y = b;
	const int c = ORDER(x->ns, y->ns);

	return c ? c : ORDER(x->session, y->session);
}

/* Add the requests of aiperf in order of their starts; the first starts at 0. */
enum ar_status reading_aiperf_end(struct reading *r, struct ar_err *err)
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
		st = reading_request(r, &q, err);
	}
	if (!st && r->n_warmup)
		log_warn("%s: %zu records of the warm-up left out", r->path, r->n_warmup);
	if (!st && r->first_output)
		log_warn("%s: time_to_first_output_token is not stored; TTFT is "
			 "time_to_first_token, which counts reasoning, and TPOT is "
			 "inter_token_latency",
			 r->path);
	return st;
}
