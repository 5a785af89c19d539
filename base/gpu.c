/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/gpu.h"

#if HAVE_CUDA
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/forked.h"

enum { MAX_DEVICES = 64 };

static enum ar_status failed(cudaError_t e, struct ar_err *err)
{
	return ar_fail(err, AR_CUDA, "cannot read the properties of the GPU: %s",
		       cudaGetErrorString(e));
}

static enum ar_status ask_driver(int device, struct gpu *g, struct ar_err *err)
{
	struct cudaDeviceProp p;
	cudaError_t e = cudaGetDeviceProperties(&p, device);
	int mode = cudaComputeModeDefault;

	if (e == cudaSuccess)
		e = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, device);
	if (e != cudaSuccess)
		return failed(e, err);
	snprintf(g->name, sizeof g->name, "%s", p.name);
	g->cc = 10 * p.major + p.minor;
	g->n_sm = p.multiProcessorCount;
	g->smem_bytes = p.sharedMemPerBlockOptin;
	g->l2_bytes = (size_t)p.l2CacheSize;
	g->mem_bytes = p.totalGlobalMem;
	g->exclusive = mode != cudaComputeModeDefault;
	return AR_OK;
}

enum ar_status gpu_current(const struct gpu **out, struct ar_err *err)
{
	static struct gpu known[MAX_DEVICES]; /* cc 0: not asked yet */
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	enum ar_status st = AR_OK;
	int device;
	cudaError_t e = cudaGetDevice(&device);

	if (e != cudaSuccess)
		return failed(e, err);
	if (device >= MAX_DEVICES)
		return ar_fail(err, AR_NODEV, "device %d: at most %d are known", device,
			       MAX_DEVICES);
	pthread_mutex_lock(&lock);
	if (!known[device].cc)
		st = ask_driver(device, &known[device], err);
	pthread_mutex_unlock(&lock);
	*out = &known[device];
	return st;
}

/* In the child: write the properties to the pipe. */
static void answer(int device, int to)
{
	struct gpu g = { 0 };

	if (!ask_driver(device, &g, NULL))
		_exit(write(to, &g, sizeof g) != sizeof g);
	_exit(1);
}

enum ar_status gpu_ask(int device, struct gpu *out, struct ar_err *err)
{
	static struct gpu known;
	static int asked = -1;
	ssize_t n = -1;
	pid_t child;
	int fd[2];

	if (asked != device && !fflush(NULL) && !pipe(fd)) {
		child = fork_apart(); /* what has used the GPU takes long to end */
		if (!child)
			answer(device, fd[1]);
		close(fd[1]);
		known = (struct gpu){ 0 };
		if (child > 0)
			n = read(fd[0], &known, sizeof known);
		close(fd[0]);
		asked = device;
		if (n != sizeof known)
			known.cc = 0;
	}
	*out = known;
	return known.cc && asked == device ? AR_OK :
					     ar_fail(err, AR_NODEV, "there is no GPU %d", device);
}

#else

enum ar_status gpu_ask(int device, struct gpu *out, struct ar_err *err)
{
	*out = (struct gpu){ 0 };
	return ar_fail(err, AR_NODEV, "GPU %d: this program was built without CUDA", device);
}

enum ar_status gpu_current(const struct gpu **out, struct ar_err *err)
{
	*out = NULL;
	return ar_fail(err, AR_NODEV, "this program was built without CUDA");
}
#endif
