/* SPDX-License-Identifier: Apache-2.0 */
/* Captures as safetensors: accepted and refused files. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/file.h"
#include "tests/tap.h"
#include "traces/capture/capture.h"

static char dir[] = "/tmp/t-safetensors-XXXXXX";
static char in_path[64];

/* A safetensors file of header and data bytes. */
static void write_st(const char *header, const void *data, size_t n)
{
	size_t len = strlen(header);
	unsigned char *p = calloc(1, 8 + len + n);

	for (int i = 0; i < 8; i++)
		p[i] = (unsigned char)(len >> 8 * i);
	memcpy(p + 8, header, len);
	if (n)
		memcpy(p + 8 + len, data, n);
	file_write(in_path, p, 8 + len + n);
	free(p);
}

/* One layer, 2 query heads, 1 KV head, 3 tokens, head size 2: 12 + 6 + 6 values. */
#define QKV \
	"\"layers.4.q\":{\"dtype\":\"BF16\",\"shape\":[2,3,2],\"data_offsets\":[0,24]}," \
	"\"layers.4.k\":{\"dtype\":\"BF16\",\"shape\":[1,3,2],\"data_offsets\":[24,36]}," \
	"\"layers.4.v\":{\"dtype\":\"BF16\",\"shape\":[1,3,2],\"data_offsets\":[36,48]}"
#define META(m) "{\"__metadata__\":{" m "}," QKV "}"

static void write_small(const char *header)
{
	bf16_t x[24];

	for (int i = 0; i < 24; i++)
		x[i] = (bf16_t)(100 + i);
	write_st(header, x, sizeof x);
}

/* ---- safetensors ---- */

static void test_worked(void)
{
	struct ar_err err = { 0 };
	struct capture *c;
	const struct capture_info *info;
	bf16_t x[8];

	write_small(META("\"model\":\"m\",\"n_prompt\":\"2\",\"rope_applied\":\"true\"") "  ");
	if (!ok(capture_open(&c, in_path, &err) == AR_OK, "a safetensors capture opens: %s",
		err.msg))
		return;
	info = capture_info(c);
	ok(!strcmp(info->name, "in.safetensors") && !strcmp(info->model, "m") &&
		   !strcmp(info->container, "safetensors") && info->n_layers == 1 &&
		   info->layer[0] == 4 && info->q_heads == 2 && info->kv_heads == 1 &&
		   info->head_dim == 2 && info->n_tok == 3 && info->n_prompt == 2 &&
		   info->rope_applied && info->rope.theta == 0 && !info->frame_tok,
	   "and says what it holds");
	ok(capture_read(c, 0, CAPTURE_Q, 1, 2, x, &err) == AR_OK &&
		   !memcmp(x, (bf16_t[]){ 102, 103, 104, 105, 108, 109, 110, 111 }, 16),
	   "tokens 1 and 2 of Q, heads outermost");
	ok(capture_read(c, 0, CAPTURE_V, 2, 1, x, &err) == AR_OK && x[0] == 122 && x[1] == 123,
	   "the last token of V");
	ok(capture_read(c, 0, CAPTURE_K, 3, 0, x, &err) == AR_OK, "no tokens is a range");
	ok(capture_read(c, 0, CAPTURE_K, 2, 2, x, &err) == AR_USAGE &&
		   capture_read(c, 0, CAPTURE_K, -1, 1, x, &err) == AR_USAGE,
	   "past the end is none");
	capture_close(c);
}

