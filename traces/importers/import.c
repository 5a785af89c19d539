/* SPDX-License-Identifier: Apache-2.0 */
/* The engine behind the importers: turns lines into requests. */
#include "config.h"
#include "traces/importers/import.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/json.h"
#include "base/log.h"
#include "base/number.h"
#include "base/order.h"
#include "traces/importers/reader.h"
#include "traces/known_files.h"

/* A step back in time beyond JITTER_NS and half of the recording so far is a restarted clock.  A
 * shorter step is jitter. */
static const int64_t JITTER_NS = 1000000000;

static const char *const warning_text[WARN_COUNT] = {
	[WARN_BLANK] = "blank line between records, skipped",
	[WARN_CASE] = "column name differs in case from the format's, accepted",
	[WARN_COLUMN] = "column that the format does not have, ignored",
	[WARN_KEY] = "record with keys that are not used",
	[WARN_FLOAT] = "token count with a zero fraction, read as an integer",
	[WARN_ORDER] = "arrival before that of the line before it, sorted",
	[WARN_NO_PROMPT] = "request without prompt tokens, dropped",
	[WARN_NO_OUTPUT] =
		"request without output tokens (failed or cancelled at the source), dropped",
	[WARN_EXTRA_BLOCK] = "one more prefix block than the prompt has, cut off",
	[WARN_NO_BLOCKS] = "request without prefix blocks, shares nothing",
	[WARN_TOTAL] = "total that is not the sum of prompt and output, ignored",
	[WARN_PARENT] = "turn whose parent is not in the file, begins a session",
	[WARN_TURN] = "turn number that does not follow the parent's",
	[WARN_EARLIEST] = "turn without a recorded arrival, placed after its pause as if the turn "
			  "before took no time",
	[WARN_DELTA] = "prompt of a later turn, taken for what is new in it; see --context",
	[WARN_NO_TURNS] = "session without requests, skipped",
	[WARN_UNIT] =
		"time too large for the unit of the format, read as one in a smaller unit since "
		"1970; --time-unit sets the unit",
	[WARN_ONE_OUTPUT] = "request without output tokens, kept with one",
	[WARN_NO_TIME] = "request without the time that it took",
	[WARN_NO_THINK] = "turn without a think time, taken from the times of the requests",
	[WARN_NO_ARRIVAL] = "request without a time, dropped",
	[WARN_OVERLAP] = "request that starts before the one before it in its session has ended, "
			 "put into a session of its own",
	[WARN_RESTART] = "clock that goes back, another recording appended here",
};

enum ar_status import_fail(const struct import *im, struct ar_err *err, const char *fmt, ...)
{
	char what[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	return ar_fail(err, AR_DATA, "%s:%" PRIu64 ": %s", im->path, im->line, what);
}

static void warn_at(struct import *im, enum import_warning w, uint64_t line, uint64_t n)
{
	if (!im->warn[w].n)
		im->warn[w].line = line;
	im->warn[w].n += n;
}

void import_warn(struct import *im, enum import_warning w)
{
	warn_at(im, w, im->line, 1);
}

static void report_warnings(const struct import *im)
{
	for (int w = 0; w < WARN_COUNT; w++)
		if (im->warn[w].n)
			log_warn("%s:%" PRIu64 ": %s (%" PRIu64 " in all, this is the first)",
				 im->path, im->warn[w].line, warning_text[w], im->warn[w].n);
}

static bool zero_fraction(struct span v, uint64_t *n)
{
	const char *dot = memchr(v.s, '.', v.n);

	if (!dot || dot + 1 == v.s + v.n)
		return false;
	for (const char *s = dot + 1; s < v.s + v.n; s++)
		if (*s != '0')
			return false;
	return num_u64(v.s, (size_t)(dot - v.s), n);
}

enum ar_status import_count(struct import *im, const struct record *r, const char *name,
			    uint32_t *out, struct ar_err *err)
{
	struct span v = record_find(r, name)->value;
	uint64_t n;

	if (!num_u64(v.s, v.n, &n)) {
		if (!zero_fraction(v, &n))
			n = UINT64_MAX;
		else
			import_warn(im, WARN_FLOAT);
	}
	if (n > INT32_MAX)
		return import_fail(im, err, "%s is \"%s\", want an integer from 0 to 2147483647",
				   name, span_show(v).s);
	*out = (uint32_t)n;
	return AR_OK;
}

static enum ar_status read_length(struct import *im, const struct record *r, const char *name,
				  uint32_t *out, struct ar_err *err)
{
	*out = 0;
	return record_get(r, name) ? import_count(im, r, name, out, err) : AR_OK;
}

enum ar_status import_lengths(struct import *im, const struct record *r, const char *prompt,
			      const char *output, struct request *q, struct ar_err *err)
{
	enum ar_status st = read_length(im, r, prompt, &q->prompt_tok, err);

	return st ? st : read_length(im, r, output, &q->output_tok, err);
}

enum ar_status import_priority(struct import *im, const struct record *r, const char *name,
			       struct request *q, struct ar_err *err)
{
	struct span v = record_find(r, name)->value;
	int64_t n;

