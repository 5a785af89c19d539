/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/token_blocks.h"

#include <stdlib.h>

#include "traces/intern.h"

struct token_blocks {
	struct trace *t;
	size_t next;		  /* the next request */
	struct chain text, block; /* tokens of a block; blocks of a prompt */
};

enum ar_status token_blocks_open(struct token_blocks **out, struct trace *t, struct ar_err *err)
{
	*out = calloc(1, sizeof **out);
	if (!*out)
		return ar_nomem(err);
	(*out)->t = t;
	t->block_tok = TOKEN_BLOCK;
	t->n_run = 0;
	return AR_OK;
}

/* Name n tokens from token `from` of a prompt: equal names mean equal tokens. */
static bool name_text(struct token_blocks *b, const int32_t *id, uint32_t n_id, uint32_t from,
		      uint32_t n, uint64_t *name)
{
	bool done = true;

	*name = CHAIN_START;
	for (uint32_t k = from; k < from + n && done; k++) {
		const struct chain_key key = { .prev = *name, .src = (uint32_t)id[k % n_id] };

		done = chain_put(&b->text, key, b->text.n, name);
	}
	return done;
}

enum ar_status token_blocks_add(struct token_blocks *b, const int32_t *id, uint32_t n,
				struct ar_err *err)
{
	struct request *q = &b->t->req[b->next++];
	struct chain_key key = { .prev = CHAIN_START };

	q->n_block = q->n_run = 0;
	q->run = b->t->n_run;
	for (uint32_t at = 0; at < q->prompt_tok; at += TOKEN_BLOCK) {
		const uint32_t left = q->prompt_tok - at;

		key.tail = left < TOKEN_BLOCK ? left : 0;
		if (!name_text(b, id, n, at, key.tail ? left : TOKEN_BLOCK, &key.src) ||
		    !chain_put(&b->block, key, b->block.n, &key.prev) ||
		    !trace_put_block(b->t, q, key.prev))
			return ar_nomem(err);
	}
	return AR_OK;
}

void token_blocks_close(struct token_blocks *b)
{
	if (!b)
		return;
	chain_release(&b->text);
	chain_release(&b->block);
	free(b);
}
