/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_lists.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/data.h"
#include "base/json.h"
#include "base/jsonval.h"
#include "base/text.h"

enum { LISTS_MAX = 64 << 20, MOST_HEADS = 1024, MOST_TOK = 1 << 23 };

void bench_lists_release(struct bench_lists *l)
{
	free(l->block);
	free(l->table);
	*l = (struct bench_lists){ 0 };
}

bool bench_lists_block(const struct bench_lists *l, int head, int i, int block)
{
	size_t list = (size_t)(head % l->q_heads) * (size_t)l->n_qblk + (size_t)i;

	return l->block[list * (size_t)l->n_blk + (size_t)block];
}

bool bench_lists_table(const struct bench_lists *l, int kv_head, int block)
{
	return l->table[(size_t)(kv_head % l->kv_heads) * (size_t)l->n_blk + (size_t)block];
}

static enum ar_status read_shape(struct bench_lists *l, const cJSON *o, const char *path,
				 struct ar_err *err)
{
	int64_t past = 0;
	const struct {
		const char *key;
		int64_t least, most, *to;
	} member[] = {
		{ "q_heads", 1, MOST_HEADS, &l->q_heads },
		{ "kv_heads", 1, MOST_HEADS, &l->kv_heads },
		{ "block_tokens", 1, MOST_TOK, &l->page_tok },
		{ "chunk", 1, MOST_TOK, &l->chunk },
		{ "context", 0, MOST_TOK, &past },
	};

	for (size_t i = 0; i < sizeof member / sizeof *member; i++)
		if (!json_int(cJSON_GetObjectItemCaseSensitive(o, member[i].key), member[i].least,
			      member[i].most, member[i].to))
			return ar_fail(err, AR_DATA, "%s: '%s': want an integer from %lld to %lld",
				       path, member[i].key, (long long)member[i].least,
				       (long long)member[i].most);
	l->context = past + l->chunk;
	l->n_blk = (int)((l->context + l->page_tok - 1) / l->page_tok);
	l->n_qblk = l->n_blk - (int)(past / l->page_tok);
	if (l->n_blk > UINT16_MAX)
		return ar_fail(err, AR_DATA, "%s: %d blocks of %lld tokens; want at most %d", path,
			       l->n_blk, (long long)l->page_tok, UINT16_MAX);
	return AR_OK;
}

/* Mark the blocks of a list.  False: it is no list of blocks. */
static bool mark(const cJSON *list, int n_blk, bool *kept)
{
	const cJSON *v;
	int64_t block;

	if (!cJSON_IsArray(list))
		return false;
	cJSON_ArrayForEach(v, list) {
		if (!json_int(v, 0, n_blk - 1, &block))
			return false;
		kept[block] = true;
	}
	return true;
}

/* Whether the array has as many heads, each with n lists; n 0: each is a list. */
static bool has_size(const cJSON *all, int64_t heads, int n)
{
	const cJSON *head;

	if (!cJSON_IsArray(all) || cJSON_GetArraySize(all) != heads)
		return false;
	cJSON_ArrayForEach(head, all)
		if (!cJSON_IsArray(head) || (n && cJSON_GetArraySize(head) != n))
			return false;
	return true;
}

static bool mark_all(const cJSON *all, int n, int n_blk, bool *kept)
{
	const cJSON *head, *list;

	cJSON_ArrayForEach(head, all) {
		if (!n && !mark(head, n_blk, kept))
			return false;
		kept += n ? 0 : n_blk;
		for (list = head->child; n && list; list = list->next, kept += n_blk)
			if (!mark(list, n_blk, kept))
				return false;
	}
	return true;
}

/* Read lists to *to, [heads][n][n_blk].  Leaves it NULL if there are none. */
static enum ar_status read_lists(bool **to, const cJSON *all, const char *key, int64_t heads, int n,
				 int n_blk, const char *path, struct ar_err *err)
{
	bool good = has_size(all, heads, n);

	if (!all)
		return AR_OK;
	if (good) {
		*to = calloc((size_t)heads * (size_t)(n ? n : 1) * (size_t)n_blk, sizeof **to);
		if (!*to)
			return ar_nomem(err);
		good = mark_all(all, n, n_blk, *to);
	}
	return good ? AR_OK :
		      ar_fail(err, AR_DATA,
			      "%s: '%s': want lists of blocks below %d, as 'attnreplay select "
			      "--json' writes them",
			      path, key, n_blk);
}

/* The share of the blocks before the chunk in n lists. */
static double share(const bool *kept, int64_t n, int n_blk, int past)
{
	int64_t sum = 0;

	for (int64_t i = 0; i < n; i++, kept += n_blk)
		for (int j = 0; j < past; j++)
			sum += kept[j];
	return past ? (double)sum / ((double)n * past) : 0;
}

static enum ar_status read_selection(struct bench_lists *l, const cJSON *o, const char *path,
				     struct ar_err *err)
{
	enum ar_status st = read_shape(l, o, path, err);
	const cJSON *tables = cJSON_GetObjectItemCaseSensitive(o, "tables");
	int past;

	if (st)
		return st;
	/* tables of fewer heads are other tables than those measured here */
	if (cJSON_GetArraySize(tables) != l->kv_heads)
		tables = NULL;
	st = read_lists(&l->block, cJSON_GetObjectItemCaseSensitive(o, "blocks"), "blocks",
			l->q_heads, l->n_qblk, l->n_blk, path, err);
	if (!st)
		st = read_lists(&l->table, tables, "tables", l->kv_heads, 0, l->n_blk, path, err);
	if (!st && !l->block && !l->table)
		st = ar_fail(err, AR_DATA,
			     "%s: no lists of blocks and no table for each KV head; select with "
			     "another method",
			     path);
	if (st)
		return st;
	past = l->n_blk - l->n_qblk;
	if (l->block)
		l->block_density = share(l->block, l->q_heads * l->n_qblk, l->n_blk, past);
	if (l->table)
		l->table_density = share(l->table, l->kv_heads, l->n_blk, past);
	return AR_OK;
}

static enum ar_status read_text(struct bench_lists *l, const char *text, const char *path,
				struct ar_err *err)
{
	cJSON *o;
	enum ar_status st = json_parse_file(&o, text, path, err);
	const cJSON *all;
	int n;

	if (st)
		return st;
	all = cJSON_GetObjectItemCaseSensitive(o, "selections");
	n = cJSON_GetArraySize(all);
	st = n == 1 ? read_selection(l, all->child, path, err) :
		      ar_fail(err, AR_DATA,
			      "%s: %d selections of 'attnreplay select --json'; want one: a "
			      "capture, a layer and a method",
			      path, n);
	cJSON_Delete(o);
	return st;
}

enum ar_status bench_lists_read(struct bench_lists *l, const char *path, struct ar_err *err)
{
	char found[PATH_MAX];
	const char *from = access(path, R_OK) && data_find(path, found, sizeof found) ? found :
											path;
	char *text;
	enum ar_status st = text_read(&text, from, LISTS_MAX, err);

	*l = (struct bench_lists){ 0 };
	if (st)
		return st;
	st = read_text(l, text, path, err);
	free(text);
	if (st)
		bench_lists_release(l);
	return st;
}
