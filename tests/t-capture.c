/* SPDX-License-Identifier: Apache-2.0 */
/* Captures: round trips between the containers, damage, full disks, no memory. */
#include "config.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/safetensors.h"
#include "model/rope.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"
#include "traces/capture/capture.h"

static char dir[] = "/tmp/t-capture-XXXXXX";
static char in_path[64], arc_path[64], out_path[64], again_path[64];

/* ---- files ---- */

static int files_in_dir(void)
{
	DIR *d = opendir(dir);
	int n = 0;

	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
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
	static const char *const scaling[] = {
		"{\"rope_type\":\"llama3\",\"factor\":8.5,\"low_freq_factor\":1,"
		"\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}",
		"{\"rope_type\":\"yarn\",\"factor\":32,\"beta_fast\":24,\"truncate\":false,"
		"\"original_max_position_embeddings\":4096}",
	};
	struct safetensors_tensor t[3 * 8];
	char name[3 * 8][32];
	struct outfile f;
	struct ar_err err;

	for (int k = 0; k < 3 * s->layers; k++) {
		snprintf(name[k], sizeof name[k], "layers.%d.%c", 2 * (k / 3) + 1, "qkv"[k % 3]);
		t[k] = (struct safetensors_tensor){ .name = name[k],
						    .n_dim = 3,
						    .dim = { k % 3 ? s->kv_heads : s->q_heads,
							     s->n_tok, s->head_dim } };
	}
	if (outfile_open(&f, in_path, &err) ||
	    safetensors_write_header(&f, t, (size_t)s->layers * 3,
				     (const char *const[]){ "model", "random", "n_prompt", "5",
							    "rope_applied", "false", "rope_theta",
							    "10000.5", "rope_scaling",
							    scaling[rng_below(r, 2)], NULL },
				     &err))
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

/* Whether tokens [at, at + n) of tensor t are the same.  ia, ib: index of the layer in a, in b. */
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
	       rope_equal(&a->rope, &b->rope);
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
	unsigned char *pa = file_read(a, &na), *pb = file_read(b, &nb);
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
		{ 1, 1, 1, 2, 5 },   { 2, 4, 2, 8, 64 },    { 3, 8, 2, 16, 65 },
		{ 1, 3, 3, 10, 63 }, { 2, 8, 1, 128, 300 },
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
		ok(same,
		   "any range of %d layers of %d heads, %lld tokens survives packing and unpacking",
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
	const struct shape s = { 3, 4, 2, 8, 30 }; /* layers 1, 3, 5 */
	struct rng r = { 9 };
	struct ar_err err = { 0 };
	struct capture *a, *b;
	const struct capture_info *info;

	write_random(&s, &r);
	a = must_open(in_path);
	if (capture_pack(
		    a, arc_path,
		    &(struct capture_pack){
			    .layer = (int[]){ 1, 5 }, .n_layers = 2, .n_tok = 3, .frame_tok = 2 },
		    &err))
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
	ok(capture_pack(a, arc_path, &(struct capture_pack){ .layer = (int[]){ 2 }, .n_layers = 1 },
			&err) == AR_USAGE &&
		   strstr(err.msg, "in.safetensors has no layer 2"),
	   "a layer that is not there");
	ok(capture_pack(a, arc_path,
			&(struct capture_pack){ .layer = (int[]){ 3, 1 }, .n_layers = 2 },
			&err) == AR_USAGE &&
		   strstr(err.msg, "not 1 after 3"),
	   "layers out of order");
	ok(capture_pack(a, arc_path, &(struct capture_pack){ .n_tok = 31 }, &err) == AR_USAGE &&
		   capture_pack(a, arc_path, &(struct capture_pack){ .n_tok = -1 }, &err) ==
			   AR_USAGE,
	   "more tokens than there are");
	ok(capture_pack(a, arc_path, &(struct capture_pack){ .frame_tok = CAPTURE_MAX_TOK },
			&err) == AR_USAGE &&
		   strstr(err.msg, "too large"),
	   "frames beyond what a reader takes");
	ok(capture_pack(a, "/nonexistent/x.arc", &(struct capture_pack){ 0 }, &err) == AR_IO &&
		   capture_unpack(a, "/nonexistent/x", &err) == AR_IO &&
		   strstr(err.msg, "cannot create"),
	   "a folder that is not there");
	mkdir(arc_path, 0700);
	ok(capture_pack(a, arc_path, &(struct capture_pack){ 0 }, &err) == AR_IO &&
		   strstr(err.msg, "cannot write"),
	   "a name that cannot be taken");
	rmdir(arc_path);
	is_int(files_in_dir(), 1, "no failure leaves a file behind");
	capture_close(a);
}

/* A model's name that a reader would not take in a header is not written either. */
static void test_long_name(void)
{
	const size_t n = 1 << 20;
	char *name = malloc(n + 1);
	bf16_t x[6] = { 0 };
	struct safetensors_tensor t[3];
	struct outfile f;
	struct ar_err err = { 0 };
	struct capture *c;

	memset(name, 'x', n);
	name[n] = 0;
	for (int k = 0; k < 3; k++)
		t[k] = (struct safetensors_tensor){ .n_dim = 3, .dim = { 1, 1, 2 } };
	t[0].name = "layers.0.q";
	t[1].name = "layers.0.k";
	t[2].name = "layers.0.v";
	if (outfile_open(&f, in_path, &err) ||
	    safetensors_write_header(&f, t, 3, (const char *const[]){ "model", name, NULL },
				     &err) ||
	    outfile_write(&f, x, sizeof x, &err) || outfile_commit(&f, &err))
		bail_out("%s", err.msg);
	outfile_release(&f);
	free(name);
	c = must_open(in_path);
	ok(capture_pack(c, arc_path, &(struct capture_pack){ 0 }, &err) == AR_DATA &&
		   strstr(err.msg, "the model's name is too long"),
	   "a model's name of 1 MiB does not fit an .arc header");
	is_int(files_in_dir(), 1, "and leaves no file");
	capture_close(c);
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
	p = file_read(arc_path, &n);
	for (size_t i = 0; i < 8 * n; i++) {
		enum ar_status st;

		p[i / 8] ^= (unsigned char)(1 << i % 8);
		file_write(again_path, p, n);
		st = read_all(again_path, c);
		found += st == AR_DATA;
		other += st != AR_DATA && st != AR_OK;
		p[i / 8] ^= (unsigned char)(1 << i % 8);
	}
	is_int((long long)other, 0, "a flipped bit is a data error or changes nothing");
	/* of each of the 9 frames, one bit of the frame header means nothing */
	is_int((long long)(8 * n - found), 9, "and almost always found");
	for (size_t i = 0; i < n; i++) {
		file_write(again_path, p, i);
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
	p = file_read(arc_path, &n);
	p[n - 48 - 18 * 8 - 10] ^= 1; /* in the last of 18 frames: layer 3, v, tokens 8 and 9 */
	file_write(arc_path, p, n);
	c = must_open(arc_path);
	ok(capture_read(c, 1, CAPTURE_V, 7, 2, x, &err) == AR_DATA &&
		   strstr(err.msg, "layer 3 v, tokens 8 to 9: damaged frame"),
	   "a damaged frame is named: %s", err.msg);
	ok(capture_read(c, 1, CAPTURE_V, 0, 8, x, &err) == AR_OK &&
		   capture_read(c, 1, CAPTURE_K, 0, 10, x, &err) == AR_OK &&
		   capture_read(c, 0, CAPTURE_Q, 0, 10, x, &err) == AR_OK,
	   "the others are still read");
	capture_close(c);
	free(p);
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
		   strstr(err.msg, "x.arc: cannot write: File too large"),
	   "packing onto a full disk");
	ok(capture_unpack(c, out_path, &err) == AR_IO &&
		   strstr(err.msg, "out.safetensors: cannot write: File too large"),
	   "unpacking onto one");
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
	raise(SIGTERM);
	ok(capture_pack(c, arc_path, &(struct capture_pack){ 0 }, &err) == AR_INTERRUPTED &&
		   capture_unpack(c, out_path, &err) == AR_INTERRUPTED,
	   "an interrupt stops both");
	is_int(files_in_dir(), before, "and leaves nothing");
	capture_close(c);
}

/* ---- random values ---- */

enum { R_LAYERS = 3, R_HEADS = 4, R_DIM = 32, R_TOK = 200, R_SIZE = R_HEADS * R_TOK * R_DIM };

static struct capture *must_draw(const char *name, int q_heads, int64_t n_tok)
{
	const struct capture_info shape = { .n_layers = R_LAYERS,
					    .q_heads = q_heads,
					    .kv_heads = 2,
					    .head_dim = R_DIM,
					    .n_tok = n_tok };
	struct capture *c;
	struct ar_err err;

	if (capture_random(&c, name, &shape, &err))
		bail_out("%s", err.msg);
	return c;
}

static void must_read(struct capture *c, int layer, enum capture_tensor t, int64_t at, int64_t n,
		      bf16_t *x)
{
	struct ar_err err;

	if (capture_read_finite(c, layer, t, at, n, x, &err))
		bail_out("%s", err.msg);
}

/* Mean and variance of n values, and how often one equals the value before it. */
static void is_normal(const bf16_t *x, size_t n)
{
	double sum = 0, squares = 0;
	size_t equal = 0;

	for (size_t i = 0; i < n; i++) {
		double v = bf16_to_f32(x[i]);

		sum += v;
		squares += v * v;
		equal += i && x[i] == x[i - 1];
	}
	ok(fabs(sum / (double)n) < 0.03 && fabs(squares / (double)n - 1) < 0.03 && equal < n / 100,
	   "random values have mean %.3f and variance %.3f, and %zu of %zu repeat", sum / (double)n,
	   squares / (double)n, equal, n);
}

/* Values by seed, layer, tensor and head have nothing in common. */
static void is_independent(const bf16_t *whole)
{
	static bf16_t x[R_SIZE];
	struct capture *c = must_draw("random:7", R_HEADS, R_TOK);
	struct capture *d = must_draw("random:8", R_HEADS, R_TOK);
	const size_t head = R_TOK * R_DIM;
	size_t equal[4] = { 0 };

	must_read(d, 1, CAPTURE_Q, 0, R_TOK, x);
	for (size_t i = 0; i < head; i++) {
		equal[0] += x[i] == whole[i];
		equal[1] += whole[i] == whole[head + i];
	}
	must_read(c, 2, CAPTURE_Q, 0, R_TOK, x);
	for (size_t i = 0; i < head; i++)
		equal[2] += x[i] == whole[i];
	must_read(c, 1, CAPTURE_K, 0, R_TOK, x);
	for (size_t i = 0; i < head; i++)
		equal[3] += x[i] == whole[i];
	for (int i = 0; i < 4; i++)
		ok(equal[i] < head / 100, "another %s has other values",
		   ((const char *const[]){ "seed", "head", "layer", "tensor" })[i]);
	capture_close(c);
	capture_close(d);
}

static void test_random(void)
{
	static bf16_t whole[R_SIZE], part[R_SIZE];
	const bf16_t first[] = { 0xbf64, 0xbed6, 0xbf05, 0xbf43 };
	struct capture *c = must_draw("random:7", R_HEADS, R_TOK);
	struct capture *small = must_draw("random:7", 2, 60);
	struct ar_err err = { 0 };
	struct rng r = { 3 };
	int bad = 0;

	must_read(c, 1, CAPTURE_Q, 0, R_TOK, whole);
	ok(!memcmp(whole, first, sizeof first), "random:7 begins as it always does");
	is_normal(whole, R_SIZE);
	is_independent(whole);
	for (int i = 0; i < 50; i++) {
		int64_t at = (int64_t)rng_below(&r, R_TOK), h = (int64_t)rng_below(&r, R_HEADS);
		int64_t n = 1 + (int64_t)rng_below(&r, (uint64_t)(R_TOK - at));

		must_read(c, 1, CAPTURE_Q, at, n, part);
		bad += memcmp(part + h * n * R_DIM, whole + (h * R_TOK + at) * R_DIM,
			      (size_t)n * R_DIM * sizeof *part) != 0;
	}
	must_read(small, 1, CAPTURE_Q, 10, 50, part);
	bad += memcmp(part + 50 * R_DIM, whole + (R_TOK + 10) * R_DIM, 50 * R_DIM * sizeof *part) !=
	       0;
	ok(!bad, "any range, and a capture of fewer heads and tokens, has the same values");
	capture_close(c);
	capture_close(small);
	is_int(capture_open(&c, "random:7", &err), AR_USAGE, "no file is opened as random:7");
	is_str(err.msg,
	       "random:7: random values serve 'run' and 'select' only; name a file, with ./ before "
	       "such a name",
	       "... in these words");
}

/* The values of another capture, in one array. */
static void test_memory(void)
{
	enum { HEADS = R_HEADS + 2 * 2, LAYER = HEADS * R_TOK * R_DIM };
	static bf16_t values[R_LAYERS * LAYER], part[R_SIZE], want[R_SIZE];
	static char name[] = "mine";
	struct capture *from = must_draw("random:9", R_HEADS, R_TOK), *c;
	struct capture_info shape = *capture_info(from);
	int layer[] = { 4, 5, 9 }, bad = 0;
	struct ar_err err;

	for (int i = 0; i < R_LAYERS; i++) {
		bf16_t *to = values + i * LAYER;

		must_read(from, i, CAPTURE_Q, 0, R_TOK, to);
		must_read(from, i, CAPTURE_K, 0, R_TOK, to + R_HEADS * R_TOK * R_DIM);
		must_read(from, i, CAPTURE_V, 0, R_TOK, to + (R_HEADS + 2) * R_TOK * R_DIM);
	}
	shape.name = name;
	shape.layer = layer;
	shape.rope_applied = false;
	shape.rope.theta = 10000;
	if (capture_memory(&c, &shape, values, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < R_LAYERS; i++)
		for (int t = 0; t < 3; t++) {
			size_t n = (size_t)(t == CAPTURE_Q ? R_HEADS : 2) * 50 * R_DIM;

			must_read(from, i, (enum capture_tensor)t, 20, 50, want);
			must_read(c, i, (enum capture_tensor)t, 20, 50, part);
			bad += memcmp(part, want, n * sizeof *part) != 0;
		}
	is_int(bad, 0, "a capture in memory has the values given to it");
	ok(!strcmp(capture_info(c)->name, "mine") && capture_find_layer(capture_info(c), 9) == 2 &&
		   !capture_info(c)->rope_applied && capture_info(c)->rope.theta > 9999,
	   "and the name, layers and RoPE");
	capture_close(c);
	capture_close(from);
}

static void test_origin(void)
{
	const struct {
		const char *of, *model;
		enum capture_origin want;
	} list[] = { { "llama", "llama", CAPTURE_SAME },
		     { "meta-llama/Llama-3.1-8B", "llama-3.1-8b", CAPTURE_SAME },
		     { "Llama-3.1-8B-Instruct", "llama-3.1-8b", CAPTURE_OTHER },
		     { "", "llama", CAPTURE_UNKNOWN } };
	struct capture *c = must_draw("random:7", 2, 1);
	int bad = 0;

	for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
		char model[64];
		struct capture_info info = { .model = strcpy(model, list[i].of) };

		bad += capture_origin(&info, list[i].model) != list[i].want;
	}
	bad += capture_origin(capture_info(c), "llama") != CAPTURE_RANDOM;
	ok(!bad, "a capture is of the model, of another, of an unknown one, or of none");
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

static enum ar_status fault_random(struct ar_err *err)
{
	struct capture *c;
	enum ar_status st = capture_random(
		&c, "random:1", &(struct capture_info){ .n_layers = 2, .kv_heads = 1 }, err);

	if (st && c)
		bail_out("a failed draw left a capture");
	capture_close(c);
	return st;
}

static enum ar_status fault_memory(struct ar_err *err)
{
	static char name[] = "mine";
	static int layer = 3;
	static const bf16_t values[3 * 4];
	struct capture *c;
	enum ar_status st = capture_memory(&c,
					   &(struct capture_info){ .name = name,
								   .n_layers = 1,
								   .layer = &layer,
								   .q_heads = 1,
								   .kv_heads = 1,
								   .head_dim = 4,
								   .n_tok = 1 },
					   values, err);

	if (st && c)
		bail_out("a failed capture_memory() left a capture");
	capture_close(c);
	return st;
}

static struct capture *fault_capture;

static enum ar_status fault_pack(struct ar_err *err)
{
	return capture_pack(fault_capture, again_path, &(struct capture_pack){ .frame_tok = 4 },
			    err);
}

static enum ar_status fault_unpack(struct ar_err *err)
{
	return capture_unpack(fault_capture, out_path, err);
}

static void test_faults(void)
{
	static const struct {
		const char *what;
		enum ar_status (*run)(struct ar_err *);
	} cases[] = {
		{ "reading safetensors", fault_open_st },
		{ "reading an .arc file", fault_open_arc },
		{ "drawing random values", fault_random },
		{ "taking values in memory", fault_memory },
		{ "packing", fault_pack },
		{ "unpacking", fault_unpack },
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

			fault_arm(k);
			st = cases[i].run(&err);
			if (!fault_disarm()) {
				bad += st != AR_OK;
				break;
			}
			bad += st != AR_NOMEM || files_in_dir() != files;
		}
		ok(!bad && k > 2, "%s: each of %ld allocations fails cleanly", cases[i].what, k);
	}
	capture_close(fault_capture);
	capture_close(NULL);
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
	test_round_trips();
	test_frame_edges();
	test_pack_part();
	test_long_name();
	test_damage();
	test_named_frame();
	test_full_disk();
	test_random();
	test_memory();
	test_origin();
	test_faults();
	unlink(arc_path);
	unlink(out_path);
	test_interrupt();
	unlink(in_path);
	unlink(again_path);
	rmdir(dir);
	return done_testing();
}
