/* SPDX-License-Identifier: Apache-2.0 */
/* Tracing of GPU kernels: CUPTI activity records with external correlation.  Two files
 * implement it: cupti.c, and prof_none.c where CUPTI's headers were not found. */
#ifndef AR_PROF_H
#define AR_PROF_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/phase.h"

struct prof;

/* One kernel launch.  Times are ns on CLOCK_REALTIME's scale. */
struct prof_kernel {
	const char *name; /* mangled; lives as long as the session */
	int64_t start_ns, end_ns;
	int32_t layer;	  /* PHASE_NO_LAYER: outside of the layers */
	enum phase phase; /* PHASE_NONE: unknown */
	int32_t grid[3], block[3], cluster[3];
	int32_t regs, smem_static, smem_dynamic, smem_executed, local_per_thread, launch_type;
	uint32_t device, stream, corr;
	uint64_t graph_node; /* 0: not launched by a CUDA graph */
};

/* Kernel records of the session: seen, dropped by CUPTI, without times, without a phase, and too
 * late for their iteration.  If any but the first is not 0, times by phase are incomplete. */
struct prof_loss {
	int64_t records, dropped, zero_ts, unattributed, late;
};

/* Load CUPTI and start tracing.  Call once per process, before its first CUDA call.  AR_NODEV:
 * CUPTI or a driver is missing, or another profiler is attached; the message says which. */
enum ar_status prof_open(struct prof **out, struct ar_err *err);
void prof_close(struct prof *p);
uint32_t prof_api_version(const struct prof *p);

/* Announce layer and phase of this thread's next launches.  A phase_fn whose ctx is p; does nothing
 * if p is NULL.  A kernel of a CUDA graph has the layer and phase announced at its capture. */
void prof_phase(void *p, int layer, enum phase phase);

/* Read the records of kernels that have ended, while others run: prof_collect() takes less then. */
void prof_ahead(struct prof *p);

/* Return the kernels launched since the last call, in order of their start.  The device must be
 * idle.  The array is valid until the next call. */
enum ar_status prof_collect(struct prof *p, const struct prof_kernel **kernel, size_t *n,
			    struct ar_err *err);
const struct prof_loss *prof_loss(const struct prof *p);

#endif
