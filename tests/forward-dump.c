/* SPDX-License-Identifier: Apache-2.0 */
/* forward-dump BACKEND WEIGHTS_DIR PROMPTS OUT.safetensors [CHUNK]: run a model over the first
 * prompt of a file, CHUNK tokens at a time (default: all at once).  Write the tensors that
 * contrib/compare_hf.py compares with the framework:
 *
 *   hidden.0 ... hidden.L  BF16 [tokens][hidden]  the residual stream that enters a layer; hidden.L
 *                                                 is behind the last one, before the last norm
 *   logits                 F32  [tokens][vocab]
 *
 * Without an argument it is a test of its own. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"
#include "base/safetensors.h"
#include "replay/forward/forward.h"
#include "tests/file.h"
#include "tests/tap.h"
#include "tests/tiny_model.h"
#include "tests/watch_gpu.h"
#include "tests/whole_model.h"
#include "traces/prompts.h"

enum { LOGIT_ROWS = 64 }; /* computed at a time */

struct dump {
	const struct weights *w;
	const int32_t *id;
	int n, chunk;
	FILE *f;
	long data; /* where the tensors begin in f */
};

static size_t hidden_bytes(const struct dump *d)
{
	return (size_t)d->n * (size_t)d->w->model.hidden * sizeof(bf16_t);
}

static enum ar_status put(const struct dump *d, size_t at, const void *p, size_t n,
			  struct ar_err *err)
{
	return !fseek(d->f, d->data + (long)at, SEEK_SET) && fwrite(p, 1, n, d->f) == n ?
		       AR_OK :
		       ar_fail(err, AR_DATA, "cannot write the tensors");
}

/* Write n_row rows of hidden.LAYER from row pos on. */
static enum ar_status put_hidden(const struct dump *d, int layer, int64_t pos, int n_row,
				 const bf16_t *x, struct ar_err *err)
{
	size_t row = (size_t)d->w->model.hidden * sizeof *x;

	return put(d, (size_t)layer * hidden_bytes(d) + (size_t)pos * row, x, (size_t)n_row * row,
		   err);
}

static enum ar_status put_logits(const struct dump *d, int64_t pos, int n_row, const float *x,
				 struct ar_err *err)
{
	size_t row = (size_t)d->w->model.vocab * sizeof *x;

	return put(d, (size_t)(d->w->model.n_layers + 1) * hidden_bytes(d) + (size_t)pos * row, x,
		   (size_t)n_row * row, err);
}

static enum ar_status put_header(struct dump *d, struct ar_err *err)
{
	const struct model *m = &d->w->model;
	size_t at = 0, logits = (size_t)d->n * (size_t)m->vocab * sizeof(float);
	unsigned char length[8];

	fseek(d->f, sizeof length, SEEK_SET);
	fputc('{', d->f);
	for (int i = 0; i <= m->n_layers; i++, at += hidden_bytes(d))
		fprintf(d->f,
			"\"hidden.%d\":{\"dtype\":\"BF16\",\"shape\":[%d,%d],"
			"\"data_offsets\":[%zu,%zu]},",
			i, d->n, m->hidden, at, at + hidden_bytes(d));
	fprintf(d->f,
		"\"logits\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]}}",
		d->n, m->vocab, at, at + logits);
	while ((d->data = ftell(d->f)) % 8)
		fputc(' ', d->f);
	for (int i = 0; i < 8; i++)
		length[i] = (unsigned char)((uint64_t)(d->data - 8) >> 8 * i);
	rewind(d->f);
	return fwrite(length, 1, sizeof length, d->f) == sizeof length ?
		       AR_OK :
		       ar_fail(err, AR_DATA, "cannot write the header");
}

/* ---- backends ---- */

static enum ar_status see(void *ctx, const struct forward_layer *l, struct ar_err *err)
{
	return put_hidden(ctx, l->layer, l->pos0, l->n_row, l->x, err);
}

/* Write hidden states behind the layers, and logits, of the chunk of n tokens at position pos. */
static enum ar_status put_end(const struct dump *d, const struct forward *f, int pos, int n,
			      struct ar_err *err)
{
	float *logits = malloc(LOGIT_ROWS * (size_t)d->w->model.vocab * sizeof *logits);
	enum ar_status st = logits ? AR_OK : ar_nomem(err);

