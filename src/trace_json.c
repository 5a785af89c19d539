/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/trace_json.h"

#include "base/json.h"
#include "traces/importers/date.h"

static bool add_count(cJSON *o, const char *name, uint64_t n)
{
	return json_add(o, name, cJSON_CreateNumber((double)n));
}

static bool add_spread(cJSON *o, const char *name, const struct spread *s)
{
	cJSON *x = s->n ? cJSON_AddObjectToObject(o, name) : NULL;

	if (!s->n)
		return json_add(o, name, cJSON_CreateNull());
	return x && add_count(x, "count", s->n) && add_count(x, "sum", s->sum) &&
	       add_count(x, "min", s->min) && add_count(x, "p50", s->p50) &&
	       add_count(x, "p90", s->p90) && add_count(x, "p99", s->p99) &&
	       add_count(x, "max", s->max);
}

static bool add_types(cJSON *o, const struct trace *t)
{
	cJSON *all = cJSON_AddArrayToObject(o, "types");
	bool done = all;

	for (size_t k = 0; done && k < t->n_type; k++) {
		size_t n = trace_type_count(t, k);
		cJSON *x = n ? cJSON_CreateObject() : NULL;

		if (n)
			done = json_add(all, NULL, x) &&
			       cJSON_AddStringToObject(x, "type", t->type[k]) &&
			       add_count(x, "requests", n);
	}
	return done;
}

static bool add_windows(cJSON *o, const struct summary *s)
{
	cJSON *all = cJSON_AddArrayToObject(o, "windows");
	bool done = all;

	for (int i = 0; done && i < SUMMARY_WINDOWS; i++) {
		const struct window_counts *w = &s->window[i];
		cJSON *x = cJSON_CreateObject();

		done = json_add(all, NULL, x) &&
		       add_count(x, "seconds", (uint64_t)summary_window_s[i]) &&
		       add_count(x, "count", (uint64_t)w->windows) &&
		       json_add_real(x, "dispersion", w->dispersion);
		if (done && w->windows)
			done = add_count(x, "min", w->min) && add_count(x, "max", w->max) &&
			       json_add_real(x, "idle", w->idle);
	}
	return done;
}

static bool add_load(cJSON *o, const struct trace *t, const struct summary *s)
{
	int64_t first = t->req[0].arrival_ns;
	char date[DATE_CHARS];

	if (t->has_epoch)
		date_format(date, t->epoch_ns + first);
	return json_add(o, "first_arrival",
			t->has_epoch ? cJSON_CreateString(date) : cJSON_CreateNull()) &&
	       json_add_real(o, "span_s", (double)(t->req[t->n - 1].arrival_ns - first) / 1e9) &&
	       json_add_real(o, "rate_per_s", s->rate) && json_add_real(o, "gap_cv", s->gap_cv) &&
	       add_spread(o, "gap_ns", &s->gap_ns) && add_windows(o, s) &&
	       add_count(o, "distinct_arrivals", s->distinct);
}

static bool add_lengths(cJSON *o, const struct summary *s)
{
	return add_spread(o, "prompt_tokens", &s->prompt) &&
	       add_spread(o, "output_tokens", &s->output) &&
	       add_count(o, "longest_tokens", s->longest) &&
	       json_add_real(o, "length_correlation", s->correlation) &&
	       add_spread(o, "session_requests", &s->session) &&
	       add_count(o, "started_sessions", s->started) &&
	       add_count(o, "started_requests", s->started_requests) &&
	       add_spread(o, "think_ns", &s->think_ns);
}

static bool add_reuse(cJSON *o, const struct trace *t, const struct summary *s)
{
	cJSON *x = s->block.sum ? cJSON_AddObjectToObject(o, "prefix") : NULL;

	if (!s->block.sum)
		return json_add(o, "prefix", cJSON_CreateNull());
	return x && add_count(x, "block_tokens", t->block_tok) &&
	       add_spread(x, "blocks", &s->block) &&
	       add_count(x, "distinct_blocks", s->distinct_blocks) &&
	       add_count(x, "blocks_used_once", s->blocks_once) &&
	       add_count(x, "blocks_reused", s->blocks_reused) &&
	       add_count(x, "tokens_reused", s->tok_reused) &&
	       add_count(x, "prompts_reused", s->prompts_reused) &&
	       add_spread(x, "later_turn_tokens", &s->later);
}

cJSON *trace_json(const struct trace *t, const struct summary *s)
{
	cJSON *o = cJSON_CreateObject();

	if (o && cJSON_AddStringToObject(o, "schema", "attnreplay-trace-info-1") &&
	    cJSON_AddStringToObject(o, "file", t->name) &&
	    cJSON_AddStringToObject(o, "format", t->format) &&
	    cJSON_AddStringToObject(o, "sha256", t->sha256) && add_count(o, "requests", t->n) &&
	    add_types(o, t) && add_load(o, t, s) && add_lengths(o, s) && add_reuse(o, t, s))
		return o;
	cJSON_Delete(o);
	return NULL;
}

size_t trace_type_count(const struct trace *t, size_t k)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++)
		n += t->req[i].type == k + 1;
	return n;
}