	if (!num_scaled(v.s, v.n, 1, &n) || n != (int32_t)n)
		return import_fail(im, err, "%s is \"%s\", want an integer from -2^31 to 2^31 - 1",
				   name, span_show(v).s);
	q->priority = (int32_t)n;
	return AR_OK;
}

enum ar_status import_replica(struct import *im, const struct record *r, const char *name,
			      struct request *q, struct ar_err *err)
{
	struct span v = record_find(r, name)->value;
	uint64_t n;

	if (!num_u64(v.s, v.n, &n) || n >= UINT32_MAX)
		return import_fail(im, err, "%s is \"%s\", want an integer from 0 to %u", name,
				   span_show(v).s, UINT32_MAX - 1);
	q->replica = (uint32_t)n + 1;
	return AR_OK;
}

enum ar_status import_date(struct import *im, const char *name, struct span text, int64_t *ns,
			   struct ar_err *err)
{
	enum date_zone zone;

	if (!date_parse(text, ns, &zone))
		return import_fail(im, err,
				   "%s is \"%s\", want a date and time such as "
				   "2023-11-16 18:15:46.68",
				   name, span_show(text).s);
	if (im->zone && im->zone != zone)
		return import_fail(im, err,
				   "%s %s a time zone, unlike those before; make the "
				   "file uniform",
				   name, zone == DATE_ZONED ? "has" : "lacks");
	im->zone = zone;
	return AR_OK;
}

/* Return the unit of a time that is a number.  A first time of 10^11 or more is one since 1970: in
 * seconds it would be beyond the year 5000, in milliseconds it is after 1973, and so on by
 * thousands. */
static int64_t unit_of(struct import *im, struct span text, int64_t unit_ns)
{
	static const int64_t units[] = {
		[UNIT_S] = 1000000000, [UNIT_MS] = 1000000, [UNIT_US] = 1000, [UNIT_NS] = 1
	};
	int64_t x, found;

	if (im->args->time_unit != UNIT_AUTO)
		return units[im->args->time_unit];
	if (!im->t->n && !im->unit_ns && num_scaled(text.s, text.n, 1, &x)) {
		found = x >= 100000000000000000 ? units[UNIT_NS] :
			x >= 100000000000000	? units[UNIT_US] :
			x >= 100000000000	? units[UNIT_MS] :
						  units[UNIT_S];
		if (found < unit_ns) {
			im->unit_ns = found;
			import_warn(im, WARN_UNIT);
		}
	}
	return im->unit_ns ? im->unit_ns : unit_ns;
}

enum ar_status import_time(struct import *im, const struct record *r, const char *name,
			   int64_t unit_ns, int64_t *ns, struct ar_err *err)
{
	return import_time_text(im, name, record_find(r, name)->value, unit_ns, ns, err);
}

enum ar_status import_time_text(struct import *im, const char *name, struct span text,
				int64_t unit_ns, int64_t *ns, struct ar_err *err)
{
	int64_t t;

	unit_ns = unit_of(im, text, unit_ns);
	if (!num_scaled(text.s, text.n, unit_ns, &t) || t < 0)
		return import_fail(im, err, "%s is \"%s\", want a time that is a number from 0 on",
				   name, span_show(text).s);
	*ns = t;
	im->fractions |= im->args->time_unit == UNIT_AUTO && unit_ns == 1000000 && t % unit_ns;
	return AR_OK;
}

/* Return whether a JSON string holds a NUL, at which the parser would cut it. */
static bool has_nul(struct span v)
{
	for (size_t i = 0; i + 6 <= v.n; i++) {
		if (v.s[i] != '\\')
			continue;
		if (!memcmp(v.s + i, "\\u0000", 6))
			return true;
		i++;
	}
	return false;
}

enum ar_status import_name(struct import *im, const struct record *r, const char *name,
			   struct intern_table *in, uint32_t *number, struct ar_err *err)
{
	struct span v = record_find(r, name)->value;