	if (!st)
		st = put_hidden(d, d->w->model.n_layers, pos, n, forward_hidden(f), err);
	for (int r = 0; r < n && !st; r += LOGIT_ROWS) {
		int rows = n - r < LOGIT_ROWS ? n - r : LOGIT_ROWS;

		st = forward_logits(f, r, rows, logits, err);
		if (!st)
			st = put_logits(d, pos + r, rows, logits, err);
	}
	free(logits);
	return st;
}

static enum ar_status dump_cpu(struct dump *d, struct ar_err *err)
{
	struct forward *f;
	enum ar_status st = forward_open(&f, d->w, d->n, see, d, err);

	for (int at = 0; at < d->n && !st; at += d->chunk) {
		int n = d->n - at < d->chunk ? d->n - at : d->chunk;

		st = forward_run(f, d->id + at, n, err);
		if (!st)
			st = put_end(d, f, at, n, err);
	}
	forward_close(f);
	return st;
}

#if HAVE_CUDA
#include "replay/engine/backend_cuda.h"

/* Write the tensors of the last pass, of n rows from position pos on. */
static enum ar_status put_pass(const struct dump *d, const struct watch_gpu *w, int pos, int n,
			       struct ar_err *err)
{
	const struct model *m = &d->w->model;
	bf16_t *x = malloc((size_t)n * (size_t)m->hidden * sizeof *x);
	float *logits = malloc((size_t)n * (size_t)m->vocab * sizeof *logits);
	enum ar_status st = x && logits ? AR_OK : ar_nomem(err);

	for (int i = 0; i <= m->n_layers && !st; i++) {
		watch_gpu_read(w, i, n, x);
		st = put_hidden(d, i, pos, n, x, err);
	}
	if (!st)
		watch_gpu_logits(w, n, logits);
	if (!st)
		st = put_logits(d, pos, n, logits, err);
	free(x);
	free(logits);
	return st;
}

/* The backend runs the prompt in its chunks, with dense attention. */
static enum ar_status dump_cuda(struct dump *d, struct ar_err *err)
{
	const struct tokens_text text = { .prompt = d->id, .n_prompt = (uint32_t)d->n };
	struct request request = { .prompt_tok = (uint32_t)d->n, .output_tok = 1 };
	const struct trace trace = { .req = &request, .n = 1 };
	const struct whole_how how = { .method = "dense",
				       .backend = &backend_cuda,
				       .eager = true,
				       .trace = &trace,
				       .text = &text,
				       .max_batched_tok = d->chunk };
	struct whole x;
	struct watch_gpu w;
	enum ar_status st = whole_try(&x, d->w, how, err);

	if (st) {
		whole_close(&x);
		return st;
	}
	watch_gpu_open(&w, ((struct cuda *)x.self)->decoder);
	for (int at = 0; at < d->n && !st; at += d->chunk) {
		struct batch_entry e = whole_next(&x, 0, (uint32_t)d->chunk);

		whole_step(&x, &e, 1);
		st = put_pass(d, &w, at, (int)e.n_tok, err);
	}
	watch_gpu_close(&w);
	whole_close(&x);
	return st;
}
#endif

static const struct {
	const char *name;
	enum ar_status (*dump)(struct dump *d, struct ar_err *err);
} dumpers[] = {
	{ "cpu", dump_cpu },
#if HAVE_CUDA
	{ "cuda", dump_cuda },
#endif
};

/* ---- the program ---- */

static enum ar_status write_file(size_t backend, struct dump *d, const char *path,
				 struct ar_err *err)
{
	enum ar_status st;

	d->f = fopen(path, "wb");
	if (!d->f)
		return ar_fail(err, AR_DATA, "%s: cannot be written", path);
	st = put_header(d, err);
	if (!st)
		st = dumpers[backend].dump(d, err);
	if (fclose(d->f) && !st)
		st = ar_fail(err, AR_DATA, "%s: cannot be written", path);
	return st;
}

