/* Captures: safetensors, .arc files, and what becomes of damaged ones. */
#include "config.h"

#include <dirent.h>
#include <sha2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "src/base/log.h"
#include "src/base/rng.h"
#include "tests/tap.h"
#include "traces/capture.h"
#include "traces/safetensors.h"

static char dir[] = "/tmp/t-capture-XXXXXX";
static char in_path[64], arc_path[64], out_path[64], again_path[64];

/* ---- allocation faults ---- */

static long countdown = -1;
static int fired;

static int fails(void)
{
	if (countdown < 0 || countdown--)
		return 0;
	fired = 1;
	return 1;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

/* ---- files ---- */

static void write_file(const char *path, const void *p, size_t n)
{
	FILE *f = fopen(path, "wb");

	if (!f || fwrite(p, 1, n, f) != n || fclose(f))
		bail_out("cannot write %s", path);
}

static unsigned char *read_file(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	unsigned char *p;

	if (!f || fseek(f, 0, SEEK_END))
		bail_out("cannot read %s", path);
	*n = (size_t)ftell(f);
	rewind(f);
	p = malloc(*n + 1);
	if (!p || fread(p, 1, *n, f) != *n)
		bail_out("cannot read %s", path);
	fclose(f);
	return p;
}

static int files_in_dir(void)
{
	DIR *d = opendir(dir);
	int n = 0;

	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

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
	write_file(in_path, p, 8 + len + n);
	free(p);
}

/* One layer, 2 query heads, 1 KV head, 3 tokens, head size 2: 12 + 6 + 6 values. */
#define QKV "\"layers.4.q\":{\"dtype\":\"BF16\",\"shape\":[2,3,2],\"data_offsets\":[0,24]}," \
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
	if (!ok(capture_open(&c, in_path, &err) == AR_OK, "a safetensors capture opens: %s", err.msg))
		return;
	info = capture_info(c);
	ok(!strcmp(info->name, "in.safetensors") && !strcmp(info->model, "m") &&
	   !strcmp(info->container, "safetensors") && info->n_layers == 1 && info->layer[0] == 4 &&
	   info->q_heads == 2 && info->kv_heads == 1 && info->head_dim == 2 && info->n_tok == 3 &&
	   info->n_prompt == 2 && info->rope_applied && info->rope.theta == 0 && !info->frame_tok,
	   "and says what it holds");
	ok(capture_read(c, 0, CAPTURE_Q, 1, 2, x, &err) == AR_OK &&
	   !memcmp(x, (bf16_t[]){ 102, 103, 104, 105, 108, 109, 110, 111 }, 16),
	   "tokens 1 and 2 of Q, heads outermost");
	ok(capture_read(c, 0, CAPTURE_V, 2, 1, x, &err) == AR_OK && x[0] == 122 && x[1] == 123,
	   "the last token of V");
	ok(capture_read(c, 0, CAPTURE_K, 3, 0, x, &err) == AR_OK, "no tokens is a range");
	ok(capture_read(c, 0, CAPTURE_K, 2, 2, x, &err) == AR_USAGE &&
	   capture_read(c, 0, CAPTURE_K, -1, 1, x, &err) == AR_USAGE, "past the end is none");
	capture_close(c);
	capture_close(NULL);
}

static void test_meta(void)
{
	static const struct { const char *header, *wrong; } cases[] = {
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
		{ META("\"rope_scaling\":\"{\\\"rope_type\\\":\\\"yarn\\\"}\""), "unknown rope type 'yarn'" },
		{ "{\"__metadata__\":[]," QKV "}", "__metadata__ is no object" },
	};
	struct ar_err err = { 0 };
	struct capture *c;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		write_small(cases[i].header);
		ok(capture_open(&c, in_path, &err) == AR_DATA && !c && strstr(err.msg, cases[i].wrong) &&
		   !strncmp(err.msg, in_path, strlen(in_path)), "bad metadata: %s", cases[i].wrong);
	}
	write_small(META("\"rope\":\"applied\",\"prompt_tokens\":\"2\""));
	ok(capture_open(&c, in_path, &err) == AR_OK && capture_info(c)->rope_applied &&
	   capture_info(c)->n_prompt == 2, "the other spelling of RoPE and prompt length");
	capture_close(c);
	write_small("{" QKV "}");
	ok(capture_open(&c, in_path, &err) == AR_OK && capture_info(c)->rope_applied &&
	   capture_info(c)->n_prompt == 3 && !*capture_info(c)->model, "no metadata at all");
	capture_close(c);
	write_small(META("\"rope_applied\":\"false\",\"rope_theta\":\"500000.0\",\"rope_scaling\":"
			 "\"{\\\"rope_type\\\":\\\"llama3\\\",\\\"factor\\\":8,\\\"low_freq_factor\\\":1,"
			 "\\\"high_freq_factor\\\":4,\\\"original_max_position_embeddings\\\":8192}\""));
	ok(capture_open(&c, in_path, &err) == AR_OK && !capture_info(c)->rope_applied &&
	   capture_info(c)->rope.theta == 500000 && capture_info(c)->rope.factor == 8 &&
	   capture_info(c)->rope.original_len == 8192, "a capture before RoPE with llama3 scaling");
	capture_close(c);
}

