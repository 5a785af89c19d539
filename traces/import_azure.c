/* Azure LLM inference traces, 2023 (times without a zone) and 2024 (with one). */
#include "config.h"
#include "traces/import.h"

static const char *const need[] = { "TIMESTAMP", "ContextTokens", "GeneratedTokens", NULL };
static const char *const may[] = { NULL };

/* The multimodal traces have the same columns and one more. */
static bool sniff(const struct record *first)
{
	return !record_find(first, "NumImages");
}

static enum ar_status arrival(struct import *im, const struct record *r, int64_t *ns,
			      struct ar_err *err)
{
	struct span v = record_find(r, "TIMESTAMP")->value;
	enum date_zone zone;

	if (!date_parse(v, ns, &zone))
		return import_fail(im, err, "TIMESTAMP is \"%s\", want a date and time such as "
				   "2023-11-16 18:15:46.68", span_show(v).s);
	if (im->zone && im->zone != zone)
		return import_fail(im, err,
				   "TIMESTAMP %s a time zone, unlike those before; make the "
				   "file uniform",
				   zone == DATE_ZONED ? "has" : "lacks");
	im->zone = zone;
	return AR_OK;
}

static enum ar_status record(struct import *im, const struct record *r, struct ar_err *err)
{
	struct request q = import_none;
	enum ar_status st = arrival(im, r, &q.arrival_ns, err);

	if (!st)
		st = import_count(im, r, "ContextTokens", &q.prompt_tok, err);
	if (!st)
		st = import_count(im, r, "GeneratedTokens", &q.output_tok, err);
	if (st || import_unserved(im, &q))
		return st;
	im->t->has_epoch = true;
	return import_add(im, &q, err);
}

const struct importer importer_azure = {
	.name = "azure",
	.title = "Azure LLM inference trace 2023 or 2024 (CSV)",
	.kind = RECORD_CSV,
	.need = need,
	.may = may,
	.sniff = sniff,
	.record = record,
};
