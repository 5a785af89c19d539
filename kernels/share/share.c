/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/share/share.h"

#include <string.h>

static void copy_page(const struct share_plane *p, const struct share_copy *c)
{
	const size_t head = p->page / (size_t)p->heads;
	const char *from = p->mem + (size_t)c->from * p->page;
	char *to = p->mem + (size_t)c->to * p->page;

	for (int h = 0; h < p->heads; h++, from += head, to += head)
		memcpy(to, from, p->row ? (size_t)c->n_tok * p->row : head);
}

void share_pages_ref(const struct share_plane *plane, int n_plane, const struct share_copy *copy,
		     int n_copy)
{
	for (int i = 0; i < n_plane; i++)
		for (int k = 0; k < n_copy; k++)
			if (plane[i].group == copy[k].group)
				copy_page(&plane[i], &copy[k]);
}
