/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of measured collectives.  The file is text:
 *
 *   # attnreplay collectives 1
 *   # any comment
 *   collective  type  ranks  hosts  mode    bytes   n   p10_ns  p50_ns  p90_ns  kernel
 *   allreduce   bf16  4      1      inline  524288  50  31000   31900   34000   RING_LL128
 *
 * Words are separated by white space.  bytes: of the whole message; alltoall: that a rank sends, in
 * equal parts to all, itself included; sendrecv: that a rank sends to the other.  mode: inline, or
 * graph for a part of a CUDA graph.  n: measurements.  kernel: what ran, - if that is not known.
 */
#ifndef AR_COMM_TABLE_H
#define AR_COMM_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* X(NAME, name in files).  A file may have others, which are not looked up.  GATHER is between the
 * ranks of an engine.  COLLECT is between the ranks that share experts, of one or several engines.
 */
#define COMM_OPS(X) \
	X(REDUCE, "allreduce") \
	X(GATHER, "allgather") \
	X(COLLECT, "allgather") \
	X(SCATTER, "reducescatter") \
	X(SWAP, "alltoall") \
	X(SEND, "sendrecv")

enum comm_op {
#define X(name, text) COMM_##name,
	COMM_OPS(X)
#undef X
		COMM_N_OPS
};

/* Kernels of a table by name; further ones share the last place. */
enum { COMM_KERNELS = 16, COMM_KERNEL = 32 };

/* The median times of a collective by bytes, which ascend. */
struct comm_curve {
	size_t n, cap;
	struct comm_point {
		int64_t bytes, ns; /* above 0 */
		int kernel;
	} * point;
};

/* Of bf16, on one host.  curve: of collectives in line, and in a graph. */
struct comm_table {
	struct comm_curve curve[COMM_N_OPS][2];
	char kernel[COMM_KERNELS][COMM_KERNEL]; /* "": none */
};

/* Read the lines of each collective for ranks[collective] ranks, 0: it is not looked up.  If a mode
 * has no lines, both get the same.  AR_DATA: the file cannot be read or a line is malformed; the
 * message names it.  AR_USAGE: a collective has no line for its ranks; the message names the
 * numbers that the file has.  Release *t in any case. */
enum ar_status comm_table_load(struct comm_table *t, const char *path, const int ranks[COMM_N_OPS],
			       struct ar_err *err);
void comm_table_release(struct comm_table *t);

/* Time of a message of bytes: linear in log(bytes) and log(time) between two points; below the
 * first point its time; above the last its time for each byte.  0 to INT64_MAX ns. */
int64_t comm_table_ns(const struct comm_table *t, enum comm_op op, bool graph, int64_t bytes);

/* The kernel of the message, an index of t->kernel: that of the last point up to its size. */
int comm_table_kernel(const struct comm_table *t, enum comm_op op, bool graph, int64_t bytes);

#endif
