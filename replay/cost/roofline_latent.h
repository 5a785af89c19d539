/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of latent attention and its indexer, as engines run them.
 *
 * Unabsorbed, the latents of all keys are expanded to K and V of each head.  Absorbed, Q of each
 * head is taken to the latents and attention's output back from them.  A chunk of a prompt runs in
 * the subject's form, by default in that with fewer FLOPs; a decode runs absorbed.
 *
 * With an indexer each row of a batch attends to its topk keys at most, absorbed, unless no prompt
 * of the batch is longer than topk: then its chunks run as without an indexer, and score nothing.
 *
 *   linear    beside the first products of Q and the latent and the last of the output: those of
 *             low-rank Q, and of the indexer's queries, key and weights
 *   latent    keys expanded; Q and the output of absorbed rows
 *   select    2 heads dim FLOPs of the indexer for each (row, key) pair, in fp8; its keys and
 *             queries
 *   metadata  the pairs' scores of 4 bytes, written and read
 *   attend    of chunks; unabsorbed: of each pair 2 FLOPs for each channel of all heads' keys and
 *             values; absorbed: for each channel of the latent's key and value, for each head; and
 *             the lists, written and read
 *   decode    the same of decodes
 */
#ifndef AR_ROOFLINE_LATENT_H
#define AR_ROOFLINE_LATENT_H

#include "replay/cost/roofline.h"
#include "replay/engine/backend.h"

/* Add the work of rows between the first products and attention: norms, RoPE and caches. */
void roofline_latent_rows(const struct roofline_subject *s, const struct layer_spec *l, int rows,
			  struct roofline_work *work);

/* Add the work of the batch's attention in layer l, and of its indexer. */
void roofline_latent_mix(const struct roofline_subject *s, const struct layer_spec *l,
			 const struct batch *b, struct roofline_work *work);

/* Chunks of prompts in batch b by the form in which they run in layer l. */
struct latent_chunks roofline_latent_chunks(const struct roofline_subject *s,
					    const struct layer_spec *l, const struct batch *b);

#endif