static void test_meta(void)
{
	static const struct {
		const char *header, *wrong;
	} cases[] = {
		{ META("\"rope_applied\":\"maybe\""), "rope_applied 'maybe': want true or false" },
		{ META("\"rope_applied\":\"false\""), "before RoPE but rope_theta is missing" },
		{ META("\"rope_applied\":true"), "metadata 'rope_applied' is no string" },
		{ META("\"n_prompt\":\"4\""), "prompt of 4 tokens in a sequence of 3" },
		{ META("\"n_prompt\":\"-1\""), "n_prompt '-1': want a count" },
		{ META("\"n_prompt\":\"99999999999999999999\""), "want a count" },
		{ META("\"rope_theta\":\"0\""), "rope_theta '0': want a number" },
		{ META("\"rope_theta\":\"x\""), "rope_theta 'x': want a number" },
		{ META("\"rope_scaling\":\"{\""), "rope_scaling is malformed JSON" },
		{ META("\"rope_scaling\":\"[]\""), "rope scaling is no object" },
		{ META("\"rope_scaling\":\"{}\""), "rope scaling has no 'rope_type'" },
		{ META("\"rope_scaling\":\"{\\\"rope_type\\\":\\\"dynamic\\\"}\""),
		  "unknown rope type 'dynamic'" },
		{ META("\"rope_applied\":\"true\",\"rope_theta\":\"10000\",\"rope_scaling\":"
		       "\"{\\\"rope_type\\\":\\\"default\\\","
		       "\\\"partial_rotary_factor\\\":0.01}\""),
		  "rotates 0 channels of a head of" },
		{ "{\"__metadata__\":[]," QKV "}", "__metadata__ is no object" },
	};
	struct ar_err err = { 0 };
	struct capture *c;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		write_small(cases[i].header);
		ok(capture_open(&c, in_path, &err) == AR_DATA && !c &&
			   strstr(err.msg, cases[i].wrong) &&
			   !strncmp(err.msg, in_path, strlen(in_path)),
		   "bad metadata: %s", cases[i].wrong);
	}
	write_small(META("\"rope\":\"applied\",\"prompt_tokens\":\"2\""));
	ok(capture_open(&c, in_path, &err) == AR_OK && capture_info(c)->rope_applied &&
		   capture_info(c)->n_prompt == 2,
	   "the other spelling of RoPE and prompt length");
	capture_close(c);
	write_small("{" QKV "}");
	ok(capture_open(&c, in_path, &err) == AR_OK && capture_info(c)->rope_applied &&
		   capture_info(c)->n_prompt == 3 && !*capture_info(c)->model,
	   "no metadata at all");
	capture_close(c);
	write_small(META("\"rope_applied\":\"false\",\"rope_theta\":\"500000.0\",\"rope_scaling\":"
			 "\"{\\\"rope_type\\\":\\\"llama3\\\",\\\"factor\\\":8,"
			 "\\\"low_freq_factor\\\":1,\\\"high_freq_factor\\\":4,"
			 "\\\"original_max_position_embeddings\\\":8192}\""));
	ok(capture_open(&c, in_path, &err) == AR_OK && !capture_info(c)->rope_applied &&
		   capture_info(c)->rope.theta == 500000 && capture_info(c)->rope.factor == 8 &&
		   capture_info(c)->rope.original_len == 8192,
	   "a capture before RoPE with llama3 scaling");
	capture_close(c);
}

#define T(name, dtype, shape, offsets) \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define Q4 T("layers.4.q", "BF16", "[2,3,2]", "[0,24]")
#define K4 T("layers.4.k", "BF16", "[1,3,2]", "[24,36]")
#define V4 T("layers.4.v", "BF16", "[1,3,2]", "[36,48]")

static void test_bad_safetensors(void)
{
	/* clang-format off */
	static const struct { const char *header, *wrong; } cases[] = {
		{ "{x", "no JSON object" },
		{ "{} x", "no JSON object" },
		{ "{" Q4 "," K4 "," T("layers.4.v", "BF16", "[1,3,2]", "[24,36]") "}",
		  "overlap or leave a gap" },
		{ "{" Q4 "," T("layers.4.k", "BF16", "[1,3,2]", "[22,34]") "," V4 "}",
		  "overlap or leave a gap" },
		{ "{" Q4 "," V4 "}", "overlap or leave a gap" },
		{ "{" Q4 "," K4 "}", "trailing data" },
		{ "{" Q4 "," K4 "," V4 "," T("w", "U8", "[1]", "[48,49]") "}", "truncated" },
		{ "{" T("layers.4.q", "BF16", "[2,3,2]", "[0,23]") "}",
		  "'shape' and 'data_offsets' disagree" },
		{ "{" T("layers.4.q", "BF16", "[2,3,2]", "[24,0]") "}",
		  "no pair of ascending offsets" },
		{ "{" T("layers.4.q", "BF16", "[2,3,2]", "[-24,0]") "}",
		  "no pair of ascending offsets" },
		{ "{" T("layers.4.q", "BF16", "[2,3,2]", "[0]") "}",
		  "no pair of ascending offsets" },
		{ "{" T("layers.4.q", "BF16", "[2,-3,2]", "[0,24]") "}",
		  "a size in 'shape' is out of range" },
		{ "{" T("layers.4.q", "BF16", "[2,1.5,2]", "[0,24]") "}",
		  "a size in 'shape' is out of range" },
		{ "{" T("layers.4.q", "BF16", "[1e300,3,2]", "[0,24]") "}",
		  "a size in 'shape' is out of range" },
		{ "{" T("layers.4.q", "BF16", "[4294967296,4294967296,4294967296]", "[0,0]") "}",
		  "a size in 'shape' is out of range" },
		{ "{" T("layers.4.q", "BF16", "{}", "[0,24]") "}", "'shape' is no array" },
		{ "{" T("layers.4.q", "BF16", "[1,1,1,1,1,1,1,1,1]", "[0,2]") "}",
		  "'shape' is no array of at most 8" },
		{ "{\"layers.4.q\":{}}", "no 'dtype'" },
		{ "{\"layers.4.q\":3}", "no 'dtype'" },
		{ "{" T("layers.4.q", "F32", "[2,3,1]", "[0,24]") "," K4 "," V4 "}",
		  "want BF16 [heads" },
		{ "{" T("layers.4.q", "BF16", "[2,6]", "[0,24]") "," K4 "," V4 "}",
		  "want BF16 [heads" },
		{ "{" Q4 "," K4 "," T("layers.4.w", "BF16", "[1,3,2]", "[36,48]") "}",
		  "layer 4 has no tensor v" },
		{ "{" Q4 "," K4 "," T("layers.5.v", "BF16", "[1,3,2]", "[36,48]") "}",
		  "layer 4 has no tensor v" },
		{ "{" Q4 "," K4 "," T("layers.04.k", "BF16", "[1,3,2]", "[36,48]") "}",
		  "layer 4 has two tensors k" },
		{ "{" Q4 "," K4 "," T("layers.4.v", "BF16", "[1,2,3]", "[36,48]") "}",
		  "want [1, 3, 2] like the others" },
		{ "{" T("layers.4.q", "BF16", "[2,2,3]", "[0,24]") "," K4 "," V4 "}",
		  "like the others" },
		{ "{" T("layers.4.q", "BF16", "[2,2,3]", "[0,24]") ","
		  T("layers.4.k", "BF16", "[1,2,3]", "[24,36]") ","
		  T("layers.4.v", "BF16", "[1,2,3]", "[36,48]") "}", "head_dim 3 is odd" },
		{ "{" T("layers.4.q", "BF16", "[1,6,2]", "[0,24]") ","
		  T("layers.4.k", "BF16", "[1,3,2]", "[24,36]") ","
		  V4 "}", "like the others" },
		{ "{" T("layers.4.q", "BF16", "[3,2,2]", "[0,24]") ","
		  T("layers.4.k", "BF16", "[2,2,2]", "[24,40]") ","
		  T("layers.4.v", "BF16", "[2,2,2]", "[40,56]") "}",
		  "2 KV heads do not divide 3 query heads" },
		{ "{" T("layers.4.q", "BF16", "[0,3,2]", "[0,0]") ","
		  T("layers.4.k", "BF16", "[6,2,2]", "[0,48]") ","
		  T("layers.4.v", "BF16", "[0,3,2]", "[0,0]") "}", "a size is out of range" },
		{ "{" T("layers.4095.q", "BF16", "[2,3,4]", "[0,48]") "}",
		  "no tensor is named like layers.0.q" },
		{ "{" T("layers.-1.q", "BF16", "[2,3,4]", "[0,48]") "}", "no tensor is named" },
		{ "{" T("layers.1.qq", "BF16", "[2,3,4]", "[0,48]") "}", "no tensor is named" },
		{ "{" T("weight", "BF16", "[24]", "[0,48]") "}", "no tensor is named" },
	};
	/* clang-format on */
	bf16_t x[28] = { 0 };
	struct ar_err err = { 0 };
	struct capture *c;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		size_t bytes = strstr(cases[i].wrong, "3 query heads") ? 56 : 48;

		write_st(cases[i].header, x, bytes);
		ok(capture_open(&c, in_path, &err) == AR_DATA && !c &&
			   strstr(err.msg, cases[i].wrong),
		   "refused: %s (%s)", cases[i].wrong, err.msg + strlen(in_path));
	}
}

