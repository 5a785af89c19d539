/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A-shape as MInference and SCBench define it, by tokens: row i sees key j up to its own when
 * i - j < local or j < init.  With last > 0 it is their tri-shape: the last rows of the prompt see
 * everything.
 *
 * A row's window ends inside a block.  So the blocks come as runs under a band, which the executor
 * applies row by row.
 */
#include "config.h"
#include "kernels/select/ashape/ashape.h"

#include <limits.h>

#include "kernels/select/work.h"

static int ashape_block_tok(const void *param)
{
	return selector_block_tok(((const struct ashape *)param)->block);
}

/* Rows of the dense tail see all blocks, so only the number of blocks bounds the runs. */
static void ashape_columns(const void *self, const struct attn_shape *s, int *max_run, int *max_col)
{
	(void)self, (void)s;
	*max_run = INT_MAX;
	*max_col = 0;
}

static enum ar_status ashape_ref(const struct attn_call *call, const void *self,
				 const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct column_lists *l = &out->columns;
	struct attn_band band = ashape_band(self);

	(void)err;
	for (int r = 0; r < b->rows.n_req; r++)
		for (int i = b->rows.qblk0[r]; i < b->rows.qblk0[r + 1]; i++)
			for (int h = 0; h < b->shape.q_heads; h++) {
				size_t row = (size_t)(i * b->shape.q_heads + h);
				int qa = b->rows.pos0[r] / b->shape.page_tok + i - b->rows.qblk0[r];

				l->n_run[row] = ashape_runs(&band, b, r, qa,
							    l->run + row * (size_t)l->max_run);
				l->n_col[row] = 0;
				l->band[row] = band;
			}
	return AR_OK;
}

#define OFF(member) offsetof(struct ashape, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "init", .type = OPT_INT, .off = OFF(init), .arg = "N", .def = "128",
	  .max = 1 << 30, .help = "each row sees the first N tokens" },
	{ .name = "local", .type = OPT_INT, .off = OFF(local), .arg = "N", .def = "3968", .min = 1,
	  .max = 1 << 30, .help = "each row sees the last N tokens up to its own" },
	{ .name = "last", .type = OPT_INT, .off = OFF(last), .arg = "N", .def = "0",
	  .max = 1 << 30, .help = "the last N tokens of a prompt see everything" },
	{ .name = "block", .type = OPT_ENUM, .off = OFF(block), .arg = "N", .def = "128",
	  .choice = selector_blocks, .help = "tokens of a block" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "ashape:init=100,local=300", NULL, NULL, NULL, 0 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "ashape:init=40,local=%", { "1", "70", "200", "500" }, true, true },
	{ 0 }
};
/* clang-format on */

extern const struct selector selector_ashape;
const struct selector selector_ashape = {
	.version = AR_SELECTOR_VERSION,
	.name = "ashape",
	.title = "the first and the last tokens before each row",
	.origin = "MInference (2024) and SCBench, A-shape and tri-shape",
	.params = params,
	.param_size = sizeof(struct ashape),
	.block_tok = ashape_block_tok,
	.gives = SHAPE_COLUMNS,
	.columns = ashape_columns,
	.work = selector_places,
	.ref = ashape_ref,
	.band = bands,
	.order = orders,
	.enqueue = HAVE_CUDA ? ashape_enqueue : NULL,
};
