/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/support.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define ALL_DIMS (64 | 128 | 256)
#define BOTH (64 | 128)

const struct support supports[] = {
	/* attention */
	{ "attend", 80, 0, 64 | 128, BOTH },
#if !HAVE_CUDA || HAVE_SM90A
	{ "attend", 90, 90, 256, BOTH },
#endif
	{ "columns", 80, 0, ALL_DIMS, BOTH },
	{ "decode", 80, 0, ALL_DIMS, BOTH },
	/* gated DeltaNet; 128 needs 163 KiB of shared memory */
	{ "delta", 80, 0, 64, SUPPORT_ANY },
	{ "delta", 80, 80, 128, SUPPORT_ANY },
	{ "delta", 90, 119, 128, SUPPORT_ANY },
	/* selectors */
	{ "ashape", 80, 0, SUPPORT_ANY, SUPPORT_ANY },
	{ "bfla", 80, 0, ALL_DIMS, 128 },
	{ "density", 80, 0, SUPPORT_ANY, SUPPORT_ANY },
	{ "flashprefill", 80, 0, ALL_DIMS, BOTH },
	{ "flexprefill", 80, 0, ALL_DIMS, BOTH },
	{ "minference", 80, 0, ALL_DIMS, BOTH },
	{ "oracle", 80, 0, ALL_DIMS, BOTH },
	{ "proxyattn", 80, 0, ALL_DIMS, BOTH },
	{ "quoka", 80, 0, ALL_DIMS, BOTH },
	{ "seer", 80, 0, ALL_DIMS, 64 },
	{ "trishape", 80, 0, SUPPORT_ANY, SUPPORT_ANY },
	{ "xattention", 80, 0, ALL_DIMS, BOTH },
	/* droppers */
	{ "lazyllm", 80, 0, ALL_DIMS, BOTH },
	{ "sliminfer", 80, 0, ALL_DIMS, BOTH },
	{ "uniprefill", 80, 0, ALL_DIMS, BOTH },
	{ 0 }
};

/* The rows of a family together. */
struct sum {
	int cc_min; /* the least of all rows; 0: the family has none */
	bool found; /* a row is for the GPU; the sizes are those of such rows */
	unsigned head_dims, page_toks;
};

static struct sum sum_up(const char *kernel, int cc)
{
	struct sum x = { 0 };

	for (const struct support *s = supports; s->kernel; s++) {
		if (strcmp(s->kernel, kernel))
			continue;
		x.cc_min = x.cc_min && x.cc_min < s->cc_min ? x.cc_min : s->cc_min;
		if (cc && (cc < s->cc_min || (s->cc_max && cc > s->cc_max)))
			continue;
		x.found = true;
		x.head_dims |= s->head_dims;
		x.page_toks |= s->page_toks;
	}
	return x;
}

static bool has(unsigned sizes, int size)
{
	bool power = size > 0 && !(size & (size - 1));

	return sizes == SUPPORT_ANY || (power && sizes & (unsigned)size);
}

/* "KERNEL: WHAT SIZE; supported 64, 128 on compute capability 9.0" */
static enum ar_status refuse(const char *kernel, const char *what, int size, unsigned sizes, int cc,
			     struct ar_err *err)
{
	char list[64] = "", on[48] = "";
	size_t n = 0;

	for (unsigned k = 1; k && n < sizeof list; k <<= 1)
		if (sizes & k)
			n += (size_t)snprintf(list + n, sizeof list - n, "%s%u", n ? ", " : "", k);
	if (cc)
		snprintf(on, sizeof on, " on compute capability %d.%d", cc / 10, cc % 10);
	return ar_fail(err, AR_USAGE, "%s: %s %d; supported %s%s", kernel, what, size, list, on);
}

enum ar_status support_check(const char *kernel, const struct attn_shape *s, int cc,
			     struct ar_err *err)
{
	struct sum x = sum_up(kernel, cc);

	if (!x.cc_min)
		return ar_fail(err, AR_USAGE, "%s: there is no CUDA kernel", kernel);
	if (!x.found)
		return ar_fail(err, AR_USAGE,
			       "%s: compute capability %d.%d; supported %d.%d and "
			       "later",
			       kernel, cc / 10, cc % 10, x.cc_min / 10, x.cc_min % 10);
	if (!has(x.head_dims, s->head_dim))
		return refuse(kernel, "head size", s->head_dim, x.head_dims, cc, err);
	if (!has(x.page_toks, s->page_tok))
		return refuse(kernel, "page size", s->page_tok, x.page_toks, cc, err);
	return AR_OK;
}
