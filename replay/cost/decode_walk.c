/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/decode_walk.h"

#include <math.h>

double decode_walk_keys(const struct batch *b, double fill_rows)
{
	double keys = 0, rows = 0;

	for (size_t i = 0; i < b->n; i++) {
		const struct batch_entry *e = &b->entry[i];

		if (e->kind == ROW_DECODE)
			keys = fmax(keys, (double)e->start + 1);
		else
			rows = fmax(rows, e->n_tok);
	}
	return rows > 0 ? keys / fmax(floor(fill_rows / rows), 1) : 0;
}
