/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_plan.h"

#include <stdio.h>

enum ar_status bench_plan(struct plan **out, const char *text, struct ar_err *err)
{
	enum ar_status st = plan_parse(out, text, err);

	if (st || plan_single(*out))
		return st;
	plan_free(*out);
	*out = NULL;
	return ar_fail(err, AR_USAGE,
		       "method '%s': a benchmark measures one layer; give it one method", text);
}

/* A dropper chooses layers of a model.  Here it is one of full attention as deep as the layer. */
enum ar_status bench_plan_drop(const struct plan *p, int layer, struct ar_err *err)
{
	const struct layer_spec full = { .mixer = MIX_FULL };
	struct model m = { .name = "bench" };
	enum ar_status st;

	if (!p->drop)
		return AR_OK;
	st = model_set_layers(&m, layer + 1, &full, err);
	if (!st)
		st = drop_open(p->drop, &m, err);
	model_release(&m);
	if (st || drop_acts_after(p->drop, layer))
		return st;
	return ar_fail(err, AR_USAGE,
		       "method '%s': its dropper does not act after layer %d of the input; name "
		       "that one in layers=",
		       p->name, layer);
}
