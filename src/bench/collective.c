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

	*n = c->op == COMM_REDUCE ? all : all / (size_t)ranks;
	return c->op == COMM_REDUCE ? b->out : b->in;
}

enum ar_status collective_enqueue(struct world *w, const struct collective_buffers *b,
				  const struct collective *c, void *stream, struct ar_err *err)
{
	size_t n;
	bf16_t *in = collective_input(b, c, world_size(w), &n);

	return c->op == COMM_REDUCE ? world_reduce(w, in, n, stream, err) :
				      world_gather_on(w, in, b->out, n * sizeof *in, stream, err);
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
