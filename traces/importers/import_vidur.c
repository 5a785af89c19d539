/* SPDX-License-Identifier: Apache-2.0 */
/* Traces that were processed for Vidur: seconds and token counts. */
#include "config.h"
#include "traces/importers/import.h"

static const char *const need[] = { "arrived_at", "num_prefill_tokens", "num_decode_tokens", NULL };
static const char *const may[] = { "num_total_tokens", "pd_ratio", NULL };

static enum ar_status vidur_record(struct import *im, const struct record *r, struct ar_err *err)
{
	struct request q = request_none;
	enum ar_status st = import_time(im, r, "arrived_at", 1000000000, &q.arrival_ns, err);

	if (!st)
		st = import_lengths(im, r, "num_prefill_tokens", "num_decode_tokens", &q, err);
	if (st || import_unserved(im, &q))
		return st;
	return import_add(im, &q, err);
}

const struct importer importer_vidur = {
	.name = "vidur",
	.title = "Vidur processed trace (CSV)",
	.kind = RECORD_CSV,
	.uses = USES_UNIT,
	.need = need,
	.may = may,
	.record = vidur_record,
};
