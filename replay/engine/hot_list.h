/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hot buffer: the pieces of a request's keys that a GPU keeps when its other keys are in the
 * memory of the host.  A decode needs the pieces of a list on the GPU; those that the buffer lacks
 * are misses and are copied to it.
 *
 * The rule is that of vLLM (hisparse.py) and SGLang (hisparse_coordinator.py): slots are in order
 * of use.  Misses, in the order of the list, take the oldest slots that are not hits.  Then stale
 * slots are the oldest, misses follow, and hits, in their old order, are the newest.  What a list
 * has beyond the slots is read without being kept.
 */
#ifndef AR_HOT_LIST_H
#define AR_HOT_LIST_H

#include <stdbool.h>
#include <stdint.h>

struct hot_list {
	int n;		/* slots */
	int32_t *piece; /* [n] oldest first; -1: empty */
	int32_t *next;	/* [2 * n] room for the next order */
};

/* n empty slots.  False: there is no memory; release *h even then. */
bool hot_list_init(struct hot_list *h, int n);
void hot_list_release(struct hot_list *h);

/* A decode reads list[n], ascending.  Returns its misses. */
int hot_list_read(struct hot_list *h, const int32_t *list, int n);

#endif
