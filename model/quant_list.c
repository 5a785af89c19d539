/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of modules' names and patterns. */
#include "config.h"
#include "model/quant_rules.h"

#include <cjson/cJSON.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rewrite a pattern of Python's re as an extended one, for the start of a name: \d and groups that
 * capture nothing.  False: there is no such pattern, or it is too long. */
static bool to_posix(const char *s, char *out, size_t n)
{
	size_t at = (size_t)snprintf(out, n, "^(");

	while (*s && at + 8 < n) {
		if (!strncmp(s, "\\d", 2))
			at += (size_t)snprintf(out + at, n - at, "[0-9]");
		else if (!strncmp(s, "(?:", 3))
			at += (size_t)snprintf(out + at, n - at, "(");
		else if (!strncmp(s, "(?", 2))
			return false;
		else if (*s == '\\' && s[1])
			at += (size_t)snprintf(out + at, n - at, "%.2s", s);
		else
			at += (size_t)snprintf(out + at, n - at, "%c", *s);
		s += !strncmp(s, "(?:", 3) ? 3 : *s == '\\' && s[1] ? 2 : 1;
	}
	snprintf(out + at, n - at, ")");
	return !*s;
}

static enum ar_status add_text(struct quant_list *l, const char *text, bool is_regex,
			       const char *model, struct ar_err *err)
{
	struct quant_text *t = &l->text[l->n];
	char posix[512];

	*t = (struct quant_text){ .text = text, .is_regex = is_regex };
	if (is_regex && (!to_posix(text, posix, sizeof posix) ||
			 regcomp(&t->regex, posix, REG_EXTENDED | REG_NOSUB)))
		return ar_fail(err, AR_DATA,
			       "%s: quantization_config: the pattern '%.200s' is not understood; "
			       "--quantization none replays the shape in bf16",
			       model, text);
	l->n++;
	return AR_OK;
}

enum ar_status quant_list_init(struct quant_list *l, enum quant_match match, const cJSON *list,
			       const char *skip, const char *model, struct ar_err *err)
{
	const size_t n = (size_t)cJSON_GetArraySize(list), len = skip ? strlen(skip) : 0;
	enum ar_status st = AR_OK;
	const cJSON *v;

	*l = (struct quant_list){ .match = match, .text = calloc(n + 1, sizeof *l->text) };
	if (!l->text)
		return ar_nomem(err);
	cJSON_ArrayForEach(v, list) {
		const char *s = cJSON_IsObject(list) ? v->string : v->valuestring;
		const bool regex = match == QUANT_REGEX && s && !strncmp(s, "re:", 3);

		if (!s)
			return ar_fail(err, AR_DATA,
				       "%s: quantization_config: a list of modules has an entry "
				       "that is no string",
				       model);
		if (skip && strncmp(s, skip, len) != 0)
			continue;
		st = add_text(l, s + (skip ? len : regex ? 3 : 0), skip || regex, model, err);
		if (st)
			return st;
	}
	return AR_OK;
}

void quant_list_release(struct quant_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->text[i].is_regex)
			regfree(&l->text[i].regex);
	free(l->text);
	*l = (struct quant_list){ 0 };
}

/* An expert's weight names all experts, which engines hold in one module. */
static bool is_whole(const char *name, const char *text)
{
	return !strcmp(name, text) || (strstr(name, "experts") && strstr(text, name));
}

static bool matches(enum quant_match match, const char *name, const struct quant_text *t)
{
	if (t->is_regex)
		return !regexec(&t->regex, name, 0, NULL, 0);
	switch (match) {
	case QUANT_WHOLE: return is_whole(name, t->text);
	case QUANT_SUBSTRING: return strstr(name, t->text);
	case QUANT_WILDCARD:
		return is_whole(name, t->text) || strstr(name, t->text) ||
		       !fnmatch(t->text, name, FNM_NOESCAPE);
	case QUANT_REGEX: break;
	}
	return !strcmp(name, t->text);
}

bool quant_list_has(const struct quant_list *l, const char *name)
{
	for (size_t i = 0; i < l->n; i++)
		if (matches(l->match, name, &l->text[i]))
			return true;
	return false;
}
