/* SPDX-License-Identifier: Apache-2.0 */
/* Splitting lines into fields. */
#include "config.h"
#include "traces/importers/trace_record.h"

#include <cjson/cJSON.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/number.h"

enum { SCAN_DEPTH = 64 }; /* arrays and objects within each other, in a large record */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static struct span trim(const char *s, size_t n)
{
	while (n && is_blank(*s))
		s++, n--;
	while (n && is_blank(s[n - 1]))
		n--;
	return (struct span){ s, n };
}

/* Move the next field of *line to *value and unquote it in place.  *line becomes NULL after the
 * last field. */
static bool csv_field(char **line, char separator, struct span *value)
{
	const char end[] = { separator, 0 };
	char *s = *line, *to = s, *start = s;

	if (*s != '"') {
		size_t n = strcspn(s, end);

		*value = trim(s, n);
		*line = s[n] ? s + n + 1 : NULL;
		return true;
	}
	for (s++; *s && (*s != '"' || s[1] == '"'); s++) {
		s += *s == '"';
		*to++ = *s;
	}
	if (!*s || (s[1] && s[1] != separator))
		return false;
	*value = trim(start, (size_t)(to - start));
	*line = s[1] ? s + 2 : NULL;
	return true;
}

static enum ar_status bad_quotes(struct ar_err *err)
{
	return ar_fail(err, AR_DATA,
		       "a quoted field must end on its line, before a "
		       "separator");
}

static char find_separator(const char *line)
{
	static const char all[] = ",;\t";
	size_t n[3] = { 0 };
	int best = 0;

	for (; *line; line++) {
		const char *c = strchr(all, *line);

		n[c ? c - all : 0] += c != NULL;
	}
	for (int i = 1; i < 3; i++)
		best = n[i] > n[best] ? i : best;
	return all[best];
}

enum ar_status record_csv_header(struct record *r, char *line, struct ar_err *err)
{
	r->kind = RECORD_CSV;
	r->separator = find_separator(line);
	r->json = NULL;
	r->n = 0;
	while (line) {
		struct span v;

		if (!csv_field(&line, r->separator, &v))
			return bad_quotes(err);
		if (r->n == RECORD_MAX_FIELDS)
			return ar_fail(err, AR_DATA, "more than %d columns", RECORD_MAX_FIELDS);
		*(char *)(uintptr_t)(v.s + v.n) = 0;
		if (*v.s && record_find(r, v.s))
			return ar_fail(err, AR_DATA, "column \"%s\" appears twice", span_show(v).s);
		r->field[r->n++] = (struct field){ .name = v.s };
	}
	return AR_OK;
}

enum ar_status record_csv_row(struct record *r, char *line, struct ar_err *err)
{
	size_t n = 0;

	for (; line; n++) {
		struct span v;

		if (!csv_field(&line, r->separator, &v))
			return bad_quotes(err);
		if (n < r->n)
			r->field[n].value = v;
	}
	if (n != r->n)
		return ar_fail(err, AR_DATA, "the row has %zu fields, the header %zu", n, r->n);
	return AR_OK;
}

/* Return the character after the string that starts at s. */
static const char *skip_string(const char *s)
{
	for (s++; *s && *s != '"'; s++)
		s += *s == '\\' && s[1];
	return *s ? s + 1 : s;
}

/* Return the character after the JSON value that starts at s.  The text was parsed before, so its
 * brackets match. */
static const char *skip_value(const char *s)
{
	int depth = 0;

	do {
		if (*s == '"') {
			s = skip_string(s);
			continue;
		}
		depth += *s == '{' || *s == '[';
		depth -= *s == '}' || *s == ']';
		if (depth || *s == '}' || *s == ']')
			s++;
		else
			s += strcspn(s, ",]} \t");
	} while (depth && *s);
	return s;
}

const char *record_skip_blank(const char *s)
{
	while (*s && (unsigned char)*s <= ' ')
		s++;
	return s;
}

/* Return whether s holds a control character that JSON forbids but the parser allows. */
static bool has_control(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] < ' ' && s[i] != '\t')
			return true;
	return false;
}

enum ar_status record_json(struct record *r, const char *line, size_t n, struct ar_err *err)
{
	const char *s = record_skip_blank(line), *end = NULL;
	const cJSON *member;

