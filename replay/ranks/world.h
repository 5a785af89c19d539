/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks: processes that each run their slice of one model, over NCCL.
 *
 * All make the same calls in the same order.  A call here returns when its data are there, or with
 * an error: another rank has failed, or does not come in time.  After an error the communicator is
 * aborted, and all later calls fail as well.
 *
 * NCCL's own library takes data in the memory of a GPU alone.  A rank with a GPU enqueues
 * collectives on a stream, and waits for them by world_wait(), which ends if another rank fails.
 * Its communicator blocks: one that does not launches kernels from threads of its own, in which a
 * tracer does not know their phase.  Without a GPU all data are in host memory, which depends on
 * the library; streams are NULL, and a collective has ended when it returns.
 */
#ifndef AR_WORLD_H
#define AR_WORLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bf16.h"
#include "base/status.h"
#include "replay/ranks/nccl.h"

enum { RANKS_MAX = 64 };

/* What ranks of one host share, all zero at first. */
struct rank_page {
	atomic_int stop;   /* 1 + the rank that failed first: the others end */
	atomic_int has_id; /* id is complete */
	struct nccl_id id;
	atomic_llong step[RANKS_MAX]; /* calls that each rank has made, from 1 when it joined */
	atomic_llong told[RANKS_MAX]; /* iterations that each rank has told the others of */
};

struct world_join {
	int rank, size;
	struct nccl_id id;
	int64_t join_ns;	/* the longest wait for the other ranks at the start */
	int64_t timeout_ns;	/* the longest wait in a later call, see world_gather() */
	struct rank_page *page; /* borrowed; NULL: ranks of several hosts */
	bool gpu;		/* data of collectives are in the memory of this device */
	int device;
	const struct rank_meeting *meeting; /* of rank_join(), borrowed; NULL: by the page */
};

struct world;

/* Join the other ranks.  AR_NODEV: they do not come, or the library fails; the message says which
 * are missing, if that is known.  AR_INTERRUPTED.  Close it after success. */
enum ar_status world_open(struct world **out, const struct world_join *join, struct ar_err *err);
void world_close(struct world *w); /* NULL is fine */

int world_rank(const struct world *w);
int world_size(const struct world *w);
const struct nccl *world_nccl(const struct world *w);
int world_device(const struct world *w); /* of world_join; -1: data are in host memory */

/* The other ranks know of n iterations of this one. */
void world_count_told(struct world *w, int64_t n);
/* Return st.  If it is an error, all ranks have it, and their run ends. */
enum ar_status world_agree(struct world *w, enum ar_status st);
/* Whether it does so, or ranks can no longer reach each other. */
bool world_has_ended(const struct world *w);
/* This rank has failed, which the others learn at their next call. */
void world_stop(struct world *w);

/* Gather `bytes` bytes of each rank into all[size][bytes], in order of ranks, in host memory; those
 * of a rank with a GPU travel through its memory.  AR_IO: another rank failed, or for timeout_ns,
 * and for 20 times the longest time between two calls, one did not come.  AR_INTERRUPTED: the user
 * stopped this rank half a second ago, and the others do not come. */
enum ar_status world_gather(struct world *w, const void *mine, void *all, size_t bytes,
			    struct ar_err *err);

/* Enqueue collectives on the stream.  They may be captured in a CUDA graph.  Errors as of
 * world_gather(). */

/* Add up x[n] of all ranks in place. */
enum ar_status world_reduce(struct world *w, bf16_t *x, size_t n, void *stream, struct ar_err *err);
/* Gather `bytes` bytes of each rank into to[size][bytes]. */
enum ar_status world_gather_on(struct world *w, const void *from, void *to, size_t bytes,
			       void *stream, struct ar_err *err);

/* The same of other collectives, which a run does not have. */

/* Add up from[size][n] of all ranks, and get part r into to[n] of rank r. */
enum ar_status world_scatter(struct world *w, const bf16_t *from, bf16_t *to, size_t n,
			     void *stream, struct ar_err *err);
/* Send part r of from[size][bytes] to rank r, and get as many of each rank into to[size][bytes]. */
enum ar_status world_swap(struct world *w, const void *from, void *to, size_t bytes, void *stream,
			  struct ar_err *err);
/* Send `bytes` bytes of rank 0 to rank 1, of two. */
enum ar_status world_send(struct world *w, const void *from, void *to, size_t bytes, void *stream,
			  struct ar_err *err);

/* Wait for the stream.  Errors as of world_gather(). */
enum ar_status world_wait(struct world *w, void *stream, struct ar_err *err);

/* A rank has failed; only the first is kept. */
void rank_page_fail(struct rank_page *page, int rank);

#endif
