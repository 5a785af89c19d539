/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives between ranks of this host: each rank runs them and takes their times, on its GPU or
 * in the memory of the host. */
#ifndef AR_COLLECTIVE_H
#define AR_COLLECTIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bf16.h"
#include "replay/cost/comm_table.h"
#include "replay/ranks/world.h"

struct collective {
	enum comm_op op;
	bool graph;    /* a part of a CUDA graph */
	int64_t bytes; /* as comm_table.h counts them: a multiple of the ranks and of 4 */
};

/* What rank 0 knows of the machine. */
struct collective_about {
	char gpu[256], driver[32], library[32];
};

enum { COLLECTIVE_KERNEL = 48 };

/* A collective as one rank saw it. */
struct collective_seen {
	char kernel[COLLECTIVE_KERNEL]; /* see collective_kernel(); "-": not known */
	uint64_t digest;		/* of the result that this rank got from random inputs */
};

/* adds_ns: what it adds to a stream of other kernels, gaps included.  own_ns: from its first kernel
 * to its last, waits for the other ranks included. */
struct collective_time {
	int64_t adds_ns, own_ns;
};

struct collective_env {
	int device;    /* of this rank */
	int repeat;    /* times to take, at most BENCH_REPEATS */
	uint64_t seed; /* of the inputs */
	int64_t bytes; /* of the largest message */
};

struct collective_rank;

/* A kind of memory that the messages lie in. */
struct collective_way {
	const char *name, *clock;
	/* Join the other ranks.  Must precede the first CUDA call of the process.  AR_NODEV: a
	 * library, a GPU or a rank is missing.  Close it after success. */
	enum ar_status (*open)(struct collective_rank **out, const struct world_join *j,
			       const struct collective_env *env, struct collective_about *about,
			       struct ar_err *err);
	/* Run it: one result to look at, then env->repeat times, each behind a barrier.  took:
	 * [repeat], as this rank saw it. */
	enum ar_status (*measure)(struct collective_rank *r, const struct collective *c,
				  struct collective_time *took, struct collective_seen *seen,
				  struct ar_err *err);
	void (*close)(struct collective_rank *r); /* NULL is fine */
};
extern const struct collective_way collective_device, collective_host;

/* What a rank sends and gets. */
struct collective_buffers {
	bf16_t *in;
	bf16_t *out; /* an all-reduce is in place */
};

/* Where the inputs of a collective lie, and how many elements they are. */
bf16_t *collective_input(const struct collective_buffers *b, const struct collective *c, int ranks,
			 size_t *n);
/* Enqueue it. */
enum ar_status collective_enqueue(struct world *w, const struct collective_buffers *b,
				  const struct collective *c, void *stream, struct ar_err *err);
/* Whether all ranks get the same. */
bool collective_is_alike(enum comm_op op);
uint64_t collective_digest(const bf16_t *x, size_t n); /* n: a multiple of 2 */

/* The name of a kernel without its arguments, and NCCL's without the operation: RING_LL. */
void collective_kernel(const char *mangled, char text[COLLECTIVE_KERNEL]);

#endif
