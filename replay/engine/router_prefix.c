/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The router of SGLang's gateway that knows which prefixes it has sent where: cache_aware.rs, with
 * its defaults.  It compares the characters of texts; here these are the prefix blocks of a trace.
 * It forgets no prefix, however long the trace is.
 */
#include "config.h"
#include "replay/engine/router.h"

/* Loads are uneven where the most of a replica is this much more than the least of one. */
static const int64_t MORE = 64;
static const double TIMES = 1.5;
/* A prefix decides if it is more than this share of the prompt. */
static const double LONG_SHARE = 0.3;

static bool uneven(const struct routing *r)
{
	int64_t most = r->load[0].unfinished, least = most;

	for (size_t i = 1; i < (size_t)r->rule.replicas; i++) {
		const int64_t x = r->load[i].unfinished;

		most = x > most ? x : most;
		least = x < least ? x : least;
	}
	return most - least > MORE && (double)most > TIMES * (double)least;
}

/* Who knows block k of request id. */
static uint64_t *known_by(const struct routing *r, uint32_t id, uint32_t k)
{
	return r->known + r->block[r->first[id] + k] * r->words;
}

/* The lowest replica that knows a block; the number of replicas: none does. */
static size_t first_bit(const struct routing *r, const uint64_t *bits)
{
	for (size_t w = 0; w < r->words; w++)
		if (bits[w])
			return 64 * w + (size_t)__builtin_ctzll(bits[w]);
	return (size_t)r->rule.replicas;
}

/* Tokens of the first n blocks of request q. */
static int64_t tokens_of(const struct routing *r, const struct request *q, uint32_t n)
{
	const int64_t tok = (int64_t)n * r->trace->block_tok;

	return tok < q->prompt_tok ? tok : q->prompt_tok;
}

/* The replica that knows the longest prefix of a request, *tok tokens; of equals the lowest. */
static size_t longest(const struct routing *r, uint32_t id, int64_t *tok)
{
	const struct request *q = &r->trace->req[id];
	size_t best = 0;
	uint32_t n = 0;

	for (; n < q->n_block; n++) {
		const size_t i = first_bit(r, known_by(r, id, n));

		if (i == (size_t)r->rule.replicas)
			break;
		best = i;
	}
	*tok = tokens_of(r, q, n);
	return best;
}

static size_t smallest_tree(const struct routing *r)
{
	size_t best = 0;

	for (size_t i = 1; i < (size_t)r->rule.replicas; i++)
		if (r->tree_tok[i] < r->tree_tok[best])
			best = i;
	return best;
}

/* Replica `to` is sent the request.  A prompt without blocks is like no other. */
static void learn(struct routing *r, uint32_t id, size_t to)
{
	const struct request *q = &r->trace->req[id];
	uint32_t n = 0;

	for (uint32_t k = 0; k < q->n_block; k++) {
		uint64_t *bits = known_by(r, id, k) + to / 64;

		n += *bits >> to % 64 & 1;
		*bits |= 1ull << to % 64;
	}
	r->tree_tok[to] += q->prompt_tok - tokens_of(r, q, n);
}

static size_t choose_prefix(struct routing *r, uint32_t id)
{
	const struct request *q = &r->trace->req[id];
	int64_t tok;
	size_t to;

	if (uneven(r)) {
		to = routing_least(r);
	} else {
		to = longest(r, id, &tok);
		if ((double)tok <= LONG_SHARE * q->prompt_tok)
			to = smallest_tree(r);
	}
	learn(r, id, to);
	return to;
}

const struct request_router router_prefix = { .name = "prefix",
					      .prefixes = true,
					      .choose = choose_prefix };
