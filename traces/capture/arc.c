/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/capture/arc.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/binfile.h"
#include "base/grow.h"
#include "base/json.h"
#include "base/jsonval.h"
#include "model/rope.h"

enum {
	ARC_VERSION = 1,
	HEAD_BYTES = 16,
	INDEX_SUM = 8,
	INDEX_MAGIC = 40,
	FOOTER_BYTES = 48, /* offsets in the footer */
	HEADER_MAX = 1 << 20,
	FRAME_MAX = 1 << 28, /* bytes of a frame's values */
	FRAME_SUM = 4,	     /* bytes at the end of a frame: zstd's checksum of its values */
};

static const unsigned char magic[8] = { 0x89, 'A', 'R', 'C', '\r', '\n', 0x1a, '\n' };
static const unsigned char index_magic[8] = "ARCINDEX";

static const char tensor_letter[] = "qkv";

static void store_le(unsigned char *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (unsigned char)(v >> 8 * i);
}

static uint64_t load_le(const unsigned char *p, int bytes)
{
	uint64_t v = 0;

	while (bytes--)
		v = v << 8 | p[bytes];
	return v;
}

bool arc_sniff(const unsigned char *head, size_t n)
{
	return n >= sizeof magic && !memcmp(head, magic, sizeof magic);
}

static int64_t range_count(const struct capture_info *info)
{
	return (info->n_tok + info->frame_tok - 1) / info->frame_tok;
}

static int64_t frame_count(const struct capture_info *info)
{
	return range_count(info) * info->n_layers * 3;
}

/* Number of values of one token in tensor t. */
static size_t token_values(const struct capture_info *info, enum capture_tensor t)
{
	return (size_t)(t == CAPTURE_Q ? info->q_heads : info->kv_heads) * (size_t)info->head_dim;
}

static bool frame_fits(const struct capture_info *info)
{
	return info->frame_tok <= (int64_t)(FRAME_MAX / 2 / token_values(info, CAPTURE_Q));
}

/* SHA-256 of the bytes of header and index in the file. */
static void checksum(const void *head, size_t n_head, const void *index, size_t n_index,
		     unsigned char sum[SHA256_DIGEST_LENGTH])
{
	SHA2_CTX ctx;

	SHA256Init(&ctx);
	SHA256Update(&ctx, head, n_head);
	SHA256Update(&ctx, index, n_index);
	SHA256Final(sum, &ctx);
}

/* ---- reading ---- */

/* The memory in which one thread decodes frames. */
struct unpacker {
	struct unpacker *next;
	ZSTD_DCtx *zstd;
	unsigned char *src, *raw; /* one frame, packed and unpacked */
	size_t src_size, raw_size;
};

struct arc {
	struct infile file;
	const struct capture_info *info;
	uint64_t *end;	      /* [frames + 1] frame k has the file bytes end[k] .. end[k + 1] */
	pthread_mutex_t lock; /* over idle */
	struct unpacker *idle;
};

static enum ar_status parse_layers(struct capture_info *info, const cJSON *layers, const char *path,
				   struct ar_err *err)
{
	int64_t last = -1;
	const cJSON *v;

	if (!cJSON_IsArray(layers) || !cJSON_GetArraySize(layers))
		return ar_fail(err, AR_DATA, "%s: header: no 'layers'", path);
	info->layer = calloc((size_t)cJSON_GetArraySize(layers), sizeof *info->layer);
	if (!info->layer)
		return ar_nomem(err);
	cJSON_ArrayForEach(v, layers) {
		if (!json_int(v, last + 1, CAPTURE_MAX_LAYER, &last))
			return ar_fail(err, AR_DATA,
				       "%s: header: 'layers' are no ascending layer "
				       "numbers",
				       path);
		info->layer[info->n_layers++] = (int)last;
	}
	return AR_OK;
}

