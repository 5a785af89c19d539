/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of prompts with known tokens have one name exactly if all tokens up to their end agree. */
#include "config.h"

#include <stdlib.h>

#include "base/rng.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"
#include "traces/token_blocks.h"

enum { N = 40, LONGEST = 70 };

static struct ar_err err;
static struct request req[N];
static int32_t text[N][LONGEST];
static uint32_t n_text[N];

/* Prompts of few different tokens: copies of earlier ones that differ from one token on. */
static void make_prompts(void)
{
	struct rng r = { 7 };

	for (size_t i = 0; i < N; i++) {
		const size_t from = i ? rng_below(&r, i) : 0;
		const uint32_t same = (uint32_t)rng_below(&r, LONGEST + 1);

		req[i] = request_none;
		req[i].prompt_tok = 1 + (uint32_t)rng_below(&r, 2 * LONGEST);
		n_text[i] = rng_below(&r, 4) ? LONGEST : 1 + (uint32_t)rng_below(&r, LONGEST);
		for (uint32_t k = 0; k < LONGEST; k++)
			text[i][k] = k < same ? text[from][k] : (int32_t)rng_below(&r, 3);
	}
}

static int32_t token(size_t i, uint32_t k)
{
	return text[i][k % n_text[i]];
}

static enum ar_status name_all(struct trace *t)
{
	struct token_blocks *b;
	enum ar_status st = token_blocks_open(&b, t, &err);

	for (size_t i = 0; i < N && !st; i++)
		st = token_blocks_add(b, text[i], n_text[i], &err);
	token_blocks_close(b);
	return st;
}

/* Whether block k of requests i and j ends behind the same tokens. */
static bool same_tokens(size_t i, size_t j, uint32_t k)
{
	uint32_t end_i = (k + 1) * TOKEN_BLOCK, end_j = end_i;

	end_i = end_i < req[i].prompt_tok ? end_i : req[i].prompt_tok;
	end_j = end_j < req[j].prompt_tok ? end_j : req[j].prompt_tok;
	for (uint32_t at = 0; at < end_i && end_i == end_j; at++)
		if (token(i, at) != token(j, at))
			return false;
	return end_i == end_j;
}

static void test_names(void)
{
	struct trace t = { .req = req, .n = N, .block_tok = 512 };
	size_t bad = 0, equal = 0, missing = 0;

	is_int(name_all(&t), AR_OK, "prompts are named");
	is_int(t.block_tok, TOKEN_BLOCK, "... in blocks of 16 tokens");
	for (size_t i = 0; i < N; i++) {
		missing += req[i].n_block != (req[i].prompt_tok + TOKEN_BLOCK - 1) / TOKEN_BLOCK;
		for (size_t j = 0; j < i; j++)
			for (uint32_t k = 0; k < req[i].n_block && k < req[j].n_block; k++) {
				const bool same = same_tokens(i, j, k);

				equal += same;
				bad += same !=
				       (trace_block(&t, &req[i], k) == trace_block(&t, &req[j], k));
			}
	}
	ok(!missing, "... all of a prompt, the end too");
	ok(!bad && equal > 100, "blocks are the same exactly if all tokens up to their end are");
	free(t.run);
}

static void test_memory(void)
{
	int failed = 0;

	for (long k = 0, faults = true; faults; k++) {
		struct trace t = { .req = req, .n = N };

		fault_arm(k);
		failed += name_all(&t) == AR_NOMEM;
		faults = fault_disarm();
		free(t.run);
	}
	ok(failed > 3, "each allocation that fails is told");
}

int main(void)
{
	plan(0);
	make_prompts();
	test_names();
	test_memory();
	return done_testing();
}