#define T(name, dtype, shape, offsets) \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define Q4 T("layers.4.q", "BF16", "[2,3,2]", "[0,24]")
#define K4 T("layers.4.k", "BF16", "[1,3,2]", "[24,36]")
#define V4 T("layers.4.v", "BF16", "[1,3,2]", "[36,48]")

static void test_bad_safetensors(void)
{
	static const struct { const char *header, *wrong; } cases[] = {
		{ "{x", "no JSON object" },
		{ "{} x", "no JSON object" },
		{ "{" Q4 "," K4 "," T("layers.4.v", "BF16", "[1,3,2]", "[24,36]") "}", "overlap or leave a gap" },
		{ "{" Q4 "," T("layers.4.k", "BF16", "[1,3,2]", "[22,34]") "," V4 "}", "overlap or leave a gap" },
		{ "{" Q4 "," V4 "}", "overlap or leave a gap" },
		{ "{" Q4 "," K4 "}", "trailing data" },
		{ "{" Q4 "," K4 "," V4 "," T("w", "U8", "[1]", "[48,49]") "}", "truncated" },
		{ "{" T("layers.4.q", "BF16", "[2,3,2]", "[0,23]") "}", "'shape' and 'data_offsets' disagree" },
		{ "{" T("layers.4.q", "BF16", "[2,3,2]", "[24,0]") "}", "no pair of ascending offsets" },
		{ "{" T("layers.4.q", "BF16", "[2,3,2]", "[-24,0]") "}", "no pair of ascending offsets" },
		{ "{" T("layers.4.q", "BF16", "[2,3,2]", "[0]") "}", "no pair of ascending offsets" },
		{ "{" T("layers.4.q", "BF16", "[2,-3,2]", "[0,24]") "}", "a size in 'shape' is out of range" },
		{ "{" T("layers.4.q", "BF16", "[2,1.5,2]", "[0,24]") "}", "a size in 'shape' is out of range" },
		{ "{" T("layers.4.q", "BF16", "[1e300,3,2]", "[0,24]") "}", "a size in 'shape' is out of range" },
		{ "{" T("layers.4.q", "BF16", "[4294967296,4294967296,4294967296]", "[0,0]") "}",
		  "a size in 'shape' is out of range" },
		{ "{" T("layers.4.q", "BF16", "{}", "[0,24]") "}", "'shape' is no array" },
		{ "{" T("layers.4.q", "BF16", "[1,1,1,1,1,1,1,1,1]", "[0,2]") "}", "'shape' is no array of at most 8" },
		{ "{\"layers.4.q\":{}}", "no 'dtype'" },
		{ "{\"layers.4.q\":3}", "no 'dtype'" },
		{ "{" T("layers.4.q", "F32", "[2,3,1]", "[0,24]") "," K4 "," V4 "}", "want BF16 [heads" },
		{ "{" T("layers.4.q", "BF16", "[2,6]", "[0,24]") "," K4 "," V4 "}", "want BF16 [heads" },
		{ "{" Q4 "," K4 "," T("layers.4.w", "BF16", "[1,3,2]", "[36,48]") "}", "layer 4 has no tensor v" },
		{ "{" Q4 "," K4 "," T("layers.5.v", "BF16", "[1,3,2]", "[36,48]") "}", "layer 4 has no tensor v" },
		{ "{" Q4 "," K4 "," T("layers.04.k", "BF16", "[1,3,2]", "[36,48]") "}", "layer 4 has two tensors k" },
		{ "{" Q4 "," K4 "," T("layers.4.v", "BF16", "[1,2,3]", "[36,48]") "}", "want [1, 3, 2] like the others" },
		{ "{" T("layers.4.q", "BF16", "[2,2,3]", "[0,24]") "," K4 "," V4 "}", "like the others" },
		{ "{" T("layers.4.q", "BF16", "[2,2,3]", "[0,24]") "," T("layers.4.k", "BF16", "[1,2,3]", "[24,36]") ","
		  T("layers.4.v", "BF16", "[1,2,3]", "[36,48]") "}", "head_dim 3 is odd" },
		{ "{" T("layers.4.q", "BF16", "[1,6,2]", "[0,24]") "," T("layers.4.k", "BF16", "[1,3,2]", "[24,36]") ","
		  V4 "}", "like the others" },
		{ "{" T("layers.4.q", "BF16", "[3,2,2]", "[0,24]") "," T("layers.4.k", "BF16", "[2,2,2]", "[24,40]") ","
		  T("layers.4.v", "BF16", "[2,2,2]", "[40,56]") "}", "2 KV heads do not divide 3 query heads" },
		{ "{" T("layers.4.q", "BF16", "[0,3,2]", "[0,0]") "," T("layers.4.k", "BF16", "[6,2,2]", "[0,48]") ","
		  T("layers.4.v", "BF16", "[0,3,2]", "[0,0]") "}", "a size is out of range" },
		{ "{" T("layers.4095.q", "BF16", "[2,3,4]", "[0,48]") "}", "no tensor is named like layers.0.q" },
		{ "{" T("layers.-1.q", "BF16", "[2,3,4]", "[0,48]") "}", "no tensor is named" },
		{ "{" T("layers.1.qq", "BF16", "[2,3,4]", "[0,48]") "}", "no tensor is named" },
		{ "{" T("weight", "BF16", "[24]", "[0,48]") "}", "no tensor is named" },
	};
	bf16_t x[28] = { 0 };
	struct ar_err err = { 0 };
	struct capture *c;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		size_t bytes = strstr(cases[i].wrong, "3 query heads") ? 56 : 48;

		write_st(cases[i].header, x, bytes);
		ok(capture_open(&c, in_path, &err) == AR_DATA && !c && strstr(err.msg, cases[i].wrong),
		   "refused: %s (%s)", cases[i].wrong, err.msg + strlen(in_path));
	}
}

