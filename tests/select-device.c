#include "config.h"
#include "tests/select-device.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/executor.h"
#include "tests/tap.h"

#if HAVE_CUDA
#include <cuda_runtime_api.h>

static bool have_device(void)
{
	int n = 0;

	return !cudaGetDeviceCount(&n) && n > 0;
}

static void must(cudaError_t e)
{
	if (e)
		bail_out("CUDA: %s", cudaGetErrorString(e));
}

void *device_new(size_t bytes)
{
	void *p;

	must(cudaMalloc(&p, bytes ? bytes : 1));
	must(cudaMemset(p, 0xff, bytes));
	return p;
}

void *device_copy(const void *host, size_t bytes)
{
	void *p = device_new(bytes);

	device_put(p, host, bytes);
	return p;
}

void device_put(void *device, const void *host, size_t bytes)
{
	must(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
}

void device_get(void *host, const void *device, size_t bytes)
{
	must(cudaDeviceSynchronize());
	must(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}

void device_free(void *device)
{
	must(cudaFree(device));
}

struct attn_batch device_batch(const struct attn_batch *host)
{
	struct attn_batch b = *host;
	size_t n = (size_t)host->n_req;

	b.row0 = device_copy(host->row0, (n + 1) * sizeof *b.row0);
	b.ctx = device_copy(host->ctx, n * sizeof *b.ctx);
	b.qblk0 = device_copy(host->qblk0, (n + 1) * sizeof *b.qblk0);
	b.page0 = device_copy(host->page0, (n + 1) * sizeof *b.page0);
	b.page = device_copy(host->page, (size_t)host->page0[n] * sizeof *b.page);
	b.last = device_copy(host->last, n * sizeof *b.last);
	b.tile = host->n_tile ? device_copy(host->tile, (size_t)host->n_tile * sizeof *b.tile)
			      : NULL;
	return b;
}

void device_batch_free(struct attn_batch *b)
{
	const void *array[] = { b->row0, b->ctx, b->qblk0, b->page0, b->page, b->last, b->tile };

	for (size_t i = 0; i < sizeof array / sizeof *array; i++)
		device_free((void *)(uintptr_t)array[i]);
}
#else
static bool have_device(void)
{
	return false;
}
#endif

bool device_or_skip(unsigned n)
{
	const char *require = getenv("ATTNREPLAY_REQUIRE_GPU");

	if (have_device())
		return true;
	if (require && !strcmp(require, "1"))
		bail_out("no usable GPU");
	skip(n, "no usable GPU");
	return false;
}
