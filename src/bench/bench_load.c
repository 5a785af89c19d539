/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_load.h"

#include <assert.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/layer/layer.h"
#include "kernels/prim/cuda.h"

enum { L2_TIMES = 4, MAX_SETS = 64 };

void bench_drop(struct bench_load *l, int keep)
{
	cudaDeviceSynchronize();
	while (l->n_alloc > keep)
		cudaFree(l->alloc[--l->n_alloc]);
}

enum ar_status bench_take(struct bench_load *l, void *to, size_t bytes, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	void *p;

	assert(l->n_alloc < BENCH_ALLOCS);
	CU(cudaMalloc(&p, bytes ? bytes : 1));
	l->alloc[l->n_alloc++] = p;
	memcpy(to, &p, sizeof p);
out:
	return st;
}

enum ar_status bench_upload(struct bench_load *l, void *to, const void *host, size_t bytes,
			    struct ar_err *err)
{
	enum ar_status st = bench_take(l, to, bytes, err);
	void *p;

	if (st)
		return st;
	memcpy(&p, to, sizeof p);
	if (bytes)
		CU(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
out:
	return st;
}

/* The seed of the next allocation. */
static uint64_t next_seed(const struct bench_load *l)
{
	return rng_mix(l->d->env.seed + (uint64_t)l->n_alloc);
}

enum ar_status bench_take_random(struct bench_load *l, bf16_t **to, size_t n, float scale,
				 struct ar_err *err)
{
	size_t all = n * (size_t)l->n_set;
	uint64_t seed = next_seed(l);
	enum ar_status st = bench_take(l, to, all * sizeof **to, err);

	return st ? st : layer_fill(*to, all, seed, scale, l->d->stream, err);
}

int bench_sets(const struct bench_load *l, size_t used, size_t taken)
{
	size_t n = (L2_TIMES * l->d->l2_bytes + used - 1) / used, left = 0, total = 0, fit;

	cudaMemGetInfo(&left, &total);
	fit = left / 4 * 3 / taken;
	n = n < 2 ? 2 : n > MAX_SETS ? MAX_SETS : n;
	return (int)(n < fit ? n : fit ? fit : 1);
}

struct kv_cache bench_kv_at(const struct bench_load *l, int set)
{
	size_t at = (size_t)set * l->kv_len;

	return (struct kv_cache){ .k = l->kv.k + at, .v = l->kv.v ? l->kv.v + at : NULL };
}

const bf16_t *bench_q_at(const struct bench_load *l, int set)
{
	return l->q + (size_t)set * l->q_len;
}

struct attn_call bench_call(const struct bench_load *l, int set)
{
	return (struct attn_call){ .b = &l->b,
				   .q = bench_q_at(l, set),
				   .kv = bench_kv_at(l, set),
				   .out = l->out,
				   .work = l->work,
				   .stream = l->d->stream };
}
