/* SPDX-License-Identifier: Apache-2.0 */
/* The physical pages of the KV cache, and the pages that each request holds.  A page has page_tok
 * tokens of all KV heads.  The policy's block pool decides whether there is room; this allocator
 * only finds free pages. */
#ifndef AR_BLOCKS_H
#define AR_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct pages;

/* Pages that are enough for all that a pool of num_blocks blocks of block_tok tokens can hold.
 * Each of max_seqs requests may leave its last page partly empty. */
int64_t pages_needed(int64_t num_blocks, int64_t block_tok, int64_t max_seqs, int page_tok);

enum ar_status pages_open(struct pages **out, int64_t n_page, int page_tok, size_t n_req,
			  struct ar_err *err);
void pages_close(struct pages *p); /* NULL is fine */

/* Make room for positions [0, n_tok) of req.  AR_NOMEM: the pages run out; the pages of req stay as
 * they were. */
enum ar_status pages_grow(struct pages *p, uint32_t req, int64_t n_tok, struct ar_err *err);
void pages_drop(struct pages *p, uint32_t req);

/* Free the pages of req that lie before position n_tok, which nobody reads again.  Page 0 takes
 * their place in pages_of(). */
void pages_trim(struct pages *p, uint32_t req, int64_t n_tok);

int64_t pages_len(const struct pages *p, uint32_t req); /* largest n_tok of pages_grow() */

/* Record that chunks computed positions [0, n_tok) of req.  A selector does not see positions that
 * decodes compute, so its state of their pages is out of date. */
void pages_set_chunked(struct pages *p, uint32_t req, int64_t n_tok);
int64_t pages_chunked(const struct pages *p, uint32_t req);
const int32_t *pages_of(const struct pages *p, uint32_t req); /* borrowed, in order */
int64_t pages_free(const struct pages *p);

#endif
