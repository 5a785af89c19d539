/* SPDX-License-Identifier: Apache-2.0 */
/* Backend "roofline": the times of a GPU's kernels by the roofline model, without a GPU. */
#ifndef AR_BACKEND_ROOFLINE_H
#define AR_BACKEND_ROOFLINE_H

#include "replay/cost/roofline.h"
#include "replay/engine/backend.h"

enum roofline_rates { ROOFLINE_RATES_OWN, ROOFLINE_RATES_ENGINE };

struct roofline_options {
	char *gpu;		 /* as for roofline_gpu_load() */
	int rates;		 /* enum roofline_rates */
	struct opt_list density; /* METHOD=SHARE each */
	int latent;		 /* enum roofline_latent */
	char *routing;		 /* as for experts_open() */
	int64_t routing_seed;
};

extern const struct backend backend_roofline; /* its options are a struct roofline_options */

/* Whether text, METHOD=SHARE, names the method as it was given, or without its parameters. */
bool roofline_density_is_of(const char *text, const char *method);

/* Check the options before anything runs.  AR_USAGE: the layers of one of the n plans run several
 * methods; a density is given for a method that is dense or that no plan has; or the density of a
 * sparse method is unknown: neither given, nor its own parameter, nor from a capture. */
enum ar_status roofline_check_density(const struct roofline_options *o, struct plan *const *plan,
				      size_t n, bool capture, struct ar_err *err);

#endif
