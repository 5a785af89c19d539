/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs for the roofline model: peak rates, and the share of each rate that the kernels reach, those
 * of this program and those of engines.  A GPU is a preset in replay/cost/gpus/ or a file of
 * 'attnreplay calibrate roofline'. */
#ifndef AR_ROOFLINE_GPU_H
#define AR_ROOFLINE_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/phase.h"
#include "kernels/select/selectors.h"
#include "model/cache_layout.h"
#include "model/format.h"
#include "replay/cost/comm_ring.h"
#include "replay/cost/decode_walk.h"

/* The names of the presets, ends with NULL. */
extern const char *const roofline_gpu_names[];

/* compute, memory: share of the peak rate, above 0, at most 10.  Data that stay in a cache move
 * faster than memory's peak.  fixed_ns: time of a layer (head: of an iteration) without work, or of
 * each launch.  edge: what tiles compute beyond the work: rows of each matrix product, keys of each
 * row of attention, bytes of each row of the KV cache. */
struct roofline_rate {
	double compute, memory;
	int64_t fixed_ns;
	double edge;
	bool each; /* fixed_ns is of each launch */
};

/* Rates of kind i: 0 < i < PHASE_COUNT: of the phase.  From ROOFLINE_SELECTORS on: of the
 * selectors, in the order of selectors[]; from ROOFLINE_EXECUTORS on: of executors[].  A selector
 * without rates has the rates of phase select, an executor without rates the rates of attend.
 *
 * From ROOFLINE_FORMATS on: of products with weights in a format, by enum format_kind; from
 * ROOFLINE_EXPERTS on: of those of experts, in bf16 as well.  Compute is a share of tflops_fp8
 * where rows are quantized and the GPU has fp8 units, fixed_ns is of each launch.  Without rates
 * experts have those of the format, and a format those of linear.  From ROOFLINE_CACHES on: of
 * decodes on a layout of the KV cache, in the order of cache_layouts; without rates those of
 * decode. */
enum {
	EXECUTORS_MAX = 16,
	CACHES_MAX = 16,
	ROOFLINE_SELECTORS = PHASE_COUNT,
	ROOFLINE_EXECUTORS = ROOFLINE_SELECTORS + SELECTORS_MAX,
	ROOFLINE_FORMATS = ROOFLINE_EXECUTORS + EXECUTORS_MAX,
	ROOFLINE_EXPERTS = ROOFLINE_FORMATS + FORMATS,
	ROOFLINE_CACHES = ROOFLINE_EXPERTS + FORMATS,
	ROOFLINE_KINDS = ROOFLINE_CACHES + CACHES_MAX
};

/* The kernels of an engine: rates that stand in place of the GPU's, of which fixed_ns is of each
 * launch.  A kind that it lacks keeps the GPU's. */
struct roofline_engine {
	char name[32];	 /* that the name of its policies begins with */
	char about[320]; /* the origin of its rates */
	/* Mean of the errors' sizes in steps that the rates were not fitted to, in percent: of all,
	 * and of those of a model with experts.  0: not known. */
	double error, error_experts;
	int64_t launch_ns, graph_launch_ns;
	struct decode_walk walk;
	struct comm_ring ring; /* of its own collectives */
	double draws; /* of experts: see struct roofline_subject; 1 if the file does not say */
	struct roofline_rate rate[ROOFLINE_KINDS];
	bool own[ROOFLINE_KINDS];
};
enum { ROOFLINE_ENGINES_MAX = 4 };

struct roofline_gpu {
	char name[64];	 /* of the preset or file */
	char about[320]; /* the origin of the efficiencies */
	char source[192];
	double tflops, gbps; /* dense bf16 TFLOP/s, memory GB/s */
	double tflops_fp8;   /* dense; 0: there are no fp8 units, and weights are widened */
	/* As cudaMemGetInfo() reports the total, which engines take a share of; nvidia-smi reports
	 * up to 1.5 % more.  0: the file does not say. */
	int64_t memory_bytes;
	/* Time that each launch adds to an iteration: with prompts in it, and of decodes from a
	 * graph. */
	int64_t launch_ns, graph_launch_ns;
	struct decode_walk walk; /* of the engine that was taken */
	/* The link to other GPUs, GB/s one way, and a ring of NCCL over it.  0: the file does not
	 * say. */
	char link[32];
	double link_gbps;
	struct comm_ring ring;
	struct roofline_rate rate[ROOFLINE_KINDS];
	bool own[ROOFLINE_KINDS]; /* the kind has rates of its own */
	struct roofline_engine engine[ROOFLINE_ENGINES_MAX];
	int n_engines;
};

/* Take the rates of the engine whose name policy begins with, in place of the GPU's.  Returns the
 * engine, a part of *g; NULL: the GPU has no rates of it. */
const struct roofline_engine *roofline_gpu_take(struct roofline_gpu *g, const char *policy);

/* The kind of selector or executor name.  -1: there is none. */
int roofline_selector_kind(const char *name);
int roofline_executor_kind(const char *name);
/* The kind of decodes on a layout. */
int roofline_cache_kind(const struct cache_layout *l);
/* Name of a kind: "linear", "select flashprefill"; NULL: it has no name. */
const char *roofline_kind_name(int kind, char *buf, size_t n);

/* name_or_path: a file that exists, or a preset.  AR_DATA: there is neither, or the file is bad;
 * the message names the line or the key. */
enum ar_status roofline_gpu_load(struct roofline_gpu *g, const char *name_or_path,
				 struct ar_err *err);
/* Write g as JSON to path, whole or not at all. */
enum ar_status roofline_gpu_write(const struct roofline_gpu *g, const char *path,
				  struct ar_err *err);

#endif
