/* SPDX-License-Identifier: Apache-2.0 */
/* Traces from the generator of splitwise-sim: seconds and token counts. */
#include "config.h"
#include "traces/importers/import.h"

#include <inttypes.h>

static const char *const need[] = { "request_id",     "request_type",
				    "application_id", "arrival_timestamp",
				    "batch_size",     "prompt_size",
				    "token_size",     NULL };
static const char *const may[] = { NULL };

/* Check a column in which only one value marks a request to a language model. */
static enum ar_status must_be(struct import *im, const struct record *r, const char *name,
			      uint32_t want, struct ar_err *err)
{
	uint32_t n;
	enum ar_status st = import_count(im, r, name, &n, err);

	if (!st && n != want)
		return import_fail(im, err, "%s is %u, want %u", name, n, want);
	return st;
}

static enum ar_status check_id(struct import *im, const struct record *r, struct ar_err *err)
{
	uint32_t id;
	uint64_t line;
	enum ar_status st = import_count(im, r, "request_id", &id, err);

	if (st)
		return st;
	if (!chain_put(&im->seen, (struct chain_key){ .src = id }, im->line, &line))
		return ar_nomem(err);
	if (line != im->line)
		return import_fail(im, err, "request_id %u is that of line %" PRIu64, id, line);
	return AR_OK;
}

static enum ar_status splitwise_record(struct import *im, const struct record *r,
				       struct ar_err *err)
{
	struct request q = request_none;
	uint32_t app;
	enum ar_status st = check_id(im, r, err);

	if (!st)
		st = must_be(im, r, "request_type", 2, err);
	if (!st)
		st = must_be(im, r, "batch_size", 1, err);
	if (!st)
		st = import_time(im, r, "arrival_timestamp", 1000000000, &q.arrival_ns, err);
	if (!st)
		st = import_lengths(im, r, "prompt_size", "token_size", &q, err);
	if (st || import_unserved(im, &q))
		return st;
	st = import_name(im, r, "application_id", &im->type, &app, err);
	q.type = st ? 0 : app + 1;
	return st ? st : import_add(im, &q, err);
}

const struct importer importer_splitwise = {
	.name = "splitwise",
	.title = "splitwise-sim trace (CSV)",
	.kind = RECORD_CSV,
	.uses = USES_UNIT,
	.need = need,
	.may = may,
	.record = splitwise_record,
};
