/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix blocks of prompts whose tokens are known. */
#ifndef AR_TOKEN_BLOCKS_H
#define AR_TOKEN_BLOCKS_H

#include "traces/trace.h"

/* Tokens of such a block.  Engines keep blocks of 16 tokens or a multiple. */
#define TOKEN_BLOCK 16

struct token_blocks;

/* Name the blocks of t anew, by tokens alone.  Add the requests in their order.  AR_NOMEM: *out is
 * NULL. */
enum ar_status token_blocks_open(struct token_blocks **out, struct trace *t, struct ar_err *err);
/* Add the next request.  Token k of its prompt is id[k % n]; n > 0.  AR_NOMEM. */
enum ar_status token_blocks_add(struct token_blocks *b, const int32_t *id, uint32_t n,
				struct ar_err *err);
void token_blocks_close(struct token_blocks *b); /* NULL is fine */

#endif
