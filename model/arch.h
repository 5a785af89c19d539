/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures: readers of the config.json of models.  Each has a file arch_NAME.c and a row in
 * archs.c. */
#ifndef AR_ARCH_H
#define AR_ARCH_H

#include "base/status.h"
#include "model/model.h"

struct cJSON;

struct arch {
	const char *name;
	const char *const *hf_names; /* values of model_type and architectures; ends with NULL */

	/* Fill m, whose tp is 1, from config, an object.  path begins the message.  Release m after
	 * a failure, too.  AR_DATA: a key is missing or out of range, or the model cannot be
	 * replayed. */
	enum ar_status (*read)(struct model *m, const struct cJSON *config, const char *path,
			       struct ar_err *err);
};

/* Ends with NULL.  The first row also reads models that match no hf_names. */
extern const struct arch *const archs[];

/* Choose by model_type, else by the first known name in architectures, else the first row. */
const struct arch *arch_find(const struct cJSON *config);

/* ---- shared readers, in config_read.c ---- */

/* Read a whole number from 1 to max.  def: the value if config lacks key; 0: key is required. */
enum ar_status config_int(const struct cJSON *config, const char *key, int max, int def, int *out,
			  const char *path, struct ar_err *err);

/* Read q_heads, kv_heads (default q_heads) and head_dim (default hidden / q_heads). */
enum ar_status config_heads(struct layer_spec *l, int hidden, const struct cJSON *config,
			    const char *path, struct ar_err *err);

/* Read ffn, and the experts if config has any.  Experts must be in all layers. */
enum ar_status config_mlp(struct layer_spec *l, const struct cJSON *config, const char *path,
			  struct ar_err *err);

/* Read what belongs to no layer: vocab, max_len and rope. */
enum ar_status config_outside(struct model *m, const struct cJSON *config, const char *path,
			      struct ar_err *err);

/* Read a pre-norm decoder: RoPE over whole heads, full attention with grouped heads, SwiGLU or
 * experts of SwiGLU.  All layers are equal. */
enum ar_status config_decoder(struct model *m, const struct cJSON *config, const char *path,
			      struct ar_err *err);

#endif
