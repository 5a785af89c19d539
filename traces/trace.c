/* Reading a trace as the options want it, and writing the canonical form. */
#include "config.h"
#include "traces/trace.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "traces/import.h"

#define OFF(member) offsetof(struct trace_args, member)

static const char *const restarts[] = { "error", "sort", "append", NULL };
static const char *const contexts[] = { "auto", "cumulative", "delta", NULL };

const struct opt trace_opts[] = {
	{ .name = "format", .type = OPT_STR, .off = OFF(in.format), .arg = "NAME",
	  .help = "format of the trace, one of attnreplay-trace(5); found by its content when not given" },
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
	{ .name = "from", .type = OPT_TIME, .off = OFF(from_ns), .arg = "TIME", .def = "0",
	  .help = "leave out requests that arrive before TIME in the trace" },
	{ .name = "to", .type = OPT_TIME, .off = OFF(to_ns), .arg = "TIME", .def = "0",
	  .help = "leave out requests that arrive at TIME or later, 0: no limit" },
	{ .name = "skip-requests", .type = OPT_INT, .off = OFF(skip), .arg = "N", .def = "0",
	  .min = 0, .max = 1e15, .help = "then leave out the first N requests" },
	{ .name = "requests", .type = OPT_INT, .off = OFF(requests), .arg = "N", .def = "0",
	  .min = 0, .max = 1e15, .help = "then keep N requests, 0: all" },
	{ .name = "max-prompt-tokens", .type = OPT_INT, .off = OFF(max_prompt), .arg = "N",
	  .def = "0", .min = 0, .max = INT32_MAX,
	  .help = "cut longer prompts to their first N tokens, 0: no limit" },
	{ .name = "max-output-tokens", .type = OPT_INT, .off = OFF(max_output), .arg = "N",
	  .def = "0", .min = 0, .max = INT32_MAX,
	  .help = "cut longer outputs to N tokens, 0: no limit" },
	{ .name = "time-scale", .type = OPT_REAL, .off = OFF(time_scale), .arg = "X", .def = "1",
	  .min = 1e-6, .max = 1e6, .help = "multiply arrival times by X; 0.5 doubles the load" },
	{ 0 }
};

void trace_free(struct trace *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n_session; i++)
		free(t->session[i]);
	free(t->session);
	for (size_t i = 0; i < t->n_type; i++)
		free(t->type[i]);
	free(t->type);
	free(t->req);
	free(t->block);
	free(t->name);
	free(t->format);
	cJSON_Delete(t->sources);
	cJSON_Delete(t->transforms);
	free(t);
}

/* ---- transformations ---- */

enum ar_status trace_note(struct trace *t, struct ar_err *err, const char *fmt, ...)
{
	char text[80];
	va_list ap;
	cJSON *s;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	s = cJSON_CreateString(text);
	if (s && cJSON_AddItemToArray(t->transforms, s))
		return AR_OK;
	cJSON_Delete(s);
	return ar_nomem(err);
}

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

/* Keep requests [lo, hi) and their blocks, and count time from the first of them. */
static void keep(struct trace *t, size_t lo, size_t hi)
{
	size_t block = t->req[lo].block, end = 0;
	int64_t t0 = t->req[lo].arrival_ns;

	for (size_t i = lo; i < hi; i++) {
		const struct request *q = &t->req[i];

		if (q->block < block)
			block = q->block;
		if (q->block + q->n_block > end)
			end = q->block + q->n_block;
	}
	if (end > block)
		memmove(t->block, t->block + block, (end - block) * sizeof *t->block);
	t->n_block = end - block;
	memmove(t->req, t->req + lo, (hi - lo) * sizeof *t->req);
	t->n = hi - lo;
	for (size_t i = 0; i < t->n; i++) {
		t->req[i].arrival_ns -= t0;
		t->req[i].block -= block;
	}
	if (t->has_epoch)
		t->epoch_ns += t0;
}

static enum ar_status cut(struct trace *t, const char *path, const struct trace_args *a,
			  struct ar_err *err)
{
	size_t lo = first_from(t, a->from_ns), hi = a->to_ns ? first_from(t, a->to_ns) : t->n;
	enum ar_status st = AR_OK;

