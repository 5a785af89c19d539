/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical form of attnreplay-trace(5): a header line, then one request per line.  The reader
 * is strict and accepts only the output of trace_write.  Exceptions are keys that start with "x_"
 * and keys of the format that this program ignores.
 */
#include "config.h"
#include "traces/importers/import.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <string.h>

#include "base/number.h"

static const char *const need[] = { NULL };

static const char *const header_keys[] = { "format",   "version", "block_size", "epoch", "context",
					   "requests", "sources", "transforms", NULL };
static const char *const request_keys[] = {
	"id",	 "arrival_ns", "prompt_tokens", "output_tokens", "session",
	"turn",	 "parent",     "think_ns",	"blocks",	 "completion_blocks",
	"label", "images",     "flags",		"priority",	 "replica",
	NULL
};
static const char *const unused_keys[] = { "completion_blocks", "flags", "parent", NULL };

static bool field_is(const struct field *f, const char *text)
{
	return f && f->value.n == strlen(text) && !memcmp(f->value.s, text, f->value.n);
}

static bool canonical_sniff(const struct record *first)
{
	return field_is(record_find(first, "format"), "\"reqtrace\"");
}

static enum ar_status check_keys(struct import *im, const struct record *r, const char *const *keys,
				 struct ar_err *err)
{
	for (size_t i = 0; i < r->n; i++) {
		const char *name = r->field[i].name;

		if (strncmp(name, "x_", 2) && !name_among(keys, name))
			return import_fail(im, err,
					   "unknown key \"%s\"; keys of your own start with x_",
					   span_show((struct span){ name, strlen(name) }).s);
	}
	return AR_OK;
}

/* Read a required integer from 0 to max. */
static enum ar_status canonical_integer(struct import *im, const struct record *r, const char *name,
					uint64_t max, uint64_t *out, struct ar_err *err)
{
	const struct field *f = record_find(r, name);

	if (!f)
		return import_fail(im, err, "the record lacks \"%s\"", name);
	if (!num_u64(f->value.s, f->value.n, out) || *out > max)
		return import_fail(im, err, "%s is \"%s\", want an integer from 0 to %" PRIu64,
				   name, span_show(f->value).s, max);
	return AR_OK;
}

/* ---- the header ---- */

static enum ar_status read_epoch(struct import *im, const struct record *r, struct ar_err *err)
{
	const struct field *f = record_find(r, "epoch");
	enum date_zone zone;
	struct span v;

	if (!f || field_is(f, "null"))
		return AR_OK;
	v = (struct span){ f->value.s + 1, f->value.n - 2 };
	if (*f->value.s != '"' || !date_parse(v, &im->t->epoch_ns, &zone) || zone != DATE_ZONED)
		return import_fail(im, err,
				   "epoch is \"%s\", want null or a date and time with its zone",
				   span_show(f->value).s);
	im->t->has_epoch = true;
	return AR_OK;
}

static bool all_strings(const cJSON *list)
{
	const cJSON *e;

	cJSON_ArrayForEach(e, list)
		if (!cJSON_IsString(e))
			return false;
	return true;
}

/* Read the source files and the changes of the trace. */
static enum ar_status read_history(struct import *im, const struct record *r, struct ar_err *err)
{
	cJSON *sources = cJSON_GetObjectItemCaseSensitive(r->json, "sources");
	cJSON *transforms = cJSON_GetObjectItemCaseSensitive(r->json, "transforms"), *copy;
	const cJSON *e;

	cJSON_ArrayForEach(e, sources)
		if (!cJSON_IsObject(e) || !all_strings(e))
			break;
	if (sources && (!cJSON_IsArray(sources) || e))
		return import_fail(im, err, "sources is not an array of objects of strings");
	if (transforms && (!cJSON_IsArray(transforms) || !all_strings(transforms)))
		return import_fail(im, err, "transforms is not an array of strings");
	if (sources) {
		im->t->sources = cJSON_Duplicate(sources, 1);
		if (!im->t->sources)
			return ar_nomem(err);
	}
	if (transforms) {
		copy = cJSON_Duplicate(transforms, 1);
		if (!copy)
			return ar_nomem(err);
		cJSON_Delete(im->t->transforms);
		im->t->transforms = copy;
	}
	return AR_OK;
}

