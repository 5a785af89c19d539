/* SPDX-License-Identifier: Apache-2.0 */
/* The trace object, and the writer of the canonical form. */
#include "config.h"
#include "traces/trace.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonval.h"
#include "base/text.h"
#include "traces/importers/date.h"
#include "traces/turns.h"

void trace_free(struct trace *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n_session; i++)
		free(t->session[i]);
	free(t->session);
	free(t->link);
	for (size_t i = 0; i < t->n_type; i++)
		free(t->type[i]);
	free(t->type);
	free(t->req);
	free(t->run);
	free(t->name);
	free(t->format);
	cJSON_Delete(t->sources);
	cJSON_Delete(t->transforms);
	free(t);
}

enum ar_status trace_note(struct trace *t, struct ar_err *err, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	cJSON *s;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	s = json_string(text);
	if (s && cJSON_AddItemToArray(t->transforms, s))
		return AR_OK;
	cJSON_Delete(s);
	return ar_nomem(err);
}

enum ar_status trace_check_end(const struct trace *t, double end_ns, struct ar_err *err)
{
	if (end_ns < 9.2e18 - (double)t->epoch_ns)
		return AR_OK;
	return ar_fail(err, AR_USAGE, "arrivals would go beyond 2^63 ns");
}

/* ---- the canonical form ---- */

static bool write_json(FILE *f, const cJSON *value)
{
	char *text = cJSON_PrintUnformatted(value);

	if (text)
		text_put_json_value(text, f);
	cJSON_free(text);
	return text;
}

cJSON *trace_sources(const struct trace *t)
{
	cJSON *list, *one;

	if (t->sources)
		return cJSON_Duplicate(t->sources, 1);
	list = cJSON_CreateArray();
	one = cJSON_CreateObject();
	if (list && one && json_add_string(one, "name", t->name) &&
	    cJSON_AddStringToObject(one, "sha256", t->sha256) &&
	    cJSON_AddStringToObject(one, "format", t->format) && cJSON_AddItemToArray(list, one))
		return list;
	cJSON_Delete(list);
	cJSON_Delete(one);
	return NULL;
}

static bool write_sources(const struct trace *t, FILE *f)
{
	cJSON *list = trace_sources(t);
	bool done = list && write_json(f, list);

	cJSON_Delete(list);
	return done;
}

bool trace_put_header(const struct trace *t, size_t n, FILE *f)
{
	char epoch[DATE_CHARS];

	fprintf(f, "{\"format\":\"reqtrace\",\"version\":1,\"block_size\":%u,\"epoch\":",
		t->block_tok);
	if (t->has_epoch) {
		date_format(epoch, t->epoch_ns);
		fprintf(f, "\"%s\"", epoch);
	} else {
		fputs("null", f);
	}
	fprintf(f, ",\"context\":\"cumulative\",\"requests\":%zu,\"sources\":", n);
	if (!write_sources(t, f))
		return false;
	fputs(",\"transforms\":", f);
	if (!t->transforms)
		fputs("[]", f);
	else if (!write_json(f, t->transforms))
		return false;
	fputs("}\n", f);
	return true;
}

/* The request of the parent that starts session s, or TURNS_NONE. */
static uint32_t starter(const struct trace *t, const struct turns *turns, int32_t s)
{
	const struct session_link *l = &t->link[s];
	uint32_t after = l->parent < 0 ? TURNS_NONE : turns_find(turns, l->parent, l->after);

	return after < turns_first(turns, s) ? after : TURNS_NONE;
}

/* Write the requests that q, a request of a session with number id, waits for besides the turn
 * before it. */
static void put_waits(const struct trace *t, const struct turns *turns, size_t id,
		      const struct request *q, FILE *f)
{
	uint32_t after = TURNS_NONE, last;
	int64_t join_ns = -1;

	if (q->back > 1)
		after = turns_find(turns, q->session, q->turn - q->back);
	else if (t->link && turns_first(turns, q->session) == id)
		after = starter(t, turns, q->session);
	if (after < id)
		fprintf(f, ",\"x_after\":%" PRIu32, after);
	for (size_t s = 0; s < t->n_session && t->link; s++) {
		const struct session_link *l = &t->link[s];

		if (l->parent != q->session || l->join_ns < 0 || l->join != q->turn ||
		    starter(t, turns, (int32_t)s) == TURNS_NONE)
			continue;
		last = turns_last(turns, (int32_t)s);
		if (last > id)
			continue;
		fprintf(f, "%s%" PRIu32, join_ns < 0 ? ",\"x_join\":[" : ",", last);
		join_ns = l->join_ns;
	}
	if (join_ns >= 0)
		fprintf(f, "],\"x_join_ns\":%" PRId64, join_ns);
}

void trace_put_request(const struct trace *t, const struct turns *turns, size_t id,
		       const struct request *q, FILE *f)
{
	fprintf(f, "{\"id\":%zu,\"arrival_ns\":%" PRId64, id, q->arrival_ns);
	fprintf(f, ",\"prompt_tokens\":%u,\"output_tokens\":%u", q->prompt_tok, q->output_tok);
	if (q->session >= 0) {
		fputs(",\"session\":", f);
		text_put_json(t->session[q->session], f);
		fprintf(f, ",\"turn\":%u", q->turn);
		if (q->think_ns >= 0)
			fprintf(f, ",\"think_ns\":%" PRId64, q->think_ns);
		if (turns)
			put_waits(t, turns, id, q, f);
	}
	for (uint32_t k = 0; k < q->n_block; k++)
		fprintf(f, "%s%" PRIu64, k ? "," : ",\"blocks\":[", trace_block(t, q, k));
	fputs(q->n_block ? "]" : "", f);
	if (q->type) {
		fputs(",\"label\":", f);
		text_put_json(t->type[q->type - 1], f);
	}
	if (q->images)
		fprintf(f, ",\"images\":%u", q->images);
	if (q->priority)
		fprintf(f, ",\"priority\":%d", (int)q->priority);
	if (q->replica)
		fprintf(f, ",\"replica\":%u", q->replica - 1);
	if (q->warmup)
		fputs(",\"x_warmup\":true", f);
	fputs("}\n", f);
}

enum ar_status trace_write(const struct trace *t, FILE *f, struct ar_err *err)
{
	struct turns turns;

	if (!turns_open(&turns, t) || !trace_put_header(t, t->n, f)) {
		turns_close(&turns);
		return ar_nomem(err);
	}
	for (size_t i = 0; i < t->n && !ferror(f); i++)
		trace_put_request(t, &turns, i, &t->req[i], f);
	turns_close(&turns);
	if (fflush(f) || ferror(f))
		return ar_fail(err, AR_IO, "cannot write the trace: %s", strerror(errno));
	return AR_OK;
}
