/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/select/pieces.h"

void pieces_write(const struct piece_lists *l, int i, const uint16_t *head, int n)
{
	size_t at = (size_t)i * (size_t)l->stride;
	int kept = 0;

	for (int j = 0; j < n; j++)
		if (head[j]) {
			l->piece[at + (size_t)kept] = j;
			if (l->mask)
				l->mask[at + (size_t)kept] = head[j];
			kept++;
		}
	l->n[i] = kept;
}
