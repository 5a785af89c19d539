/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/graphs.h"

#include <assert.h>
#include <stdlib.h>

#include "kernels/prim/cuda.h"

enum ar_status graphs_init(struct graphs *g, int max_row, struct ar_err *err)
{
	*g = (struct graphs){ calloc((size_t)max_row + 1, sizeof *g->exec), max_row };
	return g->exec ? AR_OK : ar_nomem(err);
}

void graphs_release(struct graphs *g)
{
	for (int i = 0; g->exec && i <= g->max_row; i++)
		if (g->exec[i])
			cudaGraphExecDestroy(g->exec[i]);
	free(g->exec);
	*g = (struct graphs){ 0 };
}

enum ar_status graphs_capture(struct graphs *g, int n_row, graphs_enqueue *enqueue, void *ctx,
			      cudaStream_t stream, struct ar_err *err)
{
	cudaGraph_t graph = NULL;
	enum ar_status st = AR_OK;

	assert(n_row <= g->max_row && !g->exec[n_row]);
	CU(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	st = enqueue(ctx, err);
	if (st) {
		cudaStreamEndCapture(stream, &graph);
		cudaGetLastError();
		goto out;
	}
	CU(cudaStreamEndCapture(stream, &graph));
	CU(cudaGraphInstantiate(&g->exec[n_row], graph, 0));
out:
	if (graph)
		cudaGraphDestroy(graph);
	return st;
}

enum ar_status graphs_launch(const struct graphs *g, int n_row, cudaStream_t stream,
			     struct ar_err *err)
{
	enum ar_status st = AR_OK;

	CU(cudaGraphLaunch(g->exec[n_row], stream));
out:
	return st;
}
