/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine of the policy takes where its user sets nothing: options that were not given get
 * these values.  A default never makes a refusal; where a run cannot have it, or something given
 * limits it, it gives way, and the header says so. */
#ifndef AR_ENGINE_DEFAULTS_H
#define AR_ENGINE_DEFAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct run_options;
struct policy;
struct model;

enum run_defaults { RUN_DEFAULTS_ENGINE, RUN_DEFAULTS_NONE };

/* The GPU that defaults are for. */
struct engine_gpu {
	char name[256];
	int64_t bytes;	  /* of its memory; 0: not known */
	const char *from; /* which one it is, for the header */
	bool real;	  /* it runs the kernels, so states of sequences stand beside the pool */
};

/* Set the options that were not given, and o->engine_gpu and o->engine_differs.  With --resume or
 * --engine-defaults none no option is set.  gpu: of the run; NULL: that of --costs, else of --gpu,
 * else with backend cuda the real one, else an H100.  Inputs that cannot be read are ignored: what
 * loads them reports them. */
enum ar_status run_engine_defaults(struct run_options *o, const struct engine_gpu *gpu,
				   struct ar_err *err);

/* The GPU that is assumed where none is named, an H100. */
enum ar_status run_engine_gpu(struct engine_gpu *gpu, struct ar_err *err);

/* "of vllm-0.33 on h100 (--gpu): 256 requests, the engine's own 1024".  The caller frees it; NULL:
 * no memory. */
char *run_defaults_text(const struct run_options *o);

/* How many sequences have room for their states of state bytes: half of what weights leave of the
 * GPU's memory.  0: there are no states, or weights leave nothing. */
int64_t run_states_fit(int64_t state, double left);

/* Tokens of the largest CUDA graph; 0: as graph_sizes_open() takes it. */
int64_t run_most_captured(const struct run_options *o);

/* Why requests of model m cannot share KV blocks under the policy; NULL: they can. */
const char *run_uncached(const struct policy *p, const struct model *m);

#endif
