/* SPDX-License-Identifier: Apache-2.0 */
/* BurstGPT traces: whole seconds and token counts.  The third file adds sessions and elapsed
 * times. */
#include "config.h"
#include "traces/importers/import.h"

static const char *const need[] = { "Timestamp", "Request tokens", "Response tokens", NULL };
static const char *const may[] = { "Model",	 "Total tokens", "Log Type",
				   "Session ID", "Elapsed time", NULL };

static const int64_t SECOND_NS = 1000000000;

static enum ar_status check_total(struct import *im, const struct record *r,
				  const struct request *q, struct ar_err *err)
{
	uint32_t total;
	enum ar_status st;

	if (!record_get(r, "Total tokens"))
		return AR_OK;
	st = import_count(im, r, "Total tokens", &total, err);
	if (!st && total != (uint64_t)q->prompt_tok + q->output_tok)
		import_warn(im, WARN_TOTAL);
	return st;
}

/* Set session, turn and think time: from the end of the previous output to this arrival. */
static enum ar_status burstgpt_session(struct import *im, const struct record *r, struct request *q,
				       struct ar_err *err)
{
	const struct field *id = record_get(r, "Session ID");
	struct import_session *s;
	int64_t took_ns = -1;
	uint32_t number;
	enum ar_status st = AR_OK;

	if (record_get(r, "Elapsed time"))
		st = import_time(im, r, "Elapsed time", SECOND_NS, &took_ns, err);
	if (st || !id)
		return st;
	st = import_name(im, r, "Session ID", &im->session, &number, err);
	if (!st)
		st = import_turn(im, number, q, &s, err);
	if (st)
		return st;
	if (q->turn && s->end_ns >= 0 && q->arrival_ns >= s->end_ns)
		q->think_ns = q->arrival_ns - s->end_ns;
	if (took_ns < 0 || __builtin_add_overflow(q->arrival_ns, took_ns, &s->end_ns))
		s->end_ns = -1;
	return AR_OK;
}

static enum ar_status burstgpt_record(struct import *im, const struct record *r, struct ar_err *err)
{
	struct request q = request_none;
	uint32_t model;
	enum ar_status st = import_time(im, r, "Timestamp", SECOND_NS, &q.arrival_ns, err);

	if (!st)
		st = import_lengths(im, r, "Request tokens", "Response tokens", &q, err);
	if (!st)
		st = check_total(im, r, &q, err);
	if (st || import_unserved(im, &q))
		return st;
	if (record_get(r, "Model")) {
		st = import_name(im, r, "Model", &im->type, &model, err);
		q.type = st ? 0 : model + 1;
	}
	if (!st)
		st = burstgpt_session(im, r, &q, err);
	return st ? st : import_add(im, &q, err);
}

const struct importer importer_burstgpt = {
	.name = "burstgpt",
	.title = "BurstGPT trace (CSV)",
	.kind = RECORD_CSV,
	.uses = USES_UNIT,
	.need = need,
	.may = may,
	.record = burstgpt_record,
};