	if (r->kind == RECORD_JSON)
		return import_name_text(im, name, v, in, number, err);
	return intern_put(in, v.s, v.n, number) ? AR_OK : ar_nomem(err);
}

enum ar_status import_name_text(struct import *im, const char *name, struct span text,
				struct intern_table *in, uint32_t *number, struct ar_err *err)
{
	cJSON *s = json_parse(text.s, text.n, NULL);
	enum ar_status st = AR_OK;

	if (!s && json_nomem())
		return ar_nomem(err);
	if (!cJSON_IsString(s) || has_nul(text))
		st = import_fail(im, err, "%s is \"%s\", want a string", name, span_show(text).s);
	else if (!intern_put(in, s->valuestring, strlen(s->valuestring), number))
		st = ar_nomem(err);
	cJSON_Delete(s);
	return st;
}

bool import_unserved(struct import *im, const struct request *q)
{
	if (!q->prompt_tok)
		import_warn(im, WARN_NO_PROMPT);
	else if (!q->output_tok)
		import_warn(im, WARN_NO_OUTPUT);
	return !q->prompt_tok || !q->output_tok;
}

/* Tables of prefix blocks grow with the arrays. */
enum ar_status import_room(struct import *im, void *array, size_t n, size_t *cap, size_t size,
			   struct ar_err *err)
{
	const size_t slot = sizeof(struct chain_key) + 2 * sizeof(uint64_t);
	const size_t bytes = im->bytes + (array_room(*cap, n + 1) - *cap) * size;

	if (n < *cap)
		return AR_OK;
	if (bytes + (im->chain.cap + im->seen.cap) * slot > reader_memory(im->args->max_memory))
		return import_fail(im, err, "the trace takes more than %zu MiB; raise --max-memory",
				   reader_memory(im->args->max_memory) >> 20);
	if (!array_grow(array, cap, n + 1, size))
		return ar_nomem(err);
	im->bytes = bytes;
	return AR_OK;
}

enum ar_status import_blocks(struct import *im, uint64_t id, uint32_t n, struct ar_err *err)
{
	struct trace *t = im->t;
	enum ar_status st = import_room(im, &t->run, t->n_run, &t->cap_run, sizeof *t->run, err);

	return st || trace_put_blocks(t, &im->next, id, n) ? st : ar_nomem(err);
}

enum ar_status import_block(struct import *im, uint64_t id, struct ar_err *err)
{
	return import_blocks(im, id, 1, err);
}

/* Handle a restart of the clock, which goes back by back_ns to *t_ns. */
static enum ar_status restart(struct import *im, int64_t back_ns, int64_t *t_ns, struct ar_err *err)
{
	int64_t period = im->args->period_ns, shift = period ? period : back_ns;
	char step[32];

