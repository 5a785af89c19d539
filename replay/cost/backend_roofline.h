/* SPDX-License-Identifier: Apache-2.0 */
/* Backend "roofline": the times of a GPU's kernels by the roofline model, without a GPU. */
#ifndef AR_BACKEND_ROOFLINE_H
#define AR_BACKEND_ROOFLINE_H

#include "replay/cost/roofline.h"
#include "replay/engine/backend.h"

struct roofline_options {
	char *gpu;		 /* as for roofline_gpu_load() */
	struct opt_list density; /* METHOD=SHARE each */
};

extern const struct backend backend_roofline; /* its options are a struct roofline_options */

/* Check, before anything runs, that the layers of each of n plans run one method, that each density
 * is of a sparse one of these methods, and that the density of each sparse method is known: given,
 * its own parameter, or from a capture.  AR_USAGE: not so. */
enum ar_status roofline_check_density(const struct roofline_options *o, struct plan *const *plan,
				      size_t n, bool capture, struct ar_err *err);

#endif
