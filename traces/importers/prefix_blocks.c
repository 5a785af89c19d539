/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix blocks of prompts, from hashes of blocks, or from named texts and tokens. */
#include "config.h"
#include "traces/importers/import.h"

#include <string.h>

#include "base/number.h"

/* Flags in the tail of a chain key, beside the tokens of a partial block. */
static const uint32_t IDS = 1u << 29;	  /* the link is one of import_hash_chain() */
static const uint32_t TEXT_ID = 1u << 31; /* the id is a string */
static const uint32_t RANGE = 1u << 30;	  /* the id is a range of tokens */

/* ---- hashes of blocks ---- */

enum ar_status import_hash_id(struct import *im, struct span id, struct chain_key *key,
			      struct ar_err *err)
{
	uint32_t number;

	key->tail = 0;
	if (num_u64(id.s, id.n, &key->src))
		return AR_OK;
	if (*id.s != '"' || memchr(id.s, '\\', id.n))
		return import_fail(im, err,
				   "hash_ids holds \"%s\", want integers from 0 or plain strings",
				   span_show(id).s);
	if (!intern_put(&im->id, id.s + 1, id.n - 2, &number))
		return ar_nomem(err);
	key->src = number;
	key->tail = TEXT_ID;
	return AR_OK;
}

static uint32_t count_hashes(struct span array)
{
	struct span e;
	uint32_t n = 0;

	while (record_next(&array, &e))
		n++;
	return n;
}

static uint32_t n_blocks(uint32_t tok, uint32_t block_tok)
{
	return tok / block_tok + (tok % block_tok != 0);
}

bool import_hash_fits(const struct record *r, uint32_t block_tok)
{
	const struct field *ids = record_get(r, "hash_ids"), *len = record_find(r, "input_length");
	uint64_t tok;

	return ids && *ids->value.s == '[' && num_u64(len->value.s, len->value.n, &tok) &&
	       tok <= INT32_MAX && count_hashes(ids->value) == n_blocks((uint32_t)tok, block_tok);
}

enum ar_status import_hash_count(struct import *im, struct span ids, uint32_t tok, uint32_t *n,
				 struct ar_err *err)
{
	uint32_t bs = im->t->block_tok, want = n_blocks(tok, bs), have, fit = 1;
	char hint[64] = "";

	if (*ids.s != '[')
		return import_fail(im, err, "hash_ids is \"%s\", want an array", span_show(ids).s);
	have = count_hashes(ids);
	*n = want;
	if (have == want)
		return AR_OK;
	if (have == want + 1) {
		import_warn(im, WARN_EXTRA_BLOCK);
		return AR_OK;
	}
	while (fit < 4096 && n_blocks(tok, fit) != have)
		fit *= 2;
	if (n_blocks(tok, fit) == have)
		snprintf(hint, sizeof hint, "; it would fit --hash-block %u", fit);
	return import_fail(im, err,
			   "input_length %u makes %u blocks of %u tokens, hash_ids has %u%s", tok,
			   want, bs, have, hint);
}

enum ar_status import_ids(struct import *im, struct span ids, uint32_t prompt_tok,
			  struct ar_err *err)
{
	struct chain_key key = { .prev = CHAIN_START };
	struct span id;
	uint32_t n;
	enum ar_status st;

	st = import_hash_count(im, ids, prompt_tok, &n, err);
	for (uint32_t i = 0; !st && i < n && record_next(&ids, &id); i++) {
		st = import_hash_id(im, id, &key, err);
		if (st)
			break;
		if (i + 1 == n)
			key.tail |= prompt_tok % im->t->block_tok;
		if (!chain_put(&im->chain, key, im->chain.n, &key.prev))
			return ar_nomem(err);
		st = import_block(im, key.prev, err);
	}
	return st;
}

enum ar_status import_hash_ids(struct import *im, const struct record *r, uint32_t prompt_tok,
			       struct ar_err *err)
{
	const struct field *f = record_get(r, "hash_ids");

	if (f)
		return import_ids(im, f->value, prompt_tok, err);
	import_warn(im, WARN_NO_BLOCKS);
	return AR_OK;
}