static enum ar_status parse_ints(struct arc *a, struct capture_info *info, const cJSON *o,
				 struct ar_err *err)
{
	int64_t q_heads = 1, kv_heads = 1, head_dim = 1;
	const struct {
		const char *key;
		int64_t min, max, *to;
	} ints[] = {
		{ "q_heads", 1, CAPTURE_MAX_HEADS, &q_heads },
		{ "kv_heads", 1, CAPTURE_MAX_HEADS, &kv_heads },
		{ "head_dim", 1, CAPTURE_MAX_DIM, &head_dim },
		{ "n_tok", 1, CAPTURE_MAX_TOK, &info->n_tok },
		{ "n_prompt", 0, CAPTURE_MAX_TOK, &info->n_prompt },
		{ "frame_tok", 1, CAPTURE_MAX_TOK, &info->frame_tok },
	};

	for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
		if (!json_int(cJSON_GetObjectItemCaseSensitive(o, ints[i].key), ints[i].min,
			      ints[i].max, ints[i].to))
			return ar_fail(err, AR_DATA,
				       "%s: header: want an integer from %" PRId64 " to %" PRId64
				       " as '%s'",
				       a->file.path, ints[i].min, ints[i].max, ints[i].key);
	info->q_heads = (int)q_heads;
	info->kv_heads = (int)kv_heads;
	info->head_dim = (int)head_dim;
	if (!frame_fits(info))
		return ar_fail(err, AR_DATA,
			       "%s: header: a frame of %" PRId64 " tokens is too large",
			       a->file.path, info->frame_tok);
	return AR_OK;
}

static enum ar_status parse_header(struct arc *a, struct capture_info *info, const cJSON *o,
				   struct ar_err *err)
{
	const char *path = a->file.path;
	const cJSON *model = cJSON_GetObjectItemCaseSensitive(o, "model");
	const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(o, "dtype");
	const cJSON *applied = cJSON_GetObjectItemCaseSensitive(o, "rope_applied");
	const cJSON *theta = cJSON_GetObjectItemCaseSensitive(o, "rope_theta");
	double x = 0;
	enum ar_status st;

	if (!cJSON_IsString(dtype) || strcmp(dtype->valuestring, "bf16") != 0)
		return ar_fail(err, AR_DATA, "%s: header: want 'dtype' bf16", path);
	if (!cJSON_IsString(model) || !cJSON_IsBool(applied))
		return ar_fail(err, AR_DATA, "%s: header: no 'model' or no 'rope_applied'", path);
	if (theta && !json_real(theta, 1, 1e12, &x))
		return ar_fail(err, AR_DATA, "%s: header: 'rope_theta' is out of range", path);
	info->rope_applied = cJSON_IsTrue(applied);
	st = rope_parse(&info->rope, x, cJSON_GetObjectItemCaseSensitive(o, "rope_scaling"), path,
			err);
	if (!st)
		st = parse_ints(a, info, o, err);
	if (!st)
		st = parse_layers(info, cJSON_GetObjectItemCaseSensitive(o, "layers"), path, err);
	if (st)
		return st;
	info->model = strdup(model->valuestring);
	return info->model ? AR_OK : ar_nomem(err);
}

