/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/shards.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"

enum {
	INDEX_MAX = 1 << 26, /* bytes; large ones have some MB */
	PIECE = 1 << 16,     /* values that are read at a time */
};

/* ---- the files ---- */

static enum ar_status add_file(struct shards *s, const char *dir, const char *name,
			       struct ar_err *err)
{
	struct shard_file *f = &s->file[s->n_file];
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	for (size_t i = 0; i < s->n_file; i++)
		if (!strcmp(s->file[i].path, path))
			return AR_OK;
	f->path = strdup(path);
	if (!f->path)
		return ar_nomem(err);
	s->n_file++;
	return safetensors_open(&f->file, path, err);
}

static enum ar_status room_for_files(struct shards *s, int n, struct ar_err *err)
{
	s->file = calloc((size_t)n + 1, sizeof *s->file);
	return s->file ? AR_OK : ar_nomem(err);
}

/* The map has a line for each tensor; all that counts here is which files there are. */
static enum ar_status open_map(struct shards *s, const char *dir, const char *path,
			       const cJSON *index, struct ar_err *err)
{
	const cJSON *map = cJSON_GetObjectItemCaseSensitive(index, "weight_map"), *v;
	enum ar_status st;

	if (!cJSON_IsObject(map))
		return ar_fail(err, AR_DATA, "%s: want an object as 'weight_map'", path);
	st = room_for_files(s, cJSON_GetArraySize(map), err);
	cJSON_ArrayForEach(v, map) {
		if (st)
			break;
		if (!cJSON_IsString(v) || strchr(v->valuestring, '/'))
			return ar_fail(err, AR_DATA,
				       "%s: tensor '%.96s': want the name of a file in this folder",
				       path, v->string);
		st = add_file(s, dir, v->valuestring, err);
	}
	return st;
}

static enum ar_status open_files(struct shards *s, const char *dir, struct ar_err *err)
{
	char path[PATH_MAX], *text;
	cJSON *index;
	enum ar_status st;

	snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
	if (access(path, F_OK)) {
		st = room_for_files(s, 1, err);
		return st ? st : add_file(s, dir, "model.safetensors", err);
	}
	st = text_read(&text, path, INDEX_MAX, err);
	if (st)
		return st;
	st = json_parse_file(&index, text, path, err);
	free(text);
	if (st)
		return st;
	st = open_map(s, dir, path, index, err);
	cJSON_Delete(index);
	return st;
}

/* ---- the tensors ---- */

static int by_name(const void *a, const void *b)
{
	const struct shard_tensor *x = a, *y = b;

	return strcmp(x->t->name, y->t->name);
}

static enum ar_status list_tensors(struct shards *s, struct ar_err *err)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n_file; i++)
		n += safetensors_count(s->file[i].file);
	s->tensor = calloc(n + 1, sizeof *s->tensor);
	if (!s->tensor)
		return ar_nomem(err);
	for (size_t i = 0; i < s->n_file; i++)
		for (size_t k = 0; k < safetensors_count(s->file[i].file); k++)
			s->tensor[s->n++] = (struct shard_tensor){
				.t = safetensors_at(s->file[i].file, k),
				.file = s->file[i].file,
				.path = s->file[i].path,
			};
	qsort(s->tensor, s->n, sizeof *s->tensor, by_name);
	for (size_t i = 1; i < s->n; i++)
		if (!by_name(&s->tensor[i - 1], &s->tensor[i]))
			return ar_fail(err, AR_DATA, "%s: tensor '%.96s' is in %s, too",
				       s->tensor[i].path, s->tensor[i].t->name,
				       s->tensor[i - 1].path);
	return AR_OK;
}

enum ar_status shards_open(struct shards *s, const char *dir, struct ar_err *err)
{
	enum ar_status st;

	*s = (struct shards){ 0 };
	st = open_files(s, dir, err);
	return st ? st : list_tensors(s, err);
}

void shards_close(struct shards *s)
{
	for (size_t i = 0; i < s->n_file; i++) {
		safetensors_close(s->file[i].file);
		free(s->file[i].path);
	}
	free(s->file);
	free(s->tensor);
	*s = (struct shards){ 0 };
}

struct shard_tensor *shards_find(struct shards *s, const char *name)
{
	const struct safetensors_tensor key = { .name = name };
	struct shard_tensor *t = bsearch(&(struct shard_tensor){ .t = &key }, s->tensor, s->n,
					 sizeof *s->tensor, by_name);

	if (t)
		t->asked = true;
	return t;
}

const struct shard_tensor *shards_at(const struct shards *s, size_t i)
{
	return i < s->n ? &s->tensor[i] : NULL;
}