static void test_not_captures(void)
{
	struct ar_err err = { 0 };
	struct capture *c;
	size_t n, opened = 0;
	unsigned char *p;

	ok(capture_open(&c, "/nonexistent/x", &err) == AR_DATA && strstr(err.msg, "No such file"),
	   "a missing file");
	ok(capture_open(&c, dir, &err) == AR_DATA && strstr(err.msg, "not a regular file"), "a folder");
	write_file(in_path, "", 0);
	ok(capture_open(&c, in_path, &err) == AR_DATA && strstr(err.msg, "neither"), "an empty file");
	write_file(in_path, "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
	ok(capture_open(&c, in_path, &err) == AR_DATA && strstr(err.msg, "neither"),
	   "a header longer than the file");
	write_small("{" QKV "}");
	p = read_file(in_path, &n);
	for (size_t i = 0; i < n; i++) {
		write_file(in_path, p, i);
		opened += capture_open(&c, in_path, &err) != AR_DATA || c;
	}
	is_int((long long)opened, 0, "a safetensors file cut anywhere is refused");
	free(p);
}

/* ---- round trips ---- */

struct shape {
	int layers, q_heads, kv_heads, head_dim;
	int64_t n_tok;
};

/* Random values like activations: normal, some exact zeros, some extremes. */
static bf16_t random_value(struct rng *r)
{
	uint64_t x = rng_below(r, 64);

	if (x == 0)
		return 0;
	return x == 1 ? (bf16_t)rng_u64(r) : bf16_from_f32(rng_normal(r));
}

static void write_random(const struct shape *s, struct rng *r)
{
	struct safetensors_tensor t[3 * 8];
	char name[3 * 8][32];
	struct outfile f;
	struct ar_err err;

	for (int k = 0; k < 3 * s->layers; k++) {
		snprintf(name[k], sizeof name[k], "layers.%d.%c", 2 * (k / 3) + 1, "qkv"[k % 3]);
		t[k] = (struct safetensors_tensor){ .name = name[k], .n_dim = 3, .dim = {
			k % 3 ? s->kv_heads : s->q_heads, s->n_tok, s->head_dim } };
	}
	if (outfile_open(&f, in_path, &err) ||
	    safetensors_write_header(&f, t, (size_t)s->layers * 3, (const char *const[]){
		"model", "random", "n_prompt", "5", "rope_applied", "false", "rope_theta", "10000.5",
		"rope_scaling", "{\"rope_type\":\"llama3\",\"factor\":8.5,\"low_freq_factor\":1,"
		"\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}", NULL }, &err))
		bail_out("%s", err.msg);
	for (int k = 0; k < 3 * s->layers; k++)
		for (int64_t i = 0; i < t[k].dim[0] * t[k].dim[1] * t[k].dim[2]; i++) {
			bf16_t x = random_value(r);

			if (outfile_write(&f, &x, sizeof x, &err))
				bail_out("%s", err.msg);
		}
	if (outfile_commit(&f, &err))
		bail_out("%s", err.msg);
	outfile_release(&f);
}

static size_t values(const struct capture_info *i, int t, int64_t n)
{
	return (size_t)(t ? i->kv_heads : i->q_heads) * (size_t)n * (size_t)i->head_dim;
}

/* Whether tokens [at, at + n) of tensor t of layer index ia in a and ib in b are the same. */
static bool same_range(struct capture *a, int ia, struct capture *b, int ib, int t, int64_t at,
		       int64_t n)
{
	size_t bytes = values(capture_info(a), t, n) * sizeof(bf16_t);
	bf16_t *x = malloc(bytes + 1), *y = malloc(bytes + 1);
	struct ar_err err;
	bool same = capture_read(a, ia, (enum capture_tensor)t, at, n, x, &err) == AR_OK &&
		    capture_read(b, ib, (enum capture_tensor)t, at, n, y, &err) == AR_OK &&
		    !memcmp(x, y, bytes);

	free(x);
	free(y);
	return same;
}

static bool same_info(const struct capture_info *a, const struct capture_info *b)
{
	return a->n_layers == b->n_layers &&
	       !memcmp(a->layer, b->layer, (size_t)a->n_layers * sizeof *a->layer) &&
	       a->q_heads == b->q_heads && a->kv_heads == b->kv_heads &&
	       a->head_dim == b->head_dim && a->n_tok == b->n_tok && a->n_prompt == b->n_prompt &&
	       a->rope_applied == b->rope_applied && !strcmp(a->model, b->model) &&
	       a->rope.theta == b->rope.theta && a->rope.factor == b->rope.factor &&
	       a->rope.low_freq == b->rope.low_freq && a->rope.high_freq == b->rope.high_freq &&
	       a->rope.original_len == b->rope.original_len;
}

static bool same_capture(struct capture *a, struct capture *b, struct rng *r)
{
	const struct capture_info *info = capture_info(a);
	bool same = same_info(info, capture_info(b));

	for (int k = 0; same && k < 3 * info->n_layers; k++) {
		same = same_range(a, k / 3, b, k / 3, k % 3, 0, info->n_tok);
		for (int i = 0; same && i < 20; i++) {
			int64_t at = (int64_t)rng_below(r, (uint64_t)info->n_tok + 1);
			int64_t n = (int64_t)rng_below(r, (uint64_t)(info->n_tok - at) + 1);

			same = same_range(a, k / 3, b, k / 3, k % 3, at, n);
		}
	}
	return same;
}

static bool same_bytes(const char *a, const char *b)
{
	size_t na, nb;
	unsigned char *pa = read_file(a, &na), *pb = read_file(b, &nb);
	bool same = na == nb && !memcmp(pa, pb, na);

	free(pa);
	free(pb);
	return same;
}

static struct capture *must_open(const char *path)
{
	struct ar_err err = { 0 };
	struct capture *c;

	if (capture_open(&c, path, &err))
		bail_out("%s", err.msg);
	return c;
}

static void test_round_trips(void)
{
	static const struct shape shapes[] = {
		{ 1, 1, 1, 2, 5 }, { 2, 4, 2, 8, 64 }, { 3, 8, 2, 16, 65 }, { 1, 3, 3, 10, 63 },
		{ 2, 8, 1, 128, 300 },
	};
	static const int64_t frame_tok[] = { 1, 7, 64, 1000, 0 };
	struct rng r = { 7 };
	struct ar_err err = { 0 };

	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		struct capture *a, *b, *u;
		bool same = true, bytes = true;

		write_random(&shapes[i], &r);
		a = must_open(in_path);
		for (size_t k = 0; k < sizeof frame_tok / sizeof *frame_tok; k++) {
			struct capture_pack p = { .level = 1 + (int)k, .frame_tok = frame_tok[k] };

			if (capture_pack(a, arc_path, &p, &err))
				bail_out("%s", err.msg);
			b = must_open(arc_path);
			same = same && same_capture(a, b, &r) &&
			       capture_info(b)->frame_tok == (p.frame_tok ? p.frame_tok : 1024);
			if (capture_unpack(b, out_path, &err))
				bail_out("%s", err.msg);
			u = must_open(out_path);
			same = same && same_capture(a, u, &r);
			bytes = bytes && same_bytes(in_path, out_path);
			if (capture_pack(u, again_path, &p, &err))
				bail_out("%s", err.msg);
			bytes = bytes && same_bytes(arc_path, again_path);
			capture_close(b);
			capture_close(u);
		}
		ok(same, "any range of %d layers of %d heads, %lld tokens survives packing and unpacking",
		   shapes[i].layers, shapes[i].q_heads, (long long)shapes[i].n_tok);
		ok(bytes, "equal captures give equal files");
		capture_close(a);
	}
}