/* hex: gets the checksum. */
static enum ar_status read_index(struct arc *a, const unsigned char *head, size_t n_head,
				 char hex[65], struct ar_err *err)
{
	const char *path = a->file.path;
	uint64_t n = (uint64_t)frame_count(a->info), at;
	unsigned char foot[FOOTER_BYTES], sum[SHA256_DIGEST_LENGTH], *index = NULL;
	enum ar_status st;

	if (a->file.size < n_head + FOOTER_BYTES || (a->file.size - n_head - FOOTER_BYTES) / 8 < n)
		return ar_fail(err, AR_DATA,
			       "%s: truncated: no room for %" PRIu64 " frames; copy "
			       "or pack the capture again",
			       path, n);
	st = infile_read(&a->file, a->file.size - FOOTER_BYTES, foot, FOOTER_BYTES, err);
	if (st)
		return st;
	at = load_le(foot, 8);
	if (memcmp(foot + INDEX_MAGIC, index_magic, sizeof index_magic) != 0 ||
	    at != a->file.size - FOOTER_BYTES - 8 * n)
		return ar_fail(err, AR_DATA,
			       "%s: truncated or damaged: no index at the end; "
			       "copy or pack the capture again",
			       path);
	index = malloc((size_t)n * 8 + 8);
	a->end = calloc((size_t)n + 1, sizeof *a->end);
	if (!index || !a->end) {
		st = ar_nomem(err);
		goto out;
	}
	st = infile_read(&a->file, at, index, (size_t)n * 8 + 8, err);
	if (st)
		goto out;
	checksum(head, n_head, index, (size_t)n * 8 + 8, sum);
	if (memcmp(sum, foot + INDEX_SUM, sizeof sum) != 0) {
		st = ar_fail(err, AR_DATA, "%s: damaged: wrong checksum of header and index", path);
		goto out;
	}
	for (size_t i = 0; i < sizeof sum; i++)
		snprintf(hex + 2 * i, 3, "%02x", sum[i]);
	a->end[0] = n_head;
	for (uint64_t k = 0; k < n && !st; k++) {
		a->end[k + 1] = load_le(index + 8 * k, 8);
		if (a->end[k + 1] <= a->end[k] || a->end[k + 1] > at)
			st = ar_fail(err, AR_DATA, "%s: frame %" PRIu64 " ends out of place", path,
				     k);
	}
	if (!st && a->end[n] != at)
		st = ar_fail(err, AR_DATA, "%s: frames do not fill the file up to the index", path);
out:
	free(index);
	return st;
}

static enum ar_status read_head(struct arc *a, struct capture_info *info, struct ar_err *err)
{
	unsigned char fixed[HEAD_BYTES], *head = NULL;
	cJSON *o = NULL;
	size_t len;
	enum ar_status st = infile_read(&a->file, 0, fixed, sizeof fixed, err);

	if (st)
		return st;
	if (!arc_sniff(fixed, sizeof fixed) || load_le(fixed + 8, 4) != ARC_VERSION)
		return ar_fail(err, AR_DATA,
			       "%s: want an .arc file of version %d, this has %" PRIu64,
			       a->file.path, ARC_VERSION, load_le(fixed + 8, 4));
	len = (size_t)load_le(fixed + 12, 4);
	if (len > HEADER_MAX)
		return ar_fail(err, AR_DATA, "%s: header of %zu bytes is too large", a->file.path,
			       len);
	head = malloc(HEAD_BYTES + len);
	if (!head)
		return ar_nomem(err);
	st = infile_read(&a->file, 0, head, HEAD_BYTES + len, err);
	if (!st) {
		o = json_parse((const char *)head + HEAD_BYTES, len, NULL);
		st = !o && json_nomem() ?
			     ar_nomem(err) :
		     cJSON_IsObject(o) ?
			     parse_header(a, info, o, err) :
			     ar_fail(err, AR_DATA, "%s: header is no JSON object", a->file.path);
	}
	if (!st)
		st = read_index(a, head, HEAD_BYTES + len, info->sha256, err);
	cJSON_Delete(o);
	free(head);
	return st;
}

/* A frame ends with the checksum of its values. */
enum ar_status arc_sum(const struct arc *a, char hex[65], struct ar_err *err)
{
	enum ar_status st = AR_OK;
	unsigned char tail[FRAME_SUM] = { 0 };
	SHA2_CTX ctx;

	SHA256Init(&ctx);
	SHA256Update(&ctx, (const uint8_t *)a->info->sha256, strlen(a->info->sha256));
	for (int64_t k = 0; k < frame_count(a->info) && !st; k++) {
		st = infile_read(&a->file, a->end[k + 1] - sizeof tail, tail, sizeof tail, err);
		SHA256Update(&ctx, tail, sizeof tail);
	}
	SHA256End(&ctx, hex);
	return st;
}

