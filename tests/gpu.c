#include "config.h"

#include "tests/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"

#if HAVE_CUDA
#include <cuda_runtime_api.h>

enum { MAX_TAKEN = 64 };

static void *taken[MAX_TAKEN];
static int n_taken;

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

	if (n_taken == MAX_TAKEN)
		bail_out("more than %d device buffers", MAX_TAKEN);
	check(cudaMalloc(&p, bytes + 1), "cudaMalloc");
	check(cudaMemset(p, fill, bytes + 1), "cudaMemset");
	taken[n_taken++] = p;
	return p;
}

void *gpu_copy(const void *host, size_t bytes)
{
	void *p = gpu_new(bytes, 0xff);

	check(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice), "copy to the device");
	return p;
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

struct attn_batch gpu_batch(const struct attend_case *c, attend_plan_fn *cut, int heads)
{
	struct attn_batch b = c->b;
	size_t n = (size_t)b.n_req;

	if (cut) {
		struct attn_tile *tile;

		b.n_tile = cut(&c->b, heads, NULL);
		tile = malloc((size_t)b.n_tile * sizeof *tile + 1);
		if (!tile)
			bail_out("out of memory");
		cut(&c->b, heads, tile);
		b.tile = gpu_copy(tile, (size_t)b.n_tile * sizeof *tile);
		free(tile);
	}
	b.row0 = gpu_copy(c->b.row0, (n + 1) * sizeof *b.row0);
	b.qblk0 = gpu_copy(c->b.qblk0, (n + 1) * sizeof *b.qblk0);
	b.page0 = gpu_copy(c->b.page0, (n + 1) * sizeof *b.page0);
	b.ctx = gpu_copy(c->b.ctx, n * sizeof *b.ctx);
	b.last = gpu_copy(c->b.last, n * sizeof *b.last);
	b.page = gpu_copy(c->b.page, (size_t)c->n_page * sizeof *b.page);
	return b;
}

struct kv_cache gpu_kv(const struct attend_case *c)
{
	struct kv_cache kv;

	kv.k = gpu_copy(c->kv.k, c->kv_len * sizeof *kv.k);
	kv.v = gpu_copy(c->kv.v, c->kv_len * sizeof *kv.v);
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
