/* SPDX-License-Identifier: Apache-2.0 */
/* Executable CUDA graphs of iterations of decodes only, one for each padded number of rows.  A
 * graph is captured when its number of rows is first used. */
#ifndef AR_GRAPHS_H
#define AR_GRAPHS_H

#include <cuda_runtime_api.h>

#include "base/status.h"

struct graphs {
	cudaGraphExec_t *exec; /* [max_row + 1] by number of rows, NULL: not captured yet */
	int max_row;
};

enum ar_status graphs_init(struct graphs *g, int max_row, struct ar_err *err);
void graphs_release(struct graphs *g);

/* Enqueue an iteration on the stream that is captured; do nothing else. */
typedef enum ar_status graphs_enqueue(void *ctx, struct ar_err *err);
/* Capture the graph of n_row rows from what enqueue() enqueues; nothing runs.  stream leaves
 * capture mode even after a failure. */
enum ar_status graphs_capture(struct graphs *g, int n_row, graphs_enqueue *enqueue, void *ctx,
			      cudaStream_t stream, struct ar_err *err);
/* Enqueue the graph of n_row rows, which has been captured. */
enum ar_status graphs_launch(const struct graphs *g, int n_row, cudaStream_t stream,
			     struct ar_err *err);

#endif