	r->kind = RECORD_JSON;
	r->n = 0;
	cJSON_Delete(r->json);
	r->json = *s == '{' && !has_control(line, n) ? json_parse_all(s, &end) : NULL;
	if (!r->json && end && json_nomem())
		return ar_nomem(err);
	if (!r->json)
		return ar_fail(err, AR_DATA, "not a JSON object (near \"%s\")",
			       span_show((struct span){ end ? end : s, strlen(end ? end : s) }).s);
	s++;
	cJSON_ArrayForEach(member, r->json) {
		struct span v, name = { member->string, strlen(member->string) };

		if (r->n == RECORD_MAX_FIELDS)
			return ar_fail(err, AR_DATA, "more than %d keys", RECORD_MAX_FIELDS);
		if (record_find(r, member->string))
			return ar_fail(err, AR_DATA, "key \"%s\" appears twice", span_show(name).s);
		s = record_skip_blank(skip_string(record_skip_blank(s)));
		v.s = record_skip_blank(s + (*s == ':'));
		s = skip_value(v.s);
		v.n = (size_t)(s - v.s);
		s = record_skip_blank(s);
		s += *s == ',';
		r->field[r->n++] = (struct field){ member->string, v };
	}
	return AR_OK;
}

/* ---- large records ---- */

static const char *scan_string(const char *s)
{
	for (s++; *s != '"'; s++) {
		if (!*s)
			return NULL;
		if (*s == '\\' && !strchr("\"\\/bfnrtu", *++s))
			return NULL;
		if (!*s)
			return NULL;
	}
	return s + 1;
}

static const char *scan_digits(const char *s)
{
	const char *first = s;

	while (*s >= '0' && *s <= '9')
		s++;
	return s > first ? s : NULL;
}

static const char *scan_number(const char *s)
{
	const char *first = s + (*s == '-');

	s = scan_digits(first);
	if (!s || (*first == '0' && s > first + 1))
		return NULL;
	if (*s == '.')
		s = scan_digits(s + 1);
	if (s && (*s == 'e' || *s == 'E'))
		s = scan_digits(s + 1 + (s[1] == '+' || s[1] == '-'));
	return s;
}

static const char *scan_word(const char *s)
{
	static const char *const words[] = { "true", "false", "null" };

	for (int i = 0; i < 3; i++)
		if (!strncmp(s, words[i], strlen(words[i])))
			return s + strlen(words[i]);
	return NULL;
}

/* Returns the character after the value, or NULL and *bad: the malformed one. */
static const char *scan_value(const char *s, int depth, const char **bad)
{
	const char open = *s, *next = NULL;

	*bad = s;
	if (open != '[' && open != '{')
		next = open == '"'				   ? scan_string(s) :
		       open == '-' || (open >= '0' && open <= '9') ? scan_number(s) :
								     scan_word(s);
	if (next || depth == SCAN_DEPTH || (open != '[' && open != '{'))
		return next;
	s = record_skip_blank(s + 1);
	if (*s == open + 2)
		return s + 1;
	for (;; s = record_skip_blank(s + 1)) {
		*bad = s;
		if (open == '{') {
			s = *s == '"' ? scan_string(s) : NULL;
			s = s ? record_skip_blank(s) : NULL;
			if (!s || *s != ':')
				return NULL;
			s = record_skip_blank(s + 1);
		}
		s = scan_value(s, depth + 1, bad);
		if (!s)
			return NULL;
		s = record_skip_blank(s);
		*bad = s;
		if (*s == open + 2)
			return s + 1;
		if (*s != ',')
			return NULL;
	}
}

bool record_step(const char **s, char close, struct span *name)
{
	*s = record_skip_blank(*s);
	if (**s == '[' || **s == '{' || **s == ',')
		*s = record_skip_blank(*s + 1);
	if (**s == close) {
		++*s;
		return false;
	}
	if (close == '}') {
		name->s = *s + 1;
		*s = skip_string(*s);
		name->n = (size_t)(*s - 1 - name->s);
		*s = record_skip_blank(record_skip_blank(*s) + 1);
	}
	return true;
}

struct span record_skip(const char **s)
{
	struct span v = { .s = *s };

	*s = skip_value(*s);
	v.n = (size_t)(*s - v.s);
	return v;
}

enum ar_status record_text(struct record *r, char *line, size_t n, struct ar_err *err)
{
	const char *s = record_skip_blank(line), *bad = s, *end = NULL;
	struct span name;

