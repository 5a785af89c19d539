/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/importers/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sha2.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/grow.h"

#include "base/data.h"
#include "base/grow.h"

enum {
	RAW_BYTES = 1 << 17,
	LINE_MAX_BYTES = 64 << 20,
	HEAD_BYTES = 64,
	WAIT_MS = 100, /* for input, before the next look for an interrupt */
};

/* Bytes go from fd into raw and from raw into text, through zstd or gzip if compressed.  Lines are
 * handed out of text. */
struct reader {
	const char *path;
	int fd;
	SHA2_CTX sha;
	unsigned char raw[RAW_BYTES];
	size_t raw_pos, raw_len;
	bool raw_end;	    /* fd is at its end */
	ZSTD_DStream *zstd; /* NULL: not by zstd */
	z_stream gzip;	    /* state NULL: not by gzip */
	bool in_frame;	    /* ... or in a member of gzip */
	char *text;
	size_t pos;	 /* first byte that was not handed out */
	size_t scan;	 /* no line end in [pos, scan) */
	size_t len, cap; /* len < cap: there is room for a NUL */
	bool text_end;	 /* text holds the rest of the file */
	uint64_t line;
	size_t most; /* bytes of a line */
};

enum ar_status reader_rest(struct reader *r, const char *first, char **text, struct ar_err *err)
{
	enum { MOST_BYTES = 64 << 20 };
	size_t len = strlen(first), n, cap = len + 1;
	enum ar_status st;
	char *line;

	*text = strdup(first);
	if (!*text)
		return ar_nomem(err);
	while (!(st = reader_next(r, &line, &n, err)) && line) {
		if (len + n > MOST_BYTES)
			st = ar_fail(err, AR_DATA,
				     "a value of more than 64 MiB; write one on each "
				     "line");
		else if (!GROW(*text, cap, len + n + 2))
			st = ar_nomem(err);
		if (st)
			break;
		(*text)[len++] = '\n';
		strcpy(*text + len, line);
		len += n;
	}
	if (st) {
		free(*text);
		*text = NULL;
	}
	return st;
}

void reader_limit(struct reader *r, size_t bytes)
{
	r->most = bytes < LINE_MAX_BYTES ? bytes : LINE_MAX_BYTES;
}

size_t reader_memory(int64_t limit)
{
	if (limit)
		return (size_t)limit;
	return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) / 2;
}

const char *reader_path(const struct reader *r)
{
	return r->path;
}

uint64_t reader_line(const struct reader *r)
{
	return r->line;
}

void reader_sha256(struct reader *r, char hex[65])
{
	SHA256End(&r->sha, hex);
}

/* Fail with the file and line that is being read. */
static enum ar_status fail_line(const struct reader *r, const char *what, struct ar_err *err)
{
	return ar_fail(err, AR_DATA, "%s:%" PRIu64 ": %s", r->path, r->line + 1, what);
}

static enum ar_status read_raw(struct reader *r, struct ar_err *err)
{
	struct pollfd input = { .fd = r->fd, .events = POLLIN };
	ssize_t k = -1;

	if (r->raw_pos == r->raw_len)
		r->raw_pos = r->raw_len = 0;
	do {
		if (ar_interrupted())
			return ar_fail(err, AR_INTERRUPTED, "interrupted");
		errno = EAGAIN;
		if (poll(&input, 1, WAIT_MS) > 0)
			k = read(r->fd, r->raw + r->raw_len, sizeof r->raw - r->raw_len);
	} while (k < 0 && (errno == EINTR || errno == EAGAIN));
	if (k < 0)
		return ar_fail(err, AR_DATA, "%s: %s", r->path, strerror(errno));
	SHA256Update(&r->sha, r->raw + r->raw_len, (size_t)k);
	r->raw_len += (size_t)k;
	r->raw_end = !k;
	return AR_OK;
}

/* Make room in text for RAW_BYTES more and a NUL. */
static enum ar_status make_room(struct reader *r, struct ar_err *err)
{
	if (r->pos) {
		memmove(r->text, r->text + r->pos, r->len - r->pos);
		r->len -= r->pos;
		r->scan -= r->pos;
		r->pos = 0;
	}
	return GROW(r->text, r->cap, r->len + RAW_BYTES + 1) ? AR_OK : ar_nomem(err);
}

static enum ar_status fail_damaged(const struct reader *r, const char *kind, const char *why,
				   struct ar_err *err)
{
	char what[160];

	snprintf(what, sizeof what, "damaged %s data: %s", kind, why);
	return fail_line(r, what, err);
}