static enum ar_status canonical_header(struct import *im, const struct record *r,
				       struct ar_err *err)
{
	uint64_t version, block_tok;
	enum ar_status st;

	if (!canonical_sniff(r))
		return import_fail(im, err,
				   "the first line is not a header with \"format\":\"reqtrace\"");
	st = canonical_integer(im, r, "version", UINT64_MAX, &version, err);
	if (!st && version != 1)
		return import_fail(im, err, "version %" PRIu64 ", this program reads version 1",
				   version);
	if (!st)
		st = check_keys(im, r, header_keys, err);
	if (!st)
		st = canonical_integer(im, r, "block_size", INT32_MAX, &block_tok, err);
	if (!st)
		st = canonical_integer(im, r, "requests", UINT64_MAX, &im->promised, err);
	if (st)
		return st;
	if (record_find(r, "context") && !field_is(record_find(r, "context"), "\"cumulative\""))
		return import_fail(im, err, "context is not \"cumulative\"; write whole prompts");
	im->t->block_tok = (uint32_t)block_tok;
	st = read_epoch(im, r, err);
	return st ? st : read_history(im, r, err);
}

/* ---- requests ---- */

/* Add a block with its id unchanged, and check that ids are chained.  Interned along its chain,
 * each id must always get the same number. */
static enum ar_status one_block(struct import *im, struct span text, uint64_t *prev, uint32_t tail,
				struct ar_err *err)
{
	struct chain_key key = { .prev = *prev, .tail = tail };
	uint64_t known;

	if (!num_u64(text.s, text.n, &key.src))
		return import_fail(im, err, "blocks holds \"%s\", want integers from 0",
				   span_show(text).s);
	if (!chain_put(&im->chain, key, im->chain.n, prev) ||
	    !chain_put(&im->seen, (struct chain_key){ .src = key.src }, *prev, &known))
		return ar_nomem(err);
	if (known != *prev)
		return import_fail(im, err,
				   "block %" PRIu64 " stood for another prefix before; ids must be "
				   "chained",
				   key.src);
	return import_block(im, key.src, err);
}

static enum ar_status canonical_blocks(struct import *im, const struct record *r,
				       uint32_t prompt_tok, struct ar_err *err)
{
	const struct field *f = record_find(r, "blocks");
	uint32_t bs = im->t->block_tok, want, have = 0;
	uint64_t prev = CHAIN_START;
	enum ar_status st = AR_OK;
	struct span rest, id;

	if (!f)
		return AR_OK;
	if (!bs || *f->value.s != '[')
		return import_fail(im, err, "blocks %s",
				   bs ? "is not an array" : "in a trace whose block_size is 0");
	want = (prompt_tok + bs - 1) / bs;
	for (rest = f->value; record_next(&rest, &id); have++)
		;
	if (have != want)
		return import_fail(im, err,
				   "prompt_tokens %u makes %u blocks of %u tokens, blocks has %u",
				   prompt_tok, want, bs, have);
	rest = f->value;
	for (uint32_t i = 1; !st && record_next(&rest, &id); i++)
		st = one_block(im, id, &prev, i == want ? prompt_tok % bs : 0, err);
	return st;
}

static enum ar_status canonical_session(struct import *im, const struct record *r,
					struct request *q, struct ar_err *err)
{
	uint64_t turn = 0, think = 0;
	uint32_t number = 0;
	enum ar_status st;

	if (!record_find(r, "session")) {
		if (record_find(r, "turn") || record_find(r, "think_ns"))
			return import_fail(im, err, "turn or think_ns without session");
		return AR_OK;
	}
	st = import_name(im, r, "session", &im->session, &number, err);
	if (!st)
		st = canonical_integer(im, r, "turn", UINT32_MAX, &turn, err);
	if (!st && record_find(r, "think_ns")) {
		st = canonical_integer(im, r, "think_ns", INT64_MAX, &think, err);
		q->think_ns = (int64_t)think;
	}
	q->session = (int32_t)number;
	q->turn = (uint32_t)turn;
	return st;
}

