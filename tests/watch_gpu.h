/* SPDX-License-Identifier: Apache-2.0 */
/* Keep the hidden states between the layers of a decoder, while a backend runs it without
 * graphs. */
#ifndef AR_WATCH_GPU_H
#define AR_WATCH_GPU_H

#include "base/bf16.h"
#include "replay/engine/decoder.h"

struct watch_gpu {
	struct decoder *d;
	phase_fn *phase; /* the decoder's own */
	void *phase_ctx;
	bf16_t *x; /* [n_layers][max_row][hidden] that enters each layer, on the device */
	int last;  /* layer that was seen last */
};

/* *w and the backend's decoder live until the backend is closed. */
void watch_gpu_open(struct watch_gpu *w, struct decoder *d);
void watch_gpu_close(struct watch_gpu *w);
/* The input of layer i in the last pass, of n rows; i = layers: the output of the last layer. */
void watch_gpu_read(const struct watch_gpu *w, int i, int n, bf16_t *out);
/* Logits of all n rows of the last pass, out[n][vocab]. */
void watch_gpu_logits(const struct watch_gpu *w, int n, float *out);

#endif
