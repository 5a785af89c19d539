/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/prompts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/jsonval.h"
#include "traces/importers/reader.h"

/* o NULL: no JSON. */
static enum ar_status read_ids(int32_t **id, int *n, const cJSON *o, const struct reader *r,
			       struct ar_err *err)
{
	const cJSON *list = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, "prompt") : o;
	const cJSON *v;
	int64_t x;
	int count = cJSON_GetArraySize(list);

	if (!cJSON_IsArray(list) || !count)
		return ar_fail(err, AR_DATA,
			       "%s:%" PRIu64 ": want a JSON list of token ids, or an object that "
			       "has one as 'prompt'",
			       reader_path(r), reader_line(r));
	*id = malloc((size_t)count * sizeof **id);
	if (!*id)
		return ar_nomem(err);
	*n = 0;
	cJSON_ArrayForEach(v, list) {
		if (!json_int(v, 0, INT32_MAX, &x))
			return ar_fail(err, AR_DATA, "%s:%" PRIu64 ": value %d is no token id",
				       reader_path(r), reader_line(r), *n);
		(*id)[(*n)++] = (int32_t)x;
	}
	return AR_OK;
}

static enum ar_status read_line(int32_t **id, int *n, const char *line, const struct reader *r,
				struct ar_err *err)
{
	cJSON *o = json_parse_all(line, NULL);
	enum ar_status st = !o && json_nomem() ? ar_nomem(err) : read_ids(id, n, o, r, err);

	cJSON_Delete(o);
	return st;
}

enum ar_status prompts_pick(int32_t **id, int *n, const char *path, int64_t index,
			    struct ar_err *err)
{
	struct reader *r;
	char *line = NULL;
	size_t len;
	int64_t at = -1;
	enum ar_status st = reader_open(&r, path, err);

	*id = NULL;
	if (st)
		return st;
	while (!st && at < index) {
		st = reader_next(r, &line, &len, err);
		if (st || !line)
			break;
		at += line[strspn(line, " \t\r")] != 0;
	}
	if (!st && !line)
		st = ar_fail(err, AR_DATA,
			     "%s has %" PRId64 " prompts; there is no number %" PRId64,
			     reader_path(r), at + 1, index);
	if (!st)
		st = read_line(id, n, line, r, err);
	if (st) {
		free(*id);
		*id = NULL;
	}
	reader_close(r);
	return st;
}

/* Add a prompt.  *room: places in p->v. */
static enum ar_status add_line(struct prompts *p, size_t *room, const char *line,
			       const struct reader *r, struct ar_err *err)
{
	struct prompt *v;

	if (p->n == *room) {
		*room = *room ? 2 * *room : 16;
		v = realloc(p->v, *room * sizeof *v);
		if (!v)
			return ar_nomem(err);
		p->v = v;
	}
	p->v[p->n] = (struct prompt){ 0 };
	p->n++;
	return read_line(&p->v[p->n - 1].id, &p->v[p->n - 1].n, line, r, err);
}

enum ar_status prompts_read(struct prompts *p, const char *path, struct ar_err *err)
{
	struct reader *r;
	char *line = NULL;
	size_t len, room = 0;
	enum ar_status st = reader_open(&r, path, err);

	*p = (struct prompts){ 0 };
	if (st)
		return st;
	do {
		st = reader_next(r, &line, &len, err);
		if (!st && line && line[strspn(line, " \t\r")])
			st = add_line(p, &room, line, r, err);
	} while (!st && line);
	if (!st && !p->n)
		st = ar_fail(err, AR_DATA, "%s has no prompts", reader_path(r));
	reader_close(r);
	return st;
}

void prompts_release(struct prompts *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->v[i].id);
	free(p->v);
	*p = (struct prompts){ 0 };
}