/* The earlier request of a session that an element of key says. */
static enum ar_status earlier(struct import *im, const char *key, struct span text,
			      const struct request **q, struct ar_err *err)
{
	uint64_t id;

	if (!num_u64(text.s, text.n, &id) || id >= im->t->n || im->t->req[id].session < 0)
		return import_fail(im, err, "%s has \"%s\", want an earlier request of a session",
				   key, span_show(text).s);
	*q = &im->t->req[id];
	return AR_OK;
}

/* Read the request after which a turn comes, if it is not the turn before. */
static enum ar_status canonical_after(struct import *im, const struct record *r, struct request *q,
				      bool first, struct ar_err *err)
{
	const struct request *a;
	struct session_link *link;
	enum ar_status st;

	if (!record_find(r, "x_after"))
		return AR_OK;
	st = earlier(im, "x_after", record_find(r, "x_after")->value, &a, err);
	if (st)
		return st;
	if (a->session == q->session ? a->turn >= q->turn : !first)
		return import_fail(im, err,
				   "x_after is no earlier turn, and the session began before");
	if (a->session == q->session) {
		q->back = q->turn - a->turn;
		return AR_OK;
	}
	st = import_link(im, (uint32_t)q->session, &link, err);
	if (!st)
		*link = (struct session_link){ .parent = a->session,
					       .after = a->turn,
					       .join_ns = -1 };
	return st;
}

/* Read the last requests of sessions for which q waits. */
static enum ar_status canonical_join(struct import *im, const struct record *r,
				     const struct request *q, struct ar_err *err)
{
	const struct field *f = record_find(r, "x_join");
	const struct request *b;
	struct session_link *link;
	uint64_t ns = 0;
	struct span rest, id;
	enum ar_status st;

	if (!f)
		return AR_OK;
	if (*f->value.s != '[')
		return import_fail(im, err, "x_join is not an array");
	rest = f->value;
	st = canonical_integer(im, r, "x_join_ns", INT64_MAX, &ns, err);
	while (!st && record_next(&rest, &id)) {
		st = earlier(im, "x_join", id, &b, err);
		if (!st)
			st = import_link(im, (uint32_t)b->session, &link, err);
		if (!st && link->parent != q->session)
			return import_fail(im, err,
					   "x_join has request %s, whose session this one did not "
					   "start",
					   span_show(id).s);
		if (!st) {
			link->join = q->turn;
			link->join_ns = (int64_t)ns;
		}
	}
	return st;
}

/* Read what the request waits for besides the turn before it. */
static enum ar_status canonical_waits(struct import *im, const struct record *r, struct request *q,
				      struct ar_err *err)
{
	struct import_session *s;
	bool first;
	enum ar_status st;

	if (q->session < 0)
		return record_find(r, "x_after") || record_find(r, "x_join") ?
			       import_fail(im, err, "x_after or x_join without session") :
			       AR_OK;
	st = import_session(im, (uint32_t)q->session, &s, err);
	if (st)
		return st;
	first = !s->begun;
	s->begun = true;
	st = canonical_after(im, r, q, first, err);
	return st ? st : canonical_join(im, r, q, err);
}

static enum ar_status kind(struct import *im, const struct record *r, struct request *q,
			   struct ar_err *err)
{
	uint64_t images = 0;
	uint32_t number;
	enum ar_status st = AR_OK;

