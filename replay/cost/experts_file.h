/* SPDX-License-Identifier: Apache-2.0 */
/* A file of weights or choices of experts; experts.h has its form. */
#ifndef AR_EXPERTS_FILE_H
#define AR_EXPERTS_FILE_H

#include <stddef.h>

#include "replay/cost/experts.h"

/* Of one layer: weights, or experts of tokens. */
struct experts_layer {
	int64_t layer;
	double *weight, total; /* [experts] and their sum */
	uint16_t *token;       /* [n_token][per_tok]; n_token 0: rows draw by weights */
	size_t n_token, cap;
};

struct experts_file {
	struct experts_layer *layer; /* [n], in the order of the file; n > 0 */
	size_t n, cap;
};

/* AR_DATA: the file cannot be read, or does not fit; the message names it.  Release *f in any
 * case. */
enum ar_status experts_file_load(struct experts_file *f, const char *path,
				 const struct experts_shape *shape, struct ar_err *err);
void experts_file_release(struct experts_file *f);

/* Index of what layer `layer` of the model takes. */
size_t experts_file_layer(const struct experts_file *f, int layer);

#endif
