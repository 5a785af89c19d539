/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of the reference decoder that run together, each a process: over all layers they have the
 * hidden state and the logits of the whole model, the same on all ranks to the bit, by the messages
 * that engines send.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "model/layer_size.h"
#include "replay/forward/decoder_ref.h"
#include "replay/ranks/world.h"
#include "src/run/workers.h"
#include "tests/rank_processes.h"
#include "tests/tap.h"
#include "tests/tiny_model.h"

enum { ROWS = 5, EMITTED = 3, VOCAB = 72, MOST = 6, WIDTH = 2048 };

struct result {
	bool done;
	bf16_t x[ROWS * TINY_HIDDEN];
	float logit[EMITTED * VOCAB];
};

static struct shared {
	struct rank_page page;
	struct result whole, rank[MOST];
} * shared;

static bf16_t attention[TINY_LAYERS][ROWS][WIDTH];
static char folder[] = "/tmp/t-rank-sums-XXXXXX", record[64];

/* What attention puts out in a layer, of the heads of a rank. */
static void make_attention(const struct weights *w, int layer, int rank, bf16_t *out)
{
	const size_t n = layer_o_width(&w->model.layer[layer]);

	for (size_t i = 0; i < ROWS; i++)
		memcpy(out + i * n, &attention[layer][i][(size_t)rank * n], n * sizeof *out);
}

static enum ar_status run_layers(struct decoder_ref *d, const struct weights *w, int rank,
				 struct ar_err *err)
{
	bf16_t attn[ROWS * WIDTH];
	enum ar_status st = AR_OK;

	for (int l = 0; l < TINY_LAYERS && !st; l++) {
		make_attention(w, l, rank, attn);
		st = decoder_ref_before(d, l, err);
		if (!st)
			st = decoder_ref_project(d, l, attn, err);
		if (!st)
			st = decoder_ref_mlp(d, l, err);
	}
	return st ? st : decoder_ref_end(d, err);
}

static void run_rank(int tp, int rank, struct world *world, struct result *out)
{
	static const int32_t emitted[EMITTED] = { 0, 2, 4 };
	struct layer_row row[ROWS];
	struct decoder_ref *d;
	struct weights w;
	struct ar_err err;
	enum ar_status st = weights_open_rank(&w, folder, tp, rank, &err);

	for (int i = 0; i < ROWS; i++)
		row[i] = (struct layer_row){ .tok = VOCAB - 1 - 17 * i };
	if (!st)
		st = decoder_ref_open(&d, &w, NULL, NULL, &err);
	if (st)
		bail_out("%s", err.msg);
	decoder_ref_join(d, world);
	st = decoder_ref_room(d, ROWS, &err);
	if (!st)
		st = decoder_ref_begin(d, row, ROWS, &err);
	if (!st)
		st = run_layers(d, &w, rank, &err);
	if (!st)
		memcpy(out->x, decoder_ref_hidden(d), sizeof out->x);
	if (!st)
		st = decoder_ref_logits(d, emitted, EMITTED, out->logit, &err);
	if (st)
		diag("rank %d of %d: %s", rank, tp, err.msg);
	out->done = !st;
	decoder_ref_close(d);
	weights_release(&w);
}

/* In a process of its own. */
static void join_and_run(int tp, int rank)
{
	const struct world_join join = { .rank = rank,
					 .size = tp,
					 .id = shared->page.id,
					 .join_ns = 60000000000,
					 .timeout_ns = 60000000000,
					 .page = &shared->page };
	struct ar_err err;
	struct world *world;

	if (world_open(&world, &join, &err))
		bail_out("%s", err.msg);
	run_rank(tp, rank, world, &shared->rank[rank]);
	world_close(world);
	_exit(0);
}

static void run_together(int tp)
{
	const struct nccl *nccl;
	struct ar_err err;

	memset(shared, 0, sizeof *shared);
	if (nccl_load(&nccl, &err) || nccl->GetUniqueId(&shared->page.id))
		bail_out("%s", err.msg);
	unlink(record);
	fflush(NULL);
	for (int i = 0; i < tp; i++)
		if (!fork())
			join_and_run(tp, i);
	while (wait(NULL) > 0)
		;
}

