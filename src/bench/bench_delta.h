/* SPDX-License-Identifier: Apache-2.0 */
/* The token mixer of a gated DeltaNet layer on the GPU, on random inputs. */
#ifndef AR_BENCH_DELTA_H
#define AR_BENCH_DELTA_H

#include "kernels/delta/delta.h"
#include "src/bench/bench_device.h"

struct bench_delta {
	struct delta_spec spec;
	int batch; /* requests */
	int rows;  /* of each; 0: decodes, one row each */
};

/* FLOPs of the chunked form, and bytes that must move: the projections, the output, and the
 * states. */
double bench_delta_flops(const struct bench_delta *x);
double bench_delta_bytes(const struct bench_delta *x);

/* Measure it, on prompts from their beginning or on decodes.  The first rows of request 0 are
 * checked against delta_prefill_ref(), or delta_decode_ref(): r->rel_l2.  AR_USAGE: there are no
 * kernels for it on this GPU. */
enum ar_status bench_delta_run(struct bench_device *d, const struct bench_delta *x,
			       struct bench_result *r, struct ar_err *err);

#endif
