/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tri-shape as OpenVINO GenAI runs it: whole cache blocks are left out by place alone.
 *
 * Full blocks before the chunk are kept if they are of the first `start` or the last `recent`
 * tokens.  Blocks of the chunk, and a cached block that is not full, are always kept.  Every row of
 * a chunk sees the same blocks.  A chunk with fewer than last_dense prompt tokens after it sees
 * everything.  So the last chunk of a prompt is dense.
 */
#include "config.h"
#include "kernels/select/trishape/trishape.h"

#include "kernels/select/work.h"

static int trishape_block_tok(const void *param)
{
	return selector_block_tok(((const struct trishape *)param)->block);
}

static enum ar_status trishape_check(const void *param, struct ar_err *err)
{
	const struct trishape *p = param;
	int tok = trishape_block_tok(p);

	if (p->start % tok || p->recent % tok)
		return ar_fail(err, AR_USAGE,
			       "start=%lld and recent=%lld: want multiples of block=%d",
			       (long long)p->start, (long long)p->recent, tok);
	return AR_OK;
}

static enum ar_status trishape_ref(const struct attn_call *call, const void *self,
				   const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	size_t words = (size_t)b->keys.mask_words;

	(void)err;
	for (int r = 0; r < b->rows.n_req; r++)
		for (int i = b->rows.qblk0[r]; i < b->rows.qblk0[r + 1]; i++)
			for (int h = 0; h < s->q_heads; h++)
				trishape_row(self, s->page_tok, b->rows.pos0[r], b->rows.left[r],
					     b->rows.pos0[r] / s->page_tok + i - b->rows.qblk0[r],
					     b->keys.mask_words,
					     out->mask + (size_t)(i * s->q_heads + h) * words);
	return AR_OK;
}

#define OFF(member) offsetof(struct trishape, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "start", .type = OPT_INT, .off = OFF(start), .arg = "N", .def = "128",
	  .max = 1 << 30, .help = "keep the first N tokens" },
	{ .name = "recent", .type = OPT_INT, .off = OFF(recent), .arg = "N", .def = "1920",
	  .max = 1 << 30, .help = "keep the last N tokens before the chunk" },
	{ .name = "last-dense", .type = OPT_INT, .off = OFF(last_dense), .arg = "N", .def = "100",
	  .max = 1 << 30,
	  .help = "keep everything where fewer than N prompt tokens are left" },
	{ .name = "block", .type = OPT_ENUM, .off = OFF(block), .arg = "N", .def = "128",
	  .choice = selector_blocks, .help = "tokens of a block" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "trishape:start=128,recent=256", NULL, NULL, NULL, 0 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "trishape:last-dense=0,start=128,recent=%", { "0", "128", "256", "512" }, true, true },
	{ 0 }
};
/* clang-format on */

extern const struct selector selector_trishape;
const struct selector selector_trishape = {
	.version = AR_SELECTOR_VERSION,
	.name = "trishape",
	.title = "the first and the last blocks before the chunk",
	.origin = "OpenVINO GenAI, sparse attention mode TRISHAPE",
	.params = params,
	.param_size = sizeof(struct trishape),
	.check = trishape_check,
	.block_tok = trishape_block_tok,
	.work = selector_places,
	.ref = trishape_ref,
	.band = bands,
	.order = orders,
	.enqueue = HAVE_CUDA ? trishape_enqueue : NULL,
};
