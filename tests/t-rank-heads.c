/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank reads its own heads of a capture that has those of all ranks; ranks share KV heads that
 * are fewer than they.  Each rank is a process. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "replay/engine/act_capture.h"
#include "replay/ranks/world.h"
#include "src/run/workers.h"
#include "tests/rank_processes.h"
#include "tests/tap.h"

enum { HEADS = 8, KV_HEADS = 2, DIM = 16, TOK = 12, LAYERS = 2, RANKS = 4 };

static struct shared {
	struct rank_page page;
	struct ar_err err;
	bool right[RANKS];
} * shared;

/* The activations of a rank: of all heads, if world is NULL. */
static const struct act_capture *read_heads(struct capture **c, struct world *world, int q, int kv,
					    struct ar_err *err)
{
	static const int layers[LAYERS] = { 0, 1 };
	static const uint16_t of[1];
	static const struct model m;
	const struct attn_shape shape = { q, kv, DIM, 16 };
	const struct backend_env env = { .model = &m,
					 .capture = c,
					 .n_capture = 1,
					 .capture_of = of,
					 .captured_layer = layers,
					 .run_layer = layers,
					 .n_run_layers = LAYERS,
					 .max_len = TOK,
					 .world = world };
	void *self;

	if (activations_capture.open(&self, &env, &shape, err) ||
	    activations_capture.load_ref(self, err))
		return NULL;
	return self;
}

/* All values of one head; its number counts those of Q, K and V. */
static const bf16_t *head_of(const struct act_capture *a, int layer, int head)
{
	const int n = a->shape.q_heads + 2 * a->shape.kv_heads;

	return a->data + (size_t)((layer * n + head) * TOK * DIM);
}

static bool same(const struct act_capture *a, int head, const struct act_capture *b, int other)
{
	bool right = true;

	for (int i = 0; i < LAYERS; i++)
		right &= !memcmp(head_of(a, i, head), head_of(b, i, other),
				 TOK * DIM * sizeof(bf16_t));
	return right;
}

/* own: the capture has the heads of one rank. */
static bool check_heads(struct world *w, int ranks, bool own, struct ar_err *err)
{
	const int q = HEADS / ranks, kv = KV_HEADS < ranks ? 1 : KV_HEADS / ranks;
	const int rank = own ? 0 : world_rank(w), all_q = own ? q : HEADS,
		  all_kv = own ? kv : KV_HEADS;
	char name[] = "random";
	const struct capture_info shape = { .name = name,
					    .n_tok = TOK,
					    .n_layers = LAYERS,
					    .q_heads = all_q,
					    .kv_heads = all_kv,
					    .head_dim = DIM,
					    .rope_applied = true };
	struct capture *c;
	const struct act_capture *whole, *mine;
	bool right = true;

	if (capture_random(&c, "random:5", &shape, err))
		return false;
	whole = read_heads(&c, NULL, all_q, all_kv, err);
	mine = read_heads(&c, w, q, kv, err);
	if (!whole || !mine)
		return false;
	for (int i = 0; i < q; i++)
		right &= same(mine, i, whole, rank * q + i);
	for (int i = 0; i < 2 * kv; i++)
		right &= same(mine, q + i, whole,
			      all_q + i / kv * all_kv + rank * all_kv / (own ? 1 : ranks) + i % kv);
	activations_capture.close((void *)whole);
	activations_capture.close((void *)mine);
	capture_close(c);
	return right;
}

static void run_rank(int rank, int ranks, bool own)
{
	struct ar_err err = { 0 };
	struct world *w = NULL;

	if (!join_as_rank(&w, &shared->page, rank, ranks, &err))
		shared->right[rank] = check_heads(w, ranks, own, &err);
	if (!shared->right[rank])
		shared->err = err;
	world_close(w);
	_exit(0);
}

static void run_all(int ranks, bool own)
{
	const struct nccl *nccl;
	pid_t child[RANKS];
	struct ar_err err;
	bool right = true;

	memset(shared, 0, sizeof *shared);
	if (nccl_load(&nccl, &err) || nccl->GetUniqueId(&shared->page.id))
		bail_out("%s", err.msg);
	fflush(NULL);
	for (int i = 0; i < ranks; i++)
		if (!(child[i] = fork()))
			run_rank(i, ranks, own);
	for (int i = 0; i < ranks; i++) {
		waitpid(child[i], NULL, 0);
		right &= shared->right[i];
	}
	if (!ok(right, "%d ranks read %s", ranks,
		own ? "the heads of a capture that has those of one rank" : "their heads"))
		diag("%s", shared->err.msg);
}

int main(void)
{

	plan(0);
	setenv("ATTNREPLAY_NCCL", fake_nccl_path(), 1);
	shared = workers_share(sizeof *shared);
	if (!shared)
		bail_out("no memory");
	run_all(2, false);
	run_all(4, false);
	run_all(2, true);
	workers_unshare(shared, sizeof *shared);
	return done_testing();
}
