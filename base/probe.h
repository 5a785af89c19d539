/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a host is, measured in less than a second: see host_probe(), replay/host/host_probe.h.
 *
 * An engine's host time is that of an interpreter and of CUDA's calls.  So the probe times
 * - loop: a fixed walk through objects in memory, each of which names its operation, as an
 *   interpreter does; only time on a processor counts;
 * - launch: cudaLaunchKernel() of an empty kernel;
 * - graph: cudaGraphLaunch() of a graph of empty kernels.
 * Each is the median of several rounds, in ns.  The last two need a GPU.
 */
#ifndef AR_PROBE_H
#define AR_PROBE_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "base/status.h"

/* X(NAME, key in files, what was timed).  Never change a key: files have it. */
#define PROBE_TIMES(X) \
	X(LOOP, "loop_ns", "a walk of 1000 steps through objects in memory") \
	X(LAUNCH, "launch_ns", "launching an empty kernel") \
	X(GRAPH, "graph_ns", "launching a graph of 100 empty kernels")

enum probe_time {
#define X(name, key, text) PROBE_##name,
	PROBE_TIMES(X)
#undef X
		PROBE_N_TIMES
};

struct probe {
	double ns[PROBE_N_TIMES]; /* 0: not measured */
};

extern const char *const probe_keys[]; /* by time */

/* Measure the loop of this host. */
enum ar_status probe_loop(struct probe *p, struct ar_err *err);

/* The times as an object of JSON, which the caller owns; NULL: no memory. */
cJSON *probe_json(const struct probe *p);
/* Read the object o.  False: it is none, or a time is negative or no number. */
bool probe_read(struct probe *p, const cJSON *o);

/* How much longer b's host takes than a's: the geometric mean over the times that both have.  0:
 * there is none. */
double probe_ratio(const struct probe *a, const struct probe *b);

#endif
