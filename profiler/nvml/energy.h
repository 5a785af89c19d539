/* SPDX-License-Identifier: Apache-2.0 */
/* The energy that a GPU uses, from the counter of NVML (nvml.h). */
#ifndef AR_ENERGY_H
#define AR_ENERGY_H

#include <stdint.h>

#include "base/status.h"

/* The counter of a GPU.  gpu NULL: not open. */
struct energy_meter {
	void *gpu;
	int64_t mj, at_ns; /* when counting began: the counter, and the monotonic clock */
	int64_t idle_mw;
};

/* The energy of a time.  It is that of the whole board, whichever program it works for. */
struct energy_use {
	int64_t ns, mj;	 /* ns 0: not measured */
	int64_t idle_mw; /* power without work, before */
};

/* See nvml_open().  After AR_NODEV nothing is open. */
enum ar_status energy_open(struct energy_meter *m, const char *uuid, struct ar_err *err);
void energy_close(struct energy_meter *m);

/* Measure the power of the idle GPU for at least idle_ns, then begin to count.  idle_ns 0: begin to
 * count, m->idle_mw is known.  AR_NODEV: the counter cannot be read or stands still. */
enum ar_status energy_begin(struct energy_meter *m, int64_t idle_ns, struct ar_err *err);
/* Read the energy that the GPU used since energy_begin().  energy_end() waits for a step of the
 * counter, so the GPU must be idle.  AR_NODEV: as above, or the counter has gone back. */
enum ar_status energy_end(const struct energy_meter *m, struct energy_use *use, struct ar_err *err);

#endif
