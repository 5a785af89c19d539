/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/backend_cost.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/number.h"
#include "replay/cost/costs.h"
#include "replay/engine/run_scope.h"

struct cost_backend {
	struct cost_formula formula;
	struct costs *costs; /* or NULL */
	bool extrapolate;
};

/* clang-format off */
static const struct opt cost_opts[] = {
	{ .name = "cost-fixed", .type = OPT_TIME,
	  .off = offsetof(struct cost_options, formula.fixed_ns), .arg = "TIME", .def = "6ms",
	  .max = 3.6e12, .help = "cost formula: time of an iteration without its tokens",
	  .scope = RUN_FORMULA },
	{ .name = "cost-per-token", .type = OPT_TIME,
	  .off = offsetof(struct cost_options, formula.per_tok_ns), .arg = "TIME", .def = "20us",
	  .max = 1e9, .help = "cost formula: time of each token of an iteration",
	  .scope = RUN_FORMULA },
	{ .name = "costs", .type = OPT_STR, .off = offsetof(struct cost_options, costs),
	  .arg = "DB[:RUN]",
	  .help = "take costs from the measured iterations of a finished run instead of from the "
		  "formula",
	  .scope = RUN_COSTS, .may_differ = true },
	{ .name = "costs-extrapolate", .type = OPT_FLAG,
	  .off = offsetof(struct cost_options, extrapolate),
	  .help = "extrapolate to iterations outside of what the run measured, instead of stopping",
	  .scope = RUN_COSTS },
	{ 0 }
};
/* clang-format on */

int64_t cost_formula_ns(const struct cost_formula *f, const struct batch *b)
{
	return num_add(f->fixed_ns, num_mul(f->per_tok_ns, b->prefill_tok + b->decode_tok));
}

static void set_by_formula(const void *self, const struct batch *b, struct iter_cost *c)
{
	c->source = COST_FORMULA;
	c->cost_ns = cost_formula_ns(self, b);
}

struct cost cost_by_formula(const struct cost_formula *f)
{
	return (struct cost){ set_by_formula, f };
}

static enum ar_status cost_open(void **self, const void *opts, const struct backend_env *env,
				struct ar_err *err)
{
	const struct cost_options *o = opts;
	struct cost_backend *c = malloc(sizeof *c);

	*self = NULL;
	if (!c)
		return ar_nomem(err);
	*c = (struct cost_backend){ o->formula, env->costs, o->extrapolate };
	if (c->costs)
		cost_table_rewind(c->costs->table);
	*self = c;
	return AR_OK;
}

static enum ar_status cost_start(void *self, int64_t num_blocks, struct ar_err *err)
{
	(void)self, (void)num_blocks, (void)err;
	return AR_OK;
}

static enum ar_status refuse_feature(const struct costs *c, const struct batch_shape *s,
				     int feature, struct ar_err *err)
{
	static const char *const names[] = {
		[BATCH_PREFILL_TOK] = "prefill tokens",
		[BATCH_PREFILL_PAIRS] = "(query, key) pairs of prefill attention",
		[BATCH_DECODES] = "decodes",
		[BATCH_DECODE_CONTEXT] = "keys read by decodes",
		[BATCH_LONGEST_DECODE] = "keys read by the longest decode beside prompts",
	};
	int64_t min, max;

	cost_table_range(c->table, feature, &min, &max);
	return ar_fail(err, AR_DATA,
		       "%" PRId64 " %s are outside of the %" PRId64 " to %" PRId64
		       " measured in %s; measure such iterations or take --costs-extrapolate",
		       s->feature[feature], names[feature], min, max, c->name);
}

static enum ar_status cost_run(void *self, const struct batch *b, struct iter_cost *cost,
			       struct ar_err *err)
{
	struct cost_backend *c = self;

	*cost = (struct iter_cost){
		.source = COST_FORMULA, .event_ns = -1, .span_ns = -1, .busy_ns = -1
	};
	if (c->costs) {
		struct batch_shape s = batch_shape(b);
		int outside;

		if (c->costs->no_longest)
			s.feature[BATCH_LONGEST_DECODE] = 0;
		cost->source = cost_table_find(c->costs->table, &s, &cost->cost_ns, &outside);
		if (b->prefill_tok)
			cost->phase_kernels[PHASE_SELECT] = (int32_t)c->costs->select_kernels;
		if (cost->source == COST_EXTRAPOLATED && !c->extrapolate)
			return refuse_feature(c->costs, &s, outside, err);
		if (cost->source == COST_EXTRAPOLATED)
			cost->beyond = cost_table_beyond(c->costs->table, &s);
	} else {
		cost->cost_ns = cost_formula_ns(&c->formula, b);
	}
	return AR_OK;
}

static void cost_drop(void *self, uint32_t req)
{
	(void)self, (void)req;
}

const struct backend backend_cost = {
	.name = "cost",
	.title = "a cost formula or measured costs, no kernels",
	.opts = cost_opts,
	.opts_size = sizeof(struct cost_options),
	.open = cost_open,
	.start = cost_start,
	.run = cost_run,
	.drop = cost_drop,
	.close = free,
};
