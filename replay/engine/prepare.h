/* SPDX-License-Identifier: Apache-2.0 */
/* Choices made before a backend opens: the capture that each request replays, the captured layer
 * that each model layer reads, and the executed layers. */
#ifndef AR_PREPARE_H
#define AR_PREPARE_H

#include "model/model.h"
#include "replay/sched/sched.h"
#include "traces/capture/capture.h"

struct prepare_in {
	const struct trace *trace;
	const struct sched_limits *limits;
	const struct model *model;		/* one rank of it, if split by --tp */
	int whole_q_heads, whole_kv_heads;	/* of the model before the split */
	const struct capture_info *const *info; /* of n_capture captures */
	size_t n_capture;
	const char *layers;    /* --layers LIST, NULL: all captured ones */
	int64_t sample_layers; /* --sample-layers K, 0: all */
	bool tile;	       /* requests may be longer than their capture */
	uint64_t seed;
};

struct prepared {
	uint16_t *capture_of; /* [trace->n]; 0 for a request that is rejected anyway */
	int *captured_layer;  /* [model->n_layers] indices into the capture's layers; -1: a linear
			       * layer, which has none */
	int *run_layer;	      /* [n_run_layers] ascending */
	int n_run_layers;
};

/*
 * Each request ranks the captures in a random order and takes the first that is long enough.  The
 * order depends on the seed and on the request's first prefix block; without one, on its number.
 *
 * The i-th of n layers with attention reads LIST[floor(i * len / n)], where LIST has len layers.
 * The K executed layers are the middles of K equal parts of the model.
 *
 * AR_USAGE: captures that differ in shape or layers; captures whose heads match neither the layers
 * with attention nor the model before the split; a list that names a layer no capture has; more
 * layers than there are; K, where layers differ; a request longer than every capture.
 * AR_DATA: captures that differ in their rotary embedding.
 */
enum ar_status prepare_run(struct prepared *p, const struct prepare_in *in, struct ar_err *err);
/* The same without captures: all layers of m are executed, and requests replay none. */
enum ar_status prepare_all_layers(struct prepared *p, const struct model *m, struct ar_err *err);
/* Check the layers before backend cuda opens them, for a named backend before captures are read.
 * AR_USAGE: no GPU has kernels for the heads of a layer of m, or for the channels that RoPE
 * rotates.  Methods are checked later, when they are opened with their GPU and pages. */
enum ar_status prepare_check_kernels(const struct model *m, struct ar_err *err);
/* AR_USAGE: the layers with attention differ in their heads; or c has other heads than they have,
 * and other heads than the model before the split. */
enum ar_status prepare_check_model(const struct capture_info *c, const struct model *m,
				   int whole_q_heads, int whole_kv_heads, struct ar_err *err);
void prepared_release(struct prepared *p);

#endif