/* Decompress raw[*pos..) into at most room bytes at out; *n: bytes written. */
static enum ar_status from_zstd(struct reader *r, size_t *pos, char *out, size_t room, size_t *n,
				struct ar_err *err)
{
	ZSTD_inBuffer in = { r->raw, r->raw_len, *pos };
	ZSTD_outBuffer to = { out, room, 0 };
	size_t k = ZSTD_decompressStream(r->zstd, &to, &in);

	if (ZSTD_getErrorCode(k) == ZSTD_error_memory_allocation)
		return ar_nomem(err);
	if (ZSTD_isError(k))
		return fail_damaged(r, "zstd", ZSTD_getErrorName(k), err);
	r->in_frame = k != 0;
	*pos = in.pos;
	*n = to.pos;
	return AR_OK;
}

/* The same for gzip, whose members may follow each other. */
static enum ar_status from_gzip(struct reader *r, size_t *pos, char *out, size_t room, size_t *n,
				struct ar_err *err)
{
	z_stream *z = &r->gzip;
	int rc;

	z->next_in = r->raw + *pos;
	z->avail_in = (uInt)(r->raw_len - *pos);
	z->next_out = (unsigned char *)out;
	z->avail_out = room < UINT_MAX ? (uInt)room : UINT_MAX;
	if (!r->in_frame)
		inflateReset(z);
	rc = inflate(z, Z_NO_FLUSH);
	if (rc == Z_MEM_ERROR)
		return ar_nomem(err);
	if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
		return fail_damaged(r, "gzip", z->msg ? z->msg : zError(rc), err);
	r->in_frame = rc != Z_STREAM_END;
	*pos = r->raw_len - z->avail_in;
	*n = (size_t)((char *)z->next_out - out);
	return AR_OK;
}

static enum ar_status decompress(struct reader *r, struct ar_err *err)
{
	char *out = r->text + r->len;
	size_t pos = r->raw_pos, room = r->cap - r->len - 1, n = 0;
	enum ar_status st;

	if (pos == r->raw_len && !r->in_frame) {
		r->text_end = r->raw_end;
		return AR_OK;
	}
	st = r->zstd ? from_zstd(r, &pos, out, room, &n, err) :
		       from_gzip(r, &pos, out, room, &n, err);
	if (!st && r->raw_end && pos == r->raw_pos && !n)
		st = fail_line(r,
			       r->zstd ? "the zstd data end inside a frame; the file is truncated" :
					 "the gzip data end inside a member; the file is truncated",
			       err);
	r->raw_pos = pos;
	r->len += n;
	return st;
}

/* Append the next bytes of the file to text, or set text_end. */
static enum ar_status more_text(struct reader *r, struct ar_err *err)
{
	enum ar_status st = make_room(r, err);
	size_t k;

	if (!st && r->raw_pos == r->raw_len && !r->raw_end)
		st = read_raw(r, err);
	if (st)
		return st;
	if (r->zstd || r->gzip.state)
		return decompress(r, err);
	k = r->raw_len - r->raw_pos;
	if (k)
		memcpy(r->text + r->len, r->raw + r->raw_pos, k);
	r->len += k;
	r->raw_pos = r->raw_len;
	r->text_end = r->raw_end;
	return AR_OK;
}

static bool is_zstd(const unsigned char *s, size_t n)
{
	return n >= 4 && ((s[0] == 0x28 && s[1] == 0xb5 && s[2] == 0x2f && s[3] == 0xfd) ||
			  (s[0] >> 4 == 5 && s[1] == 0x2a && s[2] == 0x4d && s[3] == 0x18));
}

static bool is_gzip(const unsigned char *s, size_t n)
{
	return n >= 2 && s[0] == 0x1f && s[1] == 0x8b;
}

/* First bytes of files that people mistake for traces. */
static const struct magic {
	const char *bytes;
	size_t n;
	const char *what;
} magics[] = {
	{ "PK\3\4", 4, "a zip archive; unpack it first" },
	{ "PAR1", 4, "a Parquet file; export it as CSV or JSON lines" },
	{ "ARROW1", 6, "an Arrow file; export it as CSV or JSON lines" },
	{ "\xff\xfe", 2, "UTF-16 text; convert it to UTF-8" },
	{ "\xfe\xff", 2, "UTF-16 text; convert it to UTF-8" },
	{ "version https://git-lfs.github.com/spec/", 40,
	  "a Git LFS pointer, not the data; fetch the file itself" },
	{ "<", 1, "HTML or XML, perhaps an error page; download the file again" },
};

