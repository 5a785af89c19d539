/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/heads.h"

#include <stdlib.h>
#include <string.h>

enum ar_status heads_open(struct heads *h, struct world *world, int own_q, int own_kv, int whole_kv,
			  struct ar_err *err)
{
	const int n = world ? world_size(world) : 1;
	const int all = n * own_kv;

	*h = (struct heads){ .own_q = own_q,
			     .own_kv = own_kv,
			     .q = n * own_q,
			     .kv = world && whole_kv < all ? whole_kv : all,
			     .world = world };
	h->acc = calloc((size_t)h->q + 1, sizeof *h->acc);
	h->count = calloc((size_t)h->kv + 1, sizeof *h->count);
	h->each = calloc((size_t)all + 1, sizeof *h->each);
	return h->acc && h->count && h->each ? AR_OK : ar_nomem(err);
}

void heads_release(struct heads *h)
{
	free(h->acc);
	free(h->count);
	free(h->each);
	*h = (struct heads){ 0 };
}

static enum ar_status gather(struct heads *h, const void *mine, void *all, size_t bytes,
			     struct ar_err *err)
{
	if (h->world && bytes)
		return world_gather(h->world, mine, all, bytes, err);
	memcpy(all, mine, bytes);
	return AR_OK;
}

enum ar_status heads_gather(struct heads *h, const struct accuracy *acc,
			    const struct selection_count *count, struct ar_err *err)
{
	const int all = h->own_q ? h->q / h->own_q * h->own_kv : 0;
	enum ar_status st = gather(h, acc, h->acc, (size_t)h->own_q * sizeof *acc, err);

	if (!st)
		st = gather(h, count, h->each, (size_t)h->own_kv * sizeof *count, err);
	memset(h->count, 0, (size_t)h->kv * sizeof *h->count);
	for (int i = 0; i < all && !st; i++)
		selection_add(&h->count[(int64_t)i * h->kv / all], &h->each[i], 1);
	return st;
}
