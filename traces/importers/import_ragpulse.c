/* SPDX-License-Identifier: Apache-2.0 */
/* RAGPulse traces: whole seconds as text, sessions, and the components of each prompt by number.
 * Separate files hold the lengths of the components. */
#include "config.h"
#include "traces/importers/import.h"

#include <cjson/cJSON.h>
#include <inttypes.h>

#include "base/jsonval.h"
#include "base/number.h"
#include "traces/importers/reader.h"

static const char *const need[] = { "timestamp", "input_length", "output_length",
				    "hash_ids",	 "session_id",	 NULL };
static const char *const may[] = { NULL };

/* The components of a prompt in order, and their keys in the files of lengths. */
static const struct {
	const char *part, *id;
} parts[] = {
	{ "sys_prompt", "sys_prompt_id" }, { "passages_ids", "passage_id" },
	{ "history", "history_id" },	   { "web_search", "web_search_id" },
	{ "user_input", "user_input_id" },
};
enum { N_PARTS = sizeof parts / sizeof *parts };

static const uint64_t UNKNOWN = UINT64_MAX; /* stored for a component without a length */

static bool ragpulse_sniff(const struct record *first)
{
	return *record_find(first, "hash_ids")->value.s == '{';
}

/* ---- lengths of components ---- */

static enum ar_status one_length(struct import *im, const struct record *r, struct ar_err *err)
{
	struct chain_key key = { .tail = CUT_LENGTH };
	const struct field *id = NULL;
	size_t n_seen = im->seen.n;
	uint64_t old;
	uint32_t tok;
	enum ar_status st;

	for (int i = 0; i < N_PARTS && !id; i++)
		id = record_find(r, parts[i].id);
	if (!id || !num_u64(id->value.s, id->value.n, &key.src) || !record_find(r, "token_length"))
		return import_fail(im, err,
				   "want a component such as {\"passage_id\": 0, "
				   "\"token_length\": 84}");
	st = import_count(im, r, "token_length", &tok, err);
	if (st)
		return st;
	if (!chain_put(&im->seen, key, tok, &old))
		return ar_nomem(err);
	if (im->seen.n == n_seen)
		return import_fail(im, err, "component %" PRIu64 " has a length already", key.src);
	return AR_OK;
}

static enum ar_status read_lengths(struct import *im, const char *path, struct ar_err *err)
{
	struct record r = { 0 };
	struct reader *in;
	char *line;
	size_t n;
	enum ar_status st = reader_open(&in, path, err);

	if (st)
		return st;
	im->path = reader_path(in);
	while (!(st = reader_next(in, &line, &n, err)) && line) {
		im->line = reader_line(in);
		if (!*line)
			continue;
		st = record_json(&r, line, n, err);
		if (st == AR_DATA)
			ar_err_prefix(err, "%s:%" PRIu64, im->path, im->line);
		if (!st)
			st = one_length(im, &r, err);
		if (st)
			break;
	}
	record_release(&r);
	reader_close(in);
	return st;
}

static enum ar_status ragpulse_start(struct import *im, struct ar_err *err)
{
	const struct opt_list *files = &im->args->components;
	const char *path = im->path;
	uint64_t line = im->line;
	enum ar_status st = AR_OK;

	if (!files->n && im->args->hash_tok)
		return ar_fail(err, AR_USAGE, "--hash-block needs --components in format ragpulse");
	for (size_t i = 0; i < files->n && !st; i++)
		st = read_lengths(im, files->v[i], err);
	im->path = path;
	im->line = line;
	if (!files->n)
		im->t->block_tok = 0;
	return st;
}

/* ---- requests ---- */

static enum ar_status component(struct import *im, const cJSON *id, struct cutter *c,
				uint32_t *left, struct ar_err *err)
{
	uint64_t tok;
	int64_t number;

	if (!json_int(id, 0, JSON_INT_MAX, &number))
		return import_fail(im, err, "hash_ids holds something else than integers");
	if (!im->t->block_tok)
		return AR_OK;
	if (!chain_put(&im->seen, (struct chain_key){ .src = (uint64_t)number, .tail = CUT_LENGTH },
		       UNKNOWN, &tok))
		return ar_nomem(err);
	if (tok == UNKNOWN)
		return import_fail(im, err, "component %" PRId64 " is in no file of --components",
				   number);
	if (tok > *left)
		return import_fail(im, err, "the components are longer than input_length");
	*left -= (uint32_t)tok;
	return import_cut(im, c, (uint64_t)number, 0, (uint32_t)tok, err);
}

/* Add the components and then the rest of the prompt, which no other prompt shares. */
static enum ar_status components(struct import *im, const struct record *r, uint32_t prompt_tok,
				 struct ar_err *err)
{
	const cJSON *all = cJSON_GetObjectItemCaseSensitive(r->json, "hash_ids"), *id;
	struct cutter c = CUTTER_START;
	uint32_t left = prompt_tok;
	enum ar_status st = AR_OK;
	int n = 0;

	for (int i = 0; i < N_PARTS && !st; i++) {
		const cJSON *part = cJSON_GetObjectItemCaseSensitive(all, parts[i].part);

		n += part != NULL;
		if (part && !cJSON_IsArray(part))
			return import_fail(im, err, "%s in hash_ids is not an array",
					   parts[i].part);
		cJSON_ArrayForEach(id, part) {
			st = component(im, id, &c, &left, err);
			if (st)
				break;
		}
	}
	if (!st && (!cJSON_IsObject(all) || n != cJSON_GetArraySize(all)))
		return import_fail(im, err,
				   "hash_ids is not an object of sys_prompt, "
				   "passages_ids, history, web_search and user_input");
	if (st || !im->t->block_tok)
		return st;
	st = import_cut(im, &c, im->t->n, CUT_REST, left, err);
	return st ? st : import_cut_end(im, c, err);
}

static enum ar_status ragpulse_record(struct import *im, const struct record *r, struct ar_err *err)
{
	struct span time = record_find(r, "timestamp")->value;
	struct request q = request_none;
	struct import_session *s;
	uint32_t number;
	enum ar_status st;

	if (*time.s == '"')
		time = (struct span){ time.s + 1, time.n - 2 };
	st = import_time_text(im, "timestamp", time, 1000000000, &q.arrival_ns, err);
	if (!st)
		st = import_lengths(im, r, "input_length", "output_length", &q, err);
	if (!st)
		st = import_name(im, r, "session_id", &im->session, &number, err);
	if (st || import_unserved(im, &q))
		return st;
	st = components(im, r, q.prompt_tok, err);
	if (!st && !im->args->components.n)
		import_warn(im, WARN_NO_BLOCKS);
	if (!st)
		st = import_turn(im, number, &q, &s, err);
	return st ? st : import_add(im, &q, err);
}

const struct importer importer_ragpulse = {
	.name = "ragpulse",
	.title = "RAGPulse trace (JSON lines)",
	.kind = RECORD_JSON,
	.need = need,
	.may = may,
	.uses = USES_COMPONENTS | USES_UNIT,
	.block_tok = 16,
	.sniff = ragpulse_sniff,
	.start = ragpulse_start,
	.record = ragpulse_record,
};
