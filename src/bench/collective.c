/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

bf16_t *collective_input(const struct collective_buffers *b, const struct collective *c, int ranks,
			 size_t *n)
{
	const size_t all = (size_t)c->bytes / sizeof(bf16_t);

	*n = c->op == COMM_GATHER ? all / (size_t)ranks : all;
	return c->op == COMM_REDUCE ? b->out : b->in;
}

enum ar_status collective_enqueue(struct world *w, const struct collective_buffers *b,
				  const struct collective *c, void *stream, struct ar_err *err)
{
	const size_t bytes = (size_t)c->bytes, part = bytes / (size_t)world_size(w);

	switch (c->op) {
	case COMM_REDUCE: return world_reduce(w, b->out, bytes / sizeof *b->out, stream, err);
	case COMM_SCATTER:
		return world_scatter(w, b->in, b->out, part / sizeof *b->out, stream, err);
	case COMM_SWAP: return world_swap(w, b->in, b->out, part, stream, err);
	case COMM_SEND: return world_send(w, b->in, b->out, bytes, stream, err);
	default: return world_gather_on(w, b->in, b->out, part, stream, err);
	}
}

bool collective_is_alike(enum comm_op op)
{
	return op == COMM_REDUCE || op == COMM_GATHER;
}

uint64_t collective_digest(const bf16_t *x, size_t n)
{
	uint64_t sum = n;
	uint32_t two;

	for (size_t i = 0; i < n; i += 2) {
		memcpy(&two, x + i, sizeof two);
		sum = rng_mix(sum ^ two);
	}
	return sum;
}

void collective_kernel(const char *mangled, char text[COLLECTIVE_KERNEL])
{
	static const char nccl[] = "ncclDevKernel_";
	static const char *const algorithms[] = { "RING_", "TREE_", "NVLS_", "COLLNET_", "PAT_" };
	const char *name = mangled;
	char *end;
	size_t n = strlen(name);

	if (!strncmp(name, "_Z", 2)) {
		n = strtoul(name + 2, &end, 10);
		name = end;
	}
	for (size_t i = 0; !strncmp(name, nccl, strlen(nccl)) && i < 5; i++) {
		const char *at = strstr(name, algorithms[i]);

		if (!at || at >= name + n)
			continue;
		n -= (size_t)(at - name);
		name = at;
	}
	snprintf(text, COLLECTIVE_KERNEL, "%.*s",
		 n < COLLECTIVE_KERNEL ? (int)n : COLLECTIVE_KERNEL, name);
}
