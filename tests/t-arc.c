/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile .arc files: every checksum is correct, but the content is wrong. */
#include "config.h"

#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/log.h"
#include "tests/file.h"
#include "tests/tap.h"
#include "traces/capture/capture.h"

static char dir[] = "/tmp/t-arc-XXXXXX";
static char arc_path[64];

static struct capture *must_open(const char *path)
{
	struct ar_err err = { 0 };
	struct capture *c;

	if (capture_open(&c, path, &err))
		bail_out("%s", err.msg);
	return c;
}

struct arc_parts {
	const char *header;
	uint32_t version;
	const void *frames;
	size_t n_frames_bytes;
	const uint64_t *end; /* from the first frame's start */
	size_t n;
};

static size_t put_le(unsigned char *p, size_t at, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[at + (size_t)i] = (unsigned char)(v >> 8 * i);
	return at + (size_t)bytes;
}

static void write_arc(const struct arc_parts *a)
{
	static unsigned char p[1 << 16];
	size_t len = strlen(a->header), head = 16 + len, at, index;
	SHA2_CTX ctx;

	memcpy(p,
	       "\x89"
	       "ARC\r\n\x1a\n",
	       8);
	put_le(p, 8, a->version, 4);
	put_le(p, 12, len, 4);
	memcpy(p + 16, a->header, len);
	memcpy(p + head, a->frames, a->n_frames_bytes);
	index = at = head + a->n_frames_bytes;
	for (size_t i = 0; i < a->n; i++)
		at = put_le(p, at, head + a->end[i], 8);
	at = put_le(p, at, index, 8);
	SHA256Init(&ctx);
	SHA256Update(&ctx, p, head);
	SHA256Update(&ctx, p + index, at - index);
	SHA256Final(p + at, &ctx);
	memcpy(p + at + 32, "ARCINDEX", 8);
	file_write(arc_path, p, at + 40);
}

#define HEAD(q, kv, d, tok, prompt, frame, layers) \
	"{\"dtype\":\"bf16\",\"model\":\"m\",\"layers\":" layers ",\"q_heads\":" q \
	",\"kv_heads\":" kv ",\"head_dim\":" d ",\"n_tok\":" tok ",\"n_prompt\":" prompt \
	",\"frame_tok\":" frame ",\"rope_applied\":true}"
#define GOOD_HEAD HEAD("1", "1", "2", "1", "1", "1", "[0]")

static void test_hostile_headers(void)
{
	static const struct {
		const char *header, *wrong;
	} cases[] = {
		{ "[]", "no JSON object" },
		{ "{\"dtype\":\"bf16\"", "no JSON object" },
		{ "{}", "want 'dtype' bf16" },
		{ "{\"dtype\":\"f32\"}", "want 'dtype' bf16" },
		{ "{\"dtype\":\"bf16\"}", "no 'model'" },
		{ HEAD("1", "1", "2", "1e18", "1", "1", "[0]"), "as 'n_tok'" },
		{ HEAD("1", "1", "2", "2147483647", "1", "1", "[0]"),
		  "no room for 6442450941 frames" },
		{ HEAD("1", "1", "2", "-1", "1", "1", "[0]"), "as 'n_tok'" },
		{ HEAD("1", "1", "2", "0", "0", "1", "[0]"), "as 'n_tok'" },
		{ HEAD("1", "1", "2", "1.5", "1", "1", "[0]"), "as 'n_tok'" },
		{ HEAD("0", "1", "2", "1", "1", "1", "[0]"), "as 'q_heads'" },
		{ HEAD("99999", "1", "2", "1", "1", "1", "[0]"), "as 'q_heads'" },
		{ HEAD("1", "null", "2", "1", "1", "1", "[0]"), "as 'kv_heads'" },
		{ HEAD("1", "1", "\"2\"", "1", "1", "1", "[0]"), "as 'head_dim'" },
		{ HEAD("1", "1", "2", "1", "1", "0", "[0]"), "as 'frame_tok'" },
		{ HEAD("4096", "4096", "4096", "100", "1", "2147483647", "[0]"), "is too large" },
		{ HEAD("1", "1", "2", "1", "2", "1", "[0]"),
		  "prompt of 2 tokens in a sequence of 1" },
		{ HEAD("1", "2", "2", "1", "1", "1", "[0]"), "2 KV heads do not divide 1" },
		{ HEAD("1", "1", "3", "1", "1", "1", "[0]"), "head_dim 3 is odd" },
		{ HEAD("1", "1", "2", "1", "1", "1", "[]"), "no 'layers'" },
		{ HEAD("1", "1", "2", "1", "1", "1", "{}"), "no 'layers'" },
		{ HEAD("1", "1", "2", "1", "1", "1", "[0,0]"), "no ascending layer numbers" },
		{ HEAD("1", "1", "2", "1", "1", "1", "[-1]"), "no ascending layer numbers" },
		{ HEAD("1", "1", "2", "1", "1", "1", "[4095]"), "no ascending layer numbers" },
		{ HEAD("1", "1", "2", "1", "1", "1", "[0],\"rope_theta\":0"),
		  "'rope_theta' is out of range" },
		{ HEAD("1", "1", "2", "1", "1", "1", "[0],\"rope_scaling\":{\"type\":\"dynamic\"}"),
		  "unknown rope type 'dynamic'" },
		{ HEAD("1", "1", "2", "2", "1", "1", "[0]"), "no index at the end" },
	};
	const uint64_t end[] = { 10, 20, 30 };
	struct arc_parts a = { .version = 1,
			       .frames = "012345678901234567890123456789",
			       .n_frames_bytes = 30,
			       .end = end,
			       .n = 3 };
	struct ar_err err = { 0 };
	struct capture *c;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		a.header = cases[i].header;
		write_arc(&a);
		ok(capture_open(&c, arc_path, &err) == AR_DATA && !c &&
			   strstr(err.msg, cases[i].wrong),
		   "refused: %s (%s)", cases[i].wrong, err.msg + strlen(arc_path));
	}
	a.header = GOOD_HEAD;
	a.version = 2;
	write_arc(&a);
	ok(capture_open(&c, arc_path, &err) == AR_DATA && strstr(err.msg, "version 1, this has 2"),
	   "another version");
	file_write(arc_path,
		   "\x89"
		   "ARC\r\n\x1a\n\1\0\0\0\xff\xff\xff\xff",
		   16);
	ok(capture_open(&c, arc_path, &err) == AR_DATA && strstr(err.msg, "is too large"),
	   "a huge header");
}

