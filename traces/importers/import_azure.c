/* SPDX-License-Identifier: Apache-2.0 */
/* Azure LLM inference traces: of 2023 (times without a zone), of 2024 (times with a zone), and the
 * multimodal trace of 2025 (with images). */
#include "config.h"
#include "traces/importers/import.h"

static const char *const need[] = { "TIMESTAMP", "ContextTokens", "GeneratedTokens", NULL };
static const char *const need_lmm[] = { "TIMESTAMP", "NumImages", "ContextTokens",
					"GeneratedTokens", NULL };
static const char *const may[] = { NULL };

static bool azure_sniff(const struct record *first)
{
	return !record_has(first, "NumImages");
}

/* Add the tokens of images.  The source does not say whether ContextTokens includes them, so an
 * option sets their number. */
static enum ar_status add_images(struct import *im, const struct record *r, struct request *q,
				 struct ar_err *err)
{
	enum ar_status st = import_count(im, r, "NumImages", &q->images, err);
	uint64_t tok = q->prompt_tok + (uint64_t)im->args->image_tok * q->images;

	if (!st && tok > INT32_MAX)
		return import_fail(im, err,
				   "%u images make a prompt of more than 2147483647 "
				   "tokens",
				   q->images);
	q->prompt_tok = (uint32_t)tok;
	return st;
}

static enum ar_status azure_request(struct import *im, const struct record *r, bool images,
				    struct ar_err *err)
{
	struct request q = request_none;
	enum ar_status st = import_date(im, "TIMESTAMP", record_find(r, "TIMESTAMP")->value,
					&q.arrival_ns, err);

	if (!st)
		st = import_lengths(im, r, "ContextTokens", "GeneratedTokens", &q, err);
	if (!st && images)
		st = add_images(im, r, &q, err);
	if (st || import_unserved(im, &q))
		return st;
	im->t->has_epoch = true;
	return import_add(im, &q, err);
}

static enum ar_status azure_record(struct import *im, const struct record *r, struct ar_err *err)
{
	return azure_request(im, r, false, err);
}

static enum ar_status record_lmm(struct import *im, const struct record *r, struct ar_err *err)
{
	return azure_request(im, r, true, err);
}

const struct importer importer_azure = {
	.name = "azure",
	.title = "Azure LLM inference trace 2023 or 2024 (CSV)",
	.kind = RECORD_CSV,
	.need = need,
	.may = may,
	.sniff = azure_sniff,
	.record = azure_record,
};

const struct importer importer_azure_lmm = {
	.name = "azure-lmm",
	.title = "Azure multimodal (LMM) inference trace 2025 (CSV)",
	.kind = RECORD_CSV,
	.need = need_lmm,
	.may = may,
	.uses = USES_IMAGES,
	.record = record_lmm,
};