static void test_not_captures(void)
{
	struct ar_err err = { 0 };
	struct capture *c;
	size_t n, opened = 0;
	unsigned char *p;
	bf16_t x[6];

	ok(capture_open(&c, "/nonexistent/x", &err) == AR_DATA && strstr(err.msg, "No such file"),
	   "a missing file");
	ok(capture_open(&c, dir, &err) == AR_DATA && strstr(err.msg, "not a regular file"),
	   "a folder");
	file_write(in_path, "", 0);
	ok(capture_open(&c, in_path, &err) == AR_DATA && strstr(err.msg, "neither"),
	   "an empty file");
	file_write(in_path, "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
	ok(capture_open(&c, in_path, &err) == AR_DATA && strstr(err.msg, "neither"),
	   "a header longer than the file");
	file_write(in_path, "\0\0\0\x10\0\0\0\0{}", 10);
	if (truncate(in_path, 0x20000000))
		bail_out("cannot lengthen %s", in_path);
	ok(capture_open(&c, in_path, &err) == AR_DATA && strstr(err.msg, "does not fit"),
	   "a header beyond the format's limit");
	write_small("{" QKV "}");
	if (capture_open(&c, in_path, &err) || truncate(in_path, 100))
		bail_out("%s", err.msg);
	ok(capture_read(c, 0, CAPTURE_V, 0, 3, x, &err) == AR_DATA &&
		   strstr(err.msg, "the file shrank"),
	   "a file that shrinks while it is open");
	capture_close(c);
	write_small("{" QKV "}");
	p = file_read(in_path, &n);
	for (size_t i = 0; i < n; i++) {
		file_write(in_path, p, i);
		opened += capture_open(&c, in_path, &err) != AR_DATA || c;
	}
	is_int((long long)opened, 0, "a safetensors file cut anywhere is refused");
	free(p);
}

int main(void)
{
	plan(0);
	log_level = LOG_ERROR;
	if (!mkdtemp(dir))
		bail_out("no temporary folder");
	snprintf(in_path, sizeof in_path, "%s/in.safetensors", dir);
	test_worked();
	test_meta();
	test_bad_safetensors();
	test_not_captures();
	unlink(in_path);
	rmdir(dir);
	return done_testing();
}
