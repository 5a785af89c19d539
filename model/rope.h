/* Rotary embeddings as config.json and captures write them. */
#ifndef AR_ROPE_H
#define AR_ROPE_H

#include "base/status.h"
#include "model/model.h"

struct cJSON;

/* scaling: the "rope_scaling" object (or "rope_parameters", whose own rope_theta then
 * counts), NULL or null for none.  AR_DATA for a type other than default and llama3 or
 * values out of range; path begins the message. */
enum ar_status rope_parse(struct rope *r, double theta, const struct cJSON *scaling,
			  const char *path, struct ar_err *err);

/* The "rope_scaling" object of r, NULL: no memory.  Only for r->factor > 0. */
struct cJSON *rope_scaling_json(const struct rope *r);

#endif
