#include "config.h"
#include "replay/backend_cost.h"

#include <stdlib.h>

static const struct opt cost_opts[] = {
	{ "cost-fixed", OPT_TIME, offsetof(struct cost_formula, fixed_ns), "TIME", "6ms",
	  0, 3.6e12, NULL, "cost of an iteration by the formula, tokens apart", 0 },
	{ "cost-per-token", OPT_TIME, offsetof(struct cost_formula, per_tok_ns), "TIME", "20us",
	  0, 1e9, NULL, "cost of each token of an iteration by the formula", 0 },
	{ 0 }
};

int64_t cost_formula_ns(const struct cost_formula *f, const struct batch *b)
{
	return f->fixed_ns + f->per_tok_ns * (b->prefill_tok + b->decode_tok);
}

static enum ar_status cost_open(void **self, const void *opts, const struct backend_env *env,
				struct ar_err *err)
{
	struct cost_formula *f = malloc(sizeof *f);

	(void)env;
	*self = NULL;
	if (!f)
		return ar_nomem(err);
	*f = *(const struct cost_formula *)opts;
	*self = f;
	return AR_OK;
}

static enum ar_status cost_start(void *self, int64_t num_blocks, struct ar_err *err)
{
	(void)self, (void)num_blocks, (void)err;
	return AR_OK;
}

static enum ar_status cost_run(void *self, const struct batch *b, struct iter_cost *cost,
			       struct ar_err *err)
{
	(void)err;
	*cost = (struct iter_cost){ .source = COST_FORMULA, .event_ns = -1, .span_ns = -1,
				    .busy_ns = -1 };
	cost->cost_ns = cost_formula_ns(self, b);
	return AR_OK;
}

static void cost_drop(void *self, uint32_t req)
{
	(void)self, (void)req;
}

const struct backend backend_cost = {
	.name = "cost",
	.title = "a cost formula, no kernels",
	.opts = cost_opts,
	.opts_size = sizeof(struct cost_formula),
	.open = cost_open,
	.start = cost_start,
	.run = cost_run,
	.drop = cost_drop,
	.close = free,
};