static void test_frame_edges(void)
{
	const struct shape s = { 1, 2, 1, 4, 40 };
	const struct capture_pack p = { .level = 1, .frame_tok = 16 };
	struct rng r = { 8 };
	struct ar_err err = { 0 };
	struct capture *a, *b;
	int wrong = 0;

	write_random(&s, &r);
	a = must_open(in_path);
	if (capture_pack(a, arc_path, &p, &err))
		bail_out("%s", err.msg);
	b = must_open(arc_path);
	for (int64_t at = 0; at <= s.n_tok; at++)
		for (int64_t n = 0; at + n <= s.n_tok; n++)
			wrong += !same_range(a, 0, b, 0, CAPTURE_K, at, n);
	is_int(wrong, 0, "every range of a tensor of two and a half frames");
	capture_close(a);
	capture_close(b);
}

static void test_pack_part(void)
{
	const struct shape s = { 3, 4, 2, 8, 30 };	/* layers 1, 3, 5 */
	struct rng r = { 9 };
	struct ar_err err = { 0 };
	struct capture *a, *b;
	const struct capture_info *info;

	write_random(&s, &r);
	a = must_open(in_path);
	if (capture_pack(a, arc_path, &(struct capture_pack){ .layer = (int[]){ 1, 5 }, .n_layers = 2,
			 .n_tok = 3, .frame_tok = 2 }, &err))
		bail_out("%s", err.msg);
	b = must_open(arc_path);
	info = capture_info(b);
	ok(info->n_layers == 2 && info->layer[0] == 1 && info->layer[1] == 5 && info->n_tok == 3,
	   "some layers and the first tokens are packed");
	is_int(info->n_prompt, 3, "the prompt is cut with the sequence");
	ok(same_range(a, 0, b, 0, CAPTURE_Q, 0, 3) && same_range(a, 2, b, 1, CAPTURE_V, 0, 3),
	   "and they are the ones asked for");
	capture_close(b);
	unlink(arc_path);
	unlink(again_path);
	unlink(out_path);
	ok(capture_pack(a, arc_path, &(struct capture_pack){ .layer = (int[]){ 2 }, .n_layers = 1 }, &err)
	   == AR_USAGE && strstr(err.msg, "in.safetensors has no layer 2"), "a layer that is not there");
	ok(capture_pack(a, arc_path, &(struct capture_pack){ .layer = (int[]){ 3, 1 }, .n_layers = 2 }, &err)
	   == AR_USAGE && strstr(err.msg, "not 1 after 3"), "layers out of order");
	ok(capture_pack(a, arc_path, &(struct capture_pack){ .n_tok = 31 }, &err) == AR_USAGE &&
	   capture_pack(a, arc_path, &(struct capture_pack){ .n_tok = -1 }, &err) == AR_USAGE,
	   "more tokens than there are");
	ok(capture_pack(a, arc_path, &(struct capture_pack){ .frame_tok = CAPTURE_MAX_TOK }, &err) == AR_USAGE &&
	   strstr(err.msg, "too large"), "frames beyond what a reader takes");
	ok(capture_pack(a, "/nonexistent/x.arc", &(struct capture_pack){ 0 }, &err) == AR_IO &&
	   capture_unpack(a, "/nonexistent/x", &err) == AR_IO && strstr(err.msg, "cannot create"),
	   "a folder that is not there");
	mkdir(arc_path, 0700);
	ok(capture_pack(a, arc_path, &(struct capture_pack){ 0 }, &err) == AR_IO &&
	   strstr(err.msg, "cannot write"), "a name that cannot be taken");
	rmdir(arc_path);
	is_int(files_in_dir(), 1, "no failure leaves a file behind");
	capture_close(a);
}

