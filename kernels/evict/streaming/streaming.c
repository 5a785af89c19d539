/* SPDX-License-Identifier: Apache-2.0 */
/*
 * StreamingLLM: the first tokens and the last ones stay.
 *
 * Keys keep their true positions.  The authors rotate keys by their place in the cache; captures
 * hold rotated ones.
 */
#include "config.h"
#include "kernels/evict/streaming/streaming.h"

static int64_t streaming_kept(const void *param, int64_t n_tok)
{
	const struct streaming *p = param;

	return n_tok < p->sink + p->recent ? n_tok : p->sink + p->recent;
}

static enum ar_status streaming_ref(const void *param, const struct evict_call *call,
				    struct ar_err *err)
{
	const struct streaming *p = param;

	(void)err;
	for (int i = 0; i < call->n_req; i++) {
		const struct evict_req *r = &call->req[i];
		int32_t *keep = call->keep + r->keep0;

		for (int h = 0; h < call->shape.kv_heads; h++, keep += r->n_keep)
			for (int k = 0; k < r->n_keep; k++)
				keep[k] = k < p->sink ? k : r->n_cand - r->n_keep + k;
	}
	return AR_OK;
}

#define OFF(member) offsetof(struct streaming, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "sink", .type = OPT_INT, .off = OFF(sink), .arg = "N", .def = "4",
	  .max = 1 << 24, .help = "first tokens that stay" },
	{ .name = "recent", .type = OPT_INT, .off = OFF(recent), .arg = "N", .def = "1024",
	  .min = 1, .max = 1 << 24, .help = "last tokens that stay" },
	{ 0 }
};
/* clang-format on */

extern const struct evictor evictor_streaming;
const struct evictor evictor_streaming = {
	.name = "streaming",
	.params = params,
	.param_size = sizeof(struct streaming),
	.decodes = true,
	.alike = true,
	.kept = streaming_kept,
	.ref = streaming_ref,
	.enqueue = HAVE_CUDA ? evict_streaming_enqueue : NULL,
};