	num_time_str(step, sizeof step, (double)back_ns);
	if (im->args->restart == RESTART_ERROR)
		return import_fail(im, err,
				   "the clock goes back by %s; the file holds several "
				   "recordings, see --restart",
				   step);
	if (im->args->restart == RESTART_APPEND) {
		if (shift < back_ns)
			return import_fail(im, err,
					   "the clock goes back by %s, more than "
					   "--restart-period",
					   step);
		if (__builtin_add_overflow(*t_ns, shift, t_ns))
			return import_fail(im, err, "--restart-period goes beyond 2^63 ns");
		im->shift_ns += shift;
		import_warn(im, WARN_RESTART);
	}
	im->begin_ns = *t_ns;
	return AR_OK;
}

/* Classify an arrival before the last one: jitter or a restart of the clock. */
static enum ar_status check_order(struct import *im, int64_t *t_ns, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (!im->t->n)
		im->begin_ns = *t_ns;
	if (im->t->n && *t_ns < im->last_ns) {
		int64_t back = im->last_ns - *t_ns;

		if (back > JITTER_NS && back > (im->max_ns - im->begin_ns) / 2)
			st = restart(im, back, t_ns, err);
		if (st)
			return st;
		if (*t_ns < im->last_ns)
			import_warn(im, WARN_ORDER);
	}
	im->last_ns = *t_ns;
	return AR_OK;
}

static enum ar_status add_to_trace(struct import *im, struct request *q, struct ar_err *err)
{
	struct trace *t = im->t;
	enum ar_status st;

	if (t->has_epoch && q->arrival_ns >= DATE_MAX_NS)
		return import_fail(im, err, "the time goes beyond the year 2262");
	st = import_room(im, &t->req, t->n, &im->cap_req, sizeof *q, err);
	if (st)
		return st;
	im->unsorted |= t->n && q->arrival_ns < im->max_ns;
	if (!t->n || q->arrival_ns < im->first_ns)
		im->first_ns = q->arrival_ns;
	if (!t->n || q->arrival_ns > im->max_ns)
		im->max_ns = q->arrival_ns;
	q->line = im->line;
	q->run = im->next.run;
	q->n_run = im->next.n_run;
	q->n_block = im->next.n_block;
	im->next = (struct request){ .run = t->n_run };
	t->req[t->n++] = *q;
	return AR_OK;
}

static enum ar_status shift_request(const struct import *im, struct request *q, struct ar_err *err)
{
	if (__builtin_add_overflow(q->arrival_ns, im->shift_ns, &q->arrival_ns))
		return import_fail(im, err, "the time goes beyond 2^63 ns");
	return AR_OK;
}

enum ar_status import_add(struct import *im, struct request *q, struct ar_err *err)
{
	enum ar_status st = shift_request(im, q, err);

	if (!st)
		st = check_order(im, &q->arrival_ns, err);
	return st ? st : add_to_trace(im, q, err);
}

enum ar_status import_add_apart(struct import *im, struct request *q, struct ar_err *err)
{
	enum ar_status st = shift_request(im, q, err);

	return st ? st : add_to_trace(im, q, err);
}

enum ar_status import_add_earliest(struct import *im, struct request *q, struct ar_err *err)
{
	import_warn(im, WARN_EARLIEST);
	return import_add_apart(im, q, err);
}

enum ar_status import_session(struct import *im, uint32_t number, struct import_session **ses,
			      struct ar_err *err)
{
	while (number >= im->cap_ses) {
		size_t old = im->cap_ses;
		enum ar_status st = import_room(im, &im->ses, old, &im->cap_ses, sizeof *im->ses,
						err);

		if (st)
			return st;
		memset(im->ses + old, 0, (im->cap_ses - old) * sizeof *im->ses);
	}
	*ses = &im->ses[number];
	return AR_OK;
}

enum ar_status import_link(struct import *im, uint32_t number, struct session_link **link,
			   struct ar_err *err)
{
	while (number >= im->cap_link) {
		size_t old = im->cap_link;
		enum ar_status st = import_room(im, &im->t->link, old, &im->cap_link,
						sizeof *im->t->link, err);

		if (st)
			return st;
		for (size_t i = old; i < im->cap_link; i++)
			im->t->link[i] = session_link_none;
	}
	*link = &im->t->link[number];
	return AR_OK;
}

enum ar_status import_turn(struct import *im, uint32_t number, struct request *q,
			   struct import_session **ses, struct ar_err *err)
{
	enum ar_status st = import_session(im, number, ses, err);