	if (a->from_ns)
		st = trace_note(t, err, "from=%" PRId64 "ns", a->from_ns);
	if (!st && a->to_ns)
		st = trace_note(t, err, "to=%" PRId64 "ns", a->to_ns);
	if (!st && a->skip)
		st = trace_note(t, err, "skip-requests=%" PRId64, a->skip);
	if (!st && a->requests)
		st = trace_note(t, err, "requests=%" PRId64, a->requests);
	if (st)
		return st;
	lo = (uint64_t)a->skip < hi - lo ? lo + (size_t)a->skip : hi;
	if (a->requests && (uint64_t)a->requests < hi - lo)
		hi = lo + (size_t)a->requests;
	if (lo == hi)
		return ar_fail(err, AR_DATA, "%s: none of its %zu requests is left; check --from, "
			       "--to, --skip-requests", path, t->n);
	if (lo || hi < t->n)
		keep(t, lo, hi);
	return AR_OK;
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

static enum ar_status scale(struct trace *t, const char *path, double x, struct ar_err *err)
{
	if (x == 0 || x == 1)
		return AR_OK;
	if ((double)t->req[t->n - 1].arrival_ns * x >= 9.2e18 - (double)t->epoch_ns)
		return ar_fail(err, AR_USAGE, "%s: --time-scale %g takes it beyond 2^63 ns", path,
			       x);
	for (size_t i = 0; i < t->n; i++)
		t->req[i].arrival_ns = (int64_t)floor((double)t->req[i].arrival_ns * x + 0.5);
	return trace_note(t, err, "time-scale=%.17g", x);
}

enum ar_status trace_read(struct trace **out, const char *path, const struct trace_args *a,
			  struct ar_err *err)
{
	struct trace *t = NULL;
	enum ar_status st;

	*out = NULL;
	if (a->to_ns && a->from_ns >= a->to_ns)
		return ar_fail(err, AR_USAGE, "--to must be later than --from");
	if (a->in.period_ns && a->in.restart != RESTART_APPEND)
		return ar_fail(err, AR_USAGE, "--restart-period needs --restart append");
	st = import_file(&t, path, &a->in, err);
	if (!st)
		st = cut(t, path, a, err);
	if (!st)
		st = clip(t, a, err);
	if (!st)
		st = scale(t, path, a->time_scale, err);
	if (st) {
		trace_free(t);
		return st;
	}
	*out = t;
	return AR_OK;
}

/* ---- the canonical form ---- */

static bool write_json(FILE *f, const cJSON *value)
{
	char *text = cJSON_PrintUnformatted(value);

	if (text)
		fputs(text, f);
	cJSON_free(text);
	return text;
}

static bool write_string(FILE *f, const char *s)
{
	cJSON *value = cJSON_CreateStringReference(s);
	bool done = value && write_json(f, value);

	cJSON_Delete(value);
	return done;
}

static bool write_sources(const struct trace *t, FILE *f)
{
	if (t->sources)
		return write_json(f, t->sources);
	fputs("[{\"name\":", f);
	if (!write_string(f, t->name))
		return false;
	fprintf(f, ",\"sha256\":\"%s\",\"format\":\"%s\"}]", t->sha256, t->format);
	return true;
}

static bool write_header(const struct trace *t, FILE *f)
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
	fprintf(f, ",\"context\":\"cumulative\",\"requests\":%zu,\"sources\":", t->n);
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

static bool write_request(const struct trace *t, size_t i, FILE *f)
{
	const struct request *q = &t->req[i];

	fprintf(f, "{\"id\":%zu,\"arrival_ns\":%" PRId64, i, q->arrival_ns);
	fprintf(f, ",\"prompt_tokens\":%u,\"output_tokens\":%u", q->prompt_tok, q->output_tok);
	if (q->session >= 0) {
		fputs(",\"session\":", f);
		if (!write_string(f, t->session[q->session]))
			return false;
		fprintf(f, ",\"turn\":%u", q->turn);
		if (q->think_ns >= 0)
			fprintf(f, ",\"think_ns\":%" PRId64, q->think_ns);
	}
	for (uint32_t k = 0; k < q->n_block; k++)
		fprintf(f, "%s%" PRIu64, k ? "," : ",\"blocks\":[", t->block[q->block + k]);
	fputs(q->n_block ? "]" : "", f);
	if (q->type) {
		fputs(",\"label\":", f);
		if (!write_string(f, t->type[q->type - 1]))
			return false;
	}
	if (q->images)
		fprintf(f, ",\"images\":%u", q->images);
	fputs("}\n", f);
	return true;
}

enum ar_status trace_write(const struct trace *t, FILE *f, struct ar_err *err)
{
	if (!write_header(t, f))
		return ar_nomem(err);
	for (size_t i = 0; i < t->n && !ferror(f); i++)
		if (!write_request(t, i, f))
			return ar_nomem(err);
	if (fflush(f) || ferror(f))
		return ar_fail(err, AR_IO, "cannot write the trace: %s", strerror(errno));
	return AR_OK;
}