/* ---- damage ---- */

/* Open path and read all of it: AR_OK with everything equal to c, or the error.  Other data
 * without an error is the one thing that must never be: bail out. */
static enum ar_status read_all(const char *path, struct capture *c)
{
	struct ar_err err = { 0 };
	struct capture *d;
	const struct capture_info *info;
	enum ar_status st = capture_open(&d, path, &err);

	if (st)
		return st;
	info = capture_info(d);
	for (int k = 0; !st && k < 3 * info->n_layers; k++) {
		bf16_t *x = malloc(values(info, k % 3, info->n_tok) * sizeof *x);

		st = capture_read(d, k / 3, (enum capture_tensor)(k % 3), 0, info->n_tok, x, &err);
		free(x);
	}
	if (!st && !same_capture(c, d, &(struct rng){ 1 }))
		bail_out("changed data passed as good");
	capture_close(d);
	return st;
}

static void test_damage(void)
{
	const struct shape s = { 1, 2, 1, 4, 10 };
	struct rng r = { 10 };
	struct ar_err err = { 0 };
	struct capture *c;
	size_t n, found = 0, other = 0, cut = 0;
	unsigned char *p;

	write_random(&s, &r);
	c = must_open(in_path);
	if (capture_pack(c, arc_path, &(struct capture_pack){ .frame_tok = 4 }, &err))
		bail_out("%s", err.msg);
	p = read_file(arc_path, &n);
	for (size_t i = 0; i < 8 * n; i++) {
		enum ar_status st;

		p[i / 8] ^= (unsigned char)(1 << i % 8);
		write_file(again_path, p, n);
		st = read_all(again_path, c);
		found += st == AR_DATA;
		other += st != AR_DATA && st != AR_OK;
		p[i / 8] ^= (unsigned char)(1 << i % 8);
	}
	is_int((long long)other, 0, "a flipped bit is a data error or changes nothing");
	/* of each of the 9 frames, one bit of the frame header means nothing */
	is_int((long long)(8 * n - found), 9, "and almost always found");
	for (size_t i = 0; i < n; i++) {
		write_file(again_path, p, i);
		cut += read_all(again_path, c) == AR_DATA;
	}
	is_int((long long)cut, (long long)n, "an .arc file cut anywhere is refused");
	free(p);
	capture_close(c);
}

