/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures: readers of the config.json of models.  Each has a file arch_NAME.c and a row in
 * archs.c. */
#ifndef AR_ARCH_H
#define AR_ARCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "model/model.h"

struct cJSON;

/* The value of a key that a config.json of the architecture may leave out. */
struct config_default {
	const char *key;
	double value;
};

struct arch {
	const char *name;
	const char *const *hf_names; /* values of model_type and architectures; ends with NULL */

	struct layer_spec base;		       /* traits of layers that config does not say */
	bool linear;			       /* layers may be gated DeltaNets */
	const char *const *kinds;	       /* [MIXERS] names in layer_types; NULL: the usual */
	const struct config_default *defaults; /* ends with key NULL; NULL: none */
	const char *const *weights; /* names of tensors, see weights.h; NULL: none are read */

	/* Read the rest of config into m, which config_decoder() has filled.  path begins the
	 * message.  AR_DATA: a key is missing or out of range, or the model cannot be replayed.
	 * NULL: there is nothing. */
	enum ar_status (*read)(struct model *m, const struct cJSON *config, const char *path,
			       struct ar_err *err);
};

/* Ends with NULL.  The first row also reads models whose config has no name of a type. */
extern const struct arch *const archs[];

/* Choose by as_model, else by model_type and architectures, of text_config before config: the first
 * known name counts.  AR_DATA: no name is known, or one is of models that are known to be unlike
 * all rows. */
enum ar_status arch_find(const struct arch **a, const struct cJSON *config, const char *path,
			 struct ar_err *err);

/* Whether config or its text_config has a name to choose by. */
bool arch_is_named(const struct cJSON *config);

/* The row that has the name, or hf_names with it.  NULL: none. */
const struct arch *arch_named(const char *name);

/* ---- in config_keys.c: keys that were read ---- */

/* The value of key, NULL if there is none; whether it is there and not null.  All readers ask by
 * these functions and those below, so that keys that nobody read are known. */
const struct cJSON *config_get(const struct cJSON *config, const char *key);
bool config_has(const struct cJSON *config, const char *key);

/* AR_DATA: a key that nobody read says that layers are of another kind than those that were
 * read. */
enum ar_status config_check_read(const struct cJSON *config, const char *path, struct ar_err *err);

/* Append the names of keys that nobody read to the text in buf[0..n).  Keys of no effect on
 * layers, and values such as null, false and 0 are left out. */
void config_unread(const struct cJSON *config, char *buf, size_t n);

/* ---- in config_read.c ---- */

/* Read a whole number from 1 to max.  def: the value if config lacks key; 0: key is required. */
enum ar_status config_int(const struct cJSON *config, const char *key, int max, int def, int *out,
			  const char *path, struct ar_err *err);

/* Read a whole number from 0 to max; 0 if config lacks key. */
enum ar_status config_count(const struct cJSON *config, const char *key, int max, int *out,
			    const char *path, struct ar_err *err);

/* Read a number above 0.  def: as above. */
enum ar_status config_real(const struct cJSON *config, const char *key, double def, double *out,
			   const char *path, struct ar_err *err);

/* Read the keys of experts: n_routed_experts, num_experts_per_tok, moe_intermediate_size. */
enum ar_status config_experts(struct layer_spec *l, const struct cJSON *config, const char *path,
			      struct ar_err *err);

/* Leave a layer nothing of experts, but a dense MLP. */
void layer_make_dense(struct layer_spec *l, int ffn);

/* Read the experts of layers that have a dense MLP so far, and the layers' routers.  The routers in
 * m are the defaults of the architecture. */
enum ar_status config_moe(struct model *m, const struct cJSON *config, const char *path,
			  struct ar_err *err);

/* Read the sizes of latent attention, and of its indexer if there is one. */
enum ar_status config_latent(struct layer_spec *l, const struct cJSON *config, const char *path,
			     struct ar_err *err);

/* Whether config has key, and it is true. */
bool config_true(const struct cJSON *config, const char *key);

/* The keys of a state-space mixer. */
struct ssm_keys {
	const char *heads, *head_dim, *groups, *state, *conv, *chunk;
	const char *conv_bias, *proj_bias; /* true or false; the latter is refused */
};

/* Read a mixer with a norm, whose states in an engine have elements of 2 bytes. */
enum ar_status config_ssm(struct ssm_spec *s, const struct ssm_keys *k, const struct cJSON *config,
			  const char *path, struct ar_err *err);

/* Give a layer this mixer, and leave it nothing of attention. */
void layer_take_ssm(struct layer_spec *l, const struct ssm_spec *s);

/* Fill m, whose tp is 1, from config, an object that lacks nothing with a default.  Each layer is a
 * pre-norm decoder: RoPE, attention with grouped heads over all or a window, or a gated DeltaNet,
 * and a gated MLP or experts.  Release m after a failure, too. */
enum ar_status config_decoder(struct model *m, const struct arch *a, const struct cJSON *config,
			      const char *path, struct ar_err *err);

#endif
