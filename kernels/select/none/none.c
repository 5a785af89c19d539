/* SPDX-License-Identifier: Apache-2.0 */
/* No selection: every block is kept, and nothing is computed to find that out. */
#include "config.h"
#include "kernels/select/selector.h"

static const struct opt params[] = { { 0 } };

static const struct selector_band bands[] = { { .method = "dense" }, { 0 } };

extern const struct selector selector_none;
const struct selector selector_none = {
	.version = AR_SELECTOR_VERSION,
	.name = "none",
	.title = "keep every block",
	.origin = "dense causal attention",
	.params = params,
	.band = bands,
};
