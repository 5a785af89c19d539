/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a forward pass, which the files of this folder share. */
#ifndef AR_FORWARD_STATE_H
#define AR_FORWARD_STATE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/attn.h"
#include "replay/forward/decoder_ref.h"
#include "replay/forward/forward.h"

enum { FORWARD_PAGE = 128 }; /* tokens of a page of the cache */

struct forward {
	const struct weights *w;
	const struct model *m;
	struct decoder_ref *decoder;
	forward_see *see;
	void *ctx;
	int max_tok, n_page, n_past, n_row;
	float *trig[2];	      /* [max_tok][rotary_dim]; the second one of window layers, or NULL */
	struct kv_cache *kv;  /* [n_layers] */
	bf16_t *pages;	      /* of all layers */
	int32_t *index;	      /* [n_page] 0, 1, ... */
	int32_t *pos, *first; /* [max_tok] of the chunk */
	/* Rows of the chunk, each [max_row][...]. */
	int max_row;
	struct layer_row *row;
	bf16_t *q, *k, *attn;
};

static inline size_t forward_kv_width(const struct layer_spec *l)
{
	return (size_t)l->kv_heads * (size_t)l->head_dim;
}

/* Have room for a chunk of n rows. */
enum ar_status forward_room(struct forward *f, int n, struct ar_err *err);

#endif
