/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts with known answers, in token ids: their lengths, all at time 0.  The ids themselves are
 * read by traces/prompts.h. */
#include "config.h"
#include "traces/importers/import.h"

#include <string.h>

#include "traces/prompts.h"

static const char *const need[] = { "prompt", "answer", NULL };

/* A prompt may be a text in other files. */
static bool prompts_sniff(const struct record *first)
{
	return *record_find(first, "prompt")->value.s == '[';
}

static enum ar_status prompts_record(struct import *im, const struct record *r, struct ar_err *err)
{
	struct request q = request_none;
	uint32_t number = 0;
	struct prompt p;
	enum ar_status st = prompt_read(&p, r->json, err);

	if (st == AR_DATA) {
		const struct ar_err why = *err;

		st = import_fail(im, err, "%s", why.msg);
	}
	if (!st && p.task && !intern_put(&im->type, p.task, strlen(p.task), &number))
		st = ar_nomem(err);
	q.type = p.task ? number + 1 : 0;
	q.prompt_tok = p.n_prompt;
	q.output_tok = p.n_answer;
	prompt_release(&p);
	return st ? st : import_add(im, &q, err);
}

const struct importer importer_prompts = {
	.name = "prompts",
	.title = "prompts and answers in token ids (JSON lines)",
	.kind = RECORD_JSON,
	.timeless = true,
	.need = need,
	.sniff = prompts_sniff,
	.record = prompts_record,
};
