/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A random mask of a given density, to measure the cost of execution at equal density without a
 * selector.
 *
 * per=head   Every (query block, query head) keeps round(share * n) of the n blocks before its own,
 *            and its own.
 * per=group  All query blocks and heads of a KV head keep the same round(share * n) of the n blocks
 *            before the chunk, and the chunk's blocks up to their own; a union by KV head then has
 *            the density too.
 *
 * The choice depends on the seed, the layer, the head and the query block alone.
 */
#include "config.h"
#include "kernels/select/density/density.h"

#include "kernels/select/work.h"

static const char *const pers[] = { "head", "group", NULL };
static int density_block_tok(const void *param)
{
	return selector_block_tok(((const struct density *)param)->block);
}

static enum ar_status density_ref(const struct attn_call *call, const void *self,
				  const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct density *p = self;
	const struct attn_shape *s = &b->shape;

	(void)err;
	for (int r = 0; r < b->rows.n_req; r++)
		for (int i = b->rows.qblk0[r]; i < b->rows.qblk0[r + 1]; i++)
			for (int h = 0; h < s->q_heads; h++)
				density_row(p, s, call->layer, h, b->rows.pos0[r] / s->page_tok,
					    b->rows.pos0[r] / s->page_tok + i - b->rows.qblk0[r],
					    b->keys.mask_words,
					    out->mask + (size_t)(i * s->q_heads + h) *
								(size_t)b->keys.mask_words);
	return AR_OK;
}

#define OFF(member) offsetof(struct density, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "density", .type = OPT_REAL, .off = OFF(share), .arg = "X", .def = "0.1",
	  .max = 1, .help = "keep a share X of the blocks" },
	{ .name = "per", .type = OPT_ENUM, .off = OFF(per), .arg = "WHAT", .def = "head",
	  .choice = pers, .help = "draw for each query block and head, or once for a KV head" },
	{ .name = "seed", .type = OPT_INT, .off = OFF(seed), .arg = "N", .def = "1", .max = 1e15,
	  .help = "seed of the draws" },
	{ .name = "block", .type = OPT_ENUM, .off = OFF(block), .arg = "N", .def = "128",
	  .choice = selector_blocks, .help = "tokens of a block" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "select=density,density=0.4/union=none/exec=blocksparse", NULL, NULL, NULL, 0 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "select=density,density=%/exec=blocksparse",
	  { "0.1", "0.2", "0.5", "0.9" }, false, true },
	{ 0 }
};
/* clang-format on */

extern const struct selector selector_density;
const struct selector selector_density = {
	.version = AR_SELECTOR_VERSION,
	.name = "density",
	.title = "random blocks, as many as asked for",
	.origin = "synthetic, for execution at equal density",
	.params = params,
	.threshold = "density",
	.param_size = sizeof(struct density),
	.block_tok = density_block_tok,
	.work = selector_places,
	.ref = density_ref,
	.band = bands,
	.order = orders,
	.enqueue = HAVE_CUDA ? density_enqueue : NULL,
};