static void test_named_frame(void)
{
	const struct shape s = { 2, 2, 1, 4, 10 };
	struct rng r = { 11 };
	struct ar_err err = { 0 };
	struct capture *c = NULL;
	size_t n;
	unsigned char *p;
	bf16_t x[80];

	write_random(&s, &r);
	c = must_open(in_path);
	if (capture_pack(c, arc_path, &(struct capture_pack){ .frame_tok = 4 }, &err))
		bail_out("%s", err.msg);
	capture_close(c);
	p = read_file(arc_path, &n);
	p[n - 48 - 18 * 8 - 10] ^= 1;	/* in the last of 18 frames: layer 3, v, tokens 8 and 9 */
	write_file(arc_path, p, n);
	c = must_open(arc_path);
	ok(capture_read(c, 1, CAPTURE_V, 7, 2, x, &err) == AR_DATA &&
	   strstr(err.msg, "layer 3 v, tokens 8 to 9: damaged frame"), "a damaged frame is named: %s", err.msg);
	ok(capture_read(c, 1, CAPTURE_V, 0, 8, x, &err) == AR_OK &&
	   capture_read(c, 1, CAPTURE_K, 0, 10, x, &err) == AR_OK &&
	   capture_read(c, 0, CAPTURE_Q, 0, 10, x, &err) == AR_OK, "the others are still read");
	capture_close(c);
	free(p);
}

/* ---- hostile .arc files: every checksum right ---- */

struct arc_parts {
	const char *header;
	uint32_t version;
	const void *frames;
	size_t n_frames_bytes;
	const uint64_t *end;	/* from the first frame's start */
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

	memcpy(p, "\x89" "ARC\r\n\x1a\n", 8);
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
	write_file(arc_path, p, at + 40);
}

#define HEAD(q, kv, d, tok, prompt, frame, layers) \
	"{\"dtype\":\"bf16\",\"model\":\"m\",\"layers\":" layers ",\"q_heads\":" q ",\"kv_heads\":" kv \
	",\"head_dim\":" d ",\"n_tok\":" tok ",\"n_prompt\":" prompt ",\"frame_tok\":" frame \
	",\"rope_applied\":true}"
#define GOOD_HEAD HEAD("1", "1", "2", "1", "1", "1", "[0]")

