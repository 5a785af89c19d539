/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a method for decodes on the GPU, phase by phase. */
#ifndef AR_BENCH_DECODE_H
#define AR_BENCH_DECODE_H

#include "kernels/methods/method.h"
#include "src/bench/bench_device.h"

struct bench_decode {
	double append_us; /* state of a row of each request; 0: the part has none */
	double chunk_us;  /* state of a chunk of one request */
	double select_us, decode_us;
	double event_us; /* of the rows, launch gaps included */
	bool traced;
	struct selection_count count; /* of request 0 */
};

/* Measure the decodes of m, opened for the shape, on random keys: a row of each request, and a
 * chunk of s->chunk rows at the end of s->context.  takes: those of m->later, which take the lists
 * that m chose. */
enum ar_status bench_decode_run(struct bench_device *d, const struct method *m, bool takes,
				const struct bench_shape *s, struct bench_decode *out,
				struct ar_err *err);

#endif