/* Roots of the sums of squares: of a - b, and of a. */
static double distance(const float *a, const float *b, size_t n, double *size)
{
	double off = 0, all = 0;

	for (size_t i = 0; i < n; i++) {
		off += pow((double)(a[i] - b[i]), 2);
		all += pow((double)a[i], 2);
	}
	*size = sqrt(all);
	return sqrt(off);
}

/* The sums are rounded to bf16 once for each rank and message: by a part of 2^-8 at most. */
static void check_values(const char *what, int tp)
{
	float a[ROWS * TINY_HIDDEN], b[ROWS * TINY_HIDDEN];
	const double part = sqrt((tp + 1) * (2 * TINY_LAYERS + 1)) * 0x1p-8;
	const struct result *first = &shared->rank[0];
	double size, off;
	bool same = true;

	for (int i = 0; i < tp; i++)
		same = same && shared->rank[i].done &&
		       !memcmp(&shared->rank[i], first, sizeof *first);
	ok(same, "%s: %d ranks have the same hidden states and logits to the bit", what, tp);
	for (size_t i = 0; i < ROWS * TINY_HIDDEN; i++) {
		a[i] = bf16_to_f32(shared->whole.x[i]);
		b[i] = bf16_to_f32(first->x[i]);
	}
	off = distance(a, b, ROWS * TINY_HIDDEN, &size);
	ok(off <= part * size,
	   "... hidden states of the whole model: %.4f of %.1f off, at most %.4f", off, size,
	   part * size);
	off = distance(shared->whole.logit, first->logit, EMITTED * VOCAB, &size);
	ok(off <= part * size, "... and its logits: %.4f of %.1f off, at most %.4f", off, size,
	   part * size);
}

/* A sum after the embeddings, and two in each layer; the logits of each rank. */
static void check_messages(int tp)
{
	FILE *f = fopen(record, "r");
	char line[96], want[96];
	int n = 0, bad = 0;

	while (f && fgets(line, sizeof line, f)) {
		if (n++ <= 2 * TINY_LAYERS)
			snprintf(want, sizeof want, "allreduce %d %d\n", NCCL_BF16,
				 ROWS * TINY_HIDDEN);
		else
			snprintf(want, sizeof want, "allgather %d %zu\n", NCCL_UINT8,
				 EMITTED * VOCAB / (size_t)tp * sizeof(float));
		bad += strcmp(line, want) != 0;
	}
	if (f)
		fclose(f);
	ok(n == 2 * TINY_LAYERS + 2 && !bad, "... by the messages of an engine: %d, %d others", n,
	   bad);
}

static void check_model(const struct tiny *m, int tp)
{
	struct tiny with = *m;
	struct result whole = { 0 };

	with.vocab = VOCAB;
	tiny_folder(folder, &with);
	run_rank(1, 0, NULL, &whole);
	run_together(tp);
	shared->whole = whole;
	check_values(m->what, tp);
	check_messages(tp);
	tiny_remove(folder);
}

int main(void)
{
	static const int tps[TINY_MODELS] = { 6, 4, 4, 4, 4 };
	struct rng r = { 5 };

	plan(0);
	setenv("ATTNREPLAY_NCCL", fake_nccl_path(), 1);
	if (!mkdtemp(folder))
		bail_out("no temporary folder");
	snprintf(record, sizeof record, "%s.messages", folder);
	setenv("FAKE_NCCL_RECORD", record, 1);
	shared = workers_share(sizeof *shared);
	if (!shared)
		bail_out("no memory");
	for (int l = 0; l < TINY_LAYERS; l++)
		for (int i = 0; i < ROWS; i++)
			for (int k = 0; k < WIDTH; k++)
				attention[l][i][k] = bf16_from_f32(rng_normal(&r));
	for (int i = 0; i < TINY_MODELS; i++) {
		check_model(&tiny_models[i], 2);
		check_model(&tiny_models[i], tps[i]);
	}
	unlink(record);
	rmdir(folder);
	workers_unshare(shared, sizeof *shared);
	return done_testing();
}