enum ar_status arc_open(struct arc **out, const char *path, struct capture_info *info,
			struct ar_err *err)
{
	struct arc *a = calloc(1, sizeof *a);
	enum ar_status st;

	*out = NULL;
	if (!a)
		return ar_nomem(err);
	pthread_mutex_init(&a->lock, NULL);
	a->info = info;
	st = infile_open(&a->file, path, err);
	info->file_bytes = a->file.size;
	if (!st)
		st = read_head(a, info, err);
	if (st)
		arc_close(a);
	else
		*out = a;
	return st;
}

static void unpacker_free(struct unpacker *d)
{
	ZSTD_freeDCtx(d->zstd);
	free(d->src);
	free(d->raw);
	free(d);
}

void arc_close(struct arc *a)
{
	struct unpacker *next;

	if (!a)
		return;
	for (struct unpacker *d = a->idle; d; d = next) {
		next = d->next;
		unpacker_free(d);
	}
	pthread_mutex_destroy(&a->lock);
	infile_release(&a->file);
	free(a->end);
	free(a);
}

/* An idle one, or a new one.  NULL: no memory. */
static struct unpacker *unpacker_take(struct arc *a)
{
	struct unpacker *d;

	pthread_mutex_lock(&a->lock);
	d = a->idle;
	if (d)
		a->idle = d->next;
	pthread_mutex_unlock(&a->lock);
	if (d)
		return d;
	d = calloc(1, sizeof *d);
	if (d && !(d->zstd = ZSTD_createDCtx())) {
		free(d);
		d = NULL;
	}
	return d;
}

static void unpacker_return(struct arc *a, struct unpacker *d)
{
	pthread_mutex_lock(&a->lock);
	d->next = a->idle;
	a->idle = d;
	pthread_mutex_unlock(&a->lock);
}

/* Decode src[0..n) into raw.  Return NULL, or a message when src is not one frame of exactly
 * bytes bytes.  The tested bit of the frame header says that a checksum follows. */
static const char *decode_frame(struct unpacker *d, size_t n, size_t bytes)
{
	size_t got;

	if (ZSTD_getFrameContentSize(d->src, n) != bytes ||
	    ZSTD_findFrameCompressedSize(d->src, n) != n)
		return "its size is not that of the range";
	if (!(d->src[4] & 4))
		return "it has no checksum";
	got = ZSTD_decompressDCtx(d->zstd, d->raw, bytes, d->src, n);
	if (ZSTD_isError(got))
		return ZSTD_getErrorName(got);
	return got == bytes ? NULL : "it is too short";
}

/* Load range f of tensor t of the i-th layer into d->raw: a frame of tok tokens. */
static enum ar_status load_frame(const struct arc *a, struct unpacker *d, int i,
				 enum capture_tensor t, int64_t f, int64_t tok, struct ar_err *err)
{
	size_t k = ((size_t)i * 3 + t) * (size_t)range_count(a->info) + (size_t)f;
	size_t n = (size_t)(a->end[k + 1] - a->end[k]);
	size_t bytes = token_values(a->info, t) * (size_t)tok * 2;
	const char *wrong;
	enum ar_status st;

	if (n > ZSTD_compressBound(bytes))
		return ar_fail(err, AR_DATA, "%s: frame %zu has %zu bytes, too many for its tokens",
			       a->file.path, k, n);
	if (!GROW(d->src, d->src_size, n) || !GROW(d->raw, d->raw_size, bytes))
		return ar_nomem(err);
	st = infile_read(&a->file, a->end[k], d->src, n, err);
	if (st)
		return st;
	wrong = decode_frame(d, n, bytes);
	if (wrong)
		return ar_fail(err, AR_DATA,
			       "%s: layer %d %c, tokens %" PRId64 " to %" PRId64
			       ": damaged frame: %s; pack the capture again",
			       a->file.path, a->info->layer[i], tensor_letter[t],
			       f * a->info->frame_tok, f * a->info->frame_tok + tok - 1, wrong);
	return AR_OK;
}

