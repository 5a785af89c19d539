/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives in the memory of the host, by the host's clock.  NCCL's own library does not reach
 * it; one that does takes its place in tests. */
#include "config.h"
#include "src/bench/collective.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "replay/ranks/rank_id.h"
#include "src/run/rank_group.h"
#include "src/run/workers.h"

struct collective_rank {
	struct world *world;
	struct collective_env env;
	struct collective_buffers b;
};

static void close_host(struct collective_rank *r)
{
	if (!r)
		return;
	world_close(r->world);
	free(r->b.in);
	free(r->b.out);
	free(r);
}

static enum ar_status open_host(struct collective_rank **out, const struct world_join *j,
				const struct collective_env *env, struct collective_about *about,
				struct ar_err *err)
{
	struct collective_rank *r = calloc(1, sizeof *r);
	enum ar_status st;

	*out = NULL;
	if (!r)
		return ar_nomem(err);
	r->env = *env;
	r->b.in = malloc((size_t)env->bytes);
	r->b.out = malloc((size_t)env->bytes);
	st = r->b.in && r->b.out ? rank_join(&r->world, j, err) : ar_nomem(err);
	if (st) {
		close_host(r);
		return st;
	}
	*about = (struct collective_about){ .gpu = "none", .driver = "none" };
	*out = r;
	return AR_OK;
}

static void fill(const struct collective_rank *r, bf16_t *x, size_t n)
{
	struct rng rng = { rng_mix(r->env.seed + (uint64_t)world_rank(r->world)) };

	for (size_t i = 0; i < n; i++)
		x[i] = bf16_from_f32((float)rng_unit(&rng) - 0.5f);
}

static enum ar_status run_once(struct collective_rank *r, const struct collective *c,
			       struct ar_err *err)
{
	enum ar_status st = collective_enqueue(r->world, &r->b, c, NULL, err);

	return st ? st : world_wait(r->world, NULL, err);
}

static enum ar_status measure_host(struct collective_rank *r, const struct collective *c,
				   struct collective_time *took, struct collective_seen *seen,
				   struct ar_err *err)
{
	char none[RANKS_MAX], mine = 0;
	size_t n;
	bf16_t *in = collective_input(&r->b, c, world_size(r->world), &n);
	enum ar_status st;

	fill(r, in, n);
	st = run_once(r, c, err);
	*seen = (struct collective_seen){ "-", collective_digest(r->b.out,
								 (size_t)c->bytes / sizeof *in) };
	for (int i = 0; i < r->env.repeat && !st; i++) {
		int64_t start;

		st = world_gather(r->world, &mine, none, 1, err);
		start = workers_now_ns();
		if (!st)
			st = run_once(r, c, err);
		took[i].adds_ns = took[i].own_ns = workers_now_ns() - start;
	}
	return st;
}

const struct collective_way collective_host = { "host", "host", open_host, measure_host,
						close_host };
