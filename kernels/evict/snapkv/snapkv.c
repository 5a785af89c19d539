/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SnapKV: the last rows of a prompt choose the keys that stay.
 *
 * Sources differ in details, so `variant` sets the parameters as one of them has it.
 */
#include "config.h"
#include "kernels/evict/snapkv/snapkv.h"

#include "kernels/evict/evictor.h"

static int64_t snapkv_kept(const void *param, int64_t n_tok)
{
	const struct snapkv *p = param;

	return n_tok < p->budget ? n_tok : p->budget;
}

/* In the order of the names of `variant`; NULL: as the default says. */
static const struct {
	const char *window, *pool, *kernel, *group, *softmax, *sink, *local;
} variants[] = {
	{ "32", "avg", "5", "after", "all", "0", "0" },
	{ "64", "avg", "5", "after", "all", "0", "0" },
	{ "32", "max", "63", "before", "prefix", "0", "0" },
	{ "256", "avg", "21", "before", "all", "4", "128" },
};

static enum ar_status snapkv_settle(struct opt_group *g, struct ar_err *err)
{
	struct snapkv *p = g->base;
	const struct {
		const char *name, *value;
	} set[] = {
		{ "window", variants[p->variant].window },
		{ "pool", variants[p->variant].pool },
		{ "kernel", variants[p->variant].kernel },
		{ "group", variants[p->variant].group },
		{ "softmax", variants[p->variant].softmax },
		{ "sink", variants[p->variant].sink },
		{ "local", variants[p->variant].local },
	};
	enum ar_status st = AR_OK;
	int64_t forced;

	for (size_t i = 0; i < sizeof set / sizeof *set && !st; i++)
		st = opt_set_default(g, set[i].name, set[i].value, err);
	if (st)
		return st;
	forced = p->sink + (p->local ? p->local : p->window);
	if (p->kernel % 2 == 0)
		return ar_fail(err, AR_USAGE, "kernel=%lld: want an odd number",
			       (long long)p->kernel);
	if (p->softmax == SNAPKV_PREFIX && p->local)
		return ar_fail(err, AR_USAGE,
			       "softmax=prefix: the window has no scores then; leave out local");
	if (p->budget > forced)
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "budget=%lld: %lld tokens stay in any case; want a larger budget",
		       (long long)p->budget, (long long)forced);
}

#define OFF(member) offsetof(struct snapkv, member)
static const char *const variant_names[] = { "snapkv", "kvpress", "trtllm", "frontier", NULL };
static const char *const pool_names[] = { "avg", "max", NULL };
static const char *const group_names[] = { "after", "before", NULL };
static const char *const softmax_names[] = { "all", "prefix", NULL };
static const char *const rule_names[] = { "ring", "chunk", NULL };
/* clang-format off */
static const struct opt params[] = {
	{ .name = "variant", .type = OPT_ENUM, .off = OFF(variant), .arg = "NAME",
	  .def = "snapkv", .choice = variant_names,
	  .help = "take the parameters that are not given as this source has them" },
	{ .name = "budget", .type = OPT_INT, .off = OFF(budget), .arg = "N", .def = "2048",
	  .min = 1, .max = 1 << 24, .help = "tokens that stay of a prompt, the window included" },
	{ .name = "window", .type = OPT_INT, .off = OFF(window), .arg = "N", .def = "32",
	  .min = 1, .max = 1024, .help = "last rows of the prompt, which choose, and stay" },
	{ .name = "window-rule", .type = OPT_ENUM, .off = OFF(rule), .arg = "RULE", .def = "ring",
	  .choice = rule_names,
	  .help = "ring: the window reaches back into earlier chunks; chunk: it does not" },
	{ .name = "pool", .type = OPT_ENUM, .off = OFF(pool), .arg = "KIND", .def = "avg",
	  .choice = pool_names, .help = "how scores of neighbours are pooled" },
	{ .name = "kernel", .type = OPT_INT, .off = OFF(kernel), .arg = "N", .def = "5",
	  .min = 1, .max = 1023, .help = "tokens that are pooled, an odd number" },
	{ .name = "group", .type = OPT_ENUM, .off = OFF(group), .arg = "WHEN", .def = "after",
	  .choice = group_names,
	  .help = "sum the heads of a group before the pooling or after it" },
	{ .name = "softmax", .type = OPT_ENUM, .off = OFF(softmax), .arg = "RANGE", .def = "all",
	  .choice = softmax_names,
	  .help = "keys of the softmax: all that a row sees, or those before the window" },
	{ .name = "sink", .type = OPT_INT, .off = OFF(sink), .arg = "N", .def = "0",
	  .max = 1 << 20, .help = "first tokens that stay in any case" },
	{ .name = "local", .type = OPT_INT, .off = OFF(local), .arg = "N", .def = "0",
	  .max = 1 << 20,
	  .help = "last tokens that stay, and the window is scored and pooled as all others; 0: "
		  "the window stays" },
	{ 0 }
};
/* clang-format on */

extern const struct evictor evictor_snapkv;
const struct evictor evictor_snapkv = {
	.name = "snapkv",
	.title = "the keys of a prompt that its last rows look at",
	.origin = "SnapKV (2024), kvpress, TensorRT-LLM and sparse-frontier",
	.params = params,
	.param_size = sizeof(struct snapkv),
	.settle = snapkv_settle,
	.kept = snapkv_kept,
};