/* Refuse files that are not text, and skip a byte order mark. */
static enum ar_status check_head(struct reader *r, struct ar_err *err)
{
	const char *s = r->text, *word;
	size_t blank = 0;

	if (r->len >= 3 && !memcmp(s, "\xef\xbb\xbf", 3))
		r->pos = r->scan = 3;
	word = s + r->pos;
	while (r->pos + blank < r->len && strchr(" \t\r\n", word[blank]) && word[blank])
		blank++;
	for (size_t i = 0; i < sizeof magics / sizeof *magics; i++) {
		const struct magic *m = &magics[i];
		size_t skip = m->n == 1 ? r->pos + blank : 0;

		if (r->len - skip >= m->n && !memcmp(s + skip, m->bytes, m->n))
			return ar_fail(err, AR_DATA, "%s: this is %s", r->path, m->what);
	}
	return AR_OK;
}

/* zlib's memory comes from malloc, as all memory does. */
static void *gzip_alloc(void *self, unsigned n, unsigned size)
{
	(void)self;
	return calloc(n, size);
}

static void gzip_free(void *self, void *p)
{
	(void)self;
	free(p);
}

static bool gzip_begin(z_stream *z)
{
	enum { GZIP_ONLY = 16 };

	z->zalloc = gzip_alloc;
	z->zfree = gzip_free;
	return inflateInit2(z, GZIP_ONLY + MAX_WBITS) == Z_OK;
}

static enum ar_status start_reader(struct reader *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	while (!st && r->raw_len < 4 && !r->raw_end)
		st = read_raw(r, err);
	if (st)
		return st;
	if (is_zstd(r->raw, r->raw_len)) {
		r->zstd = ZSTD_createDStream();
		if (!r->zstd)
			return ar_nomem(err);
	} else if (is_gzip(r->raw, r->raw_len) && !gzip_begin(&r->gzip)) {
		return ar_nomem(err);
	}
	while (!st && r->len < HEAD_BYTES && !r->text_end)
		st = more_text(r, err);
	return st ? st : check_head(r, err);
}

enum ar_status reader_open(struct reader **out, const char *path, struct ar_err *err)
{
	struct reader *r = calloc(1, sizeof *r);
	enum ar_status st;

	*out = NULL;
	if (!r)
		return ar_nomem(err);
	SHA256Init(&r->sha);
	r->most = LINE_MAX_BYTES;
	if (!strcmp(path, "-")) {
		r->path = "<stdin>";
		r->fd = STDIN_FILENO;
	} else {
		r->path = path;
		r->fd = data_open(path, O_NONBLOCK); /* do not wait for a pipe's writer here */
	}
	if (r->fd < 0)
		st = ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
	else
		st = start_reader(r, err);
	if (st) {
		reader_close(r);
		return st;
	}
	*out = r;
	return AR_OK;
}

void reader_close(struct reader *r)
{
	if (!r)
		return;
	if (r->fd > STDIN_FILENO)
		close(r->fd);
	ZSTD_freeDStream(r->zstd);
	inflateEnd(&r->gzip);
	free(r->text);
	free(r);
}

/* Find the end of the line at pos; the end of the text counts. */
static enum ar_status find_end(struct reader *r, size_t *end, struct ar_err *err)
{
	for (;;) {
		size_t n = r->len - r->scan;
		char *nl = n ? memchr(r->text + r->scan, '\n', n) : NULL;
		enum ar_status st;

		if (nl || r->text_end) {
			*end = nl ? (size_t)(nl - r->text) : r->len;
			return AR_OK;
		}
		r->scan = r->len;
		if (r->len - r->pos > r->most)
			return fail_line(r,
					 r->most < LINE_MAX_BYTES ?
						 "line longer than --max-memory; raise it" :
						 "line longer than 64 MiB",
					 err);
		st = more_text(r, err);
		if (st)
			return st;
	}
}

enum ar_status reader_next(struct reader *r, char **s, size_t *n, struct ar_err *err)
{
	size_t end = 0;
	enum ar_status st = find_end(r, &end, err);
	char *text;

	*s = NULL;
	*n = 0;
	if (st || (end == r->len && r->pos == r->len))
		return st;
	text = r->text + r->pos;
	*n = (size_t)(r->text + end - text);
	r->pos = r->scan = end < r->len ? end + 1 : end;
	if (*n && text[*n - 1] == '\r')
		--*n;
	if (memchr(text, 0, *n))
		return fail_line(r, "a NUL byte; this is not text", err);
	if (memchr(text, '\r', *n))
		return fail_line(r, "a carriage return inside the line", err);
	text[*n] = 0;
	r->line++;
	*s = text;
	return AR_OK;
}