static enum ar_status read_frames(const struct arc *a, struct unpacker *d, int i,
				  enum capture_tensor t, int64_t tok0, int64_t n, bf16_t *out,
				  struct ar_err *err)
{
	const size_t dim = (size_t)a->info->head_dim, heads = token_values(a->info, t) / dim;
	int64_t next;

	for (int64_t at = tok0; at < tok0 + n; at = next) {
		int64_t f = at / a->info->frame_tok, f0 = f * a->info->frame_tok;
		int64_t left = a->info->n_tok - f0;
		int64_t tok = left < a->info->frame_tok ? left : a->info->frame_tok;
		enum ar_status st = load_frame(a, d, i, t, f, tok, err);
		const unsigned char *high, *low;

		if (st)
			return st;
		high = d->raw;
		low = high + heads * dim * (size_t)tok;
		next = f0 + tok < tok0 + n ? f0 + tok : tok0 + n;
		for (size_t h = 0; h < heads; h++) {
			size_t from = (h * (size_t)tok + (size_t)(at - f0)) * dim;
			bf16_t *to = out + (h * (size_t)n + (size_t)(at - tok0)) * dim;

			for (size_t k = 0; k < (size_t)(next - at) * dim; k++)
				to[k] = (bf16_t)(high[from + k] << 8 | low[from + k]);
		}
	}
	return AR_OK;
}

enum ar_status arc_read(struct arc *a, int i, enum capture_tensor t, int64_t tok0, int64_t n,
			bf16_t *out, struct ar_err *err)
{
	struct unpacker *d = unpacker_take(a);
	enum ar_status st;

	if (!d)
		return ar_nomem(err);
	st = read_frames(a, d, i, t, tok0, n, out, err);
	unpacker_return(a, d);
	return st;
}

/* ---- writing ---- */

struct arc_writer {
	struct outfile file;
	ZSTD_CCtx *zstd;
	unsigned char *head;
	size_t n_head;
	unsigned char *index; /* the index in file order, then the footer's first number */
	size_t n_frames, put;
	uint64_t at; /* bytes written */
	unsigned char *raw, *dst;
	size_t raw_size, dst_size;
};

static char *header_text(const struct capture_info *info)
{
	const struct {
		const char *key;
		int64_t v;
	} ints[] = {
		{ "q_heads", info->q_heads },	{ "kv_heads", info->kv_heads },
		{ "head_dim", info->head_dim }, { "n_tok", info->n_tok },
		{ "n_prompt", info->n_prompt }, { "frame_tok", info->frame_tok },
	};
	cJSON *o = cJSON_CreateObject();
	char *text = NULL;
	bool done = cJSON_AddStringToObject(o, "dtype", "bf16") &&
		    json_add_string(o, "model", info->model) &&
		    cJSON_AddBoolToObject(o, "rope_applied", info->rope_applied) &&
		    json_add(o, "layers", cJSON_CreateIntArray(info->layer, info->n_layers));

	for (size_t i = 0; done && i < sizeof ints / sizeof *ints; i++)
		done = cJSON_AddNumberToObject(o, ints[i].key, (double)ints[i].v);
	if (done && info->rope.theta > 0)
		done = cJSON_AddNumberToObject(o, "rope_theta", info->rope.theta);
	if (done && rope_is_scaled(&info->rope))
		done = json_add(o, "rope_scaling", rope_scaling_json(&info->rope));
	if (done)
		text = cJSON_PrintUnformatted(o);
	cJSON_Delete(o);
	return text;
}

