/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks of a decoder on GPUs, each a process with its slices of the weights: the hidden states
 * and logits of both are those of the whole model, as they add up each part over NCCL. */
#include "config.h"
#include "tests/tap.h"

enum { RANKS = 2, MODELS = 5, N_TEST = 5 * MODELS };

#if HAVE_CUDA
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "replay/engine/decoder_state.h"
#include "kernels/prim/cuda.h"
#include "model/weights.h"
#include "replay/ranks/world.h"
#include "src/run/workers.h"
#include "tests/rank_processes.h"
#include "tests/tiny_model.h"

enum { ROWS = 5, VOCAB = 72, WIDTH = 2048 };

struct result {
	bf16_t x[ROWS][TINY_HIDDEN];
	float logit[ROWS][VOCAB];
};

static struct shared {
	struct rank_page page;
	struct end {
		enum ar_status st;
		struct ar_err err;
		struct result all; /* of this rank with the others */
	} end[RANKS];
	struct result whole, alone; /* of the whole model; of rank 0 without the other */
} * shared;

static void note(void *ctx, int layer, enum phase what)
{
	(void)ctx;
	(void)layer;
	(void)what;
}

static enum ar_status copy(void *to, const void *from, size_t bytes, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	CU(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
out:
	return st;
}

/* The rows on the device, and the heads of a rank in the output of attention. */
struct input {
	struct layer_row *row;
	bf16_t *attn;
	int32_t *emit;
};

static enum ar_status make_input(struct input *in, const struct weights *w, int rank,
				 struct ar_err *err)
{
	const struct layer_spec *l = &w->model.layer[0];
	const int width = l->q_heads * l->head_dim;
	struct rng r = { 11 };
	enum ar_status st = AR_OK;

	CU(cudaMallocManaged((void **)&in->row, ROWS * sizeof *in->row, cudaMemAttachGlobal));
	CU(cudaMallocManaged((void **)&in->attn, ROWS * WIDTH * sizeof *in->attn,
			     cudaMemAttachGlobal));
	CU(cudaMallocManaged((void **)&in->emit, ROWS * sizeof *in->emit, cudaMemAttachGlobal));
	for (int i = 0; i < ROWS; i++) {
		in->row[i] = (struct layer_row){ .tok = VOCAB - 1 - 17 * i % VOCAB };
		in->emit[i] = i;
		for (int k = 0; k < WIDTH; k++) {
			const bf16_t x = bf16_from_f32(rng_normal(&r));
			const int at = k - rank * width;

			if (at >= 0 && at < width)
				in->attn[i * width + at] = x;
		}
	}
out:
	return st;
}

/* All layers and the head of the rank with weights w, whose heads are those of rank `rank`. */
static enum ar_status run(const struct weights *w, struct world *world, int rank,
			  struct result *out, struct ar_err *err)
{
	static const int layer[TINY_LAYERS] = { 0, 1, 2 };
	struct decoder_env env = { .model = &w->model,
				   .layer = layer,
				   .n_layers = TINY_LAYERS,
				   .max_row = ROWS,
				   .max_emit = ROWS,
				   .weights = w,
				   .world = world,
				   .phase = note };
	struct decoder *d = NULL;
	cudaStream_t stream;
	struct input in;
	enum ar_status st = make_input(&in, w, rank, err);

	if (st)
		return st;
	CU(cudaStreamCreate(&stream));
	env.stream = stream;
	st = decoder_open(&d, &env, err);
	if (!st)
		st = decoder_begin(d, in.row, ROWS, err);
	if (!st)
		st = decoder_enter(d, err);
	for (int i = 0; i < TINY_LAYERS && !st; i++)
		st = decoder_after(d, i, i, in.attn, err);
	if (!st)
		st = decoder_head(d, in.emit, ROWS, err);
	if (!st && world)
		st = world_wait(world, stream, err);
	if (!st)
		st = copy(out->x, d->now.x, sizeof out->x, err);
	for (int r = 0; r < ROWS && !st; r++)
		st = decoder_logits(d, r, out->logit[r], err);
	decoder_close(d);
out:
	return st;
}

static enum ar_status run_slices(const char *dir, struct world *world, int rank, int ranks,
				 struct result *out, struct ar_err *err)
{
	struct weights w;
	enum ar_status st = weights_open_rank(&w, dir, ranks, rank, err);

	if (st)
		return st;
	st = run(&w, world, rank, out, err);
	weights_release(&w);
	return st;
}

static void run_rank(int rank, const char *dir)
{
	struct end *e = &shared->end[rank];
	struct world_join join = { .rank = rank,
				   .size = RANKS,
				   .join_ns = 20000000000,
				   .timeout_ns = 10000000000,
				   .page = &shared->page,
				   .gpu = true,
				   .device = rank % rank_gpus(RANKS) };
	struct world *world = NULL;
	const struct nccl *nccl;

	e->st = nccl_load(&nccl, &e->err);
	if (!e->st && !rank && !nccl->GetUniqueId(&shared->page.id))
		atomic_store(&shared->page.has_id, 1);
	while (!e->st && !atomic_load(&shared->page.has_id))
		usleep(1000);
	join.id = shared->page.id;
	if (!e->st)
		e->st = world_open(&world, &join, &e->err);
	if (!e->st)
		e->st = run_slices(dir, world, rank, RANKS, &e->all, &e->err);
	if (e->st)
		rank_page_fail(&shared->page, rank);
	world_close(world);
	if (!e->st && !rank)
		e->st = run_slices(dir, NULL, 0, 1, &shared->whole, &e->err);
	if (!e->st && !rank) {
		struct weights w;

		e->st = weights_open_rank(&w, dir, RANKS, 0, &e->err);
		if (!e->st)
			e->st = run(&w, NULL, 0, &shared->alone, &e->err);
	}
	_exit(0);
}

/* The distance of hidden states, as a share of their size. */
static double off(const struct result *a, const struct result *b)
{
	double sum = 0, size = 0;

	for (int i = 0; i < ROWS * TINY_HIDDEN; i++) {
		const double x = (double)bf16_to_f32((&a->x[0][0])[i]),
			     y = (double)bf16_to_f32((&b->x[0][0])[i]);

		sum += (x - y) * (x - y);
		size += y * y;
	}
	return sqrt(sum / size);
}

static double logits_off(const struct result *a, const struct result *b)
{
	double sum = 0, size = 0;

	for (int i = 0; i < ROWS * VOCAB; i++) {
		const double x = (double)(&a->logit[0][0])[i], y = (double)(&b->logit[0][0])[i];

		sum += (x - y) * (x - y);
		size += y * y;
	}
	return sqrt(sum / size);
}

/* Each of 7 sums and the stream after it are rounded: 2^-9 each at most. */
static void check(const char *what)
{
	const struct end *e = shared->end;
	const double bound = ldexp(sqrt(14), -9), far = off(&e[0].all, &shared->whole);

	if (!ok(!e[0].st && !e[1].st, "%s: two ranks run", what))
		diag("%s %s", e[0].err.msg, e[1].err.msg);
	ok(!memcmp(e[0].all.x, e[1].all.x, sizeof e[0].all.x),
	   "%s: their hidden states have the same bits", what);
	ok(far <= bound, "%s: ... and are those of the model: %.5f off, at most %.5f", what, far,
	   bound);
	ok(off(&shared->alone, &shared->whole) > 4 * bound,
	   "%s: ... not those of one rank: %.5f off", what, off(&shared->alone, &shared->whole));
	ok(!memcmp(e[0].all.logit, e[1].all.logit, sizeof e[0].all.logit) &&
		   logits_off(&e[0].all, &shared->whole) <= 2 * bound,
	   "%s: both have all logits: %.5f off", what, logits_off(&e[0].all, &shared->whole));
}

static void run_model(const struct tiny *like)
{
	char dir[] = "/tmp/t-decoder-ranks-XXXXXX";
	struct tiny m = *like;
	pid_t child[RANKS];

	m.dim = 64;
	m.vocab = VOCAB;
	if (!mkdtemp(dir))
		bail_out("no temporary folder");
	tiny_folder(dir, &m);
	memset(shared, 0, sizeof *shared);
	fflush(NULL);
	for (int i = 0; i < RANKS; i++)
		if (!(child[i] = fork()))
			run_rank(i, dir);
	for (int i = 0; i < RANKS; i++)
		waitpid(child[i], NULL, 0);
	tiny_remove(dir);
	rmdir(dir);
	check(m.what);
}

int main(void)
{
	plan(N_TEST);
	if (!ranks_have_gpus(RANKS)) {
		skip(N_TEST, "fewer than two GPUs, or no NCCL");
		return done_testing();
	}
	shared = workers_share(sizeof *shared);
	if (!shared)
		bail_out("no memory");
	for (int i = 0; i < MODELS; i++)
		run_model(&tiny_models[i]);
	workers_unshare(shared, sizeof *shared);
	return done_testing();
}
#else
int main(void)
{
	plan(N_TEST);
	skip(N_TEST, "built without CUDA");
	return done_testing();
}
#endif