	if (st)
		return st;
	q->session = (int32_t)number;
	q->turn = (*ses)->turns++;
	return AR_OK;
}

/* ---- reading ---- */

/* Check that a JSON record has the fields that its format needs. */
static enum ar_status check_need(const struct import *im, const struct importer *f,
				 const struct record *r, struct ar_err *err)
{
	for (const char *const *need = f->need; *need; need++)
		if (!record_find(r, *need))
			return import_fail(im, err, "the record lacks \"%s\"", *need);
	return AR_OK;
}

static void warn_unknown(struct import *im, const struct importer *f, const struct record *r)
{
	if (!f->may)
		return;
	for (size_t i = 0; i < r->n; i++)
		if (!name_among(f->need, r->field[i].name) &&
		    !name_among(f->may, r->field[i].name)) {
			import_warn(im, r->kind == RECORD_CSV ? WARN_COLUMN : WARN_KEY);
			if (r->kind == RECORD_JSON)
				break;
		}
}

/* Give columns the spelling of the format; files may differ in case. */
static void settle_columns(struct import *im, const struct importer *f, struct record *r)
{
	for (const char *const *need = f->need; *need; need++)
		if (!record_find(r, *need)) {
			for (size_t i = 0; i < r->n; i++)
				if (!strcasecmp(r->field[i].name, *need))
					r->field[i].name = *need;
			import_warn(im, WARN_CASE);
		}
}

static enum ar_status at_line(const struct import *im, enum ar_status st, struct ar_err *err)
{
	if (st == AR_DATA)
		ar_err_prefix(err, "%s:%" PRIu64, im->path, im->line);
	return st;
}

/* The source of records, and the current record. */
struct source {
	struct reader *in;
	const struct importer *f; /* NULL before the first record */
	struct record r;
	char *header; /* holds the names of CSV columns, or the only record of the file */
};

/* Refuse options that the format does not use, so that no option is ignored silently. */
static enum ar_status check_options(const struct import_args *a, const struct importer *f,
				    struct ar_err *err)
{
	const struct {
		unsigned use;
		bool given;
		const char *name;
	} opts[] = {
		{ USES_CONTEXT, a->context != CONTEXT_AUTO, "context" },
		{ USES_IMAGES, a->image_tok, "image-tokens" },
		{ USES_COMPONENTS, a->components.n, "components" },
		{ USES_UNIT, a->time_unit != UNIT_AUTO, "time-unit" },
		{ USES_WARM, a->warm_prefix, "warm-prefix" },
	};

	for (size_t i = 0; i < sizeof opts / sizeof *opts; i++)
		if (opts[i].given && !(f->uses & opts[i].use))
			return ar_fail(err, AR_USAGE, "--%s has no effect on a trace in format %s",
				       opts[i].name, f->name);
	if (a->hash_tok && !f->block_tok)
		return ar_fail(err, AR_USAGE, "--hash-block has no effect on a trace in format %s",
			       f->name);
	return AR_OK;
}

/* The file is one JSON value, not lines of them: its only record, or say what it is or what to
 * do. */
static enum ar_status one_value(struct source *src, const char *line, struct ar_err *err)
{
	struct record names;
	char *text = NULL;
	const char *end;
	enum ar_status st = reader_rest(src->in, line, &text, err);
	cJSON *v = st ? NULL : json_parse_all(text, &end);

