/* SPDX-License-Identifier: Apache-2.0 */
/*
 * StreamingLLM for decodes: a row sees the first `sink` tokens and the last `recent` ones, its own
 * included.  Both are rounded up to whole pieces.  Nothing is freed, and positions are the true
 * ones.
 */
#include "config.h"
#include "kernels/select/streaming/streaming.h"

#include "kernels/select/work.h"

static struct piece_form streaming_pieces(const void *self, const struct attn_shape *s, int len)
{
	const struct streaming *p = self;

	(void)len;
	return (struct piece_form){ .tok = (int)p->page,
				    .heads = s->q_heads / s->kv_heads,
				    .most = streaming_most(p) };
}

static enum ar_status streaming_ref(const struct attn_call *call, const void *self,
				    const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct piece_lists *l = &out->pieces;
	int groups = pieces_groups(&b->shape, l);

	(void)err;
	for (int i = 0; i < b->rows.n_req * groups; i++) {
		struct streaming_list own = streaming_list(self, l, b->keys.len[i / groups]);

		streaming_write(&own, l, i, 0, 1);
	}
	return AR_OK;
}

#define OFF(member) offsetof(struct streaming, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "sink", .type = OPT_INT, .off = OFF(sink), .arg = "N", .def = "4",
	  .max = 1 << 29, .help = "each row sees the first N tokens" },
	{ .name = "recent", .type = OPT_INT, .off = OFF(recent), .arg = "N", .def = "1024",
	  .min = 1, .max = 1 << 29, .help = "each row sees the last N tokens up to its own" },
	{ .name = "page", .type = OPT_INT, .off = OFF(page), .arg = "N", .def = "1", .min = 1,
	  .max = 128, .help = "round both up to whole pages of N tokens" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "dense/decode=streaming,sink=5,recent=70", NULL, NULL, NULL, 0 },
	{ "dense/decode=streaming,sink=20,recent=300,page=16", NULL, NULL, NULL, 0 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "dense/decode=streaming,recent=%", { "1", "70", "200", "5000" }, true, true },
	{ 0 }
};
/* clang-format on */

extern const struct selector selector_streaming;
const struct selector selector_streaming = {
	.version = AR_SELECTOR_VERSION,
	.name = "streaming",
	.title = "the first and the last tokens of a decode",
	.origin = "StreamingLLM (2023), sinks and recent tokens",
	.params = params,
	.param_size = sizeof(struct streaming),
	.gives = SHAPE_PIECES,
	.pieces = streaming_pieces,
	.work = selector_places,
	.ref = streaming_ref,
	.band = bands,
	.order = orders,
	.enqueue = HAVE_CUDA ? streaming_enqueue : NULL,
};