	record_release(r);
	r->kind = RECORD_JSON;
	if (*s == '{' && !has_control(line, n))
		end = scan_value(s, 0, &bad);
	if (end && *record_skip_blank(end)) {
		bad = end;
		end = NULL;
	}
	if (!end)
		return ar_fail(err, AR_DATA, "not a JSON object (near \"%s\")",
			       span_show((struct span){ bad, strlen(bad) }).s);
	while (record_step(&s, '}', &name)) {
		if (r->n == RECORD_MAX_FIELDS)
			return ar_fail(err, AR_DATA, "more than %d keys", RECORD_MAX_FIELDS);
		line[name.s - line + (ptrdiff_t)name.n] = 0;
		if (record_find(r, name.s))
			return ar_fail(err, AR_DATA, "key \"%s\" appears twice", span_show(name).s);
		r->field[r->n++] = (struct field){ name.s, record_skip(&s) };
	}
	return AR_OK;
}

void record_release(struct record *r)
{
	cJSON_Delete(r->json);
	r->json = NULL;
	r->n = 0;
}

const struct field *record_find(const struct record *r, const char *name)
{
	for (size_t i = 0; i < r->n; i++)
		if (!strcmp(r->field[i].name, name))
			return &r->field[i];
	return NULL;
}

/* Programs write in one of these ways that a value is not known. */
static bool is_missing(enum record_kind kind, struct span v)
{
	static const char *const words[] = { "null", "", "nan", "none", "na", "<na>" };
	size_t n = kind == RECORD_JSON ? 1 : sizeof words / sizeof *words;

	for (size_t i = 0; i < n; i++)
		if (v.n == strlen(words[i]) && !strncasecmp(v.s, words[i], v.n))
			return true;
	return false;
}

const struct field *record_get(const struct record *r, const char *name)
{
	const struct field *f = record_find(r, name);

	return f && !is_missing(r->kind, f->value) ? f : NULL;
}

bool record_has(const struct record *r, const char *name)
{
	if (record_find(r, name))
		return true;
	for (size_t i = 0; i < r->n && r->kind == RECORD_CSV; i++)
		if (!strcasecmp(r->field[i].name, name))
			return true;
	return false;
}

bool name_among(const char *const *names, const char *name)
{
	for (; *names; names++)
		if (!strcmp(*names, name))
			return true;
	return false;
}

bool record_next(struct span *array, struct span *element)
{
	const char *s = array->s, *end = s + array->n;

	s = record_skip_blank(s + (*s == '[' || *s == ','));
	if (s >= end || *s == ']')
		return false;
	element->s = s;
	s = skip_value(s);
	element->n = (size_t)(s - element->s);
	s = record_skip_blank(s);
	*array = (struct span){ s, (size_t)(end - s) };
	return true;
}

/* Find the member of an object, or the element of an array, whose key or index is key[0..n). */
static bool find_member(struct span in, const char *key, size_t n, struct span *value)
{
	const char *s = record_skip_blank(in.s + 1), *end = in.s + in.n - 1;
	uint64_t index;

	if (*in.s == '[') {
		if (!num_u64(key, n, &index))
			return false;
		while (record_next(&in, value))
			if (!index--)
				return true;
		return false;
	}
	while (*in.s == '{' && s < end) {
		const char *name = s + 1;
		size_t len;

		s = skip_string(s);
		len = (size_t)(s - 1 - name);
		s = record_skip_blank(s);
		s = record_skip_blank(s + (*s == ':'));
		value->s = s;
		s = skip_value(s);
		value->n = (size_t)(s - value->s);
		if (len == n && !memcmp(name, key, n))
			return true;
		s = record_skip_blank(s);
		s = record_skip_blank(s + (*s == ','));
	}
	return false;
}

bool record_path(const struct record *r, const char *path, struct span *value)
{
	const struct field *f = record_find(r, path);
	const char *dot = strchr(path, '.');

	for (size_t i = 0; !f && dot && i < r->n && r->kind == RECORD_JSON; i++)
		if (strlen(r->field[i].name) == (size_t)(dot - path) &&
		    !strncmp(r->field[i].name, path, (size_t)(dot - path)))
			f = &r->field[i];
	if (!f)
		return false;
	*value = f->value;
	if (!strcmp(f->name, path))
		return true;
	while (dot) {
		const char *key = dot + 1;

		dot = strchr(key, '.');
		if (!find_member(*value, key, dot ? (size_t)(dot - key) : strlen(key), value))
			return false;
	}
	return true;
}

struct shown span_show(struct span s)
{
	struct shown out;
	size_t n = s.n > 40 ? 40 : s.n;

	for (size_t i = 0; i < n; i++)
		out.s[i] = s.s[i] >= ' ' && s.s[i] < 127 ? s.s[i] : '?';
	strcpy(out.s + n, s.n > n ? "..." : "");
	return out;
}
