/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in that keeps every block, and with -DFAULT=... does something wrong; t-plugin.sh builds
 * it with the headers that are installed. */
#include <string.h>

#include "kernels/select/work.h"

enum { NONE, VERSION, NO_WORK, NO_SUPPORT, NAME, OUTSIDE, STATE, CRASH };
#ifndef FAULT
#define FAULT NONE
#endif

static size_t state_bytes(const void *self, const struct attn_shape *s)
{
	(void)self, (void)s;
	return 16;
}

static void keep_all(const struct attn_batch *b, int r, uint32_t *mask)
{
	for (int i = 0; i < b->rows.qblk0[r + 1] - b->rows.qblk0[r]; i++)
		for (int h = 0; h < b->shape.q_heads; h++)
			for (int j = 0; j <= b->rows.pos0[r] / b->shape.page_tok + i; j++)
				mask[((b->rows.qblk0[r] + i) * b->shape.q_heads + h) *
					     b->keys.mask_words +
				     j / 32] |= 1u << j % 32;
}

static enum ar_status ref(const struct attn_call *call, const void *self,
			  const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;

	(void)self;
	if (!b->shape.q_heads)
		return ar_fail(err, AR_USAGE, "no heads");
	for (int r = 0; r < b->rows.n_req; r++)
		keep_all(b, r, out->mask);
	if (FAULT == OUTSIDE)
		out->mask[b->rows.n_qblk * b->shape.q_heads * b->keys.mask_words] = 1;
	if (FAULT == STATE)
		memset((char *)call->state - 16, 1, 16);
	if (FAULT == CRASH)
		*(volatile int *)(size_t)b->shape.page_tok = 1;
	return AR_OK;
}

static const struct opt params[] = { { .name = "block",
				       .type = OPT_ENUM,
				       .arg = "N",
				       .def = "128",
				       .choice = selector_blocks,
				       .help = "tokens" },
				     { 0 } };
static const struct selector_band bands[] = { { .method = "select=fault/exec=blocksparse" },
					      { 0 } };
static const struct selector_order orders[] = {
	{ "select=fault,block=%/exec=blocksparse", { "64", "64", "64", "64" }, true, true }, { 0 }
};

const struct selector selector_plugin = {
	.version = FAULT == VERSION ? AR_SELECTOR_VERSION + 1 : AR_SELECTOR_VERSION,
	.name = FAULT == NAME ? "quoka" : "fault",
	.title = "every block",
	.origin = "a test",
	.params = params,
	.param_size = sizeof(int),
	.work = FAULT == NO_WORK ? NULL : selector_places,
	.state_bytes = state_bytes,
	.ref = ref,
	.band = bands,
	.order = orders,
	.enqueue = FAULT == NO_SUPPORT ? ref : NULL,
};
