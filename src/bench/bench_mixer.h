/* SPDX-License-Identifier: Apache-2.0 */
/* The token mixer of a layer with a state, gated DeltaNet or Mamba-2, on the GPU, on random inputs:
 * alone, or between the layer's projections. */
#ifndef AR_BENCH_MIXER_H
#define AR_BENCH_MIXER_H

#include "model/model.h"
#include "src/bench/bench_device.h"

struct bench_mixer {
	const struct layer_spec *layer; /* its mixer is MIX_LINEAR or MIX_SSM */
	int hidden; /* width of the projections' other side; 0: the mixer alone */
	int batch;  /* requests */
	int rows;   /* of each; 0: decodes, one row each */
};

/* FLOPs, in the mixer of its chunked form, and bytes that must move.  Of the mixer alone: the
 * projections, the output, and the states.  With projections: their weights, the rows before and
 * after the layer, and the states, as if one kernel did all of it. */
double bench_mixer_flops(const struct bench_mixer *x);
double bench_mixer_bytes(const struct bench_mixer *x);

/* Measure it, on prompts from their beginning or on decodes.  The first rows of request 0 are
 * checked against the reference, of the first projections' results:
 * r->rel_l2.  AR_USAGE: there are no kernels for it on this GPU.  AR_NODEV: projections without
 * cuBLAS. */
enum ar_status bench_mixer_run(struct bench_device *d, const struct bench_mixer *x,
			       struct bench_result *r, struct ar_err *err);

#endif
