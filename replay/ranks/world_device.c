/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/ranks/world_device.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/prim/cuda.h"

struct world_device {
	cudaStream_t stream;
	char *device, *host; /* [1 + ranks] messages: of this rank, then all; host: pinned */
	size_t room;	     /* bytes of each of the two */
	size_t bytes, all;   /* of the message on its way, and of all */
};

enum ar_status world_device_select(int device, struct ar_err *err)
{
	const cudaError_t e = cudaSetDevice(device);

	return e == cudaSuccess ? AR_OK :
				  ar_fail(err, AR_NODEV,
					  "GPU %d, of a rank, cannot be used: %s; change --devices",
					  device, cudaGetErrorString(e));
}

enum ar_status world_device_open(struct world_device **out, int device, struct ar_err *err)
{
	struct world_device *d = calloc(1, sizeof *d);
	enum ar_status st = d ? world_device_select(device, err) : ar_nomem(err);

	*out = NULL;
	if (!st)
		CU(cudaStreamCreate(&d->stream));
out:
	if (st)
		free(d);
	else
		*out = d;
	return st;
}

static void drop_room(struct world_device *d)
{
	cudaFree(d->device);
	cudaFreeHost(d->host);
	d->device = d->host = NULL;
	d->room = 0;
}

void world_device_close(struct world_device *d)
{
	if (!d)
		return;
	drop_room(d);
	cudaStreamDestroy(d->stream);
	free(d);
}

void *world_device_stream(const struct world_device *d)
{
	return d->stream;
}

static enum ar_status make_room(struct world_device *d, size_t bytes, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (bytes <= d->room)
		return AR_OK;
	drop_room(d);
	CU(cudaMalloc((void **)&d->device, bytes));
	CU(cudaMallocHost((void **)&d->host, bytes));
	d->room = bytes;
out:
	return st;
}

enum ar_status world_device_put(struct world_device *d, const void *mine, size_t bytes, int n,
				void **from, void **to, struct ar_err *err)
{
	enum ar_status st;

	d->bytes = bytes;
	d->all = (size_t)n * bytes;
	st = make_room(d, d->bytes + d->all, err);
	if (st)
		return st;
	memcpy(d->host, mine, bytes);
	CU(cudaMemcpyAsync(d->device, d->host, bytes, cudaMemcpyHostToDevice, d->stream));
	*from = d->device;
	*to = d->device + bytes;
out:
	return st;
}

enum ar_status world_device_fetch(struct world_device *d, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	CU(cudaMemcpyAsync(d->host + d->bytes, d->device + d->bytes, d->all, cudaMemcpyDeviceToHost,
			   d->stream));
out:
	return st;
}

void world_device_get(const struct world_device *d, void *all)
{
	memcpy(all, d->host + d->bytes, d->all);
}

enum ar_status world_device_query(void *stream, int *busy, struct ar_err *err)
{
	const cudaError_t e = cudaStreamQuery((cudaStream_t)stream);

	*busy = e == cudaErrorNotReady;
	return e == cudaSuccess || *busy ?
		       AR_OK :
		       ar_fail(err, AR_CUDA, "the GPU failed: %s", cudaGetErrorString(e));
}
