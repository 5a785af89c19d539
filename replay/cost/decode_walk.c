/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/decode_walk.h"

#include <inttypes.h>
#include <math.h>

#include "model/layer_size.h"

double decode_walk_part(uint32_t keys, uint32_t rows, double fill_rows)
{
	return rows ? keys / fmax(floor(fill_rows / rows), 1) : 0;
}

double decode_walk_keys(const struct batch *b, double fill_rows)
{
	uint32_t keys = 0, rows = 0;

	for (size_t i = 0; i < b->n; i++) {
		const struct batch_entry *e = &b->entry[i];

		if (e->kind == ROW_DECODE)
			keys = batch_stores(e) > keys ? batch_stores(e) : keys;
		else
			rows = e->n_tok > rows ? e->n_tok : rows;
	}
	return decode_walk_part(keys, rows, fill_rows);
}

int64_t decode_walk_ns(const struct decode_walk *w, double tflops, const struct layer_spec *l,
		       const struct batch *b)
{
	double rows = (double)w->sms * (double)w->tile_rows / (double)l->q_heads;
	double flops = layer_pair_flops(l) / (double)l->q_heads * (double)w->tile_rows;

	if (!w->sms)
		return 0;
	return llround(fmin(decode_walk_keys(b, rows) * flops * (double)w->sms /
				    (1e3 * tflops * w->compute),
			    0x1p62));
}

/* ---- files ---- */

enum ar_status decode_walk_load(struct decode_walk *w, const cJSON *engine, const char *prefix,
				const char *path, struct ar_err *err)
{
	const cJSON *o = cJSON_GetObjectItemCaseSensitive(engine, "walk");

	*w = (struct decode_walk){ 0 };
	if (!o)
		return AR_OK;
	if (!json_int(cJSON_GetObjectItemCaseSensitive(o, "sms"), 1, 10000, &w->sms) ||
	    !json_int(cJSON_GetObjectItemCaseSensitive(o, "tile_rows"), 1, 10000, &w->tile_rows) ||
	    !json_real(cJSON_GetObjectItemCaseSensitive(o, "compute"), 0.001, 10, &w->compute))
		return ar_fail(err, AR_DATA,
			       "%s: '%swalk': want an object with sms and tile_rows, whole numbers "
			       "from 1 to 10000, and compute, from 0.001 to 10",
			       path, prefix);
	return AR_OK;
}

void decode_walk_put(const struct decode_walk *w, FILE *f)
{
	if (w->sms)
		fprintf(f,
			",\n      \"walk\": {\"sms\": %" PRId64 ", \"tile_rows\": %" PRId64
			", \"compute\": %.6g}",
			w->sms, w->tile_rows, w->compute);
}
