/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of an evictor in a run with kernels: which requests of a batch have one, and with how
 * many keys.  The batch says what leaves (batch.h).
 *
 * Keys leave at the end of the batch that ran the last chunk of a prompt.  What a decode lets leave
 * goes when the next batch begins: until then the decode can be compared with dense attention.
 */
#ifndef AR_EVICTIONS_H
#define AR_EVICTIONS_H

#include "kernels/evict/evictor.h"
#include "replay/engine/backend.h"

struct evictions {
	const struct evict *evict; /* NULL: keys stay; nothing else is set then */
	const struct trace *trace;
	int window;	/* rows whose queries the event reads; 0: none */
	bool whole;	/* those of earlier chunks, too */
	uint32_t *gone; /* [requests] tokens that have left */
	uint32_t *seen; /* [requests] the first position of its window that ran; 0: none */

	/* The events that were listed last: their requests and numbers.  A list begins where the
	 * one before ends; page0 and row0 are 0. */
	uint32_t *id; /* [n], as is req */
	struct evict_req *req;
	int n;
};

/* AR_USAGE: the layers do not all store the same tokens, as keys and values in bf16, which e, or
 * NULL, needs. */
enum ar_status evictions_check(const struct evict *e, const struct model *m, struct ar_err *err);

/* AR_USAGE: the model has layers or a cache that the evictor cannot work on.  Release *x even after
 * a failure. */
enum ar_status evictions_open(struct evictions *x, const struct backend_env *env,
			      struct ar_err *err);
void evictions_close(struct evictions *x);

/* List the events before b runs, and those after it.  evictions_begin() finds pages for what event
 * k leaves.  evictions_end() puts them into the tables.  AR_NOMEM: the pages run out. */
void evictions_before(struct evictions *x, const struct batch *b);
void evictions_after(struct evictions *x, const struct batch *b);
enum ar_status evictions_begin(const struct evictions *x, int k, struct blocks *blocks,
			       struct ar_err *err);
void evictions_end(struct evictions *x, int k, struct blocks *blocks);
/* The request finished or was preempted: it stores nothing. */
void evictions_drop(struct evictions *x, uint32_t req);

/* Positions [*from, *to) of entry e whose queries the event of its request will read; they lie in a
 * window that begins at position *first. */
void evictions_window(const struct evictions *x, const struct batch_entry *e, int64_t *first,
		      int64_t *from, int64_t *to);

#endif
