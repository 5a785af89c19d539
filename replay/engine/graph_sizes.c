/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/graph_sizes.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"

enum { MOST = 512, MOST_LISTED = 1 << 20 };

static int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void set_default(struct graph_sizes *s, int64_t most, int64_t max_tok)
{
	int max = (int)lesser(most, max_tok);

	for (int i = 1; i <= max; i += i < 4 ? i : i < 8 ? 4 : i < 256 ? 8 : 16)
		s->size[s->n++] = i;
	if (max == max_tok && s->size[s->n - 1] < max)
		s->size[s->n++] = max;
}

static enum ar_status set_listed(struct graph_sizes *s, const char *list, int64_t max_tok,
				 struct ar_err *err)
{
	const char *p = list;
	uint64_t last = 0, v;

	do {
		size_t len = strcspn(p, ",");

		if (!num_u64(p, len, &v) || v <= last || v > MOST_LISTED)
			return ar_fail(err, AR_USAGE,
				       "cudagraph-capture-sizes '%s': want ascending numbers from "
				       "1 to %d, such as 1,2,4,8",
				       list, MOST_LISTED);
		if ((int64_t)v <= max_tok)
			s->size[s->n++] = (int)v;
		last = v;
		p += len;
	} while (*p++ == ',');
	return AR_OK;
}

enum ar_status graph_sizes_open(struct graph_sizes *s, const char *list, int64_t max_seqs,
				int64_t most, int64_t max_tok, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (!most)
		most = lesser(2 * max_seqs, MOST);
	*s = (struct graph_sizes){ .size = calloc(list ? strlen(list) / 2 + 1 : (size_t)most,
						  sizeof *s->size) };
	if (!s->size)
		return ar_nomem(err);
	if (list)
		st = set_listed(s, list, max_tok, err);
	else
		set_default(s, most, max_tok);
	if (st)
		graph_sizes_release(s);
	return st;
}

void graph_sizes_release(struct graph_sizes *s)
{
	free(s->size);
	*s = (struct graph_sizes){ 0 };
}

int graph_sizes_fit(const struct graph_sizes *s, int64_t n)
{
	for (int i = 0; i < s->n; i++)
		if (s->size[i] >= n)
			return s->size[i];
	return 0;
}