	if (record_find(r, "label")) {
		st = import_name(im, r, "label", &im->type, &number, err);
		if (st)
			return st;
		q->type = number + 1;
	}
	if (record_find(r, "priority")) {
		st = import_priority(im, r, "priority", q, err);
		if (st)
			return st;
	}
	if (record_find(r, "replica")) {
		st = import_replica(im, r, "replica", q, err);
		if (st)
			return st;
	}
	q->warmup = record_find(r, "x_warmup") && *record_find(r, "x_warmup")->value.s == 't';
	if (record_find(r, "images"))
		st = canonical_integer(im, r, "images", UINT32_MAX, &images, err);
	q->images = (uint32_t)images;
	return st;
}

static enum ar_status canonical_parent(struct import *im, const struct record *r,
				       const struct request *q, struct ar_err *err)
{
	uint64_t p;
	enum ar_status st;

	if (!record_find(r, "parent"))
		return AR_OK;
	st = canonical_integer(im, r, "parent", UINT64_MAX, &p, err);
	if (st)
		return st;
	if (p >= im->t->n || q->session < 0 || im->t->req[p].session != q->session)
		return import_fail(
			im, err, "parent %" PRIu64 " is not an earlier request of the session", p);
	return AR_OK;
}

/* Read a token count of at least 1. */
static enum ar_status canonical_tokens(struct import *im, const struct record *r, const char *name,
				       uint32_t *out, struct ar_err *err)
{
	uint64_t n = 0;
	enum ar_status st = canonical_integer(im, r, name, INT32_MAX, &n, err);

	if (!st && !n)
		return import_fail(im, err, "%s is 0, want at least 1", name);
	*out = (uint32_t)n;
	return st;
}

static enum ar_status canonical_request(struct import *im, const struct record *r,
					struct ar_err *err)
{
	struct request q = request_none;
	uint64_t id, arrival;
	enum ar_status st = check_keys(im, r, request_keys, err);

	if (!st)
		st = canonical_integer(im, r, "id", UINT64_MAX, &id, err);
	if (!st && id != im->line - 2)
		return import_fail(im, err,
				   "id is %" PRIu64 ", want %" PRIu64 ", the line number less 2",
				   id, im->line - 2);
	if (!st)
		st = canonical_integer(im, r, "arrival_ns", INT64_MAX, &arrival, err);
	if (!st && im->t->n && (int64_t)arrival < im->last_ns)
		return import_fail(im, err, "arrival_ns decreases");
	if (!st)
		st = canonical_tokens(im, r, "prompt_tokens", &q.prompt_tok, err);
	if (!st)
		st = canonical_tokens(im, r, "output_tokens", &q.output_tok, err);
	if (!st)
		st = canonical_session(im, r, &q, err);
	if (!st)
		st = canonical_parent(im, r, &q, err);
	if (!st)
		st = canonical_waits(im, r, &q, err);
	if (!st)
		st = canonical_blocks(im, r, q.prompt_tok, err);
	if (!st)
		st = kind(im, r, &q, err);
	if (st)
		return st;
	for (size_t i = 0; i < r->n; i++)
		if (name_among(unused_keys, r->field[i].name)) {
			import_warn(im, WARN_KEY);
			break;
		}
	q.arrival_ns = (int64_t)arrival;
	return import_add(im, &q, err);
}

static enum ar_status canonical_record(struct import *im, const struct record *r,
				       struct ar_err *err)
{
	return im->line == 1 ? canonical_header(im, r, err) : canonical_request(im, r, err);
}

static enum ar_status canonical_finish(struct import *im, struct ar_err *err)
{
	if (im->t->has_epoch && im->max_ns >= DATE_MAX_NS - im->t->epoch_ns)
		return import_fail(im, err, "epoch and arrival_ns go beyond the year 2262");
	if (im->t->n != im->promised)
		return import_fail(im, err, "the file ends after %zu of %" PRIu64 " requests",
				   im->t->n, im->promised);
	im->first_ns = 0; /* the trace can start before its first request */
	return AR_OK;
}

const struct importer importer_canonical = {
	.name = "canonical",
	.title = "the canonical form of attnreplay (JSON lines)",
	.kind = RECORD_JSON,
	.need = need,
	.sniff = canonical_sniff,
	.record = canonical_record,
	.finish = canonical_finish,
};