static void test_hostile_headers(void)
{
	static const struct { const char *header, *wrong; } cases[] = {
		{ "[]", "no JSON object" },
		{ "{\"dtype\":\"bf16\"", "no JSON object" },
		{ "{}", "want 'dtype' bf16" },
		{ "{\"dtype\":\"f32\"}", "want 'dtype' bf16" },
		{ "{\"dtype\":\"bf16\"}", "no 'model'" },
		{ HEAD("1", "1", "2", "1e18", "1", "1", "[0]"), "as 'n_tok'" },
		{ HEAD("1", "1", "2", "2147483647", "1", "1", "[0]"), "no room for 6442450941 frames" },
		{ HEAD("1", "1", "2", "-1", "1", "1", "[0]"), "as 'n_tok'" },
		{ HEAD("1", "1", "2", "0", "0", "1", "[0]"), "as 'n_tok'" },
		{ HEAD("1", "1", "2", "1.5", "1", "1", "[0]"), "as 'n_tok'" },
		{ HEAD("0", "1", "2", "1", "1", "1", "[0]"), "as 'q_heads'" },
		{ HEAD("99999", "1", "2", "1", "1", "1", "[0]"), "as 'q_heads'" },
		{ HEAD("1", "null", "2", "1", "1", "1", "[0]"), "as 'kv_heads'" },
		{ HEAD("1", "1", "\"2\"", "1", "1", "1", "[0]"), "as 'head_dim'" },
		{ HEAD("1", "1", "2", "1", "1", "0", "[0]"), "as 'frame_tok'" },
		{ HEAD("4096", "4096", "4096", "100", "1", "2147483647", "[0]"), "is too large" },
		{ HEAD("1", "1", "2", "1", "2", "1", "[0]"), "prompt of 2 tokens in a sequence of 1" },
		{ HEAD("1", "2", "2", "1", "1", "1", "[0]"), "2 KV heads do not divide 1" },
		{ HEAD("1", "1", "3", "1", "1", "1", "[0]"), "head_dim 3 is odd" },
		{ HEAD("1", "1", "2", "1", "1", "1", "[]"), "no 'layers'" },
		{ HEAD("1", "1", "2", "1", "1", "1", "{}"), "no 'layers'" },
		{ HEAD("1", "1", "2", "1", "1", "1", "[0,0]"), "no ascending layer numbers" },
		{ HEAD("1", "1", "2", "1", "1", "1", "[-1]"), "no ascending layer numbers" },
		{ HEAD("1", "1", "2", "1", "1", "1", "[4095]"), "no ascending layer numbers" },
		{ HEAD("1", "1", "2", "1", "1", "1", "[0],\"rope_theta\":0"), "'rope_theta' is out of range" },
		{ HEAD("1", "1", "2", "1", "1", "1", "[0],\"rope_scaling\":{\"type\":\"linear\"}"),
		  "unknown rope type 'linear'" },
		{ HEAD("1", "1", "2", "2", "1", "1", "[0]"), "no index at the end" },
	};
	const uint64_t end[] = { 10, 20, 30 };
	struct arc_parts a = { .version = 1, .frames = "012345678901234567890123456789",
			       .n_frames_bytes = 30, .end = end, .n = 3 };
	struct ar_err err = { 0 };
	struct capture *c;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		a.header = cases[i].header;
		write_arc(&a);
		ok(capture_open(&c, arc_path, &err) == AR_DATA && !c && strstr(err.msg, cases[i].wrong),
		   "refused: %s (%s)", cases[i].wrong, err.msg + strlen(arc_path));
	}
	a.header = GOOD_HEAD;
	a.version = 2;
	write_arc(&a);
	ok(capture_open(&c, arc_path, &err) == AR_DATA && strstr(err.msg, "version 1, this has 2"),
	   "another version");
	write_file(arc_path, "\x89" "ARC\r\n\x1a\n\1\0\0\0\xff\xff\xff\xff", 16);
	ok(capture_open(&c, arc_path, &err) == AR_DATA && strstr(err.msg, "is too large"), "a huge header");
}

