/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/gpu_test.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "kernels/exec/executor.h"
#include "kernels/support.h"
#include "tests/tap.h"

long gpu_test_number(const char *name, long usual)
{
	const char *s = getenv(name);

	return s && *s ? strtol(s, NULL, 10) : usual;
}

void gpu_must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

void *gpu_host(size_t bytes)
{
	void *p = malloc(bytes + 1);

	if (!p)
		bail_out("out of memory");
	return p;
}

#if HAVE_CUDA
#include <cuda_runtime_api.h>

static void **taken;
static size_t n_taken, cap_taken;

static void check(cudaError_t e, const char *what)
{
	if (e != cudaSuccess)
		bail_out("%s: %s", what, cudaGetErrorString(e));
}

static bool gpu_found(void)
{
	enum cudaDeviceAttr attr = cudaDevAttrComputeCapabilityMajor;
	int n, major;

	return cudaGetDeviceCount(&n) == cudaSuccess && n > 0 &&
	       cudaDeviceGetAttribute(&major, attr, 0) == cudaSuccess && major >= 8;
}

void *gpu_new(size_t bytes, int fill)
{
	void *p = NULL;

	if (!GROW(taken, cap_taken, n_taken + 1))
		bail_out("out of memory");
	check(cudaMalloc(&p, bytes + 1), "cudaMalloc");
	gpu_fill(p, bytes + 1, fill);
	taken[n_taken++] = p;
	return p;
}

void *gpu_copy(const void *host, size_t bytes)
{
	void *p = gpu_new(bytes, 0xff);

	gpu_write(p, host, bytes);
	return p;
}

void gpu_fill(void *device, size_t bytes, int fill)
{
	check(cudaMemset(device, fill, bytes), "cudaMemset");
}

void gpu_write(void *device, const void *host, size_t bytes)
{
	check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copy to the device");
}

void gpu_read(void *host, const void *device, size_t bytes)
{
	check(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copy from the device");
}

void gpu_free_all(void)
{
	while (n_taken)
		check(cudaFree(taken[--n_taken]), "cudaFree");
}

int gpu_n_sm(void)
{
	const struct attn_shape s = { 1, 1, 128, 128 };
	const struct gpu *gpu;
	struct ar_err err;

	gpu_must(gpu_current(&gpu, &err), &err);
	return executor_n_sm(executor_find("paged"), &s, gpu);
}

bool gpu_attends(int head_dim)
{
	const struct attn_shape s = { 1, 1, head_dim, 128 };
	const struct gpu *gpu;
	struct ar_err err;

	gpu_must(gpu_current(&gpu, &err), &err);
	return !support_check("attend", &s, NULL, gpu->cc, &err);
}

struct attn_batch gpu_batch(const struct attn_batch *host)
{
	struct attn_batch b = *host;
	const struct attn_rows *rows = &host->rows;
	const struct attn_keys *keys = &host->keys;
	size_t n = (size_t)rows->n_req, size = sizeof(int32_t);

	b.rows.row0 = gpu_copy(rows->row0, (n + 1) * size);
	b.rows.pos = gpu_copy(rows->pos, (size_t)rows->n_row * size);
	b.rows.pos0 = gpu_copy(rows->pos0, n * size);
	b.rows.qblk0 = gpu_copy(rows->qblk0, (n + 1) * size);
	b.rows.left = gpu_copy(rows->left, n * size);
	if (rows->first)
		b.rows.first = gpu_copy(rows->first, (size_t)rows->n_row * size);
	if (keys->pos) {
		b.rows.own = gpu_copy(rows->own, (size_t)rows->n_row * size);
		b.keys.pos = gpu_copy(keys->pos,
				      (size_t)(keys->n_page * host->shape.page_tok) * size);
	}
	b.keys.len = gpu_copy(keys->len, n * size);
	b.keys.page0 = gpu_copy(keys->page0, (n + 1) * size);
	b.keys.page = gpu_copy(keys->page, (size_t)keys->n_page * size);
	if (host->tile)
		b.tile = gpu_copy(host->tile, (size_t)host->n_tile * sizeof *b.tile);
	return b;
}

struct kv_cache gpu_kv(const struct kv_cache *host, size_t len)
{
	struct kv_cache kv;

	kv.k = gpu_copy(host->k, len * sizeof *kv.k);
	kv.v = gpu_copy(host->v, len * sizeof *kv.v);
	return kv;
}

struct block_lists gpu_lists(const struct block_lists *l, int n)
{
	struct block_lists d = *l;

	if (l->block) {
		d.block = gpu_copy(l->block, (size_t)n * (size_t)l->stride * sizeof *d.block);
		d.n = gpu_copy(l->n, (size_t)n * sizeof *d.n);
	}
	return d;
}

struct piece_lists gpu_pieces(const struct piece_lists *l, int n)
{
	const size_t len = (size_t)n * (size_t)l->stride;
	struct piece_lists d = *l;

	d.piece = gpu_copy(l->piece, len * sizeof *d.piece);
	d.n = gpu_copy(l->n, (size_t)n * sizeof *d.n);
	if (l->mask)
		d.mask = gpu_copy(l->mask, len * sizeof *d.mask);
	return d;
}

#else
static bool gpu_found(void)
{
	return false;
}
#endif

bool gpu_usable(void)
{
	const char *require = getenv("ATTNREPLAY_REQUIRE_GPU");
	bool found = gpu_found();

	if (!found && require && !strcmp(require, "1"))
		bail_out("ATTNREPLAY_REQUIRE_GPU=1 and no usable GPU");
	return found;
}

int gpu_main(int n, void (*run_all)(void))
{
	plan(n);
	if (gpu_usable())
		run_all();
	else
		skip(n, "no usable GPU");
	return done_testing();
}