/* ---- the values ---- */

static float f16_value(uint16_t h)
{
	int exponent = h >> 10 & 31;
	float fraction = (float)(h & 1023), x;

	if (exponent == 31)
		x = fraction > 0 ? NAN : INFINITY;
	else
		x = exponent ? ldexpf(1024 + fraction, exponent - 25) : ldexpf(fraction, -24);
	return h >> 15 ? -x : x;
}

static void from_bf16(bf16_t *out, const void *in, size_t n)
{
	memcpy(out, in, n * sizeof *out);
}

static void from_f16(bf16_t *out, const void *in, size_t n)
{
	const uint16_t *x = in;

	for (size_t i = 0; i < n; i++)
		out[i] = bf16_from_f32(f16_value(x[i]));
}

static void from_f32(bf16_t *out, const void *in, size_t n)
{
	const float *x = in;

	for (size_t i = 0; i < n; i++)
		out[i] = bf16_from_f32(x[i]);
}

static const struct type {
	const char *name;
	size_t bytes;
	void (*read)(bf16_t *out, const void *in, size_t n);
} types[] = { { "BF16", 2, from_bf16 }, { "F16", 2, from_f16 }, { "F32", 4, from_f32 }, { 0 } };

static const struct type *type_of(const struct shard_tensor *t)
{
	const struct type *y = types;

	while (y->name && strcmp(y->name, t->t->dtype) != 0)
		y++;
	return y->name ? y : NULL;
}

static size_t shape_text(char *buf, size_t n, const int64_t *dim, int n_dim)
{
	size_t at = 0;

	buf[0] = 0;
	for (int i = 0; i < n_dim; i++)
		at += (size_t)snprintf(buf + at, n - at, i ? ", %" PRId64 : "%" PRId64, dim[i]);
	return at;
}

enum ar_status shards_check(const struct shard_tensor *t, int64_t rows, int64_t cols,
			    struct ar_err *err)
{
	const int64_t want[2] = { rows, cols };
	int n_dim = cols ? 2 : 1;
	char is[SAFETENSORS_MAX_DIM * 24], wanted[48];

	if (!type_of(t))
		return ar_fail(err, AR_DATA, "%s: tensor '%.96s' is %.16s; want BF16, F16 or F32",
			       t->path, t->t->name, t->t->dtype);
	if (t->t->n_dim == n_dim && t->t->dim[0] == rows && (!cols || t->t->dim[1] == cols))
		return AR_OK;
	shape_text(is, sizeof is, t->t->dim, t->t->n_dim);
	shape_text(wanted, sizeof wanted, want, n_dim);
	return ar_fail(err, AR_DATA, "%s: tensor '%.96s' is [%s]; config.json asks for [%s]",
		       t->path, t->t->name, is, wanted);
}

/* Read n values from value number first on.  piece: room for PIECE values. */
static enum ar_status read_values(const struct shard_tensor *t, size_t first, size_t n, void *piece,
				  bf16_t *out, struct ar_err *err)
{
	const struct type *y = type_of(t);
	enum ar_status st = AR_OK;

	for (size_t at = 0; at < n && !st; at += PIECE) {
		size_t some = n - at < PIECE ? n - at : PIECE;

		st = safetensors_read(t->file, t->t, (first + at) * y->bytes, piece,
				      some * y->bytes, err);
		if (!st)
			y->read(out + at, piece, some);
		for (size_t i = at; i < at + some && !st; i++)
			if (!isfinite(bf16_to_f32(out[i])))
				st = ar_fail(err, AR_DATA,
					     "%s: tensor '%.96s': value %zu is not finite", t->path,
					     t->t->name, first + i);
	}
	return st;
}

/* Whole rows follow each other in the file, parts of rows do not. */
enum ar_status shards_read(const struct shard_tensor *t, const struct shard_part *part, bf16_t *out,
			   struct ar_err *err)
{
	size_t width = t->t->n_dim == 2 ? (size_t)t->t->dim[1] : 1;
	size_t n = t->t->n_dim == 2 ? (size_t)part->cols : 1, rows = (size_t)part->rows;
	size_t first = (size_t)part->row * width + (n < width ? (size_t)part->col : 0);
	float *piece = malloc(PIECE * sizeof *piece);
	enum ar_status st = AR_OK;

	if (!piece)
		return ar_nomem(err);
	if (n == width) {
		n *= rows;
		rows = 1;
	}
	for (size_t r = 0; r < rows && !st; r++)
		st = read_values(t, first + r * width, n, piece, out + r * n, err);
	free(piece);
	return st;
}
