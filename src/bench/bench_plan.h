/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of a benchmark, which measures one layer. */
#ifndef AR_BENCH_PLAN_H
#define AR_BENCH_PLAN_H

#include "kernels/methods/plan.h"

/* Parse a method for all layers, with a dropper or without.  AR_USAGE: layers differ, or as from
 * plan_parse(). */
enum ar_status bench_plan(struct plan **out, const char *text, struct ar_err *err);

/* Open the plan's dropper, if there is one.  AR_USAGE: it does not act after this layer. */
enum ar_status bench_plan_drop(const struct plan *p, int layer, struct ar_err *err);

#endif
