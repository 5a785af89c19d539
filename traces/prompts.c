/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/prompts.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/json.h"
#include "traces/importers/reader.h"

/* ---- a record ---- */

static enum ar_status check_ids(const cJSON *ids, const char *name, uint32_t *n, struct ar_err *err)
{
	const cJSON *id;

	if (!cJSON_IsArray(ids))
		return ar_fail(err, AR_DATA, "\"%s\" is no list of token ids", name);
	cJSON_ArrayForEach(id, ids) {
		const double x = id->valuedouble;

		if (!cJSON_IsNumber(id) || x != floor(x) || x < 0 || x > INT32_MAX)
			return ar_fail(err, AR_DATA,
				       "token %" PRIu32 " of \"%s\" is no id from 0 to 2147483647",
				       *n, name);
		++*n;
	}
	return *n ? AR_OK : ar_fail(err, AR_DATA, "\"%s\" is empty; want a token at least", name);
}

static void copy_ids(const cJSON *ids, int32_t *to)
{
	const cJSON *id;

	cJSON_ArrayForEach(id, ids)
		*to++ = (int32_t)id->valuedouble;
}

/* Of a list of answers, the first. */
static const cJSON *find_answer(const cJSON *record)
{
	const cJSON *a = cJSON_GetObjectItemCaseSensitive(record, "answer");

	return cJSON_IsArray(a) && cJSON_IsArray(a->child) ? a->child : a;
}

static enum ar_status read_about(struct prompt *p, const cJSON *record, struct ar_err *err)
{
	const cJSON *task = cJSON_GetObjectItemCaseSensitive(record, "task"),
		    *length = cJSON_GetObjectItemCaseSensitive(record, "length"),
		    *ok = cJSON_GetObjectItemCaseSensitive(record, "ok");

	p->expected = cJSON_IsBool(ok) ? cJSON_IsTrue(ok) : -1;
	p->length = (int64_t)p->n_prompt + p->n_answer;
	if (ok && !cJSON_IsBool(ok) && !cJSON_IsNull(ok))
		return ar_fail(err, AR_DATA, "\"ok\" is neither true nor false");
	if (task && !cJSON_IsString(task))
		return ar_fail(err, AR_DATA, "\"task\" is no text");
	if (length && (!cJSON_IsNumber(length) || !(length->valuedouble >= 0) ||
		       length->valuedouble > INT32_MAX))
		return ar_fail(err, AR_DATA, "\"length\" is no number of tokens");
	if (length)
		p->length = (int64_t)length->valuedouble;
	if (task)
		p->task = strdup(task->valuestring);
	return !task || p->task ? AR_OK : ar_nomem(err);
}

enum ar_status prompt_read(struct prompt *p, const struct cJSON *record, struct ar_err *err)
{
	const cJSON *prompt = cJSON_IsArray(record) ?
				      record :
				      cJSON_GetObjectItemCaseSensitive(record, "prompt");
	const cJSON *answer = find_answer(record);
	enum ar_status st;

	*p = (struct prompt){ 0 };
	if (!prompt)
		return ar_fail(err, AR_DATA, "the record lacks \"prompt\"");
	st = check_ids(prompt, "prompt", &p->n_prompt, err);
	if (!st && answer)
		st = check_ids(answer, "answer", &p->n_answer, err);
	if (!st)
		st = read_about(p, record, err);
	if (st)
		return st;
	p->prompt = malloc(((size_t)p->n_prompt + p->n_answer) * sizeof *p->prompt);
	if (!p->prompt)
		return ar_nomem(err);
	copy_ids(prompt, p->prompt);
	if (answer) {
		p->answer = p->prompt + p->n_prompt;
		copy_ids(answer, p->answer);
	}
	return AR_OK;
}

void prompt_release(struct prompt *p)
{
	free(p->task);
	free(p->prompt);
	*p = (struct prompt){ 0 };
}

/* ---- a file ---- */

static size_t size_of(const struct prompt *p)
{
	return sizeof *p + ((size_t)p->n_prompt + p->n_answer) * sizeof *p->prompt +
	       (p->task ? strlen(p->task) : 0);
}

static enum ar_status add_line(struct prompts *p, const char *line, uint64_t number,
			       struct ar_err *err)
{
	struct prompt *v;
	enum ar_status st;
	cJSON *record;

	if (!GROW(p->v, p->cap, p->n + 1))
		return ar_nomem(err);
	record = json_parse_all(line, NULL);
	v = &p->v[p->n];
	*v = (struct prompt){ 0 };
	if (!record && json_nomem())
		st = ar_nomem(err);
	else if (!cJSON_IsObject(record) && !cJSON_IsArray(record))
		st = ar_fail(err, AR_DATA,
			     "want a JSON list of token ids, or an object that has one as "
			     "\"prompt\"");
	else
		st = prompt_read(v, record, err);
	cJSON_Delete(record);
	if (st) {
		prompt_release(v);
		return st;
	}
	v->line = number;
	p->n++;
	return AR_OK;
}

static enum ar_status read_lines(struct prompts *p, struct reader *in, size_t most,
				 struct ar_err *err)
{
	size_t n, bytes = 0;
	enum ar_status st;
	char *line;

	while (!(st = reader_next(in, &line, &n, err)) && line) {
		if (!line[strspn(line, " \t")])
			continue;
		st = add_line(p, line, reader_line(in), err);
		if (st == AR_DATA)
			ar_err_prefix(err, "%s:%" PRIu64, reader_path(in), reader_line(in));
		if (st)
			return st;
		bytes += size_of(&p->v[p->n - 1]);
		if (bytes > most)
			return ar_fail(err, AR_DATA,
				       "%s:%" PRIu64 ": the prompts take more than %zu MiB; use a "
				       "part of the file",
				       reader_path(in), reader_line(in), most >> 20);
	}
	if (!st && !p->n)
		st = ar_fail(err, AR_DATA, "%s: the file has no prompts", reader_path(in));
	return st;
}

enum ar_status prompts_read(struct prompts *p, const char *path, struct ar_err *err)
{
	return prompts_read_limited(p, path, 0, err);
}

enum ar_status prompts_read_limited(struct prompts *p, const char *path, int64_t max_memory,
				    struct ar_err *err)
{
	struct reader *in = NULL;
	enum ar_status st = reader_open(&in, path, err);

	*p = (struct prompts){ 0 };
	if (!st) {
		reader_limit(in, reader_memory(max_memory));
		st = read_lines(p, in, reader_memory(max_memory), err);
	}
	reader_close(in);
	if (st)
		prompts_release(p);
	return st;
}

void prompts_release(struct prompts *p)
{
	for (size_t i = 0; i < p->n; i++)
		prompt_release(&p->v[i]);
	free(p->v);
	*p = (struct prompts){ 0 };
}

const struct prompt *prompts_at(const struct prompts *p, uint64_t line)
{
	size_t from = 0, to = p->n;

	while (from < to) {
		const size_t i = from + (to - from) / 2;

		if (p->v[i].line == line)
			return &p->v[i];
		if (p->v[i].line < line)
			from = i + 1;
		else
			to = i;
	}
	return NULL;
}
