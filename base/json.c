/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/json.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static _Thread_local bool nomem;

static void *allocate(size_t n)
{
	void *p = malloc(n);

	nomem = nomem || !p;
	return p;
}

static cJSON *parse_text(const char *text, size_t n, const char **end, bool all)
{
	cJSON_InitHooks(&(cJSON_Hooks){ .malloc_fn = allocate, .free_fn = free });
	nomem = false;
	return cJSON_ParseWithLengthOpts(text, n, end, all);
}

cJSON *json_parse(const char *text, size_t n, const char **end)
{
	return parse_text(text, n, end, false);
}

cJSON *json_parse_all(const char *text, const char **end)
{
	return parse_text(text, strlen(text) + 1, end, true);
}

/* The length of a number at s that is no JSON; 0: there is none. */
static size_t literal_at(const char *s)
{
	static const char *const literals[] = { "NaN", "Infinity", "-Infinity" };

	for (size_t i = 0; i < sizeof literals / sizeof *literals; i++) {
		size_t n = strlen(literals[i]);

		if (!strncmp(s, literals[i], n) && !isalnum((unsigned char)s[n]))
			return n;
	}
	return 0;
}

char *json_quote_literals(const char *text)
{
	char *out = malloc(2 * strlen(text) + 1), *to = out;
	bool string = false;

	while (out && *text) {
		size_t n = string ? 0 : literal_at(text);

		if (n) {
			to += sprintf(to, "\"%.*s\"", (int)n, text);
			text += n;
			continue;
		}
		if (*text == '"')
			string = !string;
		else if (string && *text == '\\' && text[1])
			*to++ = *text++;
		*to++ = *text++;
	}
	if (out)
		*to = '\0';
	return out;
}

enum ar_status json_parse_file(cJSON **o, const char *text, const char *path, struct ar_err *err)
{
	const char *end;

	*o = json_parse_all(text, &end);
	if (*o)
		return AR_OK;
	return nomem ? ar_nomem(err) :
		       ar_fail(err, AR_DATA, "%s:%d: malformed JSON", path, text_line(text, end));
}

bool json_nomem(void)
{
	return nomem;
}

bool json_add(cJSON *to, const char *key, cJSON *item)
{
	bool done = item &&
		    (key ? cJSON_AddItemToObject(to, key, item) : cJSON_AddItemToArray(to, item));

	if (!done)
		cJSON_Delete(item);
	return done;
}

bool json_add_real(cJSON *to, const char *key, double x)
{
	return json_add(to, key, isfinite(x) ? cJSON_CreateNumber(x) : cJSON_CreateNull());
}

const char *json_text(const cJSON *v, char *buf, size_t n)
{
	if (cJSON_IsString(v))
		return v->valuestring;
	if (cJSON_IsBool(v))
		return cJSON_IsTrue(v) ? "1" : "0";
	if (!cJSON_IsNumber(v))
		return NULL;
	snprintf(buf, n, "%.17g", v->valuedouble);
	return buf;
}

enum ar_status json_put(cJSON *o, FILE *f, struct ar_err *err)
{
	char *text = o ? cJSON_PrintUnformatted(o) : NULL;

	cJSON_Delete(o);
	if (!text)
		return ar_nomem(err);
	text_put_json_value(text, f);
	cJSON_free(text);
	return AR_OK;
}

/* ---- lines ---- */

static bool put_lines(const cJSON *v, int depth, FILE *f);

static bool is_flat(const cJSON *v)
{
	for (v = v->child; v; v = v->next)
		if (v->child)
			return false;
	return true;
}

static bool put_scalar(const cJSON *v, FILE *f)
{
	char *text = cJSON_PrintUnformatted(v);

	if (text)
		text_put_json_value(text, f);
	cJSON_free(text);
	return text;
}

static bool put_items(const cJSON *v, int depth, FILE *f)
{
	const bool flat = is_flat(v);
	bool done = true;

	for (const cJSON *x = v->child; x && done; x = x->next) {
		if (!flat)
			fprintf(f, "\n%*s", 2 * depth + 2, "");
		if (x->string) {
			text_put_json(x->string, f);
			fputs(": ", f);
		}
		done = put_lines(x, depth + 1, f);
		if (x->next)
			fputs(flat ? ", " : ",", f);
	}
	if (!flat)
		fprintf(f, "\n%*s", 2 * depth, "");
	return done;
}

static bool put_lines(const cJSON *v, int depth, FILE *f)
{
	const bool object = cJSON_IsObject(v);
	bool done;

	if (!v->child)
		return put_scalar(v, f);
	putc(object ? '{' : '[', f);
	done = put_items(v, depth, f);
	putc(object ? '}' : ']', f);
	return done;
}

enum ar_status json_put_lines(cJSON *o, FILE *f, struct ar_err *err)
{
	const bool done = o && put_lines(o, 0, f);

	cJSON_Delete(o);
	putc('\n', f);
	return done ? AR_OK : ar_nomem(err);
}
