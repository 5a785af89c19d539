/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures: how the config.json of a model is read.  One file arch_NAME.c each, one row in
 * archs.c. */
#ifndef AR_ARCH_H
#define AR_ARCH_H

#include "base/status.h"
#include "model/model.h"

struct cJSON;

struct arch {
	const char *name;
	const char *const *hf_names;	/* values of model_type and architectures; ends with NULL */

	/* Fill in a model whose tp is 1 from config, an object.  path begins the message.  After a
	 * failure m is to be released as well.  AR_DATA: keys that are missing or out of range, or
	 * that say what cannot be replayed. */
	enum ar_status (*read)(struct model *m, const struct cJSON *config, const char *path,
			       struct ar_err *err);
};

/* Ends with NULL.  The first row reads the models that no row names. */
extern const struct arch *const archs[];

/* By model_type, else by the first known name in architectures, else the first row. */
const struct arch *arch_find(const struct cJSON *config);

/* ---- shared readers, in model.c ---- */

/* A whole number from 1 to max.  def: where config has none; 0: it must have one. */
enum ar_status config_int(const struct cJSON *config, const char *key, int max, int def, int *out,
			  const char *path, struct ar_err *err);

/* q_heads, kv_heads and head_dim; their defaults follow from hidden. */
enum ar_status config_heads(struct layer_spec *l, int hidden, const struct cJSON *config,
			    const char *path, struct ar_err *err);

/* ffn, and the experts if config has some; then in all layers. */
enum ar_status config_mlp(struct layer_spec *l, const struct cJSON *config, const char *path,
			  struct ar_err *err);

/* What is not a layer's: vocab, max_len and rope. */
enum ar_status config_outside(struct model *m, const struct cJSON *config, const char *path,
			      struct ar_err *err);

/* Pre-norm decoders: RoPE over whole heads, full attention with grouped heads, SwiGLU or experts
 * of it, and all layers alike. */
enum ar_status config_decoder(struct model *m, const struct cJSON *config, const char *path,
			      struct ar_err *err);

#endif
