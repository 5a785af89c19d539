/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pages of a device know of the policy's prefix cache: the keys of tokens, see struct
 * block_keys.  Where blocks have numbers, a key is a block or, of a block that is larger than a
 * page, a part of it.  With a radix tree it is a page of the request whose tokens a node has.
 */
#ifndef AR_BLOCK_KEYS_H
#define AR_BLOCK_KEYS_H

#include "replay/sched/sched.h"

struct sched_keys;

/* Let the tables of s->lim.blocks follow the prefix cache of s.  s outlives *out; the tables do
 * once it is closed.  AR_NOMEM: *out is NULL. */
enum ar_status sched_keys_open(struct sched_keys **out, const struct sched *s, struct ar_err *err);
void sched_keys_close(struct sched_keys *k); /* NULL is fine */

#endif
