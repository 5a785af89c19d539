/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/rank_processes.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "replay/ranks/nccl.h"
#include "tests/tap.h"

#if HAVE_CUDA
#include <cuda_runtime.h>
#endif

const char *fake_nccl_path(void)
{
	static char path[4096];
	char *self = strdup(getenv("ATTNREPLAY") ? getenv("ATTNREPLAY") : "./attnreplay");

	snprintf(path, sizeof path, "%s/tests/fake_nccl.so", dirname(self));
	free(self);
	return path;
}

int rank_gpus(int ranks)
{
	const char *one = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

	return one && atoi(one) ? 1 : ranks;
}

static int count_gpus(void)
{
	int n = 0;

#if HAVE_CUDA
	if (cudaGetDeviceCount(&n) != cudaSuccess)
		n = 0;
#endif
	return n;
}

bool ranks_have_gpus(int ranks)
{
	const struct nccl *nccl;
	int status = 1;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (!child)
		_exit(count_gpus() < rank_gpus(ranks) || nccl_load(&nccl, NULL));
	waitpid(child, &status, 0);
	return !status;
}

enum ar_status join_as_rank(struct world **w, struct rank_page *page, int rank, int size,
			    struct ar_err *err)
{
	struct world_join join = { .rank = rank,
				   .size = size,
				   .id = page->id,
				   .join_ns = 5000000000,
				   .timeout_ns = 5000000000,
				   .page = page };

	return world_open(w, &join, err);
}

void fork_ranks(int n, struct nccl_id *id, void (*run)(int rank))
{
	const struct nccl *nccl;
	struct ar_err err;

	if (nccl_load(&nccl, &err) || nccl->GetUniqueId(id))
		bail_out("%s", err.msg);
	fflush(NULL);
	for (int i = 0; i < n; i++)
		if (!fork())
			run(i);
	while (wait(NULL) > 0)
		;
}