static void test_hostile_index(void)
{
	static const uint64_t ends[][3] = {
		{ 10, 10, 30 },		{ 20, 10, 30 }, { 10, 20, 31 },
		{ 10, 20, UINT64_MAX }, { 10, 20, 29 }, { 0, 20, 30 },
	};
	struct arc_parts a = { .version = 1,
			       .header = GOOD_HEAD,
			       .frames = "012345678901234567890123456789",
			       .n_frames_bytes = 30,
			       .n = 3 };
	struct ar_err err = { 0 };
	struct capture *c;
	bf16_t x[2];
	int opened = 0;

	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		a.end = ends[i];
		write_arc(&a);
		opened += capture_open(&c, arc_path, &err) != AR_DATA;
	}
	is_int(opened, 0, "frames that overlap, leave the file or leave a gap");
	a.end = (const uint64_t[]){ 10, 20, 30 };
	write_arc(&a);
	c = must_open(arc_path);
	ok(capture_read(c, 0, CAPTURE_Q, 0, 1, x, &err) == AR_DATA &&
		   strstr(err.msg, "damaged frame"),
	   "a frame that is no zstd frame");
	capture_close(c);
}

static void test_hostile_frames(void)
{
	static unsigned char big[5000];
	unsigned char f[2][256];
	struct arc_parts a = { .version = 1, .header = GOOD_HEAD, .frames = f[0], .n = 3 };
	struct ar_err err = { 0 };
	struct capture *c;
	size_t n;
	bf16_t x[2];

	/* without a checksum */
	n = ZSTD_compress(f[0], sizeof f[0], "abcd", 4, 1);
	memcpy(f[0] + n, f[0], n);
	memcpy(f[0] + 2 * n, f[0], n);
	a.n_frames_bytes = 3 * n;
	a.end = (const uint64_t[]){ n, 2 * n, 3 * n };
	write_arc(&a);
	c = must_open(arc_path);
	ok(capture_read(c, 0, CAPTURE_Q, 0, 1, x, &err) == AR_DATA &&
		   strstr(err.msg, "no checksum"),
	   "a frame without a checksum");
	capture_close(c);
	/* of another size; two frames in the place of one; far more bytes than values */
	n = ZSTD_compress(f[0], sizeof f[0], "abcdef", 6, 1);
	a.n_frames_bytes = n + 2;
	a.end = (const uint64_t[]){ n, n + 1, n + 2 };
	write_arc(&a);
	c = must_open(arc_path);
	ok(capture_read(c, 0, CAPTURE_Q, 0, 1, x, &err) == AR_DATA &&
		   strstr(err.msg, "size is not that"),
	   "a frame of another size");
	capture_close(c);
	n = ZSTD_compress(f[0], sizeof f[0], "abcd", 4, 1);
	memcpy(f[0] + n, f[0], n);
	a.n_frames_bytes = 2 * n + 2;
	a.end = (const uint64_t[]){ 2 * n, 2 * n + 1, 2 * n + 2 };
	write_arc(&a);
	c = must_open(arc_path);
	ok(capture_read(c, 0, CAPTURE_Q, 0, 1, x, &err) == AR_DATA &&
		   strstr(err.msg, "size is not that"),
	   "two frames in the place of one");
	capture_close(c);
	a.frames = big;
	a.n_frames_bytes = 5000;
	a.end = (const uint64_t[]){ 4998, 4999, 5000 };
	write_arc(&a);
	c = must_open(arc_path);
	ok(capture_read(c, 0, CAPTURE_Q, 0, 1, x, &err) == AR_DATA &&
		   strstr(err.msg, "too many for"),
	   "more packed bytes than its values can have");
	capture_close(c);
}

int main(void)
{
	plan(0);
	log_level = LOG_ERROR;
	if (!mkdtemp(dir))
		bail_out("no temporary folder");
	snprintf(arc_path, sizeof arc_path, "%s/x.arc", dir);
	test_hostile_headers();
	test_hostile_index();
	test_hostile_frames();
	unlink(arc_path);
	rmdir(dir);
	return done_testing();
}
