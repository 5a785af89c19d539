/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of a model, from a Hugging Face folder: config.json, and model.safetensors or the
 * shards that model.safetensors.index.json lists.  They are kept in bf16, as the framework keeps
 * them when it computes in bf16: F16 and F32 are rounded. */
#ifndef AR_WEIGHTS_H
#define AR_WEIGHTS_H

#include <stddef.h>

#include "base/bf16.h"
#include "base/status.h"
#include "model/model.h"
#include "model/params.h"

/* Names of the tensors of a layer behind "layers.N.", by enum weight: of Llama and the models like
 * it, and of Gemma 3. */
extern const char *const weights_llama[WEIGHTS], *const weights_gemma3[WEIGHTS];

struct weights {
	struct model model;		 /* owned; one rank of it, see below */
	const bf16_t *embed;		 /* [tp * vocab][hidden] */
	const bf16_t *head;		 /* [vocab][hidden]; a part of embed if the model is tied */
	const bf16_t *norm;		 /* [hidden], the last one */
	const bf16_t *(*layer)[WEIGHTS]; /* [n_layers], owned; NULL: the layer has no such tensor */
	bf16_t *data;			 /* all values, owned */
	size_t n;			 /* values in data */
};

/* Read the folder dir.  All tensors are in memory once, after their names, types and shapes were
 * checked.  AR_DATA: a file or tensor is missing, has another shape or an unknown type, or is in
 * two shards; a tensor has no place in the model; a value is not finite; the architecture has
 * experts or linear layers, or its table lacks names.  The message names file and tensor.
 * AR_NOMEM: before any is read, there is too little memory. */
enum ar_status weights_open(struct weights *w, const char *dir, struct ar_err *err);

/* The same for rank 0 <= rank < tp of a tensor-parallel group: model is split, see model_split(),
 * and only the rank's slices are read.  The outputs of o and down are partial sums; rank 0 has
 * their biases, the others have 0.  The embeddings are whole: engines add up the ranks' shares
 * before the first layer.  AR_USAGE: tp does not divide the model. */
enum ar_status weights_open_rank(struct weights *w, const char *dir, int tp, int rank,
				 struct ar_err *err);
void weights_release(struct weights *w); /* may be called twice */

#endif