enum ar_status import_hash_chain(struct import *im, struct span ids, uint32_t n, uint64_t *end,
				 uint32_t at_n, uint64_t *at, struct ar_err *err)
{
	struct chain_key key = { .prev = CHAIN_START };
	struct span id;
	enum ar_status st;

	*at = CHAIN_START;
	for (uint32_t i = 0; i < n && record_next(&ids, &id); i++) {
		st = import_hash_id(im, id, &key, err);
		if (st)
			return st;
		key.tail |= IDS;
		if (!chain_put(&im->seen, key, im->seen.n, &key.prev))
			return ar_nomem(err);
		if (i + 1 == at_n)
			*at = key.prev;
	}
	*end = key.prev;
	return AR_OK;
}

enum ar_status import_hashed(struct import *im, const struct record *r, int64_t unit_ns,
			     struct ar_err *err)
{
	struct request q = request_none;
	enum ar_status st = import_time(im, r, "timestamp", unit_ns, &q.arrival_ns, err);

	if (!st)
		st = import_lengths(im, r, "input_length", "output_length", &q, err);
	if (st || import_unserved(im, &q))
		return st;
	st = import_hash_ids(im, r, q.prompt_tok, err);
	return st ? st : import_add(im, &q, err);
}

/* ---- blocks of an earlier request ---- */

enum ar_status import_same_blocks(struct import *im, size_t from, uint32_t n, struct ar_err *err)
{
	const struct request *q = &im->t->req[from];
	enum ar_status st = AR_OK;

	for (uint32_t i = 0, at = 0; at < n && !st; i++) {
		uint32_t end = trace_run_end(im->t, q, i);

		end = end < n ? end : n;
		st = import_blocks(im, im->t->run[q->run + i].id, end - at, err);
		at = end;
	}
	return st;
}

enum ar_status import_own_blocks(struct import *im, uint32_t tok, struct ar_err *err)
{
	const uint32_t n = n_blocks(tok, im->t->block_tok) - im->next.n_block;
	const uint64_t id = im->own_ids;

	im->own_ids += n;
	return n ? import_blocks(im, id, n, err) : AR_OK;
}

/* ---- texts ---- */

/* Add the current block to the prompt.  tail: tokens of a partial block, 0: full. */
static enum ar_status end_block(struct import *im, struct cutter *c, uint32_t tail,
				struct ar_err *err)
{
	struct chain_key key = { .prev = c->prev, .src = c->node, .tail = tail };

	if (!chain_put(&im->chain, key, im->chain.n, &c->prev))
		return ar_nomem(err);
	return import_block(im, c->prev, err);
}

static enum ar_status advance_cutter(struct import *im, struct cutter *c, uint32_t n,
				     struct ar_err *err)
{
	enum ar_status st;

	c->fill += n;
	if (c->fill < im->t->block_tok)
		return AR_OK;
	st = end_block(im, c, 0, err);
	c->node = CHAIN_START;
	c->fill = 0;
	return st;
}

enum ar_status import_cut_token(struct import *im, struct cutter *c, uint64_t token,
				struct ar_err *err)
{
	struct chain_key key = { .prev = c->node, .src = token };

	if (!chain_put(&im->seen, key, im->seen.n, &c->node))
		return ar_nomem(err);
	return advance_cutter(im, c, 1, err);
}

enum ar_status import_cut(struct import *im, struct cutter *c, uint64_t text, uint32_t kind,
			  uint32_t n, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (uint32_t from = 0, piece; !st && from < n; from += piece) {
		struct chain_key what = { .prev = c->node, .src = text, .tail = kind };
		struct chain_key range = { .tail = RANGE };

		piece = im->t->block_tok - c->fill;
		if (piece > n - from)
			piece = n - from;
		range.src = (uint64_t)from << 32 | piece;
		if (!chain_put(&im->seen, what, im->seen.n, &range.prev) ||
		    !chain_put(&im->seen, range, im->seen.n, &c->node))
			return ar_nomem(err);
		st = advance_cutter(im, c, piece, err);
	}
	return st;
}

enum ar_status import_cut_end(struct import *im, struct cutter c, struct ar_err *err)
{
	return c.fill ? end_block(im, &c, c.fill, err) : AR_OK;
}
