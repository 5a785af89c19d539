/* SPDX-License-Identifier: Apache-2.0 */
/* A file of weights or choices of experts; routing.h has its form. */
#ifndef AR_ROUTING_FILE_H
#define AR_ROUTING_FILE_H

#include <stddef.h>

#include "replay/cost/routing.h"

/* Of one layer: weights, or experts of tokens. */
struct routing_layer {
	int64_t layer;
	double *weight, total; /* [experts] and their sum */
	uint16_t *token;       /* [n_token][per_tok]; n_token 0: rows draw by weights */
	size_t n_token, cap;
};

struct routing_file {
	struct routing_layer *layer; /* [n], in the order of the file; n > 0 */
	size_t n, cap;
};

/* AR_DATA: the file cannot be read, or does not fit; the message names it.  Release *f in any
 * case. */
enum ar_status routing_file_load(struct routing_file *f, const char *path,
				 const struct routing_shape *shape, struct ar_err *err);
void routing_file_release(struct routing_file *f);

/* Index of what layer `layer` of the model takes. */
size_t routing_file_layer(const struct routing_file *f, int layer);

#endif