static enum ar_status run(const char *backend, const char *dir, const char *path, const char *out,
			  int chunk, struct ar_err *err)
{
	struct dump d = { .chunk = chunk };
	struct weights w = { 0 };
	struct prompts p;
	size_t i = 0;
	enum ar_status st;

	while (i < sizeof dumpers / sizeof *dumpers && strcmp(dumpers[i].name, backend) != 0)
		i++;
	if (i == sizeof dumpers / sizeof *dumpers)
		return ar_fail(err, AR_USAGE, "no backend '%s'", backend);
	st = prompts_read(&p, path, err);
	if (st)
		return st;
	d.id = p.v[0].prompt;
	d.n = (int)p.v[0].n_prompt;
	if (!d.chunk)
		d.chunk = d.n;
	st = weights_open(&w, dir, err);
	d.w = &w;
	if (!st)
		st = write_file(i, &d, out, err);
	weights_release(&w);
	prompts_release(&p);
	return st;
}

/* ---- the test of its own ---- */

static char dir[] = "/tmp/forward-dump-XXXXXX";
static char prompts[64], out[2][64];

static void check_tensors(const char *path, int n_tok)
{
	const struct safetensors_tensor *t;
	struct ar_err err = { 0 };
	struct safetensors *s;

	if (!ok(!safetensors_open(&s, path, &err), "a safetensors file: %s", err.msg))
		return;
	is_int((long long)safetensors_count(s), TINY_LAYERS + 2, "of so many tensors");
	t = safetensors_at(s, 1);
	ok(!strcmp(t->name, "hidden.1") && !strcmp(t->dtype, "BF16") && t->dim[0] == n_tok &&
		   t->dim[1] == TINY_HIDDEN,
	   "hidden states");
	t = safetensors_at(s, TINY_LAYERS + 1);
	ok(!strcmp(t->name, "logits") && !strcmp(t->dtype, "F32") && t->dim[0] == n_tok &&
		   t->dim[1] == TINY_VOCAB,
	   "and logits");
	safetensors_close(s);
}

/* Chunks give the same file as the whole. */
static void check_chunks(void)
{
	unsigned char *file[2];
	size_t n[2], zeros = 0;

	for (int i = 0; i < 2; i++)
		file[i] = file_read(out[i], &n[i]);
	ok(n[0] == n[1] && !memcmp(file[0], file[1], n[0]), "chunks of 2 tokens give the same");
	for (size_t i = n[0] - 5 * TINY_VOCAB * sizeof(float); i < n[0]; i++)
		zeros += !file[0][i];
	ok(zeros < 5 * TINY_VOCAB, "all logits are written");
	for (int i = 0; i < 2; i++)
		free(file[i]);
}

static void clean(void)
{
	static const char *const names[] = { "prompts", "0", "1" };
	char path[64];

	tiny_remove(dir);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		remove(path);
	}
	rmdir(dir);
}

static void test(void)
{
	static const char text[] = "[1, 2, 3, 4, 69]\n";
	struct ar_err err = { 0 };

	if (!mkdtemp(dir))
		bail_out("no folder");
	snprintf(prompts, sizeof prompts, "%s/prompts", dir);
	file_write(prompts, text, sizeof text - 1);
	tiny_folder(dir, &tiny_models[3]);
	for (int i = 0; i < 2; i++) {
		snprintf(out[i], sizeof out[i], "%s/%d", dir, i);
		ok(!run("cpu", dir, prompts, out[i], 2 * i, &err), "a pass is written: %s",
		   err.msg);
	}
	check_tensors(out[0], 5);
	check_chunks();
	ok(run("none", dir, prompts, out[0], 0, &err) == AR_USAGE, "no such backend: %s", err.msg);
	clean();
}

int main(int argc, char **argv)
{
	struct ar_err err = { 0 };
	int64_t chunk = 0;
	enum ar_status st;

	if (argc == 1) {
		plan(0);
		test();
		return done_testing();
	}
	if (argc < 5 || argc > 6 ||
	    (argc == 6 && (!num_count(argv[5], &chunk) || chunk > INT32_MAX))) {
		fprintf(stderr, "usage: forward-dump BACKEND WEIGHTS_DIR PROMPTS OUT [CHUNK]\n");
		return 2;
	}
	st = run(argv[1], argv[2], argv[3], argv[4], (int)chunk, &err);
	if (st)
		fprintf(stderr, "forward-dump: %s\n", err.msg);
	return ar_exit_code(st);
}
