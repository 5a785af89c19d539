/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's input is complete when its first norm has added the output of the layer before.  It is
 * copied in the phase after that norm. */
#include "config.h"
#include "tests/watch_gpu.h"

#if HAVE_CUDA

#include <stdlib.h>

#include "kernels/prim/cuda.h"
#include "replay/engine/decoder_state.h"
#include "tests/gpu_test.h"
#include "tests/tap.h"

static size_t states(const struct decoder *d, int n_row)
{
	return (size_t)n_row * (size_t)d->env.model->hidden;
}

static void must(cudaError_t e)
{
	if (e != cudaSuccess)
		bail_out("%s", cudaGetErrorString(e));
}

static void note(void *ctx, int layer, enum phase what)
{
	struct watch_gpu *w = ctx;
	const struct decoder *d = w->d;

	if (layer < d->env.n_layers && layer != w->last && what == PHASE_LINEAR) {
		w->last = layer;
		must(cudaMemcpyAsync(w->x + (size_t)layer * states(d, d->env.max_row), d->now.x,
				     states(d, d->n_row) * sizeof *w->x, cudaMemcpyDeviceToDevice,
				     d->env.stream));
	}
	w->phase(w->phase_ctx, layer, what);
}

void watch_gpu_open(struct watch_gpu *w, struct decoder *d)
{
	size_t n = (size_t)d->env.n_layers * states(d, d->env.max_row);

	*w = (struct watch_gpu){ d, d->env.phase, d->env.phase_ctx, NULL, -1 };
	must(cudaMalloc((void **)&w->x, n * sizeof *w->x));
	d->env.phase = note;
	d->env.phase_ctx = w;
}

void watch_gpu_close(struct watch_gpu *w)
{
	cudaFree(w->x);
}

void watch_gpu_read(const struct watch_gpu *w, int i, int n, bf16_t *out)
{
	const struct decoder *d = w->d;
	const bf16_t *from = i == d->env.n_layers ? d->now.x :
						    w->x + (size_t)i * states(d, d->env.max_row);

	gpu_read(out, from, states(d, n) * sizeof *out);
}

/* The head runs again for some rows at a time, with nothing left to add. */
void watch_gpu_logits(const struct watch_gpu *w, int n, float *out)
{
	struct decoder *d = w->d;
	int most = d->env.max_emit;
	size_t bytes = (size_t)n * sizeof(int32_t);
	int32_t *row = gpu_host(bytes), *dev;
	struct ar_err err;

	for (int r = 0; r < n; r++)
		row[r] = r;
	must(cudaMalloc((void **)&dev, bytes));
	gpu_write(dev, row, bytes);
	d->n_add = 0;
	d->post = NULL;
	for (int r = 0; r < n; r += most) {
		int some = n - r < most ? n - r : most;

		gpu_must(decoder_head(d, dev + r, some, &err), &err);
		for (int i = 0; i < some; i++, out += d->env.model->vocab)
			gpu_must(decoder_logits(d, i, out, &err), &err);
	}
	cudaFree(dev);
	free(row);
}
#endif