	if (cJSON_IsObject(v) && known_file_names(&names, v) && importer_named(&names)) {
		cJSON_Delete(v);
		cJSON_Minify(text);
		src->header = text;
		return record_json(&src->r, text, strlen(text), err);
	}
	if (!st && v)
		st = importer_whole(v, err);
	if (!st)
		st = ar_fail(err, AR_DATA,
			     cJSON_IsObject(v) ? "not a JSON object on one line" :
						 "this is a JSON array; write one JSON object per "
						 "line instead");
	cJSON_Delete(v);
	free(text);
	return st;
}

/* Find the format from the first line. */
static enum ar_status first_line(struct import *im, struct source *src, char *line, size_t n,
				 struct ar_err *err)
{
	enum ar_status st;

	if (line[strspn(line, " \t")] == '[') {
		st = one_value(src, line, err);
		if (st == AR_DATA)
			ar_err_prefix(err, "%s", im->path);
		return st;
	}
	if (*line == '{') {
		st = record_json(&src->r, line, n, err);
		if (st == AR_DATA && !line[1 + strspn(line + 1, " \t")])
			st = one_value(src, line, err);
	} else {
		src->header = strdup(line);
		if (!src->header)
			return ar_nomem(err);
		st = record_csv_header(&src->r, src->header, err);
	}
	if (!st && im->args->columns)
		src->f = importer_columns(src->r.kind);
	else if (!st)
		st = importer_pick(&src->f, &src->r, im->args->format, err);
	if (st)
		return at_line(im, st, err);
	st = check_options(im->args, src->f, err);
	im->t->block_tok = im->args->hash_tok ? (uint32_t)im->args->hash_tok : src->f->block_tok;
	if (!st && src->f->start)
		st = src->f->start(im, err);
	if (st)
		return st;
	if (src->r.kind == RECORD_CSV) {
		settle_columns(im, src->f, &src->r);
		warn_unknown(im, src->f, &src->r);
	}
	return AR_OK;
}

static enum ar_status one_line(struct import *im, struct source *src, char *line, size_t n,
			       struct ar_err *err)
{
	enum ar_status st;

	if (!src->f) {
		st = first_line(im, src, line, n, err);
		if (st || src->r.kind == RECORD_CSV)
			return st;
	} else if (*line == '#') {
		return import_fail(im, err, "comments are not part of any format; remove the line");
	} else {
		st = src->f->kind == RECORD_CSV ? record_csv_row(&src->r, line, err) :
		     src->f->large		? record_text(&src->r, line, n, err) :
						  record_json(&src->r, line, n, err);
		if (st)
			return at_line(im, st, err);
	}
	if (src->r.kind == RECORD_JSON) {
		st = check_need(im, src->f, &src->r, err);
		if (st)
			return st;
		warn_unknown(im, src->f, &src->r);
	}
	return src->f->record(im, &src->r, err);
}

static enum ar_status all_lines(struct import *im, struct source *src, struct ar_err *err)
{
	uint64_t n_blank = 0;
	enum ar_status st;
	char *line;
	size_t n;

