/* SPDX-License-Identifier: Apache-2.0 */
/*
 * H2O, heavy hitters: the last tokens stay, and before them those that rows looked at most.
 *
 * The score of a key is the sum of its softmax probabilities, over all rows so far and the query
 * heads of its KV head.  A key that leaves loses its score.
 */
#include "config.h"
#include "kernels/evict/h2o/h2o.h"

#include "kernels/evict/evictor.h"

static int64_t h2o_kept(const void *param, int64_t n_tok)
{
	const struct h2o *p = param;

	return n_tok < p->heavy + p->recent ? n_tok : p->heavy + p->recent;
}

#define OFF(member) offsetof(struct h2o, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "heavy", .type = OPT_INT, .off = OFF(heavy), .arg = "N", .def = "512",
	  .min = 1, .max = 1 << 24, .help = "tokens that stay for their scores" },
	{ .name = "recent", .type = OPT_INT, .off = OFF(recent), .arg = "N", .def = "512",
	  .min = 1, .max = 1 << 24, .help = "last tokens that stay" },
	{ .name = "norm", .type = OPT_FLAG, .off = OFF(norm),
	  .help = "divide a score by the number of rows that saw its key" },
	{ 0 }
};
/* clang-format on */

extern const struct evictor evictor_h2o;
const struct evictor evictor_h2o = {
	.name = "h2o",
	.title = "the keys that all rows so far looked at most, also after each decode",
	.origin = "H2O (2023)",
	.params = params,
	.param_size = sizeof(struct h2o),
	.decodes = true,
	.kept = h2o_kept,
};
