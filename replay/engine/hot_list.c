/* SPDX-License-Identifier: Apache-2.0 */
/* Hot buffers of decodes. */
#include "config.h"
#include "replay/engine/hot_list.h"

#include <stdlib.h>
#include <string.h>

bool hot_list_init(struct hot_list *h, int n)
{
	size_t room = n > 0 ? (size_t)n : 1;

	*h = (struct hot_list){ n, malloc(room * sizeof *h->piece),
				malloc(2 * room * sizeof *h->next) };
	for (int i = 0; h->piece && i < n; i++)
		h->piece[i] = -1;
	return h->piece && h->next;
}

void hot_list_release(struct hot_list *h)
{
	free(h->piece);
	free(h->next);
	*h = (struct hot_list){ 0 };
}

/* Whether one of a[n], ascending, is x. */
static bool has(const int32_t *a, int n, int32_t x)
{
	int lo = 0, hi = n;

	while (lo < hi) {
		int mid = lo + (hi - lo) / 2;

		if (a[mid] < x)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < n && a[lo] == x;
}

static int compare(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return (x > y) - (x < y);
}

/* Put the slots that list[n] names, or those that it does not name, to to[].  Returns how many. */
static int take_slots(const struct hot_list *h, const int32_t *list, int n, bool named, int32_t *to)
{
	int k = 0;

	for (int i = 0; i < h->n; i++)
		if (has(list, n, h->piece[i]) == named)
			to[k++] = h->piece[i];
	return k;
}

int hot_list_read(struct hot_list *h, const int32_t *list, int n)
{
	int32_t *hit = h->next + h->n;
	int hits = take_slots(h, list, n, true, hit), stale = h->n - hits, misses = n - hits;
	int put = misses < stale ? misses : stale, k;

	take_slots(h, list, n, false, h->next);
	k = stale - put;
	memmove(h->next, h->next + put, (size_t)k * sizeof *h->next);
	qsort(hit, (size_t)hits, sizeof *hit, compare);
	for (int i = 0; put; i++)
		if (!has(hit, hits, list[i])) {
			h->next[k++] = list[i];
			put--;
		}
	take_slots(h, list, n, true, h->next + k);
	memcpy(h->piece, h->next, (size_t)h->n * sizeof *h->piece);
	return misses;
}
