/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embeddings: reading and writing the parameters of config.json and captures. */
#ifndef AR_ROPE_H
#define AR_ROPE_H

#include "base/status.h"
#include "model/model.h"

struct cJSON;

/* Set r from theta and scaling: a "rope_scaling" object, or a "rope_parameters" object, whose
 * rope_theta replaces theta.  NULL or JSON null: no scaling.  AR_DATA: an unknown type (not default
 * or llama3) or a value out of range.  path begins the message. */
enum ar_status rope_parse(struct rope *r, double theta, const struct cJSON *scaling,
			  const char *path, struct ar_err *err);

/* Return the type of scaling if models have it, but this program does not compute its angles; else
 * NULL.  Source of the types: Hugging Face Transformers 4.57, modeling_rope_utils.py; older names
 * are known, too. */
const char *rope_type_unknown(const struct cJSON *scaling);

/* Make the "rope_scaling" object of r; requires r->factor > 0.  NULL: no memory. */
struct cJSON *rope_scaling_json(const struct rope *r);

#endif
