/* SPDX-License-Identifier: Apache-2.0 */
/* Backend "cost", without kernels: a formula or a table of measured costs gives the cost. */
#ifndef AR_BACKEND_COST_H
#define AR_BACKEND_COST_H

#include "replay/cost/cost.h"
#include "replay/engine/backend.h"

/* fixed_ns + per_tok_ns * tokens, at most INT64_MAX. */
struct cost_formula {
	int64_t fixed_ns, per_tok_ns;
};

int64_t cost_formula_ns(const struct cost_formula *f, const struct batch *b);
/* With --clock formula it advances the clock of other backends too. */
struct cost cost_by_formula(const struct cost_formula *f);

struct cost_options {
	struct cost_formula formula;
	char *costs; /* DB[:RUN], NULL: the formula; see costs_open() */
	bool extrapolate;
};

extern const struct backend backend_cost; /* its options are a struct cost_options */

#endif
