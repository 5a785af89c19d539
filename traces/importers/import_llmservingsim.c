/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of LLMServingSim, in nanoseconds.  A record is a request, or a session of requests with
 * pauses between them.  Token ids, when present, determine shared prefixes. */
#include "config.h"
#include "traces/importers/import.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"

static const char *const need[] = { "arrival_time_ns", NULL };
static const char *const may[] = {
	"input_toks",	"output_toks", "input_tok_ids", "output_tok_ids", "session_id",
	"sub_requests", NULL
};

static bool llmservingsim_sniff(const struct record *first)
{
	return record_get(first, "input_toks") || record_get(first, "sub_requests");
}

static enum ar_status must_have(const struct import *im, const struct record *r, const char *name,
				struct ar_err *err)
{
	if (!record_get(r, name))
		return import_fail(im, err, "the record lacks \"%s\"", name);
	return AR_OK;
}

/* Check that each token has an id.  c not NULL: also add the blocks of the prompt. */
static enum ar_status token_ids(struct import *im, const struct record *r, const char *name,
				uint32_t want, struct cutter *c, struct ar_err *err)
{
	struct span ids = record_find(r, name)->value, id;
	uint32_t n = 0;
	enum ar_status st = AR_OK;

	if (*ids.s != '[')
		return import_fail(im, err, "%s is \"%s\", want an array", name, span_show(ids).s);
	for (; !st && record_next(&ids, &id); n++) {
		uint64_t token;

		if (!num_u64(id.s, id.n, &token))
			return import_fail(im, err, "%s holds \"%s\", want integers from 0", name,
					   span_show(id).s);
		if (c && n < want)
			st = import_cut_token(im, c, token, err);
	}
	if (!st && n != want)
		return import_fail(im, err, "%s has %u tokens, want %u", name, n, want);
	return st;
}

static enum ar_status llmservingsim_blocks(struct import *im, const struct record *r,
					   const struct request *q, struct ar_err *err)
{
	struct cutter c = CUTTER_START;
	enum ar_status st = AR_OK;

	if (record_get(r, "output_tok_ids"))
		st = token_ids(im, r, "output_tok_ids", q->output_tok, NULL, err);
	if (st)
		return st;
	if (!record_get(r, "input_tok_ids")) {
		import_warn(im, WARN_NO_BLOCKS);
		return AR_OK;
	}
	st = token_ids(im, r, "input_tok_ids", q->prompt_tok, &c, err);
	return st ? st : import_cut_end(im, c, err);
}

/* Import a record, or a part of a session.  q has the arrival and the session. */
static enum ar_status llmservingsim_request(struct import *im, const struct record *r,
					    struct request *q, struct ar_err *err)
{
	enum ar_status st = must_have(im, r, "input_toks", err);

	if (!st)
		st = must_have(im, r, "output_toks", err);
	if (!st)
		st = import_lengths(im, r, "input_toks", "output_toks", q, err);
	if (st || import_unserved(im, q))
		return st;
	st = llmservingsim_blocks(im, r, q, err);
	if (st)
		return st;
	return q->turn ? import_add_earliest(im, q, err) : import_add(im, q, err);
}

/* Import the next part of a session.  *pause_ns is the duration of its tool. */
static enum ar_status llmservingsim_part(struct import *im, struct span text, struct request *q,
					 int64_t *pause_ns, struct ar_err *err)
{
	struct record r = { 0 };
	char *line = strndup(text.s, text.n);
	enum ar_status st = line ? record_json(&r, line, text.n, err) : ar_nomem(err);

	if (st == AR_DATA)
		st = import_fail(im, err, "sub_requests holds \"%s\", want objects",
				 span_show(text).s);
	if (!st)
		st = llmservingsim_request(im, &r, q, err);
	if (!st)
		st = must_have(im, &r, "tool_duration_ns", err);
	if (!st)
		st = import_time(im, &r, "tool_duration_ns", 1, pause_ns, err);
	record_release(&r);
	free(line);
	return st;
}

static enum ar_status llmservingsim_session(struct import *im, const struct record *r,
					    struct request *q, struct ar_err *err)
{
	struct span parts = record_get(r, "sub_requests")->value, text;
	int64_t arrival_ns = q->arrival_ns, pause_ns;
	size_t n_known = im->session.n;
	uint32_t number;
	enum ar_status st = must_have(im, r, "session_id", err);

	if (!st)
		st = import_name(im, r, "session_id", &im->session, &number, err);
	if (st)
		return st;
	if (im->session.n == n_known)
		return import_fail(im, err, "session_id \"%s\" appears twice",
				   im->session.v[number]);
	if (record_get(r, "input_toks") || *parts.s != '[')
		return import_fail(im, err,
				   *parts.s == '[' ? "both input_toks and sub_requests" :
						     "sub_requests is not an array");
	q->session = (int32_t)number;
	while (!st && record_next(&parts, &text)) {
		struct request next = *q;
		const size_t n = im->t->n;

		st = llmservingsim_part(im, text, &next, &pause_ns, err);
		if (!st && __builtin_add_overflow(arrival_ns, pause_ns, &arrival_ns))
			st = import_fail(im, err, "the time goes beyond 2^63 ns");
		q->arrival_ns = arrival_ns;
		/* A part without output is no request, but its pause passes. */
		q->think_ns = pause_ns + (im->t->n == n && q->think_ns > 0 ? q->think_ns : 0);
		q->turn++;
	}
	if (!q->turn)
		import_warn(im, WARN_NO_TURNS);
	return st;
}

static enum ar_status llmservingsim_record(struct import *im, const struct record *r,
					   struct ar_err *err)
{
	struct request q = request_none;
	enum ar_status st = import_time(im, r, "arrival_time_ns", 1, &q.arrival_ns, err);

	if (st)
		return st;
	return record_get(r, "sub_requests") ? llmservingsim_session(im, r, &q, err) :
					       llmservingsim_request(im, r, &q, err);
}

const struct importer importer_llmservingsim = {
	.name = "llmservingsim",
	.title = "LLMServingSim trace (JSON lines)",
	.kind = RECORD_JSON,
	.uses = USES_UNIT,
	.need = need,
	.may = may,
	.block_tok = 16,
	.sniff = llmservingsim_sniff,
	.record = llmservingsim_record,
};
