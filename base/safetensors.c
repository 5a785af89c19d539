/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/safetensors.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/jsonval.h"
#include "base/order.h"

enum { HEADER_MAX = 100000000 }; /* bytes, the limit of the format */

struct safetensors {
	struct infile file;
	cJSON *header;			   /* owns the names in tensor[] */
	struct safetensors_tensor *tensor; /* by offset in the file */
	size_t n;
};

static uint64_t load_u64(const unsigned char *p)
{
	uint64_t v = 0;

	for (int i = 7; i >= 0; i--)
		v = v << 8 | p[i];
	return v;
}

bool safetensors_sniff(const unsigned char *head, size_t n, uint64_t size)
{
	uint64_t len = n > 8 ? load_u64(head) : 0;

	return n > 8 && head[8] == '{' && len >= 2 && len <= size - 8;
}

/* Bytes of one element; 0: unknown type. */
static uint64_t dtype_bytes(const char *dtype)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} type[] = {
		{ "BOOL", 1 }, { "U8", 1 },  { "I8", 1 },  { "F8_E5M2", 1 }, { "F8_E4M3", 1 },
		{ "I16", 2 },  { "U16", 2 }, { "F16", 2 }, { "BF16", 2 },    { "I32", 4 },
		{ "U32", 4 },  { "F32", 4 }, { "I64", 8 }, { "U64", 8 },     { "F64", 8 },
	};

	for (size_t i = 0; i < sizeof type / sizeof *type; i++)
		if (!strcmp(dtype, type[i].name))
			return type[i].bytes;
	return 0;
}

/* Fill t from its JSON; begin and end still count from the start of the data. */
static const char *parse_tensor(struct safetensors_tensor *t, const cJSON *v)
{
	const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(v, "dtype");
	const cJSON *shape = cJSON_GetObjectItemCaseSensitive(v, "shape"), *dim;
	const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(v, "data_offsets");
	uint64_t want;
	int64_t begin, end;

	*t = (struct safetensors_tensor){ .name = v->string };
	if (!cJSON_IsString(dtype))
		return "no 'dtype'";
	t->dtype = dtype->valuestring;
	if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) > SAFETENSORS_MAX_DIM)
		return "'shape' is no array of at most 8 sizes";
	want = dtype_bytes(t->dtype);
	cJSON_ArrayForEach(dim, shape) {
		if (!json_int(dim, 0, JSON_INT_MAX, &t->dim[t->n_dim]) ||
		    __builtin_mul_overflow(want, (uint64_t)t->dim[t->n_dim], &want))
			return "a size in 'shape' is out of range";
		t->n_dim++;
	}
	if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
	    !json_int(cJSON_GetArrayItem(offsets, 0), 0, JSON_INT_MAX, &begin) ||
	    !json_int(cJSON_GetArrayItem(offsets, 1), begin, JSON_INT_MAX, &end))
		return "'data_offsets' is no pair of ascending offsets";
	if (dtype_bytes(t->dtype) && want != (uint64_t)(end - begin))
		return "'shape' and 'data_offsets' disagree";
	t->begin = (uint64_t)begin;
	t->end = (uint64_t)end;
	return NULL;
}

static int by_place(const void *pa, const void *pb)
{
	const struct safetensors_tensor *a = pa, *b = pb;
	int c = ORDER(a->begin, b->begin);

	if (!c)
		c = ORDER(a->end, b->end);
	return c ? c : strcmp(a->name, b->name);
}

static bool is_metadata(const cJSON *v)
{
	return !strcmp(v->string, "__metadata__");
}

static enum ar_status parse_metadata(const struct safetensors *s, struct ar_err *err)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(s->header, "__metadata__"), *v;

	if (meta && !cJSON_IsObject(meta))
		return ar_fail(err, AR_DATA, "%s: __metadata__ is no object", s->file.path);
	cJSON_ArrayForEach(v, meta)
		if (!cJSON_IsString(v))
			return ar_fail(err, AR_DATA, "%s: metadata '%.64s' is no string",
				       s->file.path, v->string);
	return AR_OK;
}

static enum ar_status parse_tensors(struct safetensors *s, uint64_t data, struct ar_err *err)
{
	uint64_t at = data;
	const cJSON *v;

	s->tensor = calloc((size_t)cJSON_GetArraySize(s->header) + 1, sizeof *s->tensor);
	if (!s->tensor)
		return ar_nomem(err);
	cJSON_ArrayForEach(v, s->header) {
		const char *wrong = is_metadata(v) ? NULL : parse_tensor(&s->tensor[s->n], v);

		if (wrong)
			return ar_fail(err, AR_DATA, "%s: tensor '%.64s': %s", s->file.path,
				       v->string, wrong);
		s->n += !is_metadata(v);
	}
	qsort(s->tensor, s->n, sizeof *s->tensor, by_place);
	for (size_t i = 0; i < s->n; i++) {
		struct safetensors_tensor *t = &s->tensor[i];

		t->begin += data;
		t->end += data;
		if (t->begin != at)
			return ar_fail(err, AR_DATA,
				       "%s: tensor '%.64s' begins at byte %" PRIu64
				       ", want %" PRIu64 ": tensors overlap or leave a gap",
				       s->file.path, t->name, t->begin, at);
		at = t->end;
	}
	if (at != s->file.size)
		return ar_fail(err, AR_DATA,
			       "%s: tensors end at byte %" PRIu64 " but the file at %" PRIu64
			       "; the file is truncated or has trailing data",
			       s->file.path, at, s->file.size);
	return AR_OK;
}

