/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embeddings: reading and writing the parameters of config.json and captures. */
#ifndef AR_ROPE_H
#define AR_ROPE_H

#include <stdbool.h>

#include "base/status.h"
#include "model/model.h"

struct cJSON;

/* Set r from theta and scaling: a "rope_scaling" object, or a "rope_parameters" object, whose
 * rope_theta replaces theta.  NULL or JSON null: no scaling.  AR_DATA: a type that enum rope_type
 * lacks, or a value out of range.  path begins the message. */
enum ar_status rope_parse(struct rope *r, double theta, const struct cJSON *scaling,
			  const char *path, struct ar_err *err);

/* Set r->share from partial_rotary_factor of o, an object or NULL; unset if o has none. */
enum ar_status rope_parse_share(struct rope *r, const struct cJSON *o, const char *path,
				struct ar_err *err);

/* Return the type of scaling if models have it, but this program does not compute its angles; else
 * NULL.  Source of the types: as of struct rope; older names are known, too. */
const char *rope_type_unknown(const struct cJSON *scaling);

/* Whether r is more than its theta; only then rope_scaling_json() makes the "rope_scaling" object
 * of r.  NULL: no memory. */
bool rope_is_scaled(const struct rope *r);
struct cJSON *rope_scaling_json(const struct rope *r);

bool rope_equal(const struct rope *a, const struct rope *b);

/* Of rope_type, such as "llama3". */
const char *rope_type_name(const struct rope *r);

/* Channels of a head that rotate, and AR_DATA if they are not pairs. */
int rope_dim(const struct rope *r, int head_dim);
enum ar_status rope_check_dim(const struct rope *r, int head_dim, const char *path,
			      struct ar_err *err);

/* The factor of Q and K when they are rotated.  It makes the softmax of yarn sharper. */
double rope_attention_factor(const struct rope *r);

/* The factor by which yarn of scaling factor stretches scores' deviation, with weight mscale. */
double rope_sharpness(double factor, double mscale);

/* Name the trait of RoPE that angles of pairs (k, k + head_dim / 2) alone do not undo: such as
 * "partial rotary embeddings".  NULL: none. */
const char *rope_besides_angles(const struct rope *r);

#endif