	while (!(st = reader_next(src->in, &line, &n, err)) && line) {
		if (!line[strspn(line, " \t")]) {
			n_blank++;
			continue;
		}
		im->line = reader_line(src->in);
		if (n_blank)
			warn_at(im, WARN_BLANK, im->line - n_blank, n_blank);
		n_blank = 0;
		st = one_line(im, src, line, n, err);
		if (!st && ar_interrupted())
			st = ar_fail(err, AR_INTERRUPTED, "interrupted");
		if (st)
			return st;
	}
	if (!st && src->f && src->f->finish)
		st = src->f->finish(im, err);
	return st;
}

/* ---- after the last record ---- */

static int by_arrival(const void *a, const void *b)
{
	const struct request *x = a, *y = b;
	int c = ORDER(x->arrival_ns, y->arrival_ns);

	if (!c)
		c = ORDER(x->line, y->line);
	if (!c)
		c = ORDER(x->session, y->session);
	return c ? c : ORDER(x->turn, y->turn);
}

static enum ar_status note_all(struct import *im, struct ar_err *err)
{
	const struct {
		enum import_warning w;
		const char *name;
	} notes[] = { { WARN_NO_PROMPT, "drop-no-prompt" }, { WARN_NO_OUTPUT, "drop-no-output" },
		      { WARN_ONE_OUTPUT, "one-output" },    { WARN_NO_TIME, "no-api-time" },
		      { WARN_NO_THINK, "no-think-time" },   { WARN_NO_ARRIVAL, "drop-no-arrival" },
		      { WARN_OVERLAP, "overlap" },	    { WARN_RESTART, "append" },
		      { WARN_EARLIEST, "earliest" },	    { WARN_DELTA, "delta" } };
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < sizeof notes / sizeof *notes && !st; i++)
		if (im->warn[notes[i].w].n)
			st = trace_note(im->t, err, "%s=%" PRIu64, notes[i].name,
					im->warn[notes[i].w].n);
	if (!st && im->unsorted)
		st = trace_note(im->t, err, "sort");
	return st;
}

/* Sort requests and count time from the first arrival. */
static void settle_times(struct import *im)
{
	struct trace *t = im->t;

	if (im->unsorted)
		qsort(t->req, t->n, sizeof *t->req, by_arrival);
	for (size_t i = 0; i < t->n; i++)
		t->req[i].arrival_ns -= im->first_ns;
	if (t->has_epoch)
		t->epoch_ns += im->first_ns;
}

/* Requests a second, and seconds, if the times had units that are scale times as long. */
static double rate_of(const struct import *im, double scale, double *span_s)
{
	*span_s = (double)(im->max_ns - im->first_ns) * 1e-9 * scale;
	return (double)(im->t->n - 1) / *span_s;
}

/* Set *again to arguments under which the file must be read, if it has one sensible reading and
 * this was another.  AR_DATA: it has two. */
static enum ar_status find_reading(const struct import *im, struct import_args *again,
				   struct ar_err *err)
{
	const double day = 86400;
	double ms_span, s_span, ms_rate = rate_of(im, 1, &ms_span),
				s_rate = rate_of(im, 1000, &s_span);

	*again = *im->args;
	if (im->fractions && ms_span > 0) {
		bool ms = ms_span >= 1 && ms_rate <= 1000,
		     s = s_rate >= (ms ? 0.05 : 1.0 / 3600) && s_span < (ms ? 31 : 366) * day;

		if (ms && s)
			return ar_fail(err, AR_DATA,
				       "%s: times with fractions fit both seconds and "
				       "milliseconds: %.3g or %.3g requests per second; say which "
				       "with --time-unit",
				       im->path, s_rate, ms_rate);
		if (s)
			again->time_unit = UNIT_S;
	}
	if (im->n_whole && im->args->context == CONTEXT_AUTO) {
		if (im->n_new)
			return ar_fail(err, AR_DATA,
				       "%s: hash_ids of %" PRIu64
				       " later turns begin with those of "
				       "the turn before, those of %" PRIu64 " do not; say with "
				       "--context what prompts hold",
				       im->path, im->n_whole, im->n_new);
		again->context = CONTEXT_CUMULATIVE;
	}
	return AR_OK;
}

/* Warn about times that look misread or too coarse. */
static void check_plausible(const struct import *im)
{
	const struct trace *t = im->t;
	double rate, span_s = (double)(t->req[t->n - 1].arrival_ns - t->req[0].arrival_ns) * 1e-9;
	size_t distinct = 1;

	for (size_t i = 1; i < t->n; i++)
		distinct += t->req[i].arrival_ns != t->req[i - 1].arrival_ns;
	if (2 * distinct < t->n)
		log_warn("%s: only %zu distinct arrival times in %zu requests; they come in bursts",
			 im->path, distinct, t->n);
	rate = (double)(t->n - 1) / span_s;
	if (span_s > 0 && (rate < 1.0 / 3600 || rate > 10000 || span_s > 366 * 86400.0))
		log_warn("%s: %.3g requests per second on average, for %.3g days; check the unit "
			 "of its times, which --time-unit sets",
			 im->path, rate, span_s / 86400);
}

