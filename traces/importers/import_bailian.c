/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen-Bailian usage traces: seconds, one hash per 16 tokens of the prompt, and chats whose records
 * name their parents. */
#include "config.h"
#include "traces/importers/import.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

static const char *const need[] = { "chat_id",	     "parent_chat_id", "timestamp", "input_length",
				    "output_length", "turn",	       NULL };
static const char *const may[] = { "type", "hash_ids", NULL };

/* Stored for a parent chat that is not in the file so far. */
static const uint64_t MISSING = UINT64_MAX;

static enum ar_status bailian_integer(struct import *im, const struct record *r, const char *name,
				      uint64_t *out, struct ar_err *err)
{
	struct span v = record_find(r, name)->value;

	if (!num_u64(v.s, v.n, out))
		return import_fail(im, err, "%s is \"%s\", want an integer", name, span_show(v).s);
	return AR_OK;
}

static bool is_root(const struct record *r)
{
	struct span v = record_find(r, "parent_chat_id")->value;

	return !record_get(r, "parent_chat_id") || (v.n == 2 && v.s[0] == '-' && v.s[1] == '1');
}

/* Find the parent of the chat.  *known packs its session and turn; MISSING: no parent. */
static enum ar_status bailian_parent(struct import *im, const struct record *r, uint64_t chat,
				     uint64_t *known, struct ar_err *err)
{
	struct chain_key key = { 0 };
	enum ar_status st;

	*known = MISSING;
	if (is_root(r))
		return AR_OK;
	st = bailian_integer(im, r, "parent_chat_id", &key.src, err);
	if (st)
		return st;
	if (key.src == chat)
		return import_fail(im, err, "chat_id %" PRIu64 " is its own parent", chat);
	if (!chain_put(&im->seen, key, MISSING, known))
		return ar_nomem(err);
	if (*known == MISSING)
		import_warn(im, WARN_PARENT);
	return AR_OK;
}

/* Set session and turn.  The first chat names the session. */
static enum ar_status bailian_session(struct import *im, const struct record *r, struct request *q,
				      struct ar_err *err)
{
	uint64_t chat, turn, known, old;
	size_t n_seen;
	char name[24];
	uint32_t number;
	enum ar_status st = bailian_integer(im, r, "chat_id", &chat, err);

	if (!st)
		st = bailian_integer(im, r, "turn", &turn, err);
	if (!st && (!turn || turn > INT32_MAX))
		return import_fail(im, err, "turn is %" PRIu64 ", want 1 to 2147483647", turn);
	if (!st)
		st = bailian_parent(im, r, chat, &known, err);
	if (st)
		return st;
	if (is_root(r) ? turn != 1 : known != MISSING && turn != (uint32_t)known + 2)
		import_warn(im, WARN_TURN);
	if (known == MISSING) {
		snprintf(name, sizeof name, "%" PRIu64, chat);
		if (!intern_put(&im->session, name, strlen(name), &number))
			return ar_nomem(err);
	} else {
		number = (uint32_t)(known >> 32);
	}
	q->session = (int32_t)number;
	q->turn = (uint32_t)turn - 1;
	n_seen = im->seen.n;
	if (!chain_put(&im->seen, (struct chain_key){ .src = chat },
		       (uint64_t)number << 32 | q->turn, &old))
		return ar_nomem(err);
	if (im->seen.n == n_seen)
		return import_fail(im, err, "chat_id %" PRIu64 " %s", chat,
				   old == MISSING ? "comes after a record that goes on from it" :
						    "appears twice");
	return AR_OK;
}

static enum ar_status bailian_record(struct import *im, const struct record *r, struct ar_err *err)
{
	struct request q = request_none;
	uint32_t number;
	enum ar_status st = import_time(im, r, "timestamp", 1000000000, &q.arrival_ns, err);

	if (!st)
		st = import_lengths(im, r, "input_length", "output_length", &q, err);
	if (!st)
		st = bailian_session(im, r, &q, err);
	if (!st && record_get(r, "type")) {
		st = import_name(im, r, "type", &im->type, &number, err);
		q.type = st ? 0 : number + 1;
	}
	if (st || import_unserved(im, &q))
		return st;
	st = import_hash_ids(im, r, q.prompt_tok, err);
	return st ? st : import_add(im, &q, err);
}

const struct importer importer_bailian = {
	.name = "bailian",
	.title = "Qwen-Bailian usage trace (JSON lines)",
	.kind = RECORD_JSON,
	.uses = USES_UNIT,
	.need = need,
	.may = may,
	.block_tok = 16,
	.record = bailian_record,
};