static enum ar_status put_bytes(struct arc_writer *w, const void *p, size_t n, struct ar_err *err)
{
	w->at += n;
	return outfile_write(&w->file, p, n, err);
}

static enum ar_status put_head(struct arc_writer *w, const struct capture_info *info,
			       struct ar_err *err)
{
	char *text = header_text(info);
	size_t len = text ? strlen(text) : 0;
	enum ar_status st;

	w->n_head = HEAD_BYTES + len;
	w->head = malloc(w->n_head);
	if (!text || !w->head) {
		st = ar_nomem(err);
	} else if (len > HEADER_MAX) {
		st = ar_fail(err, AR_DATA, "%s: the model's name is too long", w->file.path);
	} else {
		memcpy(w->head, magic, sizeof magic);
		store_le(w->head + 8, ARC_VERSION, 4);
		store_le(w->head + 12, len, 4);
		memcpy(w->head + HEAD_BYTES, text, len);
		st = put_bytes(w, w->head, w->n_head, err);
	}
	cJSON_free(text);
	return st;
}

enum ar_status arc_create(struct arc_writer **out, const char *path,
			  const struct capture_info *info, int level, struct ar_err *err)
{
	struct arc_writer *w;
	enum ar_status st;

	*out = NULL;
	if (!frame_fits(info))
		return ar_fail(err, AR_USAGE,
			       "frames of %" PRId64 " tokens are too large; want at most %zu",
			       info->frame_tok, FRAME_MAX / 2 / token_values(info, CAPTURE_Q));
	w = calloc(1, sizeof *w);
	if (!w)
		return ar_nomem(err);
	w->n_frames = (size_t)frame_count(info);
	w->index = malloc(w->n_frames * 8 + 8);
	w->zstd = ZSTD_createCCtx();
	if (!w->index || !w->zstd ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_checksumFlag, 1)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, level)))
		st = ar_nomem(err);
	else
		st = outfile_open(&w->file, path, err);
	if (!st)
		st = put_head(w, info, err);
	if (st)
		arc_destroy(w);
	else
		*out = w;
	return st;
}

enum ar_status arc_put(struct arc_writer *w, const bf16_t *x, size_t n, struct ar_err *err)
{
	size_t bound = ZSTD_compressBound(n * 2), got;
	enum ar_status st;

	assert(w->put < w->n_frames);
	if (!GROW(w->raw, w->raw_size, n * 2) || !GROW(w->dst, w->dst_size, bound))
		return ar_nomem(err);
	for (size_t i = 0; i < n; i++) {
		w->raw[i] = (unsigned char)(x[i] >> 8);
		w->raw[n + i] = (unsigned char)x[i];
	}
	got = ZSTD_compress2(w->zstd, w->dst, bound, w->raw, n * 2);
	if (ZSTD_isError(got))
		return ar_nomem(err); /* the buffer is large enough: no other cause */
	st = put_bytes(w, w->dst, got, err);
	store_le(w->index + 8 * w->put++, w->at, 8);
	return st;
}

enum ar_status arc_finish(struct arc_writer *w, struct ar_err *err)
{
	size_t n = w->n_frames * 8 + 8;
	unsigned char rest[FOOTER_BYTES - 8];
	enum ar_status st;

	assert(w->put == w->n_frames);
	store_le(w->index + n - 8, w->at, 8);
	checksum(w->head, w->n_head, w->index, n, rest);
	memcpy(rest + SHA256_DIGEST_LENGTH, index_magic, sizeof index_magic);
	st = put_bytes(w, w->index, n, err);
	if (!st)
		st = put_bytes(w, rest, sizeof rest, err);
	return st ? st : outfile_commit(&w->file, err);
}

void arc_destroy(struct arc_writer *w)
{
	if (!w)
		return;
	outfile_release(&w->file);
	ZSTD_freeCCtx(w->zstd);
	free(w->head);
	free(w->index);
	free(w->raw);
	free(w->dst);
	free(w);
}