static void test_hostile_index(void)
{
	static const uint64_t ends[][3] = {
		{ 10, 10, 30 }, { 20, 10, 30 }, { 10, 20, 31 }, { 10, 20, UINT64_MAX }, { 10, 20, 29 },
		{ 0, 20, 30 },
	};
	struct arc_parts a = { .version = 1, .header = GOOD_HEAD,
			       .frames = "012345678901234567890123456789", .n_frames_bytes = 30, .n = 3 };
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
	ok(capture_read(c, 0, CAPTURE_Q, 0, 1, x, &err) == AR_DATA && strstr(err.msg, "damaged frame"),
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
	ok(capture_read(c, 0, CAPTURE_Q, 0, 1, x, &err) == AR_DATA && strstr(err.msg, "no checksum"),
	   "a frame without a checksum");
	capture_close(c);
	/* of another size; two frames in the place of one; far more bytes than values */
	n = ZSTD_compress(f[0], sizeof f[0], "abcdef", 6, 1);
	a.n_frames_bytes = n + 2;
	a.end = (const uint64_t[]){ n, n + 1, n + 2 };
	write_arc(&a);
	c = must_open(arc_path);
	ok(capture_read(c, 0, CAPTURE_Q, 0, 1, x, &err) == AR_DATA && strstr(err.msg, "size is not that"),
	   "a frame of another size");
	capture_close(c);
	n = ZSTD_compress(f[0], sizeof f[0], "abcd", 4, 1);
	memcpy(f[0] + n, f[0], n);
	a.n_frames_bytes = 2 * n + 2;
	a.end = (const uint64_t[]){ 2 * n, 2 * n + 1, 2 * n + 2 };
	write_arc(&a);
	c = must_open(arc_path);
	ok(capture_read(c, 0, CAPTURE_Q, 0, 1, x, &err) == AR_DATA && strstr(err.msg, "size is not that"),
	   "two frames in the place of one");
	capture_close(c);
	a.frames = big;
	a.n_frames_bytes = 5000;
	a.end = (const uint64_t[]){ 4998, 4999, 5000 };
	write_arc(&a);
	c = must_open(arc_path);
	ok(capture_read(c, 0, CAPTURE_Q, 0, 1, x, &err) == AR_DATA && strstr(err.msg, "too many for"),
	   "more packed bytes than its values can have");
	capture_close(c);
}

/* ---- a full disk, an interrupt ---- */

static void test_full_disk(void)
{
	const struct shape s = { 2, 8, 1, 128, 100 };
	struct rlimit old, small;
	struct rng r = { 13 };
	struct ar_err err = { 0 };
	struct capture *c;

	unlink(arc_path);
	unlink(out_path);
	unlink(again_path);
	write_random(&s, &r);
	c = must_open(in_path);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	small = old;
	small.rlim_cur = 20000;
	setrlimit(RLIMIT_FSIZE, &small);
	ok(capture_pack(c, arc_path, &(struct capture_pack){ 0 }, &err) == AR_IO &&
	   strstr(err.msg, "x.arc: cannot write: File too large"), "packing onto a full disk");
	ok(capture_unpack(c, out_path, &err) == AR_IO &&
	   strstr(err.msg, "out.safetensors: cannot write: File too large"), "unpacking onto one");
	setrlimit(RLIMIT_FSIZE, &old);
	is_int(files_in_dir(), 1, "leaves nothing");
	capture_close(c);
}

/* The last of all: an interrupt stays. */
static void test_interrupt(void)
{
	struct ar_err err = { 0 };
	struct capture *c = must_open(in_path);
	int before = files_in_dir();

	ar_catch_interrupts();
	raise(SIGINT);
	ok(capture_pack(c, arc_path, &(struct capture_pack){ 0 }, &err) == AR_INTERRUPTED &&
	   capture_unpack(c, out_path, &err) == AR_INTERRUPTED, "an interrupt stops both");
	is_int(files_in_dir(), before, "and leaves nothing");
	capture_close(c);
}

/* ---- allocation faults ---- */

static enum ar_status open_and_read(const char *path, struct ar_err *err)
{
	struct capture *c;
	bf16_t x[80];
	enum ar_status st = capture_open(&c, path, err);

	if (st && c)
		bail_out("a failed open left a capture");
	if (!st)
		st = capture_read(c, 0, CAPTURE_Q, 1, 8, x, err);
	capture_close(c);
	return st;
}

static enum ar_status fault_open_st(struct ar_err *err)
{
	return open_and_read(in_path, err);
}

static enum ar_status fault_open_arc(struct ar_err *err)
{
	return open_and_read(arc_path, err);
}

static struct capture *fault_capture;

static enum ar_status fault_pack(struct ar_err *err)
{
	return capture_pack(fault_capture, again_path, &(struct capture_pack){ .frame_tok = 4 }, err);
}

static enum ar_status fault_unpack(struct ar_err *err)
{
	return capture_unpack(fault_capture, out_path, err);
}

static void test_faults(void)
{
	static const struct { const char *what; enum ar_status (*run)(struct ar_err *); } cases[] = {
		{ "reading safetensors", fault_open_st }, { "reading an .arc file", fault_open_arc },
		{ "packing", fault_pack }, { "unpacking", fault_unpack },
	};
	const struct shape s = { 1, 2, 1, 4, 10 };
	struct rng r = { 12 };
	struct ar_err err = { 0 };

	write_random(&s, &r);
	fault_capture = must_open(in_path);
	if (capture_pack(fault_capture, arc_path, &(struct capture_pack){ .frame_tok = 4 }, &err))
		bail_out("%s", err.msg);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int files, bad = 0;
		long k = 0;

		unlink(again_path);
		unlink(out_path);
		files = files_in_dir();
		for (;; k++) {
			enum ar_status st;

			fired = 0;
			countdown = k;
			st = cases[i].run(&err);
			countdown = -1;
			if (!fired) {
				bad += st != AR_OK;
				break;
			}
			bad += st != AR_NOMEM || files_in_dir() != files;
		}
		ok(!bad && k > 2, "%s: each of %ld allocations fails cleanly", cases[i].what, k);
	}
	capture_close(fault_capture);
}

static void path_in_dir(char *path, size_t n, const char *name)
{
	snprintf(path, n, "%s/%s", dir, name);
}

int main(void)
{
	plan(0);
	log_level = LOG_ERROR;
	if (!mkdtemp(dir))
		bail_out("no temporary folder");
	path_in_dir(in_path, sizeof in_path, "in.safetensors");
	path_in_dir(arc_path, sizeof arc_path, "x.arc");
	path_in_dir(out_path, sizeof out_path, "out.safetensors");
	path_in_dir(again_path, sizeof again_path, "again.arc");
	test_worked();
	test_meta();
	test_bad_safetensors();
	test_not_captures();
	test_round_trips();
	test_frame_edges();
	test_pack_part();
	test_damage();
	test_named_frame();
	test_hostile_headers();
	test_hostile_index();
	test_hostile_frames();
	test_full_disk();
	test_faults();
	unlink(arc_path);
	unlink(out_path);
	test_interrupt();
	unlink(in_path);
	unlink(again_path);
	rmdir(dir);
	return done_testing();
}