/* Parse the JSON value; only blanks may follow it. */
static cJSON *parse_json(const char *text, size_t n)
{
	const char *end = NULL;
	cJSON *v = json_parse(text, n, &end);

	while (v && end < text + n && *end == ' ')
		end++;
	if (v && end == text + n && cJSON_IsObject(v))
		return v;
	cJSON_Delete(v);
	return NULL;
}

static enum ar_status read_header(struct safetensors *s, struct ar_err *err)
{
	unsigned char head[8];
	uint64_t len;
	char *text;
	enum ar_status st = infile_read(&s->file, 0, head, sizeof head, err);

	if (st)
		return st;
	len = load_u64(head);
	if (len > HEADER_MAX || len > s->file.size - sizeof head)
		return ar_fail(err, AR_DATA,
			       "%s: header of %" PRIu64 " bytes does not fit; the "
			       "file is truncated or no safetensors",
			       s->file.path, len);
	text = malloc((size_t)len + 1);
	if (!text)
		return ar_nomem(err);
	st = infile_read(&s->file, sizeof head, text, (size_t)len, err);
	if (!st) {
		s->header = parse_json(text, (size_t)len);
		if (!s->header)
			st = json_nomem() ? ar_nomem(err) :
					    ar_fail(err, AR_DATA, "%s: header is no JSON object",
						    s->file.path);
	}
	free(text);
	if (!st)
		st = parse_metadata(s, err);
	return st ? st : parse_tensors(s, sizeof head + len, err);
}

enum ar_status safetensors_open(struct safetensors **out, const char *path, struct ar_err *err)
{
	struct safetensors *s = calloc(1, sizeof *s);
	enum ar_status st;

	*out = NULL;
	if (!s)
		return ar_nomem(err);
	st = infile_open(&s->file, path, err);
	if (!st)
		st = read_header(s, err);
	if (st)
		safetensors_close(s);
	else
		*out = s;
	return st;
}

void safetensors_close(struct safetensors *s)
{
	if (!s)
		return;
	infile_release(&s->file);
	cJSON_Delete(s->header);
	free(s->tensor);
	free(s);
}

size_t safetensors_count(const struct safetensors *s)
{
	return s->n;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors *s, size_t i)
{
	assert(i < s->n);
	return &s->tensor[i];
}

const char *safetensors_meta(const struct safetensors *s, const char *key)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(s->header, "__metadata__");

	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, key));
}

enum ar_status safetensors_read(const struct safetensors *s, const struct safetensors_tensor *t,
				uint64_t offset, void *buf, size_t n, struct ar_err *err)
{
	assert(offset <= t->end - t->begin && n <= t->end - t->begin - offset);
	return infile_read(&s->file, t->begin + offset, buf, n, err);
}

/* ---- writing ---- */

static bool add_tensor(cJSON *header, const struct safetensors_tensor *t, uint64_t *at)
{
	cJSON *v = cJSON_AddObjectToObject(header, t->name), *shape, *offsets;
	double bytes = 2;
	bool done;

	if (!v || !cJSON_AddStringToObject(v, "dtype", "BF16"))
		return false;
	shape = cJSON_AddArrayToObject(v, "shape");
	offsets = cJSON_AddArrayToObject(v, "data_offsets");
	done = shape && offsets;
	for (int i = 0; done && i < t->n_dim; i++) {
		done = cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)t->dim[i]));
		bytes *= (double)t->dim[i];
	}
	done = done && cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)*at));
	*at += (uint64_t)bytes;
	return done && cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)*at));
}

/* Make the text of the header, padded with blanks so that the data begin at a multiple of 8. */
static char *header_text(const struct safetensors_tensor *t, size_t n, const char *const *meta)
{
	cJSON *header = cJSON_CreateObject();
	cJSON *m = cJSON_AddObjectToObject(header, "__metadata__");
	char *text = NULL, *padded = NULL;
	bool done = m;
	uint64_t at = 0;

	for (; done && meta[0]; meta += 2)
		done = !meta[1] || json_add_string(m, meta[0], meta[1]);
	for (size_t i = 0; done && i < n; i++)
		done = add_tensor(header, &t[i], &at);
	if (done)
		text = cJSON_PrintUnformatted(header);
	if (text) {
		size_t len = strlen(text), full = (len + 7) / 8 * 8;

		padded = malloc(full + 1);
		if (padded) {
			memcpy(padded, text, len);
			memset(padded + len, ' ', full - len);
			padded[full] = 0;
		}
	}
	cJSON_free(text);
	cJSON_Delete(header);
	return padded;
}

enum ar_status safetensors_write_header(struct outfile *f, const struct safetensors_tensor *t,
					size_t n, const char *const *meta, struct ar_err *err)
{
	char *text = header_text(t, n, meta);
	unsigned char head[8];
	size_t len;
	enum ar_status st;

	if (!text)
		return ar_nomem(err);
	len = strlen(text);
	for (int i = 0; i < 8; i++)
		head[i] = (unsigned char)(len >> 8 * i);
	st = outfile_write(f, head, sizeof head, err);
	if (!st)
		st = outfile_write(f, text, len, err);
	free(text);
	return st;
}