static enum ar_status settle_trace(struct import *im, const struct source *src, struct ar_err *err)
{
	struct trace *t = im->t;
	const char *base = strrchr(im->path, '/');

	report_warnings(im);
	if (!t->n)
		return ar_fail(err, AR_DATA, "%s: no requests in the file", im->path);
	if (src->f->block_tok && !t->n_run)
		t->block_tok = 0;
	reader_sha256(src->in, t->sha256);
	t->format = strdup(src->f->name);
	t->name = strdup(base ? base + 1 : im->path);
	if (!t->format || !t->name)
		return ar_nomem(err);
	if (t->link && import_link(im, (uint32_t)im->session.n, &(struct session_link *){ 0 }, err))
		return AR_NOMEM;
	intern_take(&t->session, &t->n_session, &im->session);
	intern_take(&t->type, &t->n_type, &im->type);
	settle_times(im);
	if (!src->f->timeless)
		check_plausible(im);
	return note_all(im, err);
}

static void free_import(struct import *im)
{
	trace_free(im->t);
	chain_release(&im->chain);
	chain_release(&im->seen);
	intern_release(&im->session);
	intern_release(&im->type);
	intern_release(&im->id);
	chain_release(&im->tree.number);
	free(im->tree.before);
	free(im->round);
	import_columns_release(im);
	for (size_t i = 0; i < im->cap_ses; i++)
		free(im->ses[i].text);
	free(im->ses);
}

/* Read the file as a says.  *out NULL: read it again as *again says. */
static enum ar_status import_once(struct trace **out, const char *path, const struct import_args *a,
				  struct import_args *again, struct ar_err *err)
{
	struct source src = { 0 };
	struct import im = { .args = a };
	enum ar_status st;

	*out = NULL;
	st = reader_open(&src.in, path, err);
	if (st)
		return st;
	reader_limit(src.in, reader_memory(a->max_memory));
	im.path = reader_path(src.in);
	im.t = calloc(1, sizeof *im.t);
	if (im.t)
		im.t->transforms = cJSON_CreateArray();
	if (!im.t || !im.t->transforms) {
		st = ar_nomem(err);
		goto out;
	}
	st = all_lines(&im, &src, err);
	if (!st && im.t->n)
		st = find_reading(&im, again, err);
	if (!st && im.t->n && (again->time_unit != a->time_unit || again->context != a->context))
		goto out;
	if (!st)
		st = settle_trace(&im, &src, err);
	if (!st) {
		*out = im.t;
		im.t = NULL;
	}
out:
	free_import(&im);
	record_release(&src.r);
	free(src.header);
	reader_close(src.in);
	return st;
}

enum ar_status import_file(struct trace **out, const char *path, const struct import_args *a,
			   struct ar_err *err)
{
	struct import_args again;
	enum ar_status st = import_once(out, path, a, &again, err);
	bool unit, context;

	if (st || *out)
		return st;
	unit = again.time_unit != a->time_unit;
	context = again.context != a->context;
	if (!strcmp(path, "-"))
		return ar_fail(err, AR_DATA,
			       "<stdin>: %s; say so with %s, as standard input is read once",
			       unit ? "times are seconds" : "prompts hold the whole session",
			       unit ? "--time-unit s" : "--context cumulative");
	if (unit)
		log_warn("%s: times with fractions that would follow each other too fast in "
			 "milliseconds, read as seconds; --time-unit sets the unit",
			 path);
	if (context)
		log_warn(
			"%s: hash_ids of each turn begin with those of the turn before, so prompts "
			"hold the whole session; --context sets this",
			path);
	return import_once(out, path, &again, &again, err);
}
